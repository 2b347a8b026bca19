//! What a detour does, what it withstands, and what it is refused.

use crate::*;

pub fn a_value_changes_and_returns() {
    let tune = value(128);
    assert_eq!(target("value"), "128");
    tune.set(7).unwrap();
    assert_eq!(target("value"), "7");
    let site = only_site(&tune);
    assert_eq!((site.probe, site.counted, site.missed, site.note), (Probe::Detour, false, 0, None));
    assert!(!tune.status().unwrap().broken);
    tune.unload().unwrap();
    assert_eq!(target("value"), "32");
}

pub fn the_original_bytes_come_back() {
    let before = running("text");
    let tune = value(128);
    let armed = running("text");
    assert_eq!((armed[5], &armed[..5], &armed[10..]), (0xe9, &before[..5], &before[10..]));
    tune.unload().unwrap();
    assert_eq!(running("text"), before);
}

/// `name` prints `default`; with `value`, `tuned`; and then `default` again.
fn changes(name: &str, site: Site, window: u8, value: i64, default: &str, tuned: &str) {
    assert_eq!(target(name), default);
    let tune = detour(name, vec![site], &[window], value).unwrap();
    assert_eq!(target(name), tuned);
    let site = only_site(&tune);
    assert_eq!((site.probe, site.faults), (Probe::Detour, 0));
    // What asks is counted.
    assert!(!site.counted || site.hits > 0, "{site:?}");
    tune.unload().unwrap();
    assert_eq!(target(name), default);
}

/// Reads a register that it wrote: nothing but the interpreter runs that.
fn set_twice() -> Vec<Op> {
    vec![
        op(OpCode::Iv, 4),
        Op { dst: RAX, ..op(OpCode::SetReg, 4) },
        Op { dst: 1, a: RAX, ..op(OpCode::Reg, 4) },
        Op { dst: 2, a: 1, b: 1, ..op(OpCode::Add, 4) },
        Op { dst: RAX, a: 2, ..op(OpCode::SetReg, 4) },
    ]
}

/// Three steps on a frame: (rdi + V) * V.
fn steps() -> Vec<Op> {
    vec![
        Op { a: RDI, ..op(OpCode::Reg, 4) },
        Op { dst: 1, ..op(OpCode::Iv, 4) },
        Op { dst: 2, a: 0, b: 1, ..op(OpCode::Add, 4) },
        Op { dst: 3, a: 2, b: 1, ..op(OpCode::Mul, 4) },
        Op { dst: RAX, a: 3, ..op(OpCode::SetReg, 4) },
    ]
}

pub fn every_kind_of_update_works() {
    changes("compare", Site::new("xk_target_compare", 5, 3, compare(RDI, false)), 5, 50, "1", "0");
    // `seta` reads CF and ZF: with one of them, and with neither, from the update.
    for (flags, value, tuned) in [(0x41, 50, "0"), (0x41, 40, "0"), (0x40, 50, "1"), (0x40, 40, "0"), (0x880, 50, "1")]
    {
        let site = Site::new("xk_target_compare", 5, 3, compare_flags(RDI, false, flags));
        changes("compare", site, 5, value, "1", tuned);
    }
    changes("memory", Site::new("xk_target_memory", 5, 3, compare(RDI, true)), 5, 50, "1", "0");
    let store = vec![
        Op { a: RDI, ..op(OpCode::Reg, 8) },
        Op { dst: 1, ..op(OpCode::Iv, 4) },
        Op { b: 1, ..op(OpCode::Store, 4) },
    ];
    changes("store", Site::new("xk_target_store", 6, 2, store), 6, 500, "32", "500");
    changes("value", Site::new("xk_target_value", 5, 2, set_twice()), 5, 100, "32", "200");
    changes("identity", Site::new("xk_target_identity", 2, 5, steps()), 5, 3, "4", "21");
    // Seven bytes: a jump with two prefixes.
    let ops = vec![
        Op { a: RDI, ..op(OpCode::Reg, 1) },
        Op { dst: 1, ..op(OpCode::Imm, 1) },
        Op { dst: 2, a: 0, b: 1, ..op(OpCode::Eq, 1) },
        Op { dst: 3, imm: 1, ..op(OpCode::Iv, 4) },
        Op { dst: 4, imm: 0, ..op(OpCode::Iv, 4) },
        Op { dst: 5, a: 2, b: 3, c: 4, ..op(OpCode::Select, 4) },
        Op { dst: RAX, a: 5, ..op(OpCode::SetReg, 4) },
    ];
    let mut site = Site::new("xk_target_select", 12, 2, ops);
    site.ivs.push(Fit::linear(2, 0, 4));
    changes("select", site, 7, 50, "32 64", "50 100");
}

