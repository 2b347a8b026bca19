//! What is shown of a constant: for which values the deployed code, with functions of V in the
//! places of its constants, does what the source does with V.
//!
//! Two ways lead there (docs/proofs.md). *For all*: the unit is compiled with a value that the
//! compiler cannot know, and the deployed build is shown to simulate that one for every V of a
//! range. *These*: one value is compiled, and the deployed build with that value's constants is
//! shown to do the same as the result. Nothing is concluded from one value about another.
//!
//! Neither is enough where the code tests for equality what the source may test for order: a change
//! while it runs may be missed ([`crate::equality`]). Such a unit is refused, or its updates test for
//! order and are shown to simulate a build in which the constant is volatile ([`crate::order`]).
//!
//! How the functions of V were found does not matter here: they may be guesses.

mod compiler;
mod not_shown;
mod words;

pub(crate) use compiler::{built, FromTree};
pub use compiler::{Compiled, Compiler, With};
pub use not_shown::{NotShown, Places};

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};

use xk_const::CType;
use xk_lift::flow::Flow;
use xk_lift::insn::Node;
use xk_lift::notes::Notes;
use xk_lift::object::Object;
use xk_table::{Fit, Form, Range, Values};

use crate::build_error::BuildError;
use crate::constants::Field;
use crate::constants::Seeds;
use crate::data::{self, DataSeeds, Renamed};
use crate::defined::{defined, symbolic};
use crate::equality::{self, Holder};
use crate::order;
use crate::simulation::{simulate, Build, Mismatch, Replacement, Replacements, Rules};
use crate::study::{Disagreement, Means, Study};

/// Stack of a thread that compares: terms are walked recursively.
const STACK_BYTES: usize = 512 << 20;

/// What the deployed code of one unit has in the places of its constants.
#[derive(Debug, Clone, Copy)]
pub struct Functions<'a> {
    /// In code.
    pub code: &'a Seeds,
    /// In data.
    pub data: &'a DataSeeds,
}

/// The units that use a constant, with the functions of V in place of its constants.
pub struct Theorem<'a> {
    /// The type of the constant.
    pub c_type: CType,
    /// What every comparison needs.
    pub means: Means<'a>,
    /// Compiles the units.
    pub compiler: &'a dyn Compiler,
    /// The units as they are deployed.
    pub studies: &'a [Study],
    /// As `studies`.
    pub functions: Vec<Functions<'a>>,
    /// Compilers to run side by side.
    pub jobs: usize,
}

