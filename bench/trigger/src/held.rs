//! A constant that can be changed in its instructions, and seen to be changed: the longest
//! that one write may be (`MAX_RW_COUNT`, fs/read_write.c). Longer ones are cut.

use std::io::Write;

use anyhow::{ensure, Context, Result};
use iced_x86::{Decoder, DecoderOptions, OpKind};
use xk_harness::{empty_table, site};
use xk_table::{CriticalSpan, InPlace, Mode, Patch, Proof, Range, ScopeTable, Values};

use crate::update::running;

/// Of the kernel: the largest number of whole pages that is an `int`.
const DEFAULT: i64 = 0x7fff_f000;
/// A longest write that nobody here exceeds but [`written`].
pub const SHORT: i64 = 0x1000;
/// What [`written`] writes.
pub const LONG: i64 = 0x2000;

/// How much of a long write the kernel accepts.
pub fn written() -> Result<i64> {
    let mut null = std::fs::File::options().write(true).open("/dev/null")?;
    Ok(i64::try_from(null.write(&[0; LONG as usize])?)?)
}

/// The instructions of `code` in which the constant stands, as a span of its own.
pub fn table(symbol: &str, code: &[u8]) -> Result<ScopeTable> {
    let mut decoder = Decoder::with_ip(64, code, 0, DecoderOptions::NONE);
    let (mut patches, mut end) = (Vec::new(), None);
    while decoder.can_decode() {
        let insn = decoder.decode();
        let wide = |i: u32| match insn.op_kind(i) {
            OpKind::Immediate32 => Some(4),
            OpKind::Immediate32to64 => Some(8),
            _ => None,
        };
        let held = (0..insn.op_count()).find_map(|i| Some((i, wide(i)?)));
        let Some((_, width)) = held.filter(|&(i, _)| insn.immediate(i) == DEFAULT as u64) else { continue };
        let offsets = decoder.get_constant_offsets(&insn);
        patches.push(Patch {
            offset: insn.ip() as u32,
            insn_len: insn.len() as u8,
            field: offsets.immediate_offset() as u8,
            size: offsets.immediate_size() as u8,
            width,
            iv: 0,
        });
        end = Some(insn.next_ip() as u32);
    }
    let (start, end) = (patches.first().map(|patch| patch.offset), end);
    let (start, end) = start.zip(end).with_context(|| format!("{symbol} does not hold {DEFAULT:#x}"))?;
    ensure!(end < code.len() as u32, "{symbol} ends with it");
    let probed = Decoder::with_ip(64, &code[end as usize..], 0, DecoderOptions::NONE).decode();
    let proof = Proof::Proved { solver: "by hand: written()".into(), millis: 0 };
    let range = Range::of(SHORT, DEFAULT);
    // Its update is not used: the table is loaded by patch only.
    let span = CriticalSpan {
        start,
        end,
        proof: proof.clone(),
        in_place: Some(InPlace { patches, range, proof }),
        ..site(0, end, probed.len() as u8)
    };
    Ok(ScopeTable {
        values: Values::proved(SHORT, DEFAULT),
        functions: vec![running(symbol, code)],
        spans: vec![span],
        ..empty_table("held", DEFAULT, Mode::Global)
    })
}
