//! Runs of a loaded object: what they are told, and which were ended. The structs are those of `bpf/xk_flex.bpf.h`.

use std::time::Duration;

use libbpf_rs::{MapCore, MapFlags, Object as Loader, RingBufferBuilder};

use crate::elf::{CONTROL_SECTION, ENDED, UNREPORTED};
use crate::fault::Fault;
use crate::who::Locks;
use crate::Error;

/// What all runs of an object are told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Control {
    /// All runs end.
    pub terminate: bool,
    /// How long a run may take.
    pub deadline: Option<Duration>,
    /// A look comes after so many turns of loops, and after at least one. A loop that is unrolled looks at most once in
    /// as many turns as it has copies.
    pub interval: u32,
}

impl Default for Control {
    /// What the header sets.
    fn default() -> Self {
        Self { terminate: false, deadline: Some(Duration::from_millis(10)), interval: 64 }
    }
}

impl Control {
    /// Tells it to the runs of an object, also to those that are under way.
    ///
    /// # Errors
    /// The object does not include the header, or the kernel refuses.
    pub fn tell(&self, object: &Loader) -> Result<(), Error> {
        let deadline = self.deadline.map_or(0, nanoseconds);
        // The last is 0 and stays so: widened numbers are combined with it by OR.
        let fields = [self.terminate.into(), deadline, self.interval.into(), 0];
        let value: Vec<u8> = fields.iter().flat_map(|field: &u64| field.to_ne_bytes()).collect();
        map(object, CONTROL_SECTION)?.update(&0_u32.to_ne_bytes(), &value, MapFlags::ANY).map_err(refused)
    }
}

/// A deadline as runs are told it; 0 is none.
pub(crate) fn nanoseconds(deadline: Duration) -> u64 {
    u64::try_from(deadline.as_nanos()).unwrap_or(u64::MAX).max(1)
}

/// Why a run ended early.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Why {
    /// It took too long.
    Deadline,
    /// User space ends all runs.
    Terminate,
    /// The kernel's limit of turns.
    Turns,
    /// It took more locks of the heap than a run may hold.
    Locks,
    /// It returned by itself, but held locks of the heap.
    Kept,
    /// It accessed the heap where no page is.
    Fault,
    /// What this crate does not know.
    Other(u32),
}

impl Why {
    /// `XK_FLEX_DEADLINE` and so on, of `bpf/xk_flex.bpf.h`.
    #[must_use]
    pub fn number(self) -> u32 {
        match self {
            Self::Deadline => 1,
            Self::Terminate => 2,
            Self::Turns => 3,
            Self::Locks => 4,
            Self::Kept => 5,
            Self::Fault => 6,
            Self::Other(number) => number,
        }
    }

    /// The reason with this number.
    #[must_use]
    pub fn of(number: u32) -> Self {
        let known = [Self::Deadline, Self::Terminate, Self::Turns, Self::Locks, Self::Kept, Self::Fault];
        known.into_iter().find(|why| why.number() == number).unwrap_or(Self::Other(number))
    }
}

impl std::fmt::Display for Why {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Deadline => f.write_str("its deadline"),
            Self::Terminate => f.write_str("user space"),
            Self::Turns => f.write_str("the kernel's limit of 8 million may_goto in a frame"),
            Self::Locks => f.write_str("a lock more than a run may hold"),
            Self::Kept => f.write_str("itself, and held a lock"),
            Self::Fault => f.write_str("an access of the heap where no page is"),
            Self::Other(number) => write!(f, "reason {number}"),
        }
    }
}

/// A run that was ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ended {
    /// When: `CLOCK_MONOTONIC`.
    pub time: Duration,
    /// How much time counted for its deadline, from its first look on.
    pub spent: Duration,
    /// The number of the look: [`crate::Rewritten::looks`].
    pub look: usize,
    /// Why.
    pub why: Why,
    /// Its locks, if the object uses locks of the heap.
    pub locks: Option<Locks>,
    /// Its last access of the heap where no page is, if that is why.
    pub fault: Option<Fault>,
}

impl Ended {
    fn read(bytes: &[u8]) -> Option<Self> {
        let long = |at: usize| Some(u64::from_ne_bytes(bytes.get(at..at + 8)?.try_into().ok()?));
        let word = |at: usize| Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
        let why = Why::of(word(20)?);
        let look = word(16)? as usize;
        let (time, spent) = (Duration::from_nanos(long(0)?), Duration::from_nanos(long(8)?));
        let fault = Fault { address: long(24)?, instruction: long(32)? };
        let fault = (why == Why::Fault).then_some(fault);
        Some(Self { time, spent, look, why, locks: Locks::read(bytes), fault })
    }
}

/// The runs that were ended since the last call, at most some hundreds. Those for which the ring buffer had no room are
/// counted by [`unreported`].
///
/// # Errors
/// As for [`Control::tell`].
pub fn take_ended(object: &Loader) -> Result<Vec<Ended>, Error> {
    take_from(&map(object, ENDED)?)
}

/// The same of the ring buffer itself.
pub(crate) fn take_from(map: &dyn MapCore) -> Result<Vec<Ended>, Error> {
    let mut found = Vec::new();
    {
        let mut builder = RingBufferBuilder::new();
        let note = |bytes: &[u8]| {
            found.extend(Ended::read(bytes));
            0
        };
        builder.add(map, note).map_err(refused)?;
        builder.build().and_then(|ring| ring.consume()).map_err(refused)?;
    }
    Ok(found)
}

/// How many runs were ended since the object was loaded that [`take_ended`] does not return: the ring buffer was full.
///
/// # Errors
/// As for [`Control::tell`].
pub fn unreported(object: &Loader) -> Result<u64, Error> {
    unreported_in(&map(object, UNREPORTED)?)
}

/// The same of the map itself.
pub(crate) fn unreported_in(map: &dyn MapCore) -> Result<u64, Error> {
    let value = map.lookup(&0_u32.to_ne_bytes(), MapFlags::ANY).map_err(refused)?;
    let number = value.and_then(|value| value.try_into().ok()).map(u64::from_ne_bytes);
    number.ok_or_else(|| Error::Object(format!("its map {UNREPORTED} is not one number of 8 bytes")))
}

fn map<'a>(object: &'a Loader, name: &str) -> Result<libbpf_rs::Map<'a>, Error> {
    let found = object.maps().find(|map| map.name() == name);
    found.ok_or_else(|| Error::Object(format!("it has no map {name}: it does not include xk_flex.bpf.h")))
}

fn refused(error: libbpf_rs::Error) -> Error {
    Error::Control(error.to_string())
}
