//! Locks of the heap on a running kernel: who is ended gives them back, who waits is ended and says for whom, and threads
//! of user space share them.

#![allow(clippy::unwrap_used, clippy::expect_used)] // a test

mod compiled;
#[path = "locks/programs.rs"]
mod programs;

use std::collections::HashMap;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use xk_flex::{take_ended, unreported, Broken, Heap, Who, Why};
use xk_testing::guest::{boot, passed, pin, wait_for};

use compiled::compiled;
use programs::{Programs, LOCKS, RW_LOCK_BYTES};

/// The compiled object. Set in the guest only.
const OBJECT: &str = "XK_TEST_OBJECT";

xk_testing::guest_tests! {
    what_an_ended_run_holds_is_given_back,
    a_run_that_waits_is_ended_and_says_for_whom,
    a_run_holds_no_more_than_it_may,
    a_run_that_returns_with_a_lock_gives_it_back,
    of_two_runs_that_wait_for_each_other_one_is_ended,
    a_run_that_waits_for_the_one_below_it_is_ended,
    nobody_is_inside_with_somebody_else,
    a_table_that_all_change_is_right_at_the_end,
    locks_of_a_dead_thread_are_found_and_broken,
}

fn guest_output() -> &'static str {
    static OUTPUT: OnceLock<String> = OnceLock::new();
    OUTPUT.get_or_init(|| {
        let folder = tempfile::tempdir().unwrap();
        let [locks] = compiled(folder.path(), ["locks"]);
        boot(1200, &format!("{OBJECT}={locks}"))
    })
}

fn report(name: &str) {
    passed(guest_output(), name);
}

fn prepare() {}

mod checks {
    use super::*;

    const LONG: Duration = Duration::from_secs(60);
    pub const SHORT: Duration = Duration::from_millis(3);

    fn own_thread() -> Who {
        // SAFETY: it only asks for a number.
        Who::Thread(u32::try_from(unsafe { libc::gettid() }).unwrap())
    }

    pub fn what_an_ended_run_holds_is_given_back() {
        let expected: [(&str, &[u64]); 5] = [
            ("holds_one", &[0]),
            ("holds_in_call", &[1, 0]),
            ("holds_what_a_call_took", &[3, 2]),
            ("holds_reader", &[LOCKS]),
            ("holds_writer", &[LOCKS, 1]),
        ];
        let programs = Programs::load(&expected.map(|(name, _)| name));
        let heap = programs.heap();
        for (name, locks) in expected {
            programs.set_deadline(Some(SHORT));
            for round in 0..20 {
                assert_eq!(programs.run(name), 0, "{name}, round {round}");
                let (ended, own) = programs.ended();
                let released: Vec<u64> = own.released().iter().map(|released| released.lock).collect();
                let locks: Vec<u64> = locks.iter().map(|number| programs.lock_address(*number)).collect();
                assert_eq!((ended.why, released), (Why::Deadline, locks), "{name}, the last one first");
                assert_eq!((own.waited, own.is_deadlock()), (None, false));
            }
            programs.set_deadline(None);
            programs.assert_free(&heap);
        }
    }

    pub fn a_run_that_waits_is_ended_and_says_for_whom() {
        let programs = Programs::load(&["waits", "waits_to_write", "waits_to_read", "waits_for_itself"]);
        let heap = programs.heap();
        programs.set_deadline(Some(SHORT));
        let (lock, both) = (programs.lock(&heap, 0), programs.both(&heap));
        // More often than there are places for tickets: each is given up.
        for round in 0..30 {
            let guard = lock.take(LONG).unwrap().unwrap();
            assert_eq!((lock.owner(), programs.run("waits")), (Some(own_thread()), 0), "round {round}");
            let (ended, locks) = programs.ended();
            assert_eq!((ended.why, locks.waited), (Why::Deadline, Some(programs.lock_address(0))));
            assert_eq!((locks.owner, locks.is_deadlock()), (Some(own_thread()), false));
            assert_eq!(locks.released().len(), 2, "the ticket, and the other lock");
            drop(guard);
            assert_eq!(programs.run("waits"), 7, "round {round}");
        }
        for round in 0..30 {
            let writes = round % 2 == 0;
            let guard = if writes { both.write(LONG) } else { both.read(LONG) }.unwrap().unwrap();
            let name = if writes { "waits_to_read" } else { "waits_to_write" };
            assert_eq!(programs.run(name), 0, "round {round}");
            let (_, locks) = programs.ended();
            assert_eq!((locks.waited, locks.owner), (Some(programs.both_address()), Some(own_thread())), "{name}");
            assert_eq!(programs.run("waits_to_read"), if writes { 0 } else { 7 }, "readers are together");
            take_ended(&programs.object).unwrap();
            drop(guard);
            assert_eq!(programs.run(name), 7, "round {round}");
        }
        assert_eq!(programs.run("waits_for_itself"), 0);
        let (_, locks) = programs.ended();
        assert!(locks.is_deadlock() && locks.owner == locks.run && locks.run.is_some(), "{locks:?}");
        programs.set_deadline(None);
        programs.assert_free(&heap);
        assert!(heap.lock(programs.lock_address(0) + 4).is_none() && heap.lock(u64::MAX - 7).is_none());
    }

