//! Patches and others: kprobes at, before and beside instructions that hold a value, other
//! tunes, and whoever else changes them.

use std::os::fd::AsRawFd;

use xk_runtime::SiteStatus;

use super::*;

/// By this thread, not by a process.
fn load_module(path: &Path) {
    let file = fs::File::open(path).unwrap();
    // SAFETY: the descriptor is open, and the string is terminated.
    let ret = unsafe { libc::syscall(libc::SYS_finit_module, file.as_raw_fd(), c"".as_ptr(), 0) };
    assert_eq!(ret, 0, "{}: {}", path.display(), std::io::Error::last_os_error());
}

pub fn nothing_is_missed_where_probes_nest() {
    nests(load_by(Backend::Kprobe, &value_table(), 128).unwrap(), || value(128));
}

pub fn disabling_kprobes_changes_nothing() {
    outlives_kprobes(value(128));
}

/// Its owner remembers the instruction with the number that it held: while it is there, the
/// number stays, and when it has gone, everything goes on.
pub fn a_probe_that_comes_later_keeps_the_value() {
    let before = running("text");
    let tune = value(128);
    probe("xk_target_value", 0, "enabled");
    assert_eq!(running("text")[0], 0xcc);
    // Reading how often is once more.
    let start = hits();
    assert_eq!((target("value"), hits() - start), ("128".into(), 2));
    assert_eq!(only_site(&tune).probe, Probe::Patch);
    for mode in [Mode::Global, Mode::Now] {
        let (outcome, reason, _) = blocked(tune.go(Destination::Value(9), mode, BRIEF));
        assert_eq!(outcome, Outcome::Unchanged);
        assert!(reason.contains("something else changed or probes xk_target_value+0x0"), "{reason}");
        assert_eq!((target("value"), tune.status().unwrap().value), ("128".into(), 128));
    }
    no_probe();
    tune.go(Destination::Value(9), Mode::Now, LONG).unwrap();
    assert_eq!(target("value"), "9");
    // The end of a tune waits for it, too.
    probe("xk_target_value", 0, "enabled");
    drop(tune);
    std::thread::sleep(BRIEF);
    let tunes = Device::open().unwrap().tunes().unwrap();
    assert_eq!((tunes[0].value, tunes[0].state, target("value").as_str()), (9, State::Unloading, "9"));
    no_probe();
    wait_for("the default", || Device::open().unwrap().tunes().unwrap().is_empty());
    assert_eq!((target("value"), running("text")), ("32".into(), before));
}

/// It has a copy of the number, and cannot be found yet.
pub fn a_probe_that_is_being_registered_is_waited_for() {
    fresh_atomic();
    let tune = value(128);
    let other = Stalled::new(Stall::Registers, || probe("xk_target_value", 0, "disabled"));
    let changes = std::thread::spawn(move || {
        let changed = tune.go(Destination::Value(9), Mode::Global, BRIEF);
        (blocked(changed), tune)
    });
    std::thread::sleep(2 * BRIEF);
    assert_eq!((changes.is_finished(), target("value").as_str()), (false, "128"));
    other.release();
    let ((outcome, reason, _), tune) = changes.join().unwrap();
    assert_eq!((outcome, target("value").as_str()), (Outcome::Unchanged, "128"));
    assert!(reason.contains("something else changed or probes xk_target_value+0x0"), "{reason}");
    no_probe();
    tune.set(9).unwrap();
    assert_eq!(target("value"), "9");
}

pub fn a_probe_that_was_there_is_in_the_way() {
    let before = running("bytes");
    for (offset, reason) in [
        (2, "no patch: another probe is there"),
        // Its jump would cover the number.
        (0, "no patch: another kprobe could be optimised into a jump over it"),
    ] {
        probe("xk_target_compare", offset, "disabled");
        let refused = message(compared(50));
        assert!(refused.contains(reason), "{refused}");
        assert_eq!((target("compare"), running("bytes")), ("1".into(), before.clone()));
        no_probe();
    }
}

/// It would become a jump that executes copies of what it covers. It stays a breakpoint, and
/// what was prepared for the jump holds an old number: also when we are gone.
pub fn a_probe_before_it_never_becomes_a_jump() {
    let before = running("bytes");
    let tune = compared(50).unwrap();
    probe("xk_target_compare", 0, "enabled");
    let other = optimised_elsewhere();
    assert!(!is_optimised("xk_target_compare+0x0"));
    let start = hits();
    assert_eq!((target("compare"), hits() - start), ("0".into(), 2));
    tune.set(39).unwrap();
    assert_eq!(target("compare"), "1");
    tune.set(50).unwrap();
    assert_eq!(target("compare"), "0");
    tune.unload().unwrap();
    other.unload().unwrap();
    let _other = optimised_elsewhere();
    assert!(!is_optimised("xk_target_compare+0x0"));
    let start = hits();
    assert_eq!((target("compare"), hits() - start), ("1".into(), 2));
    no_probe();
    assert_eq!(running("bytes"), before);
    // One that comes when nobody has changed anything becomes one.
    probe("xk_target_compare", 0, "enabled");
    wait_for("optimisation", || is_optimised("xk_target_compare+0x0"));
    no_probe();
    // The kernel forgets it some time later, and does not if its module goes before.
    wait_for("nobody probes it", || compared(50).is_ok());
}

