//! What is shown of a constant: for which values the deployed code, with functions of V in the
//! places of its constants, does what the source does with V.
//!
//! Two ways lead there (docs/proofs.md). *For all*: the unit is compiled with a value that the
//! compiler cannot know, and the deployed build is shown to simulate that one for every V of a
//! range. *These*: one value is compiled, and the deployed build with that value's constants is
//! shown to do the same as the result. Nothing is concluded from one value about another.
//!
//! How the functions of V were found does not matter here: they may be guesses.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use xk_const::{CType, Constant, Unit};
use xk_kernel::Tree;
use xk_table::{Fit, Form, Range, Values};

use crate::data::{self, DataSeeds};
use crate::equality::{self, Holder};
use crate::flow::Flow;
use crate::insn::Node;
use crate::notes::Notes;
use crate::object::Object;
use crate::pipeline::BuildError;
use crate::simulation::{simulate, Build, Mismatch, Replacement, Replacements, Rules};
use crate::span::Seeds;
use crate::study::{Means, Study};

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

/// What became of a unit that is compiled in another way.
#[derive(Debug)]
pub enum Compiled {
    /// An object.
    Object(Box<Object>),
    /// The unit's text does not change.
    Same,
    /// The compiler does not accept it, in its words.
    Rejected(String),
}

/// With what a unit is compiled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum With {
    /// One value.
    Value(i64),
    /// A value that the compiler cannot know.
    Opaque,
}

/// Compiles the units of a constant; `unit` counts them.
pub trait Compiler: Sync {
    /// The object.
    ///
    /// # Errors
    /// What keeps the unit from being compiled and is not the value's fault.
    fn compile(&self, unit: usize, with: With) -> Result<Compiled, BuildError>;

    /// What the compiler says of `object`, which it made in this way.
    ///
    /// # Errors
    /// As [`Compiler::compile`].
    fn notes(&self, unit: usize, with: With, object: &Object) -> Result<Notes, BuildError>;
}

/// Compiles units of a source tree.
pub(crate) struct FromTree<'a> {
    pub tree: &'a Tree,
    pub constant: &'a Constant,
    /// Where objects are kept.
    pub cache: &'a Path,
    pub units: &'a [Unit],
}

impl Compiler for FromTree<'_> {
    fn compile(&self, unit: usize, with: With) -> Result<Compiled, BuildError> {
        let Self { tree, constant, cache, units } = *self;
        let built = match with {
            With::Value(value) => xk_const::build(tree, constant, &units[unit], value, cache),
            With::Opaque => xk_const::build_opaque(tree, constant, &units[unit], cache, &xk_const::QUICK),
        };
        match built {
            Ok(path) => Ok(Compiled::Object(Box::new(object(&path)?))),
            Err(xk_const::BuildError::NotSeen { .. }) => Ok(Compiled::Same),
            Err(xk_const::BuildError::NotOpaque { why, .. }) => Ok(Compiled::Rejected(why)),
            Err(xk_const::BuildError::Rejected { message, .. }) => Ok(Compiled::Rejected(message)),
            Err(xk_const::BuildError::Edit(error)) => Ok(Compiled::Rejected(error.to_string())),
            Err(error) => Err(error.into()),
        }
    }

    fn notes(&self, unit: usize, with: With, object: &Object) -> Result<Notes, BuildError> {
        let Self { tree, constant, cache, units } = *self;
        let path = match with {
            With::Value(value) => xk_const::build_noted(tree, constant, &units[unit], value, cache)?,
            With::Opaque => xk_const::build_opaque(tree, constant, &units[unit], cache, &xk_const::NOTED)?,
        };
        let text = std::fs::read_to_string(&path).map_err(|source| BuildError::Io { path, source })?;
        Ok(Notes::read(&text, object))
    }
}