    pub fn a_run_holds_no_more_than_it_may() {
        let programs = Programs::load(&["takes_many", "hands_over", "gives_back_what_it_has_not"]);
        let heap = programs.heap();
        programs.set("turns", 8);
        assert_eq!((programs.run("takes_many"), programs.variable("reached")), (7, 1));
        for turns in [9, 10] {
            programs.set("turns", turns);
            assert_eq!((programs.run("takes_many"), programs.variable("reached")), (0, 1), "{turns}");
            let (ended, locks) = programs.ended();
            let released: Vec<u64> = locks.released().iter().map(|released| released.lock).collect();
            let expected: Vec<u64> = (0..8).rev().map(|number| programs.lock_address(number)).collect();
            assert_eq!((ended.why, released), (Why::Locks, expected));
        }
        programs.set("turns", 40);
        assert_eq!(programs.run("hands_over"), 7, "what is given back makes room");
        assert_eq!(programs.run("gives_back_what_it_has_not"), 10);
        assert_eq!(take_ended(&programs.object).unwrap(), []);
        programs.assert_free(&heap);
    }

    pub fn a_run_that_returns_with_a_lock_gives_it_back() {
        let programs = Programs::load(&["keeps"]);
        let heap = programs.heap();
        for _ in 0..20 {
            assert_eq!(programs.run("keeps"), 9, "what it returns");
            let (ended, locks) = programs.ended();
            let released: Vec<u64> = locks.released().iter().map(|released| released.lock).collect();
            assert_eq!((ended.why, released), (Why::Kept, vec![programs.both_address(), programs.lock_address(4)]));
            programs.assert_free(&heap);
        }
    }

    pub fn of_two_runs_that_wait_for_each_other_one_is_ended() {
        let programs = Programs::load(&["crosses", "crosses_back"]);
        let heap = programs.heap();
        // Before the kernel's limit of turns, also on a fast host.
        let deadline = Duration::from_millis(300);
        let mut in_time = 0;
        for round in 0.. {
            programs.set("first_of", 0);
            programs.set_deadline(Some(deadline));
            let begin = Instant::now();
            let (returned, is_in_time) = std::thread::scope(|scope| {
                let other = scope.spawn(|| {
                    pin(1);
                    programs.run("crosses")
                });
                pin(0);
                wait_for("the other one has its first lock", || programs.variable("first_of") & 1 == 1);
                // The other one has waited for a part of its time, and not for all of it: the host may be slow.
                std::thread::sleep(deadline / 8);
                let is_in_time = begin.elapsed() < deadline / 2;
                let own = programs.run("crosses_back");
                ([other.join().unwrap(), own], is_in_time)
            });
            let all = take_ended(&programs.object).unwrap();
            // A fast host may reach that limit first, in the run that has more of the host.
            if !is_in_time || all.iter().any(|ended| ended.why == Why::Turns) {
                assert!(round < 1000, "the other one was never in time: {all:?}");
                continue;
            }
            assert_eq!(returned, [0, 7], "round {round}: the one that began later goes on: {all:?}");
            let [ended] = all[..] else { panic!("{all:?}") };
            let locks = ended.locks.unwrap();
            assert!(locks.is_deadlock(), "{ended:?}");
            let (Some(Who::Run { cpu: 1, .. }), Some(Who::Run { cpu: 0, .. })) = (locks.run, locks.owner) else {
                panic!("{locks:?}")
            };
            assert_eq!(locks.waited, Some(programs.lock_address(1)));
            programs.set_deadline(None);
            programs.set("first_of", 0);
            programs.assert_free(&heap);
            in_time += 1;
            if in_time == 10 {
                break;
            }
        }
    }

