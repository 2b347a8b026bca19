//! Measures, inside a deterministic guest, what one execution of a probe costs
//! in instructions: an eBPF kprobe through perf, and sites of xk.ko.
//!
//! In: the objects of `bpf/`; xk.ko and xk_bench.ko are loaded. Out: one JSON
//! object on the last line. Refuses to report a figure whose mechanism did not
//! run: every probe must be of the kind that it is said to be, and have been
//! reached by every write, and only by those.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::thread::sleep;
use std::time::Duration;

use anyhow::{bail, ensure, Context, Result};
use serde::Serialize;
use xk_kernel::Image;
use xk_runtime::{Backend, Change, Destination, Device, Mode, Policy, Probe, Tune};

use xk_bench_trigger::measure::{Writer, ROUNDS, WRITES};
use xk_bench_trigger::place::Place;
use xk_bench_trigger::tracer::Program;
use xk_bench_trigger::update::{At, Update};
use xk_bench_trigger::{held, place, update};

const SYMBOL: &str = "vfs_write";
const KPROBES: &str = "/sys/kernel/debug/kprobes/list";
/// The kernel's optimiser works in the background, some milliseconds later.
const OPTIMISED_WITHIN: u32 = 100;
const POLL: Duration = Duration::from_millis(50);
/// A breakpoint is one if it still is after this many polls.
const STILL_BREAKPOINT: u32 = 20;

/// Extra instructions per write, by how the probe is placed.
#[derive(Debug, Serialize)]
struct Cost {
    jump: f64,
    int3: f64,
}

#[derive(Debug, Serialize)]
struct Report {
    function: &'static str,
    places: BTreeMap<&'static str, String>,
    writes_per_round: u32,
    rounds: usize,
    /// Instructions per write without a probe: before and after everything else.
    baseline: [f64; 2],
    /// Writes that each probe was reached by; all that were made.
    checked_writes: u64,
    perf_bpf_empty: Cost,
    perf_bpf_kfunc: Cost,
    xk_value: Cost,
    xk_expressions: BTreeMap<&'static str, Cost>,
    detour_value: Cost,
    detour_expressions: BTreeMap<&'static str, Cost>,
    /// Of a policy that sets a value.
    detour_policy: Cost,
    /// Of a value that instructions hold; no probe is there, of whatever kind.
    patch_value: f64,
    /// Of a site whose value a policy sets; by what the policy does.
    xk_policies: BTreeMap<&'static str, Cost>,
}

/// The policies that are measured, and whether they set a value.
const POLICIES: [(&str, bool); 5] = [("policy", true), ("o1", false), ("o2", true), ("o3", true), ("o4", true)];
/// What they set, and what tunes without a policy have.
const VALUE: i64 = 5;

fn main() -> Result<()> {
    let objects = std::env::args_os().nth(1).map(PathBuf::from).context("usage: xk-bench-trigger FOLDER-OF-OBJECTS")?;
    let bench = Bench::new()?;
    let before = bench.writer.median()?;

    let empty = Program::load(&objects.join("empty.bpf.o"))?;
    let kfunc = Program::load(&objects.join("kfunc.bpf.o"))?;
    let perf_bpf_empty = bench.cost(|place, jump| bench.perf(&empty, place, jump, before))?;
    let perf_bpf_kfunc = bench.cost(|place, jump| bench.perf(&kfunc, place, jump, before))?;
    let xk_value = bench.cost(|place, jump| bench.ours(&update::value(), place, jump, before))?;
    let mut xk_expressions = BTreeMap::new();
    for update in update::expressions() {
        let cost = bench.cost(|place, jump| bench.ours(&update, place, jump, before))?;
        xk_expressions.insert(update.name, cost);
    }

    let detour_value = bench.cost(|place, _| bench.detour(&update::value(), place, before))?;
    let mut detour_expressions = BTreeMap::new();
    for update in update::expressions() {
        let cost = bench.cost(|place, _| bench.detour(&update, place, before))?;
        detour_expressions.insert(update.name, cost);
    }
    let sets = Program::load(&objects.join("policy.bpf.o"))?;
    let detour_policy = bench.cost(|place, _| bench.detour_policy(&sets, place, before))?;
    let patch_value = bench.patch(before)?;
    let mut xk_policies = BTreeMap::new();
    for (name, sets) in POLICIES {
        let program = Program::load(&objects.join(format!("{name}.bpf.o")))?;
        let cost = bench.cost(|place, jump| bench.policy(&program, sets, place, jump, before))?;
        xk_policies.insert(name, cost);
    }

    let after = bench.writer.median()?;
    ensure!((after - before).abs() < 1.0, "the cost of a write itself drifted from {before} to {after} instructions");
    let place = |place: &Place| format!("{SYMBOL}+{:#x}: {}", place.offset, place.text);
    let report = Report {
        function: SYMBOL,
        places: BTreeMap::from([("jump", place(&bench.jump)), ("int3", place(&bench.int3))]),
        writes_per_round: WRITES,
        rounds: ROUNDS,
        baseline: [before, after],
        checked_writes: all_writes(),
        perf_bpf_empty,
        perf_bpf_kfunc,
        xk_value,
        xk_expressions,
        detour_value,
        detour_expressions,
        detour_policy,
        patch_value,
        xk_policies,
    };
    println!("{}", serde_json::to_string(&report)?);
    Ok(())
}

