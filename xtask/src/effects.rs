//! Does the kernel do what a tuned constant says? One case of `cases/` at a
//! time: build the scope table, boot a guest, and let the kernel itself report
//! the effect at default, tuned, and reverted.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{ensure, Context, Result};
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
    guest: Guest,
}

#[derive(Debug, Deserialize)]
struct Guest {
    cpus: u32,
    memory: String,
    numa: u32,
    /// Modules that must be loaded before the constant can be tuned.
    #[serde(default)]
    tuned_modules: Vec<String>,
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

/// What `scripts/effect-guest` prints.
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
/// The first case whose effect is not the expected one.
pub fn run(arguments: &Arguments) -> Result<()> {
    let mut names = arguments.cases.clone();
    if names.is_empty() {
        for entry in std::fs::read_dir(lab::repository()?.join("cases"))? {
            let path = entry?.path();
            if path.join("case.toml").exists() {
                names.extend(path.file_name().and_then(|n| n.to_str()).map(str::to_owned));
            }
        }
        names.sort();
    }
    for name in names {
        let effect = observe(&name)?;
        if arguments.json {
            println!("{}", serde_json::to_string(&effect)?);
        } else {
            let Effect { observed_default, observed_tuned, observed_reverted, .. } = effect;
            println!("{}: {} -> {}", effect.r#const, effect.default, effect.value);
            println!("  {}: {observed_default} -> {observed_tuned} -> {observed_reverted}", effect.observable);
        }
    }
    Ok(())
}

/// Runs one case and checks that the kernel reported what the case expects.
///
/// # Errors
/// When the constant is refused, the guest fails, or the kernel reports
/// something else.
pub fn observe(name: &str) -> Result<Effect> {
    let file = lab::repository()?.join("cases").join(name).join("case.toml");
    let text = std::fs::read_to_string(&file).with_context(|| format!("{}", file.display()))?;
    let case: Case = toml::from_str(&text).with_context(|| format!("{}", file.display()))?;
    let prepared = lab::output(lab::command("scripts/prepare")?.arg(lab::KERNEL))?;
    let mut prepared = prepared.lines().map(PathBuf::from);
    let (Some(programs), Some(module)) = (prepared.next(), prepared.next()) else {
        anyhow::bail!("scripts/prepare did not print the folder of xk and the module");
    };
    build_table(&programs.join("xk"), &case.r#const)?;

    let mut guest = lab::command("lab/lab")?;
    guest.args(["run", "--kernel", lab::KERNEL, "--timeout", "400"]);
    guest.args(["--cpus", &case.guest.cpus.to_string(), "--memory", &case.guest.memory]);
    if case.guest.numa > 1 {
        guest.args(["--numa", &case.guest.numa.to_string()]);
    }
    guest.args(["--", "scripts/effect-guest", name, &case.r#const, &case.tuned.to_string()]);
    guest.args(&case.guest.tuned_modules);
    let path = std::env::var("PATH").unwrap_or_default();
    guest.env("PATH", format!("{}:{path}", programs.display())).env("XK_MODULE", module);
    let printed = lab::output(&mut guest).with_context(|| format!("the guest of case {name}"))?;
    let last = printed.lines().last().unwrap_or_default();
    let observed: Observed = serde_json::from_str(last).with_context(|| format!("case {name} printed `{last}`"))?;

    ensure!(case.expect_default.holds(observed.observed_default), "{name}: by default {observed:?}");
    ensure!(case.expect_tuned.holds(observed.observed_tuned), "{name}: tuned to {}: {observed:?}", case.tuned);
    ensure!(case.expect_default.holds(observed.observed_reverted), "{name}: reverted: {observed:?}");
    Ok(Effect {
        r#const: case.r#const,
        default: case.default,
        value: case.tuned,
        observed_default: observed.observed_default,
        observed_tuned: observed.observed_tuned,
        observed_reverted: observed.observed_reverted,
        observable: observed.observable,
    })
}

fn build_table(xk: &std::path::Path, constant: &str) -> Result<()> {
    let kernel = lab::kernel()?;
    let mut build = Command::new(xk);
    build.args(["build", "--root"]).arg(&kernel.root).arg(constant);
    lab::output(&mut build).map(drop).with_context(|| format!("xk build {constant}"))
}

#[cfg(test)]
mod tests {
    use std::sync::{Mutex, PoisonError};

    /// Emulated guests share two cores: one at a time.
    static GUEST: Mutex<()> = Mutex::new(());

    /// Fails unless the kernel reports what the case expects, three times:
    /// with the value it was compiled with, tuned, and reverted.
    fn effect_of(case: &str) {
        let _one = GUEST.lock().unwrap_or_else(PoisonError::into_inner);
        let effect = super::observe(case).unwrap_or_else(|error| panic!("{error:#}"));
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
