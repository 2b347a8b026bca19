//! One translation unit under observation: its deployed build, builds with
//! other values, and what they have in common.
//!
//! Values come one after the other. The first two that differ from the
//! deployed build in constants alone, on one line, give the fit; every other
//! value only confirms it, or is *open* with the reason. A value for which the
//! compiler chose another shape says nothing against the others: the usable
//! range ends before it.

mod disagreement;

pub use disagreement::Disagreement;

use std::collections::{BTreeMap, BTreeSet, HashSet};

use xk_lift::flow::Flow;
use xk_lift::insn::{Insn, Node};
use xk_lift::object::Object;
use xk_lift::prototypes::Prototypes;
use xk_lift::semantics::{gpr, is_immediate};
use xk_table::{Place, Refusal};

use crate::constants::{Differences, Field, Seeds, VariantConstant};
use crate::data::{self, DataDifferences, DataSeeds};
use crate::diff::{compare_with, Rules};
use crate::fit::{agrees, fit, Point};
use crate::plan::FITTED;
use crate::product;
use crate::proof::Solver;

/// What a unit was compiled to with another value.
#[derive(Debug)]
pub enum Variant {
    /// An object.
    Built(Box<Object>),
    /// The compiler rejects the value, in its own words; `true` when an
    /// assertion about the value or a size does.
    Rejected(bool, String),
}

/// A translation unit and its builds.
#[derive(Debug)]
pub struct Builds {
    /// Path relative to the source tree.
    pub source: String,
    /// Module that it belongs to; `None` for vmlinux.
    pub module: Option<String>,
    /// The deployed build.
    pub base: Object,
    /// Builds with other values, in the order in which they are looked at.
    pub variants: Vec<(i64, Variant)>,
}

/// What every comparison needs.
#[derive(Clone, Copy)]
pub struct Means<'a> {
    /// The value of the deployed kernel.
    pub default: i64,
    /// Functions that do not return.
    pub noreturns: &'a HashSet<String>,
    /// How many registers a call passes.
    pub prototypes: &'a Prototypes,
    /// Decides whether pieces of code do the same.
    pub solver: &'a Solver,
}

/// In what a build differs from the deployed one.
#[derive(Debug, Clone)]
struct Observation {
    code: Differences,
    data: DataDifferences,
}

/// A unit and what is known of it so far.
#[derive(Debug)]
pub struct Study {
    /// Path relative to the source tree.
    pub source: String,
    /// Module that it belongs to; `None` for vmlinux.
    pub module: Option<String>,
    /// The deployed build.
    pub base: Object,
    flow: Flow,
    /// Matched, with what differs.
    observed: Vec<(i64, Observation)>,
    /// Not matched without a fit; may do with one.
    waiting: Vec<(i64, Box<Object>)>,
    seeds: Option<Seeds>,
    data: DataSeeds,
    fitted: BTreeSet<i64>,
    agreeing: BTreeSet<i64>,
    open: BTreeMap<i64, String>,
    refusals: BTreeMap<i64, Refusal>,
}

impl Study {
    /// Begins with the deployed build alone.
    #[must_use]
    pub fn new(source: String, module: Option<String>, base: Object, prototypes: &Prototypes) -> Self {
        let flow = Flow::new(&base, prototypes);
        Self {
            source,
            module,
            base,
            flow,
            observed: Vec::new(),
            waiting: Vec::new(),
            seeds: None,
            data: DataSeeds::new(),
            fitted: BTreeSet::new(),
            agreeing: BTreeSet::new(),
            open: BTreeMap::new(),
            refusals: BTreeMap::new(),
        }
    }

    /// The fitted constants, once two values agree on them.
    #[must_use]
    pub fn seeds(&self) -> Option<&Seeds> {
        self.seeds.as_ref()
    }

    /// Takes the functions of V with tests for order in the places of some for equality.
    pub fn test_for_order(&mut self, seeds: Seeds) {
        self.seeds = Some(seeds);
    }

    /// The data that follows V.
    #[must_use]
    pub fn data(&self) -> &DataSeeds {
        &self.data
    }

    /// Blocks and liveness of the deployed build.
    #[must_use]
    pub fn flow(&self) -> &Flow {
        &self.flow
    }

    /// Values from which the fit was made.
    #[must_use]
    pub fn fitted(&self) -> &BTreeSet<i64> {
        &self.fitted
    }

