//! Checks of the probes of xk.ko, inside a guest.

pub mod everywhere;
pub mod exact;
mod kprobes;
mod load;
pub mod soak;

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{ensure, Context, Result};
use serde::{Deserialize, Serialize};
use xk_runtime::{Device, ProbePlace};

use super::show;

/// Arguments of `inside probes`.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    #[command(subcommand)]
    check: Check,
}

#[derive(Debug, clap::Subcommand)]
enum Check {
    /// Probe every function
    Everywhere(everywhere::Arguments),
    /// Compare counts
    Exact(exact::Arguments),
    /// Probe for a long time
    Soak(soak::Arguments),
}

/// An instruction that the host has drawn. Distances are from `_printk`.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Drawn {
    name: String,
    distance: i64,
    window: u8,
    window_lead: u8,
    host: i16,
    host_window: u8,
    /// A kprobe may be there.
    kprobe: bool,
    /// An instruction outside of the window that is executed exactly as often.
    companion: Option<i64>,
}

impl Drawn {
    /// From what the host has found.
    pub fn new(name: String, distance: i64, place: ProbePlace, kprobe: bool, companion: Option<i64>) -> Self {
        let ProbePlace { window, window_lead, host, host_window, .. } = place;
        Self { name, distance, window, window_lead, host, host_window, kprobe, companion }
    }

    /// As xk.ko takes it.
    fn place(&self, anchor: u64, cookie: u64) -> ProbePlace {
        ProbePlace {
            address: self.address(anchor),
            cookie,
            window: self.window,
            window_lead: self.window_lead,
            host: self.host,
            host_window: self.host_window,
            ..ProbePlace::default()
        }
    }

    fn address(&self, anchor: u64) -> u64 {
        anchor.wrapping_add_signed(self.distance)
    }
}

fn read(file: &Path) -> Result<Vec<Drawn>> {
    let text = fs::read(file).with_context(|| file.display().to_string())?;
    Ok(serde_json::from_slice(&text)?)
}

/// Where the running kernel has `_printk`.
fn anchor() -> Result<u64> {
    let text = fs::read_to_string("/proc/kallsyms").context("/proc/kallsyms")?;
    let line = text.lines().find(|line| line.ends_with(" T _printk")).context("the kernel has no _printk")?;
    let address = u64::from_str_radix(line.split(' ').next().unwrap_or_default(), 16)?;
    ensure!(address != 0, "/proc/kallsyms shows no addresses");
    Ok(address)
}

/// Does what is asked for, and prints what came of it.
///
/// # Errors
/// Those of the check.
pub fn run(arguments: &Arguments) -> Result<()> {
    match &arguments.check {
        Check::Everywhere(arguments) => show(&everywhere::run(arguments)?),
        Check::Exact(arguments) => show(&exact::run(arguments)?),
        Check::Soak(arguments) => show(&soak::run(arguments)?),
    }
}

/// xk.ko comes.
fn load_module(xk: &Path) -> Result<Device> {
    command("insmod", &[&xk.display().to_string()])?;
    Ok(Device::open()?)
}

fn command(program: &str, arguments: &[&str]) -> Result<()> {
    let output = Command::new(program).args(arguments).output().with_context(|| program.to_owned())?;
    ensure!(output.status.success(), "{program} {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}
