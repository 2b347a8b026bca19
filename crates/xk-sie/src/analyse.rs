//! The analysis of one constant, over builds that somebody else made.
//!
//! In: for each translation unit that can see the constant, its deployed build
//! and its variants. Out: functions, critical spans, range and validation for
//! the scope table; or the refusal of the whole constant.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use xk_table::{CriticalSpan, Function as TableFunction, Place, Range, Refusal, Unit, Validation};

use crate::diff::{compare_with, Differences, Field, Other, Rules};
use crate::fit::{agrees, fit, fits_without_wrapping, Point};
use crate::flow::Flow;
use crate::identity::{locate, Deployed};
use crate::insn::Node;
use crate::object::Object;
use crate::proof::Solver;
use crate::prototypes::Prototypes;
use crate::semantics::{gpr, is_immediate};
use crate::span::{Context, Seeds};
use crate::{data, insn::Insn, product};

/// A translation unit and its builds.
#[derive(Debug)]
pub struct Builds {
    /// Path relative to the source tree.
    pub source: String,
    /// Module that it belongs to; `None` for vmlinux.
    pub module: Option<String>,
    /// The deployed build.
    pub base: Object,
    /// Other values from which the mapping is fitted.
    pub fitted: Vec<(i64, Object)>,
    /// Values that only confirm.
    pub unseen: Vec<(i64, Object)>,
}

/// What the analysis needs to know besides the builds.
pub struct Input<'a> {
    /// The value of the deployed kernel.
    pub default: i64,
    /// Every unit that can see the constant.
    pub units: Vec<Builds>,
    /// Functions that do not return.
    pub noreturns: &'a HashSet<String>,
    /// The kernel to agree with.
    pub deployed: &'a dyn Deployed,
    /// Decides the obligations.
    pub solver: &'a Solver,
}

/// What the analysis found.
#[derive(Debug)]
pub struct Analysis {
    /// Functions with spans, each once.
    pub functions: Vec<TableFunction>,
    /// All spans.
    pub spans: Vec<CriticalSpan>,
    /// Values for which they hold.
    pub range: Range,
    /// Values that were compiled and agreed.
    pub validation: Validation,
    /// The units, with what was found in each.
    pub units: Vec<Unit>,
}

/// Seeds of one unit and the values that agree with them.
struct Fitted<'a> {
    unit: &'a Builds,
    seeds: Seeds,
    agreeing: BTreeSet<i64>,
    /// Values that could not be shown to agree, and why.
    open: BTreeMap<i64, String>,
}

/// Analyses one constant.
///
/// # Errors
/// The [`Refusal`] of the constant as a whole.
pub fn analyse(input: &Input<'_>) -> Result<Analysis, Refusal> {
    let prototypes = input.deployed.prototypes();
    let mut fitted = Vec::new();
    for unit in &input.units {
        fitted.push(fit_unit(unit, input, &prototypes)?);
    }
    if fitted.iter().all(|f| f.seeds.is_empty()) {
        let units = input.units.iter().map(|u| u.source.clone()).collect();
        return Err(Refusal::DeadCode { units });
    }
    let (range, validation) = usable_range(input, &fitted)?;
    let mut analysis = Analysis { functions: vec![], spans: vec![], range, validation, units: vec![] };
    for fitted in &fitted {
        unit_spans(input, fitted, &mut analysis)?;
    }
    Ok(analysis)
}

fn place(object: &Object, source: &str, node: Node) -> Place {
    let function = object.function_at(node);
    Place {
        source: source.into(),
        function: function.map_or_else(|| "?".into(), |f| f.name.clone()),
        offset: function.map_or(0, |f| (node.offset - f.start.offset) as u32),
    }
}

