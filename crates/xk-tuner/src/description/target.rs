//! Targets and constraints of a search. In: their tables. Out: a [`Target`], [`Constraint`]s, or the line on which
//! something is wrong. It refuses tables that do not define exactly one window, and one source for each number.

use std::collections::BTreeSet;
use std::time::Duration;

use toml::Spanned;

use super::error::{DescriptionError, NumberProblem, Problem, TargetProblem};
use super::module;
use super::schema::{self, ConstraintTable, LatencyTable, NumberSource, TargetTable};
use super::source::SourceText;
use crate::history::{Goal, Objective};
use crate::modules::Modules;
use crate::target::{Endpoint, Lead, Probe, Quantity, Selector, Work, UNNAMED};
use crate::{Constraint, Target};

/// The target, and the constraints, which may have sources of their own.
pub(super) fn targets(
    source: &SourceText,
    search: &schema::SearchFile,
    modules: &dyn Modules,
) -> Result<(Target, Vec<Constraint>), DescriptionError> {
    let (first, others) = match (&search.target, search.targets.split_first()) {
        (Some(only), None) => (only, &[][..]),
        (None, Some((first, others))) => (first, others),
        (None, None) => return Err(source.error(0..0, Problem::NoTarget)),
        (Some(one), Some(_)) => return Err(source.error(one.span(), Problem::TargetAndTargets)),
    };
    let reader = TargetReader { source, modules };
    let mut target = reader.first(first)?;
    for other in others {
        target.others.push(reader.further(other, &mut target.probes)?);
    }
    let constraint = |table| reader.constraint(table, &mut target.probes);
    let constraints: Vec<Constraint> = search.constraint.iter().map(constraint).collect::<Result<_, _>>()?;
    let mut names = BTreeSet::from([target.name.as_str()]);
    if let Some(twice) = target.others.iter().find(|other| !names.insert(&other.name)) {
        return Err(source.error(first.span(), Problem::TwoTargets(twice.name.clone())));
    }
    Ok((target, constraints))
}

struct TargetReader<'r> {
    source: &'r SourceText,
    modules: &'r dyn Modules,
}

