//! `/dev/xk_sched`: one open descriptor, and what can be asked of it.

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::fd::AsRawFd;
use std::time::Duration;

use serde::Serialize;
use xk_history::{Action, Event, Kind};

use crate::abi::{self, Plain};
use crate::Error;

/// Where xk_sched.ko is reached.
pub const DEVICE_PATH: &str = "/dev/xk_sched";

/// What is written in place of a policy for the class that threads have if they choose none.
pub const FAIR: &str = "fair";

/// The whole module.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Status {
    /// `None` if sched_ext calls the module; otherwise why it does not any more.
    pub ended: Option<String>,
    /// How many policies are loaded.
    pub policies: u32,
    /// How many threads run under them.
    pub threads: u32,
    /// How many policies were ejected since the module was loaded.
    pub ejected: u64,
}

/// A loaded policy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Policy {
    /// Its name.
    pub name: String,
    /// Whether it decides; otherwise it was ejected, and its threads are in the fair class.
    pub live: bool,
    /// How many threads run under it.
    pub threads: u32,
    /// How many of them wait for a CPU.
    pub ready: u32,
    /// How often it chose a thread to run.
    pub switches: u64,
    /// How many threads waited too long and were given to the fair class.
    pub overdue: u64,
    /// The longest time for which a thread runs while others wait.
    pub slice: Duration,
    /// Its share of a CPU is in proportion to this, where other policies have threads, too.
    pub weight: u32,
    /// The CPUs on which its threads run: a list as `0-3,8`, or `all`.
    pub cpus: String,
    /// None of these is online, so its threads run on all.
    pub stranded: bool,
}

/// What a policy did while somebody looked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Stats {
    /// The policy.
    pub name: String,
    /// How often it chose a thread that it had chosen for another CPU before.
    pub moves: u64,
    /// How long threads waited after they were ready, together.
    pub waited: Duration,
    /// How often a thread waited for 0, 1, 2 to 3, 4 to 7 ns, and so on.
    pub waits: Vec<u64>,
}

/// A thread of a policy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PolicyThread {
    /// Its number.
    pub pid: i32,
    /// Its name.
    pub name: String,
    /// Its state.
    pub state: String,
    /// The CPU to which it belongs.
    pub core: i32,
    /// The queue in which it waits: they count from 1, in the order in which the policy initialised them.
    pub queue: Option<u32>,
    /// For how long it has been there.
    pub waits: Duration,
    /// For how long it has run, under any policy.
    pub ran: Duration,
}

/// Why a policy was ejected.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Report {
    /// The policy.
    pub policy: String,
    /// The event that went wrong.
    pub event: String,
    /// The thread, unless none is to blame: its number and name, and its state before and after.
    pub thread: Option<ReportedThread>,
    /// The CPU, if there is one.
    pub core: Option<i32>,
    /// What is wrong.
    pub reason: String,
}

/// The thread of a [`Report`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ReportedThread {
    /// Its number.
    pub pid: i32,
    /// Its name.
    pub name: String,
    /// Its state before the event.
    pub from: String,
    /// The state that was asked for, or in which the event left it.
    pub to: String,
}

/// Whose policy changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Who {
    /// The calling thread.
    Caller,
    /// One thread.
    Thread(i32),
    /// All threads of a process.
    Process(i32),
}

impl Who {
    fn words(self) -> String {
        match self {
            Self::Caller => "the calling thread".into(),
            Self::Thread(pid) => format!("thread {pid}"),
            Self::Process(pid) => format!("process {pid}"),
        }
    }
}

/// So many threads, in words.
fn threads(number: u32) -> String {
    if number == 1 {
        "1 thread".into()
    } else {
        format!("{number} threads")
    }
}

/// Records a change of a policy in the history.
fn record(policy: &str, action: Action, to: String) {
    xk_history::record(vec![Event::new(Kind::Scheduler, policy, action).to(to)]);
}

/// An open descriptor of xk_sched.ko. Nothing ends when it is closed.
#[derive(Debug)]
pub struct Device {
    file: File,
}

