//! A connection of our own to the kernel or to memcached. Behind what is asked, `mn` is: its answer is the end of the reply,
//! also where there is no other one (`noreply`, quiet meta commands).

use std::io::{self, Read as _, Write as _};
use std::net::TcpStream;

use crate::text::reply_end;

const MARK: &[u8] = b"MN\r\n";

pub(crate) struct Peer {
    stream: TcpStream,
}

impl Peer {
    pub(crate) fn new(stream: TcpStream) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        Ok(Self { stream })
    }

    /// Our own port of the connection.
    pub(crate) fn port(&self) -> u16 {
        self.stream.local_addr().map_or(0, |address| address.port())
    }

    /// To send requests whose replies are read elsewhere.
    pub(crate) fn stream(&self) -> &TcpStream {
        &self.stream
    }

    /// Asks, and returns all that is answered.
    pub(crate) fn ask(&mut self, request: &[u8]) -> io::Result<Vec<u8>> {
        self.stream.write_all(&[request, b"mn\r\n"].concat())?;
        let (mut reply, mut at) = (Vec::new(), 0);
        let mut more = [0; 16384];
        loop {
            while let Some(end) = reply_end(&reply, at) {
                if &reply[at..end] == MARK {
                    reply.truncate(at);
                    return Ok(reply);
                }
                at = end;
            }
            match self.stream.read(&mut more)? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                length => reply.extend(&more[..length]),
            }
        }
    }
}
