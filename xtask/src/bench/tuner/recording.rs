//! Recordings of earlier runs: what the searches of a workload have recorded in a folder, and by what they were made.
//!
//! In: the folder, and everything that decides what a deterministic guest does. Out: the recording if there is a complete
//! one that was made by the same, or a new one. It refuses to reuse a recording if anything has changed, or if nothing says
//! by what it was made.
//!
//! Its clock counts instructions, so a deterministic guest does the same again if it begins with the same. That makes reuse
//! sound. What is not compared: the programs of Debian that a workload uses, the emulator, and the scripts of the lab.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use sha2::{Digest, Sha256};
use xk_tuner::Space;

use super::workload::{read, run, Workload};
use super::{Guest, HELD_OUT};
use crate::bench::say;
use crate::lab;

/// Names what has made the recording, with digests. It is written last, so a recording without it is not complete.
const MADE_BY: &str = "made-by";

/// Digests by name.
type Digests = BTreeMap<String, String>;

/// Reads the recording of a workload in `folder`, or makes one.
///
/// # Errors
/// When a search fails.
pub fn read_or_make(guest: &Guest, kernel: &str, name: &str, folder: &Path) -> Result<(Workload, Space)> {
    let now = made_by(guest, kernel, name)?;
    if let Some(found) = reuse(name, folder, &now) {
        return Ok(found);
    }
    // The guest leaves its recording beside what is there.
    let state = folder.join("state");
    if state.exists() {
        fs::remove_dir_all(&state).with_context(|| state.display().to_string())?;
    }
    let made = run(guest, name, folder)?;
    fs::write(folder.join(MADE_BY), lines(&now))?;
    Ok(made)
}

/// The recording of the folder, if it can be used again.
fn reuse(name: &str, folder: &Path, now: &Digests) -> Option<(Workload, Space)> {
    let Ok(text) = fs::read_to_string(folder.join(MADE_BY)) else {
        if folder.join("state").exists() {
            say(&format!("{name}: the recording in {} is not complete; searching again", folder.display()));
        }
        return None;
    };
    let changed = changed(&parse(&text), now);
    if !changed.is_empty() {
        say(&format!("{name}: changed since the recording in {}: {}", folder.display(), changed.join(", ")));
        forget(folder);
        return None;
    }
    match read(name, folder) {
        Ok((workload, space)) => {
            say(&format!("{name}: not searched again, the recording in {} was made by the same", folder.display()));
            Some((Workload { reused: true, ..workload }, space))
        }
        Err(error) => {
            say(&format!("{name}: the recording in {} cannot be used: {error:#}", folder.display()));
            forget(folder);
            None
        }
    }
}

/// The recording is about to be replaced, and is not complete before the next one is.
fn forget(folder: &Path) {
    // Without this, an interrupted run would leave a recording that seems complete.
    if let Err(error) = fs::remove_file(folder.join(MADE_BY)) {
        say(&format!("{}: {error}", folder.join(MADE_BY).display()));
    }
}

/// Everything that decides what the guest does.
fn made_by(guest: &Guest, kernel: &str, name: &str) -> Result<Digests> {
    let repository = lab::repository()?;
    let mut files: BTreeMap<String, PathBuf> = BTreeMap::new();
    let mut of_repository = |path: String| files.insert(path.clone(), repository.join(&path));
    for entry in fs::read_dir(repository.join("subsystems"))? {
        of_repository(format!("subsystems/{}", entry?.file_name().to_string_lossy()));
    }
    let of_workload: &[&str] = match name {
        "tpcb" => &["bench/tuner/postgresql.conf", "bench/tuner/tpcb"],
        held_out if HELD_OUT.contains(&held_out) => &["bench/tuner/heldout"],
        _ => &[],
    };
    for path in of_workload.iter().chain(&["scripts/tuner-guest"]) {
        of_repository((*path).into());
    }
    of_repository(format!("bench/tuner/{name}.toml"));
    files.insert("xk".into(), Path::new(&guest.programs).join("xk"));
    files.insert("xk.ko".into(), PathBuf::from(&guest.module));
    for (program, path) in ["workload", "disk"].into_iter().zip(&guest.compiled) {
        files.insert(format!("bench/tuner/{program}.c"), path.clone());
    }
    let mut digests: Digests = [("kernel".to_owned(), kernel.to_owned())].into();
    for (name, path) in files {
        let content = fs::read(&path).with_context(|| path.display().to_string())?;
        digests.insert(name, Sha256::digest(content).iter().map(|byte| format!("{byte:02x}")).collect());
    }
    Ok(digests)
}

/// The names whose digests differ.
fn changed(before: &Digests, now: &Digests) -> Vec<String> {
    let names: std::collections::BTreeSet<&String> = before.keys().chain(now.keys()).collect();
    names.into_iter().filter(|name| before.get(*name) != now.get(*name)).cloned().collect()
}

