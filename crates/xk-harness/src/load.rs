//! Load on a kernel while code changes: threads in the spans of `kernel/atomic` with
//! their softirqs, interrupts and NMIs, processes, TCP, a block device, the function tracer,
//! the profiler, and CPU hotplug. Everything is counted.

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{anyhow, ensure, Context, Result};
use serde::{Deserialize, Serialize};

use crate::hotplug::beside_hotplug_for;
use crate::{Atomic, ALL_SPANS};

const THREADS: u32 = 4;
const BLOCK_DEVICE: &str = "/dev/vda";
const TRACING: &str = "/sys/kernel/tracing";
/// The pause of the writer if there is no disk to write to.
const NO_DISK: Duration = Duration::from_millis(100);
/// Time between two times that a CPU is switched off.
const ONLINE: Duration = Duration::from_secs(1);
const PAUSE: Duration = Duration::from_millis(100);
/// Time for which the function tracer is on.
const TRACED: Duration = Duration::from_millis(50);

/// The parts of the load, and how often each ran.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Done {
    #[serde(skip)]
    pub(crate) over: AtomicBool,
    /// Processes that were started.
    pub forks: AtomicU64,
    /// TCP connections.
    pub connections: AtomicU64,
    /// Runs of writes to a block device.
    pub writes: AtomicU64,
    /// How often the function tracer was switched on and off.
    pub tracers: AtomicU64,
    /// Runs of the profiler.
    pub profiles: AtomicU64,
    /// How often a CPU was switched off and on.
    pub hotplugs: u64,
}

impl Done {
    /// The parts that did not run at all.
    #[must_use]
    pub fn missing(&self) -> Vec<&'static str> {
        let counts = [
            ("forks", self.forks.load(Ordering::Relaxed)),
            ("TCP", self.connections.load(Ordering::Relaxed)),
            ("block", self.writes.load(Ordering::Relaxed)),
            ("ftrace", self.tracers.load(Ordering::Relaxed)),
            ("perf", self.profiles.load(Ordering::Relaxed)),
            ("hotplug", self.hotplugs),
        ];
        counts.into_iter().filter(|(_, count)| *count == 0).map(|(name, _)| name).collect()
    }

    /// Whether each part has run that needs no disk. CPUs are switched until the end, and counted then.
    pub(crate) fn has_run(&self) -> bool {
        self.missing().iter().all(|part| ["block", "hotplug"].contains(part))
    }
}

/// One run of a part of the load; whether it succeeded.
type Job = fn() -> Result<bool>;

/// Does `work` under load. Returns how often a CPU was switched off and on.
///
/// # Errors
/// The error of `work`, or of a part of the load.
pub(crate) fn beside_load(done: &Done, work: impl FnOnce() -> Result<()>) -> Result<u64> {
    Atomic.tell("inside 64")?;
    Atomic.tell("pause 5000")?;
    Atomic.start(THREADS, ALL_SPANS)?;
    let jobs: [(&AtomicU64, Job); 5] = [
        (&done.forks, fork),
        (&done.connections, connect),
        (&done.writes, write_blocks),
        (&done.tracers, trace),
        (&done.profiles, profile),
    ];
    let result = std::thread::scope(|scope| {
        let repeat = |(counter, job): (&'_ AtomicU64, Job)| -> Result<()> {
            while !done.over.load(Ordering::Relaxed) {
                if job()? {
                    counter.fetch_add(1, Ordering::Relaxed);
                }
                std::thread::sleep(PAUSE);
            }
            Ok(())
        };
        let threads: Vec<_> = jobs.into_iter().map(|job| scope.spawn(move || repeat(job))).collect();
        let result = beside_hotplug_for(ONLINE, work);
        done.over.store(true, Ordering::Relaxed);
        for thread in threads {
            thread.join().map_err(|_| anyhow!("a thread that makes load panicked"))??;
        }
        result
    });
    Atomic.stop()?;
    Ok(result?.1)
}

/// Whether a program succeeds.
fn command(program: &str, arguments: &[&str]) -> Result<bool> {
    let mut command = Command::new(program);
    let status = command.args(arguments).stdout(Stdio::null()).stderr(Stdio::null()).status();
    Ok(status.with_context(|| program.to_owned())?.success())
}

fn fork() -> Result<bool> {
    command("true", &[])
}

fn connect() -> Result<bool> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let mut client = TcpStream::connect(listener.local_addr()?)?;
    let (mut server, _) = listener.accept()?;
    let mut received = [0; 4096];
    for _ in 0..16 {
        client.write_all(&[7; 4096])?;
        server.read_exact(&mut received)?;
    }
    ensure!(received == [7; 4096], "TCP delivered something else");
    Ok(true)
}

fn write_blocks() -> Result<bool> {
    if !Path::new(BLOCK_DEVICE).exists() {
        std::thread::sleep(NO_DISK);
        return Ok(false);
    }
    command("dd", &["if=/dev/zero", &format!("of={BLOCK_DEVICE}"), "bs=64k", "count=16", "oflag=direct"])
}

/// Switches the function tracer on and off. It traces functions without sites.
fn trace() -> Result<bool> {
    let write = |file: &str, text: &str| fs::write(format!("{TRACING}/{file}"), text).with_context(|| file.to_owned());
    write("set_ftrace_filter", "vfs_read")?;
    for tracer in ["function", "nop"] {
        write("current_tracer", tracer)?;
        std::thread::sleep(TRACED);
    }
    Ok(true)
}

/// Samples both CPUs with their call chains. It fails if one of them is switched off when it
/// starts. It does not look up symbols, which would take minutes.
fn profile() -> Result<bool> {
    let options = "record -q -B -N --synth=no -e cpu-clock -F 199 -g -a -o /dev/null -- sleep 0.5";
    command("perf", &options.split(' ').collect::<Vec<_>>())
}
