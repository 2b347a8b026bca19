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
use std::sync::Mutex;

use xk_const::{CType, Constant, Unit};
use xk_kernel::Tree;
use xk_table::{Form, Place, Range};

use crate::data::{self, DataSeeds};
use crate::flow::Flow;
use crate::notes::Notes;
use crate::object::Object;
use crate::pipeline::{BuildError, Options};
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

/// The values that are shown.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Shown {
    /// Every value of a range.
    pub proved: Option<Range>,
    /// Why there is no such range.
    pub unproved: Option<String>,
    /// Values that were compiled and compared.
    pub compiled: BTreeSet<i64>,
    /// Values that were compiled and are not the same, with the first difference.
    pub refused: BTreeMap<i64, String>,
}

/// The units that use a constant, with what stands in the places of its constants.
pub(crate) struct Theorem<'a> {
    pub tree: &'a Tree,
    pub constant: &'a Constant,
    pub options: &'a Options<'a>,
    pub means: Means<'a>,
    pub units: &'a [Unit],
    pub studies: &'a [Study],
    /// As `studies`.
    pub functions: Vec<Functions<'a>>,
}

impl<'a> Theorem<'a> {
    /// What is shown: the range of all values, and of `candidates` those beyond it that agree.
    pub fn shown(&self, candidates: &BTreeSet<i64>) -> Result<Shown, BuildError> {
        let mut shown = Shown::default();
        match self.for_all()? {
            Ok(range) => shown.proved = Some(range),
            Err(why) => shown.unproved = Some(why),
        }
        let beyond: Vec<i64> =
            candidates.iter().copied().filter(|v| !shown.proved.is_some_and(|range| range.contains(*v))).collect();
        for (value, verdict) in self.compiled(&beyond)? {
            match verdict {
                Ok(()) => _ = shown.compiled.insert(value),
                Err(why) => _ = shown.refused.insert(value, why),
            }
        }
        Ok(shown)
    }

    /// The values for which all units do what their opaque builds do; or why that is not shown.
    pub fn for_all(&self) -> Result<Result<Range, String>, BuildError> {
        let Some(mut range) = symbolic(self.constant.c_type, self.constant.default) else {
            return Ok(Err(format!("{} does not fit the address of a symbol", self.constant.default)));
        };
        (self.options.progress)("proving for all values");
        let mut order: Vec<usize> = (0..self.studies.len()).collect();
        order.sort_by_key(|&at| self.studies[at].base.insns.len());
        for at in order {
            match self.unit_for_all(at, range)? {
                Ok(found) => range = found,
                Err(why) => return Ok(Err(why)),
            }
        }
        let default = self.constant.default;
        Ok(if range.contains(default) && range != Range::of(default, default) {
            Ok(range)
        } else {
            Err("another value than the default is not covered".into())
        })
    }

    fn unit_for_all(&self, at: usize, range: Range) -> Result<Result<Range, String>, BuildError> {
        let (unit, study, functions) = (&self.units[at], &self.studies[at], self.functions[at]);
        if functions.code.values().any(|fit| fit.form == Form::Log2) {
            return Ok(Err(format!("{}: the deployed code knows powers of two only", study.source)));
        }
        if !functions.data.is_empty() {
            return Ok(Err(format!("{}: it initialises static data", study.source)));
        }
        let opaque = match xk_const::build_opaque(self.tree, self.constant, unit, self.options.cache, &xk_const::QUICK)
        {
            Ok(path) => object(&path)?,
            Err(xk_const::BuildError::NotOpaque { why, .. }) => {
                return Ok(Err(format!("{}: the compiler needs the value: {why}", study.source)));
            }
            // It compiles with other values and is the same: nothing to show.
            Err(xk_const::BuildError::NotSeen { .. }) => return Ok(Ok(range)),
            Err(error) => return Err(error.into()),
        };
        match data::compare(&study.base, &opaque, &study.source, study.module.as_deref()) {
            Ok(differences) if differences.is_empty() => {}
            Ok(_) => return Ok(Err(format!("{}: data follows the value", study.source))),
            Err(refusal) => return Ok(Err(refusal.to_string())),
        }
        let replacements: Replacements =
            functions.code.iter().map(|(key, fit)| (*key, Replacement::Function(*fit))).collect();
        self.compared(at, &opaque, &replacements, Some(range), |unit, notes| {
            let assembly =
                xk_const::build_opaque(self.tree, self.constant, unit, self.options.cache, &xk_const::NOTED)?;
            Ok(Notes::read(&text(&assembly)?, notes))
        })
        .map(|found| found.map(|found| found.unwrap_or(range)))
    }