    pub fn a_run_that_waits_for_the_one_below_it_is_ended() {
        let programs = Programs::load(&["is_interrupted", "interrupts"]);
        let heap = programs.heap();
        let above = programs.object.progs_mut().find(|program| program.name() == "interrupts").unwrap();
        let link = above.attach().unwrap();
        programs.set_deadline(Some(Duration::from_millis(300)));
        for round in 0..5 {
            pin(round % 2);
            assert_eq!(programs.run("is_interrupted"), 7, "the one below goes on");
            let all = take_ended(&programs.object).unwrap();
            let [.., ended] = all[..] else { panic!("round {round}: nobody was ended") };
            let locks = ended.locks.unwrap();
            let cpu = |who: Option<Who>| match who {
                Some(Who::Run { cpu, .. }) => cpu,
                other => panic!("{other:?}"),
            };
            // On a fast host, the kernel's limit of turns comes first.
            assert!(matches!(ended.why, Why::Deadline | Why::Turns), "{ended:?}");
            assert_eq!(locks.waited, Some(programs.lock_address(5)));
            assert!(locks.owner != locks.run, "{locks:?}");
            assert_eq!(cpu(locks.owner), round as u16 % 2);
            assert!(all.iter().any(|ended| cpu(ended.locks.unwrap().run) == round as u16 % 2), "{all:?}");
        }
        drop(link);
        programs.set_deadline(None);
        programs.assert_free(&heap);
    }

    /// What happened beside each other.
    #[derive(Default)]
    struct Beside {
        runs: u64,
        /// By CPU.
        finished: [u64; 2],
        ended: u64,
    }

    impl Beside {
        /// Runs both programs on two CPUs, and this in user space, until it was enough: how fast each of them is, is the
        /// host's. Every run has finished, or was ended.
        fn until(programs: &Programs, names: [&str; 2], user: impl Fn(u64), is_enough: impl Fn(&Self) -> bool) -> Self {
            const RUNS: usize = 1500;
            let mut all = Self::default();
            let before = unreported(&programs.object).unwrap();
            wait_for("enough runs finish, and are ended", || {
                let more = beside(programs, names, RUNS, &user);
                all.runs += 2 * RUNS as u64;
                all.finished = [0, 1].map(|cpu| all.finished[cpu] + more[cpu]);
                all.ended += take_ended(&programs.object).unwrap().len() as u64;
                is_enough(&all)
            });
            let ended = all.ended + unreported(&programs.object).unwrap() - before;
            assert_eq!(all.finished[0] + all.finished[1] + ended, all.runs);
            all
        }
    }

    /// Runs both programs so often. Returns how many runs finished.
    fn beside(programs: &Programs, names: [&str; 2], runs: usize, user: impl Fn(u64)) -> [u64; 2] {
        let (finished, done) = ([0, 1].map(|_| AtomicU64::new(0)), AtomicU64::new(0));
        std::thread::scope(|scope| {
            for (cpu, name) in names.into_iter().enumerate() {
                let (finished, done) = (&finished, &done);
                scope.spawn(move || {
                    pin(cpu);
                    for _ in 0..runs {
                        let returned = programs.run(name);
                        assert!(matches!(returned, 0 | 7), "{name}: {returned}");
                        finished[cpu].fetch_add(u64::from(returned == 7), Ordering::SeqCst);
                    }
                    done.fetch_add(1, Ordering::SeqCst);
                });
            }
            for turn in 0.. {
                user(turn);
                if done.load(Ordering::SeqCst) == 2 {
                    break;
                }
            }
        });
        finished.map(AtomicU64::into_inner)
    }

    pub fn nobody_is_inside_with_somebody_else() {
        let programs = Programs::load(&["counts", "writes", "reads"]);
        let heap = programs.heap();
        programs.set_deadline(Some(SHORT));
        let (own, word) = (AtomicU64::new(0), heap.word(programs.both_address() + RW_LOCK_BYTES).unwrap());
        let count = || {
            let counter = word.load(Ordering::SeqCst);
            std::thread::yield_now();
            word.store(counter + 1, Ordering::SeqCst);
            own.fetch_add(1, Ordering::SeqCst);
        };
        let count_in_turn = |turn| {
            let guard = programs.lock(&heap, 0).take(LONG).unwrap().unwrap();
            count();
            // Now and then longer than runs wait.
            if turn % 32 == 0 {
                std::thread::sleep(SHORT * 3);
            }
            drop(guard);
        };
        let enough = |all: &Beside| all.ended > 0 && all.finished.iter().all(|finished| *finished > 400);
        let [first, second] = Beside::until(&programs, ["counts", "counts"], count_in_turn, enough).finished;
        assert_eq!(programs.counter(&heap), first + second + own.load(Ordering::SeqCst), "{first}, {second}");
        let before = programs.counter(&heap) - own.load(Ordering::SeqCst);
        let read_or_write = |turn| {
            let both = programs.both(&heap);
            let guard = if turn % 2 == 0 { both.write(LONG) } else { both.read(LONG) }.unwrap().unwrap();
            if turn % 2 == 0 {
                count();
            } else {
                let counter = word.load(Ordering::SeqCst);
                std::thread::yield_now();
                assert_eq!(word.load(Ordering::SeqCst), counter, "nobody writes beside a reader");
            }
            drop(guard);
        };
        let enough = |all: &Beside| all.finished.iter().all(|finished| *finished > 100);
        let [wrote, _] = Beside::until(&programs, ["writes", "reads"], read_or_write, enough).finished;
        assert_eq!(
            (programs.counter(&heap) - own.load(Ordering::SeqCst), programs.variable("wrong")),
            (before + wrote, 0)
        );
        programs.set_deadline(None);
        programs.assert_free(&heap);
    }

