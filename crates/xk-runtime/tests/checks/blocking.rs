//! Threads that are inside, and what becomes of a transition that meets them.

use std::sync::{mpsc, Arc, Barrier};
use std::thread::JoinHandle;
use std::time::Instant;

use xk_harness::Flipper;
use xk_runtime::{Outcome, Transition};

use crate::*;

pub fn a_sleeping_thread_blocks_a_global_transition() {
    let tune = load("HOLD");
    let holder = Holder::new();
    let (outcome, reason, report) = blocked(tune.go(Destination::Value(TUNED), Mode::Global, BRIEF));
    assert_eq!(outcome, Outcome::Unchanged);
    assert!(reason.contains(&format!("{} (sh)", holder.pid())), "{reason}");
    names(&report, holder.pid());
    assert_eq!(outside(), DEFAULT);
    let status = tune.status().unwrap();
    assert_eq!((status.state, status.value, status.blocking), (State::Stable, DEFAULT, 0));
    assert_eq!(holder.release(), [DEFAULT; 2]);
    assert_eq!(outside(), DEFAULT);
    // Nothing was left that would be in the way.
    tune.go(Destination::Value(TUNED), Mode::Global, LONG).unwrap();
    assert_eq!(outside(), TUNED);
}

/// A transition in another thread; its tune comes back with what came of it.
pub(super) fn beside(tune: Tune, mode: Mode, timeout: Duration) -> JoinHandle<(Tune, Result<Transition, Error>)> {
    std::thread::spawn(move || {
        let result = tune.go(Destination::Value(TUNED), mode, timeout);
        (tune, result)
    })
}

pub fn nobody_sees_a_global_value_before_all_have_left() {
    let first = Holder::new();
    let transition = beside(load("HOLD"), Mode::Global, LONG);
    wait_for("the transition waits", || only_tune().is_some_and(|tune| tune.blocking == 1));
    assert_eq!(state(), Some(State::Changing));
    names(&only_tune().unwrap().blockers, first.pid());
    let second = Holder::new();
    assert_eq!(outside(), DEFAULT);
    assert!(!transition.is_finished());
    assert_eq!(first.release(), [DEFAULT; 2]);
    drop(second);
    let (_tune, done) = transition.join().unwrap();
    assert!(done.unwrap().stops >= 1);
    assert_eq!(outside(), TUNED);
}

/// Threads of this process that sleep until this is dropped.
struct Sleepers(Arc<Barrier>);

impl Sleepers {
    fn new(number: usize) -> Self {
        // A kernel with large stacks allows fewer by itself.
        fs::write("/proc/sys/kernel/threads-max", (2 * number).to_string()).unwrap();
        let barrier = Arc::new(Barrier::new(number + 1));
        for _ in 0..number {
            let barrier = Arc::clone(&barrier);
            let sleeper = std::thread::Builder::new().stack_size(16 << 10);
            sleeper.spawn(move || barrier.wait().is_leader()).unwrap();
        }
        Self(barrier)
    }
}

impl Drop for Sleepers {
    fn drop(&mut self) {
        self.0.wait();
    }
}

/// For how long everybody waits for one thread.
const WATCHED: Duration = Duration::from_secs(30);

/// It is looked for without a stop. When it has left, one is enough.
pub fn ten_thousand_threads_are_not_stopped_for_one_that_is_inside() {
    let _sleepers = Sleepers::new(10_000);
    let tune = load("HOLD");
    let holder = Holder::new();
    let device = Device::open().unwrap();
    let before = device.stops().unwrap();
    let transition = beside(tune, Mode::Global, LONG);
    wait_for("the transition waits", || only_tune().is_some_and(|tune| tune.blocking == 1));
    std::thread::sleep(WATCHED);
    assert_eq!(device.stops().unwrap().number, before.number);
    assert_eq!(holder.release(), [DEFAULT; 2]);
    let (tune, done) = transition.join().unwrap();
    let after = device.stops().unwrap();
    assert_eq!((done.unwrap().stops, after.number - before.number), (1, 1));
    let (stopped, time) = (after.total - before.total, after.since - before.since);
    println!("10,000 threads: stopped for {stopped:?} of {time:?}, {} stacks", after.stacks - before.stacks);
    // The promise is 0.1 % of the time. A busy host may stretch the one stop, but not tenfold.
    assert!(time >= WATCHED && stopped * 100 <= time, "{stopped:?} of {time:?}");
    // How long a stop is depends on whom it looks at: those who have run since the look before it.
    assert!(after.stacks - before.stacks <= 100, "{} stacks", after.stacks - before.stacks);

    // The end of a tune waits for whoever is inside in the same way.
    let holder = Holder::new();
    let before = device.stops().unwrap();
    drop(tune);
    wait_for("it is being unloaded", || only_tune().is_some_and(|tune| tune.blocking == 1));
    std::thread::sleep(Duration::from_secs(2));
    assert_eq!(device.stops().unwrap().number, before.number);
    assert_eq!(holder.release(), [TUNED; 2]);
    wait_for("it has gone", || only_tune().is_none());
    assert_eq!(outside(), DEFAULT);
}

