//! One run of the tuner on this machine, from the lock to the conclusion.
//!
//! In: jobs. Out: what was found; a confirmed setting is in force. However it ends, every other knob is as before: it is
//! restored by this code, else by the guardian and the kernel, else by the next start. It refuses to run while another
//! tuner runs, and while `xk tune stop` is in effect.
//!
//! `check.rs` checks what earlier searches keep. `open.rs` resumes or begins a search, `search.rs` makes its trials,
//! `switching.rs` measures what switching costs, `conclude.rs` keeps and remembers the result, `identity.rs` says what a
//! search is and where its memories apply, `bottleneck.rs` chooses among several subsystems.

mod bottleneck;
mod check;
mod conclude;
mod identity;
mod open;
mod search;
mod switching;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::json;
use xk_history::Action;
use xk_runtime::Device;

use crate::description::Job;
use crate::engine::Conclusion;
use crate::error::{MachineError, RevertError};
use crate::guardian::{clean_up, Guardian};
use crate::knob::{record, Backing, ChangedKnob, Constants, KnobFault, Module};
use crate::machine::{present, restorable, KeptKnob, Machine, Witness};
use crate::metrics::Publisher;
use crate::modules::{Kernel, Modules};
use crate::store::{Lock, SearchId, Store};
use crate::target::Watch;
use crate::{Error, Value};

pub use identity::SearchIdentity;

/// How long to wait for the guardian of a tuner that was killed.
const PATIENCE: Duration = Duration::from_secs(10);

/// A session gives up a search after so many changes of the workload.
const MOST_SHIFTS: usize = 4;

/// What a session needs.
pub struct Setup<'a> {
    /// The job; if there are several, any of them.
    pub job: Job,
    /// The directory of the database.
    pub folder: PathBuf,
    /// Finds perf-consts.
    pub constants: &'a dyn Constants,
    /// A program that runs [`crate::guardian::serve`].
    pub guardian: Command,
    /// The kernel build.
    pub build_id: String,
    /// Whether to search even if a setting is remembered.
    pub afresh: bool,
    /// Whether to compare kept settings with the default without another reason.
    pub compare: bool,
    /// Set when the session is to end.
    pub interrupted: &'a AtomicBool,
    /// Receives a line for each event.
    pub say: &'a dyn Fn(&str),
    /// Where metrics are written after each trial, if anywhere.
    pub metrics: Option<Publisher>,
    /// Called several times per second while the session makes progress.
    pub alive: &'a dyn Fn(),
}

/// How a search ended.
#[derive(Debug, Clone, PartialEq)]
pub struct Summary {
    /// Number of the search.
    pub search: SearchId,
    /// Its conclusion; `None` if it was interrupted, or if a kept setting was checked.
    pub conclusion: Option<Conclusion>,
    /// Whether it was interrupted.
    pub is_interrupted: bool,
    /// Number of all trials, including those of earlier sessions; 0 if a kept setting was only watched.
    pub trials: usize,
    /// The result, in words.
    pub sentence: String,
    /// The knobs that keep a confirmed value.
    pub kept: Vec<KeptKnob>,
    /// With several targets, the front, in words.
    pub front: Vec<String>,
}

impl Summary {
    /// A search that waits for its workload to come back.
    fn unfinished(search: SearchId, trials: usize) -> Self {
        let sentence = "the workload changes faster than it can be searched; the same command goes on".into();
        let (conclusion, is_interrupted, kept, front) = (None, false, Vec::new(), Vec::new());
        Self { search, conclusion, is_interrupted, trials, sentence, kept, front }
    }
}

/// The file that blocks all tuners of a machine while it exists.
#[must_use]
pub fn stop_file(folder: &Path) -> PathBuf {
    folder.join("stop")
}

/// Who is tuning, for the journal.
#[must_use]
pub fn who() -> String {
    let user = std::env::var("SUDO_USER").or_else(|_| std::env::var("USER")).unwrap_or_else(|_| "root".into());
    format!("xk tune, process {}, {user}", std::process::id())
}

