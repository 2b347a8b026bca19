//! `xk top`: samples tunes: how often each site is reached, which values policies set, what was missed, and the estimated
//! cost. Also samples probes: how often their instructions are executed.
//!
//! In: two samples of the kernel, and the time between them. Out: text, once for each sample (`--batch`), or on a terminal,
//! where it replaces the text before.

pub(super) mod cost;
mod sampling;
mod screen;

use std::time::Instant;

use xk_kernel::KernelId;
use xk_runtime::{Device, Error as RuntimeError, Probe, ProbeStatus, SiteStatus, TuneStatus};
use xk_store::{Folders, Tables};

use crate::exit::Result;
use crate::output::{count, Columns};
use crate::sites::{histogram, place, probe_word};

pub(super) use sampling::Sampling;

/// Arguments of `xk top`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
q quits. HITS counts the executions of a site since the tune was loaded, PER S is the rate since the last
sample; sites that are reached by detours are not counted. MISSED executions used the default. VALUES
counts the values that a policy set. INSNS is an estimate: the instructions that one hit costs, as bench
trigger measured them for updates of that kind (docs/results.md).")]
pub struct Args {
    #[command(flatten)]
    sampling: Sampling,
}

/// A sample of the kernel, and its time.
struct Look {
    at: Instant,
    tunes: Vec<TuneStatus>,
    probes: Vec<ProbeStatus>,
    loaded: bool,
}

impl Look {
    fn take() -> Result<Self> {
        let (tunes, probes, loaded) = match Device::open_to_read() {
            Ok(device) => (device.tunes()?, device.probes()?, true),
            Err(RuntimeError::NotLoaded) => (Vec::new(), Vec::new(), false),
            Err(error) => return Err(error.into()),
        };
        Ok(Self { at: Instant::now(), tunes, probes, loaded })
    }
}

/// Shows samples until the user quits.
pub fn run(args: &Args) -> Result {
    let tables = Tables::read(&Folders::from_environment(), &KernelId::live()?.build_id)?;
    args.sampling.show(Look::take, |before, now| text(before, now, &tables))
}

/// The text of a sample.
fn text(before: &Look, now: &Look, tables: &Tables) -> String {
    if !now.loaded {
        return "xk.ko is not loaded: every constant has its default\n".into();
    }
    let seconds = now.at.duration_since(before.at).as_secs_f64();
    let mut text = String::new();
    if now.tunes.is_empty() {
        text += "nothing is tuned: every constant has its default\n";
    } else {
        text += &tunes(before, now, tables, seconds);
    }
    if !now.probes.is_empty() {
        text += &probes(before, now, seconds);
    }
    text
}

fn tunes(before: &Look, now: &Look, tables: &Tables, seconds: f64) -> String {
    let mut columns = Columns::default();
    columns.row(["CONSTANT", "VALUE", "SITE", "BY", "HITS", "PER S", "MISSED", "INSNS", "VALUES"].map(String::from));
    for tune in &now.tunes {
        for (index, site) in tune.sites.iter().enumerate() {
            let first = index == 0;
            let earlier = earlier(before, tune, index);
            let did = tune.policy.as_ref().and_then(|policy| policy.sites.get(index));
            columns.row([
                if first { tables.title_of(tune).to_owned() } else { String::new() },
                if first { value(tune) } else { String::new() },
                place(site),
                probe_word(site.probe).to_owned(),
                if counted(site) { site.hits.to_string() } else { "-".into() },
                rate(site, earlier, seconds),
                site.missed.to_string(),
                cost::estimate(tune, site, tables.span(&tune.name, index)).map_or("-".into(), |n| format!("~{n}")),
                did.map_or(String::new(), histogram),
            ]);
        }
    }
    format!(
        "{}, {seconds:.2} s since the last sample\n{}{}\n",
        count(now.tunes.len(), "tune"),
        columns.lines(""),
        cost::SOURCE
    )
}

