//! Finds good settings of kernel knobs on a real workload, and remembers them.
//!
//! A description ([`description`]) names parameters, a target and constraints. [`Space`] is the set of settings that may
//! be tried. An engine ([`engine`]) proposes trials from the history. [`session`] makes them on the machine
//! ([`machine`]), records them in the database ([`store`]), and lets the [`guardian`] restore knobs if it is killed.
//! `docs/tuner.md` explains the design.
//!
//! Descriptions, spaces, engines and statistics are pure. Knobs, targets, sensors and the database are the rim.

pub mod description;
pub mod drift;
pub mod ebpf;
pub mod engine;
mod error;
pub mod exchange;
pub mod front;
pub mod guardian;
pub mod history;
pub mod knob;
mod left_out;
mod levels;
pub mod machine;
mod measure;
pub mod metrics;
pub mod modules;
pub mod plan;
pub mod random;
pub mod replay;
pub mod report;
mod sensor;
pub mod session;
pub mod simulation;
mod space;
pub mod statistics;
pub mod store;
pub mod switching;
pub mod target;
mod value;
mod workload;

pub use error::{Error, GuardianError, MachineError, RevertError, StoreProblem};
pub use left_out::LeftOut;
pub use levels::{RangeError, Steps};
pub use sensor::{CounterError, Gauges, Sensor, Signature, Snapshot};
pub use space::{Cycle, Dimension, Guard, Point, Space};
pub use target::{Constraint, Target};
pub use value::Value;