/// Writes of one measurement.
fn all_writes() -> u64 {
    u64::from(WRITES) * ROUNDS as u64
}

struct Bench {
    writer: Writer,
    device: Device,
    address: u64,
    code: Vec<u8>,
    jump: Place,
    int3: Place,
}

impl Bench {
    fn new() -> Result<Self> {
        let writer = Writer::new()?;
        let device = Device::open()?;
        let image = Image::live()?;
        let found = image.symbols(SYMBOL);
        let symbol = found.iter().find(|symbol| symbol.module.is_none()).context("vfs_write is not in the kernel")?;
        let code = image.read(symbol.address, symbol.size_hint as usize)?;
        let (jump, int3) = place::choose(&code).with_context(|| format!("in {SYMBOL}"))?;
        Ok(Self { writer, device, address: symbol.address, code, jump, int3 })
    }

    fn cost(&self, measure: impl Fn(&Place, bool) -> Result<f64>) -> Result<Cost> {
        Ok(Cost { jump: measure(&self.jump, true)?, int3: measure(&self.int3, false)? })
    }

    /// An eBPF program through perf.
    fn perf(&self, program: &Program, place: &Place, jump: bool, baseline: f64) -> Result<f64> {
        let attachment = program.attach(SYMBOL, place.offset)?;
        wait_for_kind(jump, || listed_as_optimised(place))?;
        let cost = self.writer.median()? - baseline;
        let runs = attachment.count(|| self.writer.median().map(drop))?;
        ensure!(runs == all_writes(), "the program ran {runs} times for {} writes", all_writes());
        ensure!(listed_as_optimised(place)? == jump, "the kernel changed the probe while it was measured");
        Ok(cost)
    }

    /// A site of xk.ko.
    fn ours(&self, update: &Update, place: &Place, jump: bool, baseline: f64) -> Result<f64> {
        let tune = self.device.load(&update.table(SYMBOL, &self.code, place), &At(self.address))?;
        tune.set(VALUE)?;
        let cost = self.measured(update.name, &tune, place, jump, baseline)?;
        tune.unload()?;
        Ok(cost)
    }

    /// A site of xk.ko with a policy.
    fn policy(&self, program: &Program, sets: bool, place: &Place, jump: bool, baseline: f64) -> Result<f64> {
        let tune = self.decided(program, place, Backend::Kprobe)?;
        let cost = self.measured("policy", &tune, place, jump, baseline)?;
        self.check_decisions(&tune, sets)?;
        tune.unload()?;
        Ok(cost)
    }

    /// A tune whose value a policy sets.
    fn decided(&self, program: &Program, place: &Place, backend: Backend) -> Result<Tune> {
        let tune =
            self.device.load_by(&update::value().table(SYMBOL, &self.code, place), &At(self.address), backend)?;
        self.device.give_policy(tune.id(), &Policy::for_each_site(program.fd()?))?;
        let change = Change { id: tune.id(), to: Destination::Policy(VALUE) };
        self.device.transition(&[change], Mode::Now, Duration::ZERO)?;
        Ok(tune)
    }

    /// The policy decided every write. Those before the measurement are not counted apart.
    fn check_decisions(&self, tune: &Tune, sets: bool) -> Result<()> {
        let status = self.device.policy_status(tune.id())?.context("the tune has no policy")?;
        let site = status.sites.into_iter().next().context("the policy has no site")?;
        ensure!(site.skipped == 0 && site.refused == 0, "the policy was kept from its work: {site:?}");
        let (runs, chosen) = (site.runs, site.chosen);
        let hits = tune.status()?.sites.first().context("the tune has no site")?.hits;
        ensure!(
            runs >= all_writes() && runs <= hits && chosen == if sets { runs } else { 0 },
            "the policy ran {runs} times and set {chosen} values in {hits} hits"
        );
        Ok(())
    }

