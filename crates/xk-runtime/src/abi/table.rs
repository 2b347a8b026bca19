//! A table as the kernel reads it: `struct xk_table` and what follows it.

use xk_table::{MAX_IVS, MAX_OPS, MAX_PATCHES};

use super::{Bytes, Plain, MODULE_LEN, NAME_LEN, SYMBOL_LEN};

/// `XK_MAX_SITES`.
pub const MAX_SITES: usize = 256;
/// `XK_MAX_SCOPES`.
pub const MAX_SCOPES: usize = 512;
/// `XK_MAX_RANGES`.
pub const MAX_RANGES: usize = 256;
/// `XK_MAX_VALUES`.
pub const MAX_VALUES: usize = xk_table::MAX_VALUES;
/// `XK_MAX_TEXT`.
pub const MAX_TEXT: usize = 65536;

/// `XK_BEFORE`.
pub const BEFORE: u8 = 0;
/// `XK_AFTER`.
pub const AFTER: u8 = 1;
/// `XK_INSTEAD`.
pub const INSTEAD: u8 = 2;

/// `XK_FORM_LINEAR`.
pub const FORM_LINEAR: u8 = 0;
/// `XK_FORM_QUOTIENT`.
pub const FORM_QUOTIENT: u8 = 1;
/// `XK_FORM_POWER`.
pub const FORM_POWER: u8 = 2;
/// `XK_FORM_LOG2`.
pub const FORM_LOG2: u8 = 3;
/// `XK_FORM_INVERSE`.
pub const FORM_INVERSE: u8 = 4;

/// `XK_SITE_STORES`.
pub const SITE_STORES: u32 = 1;
/// `XK_SITE_DATA`.
pub const SITE_DATA: u32 = 1 << 1;

/// `struct xk_op`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
#[allow(missing_docs)] // as in the header
pub struct Op {
    pub code: u8,
    pub width: u8,
    pub dst: u8,
    pub a: u8,
    pub b: u8,
    pub c: u8,
    pub pad: [u8; 2],
    pub imm: i64,
}

/// `struct xk_iv`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
#[allow(missing_docs)] // as in the header
pub struct Iv {
    pub a: i64,
    pub b: i64,
    pub form: u8,
    pub pad: [u8; 7],
    pub by: i64,
}

/// `struct xk_patch`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
#[allow(missing_docs)] // as in the header
pub struct Patch {
    pub offset: u32,
    pub insn_len: u8,
    pub field: u8,
    pub size: u8,
    pub width: u8,
    pub iv: u8,
    pub pad: [u8; 3],
}

/// `struct xk_site`.
#[repr(C)]
#[derive(Debug, Clone)]
#[allow(missing_docs)] // as in the header
pub struct Site {
    pub address: u64,
    pub symbol: [u8; SYMBOL_LEN],
    pub module: [u8; MODULE_LEN],
    pub offset: u32,
    pub insn_len: u8,
    pub when: u8,
    pub nr_ops: u8,
    pub nr_ivs: u8,
    pub flags: u32,
    pub text_len: u32,
    pub start: u32,
    pub window: u8,
    pub window_lead: u8,
    pub nr_patches: u8,
    pub pad: u8,
    pub text: u64,
    pub mask: u64,
    pub ivs: [Iv; MAX_IVS],
    pub ops: [Op; MAX_OPS],
    pub patches: [Patch; MAX_PATCHES],
}

/// `struct xk_range`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
#[allow(missing_docs)] // as in the header
pub struct Range {
    pub start: u32,
    pub end: u32,
}

/// `struct xk_scope`.
#[repr(C)]
#[derive(Debug, Clone)]
#[allow(missing_docs)] // as in the header
pub struct Scope {
    pub address: u64,
    pub symbol: [u8; SYMBOL_LEN],
    pub module: [u8; MODULE_LEN],
    pub text_len: u32,
    pub nr_ranges: u32,
    pub text: u64,
    pub mask: u64,
    pub ranges: u64,
}

/// `XK_TABLE_MAGIC`, with its NUL.
pub const TABLE_MAGIC: [u8; 8] = *b"xktable\0";
/// `XK_MAX_TABLE`.
pub const MAX_TABLE: usize = 16 << 20;
/// `XK_MAX_SIGNATURE`.
pub const MAX_SIGNATURE: usize = 65536;
/// `XK_TABLE_IN_PLACE`.
pub const TABLE_IN_PLACE: u32 = 1;
/// `struct xk_table`.
#[repr(C)]
#[derive(Debug, Clone)]
#[allow(missing_docs)] // as in the header
pub struct Table {
    pub magic: [u8; 8],
    pub abi: u32,
    pub flags: u32,
    pub name: [u8; NAME_LEN],
    pub default_value: i64,
    pub min: i64,
    pub max: i64,
    pub mode: u32,
    pub nr_values: u32,
    pub nr_sites: u32,
    pub nr_scopes: u32,
}

// SAFETY: `tests/abi.rs` compares the offset of each field, and the header has no gaps.
unsafe impl Bytes for Table {}
// SAFETY: as above.
unsafe impl Bytes for Site {}
// SAFETY: as above.
unsafe impl Bytes for Scope {}
// SAFETY: as above.
unsafe impl Bytes for Range {}

// SAFETY: integers and arrays of integers or of such structures, repr(C).
unsafe impl Plain for Site {}
// SAFETY: as above.
unsafe impl Plain for Scope {}
// SAFETY: as above.
unsafe impl Plain for Table {}
