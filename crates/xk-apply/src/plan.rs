//! The difference between what is in force and what should be: goals, and what the kernel and the record say, in; one step
//! for each constant out. A pure function.
//!
//! Only what `xk apply` itself has loaded is changed or removed. Refuses to change what another command has tuned, and
//! what cannot be changed in one transaction.

use std::fmt;
use std::path::{Path, PathBuf};

use thiserror::Error;
use xk_policy::Group;
use xk_runtime::TuneStatus;

use crate::goal::{Goal, Goals, To};
use crate::place::{At, Place};
use crate::record::{Applied, Record};

/// What becomes of one constant.
#[derive(Debug)]
pub enum Step<'a> {
    /// It has its default, and gets something else.
    Add(&'a Goal<'a>),
    /// It is tuned, and gets something else.
    Change(&'a Goal<'a>, &'a TuneStatus, &'a Applied),
    /// It is tuned as declared.
    Keep(&'a Goal<'a>, &'a TuneStatus, &'a Applied),
    /// It is no longer declared, and gets its default.
    Remove(&'a Applied, &'a TuneStatus),
}

impl Step<'_> {
    /// Whether something changes.
    #[must_use]
    pub fn changes(&self) -> bool {
        !matches!(self, Step::Keep(..))
    }
}

/// What is in force.
#[derive(Debug, Clone, Copy)]
pub struct InForce<'a> {
    /// All tunes of the kernel.
    pub tunes: &'a [TuneStatus],
    /// All groups of policies.
    pub groups: &'a [Group],
    /// What was applied before.
    pub record: &'a Record,
}

impl<'a> InForce<'a> {
    fn applied(&self, tune: &TuneStatus) -> Option<&'a Applied> {
        self.record.tunes.iter().find(|applied| applied.is(tune))
    }
}

/// The declarations that a command concerns.
#[derive(Debug, Clone, Copy)]
pub enum Within<'a> {
    /// Those of a file, or of the files of a directory, also if they do not exist any more.
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

/// Who else has tuned a constant, and how to end this.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Holder {
    /// Policies that were loaded together.
    Policies {
        /// Their name.
        name: String,
        /// Their source.
        source: PathBuf,
    },
    /// A detached tune.
    Detached {
        /// Its value.
        value: i64,
        /// Its owner, in words.
        owner: String,
    },
    /// A tune of a running process.
    Process {
        /// Its value.
        value: i64,
        /// The process, in words.
        owner: String,
    },
}

impl Holder {
    fn of(tune: &TuneStatus, groups: &[Group]) -> Self {
        let (value, owner) = (tune.value, || tune.owner());
        match Group::of(groups, tune) {
            Some(group) => Self::Policies { name: group.name.clone(), source: group.source.clone() },
            None if tune.detached => Self::Detached { value, owner: owner() },
            None => Self::Process { value, owner: owner() },
        }
    }

    fn sentence(&self, title: &str) -> impl fmt::Display {
        match self {
            Self::Policies { name, source } => {
                format!("{title} is decided by the policies {name} ({}): `xk unload {name}`", source.display())
            }
            Self::Detached { value, owner } => {
                format!("{title} is tuned to {value} already, {owner}: `xk unset {title}`")
            }
            Self::Process { value, owner } => format!("{title} is tuned to {value} already, {owner}: end that process"),
        }
    }
}

/// Why the goals cannot be reached in one transaction.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum PlanError {
    /// Another path declares the constant, too.
    #[error(
        "{title} is declared at {other} as well, which was applied before: `xk apply --remove {}` first; nothing was \
         changed",
        other.file.display()
    )]
    DeclaredElsewhere {
        /// The constant.
        title: String,
        /// The line that was applied before.
        other: Place,
    },
    /// Another command has tuned the constant.
    #[error("{} first; nothing was changed", holder.sentence(title))]
    Held {
        /// The constant.
        title: String,
        /// By whom.
        holder: Holder,
    },
    /// The tune has another backend. A constant can be loaded once only, so it would have its default in between.
    #[error(
        "{title} is in force with backend {loaded}, and {declared} takes its default in between: `xk unset {title}`, then \
         apply again; nothing was changed"
    )]
    OtherBackend {
        /// The constant.
        title: String,
        /// The backend that was requested when the tune was loaded.
        loaded: String,
        /// The declared backend.
        declared: &'static str,
    },
    /// Other policies have the name.
    #[error(
        "policies called {name} are loaded, from {}: `xk unload {name}` ends them, `name = \"…\"` gives these another \
         name; nothing was changed",
        loaded.display()
    )]
    NameTaken {
        /// The name.
        name: String,
        /// The source of these policies.
        loaded: PathBuf,
    },
}

