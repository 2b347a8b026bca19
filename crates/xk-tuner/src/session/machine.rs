//! The knobs of this machine, and taking them from one point of the space to another.
//!
//! Before every change, every knob is compared with what it was left at: one that differs was changed by
//! somebody else, and is theirs from then on. What differs right behind a change of ours was changed by that: an I/O
//! scheduler brings its own `nr_requests`.

use std::time::Duration;

use crate::description::{AtEnd, Backing, Domain, Parameter};
use crate::knob::{set, Constants, Held, Knob, KnobError, Module, Plain};
use crate::levels::with_default;
use crate::{Dimension, Error, Guard, Point, Space, Value};

/// How often knobs that change each other are gone through.
const ROUNDS: usize = 3;

/// Who must know before a knob is changed.
pub trait Witness {
    /// This knob is about to be changed.
    ///
    /// # Errors
    /// It must not be changed then.
    fn hold(&mut self, held: &Held) -> Result<(), Error>;
}

/// Why a point was not reached.
#[derive(Debug)]
pub enum Trouble {
    /// A knob did not do what it was asked.
    Knob {
        /// Its name.
        name: String,
        /// Why.
        error: KnobError,
    },
    /// The kernel has put a knob back, which counts as changed no longer.
    Lapsed {
        /// Its name.
        name: String,
        /// Why.
        error: KnobError,
    },
    /// Somebody else has changed a knob.
    Yielded {
        /// Its name.
        name: String,
        /// What the tuner had left there.
        expected: Value,
        /// What is there.
        found: Value,
    },
    /// The search cannot go on.
    Fatal(Error),
}

impl From<Error> for Trouble {
    fn from(error: Error) -> Self {
        Self::Fatal(error)
    }
}

struct Slot {
    name: String,
    knob: Box<dyn Knob>,
    /// What the guardian must know; perf-consts are the kernel's to put back.
    plain: Option<Plain>,
    backing: Backing,
    original: Value,
    /// What it was left at; `None` while it is not there.
    expected: Option<Value>,
    settle: Duration,
    at_end: AtEnd,
}

impl Slot {
    /// What is wrong with it. What has lapsed is where the kernel has put it.
    fn trouble(&mut self, error: KnobError) -> Trouble {
        let name = self.name.clone();
        if !matches!(error, KnobError::Lapsed { .. }) {
            return Trouble::Knob { name, error };
        }
        self.expected = self.knob.read().ok();
        Trouble::Lapsed { name, error }
    }
}

/// The knobs.
pub struct Machine {
    slots: Vec<Slot>,
}

impl Machine {
    /// Finds the knobs of these parameters, and makes a space of them.
    ///
    /// # Errors
    /// [`Error::Knob`], [`Error::Description`], [`Error::Machine`].
    pub fn find(parameters: &[Parameter], constants: &dyn Constants) -> Result<(Self, Space), Error> {
        let mut slots = Vec::new();
        let mut dimensions = Vec::new();
        for parameter in parameters {
            let (slot, dimension) = find_one(parameter, constants)?;
            slots.push(slot);
            dimensions.push(dimension);
        }
        for (index, parameter) in parameters.iter().enumerate() {
            dimensions[index].guard = guard(parameter, parameters, &dimensions)?;
        }
        let space = Space::new(dimensions).map_err(|cycle| {
            let first = parameters.iter().find(|parameter| parameter.name == cycle.0[0]);
            let message = format!("guards wait for each other: {}", cycle.0.join(" needs "));
            first.map_or_else(|| Error::Machine(message.clone()), |parameter| parameter.place.error(&message))
        })?;
        Ok((Self { slots }, space))
    }

    /// Goes to a point: every knob that is active there has its value, every other its default.
    ///
    /// # Errors
    /// [`Trouble`]: some knobs may have changed.
    pub fn go(&mut self, space: &Space, point: &Point, witness: &mut dyn Witness) -> Result<(), Trouble> {
        self.look()?;
        let order = space.in_order();
        for _ in 0..ROUNDS {
            let mut changed = false;
            // What becomes inactive goes back first, while it is still there; what becomes active comes last.
            let idle = order.iter().rev().filter(|&&index| !space.is_active(point, index));
            let active = order.iter().filter(|&&index| space.is_active(point, index));
            for &index in idle.chain(active) {
                let wanted = space.value(&space.canonical(point), index).clone();
                let slot = &self.slots[index];
                let is_there = slot.expected.is_some() || space.is_active(point, index);
                if is_there && slot.expected.as_ref() != Some(&wanted) {
                    self.change(index, &wanted, witness)?;
                    changed = true;
                }
            }
            if !changed {
                break;
            }
        }
        Ok(())
    }

