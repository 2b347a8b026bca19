//! The report of a search.
//!
//! In: a search and its history. Out: one HTML file without scripts, with a chart and a table of all trials; or the section
//! of a page that shows more.

use askama::Template;

use crate::engine::{Conclusion, Ground, SearchSpec};
use crate::history::{percent, Goal, Order, Outcome, Record};
use crate::statistics::{interval, median};
use crate::store::{Search, State};
use crate::{front, Space};

/// The width of the widest bar, in pixels.
const BAR: f64 = 300.0;

/// A page. Its body is HTML.
#[derive(Template)]
#[template(path = "page.html")]
struct Page<'a> {
    title: &'a str,
    body: &'a str,
}

/// What is shown of a search. The template escapes every text.
#[derive(Template)]
#[template(path = "search.html")]
struct Section<'a> {
    /// Of its heading: 1 to 5.
    level: u8,
    name: &'a str,
    verdict: String,
    spec: &'a SearchSpec,
    goal: &'static str,
    engine: String,
    chart: Chart,
    comparison: Comparison,
    front: Vec<ChoiceRow>,
    parameters: Vec<ParameterRow<'a>>,
    trials: Vec<TrialRow>,
}

/// Marks for the trials, in the order of time, and lines for some effects.
struct Chart {
    width: f64,
    height: f64,
    margin: f64,
    lines: Vec<Line>,
    marks: Vec<Mark>,
}

struct Line {
    y: f64,
    label: String,
}

/// A dot; for a trial without a sample, a cross on the line of no effect.
struct Mark {
    x: f64,
    y: f64,
    measured: bool,
    confirms: bool,
}

/// The medians of the target.
enum Comparison {
    /// There is no conclusion.
    None,
    /// The default stays.
    Default,
    /// With the default, and with the best setting.
    Best { before: f64, after: f64 },
}

struct ChoiceRow {
    setting: String,
    trials: usize,
    factors: Vec<(String, f64)>,
}

struct ParameterRow<'a> {
    name: &'a str,
    tried: usize,
    spread: String,
    width: f64,
}

struct TrialRow {
    setting: String,
    how: &'static str,
    effect: String,
    windows: String,
}

/// The report.
///
/// # Errors
/// The template cannot be rendered.
pub fn html(search: &Search, history: &[Record]) -> Result<String, askama::Error> {
    page(&format!("xk tune: {}", search.name), &section(search, history, 1)?)
}

/// A page that needs no other file, with this HTML in it.
///
/// # Errors
/// The template cannot be rendered.
pub fn page(title: &str, body: &str) -> Result<String, askama::Error> {
    Page { title, body }.render()
}

/// The report as a part of a page, with a heading of this level.
///
/// # Errors
/// The template cannot be rendered.
pub fn section(search: &Search, history: &[Record], level: u8) -> Result<String, askama::Error> {
    let spec = &search.spec;
    let section = Section {
        level,
        name: &search.name,
        verdict: verdict(search),
        spec,
        goal: if spec.goal == Goal::Maximise { "more is better" } else { "less is better" },
        engine: format!("{:?}", spec.engine),
        chart: Chart::of(spec.goal, history),
        comparison: comparison(search, history),
        front: choices(spec, history),
        parameters: parameters(&spec.space, spec.goal, history),
        trials: history.iter().map(|record| TrialRow::of(&spec.space, spec.goal, record)).collect(),
    };
    section.render()
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

fn effects(goal: Goal, history: &[Record]) -> Vec<Option<f64>> {
    let effect = |record: &Record| match &record.outcome {
        Outcome::Measured(sample) => Some(sample.effect(goal)),
        _ => None,
    };
    history.iter().map(effect).collect()
}

impl Chart {
    fn of(goal: Goal, history: &[Record]) -> Self {
        let (width, height, margin) = (900.0, 320.0, 60.0);
        let effects = effects(goal, history);
        let known = || effects.iter().flatten().copied();
        let (low, high) = (known().fold(-0.02, f64::min), known().fold(0.02, f64::max));
        let x = |index: usize| margin + (width - 2.0 * margin) * (index as f64 + 0.5) / history.len().max(1) as f64;
        let y = |effect: f64| margin / 2.0 + (height - margin) * (high - effect) / (high - low);
        let mark = |(index, (record, effect)): (usize, (&Record, &Option<f64>))| Mark {
            x: x(index),
            y: y(effect.unwrap_or(0.0)),
            measured: effect.is_some(),
            confirms: record.trial.order.confirms(),
        };
        let lines = [low, 0.0, high].map(|effect| Line { y: y(effect), label: percent(effect) });
        let marks = history.iter().zip(&effects).enumerate().map(mark).collect();
        Self { width, height, margin, lines: lines.into(), marks }
    }
}

fn comparison(search: &Search, history: &[Record]) -> Comparison {
    let Some(conclusion) = &search.conclusion else { return Comparison::None };
    let of_best = history.iter().filter(|record| record.trial.point == conclusion.best);
    let samples: Vec<_> = of_best
        .filter_map(|record| match &record.outcome {
            Outcome::Measured(sample) => Some(sample),
            _ => None,
        })
        .collect();
    let before: Vec<f64> = samples.iter().flat_map(|sample| sample.default.iter().copied()).collect();
    let after: Vec<f64> = samples.iter().map(|sample| sample.value).collect();
    match median(&before).zip(median(&after)) {
        Some((before, after)) => Comparison::Best { before, after },
        None => Comparison::Default,
    }
}

/// The front, if there are several targets.
fn choices(spec: &SearchSpec, history: &[Record]) -> Vec<ChoiceRow> {
    let row = |choice: front::Choice| ChoiceRow {
        setting: spec.space.describe(&choice.point),
        trials: choice.trials,
        factors: choice.factors(spec),
    };
    front::of(spec, history).into_iter().map(row).collect()
}

/// The difference between the best and the worst level of each parameter, the largest first.
fn parameters<'a>(space: &'a Space, goal: Goal, history: &[Record]) -> Vec<ParameterRow<'a>> {
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
    let row =
        |(name, spread, tried)| ParameterRow { name, tried, spread: percent(spread), width: BAR * spread / widest };
    rows.into_iter().map(row).collect()
}

