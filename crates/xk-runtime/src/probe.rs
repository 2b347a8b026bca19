//! Probes: eBPF programs of type kprobe that run before chosen instructions.
//!
//! In: addresses in the running kernel, each with the bytes that a jump may replace. Out: an attachment, which lives as
//! long as the descriptor or until it is detached, and what the kernel counts of it. It can be kept without a descriptor,
//! and have a lease.

use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::Duration;

use xk_history::{Action, Event, InForce, Kind, State};

use crate::abi::{self, Plain};
use crate::device::Device;
use crate::error::Error;
use crate::recording;

/// Places that one request returns.
const PAGE: u32 = 1024;

/// An instruction that is to be probed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ProbePlace {
    /// Its address in the running kernel.
    pub address: u64,
    /// What `bpf_get_attach_cookie()` returns there.
    pub cookie: u64,
    /// Bytes that a jump may replace; 0: a kprobe is used.
    pub window: u8,
    /// Bytes of these before the instruction.
    pub window_lead: u8,
    /// Of a window of fewer than five bytes: the distance from its start to the window that holds its relay.
    pub host: i16,
    /// Bytes of that window; 0: none.
    pub host_window: u8,
    /// Which of the programs of the attachment runs there.
    pub program: u8,
}

/// A function of a module. Places in it wait while the module is not loaded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProbeFunction {
    /// Its address in the running kernel.
    pub address: u64,
    /// Its name.
    pub symbol: String,
    /// Its module.
    pub module: String,
    /// Its bytes.
    pub text: Vec<u8>,
    /// `0xff` where running bytes must be these; as many.
    pub mask: Vec<u8>,
}

/// What is probed, and how.
#[derive(Debug, Clone, Copy, Default)]
pub struct Attachment<'a> {
    /// For lists.
    pub name: &'a str,
    /// The programs, of which each place names one. Without any, executions are only counted.
    pub programs: &'a [BorrowedFd<'a>],
    /// The instructions.
    pub places: &'a [ProbePlace],
    /// Functions of modules that may go. A place in a module that is in none of them holds the module.
    pub functions: &'a [ProbeFunction],
    /// Refuse what only a kprobe or the function tracer could reach.
    pub jumps_only: bool,
}

impl ProbePlace {
    /// The same, for a kprobe.
    #[must_use]
    pub fn without_jump(self) -> Self {
        Self { address: self.address, cookie: self.cookie, program: self.program, ..Self::default() }
    }
}

/// Probes that were attached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attached {
    /// Number by which the kernel knows them.
    pub id: u32,
    /// Places that a jump reaches.
    pub jumps: u32,
    /// Stops of the machine that were needed.
    pub stops: u32,
}

/// What the kernel says about an attachment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProbeStatus {
    /// Number by which it is detached.
    pub id: u32,
    /// Name that its owner gave it.
    pub name: String,
    /// Number of its first eBPF program; `None`: executions are only counted.
    pub program: Option<u32>,
    /// How many programs it has.
    pub programs: u32,
    /// How many instructions it probes.
    pub places: u32,
    /// Of these, how many are reached by a jump.
    pub jumps: u32,
    /// Process that attached it.
    pub owner_pid: i32,
    /// Executions of all places.
    pub hits: u64,
    /// Of these, executions without the program, because another one was running on the CPU.
    pub skipped: u64,
    /// Since it was attached.
    pub age: Duration,
    /// Bytes of its stubs.
    pub memory: u64,
    /// Time until it ends by itself; `None`: no lease.
    pub lease: Option<Duration>,
    /// Whether it outlives the process that attached it.
    pub kept: bool,
}

/// What reaches a probed instruction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReachedBy {
    /// A jump in its place.
    Jump,
    /// The function tracer, at the entry of a function.
    Tracer,
    /// A kprobe.
    Kprobe,
    /// Nothing: its module is not loaded, or has other code.
    Waiting,
}

impl ReachedBy {
    fn new(flags: u32) -> Self {
        match flags & (abi::PROBE_JUMP | abi::PROBE_TRACER | abi::PROBE_WAITING) {
            0 => Self::Kprobe,
            abi::PROBE_TRACER => Self::Tracer,
            abi::PROBE_WAITING => Self::Waiting,
            _ => Self::Jump,
        }
    }

