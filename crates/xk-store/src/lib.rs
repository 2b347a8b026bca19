//! The scope tables of this machine.
//!
//! In: the environment, a build-id, and a name as a user writes it. Out: the directories of tables, the tables of a
//! kernel build, the table that the name means; addresses and signatures for loading a table. Refuses a name without a
//! table, a name that means several constants, and a table of another kernel build; the error says where tables were
//! looked for. Builds no table, and needs no source of the kernel.

mod addresses;
mod error;
mod folders;
mod names;
mod tables;

pub use addresses::Addresses;
pub use error::{Ambiguous, KernelError, ListError, LookupError};
pub use folders::Folders;
pub use names::{pick, similar};
pub use tables::Tables;