pub fn an_update_can_follow_or_replace_an_instruction() {
    let mut site = Site::new("xk_target_value", 0, 5, set_register(RAX));
    site.when = When::After;
    changes("value", site, 5, 77, "32", "77");

    // `and $32,%eax` destroys what the new result is made of.
    let and = vec![
        Op { a: RAX, ..op(OpCode::Reg, 4) },
        Op { dst: 1, ..op(OpCode::Iv, 4) },
        Op { dst: 2, a: 0, b: 1, ..op(OpCode::And, 4) },
        Op { dst: RAX, a: 2, ..op(OpCode::SetReg, 4) },
    ];
    let mut site = Site::new("xk_target_select", 6, 3, and);
    site.when = When::Instead;
    changes("select", site, 6, 65, "32 64", "32 97");

    // A value, instead of an instruction: without asking.
    let mut site = Site::new("xk_target_value", 0, 5, set_register(RAX));
    site.when = When::Instead;
    changes("value", site, 5, 78, "32", "78");
}

pub fn a_fault_leaves_the_default() {
    for when in [When::Before, When::Instead] {
        // Before `seta %al`: flags; instead of it: what is in memory.
        let load = vec![
            Op { a: RSI, ..op(OpCode::Reg, 8) },
            Op { dst: 1, ..op(OpCode::Load, 4) },
            Op { dst: RAX, a: 1, ..op(OpCode::SetReg, 4) },
        ];
        let (mut site, window, tuned) = match when {
            When::Before => (Site::new("xk_target_memory", 5, 3, compare(RSI, true)), 5, "0"),
            _ => (Site::new("xk_target_memory", 5, 3, load), 5, "40"),
        };
        site.when = when;
        let tune = detour("memory", vec![site], &[window], 50).unwrap();
        assert_eq!(target("memory"), tuned);
        write("/proc/xk_target", "bad");
        assert_eq!(target("memory"), "1");
        let site = only_site(&tune);
        // What the code of the stub does is not counted; where memory faults, it asks.
        assert_eq!((site.hits, site.applied, site.faults), (1, 0, 1));
        write("/proc/xk_target", "good");
        assert_eq!(target("memory"), tuned);
        tune.unload().unwrap();
    }
}

pub fn instructions_are_relocated() {
    // A branch that is taken and one that is not, a call, memory relative to rip.
    let flags = || compare(RDI, false);
    changes("branch", Site::new("xk_target_branch", 5, 2, flags()), 7, 50, "1", "0");
    changes("branch", Site::new("xk_target_branch", 5, 2, flags()), 7, 39, "1", "1");
    changes("call", Site::new("xk_target_call", 5, 2, set_register(RDI)), 7, 99, "32", "99");
    changes("global", Site::new("xk_target_global", 5, 6, set_register(RAX)), 6, 60, "72", "100");
    let site = || Site::new("xk_target_per_cpu", 5, 7, set_register(RAX));
    let tune = detour("PER_CPU", vec![site()], &[7], 1).unwrap();
    for cpu in ["0", "1"] {
        let text = output_of_pinned(cpu);
        let expected = 100 * (cpu.parse::<u32>().unwrap() + 1) + 1;
        assert!(text.contains(&format!("cpu{cpu} {expected}\n")), "{text}");
    }
    tune.unload().unwrap();
}

