//! Measures one trial.
//!
//! In: a trial. Out: its outcome, with the home setting in force again: the default in a search, the kept setting in a
//! check. It aborts a window that takes much longer than the
//! default's, restores the default at once if a constraint is violated, and refuses windows during which the candidate was
//! not in force to the end.
//!
//! **Settling.** The settle time passes before each window, whether it follows a switch or not. So windows differ by their
//! setting, and not by a pause.
//!
//! **Switches within trials.** A window may be different because it follows a switch. A candidate's window would always
//! follow one, and the default's not always. So each window of a trial follows a switch: where there would be none, the
//! knobs are moved to the other setting of the trial and back.

use std::time::{Duration, Instant};

use crate::description::Job;
use crate::history::{Order, Outcome, Sample, Trial};
use crate::knob::KnobError;
use crate::machine::{Machine, MoveError, Witness};
use crate::statistics::median;
use crate::target::{Reading, TargetError, Watch};
use crate::workload::Workload;
use crate::{Constraint, Error, Gauges, Point, Signature, Space, Target};

/// How much longer than its window a lease lasts, for a tuner that is stopped before it can renew it.
const MARGIN: Duration = Duration::from_secs(10);

/// No window is aborted earlier, since starting a process takes time too.
const SHORTEST: Duration = Duration::from_millis(500);

/// How often a window in which the default violates a constraint is repeated, after growing pauses.
const RETRIES: usize = 4;

/// The longest pause before a window with the default is repeated.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// The pause between two checks for an interruption.
const TICK: Duration = Duration::from_millis(50);

/// Measures trials.
pub struct TrialRunner<'a, K> {
    /// The knobs.
    pub machine: &'a mut Machine,
    /// The space of their values.
    pub space: &'a Space,
    /// The setting that is in force between trials.
    pub home: Point,
    /// The target.
    pub target: &'a Target,
    /// The constraints.
    pub constraints: &'a [Constraint],
    /// A window is aborted after this many times the duration of a window with the default.
    pub abort_after: f64,
    /// Records changes of knobs, and knows whether to stop.
    pub keeper: &'a mut K,
    /// Seconds of the windows with the default so far.
    pub took: Vec<f64>,
    /// The last window, if it was one with the default.
    pub last_default: Option<Reading>,
    /// The last window with the default: candidates that are measured alone are compared with it.
    pub shared_default: Option<Reading>,
    /// How often a window in which the default violates a constraint is repeated.
    pub retries: usize,
    /// The workload of the search, when it is known.
    pub workload: Option<Workload<'a>>,
    /// How long to wait before each window.
    pub settle: Duration,
    /// Whether a window now would follow no switch.
    pub is_undisturbed: bool,
    /// Receives a line for each event.
    pub say: &'a dyn Fn(&str),
}

/// Why a trial has no outcome.
#[derive(Debug)]
pub enum TrialError {
    /// The search was asked to stop.
    Interrupted,
    /// The sensors show another workload.
    Shifted,
    /// The knobs could not be moved.
    Move(MoveError),
}

impl<E: Into<MoveError>> From<E> for TrialError {
    fn from(error: E) -> Self {
        Self::Move(error.into())
    }
}

impl<'a, K> TrialRunner<'a, K> {
    /// A runner for the trials of a job, with the default in force between them.
    pub fn new(
        job: &'a Job,
        machine: &'a mut Machine,
        space: &'a Space,
        keeper: &'a mut K,
        say: &'a dyn Fn(&str),
    ) -> Self {
        Self {
            settle: machine.settle(),
            is_undisturbed: true,
            machine,
            space,
            home: space.default_point(),
            target: &job.target,
            constraints: &job.constraints,
            abort_after: job.options.abort_after,
            keeper,
            took: Vec::new(),
            last_default: None,
            shared_default: None,
            retries: RETRIES,
            workload: None,
            say,
        }
    }
}

