//! The headers that a policy includes: ours, libbpf's, and the kernel's types as C.
//!
//! In: the types of a kernel (BTF). Out: a folder for the compiler, written once
//! for a kernel and kept.

use std::ffi::{c_char, c_void, CStr, CString};
use std::fs;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::ptr;

use libbpf_sys as sys;

use crate::Error;

/// The types of the running kernel.
pub const RUNNING_BTF: &str = "/sys/kernel/btf/vmlinux";

/// Our headers, by the names under which they are included.
const OURS: [(&str, &str); 21] = [
    ("xk.bpf.h", include_str!("../../../bpf/xk.bpf.h")),
    ("xk_probe.bpf.h", include_str!("../../../bpf/xk_probe.bpf.h")),
    ("xk_taken.bpf.h", include_str!("../../../bpf/xk_taken.bpf.h")),
    ("xk_flex.bpf.h", include_str!("../../../bpf/xk_flex.bpf.h")),
    ("xk_fault.bpf.h", include_str!("../../../bpf/xk_fault.bpf.h")),
    ("xk_heap.bpf.h", include_str!("../../../bpf/xk_heap.bpf.h")),
    ("xk_heap_debug.bpf.h", include_str!("../../../bpf/xk_heap_debug.bpf.h")),
    ("xk_lock.bpf.h", include_str!("../../../bpf/xk_lock.bpf.h")),
    ("xk_stream.bpf.h", include_str!("../../../bpf/xk_stream.bpf.h")),
    ("flex/base.h", include_str!("../../../bpf/flex/base.h")),
    ("flex/chain.h", include_str!("../../../bpf/flex/chain.h")),
    ("flex/hash.h", include_str!("../../../bpf/flex/hash.h")),
    ("flex/list.h", include_str!("../../../bpf/flex/list.h")),
    ("flex/lock.h", include_str!("../../../bpf/flex/lock.h")),
    ("flex/lru.h", include_str!("../../../bpf/flex/lru.h")),
    ("flex/radix.h", include_str!("../../../bpf/flex/radix.h")),
    ("flex/rbtree.h", include_str!("../../../bpf/flex/rbtree.h")),
    ("flex/ring.h", include_str!("../../../bpf/flex/ring.h")),
    ("flex/skiplist.h", include_str!("../../../bpf/flex/skiplist.h")),
    ("flex/sketch.h", include_str!("../../../bpf/flex/sketch.h")),
    ("flex/string.h", include_str!("../../../bpf/flex/string.h")),
];

/// A folder with everything that a policy includes.
#[derive(Debug, Clone)]
pub struct Headers {
    folder: PathBuf,
}

impl Headers {
    /// The headers for the kernel whose types are in `btf`, in a folder below `cache`
    /// that is named `key`: what is there already is used again.
    ///
    /// # Errors
    /// [`Error::Types`], [`Error::Io`].
    pub fn new(btf: &Path, cache: &Path, key: &str) -> Result<Self, Error> {
        let folder = cache.join("bpf").join(key);
        let library = folder.join("bpf");
        for subfolder in [&library, &folder.join("flex")] {
            fs::create_dir_all(subfolder).map_err(Error::io(subfolder))?;
        }
        for (name, text) in OURS {
            write(&folder.join(name), text)?;
        }
        for (name, text) in sys::API_HEADERS {
            write(&library.join(name), text)?;
        }
        let types = folder.join("vmlinux.h");
        if !types.exists() {
            write(&types, &types_of(btf)?)?;
        }
        Ok(Self { folder })
    }

    /// The folder that a compiler searches.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }
}

/// Writes a file as a whole, unless it is what it should be.
fn write(path: &Path, text: &str) -> Result<(), Error> {
    if fs::read(path).is_ok_and(|there| there == text.as_bytes()) {
        return Ok(());
    }
    let folder = path.parent().unwrap_or(Path::new("."));
    let mut file = tempfile::NamedTempFile::new_in(folder).map_err(Error::io(folder))?;
    file.write_all(text.as_bytes()).map_err(Error::io(path))?;
    file.persist(path).map_err(|error| Error::Io { path: path.to_owned(), source: error.error })?;
    Ok(())
}

/// Every type, as C that compiles, with relocations for the loader.
fn types_of(btf: &Path) -> Result<String, Error> {
    let wrong = |reason: &str| Error::Types { path: btf.to_owned(), reason: reason.to_owned() };
    let path = CString::new(btf.as_os_str().as_bytes()).map_err(|_| wrong("its name holds a NUL"))?;
    let mut text = String::from(
        "#ifndef __VMLINUX_H__\n#define __VMLINUX_H__\n\n\
         #pragma clang attribute push (__attribute__((preserve_access_index)), apply_to = record)\n\n",
    );
    // SAFETY: the path is NUL-terminated; what is returned is checked, and freed below.
    let types = unsafe { sys::btf__parse(path.as_ptr(), ptr::null_mut()) };
    if types.is_null() {
        return Err(wrong(&std::io::Error::last_os_error().to_string()));
    }
    let mut lines = Lines { text: String::new(), cut: false };
    let context = ptr::from_mut(&mut lines).cast::<c_void>();
    // SAFETY: `types` is valid; the callback has the type that libbpf expects here, and
    // `context` outlives the dumper, which is freed before `lines` is used again.
    let result = unsafe { dump(types, context) };
    // SAFETY: `types` is valid and not used any longer.
    unsafe { sys::btf__free(types) };
    result.map_err(wrong)?;
    if lines.cut {
        return Err(wrong("a line of them is longer than is sensible"));
    }
    text.push_str(&lines.text);
    text.push_str("#pragma clang attribute pop\n\n#endif\n");
    Ok(text)
}

struct Lines {
    text: String,
    cut: bool,
}

/// # Safety
/// `types` and `context` (a `Lines`) must be valid during the call.
unsafe fn dump(types: *mut sys::btf, context: *mut c_void) -> Result<(), &'static str> {
    // SAFETY: `types` is valid.
    let dumper = unsafe { sys::btf_dump__new(types, Some(line), context, ptr::null()) };
    if dumper.is_null() {
        return Err("there is no memory to print them");
    }
    // SAFETY: as above.
    let number = unsafe { sys::btf__type_cnt(types) };
    let mut result = Ok(());
    for id in 1..number {
        // SAFETY: `dumper` is valid, `id` is that of a type.
        if unsafe { sys::btf_dump__dump_type(dumper, id) } < 0 {
            result = Err("one of them cannot be printed");
            break;
        }
    }
    // SAFETY: `dumper` is valid and not used any longer.
    unsafe { sys::btf_dump__free(dumper) };
    result
}

extern "C" {
    fn vsnprintf(buffer: *mut c_char, size: usize, format: *const c_char, arguments: *mut sys::__va_list_tag) -> i32;
}

/// What libbpf prints, in pieces.
unsafe extern "C" fn line(context: *mut c_void, format: *const c_char, arguments: *mut sys::__va_list_tag) {
    let mut buffer = [0 as c_char; 4096];
    // SAFETY: libbpf passes a format with its arguments; the buffer is as long as is said.
    let len = unsafe { vsnprintf(buffer.as_mut_ptr(), buffer.len(), format, arguments) };
    // SAFETY: vsnprintf terminates what it writes; the context is our `Lines`, see `types_of`.
    let (piece, lines) = unsafe { (CStr::from_ptr(buffer.as_ptr()), &mut *context.cast::<Lines>()) };
    lines.cut |= usize::try_from(len).map_or(true, |len| len >= buffer.len());
    lines.text.push_str(&piece.to_string_lossy());
}
