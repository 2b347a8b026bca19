//! Repositories of scope tables: packed on one machine, fetched by others.
//!
//! A repository is a directory of static files, one folder for each kernel build:
//!
//! ```text
//! BUILD-ID/index.json     the tables with their sizes and digests, sealed with the key of the machine that packed them
//! BUILD-ID/NAME.json      a table, as `xk build` writes it
//! ```
//!
//! In: a directory or a server, the build-id of a kernel, names. Out: tables in the store of this machine. It refuses an
//! index that was altered, is of another kernel build, or is signed with a key that is not trusted; and files whose size,
//! digest, kernel build or constant is another than the index says. A table is whole in the store, or not there.

mod accepted;
mod error;
mod fetch;
mod index;
mod pack;
mod source;
mod sources;

pub use error::RepositoryError;
pub use fetch::{Offer, Staging};
pub use index::{Entry, Index};
pub use pack::pack;
pub use source::{AddressError, ReadError, Source};
pub use sources::{Sources, SourcesError};