    /// What is in the table, as user space finds it.
    fn table(programs: &Programs, heap: &Heap<'_>) -> HashMap<u64, u64> {
        let word = |address: u64| heap.word(address).unwrap().load(Ordering::SeqCst);
        let hash = programs.variable("hash");
        let mut found = HashMap::new();
        for bucket in 0..1 << (64 - word(hash)) {
            let mut item = word(hash + 16 + 8 * bucket);
            while item != 0 {
                assert!(found.insert(word(item + 8), word(item + 16)).is_none(), "a key is there once");
                item = word(item);
            }
        }
        assert_eq!(found.len() as u64, word(hash + 8), "the length");
        found
    }

    pub fn a_table_that_all_change_is_right_at_the_end() {
        let programs = Programs::load(&["changes"]);
        let heap = programs.heap();
        programs.set_deadline(Some(SHORT));
        let (hash, changed) = (programs.variable("hash"), AtomicU64::new(0));
        let change = |turn: u64| {
            let key = turn % 64;
            let guard = programs.lock(&heap, 6).take(LONG).unwrap().unwrap();
            // It is right whenever somebody has the lock.
            let there = table(&programs, &heap);
            if !there.contains_key(&key) {
                let word = |address: u64| heap.word(address).unwrap();
                let bucket = hash + 16 + 8 * (key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 60);
                let item = heap.allocate(24).unwrap();
                let first = word(bucket).load(Ordering::SeqCst);
                [first, key, turn << 8 | key].into_iter().enumerate().for_each(|(number, value)| {
                    word(item + 8 * number as u64).store(value, Ordering::SeqCst);
                });
                word(bucket).store(item, Ordering::SeqCst);
                std::thread::yield_now();
                word(hash + 8).fetch_add(1, Ordering::SeqCst);
                changed.fetch_add(1, Ordering::SeqCst);
            }
            if turn % 32 == 0 {
                std::thread::sleep(SHORT * 3);
            }
            drop(guard);
        };
        let enough = |all: &Beside| all.ended > 0 && changed.load(Ordering::SeqCst) > 20;
        Beside::until(&programs, ["changes", "changes"], change, enough);
        let there = table(&programs, &heap);
        assert!(there.len() > 5 && there.iter().all(|(key, value)| *key < 64 && value & 0xff == *key), "{there:?}");
        programs.set_deadline(None);
        programs.assert_free(&heap);
    }

    /// A thread that takes this and ends. Returns its number when it is gone.
    fn dies(take: impl FnOnce() -> bool + Send) -> u32 {
        let Who::Thread(number) = std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                assert!(take());
                own_thread()
            });
            thread.join().unwrap()
        }) else {
            panic!("no thread")
        };
        while Path::new(&format!("/proc/{number}")).exists() {
            std::thread::yield_now();
        }
        number
    }

    pub fn locks_of_a_dead_thread_are_found_and_broken() {
        let programs = Programs::load(&["waits", "waits_to_write"]);
        let heap = programs.heap();
        programs.set_deadline(Some(SHORT));
        let alive = programs.lock(&heap, 3).take(LONG).unwrap().unwrap();
        for round in 0..5 {
            let keep = |guard: Option<xk_flex::LockGuard<'_>>| guard.map(std::mem::forget).is_some();
            let holder = dies(|| keep(programs.lock(&heap, 0).take(LONG).unwrap()));
            let reader = dies(|| keep(programs.both(&heap).read(LONG).unwrap()));
            assert_eq!((programs.run("waits"), programs.run("waits_to_write")), (0, 0), "round {round}");
            let owners: Vec<_> =
                take_ended(&programs.object).unwrap().iter().map(|ended| ended.locks.unwrap().owner.unwrap()).collect();
            assert_eq!(owners, [Who::Thread(holder), Who::Thread(reader)], "round {round}");
            let mut broken = heap.break_locks_of_dead();
            broken.sort_by_key(|broken| broken.lock);
            let held = true;
            let expected = [
                Broken { lock: programs.lock_address(0), thread: holder, held },
                Broken { lock: programs.both_address(), thread: reader, held },
            ];
            assert_eq!(broken, expected, "round {round}");
            assert_eq!((programs.run("waits"), programs.run("waits_to_write")), (7, 7), "round {round}");
            assert_eq!(heap.break_locks_of_dead(), [], "the living keep theirs");
            assert_eq!(programs.lock(&heap, 3).owner(), Some(own_thread()));
        }
        drop(alive);
        programs.set_deadline(None);
        programs.assert_free(&heap);
    }
}
