//! A connection of our own to the kernel or to redis-server.

use std::io::{self, Read as _, Write as _};
use std::net::TcpStream;

use crate::resp::reply_end;

/// A connection to a server.
pub struct Peer {
    stream: TcpStream,
    /// What was read, and where the next reply begins in it.
    read: Vec<u8>,
    at: usize,
}

impl Peer {
    pub(crate) fn new(stream: TcpStream) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        Ok(Self { stream, read: Vec::new(), at: 0 })
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

    /// Sends requests. Their replies are read one by one.
    pub(crate) fn send(&mut self, requests: &[u8]) -> io::Result<()> {
        self.stream.write_all(requests)
    }

    pub(crate) fn reply(&mut self) -> io::Result<Vec<u8>> {
        let mut more = [0; 16384];
        loop {
            if let Some(end) = reply_end(&self.read, self.at) {
                let reply = self.read[self.at..end].to_vec();
                self.at = end;
                return Ok(reply);
            }
            self.read.drain(..std::mem::take(&mut self.at));
            match self.stream.read(&mut more)? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                length => self.read.extend(&more[..length]),
            }
        }
    }
}
