//! A processor that is switched off and on while something else goes on.

use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{anyhow, Context, Result};

const CPU1: &str = "/sys/devices/system/cpu/cpu1/online";
const EACH: Duration = Duration::from_millis(50);

/// Does `work` while the second processor is switched off and on; how often it was.
///
/// # Errors
/// What `work` says, or the kernel when it does not switch.
pub fn beside_hotplug<T>(work: impl FnOnce() -> Result<T>) -> Result<(T, u64)> {
    beside_hotplug_for(EACH, work)
}

/// Likewise, with so much time between: who registers probes waits for each of them.
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
