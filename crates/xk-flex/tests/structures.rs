//! The data structures of `bpf/flex` against models: in a process under sanitizers, also without memory; and on a running
//! kernel, while runs are ended in them.

#![allow(clippy::unwrap_used, clippy::expect_used)] // a test

mod compiled;
#[path = "../../../bench/flex/extension.rs"]
mod extension;
#[path = "../../../bench/flex/model.rs"]
mod model;
#[path = "../../../bench/flex/process.rs"]
mod process;
#[path = "../../../bench/flex/walk.rs"]
mod walk;

use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;

use xk_testing::guest::{boot, output_of, passed};
use xk_testing::Random;

use compiled::compiled;
use model::{Asked, Model, OPERATIONS, STRUCTURES};
use process::Process;

/// The compiled objects. Set in the guest only.
const OBJECT: &str = "XK_TEST_OBJECT";
const DEBUG: &str = "XK_TEST_DEBUG";

xk_testing::guest_tests! {
    extensions_have_the_structures_of_the_model_also_when_runs_end,
    extensions_have_them_also_with_unrolled_loops,
    nothing_is_said_of_structures_in_debug_mode,
}

fn report(name: &str) {
    static OUTPUT: OnceLock<String> = OnceLock::new();
    let output = OUTPUT.get_or_init(|| {
        let folder = tempfile::tempdir().unwrap();
        let [object, debug] = compiled(folder.path(), ["structures", "structures_debug"]);
        boot(1200, &format!("{OBJECT}={object} {DEBUG}={debug}"))
    });
    passed(output, name);
}

fn prepare() {}

/// A seed, which a failed test shows. `XK_TEST_SEED` is another one.
fn seed() -> u64 {
    let random =
        || u64::from(std::process::id()) << 32 ^ u64::from(std::time::UNIX_EPOCH.elapsed().unwrap().subsec_nanos());
    let seed = std::env::var("XK_TEST_SEED").map_or_else(|_| random(), |seed| seed.parse().unwrap());
    println!("XK_TEST_SEED={seed}");
    seed
}

/// Compiles the structures as a process with sanitizers.
fn sanitized(folder: &Path, options: &[&str]) -> String {
    let program = folder.join("user").display().to_string();
    let mut build = Command::new("gcc-12");
    build.args(["-O1", "-g", "-Wall", "-Wextra", "-Werror", "-fsanitize=address,undefined"]);
    build.args(["-fno-sanitize-recover=all", "-Ibpf", "bench/flex/structures_user.c", "-o", &program]).args(options);
    output_of(&mut build);
    program
}

/// Has a process execute operations, and compares its answers and its structures with the model. Returns how many
/// operations found no memory.
fn compare(program: &str, turns: usize) -> usize {
    const BATCH: usize = 250;
    let mut process = Process::start(Path::new(program)).unwrap();
    let (mut random, mut model, mut refused) = (Random(seed()), Model::default(), 0);
    let begin = Asked::new("all", "begin", random.next_u64(), 0);
    assert_eq!(process.ask(&[begin]), Ok(vec![(true, 0)]));
    for _ in 0..turns / BATCH {
        let asked: Vec<Asked> = (0..BATCH).map(|_| model.draw(&STRUCTURES, || random.next_u64())).collect();
        for (asked, (done, answer)) in asked.iter().zip(process.ask(&asked).unwrap()) {
            let name = OPERATIONS[asked.operation];
            // What finds no memory changes nothing.
            if !done && name.2 {
                refused += 1;
                continue;
            }
            let expected = model.apply(asked);
            assert!(expected.is(done, answer), "{name:?} {asked:?}: {done} {answer}, {expected:?}");
        }
        process.check(&model).unwrap();
    }
    for asked in model.drain() {
        assert_eq!(process.ask(&[asked]), Ok(vec![(true, 0)]), "{asked:?}");
    }
    // The sanitizer knows objects that were lost.
    process.end().unwrap();
    refused
}

const TURNS: usize = 200_000;

#[test]
fn a_process_has_the_structures_of_the_model() {
    let folder = tempfile::tempdir().unwrap();
    assert_eq!(compare(&sanitized(folder.path(), &[]), TURNS), 0);
}

#[test]
fn a_process_without_memory_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let scarce = sanitized(folder.path(), &["-DXK_STRUCTURES_SCARCE", "-Wl,--wrap=malloc"]);
    assert!(compare(&scarce, TURNS) > TURNS / 100);
}

