//! Extensions that outlive the command that loaded them (`xk flex load`), on a stock kernel. One guest boots and runs
//! every check, one after the other. What a program does is seen in its heap, and what is loaded is asked of the kernel.

#![allow(clippy::unwrap_used, clippy::expect_used)] // a test

mod support;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::OnceLock;
use std::thread;

use libbpf_rs::query::ProgInfoIter;
use serde_json::Value;
use support::{contains, json, xk};
use xk_policy::{compile, Headers};
use xk_testing::guest::{boot, file, info, passed, repository, run, wait_for};

/// The compiled programs. Set in the guest only.
const KEPT: &str = "XK_TEST_KEPT";
const PACKETS: &str = "XK_TEST_PACKETS";
const DEBUG: &str = "XK_TEST_DEBUG";
/// Arguments of getpgid(), of which no process has the number.
const ENDLESS: i32 = 1_000_000;
const TAKE: i32 = 1_000_001;

xk_testing::guest_tests! {
    programs_and_heap_outlive_the_command,
    runs_that_were_ended_are_counted_by_place,
    a_server_that_was_killed_is_replaced,
    programs_are_detached_after_too_many_ends,
    runs_under_way_are_killed_and_programs_stay,
    what_cannot_be_loaded_leaves_nothing,
    wrong_names_are_refused_before_anything_changes,
    live_objects_of_a_heap_in_debug_mode_are_listed_by_their_lines,
}

/// The types of the guest's kernel.
fn types() -> PathBuf {
    PathBuf::from(format!("{}/usr/src/linux-headers-{}/vmlinux", info("root"), info("release")))
}

fn source(name: &str) -> PathBuf {
    repository().join(format!("crates/xk/tests/flex_kept/{name}.bpf.c"))
}

#[test]
fn a_source_is_compiled_in_debug_mode_if_that_is_asked_for() {
    let (source, types, folder) = (source("kept"), types(), tempfile::tempdir().unwrap());
    let build = |file: &Path, options: &[&str]| {
        let output = folder.path().join("out.o");
        let mut build = Command::new(env!("CARGO_BIN_EXE_xk"));
        build.args(["flex", "build"]).arg(file).arg("-o").arg(&output).arg("--btf").arg(&types).args(options);
        (build.output().unwrap(), output)
    };
    let has_lines = |object: &Path| {
        let object = fs::read(object).unwrap();
        object.windows(21).any(|text| text == b"rodata.xk_heap_lines\0")
    };
    let (_, plain) = build(&source, &[]);
    assert!(!has_lines(&plain));
    let (_, debug) = build(&source, &["--debug-heap"]);
    assert!(has_lines(&debug));
    let (refused, _) = build(&debug, &["--debug-heap"]);
    assert_eq!(refused.status.code(), Some(2));
    contains(&String::from_utf8_lossy(&refused.stderr), &["--debug-heap", "is compiled already", "XK_HEAP_DEBUG"]);
}

fn guest_output() -> &'static str {
    static OUTPUT: OnceLock<String> = OnceLock::new();
    OUTPUT.get_or_init(|| {
        let folder = tempfile::tempdir().unwrap();
        let headers = Headers::new(&types(), folder.path(), &info("release")).unwrap();
        let [kept, packets, debug] = ["kept", "packets", "kept_debug"].map(|name| {
            let source = source(name);
            let object = folder.path().join(format!("{name}.bpf.o"));
            fs::write(&object, compile(&source, &headers).unwrap_or_else(|error| panic!("{error}"))).unwrap();
            object.display().to_string()
        });
        boot(1200, &format!("{KEPT}={kept} {PACKETS}={packets} {DEBUG}={debug}"))
    })
}

fn report(name: &str) {
    passed(guest_output(), name);
}

/// Nothing is loaded, whatever the check before has left.
fn prepare() {
    for name in json(&["flex", "list", "--json"])["extensions"].as_array().unwrap() {
        xk(0, &["flex", "unload", name["name"].as_str().unwrap()]);
    }
    wait_for("the programs are gone", || !is_loaded());
}

/// Whether the kernel has the program.
fn is_loaded() -> bool {
    ProgInfoIter::default().any(|program| program.name.to_string_lossy() == "on_getpgid")
}

fn call(argument: i32) {
    // SAFETY: it has no pointers.
    unsafe { libc::getpgid(argument) };
}

/// A process of `xk flex serve`.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        // Fails if it has ended already.
        _ = self.0.kill();
        _ = self.0.wait();
    }
}

mod checks {
    use super::*;

    fn load(options: &[&str]) -> String {
        load_file(KEPT, options)
    }

    fn load_file(object: &str, options: &[&str]) -> String {
        let object = file(object);
        xk(0, &[&["flex", "load", object.to_str().unwrap(), "--name", "one"], options].concat())
    }

    fn one() -> Value {
        json(&["flex", "list", "one", "--json"])["extensions"][0].clone()
    }

    fn heap(word: &str) -> u64 {
        one()["heap"][word].as_u64().unwrap()
    }

