//! `xk sched`: scheduling policies that are kernel modules. The files of this folder are the subcommands.

mod cpus;
mod dump;
mod list;
mod record;
mod replace;
mod run;
mod set;
mod status;
mod top;
mod trace;
mod weight;

pub(super) use status::sentence;

use crate::exit::Result;

/// Arguments of `xk sched`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
A policy is a kernel module: load xk_sched.ko, then for example xk_sched_fifo.ko. A thread that chose a policy keeps it, and
what it starts inherits it. `fair` is the class of threads that chose none. See docs/sched.md.")]
pub struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    /// Show the policies that are loaded
    List(list::Args),
    /// Show whether policies decide, and why some were ejected
    Status(status::Args),
    /// Show what policies do, again and again
    Top(top::Args),
    /// Show the threads of policies, and their states
    Dump(dump::Args),
    /// Show changes of states while a command runs
    Trace(trace::Args),
    /// Run a command under a policy
    Run(run::Args),
    /// Give a running process to a policy
    Set(set::Args),
    /// Set the share of a policy, of CPUs where other policies have threads, too
    Weight(weight::Args),
    /// Set the CPUs on which threads of a policy run
    Cpus(cpus::Args),
    /// Give all threads of a policy to another, for example a new version, while they run
    Replace(replace::Args),
    /// Run a command under a policy, and write what the policy was told and decided to a file
    Record(record::Args),
}

impl Args {
    /// Whether JSON was asked for.
    pub fn json(&self) -> bool {
        match &self.action {
            Action::List(args) => args.json,
            Action::Status(args) => args.json,
            Action::Dump(args) => args.json,
            Action::Top(_) | Action::Trace(_) => false,
            Action::Run(_) | Action::Set(_) | Action::Weight(_) => false,
            Action::Cpus(_) | Action::Replace(_) | Action::Record(_) => false,
        }
    }
}

/// Runs the subcommand.
pub fn run(args: &Args) -> Result {
    match &args.action {
        Action::List(args) => list::run(args),
        Action::Status(args) => status::run(args),
        Action::Top(args) => top::run(args),
        Action::Dump(args) => dump::run(args),
        Action::Trace(args) => trace::run(args),
        Action::Run(args) => run::run(args),
        Action::Set(args) => set::run(args),
        Action::Weight(args) => weight::run(args),
        Action::Cpus(args) => cpus::run(args),
        Action::Replace(args) => replace::run(args),
        Action::Record(args) => record::run(args),
    }
}
