//! What failed: a code for the caller, and a message for each thread. No panic leaves a function.

use std::cell::RefCell;
use std::ffi::{c_char, c_int, CStr, CString};
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::ptr::null_mut;

use xk_flex::Error;

/// Why a function fails.
#[derive(Debug)]
pub struct Failure {
    /// As in errno.h.
    code: c_int,
    message: String,
}

impl Failure {
    pub fn new(code: c_int, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }

    /// The same message, with a code that says more.
    pub fn with(code: c_int) -> impl Fn(Error) -> Self {
        move |error| match Self::from(error) {
            taken if taken.code == libc::EADDRINUSE => taken,
            other => Self { code, ..other },
        }
    }

    pub fn null(argument: &str) -> Self {
        Self::new(libc::EINVAL, format!("{argument} is NULL"))
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let code = match &error {
            Error::Heap(_) => libc::ENOMEM,
            Error::Taken { .. } => libc::EADDRINUSE,
            Error::Control(_) | Error::Kept { .. } => libc::EIO,
            Error::Io { source, .. } => source.raw_os_error().unwrap_or(libc::EIO),
            _ => libc::ENOEXEC,
        };
        Self::new(code, error.to_string())
    }
}

thread_local!(static LAST: RefCell<CString> = RefCell::default());

/// What happened when a function of this library failed last in this thread; "" if none has. It is valid until the next
/// one fails in this thread. Never NULL.
#[no_mangle]
pub extern "C" fn xk_flex_error() -> *const c_char {
    // While the thread ends, there is no message any more.
    LAST.try_with(|last| last.borrow().as_ptr()).unwrap_or(c"".as_ptr())
}

/// Does it, and notes what fails.
fn tried<T>(work: impl FnOnce() -> Result<T, Failure>) -> Result<T, c_int> {
    let done = catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|_| {
        Err(Failure::new(libc::ENOTRECOVERABLE, "a fault of libxk_flex: its message is in the standard error output"))
    });
    done.map_err(|failure| {
        let text = failure.message.replace('\0', " ");
        // While the thread ends, nobody can read it any more.
        _ = LAST.try_with(|last| last.replace(CString::new(text).unwrap_or_default()));
        // SAFETY: it is the errno of this thread.
        unsafe { *libc::__errno_location() = failure.code };
        failure.code
    })
}

/// The result of a function that returns int.
pub fn status(work: impl FnOnce() -> Result<c_int, Failure>) -> c_int {
    tried(work).unwrap_or_else(|code| -code)
}

/// The result of a function that returns a pointer.
pub fn pointer<T>(work: impl FnOnce() -> Result<*mut T, Failure>) -> *mut T {
    tried(work).unwrap_or(null_mut())
}

/// What a pointer of the caller points to.
///
/// # Safety
/// It is NULL, or points to one as long as it is used.
pub unsafe fn given<'a, T>(pointer: *const T, argument: &str) -> Result<&'a T, Failure> {
    // SAFETY: the caller promises it.
    unsafe { pointer.as_ref() }.ok_or_else(|| Failure::null(argument))
}

/// A text of the caller.
///
/// # Safety
/// It is NULL, or ends with a NUL.
pub unsafe fn text<'a>(pointer: *const c_char, argument: &str) -> Result<&'a str, Failure> {
    if pointer.is_null() {
        return Err(Failure::null(argument));
    }
    // SAFETY: the caller promises it.
    let bytes = unsafe { CStr::from_ptr(pointer) };
    bytes.to_str().map_err(|_| Failure::new(libc::EINVAL, format!("{argument} is no text in UTF-8")))
}

/// Writes a result.
///
/// # Safety
/// The pointer is NULL, or there is room for one.
pub unsafe fn put<T>(pointer: *mut T, argument: &str, value: T) -> Result<(), Failure> {
    if pointer.is_null() {
        return Err(Failure::null(argument));
    }
    // SAFETY: the caller promises it.
    unsafe { pointer.write(value) };
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_a_code() {
        assert_eq!(status(|| panic!("on purpose")), -libc::ENOTRECOVERABLE);
        // SAFETY: it ends with a NUL.
        let said = unsafe { text(xk_flex_error(), "it") };
        assert!(said.is_ok_and(|said| said.contains("fault of libxk_flex")));
        assert!(pointer::<u8>(|| panic!("on purpose")).is_null());
        assert_eq!(std::io::Error::last_os_error().raw_os_error(), Some(libc::ENOTRECOVERABLE));
    }
}
