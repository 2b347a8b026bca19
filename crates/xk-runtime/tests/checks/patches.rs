//! What a patch does, what it withstands, and what it is refused.

use std::os::fd::AsFd;

use crate::*;

#[path = "patches_others.rs"]
mod others;
pub use others::{
    a_probe_at_one_number_keeps_the_next_of_another_tune, a_probe_before_it_never_becomes_a_jump,
    a_probe_that_comes_later_keeps_the_value, a_probe_that_is_being_registered_is_waited_for,
    a_probe_that_was_there_is_in_the_way, another_tune_sees_the_original_code, disabling_kprobes_changes_nothing,
    nothing_is_missed_where_probes_nest, somebody_elses_change_is_not_overwritten,
    what_could_not_be_written_into_a_module_is_not_there,
};

pub fn a_value_changes_and_returns() {
    let tune = value(128);
    assert_eq!(target("value"), "128");
    for (mode, to) in [(Mode::Global, 7), (Mode::Now, 9)] {
        let done = tune.go(Destination::Value(to), mode, LONG).unwrap();
        assert_eq!((target("value"), done.stops), (to.to_string(), 1));
    }
    let site = only_site(&tune);
    assert_eq!((site.probe, site.counted, site.hits, site.missed, site.note), (Probe::Patch, false, 0, 0, None));
    assert!(!tune.status().unwrap().broken);
    tune.unload().unwrap();
    assert_eq!(target("value"), "32");
}

/// `name` prints `default`; with `value`, `tuned`; and then `default` again.
fn changes(name: &str, site: SiteSpec, patches: &[Patch], value: i64, default: &str, tuned: &str) {
    assert_eq!(target(name), default);
    let table = held(table(&target_module(), name, vec![site]), &[patches]);
    let tune = load_by(Backend::Patch, &table, value).unwrap();
    assert_eq!(target(name), tuned, "{name}");
    assert_eq!(only_site(&tune).probe, Probe::Patch);
    tune.unload().unwrap();
    assert_eq!(target(name), default);
}

fn compare_site() -> SiteSpec {
    SiteSpec::new("xk_target_compare", 5, 3, compare(RDI, false))
}

/// `cmp $32,%edi`, with eight bits.
const COMPARED: Patch = Patch { offset: 2, insn_len: 3, field: 2, size: 1, width: 4, iv: 0 };

pub fn every_kind_of_number_is_changed() {
    let at = |symbol, offset, len| SiteSpec::new(symbol, offset, len, set_register(RAX));
    changes("compare", compare_site(), &[COMPARED], 50, "1", "0");
    changes("compare", compare_site(), &[COMPARED], 39, "1", "1");
    // In memory, at a register and relative to rip; with a number of 32 bits.
    changes("memory", at("xk_target_memory", 5, 3), &[number(2, 3, 2, 1)], 50, "1", "0");
    changes("above", at("xk_target_above", 9, 3), &[number(2, 7, 6, 1)], 50, "1", "0");
    changes("store", at("xk_target_store", 6, 2), &[number(0, 6, 2, 4)], 500, "32", "500");
    let displaced = Patch { width: 8, ..number(0, 3, 2, 1) };
    changes("displaced", at("xk_target_displaced", 3, 2), &[displaced], 100, "36", "104");
    changes("call", at("xk_target_call", 5, 2), &[MOVE], 99, "32", "99");
}

pub fn numbers_of_one_site_change_together() {
    let site = SiteSpec::new("xk_target_select", 12, 2, set_register(RAX));
    let both = [number(6, 3, 2, 1), number(9, 3, 2, 1)];
    changes("select", site, &both, 50, "32 64", "50 100");
    // Three functions, one of them with two sites.
    let at = |symbol, offset, len| SiteSpec::new(symbol, offset, len, set_register(RAX));
    let sites = vec![at("xk_target_value", 5, 2), at("xk_target_twice", 5, 5), at("xk_target_twice", 10, 2)];
    let second = Patch { offset: 5, ..MOVE };
    let table = held(table(&target_module(), "MANY", sites), &[&[MOVE], &[MOVE], &[second]]);
    let tune = load_by(Backend::Patch, &table, 100).unwrap();
    assert_eq!((target("value"), target("twice")), ("100".into(), "200".into()));
    let done = tune.go(Destination::Value(9), Mode::Global, LONG).unwrap();
    assert_eq!((target("value"), target("twice"), done.stops), ("9".into(), "18".into(), 1));
    tune.unload().unwrap();
    assert_eq!((target("value"), target("twice")), ("32".into(), "64".into()));
}

