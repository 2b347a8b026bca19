//! What this program does when it runs inside a guest, started by itself on the
//! host: the last line that it prints is one JSON object.

pub mod arm;
pub mod atomicity;
pub mod flex;
pub mod fuzz;
pub mod hold;
pub mod live;
pub mod memcached;
pub mod objects;
pub mod probes;
pub mod redis;
pub mod sched;
pub mod sched_effect;
pub mod soak;
pub mod stress;
pub mod structures;
pub mod switch;
pub mod traced;
pub mod transition;
pub mod tuner;
pub mod update;

use std::path::Path;

use anyhow::{ensure, Result};

/// Arguments of `inside`.
#[derive(Debug, clap::Args)]
pub struct Inside {
    #[command(subcommand)]
    work: Work,
}

#[derive(Debug, clap::Subcommand)]
enum Work {
    /// Arm and disarm a hundred sites, under load
    Arm(arm::Arguments),
    /// Change values under threads that would notice
    Atomicity(atomicity::Arguments),
    /// End tunes in every way, under load
    Stress(stress::Arguments),
    /// Everything at once
    Soak(soak::Arguments),
    /// Change the maps of policies until it is over
    Companion(soak::companion::Arguments),
    /// Take all memory that is available, again and again
    Hog(soak::Hog),
    /// End runs of rewritten eBPF programs
    Flex(flex::Arguments),
    /// Execute the same operations on data structures in an extension, a module and a process
    Fuzz(fuzz::Arguments),
    /// Load each program of many objects by itself
    Objects(objects::Arguments),
    /// Load each program of an object, until one takes too long
    ObjectsWorker(objects::Worker),
    /// Keep probes attached until the end of the input
    Hold(hold::Arguments),
    /// Search where there is nothing to find, and check what is kept
    Live(live::Arguments),
    /// Measure requests of memcached's protocol
    Memcached(memcached::Arguments),
    /// Measure requests of Redis' protocol
    Redis(redis::Arguments),
    /// Own tunes until this process is killed
    Own(stress::Arguments),
    /// Check the probes of xk.ko
    Probes(probes::Arguments),
    /// Measure a server beside other work
    SchedEffect(sched_effect::Arguments),
    /// Let policies make mistakes
    SchedFaults(sched::FaultArguments),
    /// Move threads between policies
    SchedRounds(sched::RoundArguments),
    /// Measure operations on data structures
    Structures(structures::Arguments),
    /// Measure what a switch between threads costs
    Switch(switch::Arguments),
    /// Measure what the counters of sensors cost the threads that are traced
    Traced,
    /// Measure how long transitions take
    Transition(transition::Arguments),
    /// Kill tuners, and read sensors
    Tuner(tuner::Arguments),
    /// Measure how long loading policies and changing a value takes
    Update(update::Arguments),
}

/// Does it.
///
/// # Errors
/// When this is no guest, or what is done there fails.
pub fn run(arguments: &Inside) -> Result<()> {
    // The lab's init: none of this may happen on a machine that is in use.
    ensure!(Path::new("/run/xk/command").exists(), "this runs in a guest of the lab only");
    match &arguments.work {
        Work::Arm(arguments) => show(&arm::run(arguments)?),
        Work::Atomicity(arguments) => show(&atomicity::run(arguments)?),
        Work::Flex(arguments) => show(&flex::run(arguments)?),
        Work::Fuzz(arguments) => show(&fuzz::run(arguments)?),
        Work::Soak(arguments) => show(&soak::run(arguments)?),
        Work::Companion(arguments) => show(&soak::companion::run(arguments)?),
        Work::Hog(arguments) => show(&soak::hog(arguments)?),
        Work::Stress(arguments) => show(&stress::run(arguments)?),
        Work::Own(arguments) => stress::own(arguments),
        Work::Probes(arguments) => probes::run(arguments),
        Work::Objects(arguments) => show(&objects::run(arguments)?),
        Work::ObjectsWorker(arguments) => objects::worker(arguments),
        Work::Hold(arguments) => show(&hold::run(arguments)?),
        Work::Live(arguments) => show(&live::run(arguments)?),
        Work::Memcached(arguments) => show(&memcached::run(arguments)?),
        Work::Redis(arguments) => show(&redis::run(arguments)?),
        Work::SchedEffect(arguments) => show(&sched_effect::run(arguments)?),
        Work::SchedFaults(arguments) => sched::faults(arguments),
        Work::SchedRounds(arguments) => show(&sched::rounds(arguments)?),
        Work::Structures(arguments) => show(&structures::run(arguments)?),
        Work::Switch(arguments) => switch::run(arguments),
        Work::Traced => show(&traced::run()?),
        Work::Transition(arguments) => show(&transition::run(arguments)?),
        Work::Tuner(arguments) => show(&tuner::run(arguments)?),
        Work::Update(arguments) => show(&update::run(arguments)?),
    }
}

fn show<T: serde::Serialize>(result: &T) -> Result<()> {
    println!("{}", serde_json::to_string(result)?);
    Ok(())
}
