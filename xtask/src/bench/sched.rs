//! What a switch between threads costs under the fair class, under policies of `xk_sched.ko`, and under the same policy as
//! an eBPF scheduler: guest instructions, one run in a deterministic guest of the kernel with sched_ext.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;

use anyhow::{ensure, Context, Result as Fallible};
use serde::Serialize;

use super::say;
use super::trigger::clang;
use crate::lab;

const KERNEL: &str = "debian13-backports";
/// What a policy may cost, relative to the fair class.
const LIMIT: f64 = 1.03;
/// ... and eight of them, relative to one.
const LIMIT_8: f64 = 1.03;

/// The result; its fields are the fields of the JSON object.
#[derive(Debug, Serialize)]
pub struct Result {
    bench: &'static str,
    kernel: String,
    /// Guest instructions of one switch. `eevdf`: the fair class while `xk_sched.ko` is loaded; `eevdf_alone`: without it.
    /// `bpf_fifo` has a queue for each CPU, as `module_fifo`; `bpf_local` has none.
    switch: BTreeMap<String, f64>,
    /// `module_fifo` / `eevdf`.
    ratio: f64,
    /// `module_fifo_8_policies` / `module_fifo`.
    ratio_8: f64,
}

const NAMES: [&str; 7] = [
    "eevdf_alone",
    "eevdf",
    "module_fifo",
    "module_fifo_2_policies",
    "module_fifo_8_policies",
    "bpf_fifo",
    "bpf_local",
];

/// Builds what is needed, boots one guest and measures in it.
pub fn run() -> Fallible<Result> {
    let kernel = lab::kernel_named(KERNEL)?;
    let out = tempfile::tempdir()?;
    let object = out.path().join("fifo.bpf.o");
    let mut compile = lab::command(&clang()?)?;
    compile.args(["-O2", "-g", "-Wall", "-Werror", "-target", "bpf", "-c", "bench/sched/fifo.bpf.c", "-o"]);
    lab::output(compile.arg(&object))?;
    let mut modules = Vec::new();
    for folder in ["kernel/xk_sched", "kernel/xk_sched/policies", "kernel/sched_faulty"] {
        modules.push(lab::module(&kernel.release, folder)?);
    }
    let build = modules[0].parent().context("no folder")?.display().to_string();
    let this = std::env::current_exe()?.display().to_string();
    let switch = |name: &str, options: &str| format!("echo {name} $({this} inside switch {options})");
    let load = |names: &str| format!("for m in {names}; do insmod {build}/xk_sched$m.ko number=7 || exit 1; done");
    let script = [
        "set -e".to_owned(),
        switch(NAMES[0], ""),
        format!("insmod {build}/xk_sched.ko; insmod {build}/xk_sched_fifo.ko"),
        switch(NAMES[1], ""),
        switch(NAMES[2], "--policy fifo"),
        load("_rr"),
        switch(NAMES[3], "--policy fifo"),
        "rmmod xk_sched_rr".to_owned(),
        load("_many"),
        switch(NAMES[4], "--policy fifo"),
        "rmmod xk_sched_many; rmmod xk_sched_fifo; rmmod xk_sched".to_owned(),
        switch(NAMES[5], &format!("--object {} --scheduler fifo", object.display())),
        switch(NAMES[6], &format!("--object {} --scheduler local", object.display())),
    ]
    .join("\n");
    say(&format!("switches in a deterministic guest on {}", kernel.release));
    let guest = out.path().join("guest");
    fs::create_dir(&guest)?;
    let ended = lab::run_on(KERNEL, &script, &["--icount", "--cpus", "1", "--timeout", "1200"], &guest)?;
    ensure!(ended.verdict == "finished" && ended.command_exit == Some(0), "the guest failed; see its output above");
    result(kernel.release, &ended.printed)
}

fn result(kernel: String, printed: &str) -> Fallible<Result> {
    let mut switch = BTreeMap::new();
    for line in printed.lines() {
        if let Some((name, number)) = line.split_once(' ') {
            switch.insert(name.to_owned(), number.parse().with_context(|| line.to_owned())?);
        }
    }
    let of = |name: &str| switch.get(name).copied().with_context(|| format!("{name} was not measured: {printed}"));
    for name in NAMES {
        of(name)?;
    }
    let ratio = of("module_fifo")? / of("eevdf")?;
    let ratio_8 = of("module_fifo_8_policies")? / of("module_fifo")?;
    Ok(Result { bench: "sched", kernel, ratio: super::rounded(ratio), ratio_8: super::rounded(ratio_8), switch })
}

impl Result {
    /// An error when a switch costs more than it may.
    pub fn verdict(&self) -> Fallible<()> {
        let (module, bpf) = (self.switch["module_fifo"], self.switch["bpf_fifo"]);
        ensure!(
            self.ratio <= LIMIT,
            "a switch under fifo costs {} times one of the fair class, not {LIMIT}",
            self.ratio
        );
        ensure!(self.ratio_8 <= LIMIT_8, "with eight policies, it costs {} times as much as with one", self.ratio_8);
        ensure!(module < bpf, "a switch under fifo costs {module} instructions, and {bpf} as eBPF");
        Ok(())
    }

    /// For people.
    pub fn table(&self) -> String {
        let mut text = String::from("guest instructions of a switch\n");
        for name in NAMES {
            let _ = writeln!(text, "  {name:<24}{:>10.1}", self.switch[name]);
        }
        let _ = writeln!(text, "  fifo / eevdf {} (limit {LIMIT}), 8 policies / 1 {}", self.ratio, self.ratio_8);
        text
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::expect_used)]

    use super::*;

    fn printed(fifo: f64, many: f64, bpf: f64) -> String {
        format!(
            "eevdf_alone 99.0\neevdf 100.0\nmodule_fifo {fifo}\nmodule_fifo_2_policies 100.0\n\
             module_fifo_8_policies {many}\nbpf_fifo {bpf}\nbpf_local 90.0\n"
        )
    }

    #[test]
    fn limits() {
        let verdict = |fifo, many, bpf| result("k".into(), &printed(fifo, many, bpf)).expect("all").verdict();
        assert!(verdict(103.0, 103.0, 110.0).is_ok());
        assert!(verdict(104.0, 104.0, 110.0).is_err(), "more than the fair class");
        assert!(verdict(100.0, 104.0, 110.0).is_err(), "eight cost more than one");
        assert!(verdict(100.0, 100.0, 99.0).is_err(), "more than eBPF");
    }

    #[test]
    fn what_was_not_measured_is_an_error() {
        assert!(result("k".into(), "eevdf 100.0\n").is_err());
        assert!(result("k".into(), "eevdf failed\n").is_err());
    }
}