    /// Values that agree with the fit, those that made it included.
    #[must_use]
    pub fn agreeing(&self) -> &BTreeSet<i64> {
        &self.agreeing
    }

    /// Values that could not be shown to agree, and why.
    #[must_use]
    pub fn open(&self) -> &BTreeMap<i64, String> {
        &self.open
    }

    /// Why there is no fit: what stands against the value nearest to the
    /// default.
    #[must_use]
    pub fn refusal(&self, default: i64) -> Option<Refusal> {
        let nearest = self.refusals.iter().min_by_key(|(value, _)| value.abs_diff(default));
        nearest.map(|(_, refusal)| refusal.clone())
    }

    /// Whether no value can ever agree: data that cannot be changed holds another with each of several.
    #[must_use]
    pub fn is_hopeless(&self) -> bool {
        let fixed = |refusal: &&Refusal| matches!(refusal, Refusal::ReadOnlyData { .. } | Refusal::BootOnly { .. });
        self.observed.is_empty() && self.refusals.values().filter(fixed).count() >= FITTED
    }

    /// Where an instruction is, for messages.
    #[must_use]
    pub fn place(&self, node: Node) -> Place {
        let function = self.base.function_at(node);
        Place {
            source: self.source.clone(),
            function: function.map_or_else(|| "?".into(), |f| f.name.clone()),
            offset: function.map_or(0, |f| (node.offset - f.start.offset) as u32),
        }
    }

    /// Looks at one more value.
    pub fn add(&mut self, means: &Means<'_>, value: i64, variant: Variant) {
        let object = match variant {
            Variant::Built(object) => object,
            Variant::Rejected(assertion, message) => return self.reject(value, assertion, &message),
        };
        if self.seeds.is_some() {
            return self.confirm(means, value, &object);
        }
        match self.observe(means, value, &object) {
            Ok(observation) => self.observed.push((value, observation)),
            Err(refusal) => {
                self.refusals.insert(value, refusal);
                self.waiting.push((value, object));
                return;
            }
        }
        self.try_fit(means);
    }

    fn reject(&mut self, value: i64, assertion: bool, message: &str) {
        self.open.insert(value, format!("the compiler rejects it: {message}"));
        let what = if assertion {
            format!("an assertion about the value {value} ({message})")
        } else {
            format!("the unit, which does not compile with {value} ({message}),")
        };
        self.refusals.insert(value, Refusal::LayoutChange { unit: self.source.clone(), what });
    }

    fn observe(&self, means: &Means<'_>, value: i64, variant: &Object) -> Result<Observation, Refusal> {
        let data = data::compare(&self.base, variant, &self.source, self.module.as_deref())?;
        let nothing = Differences::new();
        let code = compare_with(&self.base, variant, &means.rules(&nothing, &self.flow)).map_err(|mismatch| {
            Refusal::Shape { place: self.place(mismatch.base), detail: format!("{} (value {value})", mismatch.detail) }
        })?;
        Ok(Observation { code, data })
    }

    /// Tries the newest observation with each of the older ones.
    fn try_fit(&mut self, means: &Means<'_>) {
        let Some((newest, older)) = self.observed.split_last() else { return };
        let mut refused = None;
        let mut found = None;
        for other in older {
            let mut pair = vec![other.clone(), newest.clone()];
            self.read_constants_as_products(&mut pair);
            match self.fit_all(means, &pair) {
                Ok(fits) => {
                    found = Some((fits, [other.0, newest.0]));
                    break;
                }
                Err(refusal) => refused = Some(refusal),
            }
        }
        let newest = newest.0;
        if let Some(((seeds, data), values)) = found {
            self.seeds = Some(seeds);
            self.data = data;
            self.fitted = values.into();
            self.agreeing = values.into();
            self.settle(means);
        } else if let Some(refusal) = refused {
            self.refusals.insert(newest, refusal);
        }
    }

    fn fit_all(&self, means: &Means<'_>, observed: &[(i64, Observation)]) -> Result<(Seeds, DataSeeds), Refusal> {
        let keys: BTreeSet<(Node, Field)> = observed.iter().flat_map(|(_, o)| o.code.keys().copied()).collect();
        let mut seeds = Seeds::new();
        for key in keys {
            let points = self.points(means.default, observed, key);
            let fit = fit(&points, width(&self.base.insns[&key.0], key.1)).ok_or_else(|| Refusal::NonLinear {
                place: self.place(key.0),
                values: points.iter().map(|p| p.v).collect(),
                ivs: points.iter().map(|p| p.iv).collect(),
            })?;
            seeds.insert(key, fit);
        }
        let data: Vec<_> = observed.iter().map(|(value, o)| (*value, &o.data)).collect();
        Ok((seeds, data::fit_all(&self.base, &self.source, means.default, &data)?))
    }

