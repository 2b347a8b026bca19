//! Talks to xk.ko: load, change, unload, status.
//!
//! A scope table and a value go in; a [`Tune`] comes out, and the constant has
//! the value on the running kernel for as long as the tune lives. Addresses are
//! the caller's business ([`AddressOf`]); everything else that can be wrong is
//! refused here, or by the kernel, with the sentence that the kernel gave.
//!
//! Nothing in here knows about compilers or proofs.

pub mod abi;
mod device;
mod encode;
mod error;
mod status;
mod tune;

pub use device::{Device, DEVICE_PATH};
pub use encode::AddressOf;
pub use error::Error;
pub use status::{Probe, SiteStatus, TuneStatus};
pub use tune::Tune;
