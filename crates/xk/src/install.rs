//! Loads the policies of an object in one transaction, for `xk load` and `xk set --pid …`.
//!
//! Everything that can be wrong is found before the transition that puts the policies into force: the kernel verifies the
//! programs, every constant is loaded with its default and given its policy, and the other programs of the object are
//! attached. If anything fails, nothing is left.

use std::path::Path;
use std::time::{Duration, Instant};

use xk_apply::{load_parts, refuse_conflicts, TransitionOptions};
use xk_kernel::KernelId;
use xk_policy::{give, groups, parts, refuse_other_build, show_maps, Group, Part, Programs};
use xk_runtime::{BackendChoice, Change, Destination, Device, Mode, Rules, Tune};
use xk_store::{Addresses, Folders, Tables};

use crate::exit::{Failure, Result};
use crate::output::Paint;
use crate::signals;
use crate::sites::{self, describe, warn};

/// How long the stages took.
#[derive(Debug)]
pub struct Clock {
    started: Instant,
    stages: Vec<String>,
}

impl Clock {
    /// Starts now.
    pub fn new() -> Self {
        Self { started: Instant::now(), stages: Vec::new() }
    }

    /// Ends a stage.
    pub fn stage(&mut self, name: &str) {
        self.stages.push(format!("{name} {:.1} ms", self.started.elapsed().as_secs_f64() * 1e3));
        self.started = Instant::now();
    }
}

/// How long policies stay, and how they come into force.
#[derive(Debug)]
pub struct Stay {
    /// They end with this process.
    pub hold: bool,
    /// They end after this time.
    pub lease: Option<Duration>,
    /// The requested backend.
    pub backend: BackendChoice,
    /// The transition.
    pub transition: TransitionOptions,
}

/// Loads the policies of an object. `source` is the file that `xk status` names.
pub fn install(object: &[u8], name: &str, source: &Path, stay: &Stay, mut clock: Clock) -> Result {
    let backend = Rules::read()?.deciding(stay.backend)?;
    let folders = Folders::from_environment();
    let kernel = KernelId::live()?;
    let tables = Tables::read(&folders, &kernel.build_id)?;
    let entries = xk_policy::entries(object)?;
    refuse_other_build(&entries, &kernel.build_id)?;
    let parts = parts(&entries, &folders, &tables)?;
    let device = Device::open()?;
    let (tunes, groups) = groups(&device)?;
    refuse_conflicts(name, &parts, &tunes, &groups)?;
    let addresses = Addresses::live(parts.iter().map(|part| part.table))?;
    let mut programs = Programs::load(object)?;
    clock.stage("verify");
    // From here on, only SIGKILL ends the process before the end; the kernel reverts everything then.
    signals::hold_back();
    let mine = load_parts(&device, &parts, &addresses, backend)?;
    let ids: Vec<u32> = mine.iter().map(Tune::id).collect();
    let group = give(&device, &programs, &parts, &ids, name, source)?;
    clock.stage("register");
    Group::forget(name);
    pin_maps(&mut programs, name);
    let decided = |(part, tune): (&Part<'_>, &Tune)| Change {
        id: tune.id(),
        to: Destination::Policy(part.table.constant.default),
    };
    let changes: Vec<Change> = parts.iter().zip(&mine).map(decided).collect();
    let mode = stay.transition.mode(mode_of(&parts), parts.iter().map(|part| part.table), &warn)?;
    let transition = stay.transition.run(&device, &changes, mode, &warn).map_err(Failure::from);
    let transition = transition
        .and_then(|done| group.record().map(|()| done).map_err(Failure::from))
        .inspect_err(|_| Group::forget(name))?;
    clock.stage("transition");
    report(&parts, &group);
    println!("{}", describe(&xk_apply::Done { transition, mode }));
    println!("{}", Paint::stdout().dim(&clock.stages.join(", ")));
    if stay.hold {
        return hold(&device, &mine, &stay.transition, mode, &group);
    }
    keep(&device, mine, stay.lease, &group)
}

/// The mode that the constants need together.
pub fn mode_of(parts: &[Part<'_>]) -> Mode {
    parts.iter().map(|part| part.table.mode).max().unwrap_or(Mode::Now)
}

/// Pins the maps. The policies work without.
pub fn pin_maps(programs: &mut Programs, name: &str) {
    if let Err(hidden) = show_maps(programs, name) {
        warn(&hidden.into());
    }
}

/// Shows which program decides which constant.
pub fn report(parts: &[Part<'_>], group: &Group) {
    let paint = Paint::stdout();
    for part in parts {
        println!(
            "{} decided by {} ({})",
            paint.strong(part.table.constant.title()),
            part.entry.program,
            part.entry.place()
        );
    }
    if !group.companions.is_empty() {
        println!("  companions: {}", group.companions.join(", "));
    }
}

/// Lets the policies outlive this process.
fn keep(device: &Device, tunes: Vec<Tune>, lease: Option<Duration>, group: &Group) -> Result {
    for tune in &tunes {
        device.lease(tune.id(), lease)?;
    }
    for tune in tunes {
        tune.detach()?;
    }
    println!("in force {}until `xk unload {}`, or until the next boot", sites::lease(lease), group.name);
    Ok(())
}

fn hold(device: &Device, tunes: &[Tune], options: &TransitionOptions, mode: Mode, group: &Group) -> Result {
    println!("held by process {}; the policies end when it ends", std::process::id());
    signals::wait();
    let changes: Vec<Change> = tunes.iter().map(|tune| Change { id: tune.id(), to: Destination::Unload }).collect();
    options.run(device, &changes, mode, &warn)?;
    Group::forget(&group.name);
    println!("{} unloaded: the defaults are in force again", group.name);
    Ok(())
}
