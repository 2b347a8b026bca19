//! Tells the service manager that the service is ready, what it does, and that it is alive.
//!
//! In: `NOTIFY_SOCKET`, `WATCHDOG_USEC` and `WATCHDOG_PID` of the environment (see sd_notify(3)). Without them, nothing
//! happens.

use std::cell::Cell;
use std::time::{Duration, Instant};

use sd_notify::NotifyState;

/// The service manager, if there is one.
#[derive(Debug)]
pub struct Notify {
    /// Half of the watchdog timeout.
    every: Option<Duration>,
    last: Cell<Option<Instant>>,
}

impl Notify {
    /// The service manager that started this process.
    pub fn from_environment() -> Self {
        Self { every: sd_notify::watchdog_enabled().map(|timeout| timeout / 2), last: Cell::new(None) }
    }

    /// The service is up.
    pub fn ready(&self) {
        tell(NotifyState::Ready);
    }

    /// What it does now, for `systemctl status`.
    pub fn status(&self, line: &str) {
        tell(NotifyState::Status(line.lines().next().unwrap_or_default()));
    }

    /// The service is alive. May be called at any rate.
    pub fn alive(&self) {
        let Some(every) = self.every else { return };
        if self.last.get().is_none_or(|last| last.elapsed() >= every) {
            self.last.set(Some(Instant::now()));
            tell(NotifyState::Watchdog);
        }
    }
}

fn tell(state: NotifyState<'_>) {
    // The service continues without its manager.
    let _ = sd_notify::notify(&[state]);
}
