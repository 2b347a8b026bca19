//! The owner of a port at which an extension answers requests in the kernel (`bpf/servers/connections.h`). What the kernel
//! does not answer, it passes on: to a session of the client, in order.
//!
//! In: an extension that is loaded, its heap, and a protocol, which says what a session does with what is passed on. Out:
//! replies, written by sessions.

pub mod command;
pub mod port;
pub mod record;

pub use port::{Error, Port};
pub use record::Record;

use std::io::{self, Read as _, Write as _};
use std::net::{Shutdown, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Between two looks at what has not come yet.
pub const PAUSE: Duration = Duration::from_millis(1);

/// What sessions of one protocol share.
pub trait Protocol: Sized + Send + Sync + 'static {
    /// A client of whom something was passed on.
    type Session: Session<Self>;
    /// What is known of a client, also while its session is at work.
    type Beside: Default + Send + Sync;

    /// The port that the kernel answers.
    fn port(&self) -> &Port<Self>;

    /// The connection of a client has changed; or it is over.
    fn changed(&self, _client: &TcpStream, _beside: &Self::Beside, _is_over: bool) {}
}

/// Answers what the kernel has passed on of a client.
pub trait Session<P: Protocol>: Sized + Send {
    /// Something was passed on for the first time.
    ///
    /// # Errors
    /// A server does not answer: the connection of the client ends.
    fn new(client: &TcpStream, beside: &Arc<P::Beside>, front: &Arc<P>) -> io::Result<Self>;

    /// More bytes were passed on, which follow those before. The socket of the client does not block.
    ///
    /// # Errors
    /// The client, or a server, has gone: the connection of the client ends.
    fn arrives(&mut self, client: &TcpStream, bytes: &[u8]) -> io::Result<Flow>;
}

/// How it goes on with a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    /// When the kernel passes more on.
    On,
    /// Not at all.
    Ended,
}

/// Locks what no panic leaves in disorder.
pub fn held<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Writes all bytes to a socket that does not block.
///
/// # Errors
/// Those of the socket.
pub fn write(mut to: &TcpStream, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match to.write(bytes) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(length) => bytes = &bytes[length..],
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => std::thread::sleep(PAUSE),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Reads from a socket that does not block, and waits until there is something; 0 when it is closed.
///
/// # Errors
/// Those of the socket.
pub fn read(mut from: &TcpStream, buffer: &mut [u8]) -> io::Result<usize> {
    loop {
        match from.read(buffer) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => std::thread::sleep(PAUSE),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            other => return other,
        }
    }
}

/// Writes what a server says to the client, while `pass` passes on what the client says, until one of them ends. Then neither
/// connection is used any more.
///
/// # Errors
/// Those of `pass`, and of the sockets.
pub fn relay(client: &TcpStream, server: &TcpStream, pass: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
    let mut from_server = server.try_clone()?;
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let mut more = [0; 16384];
            while let Ok(length @ 1..) = from_server.read(&mut more) {
                if write(client, &more[..length]).is_err() {
                    break;
                }
            }
            client.shutdown(Shutdown::Both)
        });
        let passed = pass();
        let _ = server.shutdown(Shutdown::Both);
        passed
    })
}
