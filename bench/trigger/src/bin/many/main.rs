//! Measures, inside a deterministic guest, what many policies at once cost Redis in
//! instructions per request: policies of xk.ko, each with a site of its own on the path of a
//! request, reached by detours and by kprobes, and at the same sites as many eBPF kprobes
//! through perf that write the same register.
//!
//! In: the objects of `bpf/`, a redis-server; xk.ko and xk_bench.ko are loaded. Out: one JSON
//! object on the last line. Refuses to report a figure whose mechanism did not run: every
//! probe must be a jump, every policy have set a value in each of its executions, and all
//! kinds have been reached equally often.

mod load;
mod redis;
mod sites;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::Duration;

use anyhow::{bail, ensure, Context, Result};
use serde::Serialize;
use xk_bench_trigger::measure::check_unit;
use xk_bench_trigger::tracer::{counting, Attachment, Program};
use xk_runtime::{Backend, Change, Destination, Device, Mode, Policy, Probe, Tune};

use load::{Exchange, Load};
use redis::Redis;
use sites::Site;

/// Policies at once.
const COUNTS: [usize; 4] = [8, 32, 64, 128];
const CONNECTIONS: usize = 8;
/// Of a round; the same ones in each.
const REQUESTS: usize = 256;
/// The median counts.
const ROUNDS: usize = 15;
/// Rounds before.
const WARM_UP: usize = 3;
/// By so much the cost of a request alone may drift in a run, and the triggers of the two kinds may differ.
const DRIFT: f64 = 0.02;
/// It is steady when it differs by no more from one measurement to the next, of at most so many.
const STEADY: f64 = 0.003;
const STEADY_WITHIN: u32 = 20;
/// Of executions, so many may have been missed by a probe above another.
const MISSED: f64 = 0.001;
/// What policies set.
const VALUE: i64 = 5;
const KPROBES: &str = "/sys/kernel/debug/kprobes/list";

/// Of one load; instructions per request by how many are active.
#[derive(Debug, Serialize)]
struct Served {
    load: String,
    /// Without any, before and after everything else.
    base: [f64; 2],
    /// By detours.
    xk: BTreeMap<usize, f64>,
    xk_kprobe: BTreeMap<usize, f64>,
    perf_bpf: BTreeMap<usize, f64>,
    /// Executions of a site per request, as the sites of xk.ko count them.
    triggers_per_request: BTreeMap<usize, f64>,
    /// Executions that kprobes did not show to xk.ko.
    missed: u64,
}

#[derive(Debug, Serialize)]
struct Report {
    connections: usize,
    requests_per_round: usize,
    rounds: usize,
    sites: Vec<String>,
    served: BTreeMap<&'static str, Served>,
}

fn main() -> Result<()> {
    let mut arguments = std::env::args_os().skip(1).map(PathBuf::from);
    let (objects, server) =
        arguments.next().zip(arguments.next()).context("usage: xk-bench-many FOLDER-OF-OBJECTS REDIS-SERVER")?;
    check_unit()?;
    let device = Device::open()?;
    let mut redis = Redis::start(&server, CONNECTIONS)?;
    let loads = [Load::ycsb(REQUESTS), Load::etc(REQUESTS)];
    let first = loads[0].round();
    redis.serve(&loads[0].fill())?;
    redis.serve(&first)?;
    let sites = sites::choose(&device, || {
        redis.serve(&first)?;
        Ok(REQUESTS as u64)
    })?;
    // Hundreds of probes went; what the kernel does about it afterwards is nobody's request.
    sleep(Duration::from_secs(30));
    let most = COUNTS[COUNTS.len() - 1];
    ensure!(sites.len() >= most, "{} instructions on the path become jumps, {most} are wanted", sites.len());
    let mut bench = Bench { device, redis, sites, objects };
    let mut served = BTreeMap::new();
    for load in &loads {
        served.insert(load.name, bench.serve(load)?);
    }
    let place = |site: &Site| format!("{}+{:#x}: {}", site.symbol, site.place.offset, site.place.text);
    let report = Report {
        connections: CONNECTIONS,
        requests_per_round: REQUESTS,
        rounds: ROUNDS,
        sites: bench.sites[..most].iter().map(place).collect(),
        served,
    };
    println!("{}", serde_json::to_string(&report)?);
    Ok(())
}

