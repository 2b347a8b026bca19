//! The guardian: a small process that outlives the tuner, and puts files back when it dies.
//!
//! The kernel takes perf-consts back by itself; nobody takes a sysctl back. So before the tuner changes a file it
//! tells the guardian, and waits until that has understood. They share a socket: when the tuner's end closes, be
//! it by SIGKILL, the guardian puts back what it was told of, and ends what the tuner was running. It also shares the
//! tuner's lock, so that no other tuner begins before it is done. It is in a process group of its own: what a
//! terminal sends to the tuner does not reach it.

use std::io::{BufRead, BufReader, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

use serde::{Deserialize, Serialize};

use crate::knob::{put_back, Held, KnobError, PutBack};
use crate::target::kill;
use crate::Error;

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Message {
    /// This knob is about to be changed, or changed again.
    Hold(Held),
    /// It has been put back, or is to stay.
    Release(String),
    /// This process group works for the tuner.
    Running(Option<i32>),
}

/// The tuner's end.
#[derive(Debug)]
pub struct Guardian {
    child: Child,
    to: UnixStream,
    from: BufReader<UnixStream>,
}

impl Guardian {
    /// Starts it: `command` must end up in [`serve`]. The lock is shared with it.
    ///
    /// # Errors
    /// [`Error::Guardian`].
    pub fn start(command: &mut Command, lock: OwnedFd) -> Result<Self, Error> {
        let broken = |error: std::io::Error| Error::Guardian(format!("could not be started ({error})"));
        let (ours, theirs) = UnixStream::pair().map_err(broken)?;
        let child = command
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            // Never written to: it is there to stay open.
            .stdout(Stdio::from(lock))
            .process_group(0)
            .spawn()
            .map_err(broken)?;
        // The command would keep the guardian's ends open, and its death would go unnoticed.
        command.stdin(Stdio::null()).stdout(Stdio::null());
        let from = BufReader::new(ours.try_clone().map_err(broken)?);
        let mut guardian = Self { child, to: ours, from };
        guardian.tell(&Message::Running(None))?;
        Ok(guardian)
    }

    /// This knob is about to be changed.
    ///
    /// # Errors
    /// [`Error::Guardian`]: it must not be changed then.
    pub fn hold(&mut self, held: &Held) -> Result<(), Error> {
        self.tell(&Message::Hold(held.clone()))
    }

    /// This knob needs nobody any more.
    ///
    /// # Errors
    /// [`Error::Guardian`].
    pub fn release(&mut self, name: &str) -> Result<(), Error> {
        self.tell(&Message::Release(name.into()))
    }

    /// This process group works for the tuner.
    ///
    /// # Errors
    /// [`Error::Guardian`].
    pub fn running(&mut self, group: Option<i32>) -> Result<(), Error> {
        self.tell(&Message::Running(group))
    }

    fn tell(&mut self, message: &Message) -> Result<(), Error> {
        let gone = || Error::Guardian("is gone".into());
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
        // It sees the end of the conversation, and puts back whatever is still held.
        let _ = self.to.shutdown(std::net::Shutdown::Both);
        let _ = self.child.wait();
    }
}

/// What the guardian process does; `say` gets what is worth knowing.
pub fn serve(say: impl Fn(&str)) {
    let stdin = std::io::stdin();
    let Ok(socket) = rustix::io::dup(&stdin) else { return };
    let mut answers = UnixStream::from(socket);
    let mut held: Vec<Held> = Vec::new();
    let mut running = None;
    for line in stdin.lock().lines().map_while(Result::ok) {
        // What is cut off in the middle was not answered, and so not done.
        let Ok(message) = serde_json::from_str(&line) else { break };
        match message {
            Message::Hold(one) => {
                held.retain(|known| known.name != one.name);
                held.push(one);
            }
            Message::Release(name) => held.retain(|known| known.name != name),
            Message::Running(group) => running = group,
        }
        if answers.write_all(b"ok\n").is_err() {
            break;
        }
    }
    if let Some(group) = running {
        kill(group);
    }
    clean_up(&held).iter().for_each(|line| say(line));
}

/// Puts knobs back, and says what came of each.
#[must_use]
pub fn clean_up(held: &[Held]) -> Vec<String> {
    held.iter().zip(put_back(held)).map(|(one, outcome)| describe(one, outcome)).collect()
}

fn describe(Held { name, original, .. }: &Held, outcome: Result<PutBack, KnobError>) -> String {
    match outcome {
        Ok(PutBack::Done) => format!("{name} = {original} (put back)"),
        Ok(PutBack::Yielded(value)) => {
            format!("{name} = {value}: somebody else has set it since, so it stays (it was {original})")
        }
        Ok(PutBack::Gone) => format!("{name} is not there any more"),
        Err(error) => format!("{name} could not be put back to {original}: {error}"),
    }
}