pub fn a_stale_thread_keeps_its_value_and_goes_over() {
    let holder = Holder::new();
    let transition = beside(load("HOLD"), Mode::Task, LONG);
    wait_for("everybody else goes over", || outside() == TUNED);
    let status = only_tune().unwrap();
    assert_eq!((status.state, status.value, status.blocking), (State::Changing, TUNED, 1));
    names(&status.blockers, holder.pid());
    // A new one has the new value from the start.
    let late = Holder::new();
    assert!(!transition.is_finished());
    let pid = late.pid();
    assert!(!only_tune().unwrap().blockers.contains(&format!("{pid} ")), "who came later is not waited for");
    Atomic.tell("release").unwrap();
    let (mut holder, mut late) = (holder, late);
    assert!(holder.0.wait().unwrap().success() && late.0.wait().unwrap().success());
    held();
    let (_tune, done) = transition.join().unwrap();
    assert!(done.unwrap().stops > 1);
    assert_eq!((outside(), state()), (TUNED, Some(State::Stable)));
    let holder = Holder::new();
    assert_eq!(holder.release(), [TUNED; 2]);
}

pub fn a_blocked_task_transition_turns_around() {
    let tune = load("HOLD");
    let holder = Holder::new();
    let (outcome, _, report) = blocked(tune.go(Destination::Value(TUNED), Mode::Task, BRIEF));
    assert_eq!(outcome, Outcome::Unchanged);
    names(&report, holder.pid());
    let status = tune.status().unwrap();
    assert_eq!((outside(), status.value, status.state), (DEFAULT, DEFAULT, State::Stable));
    assert_eq!(holder.release(), [DEFAULT; 2]);
    assert_eq!(outside(), DEFAULT);
    tune.go(Destination::Value(TUNED), Mode::Task, LONG).unwrap();
    assert_eq!(outside(), TUNED);
}

/// Seconds for which a transition may wait, while other things must be done: more, until they are done in time.
const BOUNDS: [u64; 4] = [2, 8, 32, 128];

/// Ends all holders. The transition that they were in the way of is over, one way or the other.
fn release_all<const N: usize>(holders: [Holder; N]) {
    Atomic.tell("release").unwrap();
    holders.into_iter().for_each(|mut holder| assert!(holder.0.wait().unwrap().success()));
    held();
    wait_for("it has turned around", || state() == Some(State::Stable));
    assert_eq!(outside(), DEFAULT);
}

pub fn who_came_with_the_new_value_keeps_it_when_it_turns_around() {
    let mut tune = load("HOLD");
    for bound in BOUNDS.map(Duration::from_secs) {
        let (begin, old) = (Instant::now(), Holder::new());
        let transition = beside(tune, Mode::Task, bound);
        wait_for("everybody else goes over", || outside() == TUNED || transition.is_finished());
        let new = Holder::new();
        let is_in_time = begin.elapsed() < bound;
        let (same, result) = transition.join().unwrap();
        if !is_in_time {
            release_all([old, new]);
            tune = same;
            continue;
        }
        let (outcome, reason, report) = blocked(result);
        // Who was in the way, and who is.
        assert!(reason.contains(&format!("{} (sh)", old.pid())), "{reason}");
        names(&report, new.pid());
        assert_eq!(outcome, Outcome::Reverting);
        let status = only_tune().unwrap();
        assert_eq!((outside(), status.value, status.state), (DEFAULT, DEFAULT, State::Reverting));
        assert_eq!(status.blocking, 1);
        names(&status.blockers, new.pid());
        assert!(!status.blockers.contains(&format!("{} (sh)", old.pid())), "{}", status.blockers);
        // The state is none in which something else may begin.
        assert!(matches!(Device::open().unwrap().set(status.id, 5), Err(Error::Busy(_) | Error::Owned(_))));
        release_all([old, new]);
        return;
    }
    panic!("a thread never entered in time");
}

/// A handler that only ends system calls.
fn interruptible() {
    extern "C" fn nothing(_: libc::c_int) {}
    // SAFETY: the handler does nothing, and the structure is filled.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = nothing as extern "C" fn(libc::c_int) as usize;
        assert_eq!(libc::sigaction(libc::SIGUSR1, &action, std::ptr::null_mut()), 0);
    }
}

