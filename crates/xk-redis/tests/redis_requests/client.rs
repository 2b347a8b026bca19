//! A client of Redis' protocol: sends bytes, and reads whole replies.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use xk_testing::guest::PATIENCE;

/// A connection.
pub struct Client {
    stream: TcpStream,
    read: Vec<u8>,
}

/// Where the reply that begins here ends, if it is whole.
fn end(bytes: &[u8], at: usize) -> Option<usize> {
    let line = at + bytes[at..].windows(2).position(|pair| pair == b"\r\n")?;
    let number = || std::str::from_utf8(&bytes[at + 1..line]).unwrap().parse::<i64>().unwrap();
    match bytes[at] {
        b'$' => {
            let after = line + 2 + usize::try_from(number()).map_or(0, |length| length + 2);
            (after <= bytes.len()).then_some(after)
        }
        b'*' => (0..number().max(0)).try_fold(line + 2, |at, _| end(bytes, at).filter(|_| at < bytes.len())),
        b'%' => (0..2 * number()).try_fold(line + 2, |at, _| end(bytes, at).filter(|_| at < bytes.len())),
        b'+' | b'-' | b':' | b'_' | b',' => Some(line + 2),
        other => panic!("a reply begins with {other}: {:?}", String::from_utf8_lossy(&bytes[at..])),
    }
}

impl Client {
    pub fn new(port: u16) -> Self {
        let stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(PATIENCE.as_secs()))).unwrap();
        stream.set_nodelay(true).unwrap();
        Self { stream, read: Vec::new() }
    }

    pub fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).unwrap();
    }

    /// The next reply.
    pub fn reply(&mut self) -> Vec<u8> {
        loop {
            if let Some(end) = (!self.read.is_empty()).then(|| end(&self.read, 0)).flatten() {
                return self.read.drain(..end).collect();
            }
            let mut more = [0; 4096];
            let length = self.stream.read(&mut more).unwrap();
            assert!(length > 0, "closed after {:?}", String::from_utf8_lossy(&self.read));
            self.read.extend(&more[..length]);
        }
    }

    /// Whether the server has closed the connection. What it has said before is dropped.
    pub fn is_closed(&mut self) -> bool {
        !matches!(self.stream.read(&mut [0; 4096]), Ok(1..))
    }

    pub fn ask(&mut self, words: &[&[u8]]) -> Vec<u8> {
        self.send(&request(words));
        self.reply()
    }
}

/// A request of these words.
pub fn request(words: &[&[u8]]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        bytes.extend(format!("${}\r\n", word.len()).as_bytes());
        bytes.extend(*word);
        bytes.extend(b"\r\n");
    }
    bytes
}
