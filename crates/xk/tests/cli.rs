//! The whole command on a machine without xk.ko: what it says and how it ends.
//! Tables are those of the golden tests, given to the kernel that runs here.

#![allow(clippy::unwrap_used, clippy::expect_used)] // a test

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{json, Value};
use tempfile::TempDir;
use xk_kernel::KernelId;
use xk_table::{ScopeTable, Store};

const NAME: &str = "BLK_MAX_REQUEST_COUNT";
const ID: &str = "block/blk.h:L335:32:0";

/// What the command did.
struct Run {
    code: i32,
    stdout: String,
    stderr: String,
}

impl Run {
    #[track_caller]
    fn expect(&self, code: i32, words: &[&str]) {
        let all = format!("{}{}", self.stdout, self.stderr);
        assert_eq!(self.code, code, "{all}");
        for word in words {
            assert!(all.contains(word), "no `{word}` in: {all}");
        }
    }

    #[track_caller]
    fn json(&self) -> Value {
        let document: Value = serde_json::from_str(&self.stdout).unwrap_or_else(|e| panic!("{e}: {}", self.stdout));
        assert_eq!(document["schema"], 2);
        document
    }
}

/// A machine of its own: store and cache in a temporary folder.
struct Machine {
    folder: TempDir,
}

impl Machine {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap() }
    }

    fn with_table() -> Self {
        let machine = Self::new();
        machine.save(|_| ());
        machine
    }

    fn store(&self) -> PathBuf {
        self.folder.path().join("store")
    }

    /// What the administrator forbids.
    fn rules(&self) -> PathBuf {
        self.folder.path().join("xk.toml")
    }

    /// Saves the fixture's table, changed, for this kernel.
    fn save(&self, change: impl FnOnce(&mut ScopeTable)) -> PathBuf {
        let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/table.json");
        let mut table = Store::read(&golden).unwrap();
        table.kernel.build_id = build_id();
        change(&mut table);
        Store::new(self.store()).save(&table).unwrap()
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_xk"));
        command.args(arguments).env("XK_STORE", self.store()).env("XK_CACHE", self.folder.path().join("cache"));
        command.env("XK_CONFIG", self.rules());
        command
    }

    fn run(&self, arguments: &[&str]) -> Run {
        let output = self.command(arguments).output().unwrap();
        Run {
            code: output.status.code().unwrap_or(-1),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }
}

fn build_id() -> String {
    KernelId::live().unwrap().build_id
}

#[test]
fn a_constant_is_found_by_name_line_and_id() {
    let machine = Machine::with_table();
    for name in [NAME, "block/blk.h:335", ID] {
        machine.run(&["explain", name]).expect(0, &[NAME, "proved", "2·V"]);
        machine.run(&["get", name]).expect(0, &["32"]);
    }
}

#[test]
fn unknown_names_say_what_to_do() {
    let machine = Machine::with_table();
    for verb in ["explain", "get", "unset"] {
        machine.run(&[verb, "NO_SUCH"]).expect(1, &["no scope table for NO_SUCH", "`xk build NO_SUCH`"]);
        machine.run(&[verb, "not a name"]).expect(2, &["names no constant"]);
        machine.run(&[verb]).expect(2, &["NAME", "Usage"]);
    }
    machine.run(&["set", "NO_SUCH=1"]).expect(1, &["`xk build NO_SUCH`"]);
}

#[test]
fn a_patch_that_cannot_be_read_is_named() {
    let machine = Machine::new();
    machine.run(&["build", "--patch", "/no/such.patch"]).expect(1, &["/no/such.patch"]);
    machine.run(&["build"]).expect(2, &["NAME", "Usage"]);
    machine.run(&["build", "--all-in", "mm", "SHRINK_BATCH"]).expect(2, &["--all-in"]);
    machine.run(&["build", "--literals", "SHRINK_BATCH"]).expect(2, &["--literals"]);
}

#[test]
fn what_verify_cannot_mean_is_usage() {
    let machine = Machine::with_table();
    machine.run(&["verify"]).expect(2, &["NAME", "Usage"]);
    machine.run(&["verify", NAME, "--all"]).expect(2, &["--all"]);
    machine.run(&["verify", NAME, "--quick", "--solver", "cvc5"]).expect(2, &["--solver"]);
    machine.run(&["verify", NAME, "--root", "/no/such"]).expect(1, &["/no/such/boot"]);
    let run = machine.run(&["verify", "--json", NAME, "--bundle", "/no/such.bundle"]);
    run.expect(1, &["/no/such.bundle"]);
    assert_eq!(run.json()["error"]["exit"], 1);
}

