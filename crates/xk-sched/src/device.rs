//! `/dev/xk_sched`: one open descriptor, and what can be asked of it.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::time::Duration;

use serde::Serialize;

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
            })
            .collect())
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
            if policy.is_empty() || policy.len() >= abi::NAME_LEN || policy.contains('\0') {
                return Err(Error::Name(policy.to_owned()));
            }
            choice.policy[..policy.len()].copy_from_slice(policy.as_bytes());
        }
        let Err(error) = self.ioctl(abi::IOC_CHOOSE, &mut choice) else { return Ok(choice.nr_threads) };
        let said = abi::text(&choice.error);
        Err(match error.raw_os_error() {
            _ if said.is_empty() => Error::Device(error),
            Some(libc::ENOENT) => Error::NoSuchPolicy(said),
            Some(libc::ESRCH) => Error::NoSuchThread(said),
            Some(libc::ENODEV) => Error::Ejected(said),
            Some(libc::EACCES) => Error::Forbidden(said),
            _ => Error::Refused(said),
        })
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
