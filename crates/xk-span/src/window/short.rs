//! Short windows: fewer than five bytes, for which a jump of two bytes is short enough.
//!
//! Such a jump reaches 127 bytes. It leads to a relay: a jump of five bytes to the stub. The relay lies at the end of
//! another window in the same function, the host, which is long enough for two jumps: its first jump serves its own
//! instructions, and nothing but the short jump leads to the relay. In: an instruction without a window. Out: its short
//! window, and hosts, or why there is none. See `docs/windows.md`.

use super::map::Part;
use super::{Reason, Window, Windows, JUMP, LONGEST};

/// Bytes of the short jump.
const SHORT_JUMP: u64 = 2;
/// Bytes of a host: its own jump, and the relay.
const HOST: u64 = 2 * JUMP;

/// Room for a jump to a stub.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Relay {
    /// First byte of the host.
    pub host: u64,
    /// What the jump of the host replaces, and the relay at its end.
    pub window: Window,
}

impl Relay {
    /// First byte of the relay.
    #[must_use]
    pub fn address(&self) -> u64 {
        self.host + u64::from(self.window.len) - JUMP
    }
}

/// What a short jump may replace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Short {
    /// From 2 to 4 bytes.
    pub window: Window,
    /// Where it may lead, the nearest first; at least one.
    pub relays: Vec<Relay>,
}

impl Windows<'_> {
    /// The short window around an instruction that has no other one. As with [`Windows::at`], it begins at the
    /// instruction or before it.
    ///
    /// # Errors
    /// Why there is none that begins at the instruction, or that there is no relay.
    pub fn short(&self, address: u64) -> Result<Short, Reason> {
        let part = self.index.map.part_of(address).ok_or(Reason::NoCode)?;
        if !self.index.map.begins(address) {
            return Err(Reason::NoInstruction);
        }
        if let Some(reason) = self.index.refused.get(&part.start) {
            return Err(reason.clone());
        }
        let window = self.run_of(SHORT_JUMP, address, address, part).and_then(fits);
        let window = window.or_else(|reason| self.short_before(address, part).ok_or(reason))?;
        let start = address - u64::from(window.lead.unsigned_abs());
        let relays = self.relays(start, start + u64::from(window.len), part);
        if relays.is_empty() {
            return Err(Reason::NoRelay);
        }
        Ok(Short { window, relays })
    }

    /// The nearest short window that begins before an instruction and holds it.
    fn short_before(&self, address: u64, part: Part) -> Option<Window> {
        let first = self.before(address, part).filter(|_| !self.index.map.entered(address));
        let starts = std::iter::successors(first, move |start| self.before(*start, part));
        let mut near = starts.take_while(move |start| address - start < JUMP);
        near.find_map(move |start| self.run_of(SHORT_JUMP, start, address, part).and_then(fits).ok())
    }

    /// The relays that a short jump in these bytes reaches.
    fn relays(&self, start: u64, end: u64, part: Part) -> Vec<Relay> {
        let low = end.saturating_sub(i8::MIN.unsigned_abs().into()).saturating_sub(LONGEST).max(part.start);
        let high = (end + i8::MAX as u64).min(part.end);
        let hosts = (low..high).filter(|host| self.index.map.begins(*host)).filter_map(|host| {
            let window = self.run_of(HOST, host, host, part).ok()?;
            Some(Relay { host, window })
        });
        let mut relays: Vec<Relay> = hosts.filter(|relay| self.may_relay(start, end, relay)).collect();
        relays.sort_by_key(|relay| relay.address().abs_diff(end));
        relays
    }

    /// Whether a jump of two bytes reaches the relay, from a window apart from the host. A thread that is interrupted at
    /// the relay has the stack of the short window, so the unwinder must find it there in the same way.
    fn may_relay(&self, start: u64, end: u64, relay: &Relay) -> bool {
        let reached = i8::try_from(relay.address().wrapping_sub(end) as i64).is_ok();
        let apart = relay.host >= end || relay.host + u64::from(relay.window.len) <= start;
        reached && apart && self.world.unwind.agrees(start, relay.address())
    }
}

/// A short window; a longer one is not short.
fn fits(window: Window) -> Result<Window, Reason> {
    if u64::from(window.len) < JUMP {
        Ok(window)
    } else {
        Err(Reason::TooLong)
    }
}
