//! One client, as far as the kernel passes its requests on.
//!
//! Each request is first asked on a connection of our own to the same port, which the kernel answers if it has the keys.
//! What it does not answer goes to redis-server, after the kernel has handed over the keys that it names. Replies are
//! written in the order of the requests. When all bytes that were passed on are answered, the kernel answers the client
//! itself again, unless a transaction is under way or another database than 0 is selected.

use std::io::{self, Read as _, Write as _};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use crate::commands::find;
use crate::record::Record;
use crate::resp::{encode, reply_end, request, Parsed};
use crate::{held, Front};

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
const WHOLE: [&str; 5] = ["KEYS", "SCAN", "DBSIZE", "RANDOMKEY", "SWAPDB"];
/// What `DEBUG` does with keys.
const DEBUGGED: [&[u8]; 5] = [b"OBJECT", b"SDSLEN", b"LISTPACK", b"QUICKLIST", b"DIGEST-VALUE"];
/// Commands after which replies come at any time, or not at all.
const TUNNELS: [&str; 7] = ["SUBSCRIBE", "PSUBSCRIBE", "SSUBSCRIBE", "MONITOR", "SYNC", "PSYNC", "QUIT"];
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

    /// Our own port of the connection.
    pub(crate) fn port(&self) -> u16 {
        self.stream.local_addr().map_or(0, |address| address.port())
    }

    /// To send requests whose replies are read elsewhere.
    pub(crate) fn stream(&self) -> &TcpStream {
        &self.stream
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
    Later(Option<Box<Session>>),
    /// Not at all.
    Ended,
}

/// `MULTI` was asked.
#[derive(Default)]
struct Transaction {
    /// A request was refused here.
    is_broken: bool,
}

/// A client of whom something was passed on.
pub(crate) struct Session {
    front: Arc<Front>,
    kernel: Peer,
    /// Its own port of that connection.
    port: u16,
    server: Peer,
    /// Answers which words are keys, also during a transaction of the client.
    beside: Option<Peer>,
    transaction: Option<Transaction>,
    /// Keys whose changes the client waits for.
    awaited: Vec<Vec<u8>>,
    /// That is selected.
    database: u64,
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
        self.awaits_only(0);
    }
}