/// Restores what a killed tuner left changed. Returns a line for each knob. The caller must hold the lock.
///
/// # Errors
/// [`Error::Store`].
pub fn recover(store: &Store, constants: &dyn Constants) -> Result<Vec<String>, Error> {
    // The store lists the last change first.
    let changed: Vec<ChangedKnob> = store.changed()?.into_iter().rev().collect();
    let lines = clean_up(&changed, constants);
    for (knob, line) in changed.iter().zip(&lines) {
        store.note(&who(), &json!({ "event": "recovered", "knob": knob.name, "outcome": line }))?;
        store.release(&knob.name)?;
    }
    Ok(lines)
}

/// Reverts what earlier searches have kept, except what something else has changed since. Returns a line for each knob.
///
/// # Errors
/// [`Error::Store`], [`Error::Machine`].
pub fn revert(store: &Store, constants: &dyn Constants) -> Result<Vec<String>, Error> {
    let kept = store.kept()?;
    let lines = revert_each(store, constants, kept.clone())?;
    kept.iter().try_for_each(|knob| store.forget_setting(&knob.search))?;
    Ok(lines)
}

/// The knobs that other searches keep. The searches of `jobs` leave them alone.
///
/// # Errors
/// [`Error::Store`].
pub fn taken(store: &Store, jobs: &[Job]) -> Result<Vec<KeptKnob>, Error> {
    Ok(store.kept()?.into_iter().filter(|kept| !is_own(kept, jobs)).collect())
}

/// What an older version kept belongs to no search that is known.
fn is_own(kept: &KeptKnob, jobs: &[Job]) -> bool {
    kept.search.is_empty() || jobs.iter().any(|job| job.name == kept.search)
}

fn revert_each(store: &Store, constants: &dyn Constants, all: Vec<KeptKnob>) -> Result<Vec<String>, Error> {
    let mut lines = Vec::new();
    for kept in all {
        let parameter = kept.name.clone();
        let line = revert_one(&kept, constants).map_err(|source| MachineError::Revert { parameter, source })?;
        store.forget_kept(&kept.backing)?;
        store.note(&who(), &json!({ "event": "reverted", "knob": kept.name, "outcome": line }))?;
        lines.push(line);
    }
    Ok(lines)
}

fn revert_one(kept: &KeptKnob, constants: &dyn Constants) -> Result<String, RevertError> {
    let KeptKnob { name, backing, value, original, search: _ } = kept;
    let had_value = match backing {
        Backing::Plain(_) => {
            let (name, backing, original) = (name.clone(), backing.clone(), original.clone());
            let changed = [ChangedKnob { name, backing, original, ours: vec![value.clone()] }];
            return Ok(end_plain(&changed, value, constants));
        }
        Backing::Constant(_) if matches!(Device::open_to_read_if_loaded(), Ok(None)) => {
            return Ok(format!("{name} has its default, because xk.ko is not loaded"));
        }
        Backing::Constant(constant) => {
            constants.find(constant).map_err(KnobFault::from)?.end_kept(value).map_err(KnobFault::from)?
        }
        Backing::Module(parameter) => {
            if Kernel.look().map_err(KnobFault::from)?.parameter(parameter).is_err() {
                return Ok(format!("{name} does not exist any more"));
            }
            Module::find(parameter).map_err(KnobFault::from)?.end_kept(value, original)?
        }
    };
    Ok(match had_value {
        true => format!("{name} = {original} (restored)"),
        false => format!("{name} is not {value} any more, and stays as it is"),
    })
}

/// Restores a file or a pair of commands that keep `value`.
fn end_plain(changed: &[ChangedKnob; 1], value: &Value, constants: &dyn Constants) -> String {
    let [ChangedKnob { name, backing, original, .. }] = changed;
    let read = || backing.knob(constants).and_then(|mut knob| knob.read()).ok();
    let before = read();
    let line = clean_up(changed, constants).concat();
    // The history is told only of what this changed.
    if before != read() {
        record(name, Action::Revert, value, original);
    }
    line
}