impl Theorem<'_> {
    /// What is shown: the range of all values (`shown`, of [`Theorem::for_all`]), and of `candidates` those beyond it that
    /// agree.
    ///
    /// # Errors
    /// What keeps units from being compiled.
    pub fn values(&self, shown: Result<Range, NotShown>, candidates: &BTreeSet<i64>) -> Result<Values, BuildError> {
        let (proved, unproved) = match shown {
            Ok(range) => (Some(range), self.narrow(range)),
            Err(why) => (None, Some(why.to_string())),
        };
        let beyond = candidates.iter().copied().filter(|v| !proved.is_some_and(|range| range.contains(*v)));
        let mut values = Values { proved, unproved, ..Values::default() };
        for (value, verdict) in self.compiled(&beyond.collect::<Vec<_>>(), proved)? {
            match verdict {
                Ok(()) => values.compiled.push(value),
                Err(why) => _ = values.refused.insert(value, why.to_string()),
            }
        }
        Ok(values)
    }

    /// What is shown with tests for order in the places of tests for equality, and the functions of V of each
    /// unit with them; nothing if no way to place them is proved ([`crate::order`]).
    ///
    /// # Errors
    /// What keeps units from being compiled.
    pub fn ordered(&self) -> Result<Option<(Vec<Seeds>, Values)>, BuildError> {
        let tests = (0..self.studies.len()).map(|at| self.concluded_in(at)).collect::<Result<Vec<_>, _>>()?;
        let Some(mut range) = self.defined().filter(|_| tests.iter().any(|t| !t.is_empty())) else {
            return Ok(None);
        };
        let mut all = Vec::new();
        for (at, tests) in tests.iter().enumerate() {
            let (study, code) = (&self.studies[at], self.functions[at].code);
            let ways = match tests[..] {
                [] => vec![code.clone()],
                _ => order::candidates(&study.base, study.flow(), code, tests),
            };
            let Some((seeds, found)) = self.first_proved(at, ways, range)? else { return Ok(None) };
            all.push(seeds);
            range = found;
        }
        let more = range.contains(self.means.default) && range != Range::of(self.means.default, self.means.default);
        let values = Values { proved: Some(range), unproved: self.narrow(range), ..Values::default() };
        Ok(more.then_some((all, values)))
    }

    /// The first of several functions of V of a unit that are proved, and for which values: all of `range`, or all
    /// but the last one, to which a number can count but not beyond it.
    fn first_proved(&self, at: usize, ways: Vec<Seeds>, range: Range) -> Result<Option<(Seeds, Range)>, BuildError> {
        let mut tried: Vec<(&Seeds, Range)> = ways.iter().map(|seeds| (seeds, range)).collect();
        let shorter = ways.iter().map(|seeds| (seeds, order::without_last(seeds, range)));
        tried.extend(shorter.filter(|(_, shorter)| *shorter != range));
        for (seeds, range) in tried {
            let mut functions = self.functions.clone();
            functions[at].code = seeds;
            if let Ok(found) = self.with(functions).unit_for_all(at, range)? {
                return Ok(Some((seeds.clone(), found)));
            }
        }
        Ok(None)
    }

    fn with<'b>(&'b self, functions: Vec<Functions<'b>>) -> Theorem<'b> {
        let Self { c_type, means, compiler, studies, jobs, .. } = *self;
        Theorem { c_type, means, compiler, studies, functions, jobs }
    }

    /// The values that a proof may be about.
    fn defined(&self) -> Option<Range> {
        let whole = symbolic(self.c_type, self.means.default)?;
        let mut units = self.studies.iter().zip(&self.functions);
        units.try_fold(whole, |range, (study, functions)| {
            defined(&study.base, functions.code, range, self.means.default)
        })
    }

    /// Why a range is not all that the type allows.
    fn narrow(&self, range: Range) -> Option<String> {
        let whole = symbolic(self.c_type, self.means.default)?;
        (whole != range).then(|| {
            format!("beyond {range} the deployed code does something else, C says nothing, or it is not decided")
        })
    }

    /// The values for which all units do what their opaque builds do, or their volatile builds where an update
    /// tests for order; or why that is not shown.
    ///
    /// # Errors
    /// What keeps units from being compiled.
    pub fn for_all(&self) -> Result<Result<Range, NotShown>, BuildError> {
        let default = self.means.default;
        let Some(mut range) = self.defined() else {
            return Ok(Err(NotShown::Undefined { default }));
        };
        for at in self.smallest_first() {
            match self.unit_for_all(at, range)? {
                Ok(found) => range = found,
                Err(why) => return Ok(Err(why)),
            }
        }
        if range.contains(default) && range != Range::of(default, default) {
            return Ok(Ok(range));
        }
        Ok(Err(NotShown::DefaultOnly))
    }

    fn smallest_first(&self) -> Vec<usize> {
        let mut order: Vec<usize> = (0..self.studies.len()).collect();
        order.sort_by_key(|&at| self.studies[at].base.insns.len());
        order
    }

    fn unit_for_all(&self, at: usize, range: Range) -> Result<Result<Range, NotShown>, BuildError> {
        let (study, functions) = (&self.studies[at], self.functions[at]);
        let unit = || study.source.clone();
        if functions.code.values().any(|fit| fit.form == Form::Log2) {
            return Ok(Err(NotShown::Shifts { unit: unit() }));
        }
        // A test for order that the update makes is none that the compiler may have made of another.
        let ordered = functions.code.keys().any(|(_, field)| matches!(field, Field::Order(_)));
        let with = if ordered { With::Changing } else { With::Opaque };
        let opaque = match self.compiler.compile(at, with)? {
            Compiled::Object(object) => object,
            Compiled::Same => return Ok(Ok(range)),
            Compiled::Rejected(message) => return Ok(Err(NotShown::NeedsValue { unit: unit(), message })),
        };
        // Objects that the constant initialises are weak, and may be elsewhere.
        let renamed = match data::renamed(&study.base, &opaque, &study.source) {
            Ok(renamed) => renamed,
            Err(refusal) => return Ok(Err(refusal.into())),
        };
        let none = BTreeSet::new();
        let (base, opaque, sections) = match &renamed {
            Some(Renamed { base, other, sections, .. }) => (base, other, sections),
            None => (&study.base, &*opaque, &none),
        };
        let data = data::compare_but(base, opaque, &study.source, study.module.as_deref(), sections);
        match data {
            Ok(differences) if differences.is_empty() => {}
            Ok(_) => return Ok(Err(NotShown::DataFollows { unit: unit() })),
            Err(refusal) => return Ok(Err(refusal.into())),
        }
        let replaced = functions.code.iter().map(|(key, fit)| (*key, Replacement::Function(*fit))).collect();
        let found = match self.compared(at, with, [base, opaque], &replaced, Some(range))? {
            Ok(found) => found.unwrap_or(range),
            Err(why) => return Ok(Err(why)),
        };
        let weakened = renamed.as_ref().map_or(&[][..], |renamed| &renamed.weakened);
        if let Err(why) = self.data_for_all(at, weakened, found)? {
            return Ok(Err(why));
        }
        let nodes = self.concluded_in(at)?;
        Ok(if nodes.is_empty() { Ok(found) } else { Err(self.not_met(at, &nodes)) })
    }

    /// What becomes of each of `values`: compiled in every unit, and compared. Those that are not `proved`
    /// need code that tests for equality only where the source does.
    ///
    /// # Errors
    /// What keeps units from being compiled.
    pub fn compiled(
        &self,
        values: &[i64],
        proved: Option<Range>,
    ) -> Result<BTreeMap<i64, Result<(), NotShown>>, BuildError> {
        let mut found = self.compared_with(values)?;
        let covered = |value: i64| value == self.means.default || proved.is_some_and(|range| range.contains(value));
        if found.iter().any(|(value, verdict)| !covered(*value) && verdict.is_ok()) {
            if let Some(why) = self.not_by_compiling()? {
                let bare = found.iter_mut().filter(|(value, verdict)| !covered(**value) && verdict.is_ok());
                bare.for_each(|(_, verdict)| *verdict = Err(why.clone()));
            }
        }
        Ok(found)
    }

    /// What keeps values from being accepted that were compiled only: a test for equality that the compiler may
    /// have made of one for order, since it knew the constant; or an update that makes one of order again.
    fn not_by_compiling(&self) -> Result<Option<NotShown>, BuildError> {
        for (at, (study, functions)) in self.studies.iter().zip(&self.functions).enumerate() {
            if let Some((node, _)) = functions.code.keys().find(|(_, field)| matches!(field, Field::Order(_))) {
                return Ok(Some(NotShown::TestsForOrder(study.place(*node))));
            }
            let nodes = self.concluded_in(at)?;
            if !nodes.is_empty() {
                return Ok(Some(self.not_met(at, &nodes)));
            }
        }
        Ok(None)
    }

    fn not_met(&self, at: usize, tests: &[Node]) -> NotShown {
        NotShown::NotMet { tests: Places(tests.iter().map(|node| self.studies[at].place(*node)).collect()) }
    }

    /// The tests for equality in a unit that the compiler may have made of tests for order.
    fn concluded_in(&self, at: usize) -> Result<Vec<Node>, BuildError> {
        let (study, functions) = (&self.studies[at], self.functions[at]);
        if equality::tests(&study.base, Holder::Fields(functions.code)).is_empty() {
            return Ok(Vec::new());
        }
        let opaque = match self.compiler.compile(at, With::Changing)? {
            Compiled::Object(object) => Some(object),
            Compiled::Same | Compiled::Rejected(_) => None,
        };
        Ok(equality::concluded(&study.base, functions.code, opaque.as_deref()))
    }

    /// The first number of the code compiled with `value` that is another than the function of V says, in code
    /// that is the same otherwise.
    ///
    /// # Errors
    /// What keeps units from being compiled.
    pub fn contradicted(&self, value: i64) -> Result<Option<Disagreement>, BuildError> {
        for (at, study) in self.studies.iter().enumerate() {
            if let Compiled::Object(built) = self.compiler.compile(at, With::Value(value))? {
                if let Some(why) = study.contradicts(&self.means, value, &built) {
                    return Ok(Some(why));
                }
            }
        }
        Ok(None)
    }

    fn compared_with(&self, values: &[i64]) -> Result<BTreeMap<i64, Result<(), NotShown>>, BuildError> {
        let work = Mutex::new(values.to_vec());
        let found = Mutex::new(BTreeMap::new());
        std::thread::scope(|scope| {
            for _ in 0..self.jobs.clamp(1, values.len().max(1)) {
                scope.spawn(|| loop {
                    let next = work.lock().ok().and_then(|mut work| work.pop());
                    let Some(value) = next else { return };
                    let verdict = self.value(value);
                    if let Ok(mut found) = found.lock() {
                        found.insert(value, verdict);
                    }
                });
            }
        });
        let found = found.into_inner().unwrap_or_else(PoisonError::into_inner);
        found.into_iter().map(|(value, verdict)| Ok((value, verdict?))).collect()
    }

    fn value(&self, value: i64) -> Result<Result<(), NotShown>, BuildError> {
        if value == self.means.default {
            return Ok(Ok(()));
        }
        for at in self.smallest_first() {
            if let Err(why) = self.unit_with(at, value)? {
                return Ok(Err(why));
            }
        }
        Ok(Ok(()))
    }

    fn unit_with(&self, at: usize, value: i64) -> Result<Result<(), NotShown>, BuildError> {
        let (study, functions) = (&self.studies[at], self.functions[at]);
        // Tests for order are the update's own: they are compared with the volatile build alone.
        let code = &order::as_compiled(functions.code);
        let functions = Functions { code, ..functions };
        let unit = || study.source.clone();
        let predicted = predicts(study, functions, value);
        if predicted && study.agreeing().contains(&value) {
            return Ok(Ok(()));
        }
        let built = match self.compiler.compile(at, With::Value(value))? {
            Compiled::Object(object) => object,
            Compiled::Same => return Ok(Ok(())),
            Compiled::Rejected(message) => return Ok(Err(NotShown::Rejected { unit: unit(), message })),
        };
        if predicted && study.agrees_with(&self.means, value, &built).is_ok() {
            return Ok(Ok(()));
        }
        let data = data::compare_objects(&study.base, &built, &study.source, study.module.as_deref());
        let data = match data {
            Ok(data) => data,
            Err(refusal) => return Ok(Err(NotShown::Data { unit: unit(), refusal: refusal.into() })),
        };
        if let Err(place) = data::predicted(&study.base, functions.data, value, &data) {
            return Ok(Err(NotShown::Unpredicted { unit: unit(), place }));
        }
        let replaced = functions.code.iter().map(|(key, fit)| (*key, Replacement::Value(fit.apply(value)))).collect();
        Ok(self.compared(at, With::Value(value), [&study.base, &built], &replaced, None)?.map(drop))
    }

    /// Compares a build of a unit with the deployed one, which may call its data by other names; with the compiler's
    /// notes if it does not go without.
    fn compared(
        &self,
        at: usize,
        with: With,
        [base, other]: [&Object; 2],
        replaced: &Replacements,
        range: Option<Range>,
    ) -> Result<Result<Option<Range>, NotShown>, BuildError> {
        let study = &self.studies[at];
        let Means { default, noreturns, prototypes, solver } = self.means;
        let rules = Rules { default, noreturns, prototypes, solver };
        let flow = Flow::new(other, prototypes);
        let run = |ours: Option<&Notes>, theirs: Option<&Notes>| {
            let base = Build { object: base, flow: study.flow(), notes: ours };
            let other = Build { object: other, flow: &flow, notes: theirs };
            deep(|| simulate(base, other, replaced, range, rules))
        };
        if let Ok(found) = run(None, None) {
            return Ok(Ok(found));
        }
        let ours = self.compiler.notes(at, With::Value(default), &study.base)?;
        let theirs = self.compiler.notes(at, with, other)?;
        let found = run(Some(&ours), Some(&theirs));
        let differs = |found: Mismatch| NotShown::Differs { place: study.place(found.base), difference: found.detail };
        Ok(found.map_err(differs))
    }
}

