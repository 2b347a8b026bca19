//! `xk sched trace`: the tracepoints of xk_sched.ko while a command runs.

use std::ffi::OsString;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::exit::{Failure, Result};

const TRACING: &str = "/sys/kernel/tracing";
const EVENTS: &str = "events/xk_sched";

/// Arguments of `xk sched trace`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
xk_sched_change: a policy changes the state of a thread in this event (`kernel`: the kernel takes it out of its queue).
xk_sched_move: a thread that waits goes to another CPU. xk_sched_eject: a policy is ejected. Without a shell: the files of
/sys/kernel/tracing/events/xk_sched.")]
pub struct Args {
    /// Only this policy
    #[arg(long)]
    policy: Option<String>,
    /// Memory for each CPU; if it is full, the oldest are lost
    #[arg(long, value_name = "KIB", default_value_t = 8192, value_parser = clap::value_parser!(u32).range(16..))]
    buffer: u32,
    /// The command, after `--`; for example `xk sched run POLICY -- ..`
    #[arg(required = true, last = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

/// A tracing instance, removed when this is dropped.
struct Instance(PathBuf);

impl Instance {
    fn new() -> Result<Self> {
        let path = Path::new(TRACING).join(format!("instances/xk-sched-{}", std::process::id()));
        if !Path::new(TRACING).join(EVENTS).exists() {
            return Err(Failure::error(format!(
                "{TRACING}/{EVENTS} is not there: load xk_sched.ko, and mount tracefs at {TRACING}"
            )));
        }
        fs::create_dir(&path).map_err(|error| Failure::error(format!("{}: {error}", path.display())))?;
        Ok(Self(path))
    }

    fn write(&self, file: &str, text: &str) -> Result {
        let path = self.0.join(file);
        fs::write(&path, text).map_err(|error| Failure::error(format!("{}: {error}", path.display())))
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        let _ = fs::write(self.0.join(EVENTS).join("enable"), "0");
        let _ = fs::remove_dir(&self.0);
    }
}

/// Runs the command, and prints what was traced.
pub fn run(args: &Args) -> Result {
    let instance = Instance::new()?;
    instance.write("buffer_size_kb", &args.buffer.to_string())?;
    if let Some(policy) = &args.policy {
        if !policy.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte)) {
            return Err(Failure::usage(format!("xk sched trace: {policy:?} is no name of a policy")));
        }
        instance.write(&format!("{EVENTS}/filter"), &format!("policy == \"{policy}\""))?;
    }
    instance.write(&format!("{EVENTS}/enable"), "1")?;
    let Some((program, arguments)) = args.command.split_first() else {
        return Err(Failure::usage("xk sched trace: no command: write it after --"));
    };
    let status = Command::new(program).args(arguments).status();
    instance.write(&format!("{EVENTS}/enable"), "0")?;
    let mut trace = fs::File::open(instance.0.join("trace")).map_err(|error| Failure::error(error.to_string()))?;
    io::copy(&mut trace, &mut io::stdout().lock()).map_err(|error| Failure::error(error.to_string()))?;
    io::stdout().flush().map_err(|error| Failure::error(error.to_string()))?;
    match status {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(Failure::error(format!("the command failed: {status}"))),
        Err(error) => Err(Failure::error(format!("{}: cannot be run: {error}", program.to_string_lossy()))),
    }
}
