//! All usable constants at once, each with the value that it has anyway: nothing may change.
//!
//! In: the outcomes, and their tables. Out: what a guest found that loads them all, runs a workload over
//! block devices, file systems, TCP, reclaim and scheduling without and with the tunes, and takes them
//! out again (`scripts/corpus-guest`). An error when the results differ, a probe is not of the kind that
//! the table predicts, a site failed, something is left behind, or the kernel had something to say.

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::{ensure, Context, Result};
use serde::{Deserialize, Serialize};
use xk_sie::pipeline::noreturns;
use xk_span::confine::Confiner;
use xk_table::{ProbeKind, ScopeTable};

use super::outcome::{Outcome, Status};
use super::place::{self, Results};
use super::worker;
use crate::lab;

/// What the guest is asked to load.
#[derive(Debug, Serialize)]
struct Wanted {
    id: String,
    name: String,
    value: i64,
    modules: Vec<String>,
    sites: Vec<Site>,
}

#[derive(Debug, Serialize)]
struct Site {
    symbol: String,
    module: Option<String>,
    offset: u32,
    probe: Predicted,
}

/// What `xk status` shall say of a site.
#[derive(Debug, Serialize)]
#[serde(rename_all = "lowercase")]
enum Predicted {
    Jump,
    Int3,
    /// A value in a static object.
    Data,
}

impl From<ProbeKind> for Predicted {
    fn from(kind: ProbeKind) -> Self {
        match kind {
            ProbeKind::Jump => Self::Jump,
            ProbeKind::Int3 => Self::Int3,
        }
    }
}

impl Wanted {
    fn of(outcome: &Outcome, table: &ScopeTable) -> Self {
        let site = |span: &xk_table::CriticalSpan| {
            let function = table.functions.get(span.function)?;
            Some(Site {
                symbol: function.symbol.clone(),
                module: function.module.clone(),
                offset: span.indirection.offset,
                probe: span.indirection.probe.into(),
            })
        };
        let data = table.data.iter().map(|data| Site {
            symbol: data.symbol.clone(),
            module: data.module.clone(),
            offset: data.offset,
            probe: Predicted::Data,
        });
        Self {
            id: table.constant.id.clone(),
            name: outcome.name.clone(),
            value: table.constant.default,
            modules: outcome.modules.clone(),
            sites: table.spans.iter().filter_map(site).chain(data).collect(),
        }
    }
}

/// What the guest found; the fields are described in `scripts/corpus-guest`.
#[derive(Debug, Serialize, Deserialize)]
struct Found {
    backend: String,
    /// Sites that were detours.
    detours: usize,
    constants: usize,
    loaded: usize,
    load_s: f64,
    sites: usize,
    not_loaded: BTreeMap<String, String>,
    without_module: BTreeMap<String, String>,
    probe_mismatches: Vec<BTreeMap<String, String>>,
    workload_s: Vec<f64>,
    workload_same: bool,
    workload: serde_json::Value,
    hit: BTreeMap<String, u64>,
    missed: BTreeMap<String, u64>,
    faults: BTreeMap<String, u64>,
    broken: Vec<String>,
    left: Vec<String>,
}

/// Boots the guest and judges what it found.
///
/// # Errors
/// When anything is not as it should be.
pub fn run(outcomes: &[Outcome], results: &Results, backend: &str, json: bool) -> Result<()> {
    let found = observe(&wanted(outcomes, results)?, backend)?;
    if json {
        println!("{}", serde_json::to_string(&found)?);
    } else {
        show(&found);
    }
    judge(&found)
}

/// Nothing may have changed, and nothing may be left.
fn judge(found: &Found) -> Result<()> {
    ensure!(found.workload_same, "the workload had another result with the tunes: {}", found.workload);
    ensure!(found.left.is_empty(), "something was left behind: {}", found.left.join("; "));
    ensure!(found.broken.is_empty() && found.faults.is_empty(), "sites failed: {:?} {:?}", found.broken, found.faults);
    ensure!(
        found.probe_mismatches.is_empty(),
        "{} probe(s) are not of the predicted kind",
        found.probe_mismatches.len()
    );
    ensure!(found.not_loaded.is_empty(), "not every usable constant can be loaded: {:?}", found.not_loaded);
    ensure!(found.loaded > 0, "nothing was loaded");
    ensure!(!found.hit.is_empty(), "the workload reached no site: it shows nothing");
    Ok(())
}