/// Whether the functions of V with which instructions are compared say the same for this value: then that
/// comparison counts, too.
fn predicts(study: &Study, functions: Functions<'_>, value: i64) -> bool {
    let same = |ours: &Fit, theirs: &Fit| ours.width == theirs.width && ours.apply(value) == theirs.apply(value);
    let Some(seeds) = study.seeds().filter(|seeds| seeds.len() == functions.code.len()) else { return false };
    let code = seeds.iter().all(|(key, fit)| functions.code.get(key).is_some_and(|ours| same(ours, fit)));
    let data = study.data().iter().all(|(key, fit)| functions.data.get(key).is_some_and(|ours| same(ours, fit)));
    code && data && study.data().len() == functions.data.len()
}

/// Runs `work` where there is room for deep recursion.
fn deep<T: Send>(work: impl FnOnce() -> Result<T, Mismatch> + Send) -> Result<T, Mismatch> {
    let failed = |detail: String| {
        let nowhere = Node { section: 0, offset: 0 };
        Mismatch { base: nowhere, detail }
    };
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().stack_size(STACK_BYTES).spawn_scoped(scope, work);
        match thread {
            Ok(thread) => thread.join().unwrap_or_else(|_| Err(failed("the comparison failed".into()))),
            Err(error) => Err(failed(format!("no thread for the comparison: {error}"))),
        }
    })
}
