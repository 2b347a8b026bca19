//! Policies on a stock kernel, by the whole command. One guest boots and runs every
//! check of `inside`, one after the other; the tests out here report them one by one.
//! Tables are built and policies compiled on this machine; a check compiles one in
//! the guest, too.
//!
//! The effect is what `block:block_unplug` and other tracepoints of the kernel report.

#![allow(clippy::unwrap_used, clippy::expect_used)] // a test

#[macro_use]
mod support;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use libbpf_rs::{MapCore, MapFlags, MapHandle};
use serde_json::Value;
use support::{
    accept, build, cache, contains, depth, environment, fresh_xk, have_source, setting, tunes, with_header, xk, Reader,
    BLK, CACHE, OBJECTS, SHRINK,
};
use xk_testing::guest::{boot, info, output_of, passed, repository, run, wait_for};

/// Bytes of a request after which a plug is flushed.
const FLUSH: &str = "BLK_PLUG_FLUSH_SIZE";
/// Flows that a queue of generic receive offload holds.
const GRO: &str = "MAX_GRO_SKBS";
/// The limits between which that share is.
const LEAST: &str = "HYSTART_DELAY_MIN";
const MOST: &str = "HYSTART_DELAY_MAX";
const RESTART: &str = "MAX_SOFTIRQ_RESTART";
/// The share of the round trip by which HyStart leaves slow start.
const SHARE: &str = "net/ipv4/tcp_cubic.c:439";

xk_testing::guest_tests! {
    an_application_gives_hints,
    what_cannot_be_merged_is_noticed,
    a_value_grows,
    a_policy_is_compiled_and_reloaded,
    a_constant_belongs_to_one_transaction,
    several_of_which_one_fails_leave_nothing,
    messages_show_the_authors_line,
    a_held_policy_ends_with_its_process,
    a_lease_ends_a_policy,
    a_shrinker_is_told_by_a_variable,
    a_flow_is_told_by_its_round_trip,
    a_value_is_set_for_one_process,
    a_value_is_set_for_one_device,
    a_value_is_set_for_one_disk,
    the_fourth_of_five_fails,
    the_three_of_hystart_are_one_transaction,
}

/// Not in the guest, where compiling takes a minute.
#[test]
fn what_does_not_compile_shows_the_line() {
    let types = format!("{}/usr/src/linux-headers-{}/vmlinux", info("root"), info("release"));
    let folder = tempfile::tempdir().unwrap();
    let fails = |name: &str, text: &str, words: &[&str]| {
        let source = folder.path().join(format!("{name}.bpf.c"));
        fs::write(&source, with_header(text)).unwrap();
        let text = xk(1, &["compile", "--btf", &types, source.to_str().unwrap()]);
        contains(&text, words);
        assert!(!source.with_extension("o").exists());
    };
    let one = setting("one", BLK, "64");
    fails("args", &one.replace(", 64", ""), &["args.bpf.c:4:", "does not compile", "too few arguments"]);
    fails("name", &one.replace("64", "no_value"), &["name.bpf.c:4:", "no_value"]);
    let twice = one.clone() + &one.replace("(one,", "(other,");
    fails("twice", &twice, &["twice.bpf.c:7: BLK_MAX_REQUEST_COUNT has a policy already", "`one` at "]);
    fails("none", "int x;\n", &["contains no XK_TUNE"]);
}

/// What the tests in the guest printed, in one boot.
fn guest_output() -> &'static str {
    static OUTPUT: OnceLock<String> = OnceLock::new();
    OUTPUT.get_or_init(|| {
        let (release, root) = (info("release"), info("root"));
        let folder = tempfile::tempdir().unwrap();
        let store = folder.path().join("tables");
        build(&store, &[BLK, SHRINK, SHARE, LEAST, MOST, GRO, RESTART, FLUSH]);
        accept(&store, LEAST, "12000");
        // So that units with their debug information are there in the guest, where it would take minutes.
        for constant in [GRO, FLUSH] {
            let stub = folder.path().join(format!("{constant}.stub.c"));
            output_of(
                Command::new(env!("CARGO_BIN_EXE_xk"))
                    .args(["gen", "--root", &root, constant, "--output", stub.to_str().unwrap()])
                    .env("XK_STORE", &store),
            );
        }
        let types = format!("{root}/usr/src/linux-headers-{release}/vmlinux");
        let mut sources = examples();
        for (name, text) in written() {
            sources.push(folder.path().join(format!("{name}.bpf.c")));
            fs::write(sources.last().unwrap(), with_header(&text)).unwrap();
        }
        for source in sources {
            let object = folder.path().join(source.with_extension("o").file_name().unwrap());
            output_of(
                Command::new(env!("CARGO_BIN_EXE_xk"))
                    .args(["compile", "--root", &root, "--btf", &types, "-o"])
                    .args([&object, &source])
                    .env("XK_STORE", &store),
            );
        }
        let environment = format!("{} {CACHE}={}", environment(&store, folder.path()), cache().display());
        boot(1800, &environment)
    })
}

