//! Solvers: processes that read SMT-LIB and answer.
//!
//! In: a query that is satisfiable when a claim is wrong. Out: `unsat` and how long it
//! took. Any other answer, and no answer within the bound, is no proof.
//!
//! Bounds are seconds of an ordinary machine. For z3 they are counted in its own units of
//! work, so that a slow or busy machine shows what a fast one shows.
//!
//! A process answers one query after the other, with `(reset)` between them: starting
//! one costs fifteen times as much as the query of an ordinary claim.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{channel, Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use thiserror::Error;

/// z3's units of work in a second: 4.8.12 does 2.4 million of them on bit-vectors on the machine
/// where this was measured.
const WORK_PER_S: u64 = 2_000_000;
/// How much longer than that a machine may take for the same work.
const SLOWEST: u64 = 20;
/// How much longer than its own bound a solver may take before its process is killed.
const GRACE: Duration = Duration::from_secs(5);
/// Queries after which a process is replaced: `(reset)` does not return all memory.
const QUERIES_PER_PROCESS: u32 = 4000;

/// What a solver may say to a query.
const ANSWERS: [&str; 4] = ["sat", "unsat", "unknown", "timeout"];

/// A solver that reads SMT-LIB from its standard input.
#[derive(Debug, Clone)]
pub struct Solver {
    command: Vec<String>,
    /// What it calls itself, for the table.
    pub name: String,
    /// Bound for one query in seconds.
    pub timeout_s: u64,
    answers: Answers,
    idle: Arc<Mutex<Vec<Process>>>,
}

/// What became of queries, by their text. Builds of many values ask the same of one piece
/// of code again and again.
#[derive(Debug, Clone, Default)]
struct Answers(Arc<Mutex<HashMap<String, (Answer, f64)>>>);

#[derive(Debug, Clone, Copy)]
enum Answer {
    Refuted,
    Satisfiable,
    /// Nothing within so many seconds.
    Open(u64),
}

/// What became of a query, and what it took.
#[derive(Debug, Clone, Copy)]
pub struct Outcome {
    /// There is no counterexample.
    pub refuted: bool,
    /// Seconds of an ordinary machine.
    pub seconds: f64,
}

/// Why an obligation is not proved.
#[derive(Debug, Error)]
pub enum ProofError {
    /// The solver found a counterexample.
    #[error("the update is wrong for some state and value")]
    Refuted,
    /// No answer in time.
    #[error("no answer within {0} s")]
    Timeout(u64),
    /// The solver is missing or did not understand.
    #[error("solver {program}: {detail}: install z3 (apt-get install z3)")]
    Solver {
        /// Program.
        program: String,
        /// What it said.
        detail: String,
    },
}

impl Solver {
    /// z3 as installed by Debian.
    ///
    /// # Errors
    /// [`ProofError::Solver`] when it cannot be run.
    pub fn z3(timeout_s: u64) -> Result<Self, ProofError> {
        Self::new(&["z3", "-in", "-memory:4000"], &["z3", "--version"], timeout_s)
    }

    /// cvc5, the second opinion.
    ///
    /// # Errors
    /// [`ProofError::Solver`] when it cannot be run.
    pub fn cvc5(timeout_s: u64) -> Result<Self, ProofError> {
        Self::new(&["cvc5", "--lang=smt2", "--incremental", "-"], &["cvc5", "--version"], timeout_s)
    }

    fn new(command: &[&str], version: &[&str], timeout_s: u64) -> Result<Self, ProofError> {
        let program = command[0].to_owned();
        let output = Command::new(version[0])
            .args(&version[1..])
            .output()
            .map_err(|e| ProofError::Solver { program, detail: e.to_string() })?;
        let first = String::from_utf8_lossy(&output.stdout).lines().next().unwrap_or("").trim().to_owned();
        let name = first.trim_start_matches("This is ").split(" [").next().unwrap_or("").to_owned();
        let name = name.split(" - ").next().unwrap_or("").to_lowercase();
        Ok(Self::of(command, name, timeout_s))
    }

    /// A program that reads SMT-LIB from its standard input and answers on its standard output.
    #[must_use]
    pub fn of(command: &[&str], name: String, timeout_s: u64) -> Self {
        Self {
            command: command.iter().map(|s| (*s).to_owned()).collect(),
            name,
            timeout_s,
            answers: Answers::default(),
            idle: Arc::default(),
        }
    }

