//! The mapped memory of a heap. Programs change it at any time, so it is read and written by atomic operations only.

use std::ffi::c_void;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicU8};

use rustix::io::Errno;
use rustix::mm::{madvise, mmap, mmap_anonymous, munmap, Advice, MapFlags, ProtFlags};

use super::layout::{MAP, PAGE};
use crate::Error;

/// The first bytes of a heap, at a place of this process.
#[derive(Debug)]
pub struct Words {
    address: u64,
    bytes: u64,
}

/// Whether nothing is mapped there.
pub fn is_free(address: u64, bytes: u64) -> bool {
    let (Ok(start), Ok(length)) = (usize::try_from(address), usize::try_from(bytes)) else { return false };
    let flags = MapFlags::PRIVATE | MapFlags::NORESERVE | MapFlags::FIXED_NOREPLACE;
    // SAFETY: a mapping at a place where nothing is, which goes away at once.
    unsafe {
        match mmap_anonymous(start as *mut c_void, length, ProtFlags::empty(), flags) {
            Ok(mapped) => munmap(mapped, length).is_ok() && mapped as usize == start,
            Err(_) => false,
        }
    }
}

/// A mapped arena, which goes when this is dropped.
#[derive(Debug)]
pub struct Mapping {
    address: usize,
    bytes: usize,
}

impl Mapping {
    /// Maps all bytes of an arena at its address.
    pub fn new(arena: impl AsFd, address: u64, bytes: u64) -> Result<Self, Error> {
        let wrong = |_| Error::Heap(format!("{bytes:#x} bytes at {address:#x} are too many"));
        let (address, bytes) = (usize::try_from(address).map_err(wrong)?, usize::try_from(bytes).map_err(wrong)?);
        let (access, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED | MapFlags::FIXED_NOREPLACE);
        // SAFETY: a mapping at a place where nothing is.
        let mapped = unsafe { mmap(address as *mut c_void, bytes, access, flags, arena, 0) };
        let mapped = mapped.map_err(|error| match error {
            Errno::EXIST => Error::Taken { map: MAP.into(), address: address as u64 },
            other => Error::Heap(format!("it cannot be mapped at its address {address:#x}: {other}")),
        })?;
        let this = Self { address: mapped as usize, bytes };
        match this.address == address {
            true => Ok(this),
            false => Err(Error::Heap(format!("it was mapped at {:#x} instead of {address:#x}", this.address))),
        }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: it was mapped by `new`, and who uses its words has borrowed its owner.
        _ = unsafe { munmap(self.address as *mut c_void, self.bytes) };
    }
}

impl Words {
    /// Where libbpf has mapped an arena of at least so many bytes, which must stay mapped.
    pub fn new(address: u64, bytes: u64) -> Self {
        Self { address, bytes }
    }

    /// The address of an offset.
    pub fn address(&self, offset: u64) -> u64 {
        self.address + offset
    }

    /// The offset of an address at which so many bytes of the heap are.
    pub fn offset(&self, address: u64, bytes: u64) -> Option<u64> {
        let offset = address.checked_sub(self.address)?;
        (offset >= PAGE && offset.checked_add(bytes)? <= self.bytes).then_some(offset)
    }

    /// Gives these bytes pages, as far as they have none.
    pub fn populate(&self, from: u64, to: u64) -> Result<(), Error> {
        let place = self.place(from, to - from);
        let length = usize::try_from(to - from).map_err(|_| Error::Heap(format!("{} bytes", to - from)))?;
        // SAFETY: the bytes are within the mapping, and their content does not change.
        unsafe { madvise(place.cast(), length, Advice::LinuxPopulateWrite) }.map_err(|error| {
            Error::Heap(format!(
                "the kernel gives it no pages for the bytes {from:#x} to {to:#x}: {error}: is memory short, or has the \
                 control group reached its limit?"
            ))
        })
    }

    /// The word at an offset, which is a multiple of 8.
    pub fn at(&self, offset: u64) -> &AtomicU64 {
        let place = self.place(offset, 8).cast();
        // SAFETY: it is aligned and mapped as long as this is borrowed, and everybody uses it atomically.
        unsafe { AtomicU64::from_ptr(place) }
    }

    /// The half of a word at an offset, which is a multiple of 4.
    pub fn half(&self, offset: u64) -> &AtomicU32 {
        let place = self.place(offset, 4).cast();
        // SAFETY: see `at`.
        unsafe { AtomicU32::from_ptr(place) }
    }

    /// The byte at an offset.
    pub fn byte(&self, offset: u64) -> &AtomicU8 {
        let place = self.place(offset, 1);
        // SAFETY: see `at`.
        unsafe { AtomicU8::from_ptr(place) }
    }

    /// # Panics
    /// Outside of the heap, or where the operand is not aligned: the callers have looked.
    fn place(&self, offset: u64, bytes: u64) -> *mut u8 {
        let is_inside = offset.checked_add(bytes).is_some_and(|end| end <= self.bytes);
        assert!(is_inside && (bytes > 8 || offset % bytes == 0), "{offset:#x} of {:#x}", self.bytes);
        (self.address + offset) as usize as *mut u8
    }
}
