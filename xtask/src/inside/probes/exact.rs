//! Compares counts of probes of xk.ko with those of kprobes that are breakpoints, in the same executions.
//!
//! In: many instructions, drawn on the host. Those that a load executes are found by a first attachment. Then places are
//! chosen at random, most of them among these, the others among those that were not executed. The kprobe of a place is
//! either on the jump of xk.ko, so that every execution passes both, or on another instruction that is executed exactly
//! as often, so that neither touches the other.
//!
//! Counts are read as ours, theirs, ours, before the load and after it. If both of ours are equal, theirs must be. Where
//! code runs while they are read, theirs must lie between them.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{ensure, Result};
use serde::{Deserialize, Serialize};
use xk_runtime::{Device, ProbePlace, ReachedBy};

use super::kprobes::{switch_optimisation_off, Kprobes};
use super::{anchor, load, load_module, read, Drawn};
use crate::draw::Random;

/// Of the compared places, the share that the first load executes, in percent.
const EXECUTED: usize = 75;
/// Places that are chosen for 100 that are compared.
const SPARE: usize = 125;
/// Differences that are listed.
const TOLD: usize = 20;
/// What the load leaves behind ends within this time.
const CALM: Duration = Duration::from_secs(2);

/// What is to be done.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// xk.ko
    #[arg(long)]
    xk: PathBuf,
    /// Instructions to choose from
    #[arg(long)]
    drawn: PathBuf,
    /// How many to compare
    #[arg(long)]
    places: usize,
    /// Seed by which they are chosen
    #[arg(long)]
    seed: u64,
    /// What is to be wrong
    #[arg(long)]
    broken: Option<Broken>,
}

/// What is wrong on purpose, to see that the check fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Broken {
    /// Counts of another place are compared
    Swapped,
    /// Our counts are read before the load ends
    Early,
}

/// Where the kprobe is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Side {
    /// On the jump itself.
    OnJump,
    /// On another instruction.
    Apart,
}

/// How the places of one side compare.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Compared {
    places: usize,
    /// Of these, with executions when candidates were counted.
    candidates: usize,
    /// With executions when both counted.
    executed: usize,
    executions: u64,
    /// Theirs are exactly ours.
    equal: usize,
    /// Theirs lie between ours, which were not the same while theirs were read.
    bracketed: usize,
    /// The widest of these.
    widest_bracket: u64,
}

/// What came of it.
#[derive(Debug, Serialize, Deserialize)]
pub struct Report {
    /// Of all that were drawn, how many the first load executes.
    drawn_executed: usize,
    drawn: usize,
    sides: BTreeMap<Side, Compared>,
    differences: usize,
    /// The first of them.
    told: Vec<String>,
    /// Kprobes that the kernel refused; not among the places.
    refused: usize,
    /// How many places were to be compared.
    wanted: usize,
}

impl Report {
    /// What is wrong.
    pub fn wrong(&self) -> Vec<String> {
        let mut wrong = self.told.clone();
        if self.differences > self.told.len() {
            wrong.push(format!("{} more places differ", self.differences - self.told.len()));
        }
        for side in [Side::OnJump, Side::Apart] {
            let of = |number: fn(&Compared) -> usize| self.sides.get(&side).map_or(0, number);
            let (executed, candidates) = (of(|all| all.executed), of(|all| all.candidates));
            if executed * 2 < candidates || executed == 0 {
                wrong.push(format!("{side:?}: the load executed {candidates} places at first, then only {executed}"));
            }
        }
        let compared: usize = self.sides.values().map(|all| all.places).sum();
        // At some places xk.ko itself uses a kprobe.
        if compared * 100 < self.wanted * 98 {
            wrong.push(format!("only {compared} of {} places were compared", self.wanted));
        }
        wrong
    }

    /// For people.
    pub fn table(&self) -> String {
        let mut text =
            format!("{} of {} drawn instructions are executed by the load\n", self.drawn_executed, self.drawn);
        for (side, all) in &self.sides {
            let words = match side {
                Side::OnJump => "kprobe on the jump",
                Side::Apart => "kprobe on another instruction",
            };
            text += &format!(
                "{words}: {} places, {} executed, {} executions; {} equal, {} bracketed by at most {}\n",
                all.places, all.executed, all.executions, all.equal, all.bracketed, all.widest_bracket
            );
        }
        text + &format!("{} differ; the kernel refused {} kprobes\n", self.differences, self.refused)
    }
}

/// A place that is compared.
struct Chosen<'a> {
    drawn: &'a Drawn,
    /// The load executed it when candidates were counted.
    candidate: bool,
    side: Side,
    kprobe: u64,
}

/// Executes the load once, and counts by xk.ko.
fn executed(device: &Device, drawn: &[Drawn], anchor: u64) -> Result<Vec<bool>> {
    let places: Vec<ProbePlace> = drawn.iter().map(|one| one.place(anchor, 0)).collect();
    let id = device.attach_probes("candidates", None, &places, false)?.id;
    load::run_all()?;
    let known: BTreeMap<u64, u64> = device.probe_places(id)?.iter().map(|place| (place.address, place.hits)).collect();
    device.detach_probes(id)?;
    Ok(places.iter().map(|place| known.get(&place.address).is_some_and(|hits| *hits > 0)).collect())
}

