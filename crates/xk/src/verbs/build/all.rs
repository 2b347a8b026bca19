//! `xk build --all-in`: builds every candidate in a part of the source. An interrupted run can be resumed.
//!
//! Constants are built one after the other, so that the largest alone determines the memory that is needed. Each result is
//! saved at once, next to the tables. A refusal is a result, like a table. A failure is not: it says nothing about the
//! constant, and the next run retries it.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::panic::{catch_unwind, AssertUnwindSafe};

use serde::{Deserialize, Serialize};
use xk_analysis::outcome::{unbuilt, unresolved, Reason, Status};
use xk_analysis::reuse::Keys;
use xk_const::{ConstId, Listed, Spec};
use xk_table::Ledger;

use super::{TableBuilder, Unbuilt};
use crate::exit::{Exit, Failure, Result};
use crate::output::{count, Columns, Paint};
use crate::verbs::scan;

/// The result for a candidate.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Outcome {
    status: Status,
    /// Why there is no table.
    reason: Option<Reason>,
}

impl Outcome {
    pub(super) const USABLE: Self = Self { status: Status::Usable, reason: None };

    fn of(error: &Unbuilt) -> Self {
        let (status, reason) = match error {
            Unbuilt::Unresolved(error) => unresolved(error),
            Unbuilt::Analysis(error) => unbuilt(error),
        };
        Self { status, reason: Some(reason) }
    }
}

/// The results of earlier runs for a kernel.
pub(super) struct Known {
    ledger: Ledger,
    keys: Keys,
}

impl Known {
    pub fn open(builder: &TableBuilder) -> Result<Self> {
        let keys = Keys::new(builder.analyser.image(), builder.analyser.tree(), builder.analyser.solver())
            .map_err(|error| Failure::error(format!("the configuration of the source tree cannot be read: {error}")))?;
        let ledger = Ledger::beside(builder.folders.store(), &builder.analyser.image().id().build_id);
        Ok(Self { ledger, keys })
    }

    fn get(&self, id: &str) -> Option<Outcome> {
        self.ledger.get(id, &self.keys.of(&[id]))
    }

    /// Saves it, unless it is a failure.
    pub fn put(&self, id: &str, outcome: &Outcome) -> Result {
        if outcome.status == Status::Error {
            return Ok(());
        }
        let table = (outcome.status == Status::Usable).then_some(id);
        Ok(self.ledger.put(id, &self.keys.of(&[id]), table, outcome)?)
    }
}

/// Builds every candidate in `part` of the source.
pub(super) fn run(builder: &TableBuilder, part: &str, literals: bool) -> Result {
    let paint = Paint::stderr();
    let say = |line: &str| eprintln!("{}", paint.dim(&format!("scan: {line}")));
    let candidates = scan::candidates(builder.analyser.tree(), Some(part), literals, &say)?;
    if candidates.is_empty() {
        return Err(Failure::error(format!("nothing in {part} looks worth tuning: see `xk scan {part}`")));
    }
    let known = Known::open(builder)?;
    let mut tally = Tally::default();
    for (index, listed) in candidates.iter().enumerate() {
        let id = listed.id.to_string();
        let (outcome, again) = match known.get(&id) {
            Some(outcome) => (outcome, true),
            None => {
                (one(builder, &format!("[{}/{}] {}", index + 1, candidates.len(), name(listed)), &listed.id)?, false)
            }
        };
        if again && outcome.status == Status::Usable && builder.confine_again(&id)? {
            known.put(&id, &outcome)?;
        }
        if !again {
            known.put(&id, &outcome)?;
            if let Some(reason) = &outcome.reason {
                let word = if outcome.status == Status::Error { paint.bad("error:") } else { paint.dim("refused:") };
                eprintln!("{word} {id}: {}", reason.text.lines().next().unwrap_or_default());
            }
        }
        tally.add(&id, &outcome, again);
    }
    print!("{}", tally.text(part, Paint::stdout()));
    tally.result()
}

