//! What keeps a kernel busy while code changes: threads in the spans of `kernel/atomic` with
//! their softirqs, interrupts and NMIs, processes, TCP, a block device, the function tracer,
//! the profiler, and a processor that comes and goes. Everything is counted.

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
/// Without a disk there is nothing to write to.
const NO_DISK: Duration = Duration::from_millis(100);
/// Between two times that a processor is switched off.
const ONLINE: Duration = Duration::from_secs(1);
const PAUSE: Duration = Duration::from_millis(100);
/// The function tracer is on for so long.
const TRACED: Duration = Duration::from_millis(50);

/// What was done, and how often.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Done {
    #[serde(skip)]
    pub(crate) over: AtomicBool,
    /// Processes that were started.
    pub forks: AtomicU64,
    /// Connections over TCP.
    pub connections: AtomicU64,
    /// Runs of writes to a block device.
    pub writes: AtomicU64,
    /// How often the function tracer was switched on and off.
    pub tracers: AtomicU64,
    /// Runs of the profiler.
    pub profiles: AtomicU64,
    /// How often a processor was switched off and on.
    pub hotplugs: u64,
}

impl Done {
    /// What was not done at all.
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
}

/// Something that keeps the kernel busy, once; whether it did.
type Job = fn() -> Result<bool>;

/// Does `work` meanwhile; how often a processor was switched off and on.
///
/// # Errors
/// What `work` says, or what keeps the kernel from being busy.
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

/// The function tracer, on and off; what it traces are functions without sites.
fn trace() -> Result<bool> {
    let write = |file: &str, text: &str| fs::write(format!("{TRACING}/{file}"), text).with_context(|| file.to_owned());
    write("set_ftrace_filter", "vfs_read")?;
    for tracer in ["function", "nop"] {
        write("current_tracer", tracer)?;
        std::thread::sleep(TRACED);
    }
    Ok(true)
}

/// Samples of both processors with their call chains. It fails where one of them goes while it
/// begins; what it would look up by name later is left out, which would take minutes.
fn profile() -> Result<bool> {
    let options = "record -q -B -N --synth=no -e cpu-clock -F 199 -g -a -o /dev/null -- sleep 0.5";
    command("perf", &options.split(' ').collect::<Vec<_>>())
}
