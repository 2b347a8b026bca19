//! Processes and threads that begin and end, and memory that is short.

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result};

use super::{Soak, PAUSE, STOP};

/// Begins and ends processes until the file is there, with a rest after each eight, and says how many.
const FORK: &str = r#"n=0; while [ ! -e "$0" ]; do (:); (:); (:); (:); (:); (:); (:); (:); n=$((n+8)); sleep "$1"; done
echo "$n""#;
/// Reads more of a disk than its control group may have.
const READ: &str = r#"echo $$ >"$1/cgroup.procs"; while [ ! -e "$0" ]; do dd if=/dev/vda of=/dev/null bs=1M count=64; sleep "$2"; done"#;
const ROOT: &str = "/sys/fs/cgroup";
pub(super) const CGROUP: &str = "/sys/fs/cgroup/xk_soak";
const CGROUP_BYTES: u64 = 48 << 20;
/// What is left of what is available; the rest must be reclaimed.
const LEFT_KB: u64 = 96 << 10;
const CHUNK: usize = 4 << 20;
const PAGE: usize = 4096;
const THREADS: usize = 16;

/// Processes.
pub(super) fn forks(soak: &Soak<'_>) -> Result<()> {
    let output = Command::new("sh")
        .args(["-c", FORK, STOP, &soak.pause().as_secs_f64().to_string()])
        .stdout(Stdio::piped())
        .spawn()?
        .wait_with_output()?;
    let text = String::from_utf8(output.stdout)?;
    soak.report().forks += text.trim().parse::<u64>().with_context(|| format!("forks: {text}"))?;
    Ok(())
}

/// Threads.
pub(super) fn threads(soak: &Soak<'_>) -> Result<()> {
    while !soak.over() {
        let began = Instant::now();
        std::thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(std::thread::yield_now);
            }
        });
        soak.report().threads += THREADS as u64;
        soak.rest(began);
    }
    Ok(())
}

/// A control group, and all of the machine.
pub(super) fn memory(soak: &Soak<'_>) -> Result<()> {
    let mut reader = reader(soak)?;
    let before = scanned()?;
    let mut hog = Command::new(std::env::current_exe()?);
    let output = hog
        .args(["inside", "hog", "--stop", STOP, "--slowness", &soak.arguments.slowness.to_string()])
        .stdout(Stdio::piped())
        .spawn()?
        .wait_with_output()?;
    reader.wait()?;
    let mut report = soak.report();
    report.pressure.scanned += scanned()?.saturating_sub(before);
    // One that was killed for the memory that it took has done its duty.
    report.pressure.hogs += String::from_utf8(output.stdout)?.trim().parse().unwrap_or(1);
    Ok(())
}

/// Arguments of the process that takes memory.
#[derive(Debug, clap::Args)]
pub struct Hog {
    /// The file that says when it is over
    #[arg(long)]
    stop: PathBuf,
    /// How much longer everything takes on this kernel
    #[arg(long)]
    slowness: u32,
}

/// Takes what is available, gives it back, and begins again; how often.
///
/// # Errors
/// When the kernel does not say how much is available.
pub fn hog(arguments: &Hog) -> Result<u64> {
    let mut times = 0;
    while !arguments.stop.exists() {
        let mut taken: Vec<Vec<u8>> = Vec::new();
        while available_kb()? > LEFT_KB && !arguments.stop.exists() {
            let mut chunk = vec![0; CHUNK];
            chunk.iter_mut().step_by(PAGE).for_each(|byte| *byte = 1);
            taken.push(std::hint::black_box(chunk));
        }
        times += 1;
        std::thread::sleep(PAUSE);
        drop(taken);
        std::thread::sleep(PAUSE * 20 * arguments.slowness);
    }
    Ok(times)
}

/// In a group that is too small for what it reads.
fn reader(soak: &Soak<'_>) -> Result<Child> {
    let set = |file: &str, text: &str| fs::write(file, text).with_context(|| file.to_owned());
    set(&format!("{ROOT}/cgroup.subtree_control"), "+memory")?;
    fs::create_dir_all(CGROUP)?;
    set(&format!("{CGROUP}/memory.max"), &CGROUP_BYTES.to_string())?;
    let mut command = Command::new("sh");
    Ok(command
        .args(["-c", READ, STOP, CGROUP, &(soak.pause() * 5).as_secs_f64().to_string()])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()?)
}

fn available_kb() -> Result<u64> {
    let text = fs::read_to_string("/proc/meminfo")?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:")).context("no MemAvailable")?;
    Ok(line.trim().trim_end_matches(" kB").parse()?)
}

/// Pages that were looked at for reclaim, of the machine and of the group.
fn scanned() -> Result<u64> {
    let text = fs::read_to_string("/proc/vmstat")? + &fs::read_to_string(format!("{CGROUP}/memory.stat"))?;
    let number = |line: &str| {
        let (name, number) = line.split_once(' ')?;
        ["pgscan", "pgscan_kswapd", "pgscan_direct"].contains(&name).then(|| number.parse::<u64>().ok())?
    };
    Ok(text.lines().filter_map(number).sum())
}