    fn ended() -> Vec<Value> {
        one()["seen"]["ended"].as_array().cloned().unwrap()
    }

    fn servers() -> bool {
        run("pgrep", &["-f", "flex serve one"])
    }

    /// Takes so much memory that pages must be added, as often as it is refused.
    fn take(objects: u64) {
        let goal = heap("allocated") + objects;
        wait_for("the program has memory", || {
            // A look takes much longer than a call.
            let missing = goal.saturating_sub(heap("allocated"));
            (0..missing).for_each(|_| call(TAKE));
            missing == 0
        });
    }

    pub fn programs_and_heap_outlive_the_command() {
        contains(&load(&[]), &["one: on_getpgid stay until `xk flex unload one`", "look"]);
        assert!(is_loaded() && servers());
        let found = one();
        assert_eq!((&found["attached"][0], &found["served"]), (&Value::from("on_getpgid"), &Value::from(true)));
        contains(found["loaded"]["file"].as_str().unwrap(), &["kept.bpf.o"]);
        // 7.5 MiB, of which 4 are ready at first.
        let before = heap("used");
        take(120);
        assert!(heap("used") - before >= 120 << 16, "each object is a span");
        contains(&xk(0, &["flex", "list"]), &["one", "MiB", "of 32.0"]);
        let top = xk(0, &["flex", "top", "--batch", "-n", "2", "-d", "200ms"]);
        contains(&top, &["1 extension", "of 32.0", &format!(" {} ", heap("allocated"))]);
        contains(&xk(2, &["flex", "top"]), &["not a terminal: use --batch"]);
        contains(&xk(0, &["flex", "unload", "one"]), &["one: unloaded"]);
        wait_for("the program and its server are gone", || !is_loaded() && !servers());
        assert!(!Path::new("/sys/fs/bpf/xk-flex/one").exists() && !Path::new("/run/xk/flex/one").exists());
        contains(&xk(0, &["flex", "list"]), &["no extension is loaded"]);
    }

    pub fn runs_that_were_ended_are_counted_by_place() {
        load(&["--deadline", "2ms"]);
        (0..3).for_each(|_| call(ENDLESS));
        wait_for("they are counted", || !ended().is_empty() && ended()[0]["runs"] == 3);
        let ended = ended();
        assert_eq!((ended.len(), &ended[0]["why"]), (1, &Value::from("its deadline")));
        assert!(ended[0]["longest_ns"].as_u64().unwrap() >= 2_000_000, "{ended:?}");
        let text = fs::read_to_string(repository().join("crates/xk/tests/flex_kept/kept.bpf.c")).unwrap();
        let line = text.lines().position(|line| line.contains("turns++")).unwrap() + 1;
        let shown = xk(0, &["flex", "list", "one"]);
        contains(&shown, &["on_getpgid", &format!("kept.bpf.c:{}", line - 1), "3 runs ended by its deadline"]);
    }

    /// Without a server, programs go on, and the heap has the pages that are ready.
    pub fn a_server_that_was_killed_is_replaced() {
        load(&[]);
        take(20);
        assert!(run("pkill", &["-KILL", "-f", "flex serve one"]));
        wait_for("the server is gone", || one()["served"] == false);
        contains(&xk(0, &["flex", "list"]), &["its server has ended", "xk flex serve one"]);
        let ready = heap("ready");
        wait_for("the pages that are ready are used up", || {
            call(TAKE);
            heap("refused") > 0
        });
        assert_eq!(heap("ready"), ready, "nobody has added pages");
        let before = heap("allocated");

        let mut command = Command::new(env!("CARGO_BIN_EXE_xk"));
        command.args(["flex", "serve", "one"]).stdout(Stdio::null());
        let mut server = Server(command.spawn().unwrap());
        take(120);
        assert!(heap("allocated") >= before + 120, "what was there before stays");
        contains(&xk(3, &["flex", "serve", "one"]), &["one", "another process serves it"]);
        assert!(run("kill", &["-TERM", &server.0.id().to_string()]));
        assert!(server.0.wait().unwrap().success(), "it ends when it is told");
        assert_eq!(one()["attached"][0], "on_getpgid");
    }

    pub fn programs_are_detached_after_too_many_ends() {
        load(&["--deadline", "2ms", "--detach-after", "2"]);
        take(1);
        call(ENDLESS);
        wait_for("it is counted", || !ended().is_empty());
        assert_eq!(one()["attached"][0], "on_getpgid", "one end is not enough");
        call(ENDLESS);
        wait_for("it is detached", || one()["attached"].as_array().unwrap().is_empty());
        let before = heap("allocated");
        call(TAKE);
        assert_eq!(heap("allocated"), before, "the program does not run");
        contains(&xk(0, &["flex", "list"]), &["detached: 2 runs were ended"]);
    }

