//! Probes: eBPF programs of type kprobe at any instruction of the running kernel. See `docs/probes.md`.
//!
//! In: places ([`place`]), as the command line or the section of a program names them; for lines of the source, also the
//! source tree ([`Source`]). Out: addresses with the windows in which a jump may stand ([`resolve`]); programs in the
//! kernel, and what their maps contain ([`program`], [`maps`]).

mod code;
mod constants;
mod copies;
mod error;
mod field;
mod found;
mod line;
mod live;
pub mod maps;
mod operand;
pub mod place;
mod places;
pub mod program;
mod reach;
mod relay;
mod resolve;
mod source;
mod taken;
mod trace;
mod variables;

pub use error::Error;
pub use found::Found;
pub use line::Line;
pub use live::Live;
pub use operand::Operand;
pub use place::{Class, Place, PlaceError};
pub use places::{Places, PlacesError};
pub use program::{places_of, prints, probes, Given, Probe, ProgramError, Programs};
pub use reach::{Host, NoJump, Reach};
pub use resolve::{Resolved, Resolver};
pub use source::{Lines, Part, Source, SourceError, Spread};
pub use taken::{wants_taken, Taken};
pub use trace::Trace;
pub use variables::{reading, VariableError};
