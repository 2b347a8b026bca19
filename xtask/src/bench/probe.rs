//! What one execution of an eBPF program at an instruction costs, in instructions of a deterministic guest, by xk.ko and
//! by what the kernel has itself; and how long it takes to attach to many instructions.
//!
//! The measuring is done by `bench/trigger/src/bin/probe` inside the guest; here instructions are chosen, and figures
//! are compared with the limits.

mod cfi;
mod places;

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::path::PathBuf;

use anyhow::{bail, ensure, Context, Result as Fallible};
use serde::{Deserialize, Serialize};
use xk_kernel::Image;

use super::{rounded, say, trigger};
use crate::lab;
use cfi::Cfi;
pub use places::Code;

/// The function whose instructions are probed.
const FUNCTION: &str = "vfs_write";
/// An empty program may cost this share of one behind fentry, and of one on a breakpoint that is stepped.
const OF_FENTRY: f64 = 1.2;
const OF_INT3: f64 = 0.11;
/// Seconds in which this number of sites must be attached.
const ATTACH: (usize, f64) = (20_000, 2.0);

/// What may be chosen.
#[derive(Debug, clap::Args)]
#[group(skip)]
pub struct Options {
    /// probe: instructions of vmlinux to attach to at once
    #[arg(long, default_value_t = ATTACH.0)]
    sites: usize,
    /// probe: of these, how many to attach by kprobes, too, which takes the emulator long
    #[arg(long, default_value_t = 1000)]
    kprobes: usize,
    /// probe: seed by which they are drawn
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// At an instruction where a kprobe is a jump, and where it is one of two kinds of breakpoints.
#[derive(Debug, Clone, Copy, Deserialize)]
struct Three {
    jump: f64,
    emulated: f64,
    stepped: f64,
}

/// What the guest prints.
#[derive(Debug, Deserialize)]
struct Measured {
    writes_per_round: u32,
    rounds: u32,
    baseline: [f64; 3],
    probe_count: Three,
    probe_empty: Three,
    probe_reads_args: f64,
    probe_map_counter: f64,
    fentry_empty: f64,
    fentry_map_counter: f64,
    kprobe_multi_empty: f64,
    perf_kprobe_empty: Three,
    places: BTreeMap<String, String>,
    checked_writes: u64,
    attach: Attached,
}

#[derive(Debug, Deserialize)]
struct Attached {
    sites: usize,
    jumps: u32,
    seconds_guest: f64,
    stops: u32,
    bytes_per_site: f64,
    detach_seconds_guest: f64,
    detach_stops: u32,
    kprobes: Kprobes,
}

#[derive(Debug, Deserialize)]
struct Kprobes {
    sites: usize,
    refused: usize,
    seconds_guest: f64,
    detach_seconds_guest: f64,
}

/// Of a probe of xk.ko, by what a kprobe would be at the instruction.
#[derive(Debug, Serialize)]
struct Ours {
    /// A jump.
    clean: f64,
    /// A breakpoint whose instruction is stepped in a copy.
    trap_for_kprobes: f64,
    /// A breakpoint at a branch, which the handler emulates.
    emulated_for_kprobes: f64,
}

#[derive(Debug, Serialize)]
struct Perf {
    jump: f64,
    /// Stepped in a copy, by a second exception.
    int3: f64,
    /// At a branch, which the handler emulates.
    int3_emulated: f64,
}

#[derive(Debug, Serialize)]
struct Extra {
    probe_count: Ours,
    probe_empty: Ours,
    probe_reads_args: f64,
    probe_map_counter: f64,
    fentry_empty: f64,
    fentry_map_counter: f64,
    kprobe_multi_empty: f64,
    perf_kprobe_empty: Perf,
}

/// Many at once; times are the guest's.
#[derive(Debug, Serialize)]
struct Attach {
    sites: usize,
    seed: u64,
    jumps: u32,
    /// Drawn, and left out because nothing can probe them.
    left_out: usize,
    seconds_guest: f64,
    stops: u32,
    bytes_per_site: f64,
    detach_seconds_guest: f64,
    detach_stops: u32,
    /// The first of them by kprobes, which perf attaches one after the other with an eBPF program: how many it takes.
    kprobes_sites: usize,
    kprobes_refused: usize,
    kprobes_seconds_guest: f64,
    kprobes_detach_seconds_guest: f64,
}

/// The result; its fields are the fields of the JSON object.
#[derive(Debug, Serialize)]
pub struct Result {
    bench: &'static str,
    kernel: String,
    extra_instructions: Extra,
    /// Of a write with xk.ko loaded and nothing attached.
    idle: f64,
    /// Shares of an empty program of ours: of fentry's, and of kprobes that are breakpoints.
    ratios: BTreeMap<&'static str, f64>,
    attach: Attach,
    /// Every indirect call is checked.
    cfi: Cfi,
    limits: BTreeMap<&'static str, f64>,
    within_limits: bool,
    /// Which were exceeded, and by what.
    missed_limits: Vec<String>,
    baseline_instructions: f64,
    /// The probed instructions.
    places: BTreeMap<String, String>,
    writes_per_round: u32,
    rounds: u32,
    /// Each probe was reached by all of these writes and by nothing else.
    checked_writes: u64,
}

/// Builds what is needed, boots one guest and measures in it.
pub fn run(options: &Options) -> Fallible<Result> {
    let kernel = lab::kernel()?;
    say("building the guest's programs");
    let xk = lab::module(&kernel.release, "kernel/xk")?;
    let program = trigger::build_program("xk-bench-probe")?;
    let objects = trigger::compile_bpf()?;
    say("finding instructions");
    let code = Code::new(&Image::from_vmlinuz(&kernel.vmlinuz, None)?)?;
    let folder = tempfile::tempdir()?;
    let (places, sites) = (folder.path().join("places"), folder.path().join("sites"));
    fs::write(&places, code.of_function(FUNCTION)?)?;
    let drawn = code.draw(options.sites, options.seed)?;
    fs::write(&sites, code.lines(&drawn.found))?;
    let (files, calls_left_out) = cfi::prepare(&code, &kernel, folder.path())?;
    drop(code);
    say(&format!("measuring in a deterministic guest on {}, some minutes", kernel.release));
    let kprobes = PathBuf::from(options.kprobes.min(options.sites).to_string());
    let words = [&program, &objects, &places, &sites, &kprobes, &xk].map(|path| path.display().to_string());
    let checked = trigger::build_program("xk-bench-cfi")?;
    let cfi = [&checked, &files[0], &files[1], &files[2]].map(|path| path.display().to_string());
    let script = format!("ulimit -n 200000 && {} && {}", words.join(" "), cfi.join(" "));
    let printed = lab::run_guest(&script, &["--icount", "--cpus", "1", "--memory", "2G", "--timeout", "7200"])?;
    let wrong = || format!("the guest printed: {printed}");
    let [measured, checked] = printed.lines().collect::<Vec<_>>()[..] else { bail!(wrong()) };
    let measured = serde_json::from_str(measured).with_context(wrong)?;
    let cfi = Cfi::new(serde_json::from_str(checked).with_context(wrong)?, calls_left_out);
    Ok(result(kernel.release, measured, cfi, options.seed, drawn.left_out))
}

fn tenths(cost: f64) -> f64 {
    // No negative zero.
    (cost * 10.0).round() / 10.0 + 0.0
}

impl From<Three> for Ours {
    fn from(Three { jump, emulated, stepped }: Three) -> Self {
        Self { clean: tenths(jump), trap_for_kprobes: tenths(stepped), emulated_for_kprobes: tenths(emulated) }
    }
}

impl From<Three> for Perf {
    fn from(Three { jump, emulated, stepped }: Three) -> Self {
        Self { jump: tenths(jump), int3: tenths(stepped), int3_emulated: tenths(emulated) }
    }
}

impl Attach {
    fn new(measured: &Attached, seed: u64, left_out: usize) -> Self {
        let kprobes = &measured.kprobes;
        Self {
            sites: measured.sites,
            seed,
            jumps: measured.jumps,
            left_out,
            seconds_guest: rounded(measured.seconds_guest),
            stops: measured.stops,
            bytes_per_site: tenths(measured.bytes_per_site),
            detach_seconds_guest: rounded(measured.detach_seconds_guest),
            detach_stops: measured.detach_stops,
            kprobes_sites: kprobes.sites,
            kprobes_refused: kprobes.refused,
            kprobes_seconds_guest: rounded(kprobes.seconds_guest),
            kprobes_detach_seconds_guest: rounded(kprobes.detach_seconds_guest),
        }
    }
}

fn result(kernel: String, measured: Measured, cfi: Cfi, seed: u64, left_out: usize) -> Result {
    let (empty, perf) = (measured.probe_empty, measured.perf_kprobe_empty);
    let ratios = BTreeMap::from([
        ("of_fentry", rounded(empty.jump.max(empty.stepped).max(empty.emulated) / measured.fentry_empty)),
        ("of_jump", rounded(empty.jump / perf.jump)),
        ("of_int3", rounded(empty.stepped / perf.stepped)),
        ("of_int3_emulated", rounded(empty.emulated / perf.emulated)),
    ]);
    let attach = Attach::new(&measured.attach, seed, left_out);
    let idle = tenths(measured.baseline[1] - measured.baseline[0]);
    let mut missed_limits = missed_limits(&ratios, &attach, idle);
    missed_limits.extend(cfi.missed_limits());
    Result {
        bench: "probe",
        kernel,
        extra_instructions: Extra {
            probe_count: measured.probe_count.into(),
            probe_empty: empty.into(),
            probe_reads_args: tenths(measured.probe_reads_args),
            probe_map_counter: tenths(measured.probe_map_counter),
            fentry_empty: tenths(measured.fentry_empty),
            fentry_map_counter: tenths(measured.fentry_map_counter),
            kprobe_multi_empty: tenths(measured.kprobe_multi_empty),
            perf_kprobe_empty: perf.into(),
        },
        idle,
        ratios,
        attach,
        cfi,
        limits: BTreeMap::from([
            ("of_fentry", OF_FENTRY),
            ("of_int3", OF_INT3),
            ("attach_seconds", ATTACH.1),
            ("cfi", cfi::LIMIT),
        ]),
        within_limits: missed_limits.is_empty(),
        missed_limits,
        baseline_instructions: measured.baseline[0],
        places: measured.places,
        writes_per_round: measured.writes_per_round,
        rounds: measured.rounds,
        checked_writes: measured.checked_writes,
    }
}

/// The limits that are exceeded, in words.
fn missed_limits(ratios: &BTreeMap<&'static str, f64>, attach: &Attach, idle: f64) -> Vec<String> {
    let mut missed = Vec::new();
    for (name, words, limit) in [
        ("of_fentry", "of an empty program behind fentry", OF_FENTRY),
        ("of_int3", "of an empty eBPF kprobe that is a breakpoint", OF_INT3),
    ] {
        match ratios.get(name) {
            Some(ratio) if *ratio <= limit => {}
            ratio => missed.push(format!(
                "probe_empty: {} {words} instead of {limit}",
                ratio.map_or_else(|| "no share".to_owned(), f64::to_string)
            )),
        }
    }
    // Fewer sites have less time.
    let allowed = rounded(ATTACH.1 * (attach.sites as f64 / ATTACH.0 as f64));
    if attach.seconds_guest > allowed {
        missed.push(format!("attach: {} s for {} sites instead of {allowed}", attach.seconds_guest, attach.sites));
    }
    if idle != 0.0 {
        missed.push(format!("idle: {idle} instructions instead of 0"));
    }
    missed
}

impl Result {
    /// An error that says which limits were missed, if any were.
    pub fn verdict(&self) -> Fallible<()> {
        ensure!(self.within_limits, "probes beyond their limits: {}", self.missed_limits.join("; "));
        Ok(())
    }

