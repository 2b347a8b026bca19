//! Many probes for a long time, beside everything else that changes the kernel's code.
//!
//! In: instructions that the host has drawn, and a program that counts its runs at each. Out: what was done and how
//! often, and what does not add up.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{anyhow, ensure, Context, Result};
use serde::{Deserialize, Serialize};
use xk_harness::beside_hotplug_for;
use xk_harness::text::{lasting_differences, Snapshot};
use xk_probe::{maps, Programs};
use xk_runtime::{Device, Error, PlaceStatus, ProbePlace, ProbeStatus, ReachedBy};

use super::kprobes::Kprobes;
use super::{anchor, command, load, load_module, read, Drawn};
use crate::draw::Random;

/// Instructions of one attachment that comes and goes, and foreign kprobes of one group.
const VISITORS: usize = 300;
const FOREIGN: usize = 20;
/// How long each of them stays.
const STAY: Duration = Duration::from_millis(500);
/// How much longer a soak may take until there was a visit.
const PATIENCE: Duration = Duration::from_secs(300);
/// Time between two times that a CPU is switched off.
const ONLINE: Duration = Duration::from_secs(5);
const TRACING: &str = "/sys/kernel/tracing";
/// What is traced.
const TRACED: &str = "vfs_*\ntcp_*\n";

/// What is to be done.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// xk.ko
    #[arg(long)]
    xk: PathBuf,
    /// Instructions
    #[arg(long)]
    drawn: PathBuf,
    /// The compiled program
    #[arg(long)]
    program: PathBuf,
    /// How many are probed all the time; the others come and go
    #[arg(long)]
    places: usize,
    /// For this time
    #[arg(long)]
    seconds: u64,
    /// Seed by which others are chosen
    #[arg(long)]
    seed: u64,
    /// What is to be wrong
    #[arg(long)]
    broken: Option<Broken>,
}

/// What is wrong on purpose, to see that the soak fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Broken {
    /// The program runs at one place more than is counted
    Runs,
    /// The text is compared while an instruction is probed
    Byte,
}

/// What was done.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Report {
    places: usize,
    jumps: usize,
    tracer: usize,
    kprobes: usize,
    seconds: f64,
    hits: u64,
    skipped: u64,
    /// Runs that the program counted.
    runs: u64,
    /// By how much hits and runs may differ because code runs while they are read.
    bracket: u64,
    /// Places that were executed.
    executed: usize,
    /// Each part of the load, by how often it was done.
    load: BTreeMap<String, u64>,
    hotplugs: u64,
    /// Attachments that came and went, and those that were refused because of the others.
    visits: u64,
    refused_visits: u64,
    text_bytes: usize,
    /// Bytes of code that differ when all is over.
    pub different: Vec<String>,
    /// What does not add up.
    sums: Vec<String>,
}

impl Report {
    /// What is wrong.
    pub fn wrong(&self) -> Vec<String> {
        let mut wrong = self.sums.clone();
        wrong.extend(self.different.iter().map(|place| format!("text differs: {place}")));
        let idle = self.load.iter().filter(|(_, times)| **times == 0).map(|(name, _)| name.as_str());
        wrong.extend(idle.map(|name| format!("the load never did: {name}")));
        if self.executed == 0 || self.visits == 0 || self.hotplugs == 0 || self.text_bytes == 0 {
            wrong.push("too little was done".into());
        }
        wrong
    }
}

/// What the workers share.
struct Soak {
    over: AtomicBool,
    start: Instant,
    time: Duration,
}

impl Soak {
    /// Repeats work until the end, and, unless another part has failed, until it was enough; how often it was done.
    fn repeat(&self, mut work: impl FnMut() -> Result<()>, is_enough: impl Fn() -> bool) -> Result<u64> {
        let mut times = 0;
        let goes_on = |times: u64| {
            let late = self.start.elapsed().saturating_sub(self.time);
            late.is_zero() || times == 0 || (late < PATIENCE && !is_enough())
        };
        while !self.over.load(Ordering::Relaxed) && goes_on(times) {
            if let Err(error) = work() {
                self.over.store(true, Ordering::Relaxed);
                return Err(error);
            }
            times += 1;
        }
        Ok(times)
    }
}

fn fio() -> Result<()> {
    let options = "--name=soak --filename=/tmp/load/soak --size=8m --rw=randrw --ioengine=libaio --direct=0 \
                   --iodepth=8 --number_ios=2000 --fsync=64 --minimal";
    fs::create_dir_all("/tmp/load")?;
    command("fio", &options.split_whitespace().collect::<Vec<_>>())
}

fn iperf3() -> Result<()> {
    // 0A: listens.
    const SCRIPT: &str = "iperf3 -s -1 -p 5201 >/dev/null & server=$!
        until grep -q ':1451 .* 0A ' /proc/net/tcp /proc/net/tcp6; do kill -0 $server || exit; sleep 0.1; done
        iperf3 -c 127.0.0.1 -p 5201 -t 2 && wait";
    command("sh", &["-c", SCRIPT])
}

