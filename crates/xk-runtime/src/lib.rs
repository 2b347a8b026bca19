//! Talks to xk.ko: load, change, unload, status.
//!
//! A scope table goes in; a [`Tune`] comes out, with the default in force. A
//! transition gives it, and others with it, another value, which the constant has on
//! the running kernel for as long as the tune lives. Addresses come
//! from [`AddressOf`], which [`Symbols`] serves on a live kernel; everything else that can be wrong is
//! refused here, or by the kernel, with the sentence that the kernel gave.
//!
//! Parameters that other modules describe are another kernel module's, xk_tunable.ko, with a
//! device of its own: [`ParameterDevice`].
//!
//! eBPF programs that probe instructions ([`Device::attach`]) need no table.
//!
//! Nothing in here knows about compilers or proofs.

pub mod abi;
mod backend;
mod descriptor;
mod device;
mod encode;
mod error;
mod livepatch;
mod parameter;
mod policy;
mod probe;
mod recording;
mod rules;
mod status;
mod symbols;
mod transition;
mod tune;

pub use backend::{Backend, BackendChoice, NotBackend};
pub use device::{Device, DEVICE_PATH};
pub use encode::{signable, AddressOf};
pub use error::{AddressError, Error, Outcome, ParameterError, SignatureError, TableFault};
pub use parameter::{Hold, Meter, Parameter, ParameterDevice, Role, Values, PARAMETER_DEVICE_PATH};
pub use policy::Policy;
pub use probe::{Attached, Attachment, PlaceStatus, ProbeFunction, ProbePlace, ProbeStatus, ReachedBy};
pub use rules::{Rules, RulesError};
pub use status::{PolicyStatus, Probe, SitePolicy, SiteStatus, State, Stops, TuneStatus};
pub use symbols::{NoAddress, SymbolKind, Symbols, SymbolsError};
pub use transition::{Change, Destination, Transition};
pub use tune::Tune;
pub use xk_table::Mode;
