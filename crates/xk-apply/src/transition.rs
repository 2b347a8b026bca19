//! Transitions: which mode is sound, which threads may be ignored, and what is in force if one fails.

use std::time::{Duration, Instant};

use thiserror::Error;
use xk_policy::MapsHidden;
use xk_runtime::{Change, Device, Error as RuntimeError, Mode, Outcome, State, Transition, TuneStatus};
use xk_store::Tables;
use xk_table::ScopeTable;

use crate::place::Place;

/// Time between two looks at tunes that are being unloaded.
const PAUSE: Duration = Duration::from_millis(50);

/// Options of a transition.
#[derive(Debug, Clone)]
pub struct TransitionOptions {
    /// When threads switch; `None`: in the weakest mode that the constants need.
    pub mode: Option<Mode>,
    /// The transition is aborted after this time.
    pub timeout: Duration,
    /// Threads whose stacks can never be read, and that are not waited for.
    pub ignore_unreadable: Vec<i32>,
}

/// A transition that is complete.
#[derive(Debug, Clone, Copy)]
pub struct Done {
    /// How long it took.
    pub transition: Transition,
    /// Its mode.
    pub mode: Mode,
}

/// Why a transition was not made, or did not complete.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum TransitionError {
    /// An update tests for order, and the mode is too weak.
    #[error(
        "{title} changes in mode {needed} or a stronger one: in mode {mode} a thread may hold a number that has passed the \
         value, and the code, which tests for equality, may never stop counting; leave out the mode"
    )]
    WeakMode {
        /// The constant.
        title: String,
        /// The weakest sound mode.
        needed: Mode,
        /// The requested mode.
        mode: Mode,
    },
    /// An update tests for order, and a thread is to be ignored.
    #[error(
        "{title} changes only after the stack of every thread was checked: an ignored thread may hold a number that has \
         passed the value, and the code, which tests for equality, may never stop counting; leave out --ignore-unreadable"
    )]
    Ignored {
        /// The constant.
        title: String,
    },
    /// A mode was requested, and the table that says whether it is sound does not exist.
    #[error(
        "{constant} was changed in mode {last}, and its scope table, which says whether mode {mode} is enough, is gone: \
         leave out the mode; nothing was changed"
    )]
    ModeWithoutTable {
        /// The constant.
        constant: String,
        /// Mode of its last transition.
        last: Mode,
        /// The requested mode.
        mode: Mode,
    },
    /// A thread is to be ignored, and the table that says whether this is sound does not exist.
    #[error(
        "{constant}: its scope table, which says whether a thread may be ignored, is gone: leave out \
         --ignore-unreadable; nothing was changed"
    )]
    IgnoredWithoutTable {
        /// The constant.
        constant: String,
    },
    /// A tune is still being unloaded.
    #[error(
        "{title} is still reverting to its default, and other threads block it: `xk status` names them; nothing was \
         changed"
    )]
    Unloading {
        /// The constant.
        title: String,
    },
    /// Threads were inside until the timeout.
    #[error(
        "{reason}; {}. Repeat it, with a longer --timeout if these threads sleep for long:{}",
        now(*outcome),
        if report.is_empty() { String::new() } else { format!("\n{}", report.trim_end()) }
    )]
    Blocked {
        /// What is in force.
        outcome: Outcome,
        /// The reason that the kernel gives.
        reason: String,
        /// These threads, with their stacks.
        report: String,
    },
    /// `xk.ko` refused it.
    #[error(transparent)]
    Runtime(RuntimeError),
}

fn now(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Unchanged => "the old values are in force everywhere",
        Outcome::Reverting => {
            "the old values are in force, except in these threads, which keep the new ones until they leave (`xk status` \
             shows when)"
        }
    }
}

impl From<RuntimeError> for TransitionError {
    fn from(error: RuntimeError) -> Self {
        match error {
            RuntimeError::Blocked { outcome, reason, report } => Self::Blocked { outcome, reason, report },
            other => Self::Runtime(other),
        }
    }
}

