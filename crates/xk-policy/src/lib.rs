//! Policies: eBPF programs that choose the value of each execution.
//!
//! In: a C file written against `bpf/xk.bpf.h`, or the object that a compiler made
//! of it. Out: programs in the kernel, each with the constant that it is for, and
//! the other programs of the file, attached; and which of them were loaded together ([`Group`]).
//! A policy for some processes or devices is written from their description ([`Whom`]).
//! Variables of the kernel's source that a policy reads are found in the kernel's objects ([`variables`]).
//! Refused is what does not compile, what the kernel's verifier refuses, and an
//! object that contains no policy; always with the user's own line.

mod compile;
mod devices;
mod error;
mod group;
mod headers;
mod load;
mod object;
mod parts;
mod scoped;
mod source;
pub mod variables;
mod verifier;

pub use compile::{compile, compile_with, Variables};
pub use devices::{DeviceError, NameFault};
pub use error::Error;
pub use group::{groups, Group, GroupError, Member};
pub use headers::{Headers, RUNNING_BTF};
pub use load::{listening, Attached, Programs};
pub use object::{digest, entries, Entry};
pub use parts::{give, parts, refuse_other_build, show_maps, GiveError, MapsHidden, Part, PartsError};
pub use scoped::{compile_scoped, scoped_name, scoped_source, ScopedError, Sites, Whom};
pub use source::{Notice, SourceCompiler, SourceError};
pub use verifier::explain;
