//! Compiling a constant's variants, several side by side.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Mutex;

use xk_const::{Constant, RejectedBy, TreeError, Unit};
use xk_kernel::Tree;
use xk_lift::object::Object;
use xk_lift::prototypes::Prototypes;
use xk_table::Refusal;

use crate::build_error::BuildError;
use crate::registers::by_convention;
use crate::study::{Study, Variant};
use crate::theorem::{built, With};
use crate::words::counted;

/// How to build.
pub struct Options<'a> {
    /// Folder for compiled variants.
    pub cache: &'a Path,
    /// Compilers to run side by side.
    pub jobs: usize,
    /// Told what happens, a line at a time.
    pub progress: &'a (dyn Fn(&str) + Sync),
}

/// Compiles variants of one constant.
pub(crate) struct Variants<'a> {
    pub tree: &'a Tree,
    pub constant: &'a Constant,
    pub options: &'a Options<'a>,
    pub prototypes: &'a Prototypes,
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
    pub fn deployed(&self, units: &[Unit], wave: &[i64]) -> Result<(Vec<Unit>, Vec<Study>), BuildError> {
        let default = self.constant.default;
        let probe = wave.first().copied().unwrap_or(default);
        // With one unit both compilers have something to do; of many, most may not see it.
        let eager = units.len() == 1;
        let probes: Vec<(&Unit, i64)> = units
            .iter()
            .flat_map(|unit| [(unit, probe), (unit, default)])
            .filter(|(_, v)| eager || *v == probe)
            .collect();
        let mut outcomes = self.outcomes(&probes, &[]).into_iter();
        let mut seeing = Vec::new();
        for unit in units {
            if !matches!(outcomes.next().transpose()?, None | Some(Outcome::NotSeen)) {
                seeing.push(unit);
            }
            outcomes.by_ref().take(usize::from(eager)).for_each(drop);
        }
        for unit in seeing.iter().filter(|unit| unit.source.ends_with(".c")) {
            let command = self.tree.compile_command(&unit.source).map_err(TreeError::from)?;
            by_convention(&unit.source, &command.argv)?;
        }
        let bases: Vec<(&Unit, i64)> = seeing.iter().map(|unit| (*unit, default)).collect();
        let (mut units, mut studies) = (Vec::new(), Vec::new());
        for (unit, base) in seeing.iter().zip(self.outcomes(&bases, &[])) {
            match base? {
                Outcome::NotSeen => {}
                Outcome::Variant(Variant::Built(object)) => {
                    units.push((*unit).clone());
                    studies.push(Study::new(unit.source.clone(), unit.module.clone(), *object, self.prototypes));
                }
                Outcome::Variant(Variant::Rejected { message, .. }) => {
                    let detail = format!("{} does not compile unedited: {message}", unit.source);
                    return Err(Refusal::NotDeployed { detail }.into());
                }
            }
        }
        if studies.is_empty() {
            let detail = format!("no deployed unit compiles the definition of {}", self.constant.id);
            return Err(Refusal::NotDeployed { detail }.into());
        }
        Ok((units, studies))
    }

    /// Compiles every value of the wave in every unit. A compiler that would be idle begins with one of the builds that are
    /// likely to come next (`ahead`), which is in the cache then.
    pub fn compile(
        &self,
        units: &[Unit],
        wave: &[i64],
        ahead: &[With],
    ) -> Result<Vec<Vec<(i64, Variant)>>, BuildError> {
        let jobs: Vec<(&Unit, i64)> =
            units.iter().flat_map(|unit| wave.iter().map(move |&value| (unit, value))).collect();
        (self.options.progress)(&format!("compiling {}", counted(jobs.len(), "variant")));
        let ahead: Vec<(&Unit, With)> =
            units.iter().flat_map(|unit| ahead.iter().map(move |&with| (unit, with))).collect();
        let mut outcomes = self.outcomes(&jobs, &ahead).into_iter();
        let mut built = Vec::new();
        for unit in units {
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

    /// Runs the compilers side by side; the outcomes are in the order of `jobs`. As long as one
    /// runs, each that has nothing left to do takes one of those `ahead`.
    fn outcomes(&self, jobs: &[(&Unit, i64)], ahead: &[(&Unit, With)]) -> Vec<Result<Outcome, BuildError>> {
        let next = AtomicUsize::new(0);
        let done = AtomicUsize::new(0);
        let results: Mutex<BTreeMap<usize, Result<Outcome, BuildError>>> = Mutex::default();
        std::thread::scope(|scope| {
            for _ in 0..self.options.jobs.clamp(1, (jobs.len() + ahead.len()).max(1)) {
                scope.spawn(|| loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    let Some(&(unit, value)) = jobs.get(index) else {
                        let early = ahead.get(index - jobs.len()).filter(|_| done.load(Ordering::Relaxed) < jobs.len());
                        // Whatever this says, it says again when its turn comes.
                        early.map(|&(unit, with)| built(self.tree, self.constant, unit, with, self.options.cache));
                        return;
                    };
                    let outcome = self.outcome(unit, value);
                    done.fetch_add(1, Ordering::Relaxed);
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
                Ok(Outcome::Variant(Variant::Rejected { by, message }))
            }
            Err(xk_const::BuildError::Edit(error)) => {
                let (by, message) = (RejectedBy::Other, error.to_string());
                Ok(Outcome::Variant(Variant::Rejected { by, message }))
            }
            Err(error) => Err(error.into()),
        }
    }
}
