//! Whether two values of a constant ever meet: many transitions in each mode,
//! under threads that compare every value with an earlier one.
//!
//! The mode that promises nothing shows that they would notice. What kprobes do not
//! show to xk (an interrupt above another probe) uses the default; the default is in
//! force in no transition here, so that this can be told from a broken promise, and
//! is counted beside it.

use std::fmt::Write;

use anyhow::{ensure, Context, Result as Fallible};
use serde::Serialize;

use super::{rounded, say};
use crate::inside::atomicity::{Outcome, Report};
use crate::lab;

/// What may be chosen.
#[derive(Debug, clap::Args)]
#[group(skip)]
pub struct Options {
    /// atomicity: transitions in each mode
    #[arg(long, default_value_t = 100_000)]
    transitions: u64,
    /// atomicity: switch one CPU off and on meanwhile
    #[arg(long)]
    hotplug: bool,
    /// atomicity: the kernel preempts itself (`preempt=full`)
    #[arg(long)]
    preempt: bool,
    /// atomicity: threads that look
    #[arg(long, default_value_t = 8)]
    threads: u32,
    /// atomicity: how control reaches the updates: kprobe, detour or patch
    #[arg(long, default_value = "kprobe")]
    backend: String,
    /// atomicity: options of kernel/atomic, such as `inside=4`
    #[arg(long)]
    option: Vec<String>,
}

/// The result; its fields are the fields of the JSON object.
#[derive(Debug, Serialize)]
pub struct Result {
    bench: &'static str,
    kernel: String,
    preemption: String,
    threads: u32,
    backend: String,
    hotplug: bool,
    /// There is none of patches.
    task: Option<Outcome>,
    global: Outcome,
    now: Outcome,
}

/// Builds what is needed, boots one guest and changes values in it.
pub fn run(arguments: &Options) -> Fallible<Result> {
    let kernel = lab::kernel()?;
    let xk = lab::module(&kernel.release, "kernel/xk")?;
    let atomic = lab::module(&kernel.release, "kernel/atomic")?;
    // Patches have no mode task.
    let modes = if arguments.backend == "patch" { 2 } else { 3 };
    say(&format!("{} transitions in a guest on {}", modes * arguments.transitions, kernel.release));
    let mut script = format!(
        "insmod {} && insmod {} && exec {} inside atomicity --module {} --transitions {} --threads {} --backend {}",
        xk.display(),
        atomic.display(),
        std::env::current_exe()?.display(),
        atomic.display(),
        arguments.transitions,
        arguments.threads,
        arguments.backend,
    );
    if arguments.hotplug {
        script += " --hotplug";
    }
    for option in &arguments.option {
        let _ = write!(script, " --option {option}");
    }
    let append: &[&str] = if arguments.preempt { &["--append", "preempt=full"] } else { &[] };
    let printed = lab::run_guest(&script, &[append, &["--timeout", "7200"]].concat())?;
    let last = printed.lines().last().unwrap_or_default();
    let mut report: Report = serde_json::from_str(last).with_context(|| format!("the guest printed: {printed}"))?;
    let mut mode = |name: &str| -> Fallible<Outcome> {
        let mut outcome = report.modes.remove(name).with_context(|| format!("no mode {name}"))?;
        for figure in [&mut outcome.stops, &mut outcome.per_second, &mut outcome.mean_ms, &mut outcome.longest_ms] {
            *figure = rounded(*figure);
        }
        Ok(outcome)
    };
    Ok(Result {
        bench: "atomicity",
        task: if arguments.backend == "patch" { None } else { Some(mode("task")?) },
        global: mode("global")?,
        now: mode("now")?,
        kernel: report.kernel,
        preemption: report.preemption,
        threads: arguments.threads,
        backend: arguments.backend.clone(),
        hotplug: arguments.hotplug,
    })
}

impl Result {
    /// The modes in which two values must not meet.
    fn promised(&self) -> impl Iterator<Item = (&'static str, &Outcome)> {
        self.task.iter().map(|mode| ("task", mode)).chain([("global", &self.global)])
    }

    /// An error if a promise was not kept, or if the check could not have noticed it.
    pub fn verdict(&self) -> Fallible<()> {
        for (name, mode) in self.promised() {
            ensure!(mode.violations == 0, "mode {name}: two values met {} times: {:?}", mode.violations, mode.spans);
            ensure!(mode.blocked == 0, "mode {name}: {} transitions were given up", mode.blocked);
        }
        ensure!(self.now.violations > 0, "no violation in the mode that allows them: this shows nothing");
        Ok(())
    }

    /// For people.
    pub fn table(&self) -> String {
        let mut text = format!(
            "Transitions under {} threads, {}, preemption {}{}\n  {:<8}{:>12}{:>12}{:>8}{:>14}{:>9}{:>8}{:>10}{:>12}\n",
            self.threads,
            self.kernel,
            self.preemption,
            if self.hotplug { ", one CPU switched off and on" } else { "" },
            "mode",
            "completed",
            "violations",
            "missed",
            "rounds",
            "given up",
            "stops",
            "mean ms",
            "per second"
        );
        for (name, mode) in self.promised().chain([("now", &self.now)]) {
            let _ = writeln!(
                text,
                "  {name:<8}{:>12}{:>12}{:>8}{:>14}{:>9}{:>8}{:>10}{:>12}",
                mode.transitions,
                mode.violations,
                mode.missed,
                mode.rounds,
                mode.blocked,
                mode.stops,
                mode.mean_ms,
                mode.per_second
            );
        }
        text
    }
}
