//! The interface of xk.ko as it lies in memory: mirrors of
//! `kernel/xk/uapi/xk.h`, field by field, and that of xk_tunable.ko. A test compiles the
//! headers and compares sizes, offsets and numbers.

mod ignore;
mod parameters;
mod policy;
mod probe;
mod table;

use xk_table::Mode;

pub use ignore::*;
pub use parameters::*;
pub use policy::*;
pub use probe::*;
pub use table::*;

/// `XK_ABI_VERSION`.
pub const ABI_VERSION: u32 = 14;
/// `XK_NAME_LEN`.
pub const NAME_LEN: usize = 128;
/// `XK_SYMBOL_LEN`.
pub const SYMBOL_LEN: usize = 128;
/// `XK_MODULE_LEN`.
pub const MODULE_LEN: usize = 64;
/// `XK_MAX_CHANGES`.
pub const MAX_CHANGES: usize = 1024;
/// `XK_MAX_TIMEOUT_MS`.
pub const MAX_TIMEOUT_MS: u32 = 600_000;
/// `XK_ERROR_LEN`.
pub const ERROR_LEN: usize = 256;

/// `XK_LOAD_DETOUR`.
pub const LOAD_DETOUR: u32 = 1;
/// `XK_LOAD_DETOUR_ONLY`.
pub const LOAD_DETOUR_ONLY: u32 = 1 << 1;
/// `XK_LOAD_PATCH`.
pub const LOAD_PATCH: u32 = 1 << 2;
/// `XK_LOAD_PATCH_ONLY`.
pub const LOAD_PATCH_ONLY: u32 = 1 << 3;

/// `XK_MODE_NOW`.
pub const MODE_NOW: u32 = 0;
/// `XK_MODE_TASK`.
pub const MODE_TASK: u32 = 1;
/// `XK_MODE_GLOBAL`.
pub const MODE_GLOBAL: u32 = 2;

/// The `XK_MODE_…` of a mode.
pub(crate) fn mode_number(mode: Mode) -> u32 {
    match mode {
        Mode::Now => MODE_NOW,
        Mode::Task => MODE_TASK,
        Mode::Global => MODE_GLOBAL,
    }
}

/// `XK_CHANGE_UNLOAD`.
pub const CHANGE_UNLOAD: u32 = 1;
/// `XK_CHANGE_POLICY`.
pub const CHANGE_POLICY: u32 = 1 << 1;

/// `XK_OUTCOME_UNCHANGED`.
pub const OUTCOME_UNCHANGED: u32 = 0;
/// `XK_OUTCOME_DONE`.
pub const OUTCOME_DONE: u32 = 1;
/// `XK_OUTCOME_REVERTING`.
pub const OUTCOME_REVERTING: u32 = 2;

/// `XK_STATE_STABLE`.
pub const STATE_STABLE: u32 = 0;
/// `XK_STATE_CHANGING`.
pub const STATE_CHANGING: u32 = 1;
/// `XK_STATE_REVERTING`.
pub const STATE_REVERTING: u32 = 2;
/// `XK_STATE_UNLOADING`.
pub const STATE_UNLOADING: u32 = 3;

/// `XK_TUNE_DETACHED`.
pub const TUNE_DETACHED: u32 = 1;
/// `XK_TUNE_BROKEN`.
pub const TUNE_BROKEN: u32 = 1 << 1;
/// `XK_TUNE_POLICY`.
pub const TUNE_POLICY: u32 = 1 << 2;

/// `XK_SITE_ARMED`.
pub const SITE_ARMED: u32 = 1;
/// `XK_SITE_OPTIMISED`.
pub const SITE_OPTIMISED: u32 = 1 << 1;
/// `XK_SITE_WAITING`.
pub const SITE_WAITING: u32 = 1 << 2;
/// `XK_SITE_OPT_UNKNOWN`.
pub const SITE_OPT_UNKNOWN: u32 = 1 << 3;
/// `XK_SITE_BROKEN`.
pub const SITE_BROKEN: u32 = 1 << 4;
/// `XK_SITE_IN_DATA`.
pub const SITE_IN_DATA: u32 = 1 << 5;
/// `XK_SITE_DRIFTED`.
pub const SITE_DRIFTED: u32 = 1 << 6;

