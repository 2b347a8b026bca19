//! What one execution of a probe costs, in instructions of a deterministic
//! guest: an eBPF kprobe through perf, and xk.ko with its counters.
//!
//! The measuring is done by `bench/trigger` inside the guest; here it is built,
//! run, and compared with what was promised.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{ensure, Context, Result as Fallible};
use serde::{Deserialize, Serialize};

use super::{rounded, say};
use crate::lab;

/// The expression that is reported as such; `bench/trigger/src/update.rs` has others.
const EXPRESSION: &str = "compare";
/// Shares of an empty eBPF kprobe that must not be exceeded.
const LIMITS: [(&str, Pair); 2] =
    [("xk_value", Pair { jump: 0.45, int3: 0.80 }), ("xk_value_expr", Pair { jump: 0.60, int3: 0.80 })];
/// A policy that sets a value, as a share of an eBPF kprobe that writes a register: of a
/// jump. Where both are breakpoints, the processor's part of it is the same for both.
const POLICY_LIMIT: f64 = 0.60;

/// Instructions that a detour, or a patch, may cost, to a tenth; where a kprobe would be a jump, and where not.
const DETOURS: [(&str, f64); 3] = [("detour_value", 6.0), ("detour_policy", 110.0), ("patch_value", 0.0)];
/// The same for every expression in a detour.
const DETOUR_EXPRESSION: f64 = 25.0;

/// A figure for a probe that is a jump, and for one that is a breakpoint.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
struct Pair {
    jump: f64,
    int3: f64,
}

impl Pair {
    fn map(self, f: impl Fn(f64) -> f64) -> Self {
        Self { jump: f(self.jump), int3: f(self.int3) }
    }

    fn over(self, other: Self) -> Self {
        Self { jump: rounded(self.jump / other.jump), int3: rounded(self.int3 / other.int3) }
    }

    /// What of it exceeds `limit`, in words.
    fn beyond(self, limit: Self) -> Vec<String> {
        [("jump", self.jump, limit.jump), ("int3", self.int3, limit.int3)]
            .into_iter()
            .filter(|(_, share, limit)| share > limit)
            .map(|(kind, share, limit)| format!("{kind} {share} instead of {limit}"))
            .collect()
    }
}

/// What `bench/trigger` prints.
#[derive(Debug, Deserialize)]
struct Measured {
    places: BTreeMap<String, String>,
    writes_per_round: u32,
    rounds: u32,
    baseline: [f64; 2],
    checked_writes: u64,
    perf_bpf_empty: Pair,
    perf_bpf_kfunc: Pair,
    xk_value: Pair,
    xk_expressions: BTreeMap<String, Pair>,
    detour_value: Pair,
    detour_expressions: BTreeMap<String, Pair>,
    detour_policy: Pair,
    patch_value: f64,
    xk_policies: BTreeMap<String, Pair>,
}

/// The result; its fields are the fields of the JSON object.
#[derive(Debug, Serialize)]
pub struct Result {
    bench: &'static str,
    kernel: String,
    extra_instructions: BTreeMap<&'static str, Pair>,
    /// Shares of `perf_bpf_empty`.
    ratios: BTreeMap<&'static str, Pair>,
    /// The same for every expression that was measured.
    expressions: BTreeMap<String, Expression>,
    /// By detour, where a kprobe would be a jump, and where not: extra instructions.
    detour_expressions: BTreeMap<String, Pair>,
    /// Of a policy that sets a value (`xk_policy`), and of what the paper counts apart, one
    /// on top of the other: transition check, indirection, kernel read, map access.
    policies: BTreeMap<String, Pair>,
    /// `xk_policy` as a share of `perf_bpf_kfunc`.
    policy_ratio: Pair,
    policy_limit: f64,
    /// Shares of `perf_bpf_empty` that nothing may exceed; `xk_value_expr` binds every expression.
    limits: BTreeMap<&'static str, Pair>,
    within_limits: bool,
    /// Which were exceeded, and by what.
    missed_limits: Vec<String>,
    baseline_instructions: f64,
    /// The probed instructions.
    places: BTreeMap<String, String>,
    writes_per_round: u32,
    rounds: u32,
    /// Each probe was reached by all of these writes and by nothing else.
    checked_writes: u64,
}

