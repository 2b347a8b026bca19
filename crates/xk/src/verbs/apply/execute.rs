//! Steps in, one transition out: all of them, or none.
//!
//! A new constant is loaded with its default in force and belongs to this process until
//! the transition is done; a policy that a constant is given means nothing until then. So
//! whatever fails before or in the transition, this process' end is the end of it.

use xk_policy::{Entry, Programs};
use xk_runtime::{Change, Destination, Device, Mode, Rules, Transition, Tune, TuneStatus};
use xk_table::ScopeTable;

use super::goal::{self, Goal, Goals, To};
use super::plan::Step;
use super::record::{Applied, AppliedUnit, Keeper, Record};
use crate::addresses::Addresses;
use crate::context::{Folders, Tables};
use crate::exit::{Failure, Result};
use crate::signals;
use crate::tunes::title;
use crate::verbs::load::{self, Part};
use crate::verbs::set;
use crate::verbs::transition::{self, Options};
use xk_policy::Group;

/// What the work needs.
pub struct Work<'a> {
    /// The kernel.
    pub device: &'a Device,
    /// Writes down what was done.
    pub keeper: &'a Keeper,
    /// What was done before.
    pub record: &'a Record,
    /// Where things are.
    pub folders: &'a Folders,
    /// Of this kernel.
    pub tables: &'a Tables,
    /// What is forbidden.
    pub rules: &'a Rules,
}

/// Objects of the sets of policies that change, by index.
pub struct Prepared {
    objects: Vec<Option<Object>>,
}

/// What the compiler made of policies.
struct Object {
    bytes: Vec<u8>,
    entries: Vec<Entry>,
}

/// All that one transition needs: verified, and loaded with the defaults in force.
struct Ready<'a> {
    goals: &'a Goals<'a>,
    steps: &'a [Step<'a>],
    prepared: &'a Prepared,
    /// By index of the set of policies.
    programs: Vec<Option<Programs>>,
    given: Vec<Given<'a>>,
}

/// What became of it.
struct Done {
    transition: Transition,
    /// With the index of the set of policies.
    groups: Vec<(usize, Group)>,
    record: Record,
}

/// A constant that gets something, with its tune.
struct Given<'a> {
    goal: &'a Goal<'a>,
    id: u32,
    /// It was loaded for this.
    new: Option<Tune>,
}

