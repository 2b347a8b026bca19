//! Why a table was not loaded.

use std::fmt;

use xk_runtime::Error as RuntimeError;

use crate::place::about;

/// `xk.ko` did not load the table of a constant.
#[derive(Debug)]
pub struct LoadError {
    /// How messages name the constant.
    pub title: String,
    /// Why.
    pub error: RuntimeError,
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&about(&self.title, &self.error))?;
        match self.error {
            RuntimeError::Drift(_) => f.write_str(
                ": the running code is not the code that was analysed; if no tracer or livepatch is active in that \
                 function, run `xk build` again for this kernel",
            ),
            _ => Ok(()),
        }
    }
}

impl std::error::Error for LoadError {}