fn name(listed: &Listed) -> String {
    scan::name(listed).map_or_else(|| listed.id.to_string(), str::to_owned)
}

/// Builds one and saves its table. Only an error that concerns no constant ends the run.
fn one(builder: &TableBuilder, title: &str, id: &ConstId) -> Result<Outcome> {
    // A panic of the analysis for one constant must not prevent the others.
    let outcome = match catch_unwind(AssertUnwindSafe(|| builder.analyse(title, &Spec::Id(id.clone())))) {
        Ok(Ok(table)) => {
            builder.save(&table)?;
            Outcome::USABLE
        }
        Ok(Err(error)) => Outcome::of(&error),
        Err(_) => {
            let text = "the analysis panicked; see its output above".to_owned();
            Outcome { status: Status::Error, reason: Some(Reason { code: "crashed".into(), text }) }
        }
    };
    Ok(outcome)
}

/// Numbers of results.
#[derive(Debug, Default)]
struct Tally {
    usable: usize,
    /// Known from an earlier run.
    again: usize,
    all: usize,
    /// By reason.
    refused: BTreeMap<String, usize>,
    failed: Vec<String>,
}

impl Tally {
    fn add(&mut self, id: &str, outcome: &Outcome, again: bool) {
        self.all += 1;
        self.again += usize::from(again);
        match (outcome.status, &outcome.reason) {
            (Status::Usable, _) => self.usable += 1,
            (Status::Error, _) => self.failed.push(id.to_owned()),
            (_, reason) => {
                let code = reason.as_ref().map_or("unknown", |reason| &reason.code);
                *self.refused.entry(code.to_owned()).or_default() += 1;
            }
        }
    }

    fn text(&self, part: &str, paint: Paint) -> String {
        let mut text = String::new();
        let all = count(self.all, "candidate");
        _ = writeln!(text, "{} in {part}, {} of them known from an earlier run", paint.strong(&all), self.again);
        let mut reasons: Vec<(&String, &usize)> = self.refused.iter().collect();
        reasons.sort_by_key(|(code, number)| (std::cmp::Reverse(**number), *code));
        let mut columns = Columns::default();
        columns.row([self.usable.to_string(), "usable: a table exists".into()]);
        for (code, number) in reasons {
            columns.row([number.to_string(), format!("refused: {}", code.replace('_', " "))]);
        }
        if !self.failed.is_empty() {
            columns.row([self.failed.len().to_string(), "failed: no result; the next run retries".into()]);
        }
        text += &columns.lines("  ");
        text
    }

    /// A refusal is a result; a failure is not.
    fn result(&self) -> Result {
        if self.failed.is_empty() {
            return Ok(());
        }
        let failed = count(self.failed.len(), "constant");
        Err(Failure::new(Exit::Error, format!("{failed} could not be analysed: {}", self.failed.join(", "))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(status: Status, code: &str) -> Outcome {
        Outcome { status, reason: Some(Reason { code: code.into(), text: "why".into() }) }
    }

    #[test]
    fn everything_is_counted_once_and_only_failures_fail() {
        let mut tally = Tally::default();
        tally.add("a", &Outcome::USABLE, true);
        tally.add("b", &outcome(Status::Refused, "empty_range"), false);
        tally.add("c", &outcome(Status::Refused, "shape"), true);
        tally.add("d", &outcome(Status::Refused, "shape"), false);
        tally.add("e", &outcome(Status::NotDeployed, "not_deployed"), false);
        assert_eq!(
            tally.text("mm", Paint::PLAIN),
            "5 candidates in mm, 2 of them known from an earlier run\n  1  usable: a table exists\n  \
             2  refused: shape\n  1  refused: empty range\n  1  refused: not deployed\n"
        );
        assert!(tally.result().is_ok());
        tally.add("f", &outcome(Status::Error, "analysis"), false);
        let failure = tally.result().unwrap_err();
        assert_eq!(failure.exit, Exit::Error);
        assert!(failure.message.contains("1 constant could not be analysed: f"), "{}", failure.message);
    }
}
