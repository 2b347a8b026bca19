//! The data structures of `bpf/flex` against models: in a process under sanitizers, also without memory; and on a running
//! kernel, while runs are ended in them.

#![allow(clippy::unwrap_used, clippy::expect_used)] // a test

mod compiled;
#[path = "../../../bench/flex/model.rs"]
mod model;
#[path = "../../../bench/flex/walk.rs"]
mod walk;

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use xk_testing::guest::{boot, output_of, passed};
use xk_testing::Random;

use compiled::compiled;
use model::{Asked, Model, OPERATIONS, STRUCTURES};

/// The compiled object. Set in the guest only.
const OBJECT: &str = "XK_TEST_OBJECT";

xk_testing::guest_tests! {
    extensions_have_the_structures_of_the_model_also_when_runs_end,
    extensions_have_them_also_with_unrolled_loops,
}

fn report(name: &str) {
    static OUTPUT: OnceLock<String> = OnceLock::new();
    let output = OUTPUT.get_or_init(|| {
        let folder = tempfile::tempdir().unwrap();
        let [object] = compiled(folder.path(), ["structures"]);
        boot(600, &format!("{OBJECT}={object}"))
    });
    passed(output, name);
}

fn prepare() {}

/// A seed, which a failed test shows. `XK_TEST_SEED` is another one.
fn seed() -> u64 {
    let random = || {
        u64::from(std::process::id()) << 32 ^ u64::from(std::time::UNIX_EPOCH.elapsed().unwrap().subsec_nanos())
    };
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

/// What a process answers to these operations.
fn answers(program: &str, folder: &Path, asked: &[Asked]) -> Vec<(bool, u64)> {
    let input = folder.join("asked");
    let words = asked.iter().flat_map(Asked::words).flat_map(u64::to_ne_bytes);
    fs::write(&input, words.collect::<Vec<u8>>()).unwrap();
    let mut process = Command::new(program);
    let output = process.stdin(fs::File::open(&input).unwrap()).stderr(Stdio::inherit()).output().unwrap();
    let word = |bytes: &[u8]| u64::from_ne_bytes(bytes.try_into().unwrap());
    let found = output.stdout.chunks(16).map(|pair| (word(&pair[..8]) != 0, word(&pair[8..]))).collect::<Vec<_>>();
    assert!(output.status.success() && found.len() == asked.len(), "{}, {} answers", output.status, found.len());
    found
}

const TURNS: usize = 300_000;

#[test]
fn a_process_answers_as_the_model() {
    let folder = tempfile::tempdir().unwrap();
    let program = sanitized(folder.path(), &[]);
    let mut random = Random(seed());
    let (mut drawn, mut model) = (Model::default(), Model::default());
    let mut asked = vec![Asked::new("all", "begin", random.next_u64(), 0)];
    for _ in 0..TURNS {
        asked.push(drawn.draw(&STRUCTURES, || random.next_u64()));
        drawn.apply(&asked[asked.len() - 1]);
    }
    asked.extend(drawn.drain());
    let answers = answers(&program, folder.path(), &asked);
    for (asked, (done, answer)) in asked.iter().zip(answers) {
        let expected = model.apply(asked);
        assert!(expected.is(done, answer), "{:?} {asked:?}: {done} {answer}, {expected:?}", OPERATIONS[asked.operation]);
    }
}

/// What finds no memory changes nothing.
#[test]
fn a_process_without_memory_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let program = sanitized(folder.path(), &["-DXK_STRUCTURES_SCARCE", "-Wl,--wrap=malloc"]);
    let mut random = Random(seed());
    let (mut drawn, mut model) = (Model::default(), Model::default());
    let mut asked = vec![Asked::new("all", "begin", random.next_u64(), 0)];
    for _ in 0..TURNS {
        asked.push(drawn.draw(&STRUCTURES, || random.next_u64()));
        drawn.apply(&asked[asked.len() - 1]);
    }
    let mut refused = 0;
    let answers = answers(&program, folder.path(), &asked);
    for (asked, (done, answer)) in asked.iter().zip(answers) {
        if !done && OPERATIONS[asked.operation].2 {
            refused += 1;
            continue;
        }
        let expected = model.apply(asked);
        assert!(expected.is(done, answer), "{:?} {asked:?}: {done} {answer}, {expected:?}", OPERATIONS[asked.operation]);
    }
    assert!(refused > TURNS / 100, "{refused} operations found no memory");
}

mod checks {
    use std::sync::atomic::Ordering;
    use std::time::Duration;

    use libbpf_rs::{MapCore, MapFlags, Object, ObjectBuilder, ProgramInput};
    use object::read::{File, Object as _, ObjectSymbol as _};
    use xk_flex::{rewrite, take_ended, Choice, Control, Heap, Limits};
    use xk_testing::guest::file;

    use super::walk::{Walk, POINTERS};
    use super::*;

    struct Programs {
        object: Object,
        /// Where the structures and the pointer to what is asked are in the variables.
        places: [usize; 2],
    }

    impl Programs {
        fn load(unroll: usize) -> Self {
            let choice = Choice { unroll, ..Choice::default() };
            let bytes = rewrite(&fs::read(file(OBJECT)).unwrap(), &choice).unwrap().bytes;
            let elf = File::parse(&*bytes).unwrap();
            let places =
                ["structures", "exchange"].map(|name| elf.symbol_by_name(name).unwrap().address() as usize);
            Self { object: ObjectBuilder::default().open_memory(&bytes).unwrap().load().unwrap(), places }
        }

