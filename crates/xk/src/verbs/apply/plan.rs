//! The difference between what is in force and what shall be: goals, and what the
//! kernel and the record say, in; one step for each constant out. Changes nothing.
//!
//! Only what `xk apply` itself has loaded is changed or removed. What somebody else has
//! tuned, and what cannot be changed in one transaction, is refused.

use std::path::Path;

use xk_runtime::TuneStatus;

use super::goal::{Goal, Goals, To};
use super::record::{Applied, Record};
use crate::exit::{Failure, Result};
use crate::tunes::{is_tune_of, owner};
use xk_policy::Group;

/// What becomes of one constant.
#[derive(Debug)]
pub enum Step<'a> {
    /// It has its default, and gets something else.
    Add(&'a Goal<'a>),
    /// It has something, and gets something else.
    Change(&'a Goal<'a>, &'a TuneStatus, &'a Applied),
    /// It has what it shall have.
    Keep(&'a Goal<'a>, &'a TuneStatus, &'a Applied),
    /// Nobody declares it any more: it gets its default.
    Remove(&'a Applied, &'a TuneStatus),
}

impl Step<'_> {
    /// Whether something changes.
    pub fn changes(&self) -> bool {
        !matches!(self, Step::Keep(..))
    }
}

/// What is there.
#[derive(Debug, Clone, Copy)]
pub struct InForce<'a> {
    /// All tunes of the kernel.
    pub tunes: &'a [TuneStatus],
    /// All policies.
    pub groups: &'a [Group],
    /// What was applied.
    pub record: &'a Record,
}

impl<'a> InForce<'a> {
    fn applied(&self, tune: &TuneStatus) -> Option<&'a Applied> {
        self.record.tunes.iter().find(|applied| applied.is(tune))
    }
}

/// Which declarations a command speaks for.
#[derive(Debug, Clone, Copy)]
pub enum Within<'a> {
    /// Those of a file, or of the files of a folder; also of those that are gone.
    Path(&'a Path),
    /// All.
    All,
}

impl Within<'_> {
    fn has(&self, file: &Path) -> bool {
        match self {
            Within::Path(path) => file == *path || file.parent() == Some(path),
            Within::All => true,
        }
    }
}

/// The steps: goals in their order, then what goes.
///
/// # Errors
/// What cannot be, with the line.
pub fn plan<'a>(goals: &'a Goals<'a>, now: InForce<'a>, within: Within<'_>) -> Result<Vec<Step<'a>>> {
    let found = goals.goals.iter().map(|goal| find(goal, now, within)).collect::<Result<Vec<_>>>()?;
    refuse_names(goals, now)?;
    let same: Vec<bool> =
        goals.goals.iter().zip(&found).map(|(goal, found)| found.is_some_and(|f| is_so(goal, goals, f))).collect();
    // Policies of a set share maps: they change together.
    let differs = |unit: usize| goals.goals.iter().zip(&same).any(|(goal, same)| goal.to == To::Decided(unit) && !same);
    let mut steps = Vec::new();
    for ((goal, found), same) in goals.goals.iter().zip(&found).zip(&same) {
        let kept = *same && !matches!(goal.to, To::Decided(unit) if differs(unit));
        steps.push(match found {
            None => Step::Add(goal),
            Some((tune, applied)) if kept => Step::Keep(goal, tune, applied),
            Some((tune, applied)) => {
                refuse_other_backend(goal, applied)?;
                Step::Change(goal, tune, applied)
            }
        });
    }
    for applied in now.record.tunes.iter().filter(|applied| within.has(&applied.file)) {
        let Some(tune) = now.tunes.iter().find(|tune| applied.is(tune)) else { continue };
        if !goals.goals.iter().any(|goal| is_tune_of(tune, &goal.table.constant)) {
            steps.push(Step::Remove(applied, tune));
        }
    }
    Ok(steps)
}

type Found<'a> = (&'a TuneStatus, &'a Applied);

