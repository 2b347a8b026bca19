//! Heaps on a running kernel: what programs and user space allocate, free and share, also side by side and above each
//! other; and data structures in them, against models, with runs that are ended.

#![allow(clippy::unwrap_used, clippy::expect_used)] // a test

mod compiled;
#[path = "heap/programs.rs"]
mod programs;

use std::collections::HashMap;
use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::OnceLock;
use std::time::Duration;

use libbpf_rs::{MapCore, MapFlags};
use xk_flex::{load, take_ended, Choice, Control, Heap};
use xk_testing::guest::{boot, file, passed, pin, wait_for};
use xk_testing::Random;

use compiled::compiled;

/// The compiled objects. Set in the guest only.
const OBJECT: &str = "XK_TEST_OBJECT";
const BETWEEN: &str = "XK_TEST_BETWEEN";

xk_testing::guest_tests! {
    objects_of_every_size_are_apart,
    user_space_and_programs_free_for_each_other,
    without_memory_it_is_null_and_nothing_is_lost,
    more_is_given_while_programs_take,
    runs_beside_and_above_each_other_have_objects_of_their_own,
    runs_that_are_interrupted_at_the_worst_places_have_objects_of_their_own,
    structures_are_what_a_model_is_also_when_runs_end,
    a_heap_where_something_is_mapped_is_refused,
    pages_are_charged_to_the_control_group_of_the_loader,
}

fn guest_output() -> &'static str {
    static OUTPUT: OnceLock<String> = OnceLock::new();
    OUTPUT.get_or_init(|| {
        let folder = tempfile::tempdir().unwrap();
        let [heap, between] = compiled(folder.path(), ["heap", "between"]);
        boot(1200, &format!("{OBJECT}={heap} {BETWEEN}={between}"))
    })
}

fn report(name: &str) {
    passed(guest_output(), name);
}

fn prepare() {}

mod checks {
    use super::programs::*;
    use super::*;

    const GET: u64 = 5;
    const FIND: u64 = 8;
    const TAKE: u64 = 9;

    /// Marks an object's first and last words.
    fn mark(heap: &Heap<'_>, address: u64, size: u64) {
        for at in ends(address, size) {
            heap.word(at).unwrap().store(!at, Ordering::Relaxed);
        }
    }

    fn ends(address: u64, size: u64) -> [u64; 2] {
        [address, address + (size.max(8) - 8) / 8 * 8]
    }

    fn check(heap: &Heap<'_>, address: u64, size: u64) {
        for at in ends(address, size) {
            assert_eq!(heap.word(at).unwrap().load(Ordering::Relaxed), !at, "{address:#x}, {size} bytes");
        }
    }

    fn size(random: &mut Random) -> u64 {
        let limit = random.pick(&[64, 300, 5000, 70_000, 300_000]);
        1 + random.below(limit) as u64
    }

    pub fn objects_of_every_size_are_apart() {
        let programs = Programs::load(OBJECT);
        let heap = programs.heap(u64::MAX, 8 << 20);
        let mut random = random();
        let mut objects: Vec<(u64, u64)> = Vec::new();
        for _ in 0..3000 {
            if random.below(3) == 0 && !objects.is_empty() {
                let (address, size) = objects.swap_remove(random.below(objects.len()));
                check(&heap, address, size);
                programs.free(address);
            } else {
                let size = size(&mut random);
                heap.fill(size).unwrap();
                let address = if random.below(4) == 0 {
                    let address = programs.ask(CLEAR, 1, size).unwrap().1;
                    for at in (address..address + size / 8 * 8).step_by(8) {
                        assert_eq!(heap.word(at).unwrap().load(Ordering::Relaxed), 0, "{size} bytes");
                    }
                    address
                } else {
                    programs.allocate(size)
                };
                assert!(address != 0 && address % 16 == 0, "{size} bytes: {address:#x}");
                mark(&heap, address, size);
                objects.push((address, size));
            }
        }
        objects.sort_unstable();
        for pair in objects.windows(2) {
            assert!(pair[0].0 + pair[0].1 <= pair[1].0, "{pair:x?}");
        }
        for (address, size) in objects {
            check(&heap, address, size);
            programs.free(address);
        }
        let usage = heap.usage();
        assert_eq!(usage.allocated, usage.freed, "{usage:?}");
        assert_eq!((usage.refused, usage.invalid, usage.lost), (0, 0, 0), "{usage:?}");
    }

