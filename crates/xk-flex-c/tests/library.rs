//! Programs in C that use the library, on a stock kernel. One guest boots and runs every check, one after the other. What
//! an extension does is seen in its variables and in its heap, by the program and here.

#![allow(clippy::unwrap_used, clippy::expect_used)] // a test

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use xk_policy::{compile, Headers};
use xk_testing::guest::{boot, info, output_of, passed, repository};

/// The folder of what is compiled. Set in the guest only.
const COMPILED: &str = "XK_TEST_COMPILED";
const SOURCES: &str = "crates/xk-flex-c/tests/bpf";

xk_testing::guest_tests! {
    the_example_prints_the_list_of_an_extension,
    structures_are_walked_and_changed_by_pointers,
    memory_of_programs_is_freed_and_used_again,
    programs_wait_for_threads_that_have_the_lock,
    a_lock_of_a_dead_process_is_broken_once,
    pages_come_when_somebody_serves,
    an_object_is_loaded_and_its_ended_runs_are_told,
    an_object_without_heap_and_loops_is_attached_to_an_interface,
    what_is_wrong_is_refused_with_a_reason,
}

fn guest_output() -> &'static str {
    static OUTPUT: OnceLock<String> = OnceLock::new();
    OUTPUT.get_or_init(|| {
        let folder = tempfile::tempdir().unwrap();
        let types = PathBuf::from(format!("{}/usr/src/linux-headers-{}/vmlinux", info("root"), info("release")));
        let headers = Headers::new(&types, folder.path(), &info("release")).unwrap();
        for name in ["shared", "plain"] {
            let compiled = compile(&repository().join(format!("{SOURCES}/{name}.bpf.c")), &headers);
            let compiled = compiled.unwrap_or_else(|error| panic!("{error}"));
            fs::write(folder.path().join(format!("{name}.bpf.o")), compiled).unwrap();
        }
        let library = library();
        ["example", "kept", "plain", "wrong"].iter().for_each(|name| compile_c(name, folder.path(), &library, false));
        compile_c("loaded", folder.path(), &library, true);
        boot(1200, &format!("{COMPILED}={}", folder.path().display()))
    })
}

/// Builds the library. Returns its folder.
fn library() -> PathBuf {
    let target = std::env::current_exe().unwrap().ancestors().nth(3).unwrap().to_owned();
    // Tests can depend on libraries for Rust only, so cargo has not built it for this one.
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["build", "-p", "xk-flex-c", "--quiet", "--target-dir"]).arg(&target);
    output_of(&mut cargo);
    target.join("debug")
}

/// Compiles a program of `tests/c` with the shared library or the static one.
fn compile_c(name: &str, folder: &Path, library: &Path, is_static: bool) {
    let own = repository().join("crates/xk-flex-c");
    let mut cc = Command::new("cc");
    cc.args(["-std=gnu11", "-O2", "-g", "-Wall", "-Werror", "-pthread", "-I"]).arg(own.join("include"));
    cc.arg("-I").arg(repository().join("bpf")).arg("-o").arg(folder.join(name));
    cc.arg(own.join(format!("tests/c/{name}.c")));
    if is_static {
        cc.arg(library.join("libxk_flex.a")).args(["-lelf", "-lz", "-lm", "-ldl"]);
    } else {
        cc.arg("-L").arg(library).arg("-lxk_flex").arg(format!("-Wl,-rpath,{}", library.display()));
    }
    output_of(&mut cc);
}

fn report(name: &str) {
    passed(guest_output(), name);
}

fn prepare() {}

#[test]
fn the_example_of_the_documentation_is_the_one_that_runs() {
    let text = fs::read_to_string(repository().join("docs/flex.md")).unwrap();
    let example = fs::read_to_string(repository().join("crates/xk-flex-c/tests/c/example.c")).unwrap();
    let indented =
        |line: &str| if line.is_empty() { "\n".into() } else { format!("    {}\n", line.replace('\t', "    ")) };
    let expected: String = example.lines().map(indented).collect();
    assert!(text.contains(&expected), "docs/flex.md does not contain:\n{expected}");
}

mod checks {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread;

    use libbpf_rs::query::ProgInfoIter;
    use xk_flex::kept::{Kept, Options};
    use xk_flex::{Choice, Control, Usage};
    use xk_testing::guest::{file, wait_for};

    use super::*;

    /// An extension that is kept, and served by nobody.
    struct One(Kept);

    impl One {
        fn load() -> Self {
            let object = object("shared");
            let options = Options {
                name: "one",
                file: &object,
                now: 0,
                choice: Choice::default(),
                control: Control::default(),
                heap: None,
                interface: None,
                most_ended: None,
            };
            Kept::load(&fs::read(&object).unwrap(), &options, || Ok::<_, xk_flex::Error>(())).unwrap();
            let one = Self(Kept::open("one").unwrap());
            ask(PREPARE);
            assert_eq!(one.word("answered", 1), 1, "there is memory");
            one
        }

