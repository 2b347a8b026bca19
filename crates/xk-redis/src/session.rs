//! One client, as far as the kernel passes its requests on.
//!
//! Each request is first asked on a connection of our own to the same port, which the kernel answers if it has the keys.
//! What it does not answer goes to redis-server, if the kernel holds none of its keys. Replies are written in the order of
//! the requests. When all bytes that were passed on are answered, the kernel answers the client itself again.

use std::io::{self, Read as _, Write as _};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use crate::commands::Command;
use crate::record::Record;
use crate::resp::{encode, reply_end, request, Parsed};
use crate::Front;

/// What the kernel says of a request that it does not answer.
const NOT_MINE: &[u8] = b"-XKPASS\r\n";
/// The longest request, number of words, and key that the kernel is asked about. `RD_MOST - RD_PIECE`, `RD_ARGS`, `RD_KEY`.
const MOST: usize = 7552;
const WORDS: usize = 64;
const KEY: usize = 512;
/// How soon it reads again what is on its way.
const PAUSE: Duration = Duration::from_micros(50);
const SHARDS: u64 = 64;
const BUCKETS: u64 = 4096;
/// Commands that see keys which they do not name: the kernel's would be missing.
const WHOLE: [&str; 12] = [
    "KEYS",
    "SCAN",
    "DBSIZE",
    "RANDOMKEY",
    "SWAPDB",
    "MOVE",
    "MULTI",
    "EXEC",
    "DISCARD",
    "WATCH",
    "UNWATCH",
    "MIGRATE",
];
/// Commands after which replies come at any time.
const TUNNELS: [&str; 6] = ["SUBSCRIBE", "PSUBSCRIBE", "SSUBSCRIBE", "MONITOR", "SYNC", "PSYNC"];
/// Commands of several keys that do the same with each.
const EACH: [&str; 4] = ["DEL", "UNLINK", "EXISTS", "MGET"];

/// A connection to a server.
pub struct Peer {
    stream: TcpStream,
    read: Vec<u8>,
}

impl Peer {
    pub(crate) fn new(stream: TcpStream) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        Ok(Self { stream, read: Vec::new() })
    }

    /// Asks, and returns the reply.
    pub(crate) fn ask(&mut self, request: &[u8]) -> io::Result<Vec<u8>> {
        self.stream.write_all(request)?;
        self.reply()
    }

    fn reply(&mut self) -> io::Result<Vec<u8>> {
        let mut more = [0; 16384];
        loop {
            if let Some(end) = reply_end(&self.read, 0) {
                return Ok(self.read.drain(..end).collect());
            }
            match self.stream.read(&mut more)? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                length => self.read.extend(&more[..length]),
            }
        }
    }
}

/// How it goes on with a client.
pub(crate) enum Next {
    /// When the kernel passes something on.
    Later(Option<Session>),
    /// Not at all.
    Ended,
}

/// A client of whom something was passed on.
pub(crate) struct Session {
    front: Arc<Front>,
    kernel: Peer,
    /// Its own port of that connection.
    port: u16,
    server: Peer,
    record: Option<Record>,
    /// Bytes that were read; what is left of them.
    read: u64,
    pending: Vec<u8>,
    /// Bytes that were passed on and are answered.
    done: u64,
}

impl Drop for Session {
    fn drop(&mut self) {
        self.front.forget(self.port);
    }
}

