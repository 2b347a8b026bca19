//! Heaps in debug mode on a running kernel: what is written around objects and into freed ones is found, objects are freed
//! once, live ones are known by the lines that allocated them, and nothing is said of programs that do nothing wrong.

#![allow(clippy::unwrap_used, clippy::expect_used)] // a test

mod compiled;
#[path = "heap/programs.rs"]
mod programs;

use std::fs;
use std::sync::atomic::Ordering;
use std::sync::OnceLock;

use xk_flex::{load, Choice, Damage, DamageKind, Heap, Limits, Site};
use xk_testing::guest::{boot, file, passed, pin};
use xk_testing::Random;

use compiled::compiled;

/// The compiled objects. Set in the guest only.
const OBJECT: &str = "XK_TEST_OBJECT";
const CACHE: &str = "XK_TEST_CACHE";

/// Where lines are.
const HEAP_C: &str = include_str!("bpf/heap.bpf.c");
const CHAIN_H: &str = include_str!("../../../bpf/flex/chain.h");
const HASH_H: &str = include_str!("../../../bpf/flex/hash.h");

xk_testing::guest_tests! {
    nothing_is_said_of_objects_of_every_size,
    nothing_is_said_of_runs_beside_and_above_each_other,
    what_is_written_around_an_object_is_found_at_once_and_when_it_is_freed,
    what_is_written_into_a_freed_object_is_found_at_once_and_when_it_is_used_again,
    an_object_is_freed_once,
    what_is_no_object_is_not_freed,
    live_objects_are_known_by_their_lines,
    without_memory_it_is_null,
    the_verifier_accepts_the_cache,
}

fn report(name: &str) {
    static OUTPUT: OnceLock<String> = OnceLock::new();
    let output = OUTPUT.get_or_init(|| {
        let folder = tempfile::tempdir().unwrap();
        let [object, cache] = compiled(folder.path(), ["heap_debug", "memcached_debug"]);
        boot(1200, &format!("{OBJECT}={object} {CACHE}={cache}"))
    });
    passed(output, name);
}

fn prepare() {}

/// The line of a file that contains this, as reports name it.
fn line(file: &str, text: &str, contains: &str) -> String {
    let lines: Vec<usize> =
        text.lines().zip(1..).filter(|(line, _)| line.contains(contains)).map(|(_, line)| line).collect();
    assert_eq!(lines.len(), 1, "{contains}: {lines:?}");
    format!("{file}:{}", lines[0])
}

/// The lines of `operate`.
fn allocates() -> String {
    line("heap.bpf.c", HEAP_C, "xk_malloc(key)")
}

fn clears() -> String {
    line("heap.bpf.c", HEAP_C, "xk_calloc(key, value)")
}

fn frees() -> String {
    line("heap.bpf.c", HEAP_C, "xk_free((void __heap *)key)")
}

mod checks {
    use super::programs::*;
    use super::*;

    const USER: &str = "user space";
    /// All alignments, several classes, and whole spans.
    const SIZES: [u64; 15] = [0, 1, 2, 3, 4, 5, 6, 7, 8, 24, 100, 513, 5003, 70_001, 300_000];

    fn is_clean(heap: &Heap<'_>) {
        assert_eq!((heap.damages(), heap.damaged()), (Vec::new(), Vec::new()));
    }

    fn byte(heap: &Heap<'_>, address: u64) -> u8 {
        word(heap, address / 8 * 8).to_le_bytes()[(address % 8) as usize]
    }

    fn word(heap: &Heap<'_>, address: u64) -> u64 {
        heap.word(address).unwrap().load(Ordering::Relaxed)
    }

    /// The words of an object, and which of their bits belong to it.
    fn words(address: u64, size: u64) -> impl Iterator<Item = (u64, u64)> {
        let end = address + size;
        (address..end).step_by(8).map(move |at| (at, u64::MAX >> (64 - 8 * (end - at).min(8))))
    }

    fn write(programs: &Programs, address: u64, byte: u8) {
        assert!(programs.ask_program("writes", [0, address, byte.into()]).is_some());
    }

    /// Inverts a byte.
    fn damage(programs: &Programs, heap: &Heap<'_>, address: u64) {
        write(programs, address, !byte(heap, address));
    }

    /// Writes to all bytes of an object.
    fn fill(heap: &Heap<'_>, address: u64, size: u64, random: &mut Random) {
        for (at, mask) in words(address, size) {
            let kept = word(heap, at) & !mask;
            heap.word(at).unwrap().store(kept | random.next_u64() & mask, Ordering::Relaxed);
        }
    }

