//! Which constant a name means, and whether it can have a value.

use thiserror::Error;
use xk_kernel::UnknownHz;
use xk_store::{Folders, LookupError, Tables};
use xk_table::{ConversionError, NotAccepted, Quantity, ScopeTable};

/// A constant and its new value.
#[derive(Debug, Clone, Copy)]
pub struct Change<'a> {
    /// The table of the constant.
    pub table: &'a ScopeTable,
    /// The value, which the table accepts.
    pub value: i64,
}

impl Change<'_> {
    /// How messages name the constant.
    #[must_use]
    pub fn title(&self) -> &str {
        self.table.constant.title()
    }
}

/// Why a constant cannot have a value.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ValueError {
    /// The constant has no table.
    #[error(transparent)]
    Lookup(#[from] LookupError),
    /// The amount of time is not a number of the constant's unit.
    #[error(transparent)]
    Conversion(#[from] ConversionError<UnknownHz>),
    /// The table does not accept the value.
    #[error(transparent)]
    NotAccepted(#[from] NotAccepted),
}

/// Finds the table of the constant that `name` means, and converts `quantity` to the unit of the constant. `hz` returns
/// `CONFIG_HZ`.
///
/// # Errors
/// [`ValueError`].
pub fn change<'a>(
    folders: &Folders,
    tables: &'a Tables,
    name: &str,
    quantity: Quantity,
    hz: &dyn Fn() -> Result<u32, UnknownHz>,
) -> Result<Change<'a>, ValueError> {
    let table = tables.find(folders, name)?;
    let number = table.constant.number(quantity, hz)?;
    let value = i64::try_from(number).ok().filter(|&value| table.values.contains(value));
    value.map(|value| Change { table, value }).ok_or_else(|| NotAccepted::new(table, number).into())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use xk_harness::example;

    use super::*;

    #[test]
    fn values_outside_the_range_are_refused_with_the_range() {
        let table = example::table();
        let tables = Tables::of(&table.kernel.build_id.clone(), vec![table]);
        let folders = Folders { cache: "/".into(), stores: vec![] };
        let set = |text: &str| change(&folders, &tables, "BLK_MAX_REQUEST_COUNT", text.parse().unwrap(), &|| Ok(250));
        assert_eq!(set("1K").unwrap().value, 1024);
        let message = |text: &str| {
            let error = set(text).unwrap_err();
            assert!(matches!(error, ValueError::NotAccepted(_)), "{text}: {error}");
            error.to_string()
        };
        assert!(message("0").contains("0 is outside the proved range, 1 to 1073741823 (from 1:"));
        assert!(message("-1").contains("(from 1:"));
        assert!(message("9223372036854775808").contains("(to 1073741823:"));
        assert!(message(&"9".repeat(60)).contains("the value is outside"));
        assert!(message(&format!("-{}", "9".repeat(60))).contains("(from 1:"));
        assert!(matches!(set("5ms").unwrap_err(), ValueError::Conversion(_)));
    }
}
