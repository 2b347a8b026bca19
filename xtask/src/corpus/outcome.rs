//! What became of each constant, and of all of them together.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use xk_table::{ProbeKind, Proof, Range, ScopeTable, Values};

use crate::list::Row;
pub use xk_analysis::outcome::{Reason, Status};

/// One constant. Its fields are those of the JSON line.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// Number of the row.
    pub id: u32,
    /// Name in the row.
    pub name: String,
    /// Full ID of the constant that was analysed, if it was found.
    pub constant: Option<String>,
    /// What became of it.
    pub status: Status,
    /// Why, unless it is usable.
    pub reason: Option<Reason>,
    /// The values that one theorem covers.
    #[serde(default)]
    pub proved: Option<Range>,
    /// Why not all that the constant's type can hold is proved, if it is not.
    #[serde(default)]
    pub unproved: Option<String>,
    /// Values beside those, each compiled and compared.
    #[serde(default)]
    pub compiled: Vec<i64>,
    /// The value in the source.
    pub default: Option<i64>,
    /// Modules in which it acts.
    pub modules: Vec<String>,
    /// Critical spans.
    pub spans: usize,
    /// Those that a solver proved for every state and value.
    pub spans_proved: usize,
    /// Spans whose probe is expected to be a jump.
    pub jump: usize,
    /// Spans whose probe is expected to be a breakpoint.
    pub int3: usize,
    /// Values in static objects, which are changed in memory and need no probe.
    pub data: usize,
    /// Values that were compiled, did not agree, and are accepted. Never anything but 0.
    pub mismatches: usize,
    /// Seconds that the analysis took when it ran.
    pub seconds: f64,
    /// The result of an earlier run was used.
    #[serde(default)]
    pub reused: bool,
}

impl Outcome {
    /// The values that may be set; empty without a table.
    pub fn accepted(&self) -> Values {
        Values { proved: self.proved, compiled: self.compiled.clone(), ..Values::default() }
    }

    /// A constant without a table.
    pub fn without(row: &Row, status: Status, reason: Reason, seconds: f64) -> Self {
        Self {
            id: row.id,
            name: row.name.clone(),
            constant: None,
            status,
            reason: Some(reason),
            proved: None,
            unproved: None,
            compiled: Vec::new(),
            default: None,
            modules: Vec::new(),
            spans: 0,
            spans_proved: 0,
            jump: 0,
            int3: 0,
            data: 0,
            mismatches: 0,
            seconds: rounded(seconds),
            reused: false,
        }
    }

    /// A constant with a table.
    pub fn with(row: &Row, table: &ScopeTable, seconds: f64) -> Self {
        let probes = |kind: ProbeKind| table.spans.iter().filter(|span| span.indirection.probe == kind).count();
        let functions = table.functions.iter().filter_map(|function| function.module.clone());
        let objects = table.data.iter().filter_map(|data| data.module.clone());
        let mut modules: Vec<String> = functions.chain(objects).collect();
        modules.sort();
        modules.dedup();
        Self {
            constant: Some(table.constant.id.clone()),
            status: Status::Usable,
            reason: None,
            proved: table.values.proved,
            unproved: table.values.unproved.clone(),
            compiled: table.values.compiled.clone(),
            default: Some(table.constant.default),
            modules,
            spans: table.spans.len(),
            spans_proved: table.spans.iter().filter(|span| matches!(span.proof, Proof::Proved { .. })).count(),
            jump: probes(ProbeKind::Jump),
            int3: probes(ProbeKind::Int3),
            data: table.data.len(),
            mismatches: table.values.refused.keys().filter(|&&value| table.values.contains(value)).count(),
            ..Self::without(row, Status::Usable, reason("", ""), seconds)
        }
    }
}

/// A reason that is no refusal of the analysis.
pub fn reason(code: &str, text: impl Into<String>) -> Reason {
    Reason { code: code.to_owned(), text: text.into() }
}

/// Reasons that lie in what the constant is for.
const INHERENT: [&str; 3] = ["layout_change", "conditional", "boot_only"];

/// All of them. Its fields are those of the last JSON object.
#[derive(Debug, PartialEq, Serialize)]
pub struct Summary {
    corpus: usize,
    deployed: usize,
    usable: usize,
    /// Those of the deployed ones that no analysis can make usable: the value decides the size of an array or a structure,
    /// is read by the preprocessor, or is used by code that is gone after boot.
    inherent: usize,
    /// Usable ones of which a range of values is proved.
    for_all: usize,
    /// Those of them of which all that the type of the constant can hold is proved.
    for_all_of_type: usize,
    /// Usable ones of which single values were compiled, and none is proved.
    values: usize,
    /// Number of constants by reason.
    refused: BTreeMap<String, usize>,
    errors: usize,
    spans: usize,
    spans_proved: usize,
    /// Values that were compiled one by one, of all constants.
    compiled: usize,
    mismatches: usize,
    jump: usize,
    int3: usize,
    data: usize,
    median_s: f64,
    p95_s: f64,
    /// Seconds of this run, reused results included.
    total_s: f64,
}

