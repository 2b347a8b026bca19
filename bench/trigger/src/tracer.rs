//! An eBPF program on a kprobe through perf, as tracing tools attach it.

use std::ffi::{CStr, CString};
use std::fs;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::path::Path;
use std::ptr::NonNull;

use anyhow::{ensure, Context, Result};
use libbpf_rs::{AsRawLibbpf, Object, ObjectBuilder};

const STATISTICS: &str = "/proc/sys/kernel/bpf_stats_enabled";

/// A program that is loaded.
pub struct Program {
    object: Object,
}

/// Attached until it is dropped.
pub struct Attachment<'a> {
    link: NonNull<libbpf_sys::bpf_link>,
    program: &'a Program,
}

impl Program {
    /// Loads the only program of an object file.
    ///
    /// # Errors
    /// What libbpf or the verifier said.
    pub fn load(path: &Path) -> Result<Self> {
        let object = ObjectBuilder::default()
            .open_file(path)
            .and_then(libbpf_rs::OpenObject::load)
            .with_context(|| format!("cannot load {}", path.display()))?;
        Ok(Self { object })
    }

    /// Attaches it at `symbol+offset`.
    ///
    /// # Errors
    /// What the kernel said.
    pub fn attach(&self, symbol: &str, offset: u32) -> Result<Attachment<'_>> {
        let name = CString::new(symbol)?;
        self.attach_kprobe(Some(&name), u64::from(offset))
            .with_context(|| format!("cannot attach at {symbol}+{offset:#x}"))
    }

    /// Attaches it at an address.
    ///
    /// # Errors
    /// What the kernel said.
    pub fn attach_at(&self, address: u64) -> Result<Attachment<'_>> {
        self.attach_kprobe(None, address).with_context(|| format!("cannot attach at {address:#x}"))
    }

    /// Attaches it where its section says.
    ///
    /// # Errors
    /// What the kernel said.
    pub fn attach_by_section(&self) -> Result<Attachment<'_>> {
        // SAFETY: the program belongs to `self`, which outlives the attachment.
        let link = unsafe { libbpf_sys::bpf_program__attach(self.only()?.as_libbpf_object().as_ptr()) };
        self.attached(link)
    }

    /// Without a name, the offset is an address: perf takes both in the same field.
    fn attach_kprobe(&self, name: Option<&CStr>, offset: u64) -> Result<Attachment<'_>> {
        let options = libbpf_sys::bpf_kprobe_opts {
            sz: size_of::<libbpf_sys::bpf_kprobe_opts>() as _,
            offset: offset as _,
            ..Default::default()
        };
        let name = name.map_or(std::ptr::null(), CStr::as_ptr);
        // libbpf-rs attaches at the start of functions only.
        // SAFETY: the program belongs to `self`, which outlives the attachment;
        // libbpf copies the name and the options.
        let link = unsafe {
            libbpf_sys::bpf_program__attach_kprobe_opts(self.only()?.as_libbpf_object().as_ptr(), name, &options)
        };
        self.attached(link)
    }

    fn attached(&self, link: *mut libbpf_sys::bpf_link) -> Result<Attachment<'_>> {
        let error = std::io::Error::last_os_error();
        let link = NonNull::new(link).ok_or(error)?;
        Ok(Attachment { link, program: self })
    }

    fn only(&self) -> Result<libbpf_rs::Program<'_>> {
        self.object.progs().next().context("the object has no program")
    }

    /// Its descriptor, as long as this lives.
    ///
    /// # Errors
    /// When the object has no program.
    pub fn fd(&self) -> Result<BorrowedFd<'_>> {
        let program = self.only()?;
        // SAFETY: the descriptor belongs to the object, which `self` holds.
        Ok(unsafe { BorrowedFd::borrow_raw(program.as_fd().as_raw_fd()) })
    }

    /// How often it ran while the kernel counted (see [`counting`]).
    ///
    /// # Errors
    /// When the kernel does not say.
    pub fn runs(&self) -> Result<u64> {
        let mut info = libbpf_sys::bpf_prog_info::default();
        let mut len = u32::try_from(size_of_val(&info))?;
        // SAFETY: the kernel writes no more than `len` bytes, which is what `info` has.
        let ret = unsafe { libbpf_sys::bpf_prog_get_info_by_fd(self.fd()?.as_raw_fd(), &mut info, &mut len) };
        ensure!(ret == 0, "the kernel does not describe the program: {}", std::io::Error::last_os_error());
        Ok(info.run_cnt)
    }
}

/// The kernel counts runs of programs while `work` does. Not while measuring: it costs instructions.
///
/// # Errors
/// When the kernel's statistics cannot be switched, or `work` fails.
pub fn counting<T>(work: impl FnOnce() -> Result<T>) -> Result<T> {
    fs::write(STATISTICS, "1").context(STATISTICS)?;
    let done = work();
    fs::write(STATISTICS, "0").context(STATISTICS)?;
    done
}

impl Attachment<'_> {
    /// How often the program runs while `work` does.
    ///
    /// # Errors
    /// As of [`counting`].
    pub fn count(&self, work: impl FnOnce() -> Result<()>) -> Result<u64> {
        let before = self.program.runs()?;
        // Asked while it counts: to stop counting is a write, at which the program may run, too.
        let after = counting(|| work().and_then(|()| self.program.runs()))?;
        ensure!(after >= before, "the program was loaded again meanwhile");
        Ok(after - before)
    }
}

impl Drop for Attachment<'_> {
    fn drop(&mut self) {
        // SAFETY: the link came from libbpf and is destroyed once.
        unsafe { libbpf_sys::bpf_link__destroy(self.link.as_ptr()) };
    }
}
