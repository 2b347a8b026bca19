//! The kernel's own eBPF selftests, rewritten: what needs no instrumentation stays as it is, byte for byte, and where
//! loops are instrumented, the verifier of a guest says of each program what it said before. What is done in the guest is
//! `inside::objects`.

mod compile;
mod judge;
mod rewrite;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{ensure, Context, Result};
use serde::Serialize;

use crate::draw::Random;
use crate::inside::objects::Verdicts;
use crate::lab;
use compile::{Compiled, Place};
use judge::{known_reason, Comparison, Pair};
use rewrite::{by_default, damage, every_loop, functions, Broken, Made};

/// Arguments of `flex-objects`.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// The kernel of lab/kernels.toml whose source package contains the selftests, and that loads them
    #[arg(long, default_value = lab::KERNEL)]
    kernel: String,
    /// Only so many selftests, drawn at random
    #[arg(long)]
    first: Option<usize>,
    /// By which they are drawn
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Only selftests whose names contain this
    #[arg(long, default_value = "")]
    only: String,
    /// The verifier may take so long for a program
    #[arg(long, default_value_t = 90)]
    seconds: u64,
    /// Rewrite only, and start no guest
    #[arg(long)]
    offline: bool,
    /// One JSON object on the last line
    #[arg(long)]
    json: bool,
    /// Damage what was rewritten, to see that the comparison fails
    #[arg(long)]
    broken: Option<Broken>,
}

#[derive(Debug, Default, Serialize)]
struct Outcome {
    kernel: String,
    seed: u64,
    sources: usize,
    /// Selftests that the compiler refuses, by its reason: as they are, and with the header.
    not_compiled: [BTreeMap<String, usize>; 2],
    /// As they are, rewritten with the default choice.
    plain: Rewritten,
    /// With the header, every loop instrumented.
    loops: Rewritten,
    /// The same, with a look at the first branch of each function.
    branches: Rewritten,
    /// Rewritten objects that were damaged on purpose.
    damaged: usize,
    /// On objects with looks in loops,
    loops_verdicts: Comparison,
    /// and in every function.
    branches_verdicts: Comparison,
    faults: Vec<String>,
    ok: bool,
}

/// What the rewriter made of all objects of a form.
#[derive(Debug, Default, Serialize)]
struct Rewritten {
    objects: usize,
    /// Nothing is to do, and the output is the input.
    unchanged: usize,
    changed: usize,
    /// As a whole.
    refused: usize,
    loops: usize,
    looks: usize,
    /// Loops that are not instrumented: they are counted, or their functions are refused.
    left: usize,
    /// Why functions and objects are refused.
    refusals: BTreeMap<String, usize>,
}

/// Compiles, rewrites, loads, and compares.
///
/// # Errors
/// When a verdict changes, the rewriter fails, or there was no guest.
pub fn run(arguments: &Arguments) -> Result<()> {
    let place = Place::new(&arguments.kernel)?;
    let names = chosen(arguments, place.names()?)?;
    eprintln!("flex-objects: compiling {} selftests", names.len());
    let compiled = place.compile(&names)?;
    let folder = tempfile::tempdir()?;
    let mut outcome =
        Outcome { kernel: arguments.kernel.clone(), seed: arguments.seed, sources: names.len(), ..Outcome::default() };
    let mut pairs = Vec::new();
    for each in &compiled {
        pairs.extend(outcome.rewrite(each, folder.path(), arguments.broken)?);
    }
    eprintln!("flex-objects: {} objects are changed", pairs.len());
    if !arguments.offline {
        load(arguments, &pairs, folder.path(), &mut outcome)?;
    }
    outcome.judge(arguments)
}

/// A selftest with its object before and after.
struct Changed {
    name: String,
    before: PathBuf,
    /// With looks in loops,
    loops: Option<PathBuf>,
    /// and in every function.
    branches: Option<PathBuf>,
}

/// Selftests, drawn at random if they are not all.
fn chosen(arguments: &Arguments, names: Vec<String>) -> Result<Vec<String>> {
    let mut names: Vec<String> = names.into_iter().filter(|name| name.contains(&arguments.only)).collect();
    ensure!(!names.is_empty(), "no selftest is called {}", arguments.only);
    let Some(first) = arguments.first else { return Ok(names) };
    let mut random = Random::of("flex-objects", arguments.seed);
    for at in 0..first.min(names.len()) {
        let other = at + random.below((names.len() - at) as u64) as usize;
        names.swap(at, other);
    }
    names.truncate(first);
    Ok(names)
}

impl Outcome {
    fn rewrite(&mut self, compiled: &Compiled, folder: &Path, broken: Option<Broken>) -> Result<Option<Changed>> {
        let name = &compiled.name;
        for (form, object) in [&compiled.plain, &compiled.header].into_iter().enumerate() {
            if let Err(reason) = object {
                *self.not_compiled[form].entry(reason.clone()).or_default() += 1;
            }
        }
        if let Ok(path) = &compiled.plain {
            let bytes = fs::read(path)?;
            let made = by_default(&bytes);
            self.faults.extend(self.plain.add(name, &bytes, &made));
            if made.bytes.is_some_and(|new| new != bytes) {
                self.faults.push(format!("{name}: an object without the header is changed"));
            }
        }
        let Ok(path) = &compiled.header else { return Ok(None) };
        let bytes = fs::read(path)?;
        let mut changed = Changed { name: name.clone(), before: path.clone(), loops: None, branches: None };
        let made = every_loop(&bytes, BTreeSet::new());
        self.faults.extend(self.loops.add(name, &bytes, &made));
        changed.loops = self.keep(made, &bytes, folder.join(format!("{name}.loops.bpf.o")), broken)?;
        let made = every_loop(&bytes, functions(&bytes)?);
        self.faults.extend(self.branches.add(name, &bytes, &made));
        changed.branches = self.keep(made, &bytes, folder.join(format!("{name}.branches.bpf.o")), broken)?;
        Ok((changed.loops.is_some() || changed.branches.is_some()).then_some(changed))
    }

