//! Whether the instructions of a span can hold another value themselves.
//!
//! In: a span with its seeds, in the deployed build. Out: where in which instructions the
//! values stand, the range of V for which every number has room, and the obligation: for
//! every state and every V in that range, executing the span with these numbers replaced
//! leaves the same as executing it with V. Refused: values that are no number in their
//! instruction (a factor that is shifts and additions, a constant in a pool), numbers that
//! the linker writes, instructions that the kernel patches or that may not be probed.
//!
//! That a number in the bytes is read as the obligation says (its sign extended) is seen
//! by decoding: with no bit, every single bit, and all bits of it set, the instruction is
//! the same but for the number.

use std::ops::Range as Indices;

use iced_x86::{ConstantOffsets, Decoder, DecoderOptions, Instruction, OpKind};
use thiserror::Error;
use xk_lift::insn::Insn;
use xk_lift::object::Function;
use xk_lift::probe;
use xk_lift::semantics::{is_immediate, step, Substitution};
use xk_lift::state::State;
use xk_table::{Fit, InPlace, Order, Patch, Proof, Range, MAX_PATCHES};

use crate::constants::Field;
use crate::context::Context;
use crate::program::iv_term;
use crate::proof::{obligation, ProofError};
use crate::twin::{NotExecuted, Twin};

