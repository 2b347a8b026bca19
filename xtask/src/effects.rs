//! Does the kernel do what a tuned constant says? For each case of `cases/`: build the
//! scope table, boot a guest, and let the kernel itself report the effect at default,
//! tuned, and reverted.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{anyhow, bail, ensure, Context, Result};
use serde::{Deserialize, Serialize};

use crate::lab;

/// Options of `cargo xtask effects`.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// One JSON object per case and nothing else
    #[arg(long)]
    json: bool,
    /// Folders of cases/; all of them when none is named
    cases: Vec<String>,
}

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
    for (name, effect) in observe(&names)? {
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
/// what each expects.
///
/// # Errors
/// When a case cannot be read, or the programs cannot be built. Of each case: when its constant
/// is refused, its guest fails, or the kernel reports something else.
pub fn observe(names: &[String]) -> Result<BTreeMap<String, Result<Effect>>> {
    let prepared = lab::output(lab::command("scripts/prepare")?.arg(lab::KERNEL))?;
    let mut prepared = prepared.lines().map(PathBuf::from);
    let (Some(programs), Some(module)) = (prepared.next(), prepared.next()) else {
        anyhow::bail!("scripts/prepare did not print the folder of xk and the module");
    };
    let mut effects = BTreeMap::new();
    let mut guests: BTreeMap<Shape, BTreeMap<String, Case>> = BTreeMap::new();
    for name in names {
        let case = read(name)?;
        match build_table(&programs.join("xk"), &case.r#const, case.tuned) {
            Err(error) => drop(effects.insert(name.clone(), Err(error))),
            Ok(()) => drop(guests.entry(case.guest.clone()).or_default().insert(name.clone(), case)),
        }
    }
    for (shape, cases) in guests {
        let seen = boot(&shape, &cases, &programs, &module);
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

/// What a guest of this shape saw of these cases.
fn boot(
    shape: &Shape,
    cases: &BTreeMap<String, Case>,
    programs: &Path,
    module: &Path,
) -> Result<BTreeMap<String, Seen>> {
    let mut guest = lab::command("lab/lab")?;
    let seconds = (150 + 100 * cases.len()).to_string();
    guest.args(["run", "--kernel", lab::KERNEL, "--timeout", &seconds]);
    guest.args(["--cpus", &shape.cpus.to_string(), "--memory", &shape.memory]);
    if shape.numa > 1 {
        guest.args(["--numa", &shape.numa.to_string()]);
    }
    guest.args(["--", "scripts/effect-guest"]).args(cases.keys());
    let path = std::env::var("PATH").unwrap_or_default();
    guest.env("PATH", format!("{}:{path}", programs.display())).env("XK_MODULE", module);
    let printed = lab::output(&mut guest).context("the guest of the cases")?;
    let lines = printed.lines().filter_map(|line| serde_json::from_str::<Printed>(line).ok());
    Ok(lines.map(|printed| (printed.case, printed.result)).collect())
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

/// The table of a constant, which accepts `value`.
fn build_table(xk: &std::path::Path, constant: &str, value: i64) -> Result<()> {
    let kernel = lab::kernel()?;
    let mut build = Command::new(xk);
    build.args(["build", "--root"]).arg(&kernel.root).arg(constant).args(["--values", &value.to_string()]);
    lab::output(&mut build).map(drop).with_context(|| format!("xk build {constant}"))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::OnceLock;

    use super::{all, observe, Effect};

    /// Fails unless the kernel reports what the case expects, three times:
    /// with the value it was compiled with, tuned, and reverted.
    fn effect_of(case: &str) {
        static EFFECTS: OnceLock<BTreeMap<String, Result<Effect, String>>> = OnceLock::new();
        let effects = EFFECTS.get_or_init(|| {
            let effects = observe(&all().unwrap()).unwrap_or_else(|error| panic!("{error:#}"));
            let said = |effect: anyhow::Result<Effect>| effect.map_err(|error| format!("{error:#}"));
            effects.into_iter().map(|(name, effect)| (name, said(effect))).collect()
        });
        let effect = effects[case].as_ref().unwrap_or_else(|error| panic!("{error}"));
        assert_ne!(effect.observed_default, effect.observed_tuned, "the case does not tell the values apart");
        assert_eq!(effect.observed_default, effect.observed_reverted);
    }

    /// A plug holds so many requests before it is flushed (block layer).
    #[test]
    fn blk_max_request_count() {
        effect_of("blk_max_request_count");
    }

    /// The softirq loop makes so many rounds before it wakes ksoftirqd.
    #[test]
    fn max_softirq_restart() {
        effect_of("max_softirq_restart");
    }

    /// A shrinker is asked for so many objects at a time (reclaim).
    #[test]
    fn shrink_batch() {
        effect_of("shrink_batch");
    }

    /// So many pages are migrated between two flushes of the TLB.
    #[test]
    fn nr_max_batched_migration() {
        effect_of("nr_max_batched_migration");
    }

    /// A fresh TCP connection may send so many segments.
    #[test]
    fn tcp_init_cwnd() {
        effect_of("tcp_init_cwnd");
    }

    /// HyStart tolerates a delay of the smallest round trip, shifted (literal in `ca->delay_min >> 3`).
    #[test]
    fn hystart_delay_shift() {
        effect_of("hystart_delay_shift");
    }

    /// ... but at most so many microseconds.
    #[test]
    fn hystart_delay_max() {
        effect_of("hystart_delay_max");
    }

    /// A sender looks at its backlog after so many segments (literal in `process_backlog >= 16`).
    #[test]
    fn process_backlog() {
        effect_of("process_backlog");
    }
}