/// The tune of a goal, if it is ours.
fn find<'a>(goal: &Goal<'_>, now: InForce<'a>, within: Within<'_>) -> Result<Option<Found<'a>>> {
    let Some(tune) = now.tunes.iter().find(|tune| is_tune_of(tune, &goal.table.constant)) else { return Ok(None) };
    let title = goal.title();
    match now.applied(tune) {
        Some(applied) if within.has(&applied.file) => Ok(Some((tune, applied))),
        Some(applied) => Err(goal.place.wrong(format!(
            "{title} is declared at {} as well, which was applied before: `xk apply --remove {}` first; nothing was \
             changed",
            applied.place(),
            applied.file.display()
        ))),
        None => Err(held(goal, tune, now.groups)),
    }
}

fn held(goal: &Goal<'_>, tune: &TuneStatus, groups: &[Group]) -> Failure {
    let title = goal.title();
    let holder = match Group::of(groups, tune) {
        Some(group) => {
            format!("is decided by the policies {} ({}): `xk unload {0}`", group.name, group.source.display())
        }
        None if tune.detached => format!("is tuned to {} already, {}: `xk unset {title}`", tune.value, owner(tune)),
        None => format!("is tuned to {} already, {}: end that process", tune.value, owner(tune)),
    };
    goal.place.wrong(format!("{title} {holder} first; nothing was changed"))
}

/// Whether a constant has what it shall have.
fn is_so(goal: &Goal<'_>, goals: &Goals<'_>, (tune, applied): Found<'_>) -> bool {
    let leased = goal.lease.is_some() == tune.lease.is_some();
    let decided = match (goal.to, &tune.policy, &applied.unit) {
        (To::Value(value), None, _) => tune.value == value,
        (To::Decided(unit), Some(policy), Some(applied)) => {
            let wanted = &goals.policy_sets[unit];
            let program = policy.program == applied.program && tune.value == tune.default;
            program && applied.digest == wanted.digest && applied.name == wanted.name
        }
        _ => false,
    };
    leased && decided && applied.backend == goal.backend.word()
}

/// Another backend is another load, and a constant can be loaded once.
fn refuse_other_backend(goal: &Goal<'_>, applied: &Applied) -> Result {
    if applied.backend == goal.backend.word() {
        return Ok(());
    }
    Err(goal.place.wrong(format!(
        "{} is in force with backend {}, and {} takes its default in between: `xk unset {0}`, then apply again; \
         nothing was changed",
        goal.title(),
        applied.backend,
        goal.backend.word()
    )))
}

