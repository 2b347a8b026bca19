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
use xk_const::{choose_values, BuildTree, Constant, Edges, RejectedBy, TreeError, Unit, Users};
use xk_kernel::Tree;
use xk_table::{ConstRef, KernelRef, Place, Refusal, ScopeTable, SCHEMA};

use crate::analyse::{analyse, Builds, Input};
use crate::identity::Deployed;
use crate::object::{Object, ObjectError};
use crate::proof::{ProofError, Solver};

/// Values that the fit never saw; each is compiled and must agree.
const UNSEEN: usize = 5;

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

    let (fitted, unseen) = values(constant);
    let variants = Variants { tree, constant, options };
    let units = variants.compile(&users.units, &fitted, &unseen)?;
    clock.lap("compile");
    refuse_layout(&variants, &users, &units, &fitted)?;
    clock.lap("layout");

    let noreturns = noreturns(tree)?;
    let input = Input { default: constant.default, units, noreturns: &noreturns, deployed, solver };
    let analysis = analyse(&input)?;
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
        self.stages.insert(stage.into(), (now - self.last).as_secs_f64());
        self.last = now;
    }
}

/// Values to fit from, and values that only confirm. Of the latter the largest
/// and the smallest are always taken: they bound the range. So is 1, the
/// natural end of most; if the code has another shape there, the range ends
/// before it.
fn values(constant: &Constant) -> (Vec<i64>, Vec<i64>) {
    let chosen = choose_values(constant.default, constant.c_type, constant.operator, Edges::Include);
    let mut unseen = chosen.unseen;
    unseen.retain(|&v| v != 0);
    let smallest = unseen.iter().filter(|&&v| v != 1).min();
    let one = unseen.iter().find(|&&v| v == 1);
    let mut outer: Vec<i64> = [unseen.iter().max(), smallest, one].into_iter().flatten().copied().collect();
    outer.dedup();
    unseen.retain(|v| !outer.contains(v));
    unseen.truncate(UNSEEN.saturating_sub(outer.len()));
    unseen.extend(outer);
    unseen.dedup();
    (chosen.fit, unseen)
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
fn refuse_layout(variants: &Variants<'_>, users: &Users, units: &[Builds], fitted: &[i64]) -> Result<(), BuildError> {
    let (Some(mention), Some(&value)) = (users.shapes.first(), fitted.first()) else { return Ok(()) };
    for builds in units {
        let Some(unit) = users.units.iter().find(|u| u.source == builds.source) else { continue };
        let Variants { tree, constant, options } = variants;
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
}

/// What became of one value in one unit.
enum Outcome {
    Object(Box<Object>),
    /// The unit does not see the definition.
    NotSeen,
    /// The compiler rejects the value.
    Rejected(RejectedBy, String),
}

impl Variants<'_> {
    fn compile(&self, units: &[Unit], fitted: &[i64], unseen: &[i64]) -> Result<Vec<Builds>, BuildError> {
        let values: Vec<i64> =
            [self.constant.default].into_iter().chain(fitted.iter().copied()).chain(unseen.iter().copied()).collect();
        let jobs: Vec<(usize, i64)> =
            units.iter().enumerate().flat_map(|(unit, _)| values.iter().map(move |&v| (unit, v))).collect();
        (self.options.progress)(&format!("compiling {} variant(s)", jobs.len()));
        let next = AtomicUsize::new(0);
        let results: Mutex<BTreeMap<(usize, i64), Result<Outcome, BuildError>>> = Mutex::default();
        std::thread::scope(|scope| {
            for _ in 0..self.options.jobs.clamp(1, jobs.len().max(1)) {
                scope.spawn(|| loop {
                    let Some(&(unit, value)) = jobs.get(next.fetch_add(1, Ordering::Relaxed)) else { return };
                    let outcome = self.outcome(&units[unit], value);
                    if let Ok(mut results) = results.lock() {
                        results.insert((unit, value), outcome);
                    }
                });
            }
        });
        let mut results = results.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
        let mut builds = Vec::new();
        for (index, unit) in units.iter().enumerate() {
            if let Some(built) = self.collect(index, unit, fitted, unseen, &mut results)? {
                builds.push(built);
            }
        }
        if builds.is_empty() {
            let detail = format!("no deployed unit compiles the definition of {}", self.constant.id);
            return Err(Refusal::NotDeployed { detail }.into());
        }
        Ok(builds)
    }

    fn outcome(&self, unit: &Unit, value: i64) -> Result<Outcome, BuildError> {
        match xk_const::build(self.tree, self.constant, unit, value, self.options.cache) {
            Ok(path) => {
                let data = std::fs::read(&path).map_err(|source| BuildError::Io { path: path.clone(), source })?;
                let object = Object::parse(&data).map_err(|source| BuildError::Object { path, source })?;
                Ok(Outcome::Object(Box::new(object)))
            }
            Err(xk_const::BuildError::NotSeen { .. }) => Ok(Outcome::NotSeen),
            Err(xk_const::BuildError::Rejected { by, message, .. }) => Ok(Outcome::Rejected(by, message)),
            Err(xk_const::BuildError::Edit(error)) => Ok(Outcome::Rejected(RejectedBy::Other, error.to_string())),
            Err(error) => Err(error.into()),
        }
    }

    /// The builds of one unit; `None` when it does not see the constant. A
    /// value that is rejected is left out: the range ends before it. When all
    /// are, the constant is refused in the compiler's words.
    fn collect(
        &self,
        index: usize,
        unit: &Unit,
        fitted: &[i64],
        unseen: &[i64],
        results: &mut BTreeMap<(usize, i64), Result<Outcome, BuildError>>,
    ) -> Result<Option<Builds>, BuildError> {
        let missing = || Refusal::NotDeployed { detail: format!("{} was not compiled", unit.source) };
        let mut take = |value: i64| results.remove(&(index, value)).unwrap_or_else(|| Err(missing().into()));
        let base = match take(self.constant.default)? {
            Outcome::Object(object) => *object,
            Outcome::NotSeen => return Ok(None),
            Outcome::Rejected(_, message) => {
                let detail = format!("{} does not compile unedited: {message}", unit.source);
                return Err(Refusal::NotDeployed { detail }.into());
            }
        };
        let mut rejected = None;
        let mut kept = |values: &[i64]| -> Result<Option<Vec<(i64, Object)>>, BuildError> {
            let mut objects = Vec::new();
            for &value in values {
                match take(value)? {
                    Outcome::Object(object) => objects.push((value, *object)),
                    Outcome::NotSeen => return Ok(None),
                    Outcome::Rejected(by, message) => rejected = Some((value, by, message)),
                }
            }
            Ok(Some(objects))
        };
        let (Some(fitted), Some(unseen)) = (kept(fitted)?, kept(unseen)?) else { return Ok(None) };
        if let (true, Some((value, by, message))) = (fitted.is_empty(), rejected) {
            let what = match by {
                RejectedBy::LayoutOrAssert => format!("an assertion about the value {value} ({message})"),
                RejectedBy::Other => format!("the unit, which does not compile with {value} ({message}),"),
            };
            return Err(Refusal::LayoutChange { unit: unit.source.clone(), what }.into());
        }
        Ok(Some(Builds { source: unit.source.clone(), module: unit.module.clone(), base, fitted, unseen }))
    }
}
