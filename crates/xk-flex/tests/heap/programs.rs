//! The programs of `tests/bpf/heap.bpf.c` in the kernel.

use std::collections::HashMap;
use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use libbpf_rs::{MapCore, MapFlags, Object, ObjectBuilder, ProgramInput};
use object::read::{File, Object as _, ObjectSymbol as _};
use xk_flex::{rewrite, Choice, Control, Heap, Limits};
use xk_testing::guest::{file, pin, wait_for};
use xk_testing::Random;

/// What user space asks for.
pub const ALLOCATE: u64 = 0;
pub const FREE: u64 = 1;
pub const CLEAR: u64 = 2;
pub const NEW: u64 = 3;
pub const SET: u64 = 4;
pub const REMOVE: u64 = 6;
pub const PUSH: u64 = 7;
const ENDED: u32 = 0;

/// Programs that are loaded, and where their variables are.
pub struct Programs {
    pub object: Object,
    pub variables: HashMap<&'static str, usize>,
}

impl Programs {
    /// Those of `tests/bpf/heap.bpf.c` that do what user space asks.
    pub fn load(object: &str) -> Self {
        Self::of(object, &["asked", "answer", "hash", "list"], false)
    }

    /// Of a file, with these variables; all programs, or those that are always loaded.
    pub fn of(object: &str, variables: &[&'static str], all: bool) -> Self {
        let bytes = rewrite(&fs::read(file(object)).unwrap(), &Choice::default()).unwrap().bytes;
        let elf = File::parse(&*bytes).unwrap();
        let at = |name: &&'static str| (*name, elf.symbol_by_name(name).unwrap().address() as usize);
        let variables = variables.iter().map(at).collect();
        let mut open = ObjectBuilder::default().open_memory(&bytes).unwrap();
        open.progs_mut().filter(|_| all).for_each(|mut program| {
            program.set_autoload(true);
        });
        let object = open.load().unwrap();
        Control { deadline: None, ..Control::default() }.tell(&object).unwrap();
        Self { object, variables }
    }

    pub fn heap(&self, most: u64, ready: u64) -> Heap<'_> {
        Heap::of(&self.object, Limits { most, ready }).unwrap().unwrap()
    }

    pub fn bss(&self) -> libbpf_rs::Map<'_> {
        self.object.maps().find(|map| map.name().to_str().unwrap().ends_with(".bss")).unwrap()
    }

    pub fn variable(&self, name: &str, index: usize) -> u64 {
        let value = self.bss().lookup(&0_u32.to_ne_bytes(), MapFlags::ANY).unwrap().unwrap();
        let at = self.variables[name] + 8 * index;
        u64::from_ne_bytes(value[at..at + 8].try_into().unwrap())
    }

    pub fn run(&self, name: &str) -> u32 {
        let program = self.object.progs_mut().find(|other| other.name().to_str() == Some(name)).unwrap();
        program.test_run(ProgramInput { data_in: Some(&[0; 64]), ..ProgramInput::default() }).unwrap().return_value
    }

    /// Whether it succeeded, and the answer; nothing of a run that was ended.
    pub fn ask(&self, operation: u64, key: u64, value: u64) -> Option<(bool, u64)> {
        self.ask_program("operate", [operation, key, value])
    }

    pub fn ask_program(&self, program: &str, asked: [u64; 3]) -> Option<(bool, u64)> {
        let mut bss = self.bss().lookup(&0_u32.to_ne_bytes(), MapFlags::ANY).unwrap().unwrap();
        let at = self.variables["asked"];
        for (index, word) in asked.into_iter().enumerate() {
            bss[at + 8 * index..at + 8 * index + 8].copy_from_slice(&word.to_ne_bytes());
        }
        self.bss().update(&0_u32.to_ne_bytes(), &bss, MapFlags::ANY).unwrap();
        match self.run(program) {
            ENDED => None,
            returned => Some((returned == 3, self.variable("answer", 0))),
        }
    }

    pub fn allocate(&self, size: u64) -> u64 {
        self.ask(ALLOCATE, size, 0).unwrap().1
    }

    pub fn free(&self, address: u64) {
        self.ask(FREE, address, 0).unwrap();
    }

    /// Runs `beside` on two CPUs, and `interrupts` above it, until it was interrupted often. Returns how many rounds of so
    /// many runs that took: how often runs are interrupted is the host's.
    pub fn run_beside_and_above(&self, runs: usize) -> u64 {
        let interrupts = self.object.progs_mut().find(|program| program.name() == "interrupts").unwrap();
        let link = interrupts.attach().unwrap();
        let (done, mut rounds) = (AtomicBool::new(false), 0);
        let work = |cpu| {
            pin(cpu);
            (0..runs).for_each(|_| assert_eq!(self.run("beside"), 0));
            done.store(true, Ordering::Relaxed);
        };
        // Whose timers interrupt the others.
        let interrupt = |cpu| {
            pin(cpu);
            while !done.load(Ordering::Relaxed) {
                std::thread::sleep(Duration::from_micros(200));
            }
        };
        wait_for("runs are interrupted", || {
            done.store(false, Ordering::Relaxed);
            rounds += 1;
            std::thread::scope(|scope| {
                for cpu in 0..2 {
                    let (work, interrupt) = (&work, &interrupt);
                    scope.spawn(move || work(cpu));
                    scope.spawn(move || interrupt(cpu));
                }
            });
            self.variable("above", 0) > 20
        });
        drop(link);
        rounds
    }
}

pub fn random() -> Random {
    let seed = u64::from(std::process::id()) << 32 ^ u64::from(std::time::UNIX_EPOCH.elapsed().unwrap().subsec_nanos());
    println!("seed {seed}");
    Random(seed)
}
