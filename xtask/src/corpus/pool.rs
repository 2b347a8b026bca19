//! Workers: processes that analyse constants, each with a time limit. One that dies or takes too long
//! costs its own constant only; the next one gets a fresh worker.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{channel, Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rustix::process::{kill_process_group, Pid, Signal};

use super::outcome::{reason, Outcome, Status};
use crate::list::Row;

/// How long a worker that has closed its output may take to exit, with a status that says why.
const GRACE: Duration = Duration::from_millis(200);

/// How to run.
pub struct Plan {
    /// Workers side by side.
    pub workers: usize,
    /// Seconds for one constant.
    pub limit: Duration,
    /// Makes the command of a worker.
    pub command: fn(usize) -> Result<Command>,
    /// Compilers that each worker runs side by side.
    pub compilers: usize,
}

/// Analyses every row; `done` is told as soon as one is finished, in any order.
///
/// # Errors
/// When no worker can be started. Whatever happens to a worker later is an outcome.
pub fn run(plan: &Plan, rows: &[Row], done: &(dyn Fn(usize, Outcome) + Sync)) -> Result<()> {
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..plan.workers.clamp(1, rows.len().max(1)))
            .map(|_| {
                scope.spawn(|| -> Result<()> {
                    let mut worker = None;
                    loop {
                        let index = next.fetch_add(1, Ordering::Relaxed);
                        let Some(row) = rows.get(index) else { return Ok(()) };
                        done(index, one(plan, &mut worker, row)?);
                    }
                })
            })
            .collect();
        threads.into_iter().try_for_each(|thread| match thread.join() {
            Ok(result) => result,
            Err(_) => anyhow::bail!("a thread of the pool panicked; see its output above"),
        })
    })
}

fn one(plan: &Plan, slot: &mut Option<Worker>, row: &Row) -> Result<Outcome> {
    let started = Instant::now();
    let worker = match slot {
        Some(worker) => worker,
        None => slot.insert(Worker::start(plan)?),
    };
    let (code, text) = match worker.ask(row, plan.limit) {
        Ok(outcome) => return Ok(outcome),
        Err(Silence::TooLong) => {
            ("time_limit", format!("not finished after {} s; raise --limit", plan.limit.as_secs()))
        }
        Err(Silence::Unreadable(answer, error)) => {
            ("unreadable", format!("a worker answered `{answer}`, which is no outcome: {error}"))
        }
        Err(Silence::Died) => {
            let status = worker.ended().map_or_else(|| "unknown status".to_owned(), |status| status.to_string());
            ("crashed", format!("the analysis ended with {status}; its words are on standard error"))
        }
    };
    *slot = None;
    Ok(Outcome::without(row, Status::Error, reason(code, text), started.elapsed().as_secs_f64()))
}

/// Why a worker gave no answer.
enum Silence {
    Died,
    TooLong,
    /// What it said, and what is wrong with that.
    Unreadable(String, String),
}

struct Worker {
    child: Child,
    questions: ChildStdin,
    answers: Receiver<String>,
}

impl Worker {
    fn start(plan: &Plan) -> Result<Self> {
        let mut command = (plan.command)(plan.compilers)?;
        // A group of its own: its compilers and solvers end with it.
        let mut child = command
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("a worker cannot be started")?;
        let (Some(questions), Some(answers)) = (child.stdin.take(), child.stdout.take()) else {
            anyhow::bail!("a worker has no standard input or output");
        };
        let (send, receive) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(answers).lines().map_while(Result::ok) {
                if send.send(line).is_err() {
                    return;
                }
            }
        });
        Ok(Self { child, questions, answers: receive })
    }

    fn ask(&mut self, row: &Row, limit: Duration) -> std::result::Result<Outcome, Silence> {
        let question = serde_json::json!(row);
        writeln!(self.questions, "{question}").map_err(|_| Silence::Died)?;
        let answer = self.answers.recv_timeout(limit).map_err(|error| match error {
            RecvTimeoutError::Timeout => Silence::TooLong,
            RecvTimeoutError::Disconnected => Silence::Died,
        })?;
        serde_json::from_str(&answer).map_err(|error| Silence::Unreadable(answer, error.to_string()))
    }

    /// How it ended: by itself, or now. Waiting for one that lives would never end.
    fn ended(&mut self) -> Option<ExitStatus> {
        std::thread::sleep(GRACE);
        self.kill();
        self.child.wait().ok()
    }

    /// Ends it and its children, in the middle of whatever they do.
    fn kill(&self) {
        if let Some(group) = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw) {
            // An error means that they have ended already.
            let _ = kill_process_group(group, Signal::KILL);
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.kill();
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    /// Answers like a worker, except to three of the rows.
    fn shell(_: usize) -> Result<Command> {
        let mut command = Command::new("python3");
        command.args(["-c", SCRIPT]);
        Ok(command)
    }

    const SCRIPT: &str = r#"
import json, os, sys, time
for line in sys.stdin:
    row = json.loads(line)
    if row["id"] == 2: os.abort()
    if row["id"] == 4: time.sleep(600)
    status = 5 if row["id"] == 5 else "refused"
    print(json.dumps(dict(id=row["id"], name=row["name"], constant=None, status=status, reason=None, proved=None,
        compiled=[], default=None, modules=[], spans=0, spans_proved=0, jump=0, int3=0, data=0, mismatches=0, seconds=0.5)))
    sys.stdout.flush()
"#;

    #[test]
    fn a_worker_that_dies_hangs_or_babbles_does_not_stop_the_rest() {
        let rows: Vec<Row> = (0..8)
            .map(|id| Row {
                id,
                name: format!("N{id}"),
                defined_at: "a.c:1".into(),
                text: String::new(),
                constant: None,
            })
            .collect();
        for workers in [1, 3] {
            // Long enough for an interpreter to start.
            let plan = Plan { workers, limit: Duration::from_secs(20), command: shell, compilers: 1 };
            let found = Mutex::new(Vec::new());
            run(&plan, &rows, &|index, outcome| found.lock().unwrap().push((index, outcome))).unwrap();
            let mut found = found.into_inner().unwrap();
            found.sort_by_key(|(index, _)| *index);
            assert_eq!(found.len(), rows.len());
            for (row, (_, outcome)) in rows.iter().zip(&found) {
                let code = outcome.reason.as_ref().map(|reason| reason.code.as_str());
                let (status, expected) = match row.id {
                    2 => (Status::Error, Some("crashed")),
                    4 => (Status::Error, Some("time_limit")),
                    5 => (Status::Error, Some("unreadable")),
                    _ => (Status::Refused, None),
                };
                assert_eq!((outcome.id, outcome.status, code), (row.id, status, expected), "{workers} worker(s)");
            }
        }
    }
}
