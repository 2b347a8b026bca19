//! Measuring one trial: windows in their order, what is slow given up, what crosses a limit put back at once.

use std::time::Duration;

use crate::history::{Kind, Outcome, Sample, Trial};
use crate::session::machine::{Machine, Trouble, Witness};
use crate::statistics::median;
use crate::target::{Reading, TargetError, Watch};
use crate::{Constraint, Error, Point, Space, Target};

/// A perf-const stays for so much longer than the window that it is needed for, if the tuner stops to renew.
const MARGIN: Duration = Duration::from_secs(10);

/// No window is given up earlier: starting a process takes its time, too.
const SHORTEST: Duration = Duration::from_millis(500);

/// What windows need.
pub struct Lab<'a, K> {
    /// The knobs.
    pub machine: &'a mut Machine,
    /// The points.
    pub space: &'a Space,
    /// What is measured.
    pub target: &'a Target,
    /// Hard limits.
    pub constraints: &'a [Constraint],
    /// So many times as slow as the default is too slow.
    pub abort_after: f64,
    /// Who is told of everything.
    pub keeper: &'a mut K,
    /// How long windows with the default took.
    pub took: Vec<f64>,
    /// What the default came to in the window before, if nothing happened since.
    pub last_default: Option<Reading>,
}

/// Why a trial has no outcome.
#[derive(Debug)]
pub enum Halt {
    /// Somebody asked to stop.
    Interrupted,
    /// Knobs.
    Trouble(Trouble),
}

impl<E: Into<Trouble>> From<E> for Halt {
    fn from(error: E) -> Self {
        Self::Trouble(error.into())
    }
}

impl<K: Watch + Witness> Lab<'_, K> {
    /// Measures a trial. The default is in force afterwards, unless an error is returned.
    ///
    /// # Errors
    /// [`Halt`].
    pub fn trial(&mut self, trial: &Trial) -> Result<Outcome, Halt> {
        let before = match trial.kind {
            Kind::Sandwich => match self.last_default.take() {
                Some(reading) => vec![reading],
                None => vec![self.default_window()?],
            },
            Kind::DefaultFirst => vec![self.default_window()?],
            Kind::DefaultLast => vec![],
        };
        let candidate = self.candidate(&trial.point)?;
        let lapsed = self.back()?;
        let reading = match (candidate, lapsed) {
            (Err(outcome), _) | (Ok(_), Some(outcome)) => return Ok(outcome),
            (Ok(reading), None) => reading,
        };
        let mut default = before;
        self.last_default = None;
        if trial.kind != Kind::DefaultFirst {
            let after = self.default_window()?;
            self.last_default = Some(after.clone());
            default.push(after);
        }
        Ok(Outcome::Measured(self.sample(&default, &reading)))
    }

    /// The windows of a trial, target by target.
    fn sample(&self, default: &[Reading], candidate: &Reading) -> Sample {
        let one = |of: &dyn Fn(&Reading) -> f64| Sample {
            default: default.iter().map(of).collect(),
            value: of(candidate),
            ..Sample::default()
        };
        // A reading has every target, else it would be none.
        let named = |name: &str| one(&|reading| reading.named.get(name).copied().unwrap_or(f64::NAN));
        let others = self.target.others.iter().map(|other| (other.name.clone(), named(&other.name)));
        Sample { others: others.collect(), ..one(&|reading| reading.value) }
    }

    /// A window with the default in force. It is tried twice: a machine may hiccup.
    ///
    /// # Errors
    /// [`Halt`]; [`Error::Target`], [`Error::Constraint`] when the default itself does not do.
    pub fn default_window(&mut self) -> Result<Reading, Halt> {
        self.go(&self.space.default_point())?;
        let limit = self.target.timeout;
        let reading = match self.target.run(limit, self.keeper) {
            Err(TargetError::Interrupted) => return Err(Halt::Interrupted),
            Err(_) => self.target.run(limit, self.keeper),
            reading => reading,
        };
        let reading = match reading {
            Ok(reading) => reading,
            Err(TargetError::Interrupted) => return Err(Halt::Interrupted),
            Err(error) => return Err(Error::Target(error.to_string()).into()),
        };
        if let Some(violation) = self.constraints.iter().find_map(|limit| limit.violation(&reading)) {
            return Err(Error::Constraint(violation).into());
        }
        self.took.push(reading.took.as_secs_f64());
        Ok(reading)
    }

    /// A window with the candidate in force; what it came to if it said nothing.
    fn candidate(&mut self, point: &Point) -> Result<Result<Reading, Outcome>, Halt> {
        match self.go(point) {
            Ok(()) => {}
            Err(Halt::Trouble(Trouble::Knob { name, error } | Trouble::Lapsed { name, error })) => {
                return Ok(Err(Outcome::Failed { reason: format!("{name} {error}") }));
            }
            Err(halt) => return Err(halt),
        }
        let patience = median(&self.took).unwrap_or(f64::INFINITY) * self.abort_after;
        let limit = Duration::try_from_secs_f64(patience).unwrap_or(self.target.timeout);
        let limit = limit.max(SHORTEST).min(self.target.timeout);
        Ok(match self.target.run(limit, self.keeper) {
            Ok(reading) => match self.constraints.iter().find_map(|limit| limit.violation(&reading)) {
                Some(constraint) => Err(Outcome::Violated { constraint }),
                None => Ok(reading),
            },
            Err(TargetError::Interrupted) => return Err(Halt::Interrupted),
            Err(TargetError::Timeout(after)) => Err(Outcome::Aborted { after: after.as_secs_f64() }),
            Err(error) => Err(Outcome::Failed { reason: format!("the target: {error}") }),
        })
    }

    /// Goes back to the default; what the window came to if the candidate was not in force to its end.
    fn back(&mut self) -> Result<Option<Outcome>, Halt> {
        let default = self.space.default_point();
        match self.go(&default) {
            Err(Halt::Trouble(Trouble::Lapsed { name, error })) => {
                // The other knobs are still away.
                self.go(&default)?;
                Ok(Some(Outcome::Failed { reason: format!("{name}: {error}") }))
            }
            done => done.map(|()| None),
        }
    }

    /// Goes to a point, and waits until the machine is used to it. From the last change on, the kernel leaves
    /// perf-consts there for a whole window.
    fn go(&mut self, point: &Point) -> Result<(), Halt> {
        let lease = self.target.timeout + self.machine.settle() + MARGIN;
        self.machine.renew(lease)?;
        self.machine.go(self.space, point, self.keeper)?;
        self.machine.renew(lease)?;
        let mut left = self.machine.settle();
        while !left.is_zero() && !self.keeper.interrupted() {
            let step = left.min(Duration::from_millis(50));
            std::thread::sleep(step);
            left -= step;
        }
        Ok(())
    }
}
