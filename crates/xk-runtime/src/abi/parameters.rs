//! The interface of xk_tunable.ko, parameters and meters of other modules: mirrors of
//! `kernel/tunable/uapi/xk_parameter.h`.

use super::{ioc, Plain, READ, WRITE};

/// `XK_PARAMETER_ABI_VERSION`.
pub const PARAMETER_ABI_VERSION: u32 = 1;

/// `XK_PARAMETER_LEN`.
pub const PARAMETER_LEN: usize = 64;
/// `XK_PARAMETER_ERROR_LEN`.
pub const PARAMETER_ERROR_LEN: usize = 256;
/// `XK_MAX_CHOICES`.
pub const MAX_CHOICES: usize = 16;
/// `XK_CHOICE_LEN`.
pub const CHOICE_LEN: usize = 32;

/// `XK_PARAMETER_LINEAR`.
pub const PARAMETER_LINEAR: u32 = 0;
/// `XK_PARAMETER_EXPONENTIAL`.
pub const PARAMETER_EXPONENTIAL: u32 = 1;
/// `XK_PARAMETER_CHOICE`.
pub const PARAMETER_CHOICE: u32 = 2;
/// `XK_PARAMETER_REVERT`.
pub const PARAMETER_REVERT: u32 = 1;
/// `XK_PARAMETER_HELD`.
pub const PARAMETER_HELD: u32 = 1 << 1;
/// `XK_PARAMETER_OWN`.
pub const PARAMETER_OWN: u32 = 1 << 2;
/// `XK_PARAMETER_SET`.
pub const PARAMETER_SET: u32 = 0;
/// `XK_PARAMETER_LEASE`.
pub const PARAMETER_LEASE: u32 = 1;
/// `XK_PARAMETER_KEEP`.
pub const PARAMETER_KEEP: u32 = 2;
/// `XK_METER_IS_SENSOR`.
pub const METER_IS_SENSOR: u32 = 1;
/// `XK_METER_IS_TARGET`.
pub const METER_IS_TARGET: u32 = 2;
/// `XK_METER_IS_BOTTLENECK`.
pub const METER_IS_BOTTLENECK: u32 = 3;
/// `XK_METER_HAS_RATE`.
pub const METER_HAS_RATE: u32 = 1;
/// `XK_METER_LESS`.
pub const METER_LESS: u32 = 1 << 1;
/// `XK_METER_HAS_PER`.
pub const METER_HAS_PER: u32 = 1 << 2;

/// `struct xk_parameter_version`.
#[repr(C)]
#[derive(Debug, Clone)]
#[allow(missing_docs)] // as in the header
pub struct ParameterVersion {
    pub abi: u32,
    pub pad: u32,
    pub module: [u8; 64],
}

/// `struct xk_parameter_info`.
#[repr(C)]
#[derive(Debug, Clone)]
#[allow(missing_docs)] // as in the header
pub struct ParameterInfo {
    pub index: u32,
    pub id: u32,
    pub module: [u8; PARAMETER_LEN],
    pub subsystem: [u8; PARAMETER_LEN],
    pub name: [u8; PARAMETER_LEN],
    pub only_if: [u8; PARAMETER_LEN],
    pub only_if_value: i64,
    pub min: i64,
    pub max: i64,
    pub step: i64,
    pub default_value: i64,
    pub value: i64,
    pub original: i64,
    pub lease_ns: u64,
    pub steps: u32,
    pub flags: u32,
    pub settle_ms: u32,
    pub nr_choices: u32,
    pub owner_pid: i32,
    pub error: i32,
    pub choices: [[u8; CHOICE_LEN]; MAX_CHOICES],
}

/// `struct xk_parameter_change`.
#[repr(C)]
#[derive(Debug, Clone)]
#[allow(missing_docs)] // as in the header
pub struct ParameterChange {
    pub size: u32,
    pub id: u32,
    pub op: u32,
    pub pad: u32,
    pub value: i64,
    pub lease_ns: u64,
    pub error: [u8; PARAMETER_ERROR_LEN],
}

/// `struct xk_meter_info`.
#[repr(C)]
#[derive(Debug, Clone)]
#[allow(missing_docs)] // as in the header
pub struct MeterInfo {
    pub index: u32,
    pub role: u32,
    pub module: [u8; PARAMETER_LEN],
    pub subsystem: [u8; PARAMETER_LEN],
    pub name: [u8; PARAMETER_LEN],
    pub limit: u64,
    pub of: u64,
    pub per: u64,
    pub flags: u32,
    pub error: i32,
}

// SAFETY: integers and arrays of integers, repr(C).
unsafe impl Plain for ParameterVersion {}
// SAFETY: as above.
unsafe impl Plain for ParameterInfo {}
// SAFETY: as above.
unsafe impl Plain for ParameterChange {}
// SAFETY: as above.
unsafe impl Plain for MeterInfo {}

/// `XK_IOC_PARAMETER_VERSION`.
pub const IOC_PARAMETER_VERSION: u32 = ioc::<ParameterVersion>(READ, 64);
/// `XK_IOC_PARAMETER_INFO`.
pub const IOC_PARAMETER_INFO: u32 = ioc::<ParameterInfo>(READ | WRITE, 65);
/// `XK_IOC_PARAMETER_CHANGE`.
pub const IOC_PARAMETER_CHANGE: u32 = ioc::<ParameterChange>(READ | WRITE, 66);
/// `XK_IOC_METER_INFO`.
pub const IOC_METER_INFO: u32 = ioc::<MeterInfo>(READ | WRITE, 67);