/// Searches for one job, or, with several, for those whose subsystem limits the target.
///
/// # Errors
/// [`Error`]: every knob is as before, except those that a search before the failed one has kept.
pub fn once(mut setup: Setup<'_>, jobs: &[Job]) -> Result<Vec<Summary>, Error> {
    if let Ok(reason) = fs::read_to_string(stop_file(&setup.folder)) {
        return Err(Error::Stopped { reason: reason.trim().to_owned() });
    }
    let store = Store::open(&setup.folder)?;
    let lock = Lock::take(&setup.folder, PATIENCE)?;
    for line in recover(&store, setup.constants)? {
        (setup.say)(&format!("left by a tuner that was killed: {line}"));
    }
    jobs.iter().try_for_each(|job| job.target.check()).map_err(MachineError::from)?;
    let guardian = Guardian::start(&mut setup.guardian, lock.share()?)?;
    let stop = stop_file(&setup.folder);
    let mut keeper = Keeper { store: &store, guardian, interrupted: setup.interrupted, stop, alive: setup.alive };
    setup.publish(&store, true);
    let result = check_and_search(&mut setup, &mut keeper, jobs);
    setup.publish(&store, false);
    result
}

/// Checks what earlier searches of these jobs keep, and searches for the jobs that keep nothing, or nothing any more.
fn check_and_search(setup: &mut Setup<'_>, keeper: &mut Keeper<'_>, jobs: &[Job]) -> Result<Vec<Summary>, Error> {
    let store = keeper.store;
    let mut summaries = check_each(setup, keeper, jobs)?;
    if summaries.iter().any(|summary| summary.is_interrupted) {
        return Ok(summaries);
    }
    let kept = store.kept()?;
    let keeps = |job: &&Job| kept.iter().any(|knob| knob.search == job.name);
    let left: Vec<Job> = jobs.iter().filter(|job| !keeps(job)).cloned().collect();
    let left = present_jobs(setup, store, &left, jobs.len() > 1)?;
    // Errors of the description are reported before a knob is changed.
    left.iter().try_for_each(|job| Machine::find(&job.parameters, setup.constants).map(drop))?;
    match (&left[..], jobs.len()) {
        ([], _) => {}
        ([job], 1) => {
            setup.job = job.clone();
            summaries.push(searched(setup, keeper)?);
        }
        (left, _) => summaries.extend(bottleneck::tune(setup, left, keeper)?),
    }
    Ok(summaries)
}

/// Checks what earlier searches of these jobs keep, and reverts what does not stand. Returns a summary for each that does.
fn check_each(setup: &mut Setup<'_>, keeper: &mut Keeper<'_>, jobs: &[Job]) -> Result<Vec<Summary>, Error> {
    let store = keeper.store;
    let (own, _): (Vec<KeptKnob>, _) = store.kept()?.into_iter().partition(|kept| is_own(kept, jobs));
    let mut summaries = Vec::new();
    let names: BTreeSet<String> = own.iter().map(|kept| kept.search.clone()).collect();
    for name in names {
        let kept: Vec<KeptKnob> = own.iter().filter(|kept| kept.search == name).cloned().collect();
        let reason = match jobs.iter().find(|job| job.name == name) {
            None => "an older version keeps it".into(),
            Some(_) if setup.afresh => "the search is made afresh".into(),
            Some(job) => {
                setup.job = job.clone();
                match check::check(setup, keeper, job, &kept)? {
                    check::Check::Over(reason) => reason,
                    check::Check::Stands(summary) => {
                        summaries.push(summary);
                        continue;
                    }
                }
            }
        };
        store.note(&who(), &json!({ "event": "over", "search": name, "reason": reason }))?;
        for line in revert_each(store, setup.constants, kept)? {
            (setup.say)(&format!("{line}: {reason}"));
        }
        store.forget_setting(&name)?;
    }
    Ok(summaries)
}

