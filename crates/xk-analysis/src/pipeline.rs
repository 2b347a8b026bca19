//! From a constant to its scope table: the whole offline side in one place.
//!
//! In: a prepared source tree, the deployed code, a resolved constant. Out: a finished
//! [`ScopeTable`], with its safe spans and windows, or the refusal. Every value is compiled in every
//! unit that can see the constant, in parallel; objects are cached by content, so a
//! second run compiles nothing.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Instant;

use thiserror::Error;
use xk_const::{BuildTree, Constant, TreeError, Unit, Users};
use xk_kernel::{Image, Tree};
use xk_lift::object::ObjectError;
use xk_span::confine::Confiner;
use xk_span::error::ConfineError;
use xk_table::{ConstRef, KernelRef, Mode, Place, Range, Refusal, ScopeTable, Values, SCHEMA};

use crate::analyse::{conclude, fitted, hull, observed, Input};
use crate::identity::Deployed;
use crate::plan::{Domain, Plan, Standing, UNSEEN};
use crate::proof::{ProofError, Solver};
use crate::study::{Means, Study, Variant};
use crate::theorem::{FromTree, Functions, Theorem};
use crate::variants::Variants;

/// Compilations for values that nobody has asked for yet, of all units of a constant.
const MOST_COMPILED: usize = 48;

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
    /// There are no safe spans, for a reason that is not the constant.
    #[error(transparent)]
    Spans(ConfineError),
}

impl From<ConfineError> for BuildError {
    fn from(error: ConfineError) -> Self {
        match error {
            ConfineError::Refused(refusal) => Self::Refused(refusal),
            other => Self::Spans(other),
        }
    }
}

/// Analyses the constants of one kernel, one after the other. Keeps what all of them need.
#[derive(Debug)]
pub struct Analyser {
    image: Image,
    tree: Tree,
    solver: Solver,
    confiner: RefCell<Confiner>,
}

impl Analyser {
    /// For the kernel of `image`, which was built from `tree`.
    ///
    /// # Errors
    /// When the tree does not list the functions that do not return.
    pub fn new(image: Image, tree: Tree, solver: Solver) -> Result<Self, TreeError> {
        let confiner = RefCell::new(Confiner::new(noreturns(&tree)?));
        Ok(Self { image, tree, solver, confiner })
    }

    /// The kernel.
    #[must_use]
    pub fn image(&self) -> &Image {
        &self.image
    }

    /// Its source.
    #[must_use]
    pub fn tree(&self) -> &Tree {
        &self.tree
    }

    /// The solver that decides proofs.
    #[must_use]
    pub fn solver(&self) -> &Solver {
        &self.solver
    }

    /// The scope table of `constant`.
    ///
    /// # Errors
    /// [`BuildError::Refused`] when the constant is not usable; everything else is
    /// a fault of the environment and names the remedy.
    pub fn analyse(&self, constant: &Constant, options: &Options<'_>) -> Result<ScopeTable, BuildError> {
        let id = self.image.id();
        let kernel = KernelRef { release: id.release.clone(), build_id: id.build_id.clone() };
        let Unconfined(mut table) = build(&self.tree, &self.image, kernel, constant, &self.solver, options)?;
        (options.progress)("following the values");
        self.confine(&mut table)?;
        Ok(table)
    }

    /// Computes the safe spans and windows of `table` again if another version of this program computed them.
    /// Returns whether it did.
    ///
    /// # Errors
    /// As [`Analyser::analyse`]. The table must not be used then.
    pub fn confine(&self, table: &mut ScopeTable) -> Result<bool, BuildError> {
        Ok(self.confiner.borrow_mut().confine(&self.image, table)?)
    }
}

/// A table without safe spans. It does not leave this module.
struct Unconfined(ScopeTable);

