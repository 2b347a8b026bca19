//! Benchmarks and measurements that are not for users.

mod bench;
mod cases;
mod corpus;
mod differential;
mod draw;
mod drawn;
mod effects;
mod flex;
mod flex_fuzz;
mod flex_objects;
mod inside;
mod kernels;
mod lab;
mod list;
mod probes;
mod sched_faults;
mod sched_fuzz;
mod sched_rounds;
mod side_by_side;
mod soak;
mod spans;
mod stress;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

#[derive(Debug, Parser)]
#[command(name = "cargo xtask", about)]
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Debug, Subcommand)]
enum Task {
    /// Measure; with --json, the last line of each benchmark is one JSON object
    Bench(bench::Arguments),
    /// Let the kernel report the effect of every constant in cases/
    Effects(effects::Arguments),
    /// What each kernel of the lab can do: tables, modes, backends, policies
    Kernels(kernels::Arguments),
    /// Run the case studies of cases/studies
    Cases(cases::Arguments),
    /// Analyse every constant of a list
    Corpus(corpus::Arguments),
    /// Execute deployed code with its updates beside code compiled with the value, and compare
    Differential(differential::Arguments),
    /// Safe spans of every usable constant of the corpus
    Spans(spans::Arguments),
    /// End tunes under load, in every way, again and again
    Stress(stress::Stress),
    /// Everything at once, for a long time, on several kernels
    Soak(soak::Arguments),
    /// Check that probes count exactly, and that many of them stay sound for a long time
    Probes(probes::Arguments),
    /// End runs of rewritten eBPF programs, of every shape, on several hooks
    FlexCancel(flex::Arguments),
    /// Execute random operations on the data structures of extensions in an extension, a module and a process
    FlexFuzz(flex_fuzz::Arguments),
    /// Rewrite the kernel's own eBPF selftests, and compare what the verifier says before and after
    FlexObjects(flex_objects::Arguments),
    /// Let policies of xk_sched.ko make every mistake, beside others that make none
    SchedFaults(sched_faults::Arguments),
    /// Let a policy of xk_sched.ko schedule random threads of made-up machines, in user space
    SchedFuzz(sched_fuzz::Arguments),
    /// Move live threads between policies of xk_sched.ko, under load, while CPUs and modules come and go
    SchedRounds(sched_rounds::Arguments),
    /// Draw instructions of vmlinux for `inside hold`, and compile its program
    #[command(hide = true)]
    Drawn(drawn::Arguments),
    #[command(hide = true)]
    Inside(inside::Inside),
}

fn main() -> ExitCode {
    let done = match Arguments::parse().task {
        Task::Bench(arguments) => bench::run(&arguments),
        Task::Effects(arguments) => effects::run(&arguments),
        Task::Kernels(arguments) => kernels::run(&arguments),
        Task::Cases(arguments) => cases::run(&arguments),
        Task::Corpus(arguments) => corpus::run(&arguments),
        Task::Differential(arguments) => differential::run(&arguments),
        Task::Spans(arguments) => spans::run(&arguments),
        Task::Stress(arguments) => stress::run(&arguments),
        Task::Soak(arguments) => soak::run(&arguments),
        Task::Probes(arguments) => probes::run(&arguments),
        Task::FlexCancel(arguments) => flex::run(&arguments),
        Task::FlexFuzz(arguments) => flex_fuzz::run(&arguments),
        Task::FlexObjects(arguments) => flex_objects::run(&arguments),
        Task::SchedFaults(arguments) => sched_faults::run(&arguments),
        Task::SchedFuzz(arguments) => sched_fuzz::run(&arguments),
        Task::SchedRounds(arguments) => sched_rounds::run(&arguments),
        Task::Drawn(arguments) => drawn::run(&arguments),
        Task::Inside(arguments) => inside::run(&arguments),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}
