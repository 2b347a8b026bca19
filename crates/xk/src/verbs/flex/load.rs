//! `xk flex load`: programs that stay when the command ends, and the process that serves them.

use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::Duration;

use jiff::Timestamp;
use serde_json::json;
use xk_apply::parse_time;
use xk_flex::kept::{Kept, Options};
use xk_policy::Group;

use super::loops;
use super::run::interface;
use super::runs::RunOptions;
use crate::exit::{Failure, Result};
use crate::output::print_json;
use crate::signals;

/// What a server prints when it serves.
const READY: &str = "ready\n";

/// Arguments of `xk flex load`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
The programs stay attached until `xk flex unload NAME` or the next boot. A process in the background serves them: it
gives the heap pages, and counts the runs that are ended. If it dies, the programs go on; `xk flex serve NAME` replaces
it. Maps and links are in /sys/fs/bpf/xk-flex/NAME.")]
pub struct Args {
    #[command(flatten)]
    input: super::Input,
    #[command(flatten)]
    runs: RunOptions,
    /// What to call it: letters, digits, _ and - [default: the name of the file]
    #[arg(long)]
    name: Option<String>,
    /// Detach the programs when so many runs were ended
    #[arg(long, value_name = "RUNS", value_parser = clap::value_parser!(u64).range(1..))]
    detach_after: Option<u64>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Loads the file, attaches its programs, and starts the process that serves them.
pub fn load(args: &Args) -> Result {
    let name = Group::name_for(&args.input.file, args.name.as_deref())?;
    let control = args.runs.control()?;
    let bytes = args.input.object()?;
    let file = std::path::absolute(&args.input.file).unwrap_or_else(|_| args.input.file.clone());
    let options = Options {
        name: &name,
        file: &file,
        now: Timestamp::now().as_second(),
        choice: args.input.choice(),
        control,
        heap: args.runs.heap.map(|size| u64::from(size) << 20),
        interface: args.runs.dev.as_deref().map(interface).transpose()?,
        most_ended: args.detach_after,
    };
    let record = Kept::load(&bytes, &options, || start_server(&name))?;
    if args.json {
        print_json(json!({ "name": record.name, "programs": record.programs, "looks": record.looks.len() }));
    } else {
        let loops = loops(record.looks.iter().map(|look| look.returns));
        println!("{name}: {} stay until `xk flex unload {name}`; {loops}", record.programs.join(", "));
    }
    Ok(())
}

/// Starts a process of its own session, and waits until it serves.
fn start_server(name: &str) -> Result {
    let failed = |error: std::io::Error| Failure::error(format!("{name}: no process serves it: {error}"));
    let kept = Kept::open(name)?;
    let log = File::create(kept.log()).map_err(failed)?;
    let mut command = Command::new(std::env::current_exe().map_err(failed)?);
    command.args(["flex", "serve", name]).current_dir("/");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log);
    // SAFETY: setsid only changes the new process, and may be called between fork and exec.
    unsafe {
        command.pre_exec(|| match libc::setsid() {
            -1 => Err(std::io::Error::last_os_error()),
            _ => Ok(()),
        });
    }
    let mut server = command.spawn().map_err(failed)?;
    let mut said = vec![0; READY.len()];
    let output = server.stdout.as_mut().map(|output| output.read_exact(&mut said));
    if output.is_some_and(|read| read.is_ok()) && said == READY.as_bytes() {
        return Ok(());
    }
    let status = server.wait().map_err(failed)?;
    Err(Failure::error(format!(
        "{name}: the process that serves it failed: {}",
        kept.said().unwrap_or(status.to_string())
    )))
}

/// Arguments of `xk flex serve`.
#[derive(Debug, clap::Args)]
pub struct ServeArgs {
    /// The extension, as `xk flex list` shows it
    name: String,
}

/// Serves an extension until it is unloaded, or until a signal.
pub fn serve(args: &ServeArgs) -> Result {
    signals::hold_back();
    let kept = Kept::open(&args.name)?;
    let wait = |time: Duration| signals::came_within(time);
    let ready = || {
        // Who started it may have gone, and nobody else needs to know.
        _ = std::io::stdout().write_all(READY.as_bytes()).and_then(|()| std::io::stdout().flush());
    };
    Ok(kept.serve(ready, wait)?)
}

/// Arguments of `xk flex unload`.
#[derive(Debug, clap::Args)]
pub struct UnloadArgs {
    /// Extensions, as `xk flex list` shows them
    #[arg(required = true)]
    names: Vec<String>,
}

/// Unloads them. A wrong name is refused before anything is unloaded.
pub fn unload(args: &UnloadArgs) -> Result {
    let all = args.names.iter().map(|name| Kept::open(name)).collect::<std::result::Result<Vec<_>, _>>()?;
    for kept in all {
        kept.unload()?;
        println!("{}: unloaded", kept.name());
    }
    Ok(())
}

/// Arguments of `xk flex kill`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Programs stay attached. Runs that begin in this time end at their first look, too; later ones go on as before.")]
pub struct KillArgs {
    /// The extension, as `xk flex list` shows it
    name: String,
    /// End every run for so long
    #[arg(long = "for", value_name = "TIME", value_parser = parse_time, default_value = "1s")]
    time: Duration,
}

/// Ends the runs that are under way.
pub fn kill(args: &KillArgs) -> Result {
    // ^C ends the wait, not the process.
    signals::hold_back();
    let wait = || _ = signals::came_within(args.time);
    Kept::open(&args.name)?.end_runs(wait)?;
    println!("{}: every run was ended at its next look", args.name);
    Ok(())
}