#[test]
fn ambiguous_lines_list_the_candidates() {
    let machine = Machine::with_table();
    machine.save(|table| (table.constant.id, table.constant.name) = ("block/blk.h:L335:32:1".into(), None));
    machine.run(&["get", "block/blk.h:335"]).expect(1, &["ambiguous", ID, "block/blk.h:L335:32:1"]);
    machine.run(&["get", NAME]).expect(0, &["32"]);
}

#[test]
fn values_are_checked_before_anything_else() {
    let machine = Machine::with_table();
    let set = |value: &str| machine.run(&["set", &format!("{NAME}={value}")]);
    for value in ["0", "-1", "0x40000000", "1G", "9223372036854775808", "99999999999999999999999999999999999999999"] {
        set(value).expect(3, &["refused", "outside the proved range, 1 to 1073741823", "proved"]);
    }
    for value in ["", "12q", "4KB", "ten", "1.5", "5ms", "5 ms"] {
        set(value).expect(2, &["error: ", NAME]);
    }
    set("12q").expect(2, &["unknown suffix `q`", "K, M, G"]);
    set("5ms").expect(2, &["states its unit", "#define BLK_MAX_REQUEST_COUNT"]);
    machine.run(&["set", NAME]).expect(2, &["NAME=VALUE"]);
    machine.run(&["set"]).expect(2, &["NAME=VALUE"]);
    let twice = [format!("{NAME}=1"), format!("{ID}=2")];
    machine.run(&["set", &twice[0], &twice[1]]).expect(2, &["given twice"]);
}

#[test]
fn without_the_module_everything_has_its_default() {
    if Path::new("/dev/xk").exists() {
        eprintln!("skipped: xk.ko is loaded on this machine");
        return;
    }
    let machine = Machine::with_table();
    machine.run(&["set", "BLK_MAX_REQUEST_COUNT=64"]).expect(5, &["unsupported: ", "not loaded", "insmod"]);
    machine.run(&["unset", NAME]).expect(0, &["not tuned"]);
    machine.run(&["unset", "--all"]).expect(0, &["nothing is tuned"]);
    machine.run(&["status"]).expect(0, &["not loaded"]);
    machine.run(&["list"]).expect(0, &[NAME, "1 to 1073741823"]);
}

#[test]
fn a_truncated_table_is_no_table() {
    let machine = Machine::new();
    let path = machine.save(|_| ());
    let text = fs::read(&path).unwrap();
    for length in [0, 1, 600, text.len() / 2, text.len() - 3] {
        fs::write(&path, &text[..length]).unwrap();
        let words: &[&str] = if length >= 600 { &["not a scope table", "`xk build`"] } else { &["no scope table"] };
        machine.run(&["set", &format!("{NAME}=64")]).expect(1, words);
        machine.run(&["list"]).expect(0, &["1 table could not be read", "not a scope table"]);
    }
}

#[test]
fn a_damaged_table_is_no_table() {
    let machine = Machine::new();
    let path = machine.save(|_| ());
    let good: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    let damage: [(&str, Value); 5] = [
        ("/spans/0/function", json!(9)),
        ("/spans/0/indirection/program/ops/0/width", json!(3)),
        ("/spans/1/indirection/offset", json!(4_000_000)),
        ("/functions/0/bytes", json!("zz")),
        ("/values/proved/min", json!("one")),
    ];
    for (pointer, value) in damage {
        let mut bad = good.clone();
        *bad.pointer_mut(pointer).unwrap() = value;
        fs::write(&path, bad.to_string()).unwrap();
        machine.run(&["set", &format!("{NAME}=64")]).expect(1, &["not a scope table"]);
    }
    let mut newer = good.clone();
    for schema in [1, 99] {
        newer["schema"] = json!(schema);
        fs::write(&path, newer.to_string()).unwrap();
        let found = format!("schema {schema}");
        machine.run(&["explain", NAME]).expect(1, &[&found, "build the table again", "`xk build`"]);
    }
}

