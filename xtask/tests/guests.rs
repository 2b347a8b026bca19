//! The benchmarks and the stress of transitions, in short.

#![allow(clippy::unwrap_used, clippy::expect_used)] // a test

use std::process::{Command, Stdio};

use serde_json::Value;

/// Whether `cargo xtask` succeeds with these arguments, and the object on the last line that it prints.
fn outcome(arguments: &[&str]) -> (bool, Value) {
    let output = Command::new(env!("CARGO_BIN_EXE_xtask")).args(arguments).stderr(Stdio::inherit()).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let last = text.lines().last().unwrap_or_else(|| panic!("{arguments:?}: {}", output.status));
    (output.status.success(), serde_json::from_str(last).unwrap())
}

/// The object of one that must succeed.
fn xtask(arguments: &[&str]) -> Value {
    let (succeeded, last) = outcome(arguments);
    assert!(succeeded, "{arguments:?}: {last}");
    last
}

#[test]
fn nothing_is_left_of_tunes_that_end_under_load() {
    let ends = xtask(&["stress", "--rounds", "3", "--json"]);
    for kind in ["sigkill", "lease", "rmmod_target", "rmmod_xk"] {
        assert_eq!(ends["rounds"][kind], 3, "{ends}");
    }
    assert_eq!(ends["violations"], 0);
}

#[test]
fn values_meet_in_no_mode_that_promises_it() {
    let atomicity = xtask(&["bench", "atomicity", "--transitions", "200", "--preempt", "--json"]);
    for mode in ["task", "global"] {
        assert_eq!((&atomicity[mode]["transitions"], &atomicity[mode]["violations"]), (&200.into(), &0.into()));
    }
    assert!(atomicity["now"]["violations"].as_u64().unwrap() > 0, "{atomicity}");
}

/// A short soak. It goes on beyond its minute on a slow host, until everything has been done.
#[test]
fn everything_at_once_harms_nothing() {
    let soak = xtask(&["soak", "--kernel", "amd64", "--minutes", "1", "--sites", "16", "--json"]);
    let kernel = &soak["kernels"][0];
    for wrong in ["splats", "violations", "text_differs"] {
        assert_eq!(kernel[wrong], 0, "{wrong}: {kernel}");
    }
    assert_eq!(kernel["failures"], Value::Array(Vec::new()));
    for load in ["transitions", "executions", "arms", "hotplugs", "tracers", "foreign_probes", "forks", "threads"] {
        assert!(kernel[load].as_u64().unwrap() > 0, "{load}: {kernel}");
    }
    for (load, count) in [("policies", "runs"), ("pressure", "hogs"), ("pressure", "scanned"), ("faults", "injected")] {
        assert!(kernel[load][count].as_u64().unwrap() > 0, "{load}, {count}: {kernel}");
    }
    assert_eq!(kernel["transitions_by"].as_object().unwrap().len(), 8, "three backends, modes: {kernel}");
    let maps = kernel["policies"]["map_types"].as_object().unwrap();
    assert!(maps.len() == 18 && maps.values().all(|changes| changes.as_u64() > Some(0)), "{maps:?}");
    let modules = kernel["modules"].as_object().unwrap();
    assert!(["xk_atomic", "xk_target", "xk_bench"].iter().all(|name| modules[*name].as_u64() > Some(1)), "{modules:?}");
}

/// It would notice: `kernel/test` changes an instruction of its own, and nobody changes it back. What it makes of values
/// that meet shows `cargo xtask soak --kernel amd64 --minutes 5 --broken now`, where mode `now` is held against what the
/// other modes promise.
#[test]
fn a_soak_fails_where_a_byte_is_left_changed() {
    let arguments = ["soak", "--kernel", "amd64", "--minutes", "0.1", "--sites", "16", "--broken", "byte", "--json"];
    let (succeeded, soak) = outcome(&arguments);
    let kernel = &soak["kernels"][0];
    assert!(!succeeded && kernel["text_differs"].as_u64() > Some(0), "{kernel}");
    assert!(kernel["differences"].to_string().contains("xk_target_value+0x1: 21 was 20"), "{kernel}");
}

/// The kernel's own kprobes, which are breakpoints, count the same executions.
#[test]
fn probes_count_exactly() {
    let exact = xtask(&["probes", "exact", "--places", "100", "--seed", "11", "--json"]);
    assert_eq!(exact["differences"], 0, "{exact}");
    for side in ["on_jump", "apart"] {
        let side = &exact["sides"][side];
        assert!(side["executions"].as_u64().unwrap() > 100 && side["equal"].as_u64().unwrap() > 5, "{exact}");
    }
}

#[test]
fn counts_that_are_read_too_early_differ() {
    let arguments = ["probes", "exact", "--places", "50", "--seed", "12", "--broken", "early", "--json"];
    let (succeeded, exact) = outcome(&arguments);
    assert!(!succeeded && exact["differences"].as_u64().unwrap() > 10, "{exact}");
}

