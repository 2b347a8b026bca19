//! Changing tunes, as one, when it is safe.

use std::time::Duration;

use xk_history::{Action, Event};
use xk_table::Mode;

use crate::abi::{self, Plain};
use crate::device::{Device, REPORT_LEN};
use crate::error::{Error, Outcome};
use crate::recording;
use crate::status::TuneStatus;

/// What becomes of one tune.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Change {
    /// Number of the tune.
    pub id: u32,
    /// What it is changed to.
    pub to: Destination,
}

/// What a transition changes a tune to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Destination {
    /// This value.
    Value(i64),
    /// The policy that it was given ([`Device::give_policy`]), with this value where
    /// the policy sets none.
    Policy(i64),
    /// Its default; the tune ends.
    Unload,
}

/// A transition that is complete.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Transition {
    /// Stops of the machine that it took.
    pub stops: u32,
    /// From the call of the kernel until every thread used the new values.
    pub elapsed: Duration,
}

fn encode(change: &Change) -> abi::Change {
    match change.to {
        Destination::Value(value) => abi::Change { id: change.id, flags: 0, value },
        Destination::Policy(value) => abi::Change { id: change.id, flags: abi::CHANGE_POLICY, value },
        Destination::Unload => abi::Change { id: change.id, flags: abi::CHANGE_UNLOAD, value: 0 },
    }
}

impl Device {
    /// Changes several tunes as one; see `docs/transitions.md` for the modes. Waits
    /// no longer than `timeout` (at most ten minutes), and as long again to reverse.
    ///
    /// # Errors
    /// [`Error::NoSuchTune`], [`Error::Owned`], [`Error::OutOfRange`], [`Error::Busy`], [`Error::Forbidden`]
    /// before anything has changed; [`Error::Blocked`] with what is in force and who
    /// was in the way.
    pub fn transition(&self, changes: &[Change], mode: Mode, timeout: Duration) -> Result<Transition, Error> {
        run(self, changes, mode, timeout)
    }

    /// Gives the constant of tune `id` another value, at all its sites at once and
    /// without waiting for anybody ([`Mode::Now`]).
    ///
    /// # Errors
    /// As [`Device::transition`]. The old value is still in force then.
    pub fn set(&self, id: u32, value: i64) -> Result<(), Error> {
        self.transition(&[Change { id, to: Destination::Value(value) }], Mode::Now, Duration::ZERO).map(drop)
    }

    /// Unloads tune `id` without waiting for anybody ([`Mode::Now`]): its default is
    /// back in force, and so are the original bytes, when this returns.
    ///
    /// # Errors
    /// As [`Device::transition`].
    pub fn unload(&self, id: u32) -> Result<(), Error> {
        self.transition(&[Change { id, to: Destination::Unload }], Mode::Now, Duration::ZERO).map(drop)
    }
}

fn run(device: &Device, changes: &[Change], mode: Mode, timeout: Duration) -> Result<Transition, Error> {
    let encoded: Vec<abi::Change> = changes.iter().map(encode).collect();
    let mut report = vec![0u8; if mode == Mode::Now { 0 } else { REPORT_LEN }];
    let mut request = abi::Transition::zeroed();
    request.size = size_of::<abi::Transition>() as u32;
    request.mode = abi::mode_number(mode);
    request.timeout_ms = u32::try_from(timeout.as_millis()).unwrap_or(u32::MAX).min(abi::MAX_TIMEOUT_MS);
    request.nr_changes = encoded.len() as u32;
    request.changes = encoded.as_ptr() as u64;
    if !report.is_empty() {
        request.report = report.as_mut_ptr() as u64;
        request.report_len = report.len() as u32;
    }
    let before = device.recorded();
    match device.ioctl(abi::IOC_TRANSITION, &mut request) {
        Ok(()) => {
            record(device, &before, changes);
            Ok(Transition { stops: request.stops, elapsed: Duration::from_nanos(request.elapsed_ns) })
        }
        Err(error) => Err(failure(device, changes, &request, abi::text(&report), error)),
    }
}

/// Records what changed in the history.
fn record(device: &Device, before: &[TuneStatus], changes: &[Change]) {
    let event = |change: &Change| -> Option<Event> {
        let tune = before.iter().find(|tune| tune.id == change.id)?;
        let (action, to) = match change.to {
            Destination::Value(value) => (Action::Set, value.into()),
            Destination::Policy(_) => {
                let policy = device.policy_status(tune.id).ok().flatten();
                (Action::Policy, recording::policy_of(policy.map(|policy| policy.program)))
            }
            Destination::Unload => (Action::Revert, tune.default.into()),
        };
        recording::change(tune, action, to)
    };
    xk_history::record(changes.iter().filter_map(event).collect());
}

fn failure(
    device: &Device,
    changes: &[Change],
    request: &abi::Transition,
    report: String,
    error: std::io::Error,
) -> Error {
    let reason = abi::text(&request.error);
    match error.raw_os_error() {
        Some(libc::ETIMEDOUT | libc::EINTR) => {
            let outcome = match request.outcome {
                abi::OUTCOME_REVERTING => Outcome::Reverting,
                _ => Outcome::Unchanged,
            };
            Error::Blocked { outcome, reason, report }
        }
        Some(libc::ERANGE) => out_of_range(device, changes),
        Some(libc::EBUSY) => Error::Busy(reason),
        Some(libc::EBADMSG) => Error::Drift(reason),
        Some(libc::EACCES | libc::EKEYREJECTED) => Error::Forbidden(reason),
        errno => match changes {
            [change] if reason.is_empty() || matches!(errno, Some(libc::ENOENT | libc::EPERM)) => {
                Error::of_tune(change.id, error)
            }
            _ if reason.is_empty() => Error::Device(error),
            _ => Error::Refused { reason, errno: errno.unwrap_or(0) },
        },
    }
}

/// The first change to a value that its tune does not accept.
fn out_of_range(device: &Device, changes: &[Change]) -> Error {
    let tunes = match device.tunes() {
        Ok(tunes) => tunes,
        Err(error) => return error,
    };
    for change in changes {
        let (Destination::Value(value) | Destination::Policy(value)) = change.to else { continue };
        match tunes.iter().find(|tune| tune.id == change.id) {
            Some(tune) if tune.values.contains(value) => {}
            Some(tune) => {
                return Error::OutOfRange { name: tune.name.clone(), value, values: Box::new(tune.values.clone()) }
            }
            None => return Error::NoSuchTune(change.id),
        }
    }
    Error::Device(std::io::Error::from_raw_os_error(libc::ERANGE))
}