    fn size(random: &mut Random) -> u64 {
        let limit = random.pick(&[10, 64, 300, 5000, 70_000, 300_000]);
        random.below(limit) as u64
    }

    /// Compares what lives with what is known.
    fn expect_sites(heap: &Heap<'_>, objects: &[(u64, u64, String)]) {
        for line in [allocates(), clears(), USER.into()] {
            let own = objects.iter().filter(|object| object.2 == line);
            let expected = own.fold((0, 0), |(objects, bytes), object| (objects + 1, bytes + object.1));
            let sites = heap.sites();
            let found = sites.iter().find(|site| site.line == line);
            assert_eq!(found.map_or((0, 0), |site| (site.objects, site.bytes)), expected, "{line}: {sites:?}");
        }
    }

    pub fn nothing_is_said_of_objects_of_every_size() {
        let programs = Programs::load(OBJECT);
        let heap = programs.heap(u64::MAX, 8 << 20);
        assert!(heap.is_debug());
        let mut random = random();
        let mut objects: Vec<(u64, u64, String)> = Vec::new();
        for turn in 0..2000 {
            if random.below(2) == 0 && !objects.is_empty() {
                let (address, _, _) = objects.swap_remove(random.below(objects.len()));
                match random.below(2) {
                    0 => programs.free(address),
                    _ => heap.free(address).unwrap(),
                }
            } else {
                let size = size(&mut random);
                heap.fill(size + 64).unwrap();
                let (address, line) = match random.below(4) {
                    0 => (heap.allocate(size).unwrap(), USER.to_owned()),
                    1 => {
                        let address = programs.ask(CLEAR, 1, size).unwrap().1;
                        assert!(words(address, size).all(|(at, mask)| word(&heap, at) & mask == 0), "{size} bytes");
                        (address, clears())
                    }
                    _ => (programs.allocate(size), allocates()),
                };
                assert!(address != 0 && address % 16 == 0, "{size} bytes: {address:#x}");
                let is_apart = |other: &(u64, u64, String)| other.0 + other.1 <= address || address + size <= other.0;
                assert!(objects.iter().all(is_apart));
                fill(&heap, address, size, &mut random);
                objects.push((address, size, line));
            }
            if turn % 100 == 0 {
                is_clean(&heap);
                expect_sites(&heap, &objects);
            }
        }
        expect_sites(&heap, &objects);
        objects.iter().for_each(|object| programs.free(object.0));
        is_clean(&heap);
        assert_eq!(heap.sites(), []);
        let usage = heap.usage();
        assert_eq!((usage.refused, usage.invalid, usage.lost), (0, 0, 0), "{usage:?}");
    }

    pub fn nothing_is_said_of_runs_beside_and_above_each_other() {
        let programs = Programs::of(OBJECT, &["runs", "taken", "wrong", "above"], true);
        let heap = programs.heap(u64::MAX, 8 << 20);
        programs.run_beside_and_above(1000);
        assert!(programs.variable("taken", 0) > 10_000 && programs.variable("taken", 1) > 100);
        assert_eq!(programs.variable("wrong", 0), 0);
        is_clean(&heap);
        assert_eq!(heap.sites(), []);
    }

    /// What was counted of a kind.
    fn counted(heap: &Heap<'_>, kind: DamageKind) -> u64 {
        heap.damages().iter().find(|damages| damages.kind == kind).map_or(0, |damages| damages.count)
    }

    /// The first one of a kind.
    fn first(heap: &Heap<'_>, kind: DamageKind) -> Damage {
        heap.damages().into_iter().find(|damages| damages.kind == kind).unwrap().first.unwrap()
    }

    fn object(found: &Damage) -> (u64, u64, &str, Option<&str>) {
        let object = found.object.as_ref().unwrap();
        (object.address, object.size, &object.allocated, object.freed.as_deref())
    }

