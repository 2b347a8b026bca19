//! Whether runs of rewritten programs end at their deadline and release what they hold. Programs are endless loops of
//! every shape, holding every kind of thing, on several hooks. What is done in the guest is `inside::flex`.

mod programs;

use std::fs;
use std::path::Path;

use anyhow::{ensure, Context, Result};
use serde::Serialize;
use xk_flex::{rewrite, Choice};
use xk_policy::{compile, Headers};

use crate::inside::flex::{Cancelled, Prepared, Report};
use crate::lab;
use programs::{correct, programs, Program};

/// Arguments of `flex-cancel`.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Runs of each program
    #[arg(long, default_value_t = 100)]
    runs: u32,
    /// Runs of a program that ends by itself
    #[arg(long, default_value_t = 240_000)]
    correct: u32,
    /// Only programs whose names contain this
    #[arg(long, default_value = "")]
    only: String,
    /// One JSON object on the last line
    #[arg(long)]
    json: bool,
    /// Give runs no deadline, to see that the check fails
    #[arg(long)]
    broken: bool,
}

#[derive(Debug, Serialize)]
struct Outcome {
    flex_cancel: Vec<Cancelled>,
    programs: usize,
    runs: u32,
    /// Median over all runs: microseconds of the guest from the deadline to the return to user space.
    median_us: f64,
    most_us: f64,
    correct_runs: u32,
    correct_cancelled: usize,
    ok: bool,
}

/// Writes the objects, runs them in a guest, and judges.
///
/// # Errors
/// When a program is not ended as it should, or there was no guest.
pub fn run(arguments: &Arguments) -> Result<()> {
    let kernel = lab::kernel()?;
    let folder = tempfile::tempdir()?;
    let types = kernel.root.join("usr/src").join(format!("linux-headers-{}", kernel.release)).join("vmlinux");
    let headers = Headers::new(&types, folder.path(), &kernel.release)?;
    let wanted: Vec<Program> =
        programs().into_iter().filter(|program| program.name.contains(&arguments.only)).collect();
    ensure!(!wanted.is_empty(), "no program is called {}", arguments.only);
    eprintln!("flex-cancel: writing {} programs", wanted.len());
    let mut prepared = Vec::new();
    for program in &wanted {
        prepared.push(prepare(program, &headers, folder.path())?);
    }
    prepare(&correct(), &headers, folder.path())?;
    fs::write(folder.path().join("programs.json"), serde_json::to_vec(&prepared)?)?;
    let script = format!(
        "exec {} inside flex --folder {} --runs {} --correct {}{}",
        std::env::current_exe()?.display(),
        folder.path().display(),
        arguments.runs,
        arguments.correct,
        if arguments.broken { " --broken" } else { "" }
    );
    eprintln!("flex-cancel: running them in a guest of {}", kernel.release);
    let printed = lab::run_guest(&script, &["--icount", "--cpus", "1", "--timeout", "14400"])?;
    let last = printed.lines().last().unwrap_or_default();
    let report: Report = serde_json::from_str(last).with_context(|| format!("the guest printed: {printed}"))?;
    judge(arguments, report)
}

/// Compiles and rewrites a program.
fn prepare(program: &Program, headers: &Headers, folder: &Path) -> Result<Prepared> {
    let (source, object) = (folder.join("program.bpf.c"), folder.join(format!("{}.bpf.o", program.name)));
    fs::write(&source, &program.source)?;
    let compiled = compile(&source, headers).with_context(|| format!("{}:\n{}", program.name, program.source))?;
    let done = rewrite(&compiled, &Choice { all: true, ..Choice::default() })
        .with_context(|| format!("{}:\n{}", program.name, program.source))?;
    fs::write(object, done.bytes)?;
    Ok(Prepared {
        name: program.name.clone(),
        attached: program.attached,
        finds_socket: program.finds_socket,
        expected: program.expected,
        locks: program.locks,
        connection: if program.finds_socket { variable(&compiled, "connection")? } else { 0 },
    })
}

/// Where a variable of an object is in its section.
///
/// # Errors
/// It has none of this name.
pub fn variable(bytes: &[u8], name: &str) -> Result<usize> {
    use object::{Object, ObjectSymbol};

    let file = object::File::parse(bytes)?;
    let symbol = file.symbol_by_name(name).with_context(|| format!("the object has no variable {name}"))?;
    Ok(usize::try_from(symbol.address())?)
}

fn judge(arguments: &Arguments, report: Report) -> Result<()> {
    let mut late: Vec<i64> = report.programs.iter().flat_map(|program| program.late_ns.iter().copied()).collect();
    late.sort_unstable();
    let micro = |nanoseconds: Option<&i64>| nanoseconds.map_or(f64::NAN, |value| *value as f64 / 1000.0);
    let (median, most) = (micro(late.get(late.len() / 2)), micro(late.last()));
    let mut wrong = Vec::new();
    for program in &report.programs {
        if program.ended != arguments.runs || !program.fault.is_empty() {
            wrong.push(format!("{}: {} of {} ended: {}", program.name, program.ended, arguments.runs, program.fault));
        }
        if program.left != 0 {
            wrong.push(format!("{}: {} references are left", program.name, program.left));
        }
    }
    if median > 2000.0 || median.is_nan() {
        wrong.push(format!("a run ends {median} us after its deadline; it should be at most 2000"));
    }
    if report.correct_cancelled != 0 || report.correct_runs != arguments.correct {
        wrong.push(format!("{} of {} correct runs were ended", report.correct_cancelled, report.correct_runs));
    }
    eprintln!(
        "flex-cancel: {} programs, {} runs each: median {median:.0} us after the deadline, at most {most:.0}; {} correct \
         runs, {} ended",
        report.programs.len(),
        arguments.runs,
        report.correct_runs,
        report.correct_cancelled
    );
    if arguments.json {
        let outcome = Outcome {
            programs: report.programs.len(),
            flex_cancel: report.programs,
            runs: arguments.runs,
            median_us: median,
            most_us: most,
            correct_runs: report.correct_runs,
            correct_cancelled: report.correct_cancelled,
            ok: wrong.is_empty(),
        };
        println!("{}", serde_json::to_string(&outcome)?);
    }
    ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
    Ok(())
}
