//! Keys that the kernel hands to redis-server, with their values and their time.
//!
//! When a move begins, the kernel shows the key to the connection that moves it, and to no other one: it passes on what
//! others ask of it, and they wait here until the key is redis-server's. One key moves at a time.

use std::io;

use xk_front::held;
use xk_front::record::Asks;

use crate::peer::Peer;
use crate::resp::{encode, request, Parsed};
use crate::Front;

/// Words that are read or written at once.
const PIECE: usize = 1024;
/// Replies of the kernel to `XKGIVE`.
const DONE: &[u8] = b":1\r\n";
const FOREIGN: &[u8] = b":2\r\n";

/// What moves keys.
#[derive(Default)]
pub(crate) struct Moves {
    mover: Option<Mover>,
    /// Requests of several keys are not answered by the kernel any more.
    are_single: bool,
}

struct Mover {
    kernel: Peer,
    server: Peer,
}

/// What the client is told if a key cannot be moved.
fn refusal(key: &[u8], why: &str) -> Vec<u8> {
    format!("-ERR xk: {} cannot be handed to redis-server: {why}\r\n", key.escape_ascii()).into_bytes()
}

/// The words of a reply that is an array of texts, or a text; nothing of an error.
fn words(reply: &[u8]) -> Option<Vec<Vec<u8>>> {
    let array = if reply.starts_with(b"*") { reply.to_vec() } else { [b"*1\r\n", reply].concat() };
    match request(&array) {
        Parsed::Whole(_, words) => Some(words),
        _ => None,
    }
}

