//! `/dev/xk`: one open descriptor, and what can be asked of it.

use std::io;
use std::path::Path;
use std::time::Duration;

use xk_history::Kind;

use crate::abi::{self, Plain};
use crate::descriptor::Descriptor;
use crate::error::Error;
use crate::livepatch::Livepatches;
use crate::recording;
use crate::status::{PolicyStatus, SitePolicy, SiteStatus, Stops, TuneStatus};

/// Bytes of a report on the threads that block: as many as xk.ko writes.
pub(crate) const REPORT_LEN: usize = 16384;

/// Where xk.ko is reached.
pub const DEVICE_PATH: &str = "/dev/xk";

/// An open descriptor of xk.ko. Tunes that it loads live as long as it does,
/// unless they are detached.
#[derive(Debug, Clone)]
pub struct Device {
    descriptor: Descriptor,
    /// Where `_printk` is.
    anchor: u64,
    /// Tables are loaded with a signature only.
    signed: bool,
    /// What a tune that ends with this process changes is not recorded in the history.
    trials: bool,
}

impl Device {
    /// Opens [`DEVICE_PATH`] and checks the version of the interface.
    ///
    /// # Errors
    /// [`Error::NotRoot`], [`Error::NotLoaded`], [`Error::Abi`], or what the
    /// operating system said.
    pub fn open() -> Result<Self, Error> {
        Self::open_at(Path::new(DEVICE_PATH), true)
    }

    /// Opens [`DEVICE_PATH`] to look only: whatever would change something is refused
    /// with [`Error::Forbidden`].
    ///
    /// # Errors
    /// As [`Device::open`].
    pub fn open_to_read() -> Result<Self, Error> {
        Self::open_at(Path::new(DEVICE_PATH), false)
    }

    /// As [`Device::open`]; `None` if xk.ko is not loaded, and so nothing is tuned.
    ///
    /// # Errors
    /// As [`Device::open`], except [`Error::NotLoaded`].
    pub fn open_if_loaded() -> Result<Option<Self>, Error> {
        if_loaded(Self::open())
    }

    /// As [`Device::open_to_read`]; `None` if xk.ko is not loaded, and so nothing is tuned.
    ///
    /// # Errors
    /// As [`Device::open`], except [`Error::NotLoaded`].
    pub fn open_to_read_if_loaded() -> Result<Option<Self>, Error> {
        if_loaded(Self::open_to_read())
    }

    fn open_at(path: &Path, write: bool) -> Result<Self, Error> {
        let mut device = Self { descriptor: Descriptor::open(path, write)?, anchor: 0, signed: false, trials: false };
        let version = device.ask_version()?;
        if version.abi != abi::ABI_VERSION {
            let module = abi::text(&version.module);
            return Err(Error::Abi { kernel: version.abi, user: abi::ABI_VERSION, module });
        }
        device.anchor = version.anchor;
        device.signed = version.flags & abi::VERSION_SIGNED != 0;
        Ok(device)
    }

    /// Whether `xk.ko` was loaded with `require_signed=1`.
    #[must_use]
    pub fn requires_signed(&self) -> bool {
        self.signed
    }

    /// The address of `_printk`, as the kernel knows it.
    pub(crate) fn anchor(&self) -> u64 {
        self.anchor
    }

    /// The same descriptor, for the trials of a search. Its changes are recorded in the history only if they outlive this
    /// process: a search makes thousands of others, and records them in a journal of its own.
    #[must_use]
    pub fn for_trials(&self) -> Self {
        Self { trials: true, ..self.clone() }
    }

    /// The tunes whose changes are recorded in the history; none if there is no history. What is in force does not depend
    /// on it: if they cannot be listed, nothing is recorded.
    pub(crate) fn recorded(&self) -> Vec<TuneStatus> {
        if !xk_history::is_kept() {
            return Vec::new();
        }
        let mut tunes = self.tunes().unwrap_or_default();
        tunes.retain(|tune| tune.detached || !self.trials);
        tunes
    }

