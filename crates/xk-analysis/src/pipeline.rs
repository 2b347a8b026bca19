//! From a constant to its scope table: the whole offline side in one place.
//!
//! In: a prepared source tree, the deployed code, a resolved constant. Out: a finished
//! [`ScopeTable`], with its safe spans and windows, or the refusal. Every value is compiled in every
//! unit that can see the constant, in parallel; objects are cached by content, so a
//! second run compiles nothing.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Mutex;
use std::time::Instant;

use xk_const::{BuildTree, Constant, TreeError, Unit, Users};
use xk_kernel::{Image, Tree};
use xk_span::confine::Confiner;
use xk_table::{ConstRef, KernelRef, Mode, Place, Range, Refusal, ScopeTable, Values, SCHEMA};

use crate::analyse::{conclude, fitted, hull, observed, Input};
pub use crate::build_error::BuildError;
use crate::constants::Seeds;
use crate::data::DataSeeds;
use crate::identity::Deployed;
use crate::plan::{Domain, Plan, Standing, UNSEEN};
use crate::proof::Solver;
use crate::study::{Means, Study, Variant};
use crate::theorem::{FromTree, Functions, NotShown, Theorem, With};
pub use crate::variants::Options;
use crate::variants::Variants;
use crate::words::counted;

/// Most compilations of all units of a constant for values that were not requested.
const MOST_COMPILED: usize = 48;

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
    (options.progress)(&format!("{} can see {}", counted(users.units.len(), "unit"), constant.id));

    let noreturns = noreturns(tree)?;
    let modules: BTreeSet<&str> = users.units.iter().filter_map(|unit| unit.module.as_deref()).collect();
    let prototypes = deployed.prototypes(&modules.into_iter().collect::<Vec<_>>());
    let variants = Variants { tree, constant, options, prototypes: &prototypes };
    let means = Means { default: constant.default, noreturns: &noreturns, prototypes: &prototypes, solver };
    let mut bench = observe_best(&variants, &means, &users, &mut clock)?;
    let input = Input { default: constant.default, noreturns: &noreturns, deployed, solver };
    fitted(&input, &bench.studies)?;
    let values = shown(&variants, &means, &mut bench)?;
    let studies = bench.studies;
    clock.lap("prove");
    let analysis = conclude(&input, &studies, values)?;
    clock.lap("analyse");
    (options.progress)(&format!("{}, values {}", counted(analysis.spans.len(), "critical span"), analysis.values));

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

/// The units of a constant, and what is known of them.
#[derive(Default)]
struct Bench {
    units: Vec<Unit>,
    studies: Vec<Study>,
    attempt: Option<Attempt>,
}

/// A proof for all values that was tried with the first functions of V.
struct Attempt {
    /// The functions of each unit, of code and of data.
    functions: Vec<(Option<Seeds>, DataSeeds)>,
    /// What became of it.
    shown: Result<Range, NotShown>,
}

impl Bench {
    /// What became of a proof with the functions that the units have now, if it was tried.
    fn attempted(&self) -> Option<&Result<Range, NotShown>> {
        let attempt = self.attempt.as_ref()?;
        (functions(&self.studies) == attempt.functions).then_some(&attempt.shown)
    }
}

fn functions(studies: &[Study]) -> Vec<(Option<Seeds>, DataSeeds)> {
    studies.iter().map(|study| (study.seeds().cloned(), study.data().clone())).collect()
}

/// Observes one domain of values after the other, until enough values agree. Returns what was observed of the domain
/// with the most values that agree.
fn observe_best(
    variants: &Variants<'_>,
    means: &Means<'_>,
    users: &Users,
    clock: &mut Clock<'_>,
) -> Result<Bench, BuildError> {
    let mut best: Option<(usize, Bench)> = None;
    for domain in Domain::of(variants.constant) {
        let (bench, is_proved) = observe(variants, means, users, Plan::new(variants.constant, domain), clock)?;
        if is_proved {
            return Ok(bench);
        }
        let agreeing = standing(means.default, &bench.studies).confirmed;
        let is_better = best.as_ref().is_none_or(|(before, _)| agreeing > *before);
        let is_enough = agreeing >= UNSEEN || bench.studies.iter().any(Study::is_hopeless);
        if is_better {
            best = Some((agreeing, bench));
        }
        if is_enough {
            break;
        }
    }
    Ok(best.map(|(_, bench)| bench).unwrap_or_default())
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

/// What is to be shown of units that have functions of V.
fn theorem<'a>(
    variants: &'a Variants<'_>,
    means: &Means<'a>,
    compiler: &'a FromTree<'_>,
    studies: &'a [Study],
) -> Theorem<'a> {
    let functions = studies.iter().filter_map(|study| Some(Functions { code: study.seeds()?, data: study.data() }));
    Theorem {
        c_type: variants.constant.c_type,
        means: *means,
        compiler,
        studies,
        functions: functions.collect(),
        jobs: variants.options.jobs,
    }
}

