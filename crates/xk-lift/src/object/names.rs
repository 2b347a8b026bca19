//! Names for objects of data that two builds of a unit agree on, wherever each build has put them.

use std::collections::{BTreeMap, HashMap};

use super::{Object, ObjectError};
use crate::insn::SymbolRef;

/// Names of data.
#[derive(Debug, Clone, Default)]
pub struct DataNames {
    /// Objects, by section and offset: where each ends, and its name.
    pub objects: BTreeMap<(String, u64), (u64, String)>,
    /// Names of symbols that other builds may call otherwise.
    pub symbols: HashMap<String, String>,
    /// Sections whose objects are named; what has no name there is called by this build's own name.
    pub sections: Vec<String>,
    /// Distinguishes this build's data without a name from that of all others.
    pub build: String,
}

impl DataNames {
    /// The name of a place in a section, if objects are named there.
    fn place(&self, section: &str, offset: i64) -> Option<SymbolRef> {
        if !self.sections.iter().any(|named| named == section) {
            return None;
        }
        let at = u64::try_from(offset).ok();
        let before = at.and_then(|at| self.objects.range(..=(section.to_owned(), at)).next_back());
        let found = before.filter(|((there, _), (end, _))| there == section && at.is_some_and(|at| at < *end));
        Some(match found {
            Some(((_, start), (_, name))) => SymbolRef { name: name.clone(), offset: offset - *start as i64 },
            None => SymbolRef { name: format!("{section} of {}", self.build), offset },
        })
    }
}

impl Object {
    /// The same object, which calls its data by other names.
    ///
    /// # Errors
    /// As [`Object::parse`].
    pub fn renamed(&self, names: DataNames) -> Result<Self, ObjectError> {
        let mut this = Self {
            sections: self.sections.clone(),
            functions: self.functions.clone(),
            data_symbols: self.data_symbols.clone(),
            names,
            ..Self::default()
        };
        this.decode()?;
        this.read_tables();
        Ok(this)
    }

    /// The name of a place in data.
    pub(super) fn data_place(&self, section: &str, offset: i64) -> SymbolRef {
        self.names.place(section, offset).unwrap_or_else(|| SymbolRef { name: section.to_owned(), offset })
    }

    /// A symbol, by the name that the builds agree on.
    pub(super) fn agreed(&self, symbol: &SymbolRef) -> SymbolRef {
        let name = self.names.symbols.get(&symbol.name).unwrap_or(&symbol.name);
        SymbolRef { name: name.clone(), offset: symbol.offset }
    }
}
