//! Loads constants for `xk set`, and lets the tunes outlive the process.
//!
//! In: constants with their new values. Out: a tune for each, loaded with its default in force or loaded before. Refuses a
//! tune that another process or a policy holds, and a value that would not come into force. Changes no value itself.

use std::time::{Duration, Instant};

use thiserror::Error;
use xk_runtime::{AddressOf, TuneStatus};
use xk_runtime::{Backend, Change as TuneChange, Destination, Device, Error as RuntimeError, Probe, RulesError, Tune};
use xk_table::ProbeKind;

use crate::health::{refuse_ill, IllSite};
use crate::load::LoadError;
use crate::place::about;
use crate::value::Change;

/// The kernel optimises breakpoints to jumps some time after they were placed.
const OPTIMISING: Duration = Duration::from_secs(1);
/// Time between two looks at these breakpoints.
const PAUSE: Duration = Duration::from_millis(20);

/// Why a constant was not loaded, or its tune cannot be changed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum SetError {
    /// A constant has two values.
    #[error("{title} is given twice")]
    Twice {
        /// The constant.
        title: String,
    },
    /// A running process holds the tune.
    #[error(
        "{title} is already tuned to {value}, {owner}: end that process (kill {pid}) and repeat; nothing was changed"
    )]
    Held {
        /// The constant.
        title: String,
        /// The value in force.
        value: i64,
        /// The process, in words.
        owner: String,
        /// Its number.
        pid: i32,
    },
    /// The tune exists, and a tune of this process was requested.
    #[error(
        "{title} is already tuned to {value} ({owner}): `xk unset {title}` first, or set it without --hold; nothing was \
         changed"
    )]
    Exists {
        /// The constant.
        title: String,
        /// The value in force.
        value: i64,
        /// The owner, in words.
        owner: String,
    },
    /// A policy decides the value.
    #[error("{title} is decided by a policy: see `xk status`; `xk unload {title}` ends it; nothing was changed")]
    Decided {
        /// The constant.
        title: String,
    },
    /// The value would not come into force at a site.
    #[error("{0}; nothing was changed")]
    Ill(IllSite),
    /// The tune was loaded from another table, which does not accept the value.
    #[error(
        "{title}: its table accepts {value}, but the tune was loaded from an older table, which does not: `xk unset \
         {title}`, then repeat; nothing was changed"
    )]
    OlderTable {
        /// The constant.
        title: String,
        /// The value.
        value: i64,
    },
    /// The administrator allows no backend that is possible.
    #[error("{}; nothing was changed", about(title, error))]
    Rules {
        /// The constant.
        title: String,
        /// Why.
        error: RulesError,
    },
    /// The table was not loaded.
    #[error("{0}; nothing was changed")]
    Load(LoadError),
    /// The tune cannot outlive this process.
    #[error("{}", about(title, error))]
    Keep {
        /// The constant.
        title: String,
        /// Why.
        error: RuntimeError,
    },
    /// `xk.ko` does not list its tunes.
    #[error(transparent)]
    Runtime(#[from] RuntimeError),
}

/// The tune of a constant.
#[derive(Debug)]
pub enum Loaded {
    /// Loaded by this process, with the default in force: it ends with this process.
    New(Tune),
    /// Loaded before: its number and the value in force.
    Known(u32, i64),
}

impl Loaded {
    /// The number of the tune.
    #[must_use]
    pub fn id(&self) -> u32 {
        match self {
            Self::New(tune) => tune.id(),
            Self::Known(id, _) => *id,
        }
    }
}

