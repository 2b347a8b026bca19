//! Many transitions under threads that look whether two values meet.

use xk_harness::{beside_hotplug, Count, Family, Flipper, ALL_SPANS, FAMILIES, TASK_SPANS};

use crate::*;

const THREADS: u32 = 8;
const TRANSITIONS: u64 = 1500;

fn families(mode: Mode) -> impl Iterator<Item = &'static Family> {
    FAMILIES.iter().filter(move |family| family.mode <= mode)
}

/// Spans that threads may do in this mode; starts them.
fn start(mode: Mode) -> u32 {
    let spans = if mode == Mode::Global { ALL_SPANS } else { TASK_SPANS };
    Atomic.tell(if mode == Mode::Global { "inside 64" } else { "inside 16" }).unwrap();
    // A transition waits for threads that are inside, which threads that hardly pause nearly always are.
    Atomic.tell("pause 3000").unwrap();
    Atomic.start(THREADS, spans).unwrap();
    spans
}

fn never_meet(mode: Mode) {
    let mut flipper = Flipper::load(&file(ATOMIC_KO), families(mode)).unwrap();
    flipper.flip(1, mode, LONG).unwrap();
    let spans = start(mode);
    let mut flips = flipper.flip(TRANSITIONS, mode, LONG).unwrap();
    // How often threads run meanwhile is the host's.
    wait_for("every span is executed while values change", || {
        flips.add(&flipper.flip(20, mode, LONG).unwrap());
        let seen = Atomic.counts().unwrap();
        let rounds = |(name, count): (&String, &Count)| (Atomic::mask(&[name]) & spans > 0).then_some(count.rounds);
        let each: Vec<u64> = seen.spans.iter().filter_map(rounds).collect();
        each.iter().all(|rounds| *rounds > 0) && each.iter().sum::<u64>() > flips.transitions
    });
    Atomic.stop().unwrap();
    let counts = Atomic.counts().unwrap();
    assert_eq!(flips.blocked, 0);
    // An interrupt above another probe is none that kprobes show to xk: it uses the
    // default, which is in force in none of these transitions.
    let missed = flipper.missed().unwrap();
    for (name, count) in &counts.spans {
        assert_eq!(count.violations, count.defaults, "{name}: {count:?}");
        assert!(count.defaults <= missed, "{name}: {count:?}, {missed} missed by kprobes");
    }
    flipper.unload(mode, LONG).unwrap();
    assert!(Device::open().unwrap().tunes().unwrap().is_empty());
}

pub fn two_values_never_meet_in_task_mode() {
    never_meet(Mode::Task);
}

pub fn two_values_never_meet_in_global_mode() {
    never_meet(Mode::Global);
}

/// The others would notice.
pub fn two_values_meet_without_waiting() {
    let mut flipper = Flipper::load(&file(ATOMIC_KO), families(Mode::Task)).unwrap();
    start(Mode::Task);
    let met = |span: &str| Atomic.counts().unwrap().span(span).violations > 0;
    let spans = ["balance", "agree", "object", "later", "recurse", "softirq", "hardirq", "nmi", "sleep", "descend"];
    wait_for("two values meet in every span", || {
        flipper.flip(20, Mode::Now, Duration::ZERO).unwrap();
        spans.iter().all(|span| met(span))
    });
    Atomic.stop().unwrap();
}

/// NMIs that begin before the flip, on a CPU whose stopper waits below them, and end
/// after it: each sees one value, the one from before.
pub fn an_nmi_during_the_stop_sees_one_value() {
    for mode in [Mode::Task, Mode::Global] {
        let mut flipper = Flipper::load(&file(ATOMIC_KO), &[family("STOP").unwrap()]).unwrap();
        flipper.to(5, mode, LONG).unwrap();
        Atomic.tell("ambush 3000").unwrap();
        let before = Atomic.counts().unwrap().span("stop").rounds;
        let flips = flipper.flip(100, mode, LONG).unwrap();
        for (value, from) in [(11, None), (12, Some(11)), (13, Some(12))] {
            flipper.to(value, mode, LONG).unwrap();
            let seen = Atomic.counts().unwrap().span("stop");
            assert!(from.is_none_or(|from| seen.last == [from; 2]), "{mode}: {seen:?} instead of {from:?}");
        }
        Atomic.tell("ambush 0").unwrap();
        let seen = Atomic.counts().unwrap().span("stop");
        assert!(seen.rounds - before >= flips.stops + 3, "{mode}: {seen:?} in {} stops", flips.stops);
        assert_eq!(seen.violations, 0, "{mode}: {seen:?}");
        flipper.unload(mode, LONG).unwrap();
    }
}

/// Two constants, each read once in a span that confines both.
pub fn several_tunes_change_together() {
    let pair = [family("FIRST").unwrap(), family("SECOND").unwrap()];
    for mode in [Mode::Task, Mode::Global] {
        let mut flipper = Flipper::load(&file(ATOMIC_KO), &pair).unwrap();
        Atomic.tell("inside 16").unwrap();
        Atomic.start(THREADS, Atomic::mask(&["agree"])).unwrap();
        let before = Atomic.counts().unwrap();
        let seen = || Atomic.counts().unwrap().since(&before).span("agree");
        flipper.flip(300, mode, LONG).unwrap();
        wait_for("threads read both while values change", || {
            flipper.flip(20, mode, LONG).unwrap();
            seen().rounds > 300
        });
        assert_eq!(seen().violations, 0, "{mode}: {:?}", seen());
        // One after the other is not together, however safe each of them is.
        let [first, second] = flipper.tunes() else { panic!("two tunes") };
        first.go(Destination::Value(5), mode, LONG).unwrap();
        wait_for("one has changed before the other", || seen().violations > 0);
        second.go(Destination::Value(5), mode, LONG).unwrap();
        Atomic.stop().unwrap();
    }
}

pub fn a_processor_may_come_and_go() {
    for mode in [Mode::Task, Mode::Global] {
        let mut flipper = Flipper::load(&file(ATOMIC_KO), families(mode)).unwrap();
        flipper.flip(1, mode, LONG).unwrap();
        start(mode);
        let (flips, times) = beside_hotplug(|| flipper.flip(150, mode, LONG)).unwrap();
        Atomic.stop().unwrap();
        assert_eq!(flips.blocked, 0);
        assert!(times > 0);
        let counts = Atomic.counts().unwrap();
        assert!(counts.violations() <= flipper.missed().unwrap(), "{mode}: {counts:?}");
        flipper.unload(mode, LONG).unwrap();
    }
}
