//! Tells the service manager that the service is ready, what it does, and that it is alive.
//!
//! In: `NOTIFY_SOCKET` and `WATCHDOG_USEC` of the environment (see sd_notify(3)). Without them, nothing happens.

use std::cell::Cell;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::{Duration, Instant};

/// The service manager, if there is one.
#[derive(Debug)]
pub struct Notify {
    to: Option<(UnixDatagram, SocketAddr)>,
    /// Half of the watchdog timeout.
    every: Option<Duration>,
    last: Cell<Option<Instant>>,
}

impl Notify {
    /// The service manager that started this process.
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

    /// The service is alive. May be called at any rate.
    pub fn alive(&self) {
        let Some(every) = self.every else { return };
        if self.last.get().is_none_or(|last| last.elapsed() >= every) {
            self.last.set(Some(Instant::now()));
            self.tell("WATCHDOG=1");
        }
    }

    fn tell(&self, message: &str) {
        if let Some((socket, to)) = &self.to {
            // The service continues without its manager.
            let _ = socket.send_to_addr(message.as_bytes(), to);
        }
    }
}

/// A path, or an abstract name (`@`).
fn address(name: &str) -> Option<SocketAddr> {
    match name.strip_prefix('@') {
        Some(name) => SocketAddr::from_abstract_name(name).ok(),
        None => SocketAddr::from_pathname(name).ok(),
    }
}
