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

/// No guard probe is registered where a jump would cover a relative branch (`probe/function.c`).
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
    assert!(registered["branch"].len() > 130 && registered["other"].len() > 130, "{registered:?}");
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
    let [over_branches, others] = ["branch", "other"].map(|kind| registered[kind].intersection(&jumps).count());
    assert_eq!(over_branches, 0, "of {}", registered["branch"].len());
    assert!(others * 2 > registered["other"].len(), "{others} of {}", registered["other"].len());
}