/// `XK_SITE_DETOUR`.
pub const SITE_DETOUR: u32 = 1 << 7;
/// `XK_SITE_UNCOUNTED`.
pub const SITE_UNCOUNTED: u32 = 1 << 8;
/// `XK_SITE_PATCH`.
pub const SITE_PATCH: u32 = 1 << 9;

/// `struct xk_load`.
#[repr(C)]
#[derive(Debug, Clone)]
#[allow(missing_docs)] // as in the header
pub struct Load {
    pub size: u32,
    pub abi: u32,
    pub table: u64,
    pub signature: u64,
    pub table_len: u32,
    pub signature_len: u32,
    pub flags: u32,
    pub id: u32,
    pub error: [u8; ERROR_LEN],
}

/// `struct xk_change`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
#[allow(missing_docs)] // as in the header
pub struct Change {
    pub id: u32,
    pub flags: u32,
    pub value: i64,
}

/// `struct xk_transition`.
#[repr(C)]
#[derive(Debug, Clone)]
#[allow(missing_docs)] // as in the header
pub struct Transition {
    pub size: u32,
    pub mode: u32,
    pub timeout_ms: u32,
    pub nr_changes: u32,
    pub changes: u64,
    pub report: u64,
    pub report_len: u32,
    pub outcome: u32,
    pub stops: u32,
    pub pad: u32,
    pub elapsed_ns: u64,
    pub error: [u8; ERROR_LEN],
}

/// `struct xk_lease`.
#[repr(C)]
#[derive(Debug, Clone)]
#[allow(missing_docs)] // as in the header
pub struct Lease {
    pub id: u32,
    pub pad: u32,
    pub ns: u64,
    pub error: [u8; ERROR_LEN],
}

/// `struct xk_detach`.
#[repr(C)]
#[derive(Debug, Clone)]
#[allow(missing_docs)] // as in the header
pub struct Detach {
    pub id: u32,
    pub pad: u32,
    pub error: [u8; ERROR_LEN],
}

/// `struct xk_report`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
#[allow(missing_docs)] // as in the header
pub struct Report {
    pub id: u32,
    pub len: u32,
    pub text: u64,
}

/// `XK_VERSION_SIGNED`.
pub const VERSION_SIGNED: u32 = 1;

/// `struct xk_version`.
#[repr(C)]
#[derive(Debug, Clone)]
#[allow(missing_docs)] // as in the header
pub struct Version {
    pub abi: u32,
    pub flags: u32,
    pub module: [u8; 64],
    pub anchor: u64,
}

/// `struct xk_tune_info`.
#[repr(C)]
#[derive(Debug, Clone)]
#[allow(missing_docs)] // as in the header
pub struct TuneInfo {
    pub index: u32,
    pub id: u32,
    pub name: [u8; NAME_LEN],
    pub value: i64,
    pub default_value: i64,
    pub min: i64,
    pub max: i64,
    pub nr_sites: u32,
    pub flags: u32,
    pub owner_pid: i32,
    pub nr_scopes: u32,
    pub mode: u32,
    pub state: u32,
    pub blocking: u32,
    pub nr_values: u32,
    pub age_ns: u64,
    pub lease_ns: u64,
    pub nr_ignored: u32,
    pub ignored: [i32; MAX_IGNORED],
    pub pad: u32,
}

/// `struct xk_stop_info`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
#[allow(missing_docs)] // as in the header
pub struct StopInfo {
    pub nr: u64,
    pub total_ns: u64,
    pub longest_ns: u64,
    pub since_ns: u64,
    pub stacks: u64,
}

/// `struct xk_tune_values`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
#[allow(missing_docs)] // as in the header
pub struct TuneValues {
    pub id: u32,
    pub nr_values: u32,
    pub values: u64,
}