    pub fn user_space_and_programs_free_for_each_other() {
        const ROUNDS: usize = 40;
        let programs = Programs::load(OBJECT);
        let heap = programs.heap(u64::MAX, 8 << 20);
        let mut random = random();
        let sizes: Vec<u64> = [64, 300, 5000, 70_000, 300_000]
            .iter()
            .flat_map(|&most| [most; 8])
            .map(|most| 1 + random.below(most) as u64)
            .collect();
        pin(0);
        let before = heap.usage().used;
        let mut objects: Vec<(u64, usize)> = Vec::new();
        // In four rounds, each object is allocated and freed by each pair of the two.
        for round in 0..ROUNDS {
            let mut left: Vec<usize> = (0..sizes.len()).collect();
            while !left.is_empty() {
                let number = left.swap_remove(random.below(left.len()));
                let size = sizes[number];
                heap.fill(size).unwrap();
                let by_program = (number + round) % 2 == 0;
                let allocate = if by_program { Some(programs.allocate(size)) } else { heap.allocate(size) };
                let address = allocate.filter(|&address| address != 0).unwrap();
                let is_apart =
                    |&(other, number): &(u64, usize)| other + sizes[number] <= address || address + size <= other;
                assert!(objects.iter().all(is_apart));
                mark(&heap, address, size);
                objects.push((address, number));
            }
            while round + 1 < ROUNDS && !objects.is_empty() {
                let (address, number) = objects.swap_remove(random.below(objects.len()));
                check(&heap, address, sizes[number]);
                if (number + round / 2) % 2 == 0 {
                    programs.free(address);
                } else {
                    heap.free(address).unwrap();
                }
            }
        }
        // An object takes less than twice its size, or whole spans. Beside the one in use, two may wait where only the
        // other side finds them.
        let spans: u64 = sizes.iter().map(|size| (2 * size).next_multiple_of(65536)).sum();
        let used = heap.usage().used - before;
        let all = ROUNDS as u64 * sizes.iter().sum::<u64>();
        assert!(used <= 3 * spans && 3 * spans < all, "what is freed is used again: {used} of {}, {all}", 3 * spans);
        // What is no object is not taken back.
        for (address, _) in &objects {
            assert!(heap.free(address + 8).is_err() && heap.free(*address & 0xffff_ffff).is_err());
        }
        assert!(heap.free(0).is_err() && heap.free(u64::MAX).is_err() && heap.word(0).is_none());
        programs.free(objects[0].0 + 8);
        programs.free(0);
        assert_eq!(heap.usage().invalid, 1);
    }

    pub fn without_memory_it_is_null_and_nothing_is_lost() {
        let programs = Programs::load(OBJECT);
        let heap = programs.heap(1 << 20, 1 << 20);
        let all = |size: u64| -> Vec<u64> {
            std::iter::from_fn(|| Some(programs.allocate(size)).filter(|&address| address != 0)).collect()
        };
        let first = all(20_000);
        assert!(first.len() > 20 && heap.usage().refused == 1, "{} objects, {:?}", first.len(), heap.usage());
        assert_eq!(programs.allocate(1 << 20), 0);
        assert_eq!((programs.allocate(1 << 40), programs.ask(CLEAR, 1 << 40, 1 << 40)), (0, Some((true, 0))));
        first.iter().for_each(|&address| programs.free(address));
        let mut second = all(20_000);
        assert_eq!(second.len(), first.len());
        second.sort_unstable();
        second.dedup();
        assert_eq!(second.len(), first.len());
        // The object that is given back is the next one.
        programs.free(second[0]);
        assert_eq!(programs.allocate(19_000), second[0]);
        assert_eq!(heap.usage().lost, 0);
    }