pub fn an_interrupted_transition_leaves_the_old_value() {
    interruptible();
    for mode in [Mode::Global, Mode::Task] {
        let tune = load("HOLD");
        let holder = Holder::new();
        std::thread::scope(|scope| {
            let (send, receive) = mpsc::channel();
            let waiting = scope.spawn(move || {
                // SAFETY: has no arguments, and cannot fail.
                send.send(unsafe { libc::pthread_self() }).unwrap();
                let result = tune.go(Destination::Value(TUNED), mode, LONG);
                (tune, result)
            });
            let thread = receive.recv().unwrap();
            wait_for("the transition waits", || only_tune().is_some_and(|tune| tune.blocking == 1));
            // SAFETY: the thread is not joined yet.
            assert_eq!(unsafe { libc::pthread_kill(thread, libc::SIGUSR1) }, 0);
            let (tune, result) = waiting.join().unwrap();
            let (outcome, reason, report) = blocked(result);
            assert!(reason.contains("interrupted"), "{reason}");
            names(&report, holder.pid());
            assert_eq!(outcome, Outcome::Unchanged);
            assert_eq!((outside(), tune.status().unwrap().state), (DEFAULT, State::Stable));
        });
        assert_eq!(holder.release(), [DEFAULT; 2]);
    }
}

pub fn a_transition_waits_for_nobody_in_mode_now() {
    let tune = load("HOLD");
    let mut holder = Holder::new();
    assert_eq!(tune.go(Destination::Value(TUNED), Mode::Now, Duration::ZERO).unwrap().stops, 0);
    assert_eq!(outside(), TUNED);
    Atomic.tell("release").unwrap();
    assert!(holder.0.wait().unwrap().success());
    // And this is what it does not promise.
    let hold = Atomic.counts().unwrap().span("hold");
    assert_eq!((hold.violations, hold.last), (1, [DEFAULT, TUNED]));
}

/// Nothing could be mixed: who is inside need not leave.
pub fn a_transition_to_the_value_in_force_waits_for_nobody() {
    let families = [family("HOLD").unwrap(), family("BALANCE").unwrap()];
    let both = Flipper::load(&file(ATOMIC_KO), &families).unwrap();
    let hold = &both.tunes()[0];
    hold.go(Destination::Value(TUNED), Mode::Global, LONG).unwrap();
    let holder = Holder::new();
    for mode in [Mode::Task, Mode::Global] {
        assert_eq!(hold.go(Destination::Value(TUNED), mode, Duration::ZERO).unwrap().stops, 0, "{mode}");
        assert_eq!((outside(), state()), (TUNED, Some(State::Stable)));
    }
    // All of them change as one: with another that changes, it waits.
    names(&blocked(both.to(TUNED, Mode::Global, BRIEF)).2, holder.pid());
    assert_eq!(holder.release(), [TUNED; 2]);
    hold.go(Destination::Value(DEFAULT), Mode::Global, LONG).unwrap();
    let holder = Holder::new();
    assert_eq!(hold.go(Destination::Unload, Mode::Global, Duration::ZERO).unwrap().stops, 0);
    assert_eq!(holder.release(), [DEFAULT; 2]);
}

/// Nobody can be looked at then, so nothing changes; nor is anything given up.
pub fn a_transition_goes_on_when_there_is_memory_again() {
    faulty::insmod_faulty();
    let before = faulty::held();
    let holder = Holder::new();
    let transition = beside(load("HOLD"), Mode::Task, LONG);
    wait_for("everybody else goes over", || outside() == TUNED);
    faulty::starve(1, true);
    assert_eq!(holder.release(), [DEFAULT; 2]);
    wait_for("it is tried", || faulty::failed() > 3);
    assert!(!transition.is_finished());
    assert_eq!(outside(), TUNED);
    faulty::feed();
    let (tune, done) = transition.join().unwrap();
    done.unwrap();
    assert_eq!((outside(), tune.status().unwrap().value), (TUNED, TUNED));
    tune.unload().unwrap();
    faulty::holds(before);
}

/// The bound is met, and there is no memory to turn round with, either.
pub fn it_turns_round_when_there_is_memory_again() {
    faulty::insmod_faulty();
    let before = faulty::held();
    let mut tune = load("HOLD");
    for bound in BOUNDS.map(Duration::from_secs) {
        let (begin, holder) = (Instant::now(), Holder::new());
        let transition = beside(tune, Mode::Task, bound);
        wait_for("everybody else goes over", || outside() == TUNED || transition.is_finished());
        faulty::starve(1, true);
        if begin.elapsed() >= bound {
            faulty::feed();
            tune = transition.join().unwrap().0;
            release_all([holder]);
            continue;
        }
        let (tune, result) = transition.join().unwrap();
        let (outcome, _, report) = blocked(result);
        assert_eq!(outcome, Outcome::Reverting);
        names(&report, holder.pid());
        assert_eq!(outside(), TUNED);
        faulty::feed();
        wait_for("it has turned round", || state() == Some(State::Stable));
        assert_eq!((outside(), tune.status().unwrap().value), (DEFAULT, DEFAULT));
        assert_eq!(holder.release(), [DEFAULT; 2]);
        tune.unload().unwrap();
        return faulty::holds(before);
    }
    panic!("memory never ran out in time");
}
