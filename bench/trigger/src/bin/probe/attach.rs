//! How long it takes to attach probes to many instructions of the kernel, and to detach them:
//! those of xk.ko at once, and as many kprobes, which perf attaches one after the other.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{ensure, Context, Result};
use serde::Serialize;
use xk_bench_trigger::tracer::Program;
use xk_runtime::{Device, ProbePlace};

use crate::places::Site;

/// What was measured; times are the guest's.
#[derive(Debug, Serialize)]
pub struct Attached {
    sites: usize,
    /// Of these, by a jump.
    jumps: u32,
    seconds_guest: f64,
    stops: u32,
    bytes_per_site: f64,
    detach_seconds_guest: f64,
    detach_stops: u32,
    /// Executions meanwhile.
    hits: u64,
    /// What kprobes at the same instructions take, with an eBPF program through perf.
    kprobes: Kprobes,
}

#[derive(Debug, Serialize)]
struct Kprobes {
    sites: usize,
    /// Instructions that perf refuses.
    refused: usize,
    seconds_guest: f64,
    detach_seconds_guest: f64,
}

/// Attaches all, and detaches them; then as many of them as are in `by_kprobes`, by kprobes.
///
/// # Errors
/// When the kernel refuses one.
pub fn attach(device: &Device, objects: &Path, sites: &[Site], by_kprobes: &[Site]) -> Result<Attached> {
    let program = Program::load(&objects.join("empty.bpf.o"))?;
    let places: Vec<ProbePlace> = sites.iter().map(|site| site.probe).collect();
    eprintln!("bench: {} sites at once", sites.len());
    let (attached, time) = timed(|| Ok(device.attach_probes("many", Some(program.fd()?), &places, false)?))?;
    let known = device.probes()?.into_iter().find(|known| known.id == attached.id).context("it is gone")?;
    ensure!(known.places as usize == sites.len(), "{} of {} sites are probed", known.places, sites.len());
    let (detach_stops, detach) = timed(|| Ok(device.detach_probes(attached.id)?))?;
    eprintln!("bench: {:.3} s, {} stops; kprobes", time.as_secs_f64(), attached.stops);
    Ok(Attached {
        sites: sites.len(),
        jumps: attached.jumps,
        seconds_guest: time.as_secs_f64(),
        stops: attached.stops,
        bytes_per_site: known.memory as f64 / sites.len() as f64,
        detach_seconds_guest: detach.as_secs_f64(),
        detach_stops,
        hits: known.hits,
        kprobes: kprobes(&program, by_kprobes)?,
    })
}

fn timed<T>(work: impl FnOnce() -> Result<T>) -> Result<(T, Duration)> {
    let start = Instant::now();
    let done = work()?;
    Ok((done, start.elapsed()))
}

/// The same by kprobes.
fn kprobes(program: &Program, sites: &[Site]) -> Result<Kprobes> {
    let mut refused = 0;
    // SAFETY: nothing else prints. It would say of each refused instruction that it is.
    unsafe { libbpf_sys::libbpf_set_print(None) };
    let (attached, time) = timed(|| {
        let mut attached = Vec::new();
        for site in sites.iter().filter(|site| !site.harmful) {
            match program.attach_at(site.probe.address) {
                Ok(one) => attached.push(one),
                Err(_) => refused += 1,
            }
        }
        Ok(attached)
    })?;
    let sites = attached.len();
    ensure!(sites > 0, "perf refuses all");
    let (_, detach) = timed(|| {
        drop(attached);
        Ok(())
    })?;
    Ok(Kprobes { sites, refused, seconds_guest: time.as_secs_f64(), detach_seconds_guest: detach.as_secs_f64() })
}
