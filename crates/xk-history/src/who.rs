//! Who runs this process.

use std::fs;

use serde::{Deserialize, Serialize};

/// What `/proc/self/loginuid` contains if nobody has logged in.
const NOBODY: u32 = u32::MAX;

/// A user and a process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Who {
    /// The name of the user who logged in, else of the user of the process.
    pub user: String,
    /// The number of this user.
    pub uid: u32,
    /// The process.
    pub pid: u32,
}

impl Who {
    /// The caller. The kernel keeps who logged in through `sudo` and `su`.
    pub(crate) fn caller() -> Self {
        let login = fs::read_to_string("/proc/self/loginuid").ok().and_then(|text| text.trim().parse().ok());
        let uid = login.filter(|uid| *uid != NOBODY).unwrap_or_else(uzers::get_current_uid);
        let name = uzers::get_user_by_uid(uid).map(|user| user.name().to_string_lossy().into_owned());
        Self { user: name.unwrap_or_else(|| uid.to_string()), uid, pid: std::process::id() }
    }
}
