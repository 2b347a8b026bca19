//! What the kernel says about the tunes that are in force.

use std::time::Duration;

use xk_table::{ConstRef, Mode, Range, Values};

use crate::abi;
use crate::livepatch::Livepatches;

/// A tune that is loaded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TuneStatus {
    /// Number by which it is changed and unloaded.
    pub id: u32,
    /// ConstID.
    pub name: String,
    /// Value in force.
    pub value: i64,
    /// Value in the source.
    pub default: i64,
    /// Values that may be set. The kernel does not know why others may not.
    pub values: Values,
    /// It outlives the process that loaded it.
    pub detached: bool,
    /// A site is disarmed, bypassed, broken or drifted: the value is not in force there.
    pub broken: bool,
    /// Process that loaded it.
    pub owner_pid: i32,
    /// Since it was loaded.
    pub age: Duration,
    /// Until it ends by itself; `None` when it does not.
    pub lease: Option<Duration>,
    /// How it was changed last, and how it is unloaded when its owner exits.
    pub mode: Mode,
    /// Whether one value is in force.
    pub state: State,
    /// Threads that the last stop of a transition found inside.
    pub blocking: u32,
    /// Some of them by number and name, with their stacks; empty when none is.
    pub blockers: String,
    /// Safe spans that a transition waits for.
    pub scopes: u32,
    /// Threads that no transition waits for, as their stacks cannot be read ([`crate::Device::ignore`]).
    pub ignored: Vec<i32>,
    /// What its policy did, if one decides.
    pub policy: Option<PolicyStatus>,
    /// Its sites.
    pub sites: Vec<SiteStatus>,
}

/// Stops of all processors, in which threads are looked at and values change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stops {
    /// How many.
    pub number: u64,
    /// How long, together.
    pub total: Duration,
    /// The longest.
    pub longest: Duration,
    /// Stacks of threads that were read meanwhile: those of threads that had run since they were looked at before.
    pub stacks: u64,
    /// For how long they have been counted: since `xk.ko` was loaded.
    pub since: Duration,
}

impl Stops {
    /// The part of the time that they took, from 0 to 1.
    #[must_use]
    pub fn share(&self) -> f64 {
        if self.since.is_zero() {
            return 0.0;
        }
        self.total.as_secs_f64() / self.since.as_secs_f64()
    }
}

/// Whether one value is in force.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// One is.
    Stable,
    /// It goes to [`TuneStatus::value`]; threads that are inside still use the one before.
    Changing,
    /// A transition was given up; threads that are inside still use its value.
    Reverting,
    /// It goes back to the default for good.
    Unloading,
}

impl State {
    fn new(number: u32) -> Self {
        match number {
            abi::STATE_STABLE => Self::Stable,
            abi::STATE_CHANGING => Self::Changing,
            abi::STATE_REVERTING => Self::Reverting,
            _ => Self::Unloading,
        }
    }
}

/// How control reaches a site now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Probe {
    /// A jump: optimised.
    Jump,
    /// A breakpoint.
    Int3,
    /// A jump of xk's own to a stub: nothing is missed.
    Detour,
    /// No probe: the instructions hold the value.
    Patch,
    /// Nothing: the default is in force.
    Disarmed,
    /// Nothing, as its module is not loaded.
    Waiting,
    /// It is there, and nothing reaches it: a livepatch replaced the function.
    Bypassed,
    /// Nothing: its module came with other code than the one that was analysed.
    Broken,
    /// No probe: an object in memory holds the value.
    Data,
    /// No probe: something else has written to the object in memory.
    Drifted,
    /// The running bytes cannot be read, or are not those of xk.ko.
    Unknown,
}

/// A site of a tune.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SiteStatus {
    /// Address of the probed instruction or of the object's value; 0 while the site waits.
    pub address: u64,
    /// Function, or object.
    pub symbol: String,
    /// Module; `None` for vmlinux.
    pub module: Option<String>,
    /// Offset of the probed instruction in the function, or of the value in the object.
    pub offset: u32,
    /// How control reaches it.
    pub probe: Probe,
    /// Why the value is not in force there, if it is known.
    pub reason: Option<String>,
    /// Why it is not what was wanted: no patch where it is a detour, else no detour.
    pub note: Option<String>,
    /// Whether all executions are counted; of a detour, only those during transitions
    /// may be, of a patch none.
    pub counted: bool,
    /// The update was reached.
    pub hits: u64,
    /// ... and changed the state.
    pub applied: u64,
    /// ... and could not access memory: the default was used.
    pub faults: u64,
    /// The update was not reached although the instruction was: the default was used.
    pub missed: u64,
}

/// What the policy of a tune did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PolicyStatus {
    /// Number of the BPF program.
    pub program: u32,
    /// BPF links that live as long as the policy.
    pub links: u32,
    /// By site, in the order of the tune's.
    pub sites: Vec<SitePolicy>,
}

/// What a policy did at one site.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SitePolicy {
    /// The program ran.
    pub runs: u64,
    /// An execution used a value that it had set.
    pub chosen: u64,
    /// A value outside the proved range was not accepted.
    pub refused: u64,
    /// It was running on this processor already, and was not run again.
    pub skipped: u64,
    /// It had decided in this activation.
    pub reused: u64,
    /// Its activation had not been seen to begin: it was not asked.
    pub unseen: u64,
    /// The value that was used last; `None` if none was.
    pub last: Option<i64>,
    /// How often values were used: below 1, 1, 2 to 3, 4 to 7, and so on.
    pub histogram: Vec<u64>,
}