impl Device {
    /// Opens [`DEVICE_PATH`] and checks the version of the interface.
    ///
    /// # Errors
    /// [`Error::NotRoot`], [`Error::NotLoaded`], [`Error::Abi`], or what the operating system said.
    pub fn open() -> Result<Self, Error> {
        Self::open_for(true)
    }

    /// As [`Device::open`], to look only.
    ///
    /// # Errors
    /// As [`Device::open`].
    pub fn open_to_read() -> Result<Self, Error> {
        Self::open_for(false)
    }

    fn open_for(write: bool) -> Result<Self, Error> {
        let file =
            OpenOptions::new().read(true).write(write).open(DEVICE_PATH).map_err(|error| match error.kind() {
                io::ErrorKind::PermissionDenied => Error::NotRoot,
                io::ErrorKind::NotFound => Error::NotLoaded,
                _ if matches!(error.raw_os_error(), Some(libc::ENXIO | libc::ENODEV)) => Error::NotLoaded,
                _ => Error::Device(error),
            })?;
        let device = Self { file };
        let mut version = abi::Version::zeroed();
        device.ioctl(abi::IOC_VERSION, &mut version).map_err(Error::Device)?;
        if version.abi != abi::ABI_VERSION {
            return Err(Error::Abi { kernel: version.abi, module: abi::text(&version.module) });
        }
        Ok(device)
    }

    /// Whether sched_ext calls the module, and numbers.
    ///
    /// # Errors
    /// What the operating system said.
    pub fn status(&self) -> Result<Status, Error> {
        let mut status = abi::Status::zeroed();
        self.ioctl(abi::IOC_STATUS, &mut status).map_err(Error::Device)?;
        Ok(Status {
            ended: (status.active == 0).then(|| abi::text(&status.reason)),
            policies: status.nr_policies,
            threads: status.nr_threads,
            ejected: status.nr_ejected,
        })
    }

    /// The policies that are loaded.
    ///
    /// # Errors
    /// What the operating system said.
    pub fn policies(&self) -> Result<Vec<Policy>, Error> {
        let infos = self.all(abi::IOC_POLICY, |info: &mut abi::PolicyInfo, index| info.index = index)?;
        Ok(infos
            .iter()
            .map(|info| Policy {
                name: abi::text(&info.name),
                live: info.live != 0,
                threads: info.nr_threads,
                ready: info.nr_ready,
                switches: info.nr_switches,
                overdue: info.nr_overdue,
                slice: Duration::from_nanos(info.slice_ns),
                weight: info.weight,
                cpus: abi::text(&info.cpus),
                stranded: info.stranded != 0,
            })
            .collect())
    }

    /// What policies did since somebody asked for it. The first call on a descriptor begins to count, which ends when it is
    /// closed; so differences of two calls mean something.
    ///
    /// # Errors
    /// What the operating system said.
    pub fn stats(&self) -> Result<Vec<Stats>, Error> {
        let all = self.all(abi::IOC_STATS, |stats: &mut abi::Stats, index| stats.index = index)?;
        Ok(all
            .iter()
            .map(|stats| Stats {
                name: abi::text(&stats.name),
                moves: stats.nr_moves,
                waited: Duration::from_nanos(stats.waited_ns),
                waits: stats.waits.to_vec(),
            })
            .collect())
    }

    /// The threads of a policy, and their states.
    ///
    /// # Errors
    /// [`Error::Name`], [`Error::NoSuchPolicy`], or what the operating system said.
    pub fn threads(&self, policy: &str) -> Result<Vec<PolicyThread>, Error> {
        let mut places = vec![abi::Thread::zeroed(); 256];
        loop {
            let mut request = abi::Dump::zeroed();
            request.size = size_of::<abi::Dump>() as u32;
            request.nr_threads = places.len() as u32;
            request.threads = places.as_mut_ptr() as u64;
            request.policy = field(policy)?;
            self.ioctl(abi::IOC_DUMP, &mut request).map_err(|error| refusal(error, &request.error))?;
            let found = request.nr_threads as usize;
            if found <= places.len() {
                places.truncate(found);
                return Ok(places.iter().map(thread).collect());
            }
            places.resize(found + 64, abi::Thread::zeroed());
        }
    }

