//! Others who change the kernel's code meanwhile: modules, the function tracer, probes.

use std::fs;
use std::io::Write;
use std::time::Instant;

use anyhow::{ensure, Context, Result};

use super::{rmmod, Soak, PAUSE};

const TRACING: &str = "/sys/kernel/tracing";
const GROUP: &str = "xk_soak";
/// At the start and at the end of functions that have sites, and scopes.
const PROBES: [(&str, &str); 6] = [
    ("p", "xk_atomic_balance"),
    ("p", "xk_atomic_descend"),
    ("r", "xk_atomic_object"),
    ("r", "xk_atomic_sleep"),
    ("p", "xk_atomic_recurse"),
    ("r", "xk_atomic_agree"),
];

/// Loads and removes an unrelated module.
pub(super) fn modules(soak: &Soak<'_>) -> Result<()> {
    while !soak.over() {
        let began = Instant::now();
        soak.insmod(&soak.arguments.stranger)?;
        soak.sleep(soak.pause());
        rmmod(&soak.arguments.stranger)?;
        soak.sleep(soak.pause() * 4);
        soak.rest(began);
    }
    Ok(())
}

/// The function tracer, on and off, on functions that have sites, and on others.
pub(super) fn tracer(soak: &Soak<'_>) -> Result<()> {
    let write = |file: &str, text: &str| fs::write(format!("{TRACING}/{file}"), text).context(file.to_owned());
    while !soak.over() {
        let began = Instant::now();
        // The module may be away.
        let _ = write("set_ftrace_filter", "vfs_read\nxk_atomic_*\n");
        for tracer in ["function", "nop"] {
            retrying(soak, || write("current_tracer", tracer))?;
            soak.sleep(soak.pause() * 3);
        }
        write("set_ftrace_filter", "")?;
        soak.report().tracers += 1;
        soak.rest(began);
    }
    write("trace", "")
}

/// The kernel has no memory for a moment, or the file is being changed.
fn retrying(soak: &Soak<'_>, mut work: impl FnMut() -> Result<()>) -> Result<()> {
    super::retry(PAUSE * 20 * soak.arguments.slowness, &mut work)
}

/// Probes of another user, one after the other.
pub(super) fn probes(soak: &Soak<'_>) -> Result<()> {
    let events = |line: &str| -> Result<()> {
        let mut file = fs::OpenOptions::new().append(true).open(format!("{TRACING}/kprobe_events"))?;
        file.write_all(line.as_bytes()).with_context(|| line.to_owned())
    };
    let enable = |name: &str, state: &str| fs::write(format!("{TRACING}/events/{GROUP}/{name}/enable"), state);
    for (kind, function) in PROBES.iter().cycle() {
        if soak.over() {
            break;
        }
        let began = Instant::now();
        // Beside a module that goes, it may be refused.
        if events(&format!("{kind}:{GROUP}/{function} xk_atomic:{function}")).is_err() {
            soak.sleep(soak.pause());
            continue;
        }
        let enabled = enable(function, "1").is_ok();
        soak.sleep(soak.pause());
        let disabled = enable(function, "0").is_ok();
        retrying(soak, || events(&format!("-:{GROUP}/{function}")))?;
        if enabled && disabled {
            soak.report().foreign_probes += 1;
        }
        soak.rest(began);
    }
    let left = fs::read_to_string(format!("{TRACING}/kprobe_events"))?;
    ensure!(left.trim().is_empty(), "probes are left: {left}");
    Ok(())
}
