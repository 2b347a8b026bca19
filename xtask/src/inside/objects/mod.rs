//! The verdicts of the kernel's verifier on many objects: each program of each object is loaded by itself. A process
//! of its own loads the programs of an object, and is killed if one takes too long.

mod load;

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{channel, Receiver};
use std::time::Duration;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

pub use load::{worker, Worker};

/// Arguments of `inside objects`.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// A file with the paths of objects, as JSON
    #[arg(long)]
    list: PathBuf,
    /// Where the verdicts go, an object on each line
    #[arg(long)]
    verdicts: PathBuf,
    /// For each program
    #[arg(long)]
    seconds: u64,
}

/// What the kernel says of a program.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// It is loaded.
    Accepted {
        /// Instructions that the verifier followed.
        insns: u32,
    },
    /// The verifier refuses it.
    Refused {
        /// The error.
        errno: String,
        /// The last lines of the verifier.
        words: Vec<String>,
        /// Instructions that it followed.
        insns: u32,
    },
    /// The verifier never saw it.
    Untried(String),
    /// It took too long.
    Slow,
}

/// A program of an object.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Judged {
    /// Its name.
    pub program: String,
    /// What became of it.
    pub verdict: Verdict,
}

/// An object.
#[derive(Debug, Serialize, Deserialize)]
pub struct Verdicts {
    /// Its file.
    pub object: PathBuf,
    /// Its programs, by their places; nothing if libbpf does not open it.
    pub programs: Vec<Judged>,
    /// Why it does not.
    pub unopened: Option<String>,
}

/// How long a process may take to open an object: starting it takes longer than many verdicts.
const OPENING: Duration = Duration::from_secs(300);

/// What a worker says, one on each line.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Message {
    /// The programs of the object.
    Programs(Vec<String>),
    /// It is none.
    Unopened(String),
    /// The next program.
    Verdict(Verdict),
}

/// How many objects there were.
#[derive(Debug, Serialize, Deserialize)]
pub struct Report {
    /// All.
    pub objects: usize,
}

/// Loads all of them, as many at once as there are processors.
///
/// # Errors
/// When a worker cannot be started.
pub fn run(arguments: &Arguments) -> Result<Report> {
    let objects: Vec<PathBuf> = serde_json::from_slice(&fs::read(&arguments.list)?)?;
    let file = std::sync::Mutex::new(fs::File::create(&arguments.verdicts)?);
    let next = AtomicUsize::new(0);
    let work = || -> Result<()> {
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            let Some(object) = objects.get(number) else { return Ok(()) };
            let found = verdicts(object.clone(), Duration::from_secs(arguments.seconds))?;
            let line = serde_json::to_string(&found)? + "\n";
            let mut file = file.lock().ok().context("another thread panicked")?;
            std::io::Write::write_all(&mut *file, line.as_bytes())?;
            if number % 25 == 0 {
                eprintln!("objects: {number} of {}", objects.len());
            }
        }
    };
    let workers = std::thread::available_parallelism()?.get();
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..workers).map(|_| scope.spawn(work)).collect();
        threads.into_iter().try_for_each(|thread| thread.join().ok().context("a thread panicked")?)
    })?;
    Ok(Report { objects: objects.len() })
}

/// A process that loads programs, and what it says.
struct Process {
    child: Child,
    said: Receiver<Message>,
}

impl Process {
    fn start(object: &PathBuf, first: usize) -> Result<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["inside", "objects-worker", "--first", &first.to_string(), "--object"]).arg(object);
        let mut child = command.stdout(Stdio::piped()).spawn()?;
        let (sender, said) = channel();
        let lines = BufReader::new(child.stdout.take().context("no output")?).lines();
        std::thread::spawn(move || {
            let messages = lines.map_while(|line| serde_json::from_str(&line.ok()?).ok());
            messages.map(|message| sender.send(message)).take_while(Result::is_ok).for_each(drop);
        });
        Ok(Self { child, said })
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended; both only fail then.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn verdicts(object: PathBuf, limit: Duration) -> Result<Verdicts> {
    let mut programs: Vec<Judged> = Vec::new();
    loop {
        let process = Process::start(&object, programs.len())?;
        let names = match process.said.recv_timeout(limit.max(OPENING)) {
            Ok(Message::Programs(names)) => names,
            Ok(Message::Unopened(reason)) => return Ok(Verdicts { object, programs, unopened: Some(reason) }),
            other => {
                let unopened = Some(format!("the process that opened it failed: {other:?}"));
                return Ok(Verdicts { object, programs, unopened });
            }
        };
        while let Some(program) = names.get(programs.len()).cloned() {
            let (verdict, goes_on) = match process.said.recv_timeout(limit) {
                Ok(Message::Verdict(verdict)) => (verdict, true),
                Err(std::sync::mpsc::RecvTimeoutError::Timeout) => (Verdict::Slow, false),
                _ => (Verdict::Untried("the process that loads it failed".into()), false),
            };
            programs.push(Judged { program, verdict });
            if !goes_on {
                break;
            }
        }
        if programs.len() == names.len() {
            return Ok(Verdicts { object, programs, unopened: None });
        }
    }
}
