//! Multiplication by a constant, however the compiler wrote it: `imul`, `shl`,
//! or a chain of `lea`, `add`, `sub` and `shl`. All of them become one form,
//! a factor times a value, at the last instruction of the chain.

use xk_lift::insn::Insn;
use xk_lift::semantics::{gpr, step, Substitution};
use xk_lift::state::State;
use xk_lift::term::{BinOp, Bits, TermId, Terms};

/// A value times a known factor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Product {
    /// The value.
    pub leaf: TermId,
    /// The factor, modulo 2^bits.
    pub factor: u64,
    /// Width of the multiplication.
    pub bits: Bits,
}

/// The register that `insn` writes as its only result, if it may end a chain.
#[must_use]
pub fn destination(insn: &Insn) -> Option<(usize, Bits)> {
    use iced_x86::Mnemonic as M;
    if !matches!(insn.raw.mnemonic(), M::Lea | M::Add | M::Sub | M::Shl | M::Sal | M::Imul | M::Neg) {
        return None;
    }
    match gpr(insn.raw.op0_register()) {
        Some((number, bits @ (32 | 64), false)) => Some((number, bits)),
        _ => None,
    }
}

/// What `insn` has just computed in `state`, as a product.
pub fn result(terms: &mut Terms, state: &State, insn: &Insn) -> Option<Product> {
    let (number, bits) = destination(insn)?;
    let term = terms.extract(state.regs[number], 0, bits);
    let (leaf, factor) = terms.multiple(term);
    Some(Product { leaf, factor: factor as u64, bits })
}

/// Replaces what `insn` has just computed by `leaf` times `factor`.
pub fn replace(terms: &mut Terms, state: &mut State, insn: &Insn, leaf: TermId, factor: TermId) {
    let Some((number, bits)) = destination(insn) else { return };
    let factor = terms.extract(factor, 0, bits);
    let value = terms.bin(BinOp::Mul, leaf, factor);
    state.set_reg(terms, number, value);
    // The flags of the last instruction of a chain belong to the way the
    // multiplication was written, not to the multiplication.
    for flag in xk_lift::state::Flag::ALL {
        let unknown = terms.fresh("undefined", 1);
        state.set_flag(flag, unknown);
    }
    state.flags_origin = None;
}

/// The shortest chain in `block` that ends at `end` and multiplies by more
/// than its last instruction does: index of its first instruction, and factor.
/// The chain reaches back while that makes the factor larger.
#[must_use]
pub fn chain(block: &[&Insn], end: usize) -> Option<(usize, u64, Bits)> {
    let mut best = None;
    for start in (end.saturating_sub(8)..=end).rev() {
        let mut terms = Terms::new();
        let mut state = State::unknown(&mut terms);
        let executed =
            block[start..=end].iter().all(|insn| step(&mut terms, &mut state, insn, Substitution::default()).is_ok());
        if !executed {
            break;
        }
        let Some(product) = result(&mut terms, &state, block[end]) else { continue };
        if product.factor > 1 && best.is_none_or(|(_, factor, _)| factor != product.factor) {
            best = Some((start, product.factor, product.bits));
        }
    }
    best
}