        fn variables(&self) -> libbpf_rs::Map<'_> {
            self.object.maps().find(|map| map.name().to_str().unwrap().ends_with(".bss")).unwrap()
        }

        fn pointers(&self) -> [u64; POINTERS] {
            let value = self.variables().lookup(&0_u32.to_ne_bytes(), MapFlags::ANY).unwrap().unwrap();
            let word = |index: usize| {
                let at = self.places[0] + 8 * index;
                u64::from_ne_bytes(value[at..at + 8].try_into().unwrap())
            };
            std::array::from_fn(word)
        }
    }

    /// An extension, whose heap is shared.
    struct Extension<'a> {
        programs: &'a Programs,
        heap: Heap<'a>,
        /// Where it reads what is asked, and writes the answer.
        exchange: u64,
    }

    impl<'a> Extension<'a> {
        fn new(programs: &'a Programs) -> Self {
            let heap = Heap::of(&programs.object, Limits { ready: 8 << 20, ..Limits::default() }).unwrap().unwrap();
            let exchange = heap.allocate(64).unwrap();
            let mut value = programs.variables().lookup(&0_u32.to_ne_bytes(), MapFlags::ANY).unwrap().unwrap();
            value[programs.places[1]..][..8].copy_from_slice(&exchange.to_ne_bytes());
            programs.variables().update(&0_u32.to_ne_bytes(), &value, MapFlags::ANY).unwrap();
            Self { programs, heap, exchange }
        }

        fn word(&self, address: u64) -> u64 {
            self.heap.word(address).unwrap_or_else(|| panic!("{address:#x} is outside")).load(Ordering::Relaxed)
        }

        /// Nothing of a run that was ended.
        fn ask(&self, asked: &Asked) -> Option<(bool, u64)> {
            for (index, word) in asked.words().into_iter().enumerate() {
                self.heap.word(self.exchange + 8 * index as u64).unwrap().store(word, Ordering::Relaxed);
            }
            let program = self.programs.object.progs_mut().find(|program| program.name() == "operate").unwrap();
            let input = ProgramInput { data_in: Some(&[0; 64]), ..ProgramInput::default() };
            match program.test_run(input).unwrap().return_value {
                0 => None,
                returned => Some((returned == 3, self.word(self.exchange + 24))),
            }
        }

        /// That the structures are those of the model, and that no object is lost.
        fn check(&self, model: &Model) {
            let walk = Walk { word: &|address| self.word(address) };
            let objects = walk.check(&self.programs.pointers(), model).unwrap_or_else(|error| panic!("{error}"));
            let usage = self.heap.usage();
            assert_eq!(usage.allocated - usage.freed, objects, "{usage:?}");
        }
    }

    fn compare(unroll: usize, turns: usize, least: usize) {
        let programs = Programs::load(unroll);
        let extension = Extension::new(&programs);
        let mut random = Random(seed());
        let mut model = Model::default();
        let tell = |control: Control| control.tell(&programs.object).unwrap();
        let never = Control { deadline: None, ..Control::default() };
        tell(never);
        let begin = Asked::new("all", "begin", random.next_u64(), 0);
        assert_eq!(extension.ask(&begin), Some((true, 0)));
        let mut ended = 0;
        for turn in 0..turns {
            // The second look ends a run that has the shortest deadline, and the first one if all runs are to end.
            let is_ended = random.below(4) == 0;
            let interval = 1 + random.below(12) as u32;
            let deadline = (is_ended && random.below(2) == 0).then_some(Duration::from_nanos(1));
            if is_ended {
                tell(Control { terminate: deadline.is_none(), deadline, interval });
            }
            let asked = model.draw(&STRUCTURES, || random.next_u64());
            let answered = extension.ask(&asked);
            if is_ended {
                tell(never);
            }
            let name = OPERATIONS[asked.operation];
            match answered {
                None => {
                    assert!(is_ended && take_ended(&programs.object).unwrap().len() == 1, "{turn}: {name:?}");
                    ended += 1;
                    extension.check(&model);
                }
                Some((done, answer)) => {
                    let expected = model.apply(&asked);
                    assert!(expected.is(done, answer), "{turn}: {name:?} {asked:?}: {done} {answer}, {expected:?}");
                }
            }
            if turn % 100 == 0 {
                extension.check(&model);
            }
        }
        extension.check(&model);
        assert!(ended > least, "{ended} runs were ended");
        for asked in model.drain() {
            assert_eq!(extension.ask(&asked), Some((true, 0)), "{asked:?}");
        }
        let usage = extension.heap.usage();
        assert_eq!(usage.allocated, usage.freed, "{usage:?}");
        assert_eq!((usage.refused, usage.invalid, usage.lost), (0, 0, 0), "{usage:?}");
        println!("{ended} of {turns} runs were ended");
    }

    pub fn extensions_have_the_structures_of_the_model_also_when_runs_end() {
        compare(1, 8000, 800);
    }

    pub fn extensions_have_them_also_with_unrolled_loops() {
        compare(Choice::UNROLL, 3000, 50);
    }
}
