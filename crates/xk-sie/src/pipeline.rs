//! From a constant to its scope table: the whole offline side in one place.
//!
//! In: a prepared source tree, the deployed code, a resolved constant. Out: a
//! [`ScopeTable`], or the refusal. Every value is compiled in every unit that
//! can see the constant, in parallel; objects are cached by content, so a
//! second run compiles nothing.

use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Mutex;
use std::time::Instant;

use thiserror::Error;
use xk_const::{BuildTree, Constant, RejectedBy, TreeError, Unit, Users};
use xk_kernel::Tree;
use xk_table::{ConstRef, KernelRef, Place, Range, Refusal, ScopeTable, SCHEMA};

use crate::analyse::{conclude, hull, Input};
use crate::identity::Deployed;
use crate::object::{Object, ObjectError};
use crate::plan::Plan;
use crate::proof::{ProofError, Solver};
use crate::prototypes::Prototypes;
use crate::study::{Means, Study, Variant};

/// How to build.
pub struct Options<'a> {
    /// Folder for compiled variants.
    pub cache: &'a Path,
    /// Compilers to run side by side.
    pub jobs: usize,
    /// Told what happens, a line at a time.
    pub progress: &'a (dyn Fn(&str) + Sync),
}

/// Why there is no scope table.
#[derive(Debug, Error)]
pub enum BuildError {
    /// The constant is not usable on this kernel; the reason is a result.
    #[error("refused: {0}")]
    Refused(#[from] Refusal),
    /// The source tree failed.
    #[error(transparent)]
    Tree(#[from] TreeError),
    /// A variant could not be compiled for a reason that is not its value.
    #[error(transparent)]
    Compile(#[from] xk_const::BuildError),
    /// The layouts could not be compared.
    #[error(transparent)]
    Layout(#[from] xk_const::LayoutError),
    /// An object could not be read.
    #[error("{path}: {source}", path = path.display())]
    Object {
        /// File.
        path: PathBuf,
        /// Cause.
        source: ObjectError,
    },
    /// A file could not be read.
    #[error("{path}: {source}", path = path.display())]
    Io {
        /// File.
        path: PathBuf,
        /// Cause.
        source: std::io::Error,
    },
    /// The solver is missing.
    #[error(transparent)]
    Solver(#[from] ProofError),
}

/// Builds the scope table of `constant`.
///
/// # Errors
/// [`BuildError::Refused`] when the constant is not usable; everything else is
/// a fault of the environment and names the remedy.
pub fn build(
    tree: &Tree,
    deployed: &dyn Deployed,
    kernel: KernelRef,
    constant: &Constant,
    solver: &Solver,
    options: &Options<'_>,
) -> Result<ScopeTable, BuildError> {
    let mut stages = BTreeMap::new();
    let mut clock = Clock { stages: &mut stages, last: Instant::now() };

    let users = xk_const::users(tree, constant)?;
    clock.lap("users");
    if users.units.is_empty() {
        let detail = format!("no unit that this configuration builds uses {}", constant.id);
        return Err(Refusal::NotDeployed { detail }.into());
    }
    refuse_elsewhere(&users)?;
    (options.progress)(&format!("{} unit(s) can see {}", users.units.len(), constant.id));

    let noreturns = noreturns(tree)?;
    let prototypes = deployed.prototypes();
    let variants = Variants { tree, constant, options, prototypes: &prototypes };
    let input = Input { default: constant.default, noreturns: &noreturns, deployed, solver };
    let means = Means { default: constant.default, noreturns: &noreturns, prototypes: &prototypes, solver };

    let mut plan = Plan::new(constant);
    let mut bench: Option<Vec<(Unit, Study)>> = None;
    loop {
        let (range, agreeing) = bench.as_deref().map_or_else(
            || (Range::of(constant.default, constant.default), 0),
            |bench| standing(constant.default, bench),
        );
        let wave = plan.next(range, agreeing);
        if wave.is_empty() {
            break;
        }
        if bench.is_none() {
            let found = variants.deployed(&users.units, &wave)?;
            refuse_layout(&variants, &users, &found, &wave)?;
            clock.lap("layout");
            bench = Some(found);
        }
        let bench = bench.get_or_insert_with(Vec::new);
        let built = variants.compile(bench, &wave)?;
        clock.lap("compile");
        study(&means, bench, built, options.jobs);
        clock.lap("compare");
    }
    let studies: Vec<Study> = bench.unwrap_or_default().into_iter().map(|(_, study)| study).collect();
    let analysis = conclude(&input, &studies)?;
    clock.lap("analyse");
    (options.progress)(&format!("{} critical span(s), values {}", analysis.spans.len(), analysis.range));

    Ok(ScopeTable {
        schema: SCHEMA,
        kernel,
        constant: ConstRef {
            id: constant.id.to_string(),
            name: constant.name.clone(),
            text: constant.text.clone(),
            token: constant.token.clone(),
            default: constant.default,
        },
        range: analysis.range,
        functions: analysis.functions,
        spans: analysis.spans,
        data: Vec::new(),
        validation: analysis.validation,
        units: analysis.units,
        stages,
    })
}

struct Clock<'a> {
    stages: &'a mut BTreeMap<String, f64>,
    last: Instant,
}

impl Clock<'_> {
    fn lap(&mut self, stage: &str) {
        let now = Instant::now();
        *self.stages.entry(stage.into()).or_default() += (now - self.last).as_secs_f64();
        self.last = now;
    }
}

/// The range around the default in which everything agrees so far, and how many
/// values do.
fn standing(default: i64, bench: &[(Unit, Study)]) -> (Range, usize) {
    let studies = || bench.iter().map(|(_, study)| study);
    let range = hull(default, studies());
    let Some(first) = studies().next() else { return (range, 0) };
    let agreeing = first.agreeing().iter().filter(|&&v| range.contains(v) && v != default);
    (range, agreeing.count())
}

/// Looks at what was built, several units side by side.
fn study(means: &Means<'_>, bench: &mut [(Unit, Study)], built: Vec<Vec<(i64, Variant)>>, jobs: usize) {
    let work: Mutex<Vec<_>> = Mutex::new(bench.iter_mut().zip(built).rev().collect());
    std::thread::scope(|scope| {
        for _ in 0..jobs.max(1) {
            scope.spawn(|| loop {
                let next = work.lock().ok().and_then(|mut work| work.pop());
                let Some(((_, study), variants)) = next else { return };
                variants.into_iter().for_each(|(value, variant)| study.add(means, value, variant));
            });
        }
    });
}

/// What the preprocessor decides, and what ends in generated headers, boot code
/// or the vDSO, cannot be changed.
fn refuse_elsewhere(users: &Users) -> Result<(), Refusal> {
    if let Some(mention) = users.conditionals.first() {
        let place = Place { source: format!("{}:{}", mention.path, mention.line), function: "#if".into(), offset: 0 };
        return Err(Refusal::Shape { place, detail: format!("the preprocessor decides by it ({})", mention.what) });
    }
    match users.generated.first() {
        Some(mention) => Err(Refusal::LayoutChange {
            unit: format!("{}:{}", mention.path, mention.line),
            what: format!("what is generated from it ({})", mention.what),
        }),
        None => Ok(()),
    }
}

/// Declarations that mention the constant: do types change their layout?
fn refuse_layout(
    variants: &Variants<'_>,
    users: &Users,
    bench: &[(Unit, Study)],
    wave: &[i64],
) -> Result<(), BuildError> {
    let (Some(mention), Some(&value)) = (users.shapes.first(), wave.first()) else { return Ok(()) };
    for (unit, _) in bench {
        let Variants { tree, constant, options, .. } = variants;
        let changes = xk_const::layout_sensitive(*tree, constant, unit, value, options.cache)?;
        if let Some(change) = changes.first() {
            return Err(Refusal::LayoutChange {
                unit: unit.source.clone(),
                what: format!("{change} (declared at {}:{})", mention.path, mention.line),
            }
            .into());
        }
    }
    Ok(())
}

/// Functions that objtool knows not to return; the same list, so that the
/// comparison and the kernel's own checker agree.
fn noreturns(tree: &Tree) -> Result<HashSet<String>, TreeError> {
    let text = tree.read("tools/objtool/noreturns.h")?;
    let text = String::from_utf8_lossy(&text);
    let name = |line: &str| Some(line.trim().strip_prefix("NORETURN(")?.strip_suffix(')')?.to_owned());
    Ok(text.lines().filter_map(name).collect())
}

struct Variants<'a> {
    tree: &'a Tree,
    constant: &'a Constant,
    options: &'a Options<'a>,
    prototypes: &'a Prototypes,
}

/// What became of one value in one unit.
enum Outcome {
    Variant(Variant),
    /// The unit does not see the definition.
    NotSeen,
}

impl Variants<'_> {
    /// The units that see the constant, each with its deployed build. One value
    /// is compiled to know that; it is in the cache when its turn comes.
    fn deployed(&self, units: &[Unit], wave: &[i64]) -> Result<Vec<(Unit, Study)>, BuildError> {
        let default = self.constant.default;
        let probe = wave.first().copied().unwrap_or(default);
        let jobs: Vec<(&Unit, i64)> = units.iter().flat_map(|unit| [(unit, probe), (unit, default)]).collect();
        let mut outcomes = self.outcomes(&jobs).into_iter();
        let mut bench = Vec::new();
        for unit in units {
            let (Some(probed), Some(base)) = (outcomes.next(), outcomes.next()) else { break };
            if matches!(probed?, Outcome::NotSeen) {
                continue;
            }
            match base? {
                Outcome::NotSeen => {}
                Outcome::Variant(Variant::Built(object)) => {
                    let study = Study::new(unit.source.clone(), unit.module.clone(), *object, self.prototypes);
                    bench.push((unit.clone(), study));
                }
                Outcome::Variant(Variant::Rejected(_, message)) => {
                    let detail = format!("{} does not compile unedited: {message}", unit.source);
                    return Err(Refusal::NotDeployed { detail }.into());
                }
            }
        }
        if bench.is_empty() {
            let detail = format!("no deployed unit compiles the definition of {}", self.constant.id);
            return Err(Refusal::NotDeployed { detail }.into());
        }
        Ok(bench)
    }

    /// Every value of the wave in every unit.
    fn compile(&self, bench: &[(Unit, Study)], wave: &[i64]) -> Result<Vec<Vec<(i64, Variant)>>, BuildError> {
        let jobs: Vec<(&Unit, i64)> =
            bench.iter().flat_map(|(unit, _)| wave.iter().map(move |&value| (unit, value))).collect();
        (self.options.progress)(&format!("compiling {} variant(s)", jobs.len()));
        let mut outcomes = self.outcomes(&jobs).into_iter();
        let mut built = Vec::new();
        for (unit, _) in bench {
            let mut variants = Vec::new();
            for (&value, outcome) in wave.iter().zip(outcomes.by_ref()) {
                match outcome? {
                    Outcome::Variant(variant) => variants.push((value, variant)),
                    Outcome::NotSeen => {
                        let detail = format!("{} sees the constant with one value and not with {value}", unit.source);
                        return Err(Refusal::NotDeployed { detail }.into());
                    }
                }
            }
            built.push(variants);
        }
        Ok(built)
    }

    /// Runs the compilers side by side; the outcomes are in the order of `jobs`.
    fn outcomes(&self, jobs: &[(&Unit, i64)]) -> Vec<Result<Outcome, BuildError>> {
        let next = AtomicUsize::new(0);
        let results: Mutex<BTreeMap<usize, Result<Outcome, BuildError>>> = Mutex::default();
        std::thread::scope(|scope| {
            for _ in 0..self.options.jobs.clamp(1, jobs.len().max(1)) {
                scope.spawn(|| loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    let Some(&(unit, value)) = jobs.get(index) else { return };
                    let outcome = self.outcome(unit, value);
                    if let Ok(mut results) = results.lock() {
                        results.insert(index, outcome);
                    }
                });
            }
        });
        results.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner).into_values().collect()
    }

    fn outcome(&self, unit: &Unit, value: i64) -> Result<Outcome, BuildError> {
        match xk_const::build(self.tree, self.constant, unit, value, self.options.cache) {
            Ok(path) => {
                let data = std::fs::read(&path).map_err(|source| BuildError::Io { path: path.clone(), source })?;
                let object = Object::parse(&data).map_err(|source| BuildError::Object { path, source })?;
                Ok(Outcome::Variant(Variant::Built(Box::new(object))))
            }
            Err(xk_const::BuildError::NotSeen { .. }) => Ok(Outcome::NotSeen),
            Err(xk_const::BuildError::Rejected { by, message, .. }) => {
                Ok(Outcome::Variant(Variant::Rejected(by == RejectedBy::LayoutOrAssert, message)))
            }
            Err(xk_const::BuildError::Edit(error)) => Ok(Outcome::Variant(Variant::Rejected(false, error.to_string()))),
            Err(error) => Err(error.into()),
        }
    }
}
