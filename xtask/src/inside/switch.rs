//! Guest instructions of one switch between threads: two processes send a byte to and fro through pipes. In a deterministic
//! guest a nanosecond is an instruction.

use std::fs::File;
use std::io::{Read, Write};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{ensure, Context, Result};
use libbpf_rs::{Link, MapCore, ObjectBuilder};
use xk_sched::{Device, Who};

/// Round trips of a sample; each is two switches.
const TRIPS: u32 = 2000;
const SAMPLES: usize = 5;
/// The number of sched_ext's class.
const SCHED_EXT: i32 = 7;

/// Arguments of `inside switch`.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// A policy of `xk_sched.ko`
    #[arg(long, conflicts_with = "object")]
    policy: Option<String>,
    /// An object with eBPF schedulers
    #[arg(long, requires = "scheduler")]
    object: Option<PathBuf>,
    /// Which of them
    #[arg(long)]
    scheduler: Option<String>,
    /// Answer bytes until the end of the input
    #[arg(long)]
    echo: bool,
}

/// Instructions of one switch.
pub fn run(arguments: &Arguments) -> Result<()> {
    if arguments.echo {
        return echo();
    }
    if let Some(policy) = &arguments.policy {
        Device::open()?.choose(policy, Who::Caller)?;
    }
    let _attached = match (&arguments.object, &arguments.scheduler) {
        (Some(object), Some(scheduler)) => Some(attach(object, scheduler)?),
        _ => None,
    };
    println!("{:.1}", measure()?);
    Ok(())
}

fn attach(object: &PathBuf, scheduler: &str) -> Result<Link> {
    let mut open = ObjectBuilder::default().open_file(object)?;
    for mut map in open.maps_mut() {
        let name = map.name().to_string_lossy().into_owned();
        if ["fifo", "local"].contains(&name.as_str()) {
            map.set_autocreate(name == scheduler)?;
        }
    }
    let mut object = open.load()?;
    let mut map =
        object.maps_mut().find(|map| map.name().to_string_lossy() == scheduler).context("no such scheduler")?;
    let link = map.attach_struct_ops()?;
    // The programs belong to the link from now on.
    std::mem::forget(object);
    let parameter = libc::sched_param { sched_priority: 0 };
    // SAFETY: the call reads the structure, which lives until it returns.
    let result = unsafe { libc::sched_setscheduler(0, SCHED_EXT, &parameter) };
    ensure!(result == 0, "SCHED_EXT: {}", std::io::Error::last_os_error());
    Ok(link)
}

/// Unbuffered.
fn pipes() -> Result<[File; 2]> {
    Ok([File::open("/proc/self/fd/0")?, File::options().write(true).open("/proc/self/fd/1")?])
}

fn echo() -> Result<()> {
    let [mut input, mut output] = pipes()?;
    let mut byte = [0];
    while input.read(&mut byte)? == 1 {
        output.write_all(&byte)?;
    }
    Ok(())
}

fn measure() -> Result<f64> {
    let mut child = Command::new(std::env::current_exe()?)
        .args(["inside", "switch", "--echo"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let (mut to, mut from) = (child.stdin.take().context("no input")?, child.stdout.take().context("no output")?);
    let mut trip = || -> Result<()> {
        let mut byte = [0];
        to.write_all(&byte)?;
        Ok(from.read_exact(&mut byte)?)
    };
    for _ in 0..TRIPS / 10 {
        trip()?;
    }
    let mut samples = Vec::new();
    for _ in 0..SAMPLES {
        let begin = Instant::now();
        for _ in 0..TRIPS {
            trip()?;
        }
        samples.push(begin.elapsed().as_nanos() as f64 / f64::from(2 * TRIPS));
    }
    drop((to, from));
    child.wait()?;
    samples.sort_by(f64::total_cmp);
    samples.get(SAMPLES / 2).copied().context("no sample")
}