    /// One word: `jump`, `tracer`, `kprobe` or `waiting`.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Jump => "jump",
            Self::Tracer => "tracer",
            Self::Kprobe => "kprobe",
            Self::Waiting => "waiting",
        }
    }
}

/// What the kernel says about one probed instruction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlaceStatus {
    /// Its address in the request.
    pub address: u64,
    /// Its present address; `None`: it waits.
    pub now: Option<u64>,
    /// Executions.
    pub hits: u64,
    /// Executions that kprobes did not report; not among the hits.
    pub missed: u64,
    /// What reaches it.
    pub by: ReachedBy,
    /// Why it is no jump, or why it waits although its module is loaded, if the kernel knows.
    pub note: Option<String>,
}

impl ProbeStatus {
    fn new(info: &abi::ProbeInfo) -> Self {
        Self {
            id: info.id,
            name: abi::text(&info.name),
            program: Some(info.program).filter(|program| *program != 0),
            programs: info.nr_programs,
            places: info.nr_places,
            jumps: info.nr_jumps,
            owner_pid: info.owner_pid,
            hits: info.hits,
            skipped: info.skipped,
            age: Duration::from_nanos(info.age_ns),
            memory: info.memory,
            lease: Some(info.lease_ns).filter(|ns| *ns != 0).map(Duration::from_nanos),
            kept: info.flags & abi::PROBE_KEPT != 0,
        }
    }
}

impl ProbeStatus {
    fn state(&self) -> State {
        format!("number {}, at {} places", self.id, self.places).into()
    }

    /// What is in force, for [`xk_history::noticed`].
    #[must_use]
    pub fn in_force(&self) -> InForce {
        InForce { kind: Kind::Probe, name: self.name.clone(), state: self.state(), outlives: self.kept }
    }
}

impl PlaceStatus {
    fn new(info: &abi::ProbePlaceInfo) -> Self {
        Self {
            address: info.requested,
            now: Some(info.address).filter(|address| *address != 0),
            hits: info.hits,
            missed: info.missed,
            by: ReachedBy::new(info.flags),
            note: Some(abi::text(&info.note)).filter(|note| !note.is_empty()),
        }
    }
}

/// The places as the kernel takes them: ascending, each once. The first of several cookies is kept.
fn mirrors(places: &[ProbePlace]) -> Vec<abi::ProbePlace> {
    let of = |place: &ProbePlace| abi::ProbePlace {
        address: place.address,
        cookie: place.cookie,
        window: place.window,
        window_lead: place.window_lead,
        host: place.host,
        host_window: place.host_window,
        program: place.program,
        pad: [0; 2],
    };
    let mut all: Vec<abi::ProbePlace> = places.iter().map(of).collect();
    all.sort_by_key(|place| place.address);
    all.dedup_by_key(|place| place.address);
    all
}

/// The functions as the kernel takes them: ascending, each once. Those that the kernel would refuse are left out: the
/// places in them hold their modules.
fn function_mirrors(functions: &[ProbeFunction]) -> Vec<abi::ProbeFunction> {
    let fits = |function: &&ProbeFunction| {
        function.symbol.len() < abi::SYMBOL_LEN
            && function.module.len() < abi::MODULE_LEN
            && (1..=abi::MAX_TEXT).contains(&function.text.len())
            && function.text.len() == function.mask.len()
    };
    let of = |function: &ProbeFunction| abi::ProbeFunction {
        address: function.address,
        symbol: field(&function.symbol),
        module: field(&function.module),
        text_len: function.text.len() as u32,
        text: function.text.as_ptr() as u64,
        mask: function.mask.as_ptr() as u64,
        pad: 0,
    };
    let mut all: Vec<abi::ProbeFunction> = functions.iter().filter(fits).map(of).collect();
    all.sort_by_key(|function| function.address);
    all.dedup_by_key(|function| function.address);
    all.truncate(abi::MAX_PROBE_FUNCTIONS);
    all
}

/// As much of a name as the kernel's field holds.
fn field<const LEN: usize>(name: &str) -> [u8; LEN] {
    let mut field = [0; LEN];
    let end = (0..=name.len().min(LEN - 1)).rev().find(|end| name.is_char_boundary(*end)).unwrap_or(0);
    let bytes = name.as_bytes().iter().take(end).take_while(|byte| **byte != 0);
    field.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
    field
}

