//! Probes of eBPF programs: attachments, and the instructions that they reach.

use super::{ioc, Plain, ERROR_LEN, MODULE_LEN, NAME_LEN, READ, SYMBOL_LEN, WRITE};

/// `XK_MAX_PROBE_PLACES`.
pub const MAX_PROBE_PLACES: usize = 65536;
/// `XK_MAX_PROBE_FUNCTIONS`.
pub const MAX_PROBE_FUNCTIONS: usize = 4096;
/// `XK_PROBE_JUMPS_ONLY`.
pub const PROBE_JUMPS_ONLY: u32 = 1;
/// `XK_PROBE_JUMP`.
pub const PROBE_JUMP: u32 = 1;
/// `XK_PROBE_TRACER`.
pub const PROBE_TRACER: u32 = 2;
/// `XK_PROBE_WAITING`.
pub const PROBE_WAITING: u32 = 4;
/// `XK_PROBE_KEEP`.
pub const PROBE_KEEP: u32 = 1;
/// `XK_MAX_PROBE_PROGRAMS`.
pub const MAX_PROBE_PROGRAMS: usize = 64;
/// `XK_PROBE_KEPT`.
pub const PROBE_KEPT: u32 = 1;

/// `struct xk_probe_place`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[allow(missing_docs)] // as in the header
pub struct ProbePlace {
    pub address: u64,
    pub cookie: u64,
    pub window: u8,
    pub window_lead: u8,
    pub host: i16,
    pub host_window: u8,
    pub program: u8,
    pub pad: [u8; 2],
}

/// `struct xk_probe_function`.
#[repr(C)]
#[derive(Debug, Clone)]
#[allow(missing_docs)] // as in the header
pub struct ProbeFunction {
    pub address: u64,
    pub symbol: [u8; SYMBOL_LEN],
    pub module: [u8; MODULE_LEN],
    pub text_len: u32,
    pub pad: u32,
    pub text: u64,
    pub mask: u64,
}

/// `struct xk_probe_attach`.
#[repr(C)]
#[derive(Debug, Clone)]
#[allow(missing_docs)] // as in the header
pub struct ProbeAttach {
    pub size: u32,
    pub nr_programs: u32,
    pub flags: u32,
    pub nr_places: u32,
    pub programs: u64,
    pub places: u64,
    pub functions: u64,
    pub nr_functions: u32,
    pub pad: u32,
    pub name: [u8; NAME_LEN],
    pub id: u32,
    pub nr_jumps: u32,
    pub stops: u32,
    pub refused: u32,
    pub error: [u8; ERROR_LEN],
}

/// `struct xk_probe_detach`.
#[repr(C)]
#[derive(Debug, Clone)]
#[allow(missing_docs)] // as in the header
pub struct ProbeDetach {
    pub id: u32,
    pub stops: u32,
    pub error: [u8; ERROR_LEN],
}

/// `struct xk_probe_lease`.
#[repr(C)]
#[derive(Debug, Clone)]
#[allow(missing_docs)] // as in the header
pub struct ProbeLease {
    pub id: u32,
    pub flags: u32,
    pub ns: u64,
    pub error: [u8; ERROR_LEN],
}

/// `struct xk_probe_info`.
#[repr(C)]
#[derive(Debug, Clone)]
#[allow(missing_docs)] // as in the header
pub struct ProbeInfo {
    pub index: u32,
    pub id: u32,
    pub name: [u8; NAME_LEN],
    pub program: u32,
    pub nr_places: u32,
    pub nr_jumps: u32,
    pub owner_pid: i32,
    pub hits: u64,
    pub skipped: u64,
    pub age_ns: u64,
    pub memory: u64,
    pub lease_ns: u64,
    pub flags: u32,
    pub nr_programs: u32,
}

/// `struct xk_probe_place_info`.
#[repr(C)]
#[derive(Debug, Clone)]
#[allow(missing_docs)] // as in the header
pub struct ProbePlaceInfo {
    pub requested: u64,
    pub address: u64,
    pub hits: u64,
    pub missed: u64,
    pub flags: u32,
    pub pad: u32,
    pub note: [u8; NAME_LEN],
}

/// `struct xk_probe_places`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
#[allow(missing_docs)] // as in the header
pub struct ProbePlaces {
    pub id: u32,
    pub first: u32,
    pub nr: u32,
    pub pad: u32,
    pub places: u64,
}

// SAFETY: integers and arrays of integers, repr(C).
unsafe impl Plain for ProbeFunction {}
// SAFETY: as above.
unsafe impl Plain for ProbeAttach {}
// SAFETY: as above.
unsafe impl Plain for ProbeDetach {}
// SAFETY: as above.
unsafe impl Plain for ProbeLease {}
// SAFETY: as above.
unsafe impl Plain for ProbeInfo {}
// SAFETY: as above.
unsafe impl Plain for ProbePlaceInfo {}

/// `XK_IOC_PROBE_ATTACH`.
pub const IOC_PROBE_ATTACH: u32 = ioc::<ProbeAttach>(READ | WRITE, 16);
/// `XK_IOC_PROBE_DETACH`.
pub const IOC_PROBE_DETACH: u32 = ioc::<ProbeDetach>(READ | WRITE, 17);
/// `XK_IOC_PROBE_INFO`.
pub const IOC_PROBE_INFO: u32 = ioc::<ProbeInfo>(READ | WRITE, 18);
/// `XK_IOC_PROBE_PLACES`.
pub const IOC_PROBE_PLACES: u32 = ioc::<ProbePlaces>(READ | WRITE, 19);
/// `XK_IOC_PROBE_LEASE`.
pub const IOC_PROBE_LEASE: u32 = ioc::<ProbeLease>(READ | WRITE, 20);
