//! What came of a soak.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

/// What was done, how often, and what was wrong.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Report {
    /// How the kernel preempts itself; empty if it does not say.
    pub preemption: String,
    /// Guest's time.
    pub seconds: f64,
    /// Times that `xk.ko` came and went.
    pub epochs: u32,
    /// What ended it before its time.
    pub failure: Option<String>,
    /// Completed transitions, by backend and mode.
    #[serde(rename = "transitions_by")]
    pub transitions: BTreeMap<String, u64>,
    /// Transitions that were given up since threads were inside.
    pub blocked: u64,
    /// What was seen where kprobes lead to updates, which may miss an execution: it uses the default.
    pub kprobes: Bucket,
    /// What was seen where nothing is missed.
    pub others: Bucket,
    /// Two values met in mode `now`, which allows it.
    pub now_violations: u64,
    /// Rounds in which a hundred sites were armed, changed and disarmed.
    pub arms: u64,
    /// Bytes of code that were compared each time.
    pub compared: usize,
    /// Bytes of code that were not what they had been, by symbol.
    #[serde(rename = "differences")]
    pub different: Vec<String>,
    /// Policies.
    pub policies: Policies,
    /// Modules that came and went, by name.
    pub modules: BTreeMap<String, u64>,
    /// A processor was switched off and on.
    pub hotplugs: u64,
    /// The function tracer was switched on and off.
    pub tracers: u64,
    /// Foreign probes that came and went on functions that have sites.
    pub foreign_probes: u64,
    /// Processes that began and ended.
    pub forks: u64,
    /// Threads likewise.
    pub threads: u64,
    /// Memory.
    pub pressure: Pressure,
    /// Faults.
    pub faults: FaultReport,
}

/// What threads saw.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Bucket {
    /// Executions of spans.
    pub executions: u64,
    /// Two values met.
    pub violations: u64,
    /// ... one of which was the default, which was not in force.
    pub with_default: u64,
    /// Executions that kprobes missed.
    pub missed: u64,
}

impl Bucket {
    /// Times that two values met, and no missed execution explains it.
    #[must_use]
    pub fn unexplained(&self) -> u64 {
        self.violations - self.with_default.min(self.missed)
    }
}

/// What became of policies.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Policies {
    /// The object was loaded, in force, and unloaded.
    pub loads: u64,
    /// Decisions.
    pub runs: u64,
    /// Changes by the process beside, by type of map; of a stream, what it has received.
    pub map_types: BTreeMap<String, u64>,
    /// Types of which the kernel allocates nothing, since the CPU has no `cmpxchg16b`.
    #[serde(default)]
    pub without_cx16: BTreeSet<String>,
}

/// How short memory was.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Pressure {
    /// Times that a process took all that was available.
    pub hogs: u64,
    /// Pages that the kernel looked at for reclaim.
    pub scanned: u64,
}

/// Which allocations failed.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct FaultReport {
    /// Who made them fail.
    pub by: String,
    /// Allocations that failed.
    pub injected: u64,
    /// Operations of `xk` that failed for that reason, and were repeated.
    pub failed: u64,
}

impl Report {
    /// Loads that were never there.
    #[must_use]
    pub fn missing(&self) -> Vec<String> {
        let counts = [
            ("arming", self.arms),
            ("policies", self.policies.loads.min(self.policies.runs)),
            ("CPU hotplug", self.hotplugs),
            ("function tracer", self.tracers),
            ("foreign probes", self.foreign_probes),
            ("forks", self.forks),
            ("threads that exit", self.threads),
            ("memory pressure", self.pressure.hogs.min(self.pressure.scanned)),
            ("faults", self.faults.injected),
            ("xk.ko coming back", u64::from(self.epochs).saturating_sub(1)),
            ("executions", self.kprobes.executions.min(self.others.executions)),
        ];
        let missing = counts.into_iter().filter(|(_, count)| *count == 0).map(|(name, _)| name.to_owned());
        let maps: BTreeSet<String> = super::companion::MAPS.iter().map(|(_, kind)| format!("{kind:?}")).collect();
        let maps = maps.into_iter().filter(|kind| self.policies.map_types.get(kind).is_none_or(|count| *count == 0));
        let maps = maps.filter(|kind| !self.policies.without_cx16.contains(kind));
        missing.chain(maps.map(|kind| format!("map {kind}"))).chain(self.unfinished()).collect()
    }

    /// Loads that were never there, as far as that can be told before the end.
    #[must_use]
    pub fn unfinished(&self) -> Vec<String> {
        let cases = super::transitions::CASES.iter().map(|(backend, mode)| super::transitions::name(*backend, *mode));
        let cases = cases.filter(|case| !self.transitions.contains_key(case)).map(|case| format!("transitions {case}"));
        // Each is unloaded and loaded again while the others run, or between two epochs.
        let loaded = |names: &[&str]| names.iter().filter_map(|name| self.modules.get(*name)).sum::<u64>();
        let epochs = u64::from(self.epochs) + 1;
        let modules = [("xk_atomic", epochs), ("xk_target", epochs), ("xk_bench", 1)];
        let modules = modules.into_iter().filter(|(name, count)| loaded(&[name]) <= *count);
        let modules = modules.map(|(name, _)| format!("module {name}"));
        cases.chain(modules).collect()
    }

    /// Times that two values met in a mode that promises otherwise.
    #[must_use]
    pub fn violations(&self) -> u64 {
        self.kprobes.unexplained() + self.others.violations
    }

    /// What is wrong, each in a sentence.
    #[must_use]
    pub fn wrong(&self) -> Vec<String> {
        let mut wrong: Vec<String> = self.failure.iter().cloned().collect();
        if self.violations() > 0 {
            wrong.push(format!("two values met {} times", self.violations()));
        }
        if !self.different.is_empty() {
            wrong.push(format!("{} bytes of code differ: {}", self.different.len(), self.different.join("; ")));
        }
        let missing = self.missing();
        if !missing.is_empty() {
            wrong.push(format!("never done: {}", missing.join(", ")));
        }
        wrong
    }
}