    /// For people.
    pub fn table(&self) -> String {
        let mut text = format!(
            "Instructions on top of the {} of a one-byte write to /dev/null, {}\n",
            self.baseline_instructions.round(),
            self.kernel
        );
        let extra = &self.extra_instructions;
        _ = writeln!(text, "  where a kprobe is            a jump  int3, emulated   int3, stepped");
        let mut row = |name: &str, three: [f64; 3]| {
            _ = writeln!(text, "  {name:<28}{:>7}{:>16}{:>16}", three[0], three[1], three[2]);
        };
        let ours = |of: &Ours| [of.clean, of.emulated_for_kprobes, of.trap_for_kprobes];
        row("xk: counts", ours(&extra.probe_count));
        row("xk: empty program", ours(&extra.probe_empty));
        let perf = &extra.perf_kprobe_empty;
        row("perf: empty eBPF kprobe", [perf.jump, perf.int3_emulated, perf.int3]);
        for (name, cost) in [
            ("xk: program that reads two arguments", extra.probe_reads_args),
            ("xk: program that counts in a map", extra.probe_map_counter),
            ("fentry: empty program", extra.fentry_empty),
            ("fentry: program that counts in a map", extra.fentry_map_counter),
            ("kprobe-multi: empty program", extra.kprobe_multi_empty),
            ("xk.ko is loaded, nothing is attached", self.idle),
        ] {
            _ = writeln!(text, "  {name:<40}{cost:>7}");
        }
        for (kind, place) in &self.places {
            _ = writeln!(text, "  {kind} at {place}");
        }
        text += &self.attach.table();
        text += &self.cfi.table();
        match self.within_limits {
            true => text += "  within the limits\n",
            false => _ = writeln!(text, "  NOT within the limits: {}", self.missed_limits.join("; ")),
        }
        text
    }
}

impl Attach {
    fn table(&self) -> String {
        format!(
            "{} instructions of vmlinux at once, {} by a jump: attached in {} s of the guest and {} stops, detached in \
             {} s and {} stops, {} bytes each\n{} of them by kprobes through perf: attached in {} s, detached in {} s\n",
            self.sites,
            self.jumps,
            self.seconds_guest,
            self.stops,
            self.detach_seconds_guest,
            self.detach_stops,
            self.bytes_per_site,
            self.kprobes_sites,
            self.kprobes_seconds_guest,
            self.kprobes_detach_seconds_guest,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(empty: f64, seconds: f64) -> Measured {
        let three = |jump, emulated, stepped| Three { jump, emulated, stepped };
        let kprobes = Kprobes { sites: 1, refused: 0, seconds_guest: 9.0, detach_seconds_guest: 9.0 };
        Measured {
            writes_per_round: 1,
            rounds: 1,
            baseline: [600.0; 3],
            probe_count: three(69.0, 69.0, 69.0),
            probe_empty: three(empty, empty, empty),
            probe_reads_args: 77.0,
            probe_map_counter: 90.0,
            fentry_empty: 100.0,
            fentry_map_counter: 110.0,
            kprobe_multi_empty: 200.0,
            perf_kprobe_empty: three(300.0, 500.0, 1000.0),
            places: BTreeMap::new(),
            checked_writes: 1,
            attach: Attached {
                sites: 10_000,
                jumps: 9_999,
                seconds_guest: seconds,
                stops: 20,
                bytes_per_site: 64.0,
                detach_seconds_guest: 0.5,
                detach_stops: 20,
                kprobes,
            },
        }
    }

    fn missed(measured: Measured) -> String {
        result("r".into(), measured, Cfi::new(cfi::tests::measured(30.0), 0), 1, 0)
            .verdict()
            .map_or_else(|error| error.to_string(), |()| String::new())
    }

    #[test]
    fn limits_that_are_exceeded_are_said() {
        assert_eq!(missed(measured(100.0, 0.9)), "");
        let verdict = missed(measured(121.0, 1.5));
        assert!(verdict.contains("1.21 of an empty program behind fentry instead of 1.2"), "{verdict}");
        assert!(verdict.contains("0.121 of an empty eBPF kprobe that is a breakpoint instead of 0.11"), "{verdict}");
        assert!(verdict.contains("1.5 s for 10000 sites instead of 1"), "{verdict}");
        let idle = Measured { baseline: [600.0, 601.0, 601.0], ..measured(100.0, 0.9) };
        assert!(missed(idle).ends_with("idle: 1 instructions instead of 0"));
    }

    #[test]
    fn the_fields_are_those_that_were_agreed_on() {
        let result = result("r".into(), measured(75.0, 0.5), Cfi::new(cfi::tests::measured(30.0), 0), 7, 3);
        let json = serde_json::to_value(&result).unwrap();
        assert_eq!(json["extra_instructions"]["probe_empty"]["trap_for_kprobes"], 75.0);
        assert_eq!(json["extra_instructions"]["perf_kprobe_empty"]["int3"], 1000.0);
        assert_eq!((&json["idle"], &json["attach"]["seed"]), (&0.0.into(), &7.into()));
        assert!(result.table().contains("within the limits"));
    }
}