/// The constants to load, each with its safe spans in the store, as `xk build` leaves it.
fn wanted(outcomes: &[Outcome], results: &Results) -> Result<Vec<Wanted>> {
    let (store, build_id) = results.store();
    let (image, tree) = worker::kernel()?;
    let mut confiner = Confiner::new(noreturns(&tree)?);
    let mut wanted: Vec<Wanted> = Vec::new();
    for outcome in outcomes.iter().filter(|outcome| outcome.status == Status::Usable) {
        let id = outcome.constant.as_deref().unwrap_or_default();
        // Two rows may mean one constant.
        if wanted.iter().all(|known| known.id != id) {
            let mut table = store.load(build_id, id)?;
            if confiner.confine(&image, &mut table)? {
                store.save(&table)?;
            }
            wanted.push(Wanted::of(outcome, &table));
        }
    }
    ensure!(!wanted.is_empty(), "no constant of the list is usable");
    Ok(wanted)
}

fn observe(wanted: &[Wanted], backend: &str) -> Result<Found> {
    let prepared = lab::output(lab::command("scripts/prepare")?.arg(lab::KERNEL))?;
    let mut prepared = prepared.lines().map(PathBuf::from);
    let (Some(programs), Some(module)) = (prepared.next(), prepared.next()) else {
        anyhow::bail!("scripts/prepare did not print the folder of xk and the module");
    };
    let folder = tempfile::tempdir()?;
    let list = folder.path().join("constants.json");
    std::fs::write(&list, serde_json::to_vec(wanted)?)?;
    let mut guest = lab::command("lab/lab")?;
    guest.args(["run", "--kernel", lab::KERNEL, "--timeout", "1800", "--cpus", "2", "--memory", "3G"]);
    guest.args(["--disk", "1G", "--", "scripts/corpus-guest"]).arg(&list);
    let path = std::env::var("PATH").unwrap_or_default();
    guest.env("PATH", format!("{}:{path}", programs.display()));
    guest.env("XK_MODULE", module).env("XK_STORE", place::tables()?).env("XK_BACKEND", backend);
    let printed = lab::output(&mut guest).context("the guest")?;
    let last = printed.lines().last().unwrap_or_default();
    serde_json::from_str(last).with_context(|| format!("the guest printed `{last}`"))
}

fn show(found: &Found) {
    let [before, with] = found.workload_s[..] else { return };
    println!(
        "{} of {} constants loaded, {} sites, {} of them detours ({}), in {} s",
        found.loaded, found.constants, found.sites, found.detours, found.backend, found.load_s
    );
    for (name, why) in found.not_loaded.iter().chain(&found.without_module) {
        println!("  {name}: not loaded: {why}");
    }
    for mismatch in &found.probe_mismatches {
        let field = |name: &str| mismatch.get(name).map_or("", String::as_str);
        println!("  {} {}: predicted {}, found {}", field("name"), field("site"), field("predicted"), field("found"));
    }
    println!("workload: {before} s without, {with} s with the tunes; same results: {}", found.workload_same);
    println!("sites of {} constants ran; missed: {:?}; faults: {:?}", found.hit.len(), found.missed, found.faults);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn good() -> Found {
        let text = r#"{"backend": "kprobe", "detours": 0, "constants": 2, "loaded": 2, "load_s": 1.0, "sites": 3, "not_loaded": {}, "without_module": {"B": "no such device"},
            "probe_mismatches": [], "workload_s": [1.0, 1.1], "workload_same": true, "workload": [],
            "hit": {"a.c:L1:2:0": 7}, "missed": {"a.c:L1:2:0": 1}, "faults": {}, "broken": [], "left": []}"#;
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn whatever_is_not_as_it_should_be_is_an_error() {
        judge(&good()).unwrap();
        let spoilt: [fn(&mut Found); 8] = [
            |found| found.not_loaded = BTreeMap::from([("a".into(), "drift".into())]),
            |found| found.workload_same = false,
            |found| found.left.push("probe".into()),
            |found| found.broken.push("a".into()),
            |found| found.faults = BTreeMap::from([("a".into(), 1)]),
            |found| found.probe_mismatches.push(BTreeMap::new()),
            |found| found.loaded = 0,
            |found| found.hit.clear(),
        ];
        for (number, spoil) in spoilt.into_iter().enumerate() {
            let mut found = good();
            spoil(&mut found);
            assert!(judge(&found).is_err(), "{number}");
        }
    }
}
