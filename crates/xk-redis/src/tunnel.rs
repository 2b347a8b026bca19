//! A client whose replies come at any time, or not at all: after `SUBSCRIBE`, `MONITOR`, `CLIENT REPLY`, `HELLO 3` and the
//! like. All that it asks goes to redis-server from then on, which gets the keys that are named, and all that redis-server
//! says goes to the client.

use std::io::{self, Write as _};
use std::net::TcpStream;

use xk_front::read;

use crate::resp::{encode, request, Parsed};
use crate::session::Session;

/// A request that redis-server refuses, in order, with these words.
fn wrong(why: &str) -> Vec<u8> {
    encode(&[format!("xk: {}", why.trim_end())])
}

impl Session {
    /// Passes on in both directions, from these bytes of the client on, until one of both ends.
    pub(crate) fn tunnel(&mut self, client: &TcpStream, first: Vec<u8>) -> io::Result<()> {
        let server = self.server().stream().try_clone()?;
        xk_front::relay(client, &server, || self.pass(client, first))
    }

    /// Passes on what the client asks.
    fn pass(&mut self, client: &TcpStream, mut pending: Vec<u8>) -> io::Result<()> {
        let mut more = [0; 16384];
        let mut are_requests = true;
        loop {
            while are_requests && !pending.is_empty() {
                let (length, words) = match request(&pending) {
                    Parsed::More => break,
                    Parsed::Whole(length, words) => (length, words),
                    // The server says what is wrong, and closes its connection.
                    Parsed::Bad => {
                        are_requests = false;
                        break;
                    }
                };
                let bytes = match words.first() {
                    Some(name) => self.passed(&String::from_utf8_lossy(name).to_uppercase(), &words)?,
                    None => Vec::new(),
                };
                self.server().stream().write_all(&bytes)?;
                pending.drain(..length);
            }
            if !are_requests {
                self.server().stream().write_all(&std::mem::take(&mut pending))?;
            }
            match read(client, &mut more)? {
                0 => return Ok(()),
                length => pending.extend(&more[..length]),
            }
        }
    }

    /// What redis-server is asked in the place of a request.
    fn passed(&mut self, name: &str, words: &[Vec<u8>]) -> io::Result<Vec<u8>> {
        if let Some(why) = self.refusal(name, words) {
            return Ok(wrong(&why));
        }
        match name {
            // Here nobody reads whether it was done.
            "SELECT" | "RESET" => return Ok(wrong(&format!("{name} is not served on such a connection"))),
            _ if self.asks_all(name) => return Ok(wrong(&format!("{name} is not served on such a connection"))),
            "FLUSHALL" | "FLUSHDB" => self.flush(name)?,
            // If redis-server refuses it, keys are handed over that would not have to be.
            "MULTI" => self.begins(),
            "EXEC" | "DISCARD" => self.ends(),
            _ => {
                if let Some(refused) = self.claim(name, words)? {
                    return Ok(wrong(&String::from_utf8_lossy(&refused)));
                }
            }
        }
        Ok(encode(words))
    }
}