impl Summary {
    /// Of a run that took `total_s` seconds.
    pub fn of(outcomes: &[Outcome], total_s: f64) -> Self {
        let count = |status: Status| outcomes.iter().filter(|outcome| outcome.status == status).count();
        let sum = |field: fn(&Outcome) -> usize| outcomes.iter().map(field).sum::<usize>();
        let mut refused = BTreeMap::new();
        for reason in outcomes.iter().filter(|o| o.status == Status::Refused).filter_map(|o| o.reason.as_ref()) {
            *refused.entry(reason.code.clone()).or_default() += 1;
        }
        let mut seconds: Vec<f64> = outcomes.iter().map(|outcome| outcome.seconds).collect();
        seconds.sort_by(f64::total_cmp);
        let usable = || outcomes.iter().filter(|outcome| outcome.status == Status::Usable);
        Self {
            corpus: outcomes.len(),
            deployed: outcomes.len() - count(Status::NotDeployed),
            usable: count(Status::Usable),
            inherent: INHERENT.iter().filter_map(|code| refused.get(*code)).sum(),
            for_all: usable().filter(|outcome| outcome.proved.is_some()).count(),
            for_all_of_type: usable().filter(|outcome| outcome.proved.is_some() && outcome.unproved.is_none()).count(),
            values: usable().filter(|outcome| outcome.proved.is_none()).count(),
            refused,
            errors: count(Status::Error),
            spans: sum(|o| o.spans),
            spans_proved: sum(|o| o.spans_proved),
            compiled: sum(|o| o.compiled.len()),
            mismatches: sum(|o| o.mismatches),
            jump: sum(|o| o.jump),
            int3: sum(|o| o.int3),
            data: sum(|o| o.data),
            median_s: rank(&seconds, 50),
            p95_s: rank(&seconds, 95),
            total_s: rounded(total_s),
        }
    }

    /// Constants for which the analysis itself failed.
    pub fn errors(&self) -> usize {
        self.errors
    }
}

/// The smallest of the sorted values that `percent` of them do not exceed.
fn rank(sorted: &[f64], percent: usize) -> f64 {
    let at = (sorted.len() * percent).div_ceil(100).saturating_sub(1);
    sorted.get(at).copied().unwrap_or_default()
}

/// To hundredths.
pub fn rounded(seconds: f64) -> f64 {
    (seconds * 100.0).round() / 100.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_is_counted_once() {
        let row = |id| Row { id, name: "A".into(), defined_at: "a.c:1".into(), text: String::new(), constant: None };
        let of = |id, status, code, seconds| Outcome::without(&row(id), status, reason(code, "why"), seconds);
        let mut usable = of(1, Status::Usable, "", 4.0);
        (usable.spans, usable.spans_proved, usable.jump, usable.int3) = (3, 3, 1, 2);
        let mut for_all = usable.clone();
        for_all.proved = Some(Range::of(1, 9));
        for_all.compiled = vec![16];
        for_all.unproved = Some("beyond 1..=9 the deployed code does something else".into());
        let mut of_type = for_all.clone();
        (of_type.unproved, of_type.compiled) = (None, Vec::new());
        usable.compiled = vec![2, 4, 8];
        let outcomes = [
            usable,
            for_all,
            of_type,
            of(2, Status::Refused, "shape", 1.0),
            of(3, Status::Refused, "shape", 2.0),
            of(4, Status::NotDeployed, "not_deployed", 0.1),
            of(5, Status::Error, "time_limit", 900.0),
        ];
        let summary = Summary::of(&outcomes, 1000.0);
        assert_eq!((summary.corpus, summary.deployed, summary.usable, summary.errors), (7, 6, 3, 1));
        assert_eq!((summary.for_all, summary.for_all_of_type, summary.values, summary.compiled), (2, 1, 1, 4));
        assert_eq!(summary.refused, BTreeMap::from([("shape".to_owned(), 2)]));
        assert_eq!((summary.spans, summary.spans_proved, summary.jump + summary.int3), (9, 9, 9));
        assert_eq!((summary.median_s, summary.p95_s), (4.0, 900.0));
    }
}