#[test]
fn another_kernels_table_is_drift() {
    let machine = Machine::new();
    let other = "ffffffffffffffffffffffffffffffffffffffff";
    let path = machine.save(|table| table.kernel.build_id = other.into());
    machine.run(&["set", &format!("{NAME}=64")]).expect(4, &["drift", other, &build_id(), "`xk build"]);
    machine.run(&["explain", NAME, "--kernel", "ffff"]).expect(0, &[other]);
    machine.run(&["explain", NAME, "--kernel", "6.12.117+deb12-amd64"]).expect(0, &[other]);
    machine.run(&["explain", NAME, "--kernel", "5.10"]).expect(1, &["no tables for kernel `5.10`", other]);
    // Copied into the folder of this kernel.
    let here = machine.store().join(build_id());
    fs::create_dir(&here).unwrap();
    fs::rename(&path, here.join(path.file_name().unwrap())).unwrap();
    machine.run(&["set", &format!("{NAME}=64")]).expect(4, &["made for kernel build", other]);
}

#[test]
fn builds_fail_before_they_start() {
    let machine = Machine::new();
    let garbage = machine.folder.path().join("boot/vmlinuz-1.2.3");
    let root = machine.folder.path().to_str().unwrap();
    machine.run(&["build"]).expect(2, &["NAME"]);
    machine.run(&["build", "a b"]).expect(2, &["names no constant"]);
    machine.run(&["build", NAME, "--jobs", "0"]).expect(2, &["--jobs"]);
    machine.run(&["build", NAME, "--root", root]).expect(1, &["boot"]);
    fs::create_dir(garbage.parent().unwrap()).unwrap();
    machine.run(&["build", NAME, "--root", root]).expect(1, &["holds no vmlinuz-RELEASE"]);
    fs::write(&garbage, "not a kernel").unwrap();
    machine.run(&["build", NAME, "--root", root]).expect(1, &["vmlinuz-1.2.3 is not a kernel"]);
    machine.run(&["build", NAME, "--vmlinuz", garbage.to_str().unwrap()]).expect(1, &["is not a kernel"]);
    machine.run(&["build", NAME, "--bundle", garbage.to_str().unwrap()]).expect(1, &["is not a kernel bundle"]);
    fs::write(garbage.with_file_name("vmlinuz-1.2.4"), "neither").unwrap();
    machine.run(&["build", NAME, "--root", root]).expect(2, &["--release", "1.2.3", "1.2.4"]);
    assert!(!machine.store().exists(), "a failed build leaves no table");
}

#[test]
fn places_of_probes_are_checked_before_anything_else() {
    let machine = Machine::new();
    machine.run(&["probe"]).expect(2, &["Usage", "count"]);
    machine.run(&["probe", "count"]).expect(2, &["WHERE", "Usage"]);
    machine.run(&["probe", "count", "a b"]).expect(2, &["`a b` names no function", "MODULE:FUNCTION+OFFSET"]);
    machine.run(&["probe", "count", "vfs_*"]).expect(2, &["vfs_*@CLASS", "indirect-call"]);
    machine.run(&["probe", "sites", "vfs_write", "--class", "exit"]).expect(2, &["`exit` is not a class", "body"]);
    machine.run(&["probe", "explain", "vfs_*@any"]).expect(2, &["several instructions", "xk probe sites"]);
    machine.run(&["probe", "run", "/no/such.bpf.c"]).expect(1, &["/no/such.bpf.c"]);
    machine.run(&["probe", "run", "/bin/true"]).expect(1, &["/bin/true: not an object for eBPF"]);
    let run = machine.run(&["probe", "explain", "vfs_write+x", "--json"]);
    run.expect(2, &["`x` is not an offset"]);
    assert_eq!(run.json()["error"]["exit"], 2);
}

#[test]
fn without_the_module_nothing_is_probed() {
    let machine = Machine::new();
    machine.run(&["probe", "list"]).expect(0, &["xk.ko is not loaded: nothing is probed"]);
    let document = machine.run(&["probe", "list", "--json"]).json();
    assert_eq!((&document["loaded"], &document["probes"]), (&json!(false), &json!([])));
}

#[test]
fn what_the_administrator_forbids_is_not_probed() {
    let machine = Machine::new();
    let forbid = |backends: &str| fs::write(machine.rules(), format!("[backend]\nforbid = [{backends}]\n")).unwrap();
    forbid("\"detour\"");
    machine.run(&["probe", "count", "vfs_write", "--jumps-only"]).expect(3, &["forbidden by", "xk.toml:2"]);
    forbid("\"detour\", \"kprobe\"");
    machine.run(&["probe", "count", "vfs_write"]).expect(3, &["forbidden by", "xk.toml"]);
}