#[derive(Debug, Serialize)]
struct Expression {
    extra_instructions: Pair,
    ratio: Pair,
}

/// Builds what is needed, boots one guest and measures in it.
pub fn run() -> Fallible<Result> {
    let kernel = lab::kernel()?;
    say("building the guest's programs");
    let xk = lab::module(&kernel.release, "kernel/xk")?;
    let kfunc = lab::module(&kernel.release, "kernel/bench")?;
    let program = build_program("xk-bench-trigger")?;
    let objects = compile_bpf()?;
    say(&format!("measuring in a deterministic guest on {}, about a minute", kernel.release));
    let printed = lab::run_deterministic(&format!(
        "insmod {} && insmod {} && exec {} {}",
        xk.display(),
        kfunc.display(),
        program.display(),
        objects.display()
    ))?;
    let last = printed.lines().last().unwrap_or_default();
    let measured = serde_json::from_str(last).with_context(|| format!("the guest printed: {printed}"))?;
    result(kernel.release, measured)
}

/// Builds `bench/trigger`; where its program `name` is.
pub(super) fn build_program(name: &str) -> Fallible<PathBuf> {
    let target = lab::target()?;
    lab::output(
        lab::command("cargo")?
            .args(["build", "--quiet", "--release", "--locked", "--manifest-path", "bench/trigger/Cargo.toml"])
            .arg("--target-dir")
            .arg(&target),
    )?;
    Ok(target.join("release").join(name))
}

/// Compiles `bench/trigger/bpf/*.bpf.c` into one folder.
pub fn compile_bpf() -> Fallible<PathBuf> {
    let out = lab::target()?.join("bench-bpf");
    fs::create_dir_all(&out).with_context(|| out.display().to_string())?;
    let clang = clang()?;
    for entry in fs::read_dir(lab::repository()?.join("bench/trigger/bpf"))? {
        let source = entry?.path();
        let Some(name) = source.file_stem().filter(|_| source.extension().is_some_and(|kind| kind == "c")) else {
            continue;
        };
        lab::output(
            lab::command(&clang)?
                .args(["-O2", "-g", "-Wall", "-Werror", "-target", "bpf", "-c"])
                .arg(&source)
                .arg("-o")
                .arg(out.join(Path::new(name).with_extension("bpf.o"))),
        )?;
    }
    Ok(out)
}

pub(super) fn clang() -> Fallible<String> {
    let runs = |name: &&str| Command::new(name).arg("--version").output().is_ok_and(|output| output.status.success());
    let found = ["clang-19", "clang"].into_iter().find(runs);
    found.map(str::to_owned).context("there is no clang to compile eBPF with: run `scripts/setup bench`")
}

fn result(kernel: String, measured: Measured) -> Fallible<Result> {
    let empty = measured.perf_bpf_empty;
    let costs = costs(&measured)?;
    let measured_ratios = costs.iter().filter(|(&name, _)| name != "perf_bpf_empty");
    let ratios = measured_ratios.map(|(&name, cost)| (name, cost.over(empty))).collect();
    let policy = *measured.xk_policies.get("policy").context("the guest measured no policy")?;
    let policy_ratio = policy.over(measured.perf_bpf_kfunc);
    let missed_limits = missed_limits(&measured, &costs, policy_ratio);
    let expression = |cost: Pair| Expression { extra_instructions: tenths(cost), ratio: cost.over(empty) };
    let policy_name = |name: String| if name == "policy" { "xk_policy".into() } else { name };
    Ok(Result {
        bench: "trigger",
        kernel,
        extra_instructions: costs.into_iter().map(|(name, cost)| (name, tenths(cost))).collect(),
        ratios,
        expressions: measured.xk_expressions.into_iter().map(|(name, cost)| (name, expression(cost))).collect(),
        detour_expressions: measured.detour_expressions.into_iter().map(|(name, cost)| (name, tenths(cost))).collect(),
        policies: measured.xk_policies.into_iter().map(|(name, cost)| (policy_name(name), tenths(cost))).collect(),
        policy_ratio,
        policy_limit: POLICY_LIMIT,
        limits: BTreeMap::from(LIMITS),
        within_limits: missed_limits.is_empty(),
        missed_limits,
        baseline_instructions: measured.baseline[0],
        places: measured.places,
        writes_per_round: measured.writes_per_round,
        rounds: measured.rounds,
        checked_writes: measured.checked_writes,
    })
}

