//! What a detour does, and how it ends.

use crate::*;

#[path = "detours_probes.rs"]
mod probes;
#[path = "detours_windows.rs"]
mod windows;
pub use probes::{
    a_disabled_probe_in_the_window_is_not_overwritten, a_probe_just_before_the_window_stays_a_breakpoint,
    a_probe_near_a_relocated_branch_stays_a_breakpoint, a_probe_on_the_jump_is_served,
    a_probe_that_is_being_registered_is_waited_for, disabling_kprobes_changes_nothing,
    nothing_is_missed_where_probes_nest,
};
pub use windows::{
    a_branch_leads_not_to_just_behind_another_tunes_window, a_branch_may_lead_to_just_behind_its_window,
    a_window_in_which_another_needs_a_guard_is_a_probe, what_is_not_safe_is_refused, what_is_not_safe_may_be_a_probe,
    windows_do_not_overlap, windows_lie_where_there_is_room, windows_may_lie_side_by_side,
};

/// `name` prints `default`; with `value`, `tuned`; and then `default` again.
fn changes(name: &str, site: SiteSpec, window: u8, value: i64, default: &str, tuned: &str) {
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
    changes("compare", SiteSpec::new("xk_target_compare", 5, 3, compare(RDI, false)), 5, 50, "1", "0");
    // `seta` reads CF and ZF: with one of them, and with neither, from the update.
    for (flags, value, tuned) in [(0x41, 50, "0"), (0x41, 40, "0"), (0x40, 50, "1"), (0x40, 40, "0"), (0x880, 50, "1")]
    {
        let site = SiteSpec::new("xk_target_compare", 5, 3, compare_flags(RDI, false, flags));
        changes("compare", site, 5, value, "1", tuned);
    }
    changes("memory", SiteSpec::new("xk_target_memory", 5, 3, compare(RDI, true)), 5, 50, "1", "0");
    let store = vec![
        Op { a: RDI, ..op(OpCode::Reg, 8) },
        Op { dst: 1, ..op(OpCode::Iv, 4) },
        Op { b: 1, ..op(OpCode::Store, 4) },
    ];
    changes("store", SiteSpec::new("xk_target_store", 6, 2, store), 6, 500, "32", "500");
    changes("value", SiteSpec::new("xk_target_value", 5, 2, set_twice()), 5, 100, "32", "200");
    changes("identity", SiteSpec::new("xk_target_identity", 2, 5, steps()), 5, 3, "4", "21");
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
    let mut site = SiteSpec::new("xk_target_select", 12, 2, ops);
    site.ivs.push(Fit::linear(2, 0, 4));
    changes("select", site, 7, 50, "32 64", "50 100");
}

pub fn an_update_can_follow_or_replace_an_instruction() {
    let mut site = SiteSpec::new("xk_target_value", 0, 5, set_register(RAX));
    site.when = When::After;
    changes("value", site, 5, 77, "32", "77");

    // `and $32,%eax` destroys what the new result is made of.
    let and = vec![
        Op { a: RAX, ..op(OpCode::Reg, 4) },
        Op { dst: 1, ..op(OpCode::Iv, 4) },
        Op { dst: 2, a: 0, b: 1, ..op(OpCode::And, 4) },
        Op { dst: RAX, a: 2, ..op(OpCode::SetReg, 4) },
    ];
    let mut site = SiteSpec::new("xk_target_select", 6, 3, and);
    site.when = When::Instead;
    changes("select", site, 6, 65, "32 64", "32 97");

    // A value, instead of an instruction: without asking.
    let mut site = SiteSpec::new("xk_target_value", 0, 5, set_register(RAX));
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
            When::Before => (SiteSpec::new("xk_target_memory", 5, 3, compare(RSI, true)), 5, "0"),
            _ => (SiteSpec::new("xk_target_memory", 5, 3, load), 5, "40"),
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
    changes("branch", SiteSpec::new("xk_target_branch", 5, 2, flags()), 7, 50, "1", "0");
    changes("branch", SiteSpec::new("xk_target_branch", 5, 2, flags()), 7, 39, "1", "1");
    changes("call", SiteSpec::new("xk_target_call", 5, 2, set_register(RDI)), 7, 99, "32", "99");
    changes("global", SiteSpec::new("xk_target_global", 5, 6, set_register(RAX)), 6, 60, "72", "100");
    let site = || SiteSpec::new("xk_target_per_cpu", 5, 7, set_register(RAX));
    let tune = detour("PER_CPU", vec![site()], &[7], 1).unwrap();
    for cpu in ["0", "1"] {
        let text = output_of_pinned(cpu);
        let expected = 100 * (cpu.parse::<u32>().unwrap() + 1) + 1;
        assert!(text.contains(&format!("cpu{cpu} {expected}\n")), "{text}");
    }
    tune.unload().unwrap();
}

/// `/proc/xk_target`, read on one processor.
fn output_of_pinned(cpu: &str) -> String {
    let output = Command::new("taskset").args(["-c", cpu, "cat", "/proc/xk_target"]).output().unwrap();
    assert!(output.status.success());
    String::from_utf8(output.stdout).unwrap()
}

pub fn sites_of_one_tune_change_together() {
    let sites = vec![
        SiteSpec::new("xk_target_value", 5, 2, set_register(RAX)),
        SiteSpec::new("xk_target_twice", 10, 2, set_register(1)),
    ];
    let tune = detour("TWO", sites, &[5, 7], 100).unwrap();
    assert_eq!((target("value"), target("twice")), ("100".into(), "132".into()));
    tune.set(9).unwrap();
    assert_eq!((target("value"), target("twice")), ("9".into(), "41".into()));
    tune.unload().unwrap();
    assert_eq!((target("value"), target("twice")), ("32".into(), "64".into()));
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
    let tune = detour("ACCESS", vec![SiteSpec::new("xk_target_access", 8, 2, ops)], &[5], 7).unwrap();
    assert_eq!(target("access"), "32");
    let site = only_site(&tune);
    assert_eq!((site.probe, site.hits, site.faults), (Probe::Detour, 1, 1));
    // Reading this is the second.
    assert_eq!(target("flags"), "2 0", "faults, and how many of them with access to user memory");
}