/// Width in bytes at which an instruction uses a constant.
fn width(insn: &Insn, field: Field) -> u8 {
    match field {
        Field::Displacement => return 8,
        Field::Product => return product::destination(insn).map_or(8, |(_, bits)| (bits / 8) as u8),
        Field::Immediate => {}
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

/// The constant that the deployed code holds at an instruction.
fn deployed_constant(object: &Object, flow: &Flow, key: (Node, Field)) -> u64 {
    let insn = &object.insns[&key.0];
    match key.1 {
        Field::Displacement => insn.displacement.as_ref().map_or(insn.raw.memory_displacement64(), |s| s.offset as u64),
        Field::Immediate => {
            (0..insn.raw.op_count()).find(|&i| is_immediate(insn.raw.op_kind(i))).map_or(0, |i| insn.raw.immediate(i))
        }
        Field::Product => {
            let block = flow.block(object, key.0);
            let index = block.iter().position(|i| i.node == key.0).unwrap_or(0);
            product::chain(&block, index).map_or(0, |(_, factor, _)| factor)
        }
    }
}

fn fit_unit<'a>(unit: &'a Builds, input: &Input<'_>, prototypes: &Prototypes) -> Result<Fitted<'a>, Refusal> {
    let flow = Flow::new(&unit.base);
    let nothing = Differences::new();
    let rules = Rules { noreturns: input.noreturns, prototypes, solver: Some(input.solver), expected: &nothing };
    let mut observed: Vec<(i64, Differences)> = Vec::new();
    for (value, variant) in &unit.fitted {
        data::compare(&unit.base, variant, &unit.source)?;
        let differences = compare_with(&unit.base, variant, &rules).map_err(|mismatch| Refusal::Shape {
            place: place(&unit.base, &unit.source, mismatch.base),
            detail: format!("{} (value {value})", mismatch.detail),
        })?;
        observed.push((*value, differences));
    }
    read_constants_as_products(unit, &flow, &mut observed);
    let mut seeds = Seeds::new();
    let keys: BTreeSet<(Node, Field)> = observed.iter().flat_map(|(_, d)| d.keys().copied()).collect();
    for key in keys {
        let points = points(unit, &flow, input.default, &observed, key);
        let bytes = width(&unit.base.insns[&key.0], key.1);
        let fit = fit(&points, bytes).ok_or_else(|| Refusal::NonLinear {
            place: place(&unit.base, &unit.source, key.0),
            values: points.iter().map(|p| p.v).collect(),
            ivs: points.iter().map(|p| p.iv).collect(),
        })?;
        seeds.insert(key, fit);
    }
    let mut open = BTreeMap::new();
    let mut agreeing: BTreeSet<i64> = unit.fitted.iter().map(|(v, _)| *v).collect();
    for (value, variant) in &unit.unseen {
        match confirms(unit, &flow, &seeds, *value, variant, &rules) {
            Ok(()) => {
                agreeing.insert(*value);
            }
            Err(reason) => {
                open.insert(*value, reason);
            }
        }
    }
    Ok(Fitted { unit, seeds, agreeing, open })
}

/// What was observed of one constant, for the deployed value and each variant.
fn points(unit: &Builds, flow: &Flow, default: i64, observed: &[(i64, Differences)], key: (Node, Field)) -> Vec<Point> {
    let bits = u32::from(width(&unit.base.insns[&key.0], key.1)) * 8;
    let constant = deployed_constant(&unit.base, flow, key);
    let mut points = vec![Point { v: default, iv: constant, bits }];
    points.extend(observed.iter().map(|(v, differences)| match differences.get(&key) {
        Some(other) => Point { v: *v, iv: other.value, bits: other.bits.min(bits) },
        None => Point { v: *v, iv: constant, bits },
    }));
    points
}

/// A left shift or `imul` whose constant changes is a product when other variants
/// multiply at the same place in another way: then it is read as a factor.
fn read_constants_as_products(unit: &Builds, flow: &Flow, observed: &mut [(i64, Differences)]) {
    let products: BTreeSet<Node> =
        observed.iter().flat_map(|(_, d)| d.keys()).filter(|k| k.1 == Field::Product).map(|k| k.0).collect();
    for node in products {
        for (_, differences) in observed.iter_mut() {
            read_constant_as_product(unit, flow, node, differences);
        }
    }
}

fn read_constant_as_product(unit: &Builds, flow: &Flow, node: Node, differences: &mut Differences) {
    let Some(other) = differences.remove(&(node, Field::Immediate)) else { return };
    let factor = deployed_constant(&unit.base, flow, (node, Field::Product));
    let count = deployed_constant(&unit.base, flow, (node, Field::Immediate));
    let multiplies = unit.base.insns[&node].raw.mnemonic() == iced_x86::Mnemonic::Imul;
    let scaled = if multiplies { other.value } else { (factor >> (count & 63)) << (other.value & 63) };
    differences.insert((node, Field::Product), Other { value: scaled, bits: 64 });
}

/// Whether a build that the fit never saw is what the fit predicts; else the
/// first difference.
fn confirms(
    unit: &Builds,
    flow: &Flow,
    seeds: &Seeds,
    value: i64,
    variant: &Object,
    rules: &Rules<'_>,
) -> Result<(), String> {
    let expected: Differences = seeds
        .iter()
        .map(|(key, fit)| (*key, Other { value: fit.apply(value), bits: u32::from(fit.width) * 8 }))
        .collect();
    let rules = Rules { expected: &expected, ..*rules };
    data::compare(&unit.base, variant, &unit.source).map_err(|refusal| refusal.to_string())?;
    let at = |node| place(&unit.base, &unit.source, node);
    let mut differences = compare_with(&unit.base, variant, &rules)
        .map_err(|mismatch| format!("{}: {}", at(mismatch.base), mismatch.detail))?;
    let products = seeds.keys().filter(|key| key.1 == Field::Product).map(|key| key.0);
    products.for_each(|node| read_constant_as_product(unit, flow, node, &mut differences));
    if let Some((node, _)) = differences.keys().find(|key| !seeds.contains_key(key)) {
        return Err(format!("{}: another constant changes with this value only", at(*node)));
    }
    for (key, fit) in seeds {
        let point = match differences.get(key) {
            Some(other) => Point { v: value, iv: other.value, bits: other.bits },
            None => Point { v: value, iv: deployed_constant(&unit.base, flow, *key), bits: 64 },
        };
        if !agrees(fit, &point) {
            let predicted = fit.apply(value);
            return Err(format!("{}: compiled to {:#x}, the fit predicts {predicted:#x}", at(key.0), point.iv));
        }
    }
    Ok(())
}

/// The values around the default for which every compiled value in between
/// agrees in every unit, and no transformed value wraps around.
fn usable_range(input: &Input<'_>, fitted: &[Fitted<'_>]) -> Result<(Range, Validation), Refusal> {
    let tested: BTreeSet<i64> =
        input.units.iter().flat_map(|u| u.fitted.iter().chain(&u.unseen).map(|(v, _)| *v)).collect();
    let built_everywhere =
        |v: i64| input.units.iter().all(|u| u.fitted.iter().chain(&u.unseen).any(|(value, _)| *value == v));
    let agrees = |v: i64| built_everywhere(v) && fitted.iter().all(|f| f.agreeing.contains(&v));
    let default = input.default;
    let wraps =
        |min: i64, max: i64| fitted.iter().any(|f| f.seeds.values().any(|fit| !fits_without_wrapping(fit, min, max)));
    let mut range = Range { min: default, max: default };
    for &v in tested.range(default..) {
        if !agrees(v) || wraps(range.min, v) {
            break;
        }
        range.max = v;
    }
    for &v in tested.range(..default).rev() {
        if !agrees(v) || wraps(v, range.max) {
            break;
        }
        range.min = v;
    }
    if range.min == range.max {
        let seeds = fitted.iter().find_map(|f| f.seeds.keys().next().map(|(node, _)| (f.unit, *node)));
        let place = seeds.map_or_else(
            || Place { source: String::new(), function: String::new(), offset: 0 },
            |(unit, node)| place(&unit.base, &unit.source, node),
        );
        return Err(Refusal::EmptyRange { place, detail: "no other compiled value agrees with the fit".into() });
    }
    let inside = |v: &i64| range.contains(*v) && agrees(*v);
    let first = &input.units[0];
    let validation = Validation {
        fitted: first.fitted.iter().map(|(v, _)| *v).filter(inside).collect(),
        unseen: first.unseen.iter().map(|(v, _)| *v).filter(inside).collect(),
        open: fitted.iter().flat_map(|f| f.open.clone()).collect(),
    };
    Ok((range, validation))
}

fn unit_spans(input: &Input<'_>, fitted: &Fitted<'_>, analysis: &mut Analysis) -> Result<(), Refusal> {
    let unit = fitted.unit;
    let object = &unit.base;
    let mut located: BTreeMap<String, ()> = BTreeMap::new();
    for (node, _) in fitted.seeds.keys() {
        let Some(function) = object.function_at(*node) else {
            return Err(Refusal::InlineAssembly { place: place(object, &unit.source, *node) });
        };
        if located.insert(function.name.clone(), ()).is_some() {
            continue;
        }
        let section = &object.sections[function.start.section].name;
        if [".init.", ".exit.", ".meminit", ".ref."].iter().any(|prefix| section.starts_with(prefix)) {
            return Err(Refusal::BootOnly {
                unit: unit.source.clone(),
                function: function.name.clone(),
                section: section.clone(),
            });
        }
        let found = locate(object, function, &unit.source, unit.module.as_deref(), input.deployed)?;
        analysis.functions.push(found);
    }
    let mut spans = 0;
    if !fitted.seeds.is_empty() {
        let names: Vec<String> = analysis
            .functions
            .iter()
            // Names of other units must not be found: only this unit's count.
            .map(|f| if f.source == unit.source { f.symbol.clone() } else { String::new() })
            .collect();
        let flow = Flow::new(object);
        let context = Context {
            object,
            flow: &flow,
            seeds: &fitted.seeds,
            source: &unit.source,
            default: input.default,
            range: analysis.range,
            solver: input.solver,
        };
        let mut found = context.spans(&names)?;
        spans = found.len();
        analysis.spans.append(&mut found);
    }
    analysis.units.push(Unit {
        source: unit.source.clone(),
        module: unit.module.clone(),
        functions: object.functions.len(),
        spans,
    });
    Ok(())
}