impl<K: Watch + Witness> TrialRunner<'_, K> {
    /// Measures a trial. The home setting is in force afterwards, unless an error is returned.
    ///
    /// # Errors
    /// [`TrialError`].
    pub fn trial(&mut self, trial: &Trial) -> Result<Outcome, TrialError> {
        let known = match (self.last_default.take(), trial.order) {
            (last, Order::Bracketed) => last,
            (_, Order::Alone) => self.shared_default.clone(),
            (_, Order::DefaultFirst | Order::DefaultLast) => None,
        };
        if known.is_none() {
            let default = self.space.default_point();
            let refused = match trial.order {
                Order::Bracketed | Order::DefaultFirst | Order::Alone => self.disturb(&default, &trial.point)?,
                Order::DefaultLast => self.disturb(&trial.point, &default)?,
            };
            if let Some(outcome) = refused {
                self.back()?;
                return Ok(outcome);
            }
        }
        let mut default = match (known, trial.order) {
            (Some(reading), _) => vec![reading],
            (None, Order::DefaultLast) => vec![],
            (None, _) => vec![self.default_window()?],
        };
        self.shared_default = default.last().cloned().or(self.shared_default.take());
        let candidate = self.candidate(&trial.point)?;
        let ended_early = self.back()?;
        let candidate = match (candidate, ended_early) {
            (Err(outcome), _) | (Ok(_), Some(outcome)) => return Ok(outcome),
            (Ok(reading), None) => reading,
        };
        if matches!(trial.order, Order::Bracketed | Order::DefaultLast) {
            let after = self.default_window()?;
            self.last_default = Some(after.clone());
            self.shared_default = Some(after.clone());
            default.push(after);
            if self.home != self.space.default_point() {
                self.back()?;
            }
        }
        Ok(Outcome::Measured(self.sample(&default, &candidate)))
    }

    /// Moves to a setting, by way of the other one of its trial if that is no switch.
    fn disturb(&mut self, at: &Point, other: &Point) -> Result<Option<Outcome>, TrialError> {
        let mut refused = self.reach(at)?;
        if self.is_undisturbed {
            for point in [other, at] {
                refused = refused.or(self.reach(point)?);
            }
        }
        Ok(refused)
    }

    /// A window with the default that follows switches to each of these settings and back.
    ///
    /// # Errors
    /// As [`TrialRunner::default_window`].
    pub fn window_after(&mut self, points: &[Point]) -> Result<Reading, TrialError> {
        for point in points {
            // A value that a knob does not take is the matter of its trial.
            self.reach(point)?;
            self.go(&self.space.default_point())?;
        }
        self.default_window()
    }

    /// The windows of a trial, target by target.
    fn sample(&self, default: &[Reading], candidate: &Reading) -> Sample {
        let one = |of: &dyn Fn(&Reading) -> f64| Sample {
            default: default.iter().map(of).collect(),
            value: of(candidate),
            ..Sample::default()
        };
        // A window without one of the targets is an error, so every reading has all of them.
        let named = |name: &str| one(&|reading| reading.named.get(name).copied().unwrap_or(f64::NAN));
        let others = self.target.others.iter().map(|other| (other.name.clone(), named(&other.name)));
        Sample { others: others.collect(), ..one(&|reading| reading.value) }
    }

    /// A window with the default in force. A failed window is repeated once. If it violates a constraint, it is repeated
    /// after growing pauses, as often as `retries` says: a limit may be broken by something that passes.
    ///
    /// # Errors
    /// [`TrialError`]; [`Error::Target`], [`Error::Constraint`] if the last window fails, too.
    pub fn default_window(&mut self) -> Result<Reading, TrialError> {
        self.go(&self.space.default_point())?;
        for attempt in 0.. {
            let start = Instant::now();
            let error = match self.default_window_once()? {
                Ok(reading) => return Ok(reading),
                Err(error) => error,
            };
            let most = if matches!(error, Error::Constraint(_)) { self.retries } else { self.retries.min(1) };
            if attempt == most {
                return Err(error.into());
            }
            let pause = (start.elapsed() * (1 << attempt)).min(LONGEST_PAUSE);
            if let Error::Constraint(violation) = &error {
                let seconds = pause.as_secs_f64();
                (self.say)(&format!(
                    "the default violates a constraint ({violation}); measured again in {seconds:.1} s"
                ));
                self.wait(pause);
            }
        }
        Err(TrialError::Interrupted)
    }

    /// A window with the default, and what the sensors read during it. Later windows are compared with that, so the settle
    /// time before the window does not count.
    ///
    /// # Errors
    /// As [`TrialRunner::default_window`].
    pub fn first_window(&mut self, gauges: &mut Gauges<'_>) -> Result<(Reading, Signature), TrialError> {
        self.go(&self.space.default_point())?;
        let settle = std::mem::take(&mut self.settle);
        self.wait(settle);
        let before = gauges.read();
        let reading = self.default_window();
        self.settle = settle;
        let after = gauges.read();
        Ok((reading?, gauges.between(&before, &after)))
    }

    /// One window with whatever is in force. The inner error is that of the window.
    fn default_window_once(&mut self) -> Result<Result<Reading, Error>, TrialError> {
        self.wait(self.settle);
        let before = self.workload.as_mut().map(Workload::before);
        self.is_undisturbed = true;
        let reading = match self.target.run(self.target.timeout, self.constraints, self.keeper) {
            Ok(reading) => reading,
            Err(TargetError::Interrupted) => return Err(TrialError::Interrupted),
            Err(TargetError::Violated(violation)) => return Ok(Err(Error::Constraint(violation))),
            Err(error) => return Ok(Err(Error::Target(error))),
        };
        if let Some(violation) = self.constraints.iter().find_map(|constraint| constraint.violation(&reading)) {
            return Ok(Err(Error::Constraint(violation)));
        }
        self.took.push(reading.took.as_secs_f64());
        let shifted = self.workload.as_mut().zip(before).is_some_and(|(workload, before)| workload.after(&before));
        if shifted {
            return Err(TrialError::Shifted);
        }
        Ok(Ok(reading))
    }

    /// A window with a setting in force. The inner error is the outcome of a window without a result.
    pub fn candidate(&mut self, point: &Point) -> Result<Result<Reading, Outcome>, TrialError> {
        if let Some(outcome) = self.reach(point)? {
            return Ok(Err(outcome));
        }
        self.wait(self.settle);
        self.is_undisturbed = true;
        Ok(match self.target.run(self.patience(), self.constraints, self.keeper) {
            Ok(reading) => match self.constraints.iter().find_map(|constraint| constraint.violation(&reading)) {
                Some(violation) => Err(Outcome::Violated { constraint: violation.to_string() }),
                None => Ok(reading),
            },
            Err(TargetError::Interrupted) => return Err(TrialError::Interrupted),
            Err(TargetError::Violated(violation)) => Err(Outcome::Violated { constraint: violation.to_string() }),
            Err(TargetError::Timeout(after)) => Err(Outcome::Aborted { after: after.as_secs_f64() }),
            Err(error) => Err(Outcome::failed(format!("the target: {error}"))),
        })
    }

    /// Moves to a setting. If a knob does not take its value, this is the outcome of the trial.
    fn reach(&mut self, point: &Point) -> Result<Option<Outcome>, TrialError> {
        match self.go(point) {
            Ok(()) => Ok(None),
            Err(TrialError::Move(MoveError::Knob { name, error } | MoveError::LeaseEnded { name, error })) => {
                let refused = matches!(error, KnobError::Refused { .. } | KnobError::ReadsBack { .. });
                Ok(Some(Outcome::Failed { reason: format!("{name} {error}"), refused }))
            }
            Err(error) => Err(error),
        }
    }

    /// The duration of a window with the default.
    pub fn window(&self) -> Duration {
        let seconds = median(&self.took).unwrap_or_default();
        Duration::try_from_secs_f64(seconds).unwrap_or_default()
    }

    /// The longest duration of a window with a candidate.
    fn patience(&self) -> Duration {
        let seconds = median(&self.took).unwrap_or(f64::INFINITY) * self.abort_after;
        let limit = Duration::try_from_secs_f64(seconds).unwrap_or(self.target.timeout);
        limit.max(SHORTEST).min(self.target.timeout)
    }

    /// Returns home. If the lease ended before that, the candidate was not in force to the end of its window:
    /// this is the outcome of the trial then.
    pub fn back(&mut self) -> Result<Option<Outcome>, TrialError> {
        let home = self.home.clone();
        match self.go(&home) {
            Err(TrialError::Move(MoveError::LeaseEnded { name, error })) => {
                // The other knobs are still changed.
                self.go(&home)?;
                Ok(Some(Outcome::failed(format!("{name}: {error}"))))
            }
            done => done.map(|()| None),
        }
    }

    /// Moves to a point. The lease is renewed after the last change, so that it covers a whole window.
    fn go(&mut self, point: &Point) -> Result<(), TrialError> {
        let lease = self.target.timeout + self.settle + MARGIN;
        self.machine.renew(lease)?;
        let moved = self.machine.go(self.space, point, self.keeper);
        self.is_undisturbed &= matches!(moved, Ok(false));
        moved?;
        self.machine.renew(lease)?;
        Ok(())
    }

    /// Waits, unless the search is asked to stop.
    pub fn wait(&self, mut left: Duration) {
        while !left.is_zero() && !self.keeper.interrupted() {
            let step = left.min(TICK);
            std::thread::sleep(step);
            left -= step;
        }
    }
}
