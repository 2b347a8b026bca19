//! One client, as far as the kernel passes its requests on.
//!
//! Each request is first asked on a connection of our own to the same port, which the kernel answers if the key is its own.
//! What it does not answer goes to memcached, after the key has become memcached's. Replies are written in the order of the
//! requests. When all bytes that were passed on are answered, the kernel answers the client itself again.

use std::io::{self, Write as _};
use std::net::TcpStream;
use std::sync::Arc;

use xk_front::record::{Asks, Record};
use xk_front::{write, Flow};

use crate::peer::Peer;
use crate::text::{parse, Command, Parsed, KEY};
use crate::{binary, Front};

/// What the kernel says of a request that it does not answer.
const NOT_MINE: &[u8] = b"XKPASS\r\n";
/// The longest request that the kernel is asked: as long as a value in it may be (`MC_VALUE`).
const MOST: usize = 7168;
const END: &[u8] = b"END\r\n";
const TOO_LARGE: &[u8] = b"SERVER_ERROR object too large for cache\r\n";

/// A client of whom something was passed on.
pub struct Session {
    front: Arc<Front>,
    kernel: Peer,
    server: Peer,
    record: Option<Record>,
    /// What is left of what was passed on.
    pending: Vec<u8>,
    /// Bytes of a value that is not taken, which follow.
    dropped: usize,
    /// Bytes that were passed on and are answered.
    done: u64,
}

impl Drop for Session {
    fn drop(&mut self) {
        self.front.port.forget(self.kernel.port());
    }
}

impl xk_front::Session<Front> for Session {
    fn new(client: &TcpStream, _: &Arc<()>, front: &Arc<Front>) -> io::Result<Self> {
        let record = front.port.record(client.peer_addr()?);
        let (kernel, server) = (front.kernel(Asks::Requests)?, front.server()?);
        let front = front.clone();
        Ok(Self { front, kernel, server, record, pending: Vec::new(), dropped: 0, done: 0 })
    }

    fn arrives(&mut self, client: &TcpStream, bytes: &[u8]) -> io::Result<Flow> {
        self.pending.extend(bytes);
        let mut pending = std::mem::take(&mut self.pending);
        let mut replies = Vec::new();
        let mut at = 0;
        let after = loop {
            let dropped = self.dropped.min(pending.len() - at);
            self.dropped -= dropped;
            at += dropped;
            let (length, reply) = match parse(&pending[at..]) {
                Parsed::More => break After::On,
                Parsed::NoLine => break After::Tunnel,
                Parsed::Whole(command) if command.name() == b"quit" => break After::Ended,
                Parsed::Whole(command) if command.name() == b"watch" => break After::Tunnel,
                Parsed::Whole(command) => (command.bytes.len(), self.answer(&command)?),
                Parsed::TooLarge(command, value) => {
                    self.dropped = value;
                    (command.bytes.len(), self.refuse(&command)?)
                }
            };
            replies.extend(reply);
            at += length;
        };
        write(client, &replies)?;
        self.done += at as u64;
        pending.drain(..at);
        self.pending = pending;
        match after {
            After::On => {
                if let Some(record) = &self.record {
                    record.done(self.front.heap(), self.done);
                }
                Ok(Flow::On)
            }
            After::Ended => Ok(Flow::Ended),
            After::Tunnel => {
                self.tunnel(client)?;
                Ok(Flow::Ended)
            }
        }
    }
}

/// How it goes on behind the commands that were answered.
enum After {
    On,
    Ended,
    /// memcached answers from here on.
    Tunnel,
}

impl Session {
    fn answer(&mut self, command: &Command) -> io::Result<Vec<u8>> {
        match command.name() {
            b"get" | b"gets" => self.get(command, 1),
            b"gat" | b"gats" => self.get(command, 2),
            b"set" | b"add" | b"replace" | b"append" | b"prepend" | b"cas" | b"touch" | b"incr" | b"decr"
            | b"delete" => self.with_key(command),
            b"mn" => Ok(b"MN\r\n".to_vec()),
            b"flush_all" => self.flush(command),
            b"stats" if command.words.len() == 1 => self.stats(command),
            _ if command.is_meta() => self.with_memcached(command),
            _ => self.server.ask(command.bytes),
        }
    }

    /// A command of a key that may be the kernel's.
    fn with_key(&mut self, command: &Command) -> io::Result<Vec<u8>> {
        if command.key().is_none() {
            return self.server.ask(command.bytes);
        }
        // The kernel reads no longer words.
        if command.bytes.len() <= MOST && command.words.iter().all(|word| word.len() <= KEY) {
            let reply = self.kernel.ask(command.bytes)?;
            if reply != NOT_MINE {
                return Ok(reply);
            }
        }
        self.with_memcached(command)
    }

