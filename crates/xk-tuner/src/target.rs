//! What is optimised: a command that prints a number, or takes time.
//!
//! It runs in a process group of its own, which is killed as one when it takes too long, when it is no longer
//! wanted, or, by the guardian, when the tuner dies. Its last line is the number; lines before that read
//! `NAME = NUMBER` are there for constraints.

use std::collections::BTreeMap;
use std::io::Read;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{kill_process_group, Pid, Signal};

use crate::history::Goal;

/// More than a program prints that was meant to be a target.
const MOST_OUTPUT: u64 = 1 << 20;

/// How long output may be kept open by what left the command's process group.
const GRACE: Duration = Duration::from_secs(2);

/// How often it is looked whether the window is still wanted.
const TICK: Duration = Duration::from_millis(50);

/// What of the command counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Measure {
    /// The number on its last line.
    Number,
    /// The seconds that it takes.
    Seconds,
}

/// The command, and what is wanted of it.
#[derive(Debug, Clone, PartialEq)]
pub struct Target {
    /// For the shell.
    pub command: String,
    /// What counts.
    pub measure: Measure,
    /// Which way is better.
    pub goal: Goal,
    /// Longer is a failure.
    pub timeout: Duration,
}

/// A hard limit on what the command prints as `NAME = NUMBER`, or on the number itself (`target`).
#[derive(Debug, Clone, PartialEq)]
pub struct Constraint {
    /// The name.
    pub name: String,
    /// No more than that.
    pub at_most: Option<f64>,
    /// No less than that.
    pub at_least: Option<f64>,
}

/// What one run said.
#[derive(Debug, Clone, PartialEq)]
pub struct Reading {
    /// The number that is optimised.
    pub value: f64,
    /// The other numbers.
    pub named: BTreeMap<String, f64>,
    /// How long it took.
    pub took: Duration,
}

/// Why a run said nothing.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum TargetError {
    /// It did not end.
    #[error("it was still running after {:.1} s, and was killed", .0.as_secs_f64())]
    Timeout(Duration),
    /// It is not wanted any more.
    #[error("it was interrupted")]
    Interrupted,
    /// It ended badly.
    #[error("it failed ({how}){}", words(stderr))]
    Failed {
        /// With this status.
        how: String,
        /// The end of what it said.
        stderr: String,
    },
    /// It printed something else than a number that can be compared.
    #[error("{0}")]
    Nonsense(String),
}

fn words(stderr: &str) -> String {
    if stderr.is_empty() {
        String::new()
    } else {
        format!(": {stderr}")
    }
}

/// Who wants to know of process groups, and whether a window is still wanted.
pub trait Watch {
    /// A process group was started; `None` when it has ended.
    fn running(&mut self, group: Option<i32>);

    /// Whether to stop.
    fn interrupted(&self) -> bool;
}

impl Target {
    /// Runs it once, for no longer than `limit`.
    ///
    /// # Errors
    /// [`TargetError`].
    pub fn run(&self, limit: Duration, watch: &mut dyn Watch) -> Result<Reading, TargetError> {
        let start = Instant::now();
        let mut child = Command::new("/bin/sh")
            .args(["-c", &self.command])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .spawn()
            .map_err(|error| TargetError::Failed { how: error.to_string(), stderr: String::new() })?;
        let group = group_of(&child);
        watch.running(Some(group));
        let result = follow(&mut child, start, limit.min(self.timeout), watch);
        watch.running(None);
        let (stdout, took) = result?;
        self.read(&stdout, took)
    }

    fn read(&self, stdout: &str, took: Duration) -> Result<Reading, TargetError> {
        let named = named(stdout);
        let value = match self.measure {
            Measure::Seconds => took.as_secs_f64(),
            Measure::Number => number(stdout)?,
        };
        if value > 0.0 && value.is_finite() {
            Ok(Reading { value, named, took })
        } else {
            Err(TargetError::Nonsense(format!(
                "it says {value}, but only numbers above 0 can be compared by their ratio"
            )))
        }
    }
}

impl Constraint {
    /// A sentence, if it is violated. A number that is not there is a violation: nobody can say that it holds.
    #[must_use]
    pub fn violation(&self, reading: &Reading) -> Option<String> {
        let known = if self.name == "target" { Some(reading.value) } else { reading.named.get(&self.name).copied() };
        let Some(value) = known else {
            return Some(format!("the target did not print `{} = NUMBER`", self.name));
        };
        // What is not a number is within no limit.
        let too_much = self.at_most.filter(|&most| value > most || value.is_nan());
        let too_little = self.at_least.filter(|&least| value < least || value.is_nan());
        let much = too_much.map(|most| format!("{} = {value}, at most {most} is allowed", self.name));
        much.or_else(|| too_little.map(|least| format!("{} = {value}, at least {least} is demanded", self.name)))
    }
}

fn named(stdout: &str) -> BTreeMap<String, f64> {
    let pairs = stdout.lines().filter_map(|line| {
        let (name, value) = line.split_once('=')?;
        Some((name.trim().to_owned(), value.trim().parse().ok()?))
    });
    pairs.collect()
}

fn number(stdout: &str) -> Result<f64, TargetError> {
    let Some(line) = stdout.lines().map(str::trim).rfind(|line| !line.is_empty()) else {
        return Err(TargetError::Nonsense("it printed nothing; its last line must be a number".into()));
    };
    line.parse().map_err(|_| {
        let shown: String = line.chars().take(60).collect();
        TargetError::Nonsense(format!("its last line is `{shown}`, which is no number"))
    })
}

