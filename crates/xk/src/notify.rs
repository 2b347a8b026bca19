//! What a service manager wants to hear of a service: that it is ready, what it does, and that it is still alive.
//!
//! In: `NOTIFY_SOCKET`, and `WATCHDOG_USEC`, of the environment (see sd_notify(3)). Without them, nothing happens.

use std::cell::Cell;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::{Duration, Instant};

/// The service manager, if there is one.
#[derive(Debug)]
pub struct Notify {
    to: Option<(UnixDatagram, SocketAddr)>,
    /// Half of the time after which silence is taken for death.
    every: Option<Duration>,
    last: Cell<Option<Instant>>,
}

impl Notify {
    /// The one that has started this process.
    pub fn from_environment() -> Self {
        let name = std::env::var("NOTIFY_SOCKET").ok();
        let to = name.and_then(|name| Some((UnixDatagram::unbound().ok()?, address(&name)?)));
        let watchdog = std::env::var("WATCHDOG_USEC").ok().and_then(|text| text.parse().ok());
        Self { to, every: watchdog.map(|time: u64| Duration::from_micros(time / 2)), last: Cell::new(None) }
    }

    /// The service is up.
    pub fn ready(&self) {
        self.tell("READY=1");
    }

    /// What it does now, for `systemctl status`.
    pub fn status(&self, line: &str) {
        self.tell(&format!("STATUS={}", line.lines().next().unwrap_or_default()));
    }

    /// The service is alive; may be called as often as one likes.
    pub fn alive(&self) {
        let Some(every) = self.every else { return };
        if self.last.get().is_none_or(|last| last.elapsed() >= every) {
            self.last.set(Some(Instant::now()));
            self.tell("WATCHDOG=1");
        }
    }

    fn tell(&self, message: &str) {
        if let Some((socket, to)) = &self.to {
            // A manager that is gone is no reason to stop.
            let _ = socket.send_to_addr(message.as_bytes(), to);
        }
    }
}

/// A path, or a name without one (`@`).
fn address(name: &str) -> Option<SocketAddr> {
    match name.strip_prefix('@') {
        Some(name) => SocketAddr::from_abstract_name(name).ok(),
        None => SocketAddr::from_pathname(name).ok(),
    }
}