/// `struct xk_site_info`.
#[repr(C)]
#[derive(Debug, Clone)]
#[allow(missing_docs)] // as in the header
pub struct SiteInfo {
    pub id: u32,
    pub index: u32,
    pub address: u64,
    pub symbol: [u8; SYMBOL_LEN],
    pub module: [u8; MODULE_LEN],
    pub offset: u32,
    pub flags: u32,
    pub hits: u64,
    pub applied: u64,
    pub faults: u64,
    pub missed: u64,
    pub reason: [u8; ERROR_LEN],
    pub note: [u8; NAME_LEN],
}

/// A structure of which all-zero bytes are a value: integers and arrays only.
///
/// # Safety
/// The implementer must be `repr(C)` and made of integers and arrays of them.
pub(crate) unsafe trait Plain: Sized {
    /// All zero.
    fn zeroed() -> Self {
        // SAFETY: the implementer promises that zero is a value of every field.
        unsafe { std::mem::zeroed() }
    }
}

/// What lies in memory one after the other: the parts of a table.
///
/// # Safety
/// The implementer must be `repr(C)`, and its fields must follow each other without padding.
pub(crate) unsafe trait Bytes: Sized {
    /// The bytes of `parts`.
    fn bytes(parts: &[Self]) -> &[u8] {
        // SAFETY: the slice is as long as its parts, and all of it is initialised, as there is no padding.
        unsafe { std::slice::from_raw_parts(parts.as_ptr().cast(), size_of_val(parts)) }
    }
}

// SAFETY: integers and arrays of integers, repr(C).
unsafe impl Plain for Load {}
// SAFETY: as above.
unsafe impl Plain for Transition {}
// SAFETY: as above.
unsafe impl Plain for Version {}
// SAFETY: as above.
unsafe impl Plain for TuneInfo {}
// SAFETY: as above.
unsafe impl Plain for SiteInfo {}
// SAFETY: as above.
unsafe impl Plain for Lease {}
// SAFETY: as above.
unsafe impl Plain for Detach {}

const MAGIC: u32 = 0xb7;
const WRITE: u32 = 1;
const READ: u32 = 2;

const fn ioc<T>(direction: u32, number: u32) -> u32 {
    direction << 30 | (size_of::<T>() as u32) << 16 | MAGIC << 8 | number
}

/// `XK_IOC_VERSION`.
pub const IOC_VERSION: u32 = ioc::<Version>(READ, 0);
/// `XK_IOC_LOAD`.
pub const IOC_LOAD: u32 = ioc::<Load>(READ | WRITE, 1);
/// `XK_IOC_TRANSITION`.
pub const IOC_TRANSITION: u32 = ioc::<Transition>(READ | WRITE, 2);
/// `XK_IOC_LEASE`.
pub const IOC_LEASE: u32 = ioc::<Lease>(READ | WRITE, 3);
/// `XK_IOC_DETACH`.
pub const IOC_DETACH: u32 = ioc::<Detach>(READ | WRITE, 4);
/// `XK_IOC_TUNE_INFO`.
pub const IOC_TUNE_INFO: u32 = ioc::<TuneInfo>(READ | WRITE, 5);
/// `XK_IOC_SITE_INFO`.
pub const IOC_SITE_INFO: u32 = ioc::<SiteInfo>(READ | WRITE, 6);
/// `XK_IOC_REPORT`.
pub const IOC_REPORT: u32 = ioc::<Report>(READ | WRITE, 7);
/// `XK_IOC_TUNE_VALUES`.
pub const IOC_TUNE_VALUES: u32 = ioc::<TuneValues>(READ | WRITE, 13);
/// `XK_IOC_STOP_INFO`.
pub const IOC_STOP_INFO: u32 = ioc::<StopInfo>(READ, 14);

/// The text in a NUL-terminated field.
pub(crate) fn text(field: &[u8]) -> String {
    let end = field.iter().position(|&b| b == 0).unwrap_or(field.len());
    String::from_utf8_lossy(&field[..end]).into_owned()
}

/// `text` as a NUL-terminated field; `None` when it does not fit.
pub(crate) fn field<const N: usize>(text: &str) -> Option<[u8; N]> {
    let mut out = [0; N];
    if text.len() >= N || text.contains('\0') {
        return None;
    }
    out[..text.len()].copy_from_slice(text.as_bytes());
    Some(out)
}
