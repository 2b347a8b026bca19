//! How long it takes from a constant to its scope table, by stage, for every
//! case study.
//!
//! The tree is prepared once from scratch in a cache of its own; downloading
//! the packages is not part of it. Every constant then starts from what that
//! preparation left: no object, no compile command, nothing that an earlier
//! constant looked up. Only the disk cache is warm.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, Result as Fallible};
use serde::{Deserialize, Serialize};
use xk_analysis::pipeline::{Analyser, BuildError, Options};
use xk_analysis::proof::Solver;
use xk_const::{resolve, Index, Spec};
use xk_kernel::{Image, Source, SourceHints, Tree};

use super::{rounded, say};
use crate::lab;

/// As `xk build`.
const SOLVER_SECONDS: u64 = 30;

/// The result; its fields are the fields of the JSON object.
#[derive(Debug, Serialize)]
pub struct Result {
    bench: &'static str,
    kernel: String,
    jobs: usize,
    /// Processes that wanted a processor during the last minute, before the first stage.
    load_before: f64,
    constants: BTreeMap<String, Analysis>,
    median_s: f64,
    prepare_s: f64,
    prepare_stages: BTreeMap<&'static str, f64>,
}

/// One constant.
#[derive(Debug, Serialize)]
struct Analysis {
    total_s: f64,
    /// Of this process and its compilers and solvers: what a busy machine does not distort.
    processor_s: f64,
    stages: BTreeMap<String, f64>,
    units: usize,
    spans: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    refused: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Case {
    #[serde(rename = "const")]
    constant: String,
}

/// Prepares a tree, then analyses every constant.
pub fn run() -> Fallible<Result> {
    let kernel = lab::kernel()?;
    let cases = cases()?;
    // Beside the ordinary cache: the same disk, and room for a source tree.
    let scratch = lab::cache()?;
    fs::create_dir_all(&scratch).with_context(|| scratch.display().to_string())?;
    let scratch = tempfile::Builder::new().prefix("bench-").tempdir_in(scratch)?;

    let load_before = load()?;
    let bench = PreparedKernel::prepare(&kernel, scratch.path())?;
    let mut constants = BTreeMap::new();
    for name in cases {
        let analysis = bench.analyse(&name)?;
        let outcome = analysis.refused.as_ref().map_or(String::new(), |reason| format!(", refused: {reason}"));
        say(&format!("{name}: {:.2} s{outcome}", analysis.total_s));
        constants.insert(name, analysis);
    }
    Ok(Result {
        bench: "analysis",
        kernel: kernel.release,
        jobs: bench.jobs,
        load_before,
        median_s: rounded(median(constants.values().map(|a| a.total_s).collect())),
        constants,
        prepare_s: rounded(bench.prepare_stages.values().sum()),
        prepare_stages: bench.prepare_stages,
    })
}

/// The constants of the case studies.
fn cases() -> Fallible<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(lab::repository()?.join("cases"))? {
        let path = entry?.path().join("case.toml");
        if path.is_file() {
            let text = fs::read_to_string(&path)?;
            let case: Case = toml::from_str(&text).with_context(|| path.display().to_string())?;
            names.push(case.constant);
        }
    }
    names.sort();
    Ok(names)
}

/// The middle one, or the mean of the two in the middle.
fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let n = values.len();
    match n {
        0 => 0.0,
        _ => (values[(n - 1) / 2] + values[n / 2]) / 2.0,
    }
}

/// Seconds between one lap and the next.
struct Clock(Instant);

impl Clock {
    fn start() -> Self {
        Self(Instant::now())
    }

    fn lap(&mut self) -> f64 {
        let last = std::mem::replace(&mut self.0, Instant::now());
        rounded((self.0 - last).as_secs_f64())
    }
}

struct PreparedKernel {
    root: PathBuf,
    scratch: PathBuf,
    /// Every file of the tree's own notes, as the preparation left them.
    notes: BTreeSet<PathBuf>,
    vmlinuz: PathBuf,
    solver: Solver,
    jobs: usize,
    prepare_stages: BTreeMap<&'static str, f64>,
}

impl PreparedKernel {
    fn prepare(kernel: &lab::Kernel, scratch: &Path) -> Fallible<Self> {
        let solver = Solver::z3(SOLVER_SECONDS)?;
        let image = Image::from_vmlinuz(&kernel.vmlinuz, None)?;
        say(&format!("preparing the source of {} from scratch", kernel.release));
        let mut clock = Clock::start();
        let mut stages = BTreeMap::new();
        let source = Source::locate(image.id(), &SourceHints::in_root(&kernel.root))?;
        let tree = source.prepare(scratch, &|line| say(line))?;
        stages.insert("tree", clock.lap());
        say("listing the deployed units");
        tree.units()?;
        stages.insert("units", clock.lap());
        say("indexing the source");
        Index::open(&tree)?;
        stages.insert("index", clock.lap());
        let root = tree.root().to_owned();
        Ok(Self {
            notes: files(&notes(&root))?,
            root,
            scratch: scratch.to_owned(),
            vmlinuz: kernel.vmlinuz.clone(),
            solver,
            jobs: std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
            prepare_stages: stages,
        })
    }