/// Refuses two values for one constant.
///
/// # Errors
/// [`SetError::Twice`].
pub fn refuse_twice(changes: &[Change<'_>]) -> Result<(), SetError> {
    for (index, change) in changes.iter().enumerate() {
        if changes[..index].iter().any(|other| other.table.constant.id == change.table.constant.id) {
            return Err(SetError::Twice { title: change.title().to_owned() });
        }
    }
    Ok(())
}

/// Loads each constant that is not tuned. `hold`: the tunes should end with this process.
///
/// # Errors
/// [`SetError`]. Tunes that were loaded already end when this returns.
pub fn load(
    device: &Device,
    addresses: &dyn AddressOf,
    changes: &[Change<'_>],
    hold: bool,
    backend: &dyn Fn(&Change<'_>) -> Result<Backend, RulesError>,
) -> Result<Vec<Loaded>, SetError> {
    let tunes = device.tunes()?;
    let load = |change: &Change<'_>| {
        if let Some(tune) = tunes.iter().find(|tune| tune.is_of(&change.table.constant)) {
            refuse_known(change, tune, hold)?;
            return Ok(Loaded::Known(tune.id, tune.value));
        }
        let title = || change.title().to_owned();
        let backend = backend(change).map_err(|error| SetError::Rules { title: title(), error })?;
        let tune = device.load_by(change.table, addresses, backend);
        tune.map(Loaded::New).map_err(|error| SetError::Load(LoadError { title: title(), error }))
    };
    changes.iter().map(load).collect()
}

/// Refuses to change a tune that was loaded before, if this process may not change it or the value would not come into
/// force.
fn refuse_known(change: &Change<'_>, tune: &TuneStatus, hold: bool) -> Result<(), SetError> {
    let title = change.title().to_owned();
    if !tune.detached {
        return Err(SetError::Held { title, value: tune.value, owner: tune.owner(), pid: tune.owner_pid });
    }
    if hold {
        return Err(SetError::Exists { title, value: tune.value, owner: tune.owner() });
    }
    if tune.policy.is_some() {
        return Err(SetError::Decided { title });
    }
    refuse_ill(&title, tune).map_err(SetError::Ill)?;
    if !tune.values.contains(change.value) {
        return Err(SetError::OlderTable { title, value: change.value });
    }
    Ok(())
}

/// The changes of the transition that sets the values.
#[must_use]
pub fn to_values(changes: &[Change<'_>], tunes: &[Loaded]) -> Vec<TuneChange> {
    let to =
        |(change, tune): (&Change<'_>, &Loaded)| TuneChange { id: tune.id(), to: Destination::Value(change.value) };
    changes.iter().zip(tunes).map(to).collect()
}

/// The tunes, after the kernel had time to optimise breakpoints to jumps.
///
/// # Errors
/// `xk.ko` does not list its tunes.
pub fn settled(device: &Device, changes: &[Change<'_>]) -> Result<Vec<TuneStatus>, RuntimeError> {
    let deadline = Instant::now() + OPTIMISING;
    loop {
        let tunes = device.tunes()?;
        if Instant::now() > deadline || !changes.iter().any(|change| is_optimising(change, &tunes)) {
            return Ok(tunes);
        }
        std::thread::sleep(PAUSE);
    }
}

/// Whether a site of the constant has a breakpoint where its table expects a jump.
fn is_optimising(change: &Change<'_>, tunes: &[TuneStatus]) -> bool {
    let Some(tune) = tunes.iter().find(|tune| tune.is_of(&change.table.constant)) else { return false };
    let expected = change.table.spans.iter().map(|span| span.indirection.probe);
    tune.sites.iter().zip(expected).any(|(site, probe)| probe == ProbeKind::Jump && site.probe == Probe::Int3)
}

/// Lets the tunes outlive this process, until their lease expires; an old lease is removed.
///
/// # Errors
/// [`SetError::Keep`]. Tunes that this process has loaded end with it.
pub fn keep(
    device: &Device,
    changes: &[Change<'_>],
    tunes: Vec<Loaded>,
    lease: Option<Duration>,
) -> Result<(), SetError> {
    let failed = |change: &Change<'_>, error| SetError::Keep { title: change.title().to_owned(), error };
    for (change, tune) in changes.iter().zip(&tunes) {
        device.lease(tune.id(), lease).map_err(|error| failed(change, error))?;
    }
    for (change, tune) in changes.iter().zip(tunes) {
        if let Loaded::New(tune) = tune {
            tune.detach().map_err(|error| failed(change, error))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use xk_harness::example;
    use xk_runtime::PolicyStatus;
    use xk_table::Values;

    use super::*;

    #[test]
    fn a_tune_that_this_process_may_not_change_is_refused() {
        let table = example::table();
        let change = Change { table: &table, value: 64 };
        let good = example::tune();
        let refused = |tune: &TuneStatus, hold| refuse_known(&change, tune, hold).map_err(|error| error.to_string());
        assert_eq!(refused(&good, false), Ok(()));
        let says = |tune: &TuneStatus, hold, words: &str| {
            let message = refused(tune, hold);
            let ends = |message: &String| message.contains(words) && message.ends_with("; nothing was changed");
            assert!(message.as_ref().is_err_and(ends), "{message:?}");
        };
        says(&good, true, "already tuned to 128 (detached, loaded by process 4194305): `xk unset BLK_MAX");
        says(&TuneStatus { detached: false, ..good.clone() }, false, "(kill 4194305) and repeat");
        let policy = Some(PolicyStatus { program: 1, links: 0, sites: vec![] });
        says(&TuneStatus { policy, ..good.clone() }, false, "`xk unload BLK_MAX_REQUEST_COUNT` ends it");
        says(&TuneStatus { values: Values::proved(100, 200), ..good.clone() }, false, "accepts 64, but the tune was");
        let mut ill = good;
        ill.sites[0].probe = Probe::Disarmed;
        says(&ill, false, "is disarmed");
    }

    #[test]
    fn a_constant_has_one_value() {
        let (table, other) = (example::table(), example::data_table());
        let change = |table, value| Change { table, value };
        assert!(refuse_twice(&[change(&table, 1), change(&other, 1)]).is_ok());
        let refused = refuse_twice(&[change(&table, 1), change(&other, 1), change(&table, 2)]);
        assert!(matches!(refused, Err(SetError::Twice { title }) if title == "BLK_MAX_REQUEST_COUNT"));
    }

    #[test]
    fn a_breakpoint_is_waited_for_only_where_a_jump_is_expected() {
        let table = example::table();
        let change = Change { table: &table, value: 64 };
        let mut tunes = [example::tune()];
        assert!(!is_optimising(&change, &tunes) && !is_optimising(&change, &[]));
        tunes[0].sites[0].probe = Probe::Int3;
        assert!(is_optimising(&change, &tunes));
        let mut second = tunes[0].sites[0].clone();
        tunes[0].sites[0].probe = Probe::Jump;
        second.offset = 0x10;
        tunes[0].sites.push(second);
        assert!(!is_optimising(&change, &tunes), "its table expects a breakpoint there");
    }
}
