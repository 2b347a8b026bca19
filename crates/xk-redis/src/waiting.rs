//! Requests that wait in redis-server until a key changes (`BLPOP`): they end when their client goes. Otherwise they would
//! take an element that nobody gets.

use std::io;
use std::net::{Shutdown, TcpStream};
use std::os::fd::AsRawFd as _;
use std::sync::Mutex;

use xk_front::held;

use crate::peer::Peer;

/// What a client waits for.
#[derive(Default)]
pub struct Waiting {
    /// The connection to redis-server on which it waits.
    server: Mutex<Option<TcpStream>>,
}

/// Whether the other end sends nothing any more. What has arrived before may not have been read yet.
fn is_closed(client: &TcpStream) -> bool {
    let events = libc::POLLRDHUP;
    let mut asked = libc::pollfd { fd: client.as_raw_fd(), events, revents: 0 };
    // SAFETY: it is one `pollfd`, and the socket is open as long as it is borrowed. It does not wait.
    let found = unsafe { libc::poll(&raw mut asked, 1, 0) };
    found > 0 && asked.revents & (events | libc::POLLHUP | libc::POLLERR) != 0
}

impl Waiting {
    /// Asks redis-server for what may wait.
    ///
    /// # Errors
    /// One of the servers does not answer; the client has gone.
    pub(crate) fn ask(&self, client: &TcpStream, server: &mut Peer, request: &[u8]) -> io::Result<Vec<u8>> {
        *held(&self.server) = Some(server.stream().try_clone()?);
        // If it went before, nobody will say so any more.
        self.look_after(client, false);
        let reply = server.ask(request);
        *held(&self.server) = None;
        reply
    }

    /// The client's connection has changed, or is closed: then it waits for nothing.
    pub(crate) fn look_after(&self, client: &TcpStream, is_over: bool) {
        if let Some(server) = &*held(&self.server) {
            if is_over || is_closed(client) {
                // It has gone, too, if this fails.
                let _ = server.shutdown(Shutdown::Both);
            }
        }
    }
}