fn compiler<'a>(variants: &Variants<'a>, units: &'a [Unit]) -> FromTree<'a> {
    FromTree { tree: variants.tree, constant: variants.constant, cache: variants.options.cache, units }
}

/// Makes the words of data as wide as what depends on the constant.
fn size_words(variants: &Variants<'_>, means: &Means<'_>, bench: &mut Bench) -> Result<(), BuildError> {
    let studies = &bench.studies;
    if studies.iter().all(|study| study.data().is_empty()) || studies.iter().any(|study| study.seeds().is_none()) {
        return Ok(());
    }
    let compiler = compiler(variants, &bench.units);
    let words = theorem(variants, means, &compiler, studies).sized()?;
    bench.studies.iter_mut().zip(words).for_each(|(study, words)| study.size_words(means, &words));
    Ok(())
}

/// Tries the proof for all values with the first functions of V. Returns whether it makes compiling more values
/// superfluous, which are `next`: it covers all of them.
fn attempt(variants: &Variants<'_>, means: &Means<'_>, bench: &mut Bench, next: &[i64]) -> Result<bool, BuildError> {
    size_words(variants, means, bench)?;
    let functions = functions(&bench.studies);
    let follows = |(code, data): &(Option<Seeds>, DataSeeds)| {
        code.as_ref().is_some_and(|code| !code.is_empty()) || !data.is_empty()
    };
    let are_known = functions.iter().all(|(code, _)| code.is_some()) && functions.iter().any(follows);
    if !are_known || bench.attempt.is_some() {
        return Ok(false);
    }
    (variants.options.progress)("proving for all values");
    let compiler = compiler(variants, &bench.units);
    let shown = theorem(variants, means, &compiler, &bench.studies).for_all()?;
    let covers = shown.as_ref().is_ok_and(|range| next.iter().all(|value| range.contains(*value)));
    bench.attempt = Some(Attempt { functions, shown });
    Ok(covers)
}

/// For which values the units do what their source does.
fn shown(variants: &Variants<'_>, means: &Means<'_>, bench: &mut Bench) -> Result<Values, BuildError> {
    let Variants { constant, options, .. } = *variants;
    size_words(variants, means, bench)?;
    let attempted = bench.attempted().cloned();
    let Bench { units, studies, .. } = bench;
    let observed = observed(constant.default, studies);
    let compiler = compiler(variants, units);
    let theorem = theorem(variants, means, &compiler, studies);
    let for_all = match attempted {
        Some(known) => known,
        None => {
            (options.progress)("proving for all values");
            theorem.for_all()?
        }
    };
    let mut values = theorem.values(for_all, &observed.compiled.iter().copied().collect())?;
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
    (options.progress)(&format!("compiling {} that are likely to be wanted", counted(more.len(), "value")));
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

/// Compiles and compares wave by wave, until all values are proved, enough values agree, or none are left. Returns
/// whether all are proved.
fn observe(
    variants: &Variants<'_>,
    means: &Means<'_>,
    users: &Users,
    mut plan: Plan<'_>,
    clock: &mut Clock<'_>,
) -> Result<(Bench, bool), BuildError> {
    let mut bench = Bench::default();
    loop {
        let wave = plan.next(&standing(means.default, &bench.studies));
        if wave.is_empty() {
            return Ok((bench, false));
        }
        if bench.studies.is_empty() {
            let (units, studies) = variants.deployed(&users.units, &wave)?;
            clock.lap("compile");
            refuse_layout(variants, users, &units, &wave)?;
            clock.lap("layout");
            bench = Bench { units, studies, attempt: None };
        }
        let next = plan.ahead(Range::of(means.default, means.default));
        let ahead: &[With] = if next.is_empty() { &[] } else { &[With::Opaque] };
        for at in cheapest_first(&bench.studies) {
            // What does not agree in one unit need not be compiled in others.
            let failed: BTreeSet<i64> = bench.studies.iter().flat_map(|study| study.open().keys().copied()).collect();
            let left: Vec<i64> = wave.iter().copied().filter(|value| !failed.contains(value)).collect();
            let built = variants.compile(&bench.units[at..=at], &left, ahead)?;
            clock.lap("compile");
            study(means, &mut bench.studies[at..=at], built, 1);
            clock.lap("compare");
            if bench.studies[at].is_hopeless() {
                return Ok((bench, false));
            }
        }
        let is_proved = !next.is_empty() && attempt(variants, means, &mut bench, &next)?;
        clock.lap("prove");
        if is_proved {
            return Ok((bench, true));
        }
    }
}

/// The order in which units are compiled and compared: the small ones first, because they compile quickly.
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