/// The examples that are for everybody.
fn examples() -> Vec<PathBuf> {
    let examples = fs::read_dir(repository().join("bpf/examples")).unwrap();
    let paths = examples.map(|entry| entry.unwrap().path());
    paths.filter(|path| path.to_str().unwrap().ends_with(".bpf.c")).collect()
}

fn report(name: &str) {
    passed(guest_output(), name);
}

/// A fresh module for each check, and no disks, whatever the one before left behind.
fn prepare() {
    fresh_xk();
    if Path::new("/sys/module/null_blk").exists() {
        assert!(run("modprobe", &["-r", "null_blk"]));
    }
}

/// What its policy did, summed over the sites of the only tune.
fn did(what: &str) -> u64 {
    let tunes = tunes();
    let sites = tunes[0]["policy"]["sites"].as_array().unwrap();
    sites.iter().map(|site| site[what].as_u64().unwrap()).sum()
}

/// How control reaches the sites of what is tuned.
fn places() -> Vec<String> {
    let text = |site: &Value| site["probe"].as_str().unwrap().to_owned();
    let sites = |tune: Value| tune["sites"].as_array().unwrap().iter().map(text).collect::<Vec<_>>();
    let all: Vec<String> = tunes().into_iter().flat_map(sites).collect();
    assert!(!all.is_empty());
    all
}

/// A policy, compiled.
fn example(name: &str) -> String {
    let folder = std::env::var(OBJECTS).unwrap();
    format!("{folder}/{name}.bpf.o")
}

/// Policies of these tests by name. Compiling takes a minute in an emulated guest, so that it
/// is done on this machine, but for one.
fn written() -> Vec<(&'static str, String)> {
    let doing = |body: &str| format!("XK_TUNE(wrong, \"{BLK}\")\n{{\n{body}\n\treturn 0;\n}}\n");
    let nothing = "XK_TUNE(b, \"SHRINK_BATCH\")\n{\n\treturn 0;\n}\n";
    let a = setting("a", BLK, "64");
    let b = setting("b", SHRINK, "64");
    let map = "struct {\n\t__uint(type, BPF_MAP_TYPE_PROG_ARRAY);\n\t__uint(max_entries, 1);\n\t__type(key, u32);\n\
               \t__type(value, u32);\n} others SEC(\".maps\");\n";
    let jumps = "XK_TUNE(jumps, \"SHRINK_BATCH\")\n{\n\tbpf_tail_call(ctx, &others, 0);\n\treturn 0;\n}\n";
    let nowhere = "SEC(\"kprobe/no_such_function\")\nint nowhere(struct pt_regs *ctx)\n{\n\treturn 0;\n}\n";
    vec![
        ("five", five("\treturn 0;\n")),
        ("fourth_of_five", map.to_owned() + &five("\tbpf_tail_call(ctx, &others, 0);\n\treturn 0;\n")),
        ("least4", hystart("4000")),
        ("least12", hystart("12000")),
        ("same16", setting("same", BLK, "16")),
        ("same64", setting("same", BLK, "64")),
        ("same_shrink", setting("same", SHRINK, "16")),
        ("both", format!("{a}{b}")),
        ("unknown", format!("{a}{b}{}", setting("c", "NO_SUCH_CONSTANT", "1"))),
        ("refused", format!("{a}{nothing}{nowhere}")),
        ("jumps", format!("{a}{map}{jumps}")),
        ("registers", doing("\tctx->ax = 1;")),
        ("endless", doing("\tvolatile int i = 0;\n\twhile (!i)\n\t\ti = 0;")),
        ("aliases", doing("") + &doing("").replace("wrong,", "again,").replace(BLK, "block/blk.h:L335:32:0")),
        ("far", doing("\txk_set(xk_ctx, 1ULL << 40);")),
        ("extents", example_with("zswap", "zswap_shrinker_scan", "ext4_es_scan")),
        ("long_paths", example_with("hystart", "xk_set(xk_ctx, 1)", "xk_set(xk_ctx, 5)")),
        (
            "longer_paths",
            example_with("hystart", "xk_set(xk_ctx, 1)", "xk_set(xk_ctx, 5)").replace("80000", "10000000"),
        ),
    ]
}

/// Policies of five constants; the fourth does this.
fn five(fourth: &str) -> String {
    let others = [("one", BLK, "64"), ("two", SHRINK, "64"), ("three", GRO, "4")];
    let text: String = others.iter().map(|(name, constant, value)| setting(name, constant, value)).collect();
    let fourth = format!("XK_TUNE(four, \"{RESTART}\")\n{{\n{fourth}}}\n");
    text + &fourth + &setting("five", SHARE, "5")
}

/// A round trip of 112 ms gives 3.5 ms, below the lower limit.
fn hystart(least: &str) -> String {
    setting("share", SHARE, "5") + &setting("least", LEAST, least) + &setting("most", MOST, "32000")
}

/// An example that does something else, so that it can be seen.
fn example_with(name: &str, from: &str, to: &str) -> String {
    let text = fs::read_to_string(repository().join(format!("bpf/examples/{name}.bpf.c"))).unwrap();
    assert!(text.contains(from));
    text.replace(from, to)
}

#[path = "checks/policies.rs"]
mod checks;