    /// Ends a server, also where the test fails.
    struct Stops<'a>(&'a AtomicBool);

    impl Drop for Stops<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }

    pub fn more_is_given_while_programs_take() {
        const SIZE: u64 = 50_000;
        const OBJECTS: u64 = 400;
        let programs = Programs::load(OBJECT);
        let heap = programs.heap(u64::MAX, 1 << 20);
        let before = heap.usage();
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let server = scope.spawn(|| heap.serve(&stop));
            let stops = Stops(&stop);
            // One that is larger than what is kept ready comes later.
            wait_for("the large one is given", || programs.allocate(16 << 20) != 0);
            for _ in 0..OBJECTS {
                // As a program would: the next packet, a little later.
                wait_for("more is given", || programs.allocate(SIZE) != 0);
            }
            drop(stops);
            server.join().unwrap().unwrap();
        });
        let usage = heap.usage();
        assert!(usage.ready > before.ready + (16 << 20) + OBJECTS * SIZE, "{usage:?}");
        assert!(usage.ready <= usage.used + (2 << 20) + (16 << 20) + 65536, "no more than was asked for: {usage:?}");
    }

    /// Emulation interrupts programs at few places. The next test comes between at the worst ones.
    pub fn runs_beside_and_above_each_other_have_objects_of_their_own() {
        const RUNS: usize = 10_000;
        let programs = Programs::of(OBJECT, &["runs", "taken", "wrong", "above"], true);
        let heap = programs.heap(u64::MAX, 8 << 20);
        let rounds = programs.run_beside_and_above(RUNS);
        let [own, above] = [0, 1].map(|index| (programs.variable("runs", index), programs.variable("taken", index)));
        assert_eq!(own.0, 2 * RUNS as u64 * rounds);
        assert!(own.1 > own.0 * 11 && above.1 > above.0 * 11, "{own:?}, {above:?}");
        assert_eq!(programs.variable("wrong", 0), 0, "{own:?}, {above:?}");
        let usage = heap.usage();
        assert_eq!((usage.allocated, usage.freed, usage.lost), (own.1 + above.1, own.1 + above.1, 0), "{usage:?}");
    }

    pub fn runs_that_are_interrupted_at_the_worst_places_have_objects_of_their_own() {
        const RUNS: u64 = 3000;
        let programs = Programs::of(BETWEEN, &["odds", "runs", "interruptions", "wrong"], false);
        let heap = programs.heap(u64::MAX, 8 << 20);
        for odds in [0, 2, 3, 5, 7, 20] {
            let mut bss = programs.bss().lookup(&0_u32.to_ne_bytes(), MapFlags::ANY).unwrap().unwrap();
            let at = programs.variables["odds"];
            bss[at..at + 4].copy_from_slice(&u32::to_ne_bytes(odds));
            programs.bss().update(&0_u32.to_ne_bytes(), &bss, MapFlags::ANY).unwrap();
            (0..RUNS).for_each(|_| assert_eq!(programs.run("interrupted"), 0));
            assert_eq!(programs.variable("wrong", 0), 0, "one of {odds} is interrupted");
        }
        let [runs, interruptions] = ["runs", "interruptions"].map(|name| programs.variable(name, 0));
        assert!(runs == 6 * RUNS && interruptions > RUNS, "{interruptions} in {runs} runs");
        let usage = heap.usage();
        assert_eq!((usage.refused, usage.invalid, usage.lost), (0, 0, 0), "{usage:?}");
        assert!(usage.allocated == usage.freed && usage.used < 4 << 20, "objects come back: {usage:?}");
    }

    /// What is in the table, as user space finds it.
    fn table(programs: &Programs, heap: &Heap<'_>) -> HashMap<u64, u64> {
        let word = |address: u64| heap.word(address).unwrap().load(Ordering::Relaxed);
        let hash = programs.variable("hash", 0);
        let (buckets, mut found) = (1 << (64 - word(hash)), HashMap::new());
        for bucket in 0..buckets {
            let mut item = word(hash + 16 + 8 * bucket);
            while item != 0 {
                assert!(found.insert(word(item + 8), word(item + 16)).is_none(), "a key is there once");
                item = word(item);
            }
        }
        assert_eq!(found.len() as u64, word(hash + 8));
        found
    }

    /// What is in the list, the newest first.
    fn list(programs: &Programs, heap: &Heap<'_>) -> Vec<(u64, u64)> {
        let word = |address: u64| heap.word(address).unwrap().load(Ordering::Relaxed);
        let mut item = word(programs.variable("list", 0));
        let mut found = Vec::new();
        while item != 0 {
            found.push((word(item + 8), word(item + 16)));
            item = word(item);
        }
        found
    }

    pub fn structures_are_what_a_model_is_also_when_runs_end() {
        let programs = Programs::load(OBJECT);
        let heap = programs.heap(u64::MAX, 1 << 20);
        let mut random = random();
        assert_eq!(programs.ask(NEW, 4, 0).map(|(done, _)| done), Some(true));
        let (mut map, mut items) = (HashMap::new(), Vec::<(u64, u64)>::new());
        let mut ended = 0;
        for round in 0..6000 {
            // With this deadline, a run ends at its second look.
            let is_ended = random.below(4) == 0;
            let deadline = is_ended.then_some(Duration::from_nanos(1));
            Control { deadline, interval: 1, ..Control::default() }.tell(&programs.object).unwrap();
            let operation = random.pick(&[SET, SET, GET, REMOVE, PUSH, FIND, TAKE]);
            let (key, value) = (random.below(300) as u64, random.next_u64());
            let Some((done, answer)) = programs.ask(operation, key, value) else {
                assert!(is_ended);
                assert_eq!(take_ended(&programs.object).unwrap().len(), 1);
                ended += 1;
                continue;
            };
            let at = items.iter().position(|item| item.0 == key);
            match operation {
                SET => assert!(done && (map.insert(key, value), true).1),
                GET => assert_eq!(done.then_some(answer), map.get(&key).copied()),
                REMOVE => assert_eq!(done, map.remove(&key).is_some()),
                PUSH => items.insert(0, (key, value)),
                FIND => assert_eq!(done.then_some(answer), at.map(|at| items[at].1)),
                _ => assert_eq!(done, at.map(|at| items.remove(at)).is_some()),
            }
            if round % 500 == 0 {
                assert_eq!((&table(&programs, &heap), &list(&programs, &heap)), (&map, &items), "round {round}");
            }
        }
        assert_eq!((table(&programs, &heap), list(&programs, &heap)), (map.clone(), items.clone()));
        assert!(ended > 100, "{ended} runs were ended");
        let usage = heap.usage();
        // The table, the head of the list, and the items: no run that was ended has left an object.
        assert_eq!(usage.allocated - usage.freed, 2 + (map.len() + items.len()) as u64, "{usage:?}");
    }

    pub fn a_heap_where_something_is_mapped_is_refused() {
        let first = Programs::load(OBJECT);
        let _heap = first.heap(u64::MAX, 1 << 20);
        let bytes = fs::read(file(OBJECT)).unwrap();
        let refused = load(&bytes, &Choice::default()).unwrap_err().to_string();
        assert!(refused.contains("xk_heap") && refused.contains("XK_HEAP_ADDRESS"), "{refused}");
        assert_ne!(first.allocate(100), 0, "the first one goes on");
    }

    pub fn pages_are_charged_to_the_control_group_of_the_loader() {
        const GROUP: &str = "/sys/fs/cgroup/xk_heap";
        let move_to = |group: &str| {
            fs::write(format!("{group}/cgroup.procs"), std::process::id().to_string()).unwrap();
        };
        let charged =
            || -> u64 { fs::read_to_string(format!("{GROUP}/memory.current")).unwrap().trim().parse().unwrap() };
        fs::write("/sys/fs/cgroup/cgroup.subtree_control", "+memory").unwrap();
        fs::create_dir_all(GROUP).unwrap();
        move_to(GROUP);
        let programs = Programs::load(OBJECT);
        move_to("/sys/fs/cgroup");
        let heap = programs.heap(u64::MAX, 1 << 20);
        let before = charged();
        heap.fill(16 << 20).unwrap();
        let after = charged();
        assert!(after >= before + (15 << 20), "{before}, then {after}");
        fs::write(format!("{GROUP}/memory.max"), (after + (2 << 20)).to_string()).unwrap();
        let refused = heap.fill(40 << 20).unwrap_err().to_string();
        assert!(refused.contains("control group"), "{refused}");
        let usage = heap.usage();
        assert!(usage.ready < 30 << 20, "{usage:?}");
        assert_ne!(programs.allocate(10 << 20), 0, "what there is stays");
        fs::write(format!("{GROUP}/memory.max"), "max").unwrap();
        heap.fill(40 << 20).unwrap();
        assert!(heap.usage().ready > 40 << 20);
    }
}
