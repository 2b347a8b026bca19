//! Requests about all keys: `DBSIZE`, `KEYS`, `SCAN` and `RANDOMKEY` see the kernel's keys and redis-server's. No key moves
//! meanwhile, so that each is seen once. Nothing else is held up: what comes or goes meanwhile is seen or not.
//!
//! Keys whose time is over are dropped here, too.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher as _, Hasher as _};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use crate::glob::is_match;
use crate::peer::Peer;
use crate::resp::encode;
use crate::session::Session;
use xk_front::record::Asks;

use crate::Front;

/// Of the kernel's table (`bpf/servers/redis/store.h`).
const SHARDS: u64 = 64;
const BUCKETS: u64 = 4096;
/// How often it is looked for keys whose time is over, as redis-server does (`hz`).
const EXPIRY: Duration = Duration::from_millis(100);
/// Set in cursors of `SCAN` while it lists the kernel's keys, and redis-server's. redis-server's cursors are numbers of the
/// buckets of a table, and do not have these bits.
const KERNEL: u64 = 1 << 62;
const SERVER: u64 = 1 << 63;

fn parsed<T: std::str::FromStr>(text: &[u8]) -> Option<T> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// A number of the kernel's or the server's.
fn number(reply: &[u8]) -> io::Result<u64> {
    let text = reply.strip_prefix(b":").and_then(|text| text.strip_suffix(b"\r\n"));
    text.and_then(parsed).ok_or_else(|| io::Error::other(format!("{} instead of a number", reply.escape_ascii())))
}

fn decimal(number: u64) -> Vec<u8> {
    number.to_string().into_bytes()
}

/// A random number below another one, which is not 0.
fn random(below: u64) -> u64 {
    RandomState::new().build_hasher().finish() % below
}