/// The units that use a constant, with what stands in the places of its constants.
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
    /// What is shown: the range of all values, and of `candidates` those beyond it that agree.
    ///
    /// # Errors
    /// What keeps units from being compiled.
    pub fn values(&self, candidates: &BTreeSet<i64>) -> Result<Values, BuildError> {
        let (proved, unproved) = match self.for_all()? {
            Ok(range) => (Some(range), self.narrow(range)),
            Err(why) => (None, Some(why)),
        };
        let beyond = candidates.iter().copied().filter(|v| !proved.is_some_and(|range| range.contains(*v)));
        let mut values = Values { proved, unproved, ..Values::default() };
        for (value, verdict) in self.compiled(&beyond.collect::<Vec<_>>(), proved)? {
            match verdict {
                Ok(()) => values.compiled.push(value),
                Err(why) => _ = values.refused.insert(value, why),
            }
        }
        Ok(values)
    }

    /// Why a range is not all that the type allows.
    fn narrow(&self, range: Range) -> Option<String> {
        let whole = symbolic(self.c_type, self.means.default)?;
        (whole != range).then(|| format!("beyond {range} the deployed code does something else, or it is not decided"))
    }

    /// The values for which all units do what their opaque builds do; or why that is not shown.
    ///
    /// # Errors
    /// What keeps units from being compiled.
    pub fn for_all(&self) -> Result<Result<Range, String>, BuildError> {
        let default = self.means.default;
        let Some(mut range) = symbolic(self.c_type, default) else {
            return Ok(Err(format!("{default} does not fit the address of a symbol")));
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
        Ok(Err("the deployed code does the same for the default only".into()))
    }

    fn smallest_first(&self) -> Vec<usize> {
        let mut order: Vec<usize> = (0..self.studies.len()).collect();
        order.sort_by_key(|&at| self.studies[at].base.insns.len());
        order
    }

    fn unit_for_all(&self, at: usize, range: Range) -> Result<Result<Range, String>, BuildError> {
        let (study, functions) = (&self.studies[at], self.functions[at]);
        let source = &study.source;
        if functions.code.values().any(|fit| fit.form == Form::Log2) {
            return Ok(Err(format!("{source}: the deployed code shifts, which divides by powers of two only")));
        }
        if !functions.data.is_empty() {
            return Ok(Err(format!("{source}: the constant initialises static data")));
        }
        let opaque = match self.compiler.compile(at, With::Opaque)? {
            Compiled::Object(object) => object,
            Compiled::Same => return Ok(Ok(range)),
            Compiled::Rejected(why) => return Ok(Err(format!("{source}: the compiler needs the value: {why}"))),
        };
        let data = data::compare_objects(&study.base, &opaque, source, study.module.as_deref());
        match data {
            Ok(differences) if differences.is_empty() => {}
            Ok(_) => return Ok(Err(format!("{source}: static data follows the constant"))),
            Err(refusal) => return Ok(Err(refusal.to_string())),
        }
        let replaced = functions.code.iter().map(|(key, fit)| (*key, Replacement::Function(*fit))).collect();
        let found = self.compared(at, With::Opaque, &opaque, &replaced, Some(range))?;
        Ok(found.map(|found| found.unwrap_or(range)))
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
    ) -> Result<BTreeMap<i64, Result<(), String>>, BuildError> {
        let mut found = self.compared_with(values)?;
        let covered = |value: i64| value == self.means.default || proved.is_some_and(|range| range.contains(value));
        if found.iter().any(|(value, verdict)| !covered(*value) && verdict.is_ok()) {
            if let Some(why) = self.concluded()? {
                let bare = found.iter_mut().filter(|(value, verdict)| !covered(**value) && verdict.is_ok());
                bare.for_each(|(_, verdict)| *verdict = Err(why.clone()));
            }
        }
        Ok(found)
    }

    /// A test for equality that the compiler may have made of one for order, since it knew the constant.
    fn concluded(&self) -> Result<Option<String>, BuildError> {
        for (at, (study, functions)) in self.studies.iter().zip(&self.functions).enumerate() {
            if equality::tests(&study.base, Holder::Fields(functions.code)).is_empty() {
                continue;
            }
            let opaque = match self.compiler.compile(at, With::Opaque)? {
                Compiled::Object(object) => Some(object),
                Compiled::Same | Compiled::Rejected(_) => None,
            };
            let nodes = equality::concluded(&study.base, functions.code, opaque.as_deref());
            if !nodes.is_empty() {
                let places: Vec<String> = nodes.iter().map(|node| study.place(*node).to_string()).collect();
                return Ok(Some(format!(
                    "{}: the code tests for equality what the source may test for order: a state that has passed the \
                     value would not meet it",
                    places.join(", ")
                )));
            }
        }
        Ok(None)
    }

    fn compared_with(&self, values: &[i64]) -> Result<BTreeMap<i64, Result<(), String>>, BuildError> {
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

    fn value(&self, value: i64) -> Result<Result<(), String>, BuildError> {
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

    fn unit_with(&self, at: usize, value: i64) -> Result<Result<(), String>, BuildError> {
        let (study, functions) = (&self.studies[at], self.functions[at]);
        let predicted = predicts(study, functions, value);
        if predicted && study.agreeing().contains(&value) {
            return Ok(Ok(()));
        }
        let built = match self.compiler.compile(at, With::Value(value))? {
            Compiled::Object(object) => object,
            Compiled::Same => return Ok(Ok(())),
            Compiled::Rejected(why) => return Ok(Err(format!("{}: the compiler rejects it: {why}", study.source))),
        };
        if predicted && study.agrees_with(&self.means, value, &built).is_ok() {
            return Ok(Ok(()));
        }
        let data = data::compare_objects(&study.base, &built, &study.source, study.module.as_deref());
        let data = data.map_err(|refusal| refusal.to_string());
        let data = data.and_then(|data| data::predicted(&study.base, functions.data, value, &data));
        if let Err(why) = data {
            return Ok(Err(format!("{}: {why}", study.source)));
        }
        let replaced = functions.code.iter().map(|(key, fit)| (*key, Replacement::Value(fit.apply(value)))).collect();
        Ok(self.compared(at, With::Value(value), &built, &replaced, None)?.map(drop))
    }

    /// Compares a build of a unit with the deployed one; with the compiler's notes if it does not
    /// go without.
    fn compared(
        &self,
        at: usize,
        with: With,
        other: &Object,
        replaced: &Replacements,
        range: Option<Range>,
    ) -> Result<Result<Option<Range>, String>, BuildError> {
        let study = &self.studies[at];
        let Means { default, noreturns, prototypes, solver } = self.means;
        let rules = Rules { default, noreturns, prototypes, solver };
        let flow = Flow::new(other, prototypes);
        let run = |ours: Option<&Notes>, theirs: Option<&Notes>| {
            let base = Build { object: &study.base, flow: study.flow(), notes: ours };
            let other = Build { object: other, flow: &flow, notes: theirs };
            deep(|| simulate(base, other, replaced, range, rules))
        };
        if let Ok(found) = run(None, None) {
            return Ok(Ok(found));
        }
        let ours = self.compiler.notes(at, With::Value(default), &study.base)?;
        let theirs = self.compiler.notes(at, with, other)?;
        let found = run(Some(&ours), Some(&theirs));
        Ok(found.map_err(|mismatch| format!("{}: {}", study.place(mismatch.base), mismatch.detail)))
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

/// The values of a type that the address of a symbol can have: 32 bits, sign-extended.
fn symbolic(c_type: CType, default: i64) -> Option<Range> {
    let (min, max) = c_type.range();
    let (low, high) =
        (i128::from(i32::MIN), i128::from(if c_type.bits() > 32 { i64::from(i32::MAX) } else { i64::MAX }));
    let range = Range::of(min.max(low) as i64, max.min(high) as i64);
    range.contains(default).then_some(range)
}

fn object(path: &std::path::Path) -> Result<Object, BuildError> {
    let data = std::fs::read(path).map_err(|source| BuildError::Io { path: path.into(), source })?;
    Object::parse(&data).map_err(|source| BuildError::Object { path: path.into(), source })
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_symbol_has_32_bits() {
        let of = |c_type, default| symbolic(c_type, default).map(|range| (range.min, range.max));
        assert_eq!(of(CType::Int, 5), Some((i64::from(i32::MIN), i64::from(i32::MAX))));
        assert_eq!(of(CType::UnsignedInt, 5), Some((0, i64::from(u32::MAX))));
        assert_eq!(of(CType::UnsignedLong, 5), Some((0, i64::from(i32::MAX))));
        assert_eq!(of(CType::Long, 1 << 40), None);
    }
}