    /// With a fit, everything seen before is looked at again.
    fn settle(&mut self, means: &Means<'_>) {
        for (value, observation) in self.observed.clone() {
            if !self.fitted.contains(&value) {
                self.judge(means, value, &observation);
            }
        }
        for (value, object) in std::mem::take(&mut self.waiting) {
            self.confirm(means, value, &object);
        }
    }

    fn note(&mut self, value: i64, verdict: Result<(), Disagreement>) {
        match verdict {
            Ok(()) => {
                self.agreeing.insert(value);
            }
            Err(reason) => {
                self.open.insert(value, reason.to_string());
            }
        }
    }

    fn confirm(&mut self, means: &Means<'_>, value: i64, variant: &Object) {
        match self.compared(means, value, variant) {
            Ok(observation) => {
                self.observed.push((value, observation.clone()));
                self.judge(means, value, &observation);
            }
            Err(reason) => self.note(value, Err(reason)),
        }
    }

    /// Whether a value agrees with the fit, or with a better fit that everything
    /// else agrees with too.
    fn judge(&mut self, means: &Means<'_>, value: i64, observation: &Observation) {
        let verdict = self.predicted(value, observation);
        if verdict.is_err() && self.refit(means, value) {
            return;
        }
        self.note(value, verdict);
    }

    /// A quotient looks constant or linear until a value is far enough away.
    fn refit(&mut self, means: &Means<'_>, value: i64) -> bool {
        let among = |(v, _): &&(i64, Observation)| self.fitted.contains(v) || *v == value;
        let mut observed: Vec<_> = self.observed.iter().filter(among).cloned().collect();
        self.read_constants_as_products(&mut observed);
        let Ok((seeds, data)) = self.fit_all(means, &observed) else { return false };
        let before = (self.seeds.replace(seeds), std::mem::replace(&mut self.data, data));
        let agree = |(v, o): &(i64, Observation)| !self.agreeing.contains(v) || self.predicted(*v, o).is_ok();
        if self.observed.iter().all(agree) {
            self.fitted.insert(value);
            self.agreeing.insert(value);
            return true;
        }
        (self.seeds, self.data) = before;
        false
    }

    /// Whether `variant`, a build with `value`, is what the fit predicts.
    ///
    /// # Errors
    /// The first difference.
    pub fn agrees_with(&self, means: &Means<'_>, value: i64, variant: &Object) -> Result<(), Disagreement> {
        self.predicted(value, &self.compared(means, value, variant)?)
    }

    /// The first number in which `variant`, a build with `value`, is not what the fit predicts, if the code is
    /// the same otherwise.
    #[must_use]
    pub fn contradicts(&self, means: &Means<'_>, value: i64, variant: &Object) -> Option<Disagreement> {
        self.predicted(value, &self.compared(means, value, variant).ok()?).err()
    }

    /// The constants in which a build that the fit never saw differs, or the
    /// first difference that is none.
    fn compared(&self, means: &Means<'_>, value: i64, variant: &Object) -> Result<Observation, Disagreement> {
        let seeds = self.seeds.as_ref().ok_or(Disagreement::NoFit)?;
        let expected: Differences = seeds
            .iter()
            .map(|(key, fit)| (*key, VariantConstant { value: fit.apply(value), bits: u32::from(fit.width) * 8 }))
            .collect();
        let data = data::compare(&self.base, variant, &self.source, self.module.as_deref())?;
        let code = compare_with(&self.base, variant, &means.rules(&expected, &self.flow))
            .map_err(|mismatch| Disagreement::Code { place: self.place(mismatch.base), difference: mismatch.detail })?;
        Ok(Observation { code, data })
    }