/// Records in the history that an attachment is kept, or that its end changes.
fn record_lease(before: &ProbeStatus, keeps: bool, lease: Option<Duration>) {
    let lease = recording::lease(Kind::Probe, &before.name, before.lease, lease);
    let attached = Event::new(Kind::Probe, &before.name, Action::Attach).to(before.state());
    xk_history::record(match (before.kept, keeps) {
        (true, _) => lease.into_iter().collect(),
        (false, true) => vec![attached.until(lease.and_then(|lease| lease.until))],
        (false, false) => Vec::new(),
    });
}

impl Device {
    /// [`Device::attach`] with at most one program, and without functions of modules.
    ///
    /// # Errors
    /// As [`Device::attach`].
    pub fn attach_probes(
        &self,
        name: &str,
        program: Option<BorrowedFd<'_>>,
        places: &[ProbePlace],
        jumps_only: bool,
    ) -> Result<Attached, Error> {
        self.attach(&Attachment { name, programs: program.as_slice(), places, jumps_only, functions: &[] })
    }

    /// Runs a program before each of these instructions, or only counts their executions. All of them are probed, or
    /// none. The attachment ends with [`Device::detach_probes`], when its lease ends, or when this descriptor is closed,
    /// unless it is kept ([`Device::keep_probes`]).
    ///
    /// # Errors
    /// [`Error::ProbePlaces`], [`Error::Busy`], [`Error::Forbidden`], or [`Error::Refused`] with the kernel's reason,
    /// which names the refused place.
    pub fn attach(&self, wanted: &Attachment<'_>) -> Result<Attached, Error> {
        let places = mirrors(wanted.places);
        let functions = function_mirrors(wanted.functions);
        let programs: Vec<i32> = wanted.programs.iter().map(AsRawFd::as_raw_fd).collect();
        if places.len() > abi::MAX_PROBE_PLACES {
            return Err(Error::ProbePlaces { number: places.len() });
        }
        let mut request = abi::ProbeAttach::zeroed();
        request.size = size_of::<abi::ProbeAttach>() as u32;
        request.nr_programs = programs.len() as u32;
        request.programs = programs.as_ptr() as u64;
        request.flags = if wanted.jumps_only { abi::PROBE_JUMPS_ONLY } else { 0 };
        request.nr_functions = functions.len() as u32;
        request.functions = functions.as_ptr() as u64;
        request.nr_places = places.len() as u32;
        request.places = places.as_ptr() as u64;
        request.name = field(wanted.name);
        // The kernel writes which place it refused; before it gets there, it is none.
        request.refused = request.nr_places;
        match self.ioctl(abi::IOC_PROBE_ATTACH, &mut request) {
            Ok(()) => Ok(Attached { id: request.id, jumps: request.nr_jumps, stops: request.stops }),
            Err(error) => {
                // Its sentence names the place; without one, the address does.
                let reason = match (abi::text(&request.error), places.get(request.refused as usize)) {
                    (reason, Some(place)) if reason.is_empty() => format!("{:#x}: {error}", place.address),
                    (reason, _) => reason,
                };
                Err(Error::of_code(&error, reason))
            }
        }
    }

    /// Ends an attachment. After this call its programs run no more. Returns the stops of the machine that were needed.
    ///
    /// # Errors
    /// [`Error::NoSuchProbes`], [`Error::ProbesOwned`], [`Error::Forbidden`].
    pub fn detach_probes(&self, id: u32) -> Result<u32, Error> {
        let mut request = abi::ProbeDetach { id, ..abi::ProbeDetach::zeroed() };
        let before = self.recorded_probes(id).filter(|probes| probes.kept);
        let done = self.ioctl(abi::IOC_PROBE_DETACH, &mut request);
        done.map_err(|error| Error::of_probes(id, &error, &request.error))?;
        let event = |probes: ProbeStatus| Event::new(Kind::Probe, &probes.name, Action::Revert).from(probes.state());
        xk_history::record(before.map(event).into_iter().collect());
        Ok(request.stops)
    }

