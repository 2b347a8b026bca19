//! Runs that access the heap of an extension where no page is.

#![allow(clippy::unwrap_used, clippy::expect_used)] // a test

mod compiled;

use std::fs;
use std::sync::OnceLock;

use libbpf_rs::{Link, MapCore, MapFlags, Object, ObjectBuilder, ProgramInput, RingBufferBuilder};
use object::read::{File, Object as _, ObjectSymbol as _};
use xk_flex::{rewrite, take_ended, Choice, Ended, Heap, Limits, LookReport, Why};
use xk_testing::guest::{boot, file, passed};

use compiled::compiled;

/// The compiled object. Set in the guest only.
const OBJECT: &str = "XK_TEST_OBJECT";
const SOURCE: &str = include_str!("bpf/faults.bpf.c");

xk_testing::guest_tests! {
    an_access_where_no_page_is_ends_the_run,
    a_run_that_ends_for_it_releases_what_it_holds,
    an_access_of_what_is_there_ends_nothing,
    a_run_above_another_is_ended_alone,
    a_run_below_another_is_ended_alone,
    what_does_not_count_faults_is_not_ended,
}

fn guest_output() -> &'static str {
    static OUTPUT: OnceLock<String> = OnceLock::new();
    OUTPUT.get_or_init(|| {
        let folder = tempfile::tempdir().unwrap();
        let [faults] = compiled(folder.path(), ["faults"]);
        boot(1200, &format!("{OBJECT}={faults}"))
    })
}

fn report(name: &str) {
    passed(guest_output(), name);
}

fn prepare() {}

mod checks {
    use super::*;

    /// What programs return if they are not ended.
    const FINISHED: u32 = 3;
    const ENDED: u32 = 0;
    /// Pages are given from the start of the heap on. Here are none.
    const NOWHERE: u64 = (1 << 44) + (1000 << 16);

    struct Programs {
        object: Object,
        elf: Vec<u8>,
        looks: Vec<LookReport>,
        links: Vec<Link>,
    }

    impl Programs {
        /// Loaded; these are attached.
        fn load(attached: &[&str]) -> Self {
            let rewritten = rewrite(&fs::read(file(OBJECT)).unwrap(), &Choice::default()).unwrap();
            let object = ObjectBuilder::default().open_memory(&rewritten.bytes).unwrap().load().unwrap();
            let mut programs = Self { object, elf: rewritten.bytes, looks: rewritten.looks, links: Vec::new() };
            programs.links = attached.iter().map(|name| programs.program(name).attach().unwrap()).collect();
            programs
        }

        fn program(&self, name: &str) -> libbpf_rs::ProgramMut<'_> {
            self.object.progs_mut().find(|other| other.name().to_str() == Some(name)).unwrap()
        }

