//! Values that take effect, one kind of program after the other.

use crate::*;

fn twice_table() -> ScopeTable {
    let sites = vec![
        SiteSpec::new("xk_target_twice", 5, 5, set_register(RAX)),
        SiteSpec::new("xk_target_twice", 10, 2, set_register(1)),
    ];
    table(&target_module(), "TWICE", sites)
}

pub fn two_sites_change_together() {
    assert_eq!(target("twice"), "64");
    let tune = load(&twice_table(), 100).unwrap();
    assert_eq!(target("twice"), "200");
    assert_eq!(tune.status().unwrap().sites.len(), 2);
    tune.unload().unwrap();
    assert_eq!(target("twice"), "64");
}

fn changes(name: &str, sites: Vec<SiteSpec>, value: i64, default: &str, tuned: &str) {
    assert_eq!(target(name), default);
    let tune = load(&table(&target_module(), name, sites), value).unwrap();
    assert_eq!(target(name), tuned);
    assert_eq!(only_site(&tune).faults, 0);
    tune.unload().unwrap();
    assert_eq!(target(name), default);
}

pub fn flags_of_a_comparison_are_recomputed() {
    changes("compare", vec![SiteSpec::new("xk_target_compare", 5, 3, compare(RDI, false))], 50, "1", "0");
    changes("compare", vec![SiteSpec::new("xk_target_compare", 5, 3, compare(RDI, false))], 39, "1", "1");
}

pub fn memory_operand_is_compared() {
    changes("memory", vec![SiteSpec::new("xk_target_memory", 5, 3, compare(RDI, true))], 50, "1", "0");
}

pub fn a_fault_leaves_the_default_and_is_counted() {
    let sites = vec![SiteSpec::new("xk_target_memory", 5, 3, compare(RSI, true))];
    let tune = load(&table(&target_module(), "memory", sites), 50).unwrap();
    assert_eq!(target("memory"), "0");
    write("/proc/xk_target", "bad");
    assert_eq!(target("memory"), "1");
    let site = only_site(&tune);
    assert_eq!((site.hits, site.applied, site.faults), (2, 1, 1));
    write("/proc/xk_target", "good");
    assert_eq!(target("memory"), "0");
    tune.unload().unwrap();
}

pub fn a_store_changes_memory() {
    let ops = vec![
        Op { a: RDI, ..op(OpCode::Reg, 8) },
        Op { dst: 1, ..op(OpCode::Iv, 4) },
        Op { b: 1, ..op(OpCode::Store, 4) },
    ];
    changes("store", vec![SiteSpec::new("xk_target_store", 6, 2, ops)], 500, "32", "500");
}

pub fn a_select_is_recomputed() {
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
    changes("select", vec![site], 50, "32 64", "50 100");
}

pub fn an_update_can_follow_an_instruction() {
    let mut site = SiteSpec::new("xk_target_value", 0, 5, set_register(RAX));
    site.when = When::After;
    changes("value", vec![site], 77, "32", "77");
}

/// `and $32,%eax` destroys what the new result is made of.
pub fn an_update_can_replace_an_instruction() {
    let mut site = SiteSpec::new(
        "xk_target_select",
        6,
        3,
        vec![
            Op { a: RAX, ..op(OpCode::Reg, 4) },
            Op { dst: 1, ..op(OpCode::Iv, 4) },
            Op { dst: 2, a: 0, b: 1, ..op(OpCode::And, 4) },
            Op { dst: RAX, a: 2, ..op(OpCode::SetReg, 4) },
        ],
    );
    site.when = When::Instead;
    assert_eq!(target("select"), "32 64");
    let tune = load(&table(&target_module(), "INSTEAD", vec![site]), 65).unwrap();
    assert_eq!(target("select"), "32 97");
    let site = only_site(&tune);
    assert_eq!((site.probe, site.hits, site.applied), (Probe::Int3, 2, 2));
    // Not even when the optimiser has been here.
    let other = load(&value_table(), 64).unwrap();
    wait_for("optimisation", || only_site(&other).probe == Probe::Jump);
    assert_eq!(only_site(&tune).probe, Probe::Int3);
    assert_eq!(target("select"), "32 97");
    tune.unload().unwrap();
    assert_eq!(target("select"), "32 64");

    // Instead of `mov %eax,%edx`; when memory faults, that runs.
    let ops = vec![
        Op { a: RSI, ..op(OpCode::Reg, 8) },
        Op { dst: 1, ..op(OpCode::Load, 4) },
        Op { dst: 2, a: 1, ..op(OpCode::SetReg, 4) },
    ];
    let mut site = SiteSpec::new("xk_target_memory", 8, 2, ops);
    site.when = When::Instead;
    let tune = load(&table(&target_module(), "INSTEAD", vec![site]), 65).unwrap();
    assert_eq!(target("memory"), "40");
    write("/proc/xk_target", "bad");
    assert_eq!(target("memory"), "1");
    let site = only_site(&tune);
    assert_eq!((site.hits, site.applied, site.faults), (2, 1, 1));
    write("/proc/xk_target", "good");
    tune.unload().unwrap();
}

pub fn a_site_can_be_a_jump() {
    let tune = load(&value_table(), 64).unwrap();
    wait_for("optimisation", || only_site(&tune).probe == Probe::Jump);
    assert_eq!(target("value"), "64");
    tune.set(65).unwrap();
    assert_eq!(target("value"), "65");
    write("/proc/sys/debug/kprobes-optimization", "0");
    assert_eq!(only_site(&tune).probe, Probe::Int3);
    assert_eq!(target("value"), "65");
    write("/proc/sys/debug/kprobes-optimization", "1");
    wait_for("optimisation", || only_site(&tune).probe == Probe::Jump);
    tune.unload().unwrap();
    // The jump covered three instructions; all of them are back.
    load(&value_table(), 33).unwrap();
    assert_eq!(target("value"), "32");
}