/// `and` and `add` of `xk_target_select` hold numbers of two tunes. A jump of a probe at the
/// first executes a copy of the second, too.
pub fn a_probe_at_one_number_keeps_the_next_of_another_tune() {
    let number = |name, offset| {
        let site = SiteSpec::new("xk_target_select", offset + 3, 2, set_register(RAX));
        let table = table(&target_module(), name, vec![site]);
        load_by(Backend::Patch, &held(table, &[&[number(offset, 3, 2, 1)]]), 50).unwrap()
    };
    let (first, second) = (number("FIRST", 6), number("SECOND", 9));
    assert_eq!(target("select"), "50 100");
    for state in ["disabled", "enabled"] {
        probe("xk_target_select", 6, state);
        for (tune, place) in [(&first, "xk_target_select+0x6"), (&second, "xk_target_select+0x9")] {
            let (outcome, reason, _) = blocked(tune.go(Destination::Value(9), Mode::Global, BRIEF));
            assert_eq!(outcome, Outcome::Unchanged);
            assert!(reason.contains(place), "{reason}");
        }
        assert_eq!(target("select"), "50 100");
        no_probe();
    }
    // The kernel forgets the probe some time later.
    second.go(Destination::Value(9), Mode::Global, LONG).unwrap();
    assert_eq!(target("select"), "9 59");
    first.unload().unwrap();
    second.unload().unwrap();
    assert_eq!(target("select"), "32 64");
}

pub fn another_tune_sees_the_original_code() {
    let first = value(128);
    let text = running("text");
    // Behind the instruction that holds the value, in the same function.
    let site = SiteSpec::new("xk_target_value", 10, 2, set_register(RAX));
    let mut table = table(&target_module(), "SECOND", vec![site]);
    table.spans[0].start = 7;
    let second = load_by(Backend::Kprobe, &table, 64).unwrap();
    assert_eq!(target("value"), "128");
    first.set(5).unwrap();
    assert_eq!(target("value"), "5");
    // In it, and at the instructions up to where an update would be.
    let third = SiteSpec::new("xk_target_value", 0, 5, set_register(RAX));
    let third = support::table(&target_module(), "THIRD", vec![third]);
    for backend in [Backend::Kprobe, Backend::Auto] {
        let refused = message(load_by(backend, &third, 64));
        assert!(refused.contains("these instructions are held by") && refused.contains("VALUE"), "{refused}");
    }
    second.unload().unwrap();
    first.set(128).unwrap();
    assert_eq!(running("text"), text);
}

/// The target comes while `tune` is loaded, and somebody's probe comes after its code was looked
/// at and before the machine is stopped for it.
fn comes_with_a_probe_in_between(tune: &Tune) -> SiteStatus {
    assert!(run("rmmod", &[MODULE]));
    let other = Stalled::new(Stall::Arms, || load_module(&target_module()));
    Atomic.tell("probe 1").unwrap();
    other.release();
    only_site(tune)
}

/// Whoever has the probe has a copy of the instruction with the default.
pub fn what_could_not_be_written_into_a_module_is_not_there() {
    let before = running("text");
    let holds_default = || running("text")[1..] == before[1..];
    let tune = value(128);
    let site = comes_with_a_probe_in_between(&tune);
    assert_eq!(site.probe, Probe::Broken, "{site:?}");
    let reason = site.reason.unwrap();
    assert!(reason.contains("xk_target_value+0x5: something else changed or probes these instructions"), "{reason}");
    assert!(holds_default(), "{:x?}", running("text"));
    assert_eq!((target("value"), target("init")), ("32".into(), "32 32".into()));
    Atomic.tell("probe 0").unwrap();

    // What was prepared for it goes with the module: nothing of it is left when xk.ko goes.
    fresh_target();
    assert_eq!((only_site(&tune).probe, target("value")), (Probe::Patch, "128".into()));
    tune.unload().unwrap();
    assert_eq!(running("text"), before);
    assert!(run("rmmod", &["xk"]));
    insmod(XK_KO);

    // A probe instead is armed over what it was proved with.
    let tune = load_by(Backend::AutoGlobal, &value_table(), 128).unwrap();
    let site = comes_with_a_probe_in_between(&tune);
    assert!(matches!(site.probe, Probe::Int3 | Probe::Jump), "{site:?}");
    assert_eq!(site.note.as_deref(), Some("arming failed"));
    assert_eq!(running("text")[1..5], before[1..5]);
    assert_eq!(target("value"), "128");
    tune.unload().unwrap();
    Atomic.tell("probe 0").unwrap();
    assert_eq!((target("value"), running("text")), ("32".into(), before));
}

/// A breakpoint that no kprobe has: a debugger's, say.
pub fn somebody_elses_change_is_not_overwritten() {
    let before = running("text");
    let tune = value(128);
    write("/proc/xk_target", "poke 200");
    assert_eq!(target("value"), "200");
    assert_eq!(only_site(&tune).probe, Probe::Unknown);
    let (outcome, reason, _) = blocked(tune.go(Destination::Value(7), Mode::Global, BRIEF));
    assert_eq!(outcome, Outcome::Unchanged);
    assert!(reason.contains("something else changed or probes xk_target_value+0x0"), "{reason}");
    assert_eq!((target("value"), tune.status().unwrap().value), ("200".into(), 128));
    write("/proc/xk_target", "poke 128");
    tune.set(7).unwrap();
    assert_eq!(target("value"), "7");
    tune.unload().unwrap();
    assert_eq!(running("text"), before);
}
