//! Counts the calls of a kernel function, or the passes of a tracepoint, by an eBPF program with a counter per processor.
//!
//! In: a name. Out: the count since it was attached. It refuses what the kernel cannot trace. The program is removed when
//! this is dropped, or when the process dies.

use std::ffi::{CStr, CString};
use std::os::fd::OwnedFd;

use libbpf_rs::{MapHandle, MapType};
use libbpf_sys::bpf_map_create_opts;

use super::insn::{at_function, at_tracepoint, count, set, store_word, sum, Insn, Refused, NO_FUNCTION, NO_TRACEPOINT};
use super::WatchError;

const NAME: &CStr = c"xk_calls";

/// An attached counter.
#[derive(Debug)]
pub struct Calls {
    what: String,
    counter: MapHandle,
    _link: OwnedFd,
}

impl Calls {
    /// Counts the calls of a function of the running kernel.
    ///
    /// # Errors
    /// [`WatchError`].
    pub fn of_function(name: &str) -> Result<Self, WatchError> {
        Self::of(format!("calls of {name}"), name, |program, name| at_function(NAME, program, name, 0), NO_FUNCTION)
    }

    /// Counts the passes of a tracepoint of the running kernel (`contention_begin`).
    ///
    /// # Errors
    /// [`WatchError`].
    pub fn of_tracepoint(name: &str) -> Result<Self, WatchError> {
        let attach = |program: &[Insn], name: &CStr| at_tracepoint(NAME, program, name);
        Self::of(format!("the tracepoint {name}"), name, attach, NO_TRACEPOINT)
    }

    fn of(
        what: String,
        name: &str,
        attach: impl Fn(&[Insn], &CStr) -> Result<OwnedFd, Refused>,
        hint: &str,
    ) -> Result<Self, WatchError> {
        let failed = |reason: String| WatchError { what: what.clone(), reason };
        let name = CString::new(name).map_err(|_| failed("the name contains a zero byte".into()))?;
        let opts = bpf_map_create_opts { sz: size_of::<bpf_map_create_opts>() as _, ..Default::default() };
        let counter = MapHandle::create(MapType::PercpuArray, Some("xk_calls"), 4, 8, 1, &opts)
            .map_err(|error| failed(error.to_string()))?;
        // The index of the only element, where `count` expects it.
        let mut program = vec![set(1, 0), store_word(10, -24, 1)];
        program.extend(count(&counter));
        let link = attach(&program, &name).map_err(|refused| failed(refused.words(hint)))?;
        Ok(Self { what, counter, _link: link })
    }

    /// The count so far.
    ///
    /// # Errors
    /// [`WatchError`].
    pub fn read(&self) -> Result<u64, WatchError> {
        sum(&self.counter, 0).map_err(|error| WatchError { what: self.what.clone(), reason: error.to_string() })
    }
}
