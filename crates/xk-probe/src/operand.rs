//! Where an indirect call finds its target, in a number that a program can read: the upper bits of the cookie of its place.
//!
//! In: the instruction, and the name of the thunk that it branches to. Out: a register or a place in memory, as the
//! registers before the instruction give it. `bpf/xk_probe.bpf.h` reads the number. Refuses memory of a segment, and
//! addresses that registers alone do not give.

use iced_x86::{FlowControl, Instruction, OpKind, Register};

/// Bits of the cookie below those of the operand: the number of the place.
pub const NUMBER_BITS: u32 = 16;
/// A register's number plus 1; 0 is none.
const BASE: u32 = NUMBER_BITS;
const INDEX: u32 = BASE + 5;
/// Logarithm of the scale.
const SCALE: u32 = INDEX + 5;
const MEMORY: u32 = SCALE + 2;
const DISPLACEMENT: u32 = 32;

/// What thunks of retpolines are called, up to the register.
const THUNKS: [&str; 3] = ["__x86_indirect_call_thunk_", "__x86_indirect_jump_thunk_", "__x86_indirect_thunk_"];
/// The first of the thunks shares its address with the array of all.
const ARRAY: [&str; 3] =
    ["__x86_indirect_call_thunk_array", "__x86_indirect_jump_thunk_array", "__x86_indirect_thunk_array"];
const REGISTERS: [&str; 16] =
    ["rax", "rcx", "rdx", "rbx", "rsp", "rbp", "rsi", "rdi", "r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15"];

/// Where the target is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operand {
    /// In a register, by its number in instructions.
    Register(u8),
    /// In eight bytes of memory.
    Memory {
        /// A register, by its number.
        base: Option<u8>,
        /// Another one.
        index: Option<u8>,
        /// Logarithm of the factor of the index.
        scale: u8,
        /// What is added; without registers, the address of the memory, sign-extended.
        displacement: i32,
    },
}

impl Operand {
    /// That of a branch to one of these names.
    #[must_use]
    pub fn of_thunk(names: &[String]) -> Option<Self> {
        let of = |name: &String| {
            if ARRAY.contains(&name.as_str()) {
                return Some(0);
            }
            let register = THUNKS.iter().find_map(|thunk| name.strip_prefix(thunk))?;
            REGISTERS.iter().position(|known| *known == register)
        };
        names.iter().find_map(of).map(|number| Self::Register(number as u8))
    }

    /// That of an indirect call or jump; `shift` is added to an address that the instruction contains.
    #[must_use]
    pub fn of(insn: &Instruction, shift: u64) -> Option<Self> {
        if !matches!(insn.flow_control(), FlowControl::IndirectCall | FlowControl::IndirectBranch) {
            return None;
        }
        match insn.op0_kind() {
            OpKind::Register => number(insn.op0_register()).map(Self::Register),
            OpKind::Memory if insn.segment_prefix() == Register::None && insn.memory_size().size() == 8 => {
                memory(insn, shift)
            }
            _ => None,
        }
    }

    /// In the upper bits of a cookie.
    #[must_use]
    pub fn cookie(self) -> u64 {
        let register = |number: Option<u8>| number.map_or(0, |number| u64::from(number) + 1);
        match self {
            Self::Register(number) => register(Some(number)) << BASE,
            Self::Memory { base, index, scale, displacement } => {
                register(base) << BASE
                    | register(index) << INDEX
                    | u64::from(scale) << SCALE
                    | 1 << MEMORY
                    | u64::from(displacement as u32) << DISPLACEMENT
            }
        }
    }
}

impl Operand {
    /// The register of a cookie, as it stands there, if the target is in one.
    pub(crate) fn register_of(cookie: u64) -> Option<u64> {
        let is_register = cookie >> SCALE == 0 && cookie >> INDEX & 0x1f == 0;
        Some(cookie >> BASE & 0x1f).filter(|register| is_register && *register != 0)
    }
}