/// Something that the user should know, although the change is made.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum Warning {
    /// The requested mode is weaker than the constants need.
    #[error(
        "mode {mode} is weaker than {needed}, which these constants need: old and new values may be mixed for a moment"
    )]
    WeakMode {
        /// The requested mode.
        mode: Mode,
        /// The mode that they need.
        needed: Mode,
    },
    /// A declared mode is weaker than the constant needs.
    #[error(
        "{place}: {title} needs mode {needed}, and {mode} was asked for: old and new value may be mixed for a moment"
    )]
    DeclaredMode {
        /// The line.
        place: Place,
        /// The constant.
        title: String,
        /// The mode that it needs.
        needed: Mode,
        /// The declared mode.
        mode: Mode,
    },
    /// A thread is ignored.
    #[error("{}", uncovered(*thread))]
    Ignored {
        /// The thread.
        thread: i32,
    },
    /// The maps of policies cannot be pinned.
    #[error(transparent)]
    Maps(#[from] MapsHidden),
}

impl TransitionOptions {
    /// The mode of the transition: the requested one, or else `needed`. Warns if the requested mode is weaker than `needed`.
    ///
    /// # Errors
    /// One of `tables` does not allow the mode, or does not allow to ignore a thread.
    pub fn mode<'a>(
        &self,
        needed: Mode,
        tables: impl IntoIterator<Item = &'a ScopeTable>,
        warn: &dyn Fn(&Warning),
    ) -> Result<Mode, TransitionError> {
        let mode = self.mode.unwrap_or(needed);
        for table in tables {
            strong_enough(table, mode)?;
            self.all_threads(table)?;
        }
        if mode < needed {
            warn(&Warning::WeakMode { mode, needed });
        }
        Ok(mode)
    }

    /// If an update tests for order, no thread may be ignored, for the reason given at [`strong_enough`].
    fn all_threads(&self, table: &ScopeTable) -> Result<(), TransitionError> {
        if self.ignore_unreadable.is_empty() || !table.tests_for_order() {
            return Ok(());
        }
        Err(TransitionError::Ignored { title: table.constant.title().to_owned() })
    }

    /// Refuses what only the table of `tune`, which does not exist, could declare sound.
    ///
    /// # Errors
    /// The mode is weaker than that of the tune's last transition, or a thread is to be ignored.
    pub fn without_table(&self, tune: &TuneStatus, mode: Mode) -> Result<(), TransitionError> {
        let constant = || tune.name.clone();
        if mode < tune.mode {
            return Err(TransitionError::ModeWithoutTable { constant: constant(), last: tune.mode, mode });
        }
        if !self.ignore_unreadable.is_empty() {
            return Err(TransitionError::IgnoredWithoutTable { constant: constant() });
        }
        Ok(())
    }

    /// Lets tunes that are being unloaded ignore the same threads, and waits until those that are `wanted` are gone. A tune
    /// whose process has ended could otherwise wait for these threads for ever.
    ///
    /// # Errors
    /// A thread may not be ignored, or other threads block the tunes until the timeout.
    pub fn finish(
        &self,
        device: &Device,
        tables: &Tables,
        wanted: impl Fn(&TuneStatus) -> bool,
    ) -> Result<(), TransitionError> {
        if self.ignore_unreadable.is_empty() {
            return Ok(());
        }
        let started = Instant::now();
        let unloading = || -> Result<Vec<TuneStatus>, RuntimeError> {
            let tunes = device.tunes()?;
            Ok(tunes.into_iter().filter(|tune| tune.state == State::Unloading && wanted(tune)).collect())
        };
        let mut left = unloading()?;
        for tune in &left {
            tables
                .of_tune(&tune.name)
                .map_or_else(|| self.without_table(tune, tune.mode), |table| self.all_threads(table))?;
            for &thread in &self.ignore_unreadable {
                match device.ignore(tune.id, thread) {
                    // Unloaded meanwhile.
                    Ok(()) | Err(RuntimeError::NoSuchTune(_)) => {}
                    Err(error) => return Err(TransitionError::Runtime(error)),
                }
            }
        }
        while let Some(tune) = left.first() {
            if started.elapsed() > self.timeout {
                return Err(TransitionError::Unloading { title: tables.title_of(tune).to_owned() });
            }
            std::thread::sleep(PAUSE);
            left = unloading()?;
        }
        Ok(())
    }

    /// Makes the changes in one transition.
    ///
    /// # Errors
    /// [`TransitionError::Blocked`] or [`TransitionError::Runtime`].
    pub fn run(
        &self,
        device: &Device,
        changes: &[Change],
        mode: Mode,
        warn: &dyn Fn(&Warning),
    ) -> Result<Transition, TransitionError> {
        for &thread in &self.ignore_unreadable {
            for change in changes {
                device.ignore(change.id, thread)?;
            }
            warn(&Warning::Ignored { thread });
        }
        Ok(device.transition(changes, mode, self.timeout)?)
    }
}