/// A key, and what `TYPE` says of it.
type Key = (&'static str, Vec<u8>);

/// The kernel's half.
impl Peer {
    /// Sends a request with the number of each shard, and reads the replies.
    fn ask_shards(&mut self, words: impl Fn(Vec<u8>) -> Vec<Vec<u8>>) -> io::Result<Vec<u64>> {
        let requests: Vec<Vec<u8>> = (0..SHARDS).map(|shard| encode(&words(decimal(shard)))).collect();
        self.send(&requests.concat())?;
        (0..SHARDS).map(|_| number(&self.reply()?)).collect()
    }

    /// How many keys each shard has.
    fn sizes(&mut self) -> io::Result<Vec<u64>> {
        self.ask_shards(|shard| vec![b"XKSIZE".to_vec(), shard])
    }

    /// Drops keys of a shard, from a bucket on: all, or those whose time is over.
    fn drop_shard(&mut self, shard: u64, mut bucket: u64, which: &[u8]) -> io::Result<()> {
        while bucket < BUCKETS {
            let words = [b"XKFLUSH".to_vec(), decimal(shard), decimal(bucket), which.to_vec()];
            bucket = number(&self.ask(&encode(&words))?)?;
        }
        Ok(())
    }

    /// Drops all keys.
    pub(crate) fn drop_keys(&mut self) -> io::Result<()> {
        (0..SHARDS).try_for_each(|shard| self.drop_shard(shard, 0, b"a"))
    }

    /// Drops keys whose time is over.
    fn expire(&mut self) -> io::Result<()> {
        let begun = self.ask_shards(|shard| vec![b"XKFLUSH".to_vec(), shard, b"0".to_vec(), b"e".to_vec()])?;
        (0..SHARDS).zip(begun).try_for_each(|(shard, bucket)| self.drop_shard(shard, bucket, b"e"))
    }

    /// Adds the keys of some buckets. Returns the place of the next one, counted over all shards.
    fn list(&mut self, place: u64, keys: &mut Vec<Key>) -> io::Result<u64> {
        let (shard, bucket) = (place / BUCKETS, place % BUCKETS);
        self.send(&encode(&[b"XKKEYS".to_vec(), decimal(shard), decimal(bucket)]))?;
        loop {
            let reply = self.reply()?;
            if !reply.starts_with(b"$") {
                return Ok(shard * BUCKETS + number(&reply)?);
            }
            let text = reply.windows(2).position(|pair| pair == b"\r\n").and_then(|end| {
                let text = reply.get(end + 2..)?.strip_suffix(b"\r\n")?;
                text.split_first()
            });
            let Some((kind, key)) = text else { return Err(io::Error::other("XKKEYS lists what is no key")) };
            let kind = match kind {
                b's' => "string",
                b'h' => "hash",
                _ => "zset",
            };
            keys.push((kind, key.to_vec()));
        }
    }
}

/// What a `SCAN` asks for.
#[derive(Debug, PartialEq, Eq)]
struct Scan {
    cursor: u64,
    pattern: Option<Vec<u8>>,
    count: u64,
    kind: Option<String>,
}

impl Scan {
    /// Nothing of a request that redis-server refuses.
    fn of(words: &[Vec<u8>]) -> Option<Self> {
        let mut scan = Self { cursor: parsed(words.get(1)?)?, pattern: None, count: 10, kind: None };
        for option in words[2..].chunks(2) {
            let [name, value] = option else { return None };
            match name.to_ascii_uppercase().as_slice() {
                b"MATCH" => scan.pattern = Some(value.clone()),
                b"COUNT" => scan.count = parsed(value).filter(|count| *count > 0)?,
                b"TYPE" => scan.kind = Some(String::from_utf8_lossy(value).to_lowercase()),
                _ => return None,
            }
        }
        Some(scan)
    }

    fn takes(&self, (kind, key): &Key) -> bool {
        let is_kind = self.kind.as_ref().is_none_or(|wanted| wanted == kind);
        is_kind && self.pattern.as_ref().is_none_or(|pattern| is_match(pattern, key))
    }
}

/// A text in a reply.
fn bulk(text: &[u8]) -> Vec<u8> {
    [format!("${}\r\n", text.len()).as_bytes(), text, b"\r\n"].concat()
}

/// A reply to `SCAN` with a cursor, and an array of keys.
fn scanned(cursor: u64, keys: &[u8]) -> Vec<u8> {
    [b"*2\r\n", bulk(&decimal(cursor)).as_slice(), keys].concat()
}

impl Session {
    /// Answers a request about all keys of database 0.
    pub(crate) fn ask_all(&mut self, name: &str, words: &[Vec<u8>]) -> io::Result<Vec<u8>> {
        let front = self.front().clone();
        front.while_nothing_moves(|| match (name, words.len()) {
            ("DBSIZE", 1) => {
                let sum: u64 = self.kernel().sizes()?.iter().sum();
                let reply = self.server().ask(&encode(words))?;
                Ok(format!(":{}\r\n", sum + number(&reply)?).into_bytes())
            }
            ("KEYS", 2) => self.matching(words),
            ("RANDOMKEY", 1) => self.random_key(words),
            ("SCAN", 2..) => self.scan(words),
            // It says what is wrong.
            _ => self.server().ask(&encode(words)),
        })
    }

    fn matching(&mut self, words: &[Vec<u8>]) -> io::Result<Vec<u8>> {
        let (mut keys, mut place) = (Vec::new(), 0);
        while place < SHARDS * BUCKETS {
            place = self.kernel().list(place, &mut keys)?;
            keys.retain(|(_, key)| is_match(&words[1], key));
        }
        let reply = self.server().ask(&encode(words))?;
        // Theirs are behind the kernel's.
        let others = reply.strip_prefix(b"*").and_then(split_line);
        let Some((count, others)) = others.and_then(|(count, rest)| Some((parsed::<usize>(count)?, rest))) else {
            return Ok(reply);
        };
        let mut all = format!("*{}\r\n", keys.len() + count).into_bytes();
        keys.iter().for_each(|(_, key)| all.extend(bulk(key)));
        all.extend(others);
        Ok(all)
    }

    /// Of the kernel's, one in the first buckets that have some, from a random one of a shard on; each can be it.
    fn random_key(&mut self, words: &[Vec<u8>]) -> io::Result<Vec<u8>> {
        let sizes = self.kernel().sizes()?;
        let here: u64 = sizes.iter().sum();
        let there = number(&self.server().ask(&encode(&["DBSIZE"]))?)?;
        if here == 0 || random(here + there) >= here {
            return self.server().ask(&encode(words));
        }
        let mut left = random(here);
        let shard =
            sizes.iter().take_while(|size| left.checked_sub(**size).inspect(|less| left = *less).is_some()).count();
        let begin = shard as u64 * BUCKETS + random(BUCKETS);
        let (mut keys, mut place) = (Vec::new(), begin);
        while keys.is_empty() && place < begin + SHARDS * BUCKETS {
            let at = place % (SHARDS * BUCKETS);
            place += self.kernel().list(at, &mut keys)? - at;
        }
        // The time of all of them may be over.
        if keys.is_empty() {
            return self.server().ask(&encode(words));
        }
        let key = keys.swap_remove(usize::try_from(random(keys.len() as u64)).unwrap_or(0)).1;
        Ok(bulk(&key))
    }

    /// First the kernel's keys, as none comes from redis-server to the kernel: one that moves on is listed there.
    fn scan(&mut self, words: &[Vec<u8>]) -> io::Result<Vec<u8>> {
        let Some(scan) = Scan::of(words) else { return self.refused_scan(words) };
        if scan.cursor & SERVER != 0 {
            return self.scan_server(words, scan.cursor & !SERVER);
        }
        let (mut keys, mut place) = (Vec::new(), scan.cursor & !KERNEL);
        while place < SHARDS * BUCKETS && (keys.len() as u64) < scan.count {
            place = self.kernel().list(place, &mut keys)?;
        }
        if place >= SHARDS * BUCKETS && keys.is_empty() {
            return self.scan_server(words, 0);
        }
        let cursor = if place < SHARDS * BUCKETS { KERNEL | place } else { SERVER };
        let keys: Vec<Vec<u8>> = keys.into_iter().filter(|key| scan.takes(key)).map(|(_, key)| key).collect();
        Ok(scanned(cursor, &encode(&keys)))
    }

    fn scan_server(&mut self, words: &[Vec<u8>], cursor: u64) -> io::Result<Vec<u8>> {
        let mut words = words.to_vec();
        words[1] = decimal(cursor);
        let reply = self.server().ask(&encode(&words))?;
        // A cursor, and keys.
        let next = reply.strip_prefix(b"*2\r\n").and_then(|rest| {
            let (length, text) = split_line(rest.strip_prefix(b"$")?)?;
            let length = parsed::<usize>(length)?;
            Some((parsed::<u64>(text.get(..length)?)?, text.get(length + 2..)?))
        });
        let Some((next, keys)) = next else { return Ok(reply) };
        Ok(scanned(if next == 0 { 0 } else { SERVER | next }, keys))
    }

    /// redis-server says what is wrong with a request.
    fn refused_scan(&mut self, words: &[Vec<u8>]) -> io::Result<Vec<u8>> {
        let reply = self.server().ask(&encode(words))?;
        if reply.starts_with(b"-") {
            return Ok(reply);
        }
        Ok(b"-ERR xk: this SCAN is not served: its options are not known here\r\n".to_vec())
    }
}

/// A line, and what follows it.
fn split_line(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = bytes.windows(2).position(|pair| pair == b"\r\n")?;
    Some((&bytes[..end], &bytes[end + 2..]))
}

impl Front {
    /// Drops keys whose time is over, until it is told to stop.
    pub(crate) fn expire(self: &Arc<Self>, stop: &AtomicBool) {
        let mut kernel = None;
        while !stop.load(Ordering::Relaxed) {
            thread::sleep(EXPIRY);
            let done = match &mut kernel {
                Some(own) => Peer::expire(own),
                None => self.kernel(Asks::Requests).and_then(|own| kernel.insert(own).expire()),
            };
            // A run that was ended has closed the connection. Keys whose time is over are not seen in any case.
            if done.is_err() {
                kernel.take().inspect(|own| self.forget(own.port()));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<Vec<u8>> {
        text.split(' ').map(Vec::from).collect()
    }

    #[test]
    fn options_of_scan() {
        let scan = Scan::of(&words("SCAN 0 match a* COUNT 7 type ZSET")).unwrap();
        assert_eq!((scan.cursor, scan.count), (0, 7));
        assert!(scan.takes(&("zset", b"ab".to_vec())));
        assert!(!scan.takes(&("zset", b"b".to_vec())));
        assert!(!scan.takes(&("hash", b"ab".to_vec())));
        for wrong in ["SCAN x", "SCAN 0 COUNT 0", "SCAN 0 COUNT", "SCAN 0 SOME 1", "SCAN -1"] {
            assert_eq!(Scan::of(&words(wrong)), None, "{wrong}");
        }
    }

    #[test]
    fn a_reply_to_scan() {
        assert_eq!(scanned(5, &encode(&["ab"])), b"*2\r\n$1\r\n5\r\n*1\r\n$2\r\nab\r\n");
    }
}
