//! A hundred sites (or so many) that are armed, changed and disarmed; in some rounds their module goes and comes back meanwhile.

use std::path::Path;
use std::time::Instant;

use anyhow::{ensure, Context, Result};
use xk_harness::several::{check, fill, DEFAULT};
use xk_harness::{empty_table, Flipper};
use xk_runtime::{Backend, Device, Mode, Probe};
use xk_table::{Mode as Needed, ScopeTable};

use super::{rmmod, Soak};

const NAME: &str = "SOAK_HUNDRED";
const BACKENDS: [Backend; 2] = [Backend::Detour, Backend::Patch];
/// In one round of so many the module goes.
const RELOAD: u64 = 6;

/// A constant with so many sites.
pub(super) fn table(target: &Path, sites: usize) -> Result<ScopeTable> {
    let mut table = empty_table(NAME, DEFAULT, Needed::Global);
    fill(&mut table, target, sites)?;
    Ok(table)
}

/// Round after round until the epoch is over.
pub(super) fn run(soak: &Soak<'_>) -> Result<()> {
    let table = table(&soak.arguments.target, soak.arguments.sites)?;
    for number in 0.. {
        if soak.over() {
            break;
        }
        round(soak, &table, number).with_context(|| format!("arming, round {number}"))?;
        soak.report().arms += 1;
    }
    Ok(())
}

fn round(soak: &Soak<'_>, table: &ScopeTable, number: u64) -> Result<()> {
    let start = Instant::now();
    let backend = BACKENDS[(number % 2) as usize];
    let value = 40 + (number % 50) as i64;
    let load = || Flipper::load_tables(std::slice::from_ref(table), backend);
    let flipper = soak.faults.attempt(load, || nothing_is_left(table)).context("load")?;
    let change = || Ok(flipper.to(value, Mode::Global, soak.timeout())?);
    soak.faults.attempt(change, || check(table, DEFAULT)).context("change")?;
    check(table, value)?;
    if number % RELOAD == 1 {
        soak.faults.quietly(|| {
            rmmod(&soak.arguments.target)?;
            soak.insmod(&soak.arguments.target)?;
            check(table, value).with_context(|| format!("in the module that came back{}", without_the_value()))
        })??;
    }
    soak.unload(&flipper, Mode::Global).context("unload")?;
    eprintln!("soak: {} sites by {backend:?}: {:.1} s", table.spans.len(), start.elapsed().as_secs_f64());
    check(table, DEFAULT)
}

/// The sites that run with the default, and why: what the kernel says of them.
fn without_the_value() -> String {
    let tunes = match Device::open_to_read().and_then(|device| device.tunes()) {
        Ok(tunes) => tunes,
        Err(error) => return format!(" (the state of its sites cannot be read: {error})"),
    };
    let sites = tunes.iter().filter(|tune| tune.name.contains(NAME)).flat_map(|tune| &tune.sites);
    let unarmed = sites.filter_map(|site| {
        let reason = site.reason.as_ref().filter(|_| !is_reached(site.probe))?;
        Some(format!("; {}+{:#x}: {reason}", site.symbol, site.offset))
    });
    unarmed.collect()
}

fn is_reached(probe: Probe) -> bool {
    matches!(probe, Probe::Jump | Probe::Int3 | Probe::Detour | Probe::Patch)
}

/// A load that failed has changed nothing.
fn nothing_is_left(table: &ScopeTable) -> Result<()> {
    let tunes = Device::open_to_read()?.tunes()?;
    ensure!(!tunes.iter().any(|tune| tune.name.contains(NAME)), "a tune is left: {tunes:?}");
    check(table, DEFAULT)
}