/// The kernel's optimiser works in the background, and puts bytes back there.
fn settle() {
    sleep(Duration::from_secs(3));
}

struct Bench {
    device: Device,
    redis: Redis,
    sites: Vec<Site>,
    objects: PathBuf,
}

/// Instructions and triggers, per request.
struct Cost {
    instructions: f64,
    triggers: f64,
    missed: u64,
}

impl Bench {
    fn serve(&mut self, load: &Load) -> Result<Served> {
        self.redis.serve(&load.fill())?;
        let round = load.round();
        let before = steady(&mut self.redis, &round)?;
        let mut served = Served {
            load: load.describe()?,
            base: [before; 2],
            xk: BTreeMap::new(),
            xk_kprobe: BTreeMap::new(),
            perf_bpf: BTreeMap::new(),
            triggers_per_request: BTreeMap::new(),
            missed: 0,
        };
        for count in COUNTS {
            eprintln!("bench: {}, {count} at once", load.name);
            let mut ours = |backend| {
                self.ours(count, &round, backend).with_context(|| format!("{count} policies, by {backend:?}"))
            };
            let (detours, kprobes) = (ours(Backend::Detour)?, ours(Backend::Kprobe)?);
            let perf = self.perf(count, &round).with_context(|| format!("{count} eBPF kprobes"))?;
            ensure!(detours.missed == 0, "{} executions were missed by detours", detours.missed);
            for other in [&kprobes, &perf] {
                ensure!(
                    (other.triggers / detours.triggers - 1.0).abs() <= DRIFT,
                    "{} triggers per request of {count} detours, {} of probes there",
                    detours.triggers,
                    other.triggers
                );
            }
            served.xk.insert(count, detours.instructions);
            served.xk_kprobe.insert(count, kprobes.instructions);
            served.perf_bpf.insert(count, perf.instructions);
            served.triggers_per_request.insert(count, detours.triggers);
            served.missed += kprobes.missed;
        }
        let after = median(&mut self.redis, &round)?;
        ensure!(
            (after / before - 1.0).abs() <= DRIFT,
            "a request by itself drifted from {before} to {after} instructions"
        );
        served.base[1] = after;
        Ok(served)
    }

    /// Policies of xk.ko.
    fn ours(&mut self, count: usize, round: &[Exchange], backend: Backend) -> Result<Cost> {
        let kprobes = if backend == Backend::Kprobe { count } else { 0 };
        let Self { device, redis, sites, objects } = self;
        let mut tunes = Vec::new();
        let mut programs = Vec::new();
        for site in &sites[..count] {
            let program = Program::load(&objects.join("policy.bpf.o"))?;
            let tune = site.load(device, backend)?;
            device.give_policy(tune.id(), &Policy::for_each_site(program.fd()?))?;
            tunes.push(tune);
            programs.push(program);
        }
        let changes: Vec<_> =
            tunes.iter().map(|tune| Change { id: tune.id(), to: Destination::Policy(VALUE) }).collect();
        device.transition(&changes, Mode::Now, Duration::ZERO)?;
        settle();
        all_are_jumps(kprobes)?;
        let before = did(&tunes, backend)?;
        let instructions = median(redis, round)?;
        let after = did(&tunes, backend)?;
        all_are_jumps(kprobes)?;
        let [hits, chosen, missed] = std::array::from_fn(|i| after[i] - before[i]);
        ensure!(hits > 0 && chosen == hits, "{chosen} values were set in {hits} executions");
        ensure!(missed as f64 <= hits as f64 * MISSED, "{missed} executions were missed beside {hits}");
        for tune in tunes {
            tune.unload()?;
        }
        settle();
        Ok(Cost { instructions, triggers: hits as f64 / (REQUESTS * (WARM_UP + ROUNDS)) as f64, missed })
    }