/// A short soak of many probes. What a CPU executes before it is set up is refused: CPUs come and go.
#[test]
fn many_probes_beside_everything_else_harm_nothing() {
    let soak = xtask(&["probes", "soak", "--places", "2000", "--minutes", "0.7", "--seed", "13", "--json"]);
    assert_eq!((&soak["failures"], &soak["text_differs"]), (&Value::Array(Vec::new()), &0.into()), "{soak}");
    for number in ["jumps", "tracer", "kprobes", "hits", "runs", "visits", "hotplugs"] {
        assert!(soak[number].as_u64().unwrap() > 0, "{number}: {soak}");
    }
}

#[test]
fn a_soak_of_probes_fails_where_something_is_wrong() {
    for (broken, words) in [("runs", "hits"), ("byte", "text differs")] {
        let arguments = ["probes", "soak", "--places", "200", "--minutes", "0.1", "--broken", broken, "--json"];
        let (succeeded, soak) = outcome(&arguments);
        let said = soak["failures"].to_string();
        assert!(!succeeded && said.contains(words), "{broken}: {soak}");
    }
}

/// The code of the architecture comes first. Some of it handles breakpoints, or is executed by CPUs that come online.
#[test]
fn every_function_of_the_architecture_can_be_probed() {
    for kprobes in [&[][..], &["--kprobes"]] {
        let arguments = ["probes", "everywhere", "--first", "1500", "--json"];
        let everywhere = xtask(&[&arguments[..], kprobes].concat());
        let guest = &everywhere["guests"][0];
        assert!(guest["attached"].as_u64().unwrap() > 1000 && guest["hits"].as_u64().unwrap() > 1000, "{everywhere}");
    }
}

/// What a tracer does while the text of that tracer changes. The writer itself is traced, so it hits breakpoints even
/// without NMIs. A handler that can be traced hits them again: the kernel stops, or the tracer goes round for ever.
#[test]
fn tracers_can_be_probed_while_they_trace() {
    let functions = ["function_*", "ring_buffer_*", "rb_*", "trace_*", "*flush_tlb*", "*pte*"];
    let functions = functions.iter().flat_map(|pattern| ["--function", *pattern]);
    let arguments: Vec<&str> = ["probes", "everywhere", "--traced", "--json"].into_iter().chain(functions).collect();
    let traced = xtask(&arguments);
    let guest = &traced["guests"][0];
    assert!(guest["attached"].as_u64().unwrap() > 1000 && guest["hits"].as_u64().unwrap() > 1000, "{traced}");
}

/// The kernel's own eBPF selftests, some of them, drawn at random.
#[test]
fn the_verifier_says_of_rewritten_selftests_what_it_said_before() {
    let drawn = |number: &str, seed: &str, broken: &[&str]| {
        let arguments = ["flex-objects", "--first", number, "--seed", seed, "--seconds", "20", "--json"];
        let (succeeded, found) = outcome(&[&arguments[..], broken].concat());
        (succeeded, found["flex_objects"].clone())
    };
    let (succeeded, objects) = drawn("20", "5", &[]);
    let count = |form: &str, what: &str| objects[form][what].as_u64().unwrap();
    assert!(succeeded && count("plain", "unchanged") + count("plain", "refused") == 20, "{objects}");
    assert!(count("branches", "changed") > 5 && count("branches_verdicts", "accepted") > 5, "{objects}");
    // What changes an instruction is noticed.
    let (succeeded, objects) = drawn("6", "5", &["--broken", "instruction"]);
    assert!(!succeeded && !objects["branches_verdicts"]["changed"].as_array().unwrap().is_empty(), "{objects}");
}

/// Operations on the structures of extensions, some of which are ended. A wrong answer of one of the three is noticed.
#[test]
fn extensions_modules_and_processes_answer_the_same() {
    let arguments = ["flex-fuzz", "--minutes", "0.15", "--seed", "17", "--json"];
    let fuzz = xtask(&arguments);
    assert!(
        fuzz["divergences"] == 0 && fuzz["ended"].as_u64() > Some(100) && fuzz["epochs"].as_u64() > Some(1),
        "{fuzz}"
    );
    let structures = fuzz["operations"].as_object().unwrap();
    assert_eq!(structures.len(), 11, "ten structures, and all of them at once: {fuzz}");
    for (structure, operations) in structures {
        let done = ["extension", "module", "process"].map(|world| operations[world].as_u64().unwrap());
        assert!(done[0] > 3 && done == [done[0]; 3], "{structure}: {operations}");
    }
    let (succeeded, fuzz) = outcome(&[&arguments[..], &["--broken"]].concat());
    assert!(!succeeded && fuzz["described"].to_string().contains("rbtree"), "{fuzz}");
}
