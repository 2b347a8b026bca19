//! The interface of xk_sched.ko as it lies in memory: mirrors of `kernel/xk_sched/uapi/xk_sched.h`, field by field. A test
//! compiles the header and compares sizes, offsets and numbers.

/// `XK_SCHED_ABI_VERSION`.
pub const ABI_VERSION: u32 = 4;
/// `XK_SCHED_NAME_LEN`.
pub const NAME_LEN: usize = 32;
/// `XK_SCHED_TEXT_LEN`.
pub const TEXT_LEN: usize = 256;
/// `XK_SCHED_CPUS_LEN`.
pub const CPUS_LEN: usize = 128;
/// `XK_SCHED_NR_WAITS`.
pub const NR_WAITS: usize = 40;
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
    pub weight: u32,
    pub stranded: u32,
    pub name: [u8; NAME_LEN],
    pub cpus: [u8; CPUS_LEN],
}

/// `struct xk_sched_stats`.
#[repr(C)]
#[derive(Debug, Clone)]
#[allow(missing_docs)] // as in the header
pub struct Stats {
    pub index: u32,
    pub pad: u32,
    pub nr_moves: u64,
    pub waited_ns: u64,
    pub waits: [u64; NR_WAITS],
    pub name: [u8; NAME_LEN],
}

/// `struct xk_sched_thread`.
#[repr(C)]
#[derive(Debug, Clone)]
#[allow(missing_docs)] // as in the header
pub struct Thread {
    pub pid: i32,
    pub core: i32,
    pub queue: u32,
    pub waits_ms: u32,
    pub ran_ns: u64,
    pub state: [u8; 16],
    pub comm: [u8; 16],
}

/// `struct xk_sched_dump`.
#[repr(C)]
#[derive(Debug, Clone)]
#[allow(missing_docs)] // as in the header
pub struct Dump {
    pub size: u32,
    pub nr_threads: u32,
    pub threads: u64,
    pub policy: [u8; NAME_LEN],
    pub error: [u8; TEXT_LEN],
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

/// `struct xk_sched_weight`.
#[repr(C)]
#[derive(Debug, Clone)]
#[allow(missing_docs)] // as in the header
pub struct Weight {
    pub size: u32,
    pub weight: u32,
    pub policy: [u8; NAME_LEN],
    pub error: [u8; TEXT_LEN],
}

/// `struct xk_sched_cpus`.
#[repr(C)]
#[derive(Debug, Clone)]
#[allow(missing_docs)] // as in the header
pub struct Cpus {
    pub size: u32,
    pub pad: u32,
    pub policy: [u8; NAME_LEN],
    pub cpus: [u8; CPUS_LEN],
    pub error: [u8; TEXT_LEN],
}

/// `struct xk_sched_replacement`.
#[repr(C)]
#[derive(Debug, Clone)]
#[allow(missing_docs)] // as in the header
pub struct Replacement {
    pub size: u32,
    pub nr_threads: u32,
    pub old: [u8; NAME_LEN],
    pub new: [u8; NAME_LEN],
    pub error: [u8; TEXT_LEN],
}

/// `struct xk_sched_recording`.
#[repr(C)]
#[derive(Debug, Clone)]
#[allow(missing_docs)] // as in the header
pub struct Recording {
    pub size: u32,
    pub pad: u32,
    pub limit: u64,
    pub bytes: u64,
    pub missed: u64,
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
// SAFETY: as above.
unsafe impl Plain for Weight {}
// SAFETY: as above.
unsafe impl Plain for Cpus {}
// SAFETY: as above.
unsafe impl Plain for Stats {}
// SAFETY: as above.
unsafe impl Plain for Thread {}
// SAFETY: as above; zero is also an address.
unsafe impl Plain for Dump {}
// SAFETY: as above.
unsafe impl Plain for Replacement {}
// SAFETY: as above.
unsafe impl Plain for Recording {}

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
/// `XK_IOC_SCHED_WEIGHT`.
pub const IOC_WEIGHT: u32 = ioc::<Weight>(READ | WRITE, 85);
/// `XK_IOC_SCHED_RECORD`.
pub const IOC_RECORD: u32 = ioc::<Recording>(READ | WRITE, 86);
/// `XK_IOC_SCHED_RECORD_END`.
pub const IOC_RECORD_END: u32 = ioc::<Recording>(READ | WRITE, 87);
/// `XK_IOC_SCHED_REPLACE`.
pub const IOC_REPLACE: u32 = ioc::<Replacement>(READ | WRITE, 88);
/// `XK_IOC_SCHED_CPUS`.
pub const IOC_CPUS: u32 = ioc::<Cpus>(READ | WRITE, 89);
/// `XK_IOC_SCHED_STATS`.
pub const IOC_STATS: u32 = ioc::<Stats>(READ | WRITE, 90);
/// `XK_IOC_SCHED_DUMP`.
pub const IOC_DUMP: u32 = ioc::<Dump>(READ | WRITE, 91);

/// The text in a NUL-terminated field.
pub(crate) fn text(field: &[u8]) -> String {
    let end = field.iter().position(|&byte| byte == 0).unwrap_or(field.len());
    String::from_utf8_lossy(&field[..end]).into_owned()
}
