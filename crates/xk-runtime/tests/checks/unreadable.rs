//! Threads whose stacks can never be read.

use crate::*;

/// A process that sleeps behind a function that no unwinder knows: in no span, or inside one.
fn hidden(inside: bool) -> Holder {
    let (ms, function) = if inside { (600_000, "xk_atomic_hold") } else { (0, "xk_atomic_rest") };
    Holder::running(&format!("echo hide {ms} >/proc/xk_atomic"), function)
}

fn refusal(result: Result<(), Error>) -> String {
    result.expect_err("a thread that is to be waited for").to_string()
}

/// It counts as inside for ever, unless it is named.
pub fn a_thread_whose_stack_cannot_be_read_blocks_until_it_is_named() {
    for mode in [Mode::Global, Mode::Task] {
        let hidden = hidden(false);
        let pid = i32::try_from(hidden.pid()).unwrap();
        let tune = load("HOLD");
        let (_, _, report) = blocked(tune.go(Destination::Value(TUNED), mode, BRIEF));
        assert!(report.contains(&format!("{pid} (sh): its stack cannot be read")), "{report}");
        assert_eq!(outside(), DEFAULT);

        tune.ignore(pid).unwrap();
        tune.ignore(pid).unwrap();
        assert_eq!(tune.status().unwrap().ignored, [pid]);
        let log = klog();
        let sentence = format!("HOLD:0: thread {pid} (sh) is ignored, because its stack cannot be read");
        assert_eq!(log.matches(&sentence).count(), 1, "{sentence}: {log}");
        tune.go(Destination::Value(TUNED), mode, LONG).unwrap();
        assert_eq!((outside(), state()), (TUNED, Some(State::Stable)));
        // Everybody else is waited for as before.
        let other = Holder::new();
        let (_, _, report) = blocked(tune.go(Destination::Value(5), mode, BRIEF));
        names(&report, other.pid());
        assert!(!report.contains("cannot be read"), "{report}");
        drop(other);
        // It is remembered: the end of the tune waits for nobody, either.
        drop(tune);
        wait_for("it has gone", || only_tune().is_none());
        assert_eq!(outside(), DEFAULT);
    }
}

/// A transition that waits, or an end of which nobody is told, goes on.
pub fn it_may_be_named_while_it_is_waited_for() {
    let hidden = hidden(false);
    let device = Device::open().unwrap();
    let tune = load("HOLD");
    let id = tune.id();
    let transition = super::blocking::beside(tune, Mode::Task, LONG);
    wait_for("everybody else goes over", || outside() == TUNED);
    wait_for("it is waited for", || only_tune().is_some_and(|tune| tune.blocking == 1));
    // The descriptor that loaded it is another one.
    assert!(matches!(device.ignore(id, hidden.pid() as i32), Err(Error::Owned(_))));
    drop(hidden);
    let (tune, done) = transition.join().unwrap();
    done.unwrap();

    let hidden = self::hidden(false);
    drop(tune);
    wait_for("everybody else has left", || outside() == DEFAULT);
    std::thread::sleep(BRIEF);
    assert_eq!(state(), Some(State::Unloading));
    device.ignore(id, hidden.pid() as i32).unwrap();
    wait_for("it has gone", || only_tune().is_none());
    assert_eq!(outside(), DEFAULT);
}

pub fn no_other_thread_can_be_left_out() {
    let tune = load("HOLD");
    let ignore = |thread: u32| tune.ignore(thread as i32);
    let holder = Holder::new();
    let refused = refusal(ignore(holder.pid()));
    assert!(refused.contains(&format!("the stack of thread {} (sh) can be read", holder.pid())), "{refused}");
    assert!(refusal(ignore(u32::MAX / 4)).contains("there is no thread"));
    assert_eq!(tune.status().unwrap().ignored, [0; 0]);
    drop(holder);

    // What can be read of the stack is inside: it is waited for, whatever was said.
    let inside = hidden(true);
    ignore(inside.pid()).unwrap();
    for mode in [Mode::Global, Mode::Task] {
        let (_, _, report) = blocked(tune.go(Destination::Value(TUNED), mode, BRIEF));
        names(&report, inside.pid());
    }
    drop(inside);
    tune.go(Destination::Value(TUNED), Mode::Global, LONG).unwrap();
    // Who has ended is forgotten.
    assert_eq!(tune.status().unwrap().ignored, [0; 0]);
    tune.unload().unwrap();

    // No thread may be in the middle of instructions that change.
    let hidden = hidden(false);
    for backend in [Backend::Auto, Backend::Detour, Backend::Patch] {
        let table = table(&file(ATOMIC_KO), &family("HOLD").unwrap()).unwrap();
        let Ok(tune) = Device::open().unwrap().load_by(&table, &Loaded, backend) else { continue };
        let refused = refusal(tune.ignore(hidden.pid() as i32));
        assert!(refused.contains("its instructions change"), "{backend:?}: {refused}");
    }
}