    pub fn what_is_written_around_an_object_is_found_at_once_and_when_it_is_freed() {
        // Whose list has what was freed.
        pin(0);
        let programs = Programs::load(OBJECT);
        let heap = programs.heap(u64::MAX, 8 << 20);
        let (mut before, mut behind) = (0, 0);
        for (number, size) in SIZES.into_iter().enumerate() {
            heap.fill(size + 64).unwrap();
            let zone = 16 - size as i64 % 8;
            for distance in [-8, -1, 0, 1, zone - 1] {
                let address = programs.allocate(size);
                let kind = if distance < 0 { DamageKind::Before } else { DamageKind::Behind };
                let at = if distance < 0 { address } else { address + size }.wrapping_add_signed(distance);
                damage(&programs, &heap, at);
                let damaged = heap.damaged();
                assert_eq!(damaged.len(), 1, "{size}, {distance}: {damaged:?}");
                assert_eq!((damaged[0].kind, damaged[0].address), (kind, at), "{size}, {distance}: {damaged:?}");
                assert_eq!(object(&damaged[0]), (address, size, allocates().as_str(), None));
                match number % 2 {
                    0 => programs.free(address),
                    _ => heap.free(address).unwrap(),
                }
                *(if distance < 0 { &mut before } else { &mut behind }) += 1;
                let found = [DamageKind::Before, DamageKind::Behind].map(|kind| counted(&heap, kind));
                assert_eq!(found, [before, behind], "{size}, {distance}");
                assert_eq!(heap.damaged(), []);
            }
        }
        for kind in [DamageKind::Before, DamageKind::Behind] {
            let found = first(&heap, kind);
            assert_eq!((object(&found).1, object(&found).2), (0, allocates().as_str()));
            assert_eq!(found.found, Some(frees()));
        }
        assert_eq!(heap.damages().len(), 2);
    }

    pub fn what_is_written_into_a_freed_object_is_found_at_once_and_when_it_is_used_again() {
        // Whose list has what was freed.
        pin(0);
        let programs = Programs::load(OBJECT);
        let heap = programs.heap(u64::MAX, 8 << 20);
        let mut times = 0;
        for (number, size) in SIZES.into_iter().enumerate().skip(1) {
            heap.fill(size + 64).unwrap();
            for at in [0, size / 2, size - 1] {
                let address = programs.allocate(size);
                match number % 2 {
                    0 => programs.free(address),
                    _ => heap.free(address).unwrap(),
                }
                is_clean_of(&heap, DamageKind::Twice);
                damage(&programs, &heap, address + at);
                // Only the first bytes are poisoned.
                if at >= 512 {
                    assert_eq!(heap.damaged(), []);
                    continue;
                }
                let (damaged, by) = (heap.damaged(), if number % 2 == 0 { frees() } else { USER.into() });
                assert_eq!(damaged.len(), 1, "{size}, {at}: {damaged:?}");
                assert_eq!((damaged[0].kind, damaged[0].address), (DamageKind::After, address + at), "{size}");
                assert_eq!(object(&damaged[0]), (address, size, allocates().as_str(), Some(by.as_str())));
                // What a program frees, a program finds, and so does user space.
                let again = if number % 2 == 0 { programs.allocate(size) } else { heap.allocate(size).unwrap() };
                assert_eq!(again, address);
                times += 1;
                assert_eq!(counted(&heap, DamageKind::After), times, "{size}, {at}");
                assert_eq!(heap.damaged(), []);
                heap.free(again).unwrap();
                // So that the next one is of this list.
                let taken = heap.allocate(size).unwrap();
                assert_eq!(taken, again);
            }
        }
        let found = first(&heap, DamageKind::After);
        assert_eq!((object(&found).1, object(&found).3), (1, Some(USER)));
        assert_eq!((found.found.as_deref(), heap.damages().len()), (Some(USER), 1));
    }

    fn is_clean_of(heap: &Heap<'_>, kind: DamageKind) {
        assert_eq!(counted(heap, kind), 0);
    }

    pub fn an_object_is_freed_once() {
        // Whose list has what was freed.
        pin(0);
        let programs = Programs::load(OBJECT);
        let heap = programs.heap(u64::MAX, 8 << 20);
        let mut times = 0;
        for size in SIZES {
            heap.fill(size + 64).unwrap();
            let address = programs.allocate(size);
            programs.free(address);
            programs.free(address);
            let refused = heap.free(address).unwrap_err().to_string();
            assert!(refused.contains("freed again"), "{refused}");
            times += 2;
            assert_eq!(counted(&heap, DamageKind::Twice), times, "{size}");
            let taken = [programs.allocate(size), programs.allocate(size)];
            assert!(taken[0] != taken[1] && taken.contains(&address), "{size}: {taken:x?}");
        }
        let found = first(&heap, DamageKind::Twice);
        let (address, size, allocated, freed) = object(&found);
        assert_eq!((address, size, allocated), (found.address, 0, allocates().as_str()));
        assert_eq!((freed, found.found.as_deref()), (Some(frees().as_str()), Some(frees().as_str())));
        assert_eq!((heap.damages().len(), heap.damaged()), (1, Vec::new()));
        let usage = heap.usage();
        assert_eq!((usage.invalid, usage.allocated - usage.freed), (15, 2 * 15), "{usage:?}");
    }

