//! Does the kernel do what a tuned constant says? For each case of `cases/`: build the
//! scope table, boot a guest, and let the kernel itself report the effect at default,
//! tuned, and reverted.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{anyhow, bail, ensure, Context, Result};
use serde::{Deserialize, Serialize};
use xk_table::{Store, Values};

use crate::lab;

/// Options of `cargo xtask effects`.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// One JSON object per case and nothing else
    #[arg(long)]
    json: bool,
    /// Leave the tuned value out of the tables, so that `xk set` compiles it in the guest: up to half an
    /// hour for each case, where code is emulated
    #[arg(long)]
    compile: bool,
    /// Folders of cases/; all of them when none is named
    cases: Vec<String>,
}

/// Seconds until a guest is up; for each case; for each that is compiled in it.
const BOOTING: usize = 150;
const OBSERVING: usize = 100;
const COMPILING: usize = 1800;

/// `case.toml`; the format is described in `cases/README.md`.
#[derive(Debug, Deserialize)]
struct Case {
    r#const: String,
    default: i64,
    tuned: i64,
    expect_default: Expected,
    expect_tuned: Expected,
    guest: Shape,
}

/// What a guest must have.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
struct Shape {
    cpus: u32,
    memory: String,
    numa: u32,
}

/// An exact number or a range, both bounds included.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(untagged)]
enum Expected {
    Exactly(i64),
    Between([i64; 2]),
}

impl Expected {
    fn holds(self, value: i64) -> bool {
        match self {
            Self::Exactly(wanted) => value == wanted,
            Self::Between([low, high]) => (low..=high).contains(&value),
        }
    }
}

/// What the kernel reported of one constant.
#[derive(Debug, Serialize)]
pub struct Effect {
    r#const: String,
    default: i64,
    value: i64,
    observed_default: i64,
    observed_tuned: i64,
    observed_reverted: i64,
    observable: String,
}

/// What `scripts/effect-guest` prints of a case.
#[derive(Debug, Deserialize)]
struct Printed {
    case: String,
    #[serde(flatten)]
    result: Seen,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Seen {
    Observed(Observed),
    Failed { failed: String },
}

#[derive(Debug, Deserialize)]
struct Observed {
    observable: String,
    observed_default: i64,
    observed_tuned: i64,
    observed_reverted: i64,
}

/// Runs the cases that were asked for.
///
/// # Errors
/// The cases whose effect is not the expected one.
pub fn run(arguments: &Arguments) -> Result<()> {
    let names = if arguments.cases.is_empty() { all()? } else { arguments.cases.clone() };
    let mut failed = Vec::new();
    for (name, effect) in observe(&names, arguments.compile)? {
        match effect {
            Err(error) => failed.push(format!("{name}: {error:#}")),
            Ok(effect) if arguments.json => println!("{}", serde_json::to_string(&effect)?),
            Ok(effect) => {
                let Effect { observed_default, observed_tuned, observed_reverted, .. } = effect;
                println!("{}: {} -> {}", effect.r#const, effect.default, effect.value);
                println!("  {}: {observed_default} -> {observed_tuned} -> {observed_reverted}", effect.observable);
            }
        }
    }
    ensure!(failed.is_empty(), "{}", failed.join("\n"));
    Ok(())
}

/// The names of all cases.
fn all() -> Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(lab::repository()?.join("cases"))? {
        let path = entry?.path();
        if path.join("case.toml").exists() {
            names.extend(path.file_name().and_then(|n| n.to_str()).map(str::to_owned));
        }
    }
    names.sort();
    Ok(names)
}

/// Runs these cases, those that need the same guest in one, and checks that the kernel reported
/// what each expects. With `compile`, `xk set` has to compile the tuned value itself.
///
/// # Errors
/// When a case cannot be read, or the programs cannot be built. Of each case: when its constant
/// is refused, its guest fails, or the kernel reports something else.
pub fn observe(names: &[String], compile: bool) -> Result<BTreeMap<String, Result<Effect>>> {
    let (programs, module) = lab::prepared()?;
    let store = tempfile::tempdir()?;
    let world = World { xk: programs.join("xk"), module, store: compile.then_some(store.path()) };
    let mut effects = BTreeMap::new();
    let mut guests: BTreeMap<Shape, BTreeMap<String, Case>> = BTreeMap::new();
    for name in names {
        let case = read(name)?;
        match world.build_table(&case.r#const, case.tuned) {
            Err(error) => drop(effects.insert(name.clone(), Err(error))),
            Ok(()) => drop(guests.entry(case.guest.clone()).or_default().insert(name.clone(), case)),
        }
    }
    for (shape, cases) in guests {
        let seen = world.boot(&shape, &cases);
        for (name, case) in cases {
            let seen = match &seen {
                Err(error) => Err(anyhow!("{error:#}")),
                Ok(seen) => seen.get(&name).context("its guest said nothing of it"),
            };
            let effect = seen.and_then(|seen| case.judge(seen));
            effects.insert(name, effect);
        }
    }
    Ok(effects)
}

fn read(name: &str) -> Result<Case> {
    let file = lab::repository()?.join("cases").join(name).join("case.toml");
    let text = std::fs::read_to_string(&file).with_context(|| format!("{}", file.display()))?;
    toml::from_str(&text).with_context(|| format!("{}", file.display()))
}

/// What the guests of the cases use.
struct World<'a> {
    xk: PathBuf,
    module: PathBuf,
    /// Where the tables are that do not accept the tuned value yet.
    store: Option<&'a Path>,
}

