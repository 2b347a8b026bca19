//! What it takes to load policies, by stage, for constants with one and with fifteen
//! critical spans; and to change a value that is loaded. The latter in a deterministic
//! guest: a millisecond is a million instructions, and nothing else of this machine is in
//! it. Loading reads files, and a deterministic guest's clock jumps while it waits for
//! them: its stages are milliseconds of an ordinary emulated guest.

use std::fs;

use anyhow::{ensure, Context, Result as Fallible};
use serde::Serialize;

use super::{rounded, say};
use crate::inside::update::{Report, Stages};
use crate::lab;

/// A constant with one critical span.
const ONE: &str = "SHRINK_BATCH";
/// Values of it to go between.
const VALUES: [i64; 2] = [200, 300];
/// Constants with fifteen together: eight and seven.
const FIFTEEN: [&str; 2] = ["SBQ_WAKE_BATCH", "EP_MAX_NESTS"];
/// Milliseconds that a change of a value may take.
const LIMIT: f64 = 1.0;
const ROUNDS: usize = 5;

/// The result; its fields are the fields of the JSON object.
#[derive(Debug, Serialize)]
pub struct Result {
    bench: &'static str,
    kernel: String,
    /// A value of a loaded tune, by the system call; medians, as everything here.
    change_ms: f64,
    change_limit_ms: f64,
    /// ... and by the command, in the guest of the loads.
    change_by_command_ms: f64,
    load_1: Stages,
    load_15: Stages,
    constants_15: [&'static str; 2],
    rounds: usize,
}

/// Builds what is needed, boots one guest and measures in it.
pub fn run() -> Fallible<Result> {
    let kernel = lab::kernel()?;
    let module = lab::module(&kernel.release, "kernel/xk")?;
    let this = std::env::current_exe()?;
    let xk = lab::xk()?;
    let folder = tempfile::tempdir()?;
    let store = folder.path().join("tables");
    say(&format!("tables of {ONE}, {}", FIFTEEN.join(", ")));
    let mut tables = lab::command(&xk.display().to_string())?;
    lab::output(tables.args(["build", "--root"]).arg(&kernel.root).arg(ONE).args(FIFTEEN).env("XK_STORE", &store))?;
    let write = |name: &str, constants: &[&str]| -> Fallible<String> {
        let path = folder.path().join(name);
        fs::write(&path, source(constants)).with_context(|| path.display().to_string())?;
        Ok(path.display().to_string())
    };
    let (one, fifteen) = (write("one.bpf.c", &[ONE])?, write("fifteen.bpf.c", &FIFTEEN)?);
    let inside = |policies: &str, options: &[&str]| -> Fallible<Report> {
        let script = format!(
            "export XK_STORE={} XK_CACHE=/tmp/xk-bench-cache; insmod {} && exec {} inside update --xk {} {policies} \
             --constant {ONE} --first {} --second {} --rounds {ROUNDS}",
            store.display(),
            module.display(),
            this.display(),
            xk.display(),
            VALUES[0],
            VALUES[1],
        );
        let printed = lab::run_guest(&script, options)?;
        let last = printed.lines().last().unwrap_or_default();
        serde_json::from_str(last).with_context(|| format!("the guest printed: {printed}"))
    };
    say(&format!("changing values in a deterministic guest on {}", kernel.release));
    let changed = inside("", &["--icount", "--cpus", "1", "--timeout", "1200"])?;
    say("loading policies in another, some minutes");
    let loaded = inside(&format!("--policies {one}=1 --policies {fifteen}=15"), &["--timeout", "3600"])?;
    result(kernel.release, &changed, &loaded)
}

/// Policies that set the default.
fn source(constants: &[&str]) -> String {
    let policies = constants.iter().enumerate().map(|(index, constant)| {
        format!("\nXK_TUNE(p{index}, \"{constant}\")\n{{\n\txk_set(xk_ctx, xk_default(xk_ctx));\n\treturn 0;\n}}\n")
    });
    format!("#include \"xk.bpf.h\"\n{}", policies.collect::<String>())
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut sorted: Vec<f64> = values.collect();
    sorted.sort_by(f64::total_cmp);
    rounded(sorted.get(sorted.len() / 2).copied().unwrap_or(f64::NAN))
}

fn stages(loads: &[Stages]) -> Stages {
    let of = |stage: fn(&Stages) -> f64| median(loads.iter().map(stage));
    Stages {
        compile_ms: of(|load| load.compile_ms),
        verify_ms: of(|load| load.verify_ms),
        register_ms: of(|load| load.register_ms),
        transition_ms: of(|load| load.transition_ms),
    }
}

fn result(kernel: String, changed: &Report, loaded: &Report) -> Fallible<Result> {
    let [one, fifteen] = &loaded.loads[..] else { anyhow::bail!("{} files were loaded", loaded.loads.len()) };
    Ok(Result {
        bench: "update",
        kernel,
        change_ms: median(changed.change_ms.iter().copied()),
        change_limit_ms: LIMIT,
        change_by_command_ms: median(loaded.command_ms.iter().copied()),
        load_1: stages(one),
        load_15: stages(fifteen),
        constants_15: FIFTEEN,
        rounds: ROUNDS,
    })
}

impl Result {
    /// An error when a change takes longer than it may.
    pub fn verdict(&self) -> Fallible<()> {
        let (change, limit) = (self.change_ms, self.change_limit_ms);
        ensure!(change <= limit, "changing a value took {change} ms of the guest instead of {limit}");
        Ok(())
    }

    /// For people.
    pub fn table(&self) -> String {
        let row = |spans: u32, load: &Stages| {
            format!(
                "  {spans:<8}{:>12}{:>12}{:>12}{:>12}\n",
                load.compile_ms, load.verify_ms, load.register_ms, load.transition_ms
            )
        };
        format!(
            "a value of a loaded tune     {:>8} ms (limit {}), by `xk set` {} ms\n  {:<8}{:>12}{:>12}{:>12}{:>12}\n{}{}",
            self.change_ms,
            self.change_limit_ms,
            self.change_by_command_ms,
            "spans",
            "compile ms",
            "verify ms",
            "register ms",
            "transition",
            row(1, &self.load_1),
            row(15, &self.load_15)
        )
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::expect_used)]

    use super::*;

    #[test]
    fn medians_and_the_limit() {
        let load = |verify_ms| Stages { compile_ms: 2.0, verify_ms, register_ms: 3.0, transition_ms: 4.0 };
        let report = Report {
            loads: vec![vec![load(9.0), load(1.0), load(5.0)], vec![load(7.0)]],
            change_ms: vec![0.1, 5.0, 0.2],
            command_ms: vec![8.0],
        };
        let of = |report: &Report| result("k".into(), report, report);
        let within = of(&report).expect("two files");
        assert_eq!((within.load_1.verify_ms, within.load_15.verify_ms, within.change_ms), (5.0, 7.0, 0.2));
        assert!(within.verdict().is_ok());
        let slow = Report { change_ms: vec![0.1, 1.5, 1.6], ..report };
        assert!(of(&slow).expect("two files").verdict().is_err());
        assert!(of(&Report { loads: vec![], ..slow }).is_err());
    }

    #[test]
    fn a_policy_for_each_constant() {
        let text = source(&FIFTEEN);
        assert_eq!(text.matches("XK_TUNE(").count(), 2);
        assert!(text.contains("XK_TUNE(p1, \"EP_MAX_NESTS\")"));
    }
}
