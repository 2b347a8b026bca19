//! `xk apply` and `xk top` on a stock kernel. One guest boots and runs every check of
//! `inside`, one after the other; the tests out here report them one by one. Tables are
//! built and policies compiled on this machine, but for one.
//!
//! What changed, and that nothing did, is told by the kernel: the tracepoints of `xk.ko`,
//! and the depth of plugs that `block:block_unplug` reports.

#![allow(clippy::unwrap_used, clippy::expect_used)] // a test

#[macro_use]
mod support;

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

use serde_json::Value;
use support::{
    alter_a_byte, altered_tables, build, contains, depth, environment, fresh_xk, json, setting, tunes, with_header, xk,
    Reader, BLK, OBJECTS, SHRINK,
};
use xk_testing::guest::{boot, info, insmod, modules, output_of, passed, repository, run, wait_for, XK_KO};

/// Acts in the module sch_pie.
const PIE: &str = "QUEUE_THRESHOLD";
/// Acts in the module tcp_cubic.
const SHARE: &str = "net/ipv4/tcp_cubic.c:439";
const SOFTIRQ: &str = "MAX_SOFTIRQ_RESTART";

/// A module in which threads hide. Set in the guest only.
const ATOMIC_KO: &str = "XK_TEST_ATOMIC";

xk_testing::guest_tests! {
    what_is_declared_is_in_force_and_stays,
    a_dry_run_changes_nothing,
    what_is_declared_no_more_has_its_default,
    what_is_wrong_changes_nothing,
    the_fourth_of_five_fails,
    what_would_not_come_into_force_changes_nothing,
    what_others_tuned_is_left_alone,
    policies_are_declared,
    a_value_is_declared_for_one_process,
    a_lease_is_renewed,
    a_thread_whose_stack_cannot_be_read_is_named,
    what_waits_for_an_unreadable_stack_may_end,
    the_service_applies_and_removes,
    what_is_watched_is_what_happened,
    a_terminal_is_left_as_it_was,
}

/// Applied again, a policy in C is compiled again, and must be known as the one in force.
#[test]
fn an_object_is_known_again() {
    let (release, root) = (info("release"), info("root"));
    let types = format!("{root}/usr/src/linux-headers-{release}/vmlinux");
    let folder = tempfile::tempdir().unwrap();
    let store = folder.path().join("tables");
    build(&store, &[SHRINK]);
    let digest = |source: &Path, from: &Path| {
        let object = folder.path().join("object");
        let mut compile = Command::new(env!("CARGO_BIN_EXE_xk"));
        compile.args(["compile", "--root", &root, "--btf", &types, "-o"]).args([object.as_path(), source]);
        assert!(compile.current_dir(from).env("XK_STORE", &store).status().unwrap().success());
        xk_policy::digest(&fs::read(object).unwrap()).unwrap()
    };
    // Its variables are written to another place each time.
    let text = fs::read_to_string(repository().join("bpf/examples/zswap.bpf.c")).unwrap();
    let source = folder.path().join("zswap.bpf.c");
    fs::write(&source, &text).unwrap();
    let known = digest(&source, Path::new("/"));
    assert_eq!(digest(&source, folder.path()), known);
    fs::write(&source, text.replace("xk_set(xk_ctx, ", "xk_set(xk_ctx, 1 + ")).unwrap();
    assert_ne!(digest(&source, Path::new("/")), known);
}

/// What the tests in the guest printed, in one boot.
fn guest_output() -> &'static str {
    static OUTPUT: OnceLock<String> = OnceLock::new();
    OUTPUT.get_or_init(|| {
        let (release, root) = (info("release"), info("root"));
        let folder = tempfile::tempdir().unwrap();
        let store = folder.path().join("tables");
        build(&store, &[BLK, SHRINK, PIE, SHARE, SOFTIRQ]);
        let types = format!("{root}/usr/src/linux-headers-{release}/vmlinux");
        for (name, text) in written() {
            let source = folder.path().join(format!("{name}.bpf.c"));
            fs::write(&source, with_header(&text)).unwrap();
            output_of(Command::new(env!("CARGO_BIN_EXE_xk")).args(["compile", "--btf", &types]).arg(&source));
        }
        let atomic = modules(&[(ATOMIC_KO, "kernel/atomic")]);
        boot(1500, &format!("{} {atomic}", environment(&store, folder.path())))
    })
}

