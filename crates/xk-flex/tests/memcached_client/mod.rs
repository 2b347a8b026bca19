//! A client of memcached over UDP.

#![allow(clippy::unwrap_used)] // a test

use std::net::{SocketAddr, UdpSocket};

use xk_testing::guest::PATIENCE;

/// A number that no request has.
const MARK: u16 = u16::MAX;
/// The longest text of a datagram.
pub const MOST: usize = 1464;

/// Asks a server.
pub struct Client(pub UdpSocket, SocketAddr);

impl Client {
    /// Of a socket, for a server.
    pub fn of(socket: UdpSocket, address: &str, port: u16) -> Self {
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        Self(socket, format!("{address}:{port}").parse().unwrap())
    }

    /// A veth gives a packet no more room than it has. So a request is as long as its reply may be: what has no end
    /// of line is no command.
    pub fn send(&self, number: u16, text: &[u8]) {
        self.send_part(number, 1, text);
    }

    /// The first one of so many datagrams.
    pub fn send_part(&self, number: u16, total: u16, text: &[u8]) {
        let mut bytes = [number, 0, total, 0].map(u16::to_be_bytes).concat();
        bytes.extend(text);
        bytes.resize(bytes.len().max(8 + MOST), b' ');
        self.0.send_to(&bytes, self.1).unwrap();
    }

    /// A datagram, and the number of its request; nothing if none comes.
    fn datagram(&self) -> Option<(u16, Vec<u8>)> {
        let mut bytes = [0; 2048];
        let length = self.0.recv(&mut bytes).ok()?;
        Some((u16::from_be_bytes([bytes[0], bytes[1]]), bytes[2..length].to_vec()))
    }

    /// The reply of a request; nothing if none comes. It is one datagram.
    pub fn receive(&self, number: u16) -> Option<Vec<u8>> {
        let (found, bytes) = self.datagram()?;
        let (frame, text) = bytes.split_at(6);
        assert_eq!((found, frame), (number, &[0, 0, 0, 1, 0, 0][..]), "{}", text.escape_ascii());
        Some(text.to_vec())
    }

    /// All that is answered to a request, also nothing. memcached sends each item in a datagram of its own, as if it
    /// was the only one. So the end is what is answered to the next request.
    pub fn all(&self, number: u16, text: &[u8]) -> Vec<u8> {
        self.send(number, text);
        self.send(MARK, b"version\r\n");
        let (mut said, mut datagrams) = (Vec::new(), 0);
        loop {
            let (found, bytes) = self.datagram().unwrap_or_else(|| panic!("no reply: {}", text.escape_ascii()));
            if found == MARK {
                assert!(datagrams < 2 || self.1.ip().is_loopback(), "{}", text.escape_ascii());
                return said;
            }
            assert_eq!(found, number, "{}", bytes.escape_ascii());
            said.extend(&bytes[6..]);
            datagrams += 1;
        }
    }

    /// The reply as text; there is one.
    pub fn ask(&self, number: u16, text: &[u8]) -> String {
        self.send(number, text);
        let reply = self.receive(number).unwrap_or_else(|| panic!("no reply: {}", text.escape_ascii()));
        reply.escape_ascii().to_string()
    }
}