impl Work<'_> {
    /// Compiles what has to be.
    ///
    /// # Errors
    /// The compiler's; a constant that cannot be changed as it is.
    pub fn prepare(&self, goals: &Goals<'_>, steps: &[Step<'_>]) -> Result<Prepared> {
        for step in steps {
            if let Step::Change(goal, tune, _) = step {
                set::refuse_ill(goal.title(), tune).map_err(|failure| failure.about(&goal.place.to_string()))?;
            }
        }
        let changes = |unit: usize| steps.iter().any(|step| step.changes() && decides(step, unit));
        let object = |(index, unit): (usize, &goal::PolicySet)| {
            if !changes(index) {
                return Ok(None);
            }
            let bytes = unit.object(self.folders)?;
            let entries = xk_policy::entries(&bytes).map_err(load::policy_failure)?;
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
        options: &Options,
    ) -> Result<(Transition, Mode)> {
        let programs = self.verify(goals, prepared)?;
        let mode = options.mode(mode_of(steps)?, steps.iter().filter_map(|step| table(step, self.tables)))?;
        for step in steps {
            if let (Step::Remove(_, tune), None) = (step, table(step, self.tables)) {
                options.without_table(tune, mode)?;
            }
        }
        // From here on nothing but SIGKILL ends the process half-way; that is the kernel's to undo.
        signals::hold_back();
        let given = self.load(steps, mode)?;
        let mut ready = Ready { goals, steps, prepared, programs, given };
        let done = self.attempt(&ready, options, mode).inspect_err(|_| self.withdraw(&ready.given))?;
        for given in &mut ready.given {
            if let Some(tune) = given.new.take() {
                tune.detach().map_err(|error| Failure::from(error).about(&given.goal.place.to_string()))?;
            }
            let Given { goal, id, .. } = given;
            self.device.lease(*id, goal.lease).map_err(|error| Failure::from(error).about(goal.title()))?;
        }
        self.end_policies(steps);
        for (unit, group) in done.groups {
            if let Some(programs) = &mut ready.programs[unit] {
                load::show_maps(programs, &group.name);
            }
            group.record()?;
        }
        self.keeper.write(&done.record)?;
        Ok((done.transition, mode))
    }

    /// Leases begin anew with every time that they are applied.
    ///
    /// # Errors
    /// The kernel's.
    pub fn renew(&self, steps: &[Step<'_>]) -> Result {
        for step in steps {
            if let Step::Keep(goal, tune, _) = step {
                if goal.lease.is_some() {
                    self.device.lease(tune.id, goal.lease).map_err(|error| Failure::from(error).about(goal.title()))?;
                }
            }
        }
        Ok(())
    }

    /// The kernel's verifier sees every program before any constant is touched.
    fn verify(&self, goals: &Goals<'_>, prepared: &Prepared) -> Result<Vec<Option<Programs>>> {
        let verify = |(unit, object): (&goal::PolicySet, &Option<Object>)| {
            let Some(object) = object else { return Ok(None) };
            let about = |error| load::policy_failure(error).about(&unit.place.to_string());
            Programs::load(&object.bytes).map(Some).map_err(about)
        };
        goals.policy_sets.iter().zip(&prepared.objects).map(verify).collect()
    }

    /// Every constant that gets something, loaded.
    fn load<'a>(&self, steps: &'a [Step<'a>], mode: Mode) -> Result<Vec<Given<'a>>> {
        let tables = steps.iter().filter_map(|step| match step {
            Step::Add(goal) => Some(goal.table),
            _ => None,
        });
        let addresses = Addresses::live(tables)?;
        let load = |step: &'a Step<'a>| match step {
            Step::Add(goal) => {
                let tune = goal.by(mode, self.rules).and_then(|backend| {
                    self.device.load_by(goal.table, &addresses, backend).map_err(|error| {
                        let failure = set::load_failure(error, goal.title());
                        failure.about(&goal.place.to_string())
                    })
                });
                let tune = tune.map_err(|failure| failure.then("; nothing was changed"));
                Some(tune.map(|tune| Given { goal, id: tune.id(), new: Some(tune) }))
            }
            Step::Change(goal, tune, _) => Some(Ok(Given { goal, id: tune.id, new: None })),
            Step::Keep(..) | Step::Remove(..) => None,
        };
        steps.iter().filter_map(load).collect()
    }

    /// Policies, the record, the transition.
    fn attempt(&self, ready: &Ready<'_>, options: &Options, mode: Mode) -> Result<Done> {
        let mut groups = Vec::new();
        for index in 0..ready.goals.policy_sets.len() {
            if let (Some(object), Some(programs)) = (&ready.prepared.objects[index], &ready.programs[index]) {
                groups.push((index, self.give(ready, index, &object.entries, programs)?));
            }
        }
        let record = self.recorded(ready, &groups)?;
        // Should this process be killed, the next one knows whose all of it is.
        let mut all = record.clone();
        all.tunes.extend(self.record.tunes.iter().filter(|old| !is_in(old, &record)).cloned());
        self.keeper.write(&all)?;
        let changes = changes(ready.steps, &ready.given);
        let transition = options.run(self.device, &changes, mode).map_err(transition::failure)?;
        Ok(Done { transition, groups, record })
    }

    fn give(&self, ready: &Ready<'_>, index: usize, entries: &[Entry], programs: &Programs) -> Result<Group> {
        let unit = &ready.goals.policy_sets[index];
        let parts = load::parts(entries, self.folders, self.tables).map_err(|f| f.about(&unit.place.to_string()))?;
        let id = |part: &Part<'_>| {
            let found = ready.given.iter().find(|given| {
                given.goal.to == To::Decided(index) && given.goal.table.constant.id == part.table.constant.id
            });
            found.map(|given| given.id).ok_or_else(|| unit.place.wrong(format!("{} is lost", title_of(part.table))))
        };
        let ids = parts.iter().map(id).collect::<Result<Vec<_>>>()?;
        load::give(self.device, programs, &parts, &ids, &unit.name, unit.origin())
            .map_err(|failure| failure.about(&unit.place.to_string()).then("; nothing was changed"))
    }

    /// Nothing that was prepared is left. New tunes go with this process.
    fn withdraw(&self, given: &[Given<'_>]) {
        for given in given {
            if given.new.is_none() && matches!(given.goal.to, To::Decided(_)) {
                // What it was given means nothing unless it is put into force.
                let _ = self.device.take_policy(given.id);
            }
        }
        // The one before names fewer tunes, and the kernel decides which of them there are.
        let _ = self.keeper.write(self.record);
    }

    /// Policies that decide no more, with what ran beside them.
    fn end_policies(&self, steps: &[Step<'_>]) {
        for step in steps {
            let (before, id) = match step {
                Step::Change(goal, tune, before) => (before, matches!(goal.to, To::Value(_)).then_some(tune.id)),
                Step::Remove(before, _) => (before, None),
                Step::Add(_) | Step::Keep(..) => continue,
            };
            let Some(unit) = &before.unit else { continue };
            Group::forget(&unit.name);
            if let Some(id) = id {
                // It is not in force: at worst its programs stay loaded.
                let _ = self.device.take_policy(id);
            }
        }
    }

    /// What is in force when all is done, also what other files declare.
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
            let tune = tune.ok_or_else(|| given.goal.place.wrong("the tune went while it was changed"))?;
            record.tunes.push(applied(given.goal, tune, unit_of(given, goals, groups)));
        }
        for step in *steps {
            if let Step::Keep(goal, tune, before) = step {
                record.tunes.push(applied(goal, tune, before.unit.clone()));
            }
        }
        Ok(record)
    }
}

fn title_of(table: &ScopeTable) -> &str {
    title(&table.constant)
}

fn is_in(old: &Applied, record: &Record) -> bool {
    record.tunes.iter().any(|new| (new.tune, new.owner, &new.constant) == (old.tune, old.owner, &old.constant))
}

fn decides(step: &Step<'_>, unit: usize) -> bool {
    match step {
        Step::Add(goal) | Step::Change(goal, ..) | Step::Keep(goal, ..) => goal.to == To::Decided(unit),
        Step::Remove(..) => false,
    }
}

/// The policies of a constant, with the program that the kernel has for it.
fn unit_of(given: &Given<'_>, goals: &Goals<'_>, groups: &[(usize, Group)]) -> Option<AppliedUnit> {
    let To::Decided(unit) = given.goal.to else { return None };
    let (_, group) = groups.iter().find(|(index, _)| *index == unit)?;
    let member = group.members.iter().find(|member| member.tune == given.id)?;
    let wanted = &goals.policy_sets[unit];
    Some(AppliedUnit { name: wanted.name.clone(), digest: wanted.digest.clone(), program: member.program_id })
}

fn applied(goal: &Goal<'_>, tune: &TuneStatus, unit: Option<AppliedUnit>) -> Applied {
    Applied {
        tune: tune.id,
        owner: tune.owner_pid,
        constant: tune.name.clone(),
        file: goal.place.file.clone(),
        line: goal.place.line,
        backend: goal.backend.word().into(),
        unit,
    }
}

/// What is asked of the kernel.
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

/// The strongest that one of the steps needs; a declaration may ask for a weaker one.
fn mode_of(steps: &[Step<'_>]) -> Result<Mode> {
    let mode = |step: &Step<'_>| match step {
        Step::Add(goal) | Step::Change(goal, ..) => {
            transition::strong_enough(goal.table, goal.mode)
                .map_err(|failure| failure.about(&goal.place.to_string()))?;
            if goal.mode < goal.table.mode {
                eprintln!(
                    "warning: {}: {} needs mode {}, and {} was asked for: old and new value may be mixed for a moment",
                    goal.place,
                    goal.title(),
                    goal.table.mode,
                    goal.mode
                );
            }
            Ok(goal.mode)
        }
        Step::Remove(_, tune) => Ok(tune.mode),
        Step::Keep(..) => Ok(Mode::Now),
    };
    let modes = steps.iter().map(mode).collect::<Result<Vec<Mode>>>()?;
    Ok(modes.into_iter().max().unwrap_or(Mode::Now))
}

/// The table of what changes.
fn table<'a>(step: &Step<'a>, tables: &'a Tables) -> Option<&'a ScopeTable> {
    match step {
        Step::Add(goal) | Step::Change(goal, ..) => Some(goal.table),
        Step::Remove(_, tune) => tables.of_tune(&tune.name),
        Step::Keep(..) => None,
    }
}
