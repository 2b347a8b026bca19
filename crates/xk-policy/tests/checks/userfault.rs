//! Memory of this process that is not there until somebody says so (userfaultfd): who reads it waits.

use std::fs::File;
use std::io::Read;
use std::os::fd::FromRawFd;

/// `UFFDIO_API`, `UFFDIO_REGISTER` and `UFFDIO_ZEROPAGE` of `linux/userfaultfd.h`.
const API: libc::c_ulong = 0xc018_aa3f;
const REGISTER: libc::c_ulong = 0xc020_aa00;
const ZEROPAGE: libc::c_ulong = 0xc020_aa04;
/// `UFFD_API`, and `UFFDIO_REGISTER_MODE_MISSING`.
const VERSION: u64 = 0xaa;
const MISSING: u64 = 1;
const PAGE: usize = 4096;
/// `struct uffd_msg`.
const MESSAGE: usize = 32;

/// One page of it.
pub struct Missing {
    faults: File,
    address: u64,
}

impl Missing {
    pub fn new() -> Self {
        // SAFETY: makes a descriptor, which nobody else has; and a mapping of its own.
        let (descriptor, page) = unsafe {
            let flags = libc::PROT_READ | libc::PROT_WRITE;
            let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            (
                libc::syscall(libc::SYS_userfaultfd, libc::O_CLOEXEC),
                libc::mmap(std::ptr::null_mut(), PAGE, flags, kind, -1, 0),
            )
        };
        assert!(descriptor >= 0 && page != libc::MAP_FAILED, "{}", std::io::Error::last_os_error());
        // SAFETY: the descriptor is new, and open.
        let faults = unsafe { File::from_raw_fd(descriptor as i32) };
        let missing = Self { faults, address: page as u64 };
        missing.ask(API, &mut [VERSION, 0, 0]);
        missing.ask(REGISTER, &mut [missing.address, PAGE as u64, MISSING, 0]);
        missing
    }

    fn ask(&self, command: libc::c_ulong, arguments: &mut [u64]) {
        use std::os::fd::AsRawFd;
        // SAFETY: `arguments` is the structure of the command, as long as it.
        let result = unsafe { libc::ioctl(self.faults.as_raw_fd(), command, arguments.as_mut_ptr()) };
        assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
    }

    pub fn address(&self) -> u64 {
        self.address
    }

    /// Returns when somebody reads it, and waits.
    pub fn wait(&self) {
        let mut message = [0; MESSAGE];
        (&self.faults).read_exact(&mut message).unwrap();
    }

    /// It is there, and empty: who waits goes on.
    pub fn provide(&self) {
        self.ask(ZEROPAGE, &mut [self.address, PAGE as u64, 0, 0]);
    }
}