/// A window may begin before the site, and end in the padding behind the function.
pub fn windows_lie_where_there_is_room() {
    for when in [When::Before, When::After] {
        let mut site = value_site();
        site.when = when;
        // After `mov %eax,%edx`, it is edx that counts.
        site.ops = set_register(if when == When::Before { RAX } else { RDX });
        let mut table = windowed(table(&target_module(), "LEAD", vec![site]), &[7]);
        table.spans[0].indirection.window_lead = 5;
        let before = running("text");
        let tune = load_by(Backend::Detour, &table, 128).unwrap();
        assert_eq!(target("value"), "128");
        assert_eq!((&running("text")[..3], &running("text")[7..]), (&[0x2e, 0x2e, 0xe9][..], &before[7..]));
        tune.unload().unwrap();
        assert_eq!((target("value"), running("text")), ("32".into(), before));
    }
    let function = support::function(&target_module(), "xk_target_padded").text().unwrap();
    let at = function.len() as u32 - 4;
    changes("padded", Site::new("xk_target_padded", at, 2, set_register(RAX)), 5, 44, "32", "44");
}

/// `/proc/xk_target`, read on one processor.
fn output_of_pinned(cpu: &str) -> String {
    let output = Command::new("taskset").args(["-c", cpu, "cat", "/proc/xk_target"]).output().unwrap();
    assert!(output.status.success());
    String::from_utf8(output.stdout).unwrap()
}

pub fn sites_of_one_tune_change_together() {
    let sites = vec![
        Site::new("xk_target_value", 5, 2, set_register(RAX)),
        Site::new("xk_target_twice", 10, 2, set_register(1)),
    ];
    let tune = detour("TWO", sites, &[5, 7], 100).unwrap();
    assert_eq!((target("value"), target("twice")), ("100".into(), "132".into()));
    tune.set(9).unwrap();
    assert_eq!((target("value"), target("twice")), ("9".into(), "41".into()));
    tune.unload().unwrap();
    assert_eq!((target("value"), target("twice")), ("32".into(), "64".into()));
}

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
    assert!(refused.contains("xk_target_value+0x5: another probe came here"), "{refused}");
    assert_eq!(running("text"), before);
    no_probe();
    let _tune = value(128);
    assert_eq!(target("value"), "128");
}