fn compared(value: i64) -> Result<Tune, Error> {
    let table = held(table(&target_module(), "COMPARE", vec![compare_site()]), &[&[COMPARED]]);
    load_by(Backend::Patch, &table, value)
}

pub fn what_has_no_room_is_refused() {
    let before = running("bytes");
    let tune = compared(127).unwrap();
    for mode in [Mode::Global, Mode::Now] {
        let refused = message(tune.go(Destination::Value(128), mode, LONG));
        assert!(refused.contains("xk_target_compare+0x2 has 1 byte(s) for the value"), "{refused}");
    }
    assert_eq!((running("bytes")[4], target("compare").as_str()), (127, "0"));
    assert_eq!(tune.status().unwrap().value, 127);
    tune.unload().unwrap();
    assert!(message(compared(128)).contains("too few for 128"));
    assert_eq!(running("bytes"), before);
}

pub fn the_mode_of_threads_is_refused() {
    let tune = value(128);
    let refused = message(tune.go(Destination::Value(7), Mode::Task, LONG));
    assert!(refused.contains("instructions hold its value for all threads"), "{refused}");
    assert_eq!(target("value"), "128");
}

pub fn a_policy_is_refused() {
    let id = value(128).detach().unwrap();
    // It does not come to what this descriptor is.
    let file = fs::File::open("/dev/null").unwrap();
    let policy = Policy { program: file.as_fd(), links: vec![], scopes: vec![], sites: vec![] };
    let refused = message(Device::open().unwrap().give_policy(id, &policy));
    assert!(refused.contains("xk_target_value+0x5 uses the patch backend"), "{refused}");
    Device::open().unwrap().unload(id).unwrap();
}

pub fn what_is_not_what_was_analysed_is_refused() {
    let before = (running("text"), running("bytes"));
    let load = |symbol: &'static str, offset, patch: Patch| {
        let site = SiteSpec::new(symbol, offset, 2, set_register(RAX));
        let mut table = held(table(&target_module(), symbol, vec![site]), &[&[patch]]);
        table.spans[0].end = offset + 2;
        let refused = message(load_by(Backend::Patch, &table, 100));
        assert!(Device::open().unwrap().tunes().unwrap().is_empty());
        refused
    };
    for (symbol, offset, patch, reason) in [
        // The opcode and half of the number; half of it; all but the end of the instruction.
        ("xk_target_value", 5, number(0, 5, 3, 2), "the instruction holds no such number"),
        ("xk_target_value", 5, number(0, 5, 1, 2), "the instruction holds no such number"),
        ("xk_target_value", 5, number(0, 4, 1, 1), "the instruction holds no such number"),
        // An instruction without one, and one with another number.
        ("xk_target_value", 10, number(5, 2, 1, 1), "the instruction holds no such number"),
        ("xk_target_value", 10, number(7, 3, 2, 1), "the instruction does not hold the default"),
        ("xk_target_branch", 7, number(5, 2, 1, 1), "a branch"),
        ("xk_target_forbidden", 5, MOVE, "the kernel forbids probes here"),
        ("xk_target_untouchable", 5, MOVE, "an access to memory that may fault"),
        // What the linker wrote is not compared.
        ("xk_target_global", 11, number(5, 6, 2, 4), "the kernel patches this instruction itself"),
    ] {
        let refused = load(symbol, offset, patch);
        assert!(refused.contains(reason), "{symbol}: {refused}");
    }
    // Nothing is known.
    let mut table = value_table();
    table.spans[0].in_place = None;
    let refused = message(load_by(Backend::Patch, &table, 100));
    assert!(refused.contains("the table names no instruction that can hold the value"), "{refused}");
    assert_eq!((running("text"), running("bytes")), before);
}