    /// Writes an object that was changed, and damages it if it is told.
    fn keep(&mut self, made: Made, old: &[u8], path: PathBuf, broken: Option<Broken>) -> Result<Option<PathBuf>> {
        let Some(mut new) = made.bytes.filter(|new| new != old) else { return Ok(None) };
        if let Some(how) = broken {
            self.damaged += usize::from(damage(&mut new, how)?);
        }
        fs::write(&path, new)?;
        Ok(Some(path))
    }

    fn judge(mut self, arguments: &Arguments) -> Result<()> {
        eprintln!(
            "flex-objects: {} selftests; {} of {} plain objects unchanged, {} refused",
            self.sources, self.plain.unchanged, self.plain.objects, self.plain.refused
        );
        let forms =
            [("loops", &self.loops, &self.loops_verdicts), ("branches", &self.branches, &self.branches_verdicts)];
        for (form, made, compared) in forms {
            for pair in &compared.known {
                let reason = known_reason(pair).unwrap_or_default();
                eprintln!("flex-objects: {form}: {}, {}: {reason}", pair.object, pair.program);
            }
            for pair in &compared.changed {
                let Pair { object, program, before, after } = pair;
                self.faults.push(format!("{object}, {program}, {form}: {before:?}, then {after:?}"));
            }
            eprintln!(
                "flex-objects: {form}: {} objects changed, {} looks; of {} programs {} are accepted and {} refused both \
                 times, {} gained, {} exhausted, {} changed for known reasons, {} changed, {} slow",
                made.changed,
                made.looks,
                compared.programs,
                compared.accepted,
                compared.refused,
                compared.gained.len(),
                compared.exhausted.len(),
                compared.known.len(),
                compared.changed.len(),
                compared.slow.len()
            );
        }
        self.ok = self.faults.is_empty();
        if arguments.json {
            println!("{}", serde_json::to_string(&serde_json::json!({ "flex_objects": &self }))?);
        }
        ensure!(self.ok, "{}", self.faults.join("\n"));
        Ok(())
    }
}

impl Rewritten {
    /// Adds an object, and returns what must not be.
    fn add(&mut self, name: &str, bytes: &[u8], made: &Made) -> Vec<String> {
        let mut faults = Vec::new();
        self.objects += 1;
        self.loops += made.instrumented;
        self.looks += made.looks;
        self.left += made.left;
        match &made.bytes {
            None => self.refused += 1,
            Some(new) if *new == bytes => self.unchanged += 1,
            Some(_) => self.changed += 1,
        }
        if made.bytes.as_ref().is_some_and(|new| (*new == bytes) != (made.looks == 0)) {
            faults.push(format!("{name}: there are {} looks, and the object shows something else", made.looks));
        }
        if made.panic {
            faults.push(format!("{name}: the rewriter panicked"));
        }
        for refusal in &made.refusals {
            *self.refusals.entry(refusal.reason.clone()).or_default() += 1;
            eprintln!("flex-objects: {name}: {}", refusal.words);
        }
        faults
    }
}

/// Loads objects before and after in a guest, and compares.
fn load(arguments: &Arguments, pairs: &[Changed], folder: &Path, outcome: &mut Outcome) -> Result<()> {
    let of = |pair: &Changed| [Some(pair.before.clone()), pair.loops.clone(), pair.branches.clone()];
    let objects: Vec<PathBuf> = pairs.iter().flat_map(|pair| of(pair).into_iter().flatten()).collect();
    fs::write(folder.join("objects.json"), serde_json::to_vec(&objects)?)?;
    let script = format!(
        "exec {} inside objects --list {} --verdicts $XK_OUT/verdicts --seconds {}",
        std::env::current_exe()?.display(),
        folder.join("objects.json").display(),
        arguments.seconds
    );
    let ended = lab::run_on(&arguments.kernel, &script, &["--memory", "4G", "--timeout", "14400"], folder)?;
    ensure!(
        ended.verdict == "finished" && ended.command_exit == Some(0),
        "the guest ended with {}: {:?}",
        ended.verdict,
        ended.splats.first()
    );
    let mut found = BTreeMap::new();
    for line in fs::read_to_string(folder.join("verdicts")).context("the guest's verdicts")?.lines() {
        let verdicts: Verdicts = serde_json::from_str(line)?;
        found.insert(verdicts.object.clone(), verdicts);
    }
    for pair in pairs {
        let Some(before) = found.get(&pair.before) else {
            outcome.faults.push(format!("{}: the guest did not load it", pair.name));
            continue;
        };
        let forms = [(&pair.loops, &mut outcome.loops_verdicts), (&pair.branches, &mut outcome.branches_verdicts)];
        for (after, verdicts) in forms {
            let Some(after) = after else { continue };
            match found.get(after) {
                Some(after) => verdicts.add(&pair.name, before, after),
                None => outcome.faults.push(format!("{}: the guest did not load {}", pair.name, after.display())),
            }
        }
    }
    Ok(())
}
