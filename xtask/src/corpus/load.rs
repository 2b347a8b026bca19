//! All usable constants at once, each with the value that it has anyway: nothing may change.
//!
//! In: the outcomes, and their tables. Out: what a guest found that loads them all, runs a workload over
//! block devices, file systems, TCP, reclaim and scheduling without and with the tunes, and takes them
//! out again (`scripts/corpus-guest`). Two constants that act on the same instructions cannot be loaded
//! together, and neighbours may make a jump a breakpoint: there is another round for those, without the
//! others. An error when the results differ, a site failed, something is left behind, a usable constant is
//! refused or a probe not of the kind that the table predicts in every round, or the kernel had something
//! to say.

use std::collections::BTreeMap;

use anyhow::{bail, ensure, Context, Result};
use serde::{Deserialize, Serialize};
use xk_analysis::pipeline::Analyser;
use xk_analysis::proof::Solver;
use xk_runtime::Backend;
use xk_table::{CriticalSpan, ProbeKind, ScopeTable};

use super::guards::{self, Guards};
use super::outcome::{Outcome, Status};
use super::place::Results;
use super::worker;
use crate::lab;

/// What the guest is asked to load.
#[derive(Debug, Serialize)]
struct Wanted {
    id: String,
    name: String,
    value: i64,
    modules: Vec<String>,
    sites: Vec<LoadedSite>,
}

