//! A client of memcached over UDP, and what it asks.

use std::fs::File;
use std::net::UdpSocket;
use std::os::fd::AsFd;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{ensure, Context, Result};
use rustix::thread::{move_into_link_name_space, LinkNameSpaceType};

use crate::draw::Random;

/// Keys of 24 bytes, and bytes of a value.
const KEYS: u64 = 1000;
const VALUE: usize = 64;
/// The header of a datagram: a number, which of how many, and 0.
const FRAME: usize = 8;
/// A veth gives a packet no more room than it has. So a request is as long as its reply may be: what has no end of line
/// is no command.
const LENGTH: usize = FRAME + 128;

/// Requests, as they are sent.
pub struct Requests {
    preparing: Vec<Vec<u8>>,
    all: Vec<Vec<u8>>,
}

fn set(key: u64, random: &mut Random) -> String {
    let value: String = (0..VALUE).map(|_| char::from(b'a' + random.below(26) as u8)).collect();
    format!("set {} 0 0 {VALUE}\r\n{value}\r\n", name(key))
}

fn name(key: u64) -> String {
    format!("key-of-the-benchmark-{key:03}")
}

fn datagram(number: usize, text: &str) -> Vec<u8> {
    let mut bytes = [number as u16, 0, 1, 0].map(u16::to_be_bytes).concat();
    bytes.extend(text.as_bytes());
    bytes.resize(bytes.len().max(LENGTH), b' ');
    bytes
}

impl Requests {
    /// So many of a hundred are gets, of keys that [`Requests::preparing`] sets, but for each tenth key.
    pub fn new(gets: u64, number: usize) -> Self {
        let mut random = Random::of("memcached", gets);
        let preparing = (0..KEYS).filter(|key| key % 10 != 0);
        let preparing = preparing.enumerate().map(|(at, key)| datagram(at, &set(key, &mut random))).collect();
        let request = |at| {
            // The keys that are not there are only asked for.
            let key = random.below(KEYS);
            let is_get = key % 10 == 0 || random.below(100) < gets;
            let text = if is_get { format!("get {}\r\n", name(key)) } else { set(key, &mut random) };
            datagram(at, &text)
        };
        Self { preparing, all: (0..number).map(request).collect() }
    }

    /// Sets of keys.
    pub fn preparing(&self) -> &[Vec<u8>] {
        &self.preparing
    }

    /// What is measured.
    pub fn all(&self) -> &[Vec<u8>] {
        &self.all
    }

    /// The text of a request.
    pub fn text(&self, number: usize) -> &[u8] {
        self.all[number][FRAME..].trim_ascii_end()
    }
}

/// A socket in a network of its own.
pub struct Client(UdpSocket);

impl Client {
    /// In the network of this name, at this address, for this server.
    pub fn new(space: &str, address: &str, server: &str) -> Result<Self> {
        let path = format!("/run/netns/{space}");
        let there = || -> Result<UdpSocket> {
            let space = File::open(&path).with_context(|| path.clone())?;
            move_into_link_name_space(space.as_fd(), Some(LinkNameSpaceType::Network))?;
            let socket = UdpSocket::bind((address, 0))?;
            socket.connect(server)?;
            Ok(socket)
        };
        // The thread that moves does nothing else.
        let socket = thread::scope(|scope| scope.spawn(there).join());
        let socket = socket.map_err(|_| anyhow::anyhow!("the thread of the client panicked"))??;
        socket.set_read_timeout(Some(Duration::from_secs(2)))?;
        Ok(Self(socket))
    }

    /// Waits until requests are answered.
    pub fn wait(&self, patience: Duration) -> Result<()> {
        let (start, request) = (Instant::now(), datagram(0, "version\r\n"));
        let mut reply = [0; 2 * LENGTH];
        while start.elapsed() < patience {
            // Until the server listens, the send or the receive fails.
            if self.0.send(&request).is_ok() && self.0.recv(&mut reply).is_ok() {
                // No reply of an earlier attempt may be taken for another one.
                while self.0.set_nonblocking(true).is_ok() && self.0.recv(&mut reply).is_ok() {}
                return Ok(self.0.set_nonblocking(false)?);
            }
            thread::sleep(Duration::from_millis(100));
        }
        anyhow::bail!("nothing answers")
    }

    /// Sends the requests, so many at a time, and receives their replies. Returns the time, and the texts of the replies.
    pub fn round(&self, requests: &[Vec<u8>], burst: usize) -> Result<(Duration, Vec<Vec<u8>>)> {
        let mut replies = Vec::with_capacity(requests.len());
        let mut reply = [0; 2 * LENGTH];
        let start = Instant::now();
        for some in requests.chunks(burst) {
            for request in some {
                self.0.send(request)?;
            }
            for request in some {
                let length = self.0.recv(&mut reply).context("no reply")?;
                ensure!(length >= FRAME && reply[..2] == request[..2], "the reply of another request");
                replies.push(reply[FRAME..length].to_vec());
            }
        }
        Ok((start.elapsed(), replies))
    }
}
