//! Rewritten programs on a running kernel: what its verifier refuses and accepts, what they compute, and that they end.

#![allow(clippy::unwrap_used, clippy::expect_used)] // a test

use std::fs;
use std::path::PathBuf;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use libbpf_rs::{MapCore, MapFlags, Object, ObjectBuilder, ProgramInput};
use xk_flex::{load, rewrite, Choice, Done, WORD_SECTION};
use xk_policy::{compile, Headers};
use xk_testing::guest::{boot, file, info, passed, repository};

/// The compiled object. Set in the guest only.
const OBJECT: &str = "XK_TEST_OBJECT";

xk_testing::guest_tests! {
    the_verifier_refuses_the_loops_and_accepts_them_rewritten,
    a_rewritten_program_computes_the_same,
    an_endless_run_ends_when_the_word_is_set,
    loading_by_need_instruments_what_is_refused,
}

fn guest_output() -> &'static str {
    static OUTPUT: OnceLock<String> = OnceLock::new();
    OUTPUT.get_or_init(|| {
        let folder = tempfile::tempdir().unwrap();
        let types = PathBuf::from(format!("{}/usr/src/linux-headers-{}/vmlinux", info("root"), info("release")));
        let headers = Headers::new(&types, folder.path(), &info("release")).unwrap();
        let source = repository().join("crates/xk-flex/tests/bpf/loops.bpf.c");
        let object = folder.path().join("loops.bpf.o");
        fs::write(&object, compile(&source, &headers).unwrap_or_else(|error| panic!("{error}"))).unwrap();
        boot(300, &format!("{OBJECT}={}", object.display()))
    })
}

fn report(name: &str) {
    passed(guest_output(), name);
}

fn prepare() {}

mod checks {
    use super::*;

    fn original() -> Vec<u8> {
        fs::read(file(OBJECT)).unwrap()
    }

    fn try_load(bytes: &[u8]) -> libbpf_rs::Result<Object> {
        let mut open = ObjectBuilder::default().open_memory(bytes).unwrap();
        // Statistics only: the whole log of a loop that is followed to the limit is long.
        open.progs_mut().for_each(|mut program| program.set_log_level(4));
        xk_policy::listening(|| open.load()).0
    }

    fn rewritten() -> Object {
        try_load(&rewrite(&original(), &Choice::default()).unwrap().bytes).unwrap()
    }

    /// Runs a program once; what it returns.
    fn execute(object: &Object, program: &str) -> u32 {
        let program = object.progs_mut().find(|other| other.name().to_str() == Some(program)).unwrap();
        let packet = [0_u8; 64];
        program.test_run(ProgramInput { data_in: Some(&packet), ..ProgramInput::default() }).unwrap().return_value
    }

    fn read(object: &Object, section: &str) -> Vec<u64> {
        let map = object.maps().find(|map| map.name().to_str().unwrap().ends_with(section)).unwrap();
        let value = map.lookup(&0_u32.to_ne_bytes(), MapFlags::ANY).unwrap().unwrap();
        value.chunks(8).map(|bytes| u64::from_ne_bytes(bytes.try_into().unwrap())).collect()
    }

    fn write(object: &Object, section: &str, value: u64) {
        let map = object.maps().find(|map| map.name().to_str().unwrap().ends_with(section)).unwrap();
        map.update(&0_u32.to_ne_bytes(), &value.to_ne_bytes(), MapFlags::ANY).unwrap();
    }

    pub fn the_verifier_refuses_the_loops_and_accepts_them_rewritten() {
        assert!(try_load(&original()).is_err());
        rewritten();
    }

    pub fn a_rewritten_program_computes_the_same() {
        let object = rewritten();
        for (round, (program, result)) in [("in_program", 8), ("in_subprogram", 7)].into_iter().enumerate() {
            assert_eq!(execute(&object, program), result);
            let mut values = read(&object, ".bss");
            values.sort_unstable();
            assert_eq!(values, [100_000, 100_000 * (round as u64 + 1)], "{program}");
        }
    }

    pub fn an_endless_run_ends_when_the_word_is_set() {
        let object = rewritten();
        // No loop reaches this; `may_goto` alone ends it after 8 million turns.
        write(&object, ".data", u64::MAX);
        for program in ["in_program", "in_subprogram"] {
            let before = read(&object, ".bss").into_iter().max().unwrap();
            let (map, start) = (object.maps().find(|map| map.name() == WORD_SECTION).unwrap(), Instant::now());
            let set = libbpf_rs::MapHandle::try_from(&map).unwrap();
            let other = std::thread::spawn(move || {
                std::thread::sleep(Duration::from_millis(50));
                set.update(&0_u32.to_ne_bytes(), &1_u64.to_ne_bytes(), MapFlags::ANY).unwrap();
            });
            assert_eq!(execute(&object, program), 0, "the default");
            let took = start.elapsed();
            other.join().unwrap();
            let turns = read(&object, ".bss").into_iter().max().unwrap() - before;
            assert!(turns > 0 && turns < 8_000_000, "{program}: {turns} turns in {took:?}: ended by the word");
            write(&object, WORD_SECTION, 0);
        }
        write(&object, ".data", 3);
        assert_eq!(execute(&object, "in_program"), 8, "the next run is a usual one");
    }

    pub fn loading_by_need_instruments_what_is_refused() {
        let loaded = load(&original(), &[]).unwrap();
        assert_eq!(loaded.attempts, 2);
        let done: Vec<Done> = loaded.rewritten.loops.iter().map(|found| found.done).collect();
        assert_eq!(done, [Done::Instrumented, Done::Instrumented]);
        assert_eq!(execute(&loaded.object, "in_program"), 8);
    }
}
