//! Measures, inside a deterministic guest, what checking every indirect call of vmlinux costs system calls: with probes
//! of xk.ko, and with the same program on kprobes.
//!
//! In: the object of `cases/cfi/count.bpf.c`, a file of the calls, one of the functions whose address is taken; xk.ko is
//! loaded. Out: one JSON object on the last line. Refuses to report a figure if a call of an unknown function was seen, or
//! if the program was kept from running.

mod work;

use std::collections::BTreeMap;
use std::ffi::CStr;
use std::fs;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::ptr::{self, NonNull};
use std::time::Instant;

use anyhow::{ensure, Context, Result};
use libbpf_rs::AsRawLibbpf;
use serde::Serialize;
use xk_bench_trigger::found;
use xk_bench_trigger::measure::check_unit;
use xk_probe::{maps, probes, Given, Probe, Programs, Taken};
use xk_runtime::{Attached, Attachment, Device, ProbePlace};

use work::{Row, ROWS};

/// The median counts.
const ROUNDS: usize = 5;
const WARM_UP: usize = 2;
/// How often kprobes, xk.ko and nothing are compared, one after the other: what a fork or a switch costs drifts.
const CYCLES: usize = 5;

/// Instructions per operation.
#[derive(Debug, Serialize)]
struct Measured {
    op: &'static str,
    /// With xk.ko at all calls.
    xk_all: f64,
    /// Without any, before each cycle and after the last one.
    base: Vec<f64>,
    /// In each cycle, with xk.ko at the calls that have a kprobe in the next column.
    xk: Vec<f64>,
    kprobe: Vec<f64>,
}

#[derive(Debug, Serialize)]
struct Report {
    sites: usize,
    jumps: u32,
    functions: usize,
    attach_seconds_guest: f64,
    detach_seconds_guest: f64,
    /// Calls that were checked while the benchmarks ran with xk.ko.
    checked: u64,
    skipped: u64,
    /// Sites that the benchmarks execute; kprobes are at these only.
    executed_sites: usize,
    /// Of these, refused by perf.
    kprobes_refused: usize,
    /// Of these, left out because kprobes emulate them wrongly.
    kprobes_harmful: usize,
    kprobes_attach_seconds_guest: f64,
    /// Calls of functions that nothing refers to, with their number.
    unknown: BTreeMap<String, u64>,
    rounds: usize,
    cycles: usize,
    rows: Vec<Measured>,
}

fn main() -> Result<()> {
    let mut arguments = std::env::args_os().skip(1).map(PathBuf::from);
    let mut next = || arguments.next().context("usage: xk-bench-cfi OBJECT SITES FUNCTIONS");
    let (object, sites, functions) = (next()?, next()?, next()?);
    check_unit()?;
    let kernel = Kernel::read()?;
    let known_sites = kernel.sites(&sites)?;
    let sites: Vec<ProbePlace> = known_sites.iter().map(|(site, _)| *site).collect();
    let taken = Taken::new(&kernel.functions(&functions)?);
    let calls: Vec<u64> = sites.iter().map(|site| site.cookie).collect();
    let program = Program::load(&object, &taken, &calls)?;
    let sites: Vec<ProbePlace> = sites.iter().map(|site| program.at(site)).collect();
    let device = Device::open()?;

    let start = Instant::now();
    let attached = program.attach(&device, &sites)?;
    let attach = start.elapsed();
    let all = measure_all()?;
    let known = device.probes()?.into_iter().find(|known| known.id == attached.id).context("it is gone")?;
    let executed: Vec<u64> =
        device.probe_places(attached.id)?.iter().filter(|p| p.hits > 0).map(|p| p.address).collect();
    let start = Instant::now();
    device.detach_probes(attached.id)?;
    let detach = start.elapsed();
    ensure!(known.hits > 100_000, "{} calls were checked: the probes are not reached", known.hits);

    let (harmful, wanted): (Vec<_>, Vec<_>) =
        known_sites.iter().filter(|(site, _)| executed.contains(&site.address)).partition(|(_, harmful)| *harmful);
    let wanted: Vec<ProbePlace> = wanted.iter().map(|(site, _)| program.at(site)).collect();
    let compared = compare(&device, &program, &wanted)?;
    let row = |(row, (op, ..)): (usize, &Row)| {
        let column = |all: &[Vec<f64>]| all.iter().map(|rows| rows[row]).collect();
        let (base, xk, kprobe) = (column(&compared.base), column(&compared.xk), column(&compared.kprobe));
        Measured { op, xk_all: all[row], base, xk, kprobe }
    };
    let report = Report {
        sites: sites.len(),
        jumps: attached.jumps,
        functions: taken.len(),
        attach_seconds_guest: attach.as_secs_f64(),
        detach_seconds_guest: detach.as_secs_f64(),
        checked: known.hits,
        skipped: known.skipped,
        executed_sites: executed.len(),
        kprobes_refused: wanted.len() - compared.kprobes,
        kprobes_harmful: harmful.len(),
        kprobes_attach_seconds_guest: compared.attach_seconds_guest,
        unknown: program.unknown(&kernel),
        rounds: ROUNDS,
        cycles: CYCLES,
        rows: ROWS.iter().enumerate().map(row).collect(),
    };
    println!("{}", serde_json::to_string(&report)?);
    Ok(())
}

