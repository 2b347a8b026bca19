//! A processor for tests. Instructions mean what the semantics of `xk-lift` say, which its own tests compare with the
//! real processor.
//!
//! In: registers, flags, and a seed, from which memory that was never written follows. Out: the state after instructions.

use std::collections::BTreeMap;

use xk_lift::insn::Insn;
use xk_lift::semantics::{step, Substitution};
use xk_lift::state::{arithmetic, Flag, State, REGISTERS};
use xk_lift::term::{Node, TermId, Terms};

use crate::random::Random;

/// A random number that follows from two others.
pub fn mix(a: u64, b: u64) -> u64 {
    Random(a ^ b.rotate_left(32)).next_u64()
}

/// A random number that follows from a name.
pub fn mix_name(name: &str) -> u64 {
    name.bytes().fold(1469, |h, byte| mix(h, byte.into()))
}

/// Registers, flags and memory.
#[derive(Debug, Clone)]
pub struct Machine {
    /// What memory holds that was never written.
    pub seed: u64,
    /// By the processor's numbers.
    pub regs: [u64; 16],
    /// The status flags at their places in `rflags`.
    pub flags: u64,
    /// What was written, by address.
    pub memory: BTreeMap<u64, u8>,
}

impl Machine {
    /// A byte of memory.
    pub fn byte(&self, at: u64) -> u8 {
        // Small numbers are what comparisons decide on.
        let word = mix(self.seed, at & !7);
        let word = if word & 0x100 == 0 { word >> 56 } else { word };
        self.memory.get(&at).copied().unwrap_or((word >> (8 * (at & 7))) as u8)
    }

    /// Executes an instruction that is no branch; `false` if it has no semantics.
    pub fn step(&mut self, insn: &Insn) -> bool {
        let mut terms = Terms::new();
        let mut state = State::unknown(&mut terms);
        let known = step(&mut terms, &mut state, insn, Substitution::default()).is_ok();
        if known {
            self.commit(&terms, &state, &[]);
        }
        known
    }

    /// Goes to `state`, which begins with unknowns for what is here now, and with `ivN` for the numbers `ivs`.
    pub fn commit(&mut self, terms: &Terms, state: &State, ivs: &[u64]) {
        let symbols = |name: &str| {
            let iv = name.strip_prefix("iv").and_then(|n| n.parse::<usize>().ok()).map(|n| ivs[n]);
            u128::from(iv.unwrap_or_else(|| self.symbol(name)))
        };
        let memory = |at| self.byte(at);
        let value = |t: TermId| terms.evaluate(t, &symbols, &memory);
        let regs = std::array::from_fn(|i| value(state.regs[i]) as u64);
        let flags = Flag::ALL.into_iter().map(|f| (value(state.flag(f)) as u64) << f.bit()).sum();
        let mut stores = Vec::new();
        let mut at = state.memory;
        while let Node::Store(before, address, data) = *terms.node(at) {
            stores.push((value(address) as u64, value(data), terms.bits(data) / 8));
            at = before;
        }
        (self.regs, self.flags) = (regs, flags);
        for (address, data, bytes) in stores.into_iter().rev() {
            for i in 0..bytes {
                self.memory.insert(address.wrapping_add(i.into()), (data >> (8 * i)) as u8);
            }
        }
    }

    /// Whether a condition holds, by its number in the instruction.
    pub fn holds(&self, condition: u8) -> bool {
        let mut terms = Terms::new();
        let state = State::unknown(&mut terms);
        let holds = arithmetic::condition(&mut terms, &state.flags, condition);
        terms.evaluate(holds, &|name| u128::from(self.symbol(name)), &|_| 0) == 1
    }

    fn symbol(&self, name: &str) -> u64 {
        let register = REGISTERS.iter().position(|r| *r == name).map(|n| self.regs[n]);
        let flag = Flag::ALL.into_iter().find(|f| format!("{f:?}") == name).map(|f| self.flags >> f.bit() & 1);
        // The processor leaves something in undefined flags, so no code may depend on them.
        register.or(flag).unwrap_or_else(|| mix_name(name) & !0xfff)
    }
}
