//! Threads that a tune leaves out of account.

use super::{ioc, Plain, ERROR_LEN, READ, WRITE};

/// `XK_MAX_IGNORED`.
pub const MAX_IGNORED: usize = 8;

/// `struct xk_ignore`.
#[repr(C)]
#[derive(Debug, Clone)]
#[allow(missing_docs)] // as in the header
pub struct Ignore {
    pub id: u32,
    pub thread: i32,
    pub error: [u8; ERROR_LEN],
}

// SAFETY: integers and arrays of integers, repr(C).
unsafe impl Plain for Ignore {}

/// `XK_IOC_IGNORE`.
pub const IOC_IGNORE: u32 = ioc::<Ignore>(READ | WRITE, 15);
