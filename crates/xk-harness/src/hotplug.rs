//! Switches a CPU off and on while other work runs.

use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{anyhow, Context, Result};

const CPU1: &str = "/sys/devices/system/cpu/cpu1/online";
const EACH: Duration = Duration::from_millis(50);

/// Does `work` while the second CPU is switched off and on. Returns how often it was switched.
///
/// # Errors
/// The error of `work`, or of the kernel if it does not switch the CPU.
pub fn beside_hotplug<T>(work: impl FnOnce() -> Result<T>) -> Result<(T, u64)> {
    beside_hotplug_for(EACH, work)
}

/// Likewise, with a pause between switches: registering probes waits for each of them.
///
/// # Errors
/// As [`beside_hotplug`].
pub fn beside_hotplug_for<T>(online: Duration, work: impl FnOnce() -> Result<T>) -> Result<(T, u64)> {
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let switch = scope.spawn(|| -> Result<u64> {
            let mut times = 0;
            while !done.load(Ordering::Relaxed) {
                for (state, pause) in [("0", EACH), ("1", online)] {
                    fs::write(CPU1, state).context(CPU1)?;
                    std::thread::sleep(pause);
                }
                times += 1;
            }
            Ok(times)
        });
        let result = work();
        done.store(true, Ordering::Relaxed);
        let times = switch.join().map_err(|_| anyhow!("the thread that switches panicked"))?;
        Ok((result?, times?))
    })
}