fn lines(digests: &Digests) -> String {
    digests.iter().map(|(name, digest)| format!("{digest}  {name}\n")).collect()
}

fn parse(text: &str) -> Digests {
    let pair = |line: &str| line.split_once("  ").map(|(digest, name)| (name.to_owned(), digest.to_owned()));
    text.lines().filter_map(pair).collect()
}

#[cfg(test)]
mod tests {
    use xk_tuner::engine::SearchSpec;
    use xk_tuner::replay::{play, Noise, Surface};
    use xk_tuner::store::{Context, State, Store};
    use xk_tuner::{Dimension, Point, Signature, Value};

    use super::*;

    fn digests(all: &[(&str, &str)]) -> Digests {
        all.iter().map(|(name, digest)| ((*name).to_owned(), (*digest).to_owned())).collect()
    }

    /// What `scripts/tuner-guest` leaves: the searches of a small grid.
    fn record(folder: &Path) {
        let level = |number: i64| Value::Number(number);
        let dimension = |name: &str| {
            let (name, levels) = (name.to_owned(), (1..5).map(level).collect());
            Dimension { name, levels, ordered: true, default: 0, guard: None }
        };
        let space = Space::new(vec![dimension("a"), dimension("b")]).unwrap();
        let store = Store::open(&folder.join("state")).unwrap();
        let [build_id, hardware, schema] = [(); 3].map(|()| String::new());
        let context = Context { build_id, hardware, schema };
        for engine in ["exhaustive", "orthogonal", "orthogonal_full", "racing", "waits", "racing"] {
            let (engine, waits) = if engine == "waits" { ("racing", true) } else { (engine, false) };
            let spec: SearchSpec = serde_json::from_value(serde_json::json!({
                "space": &space, "goal": "maximise", "engine": engine, "seed": 1, "limit": 1000, "minimum": 0.02,
                "warm": null, "command": "",
            }))
            .unwrap();
            let mut surface = Surface::new(|point: &Point| 1.0 + point.0[0] as f64, Noise::Normal(0.0), 1);
            let (history, end) = play(&*spec.engine(), &space, spec.goal, spec.limit, &mut surface).unwrap();
            let search = store.begin("grep", &context, &Signature::default(), &spec).unwrap();
            if waits {
                continue;
            }
            for (number, record) in history.iter().enumerate() {
                store.begin_trial(search, number, &record.trial).unwrap();
                store.end_trial(search, number, &record.outcome).unwrap();
            }
            store.end(search, State::Done, Some(&end)).unwrap();
        }
    }

    #[test]
    fn a_complete_recording_is_reused_until_something_changes() {
        let folder = tempfile::tempdir().unwrap();
        let now = digests(&[("xk", "1"), ("scripts/tuner-guest", "2")]);
        record(folder.path());
        fs::write(folder.path().join(MADE_BY), lines(&now)).unwrap();
        for _ in 0..2 {
            let (workload, _) = reuse("grep", folder.path(), &now).unwrap();
            assert!(workload.reused && workload.trials_grid == 15, "{workload:?}");
            // Not the search that waits for its workload.
            assert!(workload.trials_warm > 0 && workload.warm > workload.default, "{workload:?}");
            assert_eq!(serde_json::to_value(&workload).unwrap()["reused"], true);
        }
        assert!(reuse("grep", folder.path(), &digests(&[("xk", "1"), ("scripts/tuner-guest", "3")])).is_none());
        // It is about to be replaced, so it is not believed again.
        assert!(reuse("grep", folder.path(), &now).is_none());
    }

    #[test]
    fn every_difference_is_named() {
        let now = digests(&[("xk", "1"), ("scripts/tuner-guest", "2")]);
        assert_eq!(parse(&lines(&now)), now);
        assert_eq!(changed(&now, &now), [""; 0]);
        let other = digests(&[("xk", "3"), ("subsystems/disk.toml", "4")]);
        assert_eq!(changed(&other, &now), ["scripts/tuner-guest", "subsystems/disk.toml", "xk"]);
        // Cut off, or of something else.
        assert_eq!(changed(&parse("1  xk"), &now), ["scripts/tuner-guest"]);
        assert_eq!(changed(&parse("nonsense"), &now).len(), 2);
    }

    #[test]
    fn a_recording_is_not_reused_if_it_is_not_complete_or_something_has_changed() {
        let folder = tempfile::tempdir().unwrap();
        let now = digests(&[("xk", "1")]);
        assert!(reuse("grep", folder.path(), &now).is_none());
        fs::create_dir(folder.path().join("state")).unwrap();
        assert!(reuse("grep", folder.path(), &now).is_none(), "nothing says by what it was made");
        for wrong in [digests(&[("xk", "2")]), now.clone()] {
            // The second is one in which no search was made.
            fs::write(folder.path().join(MADE_BY), lines(&wrong)).unwrap();
            assert!(reuse("grep", folder.path(), &now).is_none());
            assert!(!folder.path().join(MADE_BY).exists());
        }
    }
}