/// Whether the value of `table` may change in `mode`. If an update tests for order, a thread may hold a number that has
/// passed the value; the code itself, which tests for equality, would never meet it.
///
/// # Errors
/// [`TransitionError::WeakMode`].
pub fn strong_enough(table: &ScopeTable, mode: Mode) -> Result<(), TransitionError> {
    if mode >= table.mode || !table.tests_for_order() {
        return Ok(());
    }
    Err(TransitionError::WeakMode { title: table.constant.title().to_owned(), needed: table.mode, mode })
}

/// What a transition does not guarantee for an ignored thread.
#[must_use]
pub fn uncovered(thread: i32) -> String {
    format!("thread {thread} is not waited for, as its stack cannot be read: old and new values may be mixed in it")
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use xk_harness::example;

    use super::*;

    fn options(mode: Option<Mode>, ignore_unreadable: Vec<i32>) -> TransitionOptions {
        TransitionOptions { mode, timeout: Duration::ZERO, ignore_unreadable }
    }

    #[test]
    fn what_tests_for_order_changes_in_no_weaker_mode() {
        let mut table = example::table();
        table.mode = Mode::Task;
        let warned = Cell::new(0);
        let chosen = |options: &TransitionOptions, table: &ScopeTable| {
            let warn = |_: &Warning| warned.set(warned.get() + 1);
            options.mode(Mode::Task, [table], &warn).map_err(|error| error.to_string())
        };
        let now = options(Some(Mode::Now), vec![]);
        assert_eq!((chosen(&now, &table), warned.get()), (Ok(Mode::Now), 1));
        table.spans[0].assembly[0].order = Some(xk_table::Order::AtLeast);
        let refused = chosen(&now, &table);
        assert!(refused.as_ref().is_err_and(|why| why.contains("mode task or a stronger one")), "{refused:?}");
        for enough in [None, Some(Mode::Task), Some(Mode::Global)] {
            assert!(chosen(&options(enough, vec![]), &table).is_ok());
        }
        let without = options(None, vec![1]);
        let refused = chosen(&without, &table);
        assert!(refused.as_ref().is_err_and(|why| why.contains("leave out --ignore-unreadable")), "{refused:?}");
        table.spans[0].assembly[0].order = None;
        assert_eq!((chosen(&without, &table), warned.get()), (Ok(Mode::Task), 1));
    }

    #[test]
    fn without_a_table_only_the_last_mode_is_known_to_be_sound() {
        let tune = example::tune();
        let of = |mode, ignored| options(None, ignored).without_table(&tune, mode);
        assert!(of(Mode::Task, vec![]).is_ok() && of(Mode::Global, vec![]).is_ok());
        assert!(matches!(of(Mode::Now, vec![]), Err(TransitionError::ModeWithoutTable { last: Mode::Task, .. })));
        assert!(matches!(of(Mode::Task, vec![7]), Err(TransitionError::IgnoredWithoutTable { .. })));
    }
}