    /// Forgets what earlier constants left in the tree.
    fn forget(&self) -> Fallible<()> {
        for file in files(&notes(&self.root))?.difference(&self.notes) {
            fs::remove_file(file).with_context(|| file.display().to_string())?;
        }
        Ok(())
    }

    /// What `xk build` does, from the first file that it opens.
    fn analyse(&self, name: &str) -> Fallible<Analysis> {
        self.forget()?;
        let objects = tempfile::tempdir_in(&self.scratch)?;
        let options = Options { cache: objects.path(), jobs: self.jobs, progress: &|_| {} };
        let mut analysis =
            Analysis { total_s: 0.0, processor_s: 0.0, stages: BTreeMap::new(), units: 0, spans: 0, refused: None };

        let before = processor_seconds()?;
        let mut clock = Clock::start();
        let image = Image::from_vmlinuz(&self.vmlinuz, None)?;
        let tree = Tree::open(&self.root)?;
        analysis.stages.insert("kernel".into(), clock.lap());
        let constant = resolve(&tree, &Spec::parse(name)?)?;
        analysis.stages.insert("resolve".into(), clock.lap());
        let built = Analyser::new(image, tree, self.solver.clone())?.analyse(&constant, &options);
        let seconds = clock.lap();
        match built {
            Ok(table) => {
                analysis.units = table.units.len();
                analysis.spans = table.spans.len();
                analysis.stages.extend(table.stages.into_iter().map(|(stage, seconds)| (stage, rounded(seconds))));
            }
            Err(BuildError::Refused(refusal)) => {
                analysis.stages.insert("until_refused".into(), seconds);
                analysis.refused = Some(refusal.to_string());
            }
            Err(error) => return Err(error).context(name.to_owned()),
        }
        analysis.processor_s = rounded(processor_seconds()? - before);
        analysis.total_s = rounded(analysis.stages["kernel"] + analysis.stages["resolve"] + seconds);
        Ok(analysis)
    }
}

/// Seconds that this process and its finished children have spent on processors.
fn processor_seconds() -> Fallible<f64> {
    /// Linux counts them in hundredths for every program.
    const TICKS: f64 = 100.0;
    let text = fs::read_to_string("/proc/self/stat").context("/proc/self/stat")?;
    // The name, in parentheses, may contain anything; user and system time are fields 14 to 17.
    let (_, fields) = text.rsplit_once(')').context("/proc/self/stat has no name")?;
    let ticks =
        fields.split_whitespace().skip(11).take(4).map(str::parse::<f64>).sum::<std::result::Result<f64, _>>()?;
    Ok(ticks / TICKS)
}

fn load() -> Fallible<f64> {
    let text = fs::read_to_string("/proc/loadavg").context("/proc/loadavg")?;
    Ok(text.split_whitespace().next().unwrap_or_default().parse()?)
}

/// Where a tree keeps what it learnt about itself.
fn notes(root: &Path) -> PathBuf {
    root.join(".xk")
}

fn files(folder: &Path) -> Fallible<BTreeSet<PathBuf>> {
    let mut found = BTreeSet::new();
    for entry in fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            found.extend(files(&entry.path())?);
        } else {
            found.insert(entry.path());
        }
    }
    Ok(found)
}

impl Result {
    /// For people.
    pub fn table(&self) -> String {
        const STAGES: [&str; 6] = ["kernel", "resolve", "users", "compile", "layout", "analyse"];
        let mut text =
            format!("Seconds from a constant to its scope table, {}, {} jobs\n  {:<30}", self.kernel, self.jobs, "");
        for column in STAGES {
            let _ = write!(text, "{column:>9}");
        }
        let _ = writeln!(text, "{:>9}{:>10}  units spans", "total", "processor");
        for (name, analysis) in &self.constants {
            let _ = write!(text, "  {name:<30}");
            for stage in STAGES {
                match analysis.stages.get(stage) {
                    Some(seconds) => _ = write!(text, "{seconds:>9.2}"),
                    None => _ = write!(text, "{:>9}", "-"),
                }
            }
            let _ = writeln!(
                text,
                "{:>9.2}{:>10.2}{:>7}{:>6}",
                analysis.total_s, analysis.processor_s, analysis.units, analysis.spans
            );
            if let Some(reason) = &analysis.refused {
                let _ = writeln!(text, "    refused: {reason}");
            }
        }
        let _ = writeln!(text, "  median {:.2} s; preparing the source, once: {:.1} s", self.median_s, self.prepare_s);
        let _ = writeln!(text, "  load of the machine beforehand: {}", self.load_before);
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_lies_in_the_middle() {
        assert_eq!(median(vec![3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(vec![4.0, 1.0, 3.0, 2.0]), 2.5);
        assert_eq!(median(vec![]), 0.0);
    }

    #[test]
    fn every_case_names_a_constant() {
        let names = cases().unwrap();
        assert_eq!(names.len(), 9);
        assert!(names.iter().all(|name| Spec::parse(name).is_ok()));
    }
}
