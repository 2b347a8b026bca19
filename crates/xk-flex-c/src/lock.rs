//! Locks of a heap, and those of threads that died.

use std::ffi::{c_int, c_void};
use std::ptr::from_ref;
use std::sync::Arc;
use std::time::Duration;

use xk_flex::{Error, Heap, LockGuard};

use crate::extension::Extension;
use crate::failure::{given, pointer, status, Failure};
use crate::whole::Whole;

/// struct xk_lock of bpf/flex/lock.h.
pub struct Lock {
    _opaque: (),
}

/// struct xk_rwlock of bpf/flex/lock.h.
pub struct RwLock {
    _opaque: (),
}

/// A lock that a thread has taken.
pub struct Guard {
    /// Before the heap, in which the lock is.
    taken: LockGuard<'static>,
    _owner: Arc<Whole>,
}

/// A lock of a thread that died.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Broken {
    /// Where it is.
    pub lock: *mut Lock,
    /// The number of the thread.
    pub thread: u32,
    /// It had the lock, or read: what the lock protects may be half changed. If false, it waited.
    pub held: bool,
}

/// Takes a lock of the extension's heap.
///
/// # Safety
/// The extension is NULL, or open.
unsafe fn taken(
    extension: *const Extension,
    lock: *const c_void,
    take: impl FnOnce(&'static Heap<'static>, u64) -> Option<Result<Option<LockGuard<'static>>, Error>>,
    code: c_int,
) -> *mut Guard {
    pointer(|| {
        // SAFETY: the caller promises it.
        let owner = Arc::clone(&unsafe { given(extension, "extension") }?.0);
        if lock.is_null() {
            return Err(Failure::null("lock"));
        }
        // SAFETY: the guard keeps the owner, and with it the heap.
        let heap = unsafe { &*from_ref(owner.heap()?) };
        let bad = || Failure::new(libc::EFAULT, format!("{lock:p}: no lock of the heap can be there"));
        let found = take(heap, lock as u64).ok_or_else(bad)?.map_err(Failure::with(libc::ENOLCK))?;
        let found = found.ok_or_else(|| Failure::new(code, format!("{lock:p}: somebody else has the lock")))?;
        Ok(Box::into_raw(Box::new(Guard { taken: found, _owner: owner })))
    })
}

/// Takes a lock of the heap, after those that came before; waits at most so many nanoseconds. Programs wait for the
/// thread until it calls xk_flex_unlock(), and those with a deadline are ended then: hold it for a short time. If the
/// thread dies, xk_flex_break_dead_locks() frees the lock. A thread that takes what it has waits for itself.
/// ETIMEDOUT: somebody else had it. EFAULT: no lock can be at this address.
#[no_mangle]
pub unsafe extern "C" fn xk_flex_lock(extension: *const Extension, lock: *mut Lock, nanoseconds: u64) -> *mut Guard {
    let time = Duration::from_nanos(nanoseconds);
    let take = |heap: &'static Heap<'static>, at| heap.lock(at).map(|lock| lock.take(time));
    // SAFETY: the caller gives an extension that is open.
    unsafe { taken(extension, lock.cast(), take, libc::ETIMEDOUT) }
}

/// Takes a lock of the heap that nobody has or waits for. EBUSY: somebody has it. EFAULT: as for xk_flex_lock().
#[no_mangle]
pub unsafe extern "C" fn xk_flex_trylock(extension: *const Extension, lock: *mut Lock) -> *mut Guard {
    let take = |heap: &'static Heap<'static>, at| heap.lock(at).map(|lock| lock.try_take());
    // SAFETY: the caller gives an extension that is open.
    unsafe { taken(extension, lock.cast(), take, libc::EBUSY) }
}

/// Begins to read, beside others that read, after those that came before; waits at most so many nanoseconds. Otherwise as
/// xk_flex_lock().
#[no_mangle]
pub unsafe extern "C" fn xk_flex_read_lock(
    extension: *const Extension,
    lock: *mut RwLock,
    nanoseconds: u64,
) -> *mut Guard {
    let time = Duration::from_nanos(nanoseconds);
    let take = |heap: &'static Heap<'static>, at| heap.rw_lock(at).map(|lock| lock.read(time));
    // SAFETY: the caller gives an extension that is open.
    unsafe { taken(extension, lock.cast(), take, libc::ETIMEDOUT) }
}

/// Begins to write, alone, after those that came before; waits at most so many nanoseconds. Otherwise as xk_flex_lock().
#[no_mangle]
pub unsafe extern "C" fn xk_flex_write_lock(
    extension: *const Extension,
    lock: *mut RwLock,
    nanoseconds: u64,
) -> *mut Guard {
    let time = Duration::from_nanos(nanoseconds);
    let take = |heap: &'static Heap<'static>, at| heap.rw_lock(at).map(|lock| lock.write(time));
    // SAFETY: the caller gives an extension that is open.
    unsafe { taken(extension, lock.cast(), take, libc::ETIMEDOUT) }
}

/// Gives back what one of the functions above has taken; NULL is nothing. Another thread may do it, while the one that
/// took it lives.
#[no_mangle]
pub unsafe extern "C" fn xk_flex_unlock(guard: *mut Guard) {
    status(|| {
        if !guard.is_null() {
            // SAFETY: the caller gives what `taken` made, for the last time.
            let Guard { taken, _owner } = *unsafe { Box::from_raw(guard) };
            drop(taken);
        }
        Ok(0)
    });
}

/// Frees all locks of the heap that threads of user space held or waited for when they died, and returns how many. If
/// found is not NULL, it is called for each of them, with context, when all are free. Threads of another PID namespace
/// count as dead. `xk flex serve` does this for the extensions that it serves.
#[no_mangle]
pub unsafe extern "C" fn xk_flex_break_dead_locks(
    extension: *const Extension,
    found: Option<unsafe extern "C" fn(broken: *const Broken, context: *mut c_void)>,
    context: *mut c_void,
) -> c_int {
    status(|| {
        // SAFETY: the caller gives an extension that is open.
        let heap = unsafe { given(extension, "extension") }?.0.heap()?;
        let all = heap.break_locks_of_dead();
        for broken in &all {
            let broken = Broken { lock: broken.lock as *mut Lock, thread: broken.thread, held: broken.held };
            if let Some(found) = found {
                // SAFETY: the caller gives a function that may be called so.
                unsafe { found(&broken, context) };
            }
        }
        Ok(c_int::try_from(all.len()).unwrap_or(c_int::MAX))
    })
}