fn forks() -> Result<()> {
    command("sh", &["-c", "i=0; while [ $i -lt 10 ]; do true | cat & i=$((i+1)); done; wait"])
}

/// The function tracer and events, on and off.
fn tracer() -> Result<()> {
    let write = |file: &str, text: &str| fs::write(format!("{TRACING}/{file}"), text).context(file.to_owned());
    write("set_ftrace_filter", TRACED)?;
    for (tracer, events) in [("function", "1"), ("nop", "0")] {
        write("current_tracer", tracer)?;
        write("events/sched/enable", events)?;
        std::thread::sleep(STAY);
    }
    write("set_ftrace_filter", "")
}

/// Kprobes of someone else, optimised where the kernel may.
fn foreign(drawn: &[Drawn], anchor: u64, random: &mut Random) -> Result<()> {
    let mut chosen = Vec::new();
    while chosen.len() < FOREIGN {
        let one = &drawn[random.below(drawn.len() as u64) as usize];
        chosen.extend(one.kprobe.then(|| one.address(anchor)));
    }
    let kprobes = Kprobes::new("xk_foreign", &chosen, FOREIGN)?;
    ensure!(!kprobes.accepted.is_empty(), "the kernel accepts none of {FOREIGN} kprobes");
    std::thread::sleep(STAY);
    Ok(())
}

/// An attachment comes and goes. Returns whether it was accepted: jumps of others may be in its way, and kprobes
/// cannot be on them.
fn visit(device: &Device, drawn: &[Drawn], anchor: u64, random: &mut Random) -> Result<bool> {
    let mut places = BTreeMap::new();
    while places.len() < VISITORS.min(drawn.len()) {
        let place = drawn[random.below(drawn.len() as u64) as usize].place(anchor, 0);
        places.insert(place.address, place);
    }
    let places: Vec<ProbePlace> = places.into_values().collect();
    let id = match device.attach_probes("visitor", None, &places, false) {
        Ok(attached) => attached.id,
        Err(Error::Refused { reason, .. }) => {
            eprintln!("soak: refused: {reason}");
            std::thread::sleep(STAY);
            return Ok(false);
        }
        Err(error) => return Err(error.into()),
    };
    std::thread::sleep(STAY);
    let known = device.probe_places(id)?.len();
    ensure!(known == places.len(), "{known} of {} places of a visitor are known", places.len());
    device.detach_probes(id)?;
    Ok(true)
}

/// Everything at once.
fn everything(arguments: &Arguments, drawn: &[Drawn], anchor: u64, report: &mut Report) -> Result<()> {
    let soak =
        Soak { over: AtomicBool::new(false), start: Instant::now(), time: Duration::from_secs(arguments.seconds) };
    let others = drawn.get(arguments.places..).unwrap_or_default();
    let (mut foreigners, mut visitors) = (Random::of("foreign", arguments.seed), Random::of("visit", arguments.seed));
    let [accepted, refused] = [0, 0].map(AtomicU64::new);
    let (accepted, refused) = (&accepted, &refused);
    type Work<'a> = Box<dyn FnMut() -> Result<()> + Send + 'a>;
    let parts: Vec<(&str, Work<'_>)> = vec![
        ("fio", Box::new(fio)),
        ("iperf3", Box::new(iperf3)),
        ("forks", Box::new(forks)),
        ("tracer", Box::new(tracer)),
        ("programs", Box::new(load::run_all)),
        ("kprobes", Box::new(move || foreign(drawn, anchor, &mut foreigners))),
        ("visits", {
            let device = Device::open()?;
            Box::new(move || {
                let counted = if visit(&device, others, anchor, &mut visitors)? { accepted } else { refused };
                counted.fetch_add(1, Ordering::Relaxed);
                Ok(())
            })
        }),
    ];
    let (load, hotplugs) = beside_hotplug_for(ONLINE, || {
        std::thread::scope(|scope| {
            let soak = &soak;
            // Others may be in the way of every visit of a short soak.
            let is_enough = move |name: &str| name != "visits" || accepted.load(Ordering::Relaxed) > 0;
            let threads: Vec<_> = parts
                .into_iter()
                .map(|(name, work)| (name, scope.spawn(move || soak.repeat(work, || is_enough(name)))))
                .collect();
            let join = |(name, thread): (&str, std::thread::ScopedJoinHandle<'_, Result<u64>>)| {
                let times = thread.join().map_err(|_| anyhow!("{name} panicked"))?.with_context(|| name.to_owned())?;
                Ok((name.to_owned(), times))
            };
            threads.into_iter().map(join).collect::<Result<BTreeMap<String, u64>>>()
        })
    })?;
    report.seconds = soak.start.elapsed().as_secs_f64();
    (report.visits, report.refused_visits) = (accepted.load(Ordering::Relaxed), refused.load(Ordering::Relaxed));
    (report.load, report.hotplugs) = (load, hotplugs);
    Ok(())
}