#[test]
fn json_has_a_schema_also_when_it_fails() {
    let machine = Machine::with_table();
    for arguments in
        [&["list", "--json"][..], &["explain", NAME, "--json"], &["get", NAME, "--json"], &["status", "--json"]]
    {
        let run = machine.run(arguments);
        run.expect(0, &[]);
        run.json();
        assert_eq!(run.stderr, "", "{arguments:?}");
    }
    let get = machine.run(&["get", NAME, "--json"]).json();
    assert_eq!((&get["value"], &get["tuned"], &get["id"]), (&json!(32), &json!(false), &json!(ID)));
    for (arguments, code, word) in [
        (&["get", "NO_SUCH", "--json"][..], 1, "error"),
        (&["get", "no such", "--json"], 2, "usage"),
        (&["get", "--json"], 2, "usage"),
        (&["explain", NAME, "--nonsense", "--json"], 2, "usage"),
    ] {
        let run = machine.run(arguments);
        run.expect(code, &[]);
        let error = &run.json()["error"];
        assert_eq!((&error["code"], &error["exit"]), (&json!(word), &json!(code)));
        assert!(error["message"].as_str().is_some_and(|message| !message.is_empty()));
    }
}

#[test]
fn the_doctor_answers_on_any_machine() {
    let machine = Machine::new();
    let run = machine.run(&["doctor", "--json"]);
    let document = run.json();
    assert_eq!(document["exit"], run.code);
    assert_eq!(document["ok"], run.code == 0);
    assert!(document["checks"].as_array().is_some_and(|checks| checks.len() > 10));
    assert_eq!(machine.run(&["doctor"]).code, run.code);
}

#[test]
fn colour_and_closed_pipes_are_a_terminals_business() {
    let machine = Machine::with_table();
    let explain = machine.run(&["explain", NAME]);
    assert!(!explain.stdout.contains('\x1b'), "{}", explain.stdout);
    // The reader is gone before the first line is written.
    let script = format!("{{ sleep 0.3; '{}' explain {NAME}; }} | true", env!("CARGO_BIN_EXE_xk"));
    let piped = Command::new("sh").args(["-c", &script]).env("XK_STORE", machine.store()).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&piped.stderr), "");
}

#[test]
fn help_and_version_are_no_errors() {
    let machine = Machine::new();
    machine.run(&["--help"]).expect(0, &["Exit codes", "build", "explain"]);
    machine.run(&["--version"]).expect(0, &["xk "]);
    machine.run(&["set", "--help"]).expect(0, &["until the next boot", "--hold"]);
    machine.run(&[]).expect(2, &["Usage"]);
    machine.run(&["frobnicate"]).expect(2, &["frobnicate"]);
}

#[test]
fn what_the_administrator_forbids_is_not_loaded() {
    let machine = Machine::with_table();
    let set = |backend| machine.run(&["set", &format!("{NAME}=64"), "--backend", backend]);
    let mut not_loaded = set("patch");
    assert!(!not_loaded.stderr.contains("forbidden"), "{}", not_loaded.stderr);
    fs::write(machine.rules(), "[backend]\n# they cannot be counted\nforbid = [\"patch\", \"kprobe\"]\n").unwrap();
    let place = format!("{}:3", machine.rules().display());
    set("patch").expect(3, &[&format!("backend patch is forbidden by {place}"), "--backend auto"]);
    machine.run(&["set", &format!("{NAME}=64")]).expect(3, &["backend kprobe, the default, is forbidden by", &place]);
    for backend in ["auto", "detour"] {
        not_loaded = set(backend);
        assert!(not_loaded.code != 0 && !not_loaded.stderr.contains("forbidden"), "{}", not_loaded.stderr);
    }
    let declared = machine.folder.path().join("a.toml");
    fs::write(&declared, format!("[[tune]]\nset = {{ {NAME} = 64 }}\nbackend = \"patch\"\n")).unwrap();
    let apply = ["apply", "--dry-run", declared.to_str().unwrap()];
    machine.run(&apply).expect(3, &["a.toml:1: backend patch is forbidden by", &place]);
    machine.run(&["status"]).expect(0, &[&format!("the administrator forbids: patch ({place}), kprobe ({place})")]);
    assert_eq!(machine.run(&["status", "--json"]).json()["forbidden"][0], json!({ "backend": "patch", "by": place }));
    let checks = machine.run(&["doctor", "--json"]).json();
    let rules = checks["checks"].as_array().unwrap().iter().find(|check| check["name"] == "rules").unwrap().clone();
    assert!(rules["status"] == "ok" && rules["found"].as_str().unwrap().contains(&place), "{rules}");

    fs::write(machine.rules(), "[backend]\nforbid = \"patch\"\n").unwrap();
    set("auto").expect(1, &["xk.toml:2: "]);
    machine.run(&["status"]).expect(0, &["xk.toml:2: "]);
    let checks = machine.run(&["doctor", "--json"]).json();
    let rules = checks["checks"].as_array().unwrap().iter().find(|check| check["name"] == "rules").unwrap().clone();
    assert!(rules["status"] == "fail" && rules["found"].as_str().unwrap().contains("xk.toml:2: "), "{rules}");
}