/// The steps: goals in their order, then what is removed.
///
/// # Errors
/// The first goal that cannot be reached, with its line.
pub fn plan<'a>(goals: &'a Goals<'a>, now: InForce<'a>, within: Within<'_>) -> Result<Vec<Step<'a>>, At<PlanError>> {
    let found = goals.goals.iter().map(|goal| find(goal, now, within)).collect::<Result<Vec<_>, _>>()?;
    refuse_names(goals, now)?;
    let same: Vec<bool> = goals
        .goals
        .iter()
        .zip(&found)
        .map(|(goal, found)| found.is_some_and(|found| is_as_declared(goal, goals, found)))
        .collect();
    // The policies of a set share maps: they change together.
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
        if !goals.goals.iter().any(|goal| tune.is_of(&goal.table.constant)) {
            steps.push(Step::Remove(applied, tune));
        }
    }
    Ok(steps)
}

type Found<'a> = (&'a TuneStatus, &'a Applied);

/// The tune of a goal, if this command may change it.
fn find<'a>(goal: &Goal<'_>, now: InForce<'a>, within: Within<'_>) -> Result<Option<Found<'a>>, At<PlanError>> {
    let Some(tune) = now.tunes.iter().find(|tune| tune.is_of(&goal.table.constant)) else { return Ok(None) };
    let title = goal.title().to_owned();
    match now.applied(tune) {
        Some(applied) if within.has(&applied.file) => Ok(Some((tune, applied))),
        Some(applied) => Err(goal.place.at(PlanError::DeclaredElsewhere { title, other: applied.place() })),
        None => Err(goal.place.at(PlanError::Held { title, holder: Holder::of(tune, now.groups) })),
    }
}

