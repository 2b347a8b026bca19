//! Scheduling policies of `xk_sched.ko`: which are loaded, which were ejected and why, and who runs under what.
//! Everything goes through `/dev/xk_sched`; `docs/sched.md` says what a policy is.

pub mod abi;
mod device;
mod error;

pub use device::{Device, Policy, PolicyThread, Report, ReportedThread, Stats, Status, Who, DEVICE_PATH, FAIR};
pub use error::Error;