#[derive(Debug, Serialize)]
struct LoadedSite {
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
    /// A jump of ours, where detours are wanted and the table knows a window.
    Detour,
    /// Instructions that hold the value, where patches are wanted and the table knows them.
    Patch,
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

impl Predicted {
    fn of(span: &CriticalSpan, guards: &Guards, backend: Backend) -> Self {
        let is_free = |window| !guards.stand_in(span.function, window);
        let place = span.indirection.offset;
        match backend {
            Backend::Patch => Self::Patch,
            _ if guards::holds_it(span, backend) => Self::Patch,
            Backend::AutoGlobal | Backend::Auto if span.indirection.window_range().is_some_and(is_free) => Self::Detour,
            // No probe at a guard's place becomes a jump.
            _ if guards.stand_in(span.function, place..place + 1) => Self::Int3,
            _ => span.indirection.probe.into(),
        }
    }
}

impl Wanted {
    /// As `xk set --backend` chooses for it, in the mode of its table.
    fn of(outcome: &Outcome, table: &ScopeTable, backend: Backend) -> Self {
        let backend = match backend {
            Backend::Auto => Backend::cheapest(table, table.constant.default, table.mode),
            other => other,
        };
        let guards = Guards::of(table, backend);
        let site = |span: &CriticalSpan| {
            let function = table.functions.get(span.function)?;
            Some(LoadedSite {
                symbol: function.symbol.clone(),
                module: function.module.clone(),
                offset: span.indirection.offset,
                probe: Predicted::of(span, &guards, backend),
            })
        };
        let data = table.data.iter().map(|data| LoadedSite {
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
    constants: usize,
    without_module: BTreeMap<String, String>,
    workload: Workload,
    rounds: Vec<Round>,
}

/// Constants that were loaded together.
#[derive(Debug, Serialize, Deserialize)]
struct Round {
    loaded: usize,
    load_s: f64,
    sites: usize,
    /// Sites that were detours.
    detours: usize,
    /// Sites that were patches.
    patches: usize,
    refused: BTreeMap<String, String>,
    probe_mismatches: Vec<BTreeMap<String, String>>,
    workload: Workload,
    hit: BTreeMap<String, u64>,
    missed: BTreeMap<String, u64>,
    faults: BTreeMap<String, u64>,
    broken: Vec<String>,
    left: Vec<String>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Workload {
    seconds: f64,
    /// None if it failed.
    results: Option<serde_json::Value>,
}

/// Boots the guest and judges what it found.
///
/// # Errors
/// When anything is not as it should be.
pub fn run(outcomes: &[Outcome], results: &Results, backend: &str, json: bool) -> Result<()> {
    let found = observe(&wanted(outcomes, results, backend.parse().map_err(anyhow::Error::msg)?)?, backend)?;
    if json {
        println!("{}", serde_json::to_string(&found)?);
    } else {
        show(&found);
    }
    judge(&found)
}

/// Nothing may have changed, and nothing may be left.
fn judge(found: &Found) -> Result<()> {
    ensure!(found.workload.results.is_some(), "the workload failed without any tune");
    for round in &found.rounds {
        let results = &round.workload.results;
        ensure!(*results == found.workload.results, "the workload had another result with the tunes: {results:?}");
        ensure!(round.left.is_empty(), "something was left behind: {}", round.left.join("; "));
        ensure!(round.broken.is_empty() && round.faults.is_empty(), "failed: {:?} {:?}", round.broken, round.faults);
    }
    let (Some(first), Some(last)) = (found.rounds.first(), found.rounds.last()) else {
        bail!("nothing was loaded");
    };
    ensure!(last.refused.is_empty(), "not every usable constant can be loaded: {:?}", last.refused);
    let mismatches = last.probe_mismatches.len();
    ensure!(mismatches == 0, "{mismatches} probe(s) are not of the predicted kind");
    ensure!(first.loaded > 0, "nothing was loaded");
    ensure!(!first.hit.is_empty(), "the workload reached no site: it shows nothing");
    Ok(())
}

/// The constants to load, each with its safe spans in the store, as `xk build` leaves it.
fn wanted(outcomes: &[Outcome], results: &Results, backend: Backend) -> Result<Vec<Wanted>> {
    let (store, build_id) = results.store();
    let (image, tree) = lab::image_and_tree()?;
    let analyser = Analyser::new(image, tree, Solver::z3(worker::SOLVER_SECONDS)?)?;
    let mut wanted: Vec<Wanted> = Vec::new();
    for outcome in outcomes.iter().filter(|outcome| outcome.status == Status::Usable) {
        let id = outcome.constant.as_deref().unwrap_or_default();
        // Two rows may mean one constant.
        if wanted.iter().all(|known| known.id != id) {
            let mut table = store.load(build_id, id)?;
            if analyser.confine(&mut table)? {
                store.save(&table)?;
            }
            match table.only_in_place() {
                Some(reason) if backend != Backend::Auto => eprintln!("{id}: left out, only a patch: {reason}"),
                _ => wanted.push(Wanted::of(outcome, &table, backend)),
            }
        }
    }
    ensure!(!wanted.is_empty(), "no constant of the list is usable");
    Ok(wanted)
}

fn observe(wanted: &[Wanted], backend: &str) -> Result<Found> {
    let (programs, module) = lab::prepared()?;
    let folder = tempfile::tempdir()?;
    let list = folder.path().join("constants.json");
    std::fs::write(&list, serde_json::to_vec(wanted)?)?;
    let mut guest = lab::command("lab/lab")?;
    guest.args(["run", "--kernel", lab::KERNEL, "--timeout", "2400", "--cpus", "2", "--memory", "3G"]);
    guest.args(["--disk", "1G", "--", "scripts/corpus-guest"]).arg(&list);
    let path = std::env::var("PATH").unwrap_or_default();
    guest.env("PATH", format!("{}:{path}", programs.display()));
    guest.env("XK_MODULE", module).env("XK_STORE", lab::tables()?).env("XK_BACKEND", backend);
    let printed = lab::output(&mut guest).context("the guest")?;
    let last = printed.lines().last().unwrap_or_default();
    serde_json::from_str(last).with_context(|| format!("the guest printed `{last}`"))
}

fn show(found: &Found) {
    for (name, why) in &found.without_module {
        println!("{name}: not loaded: {why}");
    }
    for (number, round) in found.rounds.iter().enumerate() {
        println!(
            "round {}: {} of {} constants loaded, {} sites, {} of them patches, {} detours ({}), in {} s",
            number + 1,
            round.loaded,
            round.loaded + round.refused.len(),
            round.sites,
            round.patches,
            round.detours,
            found.backend,
            round.load_s
        );
        for (name, why) in &round.refused {
            println!("  {name}: not in this round: {why}");
        }
        for mismatch in &round.probe_mismatches {
            let field = |name: &str| mismatch.get(name).map_or("", String::as_str);
            let [name, site, predicted, found, note] = ["name", "site", "predicted", "found", "note"].map(field);
            println!("  {name} {site}: predicted {predicted}, found {found} {note}");
        }
        let same = round.workload.results == found.workload.results;
        let [before, with] = [found.workload.seconds, round.workload.seconds];
        println!("  workload: {before} s without, {with} s with the tunes; same results: {same}");
        let [hit, missed, faults] = [&round.hit, &round.missed, &round.faults];
        println!("  sites of {} constants ran; missed: {missed:?}; faults: {faults:?}", hit.len());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn good() -> Found {
        let text = r#"{"backend": "kprobe", "constants": 3, "without_module": {"B": "no such device"},
            "workload": {"results": [1, 2], "seconds": 1.0},
            "rounds": [{"loaded": 1, "load_s": 1.0, "sites": 3, "detours": 0, "patches": 0, "refused": {"C": "shares code"},
                "probe_mismatches": [], "workload": {"results": [1, 2], "seconds": 1.1},
                "hit": {"a.c:L1:2:0": 7}, "missed": {"a.c:L1:2:0": 1}, "faults": {}, "broken": [], "left": []},
                {"loaded": 1, "load_s": 1.0, "sites": 1, "detours": 0, "patches": 0, "refused": {}, "probe_mismatches": [],
                "workload": {"results": [1, 2], "seconds": 1.1}, "hit": {}, "missed": {}, "faults": {},
                "broken": [], "left": []}]}"#;
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn whatever_is_not_as_it_should_be_is_an_error() {
        judge(&good()).unwrap();
        let spoilt: [fn(&mut Found); 11] = [
            |found| found.rounds[1].refused = BTreeMap::from([("a".into(), "drift".into())]),
            |found| found.rounds[0].workload.results = Some(serde_json::json!([1, 3])),
            |found| found.rounds[1].workload.results = None,
            |found| found.workload.results = None,
            |found| found.rounds[0].left.push("probe".into()),
            |found| found.rounds[1].broken.push("a".into()),
            |found| found.rounds[0].faults = BTreeMap::from([("a".into(), 1)]),
            |found| found.rounds[1].probe_mismatches.push(BTreeMap::new()),
            |found| found.rounds[0].loaded = 0,
            |found| found.rounds[0].hit.clear(),
            |found| found.rounds.clear(),
        ];
        for (number, spoil) in spoilt.into_iter().enumerate() {
            let mut found = good();
            spoil(&mut found);
            assert!(judge(&found).is_err(), "{number}");
        }
    }
}
