//! The scope table: what the offline analysis hands to everything online.
//!
//! One table per (kernel build-id, ConstID). It holds the critical spans of
//! the constant, the indirection of each (where, and which operations), the
//! values for which they hold, and the evidence. Nothing in here
//! knows about compilers, and nothing that reads it needs one.

mod check;
mod fit;
mod incoherent;
mod ledger;
mod limits;
mod ops;
mod quantity;
mod refusal;
mod scopes;
mod store;
mod title;
mod types;
mod unit_of_measure;
mod values;

pub use fit::{fit_words, fits_without_wrapping, Fit, Form};
pub use incoherent::{BadValues, Incoherent, ScopeFault, SpanFault};
pub use ledger::Ledger;
pub use limits::{listed, range_words, why_no_others, NotAccepted};
pub use ops::{Op, OpCode, OpError, Program, MAX_IVS, MAX_OPS, MAX_PATCHES, MAX_TEMPS, STATUS_FLAGS};
pub use quantity::{Quantity, QuantityError, TimeUnit};
pub use refusal::{Place, Refusal};
pub use scopes::{Escape, Exit, ExitKind, Mode, Scope};
pub use store::{Store, StoreError};
pub use types::*;
pub use unit_of_measure::{ConversionError, StatedUnit, UnitOfMeasure};
pub use values::{furthest, Range, Values, MAX_VALUES};