/// Waits until all packets that the kernel was working on are done with: their programs are in RCU read-side critical
/// sections. They may contain requests of several keys that began before the first key moved.
fn packets_end() -> io::Result<()> {
    const GLOBAL: libc::c_int = 1; // MEMBARRIER_CMD_GLOBAL, which waits for a grace period of RCU.
                                   // SAFETY: it takes numbers only, and changes nothing of this process.
    match unsafe { libc::syscall(libc::SYS_membarrier, GLOBAL, 0, 0) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

impl Mover {
    fn new(front: &Front) -> io::Result<Self> {
        Ok(Self { kernel: front.kernel(Asks::Moves)?, server: front.server()? })
    }

    fn give(&mut self, key: &[u8], step: &[u8]) -> io::Result<Vec<u8>> {
        self.kernel.ask(&encode(&[b"XKGIVE", key, step]))
    }

    /// Deletes what redis-server has got of the key so far.
    fn delete(&mut self, key: &[u8]) -> io::Result<()> {
        self.server.ask(&encode(&[b"DEL", key])).map(drop)
    }

    /// The words of the kernel's reply.
    fn read(&mut self, asked: &[&[u8]]) -> io::Result<Vec<Vec<u8>>> {
        let reply = self.kernel.ask(&encode(asked))?;
        words(&reply).ok_or_else(|| io::Error::other(format!("the kernel says {}", reply.escape_ascii())))
    }

    /// What redis-server refuses.
    fn write(&mut self, command: &[u8], key: &[u8], rest: &[Vec<u8>]) -> io::Result<Option<Vec<u8>>> {
        let head = [command.to_vec(), key.to_vec()];
        let reply = self.server.ask(&encode(&[&head, rest].concat()))?;
        let is_error = reply.starts_with(b"-");
        Ok(is_error.then(|| refusal(key, String::from_utf8_lossy(&reply[1..]).trim_end())))
    }

    /// Writes the value of a key, which nobody changes, to redis-server. Returns what that refuses.
    fn copy(&mut self, key: &[u8]) -> io::Result<Option<Vec<u8>>> {
        let kind = self.kernel.ask(&encode(&[b"TYPE", key]))?;
        let left = self.kernel.ask(&encode(&[b"PTTL", key]))?;
        self.delete(key)?;
        if left == b":0\r\n" {
            return Ok(None);
        }
        let refused = match kind.as_slice() {
            b"+string\r\n" => {
                let value = self.read(&[b"GET", key])?;
                self.write(b"SET", key, &value)?
            }
            b"+hash\r\n" => {
                let all = self.read(&[b"HGETALL", key])?;
                self.write_all(b"HSET", key, &all)?
            }
            _ => self.copy_set(key)?,
        };
        match left.strip_prefix(b":").and_then(|left| left.strip_suffix(b"\r\n")) {
            Some(left) if refused.is_none() && left != b"-1" => self.write(b"PEXPIRE", key, &[left.to_vec()]),
            _ => Ok(refused),
        }
    }

    fn write_all(&mut self, command: &[u8], key: &[u8], pairs: &[Vec<u8>]) -> io::Result<Option<Vec<u8>>> {
        for some in pairs.chunks(PIECE) {
            if let Some(refused) = self.write(command, key, some)? {
                return Ok(Some(refused));
            }
        }
        Ok(None)
    }

    /// By ranks, so that no run of the kernel's program takes long.
    fn copy_set(&mut self, key: &[u8]) -> io::Result<Option<Vec<u8>>> {
        for from in (0..).step_by(PIECE) {
            let ranks = [from, from + PIECE - 1].map(|rank| rank.to_string().into_bytes());
            let mut some = self.read(&[b"ZRANGE", key, &ranks[0], &ranks[1], b"WITHSCORES"])?;
            if some.is_empty() {
                break;
            }
            some.chunks_exact_mut(2).for_each(|pair| pair.swap(0, 1));
            if let Some(refused) = self.write_all(b"ZADD", key, &some)? {
                return Ok(Some(refused));
            }
        }
        Ok(None)
    }

    /// Returns what the client is told if the key stays in the kernel.
    fn hand_over(&mut self, key: &[u8], are_single: &mut bool) -> io::Result<Option<Vec<u8>>> {
        if self.give(key, b"begin")? != DONE {
            // It is not here any longer.
            return Ok(None);
        }
        if !*are_single {
            packets_end()?;
            *are_single = true;
        }
        if let Some(refused) = self.copy(key)? {
            self.go_back(key)?;
            return Ok(Some(refused));
        }
        match self.give(key, b"end")?.as_slice() {
            DONE => Ok(None),
            // A request of several keys has deleted it.
            b":0\r\n" => self.delete(key).map(|()| None),
            other => {
                let told = other.to_vec();
                self.go_back(key)?;
                Ok(Some(told))
            }
        }
    }

    /// The key stays in the kernel, unless it has moved.
    fn go_back(&mut self, key: &[u8]) -> io::Result<()> {
        if self.give(key, b"abort")? == FOREIGN {
            return Ok(());
        }
        self.delete(key)
    }
}

impl Front {
    /// Hands a key to redis-server, after another one that is being handed over. Returns what the client is told if that
    /// cannot be done: then the kernel has it as before.
    ///
    /// # Errors
    /// Neither the kernel nor redis-server answers.
    pub(crate) fn hand_over(&self, key: &[u8]) -> io::Result<Option<Vec<u8>>> {
        let mut moves = held(&self.moves);
        let Moves { mover, are_single } = &mut *moves;
        let own = match mover {
            Some(own) => own,
            None => mover.insert(Mover::new(self)?),
        };
        match own.hand_over(key, are_single) {
            Ok(refused) => Ok(refused),
            // A connection of which a reply is missing is not used again.
            Err(error) => {
                self.forget(own.kernel.port());
                *mover = None;
                self.take_back(key)?;
                Ok(Some(refusal(key, &error.to_string())))
            }
        }
    }

    /// A key stays in the kernel, also if redis-server does not answer any more: what that has got of it is deleted when
    /// the key is handed over again.
    fn take_back(&self, key: &[u8]) -> io::Result<()> {
        let mut kernel = self.kernel(Asks::Moves)?;
        let reply = kernel.ask(&encode(&[b"XKGIVE", key, b"abort"]));
        self.forget(kernel.port());
        if reply? != FOREIGN {
            // It may have gone.
            let _ = self.server().and_then(|mut server| server.ask(&encode(&[b"DEL", key])));
        }
        Ok(())
    }

    /// Does something while no key moves.
    pub(crate) fn while_nothing_moves<T>(&self, work: impl FnOnce() -> T) -> T {
        let _moves = held(&self.moves);
        work()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_replies() {
        assert_eq!(words(b"$2\r\na\n\r\n"), Some(vec![b"a\n".to_vec()]));
        assert_eq!(words(b"*2\r\n$1\r\na\r\n$0\r\n\r\n"), Some(vec![b"a".to_vec(), Vec::new()]));
        assert_eq!(words(b"*0\r\n"), Some(Vec::new()));
        assert_eq!(words(b"-ERR no\r\n"), None);
    }

    #[test]
    fn a_grace_period_passes() {
        packets_end().unwrap();
    }
}