/// Writes all bytes to a socket that does not block.
fn write(mut to: &TcpStream, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match to.write(bytes) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(length) => bytes = &bytes[length..],
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => std::thread::sleep(crate::PAUSE),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Copies what a socket that does not block receives, until it is closed.
fn copy(mut from: &TcpStream, to: &mut impl io::Write) -> io::Result<()> {
    let mut more = [0; 16384];
    loop {
        match from.read(&mut more) {
            Ok(0) => return Ok(()),
            Ok(length) => to.write_all(&more[..length])?,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => std::thread::sleep(crate::PAUSE),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

impl Session {
    /// Connects to the kernel and to the server.
    fn new(client: &TcpStream, front: &Arc<Front>) -> io::Result<Self> {
        let record = Record::of(front, client.peer_addr()?);
        let (kernel, server) = (front.kernel()?, front.server()?);
        let port = kernel.stream.local_addr()?.port();
        Ok(Self { front: front.clone(), kernel, port, server, record, read: 0, pending: Vec::new(), done: 0 })
    }

    /// Answers what was passed on of a client.
    pub(crate) fn attend(mut session: Option<Self>, mut client: &TcpStream, front: &Arc<Front>) -> io::Result<Next> {
        let mut more = [0; 16384];
        loop {
            let length = match client.read(&mut more) {
                Ok(0) => return Ok(Next::Ended),
                Ok(length) => length,
                // What was passed on comes a little later than the word of it.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => match &mut session {
                    None if Record::of(front, client.peer_addr()?).is_some_and(|record| record.passed(front) > 0) => {
                        std::thread::sleep(PAUSE);
                        continue;
                    }
                    Some(own) if own.record.as_ref().is_some_and(|record| record.passed(front) > own.read) => {
                        std::thread::sleep(PAUSE);
                        continue;
                    }
                    _ => return Ok(Next::Later(session)),
                },
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            let own = match &mut session {
                Some(own) => own,
                None => session.insert(Self::new(client, front)?),
            };
            own.pending.extend(&more[..length]);
            own.read += length as u64;
            if let Some(rest) = own.requests(client)? {
                own.tunnel(client, &rest)?;
                return Ok(Next::Ended);
            }
        }
    }

    /// Answers the requests that have arrived. What is left goes to the server as it is, if there is something.
    fn requests(&mut self, client: &TcpStream) -> io::Result<Option<Vec<u8>>> {
        let mut replies = Vec::new();
        loop {
            let (length, words) = match request(&self.pending) {
                Parsed::More => break,
                Parsed::Whole(length, words) => (length, words),
                // The server says what is wrong, and closes its connection.
                Parsed::Bad => {
                    write(client, &replies)?;
                    return Ok(Some(std::mem::take(&mut self.pending)));
                }
            };
            if let Some(name) = words.first().map(|word| String::from_utf8_lossy(word).to_uppercase()) {
                if TUNNELS.contains(&name.as_str()) {
                    write(client, &replies)?;
                    return Ok(Some(std::mem::take(&mut self.pending)));
                }
                replies.extend(self.answer(&name, &words)?);
            }
            self.pending.drain(..length);
            self.done += length as u64;
        }
        write(client, &replies)?;
        if let Some(record) = &self.record {
            record.done(&self.front, self.done);
        }
        Ok(None)
    }

    /// Copies bytes between the client and the server from now on.
    fn tunnel(&mut self, client: &TcpStream, first: &[u8]) -> io::Result<()> {
        self.server.stream.write_all(first)?;
        let mut from_server = self.server.stream.try_clone()?;
        let mut server = &self.server.stream;
        std::thread::scope(|scope| {
            scope.spawn(move || {
                let mut more = [0; 16384];
                while let Ok(length @ 1..) = from_server.read(&mut more) {
                    if write(client, &more[..length]).is_err() {
                        break;
                    }
                }
                client.shutdown(Shutdown::Both)
            });
            let copied = copy(client, &mut server);
            let _ = server.shutdown(Shutdown::Both);
            copied
        })
    }

    fn answer(&mut self, name: &str, words: &[Vec<u8>]) -> io::Result<Vec<u8>> {
        let bytes = encode(words);
        let said = |text: String| Ok(format!("-ERR xk: {text}\r\n").into_bytes());
        if WHOLE.contains(&name) {
            return said(format!("{name} is not served: it would not see the keys in the kernel"));
        }
        if name == "SELECT" && words.get(1).is_some_and(|word| word != b"0") {
            return said("only database 0 is served".into());
        }
        if name == "HELLO" && words.get(1).is_some_and(|word| word == b"3") {
            return Ok(b"-NOPROTO unsupported protocol version\r\n".to_vec());
        }
        if name == "FLUSHALL" || name == "FLUSHDB" {
            self.flush()?;
            return self.server.ask(&bytes);
        }
        if EACH.contains(&name) && words.len() > 2 {
            return self.each(name, words);
        }
        let is_short = bytes.len() <= MOST && words.len() <= WORDS;
        if is_short && name != "XKCLAIM" && name != "XKFLUSH" {
            let reply = self.kernel.ask(&bytes)?;
            if reply != NOT_MINE {
                return Ok(reply);
            }
        }
        match self.refusal(name, words)? {
            Some(refusal) => Ok(refusal),
            None => self.server.ask(&bytes),
        }
    }

    /// What the client is told if the kernel holds a key of the request. Else the keys are redis-server's from now on, if
    /// the command may write.
    fn refusal(&mut self, name: &str, words: &[Vec<u8>]) -> io::Result<Option<Vec<u8>>> {
        let Some(command) = self.front.commands.get(name).cloned() else { return Ok(None) };
        let keys: Vec<Vec<u8>> = match command.keys(words) {
            Some(keys) => keys.into_iter().map(<[u8]>::to_vec).collect(),
            None => {
                let mut asked = vec![b"COMMAND".to_vec(), b"GETKEYS".to_vec()];
                asked.extend(words.iter().cloned());
                let reply = self.server.ask(&encode(&asked))?;
                // Of what is wrong, the server says so.
                match request(&reply) {
                    Parsed::Whole(_, keys) => keys,
                    _ => return Ok(None),
                }
            }
        };
        let mode: &[u8] = if command.writes { b"w" } else { b"r" };
        // The kernel holds no longer ones.
        for key in keys.iter().filter(|key| key.len() <= KEY) {
            let held = self.kernel.ask(&encode(&[b"XKCLAIM", key.as_slice(), mode]))?;
            let held = match held.as_slice() {
                b":1\r\n" => continue,
                b"+string\r\n" => "@string",
                b"+hash\r\n" => "@hash",
                b"+zset\r\n" => "@sortedset",
                _ => return Ok(Some(held)),
            };
            return Ok(Some(Self::held(name, key, held, &command)));
        }
        Ok(None)
    }

    /// The kernel has a value of this type.
    fn held(name: &str, key: &[u8], held: &str, command: &Command) -> Vec<u8> {
        const TYPES: [&str; 6] = ["@string", "@hash", "@sortedset", "@list", "@set", "@stream"];
        let is_for = |kind: &&str| command.types.contains(*kind);
        if TYPES.iter().any(is_for) && !is_for(&held) {
            return b"-WRONGTYPE Operation against a key holding the wrong kind of value\r\n".to_vec();
        }
        let key = key.escape_ascii();
        format!("-ERR xk: {name} with these words is not served for {key}, which the kernel holds\r\n").into_bytes()
    }

    /// Does the command with each of its keys.
    fn each(&mut self, name: &str, words: &[Vec<u8>]) -> io::Result<Vec<u8>> {
        let (mut all, mut sum) = (Vec::new(), 0);
        for key in &words[1..] {
            let one = [name.as_bytes().to_vec(), key.clone()];
            let reply = self.answer(name, &one)?;
            let text = std::str::from_utf8(&reply).unwrap_or_default();
            match text.strip_prefix(':').and_then(|text| text.trim_end().parse::<u64>().ok()) {
                Some(number) => sum += number,
                None if name == "MGET" => {
                    // The reply to MGET of one key.
                    all.extend(reply.strip_prefix(b"*1\r\n").unwrap_or(&reply));
                }
                None => return Ok(reply),
            }
        }
        let head = if name == "MGET" { format!("*{}\r\n", words.len() - 1) } else { format!(":{sum}\r\n") };
        Ok([head.into_bytes(), all].concat())
    }

    /// Drops all keys of the kernel.
    fn flush(&mut self) -> io::Result<()> {
        for shard in 0..SHARDS {
            let mut bucket = 0;
            while bucket < BUCKETS {
                let [shard, from] = [shard, bucket].map(|number| number.to_string().into_bytes());
                let reply = self.kernel.ask(&encode(&[b"XKFLUSH".to_vec(), shard, from]))?;
                let text = std::str::from_utf8(&reply).unwrap_or_default();
                let next = text.strip_prefix(':').and_then(|text| text.trim_end().parse().ok());
                bucket = next.ok_or_else(|| io::Error::other(format!("XKFLUSH: {}", reply.escape_ascii())))?;
            }
        }
        Ok(())
    }
}