/// Policies of these tests by name.
fn written() -> Vec<(&'static str, String)> {
    vec![
        ("same16", setting("same", BLK, "16")),
        ("same64", setting("same", BLK, "64")),
        ("registers", format!("XK_TUNE(wrong, \"{BLK}\")\n{{\n\tctx->ax = 1;\n\treturn 0;\n}}\n")),
    ]
}

fn report(name: &str) {
    passed(guest_output(), name);
}

/// A fresh module and an empty folder for each check, whatever the one before left behind.
fn prepare() {
    fresh_xk();
    for folder in [FOLDER, "/etc/xk.d"] {
        let _ = fs::remove_dir_all(folder);
    }
    fs::create_dir(FOLDER).unwrap();
}

/// Where the checks declare something.
const FOLDER: &str = "/tmp/xk.d";

/// Writes a file of [`FOLDER`].
fn declare(name: &str, text: &str) -> PathBuf {
    let path = Path::new(FOLDER).join(name);
    fs::write(&path, text).unwrap();
    path
}

fn set(values: &[(&str, i64)]) -> String {
    let lines: String = values.iter().map(|(name, value)| format!("\"{name}\" = {value}\n")).collect();
    format!("[[tune]]\n[tune.set]\n{lines}")
}

#[track_caller]
fn apply(code: i32) -> String {
    xk(code, &["apply", FOLDER])
}

/// What the kernel has in force, in its order: constant and value.
fn values() -> Vec<(String, i64)> {
    let value = |tune: &Value| (tune["name"].as_str().unwrap().to_owned(), tune["value"].as_i64().unwrap());
    tunes().iter().map(value).collect()
}

fn of(name: &str) -> Option<i64> {
    values().into_iter().find(|(known, _)| known == name).map(|(_, value)| value)
}

/// The tracepoints of xk.ko that were reached meanwhile, in their order: name and rest.
fn events(work: impl FnOnce()) -> Vec<(String, String)> {
    let tracing = |file: &str| format!("/sys/kernel/tracing/{file}");
    fs::write(tracing("trace"), "").unwrap();
    fs::write(tracing("events/xk/enable"), "1").unwrap();
    work();
    fs::write(tracing("events/xk/enable"), "0").unwrap();
    let trace = fs::read_to_string(tracing("trace")).unwrap();
    let event = |line: &str| {
        let at = line.find(": xk_")? + 2;
        let (name, rest) = line[at..].split_once(": ")?;
        Some((name.to_owned(), rest.to_owned()))
    };
    trace.lines().filter_map(event).collect()
}

fn names(events: &[(String, String)]) -> Vec<&str> {
    events.iter().map(|(name, _)| name.as_str()).collect()
}

/// All tunes, but for what time alone changes.
fn state() -> Vec<Value> {
    let mut all = tunes();
    for tune in &mut all {
        tune["age_s"] = Value::Null;
        for site in tune["sites"].as_array_mut().unwrap() {
            for count in ["hits", "applied", "missed", "probe"] {
                site[count] = Value::Null;
            }
        }
        if tune["policy"].is_object() {
            tune["policy"]["sites"] = Value::Null;
        }
    }
    all
}

/// `work` fails with `code` and `words`, and nothing has come into force meanwhile.
#[track_caller]
fn changes_nothing(code: i32, words: &[&str], work: impl FnOnce(i32) -> String) {
    let before = (state(), depth());
    let mut text = String::new();
    let seen = events(|| text = work(code));
    contains(&text, words);
    // What was loaded and goes again has its default all the time.
    for (_, rest) in seen.iter().filter(|(name, _)| name == "xk_transition_start") {
        let number = |key: &str| rest.split_once(key).unwrap().1.split(' ').next().unwrap().to_owned();
        assert_eq!(number(" in_force="), number(" value="), "{seen:?}");
    }
    // What was loaded for it goes with the last reference to its descriptor.
    wait_for("what was loaded is gone", || state().len() == before.0.len());
    assert_eq!((state(), depth()), before, "{text}");
}

#[path = "checks/apply.rs"]
mod checks;