/// Writes all bytes to a socket that does not block.
pub(crate) fn write(mut to: &TcpStream, mut bytes: &[u8]) -> io::Result<()> {
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

impl Session {
    /// Connects to the kernel and to the server.
    fn new(client: &TcpStream, front: &Arc<Front>) -> io::Result<Self> {
        let record = Record::of(front, client.peer_addr()?);
        let (kernel, server) = (front.kernel(false)?, front.server()?);
        let port = kernel.port();
        let (front, pending) = (front.clone(), Vec::new());
        let (beside, transaction, awaited, database, read, done) = (None, None, Vec::new(), 0, 0, 0);
        Ok(Self { front, kernel, port, server, beside, transaction, awaited, database, record, read, pending, done })
    }

    /// Answers what was passed on of a client.
    pub(crate) fn attend(
        mut session: Option<Box<Self>>,
        mut client: &TcpStream,
        front: &Arc<Front>,
    ) -> io::Result<Next> {
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
                None => session.insert(Box::new(Self::new(client, front)?)),
            };
            own.pending.extend(&more[..length]);
            own.read += length as u64;
            if let Some(rest) = own.requests(client)? {
                own.tunnel(client, rest)?;
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
                if is_tunnel(&name, &words) {
                    write(client, &replies)?;
                    return Ok(Some(std::mem::take(&mut self.pending)));
                }
                replies.extend(self.answer(&name, &words)?);
            }
            self.pending.drain(..length);
            self.done += length as u64;
        }
        write(client, &replies)?;
        // What follows is passed on, too, as long as the kernel knows less of the client than redis-server.
        if let Some(record) = self.record.as_ref().filter(|_| self.is_plain()) {
            record.done(&self.front, self.done);
        }
        Ok(None)
    }

    pub(crate) fn server(&self) -> &Peer {
        &self.server
    }

    /// Whether the kernel may answer.
    fn is_plain(&self) -> bool {
        self.transaction.is_none() && self.database == 0
    }

    fn answer(&mut self, name: &str, words: &[Vec<u8>]) -> io::Result<Vec<u8>> {
        if let Some(why) = self.refusal(name, words) {
            if let Some(transaction) = &mut self.transaction {
                transaction.is_broken = true;
            }
            return Ok(format!("-ERR xk: {why}\r\n").into_bytes());
        }
        if ["MULTI", "EXEC", "DISCARD", "RESET", "SELECT"].contains(&name) {
            return self.change(name, words);
        }
        if name == "FLUSHALL" || name == "FLUSHDB" {
            self.flush(name)?;
            return self.server.ask(&encode(words));
        }
        if self.is_plain() {
            if EACH.contains(&name) && words.len() > 2 {
                return self.each(name, words);
            }
            let bytes = encode(words);
            let is_short = bytes.len() <= MOST && words.len() <= WORDS;
            if is_short && !name.starts_with("XK") {
                let reply = self.kernel.ask(&bytes)?;
                if reply != NOT_MINE {
                    return Ok(reply);
                }
            }
        }
        let before = self.awaited.len();
        match self.claim(name, words)? {
            Some(refusal) => {
                if let Some(transaction) = &mut self.transaction {
                    transaction.is_broken = true;
                }
                Ok(refusal)
            }
            None => {
                let reply = self.server.ask(&encode(words));
                if self.transaction.is_none() {
                    match name {
                        "WATCH" => {}
                        "UNWATCH" => self.awaits_only(0),
                        _ => self.awaits_only(before),
                    }
                }
                reply
            }
        }
    }

    /// The client waits for changes of the first of its keys only.
    fn awaits_only(&mut self, first: usize) {
        self.awaited.drain(first..).for_each(|key| self.front.awaits_no_more(&key));
    }

    /// Why a request is not served; nothing if it is.
    pub(crate) fn refusal(&self, name: &str, words: &[Vec<u8>]) -> Option<String> {
        let is = |word: &Vec<u8>, name: &str| word.eq_ignore_ascii_case(name.as_bytes());
        let sees_others = match name {
            "SELECT" | "FLUSHALL" | "FLUSHDB" if self.transaction.is_some() => {
                return Some(format!("{name} is not served in a transaction"));
            }
            "SWAPDB" => true,
            _ if self.database != 0 => false,
            "SORT" | "SORT_RO" => words.windows(2).skip(2).any(|pair| {
                // A pattern of keys.
                (is(&pair[0], "BY") || is(&pair[0], "GET")) && pair[1].contains(&b'*')
            }),
            _ => WHOLE.contains(&name),
        };
        sees_others.then(|| format!("{name} is not served: it would not see the keys in the kernel"))
    }

    /// Requests that change what the client is to redis-server.
    fn change(&mut self, name: &str, words: &[Vec<u8>]) -> io::Result<Vec<u8>> {
        let is_broken = self.transaction.as_ref().is_some_and(|transaction| transaction.is_broken);
        if name == "EXEC" && is_broken {
            self.ends();
            self.server.ask(&encode(&["DISCARD"]))?;
            return Ok(b"-EXECABORT Transaction discarded because of previous errors.\r\n".to_vec());
        }
        if name == "EXEC" || name == "DISCARD" {
            self.ends();
        }
        let reply = self.server.ask(&encode(words))?;
        match (name, reply.as_slice()) {
            ("MULTI", b"+OK\r\n") => self.transaction = Some(Transaction::default()),
            ("SELECT", b"+OK\r\n") => {
                let number = words.get(1).and_then(|word| std::str::from_utf8(word).ok()?.parse().ok());
                self.database = number.unwrap_or(0);
            }
            ("RESET", b"+RESET\r\n") => {
                self.transaction = None;
                self.awaits_only(0);
                self.database = 0;
            }
            _ => {}
        }
        Ok(reply)
    }

    pub(crate) fn begins(&mut self) {
        self.transaction.get_or_insert_default();
    }

    /// A transaction ends, if one is under way.
    pub(crate) fn ends(&mut self) {
        if self.transaction.take().is_some() {
            self.awaits_only(0);
        }
    }

    /// The words of a request that are keys; nothing of one that is wrong, as redis-server will say.
    fn keys(&mut self, name: &str, words: &[Vec<u8>]) -> io::Result<Vec<Vec<u8>>> {
        // redis-server does not say which words of these are keys.
        let second = words.get(1).map(|word| word.to_ascii_uppercase()).unwrap_or_default();
        if name == "DEBUG" && DEBUGGED.contains(&second.as_slice()) {
            return Ok(words.iter().skip(2).cloned().collect());
        }
        let Some(command) = find(&self.front.commands, name, words) else { return Ok(Vec::new()) };
        if let Some(keys) = command.keys(words) {
            return Ok(keys.into_iter().map(<[u8]>::to_vec).collect());
        }
        let mut asked = vec![b"COMMAND".to_vec(), b"GETKEYS".to_vec()];
        asked.extend(words.iter().cloned());
        let beside = match &mut self.beside {
            Some(beside) => beside,
            None => self.beside.insert(self.front.server()?),
        };
        match request(&beside.ask(&encode(&asked))?) {
            Parsed::Whole(_, keys) => Ok(keys),
            _ => Ok(Vec::new()),
        }
    }

    /// Makes the keys of a request redis-server's. Returns what the client is told if the kernel keeps one of them.
    pub(crate) fn claim(&mut self, name: &str, words: &[Vec<u8>]) -> io::Result<Option<Vec<u8>>> {
        // These reach database 0 from others.
        if self.database != 0 && name != "MOVE" && name != "COPY" {
            return Ok(None);
        }
        let keys = self.keys(name, words)?;
        let command = find(&self.front.commands, name, words);
        let (writes, waits) = command.map_or((false, false), |command| (command.writes, command.waits));
        let waits = waits || name == "WATCH";
        if waits {
            keys.iter().for_each(|key| self.front.awaits(key));
            self.awaited.extend(keys.iter().cloned());
        }
        // What is waited for, or will be read by a transaction, may not come into being in the kernel.
        let writes = writes || waits || self.transaction.is_some();
        for key in &keys {
            if let Some(refused) = self.claim_key(key, writes)? {
                return Ok(Some(refused));
            }
        }
        Ok(None)
    }

    fn claim_key(&mut self, key: &[u8], writes: bool) -> io::Result<Option<Vec<u8>>> {
        // The kernel holds no longer ones.
        if key.len() > KEY {
            return Ok(None);
        }
        let mode: &[u8] = if writes { b"w" } else { b"r" };
        loop {
            let held = self.kernel.ask(&encode(&[b"XKCLAIM", key, mode]))?;
            match held.as_slice() {
                b":1\r\n" => return Ok(None),
                b"+string\r\n" | b"+hash\r\n" | b"+zset\r\n" | b"+moving\r\n" => {
                    if let Some(refused) = self.front.hand_over(key)? {
                        return Ok(Some(refused));
                    }
                }
                _ => return Ok(Some(held)),
            }
        }
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

    /// Drops the kernel's keys, if database 0 is meant.
    pub(crate) fn flush(&mut self, name: &str) -> io::Result<()> {
        if name == "FLUSHDB" && self.database != 0 {
            return Ok(());
        }
        self.drop_all()
    }

    /// Drops all keys of the kernel. Those that somebody waits for stay redis-server's.
    fn drop_all(&mut self) -> io::Result<()> {
        let front = self.front.clone();
        front.while_nothing_moves(|| {
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
            Ok::<_, io::Error>(())
        })?;
        let awaited: Vec<Vec<u8>> = held(&self.front.awaited).keys().cloned().collect();
        for key in awaited {
            self.claim_key(&key, true)?;
        }
        Ok(())
    }
}

/// Whether replies come at any time from this request on, or not at all.
fn is_tunnel(name: &str, words: &[Vec<u8>]) -> bool {
    let second = words.get(1).map(|word| String::from_utf8_lossy(word).to_uppercase()).unwrap_or_default();
    match name {
        "HELLO" => second == "3",
        "CLIENT" => second == "REPLY" || second == "TRACKING",
        _ => TUNNELS.contains(&name),
    }
}
