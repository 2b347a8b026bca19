//! The knobs of this machine, and how they are moved from one setting to another.
//!
//! In: a point of the space. Out: each knob that is active at the point has its value there, and every other knob its
//! default. It refuses to change a knob that something else has changed, and a knob that the [`Witness`] has not
//! recorded first. `missing.rs` leaves out what this machine does not have, `find.rs` finds the knobs of a search,
//! `kept.rs` those of a check, and `slot.rs` holds what is known about one of them.
//!
//! **Who has changed a knob.** Before each move, each knob is compared with the value that the tuner left it at. If it
//! differs, something else has set it, and the tuner yields it. While the tuner changes one knob, others may change with
//! it: an I/O scheduler sets its own `nr_requests`. So after each change, the values of all other knobs are read and taken
//! for the tuner's doing. This relies on nothing else writing within these few milliseconds. If it does, its value is
//! overwritten at the end of the trial, and the original value is restored.
//!
//! **Order.** Knobs that become inactive are set back first, while they still exist; a knob that becomes active is set
//! after the knob that enables it. A knob that changed with a later one is set again in the next pass. This ends after
//! `ROUNDS` passes, since knobs might change each other for ever; [`crate::knob::set`] has checked each value by then.

mod find;
mod kept;
mod missing;
mod slot;

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::description::{Backing, Parameter};
use crate::knob::{ChangedKnob, Constants, KnobError};
use crate::{Error, Point, Space, Value};
use slot::Slot;

pub use missing::{present, restorable};

/// The largest number of passes over knobs that change each other.
const ROUNDS: usize = 3;

/// Records changes of knobs before they are made.
pub trait Witness {
    /// This knob is about to be changed.
    ///
    /// # Errors
    /// If it was not recorded: it must not be changed then.
    fn record(&mut self, changed: &ChangedKnob) -> Result<(), Error>;
}

/// Why a point was not reached.
#[derive(Debug)]
pub enum MoveError {
    /// A knob could not be read or set.
    Knob {
        /// Its name.
        name: String,
        /// Why.
        error: KnobError,
    },
    /// The kernel has restored a knob, because its lease ended. It counts as unchanged from now on.
    LeaseEnded {
        /// Its name.
        name: String,
        /// The error of the knob.
        error: KnobError,
    },
    /// Something else has changed a knob.
    Yielded {
        /// Its name.
        name: String,
        /// The value that the tuner had left.
        expected: Value,
        /// The value that it has.
        found: Value,
    },
    /// The search cannot continue.
    Fatal(Error),
}

impl From<Error> for MoveError {
    fn from(error: Error) -> Self {
        Self::Fatal(error)
    }
}

/// A knob that keeps a confirmed value after the search.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptKnob {
    /// Its name.
    pub name: String,
    /// What it is.
    pub backing: Backing,
    /// The confirmed value.
    pub value: Value,
    /// The value before the search.
    pub original: Value,
    /// The name of the search. Older versions did not store it.
    #[serde(default)]
    pub search: String,
}

/// The knobs of a search.
pub struct Machine {
    slots: Vec<Slot>,
}

impl Machine {
    /// Finds the knobs of these parameters, and the space of their values. Changes nothing.
    ///
    /// # Errors
    /// [`Error::Knob`], [`Error::Description`], [`Error::Machine`].
    pub fn find(parameters: &[Parameter], constants: &dyn Constants) -> Result<(Self, Space), Error> {
        let (slots, space) = find::find(parameters, constants)?;
        Ok((Self { slots }, space))
    }

    /// Finds the knobs that a search keeps, and the space of two levels for each: its default, and the kept value. The kept
    /// value is the one that [`Machine::restore`] restores. Changes nothing.
    ///
    /// # Errors
    /// [`Error::Knob`], [`Error::Description`].
    pub fn find_kept(
        kept: &[KeptKnob],
        parameters: &[Parameter],
        constants: &dyn Constants,
    ) -> Result<(Self, Space), Error> {
        let (slots, space) = kept::find(kept, parameters, constants)?;
        Ok((Self { slots }, space))
    }

    /// Checks that nothing else has changed a knob.
    ///
    /// # Errors
    /// [`MoveError::Yielded`], [`MoveError::Knob`].
    pub fn check(&mut self) -> Result<(), MoveError> {
        self.slots.iter_mut().try_for_each(Slot::check)
    }

