//! What the kernel notes of a connection: `struct rd_connection` of `bpf/servers/redis/work.h`.

use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::Ordering;

use libbpf_rs::{MapCore as _, MapFlags};

use crate::Front;

/// Offsets in `struct rd_connection`.
const PASSED: u64 = 16;
const DONE: u64 = 24;
const ASKS: u64 = 32;
/// `AF_INET`, `AF_INET6`
const IPV4: u32 = 2;
const IPV6: u32 = 10;

/// A peer as `struct rd_peer`.
fn bytes(peer: SocketAddr) -> Vec<u8> {
    let (mut ip, family) = ([0; 16], if peer.is_ipv4() { IPV4 } else { IPV6 });
    match peer.ip() {
        IpAddr::V4(address) => ip[..4].copy_from_slice(&address.octets()),
        IpAddr::V6(address) => ip = address.octets(),
    }
    // A port is in the upper half of a word, in network byte order.
    let port = u32::from(peer.port().to_be()) << 16;
    [ip.as_slice(), &port.to_ne_bytes(), &family.to_ne_bytes()].concat()
}

/// The peer that `struct rd_peer` names.
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

/// Where it is in the heap.
pub(crate) struct Record(u64);

impl Record {
    /// That of the connection of a peer; nothing if the kernel does not have it.
    pub(crate) fn of(front: &Front, peer: SocketAddr) -> Option<Self> {
        let value = front.connections.lookup(&bytes(peer), MapFlags::ANY).ok()??;
        Some(Self(u64::from_ne_bytes(value.try_into().ok()?)))
    }

    /// How many bytes were passed on.
    pub(crate) fn passed(&self, front: &Front) -> u64 {
        front.heap.word(self.0 + PASSED).map_or(0, |word| word.load(Ordering::Acquire))
    }

    /// So many bytes that were passed on are answered.
    pub(crate) fn done(&self, front: &Front, bytes: u64) {
        if let Some(word) = front.heap.word(self.0 + DONE) {
            word.store(bytes, Ordering::Release);
        }
    }

    /// The kernel passes nothing on, and says of what it does not answer that it does not. Such a connection may move keys.
    pub(crate) fn asks(&self, front: &Front, moves: bool) {
        if let Some(word) = front.heap.word(self.0 + ASKS) {
            // `RD_MOVES`
            word.store(if moves { 2 } else { 1 }, Ordering::Release);
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
