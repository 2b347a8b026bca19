//! Kinds of relocations of x86-64 that the kernel uses, by their numbers in the System V ABI.

/// Absolute, 64 bits.
pub const ABS64: u32 = 1;
/// Relative, 32 bits.
pub const PC32: u32 = 2;
/// Relative through the PLT; the kernel has none.
pub const PLT32: u32 = 4;
/// Absolute, 32 bits that are zero-extended.
pub const ABS32: u32 = 10;
/// Absolute, 32 bits that are sign-extended.
pub const ABS32S: u32 = 11;
/// Relative, 64 bits.
pub const PC64: u32 = 24;

/// Bytes that the linker writes; `None` when it writes nothing
/// (`R_X86_64_NONE`, which objtool leaves behind).
#[must_use]
pub fn size(kind: u32) -> Option<u8> {
    match kind {
        0 => None,
        // R_X86_64_8, PC8
        14 | 15 => Some(1),
        // R_X86_64_16, PC16
        12 | 13 => Some(2),
        // R_X86_64_64, PC64, GOTOFF64, SIZE64
        ABS64 | PC64 | 25 | 33 => Some(8),
        _ => Some(4),
    }
}