fn build(
    tree: &Tree,
    deployed: &dyn Deployed,
    kernel: KernelRef,
    constant: &Constant,
    solver: &Solver,
    options: &Options<'_>,
) -> Result<Unconfined, BuildError> {
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
    let modules: BTreeSet<&str> = users.units.iter().filter_map(|unit| unit.module.as_deref()).collect();
    let prototypes = deployed.prototypes(&modules.into_iter().collect::<Vec<_>>());
    let variants = Variants { tree, constant, options, prototypes: &prototypes };
    let means = Means { default: constant.default, noreturns: &noreturns, prototypes: &prototypes, solver };
    let mut found: Option<(usize, Vec<Unit>, Vec<Study>)> = None;
    for domain in Domain::of(constant) {
        let (units, studies) = observe(&variants, &means, &users, Plan::new(constant, domain), &mut clock)?;
        let agreeing = standing(constant.default, &studies).confirmed;
        let better = found.as_ref().is_none_or(|(before, ..)| agreeing > *before);
        let enough = agreeing >= UNSEEN || studies.iter().any(Study::is_hopeless);
        if better {
            found = Some((agreeing, units, studies));
        }
        if enough {
            break;
        }
    }
    let (_, units, mut studies) = found.unwrap_or_default();
    let input = Input { default: constant.default, noreturns: &noreturns, deployed, solver };
    fitted(&input, &studies)?;
    let values = shown(&variants, &means, &units, &mut studies)?;
    clock.lap("prove");
    let analysis = conclude(&input, &studies, values)?;
    clock.lap("analyse");
    (options.progress)(&format!("{} critical span(s), values {}", analysis.spans.len(), analysis.values));

    Ok(Unconfined(ScopeTable {
        schema: SCHEMA,
        kernel,
        constant: ConstRef {
            id: constant.id.to_string(),
            name: constant.name.clone(),
            text: constant.text.clone(),
            token: constant.token.clone(),
            default: constant.default,
        },
        values: analysis.values,
        functions: analysis.functions,
        spans: analysis.spans,
        data: analysis.data,
        scopes: Vec::new(),
        mode: Mode::Global,
        escapes: Vec::new(),
        scoped: None,
        units: analysis.units,
        stages,
    }))
}

/// Values that people try: the default doubled and halved, and round numbers around it, the nearest
/// first.
fn round_values(default: i64) -> Vec<i64> {
    let doubled = (1..=4).flat_map(|n| [default.saturating_mul(1 << n), default >> n]);
    let decades = (0..=12).flat_map(|n| [1, 2, 5].map(|digit| digit * 10i64.pow(n)));
    let near = decades.filter(|&value| default / 10 <= value && value <= default.saturating_mul(10));
    let mut met = BTreeSet::from([default]);
    doubled.chain(near).filter(|&value| met.insert(value)).collect()
}

/// For which values the units do what their source does.
fn shown(
    variants: &Variants<'_>,
    means: &Means<'_>,
    units: &[Unit],
    studies: &mut [Study],
) -> Result<Values, BuildError> {
    let Variants { tree, constant, options, .. } = *variants;
    let observed = observed(constant.default, studies);
    let functions = studies.iter().filter_map(|study| Some(Functions { code: study.seeds()?, data: study.data() }));
    let compiler = FromTree { tree, constant, cache: options.cache, units };
    (options.progress)("proving for all values");
    let theorem = Theorem {
        c_type: constant.c_type,
        means: *means,
        compiler: &compiler,
        studies,
        functions: functions.collect(),
        jobs: options.jobs,
    };
    let mut values = theorem.values(&observed.compiled.iter().copied().collect())?;
    if values.proved.is_some() {
        return Ok(with_refused(values, observed.refused));
    }
    if let Some((seeds, values)) = theorem.ordered()? {
        studies.iter_mut().zip(seeds).for_each(|(study, seeds)| study.test_for_order(seeds));
        return Ok(with_refused(values, observed.refused));
    }
    let fresh = |value: &i64| !values.contains(*value) && !observed.refused.contains_key(value);
    let sensible = |value: &i64| *value > 0 && constant.c_type.fits(*value);
    let more: Vec<i64> = round_values(constant.default).into_iter().filter(fresh).filter(sensible).collect();
    let more = &more[..more.len().min(MOST_COMPILED / units.len().max(1))];
    (options.progress)(&format!("compiling {} value(s) that are likely to be wanted", more.len()));
    for (value, verdict) in theorem.compiled(more, None)? {
        match verdict {
            Ok(()) => values.compiled.push(value),
            Err(why) => _ = values.refused.insert(value, why.to_string()),
        }
    }
    values.compiled.sort_unstable();
    Ok(with_refused(values, observed.refused))
}