    fn change(&mut self, index: usize, value: &Value, witness: &mut dyn Witness) -> Result<(), Trouble> {
        let slot = &mut self.slots[index];
        if let Some(plain) = slot.plain.clone() {
            let ours = slot.expected.iter().chain([value]).cloned().collect();
            witness.hold(&Held { name: slot.name.clone(), plain, original: slot.original.clone(), ours })?;
        }
        let done = set(&mut *slot.knob, value);
        for (other, slot) in self.slots.iter_mut().enumerate() {
            if other != index || done.is_err() {
                slot.expected = slot.knob.read().ok();
            }
        }
        let slot = &mut self.slots[index];
        done.map_err(|error| Trouble::Knob { name: slot.name.clone(), error })?;
        slot.expected = Some(value.clone());
        Ok(())
    }

    /// Looks whether every knob is where it was left.
    fn look(&mut self) -> Result<(), Trouble> {
        for slot in &mut self.slots {
            let Some(expected) = slot.expected.clone() else { continue };
            match slot.knob.read() {
                Ok(found) if found == expected => {}
                Ok(found) => return Err(Trouble::Yielded { name: slot.name.clone(), expected, found }),
                Err(error) => return Err(slot.trouble(error)),
            }
        }
        Ok(())
    }

    /// The kernel puts perf-consts back after so long, from now.
    ///
    /// # Errors
    /// [`Trouble::Lapsed`]: it has done so already. The others are renewed all the same.
    pub fn renew(&mut self, lease: Duration) -> Result<(), Trouble> {
        let troubles: Vec<Trouble> = self
            .slots
            .iter_mut()
            .filter_map(|slot| slot.knob.renew(lease).err().map(|error| slot.trouble(error)))
            .collect();
        troubles.into_iter().next().map_or(Ok(()), Err)
    }

    /// How long the machine needs to get used to any change.
    #[must_use]
    pub fn settle(&self) -> Duration {
        self.slots.iter().map(|slot| slot.settle).max().unwrap_or_default()
    }

    /// Forgets a knob that somebody else has changed: it is not put back.
    pub fn forget(&mut self, name: &str) {
        self.slots.retain(|slot| slot.name != name);
    }

    /// Puts everything back that is still where the tuner left it; what could not be put back, by name.
    pub fn restore(&mut self) -> Vec<(String, KnobError)> {
        let mut failures = Vec::new();
        // Twice: knobs may change each other.
        for last in [false, true] {
            for index in (0..self.slots.len()).rev() {
                let slot = &mut self.slots[index];
                let now = slot.knob.read();
                let ours = now.as_ref().ok() == slot.expected.as_ref() && slot.expected.is_some();
                if !ours || slot.expected.as_ref() == Some(&slot.original) {
                    continue;
                }
                let done = set(&mut *slot.knob, &slot.original);
                match done {
                    Ok(()) => slot.expected = Some(slot.original.clone()),
                    Err(error) if last => failures.push((slot.name.clone(), error)),
                    Err(_) => {}
                }
                for other in self.slots.iter_mut().filter(|other| other.plain.is_some()) {
                    other.expected = other.knob.read().ok();
                }
            }
        }
        failures
    }

    /// What stays when the tuner ends now, with the value from before; the rest is put back.
    ///
    /// # Errors
    /// [`Trouble::Knob`].
    pub fn keep(&mut self) -> Result<Vec<Kept>, Trouble> {
        let mut kept = Vec::new();
        for slot in &mut self.slots {
            let away = slot.expected.as_ref().filter(|value| **value != slot.original);
            let Some(value) = away.filter(|_| slot.at_end == AtEnd::Keep).cloned() else { continue };
            slot.knob.keep().map_err(|error| Trouble::Knob { name: slot.name.clone(), error })?;
            kept.push(Kept {
                name: slot.name.clone(),
                backing: slot.backing.clone(),
                value: value.clone(),
                original: slot.original.clone(),
            });
            slot.original = value;
        }
        Ok(kept)
    }
}

