//! `xk build`: from names to scope tables.

mod all;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Instant;

use xk_analysis::pipeline::{Analyser, BuildError, Options};
use xk_analysis::proof::Solver;
use xk_const::{patched, recall, ResolveError, Spec};
use xk_store::Folders;
use xk_table::ScopeTable;

use crate::exit::{Exit, Failure, Result};
use crate::extend::{extended, SOLVER_SECONDS};
use crate::options::KernelArgs;
use crate::output::{count, values, Paint};
use crate::progress::Progress;
use crate::scopes;

/// Arguments of `xk build`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
The kernel is the running one unless an option names another. Its source package, its headers and
the compiler that it was built with must be installed (see `xk doctor`). --root with --bundle or
--vmlinuz says where source, configuration and modules of that kernel are.")]
pub struct Args {
    /// The constants
    #[arg(required_unless_present_any = ["patch", "all_in"], value_name = "NAME")]
    names: Vec<String>,
    /// A source patch that changes one constant, instead of its name; may be repeated
    #[arg(long, value_name = "FILE")]
    patch: Vec<PathBuf>,
    /// All constants that `xk scan` lists for a file, folder or subsystem; resumes where it stopped
    #[arg(long, value_name = "PATH|SUBSYSTEM", conflicts_with_all = ["names", "patch"])]
    all_in: Option<String>,
    /// With --all-in: also literals in functions (there are many)
    #[arg(long, requires = "all_in", conflicts_with_all = ["names", "patch"])]
    literals: bool,
    /// Also accept these values: each is compiled, compared, and added to the table
    #[arg(
        long,
        value_name = "V",
        value_delimiter = ',',
        allow_negative_numbers = true,
        conflicts_with_all = ["all_in", "patch"]
    )]
    values: Vec<i64>,
    #[command(flatten)]
    kernel: KernelArgs,
    /// Number of parallel compilers (default: number of processors)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    jobs: Option<u16>,
}

/// Builds them, one after the other. If one is refused, the others are built all the same.
pub fn run(args: Args) -> Result {
    // Invalid names and patches are reported before the long preparation.
    let mut wanted =
        args.names.iter().map(|name| Ok((name.clone(), Spec::parse(name)?))).collect::<Result<Vec<_>>>()?;
    let patches = args.patch.iter().map(|path| Ok((path, read_patch(path)?))).collect::<Result<Vec<_>>>()?;
    let solver = Solver::z3(SOLVER_SECONDS).map_err(|error| Failure::error(error.to_string()))?;
    let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let image = args.kernel.choice().image()?;
    let folders = Folders::from_environment();
    let paint = Paint::stderr();
    let started = Instant::now();
    let tree = args
        .kernel
        .choice()
        .tree(&image, &folders.cache, &|line| eprintln!("{}", paint.dim(&format!("prepare: {line}"))))?;
    if started.elapsed().as_secs() > 1 {
        eprintln!("{}", paint.dim(&format!("prepare: {:.1} s", started.elapsed().as_secs_f64())));
    }
    let analyser = Analyser::new(image, tree, solver).map_err(|error| Failure::error(error.to_string()))?;
    let jobs = args.jobs.map_or(processors, usize::from);
    let builder = TableBuilder { analyser, folders, jobs };

    if let Some(part) = &args.all_in {
        return all::run(&builder, part, args.literals);
    }
    let known = all::Known::open(&builder)?;
    for (path, text) in &patches {
        wanted.push(builder.patched(path, text)?);
    }
    let mut failures = Vec::new();
    for (name, spec) in &wanted {
        match builder.with_values(name, spec, &args.values) {
            Ok(table) => {
                builder.save(&table)?;
                known.put(&table.constant.id, &all::Outcome::USABLE)?;
            }
            Err(failure) if wanted.len() == 1 => return Err(failure),
            Err(failure) => {
                eprintln!("{} {}", paint.bad(&format!("{}:", failure.exit.word())), failure.message);
                failures.push((name.as_str(), failure.exit));
            }
        }
    }
    summary(&failures, wanted.len())
}

/// The exit code for several failures: theirs if they agree.
fn summary(failures: &[(&str, Exit)], asked: usize) -> Result {
    let Some((_, first)) = failures.first() else { return Ok(()) };
    let exit = if failures.iter().all(|(_, exit)| exit == first) { *first } else { Exit::Error };
    let names: Vec<&str> = failures.iter().map(|(name, _)| *name).collect();
    Err(Failure::new(exit, format!("no table for {} of {asked}: {}", failures.len(), names.join(", "))))
}

/// Maximum size of a patch in bytes.
const LARGEST_PATCH: u64 = 1 << 20;

fn read_patch(path: &Path) -> Result<Vec<u8>> {
    let failed = |error: std::io::Error| Failure::error(format!("cannot read {}: {error}", path.display()));
    let size = std::fs::metadata(path).map_err(failed)?.len();
    if size > LARGEST_PATCH {
        return Err(Failure::usage(format!(
            "{}: larger than 1 MiB, too large for a patch that changes one constant",
            path.display()
        )));
    }
    std::fs::read(path).map_err(failed)
}

/// Makes the tables of all constants of the command line: one analyser, with its kernel and source tree.
struct TableBuilder {
    analyser: Analyser,
    folders: Folders,
    jobs: usize,
}

