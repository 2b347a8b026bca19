//! Steps in, one transition out: all of them, or none.
//!
//! A new constant is loaded with its default in force, and belongs to this process until the transition is complete. A
//! policy that a tune was given has no effect until then. So, if anything fails before or in the transition, nothing
//! has changed once this process has ended.

use thiserror::Error;
use xk_policy::{give, parts, show_maps, Entry, GiveError, Group, GroupError, Part, PartsError, Programs};
use xk_policy::{SourceCompiler, SourceError};
use xk_runtime::{
    Change, Destination, Device, Error as RuntimeError, Mode, Rules, RulesError, SymbolsError, Transition, Tune,
    TuneStatus,
};
use xk_store::{Addresses, Tables};
use xk_table::ScopeTable;

use crate::goal::{Goal, Goals, PolicySet, To};
use crate::health::{refuse_ill, IllSite};
use crate::load::LoadError;
use crate::place::{about, Place};
use crate::plan::Step;
use crate::record::{Applied, AppliedSet, Keeper, Record, RecordError};
use crate::transition::{strong_enough, Done, TransitionError, TransitionOptions, Warning};

/// Why the steps were not made.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ExecuteError {
    /// A line causes the error.
    #[error("{}", about(place, error))]
    At {
        /// The line.
        place: Place,
        /// The error.
        error: Box<ExecuteError>,
    },
    /// A constant causes the error.
    #[error("{}", about(title, error))]
    Constant {
        /// How messages name the constant.
        title: String,
        /// The error.
        error: Box<ExecuteError>,
    },
    /// The error occurred while constants were loaded with their defaults.
    #[error("{0}; nothing was changed")]
    Unchanged(Box<ExecuteError>),
    /// A value would not come into force at a site.
    #[error(transparent)]
    Ill(#[from] IllSite),
    /// A policy does not compile.
    #[error(transparent)]
    Source(Box<SourceError>),
    /// The kernel does not accept a policy.
    #[error(transparent)]
    Policy(#[from] xk_policy::Error),
    /// The policies do not fit the tables.
    #[error(transparent)]
    Parts(#[from] PartsError),
    /// A tune did not get its policy.
    #[error(transparent)]
    Give(#[from] GiveError),
    /// The policies cannot be recorded.
    #[error(transparent)]
    Group(#[from] GroupError),
    /// The administrator allows no backend that is possible.
    #[error(transparent)]
    Rules(#[from] RulesError),
    /// The symbols of the kernel cannot be read.
    #[error(transparent)]
    Symbols(#[from] SymbolsError),
    /// A table was not loaded.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// No tune was loaded for the constant of a policy.
    #[error("{title}: no tune was loaded for its policy")]
    NoTune {
        /// The constant.
        title: String,
    },
    /// A tune ended before its transition.
    #[error("the tune ended while it was being changed")]
    Ended,
    /// The tunes cannot be recorded.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// The transition is not sound, or did not complete.
    #[error(transparent)]
    Transition(#[from] TransitionError),
    /// `xk.ko` refused something else.
    #[error(transparent)]
    Runtime(#[from] RuntimeError),
}

impl From<SourceError> for ExecuteError {
    fn from(error: SourceError) -> Self {
        Self::Source(Box::new(error))
    }
}

type Result<T> = std::result::Result<T, ExecuteError>;

fn at<E: Into<ExecuteError>>(place: &Place) -> impl FnOnce(E) -> ExecuteError + '_ {
    move |error| ExecuteError::At { place: place.clone(), error: Box::new(error.into()) }
}

fn of_constant<E: Into<ExecuteError>>(title: &str) -> impl FnOnce(E) -> ExecuteError + '_ {
    move |error| ExecuteError::Constant { title: title.to_owned(), error: Box::new(error.into()) }
}

fn unchanged(error: ExecuteError) -> ExecuteError {
    ExecuteError::Unchanged(Box::new(error))
}

/// Executes the steps of a plan.
pub struct Work<'a> {
    /// The device of `xk.ko`.
    pub device: &'a Device,
    /// Records what was done.
    pub keeper: &'a Keeper,
    /// What was applied before.
    pub record: &'a Record,
    /// Compiles policies.
    pub compiler: &'a SourceCompiler<'a>,
    /// The tables of the kernel.
    pub tables: &'a Tables,
    /// What the administrator forbids.
    pub rules: &'a Rules,
    /// Is called before the first change. After it, no signal but SIGKILL should end the process.
    pub hold_signals: &'a dyn Fn(),
    /// Is called with each warning.
    pub warn: &'a dyn Fn(&Warning),
}

/// Objects of the sets of policies that change, by index.
pub struct Prepared {
    objects: Vec<Option<Object>>,
}

/// A compiled set of policies.
struct Object {
    bytes: Vec<u8>,
    entries: Vec<Entry>,
}

/// Everything that the transition needs: verified, and loaded with the defaults in force.
struct Ready<'a> {
    goals: &'a Goals<'a>,
    steps: &'a [Step<'a>],
    prepared: &'a Prepared,
    /// By index of the set of policies.
    programs: Vec<Option<Programs>>,
    given: Vec<Given<'a>>,
}

/// The result of an attempt.
struct Attempted {
    transition: Transition,
    /// With the index of the set of policies.
    groups: Vec<(usize, Group)>,
    record: Record,
}

/// A constant that gets a value or a policy, with its tune.
struct Given<'a> {
    goal: &'a Goal<'a>,
    id: u32,
    /// The tune, if it was loaded for this transition.
    new: Option<Tune>,
}

impl Work<'_> {
    /// Compiles the policies that change. Changes nothing.
    ///
    /// # Errors
    /// A policy does not compile, or a tune cannot be changed in its present state.
    pub fn prepare(&self, goals: &Goals<'_>, steps: &[Step<'_>]) -> Result<Prepared> {
        for step in steps {
            if let Step::Change(goal, tune, _) = step {
                refuse_ill(goal.title(), tune).map_err(at(&goal.place))?;
            }
        }
        let changes = |set: usize| steps.iter().any(|step| step.changes() && decides(step, set));
        let object = |(index, set): (usize, &PolicySet)| {
            if !changes(index) {
                return Ok(None);
            }
            let bytes = set.object(self.compiler).map_err(at(&set.place))?;
            let entries = xk_policy::entries(&bytes)?;
            Ok(Some(Object { bytes, entries }))
        };
        let objects = goals.policy_sets.iter().enumerate().map(object).collect::<Result<Vec<_>>>()?;
        Ok(Prepared { objects })
    }

    /// Makes the changes.
    ///
    /// # Errors
    /// Nothing has changed then.
    pub fn run(
        &self,
        goals: &Goals<'_>,
        steps: &[Step<'_>],
        prepared: &Prepared,
        options: &TransitionOptions,
    ) -> Result<Done> {
        let programs = self.verify(goals, prepared)?;
        let mode = self.mode(steps, options)?;
        (self.hold_signals)();
        let given = self.load(steps, mode)?;
        let mut ready = Ready { goals, steps, prepared, programs, given };
        let done = self.attempt(&ready, options, mode).inspect_err(|_| self.withdraw(&ready.given))?;
        for given in &mut ready.given {
            if let Some(tune) = given.new.take() {
                tune.detach().map_err(at(&given.goal.place))?;
            }
            let Given { goal, id, .. } = given;
            self.device.lease(*id, goal.lease).map_err(of_constant(goal.title()))?;
        }
        self.end_policies(steps);
        for (set, group) in done.groups {
            if let Some(programs) = &mut ready.programs[set] {
                if let Err(hidden) = show_maps(programs, &group.name) {
                    (self.warn)(&hidden.into());
                }
            }
            group.record()?;
        }
        self.keeper.write(&done.record)?;
        Ok(Done { transition: done.transition, mode })
    }

    /// Renews the leases of tunes that do not change.
    ///
    /// # Errors
    /// `xk.ko` refuses it.
    pub fn renew(&self, steps: &[Step<'_>]) -> Result<()> {
        for step in steps {
            if let Step::Keep(goal, tune, _) = step {
                if goal.lease.is_some() {
                    self.device.lease(tune.id, goal.lease).map_err(of_constant(goal.title()))?;
                }
            }
        }
        Ok(())
    }

    /// Lets the kernel's verifier check every program, before any constant is loaded.
    fn verify(&self, goals: &Goals<'_>, prepared: &Prepared) -> Result<Vec<Option<Programs>>> {
        let verify = |(set, object): (&PolicySet, &Option<Object>)| {
            let Some(object) = object else { return Ok(None) };
            Programs::load(&object.bytes).map(Some).map_err(at(&set.place))
        };
        goals.policy_sets.iter().zip(&prepared.objects).map(verify).collect()
    }

    /// The mode of the transition: the requested one, or else the strongest that a step needs.
    fn mode(&self, steps: &[Step<'_>], options: &TransitionOptions) -> Result<Mode> {
        let table = |step| table(step, self.tables);
        let modes = steps.iter().map(|step| self.mode_of(step)).collect::<Result<Vec<Mode>>>()?;
        let needed = modes.into_iter().max().unwrap_or(Mode::Now);
        let mode = options.mode(needed, steps.iter().filter_map(table), self.warn)?;
        for step in steps {
            if let (Step::Remove(_, tune), None) = (step, table(step)) {
                options.without_table(tune, mode)?;
            }
        }
        Ok(mode)
    }

    /// The mode that a step needs. Warns if a line declares a weaker one.
    fn mode_of(&self, step: &Step<'_>) -> Result<Mode> {
        match step {
            Step::Add(goal) | Step::Change(goal, ..) => {
                strong_enough(goal.table, goal.mode).map_err(at(&goal.place))?;
                if goal.mode < goal.table.mode {
                    (self.warn)(&Warning::DeclaredMode {
                        place: goal.place.clone(),
                        title: goal.title().to_owned(),
                        needed: goal.table.mode,
                        mode: goal.mode,
                    });
                }
                Ok(goal.mode)
            }
            Step::Remove(_, tune) => Ok(tune.mode),
            Step::Keep(..) => Ok(Mode::Now),
        }
    }

    /// Loads every constant that gets a value or a policy, and is not tuned.
    fn load<'a>(&self, steps: &'a [Step<'a>], mode: Mode) -> Result<Vec<Given<'a>>> {
        let tables = steps.iter().filter_map(|step| match step {
            Step::Add(goal) => Some(goal.table),
            _ => None,
        });
        let addresses = Addresses::live(tables)?;
        let load = |step: &'a Step<'a>| match step {
            Step::Add(goal) => {
                let tune = self.load_goal(goal, mode, &addresses).map_err(unchanged);
                Some(tune.map(|tune| Given { goal, id: tune.id(), new: Some(tune) }))
            }
            Step::Change(goal, tune, _) => Some(Ok(Given { goal, id: tune.id, new: None })),
            Step::Keep(..) | Step::Remove(..) => None,
        };
        steps.iter().filter_map(load).collect()
    }

    fn load_goal(&self, goal: &Goal<'_>, mode: Mode, addresses: &Addresses) -> Result<Tune> {
        let backend = goal.by(mode, self.rules).map_err(|refused| at(&refused.place)(*refused.error))?;
        self.device.load_by(goal.table, addresses, backend).map_err(|error| {
            let title = goal.title().to_owned();
            at(&goal.place)(LoadError { title, error })
        })
    }

    /// Gives the tunes their policies, writes the record, and makes the transition.
    fn attempt(&self, ready: &Ready<'_>, options: &TransitionOptions, mode: Mode) -> Result<Attempted> {
        let mut groups = Vec::new();
        for index in 0..ready.goals.policy_sets.len() {
            if let (Some(object), Some(programs)) = (&ready.prepared.objects[index], &ready.programs[index]) {
                groups.push((index, self.give(ready, index, &object.entries, programs)?));
            }
        }
        let record = self.recorded(ready, &groups)?;
        // If this process is killed, the next one knows the old and the new tunes.
        let mut all = record.clone();
        all.tunes.extend(self.record.tunes.iter().filter(|old| !is_in(old, &record)).cloned());
        self.keeper.write(&all)?;
        let changes = changes(ready.steps, &ready.given);
        let transition = options.run(self.device, &changes, mode, self.warn)?;
        Ok(Attempted { transition, groups, record })
    }

    fn give(&self, ready: &Ready<'_>, index: usize, entries: &[Entry], programs: &Programs) -> Result<Group> {
        let set = &ready.goals.policy_sets[index];
        let parts = parts(entries, self.compiler.folders, self.tables).map_err(at(&set.place))?;
        let id = |part: &Part<'_>| {
            let found = ready.given.iter().find(|given| {
                given.goal.to == To::Decided(index) && given.goal.table.constant.id == part.table.constant.id
            });
            let missing = || ExecuteError::NoTune { title: part.table.constant.title().to_owned() };
            found.map(|given| given.id).ok_or_else(|| at(&set.place)(missing()))
        };
        let ids = parts.iter().map(id).collect::<Result<Vec<_>>>()?;
        give(self.device, programs, &parts, &ids, &set.name, set.origin())
            .map_err(|error| unchanged(at(&set.place)(error)))
    }

    /// Withdraws what was prepared. New tunes end with this process.
    fn withdraw(&self, given: &[Given<'_>]) {
        for given in given {
            if given.new.is_none() && matches!(given.goal.to, To::Decided(_)) {
                // A policy has no effect before its transition: at worst its programs stay loaded.
                let _ = self.device.take_policy(given.id);
            }
        }
        // The record of both is valid, too: the kernel decides which tunes exist.
        let _ = self.keeper.write(self.record);
    }

    /// Ends policies that no longer decide, with their companions.
    fn end_policies(&self, steps: &[Step<'_>]) {
        for step in steps {
            let (before, id) = match step {
                Step::Change(goal, tune, before) => (before, matches!(goal.to, To::Value(_)).then_some(tune.id)),
                Step::Remove(before, _) => (before, None),
                Step::Add(_) | Step::Keep(..) => continue,
            };
            let Some(set) = &before.set else { continue };
            Group::forget(&set.name);
            if let Some(id) = id {
                // The policy is not in force: at worst its programs stay loaded.
                let _ = self.device.take_policy(id);
            }
        }
    }

    /// What is in force after the transition, including what other files declare.
    fn recorded(&self, ready: &Ready<'_>, groups: &[(usize, Group)]) -> Result<Record> {
        let Ready { goals, steps, given, .. } = ready;
        let touched: Vec<&Applied> = steps
            .iter()
            .filter_map(|step| match step {
                Step::Add(_) => None,
                Step::Change(_, _, before) | Step::Keep(_, _, before) | Step::Remove(before, _) => Some(*before),
            })
            .collect();
        let others = self.record.tunes.iter().filter(|old| !touched.contains(old));
        let mut record = Record { tunes: others.cloned().collect() };
        let known = self.device.tunes()?;
        for given in given {
            let tune = known.iter().find(|tune| tune.id == given.id);
            let tune = tune.ok_or_else(|| at(&given.goal.place)(ExecuteError::Ended))?;
            record.tunes.push(applied(given.goal, tune, set_of(given, goals, groups)));
        }
        for step in *steps {
            if let Step::Keep(goal, tune, before) = step {
                record.tunes.push(applied(goal, tune, before.set.clone()));
            }
        }
        Ok(record)
    }
}

fn is_in(old: &Applied, record: &Record) -> bool {
    record.tunes.iter().any(|new| (new.tune, new.owner, &new.constant) == (old.tune, old.owner, &old.constant))
}

fn decides(step: &Step<'_>, set: usize) -> bool {
    match step {
        Step::Add(goal) | Step::Change(goal, ..) | Step::Keep(goal, ..) => goal.to == To::Decided(set),
        Step::Remove(..) => false,
    }
}

/// The policies of a constant, with the number of the program that decides it.
fn set_of(given: &Given<'_>, goals: &Goals<'_>, groups: &[(usize, Group)]) -> Option<AppliedSet> {
    let To::Decided(set) = given.goal.to else { return None };
    let (_, group) = groups.iter().find(|(index, _)| *index == set)?;
    let member = group.members.iter().find(|member| member.tune == given.id)?;
    let wanted = &goals.policy_sets[set];
    Some(AppliedSet { name: wanted.name.clone(), digest: wanted.digest.clone(), program: member.program_id })
}

fn applied(goal: &Goal<'_>, tune: &TuneStatus, set: Option<AppliedSet>) -> Applied {
    Applied {
        tune: tune.id,
        owner: tune.owner_pid,
        constant: tune.name.clone(),
        file: goal.place.file.clone(),
        line: goal.place.line,
        backend: goal.backend.word().into(),
        set,
    }
}

/// The changes that the transition makes.
fn changes(steps: &[Step<'_>], given: &[Given<'_>]) -> Vec<Change> {
    let to = |goal: &Goal<'_>| match goal.to {
        To::Value(value) => Destination::Value(value),
        To::Decided(_) => Destination::Policy(goal.table.constant.default),
    };
    let removed = steps.iter().filter_map(|step| match step {
        Step::Remove(_, tune) => Some(Change { id: tune.id, to: Destination::Unload }),
        _ => None,
    });
    given.iter().map(|given| Change { id: given.id, to: to(given.goal) }).chain(removed).collect()
}

/// The table of a step that changes something, if it exists.
fn table<'a>(step: &Step<'a>, tables: &'a Tables) -> Option<&'a ScopeTable> {
    match step {
        Step::Add(goal) | Step::Change(goal, ..) => Some(goal.table),
        Step::Remove(_, tune) => tables.of_tune(&tune.name),
        Step::Keep(..) => None,
    }
}