/// A knob that keeps the value that was proved better.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Kept {
    /// Its name.
    pub name: String,
    /// What it is.
    pub backing: Backing,
    /// The value.
    pub value: Value,
    /// The value that it had.
    pub original: Value,
}

fn find_one(parameter: &Parameter, constants: &dyn Constants) -> Result<(Slot, Dimension), Error> {
    let name = parameter.name.clone();
    let failed = |source| Error::Knob { parameter: name.clone(), source };
    let missing = |place: &str, error: &dyn std::error::Error| {
        failed(KnobError::Missing { place: place.to_owned(), reason: error.to_string() })
    };
    let (mut levels, ordered) = match &parameter.domain {
        Domain::Numbers(levels) => (levels.clone(), true),
        Domain::Choices(levels) => (levels.clone(), false),
        Domain::Offered => (Vec::new(), false),
    };
    let mut default = None;
    let (mut knob, plain): (Box<dyn Knob>, _) = match &parameter.backing {
        Backing::Plain(plain) => (plain.knob(), Some(plain.clone())),
        Backing::Constant(constant) => {
            let found = constants.find(constant).map_err(|error| missing(constant, &error))?;
            // The description is for many kernels; what may be set is for this one.
            levels = found.offered(levels);
            default = Some(found.default_value());
            (Box::new(found), None)
        }
        Backing::Module(place) => {
            let found = Module::find(place).map_err(|error| missing(place, &error))?;
            if let Some(why) = found.held_by() {
                return Err(Error::Machine(format!("{name} ({place}) {why}; end that first, or leave it out")));
            }
            // The description may be for other versions of the module.
            levels.retain(|level| found.takes(level));
            (Box::new(found), None)
        }
    };
    let expected = match (knob.read(), &parameter.default) {
        (Ok(value), _) => Some(value),
        (Err(KnobError::Missing { .. }), Some(_)) if parameter.only_if.is_some() => None,
        (Err(error), _) => return Err(failed(error)),
    };
    if let Some((default, value)) = default.as_ref().zip(expected.as_ref()).filter(|(default, value)| default != value)
    {
        return Err(Error::Machine(format!(
            "{name} is tuned to {value} already, and not by this tuner (its default is {default}): `xk unset` it, or leave \
             it out"
        )));
    }
    if parameter.domain == Domain::Offered {
        levels = knob.offered().map_err(failed)?.ok_or_else(|| {
            parameter.place.error(format!("parameter `{name}`: the file offers no choices, nothing is in brackets"))
        })?;
    }
    let original = expected.clone().or_else(|| parameter.default.clone()).unwrap_or(Value::Number(0));
    let (levels, at) = with_default(levels, &original, ordered);
    let dimension = Dimension { name: name.clone(), levels, ordered, default: at, guard: None };
    let backing = parameter.backing.clone();
    let slot =
        Slot { name, knob, plain, backing, original, expected, settle: parameter.settle, at_end: parameter.at_end };

    Ok((slot, dimension))
}

fn guard(parameter: &Parameter, all: &[Parameter], dimensions: &[Dimension]) -> Result<Option<Guard>, Error> {
    let Some((other, values)) = &parameter.only_if else { return Ok(None) };
    let Some(dimension) = all.iter().position(|candidate| candidate.name == *other) else {
        return Err(parameter.place.error(format!("there is no parameter `{other}`")));
    };
    let known = &dimensions[dimension].levels;
    let level = |value: &Value| {
        known.iter().position(|level| level == value).ok_or_else(|| {
            let offered: Vec<String> = known.iter().map(ToString::to_string).collect();
            parameter.place.error(format!(
                "parameter `{}` is active only if {other} = {value}, which is not available here; available: {}",
                parameter.name,
                offered.join(", ")
            ))
        })
    };
    let levels = values.iter().map(level).collect::<Result<_, _>>()?;
    Ok(Some(Guard { dimension, levels }))
}
