//! An open character device of one of the modules, and requests to it.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::Arc;

/// Why a device cannot be opened.
pub(crate) enum Unopened {
    /// It may be opened by root only.
    NotRoot,
    /// Its module is not loaded.
    NotLoaded,
    /// What else the operating system said.
    Other(io::Error),
}

/// An open descriptor; clones are the same one.
#[derive(Debug, Clone)]
pub(crate) struct Descriptor(Arc<File>);

impl Descriptor {
    /// Opens the device, to read and, if `write`, to change something through it.
    pub(crate) fn open(path: &Path, write: bool) -> Result<Self, Unopened> {
        let file = OpenOptions::new().read(true).write(write).open(path).map_err(|error| match error.kind() {
            io::ErrorKind::PermissionDenied => Unopened::NotRoot,
            io::ErrorKind::NotFound => Unopened::NotLoaded,
            _ if matches!(error.raw_os_error(), Some(libc::ENXIO | libc::ENODEV)) => Unopened::NotLoaded,
            _ => Unopened::Other(error),
        })?;
        Ok(Self(Arc::new(file)))
    }

    /// Passes on a request, and what the kernel answers in it.
    pub(crate) fn ioctl<T>(&self, command: u32, argument: &mut T) -> io::Result<()> {
        // SAFETY: `command` encodes the size of `T`, the mirror of the structure
        // that the kernel reads and writes there; pointers inside it outlive the
        // call, as `Request` owns what they point to.
        let result =
            unsafe { libc::ioctl(self.0.as_raw_fd(), libc::c_ulong::from(command), std::ptr::from_mut(argument)) };
        if result == 0 {
            Ok(())
        } else {
            Err(io::Error::last_os_error())
        }
    }
}
