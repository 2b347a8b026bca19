//! The programs of `bpf/locks.bpf.c` in the kernel, and the locks that they share.

use std::fs;
use std::sync::atomic::Ordering;
use std::time::Duration;

use libbpf_rs::{MapCore, MapFlags, Object, ObjectBuilder, ProgramInput};
use object::read::{File, Object as _, ObjectSymbol as _};
use xk_flex::{rewrite, take_ended, Choice, Control, Ended, Heap, Limits, Lock, Locks, RwLock};
use xk_testing::guest::file;

use super::checks::SHORT;
use super::OBJECT;

/// `struct xk_lock`, of which there are so many, and then a `struct xk_rwlock` and a counter.
pub const LOCK_BYTES: u64 = 80;
pub const LOCKS: u64 = 10;
pub const RW_LOCK_BYTES: u64 = 208;

pub struct Programs {
    pub object: Object,
    elf: Vec<u8>,
}

impl Programs {
    /// Loads these programs, and lets the heap have what they share.
    pub fn load(wanted: &[&str]) -> Self {
        let choice = Choice { widen: true, ..Choice::default() };
        let elf = rewrite(&fs::read(file(OBJECT)).unwrap(), &choice).unwrap().bytes;
        let mut open = ObjectBuilder::default().open_memory(&elf).unwrap();
        open.progs_mut().for_each(|mut program| {
            let name = program.name().to_string_lossy().into_owned();
            program.set_autoload(name == "prepare" || name == "tries" || wanted.contains(&name.as_str()));
        });
        let programs = Self { object: open.load().unwrap(), elf };
        programs.set_deadline(None);
        programs
    }

    pub fn set_deadline(&self, deadline: Option<Duration>) {
        Control { deadline, ..Control::default() }.tell(&self.object).unwrap();
    }

    pub fn heap(&self) -> Heap<'_> {
        let heap = Heap::of(&self.object, Limits { most: u64::MAX, ready: 1 << 20 }).unwrap().unwrap();
        assert_eq!(self.run("prepare"), 1);
        heap
    }

    pub fn at(&self, name: &str) -> usize {
        File::parse(&*self.elf).unwrap().symbol_by_name(name).unwrap().address() as usize
    }

    pub fn bss(&self) -> libbpf_rs::Map<'_> {
        self.object.maps().find(|map| map.name().to_str().unwrap().ends_with(".bss")).unwrap()
    }

    pub fn variable(&self, name: &str) -> u64 {
        let value = self.bss().lookup(&0_u32.to_ne_bytes(), MapFlags::ANY).unwrap().unwrap();
        u64::from_ne_bytes(value[self.at(name)..][..8].try_into().unwrap())
    }

    pub fn set(&self, name: &str, new: u64) {
        let mut value = self.bss().lookup(&0_u32.to_ne_bytes(), MapFlags::ANY).unwrap().unwrap();
        value[self.at(name)..][..8].copy_from_slice(&new.to_ne_bytes());
        self.bss().update(&0_u32.to_ne_bytes(), &value, MapFlags::ANY).unwrap();
    }

    pub fn run(&self, name: &str) -> u32 {
        let program = self.object.progs_mut().find(|other| other.name().to_str() == Some(name)).unwrap();
        program.test_run(ProgramInput { data_in: Some(&[0; 64]), ..ProgramInput::default() }).unwrap().return_value
    }

    /// The only run that was ended, and its locks.
    pub fn ended(&self) -> (Ended, Locks) {
        let ended = take_ended(&self.object).unwrap();
        let [only] = ended[..] else { panic!("{ended:?}") };
        (only, only.locks.unwrap())
    }

    pub fn lock_address(&self, number: u64) -> u64 {
        self.variable("shared") + number * LOCK_BYTES
    }

    pub fn both_address(&self) -> u64 {
        self.lock_address(LOCKS)
    }

    pub fn counter(&self, heap: &Heap<'_>) -> u64 {
        heap.word(self.both_address() + RW_LOCK_BYTES).unwrap().load(Ordering::SeqCst)
    }

    pub fn lock<'a>(&self, heap: &'a Heap<'_>, number: u64) -> Lock<'a> {
        heap.lock(self.lock_address(number)).unwrap()
    }

    pub fn both<'a>(&self, heap: &'a Heap<'_>) -> RwLock<'a> {
        heap.rw_lock(self.both_address()).unwrap()
    }

    /// Nobody has any of the locks, for programs and for user space.
    pub fn assert_free(&self, heap: &Heap<'_>) {
        self.set("turns", LOCKS);
        assert_eq!(self.run("tries"), (1 << LOCKS) - 1);
        for number in 0..LOCKS {
            assert_eq!(self.lock(heap, number).owner(), None, "lock {number}");
            assert!(self.lock(heap, number).try_take().unwrap().is_some(), "lock {number}");
        }
        assert!(self.both(heap).write(SHORT).unwrap().is_some());
    }
}
