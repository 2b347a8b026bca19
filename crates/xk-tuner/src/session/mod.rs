//! One search on this machine, from the lock to the conclusion.
//!
//! In: a job. Out: what was found, in force if it was proved better. However it ends, everything else is as it was:
//! by this code, else by the guardian and the kernel, else by the next start.

mod bottleneck;
pub mod machine;
mod search;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::json;

use crate::description::{Backing, EngineName, Job};
use crate::engine::{Conclusion, Engine, Exhaustive, Orthogonal, Racing};
use crate::guardian::{clean_up, Guardian};
use crate::knob::{Constants, Held, Module};
use crate::metrics::Publisher;
use crate::modules::{Kernel, Modules};
use crate::store::{Begun, Context, Lock, SearchId, Store};
use crate::target::Watch;
use crate::{Error, Point, Space, Value};
use machine::{Kept, Machine, Witness};

/// How long the guardian of a tuner that died may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// What a session needs from the outside.
pub struct Setup<'a> {
    /// What to search; of several, the first is as good as any.
    pub job: Job,
    /// Where the memory is.
    pub folder: PathBuf,
    /// Who knows perf-consts.
    pub constants: &'a dyn Constants,
    /// A program that ends up in [`crate::guardian::serve`].
    pub guardian: Command,
    /// The kernel build.
    pub build_id: String,
    /// Whether to search although something is remembered.
    pub afresh: bool,
    /// Set when the session is to end.
    pub interrupted: &'a AtomicBool,
    /// Gets a line whenever something happens.
    pub say: &'a dyn Fn(&str),
    /// Where metrics go after each trial, if anywhere.
    pub metrics: Option<Publisher>,
    /// Called several times per second, as long as the session gets on.
    pub alive: &'a dyn Fn(),
}

/// How a session ended.
#[derive(Debug, Clone, PartialEq)]
pub struct Summary {
    /// Number of the search.
    pub search: SearchId,
    /// What it came to; `None` if it was interrupted, and will go on.
    pub conclusion: Option<Conclusion>,
    /// Trials in all, those of earlier sessions included.
    pub trials: usize,
    /// What it came to, in words.
    pub sentence: String,
    /// What stays in force.
    pub kept: Vec<Kept>,
    /// With several targets, the settings that leave something to choose, in words.
    pub front: Vec<String>,
}

/// A search, on this machine: what its memories are valid for.
#[derive(Debug, Clone)]
pub struct Place {
    /// What the search is called.
    pub name: String,
    /// This machine, and the description.
    pub context: Context,
    space: Space,
}

impl Place {
    /// Of a job. Reads knobs, and changes nothing.
    ///
    /// # Errors
    /// As [`Machine::find`].
    pub fn of(job: &Job, constants: &dyn Constants, build_id: &str) -> Result<Self, Error> {
        let (_, space) = Machine::find(&job.parameters, constants)?;
        Ok(Self { name: job.name.clone(), context: search::context(job, build_id, &space), space })
    }

    /// The point of a setting, if this machine has it.
    #[must_use]
    pub fn point_of(&self, setting: &BTreeMap<String, Value>) -> Option<Point> {
        search::point_of(&self.space, setting)
    }

    #[cfg(test)]
    pub(crate) fn new(name: &str, context: Context, space: Space) -> Self {
        Self { name: name.to_owned(), context, space }
    }
}

/// What stops every tuner on a machine until it is removed.
#[must_use]
pub fn stop_file(folder: &Path) -> PathBuf {
    folder.join("stop")
}

/// The engine of a search, with everything that it needs to be the same again.
#[must_use]
pub fn engine(begun: &Begun) -> Box<dyn Engine> {
    match begun.engine {
        EngineName::Racing => Box::new(Racing {
            seed: begun.seed,
            minimum: begun.minimum,
            warm: begun.warm.clone(),
            others: begun.others.clone(),
        }),
        EngineName::Orthogonal => Box::new(Orthogonal),
        EngineName::Exhaustive => Box::new(Exhaustive),
    }
}

/// Who is at work, for the journal.
#[must_use]
pub fn who() -> String {
    let user = std::env::var("SUDO_USER").or_else(|_| std::env::var("USER")).unwrap_or_else(|_| "root".into());
    format!("xk tune, process {}, {user}", std::process::id())
}

/// Puts back what a tuner that died left changed; what it came to. The lock must be held.
///
/// # Errors
/// [`Error::Store`].
pub fn recover(store: &Store) -> Result<Vec<String>, Error> {
    let held = store.held()?;
    // The store lists the last first.
    let held: Vec<Held> = held.into_iter().rev().collect();
    let lines = clean_up(&held);
    for (one, line) in held.iter().zip(&lines) {
        store.note(&who(), &json!({ "event": "recovered", "knob": one.name, "outcome": line }))?;
        store.release(&one.name)?;
    }
    Ok(lines)
}