    /// What becomes of each of `values`: compiled in every unit, and compared.
    pub fn compiled(&self, values: &[i64]) -> Result<Vec<(i64, Result<(), String>)>, BuildError> {
        if !values.is_empty() {
            (self.options.progress)(&format!("comparing {} compiled value(s)", values.len()));
        }
        let work = Mutex::new(values.iter().copied().collect::<Vec<_>>());
        let found = Mutex::new(BTreeMap::new());
        std::thread::scope(|scope| {
            for _ in 0..self.options.jobs.clamp(1, values.len().max(1)) {
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
        let found = found.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
        found.into_iter().map(|(value, verdict)| Ok((value, verdict?))).collect()
    }

    fn value(&self, value: i64) -> Result<Result<(), String>, BuildError> {
        let mut order: Vec<usize> = (0..self.studies.len()).collect();
        order.sort_by_key(|&at| self.studies[at].base.insns.len());
        for at in order {
            if let Err(why) = self.unit_with(at, value)? {
                return Ok(Err(why));
            }
        }
        Ok(Ok(()))
    }

    fn unit_with(&self, at: usize, value: i64) -> Result<Result<(), String>, BuildError> {
        let (unit, study, functions) = (&self.units[at], &self.studies[at], self.functions[at]);
        let built = match xk_const::build(self.tree, self.constant, unit, value, self.options.cache) {
            Ok(path) => object(&path)?,
            Err(xk_const::BuildError::NotSeen { .. }) => return Ok(Ok(())),
            Err(xk_const::BuildError::Rejected { message, .. }) => {
                return Ok(Err(format!("{}: the compiler rejects it: {message}", study.source)));
            }
            Err(xk_const::BuildError::Edit(error)) => return Ok(Err(error.to_string())),
            Err(error) => return Err(error.into()),
        };
        let differences = match data::compare(&study.base, &built, &study.source, study.module.as_deref()) {
            Ok(differences) => differences,
            Err(refusal) => return Ok(Err(refusal.to_string())),
        };
        if let Err(why) = data::predicted(&study.base, functions.data, value, &differences) {
            return Ok(Err(format!("{}: {why}", study.source)));
        }
        let replacements: Replacements =
            functions.code.iter().map(|(key, fit)| (*key, Replacement::Value(fit.apply(value)))).collect();
        self.compared(at, &built, &replacements, None, |unit, object| {
            let assembly = xk_const::build_noted(self.tree, self.constant, unit, value, self.options.cache)?;
            Ok(Notes::read(&text(&assembly)?, object))
        })
        .map(|found| found.map(drop))
    }

    /// Compares two builds of a unit; with the compiler's notes if it does not go without.
    fn compared(
        &self,
        at: usize,
        other: &Object,
        replacements: &Replacements,
        range: Option<Range>,
        notes: impl Fn(&Unit, &Object) -> Result<Notes, BuildError> + Sync,
    ) -> Result<Result<Option<Range>, String>, BuildError> {
        let (unit, study) = (&self.units[at], &self.studies[at]);
        let Means { default, noreturns, prototypes, solver } = self.means;
        let rules = Rules { default, noreturns, prototypes, solver };
        let flow = Flow::new(other, prototypes);
        let run = |ours: Option<&Notes>, theirs: Option<&Notes>| {
            let base = Build { object: &study.base, flow: study.flow(), notes: ours };
            let other = Build { object: other, flow: &flow, notes: theirs };
            deep(|| simulate(base, other, replacements, range, rules))
        };
        if let Ok(found) = run(None, None) {
            return Ok(Ok(found));
        }
        let default = self.constant.default;
        let assembly = xk_const::build_noted(self.tree, self.constant, unit, default, self.options.cache)?;
        let ours = Notes::read(&text(&assembly)?, &study.base);
        let theirs = notes(unit, other)?;
        Ok(run(Some(&ours), Some(&theirs)).map_err(|mismatch| said(&study.place(mismatch.base), &mismatch)))
    }
}

fn said(place: &Place, mismatch: &Mismatch) -> String {
    format!("{place}: {}", mismatch.detail)
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

fn text(path: &std::path::Path) -> Result<String, BuildError> {
    std::fs::read_to_string(path).map_err(|source| BuildError::Io { path: path.into(), source })
}

/// Runs `work` where there is room for deep recursion.
fn deep<T: Send>(work: impl FnOnce() -> Result<T, Mismatch> + Send) -> Result<T, Mismatch> {
    let failed = |detail: String| {
        let nowhere = crate::insn::Node { section: 0, offset: 0 };
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