    fn ask_version(&self) -> Result<abi::Version, Error> {
        let mut version = abi::Version::zeroed();
        self.ioctl(abi::IOC_VERSION, &mut version).map_err(Error::Device)?;
        Ok(version)
    }

    /// Interface version and version string of the module.
    ///
    /// # Errors
    /// What the operating system said.
    pub fn version(&self) -> Result<(u32, String), Error> {
        let version = self.ask_version()?;
        Ok((version.abi, abi::text(&version.module)))
    }

    /// The tunes that are loaded, oldest first.
    ///
    /// # Errors
    /// What the operating system said.
    pub fn tunes(&self) -> Result<Vec<TuneStatus>, Error> {
        let mut tunes = Vec::new();
        let livepatches = Livepatches::read();
        for index in 0.. {
            let mut info = abi::TuneInfo::zeroed();
            info.index = index;
            match self.ioctl(abi::IOC_TUNE_INFO, &mut info) {
                Ok(()) => tunes.push(self.status(&info, &livepatches)?),
                Err(error) if error.raw_os_error() == Some(libc::ENOENT) => break,
                Err(error) => return Err(Error::Device(error)),
            }
        }
        Ok(tunes)
    }

    /// How often and how long all processors were stopped for changes since `xk.ko` was loaded.
    ///
    /// # Errors
    /// What the operating system said.
    pub fn stops(&self) -> Result<Stops, Error> {
        let mut info = abi::StopInfo::default();
        self.ioctl(abi::IOC_STOP_INFO, &mut info).map_err(Error::Device)?;
        Ok(Stops {
            number: info.nr,
            total: Duration::from_nanos(info.total_ns),
            longest: Duration::from_nanos(info.longest_ns),
            stacks: info.stacks,
            since: Duration::from_nanos(info.since_ns),
        })
    }

    fn status(&self, info: &abi::TuneInfo, livepatches: &Livepatches) -> Result<TuneStatus, Error> {
        let mut status =
            TuneStatus::new(info, self.compiled(info)?, self.sites(info, livepatches)?, self.blockers(info)?);
        if info.flags & abi::TUNE_POLICY != 0 {
            status.policy = self.policy_status(info.id)?;
        }
        Ok(status)
    }

    fn compiled(&self, tune: &abi::TuneInfo) -> Result<Vec<i64>, Error> {
        let mut values = vec![0i64; tune.nr_values as usize];
        let pointer = values.as_mut_ptr() as u64;
        let mut request = abi::TuneValues { id: tune.id, nr_values: tune.nr_values, values: pointer };
        match self.ioctl(abi::IOC_TUNE_VALUES, &mut request) {
            Ok(()) => Ok(values),
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(Vec::new()), // Unloaded meanwhile.
            Err(error) => Err(Error::Device(error)),
        }
    }

    fn blockers(&self, tune: &abi::TuneInfo) -> Result<String, Error> {
        if tune.state == abi::STATE_STABLE {
            return Ok(String::new());
        }
        match self.report(tune.id) {
            Err(Error::NoSuchTune(_)) => Ok(String::new()), // Unloaded meanwhile.
            other => other,
        }
    }

    fn sites(&self, tune: &abi::TuneInfo, livepatches: &Livepatches) -> Result<Vec<SiteStatus>, Error> {
        let mut sites = Vec::new();
        for index in 0..tune.nr_sites {
            let mut info = abi::SiteInfo::zeroed();
            info.id = tune.id;
            info.index = index;
            match self.ioctl(abi::IOC_SITE_INFO, &mut info) {
                Ok(()) => sites.push(SiteStatus::new(&info, livepatches)),
                // Unloaded meanwhile.
                Err(error) if error.raw_os_error() == Some(libc::ENOENT) => break,
                Err(error) => return Err(Error::Device(error)),
            }
        }
        Ok(sites)
    }