/// Puts back what earlier searches kept, unless somebody else has changed it since; what it came to.
///
/// # Errors
/// [`Error::Store`], [`Error::Machine`].
pub fn revert(store: &Store, constants: &dyn Constants) -> Result<Vec<String>, Error> {
    let mut lines = Vec::new();
    for Kept { name, backing, value, original } in store.kept()? {
        let line = match backing {
            Backing::Plain(plain) => {
                let held = Held { name: name.clone(), plain, original, ours: vec![value] };
                clean_up(&[held]).remove(0)
            }
            Backing::Constant(constant) => {
                let found = constants.find(&constant).map_err(|reason| Error::Machine(format!("{name}: {reason}")))?;
                match found.end_kept(&value).map_err(|error| Error::Machine(format!("{name}: {error}")))? {
                    true => format!("{name} = {original} (put back)"),
                    false => format!("{name} is not {value} any more, and stays as it is"),
                }
            }
            Backing::Module(place) => revert_described(&name, &place, &value, &original)?,
        };
        store.keep_no_longer(&name)?;
        store.note(&who(), &json!({ "event": "reverted", "knob": name, "outcome": line }))?;
        lines.push(line);
    }
    Ok(lines)
}

/// Puts back what a search kept of a parameter that a module describes.
fn revert_described(name: &str, place: &str, value: &Value, original: &Value) -> Result<String, Error> {
    let failed = |why: &dyn std::fmt::Display| Error::Machine(format!("{name}: {why}"));
    if Kernel.look().map_err(|error| failed(&error))?.parameter(place).is_err() {
        return Ok(format!("{name} is not there any more"));
    }
    let done = Module::find(place).map_err(|error| failed(&error))?.end_kept(value, original);
    Ok(match done.map_err(|error| failed(&error))? {
        true => format!("{name} = {original} (put back)"),
        false => format!("{name} is not {value} any more, and stays as it is"),
    })
}

/// Searches once for each of these jobs, or, of several, for those whose subsystem holds the target up.
///
/// # Errors
/// [`Error`]; everything is as it was then, but for what searches before it have kept.
pub fn once(mut setup: Setup<'_>, jobs: &[Job]) -> Result<Vec<Summary>, Error> {
    if let Ok(reason) = fs::read_to_string(stop_file(&setup.folder)) {
        return Err(Error::Stopped(reason.trim().to_owned()));
    }
    let store = Store::open(&setup.folder)?;
    let lock = Lock::take(&setup.folder, PATIENCE)?;
    for line in recover(&store)? {
        (setup.say)(&format!("left by a tuner that was killed: {line}"));
    }
    for line in revert(&store, setup.constants)? {
        (setup.say)(&format!("kept by an earlier search, and compared anew: {line}"));
    }
    // Everything that can be wrong with the description is found before anything runs.
    for job in jobs {
        Machine::find(&job.parameters, setup.constants)?;
        job.target.check().map_err(|error| Error::Machine(error.to_string()))?;
    }
    let guardian = Guardian::start(&mut setup.guardian, lock.share()?)?;
    let stop = stop_file(&setup.folder);
    let mut keeper = Keeper { store: &store, guardian, interrupted: setup.interrupted, stop, alive: setup.alive };
    setup.publish(&store, true);
    let result = match jobs {
        [_] => searched(&mut setup, &mut keeper).map(|summary| vec![summary]),
        _ => bottleneck::tune(&mut setup, jobs, &mut keeper),
    };
    setup.publish(&store, false);
    result
}

impl Setup<'_> {
    /// Tells whoever watches. That this fails is said, and no reason to end a search.
    fn publish(&self, store: &Store, at_work: bool) {
        let Some(publisher) = &self.metrics else { return };
        let stopped = stop_file(&self.folder).exists();
        if let Err(error) = publisher.publish(store, at_work, stopped) {
            (self.say)(&format!("metrics: {error}"));
        }
    }
}

/// One search, without the knobs that somebody else has changed meanwhile.
fn searched(setup: &mut Setup<'_>, keeper: &mut Keeper<'_>) -> Result<Summary, Error> {
    loop {
        match search::search(setup, keeper)? {
            End::Summary(summary) => return Ok(summary),
            // The rest of the parameters is searched without it.
            End::Without(name) => {
                let depends = |only: &Option<(String, Vec<Value>)>| only.as_ref().is_some_and(|(on, _)| *on == name);
                setup.job.parameters.retain(|parameter| parameter.name != name && !depends(&parameter.only_if));
                if setup.job.parameters.is_empty() {
                    return Err(Error::Machine(format!("{name} was the last parameter that could be tuned")));
                }
            }
        }
    }
}

enum End {
    Summary(Summary),
    /// This knob is somebody else's.
    Without(String),
}

/// Who is told before anything changes, and asked whether to go on.
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
    fn hold(&mut self, held: &Held) -> Result<(), Error> {
        self.store.hold(held)?;
        self.guardian.hold(held)
    }
}

impl Watch for Keeper<'_> {
    fn running(&mut self, group: Option<i32>) {
        // If it is gone, the next change is refused.
        let _ = self.guardian.running(group);
    }

    fn interrupted(&self) -> bool {
        (self.alive)();
        self.interrupted.load(Ordering::Relaxed) || self.stop.exists()
    }
}
