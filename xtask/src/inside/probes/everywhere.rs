//! Probes at the beginning of every function at once, while CPUs come and go: whatever the kernel executes while it
//! changes its own code, handles breakpoints or sets up a CPU meets a jump there.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{ensure, Context, Result};
use serde::{Deserialize, Serialize};
use xk_harness::beside_hotplug_for;
use xk_runtime::{Device, Error, ProbePlace};

use super::{anchor, load, load_module, read};

/// Groups of events that the kernel emits while it enters a handler of breakpoints. A kernel may lack some.
const EVENTS: [&str; 3] = ["notifier", "preemptirq", "rcu"];
const TRACING: &str = "/sys/kernel/tracing";

/// Time between two times that a CPU is switched off.
const ONLINE: Duration = Duration::from_millis(500);
/// How long CPUs come and go at least.
const TIME: Duration = Duration::from_secs(4);

/// What is to be done.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// xk.ko
    #[arg(long)]
    xk: PathBuf,
    /// Instructions
    #[arg(long)]
    drawn: PathBuf,
    /// Use kprobes instead of jumps
    #[arg(long)]
    kprobes: bool,
    /// Trace all functions, and what the kernel does on the way to the handlers of breakpoints
    #[arg(long)]
    traced: bool,
}

/// What was done.
#[derive(Debug, Serialize, Deserialize)]
pub struct Report {
    pub places: usize,
    pub attached: usize,
    /// By xk.ko.
    pub refused: usize,
    pub hits: u64,
    pub hotplugs: u64,
}

/// Attaches to all places that are not refused, in few requests. Returns how many are attached.
fn attach(device: &Device, places: Vec<ProbePlace>) -> Result<usize> {
    let mut attached = 0;
    let mut left = vec![places];
    while let Some(some) = left.pop() {
        match device.attach_probes("everywhere", None, &some, false) {
            Ok(_) => attached += some.len(),
            Err(Error::Refused { .. }) if some.len() > 1 => {
                let (first, second) = some.split_at(some.len() / 2);
                left.extend([second.to_vec(), first.to_vec()]);
            }
            Err(Error::Refused { reason, .. }) => eprintln!("everywhere: {reason}"),
            Err(error) => return Err(error.into()),
        }
    }
    Ok(attached)
}

/// Traces all functions, and what the kernel does on the way to the handlers of breakpoints.
fn trace() -> Result<()> {
    let tracing = Path::new(TRACING);
    let write = |path: PathBuf, text: &str| fs::write(&path, text).with_context(|| path.display().to_string());
    write(tracing.join("current_tracer"), "function")?;
    let groups: Vec<PathBuf> = EVENTS.iter().map(|group| tracing.join("events").join(group)).collect();
    ensure!(groups.iter().any(|group| group.is_dir()), "this kernel has none of the events {EVENTS:?}");
    groups.iter().filter(|group| group.is_dir()).try_for_each(|group| write(group.join("enable"), "1"))
}

/// Does it.
///
/// # Errors
/// When a request fails.
pub fn run(arguments: &Arguments) -> Result<Report> {
    let (drawn, anchor) = (read(&arguments.drawn)?, anchor()?);
    let device = load_module(&arguments.xk)?;
    let chosen = drawn.iter().filter(|one| if arguments.kprobes { one.kprobe } else { one.window > 0 });
    let place = |place: ProbePlace| if arguments.kprobes { place.without_jump() } else { place };
    let places: Vec<ProbePlace> = chosen.map(|one| place(one.place(anchor, 0))).collect();
    ensure!(!places.is_empty(), "no place has a window");
    let number = places.len();
    if arguments.traced {
        trace()?;
    }
    let attached = attach(&device, places)?;
    eprintln!("everywhere: {attached} of {number} are attached; CPUs come and go");
    let ((), hotplugs) = beside_hotplug_for(ONLINE, || {
        std::thread::sleep(TIME);
        // Under the tracer, CPUs that come and go are load enough.
        if arguments.traced {
            return Ok(());
        }
        load::run_all()
    })?;
    let hits = device.probes()?.iter().map(|probe| probe.hits).sum();
    Ok(Report { places: number, attached, refused: number - attached, hits, hotplugs })
}
