//! Requests of memcached's binary protocol: their keys become memcached's, which answers them.

use std::io;

use crate::text::KEY;
use crate::Front;

/// The first byte of each request.
const REQUEST: u8 = 0x80;
const HEADER: usize = 24;
/// `flush` and `flushq`.
const FLUSHES: [u8; 2] = [0x08, 0x18];
/// What has keys: those of `stat` and of authentication are none.
const NAMES: [u8; 4] = [0x10, 0x20, 0x21, 0x22];

/// Whether these are the first bytes of a connection in that protocol.
pub(crate) fn is(bytes: &[u8]) -> bool {
    bytes.first() == Some(&REQUEST)
}

/// Makes the keys memcached's of the requests whose keys are there; returns where the last one of these ends, or how much is
/// there of it. What is no request is memcached's to refuse.
pub(crate) fn claim(front: &Front, bytes: &[u8]) -> io::Result<usize> {
    let mut at = 0;
    while let Some(header) = bytes.get(at..at + HEADER) {
        let number = |from: usize, length: usize| {
            header[from..from + length].iter().fold(0_usize, |number, byte| number << 8 | usize::from(*byte))
        };
        if !is(header) {
            return Ok(bytes.len());
        }
        let (operation, key_length, extras, body) = (header[1], number(2, 2), usize::from(header[4]), number(8, 4));
        let Some(whole) = bytes.get(at + HEADER..at + HEADER + body) else { break };
        let key = whole.get(extras..extras + key_length).unwrap_or_default();
        if FLUSHES.contains(&operation) {
            // Also if memcached refuses it. Its extras are a time.
            let seconds =
                whole.get(..extras).unwrap_or_default().iter().fold(0, |all, byte| all << 8 | usize::from(*byte));
            front.flush_kernel(seconds)?;
        } else if !NAMES.contains(&operation) && key.len() <= KEY {
            if let Some(why) = front.claim(key)? {
                return Err(io::Error::other(String::from_utf8_lossy(&why).into_owned()));
            }
        }
        at += HEADER + body;
    }
    Ok(at)
}
