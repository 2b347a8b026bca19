//! `/dev/xk`: one open descriptor, and what can be asked of it.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::Arc;

use xk_table::ScopeTable;

use crate::abi::{self, Plain};
use crate::encode::Request;
use crate::{AddressOf, Error, SiteStatus, Tune, TuneStatus};

/// Where xk.ko is reached.
pub const DEVICE_PATH: &str = "/dev/xk";

/// An open descriptor of xk.ko. Tunes that it loads live as long as it does,
/// unless they are detached.
#[derive(Debug, Clone)]
pub struct Device {
    file: Arc<File>,
}

impl Device {
    /// Opens [`DEVICE_PATH`] and checks the version of the interface.
    ///
    /// # Errors
    /// [`Error::NotRoot`], [`Error::NotLoaded`], [`Error::Abi`], or what the
    /// operating system said.
    pub fn open() -> Result<Self, Error> {
        Self::open_at(Path::new(DEVICE_PATH))
    }

    /// Opens the device under another path.
    ///
    /// # Errors
    /// As [`Device::open`].
    pub fn open_at(path: &Path) -> Result<Self, Error> {
        let file = OpenOptions::new().read(true).write(true).open(path).map_err(|error| match error.kind() {
            io::ErrorKind::PermissionDenied => Error::NotRoot,
            io::ErrorKind::NotFound => Error::NotLoaded,
            _ if matches!(error.raw_os_error(), Some(libc::ENXIO | libc::ENODEV)) => Error::NotLoaded,
            _ => Error::Device(error),
        })?;
        let device = Self { file: Arc::new(file) };
        let (kernel, module) = device.version()?;
        if kernel == abi::ABI_VERSION {
            Ok(device)
        } else {
            Err(Error::Abi { kernel, user: abi::ABI_VERSION, module })
        }
    }

    /// Interface version and version string of the module.
    ///
    /// # Errors
    /// What the operating system said.
    pub fn version(&self) -> Result<(u32, String), Error> {
        let mut version = abi::Version::zeroed();
        self.ioctl(abi::IOC_VERSION, &mut version).map_err(Error::Device)?;
        Ok((version.abi, abi::text(&version.module)))
    }

    /// Gives the constant of `table` the value `value`.
    ///
    /// # Errors
    /// [`Error::OutOfRange`], [`Error::Table`] and [`Error::Address`] before
    /// the kernel is asked; [`Error::Busy`], [`Error::Drift`] and
    /// [`Error::Refused`] with the kernel's reason. Nothing has changed then.
    pub fn load(&self, table: &ScopeTable, value: i64, addresses: &dyn AddressOf) -> Result<Tune, Error> {
        let mut request = Request::new(table, value, addresses)?;
        match self.ioctl(abi::IOC_LOAD, &mut request.load) {
            Ok(()) => Ok(Tune::new(self.clone(), request.load.id)),
            Err(error) => Err(load_error(&error, abi::text(&request.load.error))),
        }
    }

    /// The tunes that are loaded, oldest first.
    ///
    /// # Errors
    /// What the operating system said.
    pub fn tunes(&self) -> Result<Vec<TuneStatus>, Error> {
        let mut tunes = Vec::new();
        for index in 0.. {
            let mut info = abi::TuneInfo::zeroed();
            info.index = index;
            match self.ioctl(abi::IOC_TUNE_INFO, &mut info) {
                Ok(()) => tunes.push(TuneStatus::new(&info, self.sites(&info)?)),
                Err(error) if error.raw_os_error() == Some(libc::ENOENT) => break,
                Err(error) => return Err(Error::Device(error)),
            }
        }
        Ok(tunes)
    }

    fn sites(&self, tune: &abi::TuneInfo) -> Result<Vec<SiteStatus>, Error> {
        let mut sites = Vec::new();
        for index in 0..tune.nr_sites {
            let mut info = abi::SiteInfo::zeroed();
            info.id = tune.id;
            info.index = index;
            match self.ioctl(abi::IOC_SITE_INFO, &mut info) {
                Ok(()) => sites.push(SiteStatus::new(&info)),
                // Unloaded meanwhile.
                Err(error) if error.raw_os_error() == Some(libc::ENOENT) => break,
                Err(error) => return Err(Error::Device(error)),
            }
        }
        Ok(sites)
    }

    /// Gives the constant of tune `id` another value, at all its sites at once.
    ///
    /// # Errors
    /// [`Error::NoSuchTune`], [`Error::Owned`], [`Error::OutOfRange`]. The old
    /// value is still in force then.
    pub fn set(&self, id: u32, value: i64) -> Result<(), Error> {
        let mut set = abi::Set { id, pad: 0, value };
        match self.ioctl(abi::IOC_SET, &mut set) {
            Ok(()) => Ok(()),
            Err(error) if error.raw_os_error() == Some(libc::ERANGE) => Err(self.out_of_range(id, value)),
            Err(error) => Err(tune_error(id, error)),
        }
    }

    fn out_of_range(&self, id: u32, value: i64) -> Error {
        match self.tunes() {
            Ok(tunes) => tunes
                .into_iter()
                .find(|tune| tune.id == id)
                .map_or(Error::NoSuchTune(id), |tune| Error::OutOfRange { name: tune.name, value, range: tune.range }),
            Err(error) => error,
        }
    }

    /// Unloads tune `id`: its default is back in force, and so are the
    /// original bytes, when this returns.
    ///
    /// # Errors
    /// [`Error::NoSuchTune`], [`Error::Owned`].
    pub fn unload(&self, id: u32) -> Result<(), Error> {
        let mut id_argument = id;
        self.ioctl(abi::IOC_UNLOAD, &mut id_argument).map_err(|error| tune_error(id, error))
    }

    /// Lets tune `id` outlive this descriptor.
    ///
    /// # Errors
    /// [`Error::NoSuchTune`], [`Error::Owned`].
    pub fn detach(&self, id: u32) -> Result<(), Error> {
        let mut id_argument = id;
        self.ioctl(abi::IOC_DETACH, &mut id_argument).map_err(|error| tune_error(id, error))
    }

    fn ioctl<T>(&self, command: u32, argument: &mut T) -> io::Result<()> {
        // SAFETY: `command` encodes the size of `T`, the mirror of the structure
        // that the kernel reads and writes there; pointers inside it outlive the
        // call, as `Request` owns what they point to.
        let result =
            unsafe { libc::ioctl(self.file.as_raw_fd(), libc::c_ulong::from(command), std::ptr::from_mut(argument)) };
        if result == 0 {
            Ok(())
        } else {
            Err(io::Error::last_os_error())
        }
    }
}

fn load_error(error: &io::Error, reason: String) -> Error {
    let errno = error.raw_os_error().unwrap_or(0);
    let reason = if reason.is_empty() { error.to_string() } else { reason };
    match errno {
        libc::EBUSY => Error::Busy(reason),
        libc::EBADMSG | libc::ENOENT => Error::Drift(reason),
        _ => Error::Refused { reason, errno },
    }
}

fn tune_error(id: u32, error: io::Error) -> Error {
    match error.raw_os_error() {
        Some(libc::ENOENT) => Error::NoSuchTune(id),
        Some(libc::EBUSY) => Error::Owned(id),
        _ => Error::Device(error),
    }
}
