//! The mirrors in `src/abi.rs` against `kernel/xk_sched/uapi/xk_sched.h`, as a C compiler sees them.

#![allow(clippy::unwrap_used)] // a test

use std::fmt::Write as _;
use std::mem::{offset_of, size_of};
use std::process::Command;

use xk_sched::abi;

macro_rules! structure {
    ($facts:expr, $c:literal, $rust:ty, $($field:ident),+) => {
        $facts.push((concat!("sizeof(struct ", $c, ")"), size_of::<$rust>() as u64));
        $($facts.push((
            concat!("offsetof(struct ", $c, ", ", stringify!($field), ")"),
            offset_of!($rust, $field) as u64,
        ));)+
    };
}

/// Versions, sizes and commands.
fn numbers() -> Vec<(&'static str, u64)> {
    vec![
        ("XK_SCHED_ABI_VERSION", u64::from(abi::ABI_VERSION)),
        ("XK_SCHED_NAME_LEN", abi::NAME_LEN as u64),
        ("XK_SCHED_TEXT_LEN", abi::TEXT_LEN as u64),
        ("XK_SCHED_CPUS_LEN", abi::CPUS_LEN as u64),
        ("XK_SCHED_WHOLE_PROCESS", u64::from(abi::WHOLE_PROCESS)),
        ("XK_IOC_SCHED_VERSION", u64::from(abi::IOC_VERSION)),
        ("XK_IOC_SCHED_STATUS", u64::from(abi::IOC_STATUS)),
        ("XK_IOC_SCHED_POLICY", u64::from(abi::IOC_POLICY)),
        ("XK_IOC_SCHED_REPORT", u64::from(abi::IOC_REPORT)),
        ("XK_IOC_SCHED_CHOOSE", u64::from(abi::IOC_CHOOSE)),
        ("XK_IOC_SCHED_WEIGHT", u64::from(abi::IOC_WEIGHT)),
        ("XK_IOC_SCHED_RECORD", u64::from(abi::IOC_RECORD)),
        ("XK_IOC_SCHED_RECORD_END", u64::from(abi::IOC_RECORD_END)),
        ("XK_IOC_SCHED_REPLACE", u64::from(abi::IOC_REPLACE)),
        ("XK_SCHED_NR_WAITS", abi::NR_WAITS as u64),
        ("XK_IOC_SCHED_CPUS", u64::from(abi::IOC_CPUS)),
        ("XK_IOC_SCHED_STATS", u64::from(abi::IOC_STATS)),
        ("XK_IOC_SCHED_DUMP", u64::from(abi::IOC_DUMP)),
    ]
}

#[test]
fn mirrors_agree_with_the_header() {
    let mut facts: Vec<(&str, u64)> = Vec::new();
    structure!(facts, "xk_sched_version", abi::Version, abi, pad, module);
    structure!(facts, "xk_sched_status", abi::Status, active, nr_policies, nr_threads, pad, nr_ejected, reason);
    structure!(
        facts,
        "xk_sched_policy_info",
        abi::PolicyInfo,
        index,
        live,
        nr_threads,
        nr_ready,
        nr_switches,
        nr_overdue,
        slice_ns,
        weight,
        stranded,
        name,
        cpus
    );
    structure!(facts, "xk_sched_report", abi::Report, index, pid, core, pad, policy, event, comm, from, to, text);
    structure!(facts, "xk_sched_choice", abi::Choice, size, pid, flags, nr_threads, policy, error);
    structure!(facts, "xk_sched_weight", abi::Weight, size, weight, policy, error);
    structure!(facts, "xk_sched_cpus", abi::Cpus, size, pad, policy, cpus, error);
    structure!(facts, "xk_sched_stats", abi::Stats, index, pad, nr_moves, waited_ns, waits, name);
    structure!(facts, "xk_sched_thread", abi::Thread, pid, core, queue, waits_ms, ran_ns, state, comm);
    structure!(facts, "xk_sched_dump", abi::Dump, size, nr_threads, threads, policy, error);
    structure!(facts, "xk_sched_replacement", abi::Replacement, size, nr_threads, old, new, error);
    structure!(facts, "xk_sched_recording", abi::Recording, size, pad, limit, bytes, missed, policy, error);
    facts.extend(numbers());
    let mut source =
        String::from("#include <stddef.h>\n#include <stdio.h>\n#include \"xk_sched.h\"\nint main(void) {\n");
    for (expression, _) in &facts {
        writeln!(source, "printf(\"%llu\\n\", (unsigned long long)({expression}));").unwrap();
    }
    source.push_str("}\n");

    let folder = tempfile::tempdir().unwrap();
    let (file, program) = (folder.path().join("facts.c"), folder.path().join("facts"));
    std::fs::write(&file, source).unwrap();
    let header = concat!("-I", env!("CARGO_MANIFEST_DIR"), "/../../kernel/xk_sched/uapi");
    let compiled =
        Command::new("gcc").args(["-Wall", "-Werror", header, "-o"]).args([&program, &file]).status().unwrap();
    assert!(compiled.success());
    let output = String::from_utf8(Command::new(&program).output().unwrap().stdout).unwrap();
    let values: Vec<u64> = output.lines().map(|line| line.parse().unwrap()).collect();
    assert_eq!(values.len(), facts.len());
    for ((expression, rust), c) in facts.into_iter().zip(values) {
        assert_eq!(rust, c, "{expression}");
    }
}
