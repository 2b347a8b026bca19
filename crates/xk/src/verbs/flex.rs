//! `xk flex`: rewrites eBPF objects with loops that the kernel's verifier refuses.
//!
//! Input: a source, which is compiled first, or an object. xk-flex rewrites it. The files of this folder are the
//! subcommands.

mod build;
mod check;
mod damage;
mod explain;
mod list;
mod load;
mod run;
mod runs;
mod top;

use std::fs;
use std::path::{Path, PathBuf};

use xk_flex::{Choice, Done, Heap, LoopReport, Rewritten};
use xk_kernel::KernelChoice;
use xk_policy::SourceCompiler;
use xk_store::Folders;

use crate::exit::{Failure, Result};
use crate::output::count;
use crate::sites::notice;

/// Arguments of `xk flex`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
FILE is a source (FILE.bpf.c) or an object of clang. A source with loops that the verifier refuses includes
xk_flex.bpf.h: a run of it that takes longer than its deadline is ended, and releases what it holds. See docs/flex.md.")]
pub struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    /// Say whether a file can be rewritten
    Check(check::Args),
    /// Write an object in which loops can be ended
    Build(build::Args),
    /// Show each loop, and what happens to it
    Explain(explain::Args),
    /// Run the programs of a file, and show which runs are ended
    Run(run::Args),
    /// Load a file, and leave its programs attached
    Load(load::Args),
    /// Show what is loaded, and how many runs were ended
    List(list::Args),
    /// Sample what is loaded: ended runs and the heap, live
    Top(top::Args),
    /// End the runs of an extension; its programs stay
    Kill(load::KillArgs),
    /// Detach the programs of extensions, and forget them
    Unload(load::UnloadArgs),
    /// Serve an extension whose server has ended
    Serve(load::ServeArgs),
}

impl Args {
    /// Whether JSON was asked for.
    pub fn json(&self) -> bool {
        match &self.action {
            Action::Explain(args) => args.json,
            Action::Run(args) => args.json,
            Action::Load(args) => args.json,
            Action::List(args) => args.json,
            Action::Check(_) | Action::Build(_) | Action::Top(_) => false,
            Action::Kill(_) | Action::Unload(_) | Action::Serve(_) => false,
        }
    }
}

/// Runs the subcommand.
pub fn run(args: &Args) -> Result {
    match &args.action {
        Action::Check(args) => check::run(args),
        Action::Build(args) => build::run(args),
        Action::Explain(args) => explain::run(args),
        Action::Run(args) => run::run(args),
        Action::Load(args) => load::load(args),
        Action::List(args) => list::run(args),
        Action::Top(args) => top::run(args),
        Action::Kill(args) => load::kill(args),
        Action::Unload(args) => load::unload(args),
        Action::Serve(args) => load::serve(args),
    }
}

/// How often short loops are unrolled, if nothing else is said.
const UNROLL: u16 = Choice::UNROLL as u16;

/// The file to rewrite, and which of its loops.
#[derive(Debug, clap::Args)]
struct Input {
    /// FILE.bpf.c, or an object
    file: PathBuf,
    /// Instrument counted loops, too
    #[arg(long)]
    all: bool,
    /// Make numbers that these loops write unknown to the verifier, so that it does not follow each turn
    #[arg(long)]
    widen: bool,
    /// Unroll short loops up to N times, so that one turn in N looks; 1: do not unroll
    #[arg(long, value_name = "N", default_value_t = UNROLL, value_parser = clap::value_parser!(u16).range(1..))]
    unroll: u16,
    /// Leave this loop alone
    #[arg(long, value_name = "FILE.c:LINE")]
    leave: Vec<String>,
    /// Kernel types for a source: a vmlinux, or a copy of /sys/kernel/btf/vmlinux
    #[arg(long, value_name = "FILE")]
    btf: Option<PathBuf>,
    /// Compile a source with red zones and poison in its heap
    #[arg(long)]
    debug_heap: bool,
}

impl Input {
    fn object(&self) -> Result<Vec<u8>> {
        if self.file.extension().is_none_or(|extension| extension != "c") {
            if self.debug_heap {
                let file = self.file.display();
                return Err(Failure::usage(format!(
                    "--debug-heap: {file} is compiled already: define {} when you compile it",
                    Heap::DEBUG
                )));
            }
            return fs::read(&self.file).map_err(|error| failed(&self.file, &error));
        }
        let (folders, kernel) = (Folders::from_environment(), KernelChoice::default());
        let compiler = SourceCompiler { folders: &folders, kernel: &kernel, say: &notice };
        let macros: &[&str] = if self.debug_heap { &[Heap::DEBUG] } else { &[] };
        Ok(compiler.compile_defining(&self.file, self.btf.as_deref(), macros)?)
    }

    fn choice(&self) -> Choice {
        let Self { all, widen, .. } = *self;
        Choice { all, widen, leave: self.leave.clone(), unroll: self.unroll.into(), ..Choice::default() }
    }

    fn rewritten(&self) -> Result<Rewritten> {
        Ok(xk_flex::rewrite(&self.object()?, &self.choice())?)
    }
}

fn failed(path: &Path, error: &std::io::Error) -> Failure {
    Failure::error(format!("{}: {error}", path.display()))
}

/// Says what happens to a loop.
fn words(found: &LoopReport) -> String {
    match found.done {
        Done::Instrumented if found.copies > 1 => format!(
            "instrumented and unrolled {} times: counts its turns, and looks whether the run is to end",
            found.copies
        ),
        Done::Instrumented => "instrumented: counts its turns, and looks whether the run is to end".into(),
        Done::Counted(turns) => format!("left alone: at most {turns} turns"),
        Done::Left => "left alone: --leave".into(),
        Done::Ends => "left alone: it is part of what ends a run".into(),
        Done::NotNeeded => "left alone: the verifier did not refuse it".into(),
    }
}

/// Says what a turn of an instrumented loop costs, and why it is not unrolled.
fn cost(found: &LoopReport) -> Option<String> {
    if found.done != Done::Instrumented {
        return None;
    }
    let turns = match found.copies {
        1 => "each turn".to_owned(),
        copies => format!("{copies} turns, {:.1} per turn", found.cost as f64 / copies as f64),
    };
    let rolled = found.rolled.as_ref().map_or_else(String::new, |why| format!("; not unrolled: {why}"));
    Some(format!("costs {} in {turns}{rolled}", count(found.cost, "instruction")))
}

/// How the runs of an extension end early, by its looks: whether its program returns there. Only an object with a heap looks
/// there.
fn loops(looks: impl Iterator<Item = bool>) -> String {
    let (mut loops, mut has_heap) = (0, false);
    for returns in looks {
        loops += usize::from(!returns);
        has_heap |= returns;
    }
    match (loops, has_heap) {
        (0, false) => "the verifier accepts all loops as they are, and no run is ended".to_owned(),
        (0, true) => {
            "the verifier accepts all loops as they are; a run ends if it accesses the heap where no page is".to_owned()
        }
        (1, _) => "1 loop looks at the clock".to_owned(),
        _ => format!("{loops} ends of loops look at the clock"),
    }
}