pub fn what_cannot_be_a_patch_may_be_a_detour() {
    let at = |symbol, offset| SiteSpec::new(symbol, offset, 2, set_register(RAX));
    let sites = vec![at("xk_target_value", 5), at("xk_target_identity", 2), at("xk_target_into", 9)];
    let table = windowed(table(&target_module(), "AUTO", sites), &[5, 5, 5]);
    let table = held(table, &[&[MOVE], &[], &[]]);
    let tune = load_by(Backend::AutoGlobal, &table, 100).unwrap();
    let sites = tune.status().unwrap().sites;
    assert_eq!((sites[0].probe, sites[0].note.as_deref()), (Probe::Patch, None));
    let reason = Some("the table names no instruction that can hold the value");
    assert_eq!((sites[1].probe, sites[1].note.as_deref()), (Probe::Detour, reason));
    assert!(matches!(sites[2].probe, Probe::Int3 | Probe::Jump), "{sites:?}");
    assert_eq!(sites[2].note.as_deref(), Some("a branch leads into these instructions"));
    assert_eq!((target("value"), target("identity")), ("100".into(), "100".into()));
    // In one stop, all of them.
    let done = tune.go(Destination::Value(9), Mode::Global, LONG).unwrap();
    assert_eq!((target("value"), target("identity"), done.stops), ("9".into(), "9".into(), 1));
    tune.unload().unwrap();
    assert_eq!((target("value"), target("identity")), ("32".into(), "4".into()));
}

/// Two comparisons with their branches, side by side: guards of the second's number stand in
/// the first's window.
pub fn a_window_before_a_number_is_a_probe() {
    let before = running("pairtext");
    let site = |offset, register| SiteSpec::new("xk_target_pair", offset, 2, compare_flags(register, false, 0x8d5));
    let mut table = windowed(table(&target_module(), "PAIR", vec![site(5, RDI), site(10, RSI)]), &[5, 5]);
    for span in &mut table.spans {
        span.indirection.window_lead = 3;
    }
    let table = held(table, &[&[], &[Patch { offset: 7, ..COMPARED }]]);
    let tune = load_by(Backend::AutoGlobal, &table, 50).unwrap();
    let sites = tune.status().unwrap().sites;
    assert_eq!([sites[0].probe, sites[1].probe], [Probe::Int3, Probe::Patch], "{sites:?}");
    let why = "a guard probe for another site lies in these instructions";
    assert!(sites[0].note.as_deref().is_some_and(|note| note.contains(why)), "{sites:?}");
    assert_eq!(target("pair"), "0 0");
    tune.set(30).unwrap();
    assert_eq!(target("pair"), "1 1");
    tune.unload().unwrap();
    assert_eq!((target("pair"), running("pairtext")), ("1 1".into(), before));
    // Alone, it holds its number.
    let alone = ScopeTable { spans: vec![table.spans[1].clone()], ..table };
    let tune = load_by(Backend::AutoGlobal, &alone, 50).unwrap();
    assert_eq!(only_site(&tune).probe, Probe::Patch);
    assert_eq!(target("pair"), "1 0");
}

/// What an administrator leaves of `auto`.
pub fn a_patch_or_one_other_is_taken() {
    let at = |symbol, offset| SiteSpec::new(symbol, offset, 2, set_register(RAX));
    let with = |sites: Vec<SiteSpec>| {
        let windows = vec![5; sites.len()];
        held(windowed(table(&target_module(), "AUTO", sites), &windows), &[&[MOVE], &[]])
    };
    let both = with(vec![at("xk_target_value", 5), at("xk_target_identity", 2)]);
    let probes = |tune: &Tune| tune.status().unwrap().sites.iter().map(|site| site.probe).collect::<Vec<_>>();
    let tune = load_by(Backend::PatchOrDetour, &both, 100).unwrap();
    assert_eq!(probes(&tune), [Probe::Patch, Probe::Detour]);
    tune.unload().unwrap();
    let tune = load_by(Backend::PatchOrKprobe, &both, 100).unwrap();
    assert!(matches!(probes(&tune)[..], [Probe::Patch, Probe::Int3 | Probe::Jump]), "{:?}", probes(&tune));
    assert_eq!((target("value"), target("identity")), ("100".into(), "100".into()));
    tune.unload().unwrap();
    let refused =
        message(load_by(Backend::PatchOrDetour, &with(vec![at("xk_target_value", 5), at("xk_target_into", 9)]), 100));
    assert!(refused.contains("xk_target_into+0x9: no detour: a branch leads into these instructions"), "{refused}");
    assert_eq!((target("value"), target("identity")), ("32".into(), "4".into()));
}