/// What it printed, and how long it took.
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
            // Killed: this does not take long, and leaves no zombie.
            let _ = child.wait();
            return Err(if left.is_zero() { TargetError::Timeout(limit) } else { TargetError::Interrupted });
        }
        // A closed output is the end of most programs: this is how their end is noticed at once.
        match ended.recv_timeout(TICK.min(left)) {
            Ok(()) | Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => thread::sleep(Duration::from_micros(200)),
        }
    };
    let took = start.elapsed();
    // Whatever it left running is no part of the next window, and may not keep the output open.
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

/// Reads a pipe to its end, in a thread; tells when it is there.
fn collect(pipe: impl Read + Send + 'static, ended: mpsc::Sender<()>) -> mpsc::Receiver<String> {
    let (sender, text) = mpsc::channel();
    thread::spawn(move || {
        let mut bytes = Vec::new();
        let mut pipe = pipe;
        // What was read before an error is what there is.
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

/// Ends a process group; that it is gone is as good.
pub(crate) fn kill(group: i32) {
    if let Some(group) = Pid::from_raw(group) {
        let _ = kill_process_group(group, Signal::KILL);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Nobody {
        stop: bool,
    }

    impl Watch for Nobody {
        fn running(&mut self, _: Option<i32>) {}

        fn interrupted(&self) -> bool {
            self.stop
        }
    }

    fn run(command: &str) -> Result<Reading, TargetError> {
        let target = Target {
            command: command.into(),
            measure: Measure::Number,
            goal: Goal::Maximise,
            timeout: Duration::from_secs(60),
        };
        target.run(Duration::from_secs(30), &mut Nobody { stop: false })
    }

    fn says(command: &str) -> String {
        run(command).unwrap_err().to_string()
    }

    #[test]
    fn the_last_line_is_the_number() {
        let reading = run("echo warming up; echo p99 = 4.5; echo 1.5e3; echo").unwrap();
        assert_eq!((reading.value, reading.named["p99"]), (1500.0, 4.5));
    }

    #[test]
    fn what_is_no_number_is_nonsense() {
        assert!(says("true").contains("printed nothing"));
        assert!(says("echo many").contains("`many`, which is no number"));
        for text in ["0", "-3", "nan", "inf"] {
            assert!(says(&format!("echo {text}")).contains("above 0"), "{text}");
        }
        assert!(says("head -c 3000000 /dev/zero | tr '\\0' x").contains("is no number"));
    }

    #[test]
    fn a_failure_is_told_with_what_it_said() {
        assert_eq!(says("echo 5; echo no disk >&2; exit 3"), "it failed (exit status: 3): no disk");
        assert!(says("kill -SEGV $$").contains("signal 11"));
    }

    #[test]
    fn what_hangs_is_killed_with_its_children() {
        let folder = tempfile::tempdir().unwrap();
        let pid = folder.path().join("pid");
        let target = Target {
            command: format!("sleep 1000 & echo $! > {}; wait", pid.display()),
            measure: Measure::Seconds,
            goal: Goal::Minimise,
            timeout: Duration::from_secs(60),
        };
        let error = target.run(Duration::from_secs(1), &mut Nobody { stop: false }).unwrap_err();
        assert_eq!(error, TargetError::Timeout(Duration::from_secs(1)));
        let child: u32 = std::fs::read_to_string(pid).unwrap().trim().parse().unwrap();
        let gone = || match std::fs::read_to_string(format!("/proc/{child}/stat")) {
            Ok(stat) => stat.contains(") Z"),
            Err(_) => true,
        };
        for _ in 0..100 {
            if gone() {
                return;
            }
            thread::sleep(Duration::from_millis(20));
        }
        panic!("the child of the target still runs");
    }

    #[test]
    fn what_is_no_longer_wanted_ends() {
        let target = Target {
            command: "sleep 1000".into(),
            measure: Measure::Seconds,
            goal: Goal::Minimise,
            timeout: Duration::from_secs(60),
        };
        assert_eq!(target.run(target.timeout, &mut Nobody { stop: true }), Err(TargetError::Interrupted));
    }

    #[test]
    fn output_that_stays_open_does_not_hold_it_up() {
        assert_eq!(run("sleep 1000 & echo 7").map(|reading| reading.value), Ok(7.0));
    }

    #[test]
    fn limits_hold_or_are_named() {
        let reading = Reading { value: 10.0, named: [("p99".to_owned(), 4.5)].into(), took: Duration::ZERO };
        let limit = |name: &str, at_most, at_least| Constraint { name: name.into(), at_most, at_least };
        assert_eq!(limit("p99", Some(5.0), None).violation(&reading), None);
        assert_eq!(limit("target", None, Some(10.0)).violation(&reading), None);
        let told = limit("p99", Some(4.0), None).violation(&reading).unwrap();
        assert_eq!(told, "p99 = 4.5, at most 4 is allowed");
        assert!(limit("p50", Some(4.0), None).violation(&reading).unwrap().contains("did not print"));
        let nan = Reading { named: [("p99".to_owned(), f64::NAN)].into(), ..reading };
        assert!(limit("p99", Some(4.0), None).violation(&nan).is_some());
    }
}