/// The jobs without what this machine does not have, and without what other searches keep. Of several jobs, those remain of
/// which something is left.
fn present_jobs(setup: &Setup<'_>, store: &Store, jobs: &[Job], is_one_of_several: bool) -> Result<Vec<Job>, Error> {
    let taken = taken(store, jobs)?;
    let (mut found, mut nothing) = (Vec::new(), None);
    for job in jobs {
        let here = present(job, setup.constants, &taken).and_then(|(job, left_out)| {
            let (job, more) = restorable(job, setup.constants)?;
            Ok((job, [left_out, more].concat()))
        });
        match here {
            Ok((job, left_out)) => {
                for one in &left_out {
                    (setup.say)(&format!("left out: {one}"));
                    store.note(&who(), &json!({ "event": "left out", "search": job.name, "parameter": one }))?;
                }
                found.push(job);
            }
            Err(error @ Error::Machine(MachineError::NothingLeft { .. })) if is_one_of_several => {
                (setup.say)(&format!("left out: {error}"));
                nothing = Some(error);
            }
            Err(error) => return Err(error),
        }
    }
    match nothing.filter(|_| found.is_empty() && jobs.len() > 1) {
        Some(error) => Err(error),
        None => Ok(found),
    }
}

impl Setup<'_> {
    /// Writes metrics. An error is reported, and does not end the search.
    fn publish(&self, store: &Store, at_work: bool) {
        let Some(publisher) = &self.metrics else { return };
        let stopped = stop_file(&self.folder).exists();
        if let Err(error) = publisher.publish(store, at_work, stopped) {
            (self.say)(&format!("metrics: {error}"));
        }
    }
}

/// One search. If a knob is yielded, the search begins again without it, and without the parameters that depend on it.
fn searched(setup: &mut Setup<'_>, keeper: &mut Keeper<'_>) -> Result<Summary, Error> {
    let mut shifts = 0;
    loop {
        match search::search(setup, keeper)? {
            SearchEnd::Summary(summary) => return Ok(summary),
            SearchEnd::Shifted { search, trials } => {
                shifts += 1;
                if shifts == MOST_SHIFTS {
                    return Ok(Summary::unfinished(search, trials));
                }
            }
            SearchEnd::Yielded(name) => {
                let depends = |only: &Option<(String, Vec<Value>)>| only.as_ref().is_some_and(|(on, _)| *on == name);
                setup.job.parameters.retain(|parameter| parameter.name != name && !depends(&parameter.only_if));
                if setup.job.parameters.is_empty() {
                    return Err(MachineError::NoneLeft(name).into());
                }
            }
        }
    }
}

/// How a search ended.
enum SearchEnd {
    /// With a conclusion, or because it was interrupted.
    Summary(Summary),
    /// Something else has changed the knob of this name.
    Yielded(String),
    /// The workload has changed. The search can be resumed when it comes back.
    Shifted {
        /// Number of the search; 0 if it had not begun.
        search: SearchId,
        /// Number of its trials.
        trials: usize,
    },
}

/// Records changes of knobs before they are made, and knows whether to stop.
struct Keeper<'a> {
    store: &'a Store,
    guardian: Guardian,
    interrupted: &'a AtomicBool,
    stop: PathBuf,
    alive: &'a dyn Fn(),
}

impl Keeper<'_> {
    fn release(&mut self, name: &str) -> Result<(), Error> {
        self.store.release(name)?;
        self.guardian.release(name)
    }
}

impl Witness for Keeper<'_> {
    fn record(&mut self, changed: &ChangedKnob) -> Result<(), Error> {
        self.store.record(changed)?;
        self.guardian.record(changed)
    }
}

impl Watch for Keeper<'_> {
    fn running(&mut self, group: Option<i32>) {
        // If the guardian is gone, the next change of a knob fails.
        let _ = self.guardian.running(group);
    }

    fn interrupted(&self) -> bool {
        (self.alive)();
        self.interrupted.load(Ordering::Relaxed) || self.stop.exists()
    }
}