fn tenths(cost: Pair) -> Pair {
    cost.map(|n| (n * 10.0).round() / 10.0)
}

/// Instructions on top of the baseline, by what runs at the probe.
fn costs(measured: &Measured) -> Fallible<BTreeMap<&'static str, Pair>> {
    let expression = *measured.xk_expressions.get(EXPRESSION).context("the guest measured no comparison")?;
    let detour_expression =
        *measured.detour_expressions.get(EXPRESSION).context("the guest measured no comparison by detour")?;
    Ok(BTreeMap::from([
        ("perf_bpf_empty", measured.perf_bpf_empty),
        ("perf_bpf_kfunc", measured.perf_bpf_kfunc),
        ("xk_value", measured.xk_value),
        ("xk_value_expr", expression),
        ("detour_value", measured.detour_value),
        ("detour_expr", detour_expression),
        ("detour_policy", measured.detour_policy),
        ("patch_value", Pair { jump: measured.patch_value, int3: measured.patch_value }),
    ]))
}

/// The limits that are exceeded, in words.
fn missed_limits(measured: &Measured, costs: &BTreeMap<&'static str, Pair>, policy_ratio: Pair) -> Vec<String> {
    let [(value, of_value), (_, of_expression)] = LIMITS;
    let missed = |name: &str, cost: &Pair, limit| {
        let beyond = cost.over(measured.perf_bpf_empty).beyond(limit);
        (!beyond.is_empty()).then(|| format!("{name}: {}", beyond.join(", ")))
    };
    let above = |name: &str, cost: Pair, limit: f64| {
        let beyond = tenths(cost).beyond(Pair { jump: limit, int3: limit });
        (!beyond.is_empty()).then(|| format!("{name}, instructions: {}", beyond.join(", ")))
    };
    let of_expressions = measured.xk_expressions.iter().filter_map(|(name, cost)| missed(name, cost, of_expression));
    let of_detours = DETOURS.iter().filter_map(|&(name, limit)| above(name, *costs.get(name)?, limit));
    let of_stubs = measured
        .detour_expressions
        .iter()
        .filter_map(|(name, &cost)| above(&format!("detour_expressions {name}"), cost, DETOUR_EXPRESSION));
    let of_policy = (policy_ratio.jump > POLICY_LIMIT).then(|| {
        format!(
            "xk_policy: jump {} of an eBPF kprobe that writes a register instead of {POLICY_LIMIT}",
            policy_ratio.jump
        )
    });
    missed(value, &measured.xk_value, of_value)
        .into_iter()
        .chain(of_expressions)
        .chain(of_detours)
        .chain(of_stubs)
        .chain(of_policy)
        .collect()
}

impl Result {
    /// An error that says which limits were missed, if any were.
    pub fn verdict(&self) -> Fallible<()> {
        ensure!(
            self.within_limits,
            "shares of an empty eBPF kprobe beyond their limits: {}",
            self.missed_limits.join("; ")
        );
        Ok(())
    }