/// Why the instructions of a span cannot hold another value. Instructions are in words.
#[derive(Debug, Error)]
pub(crate) enum NotInPlace {
    /// The kernel does not let the instruction be changed.
    #[error("`{instruction}`: {reason}")]
    Unprobeable {
        /// The instruction.
        instruction: String,
        /// Why it takes no probe.
        reason: String,
    },
    /// The function has fewer bytes than the instruction needs.
    #[error("the function ends within an instruction")]
    Cut,
    /// The instruction holds a value that the update does not have.
    #[error("it holds a value that the update does not have")]
    UnknownValue,
    /// Linking or patching changes the bytes in the running kernel.
    #[error("`{0}`: the kernel patches these bytes itself")]
    KernelPatches(String),
    /// The bytes are not read as a number of their own.
    #[error("`{instruction}`: {why}")]
    Misread {
        /// The instruction.
        instruction: String,
        /// How they are read.
        why: Misread,
    },
    /// Too few or too many instructions.
    #[error("{0} instructions hold it, 1 to {MAX_PATCHES} can be changed")]
    Count(usize),
    /// The default itself has no room in the numbers.
    #[error("the numbers are not those of the default")]
    NotDefault,
    /// The constant is a factor in shifts and additions.
    #[error("`{0}` does not hold the factor as a number")]
    Factor(String),
    /// The instruction needs an update that tests for order.
    #[error("`{instruction}` is to test for {}", .order.words())]
    ToTest {
        /// The instruction.
        instruction: String,
        /// The test.
        order: Order,
    },
    /// The constant is in memory.
    #[error("`{0}` reads a constant from memory")]
    Pool(String),
    /// More than one constant is in one instruction.
    #[error("`{0}` holds more than one value")]
    SeveralValues(String),
    /// The function has another instruction there.
    #[error("`{0}` is not in the function's bytes")]
    OtherBytes(String),
    /// The number is relocated.
    #[error("`{0}`: the linker writes the number")]
    Relocated(String),
    /// The instruction has no such field.
    #[error("`{0}` does not hold the value as a number")]
    NoNumber(String),
    /// There are fewer numbers than instructions.
    #[error("an instruction holds no number")]
    NoPatch,
    /// A number refers to a value that the span does not have.
    #[error("a number belongs to no value")]
    NoValue,
    /// It is not known what an instruction does.
    #[error(transparent)]
    NotExecuted(#[from] NotExecuted),
    /// The obligation is not proved.
    #[error(transparent)]
    NotProved(#[from] ProofError),
}

/// How bytes in an instruction are read otherwise than as its number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub(crate) enum Misread {
    /// The field is wider than the value.
    #[error("the number has {size} bytes, the value has {width}")]
    Wider {
        /// Size of the field, in bytes.
        size: u8,
        /// Width of the value, in bytes.
        width: u8,
    },
    /// These bits change more than the number.
    #[error("with the number {pattern:#x} the bytes are another instruction")]
    Another {
        /// The bits.
        pattern: u64,
    },
}

/// The values of a span in its instructions, proved; or why that cannot be.
pub(crate) fn in_place(
    context: &Context<'_>,
    function: &Function,
    block: &[&Insn],
    span: Indices<usize>,
    ivs: &[Fit],
) -> Result<InPlace, NotInPlace> {
    let (patches, range) = find(context, function, &block[span.clone()], ivs)?;
    let query = query(context, block, span, &patches, range, ivs)?;
    let millis = context.solver.refute(&query)?;
    Ok(InPlace { patches, range, proof: Proof::Proved { solver: context.solver.name.clone(), millis } })
}

/// The numbers of a span, and the values for which they have room.
pub(crate) fn find(
    context: &Context<'_>,
    function: &Function,
    insns: &[&Insn],
    ivs: &[Fit],
) -> Result<(Vec<Patch>, Range), NotInPlace> {
    let (text, mask) = context.object.text_and_mask(function);
    let mut patches = Vec::new();
    for insn in insns.iter().filter(|insn| context.is_seed(insn)) {
        if let Some(reason) = probe::unprobeable(context.object, function, insn) {
            return Err(NotInPlace::Unprobeable { instruction: insn.text(), reason });
        }
        let at = (insn.node.offset - function.start.offset) as usize;
        let bytes = text.get(at..at + insn.raw.len()).ok_or(NotInPlace::Cut)?;
        let (field, fit) = value_of(context, insn)?;
        let (from, size) = number(insn, bytes, field)?;
        let patch = Patch {
            offset: at as u32,
            insn_len: insn.raw.len() as u8,
            field: from as u8,
            size: size as u8,
            width: fit.width,
            iv: ivs.iter().position(|iv| *iv == fit).ok_or(NotInPlace::UnknownValue)?,
        };
        let fixed = |byte: usize| mask.get(at + byte) == Some(&0xff);
        if !fixed(0) || !(from..from + size).all(fixed) {
            return Err(NotInPlace::KernelPatches(insn.text()));
        }
        decodes_as_number(bytes, &patch, field).map_err(|why| NotInPlace::Misread { instruction: insn.text(), why })?;
        patches.push(patch);
    }
    if patches.is_empty() || patches.len() > MAX_PATCHES {
        return Err(NotInPlace::Count(patches.len()));
    }
    let range = room(context, &patches, ivs).ok_or(NotInPlace::NotDefault)?;
    Ok((patches, range))
}

/// The one constant of a seed.
fn value_of(context: &Context<'_>, insn: &Insn) -> Result<(Field, Fit), NotInPlace> {
    let fits: Vec<(Field, Fit)> =
        Field::ALL.into_iter().filter_map(|field| Some((field, *context.seeds.get(&(insn.node, field))?))).collect();
    match fits[..] {
        [(field @ (Field::Immediate | Field::Displacement), fit)] => Ok((field, fit)),
        [(Field::Product, _)] => Err(NotInPlace::Factor(insn.text())),
        [(Field::Order(order), _)] => Err(NotInPlace::ToTest { instruction: insn.text(), order }),
        [(Field::Pool, _)] => Err(NotInPlace::Pool(insn.text())),
        _ => Err(NotInPlace::SeveralValues(insn.text())),
    }
}

fn decode(bytes: &[u8], ip: u64) -> (Instruction, ConstantOffsets) {
    let mut decoder = Decoder::with_ip(64, bytes, ip, DecoderOptions::NONE);
    let raw = decoder.decode();
    (raw, decoder.get_constant_offsets(&raw))
}

/// Where in the instruction its number stands, and in how many bytes.
fn number(insn: &Insn, bytes: &[u8], field: Field) -> Result<(usize, usize), NotInPlace> {
    let (raw, offsets) = decode(bytes, insn.raw.ip());
    if raw != insn.raw {
        return Err(NotInPlace::OtherBytes(insn.text()));
    }
    let relocated = match field {
        Field::Immediate => insn.immediate.is_some(),
        _ => insn.displacement.is_some() || raw.is_ip_rel_memory_operand(),
    };
    if relocated {
        return Err(NotInPlace::Relocated(insn.text()));
    }
    match field {
        Field::Immediate if offsets.has_immediate() && !offsets.has_immediate2() => {
            Ok((offsets.immediate_offset(), offsets.immediate_size()))
        }
        Field::Displacement if offsets.has_displacement() => {
            Ok((offsets.displacement_offset(), offsets.displacement_size()))
        }
        _ => Err(NotInPlace::NoNumber(insn.text())),
    }
}

fn immediate(raw: &Instruction) -> Option<u64> {
    (0..raw.op_count()).find(|&i| is_immediate(raw.op_kind(i))).map(|i| raw.immediate(i))
}

/// Everything but the number of `field`.
fn rest(raw: &Instruction, field: Field) -> impl PartialEq {
    let operands: Vec<_> = (0..raw.op_count()).map(|i| (raw.op_kind(i), raw.op_register(i))).collect();
    let prefixes = (raw.has_lock_prefix(), raw.has_rep_prefix(), raw.has_repne_prefix(), raw.segment_prefix());
    let memory = (raw.memory_base(), raw.memory_index(), raw.memory_index_scale(), raw.memory_size());
    let in_memory = (0..raw.op_count()).any(|i| raw.op_kind(i) == OpKind::Memory);
    let other = match field {
        // Without memory, iced keeps a half of the immediate there.
        Field::Immediate => {
            if in_memory {
                raw.memory_displacement64()
            } else {
                0
            }
        }
        _ => immediate(raw).unwrap_or(0),
    };
    (raw.code(), raw.len(), operands, prefixes, memory, other)
}

/// Whether any other number there is read as that number, its sign extended, and changes
/// nothing else. Both are linear in the bits, so every single one and all of them tell.
fn decodes_as_number(bytes: &[u8], patch: &Patch, field: Field) -> Result<(), Misread> {
    let bits = u32::from(patch.size) * 8;
    if patch.size > patch.width {
        return Err(Misread::Wider { size: patch.size, width: patch.width });
    }
    let kept = u64::MAX >> (64 - u32::from(patch.width) * 8);
    let original = rest(&decode(bytes, 0).0, field);
    let patterns = (0..bits).map(|bit| 1u64 << bit).chain([0, u64::MAX >> (64 - bits)]);
    for pattern in patterns {
        let mut changed = bytes.to_vec();
        let (from, size) = (usize::from(patch.field), usize::from(patch.size));
        changed[from..from + size].copy_from_slice(&pattern.to_le_bytes()[..size]);
        let raw = decode(&changed, 0).0;
        let read = match field {
            Field::Immediate => immediate(&raw),
            _ => Some(raw.memory_displacement64()),
        };
        let meant = ((pattern << (64 - bits)) as i64 >> (64 - bits)) as u64;
        if rest(&raw, field) != original || read.map(|read| read & kept) != Some(meant & kept) {
            return Err(Misread::Another { pattern });
        }
    }
    Ok(())
}

/// The values around the default for which every number has room; forms are monotonic.
fn room(context: &Context<'_>, patches: &[Patch], ivs: &[Fit]) -> Option<Range> {
    let fits = |value: i64| patches.iter().all(|p| p.has_room(Fit { width: 8, ..ivs[p.iv] }.apply(value)));
    context.range.around(context.default, fits)
}

/// The negated obligation: satisfiable when some state and some V in `range` tell the span
/// with other numbers from the span with V.
pub(crate) fn query(
    context: &Context<'_>,
    block: &[&Insn],
    span: Indices<usize>,
    patches: &[Patch],
    range: Range,
    ivs: &[Fit],
) -> Result<String, NotInPlace> {
    let mut twin = Twin::new();
    let mut changed = State::unknown(&mut twin.terms);
    let mut left = patches.iter();
    for insn in &block[span.clone()] {
        let mut substitution = Substitution::default();
        if context.is_seed(insn) {
            let (field, _) = value_of(context, insn)?;
            let patch = left.next().ok_or(NotInPlace::NoPatch)?;
            let fit = ivs.get(patch.iv).ok_or(NotInPlace::NoValue)?;
            let value = iv_term(&mut twin.terms, fit);
            let number = twin.terms.extract(value, 0, u32::from(patch.size) * 8);
            let meant = Some(twin.terms.sext(number, u32::from(patch.width) * 8));
            match field {
                Field::Immediate => substitution.immediate = meant,
                _ => substitution.displacement = meant,
            }
        }
        step(&mut twin.terms, &mut changed, insn, substitution).map_err(NotExecuted::from)?;
        twin.step(context, insn)?;
    }
    let live = context.live_before(block, span.end);
    Ok(obligation(&mut twin.terms, &changed, &twin.wanted, live, range, ivs))
}
