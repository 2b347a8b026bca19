//! Targets and limits of a search. In: their tables. Out: a [`Target`], [`Constraint`]s, or the line on which
//! something is wrong.

use std::collections::BTreeSet;
use std::ops::Range as Span;

use toml::Spanned;

use super::{duration, module, text, Source};
use crate::history::{Goal, Objective};
use crate::modules::Modules;
use crate::target::{Endpoint, Kind, Lead, Probe, Selector, Work, UNNAMED};
use crate::{Constraint, Error, Target};

/// What is optimised, and the limits; limits may have numbers of their own.
pub(super) fn targets(
    source: &Source,
    search: &text::Search,
    modules: &dyn Modules,
) -> Result<(Target, Vec<Constraint>), Error> {
    let (first, others) = match (&search.target, search.targets.split_first()) {
        (Some(only), None) => (only, &[][..]),
        (None, Some((first, others))) => (first, others),
        (None, None) => return Err(source.error(0..0, "there is no [target]: say what is to be optimised")),
        (Some(one), Some(_)) => return Err(source.error(one.span(), "give [target], or several [[targets]]; not both")),
    };
    let mut target = lead(source, first, modules)?;
    for other in others {
        target.others.push(another(source, other, &mut target.probes, modules)?);
    }
    let limit = |text| constraint(source, text, &mut target.probes);
    let limits: Vec<Constraint> = search.constraint.iter().map(limit).collect::<Result<_, _>>()?;
    let mut names = BTreeSet::from([target.name.as_str()]);
    if let Some(twice) = target.others.iter().find(|other| !names.insert(&other.name)) {
        return Err(source.error(first.span(), format!("two targets are called `{}`", twice.name)));
    }
    Ok((target, limits))
}

fn lead(source: &Source, spanned: &Spanned<text::Target>, modules: &dyn Modules) -> Result<Target, Error> {
    let text = spanned.get_ref();
    let wrong = |message: &str| source.error(spanned.span(), format!("target: {message}"));
    let name = text.name.clone().unwrap_or_else(|| UNNAMED.into());
    let work = match (&text.command, &text.window) {
        (Some(command), None) => Work::Command(command.clone()),
        (None, Some(window)) => Work::Time(duration(source, window)?),
        (None, None) => {
            return Err(wrong("give `command`, or the `window` of time after which a program is asked for its number"))
        }
        (Some(_), Some(_)) => return Err(wrong("the command is the window: leave `window` out")),
    };
    let Some(timeout) = &text.timeout else { return Err(wrong("give `timeout`: a longer window is a failure")) };
    let timeout = duration(source, timeout)?;
    if let Work::Time(time) = &work {
        if *time >= timeout || time.is_zero() {
            return Err(wrong("`timeout` must be longer than the `window`, and that longer than nothing"));
        }
    }
    let (probe, goal) = asked(source, spanned, &name, modules)?;
    let command = matches!(work, Work::Command(_));
    let lead = match (&probe, text.measure) {
        (Some(_), _) => Lead::Named(name.clone()),
        (None, _) if !command => {
            return Err(wrong("nothing happens in a `window`: give `prometheus`, `socket`, `module` or `latency`, too"))
        }
        (None, Some(text::Measure::Number)) => Lead::Number,
        (None, Some(text::Measure::Seconds)) => Lead::Seconds,
        (None, _) => return Err(wrong("give `measure`: \"number\" (what the command prints last) or \"seconds\"")),
    };
    Ok(Target { work, lead, name, goal, others: Vec::new(), probes: probe.into_iter().collect(), timeout })
}

/// A further target: a number that is printed or said beside the first, or one of another program.
fn another(
    source: &Source,
    spanned: &Spanned<text::Target>,
    probes: &mut Vec<Probe>,
    modules: &dyn Modules,
) -> Result<Objective, Error> {
    let text = spanned.get_ref();
    let wrong = |message: &str| source.error(spanned.span(), format!("target: {message}"));
    let Some(name) = &text.name else { return Err(wrong("each but the first needs a `name`")) };
    if text.command.is_some() || text.window.is_some() || text.timeout.is_some() {
        return Err(wrong("the window is the first target's: give `command`, `window` and `timeout` there"));
    }
    let (probe, goal) = asked(source, spanned, name, modules)?;
    add(source, spanned.span(), probes, probe)?;
    Ok(Objective { name: name.clone(), goal })
}

