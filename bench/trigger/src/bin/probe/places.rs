//! Where to probe, as the files say that the host has written: addresses as distances from
//! `_printk`, with the bytes that a jump may replace.

use std::fs;
use std::path::Path;

use anyhow::{ensure, Context, Result};
use xk_bench_trigger::found;
use xk_runtime::ProbePlace;

/// What a kprobe at an instruction is, by the kernel's rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A jump.
    Jump,
    /// A breakpoint at a branch or call, which the handler emulates.
    Emulated,
    /// A breakpoint whose instruction is stepped in a copy, by another exception.
    Stepped,
    /// Another: not measured, or the beginning of the function's body.
    Other,
}

/// An instruction of the function.
#[derive(Debug, Clone)]
pub struct Place {
    pub kind: Kind,
    pub probe: ProbePlace,
    /// From the first byte of the function.
    pub offset: u32,
    /// It, for people.
    pub text: String,
}

/// The instructions of a function that jumps of xk.ko reach, by address.
#[derive(Debug)]
pub struct Places {
    pub function: String,
    pub all: Vec<Place>,
}

impl Places {
    /// Reads a file: the name of the function, then lines of kind, place, offset, text.
    ///
    /// # Errors
    /// When it is another kind of file.
    pub fn read(path: &Path) -> Result<Self> {
        let text = fs::read_to_string(path).with_context(|| path.display().to_string())?;
        let anchor = anchor()?;
        let mut lines = text.lines();
        let function = lines.next().context("no function")?.to_owned();
        let all = lines.map(|line| Self::place(line, anchor).with_context(|| line.to_owned()));
        Ok(Self { function, all: all.collect::<Result<_>>()? })
    }

    fn place(line: &str, anchor: u64) -> Result<Place> {
        let mut words = line.splitn(4, ' ');
        let mut next = || words.next().context("a word is missing");
        let kind = match next()? {
            "jump" => Kind::Jump,
            "emulated" => Kind::Emulated,
            "stepped" => Kind::Stepped,
            _ => Kind::Other,
        };
        let probe = found::place(next()?, anchor)?;
        Ok(Place { kind, probe, offset: next()?.parse()?, text: next()?.to_owned() })
    }
}

/// An instruction of the kernel.
#[derive(Debug, Clone, Copy)]
pub struct Site {
    pub probe: ProbePlace,
    /// Kprobes take it, and emulate it wrongly.
    pub harmful: bool,
}

/// Reads a file with a line of place and harm for each instruction.
///
/// # Errors
/// When it is another kind of file.
pub fn sites(path: &Path) -> Result<Vec<Site>> {
    let text = fs::read_to_string(path).with_context(|| path.display().to_string())?;
    let anchor = anchor()?;
    let site = |line: &str| -> Result<Site> {
        let (place, harmful) = line.split_once(' ').with_context(|| format!("not a site: {line}"))?;
        Ok(Site { probe: found::place(place, anchor)?, harmful: harmful != "0" })
    };
    text.lines().map(site).collect()
}

/// Where the running kernel has `_printk`.
fn anchor() -> Result<u64> {
    let text = fs::read_to_string("/proc/kallsyms").context("/proc/kallsyms")?;
    let line = text.lines().find(|line| line.ends_with(" T _printk")).context("the kernel has no _printk")?;
    let address = u64::from_str_radix(line.split(' ').next().unwrap_or_default(), 16)?;
    ensure!(address != 0, "/proc/kallsyms shows no addresses");
    Ok(address)
}
