//! How long transitions take: a constant of `tcp_sendmsg()` against a livepatch of
//! it, while TCP flows run; and those of `kernel/atomic`, by number of threads,
//! depth of calls and rate of triggers.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{ensure, Context, Result};
use serde::{Deserialize, Serialize};
use xk_harness::{family, Atomic, Flipper, Running};
use xk_runtime::{Destination, Device, Mode};
use xk_table::{Op, OpCode, Scope, ScopeTable, When};

const FUNCTION: &str = "tcp_sendmsg";
/// `xor %esi,%esi`: the subclass of the lock, which only lockdep would read.
const SUBCLASS: [u8; 2] = [0x31, 0xf6];
const RSI: u8 = 6;
const LIVEPATCH: &str = "/sys/kernel/livepatch/xk_livepatch";
const TIMEOUT: Duration = Duration::from_secs(60);

/// What is to be measured.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// kernel/atomic, which is loaded
    #[arg(long)]
    atomic: PathBuf,
    /// kernel/livepatch, which is not
    #[arg(long)]
    livepatch: PathBuf,
    /// TCP flows
    #[arg(long)]
    flows: u32,
    /// Bits per second of each flow, as iperf3 takes them; 0: as many as there can be
    #[arg(long)]
    rate: String,
    /// Transitions of each kind
    #[arg(long)]
    rounds: usize,
    /// Leave out what needs no flows
    #[arg(long)]
    no_grid: bool,
}

/// What was measured, in milliseconds of the guest.
#[derive(Debug, Serialize, Deserialize)]
pub struct Report {
    /// From loading the table until every thread uses the new value, in task mode.
    pub xk: Vec<f64>,
    /// ... of which the transition.
    pub xk_transition: Vec<f64>,
    /// ... in mode now, which is what version atomicity of one critical span needs.
    pub xk_now: Vec<f64>,
    /// From loading the module until every thread is patched.
    pub livepatch: Vec<f64>,
    /// How often the site was reached, and the replacement was called.
    pub reached: [u64; 2],
    /// Flows that were established.
    pub flows: u32,
    /// Transitions of `DESCEND`.
    pub grid: Vec<Cell>,
}

/// One setting of `kernel/atomic`.
#[derive(Debug, Serialize, Deserialize)]
pub struct Cell {
    /// Threads that run.
    pub threads: u32,
    /// Calls above the critical span.
    pub depth: u32,
    /// Executions of the critical span in a second, all threads together.
    pub per_second: f64,
    /// Mode.
    pub mode: String,
    /// Of the kernel's measure.
    pub median_ms: f64,
    /// Likewise.
    pub max_ms: f64,
    /// Mean.
    pub stops: f64,
}

/// Measures.
pub fn run(arguments: &Arguments) -> Result<Report> {
    let mut report = under_flows(arguments)?;
    if !arguments.no_grid {
        report.grid = grid(&arguments.atomic, arguments.rounds)?;
    }
    Ok(report)
}

fn under_flows(arguments: &Arguments) -> Result<Report> {
    let function = Running::find(FUNCTION)?;
    let table = lock_table(&function)?;
    let livepatch = fs::read(&arguments.livepatch).context("the livepatch")?;
    let device = Device::open()?;
    let flows = Flows::start(arguments.flows, &arguments.rate)?;
    let (mut xk, mut xk_transition, mut xk_now, mut patched) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let mut reached = [0, 0];
    for round in 0..arguments.rounds {
        eprintln!("inside: round {} of {}", round + 1, arguments.rounds);
        for (mode, times) in [(Mode::Task, &mut xk), (Mode::Now, &mut xk_now)] {
            let start = Instant::now();
            let tune = device.load(&table, &function)?;
            let done = tune.go(Destination::Value(1), mode, TIMEOUT)?;
            times.push(milliseconds(start.elapsed()));
            if mode == Mode::Task {
                xk_transition.push(milliseconds(done.elapsed));
            }
            reached[0] += wait_for(|| Ok(tune.status()?.sites.iter().map(|site| site.applied).sum()))?;
            tune.go(Destination::Unload, mode, TIMEOUT)?;
        }
        let (time, calls) = patch(&livepatch)?;
        patched.push(milliseconds(time));
        reached[1] += calls;
    }
    let flows = flows.end()?;
    Ok(Report { xk, xk_transition, xk_now, livepatch: patched, reached, flows, grid: Vec::new() })
}

fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}

/// Waits until it is no longer 0.
fn wait_for(number: impl Fn() -> Result<u64>) -> Result<u64> {
    for _ in 0..3000 {
        let now = number()?;
        if now > 0 {
            return Ok(now);
        }
        sleep(Duration::from_millis(10));
    }
    anyhow::bail!("{FUNCTION} was not called within half a minute: nothing would be measured")
}

/// The subclass of the lock as a constant. Inside is who is anywhere in the
/// function: as much as a livepatch waits for.
fn lock_table(function: &Running) -> Result<ScopeTable> {
    let mut places = function.code().windows(2).enumerate().filter(|(_, window)| *window == SUBCLASS);
    let (place, _) = places.next().with_context(|| format!("{FUNCTION} takes its lock in another way"))?;
    ensure!(places.next().is_none(), "{FUNCTION} clears esi in two places");
    let mut table = xk_harness::empty_table("SUBCLASS", 0, Mode::Task);
    let op = |code| Op { code, width: 4, dst: 0, a: 0, b: 0, c: 0, imm: 0 };
    let mut span = xk_harness::site(0, place as u32, SUBCLASS.len() as u8);
    span.indirection.when = When::After;
    span.indirection.program.ops = vec![op(OpCode::Iv), Op { dst: RSI, ..op(OpCode::SetReg) }];
    table.spans.push(span);
    table.functions.push(function.function());
    let ranges = vec![[0, function.code().len() as u32]];
    table.scopes.push(Scope { function: 0, ranges, spans: vec![0], ..Scope::default() });
    Ok(table)
}