fn memory(insn: &Instruction, shift: u64) -> Option<Operand> {
    let (base, index) = (insn.memory_base(), insn.memory_index());
    if base == Register::RIP || base == Register::None && index == Register::None {
        let address = insn.memory_displacement64().wrapping_add(shift) as i64;
        let displacement = i32::try_from(address).ok()?;
        return Some(Operand::Memory { base: None, index: None, scale: 0, displacement });
    }
    let register = |register: Register| match register {
        Register::None => Some(None),
        register => number(register).map(Some),
    };
    let displacement = i32::try_from(insn.memory_displacement64() as i64).ok()?;
    // A table of the kernel is not where the image has it.
    if base == Register::None && shift != 0 {
        return None;
    }
    let scale = insn.memory_index_scale().trailing_zeros() as u8;
    Some(Operand::Memory { base: register(base)?, index: register(index)?, scale, displacement })
}

/// The number of a whole register.
fn number(register: Register) -> Option<u8> {
    register.is_gpr64().then(|| register.number() as u8)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use iced_x86::{Decoder, DecoderOptions};

    use super::*;

    fn of(bytes: &[u8], shift: u64) -> Option<Operand> {
        Operand::of(&Decoder::with_ip(64, bytes, 0xffff_ffff_8100_0000, DecoderOptions::NONE).decode(), shift)
    }

    fn memory(base: Option<u8>, index: Option<u8>, scale: u8, displacement: i32) -> Option<Operand> {
        Some(Operand::Memory { base, index, scale, displacement })
    }

    #[test]
    fn operands_are_read() {
        assert_eq!(of(&[0xff, 0xd0], 0), Some(Operand::Register(0)), "call *%rax");
        assert_eq!(of(&[0x41, 0xff, 0xe7], 0), Some(Operand::Register(15)), "jmp *%r15");
        assert_eq!(of(&[0xff, 0x50, 0x18], 0), memory(Some(0), None, 0, 0x18), "call *0x18(%rax)");
        assert_eq!(of(&[0x41, 0xff, 0x54, 0xdc, 0xf8], 0), memory(Some(12), Some(3), 3, -8), "call *-8(%r12,%rbx,8)");
        let table = [0xff, 0x14, 0xc5, 0x00, 0x10, 0x00, 0x82]; // call *-0x7dfff000(,%rax,8)
        assert_eq!(of(&table, 0), memory(None, Some(0), 3, 0x8200_1000_u32 as i32));
        assert_eq!(of(&table, 0x20_0000), None, "the table has moved");
        assert_eq!(
            of(&[0xff, 0x15, 0xfa, 0x0f, 0, 0], 0x20_0000),
            memory(None, None, 0, 0x8120_1000_u32 as i32),
            "rip"
        );
        assert_eq!(of(&[0x65, 0xff, 0x10], 0), None, "call *%gs:(%rax)");
        assert_eq!(of(&[0xe8, 0, 0, 0, 0], 0), None, "a direct call");
    }

    #[test]
    fn thunks_are_known_by_their_names() {
        let of = |name: &str| Operand::of_thunk(&[name.to_owned()]);
        assert_eq!(of("__x86_indirect_thunk_rdx"), Some(Operand::Register(2)));
        assert_eq!(of("__x86_indirect_thunk_array"), Some(Operand::Register(0)));
        assert_eq!(of("__x86_indirect_thunk_r15"), Some(Operand::Register(15)));
        assert_eq!(of("__x86_return_thunk"), None);
    }

    #[test]
    fn a_cookie_holds_an_operand_and_nothing_in_its_lower_bits() {
        assert_eq!(Operand::Register(15).cookie(), 16 << 16);
        let all = memory(Some(12), Some(3), 3, -8).unwrap().cookie();
        assert_eq!(all, 0xffff_fff8_0000_0000 | 1 << 28 | 3 << 26 | 4 << 21 | 13 << 16);
        assert_eq!(Operand::register_of(Operand::Register(15).cookie() | 0xffff), Some(16));
        let base = memory(Some(12), None, 0, 0).unwrap().cookie();
        assert_eq!([all, base, 7].map(Operand::register_of), [None; 3]);
    }
}
