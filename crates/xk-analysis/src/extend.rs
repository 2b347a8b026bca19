//! More values for a table: each is compiled and compared with the deployed code before the table accepts it.
//!
//! In: a table, and values that it does not accept. Out: the table with these values, verified again as a whole; or the
//! value that differs, and where. The table is extended by all values or by none.

use thiserror::Error;
use xk_const::{recall, ResolveError, Spec, SpecError};
use xk_kernel::{Image, Tree};
use xk_table::{Incoherent, ScopeTable};

use crate::pipeline::{BuildError, Options};
use crate::proof::Solver;
use crate::verify::{verify, Fault};

/// Why a table was not extended.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ExtendError {
    /// The table with the values contradicts itself.
    #[error("{title}: {fault}")]
    Incoherent {
        /// The constant.
        title: String,
        /// What is wrong.
        fault: Incoherent,
    },
    /// The table names its constant by something that is no ID.
    #[error(transparent)]
    Spec(#[from] SpecError),
    /// The source has no such constant.
    #[error(transparent)]
    Resolve(#[from] ResolveError),
    /// The type of the constant does not have a value.
    #[error("{title}: its type, `{c_type}`, has no value {value}")]
    Type {
        /// The constant.
        title: String,
        /// Its C type.
        c_type: &'static str,
        /// The value.
        value: i64,
    },
    /// A value cannot be compiled or compared.
    #[error(transparent)]
    Build(#[from] BuildError),
    /// The table does not hold with a value.
    #[error("{title}: {}: {}", fault.claim.word(), fault.detail)]
    Fault {
        /// The constant.
        title: String,
        /// What does not hold.
        fault: Fault,
    },
}

/// `table`, extended by `values`. Values that it accepts already are not compiled.
///
/// # Errors
/// [`ExtendError`].
pub fn extend(
    table: &ScopeTable,
    values: &[i64],
    (tree, image): (&Tree, &Image),
    solver: &Solver,
    options: &Options<'_>,
) -> Result<ScopeTable, ExtendError> {
    let title = || table.constant.title().to_owned();
    let mut wider = table.clone();
    wider.values.compiled.extend(values.iter().filter(|value| !table.values.contains(**value)));
    wider.values.compiled.sort_unstable();
    wider.values.compiled.dedup();
    wider.values.refused.retain(|value, _| !values.contains(value));
    if wider.values == table.values {
        return Ok(wider);
    }
    wider.check().map_err(|fault| ExtendError::Incoherent { title: title(), fault })?;
    let constant = recall(tree, &Spec::parse(&table.constant.id)?)?;
    if let Some(&value) = values.iter().find(|value| !constant.c_type.fits(**value)) {
        return Err(ExtendError::Type { title: title(), c_type: constant.c_type.name(), value });
    }
    let report = verify(tree, image, &constant, &wider, std::slice::from_ref(solver), &[], options)?;
    match report.faults.into_iter().next() {
        None => Ok(wider),
        Some(fault) => Err(ExtendError::Fault { title: title(), fault }),
    }
}