/// No kernel is asked. What is written is rewritten.
#[test]
fn loops_of_an_object_are_shown_and_rewritten() {
    let machine = Machine::new();
    let folder = machine.folder.path();
    let [source, object, output] = ["loop.c", "loop.o", "out.o"].map(|name| folder.join(name));
    let text = "typedef unsigned long long __u64; typedef long long __s64; typedef unsigned int __u32;\n\
        #include \"xk_flex.bpf.h\"\n\
        static void *(*get)(void *) = (void *)84; static long (*put)(void *) = (void *)86;\n\
        __attribute__((section(\"xdp\"), used)) int f(unsigned long long n) {\n\
        void *s = get(0); while (n != 7) { n += 3;\nasm volatile(\"\" : \"+r\"(n)); }\nif (s) put(s); return n; }\n";
    fs::write(&source, text).unwrap();
    let mut clang = Command::new("clang-19");
    clang
        .args(["-O2", "-g", "-target", "bpf", "-I"])
        .arg(xk_testing::guest::repository().join("bpf"))
        .arg("-c")
        .arg(&source)
        .arg("-o")
        .arg(&object);
    assert!(clang.status().unwrap().success());
    let flex = |words: &[&str]| machine.run(&[&["flex"], words].concat());
    let [object, output] = [&object, &output].map(|path| path.to_str().unwrap());
    flex(&["check", object]).expect(0, &["1 loop, 1 to instrument"]);
    flex(&["check", object, "--widen"]).expect(0, &["1 loop, 1 to instrument"]);
    let shown = flex(&["explain", object, "--json"]);
    shown.expect(0, &[]);
    assert_eq!(shown.json()["loops"][0]["instrumented"], true);
    flex(&["explain", object]).expect(0, &["releases by bpf_sk_release() of bpf_sk_lookup_tcp() at loop.c:"]);
    assert_eq!(shown.json()["loops"][0]["copies"], 8);
    flex(&["explain", object]).expect(0, &["unrolled 8 times", "costs 8 instructions in 8 turns, 1.0 per turn"]);
    flex(&["explain", object, "--unroll", "1"]).expect(0, &["in each turn; not unrolled: nothing else was asked for"]);
    flex(&["explain", object, "--unroll", "0"]).expect(2, &["--unroll"]);
    let place = shown.json()["loops"][0]["place"].as_str().unwrap().to_owned();
    flex(&["explain", object, "--leave", &place]).expect(0, &["left alone: --leave"]);
    flex(&["explain", object, "--leave", "loop.c:99"]).expect(3, &["no loop begins at loop.c:99", &place]);
    flex(&["build", object, "-o", "/no/such/out.o"]).expect(1, &["/no/such/out.o"]);
    flex(&["build", object, "-o", output]).expect(0, &[output, "looks whether the run is to end"]);
    assert!(fs::read(output).unwrap().len() > fs::read(object).unwrap().len());
    flex(&["check", output]).expect(1, &["rewritten before"]);
    flex(&["check", "/no/such.o"]).expect(1, &["/no/such.o"]);
    flex(&["run", object, "--dev", "none"]).expect(2, &["--dev none: no such network interface"]);
    flex(&["run", object, "--interval", "0"]).expect(2, &["--interval"]);
    flex(&["run", object, "--deadline", "0"]).expect(2, &["--no-deadline"]);
}
