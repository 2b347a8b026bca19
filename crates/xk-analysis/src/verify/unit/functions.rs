//! Whether the functions of a unit are the deployed ones.
//!
//! In: the unit's rebuilt object, the deployed kernel, and the table's functions. Out: those of the table in the rebuilt
//! object, by index. A function of the table must be where the rebuilt one is found, with the same bytes, and must compare
//! at least the bytes that have to be compared. All other functions of the unit must be the deployed ones, too: what
//! another value would change in them is not in the table.

use std::collections::BTreeMap;

use xk_lift::object::Function;
use xk_table::Function as TableFunction;

use super::super::mismatch::NotRebuilt;
use super::super::{At, Claim, Report};
use super::Check;
use crate::identity::{first_difference, locate, whole_unit};

impl Check<'_> {
    /// Checks the table's functions of this unit; returns them as they are in the rebuilt object.
    pub(super) fn check_functions(&self, report: &mut Report) -> BTreeMap<usize, &Function> {
        let mut functions = BTreeMap::new();
        for (index, ours) in self.table.functions.iter().enumerate() {
            if !self.is_of_this_unit(&ours.source, ours.module.as_deref()) {
                continue;
            }
            let at = At::Function(index);
            let Some(function) = self.study.base.functions.values().find(|f| f.name == ours.symbol) else {
                report.fault(at, Claim::Completeness, format!("{} has no function {}", ours.source, ours.symbol));
                continue;
            };
            functions.insert(index, function);
            // One difference is enough.
            let is_known = report.at(at).next().is_some();
            if let (Err(difference), false) = (self.is_rebuilt(ours, function), is_known) {
                report.fault(at, Claim::Identity, difference.to_string());
            }
        }
        functions
    }

    /// Checks the functions that the table does not name.
    pub(super) fn check_other_functions(&self, report: &mut Report) {
        let module = self.study.module.as_deref();
        let found = whole_unit(&self.study.base, &self.study.source, module, self.input.deployed);
        let is_known = report.faults.iter().any(|fault| fault.claim == Claim::Identity);
        if let (Err(refusal), false) = (found, is_known) {
            report.fault(At::Table, Claim::Identity, refusal.to_string());
        }
    }

    /// Whether a function of the table is the rebuilt one.
    fn is_rebuilt(&self, ours: &TableFunction, function: &Function) -> Result<(), NotRebuilt> {
        let module = self.study.module.as_deref();
        let found = locate(&self.study.base, function, &self.study.source, module, self.input.deployed)?;
        if (found.text_offset, &found.section) != (ours.text_offset, &ours.section) {
            return Err(NotRebuilt::Elsewhere {
                symbol: ours.symbol.clone(),
                section: found.section,
                offset: found.text_offset,
                table_section: ours.section.clone(),
                table_offset: ours.text_offset,
            });
        }
        let (text, mask, needed) = (ours.text()?, ours.text_mask()?, found.text_mask()?);
        // A table that compares more than is needed is only stricter.
        if let Some(at) = (0..needed.len()).find(|&i| mask.get(i).is_none_or(|byte| needed[i] & !byte != 0)) {
            return Err(NotRebuilt::NotCompared { symbol: ours.symbol.clone(), at });
        }
        match first_difference(&text, &mask, &found.text()?) {
            None => Ok(()),
            Some(at) => Err(NotRebuilt::Byte { symbol: ours.symbol.clone(), at }),
        }
    }
}