    /// A command of a key that is memcached's, or becomes it.
    fn with_memcached(&mut self, command: &Command) -> io::Result<Vec<u8>> {
        if let Some(key) = command.key() {
            if let Some(why) = self.front.claim(&key)? {
                return Ok(why);
            }
        }
        self.server.ask(command.bytes)
    }

    /// A command of several keys, the first of which is this word: the items of each, and one end.
    fn get(&mut self, command: &Command, first: usize) -> io::Result<Vec<u8>> {
        let keys = command.words.get(first..).unwrap_or_default();
        if keys.is_empty() || keys.iter().any(|key| key.len() > KEY) {
            return self.server.ask(command.bytes);
        }
        let mut items = Vec::new();
        for key in keys {
            let one = [&command.words[..first].join(&b' '), b" ".as_slice(), key, b"\r\n"].concat();
            let mut reply = if one.len() <= MOST { self.kernel.ask(&one)? } else { NOT_MINE.to_vec() };
            if reply == NOT_MINE {
                if let Some(why) = self.front.claim(key)? {
                    return Ok(why);
                }
                reply = self.server.ask(&one)?;
            }
            match reply.strip_suffix(END) {
                Some(item) => items.extend(item),
                // It is no command.
                None => return Ok(reply),
            }
        }
        items.extend(END);
        Ok(items)
    }

    /// `flush_all`. Whether it is done is asked also if the client does not want to know.
    fn flush(&mut self, command: &Command) -> io::Result<Vec<u8>> {
        let is_quiet = command.words.last().is_some_and(|last| *last == b"noreply");
        let words = &command.words[..command.words.len() - usize::from(is_quiet)];
        let reply = self.front.flush(&[words.join(&b' ').as_slice(), b"\r\n"].concat())?;
        Ok(if is_quiet { Vec::new() } else { reply })
    }

    /// `stats`: memcached's, with what the kernel has counted added.
    fn stats(&mut self, command: &Command) -> io::Result<Vec<u8>> {
        let (own, other) = (self.kernel.ask(command.bytes)?, self.server.ask(command.bytes)?);
        Ok(sum(&own, &other))
    }

    /// A value that is not waited for. As in memcached, the item that it was meant for goes.
    fn refuse(&mut self, command: &Command) -> io::Result<Vec<u8>> {
        if let Some(key) = command.key() {
            if let Some(why) = self.front.claim(&key)? {
                return Ok(why);
            }
            self.server.ask(&[b"delete ", key.as_slice(), b"\r\n"].concat())?;
        }
        Ok(TOO_LARGE.to_vec())
    }

    /// Passes on in both directions until one of both ends.
    fn tunnel(&mut self, client: &TcpStream) -> io::Result<()> {
        let mut pending = std::mem::take(&mut self.pending);
        let (front, server) = (self.front.clone(), self.server.stream());
        xk_front::relay(client, server, || {
            let mut more = [0; 16384];
            let is_binary = binary::is(&pending);
            loop {
                let whole = if is_binary { binary::claim(&front, &pending)? } else { pending.len() };
                { server }.write_all(&pending[..whole])?;
                pending.drain(..whole);
                match xk_front::read(client, &mut more)? {
                    0 => return Ok(()),
                    length => pending.extend(&more[..length]),
                }
            }
        })
    }
}

/// Adds numbers of the first reply to those of the same name in the second.
fn sum(own: &[u8], other: &[u8]) -> Vec<u8> {
    let (own, other) = (String::from_utf8_lossy(own), String::from_utf8_lossy(other));
    let number = |line: &str, name: &str| {
        let rest = line.strip_prefix("STAT ")?.strip_prefix(name)?.strip_prefix(' ')?;
        rest.parse::<u64>().ok()
    };
    let line = |line: &str| {
        let name = line.split(' ').nth(1).unwrap_or_default();
        let more = own.lines().find_map(|own| number(own, name)).unwrap_or(0);
        match number(line, name) {
            Some(count) if more > 0 => format!("STAT {name} {}\r\n", count + more),
            _ => format!("{line}\r\n"),
        }
    };
    other.lines().map(line).collect::<String>().into_bytes()
}

#[cfg(test)]
mod tests {
    use super::sum;

    #[test]
    fn numbers_of_the_kernel_are_added() {
        let own = b"STAT curr_items 3\r\nSTAT cmd_get 5\r\nEND\r\n";
        let other = b"STAT version 1.6.18\r\nSTAT curr_items 1\r\nSTAT cmd_get_x 2\r\nSTAT pid 3\r\nEND\r\n";
        let both = "STAT version 1.6.18\r\nSTAT curr_items 4\r\nSTAT cmd_get_x 2\r\nSTAT pid 3\r\nEND\r\n";
        assert_eq!(String::from_utf8(sum(own, other)).unwrap(), both);
    }
}