fn probes(before: &Look, now: &Look, seconds: f64) -> String {
    let mut columns = Columns::default();
    columns.row(["PROBES", "PLACES", "HITS", "PER S", "SKIPPED", "PROCESS"].map(String::from));
    for probe in &now.probes {
        let earlier = before.probes.iter().find(|known| known.id == probe.id && known.name == probe.name);
        columns.row([
            probe.name.clone(),
            probe.places.to_string(),
            probe.hits.to_string(),
            earlier.map_or("-".into(), |earlier| per_second(probe.hits, earlier.hits, seconds)),
            probe.skipped.to_string(),
            probe.owner_pid.to_string(),
        ]);
    }
    format!("{}, {seconds:.2} s since the last sample\n{}", count(now.probes.len(), "attachment"), columns.lines(""))
}

/// The same site in the sample before.
fn earlier<'a>(before: &'a Look, tune: &TuneStatus, index: usize) -> Option<&'a SiteStatus> {
    let known = before.tunes.iter().find(|known| known.id == tune.id && known.name == tune.name)?;
    known.sites.get(index)
}

/// Whether every execution is counted.
fn counted(site: &SiteStatus) -> bool {
    site.counted && site.probe != Probe::Data && site.probe != Probe::Drifted
}

fn value(tune: &TuneStatus) -> String {
    match &tune.policy {
        None => tune.value.to_string(),
        Some(_) => "policy".into(),
    }
}

/// Hits per second; `-` for a site that the sample before does not have.
fn rate(site: &SiteStatus, earlier: Option<&SiteStatus>, seconds: f64) -> String {
    match earlier {
        Some(earlier) if counted(site) => per_second(site.hits, earlier.hits, seconds),
        _ => "-".into(),
    }
}

/// A rate, as text.
pub(super) fn per_second(hits: u64, earlier: u64, seconds: f64) -> String {
    // The counts of a module that was loaded again begin at 0.
    format!("{:.0}", hits.saturating_sub(earlier) as f64 / seconds)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::time::Duration;

    use xk_runtime::{PolicyStatus, SitePolicy};

    use super::*;
    use crate::fixture;

    fn look(at: Instant, tunes: Vec<TuneStatus>) -> Look {
        Look { at, tunes, probes: Vec::new(), loaded: true }
    }

    #[test]
    fn rates_of_probes() {
        let tables = fixture::tables(vec![]);
        let probe = ProbeStatus {
            id: 3,
            name: "count vfs_write+0x5b".into(),
            program: None,
            programs: 1,
            places: 2,
            jumps: 2,
            owner_pid: 812,
            hits: 1500,
            skipped: 0,
            age: Duration::from_secs(90),
            memory: 128,
            lease: None,
            kept: false,
        };
        let start = Instant::now();
        let before = Look { probes: vec![ProbeStatus { hits: 500, ..probe.clone() }], ..look(start, vec![]) };
        let second = ProbeStatus { id: 4, name: "new".into(), ..probe.clone() };
        let now = Look { probes: vec![probe, second], ..look(start + Duration::from_secs(4), vec![]) };
        fixture::golden("top_probes.txt", &text(&before, &now, &tables));
    }

    #[test]
    fn golden() {
        let tables = fixture::tables(vec![fixture::table()]);
        let mut decided = fixture::tune();
        (decided.id, decided.name) = (2, "net/ipv4/tcp_cubic.c:L96:16000:0".into());
        let mut histogram = vec![0; 64];
        (histogram[4], histogram[7]) = (12, 100);
        let did = SitePolicy {
            runs: 112,
            chosen: 112,
            refused: 0,
            skipped: 0,
            reused: 0,
            unseen: 0,
            last: Some(100),
            histogram,
        };
        decided.sites[0].missed = 3;
        decided.policy = Some(PolicyStatus { program: 7, links: 0, sites: vec![did] });
        let mut second = decided.sites[0].clone();
        (second.probe, second.counted, second.offset) = (Probe::Detour, false, 0x80);
        let mut plain = fixture::tune();
        plain.sites.push(second);
        let start = Instant::now();
        let before = look(start, vec![plain.clone()]);
        plain.sites[0].hits += 301;
        let now = look(start + Duration::from_millis(2000), vec![plain, decided]);
        fixture::golden("top.txt", &text(&before, &now, &tables));
        let empty = look(start, vec![]);
        assert!(text(&empty, &empty, &tables).starts_with("nothing is tuned"));
        let absent = Look { loaded: false, ..look(start, vec![]) };
        assert!(text(&empty, &absent, &tables).starts_with("xk.ko is not loaded"));
    }
}