    /// Measures a tune that is in force; all writes, and only they, must have reached it.
    fn measured(&self, name: &str, tune: &Tune, place: &Place, jump: bool, baseline: f64) -> Result<f64> {
        let site = || -> Result<_> { tune.status()?.sites.into_iter().next().context("the tune has no site") };
        wait_for_kind(jump, || match site()?.probe {
            Probe::Jump => Ok(true),
            Probe::Int3 => Ok(false),
            other => bail!("the site is {other:?}"),
        })?;
        let before = site()?;
        let cost = self.writer.median()? - baseline;
        let after = site()?;
        let counted = [after.hits - before.hits, after.applied - before.applied];
        ensure!(
            counted == [all_writes(); 2] && after.missed == 0 && after.faults == 0,
            "{name}: {} hits, {} applied, {} missed, {} faults for {} writes",
            counted[0],
            counted[1],
            after.missed,
            after.faults,
            all_writes()
        );
        ensure!(listed_as_optimised(place)? == jump, "the kernel changed the probe while it was measured");
        Ok(cost)
    }
}

impl Bench {
    /// A detour. Where the stub itself does not count, its instructions show that it ran.
    fn detour(&self, update: &Update, place: &Place, baseline: f64) -> Result<f64> {
        let table = update.table(SYMBOL, &self.code, place);
        let tune = self.device.load_by(&table, &At(self.address), Backend::Detour)?;
        tune.set(VALUE)?;
        let cost = self.detoured(update.name, &tune, baseline)?;
        tune.unload()?;
        Ok(cost)
    }

    /// A detour whose value a policy sets.
    fn detour_policy(&self, program: &Program, place: &Place, baseline: f64) -> Result<f64> {
        let tune = self.decided(program, place, Backend::Detour)?;
        let cost = self.detoured("policy", &tune, baseline)?;
        self.check_decisions(&tune, true)?;
        tune.unload()?;
        Ok(cost)
    }

    fn detoured(&self, name: &str, tune: &Tune, baseline: f64) -> Result<f64> {
        let site = || -> Result<_> { tune.status()?.sites.into_iter().next().context("the tune has no site") };
        let before = site()?;
        ensure!(before.probe == Probe::Detour, "the site is {:?}", before.probe);
        let cost = self.writer.median()? - baseline;
        let after = site()?;
        if after.counted {
            let counted = after.applied - before.applied;
            ensure!(counted == all_writes(), "{name}: {counted} applied for {} writes", all_writes());
        }
        ensure!(cost >= 2.0, "{name}: {cost} instructions more: the stub is not reached");
        Ok(cost)
    }
}

impl Bench {
    /// The longest write, in the instructions that hold it. That they are executed is seen
    /// by what a long write returns.
    fn patch(&self, baseline: f64) -> Result<f64> {
        let table = held::table(SYMBOL, &self.code)?;
        let tune = self.device.load_by(&table, &At(self.address), Backend::Patch)?;
        ensure!(held::written()? == held::LONG, "a long write is cut before anything has changed");
        tune.go(Destination::Value(held::SHORT), Mode::Global, Duration::from_secs(5))?;
        ensure!(held::written()? == held::SHORT, "the value is not in force: {} bytes written", held::written()?);
        let cost = self.writer.median()? - baseline;
        let probe = tune.status()?.sites.first().map(|site| site.probe);
        ensure!(probe == Some(Probe::Patch), "the site is {probe:?}");
        tune.unload()?;
        ensure!(held::written()? == held::LONG, "the default is not back");
        Ok(cost)
    }
}

/// Waits until the probe is a jump, or long enough to know that it stays a breakpoint.
fn wait_for_kind(jump: bool, is_jump: impl Fn() -> Result<bool>) -> Result<()> {
    let polls = if jump { OPTIMISED_WITHIN } else { STILL_BREAKPOINT };
    for _ in 0..polls {
        sleep(POLL);
        match (jump, is_jump()?) {
            (true, true) => return Ok(()),
            (false, true) => bail!("the probe became a jump where a breakpoint was to be measured"),
            _ => {}
        }
    }
    ensure!(!jump, "the probe is still a breakpoint where a jump was to be measured");
    Ok(())
}

fn listed_as_optimised(place: &Place) -> Result<bool> {
    let list = std::fs::read_to_string(KPROBES).context(KPROBES)?;
    let name = format!("{SYMBOL}+{:#x}", place.offset);
    let lines: Vec<&str> = list.lines().filter(|line| line.split_whitespace().any(|word| word == name)).collect();
    match lines[..] {
        [line] => Ok(line.contains("[OPTIMIZED]")),
        _ => bail!("{} kprobes are listed at {name}", lines.len()),
    }
}
