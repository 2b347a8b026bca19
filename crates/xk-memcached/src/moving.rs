//! Keys that become memcached's, with their values and their times, and requests that concern all keys.
//!
//! The kernel puts an item without a value into the place of the key's, and passes on what is asked of the key from then on,
//! except `set`, which makes the key the kernel's again. That item may be dropped as any other one: then the kernel has
//! nothing with the key, as a cache may, and what memcached has is not seen until the key moves again, when it is replaced
//! or deleted here. One key moves at a time.

use std::io;

use xk_front::held;
use xk_front::record::Asks;

use crate::peer::Peer;
use crate::Front;

/// What moves keys.
pub(crate) struct Mover {
    kernel: Peer,
    server: Peer,
}

/// What the kernel had with a key.
enum Had {
    /// It is memcached's already.
    Foreign,
    Nothing,
    /// `flags exptime length`, and the value.
    Item(Vec<u8>, Vec<u8>),
    /// The kernel keeps it, and says why.
    Kept(Vec<u8>),
}

fn request(parts: &[&[u8]]) -> Vec<u8> {
    [parts.join(&b' ').as_slice(), b"\r\n"].concat()
}

/// `set` with the value behind its line.
fn set(key: &[u8], numbers: &[u8], value: &[u8]) -> Vec<u8> {
    [&request(&[b"set", key, numbers]), value, b"\r\n"].concat()
}

impl Mover {
    fn new(front: &Front) -> io::Result<Self> {
        Ok(Self { kernel: front.kernel(Asks::Moves)?, server: front.server()? })
    }

    fn claim(&mut self, key: &[u8]) -> io::Result<Had> {
        let reply = self.kernel.ask(&request(&[b"xkclaim", key]))?;
        Ok(match reply.as_slice() {
            b"XKPASS\r\n" => Had::Foreign,
            b"XKNONE\r\n" => Had::Nothing,
            _ => match reply.strip_prefix(b"XKITEM ".as_slice()).and_then(|rest| {
                let line = rest.windows(2).position(|pair| pair == b"\r\n")?;
                Some((rest[..line].to_vec(), rest.get(line + 2..rest.len() - 2)?.to_vec()))
            }) {
                Some((numbers, value)) => Had::Item(numbers, value),
                None => Had::Kept(reply),
            },
        })
    }

    /// Gives memcached what the kernel had. If memcached does not take it, it is dropped, as a cache may do.
    fn give(&mut self, key: &[u8], had: &Had) -> io::Result<()> {
        if let Had::Item(numbers, value) = had {
            if self.server.ask(&set(key, numbers, value))? == b"STORED\r\n" {
                return Ok(());
            }
        }
        self.server.ask(&request(&[b"delete", key])).map(drop)
    }

    /// The kernel gets back what it had. What memcached has meanwhile is not seen any more.
    fn take_back(front: &Front, key: &[u8], had: &Had) -> io::Result<()> {
        let mut kernel = front.kernel(Asks::Moves)?;
        let request = match had {
            Had::Item(numbers, value) => set(key, numbers, value),
            // An item whose time is over.
            _ => set(key, b"0 -1 0", b""),
        };
        let reply = kernel.ask(&request);
        front.port.forget(kernel.port());
        reply.map(drop)
    }
}

impl Front {
    /// Does something with a mover, while nobody else does. One that has failed is not used again.
    fn with_mover<T>(&self, work: impl FnOnce(&mut Mover) -> io::Result<T>) -> io::Result<T> {
        let mut mover = held(&self.mover);
        let own = match &mut *mover {
            Some(own) => own,
            None => mover.insert(Mover::new(self)?),
        };
        let done = work(own);
        if done.is_err() {
            self.port.forget(own.kernel.port());
            *mover = None;
        }
        done
    }

    /// Makes a key memcached's. Returns what the client is told if the kernel keeps it.
    ///
    /// # Errors
    /// The kernel or memcached does not answer.
    pub(crate) fn claim(&self, key: &[u8]) -> io::Result<Option<Vec<u8>>> {
        // No key in the kernel has these.
        if key.is_empty() || key.iter().any(|byte| [b' ', b'\n', 0].contains(byte)) {
            return Ok(None);
        }
        self.with_mover(|own| match own.claim(key)? {
            Had::Foreign => Ok(None),
            Had::Kept(why) => Ok(Some(why)),
            had => match own.give(key, &had) {
                Ok(()) => Ok(None),
                Err(error) => {
                    Mover::take_back(self, key, &had)?;
                    Err(error)
                }
            },
        })
    }

    /// Flushes the kernel alone: memcached is asked by the client. In so many seconds, or now.
    pub(crate) fn flush_kernel(&self, seconds: usize) -> io::Result<()> {
        self.with_mover(|own| own.kernel.ask(format!("flush_all {seconds}\r\n").as_bytes()).map(drop))
    }

    /// `flush_all`, as memcached understands it, in both. Returns memcached's reply.
    pub(crate) fn flush(&self, asked: &[u8]) -> io::Result<Vec<u8>> {
        self.with_mover(|own| {
            let reply = own.server.ask(asked)?;
            if reply.starts_with(b"OK") {
                own.kernel.ask(asked)?;
            }
            Ok(reply)
        })
    }
}
