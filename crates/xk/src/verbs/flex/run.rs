//! `xk flex run`: runs the programs of a file, and says which runs are ended.

use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::json;
use xk_apply::parse_time;
use xk_flex::{
    attach, is_of_heap, load, take_ended, unreported, Control, Ended, Fault, Heap, Limits, Loaded, Locks, Usage, Who,
    Why,
};

use super::damage::Inspected;
use super::loops;
use crate::exit::{Exit, Failure, Result};
use crate::output::{count, print_json};
use crate::signals;

/// How long to wait between two looks at the runs that were ended.
const STEP: Duration = Duration::from_millis(200);

/// Arguments of `xk flex run`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Only loops that the verifier refuses are instrumented. Programs are attached by their sections: fentry, kprobe,
tracepoint and others; those of XDP to --dev. Each run that is ended is shown, with the place of the loop. The command
gives the heap of the object pages as they are used up. When it ends, all runs end, and the programs are detached.")]
pub struct Args {
    #[command(flatten)]
    input: super::Input,
    /// Stop after this time
    #[arg(long = "for", value_name = "TIME", value_parser = parse_time)]
    time: Option<Duration>,
    #[command(flatten)]
    runs: super::runs::RunOptions,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Runs them.
pub fn run(args: &Args) -> Result {
    let control = args.runs.control()?;
    let bytes = args.input.object()?;
    let interface = args.runs.dev.as_deref().map(interface).transpose()?;
    let loaded = load(&bytes, &args.input.choice())?;
    let heap = Heap::of(&loaded.object, Limits { most: args.runs.most(), ..Limits::default() })?;
    if args.runs.heap.is_some() && heap.is_none() {
        return Err(Failure::usage("--heap: the object has no heap: it does not use XK_HEAP()"));
    }
    // Before there is another thread, which a signal would reach.
    signals::hold_back();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let server = heap.as_ref().map(|heap| scope.spawn(|| heap.serve(&stop)));
        let seen = programs(args, &control, interface, &loaded, loaded.rewritten.bytes != bytes);
        stop.store(true, Ordering::Relaxed);
        let served = server.map_or(Ok(Ok(())), std::thread::ScopedJoinHandle::join);
        let seen = seen?;
        served.map_err(|_| Failure::error("the thread that gives the heap its pages panicked"))??;
        finish(args, &loaded, &seen, heap.as_ref());
        Ok(())
    })
}

/// The runs that were ended.
#[derive(Default)]
struct Seen {
    ended: Vec<Ended>,
    /// And so many of which nothing else is known.
    unreported: u64,
}

/// Attaches the programs, and detaches them when the time is over.
fn programs(
    args: &Args,
    control: &Control,
    interface: Option<i32>,
    loaded: &Loaded,
    is_controlled: bool,
) -> Result<Seen> {
    if is_controlled {
        control.tell(&loaded.object)?;
    }
    let links = attach(&loaded.object, interface)?;
    if !args.json {
        let names: Vec<&str> = links.iter().map(|(name, _)| name.as_str()).filter(|name| !is_of_heap(name)).collect();
        eprintln!(
            "running {}: {}; ^C ends",
            names.join(", "),
            loops(loaded.rewritten.looks.iter().map(|look| look.returns))
        );
    }
    let mut seen = wait(args, loaded, is_controlled)?;
    if is_controlled {
        seen.unreported = unreported(&loaded.object)?;
        Control { terminate: true, ..*control }.tell(&loaded.object)?;
    }
    drop(links);
    if is_controlled {
        let last = take_ended(&loaded.object)?;
        seen.ended.extend(last.into_iter().filter(|last| last.why != Why::Terminate));
    }
    Ok(seen)
}

/// Waits until the time is over or a signal arrives. Meanwhile says which runs are ended.
fn wait(args: &Args, loaded: &Loaded, is_controlled: bool) -> Result<Seen> {
    let end = args.time.map(|time| Instant::now() + time);
    let mut seen = Seen::default();
    loop {
        let left = end.map_or(STEP, |end| end.saturating_duration_since(Instant::now()).min(STEP));
        let is_over = signals::came_within(left) || end.is_some_and(|end| Instant::now() >= end);
        let ended = if is_controlled { take_ended(&loaded.object)? } else { Vec::new() };
        if !args.json {
            ended.iter().for_each(|ended| println!("{}", words(loaded, ended)));
        }
        seen.ended.extend(ended);
        if is_over {
            return Ok(seen);
        }
    }
}

fn words(loaded: &Loaded, ended: &Ended) -> String {
    let Some(look) = loaded.rewritten.looks.get(ended.look) else { return format!("look {}", ended.look) };
    let released = match look.releases.len() {
        0 => String::new(),
        _ => format!("; released by {}", look.releases.join(", ")),
    };
    let locks = ended.locks.as_ref().map_or_else(String::new, lock_words);
    let fault = ended.fault.map_or_else(String::new, fault_words);
    format!(
        "{} {}: ended after {:.1?} by {}{fault}{released}{locks}",
        look.function, look.place, ended.spent, ended.why
    )
}