/// `1:` in `xk_target_branch` is inside the five bytes of a jump at the `nop`. The
/// kernel sees that no longer when the branch to it is in our stub.
pub fn a_probe_near_a_relocated_branch_stays_a_breakpoint() {
    let branch = Site::new("xk_target_branch", 5, 2, compare(RDI, false));
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
    let compared = || detour("COMPARE", vec![Site::new("xk_target_compare", 5, 3, compare(RDI, false))], &[5], 50);
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

/// Whoever comes with a probe finds no instruction in the window, so that none becomes a
/// jump over the place that the branch leads to.
pub fn a_branch_may_lead_to_just_behind_its_window() {
    changes("skip", Site::new("xk_target_skip", 5, 2, compare(RDI, false)), 5, 50, "0", "40");
}

/// Two comparisons with their branches. The first branch leads to behind the second window.
fn pair() -> ScopeTable {
    let site = |offset, register| Site::new("xk_target_pair", offset, 2, compare_flags(register, false, 0x8d5));
    let mut table = windowed(table(&target_module(), "PAIR", vec![site(5, RDI), site(10, RSI)]), &[5, 5]);
    for span in &mut table.spans {
        span.indirection.window_lead = 3;
    }
    table
}

/// Two windows without a gap, and without a branch: before the addition of the first constant, behind the second one.
fn adjacent() -> ScopeTable {
    let first = Site::new("xk_target_several_0", 7, 7, set_register(RDX));
    let mut second = Site::new("xk_target_several_0", 14, 5, set_register(RDX));
    second.when = When::After;
    windowed(table(&target_module(), "ADJACENT", vec![first, second]), &[7, 5])
}

pub fn windows_may_lie_side_by_side() {
    assert_eq!(target("several"), "8192");
    let tune = load_by(Backend::Detour, &adjacent(), 50).unwrap();
    assert_eq!(target("several"), "8228");
    tune.set(30).unwrap();
    assert_eq!(target("several"), "8188");
    tune.unload().unwrap();
    assert_eq!(target("several"), "8192");
    // They do not need each other.
    probe("xk_target_several_0", 7, "disabled");
    let tune = load_by(Backend::Auto, &adjacent(), 50).unwrap();
    let sites = tune.status().unwrap().sites;
    assert!(matches!(sites[0].probe, Probe::Int3 | Probe::Jump), "{sites:?}");
    assert_eq!(sites[0].note.as_deref(), Some("another probe came here"));
    assert_eq!((sites[1].probe, &sites[1].note), (Probe::Detour, &None));
    assert_eq!(target("several"), "8228");
    tune.unload().unwrap();
    no_probe();
    // A module that comes has its windows one after the other.
    let tune = load_by(Backend::Detour, &adjacent(), 50).unwrap();
    assert!(run("rmmod", &[MODULE]));
    insmod(TARGET_KO);
    let sites = tune.status().unwrap().sites;
    assert_eq!([sites[0].probe, sites[1].probe], [Probe::Detour; 2], "{sites:?}");
    assert_eq!(target("several"), "8228");
    tune.unload().unwrap();
    assert_eq!(target("several"), "8192");
}

const NEEDS_A_GUARD: &str = "another window, or a number, needs a guard in these instructions";

/// The first branch leads to behind the second window: what guards that place stands in it.
pub fn a_window_in_which_another_needs_a_guard_is_a_probe() {
    let before = running("pairtext");
    let refused = message(load_by(Backend::Detour, &pair(), 50));
    assert!(refused.contains(&format!("xk_target_pair+0xa: {NEEDS_A_GUARD}")), "{refused}");
    assert_eq!((target("pair"), running("pairtext")), ("1 1".into(), before.clone()));

    let tune = load_by(Backend::Auto, &pair(), 50).unwrap();
    assert_eq!(target("pair"), "0 0");
    let sites = tune.status().unwrap().sites;
    assert_eq!((sites[0].probe, &sites[0].note), (Probe::Detour, &None));
    assert_eq!((sites[1].probe, sites[1].note.as_deref()), (Probe::Int3, Some(NEEDS_A_GUARD)));
    tune.set(30).unwrap();
    assert_eq!(target("pair"), "1 1");
    tune.unload().unwrap();
    assert_eq!((target("pair"), running("pairtext")), ("1 1".into(), before.clone()));

    // Somebody's probe keeps the jump of the one, and nothing else.
    let tune = load_by(Backend::Auto, &pair(), 50).unwrap();
    let armed = running("pairtext");
    probe("xk_target_pair", 2, "enabled");
    tune.unload().unwrap();
    let left = running("pairtext");
    assert_eq!((target("pair"), &left[3..7], &left[7..]), ("1 1".into(), &armed[3..7], &before[7..]));
    no_probe();
    wait_for("the original bytes", || running("pairtext") == before);
    assert_eq!(target("pair"), "1 1");
}

/// As long as the jump of another tune is there, no guard can be placed in it: were it gone, a
/// probe there could become a jump over what our branch leads to.
pub fn a_branch_leads_not_to_just_behind_another_tunes_window() {
    let before = running("pairtext");
    let [mut first, mut second] = [pair(), pair()];
    first.spans.remove(1);
    second.spans.remove(0);
    second.constant.id = "by hand:L1:SECOND:0".into();
    let beside = load_by(Backend::Detour, &second, 10).unwrap();
    assert_eq!(target("pair"), "1 1");
    let armed = running("pairtext");
    let refused = message(load_by(Backend::Detour, &first, 50));
    assert!(refused.contains("xk_target_pair+0x5"), "{refused}");
    assert!(refused.contains("a branch leads to just behind another detour"), "{refused}");
    assert_eq!(running("pairtext"), armed);
    beside.unload().unwrap();
    let tune = load_by(Backend::Detour, &first, 50).unwrap();
    assert_eq!((target("pair").as_str(), running("pairtext")[2]), ("0 1", 0xe9));
    // Nor is there a jump where its guard stands by then.
    let refused = message(load_by(Backend::Detour, &second, 10));
    assert!(refused.contains(&format!("xk_target_pair+0xa: {NEEDS_A_GUARD}")), "{refused}");
    tune.unload().unwrap();
    assert_eq!((target("pair"), running("pairtext")), ("1 1".into(), before));
}

pub fn what_is_not_safe_is_refused() {
    let at = |symbol, offset, len| Site::new(symbol, offset, len, set_register(RAX));
    for (site, window, reason) in [
        (value_site(), 0, "the analysis knows no window here"),
        (value_site(), 8, "the analysis saw another window"),
        (at("xk_target_into", 9, 2), 5, "a branch leads into these instructions"),
        (at("xk_target_careful", 5, 2), 5, "an access to memory that may fault"),
        (at("xk_target_forbidden", 5, 2), 5, "the kernel forbids probes here"),
    ] {
        let symbol = site.symbol;
        let refused = message(detour(symbol, vec![site], &[window], 100));
        assert!(refused.contains(symbol) && refused.contains(reason), "{refused}");
        assert!(Device::open().unwrap().tunes().unwrap().is_empty());
    }
    // A window of another length than instructions have, of more than a jump has, of too few bytes.
    for window in [4, 16] {
        let refused = message(detour("VALUE", vec![value_site()], &[window], 100));
        assert!(refused.contains(&format!("a window of {window} bytes")), "{refused}");
    }
    assert_eq!(target("value"), "32");
}

pub fn what_is_not_safe_may_be_a_probe() {
    let sites = vec![value_site(), Site::new("xk_target_into", 9, 2, set_register(RAX))];
    let table = windowed(table(&target_module(), "AUTO", sites), &[5, 5]);
    let tune = load_by(Backend::Auto, &table, 100).unwrap();
    let sites = tune.status().unwrap().sites;
    assert_eq!((sites[0].probe, sites[0].note.as_deref()), (Probe::Detour, None));
    assert!(matches!(sites[1].probe, Probe::Int3 | Probe::Jump), "{sites:?}");
    assert_eq!(sites[1].note.as_deref(), Some("a branch leads into these instructions"));
    assert_eq!(target("value"), "100");
}

pub fn windows_do_not_overlap() {
    let twice = |offset| Site::new("xk_target_twice", offset, if offset == 5 { 5 } else { 2 }, set_register(RAX));
    // One tune.
    let refused = message(detour("TWICE", vec![twice(10), twice(12)], &[7, 5], 100));
    assert!(refused.contains("another site of this tune is in the window"), "{refused}");
    // Two tunes: what the first one's jump covers is nobody else's.
    let first = detour("FIRST", vec![twice(10)], &[7], 100).unwrap();
    for backend in [Backend::Detour, Backend::Kprobe, Backend::Auto] {
        let second = windowed(table(&target_module(), "SECOND", vec![twice(12)]), &[5]);
        let refused = message(load_by(backend, &second, 100));
        assert!(refused.contains("these instructions are held by") && refused.contains("FIRST"), "{refused}");
    }
    first.unload().unwrap();
}

pub fn a_removed_module_leaves_no_stub() {
    let tune = value(128);
    assert!(run("rmmod", &[MODULE]));
    assert_eq!(only_site(&tune).probe, Probe::Waiting);
    insmod(TARGET_KO);
    assert_eq!(only_site(&tune).probe, Probe::Detour);
    assert_eq!((target("value"), target("init")), ("128".into(), "128 32".into()));
    tune.set(9).unwrap();
    assert_eq!(target("value"), "9");
    tune.unload().unwrap();
    assert_eq!(target("value"), "32");
}

pub fn removing_xk_returns_the_default() {
    let before = running("text");
    value(128).detach().unwrap();
    assert_eq!(target("value"), "128");
    assert!(run("rmmod", &["xk"]));
    assert_eq!((target("value"), running("text")), ("32".into(), before));
    insmod(XK_KO);
    // And all stubs are there again.
    for _ in 0..3 {
        assert_eq!(only_site(&value(5)).probe, Probe::Detour);
    }
}

pub fn the_death_of_the_owner_returns_the_default() {
    let before = running("text");
    let tune = value(128);
    assert_eq!(target("value"), "128");
    drop(tune);
    wait_for("the default", || target("value") == "32");
    wait_for("the original bytes", || running("text") == before);
}

/// It has copied its instruction, and nobody finds it yet. Its breakpoint would go on in the middle of our jump.
pub fn a_probe_that_is_being_registered_is_waited_for() {
    fresh_atomic();
    // What kprobes say of these instructions is remembered: to be asked, they would wait for the other one.
    value(128).unload().unwrap();
    let before = running("text");
    Atomic.tell("stall 1").unwrap();
    let registers = || probe("xk_target_value", 7, "disabled");
    let other = std::thread::Builder::new().name("xk_stalled".into()).spawn(registers).unwrap();
    wait_for("it is held", || Atomic.counts().unwrap().stalled == 1);
    let refused = message(detour("VALUE", vec![value_site()], &[5], 128));
    assert!(refused.contains("registers probes"), "{refused}");
    assert_eq!(running("text"), before);
    Atomic.tell("stall 0").unwrap();
    other.join().unwrap();
    let refused = message(detour("VALUE", vec![value_site()], &[5], 128));
    assert!(refused.contains("another probe"), "{refused}");
    no_probe();

    // The jump stays as long as somebody may have a copy of it.
    let tune = value(128);
    Atomic.tell("stall 1").unwrap();
    let registers = || probe("xk_target_value", 5, "disabled");
    let other = std::thread::Builder::new().name("xk_stalled".into()).spawn(registers).unwrap();
    wait_for("it is held", || Atomic.counts().unwrap().stalled == 1);
    tune.unload().unwrap();
    assert_eq!((running("text")[5], target("value").as_str()), (0xe9, "32"));
    Atomic.tell("stall 0").unwrap();
    other.join().unwrap();
    no_probe();
    wait_for("the original bytes", || running("text") == before);
}

pub fn an_update_has_no_access_to_user_memory_where_its_code_has() {
    let ops = vec![
        Op { a: RDI, ..op(OpCode::Reg, 8) },
        op(OpCode::Load, 4),
        Op { dst: 1, ..op(OpCode::Iv, 4) },
        Op { dst: 2, b: 1, ..op(OpCode::Add, 4) },
        Op { dst: 3, a: 2, b: 1, ..op(OpCode::Mul, 4) },
        Op { dst: RAX, a: 3, ..op(OpCode::SetReg, 4) },
    ];
    let tune = detour("ACCESS", vec![Site::new("xk_target_access", 8, 2, ops)], &[5], 7).unwrap();
    assert_eq!(target("access"), "32");
    let site = only_site(&tune);
    assert_eq!((site.probe, site.hits, site.faults), (Probe::Detour, 1, 1));
    // Reading this is the second.
    assert_eq!(target("flags"), "2 0", "faults, and how many of them with access to user memory");
}
