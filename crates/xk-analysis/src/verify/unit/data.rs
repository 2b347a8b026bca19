//! Whether the data sites of a table are the data that follows V.
//!
//! In: the table's data sites of a unit, and the data that other values change. Out: faults, and the table's functions of V
//! in data. Each site must be where the deployed kernel has the object, with a function of V that agrees for all compiled
//! values. Data that follows V and is no site is a fault, too.

use xk_table::DataSite;

use super::super::{At, Claim, Report};
use super::Check;
use crate::data::{self, DataSeeds};

/// What makes two descriptions mean the same data.
fn place(site: &DataSite) -> impl PartialEq + use<'_> {
    (&site.symbol, &site.section, site.section_offset, site.offset, site.width)
}

impl Check<'_> {
    /// The table's functions of V in data, by section and offset in the deployed build.
    pub(super) fn data_seeds(&self) -> DataSeeds {
        let seed = |site: &DataSite| {
            let symbol = self.study.base.data_symbols.get(&site.symbol)?;
            Some(((symbol.section.clone(), symbol.offset + u64::from(site.offset)), site.fit))
        };
        self.sites().filter_map(|(_, site)| seed(site)).collect()
    }

    /// The data sites of this unit in the table, by index.
    fn sites(&self) -> impl Iterator<Item = (usize, &DataSite)> {
        let all = self.table.data.iter().enumerate();
        all.filter(|(_, site)| self.is_of_this_unit(&site.source, site.module.as_deref()))
    }

    pub(super) fn check_data(&self, report: &mut Report) {
        let (study, module) = (self.study, self.study.module.as_deref());
        let found = match data::sites(&study.base, study.data(), &study.source, module, self.input.deployed) {
            Ok(found) => found,
            Err(refusal) => return report.fault(At::Table, Claim::Identity, refusal.to_string()),
        };
        for (index, site) in self.sites() {
            match found.iter().find(|data| place(data) == place(site)) {
                None => report.fault(At::Data(index), Claim::Validation, "no value changes the data there"),
                Some(data) if !self.agree(&site.fit, &data.fit) => {
                    report.fault(At::Data(index), Claim::Validation, self.difference(&site.fit, &data.fit).to_string());
                }
                Some(_) => {}
            }
        }
        for data in &found {
            if !self.sites().any(|(_, site)| place(site) == place(data)) {
                let detail = format!("{}+{:#x} follows the constant, and is no data site", data.symbol, data.offset);
                report.fault(At::Table, Claim::Completeness, detail);
            }
        }
    }
}