    /// Ends an attachment after this time, including time in suspend; `None`: no lease.
    ///
    /// # Errors
    /// [`Error::NoSuchProbes`], [`Error::ProbesOwned`], [`Error::Forbidden`], or [`Error::Refused`] if it is too long.
    pub fn lease_probes(&self, id: u32, lease: Option<Duration>) -> Result<(), Error> {
        self.probe_lease(id, 0, lease)
    }

    /// Makes an attachment outlive this descriptor, with this lease. Then any descriptor may detach it, or change its
    /// lease.
    ///
    /// # Errors
    /// As [`Device::lease_probes`].
    pub fn keep_probes(&self, id: u32, lease: Option<Duration>) -> Result<(), Error> {
        self.probe_lease(id, abi::PROBE_KEEP, lease)
    }

    fn probe_lease(&self, id: u32, flags: u32, lease: Option<Duration>) -> Result<(), Error> {
        // A lease of 0 would be none.
        let ns = lease.map_or(0, |time| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX).max(1));
        let mut request = abi::ProbeLease { id, flags, ns, ..abi::ProbeLease::zeroed() };
        let before = self.recorded_probes(id);
        let done = self.ioctl(abi::IOC_PROBE_LEASE, &mut request);
        done.map_err(|error| Error::of_probes(id, &error, &request.error))?;
        if let Some(probes) = before {
            record_lease(&probes, flags & abi::PROBE_KEEP != 0, lease);
        }
        Ok(())
    }

    /// The attachment, if there is a history. What ends with its process is not recorded.
    fn recorded_probes(&self, id: u32) -> Option<ProbeStatus> {
        let probes = if xk_history::is_kept() { self.probes().unwrap_or_default() } else { Vec::new() };
        probes.into_iter().find(|probes| probes.id == id)
    }

    /// The attachments, oldest first.
    ///
    /// # Errors
    /// What the operating system said.
    pub fn probes(&self) -> Result<Vec<ProbeStatus>, Error> {
        let mut all = Vec::new();
        for index in 0.. {
            let mut info = abi::ProbeInfo { index, ..abi::ProbeInfo::zeroed() };
            match self.ioctl(abi::IOC_PROBE_INFO, &mut info) {
                Ok(()) => all.push(ProbeStatus::new(&info)),
                Err(error) if error.raw_os_error() == Some(libc::ENOENT) => break,
                Err(error) => return Err(Error::Device(error)),
            }
        }
        Ok(all)
    }

    /// The instructions of attachment `id`, by address.
    ///
    /// # Errors
    /// [`Error::NoSuchProbes`], or what the operating system said.
    pub fn probe_places(&self, id: u32) -> Result<Vec<PlaceStatus>, Error> {
        let mut all: Vec<PlaceStatus> = Vec::new();
        let mut page: Vec<abi::ProbePlaceInfo> = (0..PAGE).map(|_| abi::ProbePlaceInfo::zeroed()).collect();
        loop {
            let places = page.as_mut_ptr() as u64;
            let mut request = abi::ProbePlaces { id, first: all.len() as u32, nr: PAGE, pad: 0, places };
            self.ioctl(abi::IOC_PROBE_PLACES, &mut request).map_err(|error| match error.raw_os_error() {
                Some(libc::ENOENT) => Error::NoSuchProbes(id),
                _ => Error::Device(error),
            })?;
            all.extend(page.iter().take(request.nr as usize).map(PlaceStatus::new));
            if request.nr < PAGE {
                return Ok(all);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_ascending_and_each_is_there_once() {
        let place = |address, cookie| ProbePlace { address, cookie, window: 5, ..ProbePlace::default() };
        let all = mirrors(&[place(9, 1), place(3, 2), place(9, 3)]);
        let seen: Vec<(u64, u64)> = all.iter().map(|place| (place.address, place.cookie)).collect();
        assert_eq!(seen, [(3, 2), (9, 1)]);
    }

    #[test]
    fn a_name_is_cut_between_characters() {
        assert_eq!(abi::text(&field::<{ abi::NAME_LEN }>("count vfs_write")), "count vfs_write");
        let long = "é".repeat(abi::NAME_LEN);
        let kept = abi::text(&field::<{ abi::NAME_LEN }>(&long));
        assert_eq!(kept, "é".repeat((abi::NAME_LEN - 1) / 2));
    }
}
