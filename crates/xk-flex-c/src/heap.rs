//! The heap of an extension: its address, its words, memory, pages.

use std::ffi::{c_int, c_void};
use std::os::fd::AsRawFd;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::extension::Extension;
use crate::failure::{given, pointer, put, status, Failure};
use crate::whole::Source;

/// What became of a heap.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub struct Usage {
    /// Bytes that have pages.
    pub ready_bytes: u64,
    /// Bytes that were handed out, and what the heap itself needs.
    pub used_bytes: u64,
    /// Bytes that it may have.
    pub most_bytes: u64,
    /// Objects that programs have allocated.
    pub allocated: u64,
    /// Objects that programs have freed.
    pub freed: u64,
    /// Allocations of programs for which there was no memory.
    pub refused: u64,
    /// What programs freed that was not allocated.
    pub invalid: u64,
    /// Objects that no list has taken back, since others were always faster.
    pub lost: u64,
}

/// Maps the heap of the extension, if it is not mapped yet, and returns where it begins: at the address that its object
/// gives. Functions that use the heap do it, too. The first page of a heap is never there. EADDRINUSE: something else is
/// mapped there. EOPNOTSUPP: it has no heap.
#[no_mangle]
pub unsafe extern "C" fn xk_flex_map(extension: *const Extension) -> *mut c_void {
    pointer(|| {
        // SAFETY: the caller gives an extension that is open.
        let heap = unsafe { given(extension, "extension") }?.0.heap()?;
        Ok(heap.address() as *mut c_void)
    })
}

/// Whether so many bytes at this address are in the heap, with pages. Returns 1 or 0.
#[no_mangle]
pub unsafe extern "C" fn xk_flex_is_there(extension: *const Extension, address: *const c_void, size: usize) -> c_int {
    status(|| {
        // SAFETY: the caller gives an extension that is open.
        let heap = unsafe { given(extension, "extension") }?.0.heap()?;
        Ok(heap.contains(address as u64, size as u64).into())
    })
}

fn bad(address: *const c_void) -> Failure {
    Failure::new(libc::EFAULT, format!("{address:p}: no word of the heap is there"))
}

/// Reads a word of 8 bytes, at once. EFAULT: there is none, or the address is not a multiple of 8.
#[no_mangle]
pub unsafe extern "C" fn xk_flex_read(extension: *const Extension, address: *const c_void, value: *mut u64) -> c_int {
    status(|| {
        // SAFETY: the caller gives an extension that is open.
        let heap = unsafe { given(extension, "extension") }?.0.heap()?;
        let word = heap.word(address as u64).ok_or_else(|| bad(address))?;
        // SAFETY: the caller gives a place for the value.
        unsafe { put(value, "value", word.load(Ordering::SeqCst)) }?;
        Ok(0)
    })
}

/// Writes a word of 8 bytes, at once. EFAULT: as for xk_flex_read().
#[no_mangle]
pub unsafe extern "C" fn xk_flex_write(extension: *const Extension, address: *mut c_void, value: u64) -> c_int {
    status(|| {
        // SAFETY: the caller gives an extension that is open.
        let heap = unsafe { given(extension, "extension") }?.0.heap()?;
        heap.word(address as u64).ok_or_else(|| bad(address))?.store(value, Ordering::SeqCst);
        Ok(0)
    })
}

/// Memory of the heap, aligned to 16 bytes, with any content. Programs and user space may free it. ENOMEM: there is none.
#[no_mangle]
pub unsafe extern "C" fn xk_flex_alloc(extension: *const Extension, size: usize) -> *mut c_void {
    pointer(|| {
        // SAFETY: the caller gives an extension that is open.
        let heap = unsafe { given(extension, "extension") }?.0.heap()?;
        let found = heap.allocate(size as u64);
        let found =
            found.ok_or_else(|| Failure::new(libc::ENOMEM, format!("no memory for {size} bytes in the heap")))?;
        Ok(found as *mut c_void)
    })
}

/// Frees what a program or user space has allocated in the heap; NULL is nothing. EFAULT: no object begins there. That an
/// object is freed twice is not noticed.
#[no_mangle]
pub unsafe extern "C" fn xk_flex_free(extension: *const Extension, object: *mut c_void) -> c_int {
    status(|| {
        // SAFETY: the caller gives an extension that is open.
        let extension = unsafe { given(extension, "extension") }?;
        if !object.is_null() {
            extension.0.heap()?.free(object as u64).map_err(Failure::with(libc::EFAULT))?;
        }
        Ok(0)
    })
}

/// Says what became of the heap.
#[no_mangle]
pub unsafe extern "C" fn xk_flex_usage(extension: *const Extension, usage: *mut Usage) -> c_int {
    status(|| {
        // SAFETY: the caller gives an extension that is open.
        let found = unsafe { given(extension, "extension") }?.0.heap()?.usage();
        let found = Usage {
            ready_bytes: found.ready,
            used_bytes: found.used,
            most_bytes: found.most,
            allocated: found.allocated,
            freed: found.freed,
            refused: found.refused,
            invalid: found.invalid,
            lost: found.lost,
        };
        // SAFETY: the caller gives a place for it.
        unsafe { put(usage, "usage", found) }?;
        Ok(0)
    })
}

/// Gives the heap pages: so many that the bytes that shall be ready can be taken. Then it waits, at most so many
/// nanoseconds, until a program wants more, and gives them. Returns 1 if one did, and 0 otherwise, also if a signal came.
/// A thread that calls it again and again serves the heap until it is told to stop; a loop that waits for other things
/// calls it with 0 when xk_flex_wanted() can be read, and now and then. EBUSY: a process serves the extension
/// (`xk flex serve`). ENOMEM: the kernel gives no pages; what is there stays.
#[no_mangle]
pub unsafe extern "C" fn xk_flex_serve(extension: *const Extension, nanoseconds: u64) -> c_int {
    status(|| {
        // SAFETY: the caller gives an extension that is open.
        let whole = &unsafe { given(extension, "extension") }?.0;
        if let Source::Kept(kept) = &whole.source {
            if kept.is_served() {
                return Err(Failure::new(libc::EBUSY, format!("{}: another process serves it", kept.name())));
            }
        }
        let heap = whole.heap()?;
        Ok(heap.serve_once(Duration::from_nanos(nanoseconds))?.into())
    })
}

/// A file descriptor that can be read, for poll(), when a program wants pages: call xk_flex_serve() then. It belongs to
/// the extension.
#[no_mangle]
pub unsafe extern "C" fn xk_flex_wanted(extension: *const Extension) -> c_int {
    status(|| {
        // SAFETY: the caller gives an extension that is open.
        let heap = unsafe { given(extension, "extension") }?.0.heap()?;
        Ok(heap.wanted().as_raw_fd())
    })
}
