//! The command of a target.
//!
//! In: a shell command, and a time limit. Out: its output, and how long it took. It runs in a process group of its own, which
//! is killed when the command ends or is late. It refuses commands that fail.

use std::io::Read;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{kill_process_group, Pid, Signal};

use super::{TargetError, Watch, TICK};

/// The largest size of the output that is kept.
const MOST_OUTPUT: u64 = 1 << 20;

/// How long to wait for output that a process outside of the process group keeps open.
const GRACE: Duration = Duration::from_secs(2);

/// Runs a command, for no longer than `limit`. Returns its output, and how long it took.
///
/// # Errors
/// [`TargetError`].
pub fn run(command: &str, limit: Duration, watch: &mut dyn Watch) -> Result<(String, Duration), TargetError> {
    let start = Instant::now();
    let mut child = Command::new("/bin/sh")
        .args(["-c", command])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .spawn()
        .map_err(|error| TargetError::Failed { how: error.to_string(), stderr: String::new() })?;
    watch.running(Some(group_of(&child)));
    let result = follow(&mut child, start, limit, watch);
    watch.running(None);
    result
}

fn follow(
    child: &mut Child,
    start: Instant,
    limit: Duration,
    watch: &dyn Watch,
) -> Result<(String, Duration), TargetError> {
    let (sender, ended) = mpsc::channel();
    let stdout = child.stdout.take().map(|pipe| collect(pipe, sender.clone()));
    let stderr = child.stderr.take().map(|pipe| collect(pipe, sender));
    let status = loop {
        if let Ok(Some(status)) = child.try_wait() {
            break status;
        }
        let left = limit.saturating_sub(start.elapsed());
        if left.is_zero() || watch.interrupted() {
            kill(group_of(child));
            // It was killed, so this is short. It leaves no zombie.
            let _ = child.wait();
            return Err(if left.is_zero() { TargetError::Timeout(limit) } else { TargetError::Interrupted });
        }
        // Most programs close their output when they end, so their end is noticed at once.
        match ended.recv_timeout(TICK.min(left)) {
            Ok(()) | Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => thread::sleep(Duration::from_micros(200)),
        }
    };
    let took = start.elapsed();
    // Processes that it left running must not disturb the next window, or keep the output open.
    kill(group_of(child));
    let [stdout, stderr] = [stdout, stderr].map(|pipe| pipe.and_then(|pipe| pipe.recv_timeout(GRACE).ok()));
    if status.success() {
        return Ok((stdout.unwrap_or_default(), took));
    }
    let how = status.signal().map_or_else(|| status.to_string(), |signal| format!("killed by signal {signal}"));
    let stderr = stderr.unwrap_or_default();
    let tail: Vec<&str> = stderr.lines().rev().take(3).collect();
    Err(TargetError::Failed { how, stderr: tail.into_iter().rev().collect::<Vec<_>>().join("; ") })
}

/// Reads a pipe to its end, in a thread, and sends a message when it has reached the end.
fn collect(pipe: impl Read + Send + 'static, ended: mpsc::Sender<()>) -> mpsc::Receiver<String> {
    let (sender, text) = mpsc::channel();
    thread::spawn(move || {
        let mut bytes = Vec::new();
        let mut pipe = pipe;
        // After an error, the part that was read is used.
        let _ = (&mut pipe).take(MOST_OUTPUT).read_to_end(&mut bytes);
        let _ = ended.send(());
        let _ = sender.send(String::from_utf8_lossy(&bytes).into_owned());
        let _ = std::io::copy(&mut pipe, &mut std::io::sink());
    });
    text
}

/// The process group that a child leads.
fn group_of(child: &Child) -> i32 {
    Pid::from_child(child).as_raw_nonzero().get()
}

/// Kills a process group, if it still exists.
pub(crate) fn kill(group: i32) {
    if let Some(group) = Pid::from_raw(group) {
        let _ = kill_process_group(group, Signal::KILL);
    }
}