    pub fn runs_under_way_are_killed_and_programs_stay() {
        load(&["--no-deadline"]);
        // The kernel's limit of turns ends a run after a while.
        let stop = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    call(ENDLESS);
                }
            });
            contains(&xk(0, &["flex", "kill", "one", "--for", "3s"]), &["every run was ended"]);
            stop.store(true, Ordering::Relaxed);
        });
        wait_for("it is counted", || ended().iter().any(|there| there["why"] == "user space"));
        take(1);
    }

    pub fn what_cannot_be_loaded_leaves_nothing() {
        let packets = file(PACKETS);
        let packets = packets.to_str().unwrap();
        let is_clean = || {
            let is_empty = |folder| fs::read_dir(folder).map_or(0, Iterator::count) == 0;
            is_empty("/run/xk/flex") && is_empty("/sys/fs/bpf/xk-flex")
        };
        // It is attached last.
        contains(&xk(3, &["flex", "load", packets]), &["pass", "--dev"]);
        wait_for("its server is gone", || !run("pgrep", &["-f", "flex serve"]));
        assert!(is_clean());
        contains(&xk(3, &["flex", "load", packets, "--dev", "lo", "--heap", "8"]), &["none that could be limited"]);
        assert!(is_clean());
        assert!(run("umount", &["/sys/fs/bpf"]));
        let text = xk(3, &["flex", "load", packets, "--dev", "lo"]);
        assert!(run("mount", &["-t", "bpf", "bpf", "/sys/fs/bpf"]));
        contains(&text, &["/sys/fs/bpf", "mount -t bpf"]);
        assert!(is_clean());
        // A command that was killed while it loaded.
        fs::create_dir_all("/run/xk/flex/half").unwrap();
        contains(&xk(0, &["flex", "list"]), &["half", "loading it was interrupted: xk flex unload half"]);
        xk(0, &["flex", "unload", "half"]);
        assert!(is_clean());
        // Somebody has removed the folder.
        let kept = file(KEPT);
        let load = ["flex", "load", kept.to_str().unwrap(), "--name", "half"];
        xk(0, &load);
        fs::remove_dir_all("/run/xk/flex/half").unwrap();
        contains(&xk(3, &load), &["half", "unload it first"]);
        assert!(is_loaded(), "the other one is not touched");
        contains(&xk(0, &["flex", "list"]), &["half", "xk flex unload half"]);
        xk(0, &["flex", "unload", "half"]);
        assert!(is_clean());
    }

    pub fn wrong_names_are_refused_before_anything_changes() {
        load(&[]);
        let object = file(KEPT);
        let object = object.to_str().unwrap();
        contains(&xk(3, &["flex", "load", object, "--name", "one"]), &["one", "unload it first"]);
        assert_eq!(one()["attached"][0], "on_getpgid", "the first one stays");
        contains(&xk(2, &["flex", "load", object, "--name", "../one"]), &["../one", "letters"]);
        for name in ["two", "", ".", "../flex"] {
            contains(&xk(3, &["flex", "unload", "one", name]), &["no extension has this name: loaded are one"]);
        }
        assert!(is_loaded(), "nothing was unloaded");
        contains(&xk(3, &["flex", "kill", "two"]), &["two"]);
        let packets = file(PACKETS);
        xk(0, &["flex", "load", packets.to_str().unwrap(), "--dev", "lo", "--name", "two"]);
        contains(&xk(3, &["flex", "kill", "two"]), &["two", "no loop of it looks"]);
        xk(0, &["flex", "unload", "one", "two"]);
    }

    pub fn live_objects_of_a_heap_in_debug_mode_are_listed_by_their_lines() {
        load_file(DEBUG, &[]);
        contains(&xk(0, &["flex", "list", "one"]), &["  debug mode: no object is damaged\n", "  none\n"]);
        take(3);
        let line =
            include_str!("flex_kept/kept.bpf.c").lines().position(|line| line.contains("xk_malloc(")).unwrap() + 1;
        let text = format!("    kept.bpf.c:{line}: 3 objects, 180000 bytes\n");
        contains(&xk(0, &["flex", "list", "one"]), &["  debug mode: no object is damaged\n", &text]);
        let sites = one()["objects"]["sites"].clone();
        assert_eq!(
            sites,
            serde_json::json!([{ "line": format!("kept.bpf.c:{line}"), "objects": 3, "bytes": 180_000 }])
        );
        let kept = xk_flex::kept::Kept::open("one").unwrap();
        let heap = kept.heap().unwrap().unwrap();
        let address = heap.allocate(20).unwrap();
        heap.word(address + 24).unwrap().store(0, std::sync::atomic::Ordering::Relaxed);
        let shown = xk(0, &["flex", "list", "one"]);
        contains(&shown, &["damaged now: 1 object\n", &format!("written behind an object at {:#x}", address + 24)]);
        heap.free(address).unwrap();
        let shown = xk(0, &["flex", "list", "one"]);
        contains(
            &shown,
            &["written behind an object: 1 time\n", "20 bytes at", "allocated by user space; found by user space"],
        );
        assert_eq!(one()["objects"]["found"][0]["count"], 1);
        xk(0, &["flex", "unload", "one"]);
    }
}