fn held_table() -> ScopeTable {
    xk_harness::table(&module(ATOMIC_KO), &family("HOLD").unwrap()).unwrap()
}

/// The constant of `xk_atomic_hold`, with this value in force.
pub fn hold(value: i64) -> Tune {
    let tune = Device::open().unwrap().load_by(&held_table(), &xk_harness::Loaded, Backend::Patch).unwrap();
    tune.go(Destination::Value(value), Mode::Global, LONG).unwrap();
    tune
}

pub fn a_thread_inside_blocks() {
    let tune = hold(77);
    let inside = Holder::new();
    let (outcome, reason, report) = blocked(tune.go(Destination::Value(5), Mode::Global, BRIEF));
    assert_eq!(outcome, Outcome::Unchanged);
    let pid = inside.pid();
    assert!(reason.contains(&format!("{pid} (sh)")) && report.contains("xk_atomic_hold+"), "{reason}: {report}");
    assert_eq!((outside(), tune.status().unwrap().value), (77, 77));
    assert_eq!(inside.release(), [77; 2]);
    tune.go(Destination::Value(5), Mode::Global, LONG).unwrap();
    assert_eq!(outside(), 5);
    // In mode now, it changes under the thread's feet, which is what that mode says.
    let inside = Holder::new();
    tune.go(Destination::Value(6), Mode::Now, BRIEF).unwrap();
    assert_eq!((outside(), inside.leave()), (6, [5, 6]));
}

/// One span with two instructions, and a thread that sleeps between them.
pub fn a_thread_between_two_instructions_blocks_even_mode_now() {
    let mut table = xk_harness::table(&module(ATOMIC_KO), &family("SLEEP").unwrap()).unwrap();
    table.scopes.clear();
    let [first, second] = &table.spans[..] else { panic!("{:?}", table.spans) };
    let mut one = xk_table::CriticalSpan { start: first.start, ..second.clone() };
    let patches = [first, second].into_iter().flat_map(|span| span.in_place.clone().unwrap().patches);
    one.in_place.as_mut().unwrap().patches = patches.collect();
    table.spans = vec![one];
    let tune = Device::open().unwrap().load_by(&table, &xk_harness::Loaded, Backend::Patch).unwrap();
    tune.go(Destination::Value(77), Mode::Now, LONG).unwrap();
    Atomic.tell("inside 1").unwrap();
    Atomic.tell("sleep 3000000").unwrap();
    Atomic.start(1, Atomic::mask(&["sleep"])).unwrap();
    for mode in [Mode::Now, Mode::Global] {
        // Until it is inside, the value changes.
        wait_for("the thread is inside", || {
            let before = tune.status().unwrap().value;
            let refused = tune.go(Destination::Value(before + 1), mode, BRIEF).err().map(|error| error.to_string());
            let blocked = refused.is_some_and(|why| why.contains("1 threads are inside"));
            assert_eq!(tune.status().unwrap().value, if blocked { before } else { before + 1 });
            blocked
        });
    }
    // It leaves with what it had, and then there is room.
    Atomic.tell("sleep 1").unwrap();
    tune.go(Destination::Value(5), Mode::Now, LONG).unwrap();
    let seen = Atomic.counts().unwrap().span("sleep");
    Atomic.stop().unwrap();
    assert!(seen.rounds > 0 && seen.violations == 0, "{seen:?}");
}

pub fn an_owner_that_is_killed_leaves_when_the_thread_does() {
    let program = std::env::current_exe().unwrap();
    let mut owner = Command::new(program)
        .args(["--ignored", "--exact", "own"])
        .env("XK_TEST_OWN", "1")
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    wait_for("the value is in force", || outside() == 77);
    let inside = Holder::new();
    owner.kill().unwrap();
    owner.wait().unwrap();
    std::thread::sleep(BRIEF);
    assert_eq!(outside(), 77);
    assert_eq!(inside.release(), [77; 2]);
    wait_for("the default", || outside() == 32);
    wait_for("it is gone", || Device::open().unwrap().tunes().unwrap().is_empty());
}