        fn heap(&self) -> Heap<'_> {
            let limits = Limits { most: 1 << 20, ready: 1 << 20 };
            Heap::of(&self.object, limits).unwrap().unwrap()
        }

        /// The variable with this name: its map's value, and where it is there.
        fn place(&self, name: &str) -> (libbpf_rs::Map<'_>, usize) {
            let elf = File::parse(&*self.elf).unwrap();
            let at = elf.symbol_by_name(name).unwrap().address() as usize;
            let bss = self.object.maps().find(|map| map.name().to_str().unwrap().ends_with(".bss")).unwrap();
            (bss, at)
        }

        fn variable(&self, name: &str) -> u64 {
            let (map, at) = self.place(name);
            let value = map.lookup(&0_u32.to_ne_bytes(), MapFlags::ANY).unwrap().unwrap();
            u64::from_ne_bytes(value[at..at + 8].try_into().unwrap())
        }

        /// Runs a program that accesses this address.
        fn run(&self, name: &str, address: u64) -> u32 {
            let (map, at) = self.place("address");
            let mut value = map.lookup(&0_u32.to_ne_bytes(), MapFlags::ANY).unwrap().unwrap();
            value[at..at + 8].copy_from_slice(&address.to_ne_bytes());
            map.update(&0_u32.to_ne_bytes(), &value, MapFlags::ANY).unwrap();
            let input = ProgramInput { data_in: Some(&[0; 64]), ..ProgramInput::default() };
            self.program(name).test_run(input).unwrap().return_value
        }

        /// Passes what was reserved and is submitted or discarded.
        fn pass_records(&self) {
            let records = self.object.maps().find(|map| map.name() == "records").unwrap();
            let mut builder = RingBufferBuilder::new();
            builder.add(&records, |_| 0).unwrap();
            builder.build().unwrap().consume().unwrap();
        }

        /// The only run that was ended since the last call, and in which function.
        fn ended(&self) -> (Ended, &str) {
            let all = take_ended(&self.object).unwrap();
            let [ended] = all[..] else { panic!("{all:?}") };
            (ended, &self.looks[ended.look].function)
        }
    }

    pub fn an_access_where_no_page_is_ends_the_run() {
        let programs = Programs::load(&["xk_heap_fault"]);
        let _heap = programs.heap();
        for name in ["loads", "stores", "loads_in_a_function"] {
            assert_eq!(programs.run(name, NOWHERE + 8), ENDED, "{name}");
            let (ended, function) = programs.ended();
            assert_eq!((ended.why, function), (Why::Fault, name));
            let fault = ended.fault.unwrap();
            let line = |words: &str| SOURCE.lines().position(|line| line.contains(words)).unwrap() + 1;
            let line = match name {
                "loads" => line("returned = *(volatile"),
                "stores" => line("object() = 7"),
                _ => line("object() != 1"),
            };
            assert_eq!(fault.place(), Some(format!("faults.bpf.c:{line}")), "{name}");
            assert_eq!(fault.address, NOWHERE + 8, "{name}");
            let symbols = fs::read_to_string("/proc/kallsyms").unwrap();
            let (start, symbol) = symbols
                .lines()
                .filter_map(|line| Some((u64::from_str_radix(line.split(' ').next()?, 16).ok()?, line)))
                .filter(|(start, _)| *start <= fault.instruction)
                .max()
                .unwrap();
            let expected = if name == "loads_in_a_function" { "apart" } else { name };
            assert!(fault.instruction - start < 4096 && symbol.contains(expected), "{name}: {symbol}");
        }
    }

    pub fn a_run_that_ends_for_it_releases_what_it_holds() {
        let programs = Programs::load(&["xk_heap_fault"]);
        let _heap = programs.heap();
        // Each run reserves 16 bytes of 4096 with its header. One that kept them would stop who reads the records, and the
        // last would find no room.
        for _ in 0..1000 {
            assert_eq!(programs.run("follows", NOWHERE), ENDED);
            let (ended, function) = programs.ended();
            assert_eq!((ended.why, function), (Why::Fault, "follows"));
            programs.pass_records();
        }
        // It looks every 64 turns at the latest, with at most 8 copies.
        let turns = programs.variable("turns");
        assert!((1000..1000 * 80).contains(&turns), "{turns}");
    }

    pub fn an_access_of_what_is_there_ends_nothing() {
        let programs = Programs::load(&["xk_heap_fault"]);
        let heap = programs.heap();
        let object = heap.allocate(16).unwrap();
        for name in ["stores", "loads", "loads_in_a_function", "follows"] {
            assert_eq!(programs.run(name, object), FINISHED, "{name}");
        }
        assert_eq!(programs.variable("returned"), 10);
        assert_eq!(take_ended(&programs.object).unwrap(), []);
    }

    pub fn a_run_above_another_is_ended_alone() {
        let programs = Programs::load(&["xk_heap_fault", "comes_between"]);
        let _heap = programs.heap();
        assert_eq!(programs.run("is_interrupted", NOWHERE), FINISHED);
        assert_eq!((programs.variable("above"), programs.variable("returned")), (1, 5));
        let (ended, function) = programs.ended();
        assert_eq!((ended.why, function), (Why::Fault, "comes_between"));
    }

    pub fn a_run_below_another_is_ended_alone() {
        let programs = Programs::load(&["xk_heap_fault", "comes_between"]);
        let _heap = programs.heap();
        assert_eq!(programs.run("faults_and_is_interrupted", NOWHERE), ENDED);
        assert_eq!(programs.variable("above"), 1);
        let (ended, function) = programs.ended();
        assert_eq!((ended.why, function), (Why::Fault, "faults_and_is_interrupted"));
    }

    /// The check above fails without what it is about: the program that counts faults.
    pub fn what_does_not_count_faults_is_not_ended() {
        let programs = Programs::load(&[]);
        let _heap = programs.heap();
        assert_eq!(programs.run("loads", NOWHERE), FINISHED);
        assert_eq!(programs.variable("returned"), 3);
        assert_eq!(take_ended(&programs.object).unwrap(), []);
    }
}
