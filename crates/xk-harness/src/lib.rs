//! What tests and benchmarks of transitions share. It runs inside a guest, where
//! `kernel/atomic` is loaded: tables for its constants, its threads, what they
//! have seen, a loop that changes values under them, and one that arms and disarms.

pub mod arm;
mod atomic;
pub mod example;
mod family;
mod flip;
mod hotplug;
mod load;
mod running;
pub mod sched;
pub mod several;
pub mod text;

pub use atomic::{Atomic, Count, Counts, ALL_SPANS, MODULE, PROC, TASK_SPANS};
pub use family::{empty_table, family, function, site, table, Family, Loaded, FAMILIES};
pub use flip::{Flipper, Flips};
pub use hotplug::{beside_hotplug, beside_hotplug_for};
pub use load::Done;
pub use running::Running;
