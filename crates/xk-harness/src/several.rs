//! The sixteen functions of `kernel/test/target_several.S`: enough places for a hundred sites.

use std::fs;
use std::path::Path;

use anyhow::{ensure, Context, Result};
use xk_table::{CriticalSpan, Function, InPlace, Patch, Range, Scope, ScopeTable};

use crate::family::{function, site};

/// The functions have this name, followed by a number.
const SEVERAL: &str = "xk_target_several_";
const SOURCE: &str = "kernel/test/target_several.S";
const PROC: &str = "/proc/xk_target";
/// The default of their constant.
pub const DEFAULT: i64 = 32;
/// How often they contain it altogether, and in how many bytes.
const CONSTANTS: i64 = 16 * 16;
const EACH: u32 = 12;
/// Sites in each of them.
const PER_FUNCTION: usize = 8;
/// Every second one is a site.
const STRIDE: u32 = 2 * EACH;
const MOVE_LEN: u8 = 5;
const LEA_LEN: u8 = 7;
const RDX: u8 = 2;

/// Adds sites of these functions until the table has the wanted number.
///
/// # Errors
/// When the module `target` does not contain enough.
pub fn fill(all: &mut ScopeTable, target: &Path, wanted: usize) -> Result<()> {
    for number in 0.. {
        let sites = wanted.saturating_sub(all.spans.len()).min(PER_FUNCTION);
        if sites == 0 {
            break;
        }
        add(all, function(target, &format!("{SEVERAL}{number}"), SOURCE)?, sites)?;
    }
    Ok(())
}

/// Adds sites of one function.
fn add(all: &mut ScopeTable, function: Function, sites: usize) -> Result<()> {
    let (index, first) = (all.functions.len(), all.spans.len());
    let whole = [0, u32::try_from(function.bytes.len() / 2)?];
    all.functions.push(function);
    for number in 0..u32::try_from(sites)? {
        // mov $32,%edx; lea 0(%rax,%rdx),%eax
        let mov = 2 + STRIDE * number;
        let mut span = site(index, mov + u32::from(MOVE_LEN), LEA_LEN);
        span.start = mov;
        span.indirection.window = LEA_LEN;
        span.indirection.program.ops[1].dst = RDX;
        let patch = Patch { offset: mov, insn_len: MOVE_LEN, field: 1, size: 4, width: 4, iv: 0 };
        let held = InPlace { patches: vec![patch], range: Range::of(0, 1_000_000), proof: span.proof.clone() };
        span.in_place = Some(held);
        all.spans.push(span);
    }
    let spans = (first..all.spans.len()).collect();
    all.scopes.push(Scope { function: index, ranges: vec![whole], spans, ..Scope::default() });
    Ok(())
}

/// Fails unless the functions return what they should while the sites of `table` have this value.
///
/// # Errors
/// When they do not, or `kernel/test` is not loaded.
pub fn check(table: &ScopeTable, value: i64) -> Result<()> {
    let is_several = |span: &&CriticalSpan| table.functions[span.function].symbol.starts_with(SEVERAL);
    let changed = table.spans.iter().filter(is_several).count() as i64;
    let expected = CONSTANTS * DEFAULT + changed * (value - DEFAULT);
    let text = fs::read_to_string(PROC).context(PROC)?;
    let several = text.lines().find_map(|line| line.strip_prefix("several ")).context("no line `several`")?;
    ensure!(several == expected.to_string(), "xk_target_several returned {several} instead of {expected}");
    Ok(())
}