impl TableBuilder {
    /// The constant that a patch changes.
    fn patched(&self, path: &Path, text: &[u8]) -> Result<(String, Spec)> {
        let found = patched(self.analyser.tree(), text)
            .map_err(|error| Failure::error(format!("{}: {error}", path.display())))?;
        let (old, new) = &found.written;
        let hint = match found.suggestion {
            Some(value) => format!("; once it is built, set {value} to have the patch's value"),
            None => String::new(),
        };
        eprintln!(
            "{}",
            Paint::stderr().dim(&format!("{}: {} reads `{old}`, becomes `{new}`{hint}", path.display(), found.at))
        );
        let name = match &found.spec {
            Spec::Id(id) => id.to_string(),
            _ => found.at,
        };
        Ok((name, found.spec))
    }

    fn table(&self, name: &str, spec: &Spec) -> Result<ScopeTable> {
        self.analyse(name, spec).map_err(|error| error.failure().about(name))
    }

    /// The table with more values. If values are given, a table of an earlier run is extended.
    fn with_values(&self, name: &str, spec: &Spec, values: &[i64]) -> Result<ScopeTable> {
        if values.is_empty() {
            return self.table(name, spec);
        }
        let id = recall(self.analyser.tree(), spec).map_err(Failure::from)?.id.to_string();
        let known = self.folders.store().load(&self.analyser.image().id().build_id, &id);
        let table = match known {
            Ok(table) => table,
            Err(_) => self.table(name, spec)?,
        };
        let Self { analyser, folders, jobs } = self;
        let (image, tree, solver) = (analyser.image(), analyser.tree(), analyser.solver());
        extended(&table, values, (tree, image), solver, folders, *jobs)
    }

    fn analyse(&self, name: &str, spec: &Spec) -> std::result::Result<ScopeTable, Unbuilt> {
        let paint = Paint::stderr();
        let progress = Progress::new(name);
        let started = Instant::now();
        progress.say("resolving");
        let constant = recall(self.analyser.tree(), spec).inspect_err(|_| progress.end())?;
        let resolved = started.elapsed().as_secs_f64();
        let objects = self.folders.cache.join("objects");
        let say = |line: &str| progress.say(line);
        let options = Options { cache: &objects, jobs: self.jobs, progress: &say };
        let analysed = self.analyser.analyse(&constant, &options);
        progress.end();
        let mut table = analysed?;
        table.stages.insert("resolve".into(), resolved);
        let total: f64 = table.stages.values().sum();
        let stages: Vec<String> =
            in_order(&table).into_iter().map(|(stage, seconds)| format!("{stage} {seconds:.2}")).collect();
        eprintln!("{}", paint.dim(&format!("{name}: {} = {total:.2} s", stages.join(" + "))));
        Ok(table)
    }

    /// Computes the safe spans of a table of an earlier run again, if they are outdated. Returns whether they were.
    fn confine_again(&self, id: &str) -> Result<bool> {
        let store = self.folders.store();
        let mut table = store.load(&self.analyser.image().id().build_id, id)?;
        let new = self.analyser.confine(&mut table).map_err(|error| Unbuilt::from(error).failure().about(id))?;
        if new {
            store.save(&table)?;
        }
        Ok(new)
    }

    fn save(&self, table: &ScopeTable) -> Result {
        let path = self.folders.store().save(table)?;
        let paint = Paint::stdout();
        println!(
            "{}  default {}, values {}, {} in {}",
            paint.strong(table.constant.title()),
            table.constant.default,
            paint.value(&values(&table.values)),
            count(table.spans.len(), "span"),
            count(table.spans.iter().map(|span| span.function).collect::<BTreeSet<_>>().len(), "function"),
        );
        println!("  {}", paint.dim(&scopes::line(table)));
        println!("  {}", paint.dim(&path.display().to_string()));
        Ok(())
    }
}

/// The stages in the order in which they ran; unknown stages come last.
fn in_order(table: &ScopeTable) -> Vec<(&str, f64)> {
    const ORDER: [&str; 8] = ["resolve", "users", "compile", "layout", "compare", "prove", "analyse", "spans"];
    let mut stages: Vec<(&str, f64)> = table.stages.iter().map(|(stage, seconds)| (stage.as_str(), *seconds)).collect();
    stages.sort_by_key(|(stage, _)| ORDER.iter().position(|known| known == stage).unwrap_or(ORDER.len()));
    stages
}

/// Why there is no table.
enum Unbuilt {
    Unresolved(ResolveError),
    Analysis(BuildError),
}

impl From<ResolveError> for Unbuilt {
    fn from(error: ResolveError) -> Self {
        Self::Unresolved(error)
    }
}

impl From<BuildError> for Unbuilt {
    fn from(error: BuildError) -> Self {
        Self::Analysis(error)
    }
}

impl Unbuilt {
    fn failure(self) -> Failure {
        match self {
            Self::Unresolved(error) => error.into(),
            Self::Analysis(BuildError::Refused(refusal)) => refusal.into(),
            Self::Analysis(other) => Failure::error(other.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;

    #[test]
    fn stages_are_shown_in_the_order_of_the_pipeline() {
        let mut table = fixture::table();
        table.stages.insert("resolve".into(), 0.1);
        for stage in ["another", "prove", "compare"] {
            table.stages.insert(stage.into(), 0.1);
        }
        let names: Vec<&str> = in_order(&table).into_iter().map(|(stage, _)| stage).collect();
        assert_eq!(names, ["resolve", "users", "compile", "compare", "prove", "analyse", "another"]);
    }

    #[test]
    fn several_refusals_are_a_refusal() {
        let code = |failures: &[(&str, Exit)]| summary(failures, 3).err().map(|failure| failure.exit);
        assert_eq!(code(&[]), None);
        assert_eq!(code(&[("A", Exit::Refused), ("B", Exit::Refused)]), Some(Exit::Refused));
        assert_eq!(code(&[("A", Exit::Refused), ("B", Exit::Error)]), Some(Exit::Error));
    }
}
