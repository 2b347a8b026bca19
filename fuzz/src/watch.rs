//! Watches a child: why it ended, and with which input.

use std::fs::{self, File};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus};
use std::thread::sleep;
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result};

use crate::child::{name_of, Options};

const POLL: Duration = Duration::from_millis(20);

/// What became of a target.
#[derive(Debug)]
pub struct Verdict {
    /// Whether an input did what no input may.
    pub failed: bool,
    /// For people.
    pub text: String,
}

enum End {
    Exit(ExitStatus),
    Hang,
}

/// Fuzzes in a process of its own; an input that ends it becomes a file in `failures`.
pub fn watch(options: &Options, failures: &Path, patience: Duration) -> Result<Verdict> {
    // In memory, if that is possible: it is written for each input.
    let memory = Path::new("/dev/shm");
    let folder = if memory.is_dir() { tempfile::tempdir_in(memory)? } else { tempfile::tempdir()? };
    let file = |name| folder.path().join(name);
    let (current, said, complained) = (file("current"), file("stdout"), file("stderr"));
    let mut child = Command::new(std::env::current_exe()?)
        .args(["child", &options.target, "--seconds", &options.seconds.to_string()])
        .args(["--seed", &options.seed.to_string(), "--corpus"])
        .arg(&options.corpus)
        .arg("--current")
        .arg(&current)
        .env("RUST_BACKTRACE", "0")
        .stdout(File::create(&said)?)
        .stderr(File::create(&complained)?)
        .spawn()
        .context("cannot start a child")?;
    let how = match wait(&mut child, &current, patience)? {
        End::Exit(status) if status.success() => {
            let text = fs::read_to_string(&said)?;
            return Ok(Verdict { failed: false, text: text.lines().last().unwrap_or_default().to_owned() });
        }
        End::Hang => format!("ran for more than {patience:?}"),
        End::Exit(status) => match status.signal() {
            Some(signal) => format!("was killed by signal {signal}"),
            None => status.to_string(),
        },
    };
    let complaint = String::from_utf8_lossy(&fs::read(&complained)?).into_owned();
    // Without an input, it is the fuzzer that failed.
    let input = fs::read(&current).with_context(|| format!("{}: {how}\n{complaint}", options.target))?;
    fs::create_dir_all(failures)?;
    let kept = failures.join(format!("{}-{}", options.target, name_of(&input)));
    fs::write(&kept, &input)?;
    let complaint: String = complaint.lines().take(12).map(|line| format!("\n    {line}")).collect();
    let text = format!(
        "FAILED: an input of {} bytes {how}; repeat it: cargo run -p xk-fuzz -- once {} {}{complaint}",
        input.len(),
        options.target,
        kept.display(),
    );
    Ok(Verdict { failed: true, text })
}

/// Waits for the end of the child, or for an input that is run for too long.
fn wait(child: &mut Child, current: &Path, patience: Duration) -> Result<End> {
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(End::Exit(status));
        }
        let since = fs::metadata(current).and_then(|file| file.modified());
        let age = since.ok().and_then(|since| SystemTime::now().duration_since(since).ok());
        if age.is_some_and(|age| age > patience) {
            child.kill()?;
            child.wait()?;
            return Ok(End::Hang);
        }
        sleep(POLL);
    }
}
