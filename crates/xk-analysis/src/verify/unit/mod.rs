//! One translation unit of a table, checked against its rebuilt and its deployed code.
//!
//! In: the table, and a [`Study`] of the unit: its deployed build, and which constants and data other values change. Out:
//! the table's functions of V for this unit, and a fault in the [`Report`] for each claim that does not hold. It refuses
//! nothing: the report is the result.
//!
//! The build says which instructions there are and what is live; the table says what is to be done. In this order:
//!
//! 1. The functions of the unit are the deployed ones (`functions.rs`).
//! 2. Each number that a span marks follows V as the table says, and each number that follows V belongs to exactly one
//!    span (`constants.rs`); the same for data (`data.rs`).
//! 3. Each update does what the instructions with V would have done, and its probe can be placed (`updates.rs`). A span
//!    with a fault so far is left out: with other constants than the code has, a proof shows nothing.

mod constants;
mod data;
mod functions;
mod updates;

use std::collections::BTreeMap;

use xk_lift::insn::Node;
use xk_lift::object::Function;
use xk_table::{CriticalSpan, Fit, ScopeTable};

use super::unproved::Difference;
use super::{At, Report};
use crate::analyse::Input;
use crate::constants::Seeds;
use crate::data::DataSeeds;
use crate::proof::Solver;
use crate::study::Study;

/// A module as tables and /proc/kallsyms spell it.
pub(super) fn spelled(module: Option<&str>) -> Option<String> {
    module.map(|name| name.replace('-', "_"))
}

/// A unit under verification.
pub(super) struct Check<'a> {
    pub input: &'a Input<'a>,
    /// Each of them must prove each update.
    pub solvers: &'a [Solver],
    pub table: &'a ScopeTable,
    /// The values that were compiled.
    pub values: &'a [i64],
    pub study: &'a Study,
}

/// A span of the table in the unit's deployed build.
struct Placed<'a> {
    /// Its index in the table.
    index: usize,
    span: &'a CriticalSpan,
    function: &'a Function,
}

impl Placed<'_> {
    /// The instruction at an offset in the function.
    fn node(&self, offset: u32) -> Node {
        Node { section: self.function.start.section, offset: self.function.start.offset + u64::from(offset) }
    }

    fn at(&self) -> At {
        At::Span(self.index)
    }

    fn covers(&self, node: Node) -> bool {
        self.node(self.span.start) <= node && node < self.node(self.span.end)
    }
}

impl Check<'_> {
    /// Adds what does not hold to `report`; returns the table's functions of V.
    pub fn run(&self, report: &mut Report) -> (Seeds, DataSeeds) {
        let functions = self.check_functions(report);
        self.check_other_functions(report);
        let spans = self.placed(&functions);
        let seeds = self.check_constants(&spans, report);
        self.check_completeness(&spans, &seeds, report);
        self.check_data(report);
        self.check_updates(&spans, &seeds, report);
        (seeds, self.data_seeds())
    }

    /// The spans of the table that are in this unit. `functions` are those of the table, by index.
    fn placed<'s>(&'s self, functions: &BTreeMap<usize, &'s Function>) -> Vec<Placed<'s>> {
        let spans = self.table.spans.iter().enumerate();
        let place = |(index, span): (usize, &'s CriticalSpan)| {
            Some(Placed { index, span, function: functions.get(&span.function)? })
        };
        spans.filter_map(place).collect()
    }

    fn is_of_this_unit(&self, source: &str, module: Option<&str>) -> bool {
        source == self.study.source && module == spelled(self.study.module.as_deref()).as_deref()
    }

    /// The first value for which two functions of V do not say the same. Compared are the compiled values and the default:
    /// functions that agree for all of these may be written differently.
    fn first_disagreement(&self, ours: &Fit, observed: &Fit) -> Option<i64> {
        let mut values = self.values.iter().copied().chain([self.input.default]);
        if ours.width != observed.width {
            return values.next();
        }
        values.find(|&value| ours.apply(value) != observed.apply(value))
    }

    fn agree(&self, ours: &Fit, observed: &Fit) -> bool {
        self.first_disagreement(ours, observed).is_none()
    }

    /// In what two functions of V differ, for messages.
    fn difference(&self, ours: &Fit, observed: &Fit) -> Difference {
        let value = self.first_disagreement(ours, observed).unwrap_or(self.input.default);
        Difference { ours: *ours, observed: *observed, value }
    }
}
