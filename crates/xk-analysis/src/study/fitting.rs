//! Functions of V from observations.
//!
//! In: observations of some values. Out: for every constant that differs in one of them, a function of V that gives what
//! each of them holds, the deployed build included. Refused: a constant for which there is none ([`crate::fit`] lists
//! the forms).
//!
//! A multiplication has two readings. If one value makes it a shift and another one a chain of `lea`, no function of V
//! gives the shift count, but one gives the factor. So a constant is read as a factor wherever any observation has a
//! product at the same instruction. This relies on [`crate::product`] giving the same factor for all ways of writing it,
//! and a wrong reading shows as a wrong number in the theorem.

use std::collections::BTreeSet;

use iced_x86::{Mnemonic, OpKind};
use xk_lift::insn::{Insn, Node};
use xk_lift::semantics::{gpr, is_immediate};
use xk_table::Refusal;

use super::{Fits, Means, Observation, State, Study};
use crate::constants::{Differences, Field, Seeds, VariantConstant};
use crate::data;
use crate::fit::{fit, Point};
use crate::product;

impl Study {
    /// Functions of V that give what was observed.
    pub(super) fn fit(&self, means: &Means<'_>, mut observed: Vec<Observation>) -> Result<Fits, Refusal> {
        self.read_constants_as_products(&mut observed);
        let keys: BTreeSet<(Node, Field)> = observed.iter().flat_map(|seen| seen.code.keys().copied()).collect();
        let mut code = Seeds::new();
        for key in keys {
            let points = self.points(means.default, &observed, key);
            let fit = fit(&points, width(&self.base.insns[&key.0], key.1)).ok_or_else(|| Refusal::NonLinear {
                place: self.place(key.0),
                values: points.iter().map(|p| p.v).collect(),
                ivs: points.iter().map(|p| p.iv).collect(),
            })?;
            code.insert(key, fit);
        }
        let data: Vec<_> = observed.iter().map(|seen| (seen.value, &seen.data)).collect();
        let data = data::fit_all(&self.base, &self.source, means.default, &data)?;
        Ok(Fits { code, data })
    }

    /// Takes these words of data for those that follow V, if functions of V give what all values that agree have in them.
    pub fn size_words(&mut self, means: &Means<'_>, words: &data::Words) {
        let State::Fitted(fitted) = &self.state else { return };
        let among: Vec<_> = self.observed.iter().filter(|seen| fitted.agreeing.contains(&seen.value)).collect();
        let observed: Vec<_> = among.iter().map(|seen| (seen.value, &seen.data)).collect();
        let Ok(data) = data::fit_words(&self.base, &self.source, means.default, &observed, words) else { return };
        let fits = Fits { code: fitted.fits.code.clone(), data };
        if among.iter().any(|seen| self.predicted(&fits, seen).is_err()) {
            return;
        }
        if let State::Fitted(fitted) = &mut self.state {
            fitted.fits = fits;
        }
    }

    /// What was observed of one constant, for the deployed value and each other.
    fn points(&self, default: i64, observed: &[Observation], key: (Node, Field)) -> Vec<Point> {
        let bits = u32::from(width(&self.base.insns[&key.0], key.1)) * 8;
        let constant = self.deployed_constant(key);
        let mut points = vec![Point { v: default, iv: constant, bits }];
        points.extend(observed.iter().map(|seen| match seen.code.get(&key) {
            Some(other) => Point { v: seen.value, iv: other.value, bits: other.bits.min(bits) },
            None => Point { v: seen.value, iv: constant, bits },
        }));
        points
    }

    /// The constant that the deployed code holds at an instruction.
    pub(crate) fn deployed_constant(&self, key: (Node, Field)) -> u64 {
        let insn = &self.base.insns[&key.0];
        match key.1 {
            Field::Displacement => {
                insn.displacement.as_ref().map_or(insn.raw.memory_displacement64(), |s| s.offset as u64)
            }
            Field::Immediate | Field::Order(_) => (0..insn.raw.op_count())
                .find(|&i| is_immediate(insn.raw.op_kind(i)))
                .map_or(0, |i| insn.raw.immediate(i)),
            Field::Pool => insn.pool.unwrap_or(0),
            Field::Product => {
                let block = self.flow.block(&self.base, key.0);
                let index = block.iter().position(|i| i.node == key.0).unwrap_or(0);
                product::chain(&block, index).map_or(0, |(_, factor, _)| factor)
            }
        }
    }

    /// Reads constants as factors where an observation has a product.
    fn read_constants_as_products(&self, observed: &mut [Observation]) {
        let keys = observed.iter().flat_map(|seen| seen.code.keys());
        let products: BTreeSet<Node> = keys.filter(|key| key.1 == Field::Product).map(|key| key.0).collect();
        for node in products {
            for seen in observed.iter_mut() {
                self.read_constant_as_product(node, &mut seen.code);
            }
        }
    }

    /// Reads the constant of a left shift or `imul` as a factor, if it differs.
    pub(super) fn read_constant_as_product(&self, node: Node, differences: &mut Differences) {
        let Some(other) = differences.remove(&(node, Field::Immediate)) else { return };
        let factor = self.deployed_constant((node, Field::Product));
        let count = self.deployed_constant((node, Field::Immediate));
        let multiplies = self.base.insns[&node].raw.mnemonic() == Mnemonic::Imul;
        let scaled = if multiplies { other.value } else { (factor >> (count & 63)) << (other.value & 63) };
        differences.insert((node, Field::Product), VariantConstant { value: scaled, bits: 64 });
    }
}

/// Width in bytes at which an instruction uses a constant.
fn width(insn: &Insn, field: Field) -> u8 {
    match field {
        Field::Displacement => 8,
        Field::Product => product::destination(insn).map_or(8, |(_, bits)| (bits / 8) as u8),
        Field::Pool => insn.raw.memory_size().size() as u8,
        Field::Immediate | Field::Order(_) => width_of_immediate(insn),
    }
}

/// An immediate is as wide as the operand that it is used with. A shift count is a byte, and `push` extends to 64 bits.
fn width_of_immediate(insn: &Insn) -> u8 {
    use Mnemonic as M;
    if matches!(insn.raw.mnemonic(), M::Shl | M::Shr | M::Sar | M::Rol | M::Ror | M::Sal) {
        return 1;
    }
    if insn.raw.mnemonic() == M::Push {
        return 8;
    }
    let first = (0..insn.raw.op_count()).find(|&i| !is_immediate(insn.raw.op_kind(i)));
    match first.map(|i| (insn.raw.op_kind(i), insn.raw.op_register(i))) {
        Some((OpKind::Register, register)) => gpr(register).map_or(8, |(_, bits, _)| (bits / 8) as u8),
        Some((OpKind::Memory, _)) => insn.raw.memory_size().size() as u8,
        _ => 8,
    }
}
