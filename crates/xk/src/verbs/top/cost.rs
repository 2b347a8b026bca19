//! Estimates the cost of one execution of a site, from the measurements of `cargo xtask bench trigger` in a deterministic
//! guest. The scope table tells the kind of the update. A kind that was not measured has no estimate.

use xk_runtime::{Probe, SiteStatus, TuneStatus};
use xk_table::{CriticalSpan, OpCode};

/// The origin of the figures.
pub const SOURCE: &str =
    "INSNS: an estimate, from docs/results.md (bench trigger, Debian 12's 6.12 amd64); not measured on this machine";

/// Extra instructions of one kind of update, by jump and by breakpoint: rows of `docs/results.md`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Row {
    name: &'static str,
    jump: u32,
    int3: u32,
}

const VALUE: Row = Row { name: "`xk`, update depends on V alone", jump: 116, int3: 502 };
const COMPARE: Row = Row { name: "`xk`, comparison with a register", jump: 137, int3: 523 };
const COMPARE_MEMORY: Row = Row { name: "`xk`, comparison with memory", jump: 146, int3: 532 };
const SHIFT: Row = Row { name: "`xk`, shift", jump: 138, int3: 524 };
const SELECT: Row = Row { name: "`xk`, select", jump: 140, int3: 526 };
/// For the simplest program, at a site whose update depends on V alone.
const POLICY: Row = Row { name: "`xk`, a policy that sets a value", jump: 184, int3: 570 };
const DETOUR: Row = Row { name: "`xk` by detour, update depends on V alone", jump: 4, int3: 3 };
const DETOUR_COMPARE: Row = Row { name: "`xk` by detour, comparison with a register", jump: 13, int3: 12 };

const DETOUR_COMPARE_MEMORY: Row = Row { name: "`xk` by detour, comparison with memory", jump: 25, int3: 24 };
const DETOUR_SHIFT: Row = Row { name: "`xk` by detour, shift", jump: 14, int3: 13 };
const DETOUR_SELECT: Row = Row { name: "`xk` by detour, select", jump: 18, int3: 17 };
const DETOUR_POLICY: Row = Row { name: "`xk` by detour, a policy that sets a value", jump: 109, int3: 108 };

/// By probe, and by detour.
const KINDS: [(Row, Row); 5] = [
    (VALUE, DETOUR),
    (COMPARE, DETOUR_COMPARE),
    (COMPARE_MEMORY, DETOUR_COMPARE_MEMORY),
    (SHIFT, DETOUR_SHIFT),
    (SELECT, DETOUR_SELECT),
];

/// The cost of one hit at this site; `None` if its kind was not measured.
pub fn estimate(tune: &TuneStatus, site: &SiteStatus, span: Option<&CriticalSpan>) -> Option<u32> {
    if matches!(site.probe, Probe::Data | Probe::Drifted) {
        return Some(0);
    }
    let kind = kind(span?)?;
    // The additional cost of a policy is assumed to be the same for every kind.
    let more = if tune.policy.is_some() { POLICY.jump - VALUE.jump } else { 0 };
    match site.probe {
        Probe::Jump => Some(kind.jump + more),
        Probe::Int3 => Some(kind.int3 + more),
        Probe::Detour if tune.policy.is_some() => (kind == VALUE).then_some(DETOUR_POLICY.jump),
        Probe::Detour => KINDS.iter().find(|(probe, _)| *probe == kind).map(|(_, detour)| detour.jump),
        _ => None,
    }
}

fn kind(span: &CriticalSpan) -> Option<Row> {
    let ops = &span.indirection.program.ops;
    let has = |codes: &[OpCode]| ops.iter().any(|op| codes.contains(&op.code));
    let memory = has(&[OpCode::Load]);
    if has(&[OpCode::Store, OpCode::Text, OpCode::PerCpu]) {
        return None;
    }
    if has(&[OpCode::Select]) {
        return Some(SELECT);
    }
    if has(&[OpCode::FlagsSub]) {
        return Some(if memory { COMPARE_MEMORY } else { COMPARE });
    }
    if !memory && !has(&[OpCode::Reg, OpCode::Flags]) {
        return Some(VALUE);
    }
    (!memory && has(&[OpCode::Shl, OpCode::Shr, OpCode::Sar])).then_some(SHIFT)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::path::Path;

    use super::*;
    use crate::fixture;

    /// The figures are those of the page, and change with it.
    #[test]
    fn figures_are_those_that_were_measured() {
        let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/results.md");
        let page = std::fs::read_to_string(page).unwrap();
        for row in KINDS.iter().flat_map(|&(probe, detour)| [probe, detour]).chain([POLICY, DETOUR_POLICY]) {
            let line = page.lines().find(|line| line.starts_with(&format!("| {} |", row.name))).unwrap();
            let cells: Vec<&str> = line.split('|').map(str::trim).collect();
            let number = |cell: &str| cell.split(' ').next().unwrap().parse::<u32>().unwrap();
            assert_eq!((number(cells[2]), number(cells[3])), (row.jump, row.int3), "{line}");
        }
    }

    #[test]
    fn only_what_was_measured_is_estimated() {
        let (table, powers) = (fixture::table(), fixture::powers_table());
        let mut tune = fixture::tune();
        let of = |tune: &TuneStatus, probe: Probe, span: &CriticalSpan| {
            estimate(tune, &SiteStatus { probe, ..tune.sites[0].clone() }, Some(span))
        };
        let [select, compare] = &table.spans[..] else { unreachable!() };
        assert_eq!(of(&tune, Probe::Jump, select), Some(SELECT.jump));
        assert_eq!(of(&tune, Probe::Int3, compare), Some(COMPARE.int3));
        assert_eq!(of(&tune, Probe::Detour, compare), Some(13));
        assert_eq!(of(&tune, Probe::Detour, select), Some(18), "native code");
        assert_eq!(of(&tune, Probe::Waiting, select), None);
        assert_eq!(of(&tune, Probe::Data, select), Some(0));
        assert_eq!(of(&tune, Probe::Jump, &powers.spans[0]), None, "it reads what the linker wrote");
        tune.policy = Some(xk_runtime::PolicyStatus { program: 1, links: 0, sites: vec![] });
        assert_eq!(of(&tune, Probe::Jump, select), Some(SELECT.jump + POLICY.jump - VALUE.jump));
        assert_eq!(of(&tune, Probe::Detour, select), None, "only where the update is a value");
    }
}