pub fn two_values_never_meet() {
    let mut flipper = Flipper::load_by(&module(ATOMIC_KO), xk_harness::FAMILIES.iter(), Backend::Patch).unwrap();
    flipper.flip(1, Mode::Global, LONG).unwrap();
    Atomic.tell("inside 64").unwrap();
    Atomic.start(4, xk_harness::ALL_SPANS).unwrap();
    let before = Atomic.counts().unwrap();
    flipper.flip(300, Mode::Global, LONG).unwrap();
    let since = || Atomic.counts().unwrap().since(&before);
    wait_for("threads run while values change", || {
        flipper.flip(20, Mode::Global, LONG).unwrap();
        since().spans.values().map(|count| count.rounds).sum::<u64>() > 300
    });
    let seen = since();
    Atomic.stop().unwrap();
    assert_eq!((seen.violations(), flipper.missed().unwrap()), (0, 0), "{seen:?}");
    flipper.unload(Mode::Global, LONG).unwrap();
}

pub fn an_nmi_during_the_stop_sees_one_value() {
    let families = [family("STOP").unwrap(), family("NMI").unwrap()];
    let mut flipper = Flipper::load_by(&module(ATOMIC_KO), &families, Backend::Patch).unwrap();
    flipper.to(5, Mode::Global, LONG).unwrap();
    Atomic.tell("ambush 3000").unwrap();
    let before = Atomic.counts().unwrap().span("stop").rounds;
    let flips = flipper.flip(100, Mode::Global, LONG).unwrap();
    for (value, from) in [(11, None), (12, Some(11)), (13, Some(12))] {
        flipper.to(value, Mode::Global, LONG).unwrap();
        let seen = Atomic.counts().unwrap().span("stop");
        assert!(from.is_none_or(|from| seen.last == [from; 2]), "{seen:?} instead of {from:?}");
    }
    Atomic.tell("ambush 0").unwrap();
    let seen = Atomic.counts().unwrap().span("stop");
    assert!(seen.rounds - before >= flips.stops + 3, "{seen:?} in {} stops", flips.stops);
    assert_eq!(seen.violations, 0, "{seen:?}");
    flipper.unload(Mode::Global, LONG).unwrap();
}

/// NMIs that begin between two steps of a change, on a CPU that has gone over or has not:
/// breakpoints lead each to one value.
pub fn an_nmi_between_two_steps_sees_one_value() {
    let families = [family("STOP").unwrap(), family("NMI").unwrap()];
    let mut flipper = Flipper::load_by(&module(ATOMIC_KO), &families, Backend::Patch).unwrap();
    flipper.to(5, Mode::Global, LONG).unwrap();
    Atomic.tell("waylay 300").unwrap();
    let before = Atomic.counts().unwrap().span("stop").rounds;
    flipper.flip(50, Mode::Global, LONG).unwrap();
    let seen = Atomic.counts().unwrap().span("stop");
    Atomic.tell("waylay 0").unwrap();
    // Three writes for each of three instructions.
    assert!(seen.rounds - before >= 50 * 9, "{seen:?}");
    assert_eq!(seen.violations, 0, "{seen:?}");
    flipper.unload(Mode::Global, LONG).unwrap();
}

/// `cargo xtask stress --arm` does more of them.
pub fn code_is_what_it_was_after_rounds_under_load() {
    let (atomic, target) = (module(ATOMIC_KO), target_module());
    let backends = [Backend::Detour, Backend::Patch];
    let what = xk_harness::arm::Rounds { atomic: &atomic, target: &target, backends: &backends, rounds: 4, time: LONG };
    let done = xk_harness::arm::rounds(&what).unwrap();
    assert_eq!((done.sites, done.violations), (xk_harness::arm::SITES, 0), "{done:?}");
    assert_eq!(done.different, [""; 0], "{done:?}");
    assert!(done.rounds >= 2 && done.executions > 0, "{done:?}");
    // This guest has no disk.
    assert_eq!(done.done.missing(), ["block"], "{done:?}");
}
