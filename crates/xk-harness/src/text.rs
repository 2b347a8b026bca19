//! Compares code with an earlier state, byte for byte.

use std::time::{Duration, Instant};

use anyhow::{anyhow, Context, Result};
use xk_kernel::Image;
use xk_runtime::AddressOf;
use xk_table::Function;

use crate::family::Loaded;

/// Time in which the kernel reverts what it changes under load, such as jump labels.
const CALM: Duration = Duration::from_secs(60);
/// Differences that are listed one by one.
const TOLD: usize = 20;

/// All text of vmlinux, and some functions, with their addresses.
#[derive(Debug)]
pub struct Snapshot(Vec<(u64, Vec<u8>)>);

impl Snapshot {
    /// The current state.
    ///
    /// # Errors
    /// When it cannot be read, or a function's module is not loaded.
    pub fn of(functions: &[&Function]) -> Result<Self> {
        let image = Image::live()?;
        let range = image.text_range();
        let mut text = vec![(range.start, image.read(range.start, (range.end - range.start) as usize)?)];
        for function in functions {
            let address = Loaded.address(function).map_err(|e| anyhow!(e))?.context("its module is not loaded")?;
            text.push((address, image.read(address, function.bytes.len() / 2)?));
        }
        Ok(Self(text))
    }

    /// Its size in bytes.
    #[must_use]
    pub fn size(&self) -> usize {
        self.0.iter().map(|(_, bytes)| bytes.len()).sum()
    }

    /// Where a later snapshot differs, by symbol.
    fn differences(&self, later: &Self) -> Result<Vec<String>> {
        let image = Image::live()?;
        let mut different = Vec::new();
        for ((start, old), (_, new)) in self.0.iter().zip(&later.0) {
            for at in (0..old.len()).filter(|&at| old.get(at) != new.get(at)).take(TOLD) {
                let address = start + at as u64;
                let place = match image.text_symbol_at(address) {
                    Some(symbol) => format!("{}+{:#x}", symbol.name, address - symbol.address),
                    None => format!("{address:#x}"),
                };
                different.push(format!("{place}: {:02x} was {:02x}", new[at], old[at]));
            }
        }
        Ok(different)
    }
}

/// What still differs after the kernel had time to revert its own changes.
///
/// # Errors
/// As [`Snapshot::of`].
pub fn lasting_differences(before: &Snapshot, functions: &[&Function]) -> Result<Vec<String>> {
    let start = Instant::now();
    loop {
        let different = before.differences(&Snapshot::of(functions)?)?;
        if different.is_empty() || start.elapsed() > CALM {
            return Ok(different);
        }
        std::thread::sleep(Duration::from_secs(1));
    }
}

/// Where functions of modules differ from their files, apart from what loading changes.
///
/// # Errors
/// When they cannot be read, or their module is not loaded.
pub fn altered(functions: &[Function]) -> Result<Vec<String>> {
    let image = Image::live()?;
    let mut different = Vec::new();
    for function in functions {
        let address = Loaded.address(function).map_err(|e| anyhow!(e))?.context("its module is not loaded")?;
        let [file, mask] = [function.text(), function.text_mask()].map(|bytes| bytes.map_err(|e| anyhow!(e)));
        let (file, mask) = (file?, mask?);
        let running = image.read(address, file.len())?;
        for (at, ((new, old), mask)) in running.into_iter().zip(file).zip(mask).enumerate() {
            if (new ^ old) & mask != 0 {
                different.push(format!("{}+{at:#x}: {new:02x} was {old:02x}", function.symbol));
            }
        }
    }
    Ok(different)
}
