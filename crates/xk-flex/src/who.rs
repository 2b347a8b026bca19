//! Who has a lock of the heap, and what an ended run says of its locks. The words are those of `bpf/flex/lock.h` and
//! `bpf/xk_lock.bpf.h`.

use std::fmt;

const USER: u64 = 1 << 39;
const PROGRAM: u64 = 1 << 38;
const CPU_SHIFT: u32 = 25;
/// So many locks a run may hold.
const HELD: usize = 8;
/// `struct xk_flex_end`, with which the report of a run with locks begins.
const END: usize = 40;

/// Who has a lock, or waits for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Who {
    /// A run of a program.
    Run {
        /// On which CPU.
        cpu: u16,
        /// Its number there, of those that took a lock; it begins again after 33 million.
        number: u32,
    },
    /// A thread, by its number.
    Thread(u32),
}

impl Who {
    /// Reads a word; nothing if it names nobody.
    #[must_use]
    pub fn read(word: u64) -> Option<Self> {
        let number = word as u32;
        match word & (USER | PROGRAM) {
            USER => Some(Self::Thread(number)),
            PROGRAM => {
                Some(Self::Run { cpu: (word >> CPU_SHIFT & 0x1fff) as u16, number: number & ((1 << CPU_SHIFT) - 1) })
            }
            _ => None,
        }
    }

    /// The word that names a thread.
    #[must_use]
    pub fn thread(number: u32) -> u64 {
        USER | u64::from(number)
    }
}

impl fmt::Display for Who {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Run { cpu, number } => write!(f, "run {number} of CPU {cpu}"),
            Self::Thread(number) => write!(f, "thread {number}"),
        }
    }
}

/// A lock that an ended run held, or for which it had a ticket.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Released {
    /// Its address.
    pub lock: u64,
    /// Who waited for it as the next one.
    pub waiter: Option<Who>,
}

/// The locks of a run that was ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Locks {
    /// The run, if it took any.
    pub run: Option<Who>,
    /// The address of the lock for which it waited.
    pub waited: Option<u64>,
    /// Who had that.
    pub owner: Option<Who>,
    released: [Released; HELD],
    count: usize,
}

impl Locks {
    /// What follows `struct xk_flex_end` in a report; nothing if nothing does.
    #[must_use]
    pub fn read(report: &[u8]) -> Option<Self> {
        let word = |number: usize| {
            let at = END + 8 * number;
            Some(u64::from_ne_bytes(report.get(at..at + 8)?.try_into().ok()?))
        };
        let count = usize::try_from(word(3)?).ok()?.min(HELD);
        let mut released = [Released::default(); HELD];
        for (number, released) in released.iter_mut().enumerate() {
            *released = Released { lock: word(4 + 2 * number)?, waiter: Who::read(word(5 + 2 * number)?) };
        }
        let waited = Some(word(1)?).filter(|&lock| lock != 0);
        Some(Self { run: Who::read(word(0)?), waited, owner: Who::read(word(2)?), released, count })
    }

    /// What was released, in order. The lock for which it waited is among them.
    #[must_use]
    pub fn released(&self) -> &[Released] {
        &self.released[..self.count]
    }

    /// Whether it waited for itself, or for somebody who waited for it.
    #[must_use]
    pub fn is_deadlock(&self) -> bool {
        let waits_for_this = |owner: Who| self.released().iter().any(|released| released.waiter == Some(owner));
        self.owner.is_some_and(|owner| self.run == Some(owner) || waits_for_this(owner))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn who_is_read_as_it_is_written() {
        assert_eq!(Who::read(Who::thread(4_194_303)), Some(Who::Thread(4_194_303)));
        let run = PROGRAM | 8191 << CPU_SHIFT | 33_554_431;
        assert_eq!(Who::read(run), Some(Who::Run { cpu: 8191, number: 33_554_431 }));
        assert_eq!(Who::read(0), None);
    }

    #[test]
    fn a_circle_is_seen_in_the_report_of_one_of_its_runs() {
        let (own, other) = (PROGRAM | 7, PROGRAM | 1 << CPU_SHIFT | 9);
        let report = |owner: u64, waiter: u64| {
            let words = [0, 0, 0, 0, 0, own, 0x1000, owner, 2, 0x1000, 0, 0x2000, waiter];
            let bytes = words.into_iter().chain([0; 12]).flat_map(u64::to_ne_bytes).collect::<Vec<_>>();
            Locks::read(&bytes).unwrap()
        };
        assert!(report(other, other).is_deadlock() && report(own, 0).is_deadlock());
        assert!(!report(other, 0).is_deadlock() && !report(0, other).is_deadlock());
        assert_eq!(report(other, 0).released().len(), 2);
        assert_eq!(Locks::read(&[0; END]), None);
    }
}