    /// Why policies were ejected, newest first. The kernel keeps the last 64.
    ///
    /// # Errors
    /// What the operating system said.
    pub fn reports(&self) -> Result<Vec<Report>, Error> {
        let reports = self.all(abi::IOC_REPORT, |report: &mut abi::Report, index| report.index = index)?;
        Ok(reports
            .iter()
            .map(|report| Report {
                policy: abi::text(&report.policy),
                event: abi::text(&report.event),
                thread: (report.pid != 0).then(|| ReportedThread {
                    pid: report.pid,
                    name: abi::text(&report.comm),
                    from: abi::text(&report.from),
                    to: abi::text(&report.to),
                }),
                core: (report.core >= 0).then_some(report.core),
                reason: abi::text(&report.text),
            })
            .collect())
    }

    /// Gives threads to a policy, or to the fair class ([`FAIR`]). What they start later inherits it. Returns how many.
    ///
    /// # Errors
    /// [`Error::Name`], [`Error::NoSuchPolicy`], [`Error::NoSuchThread`], [`Error::Ejected`], [`Error::Forbidden`],
    /// [`Error::Refused`], or what the operating system said.
    pub fn choose(&self, policy: &str, who: Who) -> Result<u32, Error> {
        let mut choice = abi::Choice::zeroed();
        choice.size = size_of::<abi::Choice>() as u32;
        (choice.pid, choice.flags) = match who {
            Who::Caller => (0, 0),
            Who::Thread(pid) => (pid, 0),
            Who::Process(pid) => (pid, abi::WHOLE_PROCESS),
        };
        if policy != FAIR {
            choice.policy = field(policy)?;
        }
        self.ioctl(abi::IOC_CHOOSE, &mut choice).map_err(|error| refusal(error, &choice.error))?;
        record(policy, Action::Choose, format!("{}: {}", who.words(), threads(choice.nr_threads)));
        Ok(choice.nr_threads)
    }

    /// Changes the weight of a policy: 1 to 10,000, 100 if nobody has changed it.
    ///
    /// # Errors
    /// [`Error::Name`], [`Error::NoSuchPolicy`], [`Error::Forbidden`], [`Error::Refused`], or what the operating system
    /// said.
    pub fn set_weight(&self, policy: &str, weight: u32) -> Result<(), Error> {
        let mut request = abi::Weight::zeroed();
        request.size = size_of::<abi::Weight>() as u32;
        request.weight = weight;
        request.policy = field(policy)?;
        self.ioctl(abi::IOC_WEIGHT, &mut request).map_err(|error| refusal(error, &request.error))?;
        record(policy, Action::Adjust, format!("weight {weight}"));
        Ok(())
    }

    /// Sets the CPUs on which threads of a policy run: a list as `0-3,8`, or `all`. Other policies may use them, too.
    ///
    /// # Errors
    /// As [`Device::set_weight`].
    pub fn set_cpus(&self, policy: &str, cpus: &str) -> Result<(), Error> {
        let mut request = abi::Cpus::zeroed();
        request.size = size_of::<abi::Cpus>() as u32;
        request.policy = field(policy)?;
        request.cpus = field(cpus)?;
        self.ioctl(abi::IOC_CPUS, &mut request).map_err(|error| refusal(error, &request.error))?;
        record(policy, Action::Adjust, format!("CPUs {cpus}"));
        Ok(())
    }

    /// Gives all threads of a policy to another, whose module decides whether it can take them over. They stay in their
    /// class, and go on. Returns how many.
    ///
    /// # Errors
    /// As [`Device::set_weight`], and [`Error::Ejected`].
    pub fn replace(&self, old: &str, new: &str) -> Result<u32, Error> {
        let mut request = abi::Replacement::zeroed();
        request.size = size_of::<abi::Replacement>() as u32;
        (request.old, request.new) = (field(old)?, field(new)?);
        self.ioctl(abi::IOC_REPLACE, &mut request).map_err(|error| refusal(error, &request.error))?;
        record(old, Action::Adjust, format!("replaced by {new}: {}", threads(request.nr_threads)));
        Ok(request.nr_threads)
    }

