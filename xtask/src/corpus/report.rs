//! Results for people: a line while it runs, and `docs/corpus.md`.

use std::fmt::Write;

use super::outcome::{Outcome, Status, Summary};
use crate::list::Row;

/// One constant on one line.
pub fn line(outcome: &Outcome) -> String {
    let what = match outcome.status {
        Status::Usable => format!(
            "{} span(s), {} proved, {} jump, {} int3, {} in data, {}",
            outcome.spans,
            outcome.spans_proved,
            outcome.jump,
            outcome.int3,
            outcome.data,
            outcome.accepted()
        ),
        _ => outcome.reason.as_ref().map(|reason| first_line(&reason.text, 120)).unwrap_or_default(),
    };
    format!("{:>4}  {:<34} {:<12} {:>7.1} s  {what}", outcome.id, outcome.name, word(outcome.status), outcome.seconds)
}

/// All of them.
pub fn total(summary: &Summary) -> String {
    let value = serde_json::to_value(summary).unwrap_or_default();
    let mut text = String::from("\n");
    for (name, value) in value.as_object().into_iter().flatten() {
        let _ = writeln!(text, "{name:>17}  {value}");
    }
    text
}

/// `docs/corpus.md`.
pub fn page(release: &str, rows: &[Row], outcomes: &[Outcome], summary: &Summary) -> String {
    let value = serde_json::to_value(summary).unwrap_or_default();
    let number = |name: &str| value[name].to_string();
    let mut text = format!(
        "# The corpus on {release}\n\n\
         `cargo xtask corpus --report` writes this page; do not edit it. The list is `xtask/corpus.tsv`. It has {}\n\
         constants of the kernel. {} of them are deployed, and {} are usable. Of the usable constants, {} have a proved\n\
         range of values ({} of them the whole range of the type), and {} have values that were compiled one by one\n\
         ({} values).\n\n\
         The constants have {} critical spans, of which {} are proved for every machine state. Kprobes are expected to\n\
         use a jump at {} spans and a breakpoint at {}. On the machine of the last run, the median time of a constant\n\
         was {} s, and the 95th percentile {} s.\n\n",
        number("corpus"),
        number("deployed"),
        number("usable"),
        number("for_all"),
        number("for_all_of_type"),
        number("values"),
        number("compiled"),
        number("spans"),
        number("spans_proved"),
        number("jump"),
        number("int3"),
        number("median_s"),
        number("p95_s"),
    );
    text.push_str(
        "| constant | where | default | status | spans | values | seconds |\n|---|---|---|---|---|---|---|\n",
    );
    for (row, outcome) in rows.iter().zip(outcomes) {
        let default = outcome.default.map_or(String::new(), |default| default.to_string());
        let values = match outcome.status {
            Status::Usable => outcome.accepted().to_string().replace("..=", " to ").replace(['{', '}'], ""),
            _ => String::new(),
        };
        let spans = match (outcome.spans, outcome.data) {
            (0, 0) => String::new(),
            (spans, 0) => spans.to_string(),
            (spans, data) => format!("{spans}, {data} in data"),
        };
        let _ = writeln!(
            text,
            "| {} | {} | {default} | {} | {spans} | {values} | {:.1} |",
            code(&outcome.name),
            code(&row.defined_at),
            word(outcome.status),
            outcome.seconds
        );
    }
    text.push_str(&reasons(outcomes));
    text
}

/// Why something is not usable, or not all values are proved.
fn reasons(outcomes: &[Outcome]) -> String {
    let reason = |outcome: &Outcome| outcome.reason.as_ref().map(|reason| reason.text.clone()).unwrap_or_default();
    let of = |status: Status, why: &dyn Fn(&Outcome) -> Option<String>| -> Vec<(String, String)> {
        let some = outcomes.iter().filter(|outcome| outcome.status == status);
        some.filter_map(|outcome| Some((code(&outcome.name), why(outcome)?))).collect()
    };
    let sections = [
        ("Not proved for every value of the type", of(Status::Usable, &|outcome| outcome.unproved.clone())),
        ("Refused", of(Status::Refused, &|outcome| Some(reason(outcome)))),
        ("Not deployed", of(Status::NotDeployed, &|outcome| Some(reason(outcome)))),
        ("Not analysed", of(Status::Error, &|outcome| Some(reason(outcome)))),
    ];
    let mut text = String::new();
    for (title, some) in sections.into_iter().filter(|(_, some)| !some.is_empty()) {
        let _ = write!(text, "\n## {title}\n\n");
        for (name, why) in some {
            let _ = writeln!(text, "- {name}: {}", escaped(&first_line(&why, 400)));
        }
    }
    text
}

fn word(status: Status) -> &'static str {
    match status {
        Status::Usable => "usable",
        Status::Refused => "refused",
        Status::NotDeployed => "not deployed",
        Status::Error => "error",
    }
}

/// As code in a table.
fn code(text: &str) -> String {
    format!("`{}`", text.replace('|', "\\|").replace('`', "'"))
}

/// As words in a list.
fn escaped(text: &str) -> String {
    text.replace('<', "&lt;").replace('*', "\\*").replace('_', "\\_")
}

/// Lines joined, and not longer than `limit` characters.
fn first_line(text: &str, limit: usize) -> String {
    let joined = text.split_whitespace().collect::<Vec<_>>().join(" ");
    match joined.char_indices().nth(limit) {
        Some((end, _)) => format!("{} …", &joined[..end]),
        None => joined,
    }
}

#[cfg(test)]
mod tests {
    use super::super::outcome::reason;
    use super::*;
    use xk_table::Range;

    #[test]
    fn the_page_names_every_constant_and_every_reason() {
        let row = |id, name: &str| Row {
            id,
            name: name.into(),
            defined_at: "a.c:1".into(),
            text: String::new(),
            constant: None,
        };
        let rows = [row(1, "A"), row(2, "x >> 3 | y"), row(3, "GONE"), row(4, "GOOD")];
        let usable = Outcome::without(&rows[3], Status::Usable, reason("", ""), 1.0);
        let outcomes = [
            Outcome::without(&rows[0], Status::Refused, reason("shape", "control-flow\n shape * at f_g"), 1.0),
            Outcome::without(&rows[1], Status::Error, reason("crashed", "ended"), 1.0),
            Outcome::without(&rows[2], Status::NotDeployed, reason("not_deployed", "CONFIG_B is not set"), 1.0),
            Outcome {
                proved: Some(Range::of(1, 9)),
                unproved: Some("beyond".into()),
                compiled: vec![16, 32],
                ..usable
            },
        ];
        let page = page("6.12", &rows, &outcomes, &Summary::of(&outcomes, 3.0));
        for expected in [
            "| `A` | `a.c:1` |  | refused |",
            "| `x >> 3 \\| y` |",
            "| usable |  | 1 to 9 proved, 16, 32 compiled | 1.0 |",
            "## Not proved for every value of the type\n\n- `GOOD`: beyond\n",
            "## Refused\n\n- `A`: control-flow shape \\* at f\\_g\n",
            "## Not deployed\n\n- `GONE`: CONFIG\\_B is not set\n",
            "## Not analysed\n\n- `x >> 3 \\| y`: ended\n",
        ] {
            assert!(page.contains(expected), "{expected} is not in\n{page}");
        }
    }
}
