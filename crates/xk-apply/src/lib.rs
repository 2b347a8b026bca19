//! Brings values and policies into force on the running kernel.
//!
//! [`change`] finds the table of a constant, and refuses a value that the table does not accept.
//! [`TransitionOptions`] refuses a transition that is not sound, and makes the others. [`end`] ends tunes. All verbs of `xk`
//! that change something share these. [`set`] is for `xk set`, [`load_parts`] for `xk load`.
//!
//! The rest is the reconciler of `xk apply`. In: files that declare tunes. Out: one transition after which the declared
//! tunes are in force, and tunes that are no longer declared are gone. The stages, one module each, in the order in which
//! data flows: `file` (text to entries), `goal` (entries to constants with their tables), `record` (what was applied
//! before), `plan` (the difference to the kernel, one step for each constant), `execute` (the steps, all or none). Only
//! `execute` changes the kernel.

mod ending;
mod execute;
mod file;
mod goal;
mod health;
mod load;
mod place;
mod plan;
mod policies;
mod record;
pub mod set;
mod time;
mod transition;
mod value;

pub use ending::{end, refuse_held, Held};
pub use execute::{ExecuteError, Prepared, Work};
pub use file::{files, read, Assignment, Entry, FileError, LineError, What};
pub use goal::{Goal, GoalError, Goals, PolicySet, Resolver, Source, To};
pub use health::{refuse_ill, IllSite};
pub use load::LoadError;
pub use place::{At, Place};
pub use plan::{plan, Holder, InForce, PlanError, Step, Within};
pub use policies::{load_parts, refuse_conflicts, Conflict, PartNotLoaded};
pub use record::{Applied, AppliedSet, Keeper, Record, RecordError};
pub use time::{parse_time, TimeError};
pub use transition::{strong_enough, uncovered, Done, TransitionError, TransitionOptions, Warning};
pub use value::{change, Change, ValueError};
