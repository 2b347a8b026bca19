//! Where `xk.ko` keeps other probes from becoming jumps: before numbers that change in place, and before what a branch
//! in a window leads to. A window in which such a guard stands cannot be a jump (`kernel/xk/backend/guard.c`).
//!
//! In: a table, and how its sites are reached. Out: the places of guards. A function whose bytes are no instructions
//! has none.

use std::collections::BTreeSet;
use std::ops::Range;

use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction};
use xk_runtime::Backend;
use xk_table::{CriticalSpan, Function, ScopeTable};

/// Length of the jump that kprobes make of a probe.
const JUMP_LEN: u32 = 5;

/// Places of guards: function and offset.
#[derive(Debug, Default)]
pub struct Guards(BTreeSet<(usize, u32)>);

/// Whether the instructions of the span hold the value.
pub fn holds_it(span: &CriticalSpan, backend: Backend) -> bool {
    backend == Backend::AutoGlobal && span.in_place.is_some()
}

impl Guards {
    /// Those of all sites of the table.
    pub fn of(table: &ScopeTable, backend: Backend) -> Self {
        let mut guards = Self::default();
        for (index, function) in table.functions.iter().enumerate() {
            let code = instructions(function);
            for span in table.spans.iter().filter(|span| span.function == index) {
                guards.add(span, &code, backend);
            }
        }
        guards
    }

    fn add(&mut self, span: &CriticalSpan, code: &[Instruction], backend: Backend) {
        if let Some(in_place) = span.in_place.as_ref().filter(|_| holds_it(span, backend)) {
            for number in &in_place.patches {
                self.before(span.function, number.offset, &(0..0), code);
            }
        } else if let (Some(window), Backend::Auto | Backend::AutoGlobal) = (span.indirection.window_range(), backend) {
            for branch in code.iter().filter(|insn| window.contains(&at(insn)) && is_branch(insn)) {
                self.before(span.function, branch.near_branch_target() as u32, &window, code);
            }
        }
    }

    /// Where a jump could begin that covers `place`, but for the own window.
    fn before(&mut self, function: usize, place: u32, window: &Range<u32>, code: &[Instruction]) {
        let near = place.saturating_sub(JUMP_LEN - 1)..place;
        let starts = code.iter().map(at).filter(|start| near.contains(start) && !window.contains(start));
        self.0.extend(starts.map(|start| (function, start)));
    }

    /// Whether one stands in this part of the function.
    pub fn stand_in(&self, function: usize, mut places: Range<u32>) -> bool {
        places.any(|place| self.0.contains(&(function, place)))
    }
}

fn at(instruction: &Instruction) -> u32 {
    instruction.ip() as u32
}

fn is_branch(instruction: &Instruction) -> bool {
    matches!(instruction.flow_control(), FlowControl::ConditionalBranch | FlowControl::UnconditionalBranch)
}

/// Those that the linker has left alone, from the function's start as 0.
fn instructions(function: &Function) -> Vec<Instruction> {
    let (Ok(text), Ok(mask)) = (function.text(), function.text_mask()) else { return Vec::new() };
    let decoded: Vec<Instruction> = Decoder::new(64, &text, DecoderOptions::NONE).iter().collect();
    let is_fixed = |insn: &Instruction| {
        let bytes = mask.get(insn.ip() as usize..insn.next_ip() as usize);
        !is_branch(insn) || bytes.is_some_and(|bytes| bytes.iter().all(|&byte| byte == 0xff))
    };
    decoded.into_iter().filter(is_fixed).collect()
}

#[cfg(test)]
mod tests {
    use xk_table::{InPlace, Mode, Patch, Range as Values};

    use super::*;

    /// `jg` to behind the second comparison and its branch, as `xk_target_pair` has it.
    const PAIR: &str = "31c083ff207f0583fe207e05b801000000c3";

    fn table(spans: Vec<CriticalSpan>) -> ScopeTable {
        let function = Function {
            symbol: "pair".into(),
            module: None,
            text_offset: 0,
            section: ".text".into(),
            bytes: PAIR.into(),
            mask: "ff".repeat(PAIR.len() / 2),
            source: "pair.c".into(),
        };
        ScopeTable { functions: vec![function], spans, ..xk_harness::empty_table("PAIR", 32, Mode::Now) }
    }

    /// A comparison and its branch, at which the update is.
    fn window(branch: u32) -> CriticalSpan {
        let mut span = xk_harness::site(0, branch, 5);
        span.indirection.window_lead = 3;
        span
    }

    fn number(branch: u32) -> CriticalSpan {
        let mut span = window(branch);
        let patch = Patch { offset: branch - 3, insn_len: 3, field: 2, size: 1, width: 4, iv: 0 };
        let proof = span.proof.clone();
        span.in_place = Some(InPlace { patches: vec![patch], range: Values::of(1, 9), proof });
        span
    }

    #[test]
    fn a_window_in_which_a_guard_stands_is_no_jump() {
        let (first, second) = (2..7, 7..12);
        for (spans, backend, expected) in [
            (vec![], Backend::Auto, [false, false]),
            // The first branch leads to behind the second window.
            (vec![window(5)], Backend::Auto, [false, true]),
            (vec![window(5)], Backend::Kprobe, [false, false]),
            // The second leads to where nothing is.
            (vec![window(10)], Backend::Auto, [false, false]),
            // The instruction just before a number.
            (vec![number(10)], Backend::AutoGlobal, [true, false]),
            (vec![number(10)], Backend::Auto, [false, false]),
            (vec![window(5), number(10)], Backend::AutoGlobal, [true, true]),
        ] {
            let guards = Guards::of(&table(spans), backend);
            let found = [first.clone(), second.clone()].map(|window| guards.stand_in(0, window));
            assert_eq!(found, expected, "{backend:?}: {guards:?}");
        }
    }

    #[test]
    fn what_is_no_code_has_none() {
        let mut table = table(vec![window(5)]);
        table.functions[0].bytes = "no hex".into();
        assert!(!Guards::of(&table, Backend::Auto).stand_in(0, 0..100));
    }
}