    /// eBPF kprobes through perf.
    fn perf(&mut self, count: usize, round: &[Exchange]) -> Result<Cost> {
        let Self { redis, sites, objects, .. } = self;
        let programs = (0..count).map(|_| Program::load(&objects.join("kfunc.bpf.o"))).collect::<Result<Vec<_>>>()?;
        let attached: Vec<Attachment<'_>> = sites[..count]
            .iter()
            .zip(&programs)
            .map(|(site, program)| program.attach(site.symbol, site.place.offset))
            .collect::<Result<_>>()?;
        settle();
        all_are_jumps(count)?;
        let instructions = median(redis, round)?;
        all_are_jumps(count)?;
        let runs = || programs.iter().map(Program::runs).sum::<Result<u64>>();
        let before = runs()?;
        counting(|| redis.serve(round))?;
        let triggers = (runs()? - before) as f64 / REQUESTS as f64;
        drop(attached);
        settle();
        Ok(Cost { instructions, triggers, missed: 0 })
    }
}

/// Hits of all sites, values that their policies set, and executions that were missed.
fn did(tunes: &[Tune], backend: Backend) -> Result<[u64; 3]> {
    let wanted = if backend == Backend::Detour { Probe::Detour } else { Probe::Jump };
    let mut sum = [0; 3];
    for tune in tunes {
        let status = tune.status()?;
        let site = status.sites.first().context("the tune has no site")?;
        let policy = status.policy.as_ref().and_then(|policy| policy.sites.first()).context("a site has no policy")?;
        ensure!(site.probe == wanted, "{}+{:#x} is {:?}", site.symbol, site.offset, site.probe);
        ensure!(
            policy.refused == 0 && policy.skipped == 0 && site.faults == 0 && site.applied == site.hits,
            "a policy was kept from its work: {site:?}, {policy:?}"
        );
        let of_site = [site.hits, policy.chosen, site.missed];
        sum.iter_mut().zip(of_site).for_each(|(sum, n)| *sum += n);
    }
    Ok(sum)
}

/// Instructions per request.
fn median(redis: &mut Redis, round: &[Exchange]) -> Result<f64> {
    for _ in 0..WARM_UP {
        redis.serve(round)?;
    }
    let mut rounds = (0..ROUNDS).map(|_| redis.serve(round)).collect::<Result<Vec<_>>>()?;
    rounds.sort_unstable();
    Ok(rounds[ROUNDS / 2] as f64 / round.len() as f64)
}

/// Instructions per request, as soon as they are the same twice: the server has its memory then, and the kernel
/// has put away what was before.
fn steady(redis: &mut Redis, round: &[Exchange]) -> Result<f64> {
    let mut before = median(redis, round)?;
    for _ in 0..STEADY_WITHIN {
        let now = median(redis, round)?;
        if (now / before - 1.0).abs() <= STEADY {
            return Ok(now);
        }
        before = now;
    }
    bail!("a request by itself does not settle: {before} instructions at last")
}

/// That the kernel has so many probes, and made a jump of each; those that guard detours do nothing.
fn all_are_jumps(count: usize) -> Result<()> {
    let list = std::fs::read_to_string(Path::new(KPROBES)).context(KPROBES)?;
    let probes = || list.lines().filter(|line| !line.contains("[DISABLED]"));
    let jumps = probes().filter(|line| line.contains("[OPTIMIZED]")).count();
    let all = probes().count();
    ensure!(all == count && jumps == count, "{jumps} of {all} probes are jumps, {count} of {count} are wanted");
    Ok(())
}
