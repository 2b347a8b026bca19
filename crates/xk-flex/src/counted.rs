//! Loops that evidently end: a register is compared with a constant, and moves towards it by a constant step.

use crate::elf::{Function, Object};
use crate::flow::{Graph, Loop};
use crate::insn::Insn;

/// The verifier executes a counted loop step by step. Beyond this number of instructions it gives up, or soon would.
const MOST_INSNS: i64 = 100_000;

const EQUAL: u8 = 0x1;
const GREATER: u8 = 0x2;
const NOT_LESS: u8 = 0x3;
const NOT_EQUAL: u8 = 0x5;
const LESS: u8 = 0xa;
const NOT_GREATER: u8 = 0xb;

/// How often the loop runs at most, if that is evident and the verifier can follow it.
#[must_use]
pub fn bound(object: &Object, function: &Function, graph: &Graph, found: &Loop) -> Option<i64> {
    let insns = &object.code[function.code].insns;
    let length: usize = found.body.iter().map(|block| graph.blocks[*block].end - graph.blocks[*block].start).sum();
    let always = |block: usize| found.latches.iter().all(|latch| graph.dominates(block, *latch));
    let in_body = |at: usize| graph.block_at(at).is_some_and(|block| found.body.contains(&block));
    for &number in found.body.iter().filter(|number| always(**number)) {
        let block = &graph.blocks[number];
        let test = insns[block.last];
        let [taken, next] = block.successors[..] else { continue };
        // What holds as long as the loop goes on.
        let (is_taken, is_next) = (found.body.contains(&taken), found.body.contains(&next));
        let operation = test.operation();
        let condition = match operation {
            NOT_EQUAL | LESS if is_taken && !is_next => operation,
            NOT_GREATER if is_taken && !is_next => LESS,
            EQUAL if is_next && !is_taken => NOT_EQUAL,
            NOT_LESS | GREATER if is_next && !is_taken => LESS,
            _ => continue,
        };
        // Not greater than this one is less than the next one, if there is one: -1 is the greatest.
        if test.imm == -1 && [GREATER, NOT_GREATER].contains(&operation) {
            continue;
        }
        let limit = i64::from(test.imm) + i64::from([GREATER, NOT_GREATER].contains(&operation));
        if !test.is_branch() || test.is_register() {
            continue;
        }
        let writes = |at: &usize| in_body(*at) && insns[*at].code != 0 && insns[*at].writes() >> test.dst & 1 == 1;
        let mut writers = (function.start..function.end).filter(writes);
        let (Some(writer), None) = (writers.next(), writers.next()) else { continue };
        let step = insns[writer].step().filter(|step| *step != 0);
        let (Some(step), Some(home)) = (step, graph.block_at(writer)) else { continue };
        // Once for each turn of this loop, and not of one inside.
        let inner = graph
            .loops
            .iter()
            .any(|other| other != found && other.body.is_subset(&found.body) && other.body.contains(&home));
        if !always(home) || inner || insns[writer].is_wide() != test.is_wide() {
            continue;
        }
        let first = initial(object, function, graph, found, test)?;
        let distance = limit - first;
        // Only a test for inequality may count down, and it must meet the constant.
        let meets =
            if condition == LESS { step > 0 && distance > 0 } else { distance % step == 0 && distance / step > 0 };
        let turns = distance / step + 1;
        if first >= 0 && test.imm >= 0 && meets && turns > 0 && turns.checked_mul(length as i64)? <= MOST_INSNS {
            return Some(turns);
        }
    }
    None
}

/// The constant that the register has when the loop is entered.
fn initial(object: &Object, function: &Function, graph: &Graph, found: &Loop, test: Insn) -> Option<i64> {
    let insns = &object.code[function.code].insns;
    let mut outside = graph.blocks[found.header].predecessors.iter().filter(|other| !found.body.contains(other));
    let mut block = *outside.next()?;
    if outside.next().is_some() {
        return None;
    }
    for _ in 0..graph.blocks.len() {
        let own = &graph.blocks[block];
        for at in (own.start..own.end).rev() {
            if insns[at].code != 0 && insns[at].writes() >> test.dst & 1 == 1 {
                return insns[at].constant();
            }
        }
        let [before] = own.predecessors[..] else { return None };
        block = before;
    }
    None
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use crate::sample::compiled;
    use crate::{rewrite, Choice, Done};

    fn done(turn: &str) -> Done {
        let text = format!("asm volatile(\"%0 = 0; 1: {turn}; 2:\" : \"=r\"(n))");
        let source = format!("__attribute__((section(\"xdp\"))) int f(void) {{ __u64 n; {text}; return n; }}\n");
        rewrite(&compiled(&source), &Choice::default()).unwrap().loops[0].done
    }

    #[test]
    fn a_loop_is_counted_whichever_way_it_compares() {
        for turn in [
            "%0 += 1; if %0 < 10 goto 1b",
            "%0 += 1; if %0 <= 9 goto 1b",
            "%0 += 1; if %0 >= 10 goto 2f; goto 1b",
            "%0 += 1; if %0 > 9 goto 2f; goto 1b",
            "if %0 > 9 goto 2f; %0 += 1; goto 1b",
        ] {
            assert_eq!(done(turn), Done::Counted(11), "{turn}");
        }
    }

    #[test]
    fn a_loop_that_counts_away_from_its_bound_is_not() {
        for turn in ["%0 += -1; if %0 > 9 goto 2f; goto 1b", "%0 += -1; if %0 <= 9 goto 1b", "if %0 <= 9 goto 1b"] {
            assert_eq!(done(turn), Done::Instrumented, "{turn}");
        }
    }
}
