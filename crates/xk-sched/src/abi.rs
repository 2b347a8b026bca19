//! The interface of xk_sched.ko as it lies in memory: mirrors of `kernel/xk_sched/uapi/xk_sched.h`, field by field. A test
//! compiles the header and compares sizes, offsets and numbers.

/// `XK_SCHED_ABI_VERSION`.
pub const ABI_VERSION: u32 = 1;
/// `XK_SCHED_NAME_LEN`.
pub const NAME_LEN: usize = 32;
/// `XK_SCHED_TEXT_LEN`.
pub const TEXT_LEN: usize = 256;
/// `XK_SCHED_WHOLE_PROCESS`.
pub const WHOLE_PROCESS: u32 = 1;

/// `struct xk_sched_version`.
#[repr(C)]
#[derive(Debug, Clone)]
#[allow(missing_docs)] // as in the header
pub struct Version {
    pub abi: u32,
    pub pad: u32,
    pub module: [u8; NAME_LEN],
}

/// `struct xk_sched_status`.
#[repr(C)]
#[derive(Debug, Clone)]
#[allow(missing_docs)] // as in the header
pub struct Status {
    pub active: u32,
    pub nr_policies: u32,
    pub nr_threads: u32,
    pub pad: u32,
    pub nr_ejected: u64,
    pub reason: [u8; TEXT_LEN],
}

/// `struct xk_sched_policy_info`.
#[repr(C)]
#[derive(Debug, Clone)]
#[allow(missing_docs)] // as in the header
pub struct PolicyInfo {
    pub index: u32,
    pub live: u32,
    pub nr_threads: u32,
    pub nr_ready: u32,
    pub nr_switches: u64,
    pub nr_overdue: u64,
    pub slice_ns: u64,
    pub name: [u8; NAME_LEN],
}

/// `struct xk_sched_report`.
#[repr(C)]
#[derive(Debug, Clone)]
#[allow(missing_docs)] // as in the header
pub struct Report {
    pub index: u32,
    pub pid: i32,
    pub core: i32,
    pub pad: u32,
    pub policy: [u8; NAME_LEN],
    pub event: [u8; NAME_LEN],
    pub comm: [u8; 16],
    pub from: [u8; 16],
    pub to: [u8; 16],
    pub text: [u8; TEXT_LEN],
}

/// `struct xk_sched_choice`.
#[repr(C)]
#[derive(Debug, Clone)]
#[allow(missing_docs)] // as in the header
pub struct Choice {
    pub size: u32,
    pub pid: i32,
    pub flags: u32,
    pub nr_threads: u32,
    pub policy: [u8; NAME_LEN],
    pub error: [u8; TEXT_LEN],
}

/// What the kernel reads and writes.
///
/// # Safety
/// The implementer must be the mirror of a structure of the header, for which all zero is a value.
pub(crate) unsafe trait Plain: Sized {
    /// All zero.
    fn zeroed() -> Self {
        // SAFETY: the implementer promises that zero is a value of every field.
        unsafe { std::mem::zeroed() }
    }
}

// SAFETY: numbers and bytes, as in the header.
unsafe impl Plain for Version {}
// SAFETY: as above.
unsafe impl Plain for Status {}
// SAFETY: as above.
unsafe impl Plain for PolicyInfo {}
// SAFETY: as above.
unsafe impl Plain for Report {}
// SAFETY: as above.
unsafe impl Plain for Choice {}

const MAGIC: u32 = 0xb7;
const WRITE: u32 = 1;
const READ: u32 = 2;

const fn ioc<T>(direction: u32, number: u32) -> u32 {
    direction << 30 | (size_of::<T>() as u32) << 16 | MAGIC << 8 | number
}

/// `XK_IOC_SCHED_VERSION`.
pub const IOC_VERSION: u32 = ioc::<Version>(READ, 80);
/// `XK_IOC_SCHED_STATUS`.
pub const IOC_STATUS: u32 = ioc::<Status>(READ, 81);
/// `XK_IOC_SCHED_POLICY`.
pub const IOC_POLICY: u32 = ioc::<PolicyInfo>(READ | WRITE, 82);
/// `XK_IOC_SCHED_REPORT`.
pub const IOC_REPORT: u32 = ioc::<Report>(READ | WRITE, 83);
/// `XK_IOC_SCHED_CHOOSE`.
pub const IOC_CHOOSE: u32 = ioc::<Choice>(READ | WRITE, 84);

/// The text in a NUL-terminated field.
pub(crate) fn text(field: &[u8]) -> String {
    let end = field.iter().position(|&byte| byte == 0).unwrap_or(field.len());
    String::from_utf8_lossy(&field[..end]).into_owned()
}
