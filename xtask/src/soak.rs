//! Everything at once, for a long time, in one guest of each kernel: transitions under threads that would notice, a
//! hundred sites that come and go, policies with maps of every type, modules, processors, tracers, foreign probes,
//! processes, memory that is short, and faults. What is done there is `inside::soak`.
//!
//! In: names of kernels, and a time. Out: a line for each of them. An error is a complaint of the kernel, two values that
//! met in a mode that promises otherwise, a byte of code that differs, or a load that was never there.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{bail, Context, Result};
use clap::ValueEnum;
use serde::Serialize;
use xk_policy::{compile, Headers};

use crate::inside::soak::{Broken, Report};
use crate::lab;
use crate::side_by_side::side_by_side;

/// The kernel reports tasks that have been blocked for this long. Its default, 120 s, is for hardware: on an emulated CPU
/// that shares a core, a load of a hundred sites by patches holds the lock of `xk.ko` for four minutes.
const HUNG_TASK: &str = "sysctl.kernel.hung_task_timeout_secs=600";
/// The kernel may take the TSC of an emulated CPU on a busy host for unstable. It then switches a static key
/// (`__sched_clock_stable`), which changes bytes of its text for good, and the comparison of text reports them. A TSC that
/// is declared reliable is not checked, neither by the clocksource watchdog nor when a CPU comes online.
const TSC: &str = "tsc=reliable";
/// Where the kernel preempts itself as it is told at boot, and is told to.
const PREEMPTED: &str = "amd64";
const ALL: [&str; 5] = [PREEMPTED, "debug", "none", "debian13", "debian13-backports"];
const POLICIES: &str = "xtask/bpf/soak.bpf.c";
/// By the name under which the guest is told.
const MODULES: [(&str, &str); 5] = [
    ("xk", "kernel/xk"),
    ("faulty", "kernel/faulty"),
    ("atomic", "kernel/atomic"),
    ("target", "kernel/test"),
    ("stranger", "kernel/bench"),
];
/// More than the group that reads it may have in memory.
const DISK: &str = "256M";
/// Beside what is asked for: booting, ends, comparing.
const EXTRA_MINUTES: f64 = 25.0;

/// Arguments of `soak`.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Kernels of lab/kernels.toml (default: amd64, debug, none, debian13, debian13-backports)
    #[arg(long)]
    kernel: Vec<String>,
    /// How kernels are told to preempt themselves (default: full for amd64, as they were built for others)
    #[arg(long)]
    preempt: Option<String>,
    /// For this time on each
    #[arg(long, default_value_t = 30.0)]
    minutes: f64,
    /// Sites that are armed and disarmed together
    #[arg(long, default_value_t = 100)]
    sites: usize,
    /// One JSON object on the last line
    #[arg(long)]
    json: bool,
    /// Break something, to see that the soak fails
    #[arg(long)]
    broken: Option<Broken>,
}

/// What came of all kernels.
#[derive(Debug, Serialize)]
struct Outcome {
    kernels: Vec<Kernel>,
}

/// What came of one.
#[derive(Debug, Serialize)]
struct Kernel {
    name: String,
    release: String,
    preempt: Option<String>,
    hours: f64,
    /// The lab's word for how the guest ended.
    verdict: String,
    splats: usize,
    transitions: u64,
    violations: u64,
    text_differs: usize,
    executions: u64,
    missed: u64,
    /// The rest, by name; nothing if the guest did not tell.
    #[serde(flatten)]
    report: Option<Report>,
    /// Why this is a failure.
    failures: Vec<String>,
}

/// Boots a guest of each kernel, and does it there.
///
/// # Errors
/// When something is wrong with a kernel, or was not done there.
pub fn run(arguments: &Arguments) -> Result<()> {
    let names: Vec<&str> = match arguments.kernel.as_slice() {
        [] => ALL.to_vec(),
        chosen => chosen.iter().map(String::as_str).collect(),
    };
    let kernels = side_by_side(&names, |name| soak(name, arguments).with_context(|| (*name).to_owned()))?;
    for kernel in &kernels {
        eprint!("{}", kernel.table());
    }
    let failures: Vec<String> = kernels
        .iter()
        .flat_map(|kernel| kernel.failures.iter().map(|failure| format!("{}: {failure}", kernel.name)))
        .collect();
    if arguments.json {
        println!("{}", serde_json::to_string(&Outcome { kernels })?);
    }
    if failures.is_empty() {
        return Ok(());
    }
    bail!("{}", failures.join("\n"))
}