    /// Ends tune `id` after this time, suspend included, even if its owner still runs;
    /// `None` removes the limit.
    ///
    /// # Errors
    /// [`Error::NoSuchTune`], [`Error::Owned`], [`Error::Forbidden`].
    pub fn lease(&self, id: u32, time: Option<Duration>) -> Result<(), Error> {
        let ns = time.map_or(0, |time| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX).max(1));
        let mut lease = abi::Lease { id, ns, ..abi::Lease::zeroed() };
        let before = self.recorded().into_iter().find(|tune| tune.id == id);
        self.ioctl(abi::IOC_LEASE, &mut lease).map_err(|error| Error::of_tune_with(id, error, &lease.error))?;
        let event = before.and_then(|tune| recording::lease(Kind::Constant, &tune.name, tune.lease, time));
        xk_history::record(event.into_iter().collect());
        Ok(())
    }

    /// The threads that tune `id` waits for, with their stacks; empty when it does not.
    ///
    /// # Errors
    /// [`Error::NoSuchTune`].
    pub fn report(&self, id: u32) -> Result<String, Error> {
        let mut text = vec![0u8; REPORT_LEN];
        let mut report = abi::Report { id, len: text.len() as u32, text: text.as_mut_ptr() as u64 };
        self.ioctl(abi::IOC_REPORT, &mut report).map_err(|error| Error::of_tune(id, error))?;
        Ok(abi::text(&text))
    }

    /// Excludes thread `thread`, whose stack can never be read, from the changes of tune `id`: two values may meet in
    /// it. This is also possible during a transition.
    ///
    /// # Errors
    /// [`Error::NoSuchTune`], [`Error::Owned`], [`Error::Forbidden`]; [`Error::Refused`] when its stack can be read, or
    /// when the tune changes instructions.
    pub fn ignore(&self, id: u32, thread: i32) -> Result<(), Error> {
        let mut ignore = abi::Ignore { id, thread, ..abi::Ignore::zeroed() };
        self.ioctl(abi::IOC_IGNORE, &mut ignore).map_err(|error| match error.raw_os_error() {
            Some(libc::ENOENT | libc::EPERM) => Error::of_tune(id, error),
            _ => Error::of_code(&error, abi::text(&ignore.error)),
        })
    }

    /// Lets tune `id` outlive this descriptor.
    ///
    /// # Errors
    /// [`Error::NoSuchTune`], [`Error::Owned`], [`Error::Forbidden`].
    pub fn detach(&self, id: u32) -> Result<(), Error> {
        let mut detach = abi::Detach { id, ..abi::Detach::zeroed() };
        self.ioctl(abi::IOC_DETACH, &mut detach).map_err(|error| Error::of_tune_with(id, error, &detach.error))?;
        // The change that is kept was a trial until now.
        if self.trials {
            let tune = self.recorded().into_iter().find(|tune| tune.id == id);
            xk_history::record(tune.as_ref().map(recording::kept).into_iter().collect());
        }
        Ok(())
    }

    /// What the policy of tune `id` did; `None` if it has none.
    ///
    /// # Errors
    /// What the operating system said.
    pub fn policy_status(&self, id: u32) -> Result<Option<PolicyStatus>, Error> {
        let mut status: Option<PolicyStatus> = None;
        for index in 0.. {
            let Some(info) = self.policy_info(id, index).map_err(Error::Device)? else { break };
            let known = status.get_or_insert_with(|| PolicyStatus {
                program: info.program,
                links: info.nr_links,
                sites: Vec::new(),
            });
            known.sites.push(SitePolicy::new(&info));
        }
        Ok(status)
    }

    fn policy_info(&self, id: u32, index: u32) -> io::Result<Option<abi::PolicyInfo>> {
        let mut info = abi::PolicyInfo::zeroed();
        info.id = id;
        info.index = index;
        match self.ioctl(abi::IOC_POLICY_INFO, &mut info) {
            Ok(()) => Ok(Some(info)),
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(None),
            Err(error) => Err(error),
        }
    }

    pub(crate) fn ioctl<T>(&self, command: u32, argument: &mut T) -> io::Result<()> {
        self.descriptor.ioctl(command, argument)
    }
}

fn if_loaded(opened: Result<Device, Error>) -> Result<Option<Device>, Error> {
    match opened {
        Ok(device) => Ok(Some(device)),
        Err(Error::NotLoaded) => Ok(None),
        Err(error) => Err(error),
    }
}