impl SitePolicy {
    pub(crate) fn new(info: &abi::PolicyInfo) -> Self {
        Self {
            runs: info.runs,
            chosen: info.chosen,
            refused: info.refused,
            skipped: info.skipped,
            reused: info.reused,
            unseen: info.unseen,
            last: (info.chosen != 0).then_some(info.last),
            histogram: info.histogram.to_vec(),
        }
    }
}

impl TuneStatus {
    /// Whether this is a tune of `constant`. The kernel knows a long ConstID by its alias.
    #[must_use]
    pub fn is_of(&self, constant: &ConstRef) -> bool {
        self.name == constant.id || constant.name.as_deref() == Some(&self.name)
    }

    /// Whether the value is in force at every site whose module is loaded.
    #[must_use]
    pub fn in_force_everywhere(&self) -> bool {
        let ill = |site: &SiteStatus| matches!(site.probe, Probe::Disarmed | Probe::Broken | Probe::Drifted);
        !self.broken && !self.sites.iter().any(ill)
    }

    /// The owner in words: `held by process 42 (sh)`, or `detached, loaded by process 42`. Reads the name of the process
    /// from `/proc`.
    #[must_use]
    pub fn owner(&self) -> String {
        let process = match std::fs::read_to_string(format!("/proc/{}/comm", self.owner_pid)) {
            Ok(name) if !self.detached => format!("process {} ({})", self.owner_pid, name.trim()),
            _ => format!("process {}", self.owner_pid),
        };
        if self.detached {
            format!("detached, loaded by {process}")
        } else {
            format!("held by {process}")
        }
    }

    pub(crate) fn new(info: &abi::TuneInfo, compiled: Vec<i64>, sites: Vec<SiteStatus>, blockers: String) -> Self {
        let proved = Some(Range::of(info.min, info.max)).filter(|range| range.min <= range.max);
        Self {
            id: info.id,
            name: abi::text(&info.name),
            value: info.value,
            default: info.default_value,
            values: Values { proved, compiled, ..Values::default() },
            detached: info.flags & abi::TUNE_DETACHED != 0,
            broken: info.flags & abi::TUNE_BROKEN != 0 || sites.iter().any(|site| site.probe == Probe::Bypassed),
            owner_pid: info.owner_pid,
            age: Duration::from_nanos(info.age_ns),
            lease: (info.lease_ns != 0).then(|| Duration::from_nanos(info.lease_ns)),
            mode: match info.mode {
                abi::MODE_NOW => Mode::Now,
                abi::MODE_TASK => Mode::Task,
                _ => Mode::Global,
            },
            state: State::new(info.state),
            blocking: info.blocking,
            blockers,
            scopes: info.nr_scopes,
            ignored: info.ignored.iter().take(info.nr_ignored as usize).copied().collect(),
            policy: None,
            sites,
        }
    }
}

impl SiteStatus {
    pub(crate) fn new(info: &abi::SiteInfo, livepatches: &Livepatches) -> Self {
        let mut site = Self::by_kernel(info);
        if matches!(site.probe, Probe::Jump | Probe::Int3 | Probe::Detour | Probe::Patch | Probe::Unknown) {
            // A site that waits for its module has no address.
            let start = site.address.checked_sub(u64::from(site.offset));
            let patch = start.and_then(|start| livepatches.around(&site.symbol, site.module.as_deref(), start));
            if let Some(patch) = patch {
                site.reason = Some(format!("bypassed by livepatch {patch}"));
                site.probe = Probe::Bypassed;
            }
        }
        site
    }

    fn by_kernel(info: &abi::SiteInfo) -> Self {
        let [module, reason, note] = [&info.module[..], &info.reason[..], &info.note[..]].map(abi::text);
        Self {
            address: info.address,
            symbol: abi::text(&info.symbol),
            module: (!module.is_empty()).then_some(module),
            offset: info.offset,
            probe: probe(info.flags),
            reason: (!reason.is_empty()).then_some(reason),
            note: (!note.is_empty()).then_some(note),
            counted: info.flags & abi::SITE_UNCOUNTED == 0,
            hits: info.hits,
            applied: info.applied,
            faults: info.faults,
            missed: info.missed,
        }
    }
}

fn probe(flags: u32) -> Probe {
    if flags & abi::SITE_WAITING != 0 {
        Probe::Waiting
    } else if flags & abi::SITE_BROKEN != 0 {
        Probe::Broken
    } else if flags & abi::SITE_DRIFTED != 0 {
        Probe::Drifted
    } else if flags & (abi::SITE_IN_DATA | abi::SITE_ARMED) == abi::SITE_IN_DATA | abi::SITE_ARMED {
        Probe::Data
    } else if flags & abi::SITE_OPT_UNKNOWN != 0 {
        Probe::Unknown
    } else if flags & (abi::SITE_ARMED | abi::SITE_DETOUR) == abi::SITE_ARMED | abi::SITE_DETOUR {
        Probe::Detour
    } else if flags & (abi::SITE_ARMED | abi::SITE_PATCH) == abi::SITE_ARMED | abi::SITE_PATCH {
        Probe::Patch
    } else if flags & abi::SITE_OPTIMISED != 0 {
        Probe::Jump
    } else if flags & abi::SITE_ARMED != 0 {
        Probe::Int3
    } else {
        Probe::Disarmed
    }
}