    /// Whether what was observed is what the fit predicts.
    fn predicted(&self, value: i64, observation: &Observation) -> Result<(), Disagreement> {
        data::predicted(&self.base, &self.data, value, &observation.data)?;
        let mut differences = observation.code.clone();
        let seeds = self.seeds.as_ref().ok_or(Disagreement::NoFit)?;
        let products = seeds.keys().filter(|key| key.1 == Field::Product).map(|key| key.0);
        products.for_each(|node| self.read_constant_as_product(node, &mut differences));
        if let Some((node, _)) = differences.keys().find(|key| !seeds.contains_key(key)) {
            return Err(Disagreement::Unfitted(self.place(*node)));
        }
        for (key, fit) in seeds {
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

    /// The constant that the deployed code holds at an instruction.
    pub(crate) fn deployed_constant(&self, key: (Node, Field)) -> u64 {
        let insn = &self.base.insns[&key.0];
        match key.1 {
            Field::Displacement => {
                insn.displacement.as_ref().map_or(insn.raw.memory_displacement64(), |s| s.offset as u64)
            }
            Field::Immediate | Field::Order(_) => (0..insn.raw.op_count())
                .find(|&i| is_immediate(insn.raw.op_kind(i)))
                .map_or(0, |i| insn.raw.immediate(i)),
            Field::Pool => insn.pool.unwrap_or(0),
            Field::Product => {
                let block = self.flow.block(&self.base, key.0);
                let index = block.iter().position(|i| i.node == key.0).unwrap_or(0);
                product::chain(&block, index).map_or(0, |(_, factor, _)| factor)
            }
        }
    }

    /// What was observed of one constant, for the deployed value and each variant.
    fn points(&self, default: i64, observed: &[(i64, Observation)], key: (Node, Field)) -> Vec<Point> {
        let bits = u32::from(width(&self.base.insns[&key.0], key.1)) * 8;
        let constant = self.deployed_constant(key);
        let mut points = vec![Point { v: default, iv: constant, bits }];
        points.extend(observed.iter().map(|(v, observation)| match observation.code.get(&key) {
            Some(other) => Point { v: *v, iv: other.value, bits: other.bits.min(bits) },
            None => Point { v: *v, iv: constant, bits },
        }));
        points
    }

    /// A left shift or `imul` whose constant changes is a product when other
    /// variants multiply at the same place in another way: then it is read as
    /// a factor.
    fn read_constants_as_products(&self, observed: &mut [(i64, Observation)]) {
        let products: BTreeSet<Node> =
            observed.iter().flat_map(|(_, o)| o.code.keys()).filter(|k| k.1 == Field::Product).map(|k| k.0).collect();
        for node in products {
            for (_, observation) in observed.iter_mut() {
                self.read_constant_as_product(node, &mut observation.code);
            }
        }
    }

    fn read_constant_as_product(&self, node: Node, differences: &mut Differences) {
        let Some(other) = differences.remove(&(node, Field::Immediate)) else { return };
        let factor = self.deployed_constant((node, Field::Product));
        let count = self.deployed_constant((node, Field::Immediate));
        let multiplies = self.base.insns[&node].raw.mnemonic() == iced_x86::Mnemonic::Imul;
        let scaled = if multiplies { other.value } else { (factor >> (count & 63)) << (other.value & 63) };
        differences.insert((node, Field::Product), VariantConstant { value: scaled, bits: 64 });
    }
}

impl<'a> Means<'a> {
    fn rules(&self, expected: &'a Differences, flow: &'a Flow) -> Rules<'a> {
        let Self { noreturns, prototypes, solver, .. } = *self;
        Rules { noreturns, prototypes, solver: Some(solver), expected, flow: Some(flow) }
    }
}

/// Width in bytes at which an instruction uses a constant.
fn width(insn: &Insn, field: Field) -> u8 {
    match field {
        Field::Displacement => return 8,
        Field::Product => return product::destination(insn).map_or(8, |(_, bits)| (bits / 8) as u8),
        Field::Pool => return insn.raw.memory_size().size() as u8,
        Field::Immediate | Field::Order(_) => {}
    }
    use iced_x86::Mnemonic as M;
    if matches!(insn.raw.mnemonic(), M::Shl | M::Shr | M::Sar | M::Rol | M::Ror | M::Sal) {
        return 1;
    }
    if insn.raw.mnemonic() == M::Push {
        return 8;
    }
    let first = (0..insn.raw.op_count()).find(|&i| !is_immediate(insn.raw.op_kind(i)));
    match first.map(|i| (insn.raw.op_kind(i), insn.raw.op_register(i))) {
        Some((iced_x86::OpKind::Register, register)) => gpr(register).map_or(8, |(_, bits, _)| (bits / 8) as u8),
        Some((iced_x86::OpKind::Memory, _)) => insn.raw.memory_size().size() as u8,
        _ => 8,
    }
}
