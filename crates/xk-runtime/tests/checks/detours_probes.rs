//! Detours and kprobes of others at, before and inside their windows.

use super::*;

pub fn nothing_is_missed_where_probes_nest() {
    let table = table(&target_module(), "VALUE", vec![value_site()]);
    nests(load_by(Backend::Kprobe, &table, 128).unwrap(), || value(128));
}

pub fn disabling_kprobes_changes_nothing() {
    outlives_kprobes(value(128));
}

pub fn a_probe_on_the_jump_is_served() {
    let before = running("text");
    let tune = value(128);
    probe("xk_target_value", 5, "enabled");
    // Reading how often is once more.
    let start = hits();
    assert_eq!((target("value"), hits() - start), ("128".into(), 2));
    assert_eq!(only_site(&tune).probe, Probe::Detour);
    tune.set(9).unwrap();
    assert_eq!(target("value"), "9");
    // Its owner remembers our jump: it stays until the probe goes, and leads to the
    // original instructions.
    tune.unload().unwrap();
    // Reading how often is once more.
    let start = hits();
    assert_eq!((target("value"), hits() - start), ("32".into(), 2));
    assert_ne!(running("text"), before);
    let refused = message(detour("VALUE", vec![value_site()], &[5], 128));
    assert!(refused.contains("running cc; another probe or tracer owns it"), "{refused}");
    no_probe();
    assert_eq!(target("value"), "32");
    // Who comes next need not wait for it to go by itself.
    drop(value(128));
    wait_for("the original bytes", || running("text") == before);
}

/// It would come back into the middle of our jump when it is enabled.
pub fn a_disabled_probe_in_the_window_is_not_overwritten() {
    let before = running("text");
    probe("xk_target_value", 7, "disabled");
    let refused = message(detour("VALUE", vec![value_site()], &[5], 128));
    assert!(refused.contains("xk_target_value+0x5: another kprobe was registered here"), "{refused}");
    assert_eq!(running("text"), before);
    no_probe();
    let _tune = value(128);
    assert_eq!(target("value"), "128");
}

/// `1:` in `xk_target_branch` is inside the five bytes of a jump at the `nop`. The
/// kernel sees that no longer when the branch to it is in our stub.
pub fn a_probe_near_a_relocated_branch_stays_a_breakpoint() {
    let branch = SiteSpec::new("xk_target_branch", 5, 2, compare(RDI, false));
    let tune = detour("BRANCH", vec![branch], &[7], 50).unwrap();
    probe("xk_target_branch", 12, "enabled");
    let _other = optimised_elsewhere();
    assert!(!is_optimised("xk_target_branch+0xc"));
    assert_eq!(target("branch"), "0");
    no_probe();
    tune.unload().unwrap();
    assert_eq!(target("branch"), "1");
}

/// `cmp` in front of the window: a jump in its place would reach into ours. Who comes later would
/// have to copy our jump; who was there before has copied what was there before.
pub fn a_probe_just_before_the_window_stays_a_breakpoint() {
    let before = running("bytes");
    let compared = || detour("COMPARE", vec![SiteSpec::new("xk_target_compare", 5, 3, compare(RDI, false))], &[5], 50);
    let holds = || {
        let other = optimised_elsewhere();
        assert!(!is_optimised("xk_target_compare+0x2"));
        let start = hits();
        assert_eq!((target("compare"), hits() - start), ("0".into(), 2));
        assert_eq!(running("bytes")[5], 0xe9);
        other.unload().unwrap();
    };
    let tune = compared().unwrap();
    probe("xk_target_compare", 2, "enabled");
    holds();
    tune.unload().unwrap();
    no_probe();
    assert_eq!((target("compare"), running("bytes")), ("1".into(), before.clone()));

    probe("xk_target_compare", 2, "disabled");
    let tune = compared().unwrap();
    enable_probe();
    holds();
    tune.unload().unwrap();
    // It is nobody's now.
    wait_for("optimisation", || is_optimised("xk_target_compare+0x2"));
    assert_eq!(target("compare"), "1");
    no_probe();
    wait_for("the original bytes", || running("bytes") == before);
}

/// It has copied its instruction, and nobody finds it yet. Its breakpoint would go on in the middle of our jump.
pub fn a_probe_that_is_being_registered_is_waited_for() {
    fresh_atomic();
    // What kprobes say of these instructions is remembered: to be asked, they would wait for the other one.
    value(128).unload().unwrap();
    let before = running("text");
    let other = Stalled::new(Stall::Registers, || probe("xk_target_value", 7, "disabled"));
    let loads = std::thread::spawn(|| message(detour("VALUE", vec![value_site()], &[5], 128)));
    std::thread::sleep(BRIEF);
    assert_eq!((running("text"), loads.is_finished()), (before.clone(), false));
    other.release();
    let refused = loads.join().unwrap();
    assert!(refused.contains("another kprobe was registered here"), "{refused}");
    assert_eq!(running("text"), before);
    no_probe();

    // The jump stays as long as somebody may have a copy of it.
    let tune = value(128);
    let other = Stalled::new(Stall::Registers, || probe("xk_target_value", 5, "disabled"));
    let unloads = std::thread::spawn(move || tune.unload().unwrap());
    std::thread::sleep(BRIEF);
    assert_eq!((running("text")[5], unloads.is_finished()), (0xe9, false));
    other.release();
    unloads.join().unwrap();
    assert_eq!((running("text")[5], target("value").as_str()), (0xe9, "32"));
    no_probe();
    wait_for("the original bytes", || running("text") == before);
}
