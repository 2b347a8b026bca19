//! What `xk.ko` relies on of the kernel's own kprobes, inside the guest.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;
use std::thread::sleep;
use std::time::{Duration, Instant};

use xk_testing::guest::PATIENCE;

use super::*;

const TRACING: &str = "/sys/kernel/tracing";

/// Functions and offsets of the probes that are jumps now.
fn optimised() -> BTreeSet<String> {
    let list = fs::read_to_string("/sys/kernel/debug/kprobes/list").unwrap();
    let jumps = list.lines().filter(|line| line.contains("[OPTIMIZED]"));
    jumps.filter_map(|line| line.split_whitespace().nth(2)).map(str::to_owned).collect()
}

/// The breakpoints after a return, if the running kernel has some there.
fn breakpoints(live: &Image, place: &str) -> Vec<String> {
    let (function, offset) = place.split_once("+0x").unwrap();
    let offset = u64::from_str_radix(offset, 16).unwrap();
    let address = live.symbols(function)[0].address + offset;
    let bytes = live.read(address, 5).unwrap();
    let filled = bytes[0] == 0xc3 && bytes[1..] == [0xcc; 4];
    (1..5).filter(|_| filled).map(|after| format!("{function}+{:#x}", offset + after)).collect()
}

/// No guard probe is registered where a jump would cover a relative branch, or a breakpoint (`probe/function.c`).
pub fn no_kprobe_becomes_a_jump_over_a_relative_branch() {
    let text = fs::read_to_string(file(COVERED)).unwrap();
    let mut events = fs::OpenOptions::new().append(true).open(format!("{TRACING}/kprobe_events")).unwrap();
    let mut registered: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
    for (number, line) in text.lines().enumerate() {
        let (kind, place) = line.split_once(' ').unwrap();
        // Kprobes refuse a few.
        if events.write_all(format!("p:covered/e{number} {place}\n").as_bytes()).is_ok() {
            registered.entry(kind).or_default().insert(place.to_owned());
        }
    }
    assert!(registered.values().all(|places| places.len() > 130), "{registered:?}");
    let live = Image::live().unwrap();
    let filled: Vec<String> = registered["return"].iter().flat_map(|place| breakpoints(&live, place)).collect();
    assert!(filled.len() > 400, "{filled:?}");
    for place in filled {
        assert!(events.write_all(format!("p:covered/breakpoint {place}\n").as_bytes()).is_err(), "{place}");
    }
    fs::write(format!("{TRACING}/events/covered/enable"), "1").unwrap();
    let (begin, mut before) = (Instant::now(), 0);
    // The kernel makes jumps from time to time, until it has made all that it can.
    let jumps = loop {
        sleep(Duration::from_secs(2));
        let jumps = optimised();
        if jumps.len() == before && jumps.len() > 100 || begin.elapsed() > PATIENCE {
            break jumps;
        }
        before = jumps.len();
    };
    fs::write(format!("{TRACING}/events/covered/enable"), "0").unwrap();
    fs::write(format!("{TRACING}/kprobe_events"), "").unwrap();
    let [over_branches, over_breakpoints, others] =
        ["branch", "return", "other"].map(|kind| registered[kind].intersection(&jumps).count());
    assert_eq!([over_branches, over_breakpoints], [0, 0], "of {}", registered["branch"].len());
    assert!(others * 2 > registered["other"].len(), "{others} of {}", registered["other"].len());
}
