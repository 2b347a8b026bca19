//! From the observations of all units of a constant to its critical spans.
//!
//! In: a [`Study`] of each translation unit that can see the constant. Out:
//! functions, critical spans and accepted values for the scope table; or the
//! refusal of the whole constant.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use xk_table::{CriticalSpan, DataSite, Function as TableFunction, Place, Range, Refusal, Unit, Values};

use crate::context::Context;
use crate::data;
use crate::fit::fits_without_wrapping;
use crate::identity::{locate, whole_unit, Deployed};
use crate::proof::Solver;
use crate::study::{Builds, Means, Study};

/// What the analysis needs to know besides the builds.
#[derive(Clone, Copy)]
pub struct Input<'a> {
    /// The value of the deployed kernel.
    pub default: i64,
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
    /// Data that holds the constant.
    pub data: Vec<DataSite>,
    /// Values for which they hold.
    pub values: Values,
    /// The units, with what was found in each.
    pub units: Vec<Unit>,
}

/// Analyses one constant from builds that already exist.
///
/// # Errors
/// The [`Refusal`] of the constant as a whole.
pub fn analyse(input: &Input<'_>, units: Vec<Builds>) -> Result<Analysis, Refusal> {
    let modules: Vec<&str> = units.iter().filter_map(|unit| unit.module.as_deref()).collect();
    let prototypes = input.deployed.prototypes(&modules);
    let means =
        Means { default: input.default, noreturns: input.noreturns, prototypes: &prototypes, solver: input.solver };
    let studies: Vec<Study> = units
        .into_iter()
        .map(|unit| {
            let mut study = Study::new(unit.source, unit.module, unit.base, &prototypes);
            unit.variants.into_iter().for_each(|(value, variant)| study.add(&means, value, variant));
            study
        })
        .collect();
    fitted(input, &studies)?;
    let values = observed(input.default, &studies);
    conclude(input, &studies, values)
}

/// Whether every unit has functions of V that may stand in the places of its constants.
///
/// # Errors
/// The [`Refusal`] of the constant as a whole.
pub fn fitted(input: &Input<'_>, studies: &[Study]) -> Result<(), Refusal> {
    let without_fit = || studies.iter().filter(|study| study.seeds().is_none());
    // Of several the one that says why.
    let telling = without_fit().find(|study| study.is_hopeless());
    let telling = telling.or_else(|| without_fit().find(|study| study.refusal(input.default).is_some()));
    if let Some(study) = telling.or_else(|| without_fit().next()) {
        let nothing = || Refusal::NotDeployed { detail: format!("{} was compiled with no other value", study.source) };
        return Err(study.refusal(input.default).unwrap_or_else(nothing));
    }
    let untouched = |study: &Study| study.seeds().is_none_or(|seeds| seeds.is_empty()) && study.data().is_empty();
    if studies.iter().all(untouched) {
        return Err(Refusal::DeadCode { units: studies.iter().map(|study| study.source.clone()).collect() });
    }
    Ok(())
}

/// Spans and data of studies that have functions of V, for the `values` that are shown.
///
/// # Errors
/// The [`Refusal`] of the constant as a whole.
pub fn conclude(input: &Input<'_>, studies: &[Study], values: Values) -> Result<Analysis, Refusal> {
    let default = input.default;
    if values.hull() == Range::of(default, default) {
        return Err(nothing_but_the_default(default, studies, &values));
    }
    let mut analysis = Analysis { functions: vec![], spans: vec![], data: vec![], values, units: vec![] };
    for study in studies {
        unit_spans(input, study, &mut analysis)?;
    }
    keep_in_place(&mut analysis)?;
    Ok(analysis)
}

fn nothing_but_the_default(default: i64, studies: &[Study], values: &Values) -> Refusal {
    let first = studies.iter().find_map(|study| {
        let (node, _) = study.seeds()?.keys().next()?;
        Some(study.place(*node))
    });
    let place = first.unwrap_or_else(|| Place { source: String::new(), function: String::new(), offset: 0 });
    let nearest = values.refused.iter().min_by_key(|(value, _)| value.abs_diff(default));
    let detail = nearest.map_or_else(
        || values.unproved.clone().unwrap_or_else(|| "no other value was compiled".into()),
        |(value, reason)| format!("already {value} does not agree: {reason}"),
    );
    Refusal::EmptyRange { place, detail }
}

/// The values that were compiled and agree with the functions of V, as far as the comparison of
/// instructions shows.
#[must_use]
pub fn observed(default: i64, studies: &[Study]) -> Values {
    let refused: BTreeMap<i64, String> = studies.iter().flat_map(|study| study.open().clone()).collect();
    let everywhere = |value: &i64| studies.iter().all(|study| study.agreeing().contains(value));
    let agreeing = studies.first().into_iter().flat_map(|study| study.agreeing().iter().copied());
    let mut compiled: BTreeSet<i64> = agreeing.filter(everywhere).collect();
    compiled.insert(default);
    Values { proved: None, unproved: None, compiled: compiled.into_iter().collect(), refused }
}

