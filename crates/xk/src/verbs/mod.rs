//! The verbs, one file each: arguments, calls, output. This file only dispatches.

mod apply;
mod build;
mod bundle;
mod compile;
mod doctor;
mod explain;
mod flex;
mod gen;
mod get;
mod history;
mod list;
mod load;
mod pages;
mod probe;
mod report;
mod scan;
mod sched;
mod set;
mod sign;
mod status;
mod tables;
mod top;
mod tune;
mod unload;
mod unset;
mod verify;

use crate::exit::Result;

/// What to do.
#[derive(Debug, clap::Subcommand)]
pub enum Verb {
    /// Check whether this machine has what xk needs
    Doctor(doctor::Args),
    /// List constants of the kernel that look worth tuning
    Scan(scan::Args),
    /// Analyse constants and write their scope tables
    Build(build::Args),
    /// Show what the analysis found: where a constant is used, and what a tune changes there
    Explain(explain::Args),
    /// Verify tables again: identity of the code, compiled values, proofs
    Verify(verify::Args),
    /// Share scope tables between machines with the same kernel build
    Tables(tables::Args),
    /// Sign tables for an xk.ko that accepts signed tables only
    Sign(sign::Args),
    /// List tunable constants and their values
    List(list::Args),
    /// Set constants to new values
    Set(set::Args),
    /// Print the current value
    Get(get::Args),
    /// Revert constants to their defaults
    Unset(unset::Args),
    /// Generate a policy to start from
    Gen(gen::Args),
    /// Load the policies of a file: eBPF programs that choose values
    Load(load::Args),
    /// Replace loaded policies
    Reload(load::ReloadArgs),
    /// Unload policies that were loaded together
    Unload(unload::Args),
    /// Compile policies or probes for machines without a compiler
    Compile(compile::Args),
    /// Apply declared tunes; revert those no longer declared
    Apply(apply::Args),
    /// Search for good settings on a real workload, and remember them
    Tune(tune::Args),
    /// Show all tunes in force, with their sites
    Status(status::Args),
    /// Show who changed what, when, from what to what
    History(history::Args),
    /// Write a page about this machine: what is in force, the history, refusals, searches
    Report(report::Args),
    /// Watch tunes: rates, misses, values that policies choose, estimated cost
    Top(top::Args),
    /// Run an eBPF program at any instruction of the kernel, or count its executions
    Probe(probe::Args),
    /// Rewrite eBPF objects so that the verifier accepts their loops, and runs can be ended
    Flex(flex::Args),
    /// Run programs under scheduling policies that are kernel modules
    Sched(sched::Args),
    /// Save the running kernel to a file, for analysis on another machine
    Bundle(bundle::Args),
    /// Write manual pages and completions, for packages
    #[command(hide = true)]
    Pages(pages::Args),
}

impl Verb {
    /// Does it.
    pub fn run(self) -> Result {
        match self {
            Verb::Doctor(args) => doctor::run(&args),
            Verb::Scan(args) => scan::run(&args),
            Verb::Build(args) => build::run(args),
            Verb::Explain(args) => explain::run(&args),
            Verb::Verify(args) => verify::run(&args),
            Verb::Tables(args) => tables::run(&args),
            Verb::Sign(args) => sign::run(&args),
            Verb::List(args) => list::run(&args),
            Verb::Set(args) => set::run(&args),
            Verb::Get(args) => get::run(&args),
            Verb::Unset(args) => unset::run(&args),
            Verb::Gen(args) => gen::run(&args),
            Verb::Load(args) => load::run(&args),
            Verb::Reload(args) => load::reload(&args),
            Verb::Unload(args) => unload::run(&args),
            Verb::Compile(args) => compile::run(&args),
            Verb::Apply(args) => apply::run(&args),
            Verb::Tune(args) => tune::run(&args),
            Verb::Status(args) => status::run(&args),
            Verb::History(args) => history::run(&args),
            Verb::Report(args) => report::run(&args),
            Verb::Top(args) => top::run(&args),
            Verb::Probe(args) => probe::run(&args),
            Verb::Flex(args) => flex::run(&args),
            Verb::Sched(args) => sched::run(&args),
            Verb::Bundle(args) => bundle::run(&args),
            Verb::Pages(args) => pages::run(&args),
        }
    }

    /// Whether it changes the kernel. If so, the history has its refusals.
    pub fn changes(&self) -> bool {
        match self {
            Verb::Set(_) | Verb::Unset(_) | Verb::Load(_) | Verb::Reload(_) | Verb::Unload(_) | Verb::Sched(_) => true,
            Verb::Apply(args) => !args.dry_run,
            _ => false,
        }
    }

    /// Whether JSON was asked for.
    pub fn json(&self) -> bool {
        match self {
            Verb::Doctor(args) => args.json,
            Verb::Scan(args) => args.json,
            Verb::Explain(args) => args.json,
            Verb::Verify(args) => args.json,
            Verb::List(args) => args.json,
            Verb::Get(args) => args.json,
            Verb::Apply(args) => args.json,
            Verb::Status(args) => args.json,
            Verb::History(args) => args.json,
            Verb::Tune(args) => args.json(),
            Verb::Probe(args) => args.json(),
            Verb::Flex(args) => args.json(),
            Verb::Sched(args) => args.json(),
            Verb::Build(_) | Verb::Set(_) | Verb::Unset(_) | Verb::Top(_) => false,
            Verb::Report(_) | Verb::Bundle(_) | Verb::Pages(_) => false,
            Verb::Gen(_) | Verb::Load(_) | Verb::Reload(_) | Verb::Unload(_) | Verb::Compile(_) | Verb::Sign(_) => {
                false
            }
            Verb::Tables(_) => false,
        }
    }
}