    /// Moves to a point. Returns whether that changed a knob.
    ///
    /// # Errors
    /// [`MoveError`]: some knobs may have changed.
    pub fn go(&mut self, space: &Space, point: &Point, witness: &mut dyn Witness) -> Result<bool, MoveError> {
        self.check()?;
        let point = space.canonical(point);
        let mut moved = false;
        for _ in 0..ROUNDS {
            if !self.pass(space, &point, witness)? {
                break;
            }
            moved = true;
        }
        Ok(moved)
    }

    /// Sets each knob that differs from the point. Returns whether there was one.
    fn pass(&mut self, space: &Space, point: &Point, witness: &mut dyn Witness) -> Result<bool, MoveError> {
        let order = space.in_order();
        let inactive = order.iter().rev().filter(|&&index| !space.is_active(point, index));
        let active = order.iter().filter(|&&index| space.is_active(point, index));
        let mut changed = false;
        for &index in inactive.chain(active) {
            let wanted = space.value(point, index);
            let slot = &self.slots[index];
            let may_exist = slot.exists() || space.is_active(point, index);
            if may_exist && !slot.is_at(wanted) {
                self.change(index, wanted, witness)?;
                changed = true;
            }
        }
        Ok(changed)
    }

    /// Sets one knob, and reads the others: what they have now was caused by this change.
    fn change(&mut self, index: usize, value: &Value, witness: &mut dyn Witness) -> Result<(), MoveError> {
        if let Some(changed) = self.slots[index].before_change_to(value) {
            witness.record(&changed)?;
        }
        let done = self.slots[index].set(value);
        for (other, slot) in self.slots.iter_mut().enumerate() {
            if other != index || done.is_err() {
                slot.read_state();
            }
        }
        let slot = &mut self.slots[index];
        done.map_err(|error| MoveError::Knob { name: slot.name.clone(), error })?;
        slot.left_at(value.clone());
        Ok(())
    }

    /// Renews the leases: the kernel restores constants and parameters of modules after this time from now.
    ///
    /// # Errors
    /// [`MoveError::LeaseEnded`] if it has already restored one. The leases of all others are renewed nevertheless.
    pub fn renew(&mut self, lease: Duration) -> Result<(), MoveError> {
        let renew = |slot: &mut Slot| slot.knob.renew(lease).err().map(|error| slot.error(error));
        let errors: Vec<MoveError> = self.slots.iter_mut().filter_map(renew).collect();
        errors.into_iter().next().map_or(Ok(()), Err)
    }

    /// The longest settle time of all knobs.
    #[must_use]
    pub fn settle(&self) -> Duration {
        self.slots.iter().map(|slot| slot.settle).max().unwrap_or_default()
    }

    /// Forgets a knob that was yielded, so that it is not restored.
    pub fn forget(&mut self, name: &str) {
        self.slots.retain(|slot| slot.name != name);
    }

    /// Restores each knob that still has the value that the tuner left. Returns those that could not be restored.
    pub fn restore(&mut self) -> Vec<(String, KnobError)> {
        // Twice: the first pass may change knobs that it has already restored, and may fail on a knob that does not
        // take its original value before another knob has its own.
        drop(self.restore_once());
        self.restore_once()
    }

    fn restore_once(&mut self) -> Vec<(String, KnobError)> {
        let mut failures = Vec::new();
        for index in (0..self.slots.len()).rev() {
            let slot = &mut self.slots[index];
            if !slot.must_be_restored() {
                continue;
            }
            match slot.set(&slot.original.clone()) {
                Ok(()) => slot.left_at(slot.original.clone()),
                Err(error) => failures.push((slot.name.clone(), error)),
            }
            self.slots.iter_mut().filter(|other| other.plain().is_some()).for_each(Slot::read_state);
        }
        failures
    }

    /// What is to be kept: the values in force of those knobs whose parameter says so. Changes nothing.
    #[must_use]
    pub fn to_keep(&self, search: &str) -> Vec<KeptKnob> {
        self.slots.iter().filter_map(|slot| slot.to_keep(search)).collect()
    }

    /// Keeps these values when the process ends. [`Machine::restore`] restores the other knobs.
    ///
    /// # Errors
    /// [`MoveError::Knob`].
    pub fn keep(&mut self, kept: &[KeptKnob]) -> Result<(), MoveError> {
        for slot in &mut self.slots {
            if let Some(knob) = kept.iter().find(|knob| knob.name == slot.name) {
                slot.keep(&knob.value)?;
            }
        }
        Ok(())
    }
}
