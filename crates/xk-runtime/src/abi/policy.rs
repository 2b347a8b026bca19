//! Policies of tunes: how one is given, and what the kernel counts of it.

use super::{ioc, Plain, ERROR_LEN, READ, WRITE};

/// `XK_MAX_LINKS`.
pub const MAX_LINKS: usize = 64;
/// `XK_POLICY_BUCKETS`.
pub const POLICY_BUCKETS: usize = 64;

/// `struct xk_policy`.
#[repr(C)]
#[derive(Debug, Clone)]
#[allow(missing_docs)] // as in the header
pub struct Policy {
    pub size: u32,
    pub id: u32,
    pub program: i32,
    pub nr_scopes: u32,
    pub scopes: u64,
    pub sites: u64,
    pub links: u64,
    pub nr_sites: u32,
    pub nr_links: u32,
    pub error: [u8; ERROR_LEN],
}

/// `struct xk_policy_info`.
#[repr(C)]
#[derive(Debug, Clone)]
#[allow(missing_docs)] // as in the header
pub struct PolicyInfo {
    pub id: u32,
    pub index: u32,
    pub program: u32,
    pub nr_links: u32,
    pub runs: u64,
    pub chosen: u64,
    pub refused: u64,
    pub skipped: u64,
    pub reused: u64,
    pub unseen: u64,
    pub last: i64,
    pub histogram: [u64; POLICY_BUCKETS],
}

// SAFETY: integers and arrays of integers, repr(C).
unsafe impl Plain for Policy {}
// SAFETY: as above.
unsafe impl Plain for PolicyInfo {}

/// `XK_IOC_POLICY`.
pub const IOC_POLICY: u32 = ioc::<Policy>(READ | WRITE, 8);
/// `XK_IOC_POLICY_INFO`.
pub const IOC_POLICY_INFO: u32 = ioc::<PolicyInfo>(READ | WRITE, 9);
