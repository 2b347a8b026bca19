//! `xk sched`: scheduling policies that are kernel modules. The files of this folder are the subcommands.

mod list;
mod run;
mod set;
mod status;

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
    /// Run a command under a policy
    Run(run::Args),
    /// Give a running process to a policy
    Set(set::Args),
}

impl Args {
    /// Whether JSON was asked for.
    pub fn json(&self) -> bool {
        match &self.action {
            Action::List(args) => args.json,
            Action::Status(args) => args.json,
            Action::Run(_) | Action::Set(_) => false,
        }
    }
}

/// Runs the subcommand.
pub fn run(args: &Args) -> Result {
    match &args.action {
        Action::List(args) => list::run(args),
        Action::Status(args) => status::run(args),
        Action::Run(args) => run::run(args),
        Action::Set(args) => set::run(args),
    }
}