/// One kernel.
fn soak(name: &str, arguments: &Arguments) -> Result<Kernel> {
    let kernel = lab::kernel_named(name)?;
    let preempt = arguments.preempt.clone().or_else(|| (name == PREEMPTED).then(|| "full".to_owned()));
    // Kept until the next time: a log of an hour is worth a look.
    let broken = arguments.broken.and_then(|broken| broken.to_possible_value());
    // One that must fail may run beside one that must not.
    let folder = broken.map_or(name.to_owned(), |broken| format!("{name}-{}", broken.get_name()));
    let out = lab::target()?.join("soak").join(folder);
    fs::create_dir_all(&out)?;
    let script = script(&kernel, arguments, &out)?;
    let mut append = vec![HUNG_TASK.to_owned(), TSC.to_owned()];
    append.extend(preempt.iter().map(|model| format!("preempt={model}")));
    // The lab multiplies it by the kernel's slowness, too.
    let timeout = ((arguments.minutes + EXTRA_MINUTES) * 60.0).to_string();
    let memory = if kernel.slowness > 1 { "2G" } else { "1G" };
    // A guest whose processor gives up says nothing itself.
    let resets = format!("--qemu-opt=-d cpu_reset -D {}", out.join("resets").display());
    let mut options = vec!["--timeout", &timeout, "--disk", DISK, "--memory", memory, &resets];
    options.extend(append.iter().flat_map(|argument| ["--append", argument.as_str()]));
    eprintln!("soak: {name} ({}) for {} minutes", kernel.release, arguments.minutes);
    let start = Instant::now();
    let guest = out.join("guest");
    let ended = lab::run_on(name, &script, &options, &guest)?;
    let report = ended.printed.lines().last().and_then(|line| serde_json::from_str(line).ok());
    Ok(Kernel::new(name, kernel.release, preempt, start.elapsed(), &ended, report))
}

/// What the guest runs, with everything that it needs.
fn script(kernel: &lab::Kernel, arguments: &Arguments, folder: &Path) -> Result<String> {
    let release = &kernel.release;
    let types = kernel.root.join(format!("usr/src/linux-headers-{release}/vmlinux"));
    let headers = Headers::new(&types, &lab::cache()?, release)?;
    let policies = folder.join("soak.bpf.o");
    fs::write(&policies, compile(&lab::repository()?.join(POLICIES), &headers)?)?;
    let mut script = format!("exec {} inside soak", std::env::current_exe()?.display());
    for (name, folder) in MODULES {
        let module = lab::module(release, folder)?;
        script += &format!(" --{name} {}", module.display());
    }
    script += &format!(" --policies {} --slowness {}", policies.display(), kernel.slowness);
    script += &format!(" --sites {}", arguments.sites);
    script += &format!(" --seconds {}", (arguments.minutes * 60.0).max(1.0) as u64);
    if let Some(broken) = arguments.broken.and_then(|broken| broken.to_possible_value()) {
        script += &format!(" --broken {}", broken.get_name());
    }
    Ok(script)
}

impl Kernel {
    fn new(
        name: &str,
        release: String,
        preempt: Option<String>,
        time: Duration,
        ended: &lab::Ended,
        report: Option<Report>,
    ) -> Self {
        let mut failures: Vec<String> = ended.splats.iter().map(|splat| format!("splat: {}", splat.line)).collect();
        if ended.verdict != "finished" || ended.command_exit != Some(0) {
            failures.push(format!("the guest ended with {} ({:?})", ended.verdict, ended.command_exit));
        }
        match &report {
            Some(report) => failures.extend(report.wrong()),
            None => failures.push("the guest did not say what it had done".into()),
        }
        let sum = |of: fn(&Report) -> u64| report.as_ref().map_or(0, of);
        Self {
            name: name.to_owned(),
            release,
            preempt,
            hours: time.as_secs_f64() / 3600.0,
            verdict: ended.verdict.clone(),
            splats: ended.splats.len(),
            transitions: sum(|report| report.transitions.values().sum()),
            violations: sum(Report::violations),
            text_differs: report.as_ref().map_or(0, |report| report.different.len()),
            executions: sum(|report| report.kprobes.executions + report.others.executions),
            missed: sum(|report| report.kprobes.missed),
            report,
            failures,
        }
    }

    /// For people.
    fn table(&self) -> String {
        let mut text = format!(
            "{} ({}{}): {} transitions, {} executions, {} in which two values met, {} bytes of code differ, {} splats\n",
            self.name,
            self.release,
            self.preempt.iter().map(|model| format!(", preempt={model}")).collect::<String>(),
            self.transitions,
            self.executions,
            self.violations,
            self.text_differs,
            self.splats,
        );
        if let Some(report) = &self.report {
            text += &format!("  {report:?}\n");
        }
        for failure in &self.failures {
            text += &format!("  failed: {failure}\n");
        }
        text
    }
}
