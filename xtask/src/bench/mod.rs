//! The benchmarks. Each prints a table for people, or with `--json` one object.

mod analysis;
mod atomicity;
mod coverage;
mod flex;
mod many;
mod probe;
mod sched;
mod sched_effect;
mod transition;
mod trigger;
mod tuner;
mod update;

pub use probe::Code;
pub use trigger::compile_bpf;

use anyhow::Result;
use clap::ValueEnum;

/// Arguments of `bench`.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Which benchmark
    #[arg(value_enum)]
    name: Name,
    /// One JSON object on the last line of each
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    atomicity: atomicity::Options,
    #[command(flatten)]
    transition: transition::Options,
    #[command(flatten)]
    coverage: coverage::Options,
    #[command(flatten)]
    probe: probe::Options,
    #[command(flatten)]
    tuner: tuner::Options,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Name {
    /// Guest instructions that one execution of a probe costs
    Trigger,
    /// What one execution of an eBPF program at an instruction costs, and attaching many
    Probe,
    /// Seconds from a constant to its scope table
    Analysis,
    /// Whether two values ever meet, over many transitions
    Atomicity,
    /// How long a transition takes, beside a livepatch
    Transition,
    /// How much code one jump reaches, and how much the kernel's own probes
    Coverage,
    /// Loading a policy by stage, and changing a value
    Update,
    /// What many policies at once cost Redis, beside as many eBPF kprobes
    Many,
    /// What operations on data structures cost in an extension, in a module and in a process
    Flex,
    /// Whether searches find what there is to find, and what a killed one leaves behind
    Tuner,
    /// The part of `tuner` that is noise: searches of a live target with nothing to find, and checks
    TunerLive,
    /// What a switch between threads costs under policies of xk_sched.ko
    Sched,
    /// What policies of xk_sched.ko gain: a server beside batch work, and three policies at once
    SchedEffect,
    /// All of them
    All,
}

/// Runs one benchmark, or all.
///
/// # Errors
/// When something that is measured does not work, or costs more than it may.
pub fn run(arguments: &Arguments) -> Result<()> {
    let chosen = |name| arguments.name == Name::All || arguments.name == name;
    // Another benchmark is worth running all the same.
    of_constants(arguments, &chosen)?.and(of_others(arguments, &chosen)?)
}

/// Probes, and what changes constants.
fn of_constants(arguments: &Arguments, chosen: &impl Fn(Name) -> bool) -> Result<Result<()>> {
    let json = arguments.json;
    let mut verdict = Ok(());
    if chosen(Name::Trigger) {
        verdict = verdict.and(judge(json, &trigger::run()?, trigger::Result::table, trigger::Result::verdict)?);
    }
    if chosen(Name::Probe) {
        verdict =
            verdict.and(judge(json, &probe::run(&arguments.probe)?, probe::Result::table, probe::Result::verdict)?);
    }
    if chosen(Name::Atomicity) {
        verdict = verdict.and(judge(
            json,
            &atomicity::run(&arguments.atomicity)?,
            atomicity::Result::table,
            atomicity::Result::verdict,
        )?);
    }
    if chosen(Name::Transition) {
        verdict = verdict.and(judge(
            json,
            &transition::run(&arguments.transition)?,
            transition::Result::table,
            transition::Result::verdict,
        )?);
    }
    Ok(verdict)
}

/// Policies, extensions, schedulers, the tuner, and analyses.
fn of_others(arguments: &Arguments, chosen: &impl Fn(Name) -> bool) -> Result<Result<()>> {
    let json = arguments.json;
    let mut verdict = Ok(());
    if chosen(Name::Update) {
        verdict = verdict.and(judge(json, &update::run()?, update::Result::table, update::Result::verdict)?);
    }
    if chosen(Name::Many) {
        verdict = verdict.and(judge(json, &many::run()?, many::Result::table, many::Result::verdict)?);
    }
    if chosen(Name::Flex) {
        verdict = verdict.and(judge(json, &flex::run()?, flex::Result::table, flex::Result::verdict)?);
    }
    if chosen(Name::Sched) {
        verdict = verdict.and(judge(json, &sched::run()?, sched::Result::table, sched::Result::verdict)?);
    }
    if chosen(Name::SchedEffect) {
        use sched_effect::Result;
        verdict = verdict.and(judge(json, &sched_effect::run()?, Result::table, Result::verdict)?);
    }
    if chosen(Name::Coverage) {
        verdict = verdict.and(judge(
            json,
            &coverage::run(&arguments.coverage)?,
            coverage::Coverage::table,
            coverage::Coverage::verdict,
        )?);
    }
    if chosen(Name::Tuner) {
        verdict =
            verdict.and(judge(json, &tuner::run(&arguments.tuner)?, tuner::Result::table, tuner::Result::verdict)?);
    }
    // It is part of `tuner`.
    if arguments.name == Name::TunerLive {
        verdict = verdict.and(judge(
            json,
            &tuner::Live::measure(&arguments.tuner)?,
            tuner::Live::table,
            tuner::Live::verdict,
        )?);
    }
    if chosen(Name::Analysis) {
        show(json, &analysis::run()?, analysis::Result::table)?;
    }
    Ok(verdict)
}

/// Shows a result, and returns whether it is as it must be.
fn judge<T: serde::Serialize>(
    json: bool,
    result: &T,
    table: impl Fn(&T) -> String,
    verdict: impl Fn(&T) -> Result<()>,
) -> Result<Result<()>> {
    show(json, result, table)?;
    Ok(verdict(result))
}

fn show<T: serde::Serialize>(json: bool, result: &T, table: impl Fn(&T) -> String) -> Result<()> {
    if json {
        println!("{}", serde_json::to_string(result)?);
    } else {
        print!("{}", table(result));
    }
    Ok(())
}

fn say(line: &str) {
    eprintln!("bench: {line}");
}

/// Three places behind the point are as much as any of this means.
fn rounded(value: f64) -> f64 {
    (value * 1000.0).round() / 1000.0
}