fn fault_words(fault: Fault) -> String {
    let place = fault.place().map_or_else(String::new, |place| format!(" in {place}"));
    format!(": {:#x}{place}", fault.address)
}

/// The lock that a run waited for, and the locks that it gave back, in words.
fn lock_words(locks: &Locks) -> String {
    let who = |who: Option<Who>| who.map_or_else(|| "nobody".to_owned(), |who| who.to_string());
    let mut text = locks.run.map_or_else(String::new, |run| format!("\n  it was {run}"));
    if let Some(lock) = locks.waited {
        text += &format!("\n  waited for the lock at {lock:#x}, which {} had", who(locks.owner));
    }
    for released in locks.released() {
        text += &format!("\n  gave back the lock at {:#x}", released.lock);
        if let Some(waiter) = released.waiter {
            text += &format!(", for which {waiter} waited");
        }
    }
    if locks.is_deadlock() {
        text += "\n  a deadlock: both waited for each other, or it waited for itself";
    }
    text
}

/// What [`lock_words`] says, as JSON.
fn lock_json(locks: &Locks) -> serde_json::Value {
    let who = |who: Option<Who>| who.map(|who| who.to_string());
    let released: Vec<_> = locks
        .released()
        .iter()
        .map(|released| json!({ "lock": released.lock, "waiter": who(released.waiter) }))
        .collect();
    json!({
        "run": who(locks.run),
        "waited": locks.waited,
        "owner": who(locks.owner),
        "released": released,
        "deadlock": locks.is_deadlock(),
    })
}

/// How many runs were ended without a report, in words.
pub(super) fn unreported_words(number: u64) -> String {
    format!("{} ended without a report: the ring buffer was full", count(number as usize, "run"))
}

fn finish(args: &Args, loaded: &Loaded, seen: &Seen, heap: Option<&Heap<'_>>) {
    let inspected = heap.and_then(Inspected::of);
    if !args.json {
        println!("{} ended early", count(seen.ended.len() + seen.unreported as usize, "run"));
        if seen.unreported > 0 {
            println!("{}", unreported_words(seen.unreported));
        }
        heap.iter().for_each(|heap| println!("{}", heap_words(&heap.usage())));
        inspected.iter().for_each(|inspected| print!("{}", inspected.words()));
        return;
    }
    let heap = heap.map(|heap| heap_json(&heap.usage()));
    let runs: Vec<_> = seen
        .ended
        .iter()
        .map(|ended| {
            let look = loaded.rewritten.looks.get(ended.look);
            json!({
                "function": look.map(|look| &look.function),
                "place": look.map(|look| &look.place),
                "released": look.map(|look| &look.releases),
                "why": ended.why.to_string(),
                "locks": ended.locks.as_ref().map(lock_json),
                "fault": ended.fault.map(|fault| json!({ "address": fault.address, "place": fault.place() })),
                "nanoseconds": u64::try_from(ended.spent.as_nanos()).unwrap_or(u64::MAX),
            })
        })
        .collect();
    print_json(json!({
        "ended": runs,
        "unreported": seen.unreported,
        "looks": loaded.rewritten.looks.len(),
        "heap": heap,
        "objects": inspected.as_ref().map(Inspected::json),
    }));
}

/// A heap.
pub(super) fn heap_json(usage: &Usage) -> serde_json::Value {
    json!({
        "ready": usage.ready,
        "used": usage.used,
        "most": usage.most,
        "allocated": usage.allocated,
        "freed": usage.freed,
        "refused": usage.refused,
        "invalid": usage.invalid,
        "lost": usage.lost,
    })
}

/// What [`heap_json`] says, in words.
pub(super) fn heap_words(usage: &Usage) -> String {
    let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    let mut text = format!(
        "heap: {:.1} MiB of {:.1} used; {} allocated and {} freed",
        mib(usage.used),
        mib(usage.most),
        count(usage.allocated as usize, "object"),
        usage.freed
    );
    for (number, words) in [
        (usage.refused, "allocations refused: there was no memory"),
        (usage.invalid, "frees of what was not allocated: ignored"),
        (usage.lost, "objects lost: no list took them back"),
    ] {
        if number > 0 {
            text += &format!("\n  {number} {words}");
        }
    }
    text
}

/// The number of a network interface.
pub(super) fn interface(name: &str) -> Result<i32> {
    let is_name = !name.is_empty() && !name.contains('/') && name != "." && name != "..";
    let text = is_name.then(|| fs::read_to_string(format!("/sys/class/net/{name}/ifindex")).ok()).flatten();
    let number = text.and_then(|text| text.trim().parse().ok());
    number.ok_or_else(|| Failure::new(Exit::Usage, format!("--dev {name}: no such network interface")))
}
