//! Locks of the heap, executed by a plain interpreter: wherever a run is ended, it has given back all of them.

#![allow(clippy::unwrap_used, clippy::expect_used)] // a test

use xk_flex::{load, rewrite, Choice, Done, Error};

// Other tests use the rest of it.
#[allow(dead_code)]
#[path = "interpreter/mod.rs"]
mod interpreter;

use interpreter::{run_in, Control, End, Ran};

/// `XK_HEAP_ADDRESS`, and where the locks are: as `LOCK(number)` and `BOTH` of the programs.
const HEAP: u64 = 1 << 44;
const LOCKS: u64 = HEAP + 0x40000;
const LOCK_BYTES: u64 = 80;
const BOTH: u64 = LOCKS + 10 * LOCK_BYTES;
/// A thread, in a place for a ticket.
const SOMEBODY: u64 = 1 << 39 | 77;

fn compile(text: &str, level: &str) -> Vec<u8> {
    let prelude = "typedef unsigned long long __u64; typedef long long __s64; typedef unsigned int __u32;\n\
        typedef int __s32; typedef unsigned char __u8;\n#include \"xk_flex.bpf.h\"\n#include \"flex/lock.h\"\n\
        #define SEC(name) __attribute__((section(name), used))\n\
        #define NOINLINE static __attribute__((noinline))\n\
        #define LOCK(number) ((struct xk_lock __heap *)(XK_HEAP_ADDRESS + 0x40000 + 80 * (number)))\n\
        #define BOTH ((struct xk_rwlock __heap *)LOCK(10))\n\
        #define FOREVER for (__u64 n = 1;; n++) { asm volatile(\"\" : \"+r\"(n)); if (n == 0) break; }\n\
        XK_HEAP(16384);\n";
    interpreter::compile(prelude, text, level)
}

fn word(ran: &Ran, at: u64) -> u64 {
    (0..8).map(|byte| u64::from(ran.memory.get(&(at + byte)).copied().unwrap_or(0)) << (8 * byte)).sum()
}

/// Who has a lock: what is in the place of the ticket `now`, if that is of its round.
fn owner(ran: &Ran, lock: u64) -> u64 {
    let now = word(ran, lock + 8);
    let place = word(ran, lock + 16 + now % 8 * 8);
    if place >> 40 == now / 8 {
        place & ((1 << 40) - 1)
    } else {
        0
    }
}

/// Nobody of the run has a lock, or a ticket, or reads. `somebody` has the first lock, if he had it before.
fn assert_free(ran: &Ran, somebody: bool, what: &str) {
    for number in 0..11 {
        let lock = LOCKS + number * LOCK_BYTES;
        let has_somebody = somebody && number == 0;
        assert_eq!(owner(ran, lock), if has_somebody { SOMEBODY } else { 0 }, "lock {number}, {what}");
        for place in 0..8 {
            let who = word(ran, lock + 16 + 8 * place) & ((1 << 40) - 1);
            assert!(who == 0 || who == SOMEBODY && has_somebody, "a ticket of lock {number}, {what}");
        }
        if !has_somebody {
            assert_eq!(word(ran, lock), word(ran, lock + 8), "tickets of lock {number}, {what}");
        }
    }
    (0..16).for_each(|reader| assert_eq!(word(ran, BOTH + LOCK_BYTES + 8 * reader), 0, "reader {reader}, {what}"));
}

/// Runs it with every deadline up to one after which it has done everything, and checks that all is given back. Returns
/// how often it was ended, and by how many looks.
fn ended_everywhere(text: &str, somebody: bool) -> (usize, usize) {
    let memory = if somebody { vec![(LOCKS, 1), (LOCKS + 16, SOMEBODY)] } else { Vec::new() };
    let (mut ended, mut looks) = (0, std::collections::BTreeSet::new());
    for level in ["-O2", "-O1"] {
        let new = rewrite(&compile(text, level), &Choice::default()).unwrap_or_else(|error| panic!("{error}\n{text}"));
        for deadline in 1..2500 {
            let control = Control { deadline, interval: 1, ..Control::default() };
            let ran = run_in(&new.bytes, 1, control, 100_000, &memory);
            assert!(matches!(ran.end, End::Returned(_)), "{deadline}: {:?}\n{text}", ran.end);
            if let Some((look, why)) = ran.ended {
                assert_eq!(why, 1, "the deadline\n{text}");
                (ended, _) = (ended + 1, looks.insert((level, look)));
            }
            assert_free(&ran, somebody, text);
        }
    }
    (ended, looks.len())
}