    pub fn what_is_no_object_is_not_freed() {
        let programs = Programs::load(OBJECT);
        let heap = programs.heap(u64::MAX, 8 << 20);
        heap.fill(400_000).unwrap();
        let (small, large) = (programs.allocate(200), programs.allocate(300_000));
        programs.free(small + 64);
        let found = first(&heap, DamageKind::Nothing);
        assert_eq!((found.address, object(&found)), (small + 64, (small, 200, allocates().as_str(), None)));
        assert_eq!(found.found, Some(frees()));
        let inside = [small + 1, small - 16, small + 176, small - 32, large + 16, large + 65536, large + 70_000];
        let outside = [4096, 65536, 131_072, 16].map(|offset| small / (1 << 32) * (1 << 32) + offset);
        for address in inside.into_iter().chain(outside) {
            let before = counted(&heap, DamageKind::Nothing);
            programs.free(address);
            assert_eq!(counted(&heap, DamageKind::Nothing), before + 1, "{:#x}", address - small);
            assert!(heap.free(address).is_err());
        }
        programs.free(0);
        assert_eq!(heap.usage().invalid, 12);
        is_only(&heap, DamageKind::Nothing);
        // A header that was destroyed is none.
        (8..16).for_each(|byte| write(&programs, small - 32 + byte, 0));
        let before = counted(&heap, DamageKind::Nothing);
        programs.free(small);
        assert_eq!(counted(&heap, DamageKind::Nothing), before + 1);
        programs.free(large);
        is_only(&heap, DamageKind::Nothing);
        assert_eq!(heap.sites(), []);
    }

    fn is_only(heap: &Heap<'_>, kind: DamageKind) {
        assert_eq!(heap.damages().iter().map(|damages| damages.kind).collect::<Vec<_>>(), [kind]);
        assert_eq!(heap.damaged(), []);
    }

    pub fn live_objects_are_known_by_their_lines() {
        let programs = Programs::load(OBJECT);
        let heap = programs.heap(u64::MAX, 8 << 20);
        assert_eq!(programs.ask(NEW, 4, 0).map(|(done, _)| done), Some(true));
        for key in 0..100 {
            assert!(programs.ask(SET, key, 1).unwrap().0 && programs.ask(PUSH, key, 1).unwrap().0);
        }
        (0..40).for_each(|key| assert!(programs.ask(REMOVE, key, 0).unwrap().0));
        (0..7).for_each(|_| assert_ne!(programs.allocate(333), 0));
        let freed = programs.allocate(10_000);
        programs.free(freed);
        (0..3).for_each(|_| assert!(heap.allocate(11).is_some()));
        let site = |line: String, objects: u64, bytes: u64| Site { line, objects, bytes };
        let expected = [
            site(line("chain.h", CHAIN_H, "xk_malloc("), 160, 160 * 24),
            site(allocates(), 7, 7 * 333),
            site(line("hash.h", HASH_H, "xk_calloc("), 1, 16 + 8 * 16),
            site(USER.into(), 3, 33),
            site(line("heap.bpf.c", HEAP_C, "list = xk_calloc("), 1, 16),
        ];
        assert_eq!(heap.sites(), expected);
        is_clean(&heap);
    }

    pub fn without_memory_it_is_null() {
        let programs = Programs::load(OBJECT);
        let heap = programs.heap(1 << 20, 1 << 20);
        let most = (1 << 28) - 48;
        for size in [1 << 20, most, most + 1, 1 << 28, 1 << 29, 1 << 32, 1 << 63, u64::MAX - 47, u64::MAX] {
            assert_eq!(programs.ask(ALLOCATE, size, 0), Some((true, 0)), "{size:#x}");
            assert_eq!(programs.ask(CLEAR, 1, size), Some((true, 0)), "{size:#x}");
            assert_eq!(heap.allocate(size), None, "{size:#x}");
        }
        assert_ne!(programs.allocate(1000), 0);
        is_clean(&heap);
    }

    /// Its program is the largest one here.
    pub fn the_verifier_accepts_the_cache() {
        let bytes = fs::read(file(CACHE)).unwrap();
        let loaded = load(&bytes, &Choice::default()).unwrap();
        assert!(Heap::of(&loaded.object, Limits::default()).unwrap().unwrap().is_debug());
    }
}
