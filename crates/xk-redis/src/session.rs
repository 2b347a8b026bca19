//! One client, as far as the kernel passes its requests on.
//!
//! Each request is first asked on a connection of our own to the same port, which the kernel answers if it has the keys.
//! What it does not answer goes to redis-server, after the kernel has handed over the keys that it names. Replies are
//! written in the order of the requests. When all bytes that were passed on are answered, the kernel answers the client
//! itself again, unless a transaction is under way or another database than 0 is selected.

use std::io;
use std::net::TcpStream;
use std::sync::Arc;

use xk_front::record::{Asks, Record};
use xk_front::{held, write, Flow};

use crate::commands::find;
use crate::peer::Peer;
use crate::resp::{encode, request, Parsed};
use crate::waiting::Waiting;
use crate::Front;

/// What the kernel says of a request that it does not answer.
const NOT_MINE: &[u8] = b"-XKPASS\r\n";
/// The longest request, number of words, and key that the kernel is asked about. `RD_MOST - RD_PIECE`, `RD_ARGS`, `RD_KEY`.
const MOST: usize = 7552;
const WORDS: usize = 64;
const KEY: usize = 512;
/// Commands that see keys which they do not name.
const WHOLE: [&str; 4] = ["KEYS", "SCAN", "DBSIZE", "RANDOMKEY"];
/// What `DEBUG` does with keys.
const DEBUGGED: [&[u8]; 5] = [b"OBJECT", b"SDSLEN", b"LISTPACK", b"QUICKLIST", b"DIGEST-VALUE"];
/// Commands after which replies come at any time, or not at all.
const TUNNELS: [&str; 4] = ["MONITOR", "SYNC", "PSYNC", "QUIT"];
/// The same, and with a reply for each of their words.
const CHANNELS: [&str; 6] = ["SUBSCRIBE", "PSUBSCRIBE", "SSUBSCRIBE", "UNSUBSCRIBE", "PUNSUBSCRIBE", "SUNSUBSCRIBE"];
/// An option of redis-server: events of keys. There are none of the kernel's keys.
pub(crate) const EVENTS: &str = "notify-keyspace-events";
/// Commands of several keys that do the same with each.
const EACH: [&str; 4] = ["DEL", "UNLINK", "EXISTS", "MGET"];

/// `MULTI` was asked.
#[derive(Default)]
struct Transaction {
    /// A request was refused here.
    is_broken: bool,
}

/// A client of whom something was passed on.
pub struct Session {
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
    waiting: Arc<Waiting>,
    /// That is selected.
    database: u64,
    record: Option<Record>,
    /// What is left of what was passed on.
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

impl xk_front::Session<Front> for Session {
    /// Connects to the kernel and to the server.
    fn new(client: &TcpStream, waiting: &Arc<Waiting>, front: &Arc<Front>) -> io::Result<Self> {
        let record = front.port.record(client.peer_addr()?);
        let (kernel, server) = (front.kernel(Asks::Requests)?, front.server()?);
        let port = kernel.port();
        let (front, waiting, pending) = (front.clone(), waiting.clone(), Vec::new());
        let (beside, transaction, awaited, database, done) = (None, None, Vec::new(), 0, 0);
        Ok(Self { front, kernel, port, server, beside, transaction, awaited, waiting, database, record, pending, done })
    }

    fn arrives(&mut self, client: &TcpStream, bytes: &[u8]) -> io::Result<Flow> {
        self.pending.extend(bytes);
        let Some(rest) = self.requests(client)? else { return Ok(Flow::On) };
        self.tunnel(client, rest)?;
        Ok(Flow::Ended)
    }
}

impl Session {
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
                if is_tunnel(&name, &words) && self.refusal(&name, &words).is_none() {
                    write(client, &replies)?;
                    return Ok(Some(std::mem::take(&mut self.pending)));
                }
                // What it waits for may be what another client sends when it has the replies so far.
                if self.waits(&name, &words) {
                    write(client, &std::mem::take(&mut replies))?;
                }
                replies.extend(self.answer(client, &name, &words)?);
            }
            self.pending.drain(..length);
            self.done += length as u64;
        }
        write(client, &replies)?;
        // What follows is passed on, too, as long as the kernel knows less of the client than redis-server.
        if let Some(record) = self.record.as_ref().filter(|_| self.is_plain()) {
            record.done(self.front.heap(), self.done);
        }
        Ok(None)
    }

    pub(crate) fn front(&self) -> &Arc<Front> {
        &self.front
    }

    pub(crate) fn kernel(&mut self) -> &mut Peer {
        &mut self.kernel
    }

    pub(crate) fn server(&mut self) -> &mut Peer {
        &mut self.server
    }

    /// Whether the kernel may answer.
    fn is_plain(&self) -> bool {
        self.transaction.is_none() && self.database == 0
    }

    fn answer(&mut self, client: &TcpStream, name: &str, words: &[Vec<u8>]) -> io::Result<Vec<u8>> {
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
        if self.asks_all(name) {
            return self.ask_all(name, words);
        }
        if self.is_plain() {
            if EACH.contains(&name) && words.len() > 2 {
                return self.each(client, name, words);
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
                let reply = if self.waits(name, words) {
                    self.waiting.ask(client, &mut self.server, &encode(words))
                } else {
                    self.server.ask(&encode(words))
                };
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

    /// Whether redis-server may wait before it answers.
    fn waits(&self, name: &str, words: &[Vec<u8>]) -> bool {
        let command = find(&self.front.commands, name, words);
        self.transaction.is_none() && command.is_some_and(|command| command.waits)
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
            "CONFIG" if words.windows(2).skip(2).any(|pair| is(&pair[0], EVENTS) && !pair[1].is_empty()) => {
                return Some(format!("{EVENTS} is not served: keys in the kernel cause none"));
            }
            "CLIENT" if words.iter().any(|word| is(word, "TRACKING")) && words.iter().any(|word| is(word, "BCAST")) => {
                return Some(
                    "CLIENT TRACKING with BCAST is not served: it would not see the keys in the kernel".into(),
                );
            }
            "SWAPDB" => true,
            _ if self.database != 0 => false,
            _ if self.asks_all(name) && self.transaction.is_some() => {
                return Some(format!("{name} is not served in a transaction"));
            }
            "SORT" | "SORT_RO" => words.windows(2).skip(2).any(|pair| {
                // A pattern of keys.
                (is(&pair[0], "BY") || is(&pair[0], "GET")) && pair[1].contains(&b'*')
            }),
            _ => false,
        };
        sees_others.then(|| format!("{name} is not served: it would not see the keys in the kernel"))
    }

    /// Whether it is a request about all keys of database 0.
    pub(crate) fn asks_all(&self, name: &str) -> bool {
        self.database == 0 && WHOLE.contains(&name)
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
    fn each(&mut self, client: &TcpStream, name: &str, words: &[Vec<u8>]) -> io::Result<Vec<u8>> {
        let (mut all, mut sum) = (Vec::new(), 0);
        for key in &words[1..] {
            let one = [name.as_bytes().to_vec(), key.clone()];
            let reply = self.answer(client, name, &one)?;
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
        front.while_nothing_moves(|| self.kernel.drop_keys())?;
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
        _ => TUNNELS.contains(&name) || CHANNELS.contains(&name),
    }
}