#[test]
fn wherever_a_run_is_ended_it_has_given_back_its_locks() {
    let program = |body: &str| {
        format!(
            "NOINLINE int take(__u64 n) {{ xk_lock(LOCK(n)); return xk_trylock(LOCK(n + 1)); }}\n\
             NOINLINE __u64 wait(__u64 n) {{ FOREVER return n; }}\n\
             SEC(\"tc\") int f(__u64 n) {{ {body} return 5; }}"
        )
    };
    for body in [
        "xk_lock(LOCK(1)); FOREVER xk_unlock(LOCK(1));",
        "xk_lock(LOCK(1)); xk_lock(LOCK(2)); xk_unlock(LOCK(1)); FOREVER xk_unlock(LOCK(2));",
        "take(1); wait(n); xk_unlock(LOCK(1)); xk_unlock(LOCK(2));",
        "for (int i = 0; i < 30; i++) { xk_lock(LOCK(i % 10)); xk_lock(LOCK((i + 1) % 10));\n\
         xk_unlock(LOCK(i % 10)); xk_unlock(LOCK((i + 1) % 10)); } FOREVER",
        "xk_read_lock(BOTH); xk_lock(LOCK(3)); FOREVER xk_unlock(LOCK(3)); xk_read_unlock(BOTH);",
        "xk_lock(LOCK(3)); xk_write_lock(BOTH); FOREVER xk_write_unlock(BOTH); xk_unlock(LOCK(3));",
        "xk_lock(LOCK(1)); xk_lock(LOCK(1));",
        "xk_read_lock(BOTH); xk_write_lock(BOTH);",
    ] {
        let (ended, looks) = ended_everywhere(&program(body), false);
        assert!(ended > 2000 && looks >= 2, "{ended} times by {looks} looks\n{body}");
    }
    for body in ["xk_lock(LOCK(4)); xk_lock(LOCK(0)); xk_unlock(LOCK(0));", "take(9); xk_lock(LOCK(0));"] {
        let (ended, looks) = ended_everywhere(&program(body), true);
        assert!(ended > 4000 && looks >= 2, "{ended} times by {looks} looks\n{body}");
    }
}

#[test]
fn a_program_that_returns_gives_back_what_it_kept() {
    for (body, why) in [
        ("xk_lock(LOCK(1)); return 9;", Some(5)),
        ("if (n) { xk_lock(LOCK(1)); xk_read_lock(BOTH); return 9; } return 8;", Some(5)),
        ("xk_lock(LOCK(1)); xk_unlock(LOCK(1)); return 9;", None),
        ("return xk_trylock(LOCK(1)) ? 9 : 8;", Some(5)),
    ] {
        let new =
            rewrite(&compile(&format!("SEC(\"tc\") int f(__u64 n) {{ {body} }}"), "-O2"), &Choice::default()).unwrap();
        let ran = run_in(&new.bytes, 1, Control { interval: 64, ..Control::default() }, 10_000, &[]);
        assert_eq!((ran.end, ran.ended.map(|(_, why)| why)), (End::Returned(9), why), "{body}");
        if let Some((look, _)) = ran.ended {
            assert!(new.looks[look as usize].returns, "{:?}", new.looks);
        }
        assert_free(&ran, false, body);
    }
    let many = "SEC(\"tc\") int f(__u64 n) { for (int i = 0; i < 9; i++) xk_lock(LOCK(i)); return 9; }";
    let new = rewrite(&compile(many, "-O2"), &Choice::default()).unwrap();
    let ran = run_in(&new.bytes, 1, Control { interval: 64, ..Control::default() }, 10_000, &[]);
    assert_eq!((ran.end, ran.ended.map(|(_, why)| why)), (End::Returned(0), Some(4)));
    assert_free(&ran, false, many);
}

fn refused(text: &str) -> String {
    rewrite(&compile(text, "-O2"), &Choice::default()).map(|_| ()).unwrap_err().to_string()
}

#[test]
fn what_would_lose_a_lock_is_refused() {
    let tail = "static long (*tail)(void *, void *, __u32) = (void *)12;\n\
        SEC(\"tc\") int f(__u64 *n) { xk_lock(LOCK(1));\ntail(n, n, 1); xk_unlock(LOCK(1)); return 0; }";
    let error = refused(tail);
    assert!(error.contains("f, test.bpf.c:3") && error.contains("a tail call or bpf_throw()"), "{error}");
    let callback = "static long (*each)(__u32, void *, void *, __u64) = (void *)181;\n\
        static long callback(__u64 at, void *context) { xk_unlock(LOCK(1)); return 0; }\n\
        SEC(\"tc\") int f(__u64 n) { xk_lock(LOCK(1)); each(3, callback, 0, 0); return 0; }";
    assert!(refused(callback).contains("uses locks of the heap"), "{}", refused(callback));
    let global = "__attribute__((noinline)) int g(__u64 n) { return xk_unlock(LOCK(n)); }\n\
        SEC(\"tc\") int f(__u64 n) { xk_lock(LOCK(n)); return g(n); }";
    assert!(refused(global).contains("make it static"), "{}", refused(global));
}

/// Loops that wait are instrumented whatever else is; those by which a run ends never are.
#[test]
fn loops_that_wait_look_and_loops_that_end_do_not() {
    let text = "SEC(\"tc\") int f(__u64 n) { xk_lock(LOCK(1)); xk_unlock(LOCK(1)); return 0; }";
    for all in [false, true] {
        let only = (!all).then(Default::default);
        let new = rewrite(&compile(text, "-O2"), &Choice { all, only, ..Choice::default() }).unwrap();
        let done = |name: &str| -> Vec<Done> {
            new.loops.iter().filter(|found| found.function == name).map(|found| found.done).collect()
        };
        let waits = done("xk_lock");
        assert!(!waits.is_empty() && waits.iter().all(|done| *done == Done::Instrumented), "{:?}", new.loops);
        assert!(
            new.loops.iter().all(|found| found.function == "xk_lock" || found.done == Done::Ends),
            "{:?}",
            new.loops
        );
        assert!(done("xk_lock_find").len() == 2 && !done("xk_lock_release").is_empty(), "{:?}", new.loops);
    }
    assert!(matches!(load(b"none", &Choice::default()), Err(Error::Object(_))));
}