/// Chooses places at random, half of them for each side as far as possible; more than are compared, since the kernel
/// refuses some kprobes. In random order.
fn choose<'a>(drawn: &'a [Drawn], executed: &[bool], anchor: u64, arguments: &Arguments) -> Vec<Chosen<'a>> {
    let mut random = Random::of("exact", arguments.seed);
    let mut left: [Vec<&Drawn>; 2] = Default::default();
    for (one, executed) in drawn.iter().zip(executed) {
        if one.kprobe && one.window > 0 {
            left[usize::from(*executed)].push(one);
        }
    }
    let all = arguments.places * SPARE;
    let wanted = [all * (100 - EXECUTED) / 10_000, all * EXECUTED / 10_000];
    let mut chosen = Vec::new();
    for ((mut left, wanted), candidate) in left.into_iter().zip(wanted).zip([false, true]) {
        let mut number = 0;
        while number < wanted && !left.is_empty() {
            let one = left.swap_remove(random.below(left.len() as u64) as usize);
            let (side, kprobe) = match one.companion {
                Some(companion) if random.below(2) == 0 => (Side::Apart, anchor.wrapping_add_signed(companion)),
                _ if one.window_lead == 0 => (Side::OnJump, one.address(anchor)),
                Some(companion) => (Side::Apart, anchor.wrapping_add_signed(companion)),
                None => continue,
            };
            chosen.push(Chosen { drawn: one, candidate, side, kprobe });
            number += 1;
        }
    }
    let mut shuffled = Vec::new();
    while !chosen.is_empty() {
        shuffled.push(chosen.swap_remove(random.below(chosen.len() as u64) as usize));
    }
    shuffled
}

/// Ours and theirs, by the number of the place.
struct Reading {
    first: Vec<u64>,
    theirs: BTreeMap<usize, u64>,
    second: Vec<u64>,
}

fn reading(device: &Device, id: u32, places: &[ProbePlace], kprobes: &Kprobes) -> Result<Reading> {
    let first = ours(device, id, places)?;
    let theirs = kprobes.executions()?;
    Ok(Reading { first, theirs, second: ours(device, id, places)? })
}

fn ours(device: &Device, id: u32, places: &[ProbePlace]) -> Result<Vec<u64>> {
    let known: BTreeMap<u64, u64> =
        device.probe_places(id)?.iter().map(|place| (place.address, place.hits + place.missed)).collect();
    let hits: Vec<u64> = places.iter().filter_map(|place| known.get(&place.address).copied()).collect();
    ensure!(hits.len() == places.len(), "{} of {} places are known", hits.len(), places.len());
    Ok(hits)
}

impl Report {
    /// Compares the place with this number.
    fn compare(&mut self, chosen: &Chosen<'_>, number: usize, before: &Reading, after: &Reading) {
        let side = self.sides.entry(chosen.side).or_default();
        let Some((start, end)) = before.theirs.get(&number).zip(after.theirs.get(&number)) else { return };
        let theirs = end.saturating_sub(*start);
        let least = after.first[number].saturating_sub(before.second[number]);
        let most = after.second[number].saturating_sub(before.first[number]);
        side.places += 1;
        side.candidates += usize::from(chosen.candidate);
        side.executed += usize::from(theirs > 0);
        side.executions += theirs;
        if least == most && theirs == least {
            side.equal += 1;
        } else if least < most && (least..=most).contains(&theirs) {
            side.bracketed += 1;
            side.widest_bracket = side.widest_bracket.max(most - least);
        } else {
            self.differences += 1;
            if self.told.len() < TOLD {
                self.told.push(format!(
                    "{} ({:?}, kprobe {:#x}): ours {least} to {most}, kprobe {theirs}",
                    chosen.drawn.name, chosen.side, chosen.kprobe
                ));
            }
        }
    }
}

/// Does it.
///
/// # Errors
/// When the kernel refuses probes.
pub fn run(arguments: &Arguments) -> Result<Report> {
    let (drawn, anchor) = (read(&arguments.drawn)?, anchor()?);
    let device = load_module(&arguments.xk)?;
    eprintln!("exact: which of {} instructions are executed", drawn.len());
    let executed = executed(&device, &drawn, anchor)?;
    let chosen = choose(&drawn, &executed, anchor, arguments);
    let places: Vec<ProbePlace> = chosen.iter().map(|one| one.drawn.place(anchor, 0)).collect();
    eprintln!("exact: {} places by xk.ko, then by kprobes", places.len());
    let id = device.attach_probes("exact", None, &places, false)?.id;
    let reached = device.probe_places(id)?;
    switch_optimisation_off()?;
    let wanted: Vec<u64> = chosen.iter().map(|one| one.kprobe).collect();
    let kprobes = Kprobes::new("xk_exact", &wanted, arguments.places)?;
    eprintln!("exact: {} kprobes are accepted", kprobes.accepted.len());
    let before = reading(&device, id, &places, &kprobes)?;
    load::run_all()?;
    std::thread::sleep(CALM);
    let mut early = reading(&device, id, &places, &kprobes)?;
    if arguments.broken == Some(Broken::Early) {
        load::run_all()?;
        early.theirs = kprobes.executions()?;
    }
    if arguments.broken == Some(Broken::Swapped) {
        early.first.rotate_left(1);
        early.second.rotate_left(1);
    }
    let after = early;
    let mut report = Report {
        drawn_executed: executed.iter().filter(|executed| **executed).count(),
        drawn: drawn.len(),
        sides: BTreeMap::new(),
        differences: 0,
        told: Vec::new(),
        refused: kprobes.refused,
        wanted: arguments.places,
    };
    let by: BTreeMap<u64, ReachedBy> = reached.iter().map(|place| (place.address, place.by)).collect();
    for (number, one) in chosen.iter().enumerate() {
        // Where xk.ko refused the jump, it uses a kprobe itself, and both would be one.
        if by.get(&places[number].address) == Some(&ReachedBy::Jump) {
            report.compare(one, number, &before, &after);
        }
    }
    drop(kprobes);
    device.detach_probes(id)?;
    Ok(report)
}