impl TargetReader<'_> {
    /// The first target, with the window.
    fn first(&self, table: &Spanned<TargetTable>) -> Result<Target, DescriptionError> {
        let wrong = |problem: TargetProblem| self.source.error(table.span(), problem);
        let name = table.get_ref().name.clone().unwrap_or_else(|| UNNAMED.into());
        let (work, timeout) = self.window(table)?;
        let (probe, goal) = self.number(table, &name)?;
        let is_command = matches!(work, Work::Command(_));
        let lead = match (&probe, table.get_ref().measure) {
            (Some(_), _) => Lead::Named(name.clone()),
            (None, _) if !is_command => return Err(wrong(TargetProblem::NoNumber)),
            (None, Some(schema::Measure::Number)) => Lead::Number,
            (None, Some(schema::Measure::Seconds)) => Lead::Seconds,
            (None, Some(schema::Measure::Rate) | None) => return Err(wrong(TargetProblem::NoMeasure)),
        };
        Ok(Target { work, lead, name, goal, others: Vec::new(), probes: probe.into_iter().collect(), timeout })
    }

    /// The window of the first target, and its timeout.
    fn window(&self, spanned: &Spanned<TargetTable>) -> Result<(Work, Duration), DescriptionError> {
        let table = spanned.get_ref();
        let wrong = |problem: TargetProblem| self.source.error(spanned.span(), problem);
        let work = match (&table.command, &table.window) {
            (Some(command), None) => Work::Command(command.clone()),
            (None, Some(window)) => Work::Time(self.source.duration(window)?),
            (None, None) => return Err(wrong(TargetProblem::NoWindow)),
            (Some(_), Some(_)) => return Err(wrong(TargetProblem::CommandAndWindow)),
        };
        let Some(timeout) = &table.timeout else { return Err(wrong(TargetProblem::NoTimeout)) };
        let timeout = self.source.duration(timeout)?;
        match work {
            Work::Time(time) if time >= timeout || time.is_zero() => Err(wrong(TargetProblem::Timeout)),
            work => Ok((work, timeout)),
        }
    }

    /// A further target: a number that the first target prints under this name, or one with its own source.
    fn further(&self, table: &Spanned<TargetTable>, probes: &mut Vec<Probe>) -> Result<Objective, DescriptionError> {
        let wrong = |problem: TargetProblem| self.source.error(table.span(), problem);
        let TargetTable { name, command, window, timeout, .. } = table.get_ref();
        let Some(name) = name else { return Err(wrong(TargetProblem::NoName)) };
        if command.is_some() || window.is_some() || timeout.is_some() {
            return Err(wrong(TargetProblem::WindowOfFurther));
        }
        let (probe, goal) = self.number(table, name)?;
        self.add(table, probes, probe)?;
        Ok(Objective { name: name.clone(), goal })
    }

    /// The source of a target's number, if it has one of its own, and whether more is better.
    fn number(&self, spanned: &Spanned<TargetTable>, name: &str) -> Result<(Option<Probe>, Goal), DescriptionError> {
        let table = spanned.get_ref();
        let wrong = |problem: TargetProblem| self.source.error(spanned.span(), problem);
        let source = table.source();
        let Some(subsystem) = &table.module else {
            // No one wants calls to take longer.
            let goal = table.goal.or(source.latency.as_ref().map(|_| Goal::Minimise));
            let Some(goal) = goal else { return Err(wrong(TargetProblem::NoGoal)) };
            return Ok((self.probe(spanned, name, &source)?, goal));
        };
        if source.has_endpoint() || source.latency.is_some() {
            return Err(wrong(TargetProblem::ModuleAndSource));
        }
        if table.goal.is_some() || table.measure.is_some() {
            return Err(wrong(TargetProblem::ModuleDecides));
        }
        let (probe, goal) = module::target(subsystem, name, self.modules).map_err(wrong)?;
        Ok((Some(probe), goal))
    }

    fn constraint(
        &self,
        table: &Spanned<ConstraintTable>,
        probes: &mut Vec<Probe>,
    ) -> Result<Constraint, DescriptionError> {
        let ConstraintTable { name, at_most, at_least, .. } = table.get_ref();
        if at_most.is_none() && at_least.is_none() {
            return Err(self.source.error(table.span(), Problem::NoLimit(name.clone())));
        }
        let probe = self.probe(table, name, &table.get_ref().source())?;
        self.add(table, probes, probe)?;
        Ok(Constraint { name: name.clone(), at_most: *at_most, at_least: *at_least })
    }

    fn add<T>(
        &self,
        table: &Spanned<T>,
        probes: &mut Vec<Probe>,
        probe: Option<Probe>,
    ) -> Result<(), DescriptionError> {
        if let Some(twice) = probe.iter().find(|probe| probes.iter().any(|known| known.name == probe.name)) {
            return Err(self.source.error(table.span(), Problem::TwoSources(twice.name.clone())));
        }
        probes.extend(probe);
        Ok(())
    }

    fn probe<T>(
        &self,
        table: &Spanned<T>,
        name: &str,
        source: &NumberSource,
    ) -> Result<Option<Probe>, DescriptionError> {
        let wrong = |problem| self.source.error(table.span(), Problem::Number { name: name.to_owned(), problem });
        probe(name, source).map_err(wrong)
    }
}

/// The probe of the number of this name; `None` if it has no source of its own.
fn probe(name: &str, source: &NumberSource) -> Result<Option<Probe>, NumberProblem> {
    if let Some(latency) = &source.latency {
        return self::latency(name, latency, source).map(Some);
    }
    let (endpoint, metric) = match (&source.prometheus, &source.socket) {
        (None, None) if source.metric.is_some() => return Err(NumberProblem::MetricAlone),
        (None, None) => return Ok(None),
        (Some(_), Some(_)) => return Err(NumberProblem::TwoEndpoints),
        (Some(url), None) => {
            let metric = source.metric.as_ref().ok_or(NumberProblem::NoMetric)?;
            (Endpoint::http(url)?, Some(Selector::parse(metric)?))
        }
        (None, Some(_)) if source.metric.is_some() => return Err(NumberProblem::SocketAndMetric),
        (None, Some(address)) => (Endpoint::socket(address)?, None),
    };
    let quantity = match source.measure {
        None | Some(schema::Measure::Number) => Quantity::Number,
        Some(schema::Measure::Rate) => Quantity::Rate,
        Some(schema::Measure::Seconds) => return Err(NumberProblem::Seconds),
    };
    Ok(Some(Probe { name: name.to_owned(), endpoint, metric, quantity }))
}

fn latency(name: &str, latency: &LatencyTable, source: &NumberSource) -> Result<Probe, NumberProblem> {
    let LatencyTable { function, percentile } = latency;
    if source.has_endpoint() || source.measure.is_some() {
        return Err(NumberProblem::LatencyAndSource);
    }
    if !(*percentile > 0.0 && *percentile <= 100.0) {
        return Err(NumberProblem::Percentile(*percentile));
    }
    let endpoint = Endpoint::Function(function.clone());
    Ok(Probe { name: name.to_owned(), endpoint, metric: None, quantity: Quantity::Percentile(*percentile) })
}
