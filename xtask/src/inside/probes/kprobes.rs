//! Kprobes of the kernel's tracing.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;

use anyhow::{Context, Result};

const TRACING: &str = "/sys/kernel/tracing";
const OPTIMISATION: &str = "/proc/sys/debug/kprobes-optimization";

/// A group of kprobes that count. It ends with this value.
pub struct Kprobes {
    group: String,
    /// Numbers of those that the kernel accepted.
    pub accepted: Vec<usize>,
    /// How many it refused.
    pub refused: usize,
}

fn events(line: &str) -> std::io::Result<()> {
    fs::OpenOptions::new().append(true).open(format!("{TRACING}/kprobe_events"))?.write_all(line.as_bytes())
}

/// From now on, all kprobes are breakpoints.
///
/// # Errors
/// When the kernel does not do so.
pub fn switch_optimisation_off() -> Result<()> {
    fs::write(OPTIMISATION, "0").context(OPTIMISATION)
}

impl Kprobes {
    /// Registers and enables them, each by its own since the kernel refuses some, until there are enough.
    ///
    /// # Errors
    /// When the kernel has no such kprobes.
    pub fn new(group: &str, addresses: &[u64], enough: usize) -> Result<Self> {
        let mut all = Self { group: group.to_owned(), accepted: Vec::new(), refused: 0 };
        for (number, address) in addresses.iter().enumerate() {
            if all.accepted.len() == enough {
                break;
            }
            if events(&format!("p:{group}/p{number} {address:#x}\n")).is_err() {
                all.refused += 1;
            } else if fs::write(format!("{TRACING}/events/{group}/p{number}/enable"), "1").is_ok() {
                all.accepted.push(number);
            } else {
                events(&format!("-:{group}/p{number}\n")).context("a kprobe is not removed")?;
                all.refused += 1;
            }
        }
        Ok(all)
    }

    /// Executions of each accepted one: what it counted, and what it missed because another kprobe ran.
    ///
    /// # Errors
    /// When the kernel does not tell.
    pub fn executions(&self) -> Result<BTreeMap<usize, u64>> {
        let text = fs::read_to_string(format!("{TRACING}/kprobe_profile")).context("kprobe_profile")?;
        let mut all = BTreeMap::new();
        for line in text.lines() {
            let mut words = line.split_whitespace();
            let Some(number) = words.next().and_then(|name| name.strip_prefix('p')?.parse().ok()) else { continue };
            let counts = words.map(str::parse).collect::<Result<Vec<u64>, _>>().with_context(|| line.to_owned())?;
            all.insert(number, counts.iter().sum());
        }
        Ok(all)
    }
}

impl Drop for Kprobes {
    fn drop(&mut self) {
        _ = fs::write(format!("{TRACING}/events/{}/enable", self.group), "0");
        for number in &self.accepted {
            _ = events(&format!("-:{}/p{number}\n", self.group));
        }
    }
}
