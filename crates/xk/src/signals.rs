//! Signals that ask a command to end. They are blocked while constants are changed; `xk set --hold` waits for them, as `xk
//! probe` does; `xk top` and `xk tune` poll them.

use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// What a terminal, a shell or a service manager sends to end a program.
const ENDING: [libc::c_int; 3] = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP];

fn ending() -> libc::sigset_t {
    let mut set = MaybeUninit::uninit();
    // SAFETY: sigemptyset writes the whole set before it is read.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        let mut set = set.assume_init();
        for signal in ENDING {
            libc::sigaddset(std::ptr::from_mut(&mut set), signal);
        }
        set
    }
}

/// Lets a closed pipe end the program without a message, as for other tools.
pub fn end_on_closed_pipe() {
    // SAFETY: no other thread runs yet, and the default action needs no handler.
    unsafe {
        libc::signal(libc::SIGPIPE, libc::SIG_DFL);
    }
}

/// Blocks the signals for the rest of the process; [`wait`] accepts them.
pub fn hold_back() {
    let set = ending();
    // SAFETY: `set` is initialised and outlives the call.
    unsafe {
        libc::pthread_sigmask(libc::SIG_BLOCK, std::ptr::from_ref(&set), std::ptr::null_mut());
    }
}

/// Whether one of the signals has arrived; they must be blocked.
pub fn came() -> bool {
    came_within(Duration::ZERO)
}

/// Waits for one of the signals, at most for this time, and returns whether one has arrived; they must be blocked.
pub fn came_within(time: Duration) -> bool {
    let set = ending();
    let seconds = libc::time_t::try_from(time.as_secs()).unwrap_or(libc::time_t::MAX);
    let time = libc::timespec { tv_sec: seconds, tv_nsec: time.subsec_nanos().into() };
    // SAFETY: both pointers are valid for the call, and nothing is written without a third.
    unsafe { libc::sigtimedwait(std::ptr::from_ref(&set), std::ptr::null_mut(), std::ptr::from_ref(&time)) > 0 }
}

/// Waits for one of the signals; they must be blocked.
pub fn wait() {
    let set = ending();
    let mut signal = 0;
    // SAFETY: both pointers are valid; an invalid set is the only error.
    unsafe {
        libc::sigwait(std::ptr::from_ref(&set), std::ptr::from_mut(&mut signal));
    }
}

/// Blocks the signals, and returns a flag that is set when one of them arrives: for work that ends at safe points only.
pub fn flag() -> &'static AtomicBool {
    static CAME: AtomicBool = AtomicBool::new(false);
    hold_back();
    std::thread::spawn(|| {
        wait();
        CAME.store(true, Ordering::Relaxed);
    });
    &CAME
}
