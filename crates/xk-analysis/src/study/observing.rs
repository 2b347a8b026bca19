//! Compares a build with the deployed one, and what differs with what functions of V predict.
//!
//! In: an object compiled with a value. Out: the constants and data in which it differs, or the first difference that is
//! neither. Code is compared by [`crate::diff`], data by [`crate::data`].

use xk_lift::flow::Flow;
use xk_lift::object::Object;
use xk_table::Refusal;

use super::{Disagreement, Fits, Means, Observation, Study};
use crate::constants::{Differences, Field, VariantConstant};
use crate::data;
use crate::diff::{compare_with, Rules};
use crate::fit::{agrees, Point};

impl Study {
    /// In what `variant`, a build with `value`, differs from the deployed one.
    pub(super) fn observe(&self, means: &Means<'_>, value: i64, variant: &Object) -> Result<Observation, Refusal> {
        let data = data::compare(&self.base, variant, &self.source, self.module.as_deref())?;
        let nothing = Differences::new();
        let code = compare_with(&self.base, variant, &means.rules(&nothing, &self.flow)).map_err(|mismatch| {
            Refusal::Shape { place: self.place(mismatch.base), detail: format!("{} (value {value})", mismatch.detail) }
        })?;
        Ok(Observation { value, code, data })
    }

    /// The same with the functions of V as a guide: whole blocks are first compared with the constants that they
    /// predict. The comparison shows that these constants make the blocks equal; it does not rely on them.
    pub(super) fn observe_expecting(
        &self,
        means: &Means<'_>,
        value: i64,
        variant: &Object,
    ) -> Result<Observation, Disagreement> {
        let seeds = self.seeds().ok_or(Disagreement::NoFit)?;
        let expected: Differences = seeds
            .iter()
            .map(|(key, fit)| (*key, VariantConstant { value: fit.apply(value), bits: u32::from(fit.width) * 8 }))
            .collect();
        let data = data::compare(&self.base, variant, &self.source, self.module.as_deref())?;
        let code = compare_with(&self.base, variant, &means.rules(&expected, &self.flow))
            .map_err(|mismatch| Disagreement::Code { place: self.place(mismatch.base), difference: mismatch.detail })?;
        Ok(Observation { value, code, data })
    }

    /// Whether what was observed is what `fits` predicts.
    pub(super) fn predicted(&self, fits: &Fits, observation: &Observation) -> Result<(), Disagreement> {
        let value = observation.value;
        data::predicted(&self.base, &fits.data, value, &observation.data)?;
        let mut differences = observation.code.clone();
        let products = fits.code.keys().filter(|key| key.1 == Field::Product).map(|key| key.0);
        products.for_each(|node| self.read_constant_as_product(node, &mut differences));
        if let Some((node, _)) = differences.keys().find(|key| !fits.code.contains_key(key)) {
            return Err(Disagreement::Unfitted(self.place(*node)));
        }
        for (key, fit) in &fits.code {
            let point = match differences.get(key) {
                Some(other) => Point { v: value, iv: other.value, bits: other.bits },
                None => Point { v: value, iv: self.deployed_constant(*key), bits: 64 },
            };
            if !agrees(fit, &point) {
                let (place, predicted) = (self.place(key.0), fit.apply(value));
                return Err(Disagreement::Number { place, compiled: point.iv, predicted });
            }
        }
        Ok(())
    }

    /// Whether `variant`, a build with `value`, is what the functions of V predict.
    ///
    /// # Errors
    /// The first difference.
    pub fn agrees_with(&self, means: &Means<'_>, value: i64, variant: &Object) -> Result<(), Disagreement> {
        let fitted = self.as_fitted().ok_or(Disagreement::NoFit)?;
        self.predicted(&fitted.fits, &self.observe_expecting(means, value, variant)?)
    }

    /// The first number in which `variant`, a build with `value`, is not what the functions of V predict, if the code is
    /// the same otherwise.
    #[must_use]
    pub fn contradicts(&self, means: &Means<'_>, value: i64, variant: &Object) -> Option<Disagreement> {
        let observation = self.observe_expecting(means, value, variant).ok()?;
        self.predicted(&self.as_fitted()?.fits, &observation).err()
    }
}

impl<'a> Means<'a> {
    fn rules(&self, expected: &'a Differences, flow: &'a Flow) -> Rules<'a> {
        let Self { noreturns, prototypes, solver, .. } = *self;
        Rules { noreturns, prototypes, solver: Some(solver), expected, flow: Some(flow) }
    }
}
