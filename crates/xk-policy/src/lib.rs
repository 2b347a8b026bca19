//! Policies: eBPF programs that choose the value of each execution.
//!
//! In: a C file written against `bpf/xk.bpf.h`, or the object that a compiler made
//! of it. Out: programs in the kernel, each with the constant that it is for, and
//! the other programs of the file, attached; and which of them were loaded together ([`Group`]).
//! Variables of the kernel's source that a policy reads are found in the kernel's objects ([`variables`]).
//! Refused is what does not compile, what the kernel's verifier refuses, and an
//! object that contains no policy; always with the user's own line.

mod compile;
mod error;
mod group;
mod headers;
mod load;
mod object;
pub mod variables;
mod verifier;

pub use compile::{compile, compile_with, Variables};
pub use error::Error;
pub use group::{groups, Group, GroupError, Member};
pub use headers::{Headers, RUNNING_BTF};
pub use load::{Attached, Programs};
pub use object::{digest, entries, Entry};
