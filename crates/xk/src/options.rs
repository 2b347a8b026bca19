//! Options that several verbs share, as the command line spells them.

use std::path::PathBuf;
use std::time::Duration;

use clap::ValueEnum;
use xk_apply::{parse_time, TransitionOptions};
use xk_kernel::{KernelChoice, KernelId};
use xk_policy::Whom;
use xk_runtime::{BackendChoice, Mode};
use xk_store::Folders;
use xk_table::KernelRef;

use crate::exit::Result;

/// Options of verbs that analyse a kernel.
#[derive(Debug, Default, clap::Args)]
pub struct KernelArgs {
    /// Folder with boot/, lib/modules/ and usr/src/ of a kernel that does not run
    #[arg(long, value_name = "DIR")]
    root: Option<PathBuf>,
    /// Which kernel of --root, if it holds several
    #[arg(long, requires = "root")]
    release: Option<String>,
    /// A kernel bundle that `xk bundle` wrote
    #[arg(long, value_name = "FILE", conflicts_with_all = ["vmlinuz", "release"])]
    bundle: Option<PathBuf>,
    /// A boot image
    #[arg(long, value_name = "FILE", conflicts_with = "release")]
    vmlinuz: Option<PathBuf>,
    /// Root file system with the compiler and the tools that the kernel was built with, if they are not this
    /// machine's; one in toolchains/ of the cache is found by itself
    #[arg(long, value_name = "DIR")]
    toolchain: Option<PathBuf>,
}

impl KernelArgs {
    /// Whether the user named a kernel.
    pub fn is_given(&self) -> bool {
        self.root.is_some() || self.bundle.is_some() || self.vmlinuz.is_some()
    }

    /// The kernel that is meant.
    pub fn choice(&self) -> KernelChoice {
        let Self { root, release, bundle, vmlinuz, toolchain } = self;
        KernelChoice {
            root: root.clone(),
            release: release.clone(),
            bundle: bundle.clone(),
            vmlinuz: vmlinuz.clone(),
            toolchain: toolchain.clone(),
        }
    }
}

/// Options of verbs that show tables.
#[derive(Debug, Default, clap::Args)]
pub struct TablesArgs {
    /// Use the tables of another kernel, given by release or by a prefix of its build ID
    #[arg(long, value_name = "RELEASE|BUILD-ID")]
    pub kernel: Option<String>,
}

impl TablesArgs {
    /// The kernel that is meant, and whether it is the running one.
    pub fn choose(&self, folders: &Folders) -> Result<(KernelRef, bool)> {
        let live = KernelId::live().map(|id| KernelRef { release: id.release, build_id: id.build_id });
        let Some(wanted) = &self.kernel else { return Ok((live?, true)) };
        let kernel = folders.kernel(wanted)?;
        let is_live = live.is_ok_and(|live| live == kernel);
        Ok((kernel, is_live))
    }
}

/// When threads switch to another value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum ModeArg {
    /// At once, even if a thread still uses the old value
    Now,
    /// Each thread when it no longer uses the old value
    Task,
    /// All threads at once, when no thread uses the old value
    Global,
}

impl From<ModeArg> for Mode {
    fn from(mode: ModeArg) -> Self {
        match mode {
            ModeArg::Now => Self::Now,
            ModeArg::Task => Self::Task,
            ModeArg::Global => Self::Global,
        }
    }
}

/// Options of verbs that make a transition.
#[derive(Debug, clap::Args)]
pub struct TransitionArgs {
    /// When threads switch to the new value (default: the weakest mode that the constant needs)
    #[arg(long, value_enum)]
    mode: Option<ModeArg>,
    /// Give up after this time; the old values stay in force
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = parse_time)]
    timeout: Duration,
    /// Do not wait for these threads, whose stacks cannot be read; old and new values may be mixed in them
    #[arg(long, value_name = "THREAD", value_delimiter = ',')]
    ignore_unreadable: Vec<i32>,
}

impl TransitionArgs {
    /// The options of the transition.
    pub fn options(&self) -> TransitionOptions {
        TransitionOptions {
            mode: self.mode.map(Mode::from),
            timeout: self.timeout,
            ignore_unreadable: self.ignore_unreadable.clone(),
        }
    }
}

/// How control reaches the updates.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum BackendArg {
    /// A kprobe: uses only exported interfaces of the kernel; counts every execution
    Kprobe,
    /// A jump to a stub at every site, or nothing is loaded: no trap, no execution is missed
    Detour,
    /// Instructions that hold the value themselves at every site, or nothing is loaded: no run-time cost
    Patch,
    /// The cheapest that is possible: a patch (in mode global), else a detour, else a kprobe
    Auto,
}

impl From<BackendArg> for BackendChoice {
    fn from(backend: BackendArg) -> Self {
        match backend {
            BackendArg::Kprobe => Self::Kprobe,
            BackendArg::Detour => Self::Detour,
            BackendArg::Patch => Self::Patch,
            BackendArg::Auto => Self::Auto,
        }
    }
}

/// Whom a value is for. Several of one kind are alternatives; different kinds are combined.
#[derive(Debug, Default, clap::Args)]
#[command(next_help_heading = "For some only (interrupts on top of a thread do not count as the thread)")]
pub struct WhomArgs {
    /// Threads of this process
    #[arg(long, value_name = "PID")]
    pid: Vec<u32>,
    /// Threads of this name
    #[arg(long, value_name = "NAME")]
    comm: Vec<String>,
    /// Threads of this user
    #[arg(long, value_name = "UID")]
    uid: Vec<u32>,
    /// Threads in this control group (below /sys/fs/cgroup), or in one below it
    #[arg(long, value_name = "PATH")]
    cgroup: Vec<PathBuf>,
    /// Threads in this network namespace (/run/netns/NAME, /proc/PID/ns/net)
    #[arg(long, value_name = "FILE")]
    netns: Vec<PathBuf>,
    /// Work for this network interface or disk, including interrupts
    #[arg(long, value_name = "DEVICE")]
    dev: Vec<String>,
}

impl WhomArgs {
    /// The processes and devices that are meant.
    pub fn whom(&self) -> Whom {
        let Self { pid, comm, uid, cgroup, netns, dev } = self;
        Whom {
            pid: pid.clone(),
            comm: comm.clone(),
            uid: uid.clone(),
            cgroup: cgroup.clone(),
            netns: netns.clone(),
            dev: dev.clone(),
        }
    }
}