/// Loads the livepatch, and takes it away again; how long until every thread was
/// patched, and how often the replacement was called.
fn patch(module: &[u8]) -> Result<(Duration, u64)> {
    let transition = || fs::read_to_string(format!("{LIVEPATCH}/transition"));
    let start = Instant::now();
    rustix::system::init_module(module, c"").context("loading the livepatch")?;
    while transition()?.trim() != "0" {
        ensure!(start.elapsed() < 10 * TIMEOUT, "the livepatch does not come to an end");
        sleep(Duration::from_millis(1));
    }
    let time = start.elapsed();
    let calls = || Ok(fs::read_to_string("/sys/module/xk_livepatch/parameters/calls")?.trim().parse()?);
    let calls = wait_for(calls)?;
    fs::write(format!("{LIVEPATCH}/enabled"), "0")?;
    while Path::new(LIVEPATCH).exists() {
        sleep(Duration::from_millis(10));
    }
    // The last user of the module may still be on its way out.
    while rustix::system::delete_module(c"xk_livepatch", 0).is_err() {
        sleep(Duration::from_millis(10));
    }
    Ok((time, calls))
}

/// `iperf3` over loopback.
struct Flows {
    server: Child,
    client: Child,
    established: u32,
}

impl Flows {
    fn start(flows: u32, rate: &str) -> Result<Self> {
        let iperf = |arguments: &[&str]| Command::new("iperf3").args(arguments).stdout(Stdio::null()).spawn();
        let server = iperf(&["-s"]).context("iperf3: run `scripts/setup workload`")?;
        sleep(Duration::from_secs(1));
        let client = iperf(&["-c", "127.0.0.1", "-P", &flows.to_string(), "-b", rate, "-t", "86400", "-i", "0"])?;
        let mut started = Self { server, client, established: 0 };
        for _ in 0..600 {
            // Both ends are listed, and one connection more, for control.
            started.established = (established()? / 2).saturating_sub(1);
            if started.established >= flows {
                // All of them have begun to send.
                sleep(Duration::from_secs(3));
                return Ok(started);
            }
            sleep(Duration::from_millis(100));
        }
        anyhow::bail!("{} of {flows} flows within a minute", started.established)
    }

    /// They must still be there; how many.
    fn end(mut self) -> Result<u32> {
        ensure!(self.client.try_wait()?.is_none(), "iperf3 has ended while it was needed");
        Ok(self.established)
    }
}

impl Drop for Flows {
    fn drop(&mut self) {
        for child in [&mut self.client, &mut self.server] {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn established() -> Result<u32> {
    // The server listens on both families.
    let text = fs::read_to_string("/proc/net/tcp")? + &fs::read_to_string("/proc/net/tcp6")?;
    Ok(text.lines().filter(|line| line.split_whitespace().nth(3) == Some("01")).count() as u32)
}

const THREADS: [u32; 4] = [1, 4, 8, 16];
const DEPTHS: [u32; 3] = [1, 4, 8];
/// Microseconds between the rounds of a thread.
const PAUSES: [u32; 2] = [200, 2000];
/// Microseconds of work in every function of the chain, on entry and on leaving.
const WORK: u32 = 5;

fn grid(module: &Path, rounds: usize) -> Result<Vec<Cell>> {
    let mut cells = Vec::new();
    Atomic.tell(&format!("work {WORK}"))?;
    Atomic.tell("inside 16")?;
    for threads in THREADS {
        for depth in DEPTHS {
            for pause in PAUSES {
                Atomic.tell(&format!("depth {depth}"))?;
                Atomic.tell(&format!("pause {pause}"))?;
                for mode in [Mode::Task, Mode::Global] {
                    cells.push(cell(module, rounds, threads, depth, mode)?);
                }
            }
        }
    }
    Ok(cells)
}

fn cell(module: &Path, rounds: usize, threads: u32, depth: u32, mode: Mode) -> Result<Cell> {
    let flipper = Flipper::load(module, &[family("DESCEND")?])?;
    Atomic.start(threads, Atomic::mask(&["descend"]))?;
    sleep(Duration::from_millis(50));
    let (before, start) = (Atomic.counts()?, Instant::now());
    let mut times = Vec::new();
    let mut stops = 0;
    for round in 0..rounds {
        let done = flipper.to(100 + (round % 2) as i64, mode, TIMEOUT)?;
        times.push(milliseconds(done.elapsed));
        stops += done.stops;
        // Not in step with the threads.
        sleep(Duration::from_micros(1000 + 700 * (round as u64 % 7)));
    }
    let seen = Atomic.counts()?.since(&before).span("descend");
    let seconds = start.elapsed().as_secs_f64();
    Atomic.stop()?;
    flipper.unload(mode, TIMEOUT)?;
    ensure!(seen.rounds > 0 && seen.violations == seen.defaults, "{seen:?}");
    times.sort_by(f64::total_cmp);
    Ok(Cell {
        threads,
        depth,
        per_second: seen.rounds as f64 / seconds,
        mode: mode.to_string(),
        median_ms: times[times.len() / 2],
        max_ms: times[times.len() - 1],
        stops: f64::from(stops) / rounds as f64,
    })
}
