//! Opening, loading, attaching and controlling an extension; its variables.

use std::ffi::{c_char, c_int, c_void, CStr, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use xk_flex::kept::Kept;
use xk_flex::{attach, Control, Limits};

use crate::failure::{given, pointer, status, text, Failure};
use crate::whole::{locked, Source, Whole};

/// No limit: of a time.
pub const XK_FLEX_FOREVER: u64 = u64::MAX;

/// An extension.
pub struct Extension(pub(crate) Arc<Whole>);

/// How an object is loaded. What is 0 has its default.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub struct Options {
    /// How long a run may take, in nanoseconds. 0: 10 ms. XK_FLEX_FOREVER: no deadline.
    pub deadline_ns: u64,
    /// Bytes that the heap has at most. 0: as many as the object declares.
    pub heap_bytes: u64,
    /// Bytes of the heap that are ready and unused. 0: 4 MiB.
    pub ready_bytes: u64,
}

impl Options {
    fn limits(self) -> Limits {
        let or = |value: u64, default: u64| if value == 0 { default } else { value };
        let default = Limits::default();
        Limits { most: or(self.heap_bytes, default.most), ready: or(self.ready_bytes, default.ready) }
    }
}

fn deadline(nanoseconds: u64) -> Option<Duration> {
    match nanoseconds {
        0 => Control::default().deadline,
        XK_FLEX_FOREVER => None,
        given => Some(Duration::from_nanos(given)),
    }
}

fn handle(whole: Whole) -> *mut Extension {
    Box::into_raw(Box::new(Extension(Arc::new(whole))))
}

/// The extension that `xk flex load` keeps under this name. Its heap is not mapped yet: call xk_flex_map() before you
/// follow a pointer. ENOENT: there is none.
#[no_mangle]
pub unsafe extern "C" fn xk_flex_open(name: *const c_char) -> *mut Extension {
    pointer(|| {
        // SAFETY: the caller gives a text.
        let name = unsafe { text(name, "name") }?;
        Ok(handle(Whole::kept(Kept::open(name).map_err(Failure::with(libc::ENOENT))?)))
    })
}

/// Loads the object file of an extension, rewritten as far as the verifier needs it, and gives its heap the first pages.
/// No program is attached yet. It lasts until xk_flex_close(), or until the process ends. If options is NULL, all have
/// their defaults. EADDRINUSE: something is mapped where its heap must be, maybe the heap of another extension.
#[no_mangle]
pub unsafe extern "C" fn xk_flex_load(path: *const c_char, options: *const Options) -> *mut Extension {
    pointer(|| {
        if path.is_null() {
            return Err(Failure::null("path"));
        }
        // SAFETY: the caller gives a text.
        let path = Path::new(OsStr::from_bytes(unsafe { CStr::from_ptr(path) }.to_bytes()));
        // SAFETY: the caller gives options, or NULL.
        let options = unsafe { options.as_ref() }.copied().unwrap_or_default();
        let control = Control { deadline: deadline(options.deadline_ns), ..Control::default() };
        Ok(handle(Whole::load(path, control, options.limits())?))
    })
}

/// Attaches the programs of an object that xk_flex_load() has loaded, by their sections; those of XDP to the network
/// interface of this name, which may be NULL if there are none. ENOEXEC: one cannot be attached; then none is.
#[no_mangle]
pub unsafe extern "C" fn xk_flex_attach(extension: *const Extension, interface: *const c_char) -> c_int {
    status(|| {
        // SAFETY: the caller gives an extension that is open.
        let own = unsafe { given(extension, "extension") }?.0.own("its programs are attached already")?;
        let number = match interface.is_null() {
            true => None,
            // SAFETY: the caller gives a text.
            false => Some(number_of(unsafe { CStr::from_ptr(interface) })?),
        };
        let mut links = locked(&own.links);
        if !links.is_empty() {
            return Err(Failure::new(libc::EBUSY, "its programs are attached already"));
        }
        *links = attach(&own.loaded.object, number)?;
        Ok(0)
    })
}

fn number_of(interface: &CStr) -> Result<c_int, Failure> {
    // SAFETY: it is a text.
    let number = unsafe { libc::if_nametoindex(interface.as_ptr()) };
    let none = || Failure::new(libc::ENOENT, format!("{}: no such network interface", interface.to_string_lossy()));
    c_int::try_from(number).ok().filter(|number| *number != 0).ok_or_else(none)
}

/// Closes an extension; NULL is nothing. If this process has loaded it, its programs are detached, its runs end, and it is
/// unloaded; one that `xk flex load` keeps stays. Pointers to its variables and into its heap are invalid then. If a lock
/// of its heap is held, the heap stays mapped until that is given back.
#[no_mangle]
pub unsafe extern "C" fn xk_flex_close(extension: *mut Extension) {
    status(|| {
        if extension.is_null() {
            return Ok(0);
        }
        // SAFETY: the caller gives what `handle` made, for the last time.
        let extension = unsafe { Box::from_raw(extension) };
        if let Source::Loaded(own) = &extension.0.source {
            own.detach();
        }
        Ok(0)
    });
}

/// The memory of a global variable of the extension, which its programs share, if it has this size in bytes. It is valid
/// until xk_flex_close(). Constants cannot be written. ENOENT: there is none of this name. EINVAL: it has another size.
#[no_mangle]
pub unsafe extern "C" fn xk_flex_variable(
    extension: *const Extension,
    name: *const c_char,
    size: usize,
) -> *mut c_void {
    pointer(|| {
        // SAFETY: the caller gives an extension that is open, and a text.
        let (extension, name) = unsafe { (given(extension, "extension")?, text(name, "name")?) };
        let variables = extension.0.variables()?;
        let place = variables.place(name).ok_or_else(|| {
            let names: Vec<&str> = variables.names().collect();
            Failure::new(libc::ENOENT, format!("{name}: no such variable: there are {}", names.join(", ")))
        })?;
        if place.bytes != size {
            return Err(Failure::new(libc::EINVAL, format!("{name} has {} bytes, and not {size}", place.bytes)));
        }
        Ok(place.address as *mut c_void)
    })
}

/// How long runs may take from now on, in nanoseconds, also those that are under way. 0: 10 ms. XK_FLEX_FOREVER: no
/// deadline. EOPNOTSUPP: no loop of the extension looks at the time, because the verifier accepts it as it is.
#[no_mangle]
pub unsafe extern "C" fn xk_flex_set_deadline(extension: *const Extension, nanoseconds: u64) -> c_int {
    status(|| {
        // SAFETY: the caller gives an extension that is open.
        match &unsafe { given(extension, "extension") }?.0.source {
            Source::Kept(kept) => {
                kept.set_deadline(deadline(nanoseconds)).map_err(Failure::with(libc::EOPNOTSUPP))?;
            }
            Source::Loaded(own) => own.tell(|control| control.deadline = deadline(nanoseconds))?,
        }
        Ok(0)
    })
}

/// Ends all runs of the extension at their next looks, also those that begin later, until it is called with false. Its
/// programs stay attached. EOPNOTSUPP: as for xk_flex_set_deadline().
#[no_mangle]
pub unsafe extern "C" fn xk_flex_terminate(extension: *const Extension, terminate: bool) -> c_int {
    status(|| {
        // SAFETY: the caller gives an extension that is open.
        match &unsafe { given(extension, "extension") }?.0.source {
            Source::Kept(kept) => kept.terminate(terminate).map_err(Failure::with(libc::EOPNOTSUPP))?,
            Source::Loaded(own) => own.tell(|control| control.terminate = terminate)?,
        }
        Ok(0)
    })
}