/// Whether a constant is tuned as declared.
fn is_as_declared(goal: &Goal<'_>, goals: &Goals<'_>, (tune, applied): Found<'_>) -> bool {
    let leased = goal.lease.is_some() == tune.lease.is_some();
    let decided = match (goal.to, &tune.policy, &applied.set) {
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

fn refuse_other_backend(goal: &Goal<'_>, applied: &Applied) -> Result<(), At<PlanError>> {
    let (loaded, declared) = (&applied.backend, goal.backend.word());
    if loaded == declared {
        return Ok(());
    }
    let title = goal.title().to_owned();
    Err(goal.place.at(PlanError::OtherBackend { title, loaded: loaded.clone(), declared }))
}

/// Refuses a name that policies of another command have.
fn refuse_names(goals: &Goals<'_>, now: InForce<'_>) -> Result<(), At<PlanError>> {
    let ours =
        |name: &str| now.record.tunes.iter().any(|applied| applied.set.as_ref().is_some_and(|set| set.name == name));
    for set in goals.policy_sets.iter().filter(|set| !ours(&set.name)) {
        if let Some(group) = now.groups.iter().find(|group| group.name == set.name) {
            let (name, loaded) = (set.name.clone(), group.source.clone());
            return Err(set.place.at(PlanError::NameTaken { name, loaded }));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::time::Duration;

    use xk_harness::example;
    use xk_policy::Member;
    use xk_runtime::{BackendChoice, PolicyStatus};

    use super::*;
    use crate::goal::{PolicySet, Source};
    use crate::record::AppliedSet;

    const FILE: &str = "/etc/xk.d/a.toml";

    fn place(line: usize) -> Place {
        Place { file: FILE.into(), line }
    }

    fn goal(table: &xk_table::ScopeTable, to: To) -> Goal<'_> {
        Goal { table, place: place(3), to, backend: BackendChoice::Kprobe, lease: None, mode: table.mode }
    }

    fn tune() -> TuneStatus {
        TuneStatus { lease: None, ..example::tune() }
    }

    fn applied(tune: &TuneStatus) -> Applied {
        Applied {
            tune: tune.id,
            owner: tune.owner_pid,
            constant: tune.name.clone(),
            file: FILE.into(),
            line: 2,
            backend: "kprobe".into(),
            set: None,
        }
    }

    /// One letter for each step, or the refusal.
    fn steps(goals: &Goals<'_>, tunes: &[TuneStatus], record: &Record, within: Within<'_>) -> String {
        match plan(goals, InForce { tunes, groups: &[], record }, within) {
            Err(error) => error.to_string(),
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
        let table = example::table();
        let of = |to| Goals { goals: vec![goal(&table, to)], policy_sets: vec![] };
        let here = Within::Path(Path::new("/etc/xk.d"));
        let (tune, none) = (tune(), Record::default());
        let record = Record { tunes: vec![applied(&tune)] };
        let tunes = std::slice::from_ref(&tune);
        assert_eq!(steps(&of(To::Value(128)), &[], &none, here), "+");
        assert_eq!(steps(&of(To::Value(128)), tunes, &record, here), "=");
        assert_eq!(steps(&of(To::Value(64)), tunes, &record, here), "~");
        assert_eq!(steps(&Goals::default(), tunes, &record, here), "-");
        assert_eq!(steps(&Goals::default(), tunes, &none, here), "", "another command has tuned it");
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
    fn what_another_command_tuned_is_refused() {
        let table = example::table();
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
        let table = example::table();
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
        record.tunes[0].set = Some(AppliedSet { name: "p".into(), digest: "a".into(), program: 42 });
        let steps = |goals: &Goals<'_>, record: &Record| steps(goals, std::slice::from_ref(&tune), record, Within::All);
        assert_eq!(steps(&of("a"), &record), "=");
        assert_eq!(steps(&of("b"), &record), "~");
        assert_eq!(steps(&Goals { goals: vec![goal(&table, To::Value(32))], policy_sets: vec![] }, &record), "~");
        record.tunes[0].set = Some(AppliedSet { name: "p".into(), digest: "a".into(), program: 43 });
        assert_eq!(steps(&of("a"), &record), "~", "another command reloaded it");
    }

    /// Two constants: the select and the data object of the examples.
    fn two() -> [xk_table::ScopeTable; 2] {
        [example::table(), example::data_table()]
    }

    /// A tune of the second constant, with its value.
    fn second(value: i64) -> TuneStatus {
        TuneStatus { id: 2, name: "net/core/hotdata.c:L17:300:0".into(), value, default: 300, ..tune() }
    }

    #[test]
    fn every_constant_gets_one_step_in_order() {
        let [select, data] = &two();
        let (first, second) = (tune(), second(500));
        let record = Record { tunes: vec![applied(&first), applied(&second)] };
        let tunes = [first, second];
        let goals = |goals| Goals { goals, policy_sets: vec![] };
        let both = goals(vec![goal(data, To::Value(500)), goal(select, To::Value(64))]);
        assert_eq!(steps(&both, &tunes, &record, Within::All), "=~", "goals in their order");
        assert_eq!(steps(&goals(vec![goal(data, To::Value(500))]), &tunes, &record, Within::All), "=-");
        assert_eq!(steps(&goals(vec![goal(data, To::Value(600))]), &tunes, &record, Within::All), "~-");
        assert_eq!(steps(&goals(vec![]), &tunes, &record, Within::All), "--");
        assert_eq!(steps(&both, &tunes[1..], &record, Within::All), "=+", "the kernel decides what is in force");
        assert_eq!(steps(&both, &[], &record, Within::All), "++");
    }

    #[test]
    fn a_tune_is_found_by_the_alias_of_its_constant() {
        let table = example::table();
        let named = TuneStatus { name: "BLK_MAX_REQUEST_COUNT".into(), ..tune() };
        let record = Record { tunes: vec![applied(&named)] };
        let goals = Goals { goals: vec![goal(&table, To::Value(128))], policy_sets: vec![] };
        assert_eq!(steps(&goals, &[named], &record, Within::All), "=");
    }

    #[test]
    fn policies_of_a_set_change_together() {
        let [select, data] = &two();
        let set =
            PolicySet { name: "p".into(), place: place(1), source: Source::Scoped(String::new()), digest: "a".into() };
        let both = vec![goal(select, To::Decided(0)), goal(data, To::Decided(0))];
        let goals = Goals { goals: both, policy_sets: vec![set] };
        let policy = |program| Some(PolicyStatus { program, links: 0, sites: vec![] });
        let mut tunes = [TuneStatus { value: 32, ..tune() }, second(300)];
        (tunes[0].policy, tunes[1].policy) = (policy(42), policy(43));
        let mut record = Record { tunes: tunes.iter().map(applied).collect() };
        for (applied, program) in record.tunes.iter_mut().zip([42, 43]) {
            applied.set = Some(AppliedSet { name: "p".into(), digest: "a".into(), program });
        }
        assert_eq!(steps(&goals, &tunes, &record, Within::All), "==");
        tunes[1].value = 299;
        assert_eq!(steps(&goals, &tunes, &record, Within::All), "~~", "the other changes, too");
        assert_eq!(steps(&goals, &tunes[..1], &record, Within::All), "~+");
    }

    #[test]
    fn the_holder_is_named_with_what_ends_it() {
        let table = example::table();
        let goals = Goals { goals: vec![goal(&table, To::Value(64))], policy_sets: vec![] };
        let refused = |tune: &TuneStatus, groups: &[Group]| {
            let record = Record::default();
            let now = InForce { tunes: std::slice::from_ref(tune), groups, record: &record };
            let error = plan(&goals, now, Within::All).map(|steps| steps.len()).unwrap_err();
            let PlanError::Held { holder, .. } = &*error.error else { unreachable!() };
            (holder.clone(), error.to_string())
        };
        let mut tune = tune();
        let (holder, message) = refused(&tune, &[]);
        assert!(matches!(holder, Holder::Detached { value: 128, .. }), "{holder:?}");
        assert!(message.contains("`xk unset BLK_MAX_REQUEST_COUNT` first; nothing was changed"), "{message}");
        tune.detached = false;
        let (holder, message) = refused(&tune, &[]);
        assert!(matches!(holder, Holder::Process { value: 128, .. }), "{holder:?}");
        assert!(message.contains("end that process first"), "{message}");
        tune.policy = Some(PolicyStatus { program: 42, links: 0, sites: vec![] });
        let member = Member { tune: tune.id, constant: tune.name.clone(), program: "p".into(), program_id: 42 };
        let group = Group { name: "g".into(), source: "g.bpf.c".into(), members: vec![member], companions: vec![] };
        let (holder, message) = refused(&tune, &[group]);
        assert_eq!(holder, Holder::Policies { name: "g".into(), source: "g.bpf.c".into() });
        assert!(message.contains("is decided by the policies g (g.bpf.c): `xk unload g` first"), "{message}");
    }

    #[test]
    fn a_name_of_other_policies_is_refused() {
        let table = example::table();
        let set =
            PolicySet { name: "p".into(), place: place(7), source: Source::Scoped(String::new()), digest: "a".into() };
        let goals = Goals { goals: vec![goal(&table, To::Decided(0))], policy_sets: vec![set] };
        let group = Group { name: "p".into(), source: "/p.bpf.o".into(), members: vec![], companions: vec![] };
        let of = |record: &Record| {
            let now = InForce { tunes: &[], groups: std::slice::from_ref(&group), record };
            plan(&goals, now, Within::All).map(|steps| steps.len()).map_err(|error| error.to_string())
        };
        let message = of(&Record::default()).unwrap_err();
        assert!(message.starts_with("/etc/xk.d/a.toml:7: policies called p are loaded, from /p.bpf.o"), "{message}");
        let mut ours = applied(&tune());
        ours.set = Some(AppliedSet { name: "p".into(), digest: "b".into(), program: 1 });
        assert_eq!(of(&Record { tunes: vec![ours] }), Ok(1));
    }
}
