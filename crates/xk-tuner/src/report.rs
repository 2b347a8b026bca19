//! The report of a search.
//!
//! In: a search and its history. Out: one HTML file without scripts, with a chart and a table of all trials.

use std::fmt::Write;

use crate::engine::{Conclusion, Ground, SearchSpec};
use crate::history::{percent, Goal, Order, Outcome, Record};
use crate::statistics::{interval, median};
use crate::store::{Search, State};
use crate::{front, Space};

const WIDTH: f64 = 900.0;
const HEIGHT: f64 = 320.0;
const MARGIN: f64 = 60.0;

const STYLE: &str = "body{font:15px/1.5 system-ui,sans-serif;max-width:980px;margin:2em auto;padding:0 1em;color:#222}\
h1{font-size:1.4em}h2{font-size:1.1em;margin-top:2em}table{border-collapse:collapse}td,th{padding:.2em .8em;\
text-align:left;border-bottom:1px solid #ddd}td.n{text-align:right;font-variant-numeric:tabular-nums}\
.bar{background:#2a6fb0;height:.8em;display:inline-block}svg{max-width:100%}code{background:#f3f3f3;padding:0 .3em}";

/// The report.
#[must_use]
pub fn html(search: &Search, history: &[Record]) -> String {
    let spec = &search.spec;
    let mut page = format!(
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>xk tune: {name}</title><style>{STYLE}</style>\
         <h1>xk tune: {name}</h1><p>{verdict}</p><p>Target: <code>{command}</code>, {goal}. {count} trials, engine \
         {engine:?}, seed {seed}.</p>",
        name = escape(&search.name),
        verdict = escape(&verdict(search)),
        command = escape(&spec.command),
        goal = if spec.goal == Goal::Maximise { "more is better" } else { "less is better" },
        count = history.len(),
        engine = spec.engine,
        seed = spec.seed,
    );
    page += "<h2>Trials over time</h2>";
    page += &drawing(spec.goal, history);
    page += "<h2>Before and after</h2>";
    page += &before_and_after(search, history);
    page += &choices(spec, history);
    page += "<h2>Effect of each parameter</h2>";
    page += &importance(&spec.space, spec.goal, history);
    page += "<h2>Every trial</h2>";
    page += &every(&spec.space, spec.goal, history);
    page + "</html>\n"
}

/// The result of a search, in a sentence.
#[must_use]
pub fn verdict(search: &Search) -> String {
    let space = &search.spec.space;
    match (&search.conclusion, search.state) {
        (Some(conclusion), _) => sentence(space, conclusion),
        (None, State::Abandoned) => "Abandoned: the machine or the description has changed.".into(),
        (None, _) => "Not finished: the same command resumes it.".into(),
    }
}

