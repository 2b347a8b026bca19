//! Runs that were ended.

use std::ffi::{c_char, c_int, c_void, CStr};
use std::ptr::null;

use xk_flex::{take_ended, unreported, Ended as Report, Loaded, Why};

use crate::extension::Extension;
use crate::failure::{given, put, status, Failure};
use crate::whole::{locked, Own, Source};

/// Why a run was ended: it took too long.
pub const XK_FLEX_DEADLINE: u32 = 1;
/// User space ended all runs.
pub const XK_FLEX_TERMINATE: u32 = 2;
/// The kernel's limit of 8 million turns.
pub const XK_FLEX_TURNS: u32 = 3;
/// It took more locks of the heap than a run may hold.
pub const XK_FLEX_LOCKS: u32 = 4;
/// It returned by itself, but held locks of the heap.
pub const XK_FLEX_KEPT: u32 = 5;
/// It accessed the heap where no page is.
pub const XK_FLEX_FAULT: u32 = 6;

/// Bytes of a text in struct xk_flex_ended, with the NUL at its end. A longer one is cut.
pub const XK_FLEX_TEXT: usize = 64;
/// So many runs wait to be returned. More stay in the ring buffer.
const WAITING: usize = 1024;

/// A run that was ended.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Ended {
    /// When: CLOCK_MONOTONIC.
    pub time_ns: u64,
    /// How much time counted for its deadline, from its first look on.
    pub spent_ns: u64,
    /// The address that it accessed last where no page is, if why is XK_FLEX_FAULT; else NULL.
    pub fault: *const c_void,
    /// The lock of the heap for which it waited; NULL if it waited for none.
    pub lock: *const c_void,
    /// XK_FLEX_DEADLINE, or another of those; xk_flex_why() names it.
    pub why: u32,
    /// It waited for itself, or for somebody who waited for it.
    pub is_deadlock: bool,
    /// The function in which it was ended.
    pub function: [c_char; XK_FLEX_TEXT],
    /// The source line where it was ended: FILE.c:LINE.
    pub place: [c_char; XK_FLEX_TEXT],
    /// The source line of the access of fault, while its program is loaded; else "".
    pub fault_place: [c_char; XK_FLEX_TEXT],
}

impl Ended {
    fn new(ended: &Report, loaded: &Loaded) -> Self {
        let look = loaded.rewritten.looks.get(ended.look);
        let nanoseconds = |time: std::time::Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        Self {
            time_ns: nanoseconds(ended.time),
            spent_ns: nanoseconds(ended.spent),
            fault: ended.fault.map_or(null(), |fault| fault.address as *const c_void),
            lock: ended.locks.and_then(|locks| locks.waited).map_or(null(), |lock| lock as *const c_void),
            why: ended.why.number(),
            is_deadlock: ended.locks.is_some_and(|locks| locks.is_deadlock()),
            function: cut(look.map_or("", |look| &look.function)),
            place: cut(look.map_or("", |look| &look.place)),
            fault_place: cut(&ended.fault.and_then(|fault| fault.place()).unwrap_or_default()),
        }
    }
}

/// A text with a NUL at its end.
fn cut(text: &str) -> [c_char; XK_FLEX_TEXT] {
    let mut found = [0; XK_FLEX_TEXT];
    for (place, byte) in found[..XK_FLEX_TEXT - 1].iter_mut().zip(text.bytes()) {
        *place = c_char::from_ne_bytes([byte]);
    }
    found
}

impl Own {
    /// Takes what is in the ring buffer, unless there is enough.
    fn take(&self, enough: usize) -> Result<std::sync::MutexGuard<'_, crate::whole::Taken>, Failure> {
        let mut taken = locked(&self.ended);
        if self.is_controlled && taken.waiting.len() < enough {
            taken.waiting.extend(take_ended(&self.loaded.object)?);
        }
        Ok(taken)
    }
}