/// Who is asked for the number of a target, if anybody is, and which way is better.
fn asked(
    source: &Source,
    spanned: &Spanned<text::Target>,
    name: &str,
    modules: &dyn Modules,
) -> Result<(Option<Probe>, Goal), Error> {
    let text = spanned.get_ref();
    let wrong = |message: &str| source.error(spanned.span(), format!("target: {message}"));
    let asked = text.asked();
    let Some(place) = &text.module else {
        // Nobody wants calls to take longer.
        let goal = text.goal.or(asked.latency.as_ref().map(|_| Goal::Minimise));
        let Some(goal) = goal else { return Err(wrong("give `goal`: \"maximise\" or \"minimise\"")) };
        return Ok((probe(source, spanned.span(), name, &asked)?, goal));
    };
    if asked.prometheus.is_some() || asked.metric.is_some() || asked.socket.is_some() || asked.latency.is_some() {
        return Err(wrong("give `module` or another program to ask; not both"));
    }
    if text.goal.is_some() || text.measure.is_some() {
        return Err(wrong("the module says what counts and which way is better: leave `goal` and `measure` out"));
    }
    let (probe, goal) = module::target(place, name, modules).map_err(|why| wrong(&why.to_string()))?;
    Ok((Some(probe), goal))
}

fn constraint(
    source: &Source,
    spanned: &Spanned<text::Constraint>,
    probes: &mut Vec<Probe>,
) -> Result<Constraint, Error> {
    let text = spanned.get_ref();
    if text.at_most.is_none() && text.at_least.is_none() {
        let message = format!("constraint `{}`: give `at_most` or `at_least`", text.name);
        return Err(source.error(spanned.span(), message));
    }
    add(source, spanned.span(), probes, probe(source, spanned.span(), &text.name, &text.asked())?)?;
    Ok(Constraint { name: text.name.clone(), at_most: text.at_most, at_least: text.at_least })
}

/// One more number that is asked for.
fn add(source: &Source, span: Span<usize>, probes: &mut Vec<Probe>, one: Option<Probe>) -> Result<(), Error> {
    let Some(one) = one else { return Ok(()) };
    if probes.iter().any(|known| known.name == one.name) {
        return Err(source.error(span, format!("`{}` is asked for twice: leave its source out here", one.name)));
    }
    probes.push(one);
    Ok(())
}

/// What is asked for the number of this name, if anything is.
fn probe(source: &Source, span: Span<usize>, name: &str, asked: &text::Asked) -> Result<Option<Probe>, Error> {
    let wrong = |message: String| source.error(span.clone(), format!("`{name}`: {message}"));
    if let Some(text::Latency { function, percentile }) = &asked.latency {
        if asked.prometheus.is_some() || asked.metric.is_some() || asked.socket.is_some() || asked.measure.is_some() {
            return Err(wrong("a `latency` is measured in the kernel: leave other sources, and `measure`, out".into()));
        }
        if !(*percentile > 0.0 && *percentile <= 100.0) {
            return Err(wrong(format!("percentile = {percentile} is none: above 0, up to 100")));
        }
        let endpoint = Endpoint::Function(function.clone());
        return Ok(Some(Probe { name: name.to_owned(), endpoint, metric: None, kind: Kind::Percentile(*percentile) }));
    }
    let (endpoint, metric) = match (&asked.prometheus, &asked.socket) {
        (None, None) if asked.metric.is_some() => {
            return Err(wrong("a `metric` is one of a `prometheus` endpoint".into()))
        }
        (None, None) => return Ok(None),
        (Some(_), Some(_)) => return Err(wrong("give `prometheus` or `socket`; not both".into())),
        (Some(url), None) => {
            let Some(metric) = &asked.metric else { return Err(wrong("say which `metric` of the endpoint".into())) };
            let endpoint = Endpoint::http(url).map_err(|error| wrong(error.to_string()))?;
            (endpoint, Some(Selector::parse(metric).map_err(|error| wrong(error.to_string()))?))
        }
        (None, Some(_)) if asked.metric.is_some() => {
            return Err(wrong("a socket says one number: leave `metric` out".into()))
        }
        (None, Some(address)) => (Endpoint::socket(address).map_err(|error| wrong(error.to_string()))?, None),
    };
    let kind = match asked.measure {
        None | Some(text::Measure::Number) => Kind::Number,
        Some(text::Measure::Rate) => Kind::Rate,
        Some(text::Measure::Seconds) => {
            return Err(wrong("`measure` is \"number\" or \"rate\"; seconds are a command's".into()))
        }
    };
    Ok(Some(Probe { name: name.to_owned(), endpoint, metric, kind }))
}