    /// Whether `query` is unsatisfiable, as far as `seconds` show; the solver is asked once. A known
    /// answer counts what it took the first time.
    #[must_use]
    pub fn refutes(&self, query: String, seconds: u64) -> Outcome {
        let seconds = seconds.min(self.timeout_s);
        let known = self.answers.0.lock().unwrap_or_else(PoisonError::into_inner).get(&query).copied();
        match known {
            Some((Answer::Refuted, took)) => return Outcome { refuted: true, seconds: took },
            Some((Answer::Satisfiable, took)) => return Outcome { refuted: false, seconds: took },
            Some((Answer::Open(tried), _)) if tried >= seconds => {
                return Outcome { refuted: false, seconds: seconds as f64 };
            }
            _ => {}
        }
        // Another time a solver that failed may do better.
        let Ok(said) = self.ask(&query, seconds) else { return Outcome { refuted: false, seconds: seconds as f64 } };
        let answer = match said.answer.as_str() {
            "unsat" => Answer::Refuted,
            "sat" => Answer::Satisfiable,
            _ => Answer::Open(seconds),
        };
        self.answers.0.lock().unwrap_or_else(PoisonError::into_inner).insert(query, (answer, said.seconds));
        Outcome { refuted: matches!(answer, Answer::Refuted), seconds: said.seconds }
    }

    /// Decides `query`: `Ok` with the milliseconds it took when it is unsatisfiable.
    ///
    /// # Errors
    /// [`ProofError`] for every other answer.
    pub fn refute(&self, query: &str) -> Result<u64, ProofError> {
        let started = Instant::now();
        let said = self.ask(query, self.timeout_s)?;
        match said.answer.as_str() {
            "unsat" => Ok(started.elapsed().as_millis() as u64),
            "sat" => Err(ProofError::Refuted),
            "unknown" | "timeout" => Err(ProofError::Timeout(self.timeout_s)),
            other => Err(self.failed(other.chars().take(300).collect())),
        }
    }

    fn failed(&self, detail: String) -> ProofError {
        ProofError::Solver { program: self.command[0].clone(), detail }
    }

    /// What a solver says to `query`: exactly one line, besides the work that z3 did.
    fn ask(&self, query: &str, seconds: u64) -> Result<Said, ProofError> {
        let started = Instant::now();
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let mut process = match idle {
            Some(process) => process,
            None => Process::start(&self.command).map_err(|error| self.failed(error.to_string()))?,
        };
        let bound = if self.counts_work() { seconds * SLOWEST } else { seconds };
        let (before, behind) = if self.counts_work() {
            (format!("(set-option :rlimit {})\n(set-option :timeout {})", seconds * WORK_PER_S, bound * 1000), WORK)
        } else {
            (format!("(set-option :tlimit-per {})", bound * 1000), "")
        };
        let end = format!("answered {}", process.left);
        let text = format!("{before}\n{query}\n{behind}\n(echo \"{end}\")\n(reset)\n");
        process.input.write_all(text.as_bytes()).map_err(|error| self.failed(error.to_string()))?;
        process.input.flush().map_err(|error| self.failed(error.to_string()))?;
        let deadline = Instant::now() + Duration::from_secs(bound) + GRACE;
        let mut work = None;
        let mut said = Vec::new();
        loop {
            // A process that is dropped here is killed: what it would say next is of no query.
            let left = deadline.saturating_duration_since(Instant::now());
            match process.answers.recv_timeout(left) {
                Ok(line) if line.trim_matches('"') == end => break,
                Ok(line) => match work_of(&line) {
                    Some(done) => work = Some(done),
                    None => said.push(line),
                },
                Err(RecvTimeoutError::Timeout) => return Err(ProofError::Timeout(seconds)),
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(self.failed(format!("ended without an answer {}", said.join("; "))));
                }
            }
        }
        let [answer] = &said[..] else {
            return Err(self.failed(format!("one answer is wanted, it gave {}: {}", said.len(), said.join("; "))));
        };
        process.left -= 1;
        if ANSWERS.contains(&answer.as_str()) && process.left > 0 {
            self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(process);
        }
        let seconds = work.map_or(started.elapsed().as_secs_f64(), |work| work as f64 / WORK_PER_S as f64);
        Ok(Said { answer: answer.clone(), seconds })
    }

    fn counts_work(&self) -> bool {
        self.command[0] == "z3"
    }
}

/// Asks z3 what it has done.
const WORK: &str = "(get-info :rlimit)";

/// Its answer: `(:rlimit 1234)`.
fn work_of(line: &str) -> Option<u64> {
    line.strip_prefix("(:rlimit ")?.strip_suffix(')')?.parse().ok()
}

/// An answer, and the seconds of an ordinary machine that it took.
struct Said {
    answer: String,
    seconds: f64,
}

/// A running solver.
#[derive(Debug)]
struct Process {
    child: Child,
    input: ChildStdin,
    /// Its lines, read by a thread of their own so that one can stop waiting.
    answers: Receiver<String>,
    left: u32,
}

impl Process {
    fn start(command: &[String]) -> std::io::Result<Self> {
        let mut child = Command::new(&command[0])
            .args(&command[1..])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()?;
        let (Some(input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(std::io::Error::other("no pipe"));
        };
        let (sender, answers) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                let line = line.trim();
                if !line.is_empty() && sender.send(line.to_owned()).is_err() {
                    return;
                }
            }
        });
        Ok(Self { child, input, answers, left: QUERIES_PER_PROCESS })
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
