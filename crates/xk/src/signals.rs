//! Signals that ask a command to end: held back while several constants are
//! being changed, waited for by `xk set --hold`, looked for by `xk top` and `xk tune`.

use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicBool, Ordering};

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

/// A closed pipe ends the program in silence, as it does any other tool.
pub fn end_on_closed_pipe() {
    // SAFETY: no other thread runs yet, and the default action needs no handler.
    unsafe {
        libc::signal(libc::SIGPIPE, libc::SIG_DFL);
    }
}

/// Holds the signals back, for the rest of the process; [`wait`] takes them.
pub fn hold_back() {
    let set = ending();
    // SAFETY: `set` is initialised and outlives the call.
    unsafe {
        libc::pthread_sigmask(libc::SIG_BLOCK, std::ptr::from_ref(&set), std::ptr::null_mut());
    }
}

/// Whether one of the signals has come; they must be held back.
pub fn came() -> bool {
    let set = ending();
    let at_once = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: both pointers are valid for the call, and nothing is written without a third.
    unsafe { libc::sigtimedwait(std::ptr::from_ref(&set), std::ptr::null_mut(), std::ptr::from_ref(&at_once)) > 0 }
}

/// Waits until one of the signals comes; they must be held back.
pub fn wait() {
    let set = ending();
    let mut signal = 0;
    // SAFETY: both pointers are valid; an invalid set is the only error.
    unsafe {
        libc::sigwait(std::ptr::from_ref(&set), std::ptr::from_mut(&mut signal));
    }
}

/// Set when one of the signals comes: for what ends in its own time. They are held back from now on.
pub fn flag() -> &'static AtomicBool {
    static CAME: AtomicBool = AtomicBool::new(false);
    hold_back();
    std::thread::spawn(|| {
        wait();
        CAME.store(true, Ordering::Relaxed);
    });
    &CAME
}