        /// A word of a variable.
        fn word(&self, name: &str, index: usize) -> u64 {
            let variables = self.0.variables().unwrap();
            let place = variables.place(name).unwrap();
            // SAFETY: it is mapped, aligned, and long enough.
            unsafe { ((place.address + 8 * index) as *const u64).read_volatile() }
        }

        fn usage(&self) -> Usage {
            self.0.status().heap.unwrap()
        }
    }

    impl Drop for One {
        fn drop(&mut self) {
            self.0.unload().unwrap();
        }
    }

    fn object(name: &str) -> PathBuf {
        file(COMPILED).join(format!("{name}.bpf.o"))
    }

    const PREPARE: i32 = 1_000_000;
    const PUSH: i32 = 1_000_004;

    fn ask(operation: i32) {
        // SAFETY: it has no pointers.
        unsafe { libc::getpgid(operation) };
    }

    /// Runs a program of the tests, and returns what it prints.
    fn succeeds(name: &str, arguments: &[&str]) -> String {
        let output = Command::new(file(COMPILED).join(name)).args(arguments).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{name} {arguments:?}: {}: {text}{said}", output.status);
        text
    }

    pub fn the_example_prints_the_list_of_an_extension() {
        let run = || Command::new(file(COMPILED).join("example")).output().unwrap();
        let output = run();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!((output.status.code(), said.trim()), (Some(1), "one: no extension has this name: none is loaded"));
        let one = One::load();
        let variables = one.0.variables().unwrap();
        let asked = variables.place("asked").unwrap();
        for (key, value) in [(3_u64, 30_u64), (4, 44)] {
            // SAFETY: it is mapped, aligned, and has two words.
            unsafe { (asked.address as *mut [u64; 2]).write_volatile([key, value]) };
            ask(PUSH);
        }
        assert_eq!(succeeds("example", &[]), "4 is 44\n3 is 30\n");
    }

    pub fn structures_are_walked_and_changed_by_pointers() {
        let one = One::load();
        succeeds("kept", &["walk"]);
        let usage = one.usage();
        assert!(usage.allocated >= 103 && usage.freed == 1, "{usage:?}");
        let heap = one.0.heap().unwrap().unwrap();
        let length = heap.word(one.word("hash", 0) + 8).unwrap().load(Ordering::SeqCst);
        assert_eq!(length, 99, "the program has counted the one that it did not insert when it removed it");
    }

    pub fn memory_of_programs_is_freed_and_used_again() {
        let one = One::load();
        let before = one.usage();
        succeeds("kept", &["gives_back"]);
        let usage = one.usage();
        assert_eq!((usage.allocated - before.allocated, usage.invalid), (2, 0), "{usage:?}");
    }

    pub fn programs_wait_for_threads_that_have_the_lock() {
        let one = One::load();
        succeeds("kept", &["locks"]);
        let heap = one.0.heap().unwrap().unwrap();
        let lock = heap.lock(one.word("lock", 0)).unwrap();
        assert_eq!(lock.owner(), None, "all was given back");
    }

    pub fn a_lock_of_a_dead_process_is_broken_once() {
        let one = One::load();
        succeeds("kept", &["dead"]);
        let heap = one.0.heap().unwrap().unwrap();
        assert_eq!(heap.break_locks_of_dead(), []);
    }

    pub fn pages_come_when_somebody_serves() {
        let one = One::load();
        let before = one.usage();
        succeeds("kept", &["pages"]);
        let usage = one.usage();
        assert!(usage.ready > before.ready && usage.refused > 0, "{usage:?}");
        // Somebody else serves it.
        let stop = AtomicBool::new(false);
        let wait = |time| {
            thread::sleep(time);
            stop.load(Ordering::SeqCst)
        };
        thread::scope(|scope| {
            scope.spawn(|| one.0.serve(|| (), wait).unwrap());
            wait_for("it is served", || one.0.is_served());
            let output = Command::new(file(COMPILED).join("kept")).arg("busy").output().unwrap();
            stop.store(true, Ordering::SeqCst);
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
        });
    }

    pub fn an_object_is_loaded_and_its_ended_runs_are_told() {
        let source = fs::read_to_string(repository().join(SOURCES).join("shared.bpf.c")).unwrap();
        let place = |mark: &str| {
            let line = source.lines().position(|line| line.contains(mark)).unwrap() + 1;
            format!("shared.bpf.c:{line}")
        };
        let endless = place("while (turns");
        succeeds("loaded", &[object("shared").to_str().unwrap(), &endless, &place("/* loads */")]);
        let is_there = || ProgInfoIter::default().any(|program| program.name.to_string_lossy() == "on_getpgid");
        wait_for("the program is gone", || !is_there());
    }

    pub fn an_object_without_heap_and_loops_is_attached_to_an_interface() {
        succeeds("plain", &[object("plain").to_str().unwrap()]);
    }

    pub fn what_is_wrong_is_refused_with_a_reason() {
        let one = One::load();
        succeeds("wrong", &[object("shared").to_str().unwrap()]);
        assert_eq!(one.0.status().attached, ["on_getpgid"], "it stays");
    }
}