fn status(device: &Device, id: u32) -> Result<(ProbeStatus, Vec<PlaceStatus>)> {
    let of_all = device.probes()?.into_iter().find(|known| known.id == id).context("the attachment is gone")?;
    Ok((of_all, device.probe_places(id)?))
}

/// Runs of the program by the number of the place.
fn runs(programs: &Programs, file: &[u8]) -> Result<BTreeMap<u64, u64>> {
    let all = maps::read(programs, file);
    let digits = all["bss"]["runs"].as_str().context("the program has no variable `runs`")?.as_bytes();
    let number = |digits: &[u8]| -> Result<u64> {
        let text = std::str::from_utf8(digits)?;
        Ok(u64::from_str_radix(text, 16).with_context(|| text.to_owned())?.swap_bytes())
    };
    (0..).zip(digits.chunks(2 * size_of::<u64>())).map(|(at, digits)| Ok((at, number(digits)?))).collect()
}

/// Hits are runs and what was skipped, in all and at each place.
fn add_up(
    report: &mut Report,
    cookies: &BTreeMap<u64, u64>,
    before: &(ProbeStatus, Vec<PlaceStatus>),
    runs: &BTreeMap<u64, u64>,
    after: &(ProbeStatus, Vec<PlaceStatus>),
) {
    let total: u64 = runs.values().sum();
    (report.hits, report.skipped, report.runs) = (after.0.hits, after.0.skipped, total);
    let least = before.0.hits.saturating_sub(after.0.skipped);
    let most = after.0.hits.saturating_sub(before.0.skipped);
    report.bracket = most - least;
    if !(least..=most).contains(&total) {
        report.sums.push(format!("the program ran {total} times, hits without skipped ones are {least} to {most}"));
    }
    for (earlier, later) in before.1.iter().zip(&after.1) {
        let ran = cookies.get(&later.address).and_then(|cookie| runs.get(cookie)).copied().unwrap_or_default();
        report.executed += usize::from(later.hits > 0);
        if ran > later.hits || ran < earlier.hits.saturating_sub(after.0.skipped) {
            report.sums.push(format!("{:#x}: {} hits, {ran} runs", later.address, later.hits));
        }
    }
}

fn count_kinds(report: &mut Report, places: &[PlaceStatus]) {
    let count = |by: ReachedBy| places.iter().filter(|place| place.by == by).count();
    (report.places, report.jumps) = (places.len(), count(ReachedBy::Jump));
    (report.tracer, report.kprobes) = (count(ReachedBy::Tracer), count(ReachedBy::Kprobe));
}

/// Does it.
///
/// # Errors
/// When the kernel refuses the probes, or a part of the load fails.
pub fn run(arguments: &Arguments) -> Result<Report> {
    let (drawn, anchor) = (read(&arguments.drawn)?, anchor()?);
    let mut report = Report::default();
    // The kernel switches some code for good when it is used for the first time.
    for first in [fio, iperf3, forks, tracer, load::run_all] {
        first()?;
    }
    let text = Snapshot::of(&[])?;
    report.text_bytes = text.size();
    let device = load_module(&arguments.xk)?;
    let file = fs::read(&arguments.program)?;
    let probes = xk_probe::probes(&file, &[], None)?;
    let programs = Programs::load(&file, &probes)?;
    let program = probes.first().and_then(|probe| programs.program(probe)).context("no program")?;
    let numbered = drawn.iter().take(arguments.places).enumerate();
    let places: Vec<ProbePlace> = numbered.map(|(number, one)| one.place(anchor, number as u64)).collect();
    eprintln!("soak: attaching to {} instructions", places.len());
    let id = device.attach_probes("soak", Some(program), &places, false)?.id;
    let (_, first) = status(&device, id)?;
    count_kinds(&mut report, &first);
    everything(arguments, &drawn, anchor, &mut report)?;
    eprintln!("soak: adding up");
    let before = status(&device, id)?;
    let mut ran = runs(&programs, &file)?;
    let after = status(&device, id)?;
    if arguments.broken == Some(Broken::Runs) {
        ran.values_mut().take(1).for_each(|runs| *runs += 1_000_000_000);
    }
    if first.iter().map(|place| (place.address, place.by)).ne(after.1.iter().map(|place| (place.address, place.by))) {
        report.sums.push("what reaches a place has changed".into());
    }
    let cookies = places.iter().map(|place| (place.address, place.cookie)).collect();
    add_up(&mut report, &cookies, &before, &ran, &after);
    if arguments.broken == Some(Broken::Byte) {
        report.different = lasting_differences(&text, &[])?;
        return Ok(report);
    }
    device.detach_probes(id)?;
    drop(device);
    command("rmmod", &["xk"])?;
    report.different = lasting_differences(&text, &[])?;
    Ok(report)
}
