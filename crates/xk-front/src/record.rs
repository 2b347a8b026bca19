//! What the kernel notes of a connection: `struct sv_connection` of `bpf/servers/connections.h`.

use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::Ordering;

use xk_flex::Heap;

/// Offsets in `struct sv_connection`.
const PASSED: u64 = 16;
const DONE: u64 = 24;
const ASKS: u64 = 32;
/// `AF_INET`, `AF_INET6`
const IPV4: u32 = 2;
const IPV6: u32 = 10;

/// A peer as `struct sv_peer`.
pub(crate) fn bytes(peer: SocketAddr) -> Vec<u8> {
    let (mut ip, family) = ([0; 16], if peer.is_ipv4() { IPV4 } else { IPV6 });
    match peer.ip() {
        IpAddr::V4(address) => ip[..4].copy_from_slice(&address.octets()),
        IpAddr::V6(address) => ip = address.octets(),
    }
    // A port is in the upper half of a word, in network byte order.
    let port = u32::from(peer.port().to_be()) << 16;
    [ip.as_slice(), &port.to_ne_bytes(), &family.to_ne_bytes()].concat()
}

/// The peer that `struct sv_peer` names.
pub(crate) fn peer(bytes: &[u8]) -> Option<SocketAddr> {
    let ip: [u8; 16] = bytes.get(..16)?.try_into().ok()?;
    let word = |at: usize| Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
    let port = u16::from_be((word(16)? >> 16) as u16);
    let address = if word(20)? == IPV4 { IpAddr::from([ip[0], ip[1], ip[2], ip[3]]) } else { IpAddr::from(ip) };
    Some(SocketAddr::new(address, port))
}

/// The record of the connection that an event says is closed.
pub(crate) fn closed(bytes: &[u8]) -> Option<u64> {
    let record = u64::from_ne_bytes(bytes.get(24..32)?.try_into().ok()?);
    (record != 0).then_some(record)
}

/// What a connection of our own is for.
#[derive(Clone, Copy, Debug)]
pub enum Asks {
    /// To ask what clients have asked.
    Requests = 1,
    /// Also to move keys.
    Moves = 2,
}

/// Where it is in the heap.
#[derive(Debug)]
pub struct Record(u64);

impl Record {
    pub(crate) fn at(address: u64) -> Self {
        Self(address)
    }

    /// How many bytes were passed on.
    pub(crate) fn passed(&self, heap: &Heap<'_>) -> u64 {
        heap.word(self.0 + PASSED).map_or(0, |word| word.load(Ordering::Acquire))
    }

    /// So many of the bytes that were passed on are answered.
    pub fn done(&self, heap: &Heap<'_>, bytes: u64) {
        if let Some(word) = heap.word(self.0 + DONE) {
            word.store(bytes, Ordering::Release);
        }
    }

    pub(crate) fn asks(&self, heap: &Heap<'_>, asks: Asks) {
        if let Some(word) = heap.word(self.0 + ASKS) {
            word.store(asks as u64, Ordering::Release);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peers_are_named_as_the_kernel_does() {
        for text in ["10.1.2.3:4567", "[fe80::1:2]:6379"] {
            let address: SocketAddr = text.parse().unwrap();
            assert_eq!(peer(&bytes(address)), Some(address));
        }
        let port = bytes("1.2.3.4:258".parse().unwrap());
        assert_eq!(port[16..20], [0, 0, 1, 2]);
        assert_eq!(peer(&port[..20]), None);
    }
}