    /// Begins to record the events of a policy that has had no thread yet, in so many bytes of the kernel's memory. There is
    /// one recording at a time; it ends when this is closed.
    ///
    /// # Errors
    /// As [`Device::set_weight`].
    pub fn record(&self, policy: &str, limit: u64) -> Result<(), Error> {
        let mut request = recording();
        request.limit = limit;
        request.policy = field(policy)?;
        self.ioctl(abi::IOC_RECORD, &mut request).map_err(|error| refusal(error, &request.error))
    }

    /// Ends the recording. Returns its bytes, for the program of `kernel/xk_sched/user`, and how many records had no place.
    ///
    /// # Errors
    /// [`Error::Refused`] if there is no recording, or what the operating system said.
    pub fn end_recording(&self) -> Result<(Vec<u8>, u64), Error> {
        let mut request = recording();
        self.ioctl(abi::IOC_RECORD_END, &mut request).map_err(|error| refusal(error, &request.error))?;
        let mut bytes = Vec::new();
        (&self.file).read_to_end(&mut bytes).map_err(Error::Device)?;
        Ok((bytes, request.missed))
    }

    /// Asks with 0, 1, .. until there is no more.
    fn all<T: Plain>(&self, command: u32, number: impl Fn(&mut T, u32)) -> Result<Vec<T>, Error> {
        let mut all = Vec::new();
        for index in 0.. {
            let mut one = T::zeroed();
            number(&mut one, index);
            match self.ioctl(command, &mut one) {
                Ok(()) => all.push(one),
                Err(error) if error.raw_os_error() == Some(libc::ENOENT) => break,
                Err(error) => return Err(Error::Device(error)),
            }
        }
        Ok(all)
    }

    fn ioctl<T: Plain>(&self, command: u32, argument: &mut T) -> io::Result<()> {
        // SAFETY: `command` encodes the size of `T`, the mirror of the structure that the kernel reads and writes there.
        let result =
            unsafe { libc::ioctl(self.file.as_raw_fd(), libc::c_ulong::from(command), std::ptr::from_mut(argument)) };
        if result == 0 {
            Ok(())
        } else {
            Err(io::Error::last_os_error())
        }
    }
}

fn recording() -> abi::Recording {
    abi::Recording { size: size_of::<abi::Recording>() as u32, ..abi::Recording::zeroed() }
}

fn thread(thread: &abi::Thread) -> PolicyThread {
    PolicyThread {
        pid: thread.pid,
        name: abi::text(&thread.comm),
        state: abi::text(&thread.state),
        core: thread.core,
        queue: (thread.queue != 0).then_some(thread.queue),
        waits: Duration::from_millis(thread.waits_ms.into()),
        ran: Duration::from_nanos(thread.ran_ns),
    }
}

/// A name, or a list of CPUs, as the kernel reads it.
fn field<const SIZE: usize>(text: &str) -> Result<[u8; SIZE], Error> {
    if text.is_empty() || text.len() >= SIZE || text.contains('\0') {
        return Err(Error::Name(text.to_owned()));
    }
    let mut field = [0; SIZE];
    field[..text.len()].copy_from_slice(text.as_bytes());
    Ok(field)
}

fn refusal(error: io::Error, said: &[u8]) -> Error {
    let said = abi::text(said);
    match error.raw_os_error() {
        _ if said.is_empty() => Error::Device(error),
        Some(libc::ENOENT) => Error::NoSuchPolicy(said),
        Some(libc::ESRCH) => Error::NoSuchThread(said),
        Some(libc::ENODEV) => Error::Ejected(said),
        Some(libc::EACCES) => Error::Forbidden(said),
        _ => Error::Refused(said),
    }
}