/// The rows, in each cycle.
#[derive(Default)]
struct Compared {
    base: Vec<Vec<f64>>,
    xk: Vec<Vec<f64>>,
    kprobe: Vec<Vec<f64>>,
    /// The calls at which both are.
    kprobes: usize,
    /// Of the first cycle.
    attach_seconds_guest: f64,
}

/// Compares kprobes at these calls with xk.ko at the same ones.
fn compare(device: &Device, program: &Program, wanted: &[ProbePlace]) -> Result<Compared> {
    let mut compared = Compared::default();
    // SAFETY: nothing else prints.
    unsafe { libbpf_sys::libbpf_set_print(None) };
    for cycle in 0..CYCLES {
        compared.base.push(measure_all()?);
        let start = Instant::now();
        let kprobed = wanted.iter().filter_map(|site| Some((*site, program.kprobe(site)?)));
        let (same, links): (Vec<ProbePlace>, Vec<Link>) = kprobed.unzip();
        if cycle == 0 {
            compared.attach_seconds_guest = start.elapsed().as_secs_f64();
            compared.kprobes = links.len();
        }
        ensure!(!links.is_empty() && links.len() == compared.kprobes, "{} kprobes were attached", links.len());
        let runs = program.runs()?;
        compared.kprobe.push(measure_all()?);
        ensure!(runs == program.runs()?, "statistics are on");
        drop(links);
        let attached = program.attach(device, &same)?;
        compared.xk.push(measure_all()?);
        device.detach_probes(attached.id)?;
    }
    compared.base.push(measure_all()?);
    Ok(compared)
}

/// Instructions per operation of each row.
fn measure_all() -> Result<Vec<f64>> {
    eprintln!("bench: {} rows", ROWS.len());
    ROWS.iter().map(|row| median(row).with_context(|| row.0)).collect()
}

fn median((_, number, work): &Row) -> Result<f64> {
    for _ in 0..WARM_UP {
        work(*number)?;
    }
    let mut rounds = (0..ROUNDS).map(|_| work(*number)).collect::<Result<Vec<u64>>>()?;
    rounds.sort_unstable();
    Ok(rounds[ROUNDS / 2] as f64 / *number as f64)
}

/// The symbols of the running kernel.
struct Kernel {
    symbols: Vec<(u64, String)>,
    anchor: u64,
    /// Functions of modules.
    of_modules: Vec<u64>,
}

impl Kernel {
    fn read() -> Result<Self> {
        let text = fs::read_to_string("/proc/kallsyms").context("/proc/kallsyms")?;
        let (mut symbols, mut of_modules) = (Vec::new(), Vec::new());
        for line in text.lines() {
            let words: Vec<&str> = line.split_whitespace().collect();
            let [address, kind, name, ..] = words[..] else { continue };
            let address = u64::from_str_radix(address, 16)?;
            if kind.eq_ignore_ascii_case("t") {
                if words.len() > 3 {
                    of_modules.push(address);
                }
                symbols.push((address, name.to_owned()));
            }
        }
        symbols.sort();
        let anchor = symbols.iter().find(|(_, name)| name == "_printk").context("the kernel has no _printk")?.0;
        ensure!(anchor != 0, "/proc/kallsyms shows no addresses");
        Ok(Self { symbols, anchor, of_modules })
    }

    /// A line for each: place, cookie, and whether kprobes would emulate it wrongly.
    fn sites(&self, path: &Path) -> Result<Vec<(ProbePlace, bool)>> {
        let text = fs::read_to_string(path).with_context(|| path.display().to_string())?;
        let site = |line: &str| -> Result<(ProbePlace, bool)> {
            let words: Vec<&str> = line.split(' ').collect();
            let [place, cookie, harmful] = words[..] else { anyhow::bail!("not a site: {line}") };
            Ok((ProbePlace { cookie: cookie.parse()?, ..found::place(place, self.anchor)? }, harmful != "0"))
        };
        text.lines().map(site).collect()
    }