/// A name that somebody else's policies have.
fn refuse_names(goals: &Goals<'_>, now: InForce<'_>) -> Result {
    for unit in &goals.policy_sets {
        let ours = |name: &str| {
            now.record.tunes.iter().any(|applied| applied.unit.as_ref().is_some_and(|unit| unit.name == name))
        };
        let Some(group) = now.groups.iter().find(|group| group.name == unit.name && !ours(&group.name)) else {
            continue;
        };
        return Err(unit.place.wrong(format!(
            "policies called {} are loaded, from {}: `xk unload {0}` ends them, `name = \"…\"` gives these another \
             name; nothing was changed",
            unit.name,
            group.source.display()
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::time::Duration;

    use xk_runtime::{BackendChoice, PolicyStatus};

    use super::super::file::Place;
    use super::super::goal::{PolicySet, Source};
    use super::super::record::AppliedUnit;
    use super::*;
    use crate::fixture;

    const FILE: &str = "/etc/xk.d/a.toml";

    fn place(line: usize) -> Place {
        Place { file: FILE.into(), line }
    }

    fn goal(table: &xk_table::ScopeTable, to: To) -> Goal<'_> {
        Goal { table, place: place(3), to, backend: BackendChoice::Kprobe, lease: None, mode: table.mode }
    }

    fn tune() -> TuneStatus {
        TuneStatus { lease: None, ..fixture::tune() }
    }

    fn applied(tune: &TuneStatus) -> Applied {
        Applied {
            tune: tune.id,
            owner: tune.owner_pid,
            constant: tune.name.clone(),
            file: FILE.into(),
            line: 2,
            backend: "kprobe".into(),
            unit: None,
        }
    }

    /// One letter for each step, or the refusal.
    fn steps(goals: &Goals<'_>, tunes: &[TuneStatus], record: &Record, within: Within<'_>) -> String {
        match plan(goals, InForce { tunes, groups: &[], record }, within) {
            Err(failure) => failure.message,
            Ok(steps) => steps
                .iter()
                .map(|step| match step {
                    Step::Add(_) => '+',
                    Step::Change(..) => '~',
                    Step::Keep(..) => '=',
                    Step::Remove(..) => '-',
                })
                .collect(),
        }
    }

    #[test]
    fn only_what_differs_changes() {
        let table = fixture::table();
        let of = |to| Goals { goals: vec![goal(&table, to)], policy_sets: vec![] };
        let here = Within::Path(Path::new("/etc/xk.d"));
        let (tune, none) = (tune(), Record::default());
        let record = Record { tunes: vec![applied(&tune)] };
        let tunes = std::slice::from_ref(&tune);
        assert_eq!(steps(&of(To::Value(128)), &[], &none, here), "+");
        assert_eq!(steps(&of(To::Value(128)), tunes, &record, here), "=");
        assert_eq!(steps(&of(To::Value(64)), tunes, &record, here), "~");
        assert_eq!(steps(&Goals::default(), tunes, &record, here), "-");
        assert_eq!(steps(&Goals::default(), tunes, &none, here), "", "somebody else's");
        assert_eq!(steps(&Goals::default(), tunes, &record, Within::Path(Path::new("/elsewhere"))), "");
        assert_eq!(steps(&Goals::default(), tunes, &record, Within::Path(Path::new(FILE))), "-");
        assert_eq!(steps(&Goals::default(), tunes, &record, Within::All), "-");
        let mut leased = of(To::Value(128));
        leased.goals[0].lease = Some(Duration::from_secs(60));
        assert_eq!(steps(&leased, tunes, &record, here), "~");
        let ends = TuneStatus { lease: Some(Duration::from_secs(5)), ..tune.clone() };
        assert_eq!(steps(&leased, &[ends], &record, here), "=", "it is renewed");
    }

    #[test]
    fn what_is_somebody_elses_is_refused() {
        let table = fixture::table();
        let goals = Goals { goals: vec![goal(&table, To::Value(64))], policy_sets: vec![] };
        let tune = tune();
        let tunes = std::slice::from_ref(&tune);
        let message = steps(&goals, tunes, &Record::default(), Within::All);
        assert!(message.starts_with("/etc/xk.d/a.toml:3: BLK_MAX_REQUEST_COUNT is tuned to 128 already"), "{message}");
        let record = Record { tunes: vec![applied(&tune)] };
        let message = steps(&goals, tunes, &record, Within::Path(Path::new("/b.toml")));
        assert!(message.contains("is declared at /etc/xk.d/a.toml:2 as well"), "{message}");
        let mut other = Record { tunes: vec![applied(&tune)] };
        other.tunes[0].backend = "auto".into();
        let message = steps(&goals, tunes, &other, Within::All);
        assert!(message.contains("in force with backend auto, and kprobe"), "{message}");
    }

    #[test]
    fn policies_change_when_what_they_are_made_of_does() {
        let table = fixture::table();
        let unit = |digest: &str| PolicySet {
            name: "p".into(),
            place: place(1),
            source: Source::Scoped(String::new()),
            digest: digest.into(),
        };
        let of = |digest: &str| Goals { goals: vec![goal(&table, To::Decided(0))], policy_sets: vec![unit(digest)] };
        let mut tune = TuneStatus { value: 32, ..tune() };
        tune.policy = Some(PolicyStatus { program: 42, links: 0, sites: vec![] });
        let mut record = Record { tunes: vec![applied(&tune)] };
        record.tunes[0].unit = Some(AppliedUnit { name: "p".into(), digest: "a".into(), program: 42 });
        let steps = |goals: &Goals<'_>, record: &Record| steps(goals, std::slice::from_ref(&tune), record, Within::All);
        assert_eq!(steps(&of("a"), &record), "=");
        assert_eq!(steps(&of("b"), &record), "~");
        assert_eq!(steps(&Goals { goals: vec![goal(&table, To::Value(32))], policy_sets: vec![] }, &record), "~");
        record.tunes[0].unit = Some(AppliedUnit { name: "p".into(), digest: "a".into(), program: 43 });
        assert_eq!(steps(&of("a"), &record), "~", "somebody reloaded it");
    }
}