/// Takes the runs that were ended since the last call, the first one first: at most as many as there is room for in
/// ended. Returns how many; the others are returned by the next call. EOPNOTSUPP: `xk flex load` keeps the extension, and
/// the process that serves it takes them.
#[no_mangle]
pub unsafe extern "C" fn xk_flex_take_ended(extension: *const Extension, ended: *mut Ended, room: usize) -> c_int {
    status(|| {
        // SAFETY: the caller gives an extension that is open.
        let own = unsafe { given(extension, "extension") }?.0.own("the process that serves it takes its ended runs")?;
        if ended.is_null() {
            return Err(Failure::null("ended"));
        }
        let room = room.min(c_int::MAX as usize);
        let mut taken = own.take(room)?;
        let number = room.min(taken.waiting.len());
        for (at, report) in taken.waiting.drain(..number).enumerate() {
            // SAFETY: the caller has room for so many.
            unsafe { ended.add(at).write(Ended::new(&report, &own.loaded)) };
        }
        taken.returned += number as u64;
        c_int::try_from(number).map_err(|_| Failure::new(libc::EINVAL, "room is too large"))
    })
}

/// How many runs of the extension were ended since it was loaded, also those of which nothing else is known, because
/// there was no room for their reports.
#[no_mangle]
pub unsafe extern "C" fn xk_flex_count_ended(extension: *const Extension, count: *mut u64) -> c_int {
    status(|| {
        // SAFETY: the caller gives an extension that is open.
        let number = match &unsafe { given(extension, "extension") }?.0.source {
            Source::Kept(kept) => kept.seen().runs(),
            Source::Loaded(own) if own.is_controlled => {
                let taken = own.take(WAITING)?;
                taken.returned + taken.waiting.len() as u64 + unreported(&own.loaded.object)?
            }
            Source::Loaded(_) => 0,
        };
        // SAFETY: the caller gives a place for it.
        unsafe { put(count, "count", number) }?;
        Ok(0)
    })
}

/// Says why, for people: what completes "ended by". It stays valid. Never NULL.
#[no_mangle]
pub extern "C" fn xk_flex_why(why: u32) -> *const c_char {
    words(Why::of(why)).as_ptr()
}

fn words(why: Why) -> &'static CStr {
    match why {
        Why::Deadline => c"its deadline",
        Why::Terminate => c"user space",
        Why::Turns => c"the kernel's limit of 8 million may_goto in a frame",
        Why::Locks => c"a lock more than a run may hold",
        Why::Kept => c"itself, and held a lock",
        Why::Fault => c"an access of the heap where no page is",
        Why::Other(_) => c"an unknown reason",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_have_the_numbers_and_words_of_the_crate() {
        let known = [
            (XK_FLEX_DEADLINE, Why::Deadline),
            (XK_FLEX_TERMINATE, Why::Terminate),
            (XK_FLEX_TURNS, Why::Turns),
            (XK_FLEX_LOCKS, Why::Locks),
            (XK_FLEX_KEPT, Why::Kept),
            (XK_FLEX_FAULT, Why::Fault),
        ];
        for (number, why) in known {
            assert_eq!((why.number(), Why::of(number)), (number, why));
            assert_eq!(words(why).to_string_lossy(), why.to_string());
        }
        let header = include_str!("../../../bpf/xk_flex.bpf.h");
        for (number, name) in (1..).zip(["DEADLINE", "TERMINATE", "TURNS", "LOCKS", "KEPT", "FAULT"]) {
            let words = ["#define".to_owned(), format!("XK_FLEX_{name}"), format!("{number}")];
            let is_it = |line: &str| line.split_whitespace().take(3).eq(&words);
            assert!(header.lines().any(is_it), "{words:?}");
        }
    }

    #[test]
    fn a_long_text_is_cut() {
        let long = cut(&"x".repeat(XK_FLEX_TEXT));
        assert_eq!((long[XK_FLEX_TEXT - 2], long[XK_FLEX_TEXT - 1]), (b'x' as c_char, 0));
        assert_eq!(cut("")[0], 0);
    }
}
