//! The guardian: a small process that outlives the tuner, and restores files when the tuner dies.
//!
//! In: changes of knobs, before they are made. Out: when the tuner has exited, every knob is restored that was not released.
//!
//! The kernel reverts perf-consts by itself, but not a sysctl. So before the tuner changes a file, it tells the guardian,
//! and waits for the answer. They share a socket. When the tuner's end closes, even by SIGKILL, the guardian restores the
//! files, and ends the processes that the target has started. It shares the tuner's lock, so that no other tuner starts
//! before it has finished. It has its own process group, so that signals of a terminal do not reach it.

use std::io::{BufRead, BufReader, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

use serde::{Deserialize, Serialize};

use crate::error::GuardianError;
use crate::knob::{restore, ChangedKnob, Constants, KnobError, Restored};
use crate::target::kill;
use crate::Error;

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Message {
    /// This knob is about to be changed, or changed again.
    Change(ChangedKnob),
    /// This knob was restored, or is kept.
    Release(String),
    /// The target runs in this process group.
    Running(Option<i32>),
}

/// The tuner's end of the socket.
#[derive(Debug)]
pub struct Guardian {
    child: Child,
    to: UnixStream,
    from: BufReader<UnixStream>,
}

impl Guardian {
    /// Starts the guardian: `command` must run [`serve`]. The guardian shares the lock.
    ///
    /// # Errors
    /// [`Error::Guardian`].
    pub fn start(command: &mut Command, lock: OwnedFd) -> Result<Self, Error> {
        let broken = |error: std::io::Error| Error::from(GuardianError::Start(error));
        let (ours, theirs) = UnixStream::pair().map_err(broken)?;
        let child = command
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            // Never written to: it only stays open.
            .stdout(Stdio::from(lock))
            .process_group(0)
            .spawn()
            .map_err(broken)?;
        // The command would keep the guardian's ends open, and its death would not be noticed.
        command.stdin(Stdio::null()).stdout(Stdio::null());
        let from = BufReader::new(ours.try_clone().map_err(broken)?);
        let mut guardian = Self { child, to: ours, from };
        guardian.tell(&Message::Running(None))?;
        Ok(guardian)
    }

    /// Tells that a knob is about to be changed.
    ///
    /// # Errors
    /// [`Error::Guardian`]: it must not be changed then.
    pub fn record(&mut self, changed: &ChangedKnob) -> Result<(), Error> {
        self.tell(&Message::Change(changed.clone()))
    }

    /// Tells that a knob need not be restored any more.
    ///
    /// # Errors
    /// [`Error::Guardian`].
    pub fn release(&mut self, name: &str) -> Result<(), Error> {
        self.tell(&Message::Release(name.into()))
    }

    /// Tells in which process group the target runs; `None` if it does not run.
    ///
    /// # Errors
    /// [`Error::Guardian`].
    pub fn running(&mut self, group: Option<i32>) -> Result<(), Error> {
        self.tell(&Message::Running(group))
    }

    fn tell(&mut self, message: &Message) -> Result<(), Error> {
        let gone = || Error::from(GuardianError::Gone);
        let text = serde_json::to_string(message).map_err(|_| gone())?;
        writeln!(self.to, "{text}").map_err(|_| gone())?;
        let mut answer = String::new();
        match self.from.read_line(&mut answer) {
            Ok(_) if answer == "ok\n" => Ok(()),
            _ => Err(gone()),
        }
    }
}

impl Drop for Guardian {
    fn drop(&mut self) {
        // It sees the end of the socket, and restores the knobs that were not released.
        let _ = self.to.shutdown(std::net::Shutdown::Both);
        let _ = self.child.wait();
    }
}

/// Runs the guardian. It restores perf-consts with `constants`; `say` receives a line for each restored knob.
pub fn serve(constants: &dyn Constants, say: impl Fn(&str)) {
    let stdin = std::io::stdin();
    let Ok(socket) = rustix::io::dup(&stdin) else { return };
    let mut answers = UnixStream::from(socket);
    let mut changed: Vec<ChangedKnob> = Vec::new();
    let mut running = None;
    for line in stdin.lock().lines().map_while(Result::ok) {
        // A message that was cut off was not answered, so the tuner has not made the change.
        let Ok(message) = serde_json::from_str(&line) else { break };
        match message {
            Message::Change(knob) => {
                changed.retain(|known| known.name != knob.name);
                changed.push(knob);
            }
            Message::Release(name) => changed.retain(|known| known.name != name),
            Message::Running(group) => running = group,
        }
        if answers.write_all(b"ok\n").is_err() {
            break;
        }
    }
    if let Some(group) = running {
        kill(group);
    }
    clean_up(&changed, constants).iter().for_each(|line| say(line));
}

/// Restores knobs. Returns a line for each.
#[must_use]
pub fn clean_up(changed: &[ChangedKnob], constants: &dyn Constants) -> Vec<String> {
    changed.iter().zip(restore(changed, constants)).map(|(knob, outcome)| describe(knob, outcome)).collect()
}

fn describe(ChangedKnob { name, original, .. }: &ChangedKnob, outcome: Result<Restored, KnobError>) -> String {
    match outcome {
        Ok(Restored::Done) => format!("{name} = {original} (restored)"),
        Ok(Restored::Yielded(value)) => {
            format!("{name} = {value}: something else has set it since, so it stays (it was {original})")
        }
        Ok(Restored::Gone) => format!("{name} does not exist any more"),
        Err(error) => format!("{name} could not be restored to {original}: {error}"),
    }
}