/// A sketch of `structures.h` exceeds the true number by more than `total / 2^6` for at most one key in 2^8. Keys that are
/// frequent enough to push all counters of another one that far, and as many as there can be, are the worst for it.
#[test]
fn estimates_are_as_close_as_they_claim() {
    const FREQUENT: u64 = 63;
    const TIMES: u64 = 1000;
    const ABSENT: u64 = 500;
    const ROUNDS: u64 = 200;
    let folder = tempfile::tempdir().unwrap();
    let mut process = Process::start(Path::new(&sanitized(folder.path(), &[]))).unwrap();
    let mut random = Random(seed());
    let mut exceeded = 0;
    for _ in 0..ROUNDS {
        assert_eq!(process.ask(&[Asked::new("all", "begin", random.next_u64(), 0)]), Ok(vec![(true, 0)]));
        let added: Vec<Asked> =
            (0..FREQUENT).map(|_| Asked::new("countmin", "add", random.next_u64(), TIMES)).collect();
        process.ask(&added).unwrap();
        let absent: Vec<Asked> =
            (0..ABSENT).map(|_| Asked::new("countmin", "estimate", random.next_u64(), 0)).collect();
        let estimates = process.ask(&absent).unwrap();
        exceeded += estimates.iter().filter(|(_, estimate)| *estimate > FREQUENT * TIMES / 64).count() as u64;
        assert_eq!(process.ask(&[Asked::new("all", "end", 0, 0)]), Ok(vec![(true, 0)]));
    }
    assert!(exceeded > 0, "no key collides in all rows, which is one in 450: nothing is measured");
    assert!(exceeded <= (ROUNDS * ABSENT) >> 8, "{exceeded} of {} estimates", ROUNDS * ABSENT);
    process.end().unwrap();
}

mod checks {
    use std::time::Duration;

    use libbpf_rs::ObjectBuilder;
    use object::read::{File, Object as _, ObjectSymbol as _};
    use xk_flex::{rewrite, take_ended, Choice, Control};
    use xk_testing::guest::file;

    use super::extension::Extension;
    use super::*;

    fn compare_extension(object: &str, unroll: usize, turns: usize, least: usize) {
        let choice = Choice { unroll, ..Choice::default() };
        let bytes = rewrite(&fs::read(file(object)).unwrap(), &choice).unwrap().bytes;
        let elf = File::parse(&*bytes).unwrap();
        let places = ["structures", "exchange"].map(|name| elf.symbol_by_name(name).unwrap().address() as usize);
        let mut open = ObjectBuilder::default().open_memory(&bytes).unwrap();
        // Statistics only: the log of what the verifier does not follow to the end is long.
        open.progs_mut().for_each(|mut program| program.set_log_level(4));
        let object = open.load().unwrap();
        let extension = Extension::new(&object, places).unwrap();
        let mut random = Random(seed());
        let mut model = Model::default();
        let tell = |control: Control| control.tell(&object).unwrap();
        let never = Control { deadline: None, ..Control::default() };
        tell(never);
        let begin = Asked::new("all", "begin", random.next_u64(), 0);
        assert_eq!(extension.ask(&begin), Ok(Some((true, 0))));
        let mut ended = 0;
        for turn in 0..turns {
            // The second look ends a run that has the shortest deadline, and the first one if all runs are to end.
            let is_ended = random.below(4) == 0;
            let deadline = (is_ended && random.below(2) == 0).then_some(Duration::from_nanos(1));
            if is_ended {
                tell(Control { terminate: deadline.is_none(), deadline, interval: 1 + random.below(12) as u32 });
            }
            let asked = model.draw(&STRUCTURES, || random.next_u64());
            let answered = extension.ask(&asked).unwrap();
            if is_ended {
                tell(never);
            }
            let name = OPERATIONS[asked.operation];
            if let Some((done, answer)) = answered {
                let expected = model.apply(&asked);
                assert!(expected.is(done, answer), "{turn}: {name:?} {asked:?}: {done} {answer}, {expected:?}");
            } else {
                assert!(is_ended && take_ended(&object).unwrap().len() == 1, "{turn}: {name:?}");
                ended += 1;
            }
            if answered.is_none() || turn % 100 == 0 {
                extension.check(&model).unwrap_or_else(|error| panic!("{turn}: {name:?}: {error}"));
            }
        }
        extension.check(&model).unwrap();
        assert!(ended > least, "{ended} runs were ended");
        for asked in model.drain() {
            assert_eq!(extension.ask(&asked), Ok(Some((true, 0))), "{asked:?}");
        }
        let usage = extension.heap.usage();
        assert_eq!(usage.allocated, usage.freed, "{usage:?}");
        let heap = &extension.heap;
        assert_eq!((heap.damages(), heap.damaged()), (Vec::new(), Vec::new()));
        // What user space shares with the program.
        let lines: Vec<_> = heap.sites().into_iter().map(|site| (site.line, site.objects)).collect();
        let expected = heap.is_debug().then(|| ("user space".to_owned(), 1));
        assert_eq!(lines, Vec::from_iter(expected));
    }

    pub fn extensions_have_the_structures_of_the_model_also_when_runs_end() {
        compare_extension(OBJECT, 1, 8000, 300);
    }

    pub fn extensions_have_them_also_with_unrolled_loops() {
        compare_extension(OBJECT, Choice::UNROLL, 3000, 50);
    }

    pub fn nothing_is_said_of_structures_in_debug_mode() {
        compare_extension(DEBUG, 1, 3000, 50);
    }
}