    /// For people.
    pub fn table(&self) -> String {
        let mut text = format!(
            "Instructions on top of the {} of a one-byte write to /dev/null, {}\n",
            self.baseline_instructions.round(),
            self.kernel
        );
        let mut row = |name: &str, cost: &Pair, ratio: Option<&Pair>| {
            let shares = ratio.map_or(String::new(), |r| format!("  {:>4.2} and {:>4.2} of it", r.jump, r.int3));
            let _ = writeln!(text, "  {name:<36}{:>6} jump{:>6} int3{shares}", cost.jump, cost.int3);
        };
        for (name, words) in [
            ("perf_bpf_empty", "empty eBPF kprobe through perf"),
            ("perf_bpf_kfunc", "... that writes a register (kfunc)"),
            ("xk_value", "xk: a function of V alone"),
            ("detour_value", "xk by detour: a function of V alone"),
            ("detour_expr", "xk by detour: a comparison"),
            ("detour_policy", "xk by detour: a policy sets V"),
            ("patch_value", "xk by patch: a value"),
        ] {
            if let Some(cost) = self.extra_instructions.get(name) {
                row(words, cost, self.ratios.get(name));
            }
        }
        for (name, expression) in &self.expressions {
            row(&format!("xk: {}", name.replace('_', " of ")), &expression.extra_instructions, Some(&expression.ratio));
        }
        for (name, words) in [
            ("xk_policy", "xk: a policy sets a value"),
            ("o1", "xk: a policy, transition check"),
            ("o2", "... and a value is set"),
            ("o3", "... and kernel memory is read"),
            ("o4", "... and a map"),
        ] {
            if let Some(cost) = self.policies.get(name) {
                row(words, cost, None);
            }
        }
        let Pair { jump, int3 } = self.policy_ratio;
        let _ = writeln!(text, "  a policy: {jump:.2} and {int3:.2} of an eBPF kprobe that writes a register");
        for (kind, place) in &self.places {
            let _ = writeln!(text, "  {kind} at {place}");
        }
        let verdict = if self.within_limits { "within" } else { "NOT within" };
        let _ = writeln!(text, "  {verdict} the limits of the comparison with an empty eBPF kprobe");
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(value: f64) -> Measured {
        let pair = |jump, int3| Pair { jump, int3 };
        Measured {
            places: BTreeMap::new(),
            writes_per_round: 1,
            rounds: 1,
            baseline: [600.0; 2],
            checked_writes: 1,
            perf_bpf_empty: pair(300.0, 700.0),
            perf_bpf_kfunc: pair(400.0, 800.0),
            xk_value: pair(value, 500.0),
            xk_expressions: BTreeMap::from([(EXPRESSION.to_owned(), pair(150.0, 520.0))]),
            detour_value: pair(4.0, 4.0),
            detour_expressions: BTreeMap::from([(EXPRESSION.to_owned(), pair(4.0, 4.0))]),
            detour_policy: pair(100.0, 100.0),
            patch_value: 0.02,
            xk_policies: BTreeMap::from([("policy".to_owned(), pair(200.0, 590.0))]),
        }
    }

    #[test]
    fn shares_are_of_the_empty_program() {
        let result = result("r".into(), measured(120.0)).unwrap();
        assert_eq!(result.ratios["xk_value"], Pair { jump: 0.4, int3: 0.714 });
        assert!(result.within_limits && result.verdict().is_ok());
    }

    #[test]
    fn a_limit_that_is_exceeded_is_said() {
        let result = result("r".into(), measured(150.0)).unwrap();
        assert!(!result.within_limits);
        assert!(result.table().contains("NOT within"));
        let verdict = result.verdict().unwrap_err().to_string();
        assert!(verdict.ends_with("xk_value: jump 0.5 instead of 0.45"), "{verdict}");
    }

    #[test]
    fn a_policy_is_compared_with_a_program_that_writes() {
        let mut dear = measured(120.0);
        assert_eq!(result("r".into(), measured(120.0)).unwrap().policy_ratio, Pair { jump: 0.5, int3: 0.738 });
        dear.xk_policies.insert("policy".into(), Pair { jump: 260.0, int3: 600.0 });
        let verdict = result("r".into(), dear).unwrap().verdict().unwrap_err().to_string();
        assert!(verdict.contains("xk_policy: jump 0.65"), "{verdict}");
    }
}