    /// Those of the file, by their distances from `_printk`, and all of modules, whose code the host has not read.
    fn functions(&self, path: &Path) -> Result<Vec<u64>> {
        let text = fs::read_to_string(path).with_context(|| path.display().to_string())?;
        let of_vmlinux = text.lines().map(|line| Ok(self.anchor.wrapping_add_signed(line.parse()?)));
        of_vmlinux.chain(self.of_modules.iter().map(|address| Ok(*address))).collect()
    }

    fn name(&self, address: u64) -> String {
        let end = self.symbols.partition_point(|(start, _)| *start <= address);
        let Some((start, name)) = self.symbols[..end].last() else { return format!("{address:#x}") };
        format!("{name}+{:#x}", address - start)
    }
}

struct Program {
    file: Vec<u8>,
    probe: Probe,
    programs: Programs,
}

/// A kprobe.
struct Link(NonNull<libbpf_sys::bpf_link>);

impl Drop for Link {
    fn drop(&mut self) {
        // SAFETY: the link came from libbpf and is destroyed once.
        unsafe { libbpf_sys::bpf_link__destroy(self.0.as_ptr()) };
    }
}

impl Program {
    fn load(path: &Path, taken: &Taken, calls: &[u64]) -> Result<Self> {
        let file = fs::read(path).with_context(|| path.display().to_string())?;
        let all = probes(&file, &[], None)?;
        let programs = Programs::load_with(&file, &all, Given { taken: Some(taken), calls, places: None })?;
        let probe = all.into_iter().next().context("the object has no program")?;
        Ok(Self { file, probe, programs })
    }

    /// With the copy of the program that runs there.
    fn at(&self, site: &ProbePlace) -> ProbePlace {
        ProbePlace { program: self.programs.at(site.cookie) as u8, ..*site }
    }

    fn attach(&self, device: &Device, places: &[ProbePlace]) -> Result<Attached> {
        let programs = self.programs.all(&self.probe).context("the program is gone")?;
        Ok(device.attach(&Attachment { name: "cfi", programs: &programs, places, ..Attachment::default() })?)
    }

    /// The same copy on a kprobe, unless perf refuses that.
    fn kprobe(&self, site: &ProbePlace) -> Option<Link> {
        // Without a name, the offset is an address.
        let options = libbpf_sys::bpf_kprobe_opts {
            sz: size_of::<libbpf_sys::bpf_kprobe_opts>() as _,
            offset: site.address as _,
            bpf_cookie: site.cookie,
            ..Default::default()
        };
        let program = self.programs.objects().nth(self.programs.at(site.cookie))?.progs().next()?;
        let no_name = None::<&CStr>.map_or(ptr::null(), CStr::as_ptr);
        // SAFETY: the program lives as long as `self`, which outlives the links; libbpf copies the options.
        let link = unsafe {
            libbpf_sys::bpf_program__attach_kprobe_opts(program.as_libbpf_object().as_ptr(), no_name, &options)
        };
        NonNull::new(link).map(Link)
    }

    /// How often it ran while the kernel counted, which it must not while anything is measured.
    fn runs(&self) -> Result<u64> {
        let mut runs = 0;
        for program in self.programs.all(&self.probe).context("the program is gone")? {
            let mut info = libbpf_sys::bpf_prog_info::default();
            let mut len = u32::try_from(size_of_val(&info))?;
            // SAFETY: the kernel writes no more than `len` bytes, which is what `info` has.
            let ret = unsafe { libbpf_sys::bpf_prog_get_info_by_fd(program.as_raw_fd(), &mut info, &mut len) };
            ensure!(ret == 0, "the kernel does not describe the program: {}", std::io::Error::last_os_error());
            runs += info.run_cnt;
        }
        Ok(runs)
    }

    /// Calls of unknown functions, for people.
    fn unknown(&self, kernel: &Kernel) -> BTreeMap<String, u64> {
        let all = maps::read(&self.programs, &self.file);
        let number =
            |hex: Option<&str>| hex.and_then(|hex| u64::from_str_radix(hex, 16).ok()).map_or(0, u64::swap_bytes);
        let call = |entry: &serde_json::Value| {
            let key = entry["key"].as_str().unwrap_or_default();
            let (site, target) = (number(key.get(..16)), number(key.get(16..)));
            (
                format!("{} calls {} ({target:#x})", kernel.name(site), kernel.name(target)),
                entry["value"].as_u64().unwrap_or(0),
            )
        };
        all["unknown_calls"]["entries"].as_array().into_iter().flatten().map(call).collect()
    }
}
