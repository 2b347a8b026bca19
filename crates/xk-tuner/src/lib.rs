//! Finds good settings of kernel knobs on a real workload, and remembers them.
//!
//! A description ([`description`]) names parameters, a target and limits; [`Space`] is what can be tried; an
//! engine ([`engine`]) proposes trials from the history; [`session`] measures them on the machine, with
//! [`store`] as memory and [`guardian`] as the one who cleans up. `docs/tuner.md` tells why it is so.
//!
//! Everything up to the engines is pure. Knobs, targets and the store are the rim.

pub mod description;
pub mod ebpf;
pub mod engine;
mod error;
pub mod exchange;
pub mod front;
pub mod guardian;
pub mod history;
pub mod knob;
mod levels;
mod measure;
pub mod metrics;
pub mod modules;
pub mod plan;
pub mod random;
pub mod replay;
pub mod report;
mod sensor;
pub mod session;
mod space;
pub mod statistics;
pub mod store;
pub mod target;
mod value;

pub use error::Error;
pub use levels::Steps;
pub use sensor::{Gauges, Sensor, Signature, Snapshot};
pub use space::{Cycle, Dimension, Guard, Point, Space};
pub use target::{Constraint, Target};
pub use value::Value;