/// Where a span takes no update, all instructions hold the value, and only what has room
/// in them is left.
fn keep_in_place(analysis: &mut Analysis) -> Result<(), Refusal> {
    let Some((only, reason)) = analysis.spans.iter().find_map(|s| Some((s, s.only_in_place.as_ref()?))) else {
        return Ok(());
    };
    let place = |span: &CriticalSpan| Place {
        source: analysis.functions[span.function].source.clone(),
        function: analysis.functions[span.function].symbol.clone(),
        offset: span.start,
    };
    if let Some(other) = analysis.spans.iter().find(|span| span.in_place.is_none()) {
        let why = other.in_place_reason.clone().unwrap_or_default();
        let detail = format!("{reason}; only in place, and {} cannot be: {why}", place(other));
        return Err(Refusal::NoIndirection { place: place(only), detail });
    }
    let room = analysis.spans.iter().filter_map(|span| span.in_place.as_ref().map(|held| held.range));
    let room = room.fold(analysis.values.hull(), |a, b| Range::of(a.min.max(b.min), a.max.min(b.max)));
    analysis.values.keep_within(room);
    let hull = analysis.values.hull();
    if hull.min == hull.max {
        let detail = format!("{reason}; only in place, and no other value has room there");
        return Err(Refusal::EmptyRange { place: place(only), detail });
    }
    for held in analysis.spans.iter_mut().filter_map(|span| span.in_place.as_mut()) {
        held.range = hull;
    }
    Ok(())
}

/// The values around the default up to the first that does not agree in every
/// unit, or for which a transformed value would wrap around.
#[must_use]
pub fn hull<'a>(default: i64, studies: impl Iterator<Item = &'a Study> + Clone) -> Range {
    let tested: BTreeSet<i64> =
        studies.clone().flat_map(|s| s.agreeing().iter().chain(s.open().keys()).copied()).collect();
    let agrees = |v: i64| studies.clone().all(|study| study.agreeing().contains(&v));
    let fits = studies.clone().filter_map(Study::seeds).flat_map(|seeds| seeds.values());
    let fits: Vec<_> = fits.chain(studies.clone().flat_map(|study| study.data().values())).collect();
    let wraps = |min: i64, max: i64| fits.iter().any(|fit| !fits_without_wrapping(fit, min, max));
    let mut range = Range::of(default, default);
    for &v in tested.range(default..).filter(|&&v| v != default) {
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
    range
}

fn unit_spans(input: &Input<'_>, study: &Study, analysis: &mut Analysis) -> Result<(), Refusal> {
    let object = &study.base;
    let Some(seeds) = study.seeds() else { return Ok(()) };
    let mut located: BTreeSet<String> = BTreeSet::new();
    let own = analysis.functions.len();
    for (node, _) in seeds.keys() {
        let Some(function) = object.function_at(*node) else {
            return Err(Refusal::InlineAssembly { place: study.place(*node) });
        };
        if !located.insert(function.name.clone()) {
            continue;
        }
        let section = &object.sections[function.start.section].name;
        if [".init.", ".exit.", ".meminit", ".ref."].iter().any(|prefix| section.starts_with(prefix)) {
            return Err(Refusal::BootOnly {
                unit: study.source.clone(),
                function: function.name.clone(),
                section: section.clone(),
            });
        }
        let found = locate(object, function, &study.source, study.module.as_deref(), input.deployed)?;
        analysis.functions.push(found);
    }
    let found = data::sites(object, study.data(), &study.source, study.module.as_deref(), input.deployed)?;
    analysis.data.extend(found);
    let mut spans = 0;
    if !seeds.is_empty() {
        // Names of other units must not be found: only this unit's count.
        let names: Vec<String> = analysis
            .functions
            .iter()
            .enumerate()
            .map(|(index, f)| if index >= own { f.symbol.clone() } else { String::new() })
            .collect();
        let context = Context {
            object,
            flow: study.flow(),
            seeds,
            source: &study.source,
            default: input.default,
            range: analysis.values.hull(),
            solver: input.solver,
        };
        let mut found = context.spans(&names)?;
        spans = found.len();
        analysis.spans.append(&mut found);
    }
    analysis.units.push(Unit {
        source: study.source.clone(),
        module: study.module.clone(),
        functions: whole_unit(object, &study.source, study.module.as_deref(), input.deployed)?,
        spans,
    });
    Ok(())
}