fn with_refused(mut values: Values, refused: BTreeMap<i64, String>) -> Values {
    for (value, why) in refused {
        if !values.contains(value) {
            values.refused.entry(value).or_insert(why);
        }
    }
    values
}

/// Compiles and compares wave by wave, until enough values agree or none are left.
fn observe(
    variants: &Variants<'_>,
    means: &Means<'_>,
    users: &Users,
    mut plan: Plan<'_>,
    clock: &mut Clock<'_>,
) -> Result<(Vec<Unit>, Vec<Study>), BuildError> {
    let mut bench: Option<(Vec<Unit>, Vec<Study>)> = None;
    loop {
        let wave = plan.next(&standing(means.default, bench.as_ref().map_or(&[], |(_, studies)| studies)));
        if wave.is_empty() {
            return Ok(bench.unwrap_or_default());
        }
        if bench.is_none() {
            let found = variants.deployed(&users.units, &wave)?;
            clock.lap("compile");
            refuse_layout(variants, users, &found.0, &wave)?;
            clock.lap("layout");
            bench = Some(found);
        }
        let (units, studies) = bench.get_or_insert_default();
        for at in cheapest_first(studies) {
            // What does not agree in one unit need not be compiled in others.
            let failed: BTreeSet<i64> = studies.iter().flat_map(|study| study.open().keys().copied()).collect();
            let left: Vec<i64> = wave.iter().copied().filter(|value| !failed.contains(value)).collect();
            let built =
                variants.compile(&units[at..=at], &left, &plan.ahead(Range::of(means.default, means.default)))?;
            clock.lap("compile");
            study(means, &mut studies[at..=at], built, 1);
            clock.lap("compare");
            if studies[at].is_hopeless() {
                return Ok(bench.unwrap_or_default());
            }
        }
    }
}

/// The units in the order in which they are looked at: small ones compile quickly.
fn cheapest_first(studies: &[Study]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..studies.len()).collect();
    order.sort_by_key(|&at| studies[at].base.insns.len());
    order
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

fn standing(default: i64, studies: &[Study]) -> Standing {
    let hull = hull(default, studies.iter());
    let unseen = |v: &&i64| hull.contains(**v) && **v != default && !studies.iter().any(|s| s.fitted().contains(v));
    let confirmed = studies.first().map_or(0, |first| first.agreeing().iter().filter(unseen).count());
    let in_all = |v: &&i64| studies.iter().all(|study| study.agreeing().contains(v));
    let others =
        studies.first().is_some_and(|first| first.agreeing().iter().filter(in_all).any(|v| v.count_ones() != 1));
    Standing { hull, confirmed, others, fitted: !studies.is_empty() && studies.iter().all(|s| s.seeds().is_some()) }
}

/// Looks at what was built, several units side by side.
pub(crate) fn study(means: &Means<'_>, studies: &mut [Study], built: Vec<Vec<(i64, Variant)>>, jobs: usize) {
    let work: Mutex<Vec<_>> = Mutex::new(studies.iter_mut().zip(built).rev().collect());
    std::thread::scope(|scope| {
        for _ in 0..jobs.max(1) {
            scope.spawn(|| loop {
                let next = work.lock().ok().and_then(|mut work| work.pop());
                let Some((study, variants)) = next else { return };
                variants.into_iter().for_each(|(value, variant)| study.add(means, value, variant));
            });
        }
    });
}

/// What the preprocessor decides, and what ends in generated headers, boot code
/// or the vDSO, cannot be changed.
pub(crate) fn refuse_elsewhere(users: &Users) -> Result<(), Refusal> {
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
pub(crate) fn refuse_layout(
    variants: &Variants<'_>,
    users: &Users,
    units: &[Unit],
    wave: &[i64],
) -> Result<(), BuildError> {
    let (Some(mention), Some(&value)) = (users.shapes.first(), wave.first()) else { return Ok(()) };
    for unit in units {
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
pub fn noreturns(tree: &Tree) -> Result<HashSet<String>, TreeError> {
    let text = tree.read("tools/objtool/noreturns.h")?;
    let text = String::from_utf8_lossy(&text);
    let name = |line: &str| Some(line.trim().strip_prefix("NORETURN(")?.strip_suffix(')')?.to_owned());
    Ok(text.lines().filter_map(name).collect())
}