/// A conclusion in a sentence.
#[must_use]
pub fn sentence(space: &Space, conclusion: &Conclusion) -> String {
    let best = space.describe(&conclusion.best);
    match &conclusion.ground {
        Ground::Confirmed { effect, p } => format!(
            "{best} is better than the default by {} ({} to {}); noise alone has this result once in {:.0} times.",
            percent(effect.middle),
            percent(effect.low),
            percent(effect.high),
            1.0 / p
        ),
        Ground::Remembered { effect, .. } => {
            format!("{best} was remembered, and is better than the default again, by {}.", percent(*effect))
        }
        Ground::Seen => format!("{best} was the best measured setting; it was not confirmed, and is not kept."),
        Ground::Nothing => "Nothing was shown to be better than the default.".into(),
    }
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

fn effects(goal: Goal, history: &[Record]) -> Vec<Option<f64>> {
    let effect = |record: &Record| match &record.outcome {
        Outcome::Measured(sample) => Some(sample.effect(goal)),
        _ => None,
    };
    history.iter().map(effect).collect()
}

/// A dot for each trial, filled for confirmation; a cross on the axis for a trial without a sample.
fn drawing(goal: Goal, history: &[Record]) -> String {
    let effects = effects(goal, history);
    let known = || effects.iter().flatten().copied();
    let (low, high) = (known().fold(-0.02, f64::min), known().fold(0.02, f64::max));
    let x = |index: usize| MARGIN + (WIDTH - 2.0 * MARGIN) * (index as f64 + 0.5) / history.len().max(1) as f64;
    let y = |effect: f64| MARGIN / 2.0 + (HEIGHT - MARGIN) * (high - effect) / (high - low);
    let mut svg = format!("<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"trials over time\">");
    for effect in [low, 0.0, high] {
        let (at, label) = (y(effect), percent(effect));
        let _ = write!(
            svg,
            "<line x1=\"{MARGIN}\" x2=\"{}\" y1=\"{at:.1}\" y2=\"{at:.1}\" stroke=\"#ccc\"/>\
             <text x=\"4\" y=\"{:.1}\" font-size=\"12\">{label}</text>",
            WIDTH - MARGIN,
            at + 4.0
        );
    }
    for (index, (record, effect)) in history.iter().zip(&effects).enumerate() {
        let at = x(index);
        let fill = if record.trial.order == Order::Bracketed { "none" } else { "#2a6fb0" };
        let _ = match effect {
            Some(effect) => write!(
                svg,
                "<circle cx=\"{at:.1}\" cy=\"{:.1}\" r=\"4\" fill=\"{fill}\" stroke=\"#2a6fb0\"/>",
                y(*effect)
            ),
            None => write!(svg, "<text x=\"{at:.1}\" y=\"{:.1}\" fill=\"#b02a2a\" font-size=\"14\">×</text>", y(0.0)),
        };
    }
    svg += "</svg><p>Effect of each trial, compared with the default in the same trial. Filled: confirmation, in random order. ×: failed, \
            aborted or violated a constraint.</p>";
    svg
}

fn before_and_after(search: &Search, history: &[Record]) -> String {
    let Some(conclusion) = &search.conclusion else { return "<p>There is no conclusion yet.</p>".into() };
    let of_best = history.iter().filter(|record| record.trial.point == conclusion.best);
    let samples: Vec<_> = of_best
        .filter_map(|record| match &record.outcome {
            Outcome::Measured(sample) => Some(sample),
            _ => None,
        })
        .collect();
    let before: Vec<f64> = samples.iter().flat_map(|sample| sample.default.iter().copied()).collect();
    let after: Vec<f64> = samples.iter().map(|sample| sample.value).collect();
    let Some((before, after)) = median(&before).zip(median(&after)) else { return "<p>The default stays.</p>".into() };
    format!(
        "<table><tr><th>default<th>best<tr><td class=n>{before:.4}<td class=n>{after:.4}</table><p>Medians of the windows \
         in which the two were compared.</p>"
    )
}

/// The front, if there are several targets.
fn choices(spec: &SearchSpec, history: &[Record]) -> String {
    let front = front::of(spec, history);
    let Some(first) = front.first() else { return String::new() };
    let mut table = "<h2>The front</h2><table><tr><th>setting<th>trials".to_owned();
    for (name, _) in first.factors(spec) {
        let _ = write!(table, "<th>{}", escape(&name));
    }
    for choice in &front {
        let _ = write!(table, "<tr><td>{}<td class=n>{}", escape(&spec.space.describe(&choice.point)), choice.trials);
        for (_, factor) in choice.factors(spec) {
            let _ = write!(table, "<td class=n>x {factor:.3}");
        }
    }
    table
        + "</table><p>Each setting is better than every other in at least one target. Factors are compared with the default. The \
           best setting for the first target is set, if it was confirmed.</p>"
}

/// The difference between the best and the worst level of each parameter.
fn importance(space: &Space, goal: Goal, history: &[Record]) -> String {
    let effects = effects(goal, history);
    let mut rows = Vec::new();
    for (index, dimension) in space.dimensions().iter().enumerate() {
        let mut middles: Vec<f64> = Vec::new();
        for level in 0..dimension.levels.len() {
            let at =
                |record: &Record| record.trial.point.0[index] == level && space.is_active(&record.trial.point, index);
            let here: Vec<f64> = history
                .iter()
                .zip(&effects)
                .filter(|(record, _)| at(record))
                .filter_map(|(_, effect)| *effect)
                .collect();
            middles.extend(interval(&here).map(|interval| interval.middle));
        }
        let spread = middles.iter().copied().reduce(f64::max).unwrap_or(0.0)
            - middles.iter().copied().reduce(f64::min).unwrap_or(0.0);
        rows.push((dimension.name.as_str(), spread, middles.len()));
    }
    rows.sort_by(|a, b| b.1.total_cmp(&a.1));
    let widest = rows.first().map_or(0.0, |row| row.1).max(1e-9);
    let mut table = "<table><tr><th>parameter<th>values tried<th>spread<th>".to_owned();
    for (name, spread, tried) in rows {
        let _ = write!(
            table,
            "<tr><td>{}<td class=n>{tried}<td class=n>{}<td><span class=bar style=\"width:{:.0}px\"></span>",
            escape(name),
            percent(spread),
            300.0 * spread / widest
        );
    }
    table + "</table><p>The difference between the best and the worst value that was tried, with any values of the other parameters.</p>"
}

fn every(space: &Space, goal: Goal, history: &[Record]) -> String {
    let mut table = "<table><tr><th>#<th>setting<th>how<th>effect<th>windows".to_owned();
    for (index, record) in history.iter().enumerate() {
        let how = match record.trial.order {
            Order::Bracketed => "default, setting, default",
            Order::DefaultFirst => "default, setting",
            Order::DefaultLast => "setting, default",
        };
        let (effect, windows) = match &record.outcome {
            Outcome::Measured(sample) => {
                (percent(sample.effect(goal)), format!("default {:?}, setting {}", sample.default, sample.value))
            }
            Outcome::Failed { reason, .. } => ("failed".into(), reason.clone()),
            Outcome::Aborted { after } => ("aborted".into(), format!("after {after:.1} s")),
            Outcome::Violated { constraint } => ("violated".into(), constraint.clone()),
        };
        let _ = write!(
            table,
            "<tr><td class=n>{}<td>{}<td>{how}<td class=n>{}<td>{}",
            index + 1,
            escape(&space.describe(&record.trial.point)),
            escape(&effect),
            escape(&windows)
        );
    }
    table + "</table>"
}
