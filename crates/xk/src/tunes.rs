//! Tunes in force, and how the command names them, their sites and their owners.

use xk_runtime::{Device, Error as RuntimeError, Probe, SiteStatus, TuneStatus};
use xk_table::ConstRef;

use crate::context::Tables;
use crate::exit::Result;

/// The name of a constant for people.
pub(crate) fn title(constant: &ConstRef) -> &str {
    constant.name.as_deref().unwrap_or(&constant.id)
}

/// The name of the constant of a tune for people.
pub(crate) fn title_of<'a>(tune: &'a TuneStatus, tables: &'a Tables) -> &'a str {
    tables.alias(&tune.name).unwrap_or(&tune.name)
}

/// Whether a tune is of this constant. A long ID is known to the kernel by its alias.
pub(crate) fn is_tune_of(tune: &TuneStatus, constant: &ConstRef) -> bool {
    tune.name == constant.id || constant.name.as_deref() == Some(&tune.name)
}

/// The device; `None` when xk.ko is not loaded, and so nothing is tuned.
pub(crate) fn device_if_loaded() -> Result<Option<Device>> {
    if_loaded(Device::open())
}

/// As [`device_if_loaded`], but only to read.
pub(crate) fn device_to_read() -> Result<Option<Device>> {
    if_loaded(Device::open_to_read())
}

fn if_loaded(opened: std::result::Result<Device, RuntimeError>) -> Result<Option<Device>> {
    match opened {
        Ok(device) => Ok(Some(device)),
        Err(RuntimeError::NotLoaded) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// How control reaches a site.
pub(crate) fn probe_word(probe: Probe) -> &'static str {
    match probe {
        Probe::Jump => "jump",
        Probe::Int3 => "breakpoint",
        Probe::Detour => "detour",
        Probe::Patch => "patch",
        Probe::Disarmed => "DISARMED",
        Probe::Waiting => "waiting",
        Probe::Bypassed => "BYPASSED",
        Probe::Broken => "BROKEN",
        Probe::Data => "data",
        Probe::Drifted => "DRIFTED",
        Probe::Unknown => "unknown",
    }
}

/// Why a site does not have the backend that its tune prefers.
pub(crate) fn no_backend(site: &SiteStatus) -> Option<String> {
    let wanted = if site.probe == Probe::Detour { "patch" } else { "detour" };
    site.note.as_ref().map(|reason| format!("no {wanted}: {reason}"))
}

/// The process that owns a tune.
pub(crate) fn owner(tune: &TuneStatus) -> String {
    let process = match std::fs::read_to_string(format!("/proc/{}/comm", tune.owner_pid)) {
        Ok(name) if !tune.detached => format!("process {} ({})", tune.owner_pid, name.trim()),
        _ => format!("process {}", tune.owner_pid),
    };
    if tune.detached {
        format!("detached, loaded by {process}")
    } else {
        format!("held by {process}")
    }
}