impl TrialRow {
    fn of(space: &Space, goal: Goal, record: &Record) -> Self {
        let how = match record.trial.order {
            Order::Bracketed => "default, setting, default",
            Order::DefaultFirst => "default, setting",
            Order::DefaultLast => "setting, default",
            Order::Alone => "setting",
        };
        let (effect, windows) = match &record.outcome {
            Outcome::Measured(sample) => {
                (percent(sample.effect(goal)), format!("default {:?}, setting {}", sample.default, sample.value))
            }
            Outcome::Failed { reason, .. } => ("failed".into(), reason.clone()),
            Outcome::Aborted { after } => ("aborted".into(), format!("after {after:.1} s")),
            Outcome::Violated { constraint } => ("violated".into(), constraint.clone()),
        };
        Self { setting: space.describe(&record.trial.point), how, effect, windows }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::{Objective, Sample, Trial};
    use crate::space::tests::dimension;
    use crate::store::tests::{signature, spec};
    use crate::Point;

    const MARKUP: &str = "<b title='x'>\"&";
    const ESCAPED: &str = "&#60;b title=&#39;x&#39;&#62;&#34;&#38;";

    fn record(level: usize, order: Order, outcome: Outcome) -> Record {
        Record { trial: Trial { point: Point(vec![level]), order }, outcome }
    }

    fn measured(default: f64, value: f64) -> Outcome {
        let second = Sample { default: vec![default; 2], value, ..Sample::default() };
        Outcome::Measured(Sample { others: [(MARKUP.to_owned(), second.clone())].into(), ..second })
    }

    /// A search of which every text that a description gives has markup.
    fn search() -> (Search, Vec<Record>) {
        let spec = SearchSpec {
            space: Space::new(vec![dimension(MARKUP, &[1, 2], 0, None)]).unwrap(),
            command: MARKUP.into(),
            lead: MARKUP.into(),
            others: vec![Objective { name: MARKUP.into(), goal: Goal::Maximise }],
            ..spec()
        };
        let best = Point(vec![1]);
        let search = Search {
            id: 1,
            name: MARKUP.into(),
            signature: signature(1.0),
            spec,
            state: State::Done,
            conclusion: Some(Conclusion { best, ground: Ground::Seen }),
            at: 0,
            ended: None,
        };
        let history = vec![
            record(1, Order::Bracketed, measured(100.0, 200.0)),
            record(1, Order::DefaultFirst, measured(100.0, 200.0)),
            record(0, Order::Bracketed, measured(100.0, 100.0)),
            record(1, Order::DefaultLast, Outcome::failed(MARKUP)),
            record(1, Order::Bracketed, Outcome::Aborted { after: 1.25 }),
            record(1, Order::Bracketed, Outcome::Violated { constraint: MARKUP.into() }),
        ];
        (search, history)
    }

    #[test]
    fn texts_of_a_description_are_escaped() {
        let (search, history) = search();
        let page = html(&search, &history).unwrap();
        assert!(!page.contains("<b"), "{page}");
        for text in [
            format!("<title>xk tune: {ESCAPED}</title>"),
            format!("<h1>xk tune: {ESCAPED}</h1>"),
            format!("<p>{ESCAPED} = 2 was the best measured setting"),
            format!("<code>{ESCAPED}</code>"),
            format!("<th>{ESCAPED}</th>"),
            format!("<td>{ESCAPED} = 2</td>"),
            format!("<td class=\"n\">failed</td><td>{ESCAPED}</td>"),
            format!("<td class=\"n\">violated</td><td>{ESCAPED}</td>"),
        ] {
            assert!(page.contains(&text), "{text}: {page}");
        }
    }

    #[test]
    fn every_trial_has_a_mark_and_a_row() {
        let (search, history) = search();
        let page = html(&search, &history).unwrap();
        let count = |text: &str| page.matches(text).count();
        assert_eq!((count("<circle"), count("fill=\"none\""), count(">×</text>"), count("<line")), (3, 2, 3, 3));
        assert_eq!((count("default, setting, default"), count("after 1.2 s"), count("+100.0 %")), (4, 1, 4));
        assert!(page.contains("<td class=\"n\">100.0000</td><td class=\"n\">200.0000</td>"), "{page}");
        assert!(page.contains("width:300px") && page.contains("x 2.000"), "{page}");
    }

    #[test]
    fn a_search_without_trials_has_a_report() {
        let (search, _) = search();
        let page = html(&Search { conclusion: None, state: State::Open, ..search }, &[]).unwrap();
        assert!(page.contains("There is no conclusion yet.") && page.contains("Not finished"), "{page}");
    }
}