impl World<'_> {
    /// Makes the table of a constant; unless it shall be compiled in the guest, it accepts `value`.
    fn build_table(&self, constant: &str, value: i64) -> Result<()> {
        let kernel = lab::kernel()?;
        let mut build = Command::new(&self.xk);
        build.args(["build", "--root"]).arg(&kernel.root).arg(constant);
        match self.store {
            Some(store) => build.env("XK_STORE", store),
            None => build.args(["--values", &value.to_string()]),
        };
        lab::output(&mut build).with_context(|| format!("xk build {constant}"))?;
        self.store.map_or(Ok(()), without_values)
    }

    /// What a guest of this shape saw of these cases.
    fn boot(&self, shape: &Shape, cases: &BTreeMap<String, Case>) -> Result<BTreeMap<String, Seen>> {
        let mut guest = lab::command("lab/lab")?;
        let each = if self.store.is_some() { COMPILING } else { OBSERVING };
        let seconds = BOOTING + each * cases.len();
        guest.args(["run", "--kernel", lab::KERNEL, "--timeout", &seconds.to_string()]);
        guest.args(["--cpus", &shape.cpus.to_string(), "--memory", &shape.memory]);
        if shape.numa > 1 {
            guest.args(["--numa", &shape.numa.to_string()]);
        }
        guest.args(["--", "scripts/effect-guest"]).args(cases.keys());
        let path = std::env::var("PATH").unwrap_or_default();
        let programs = self.xk.parent().unwrap_or(Path::new("."));
        guest.env("PATH", format!("{}:{path}", programs.display())).env("XK_MODULE", &self.module);
        if let Some(store) = self.store {
            guest.env("XK_STORE", store);
        }
        let printed = lab::output(&mut guest).context("the guest of the cases")?;
        let lines = printed.lines().filter_map(|line| serde_json::from_str::<Printed>(line).ok());
        Ok(lines.map(|printed| (printed.case, printed.result)).collect())
    }
}

/// Leaves the tables of `store` with the default alone.
fn without_values(store: &Path) -> Result<()> {
    for kernel in std::fs::read_dir(store)? {
        let build_id = kernel?.file_name().to_string_lossy().into_owned();
        let store = Store::new(store);
        let (tables, unreadable) = store.list(&build_id)?;
        ensure!(unreadable.is_empty(), "{unreadable:?}");
        for mut table in tables {
            table.values = Values::compiled([table.constant.default]);
            store.save(&table)?;
        }
    }
    Ok(())
}

impl Case {
    fn judge(&self, seen: &Seen) -> Result<Effect> {
        let observed = match seen {
            Seen::Observed(observed) => observed,
            Seen::Failed { failed } => bail!("in its guest: {failed}"),
        };
        ensure!(self.expect_default.holds(observed.observed_default), "by default {observed:?}");
        ensure!(self.expect_tuned.holds(observed.observed_tuned), "tuned to {}: {observed:?}", self.tuned);
        ensure!(self.expect_default.holds(observed.observed_reverted), "reverted: {observed:?}");
        Ok(Effect {
            r#const: self.r#const.clone(),
            default: self.default,
            value: self.tuned,
            observed_default: observed.observed_default,
            observed_tuned: observed.observed_tuned,
            observed_reverted: observed.observed_reverted,
            observable: observed.observable.clone(),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::OnceLock;

    use super::{all, observe, Effect};

    /// Fails unless the kernel reports what the case expects, three times:
    /// with the value it was compiled with, tuned, and reverted.
    fn effect_of(case: &str) {
        static EFFECTS: OnceLock<BTreeMap<String, anyhow::Result<Effect>>> = OnceLock::new();
        let effects = EFFECTS.get_or_init(|| {
            let effects = observe(&all().unwrap(), false).unwrap_or_else(|error| panic!("{error:#}"));
            effects.into_iter().collect()
        });
        let effect = effects[case].as_ref().unwrap_or_else(|error| panic!("{error:#}"));
        assert_ne!(effect.observed_default, effect.observed_tuned, "the case does not tell the values apart");
        assert_eq!(effect.observed_default, effect.observed_reverted);
    }

    /// A test for each case, and one that none was forgotten.
    macro_rules! cases {
        ($($(#[$what:meta])* $case:ident;)*) => {
            $($(#[$what])* #[test] fn $case() { effect_of(stringify!($case)); })*

            #[test]
            fn every_case_has_a_test() {
                let mut tests = [$(stringify!($case)),*];
                tests.sort_unstable();
                assert_eq!(all().unwrap(), tests);
            }
        };
    }

    cases! {
        /// A plug holds so many requests before it is flushed (block layer).
        blk_max_request_count;
        /// Epoll instances may watch each other in a chain of so many, and one more; tested for order.
        ep_max_nests;
        /// The softirq loop makes so many rounds before it wakes ksoftirqd.
        max_softirq_restart;
        /// A shrinker is asked for so many objects at a time (reclaim).
        shrink_batch;
        /// So many pages are migrated between two flushes of the TLB.
        nr_max_batched_migration;
        /// A fresh TCP connection may send so many segments.
        tcp_init_cwnd;
        /// HyStart tolerates a delay of the smallest round trip, shifted (literal in `ca->delay_min >> 3`).
        hystart_delay_shift;
        /// ... but at most so many microseconds.
        hystart_delay_max;
        /// A sender looks at its backlog after so many segments (literal in `process_backlog >= 16`).
        process_backlog;
    }
}
