//! User space's half of `bpf/servers/memcached_tcp.bpf.c`: it owns the port at which the kernel answers, and hands what the
//! kernel does not answer to memcached, in order.
//!
//! In: the loaded extension, and the address of memcached. A key is the kernel's, until a request needs what only memcached
//! does with it; then it is memcached's ([`moving`]).

mod binary;
mod moving;
mod peer;
mod session;
mod text;

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use xk_flex::kept::Kept;
use xk_flex::Heap;
use xk_front::record::Asks;
use xk_front::{Port, Protocol};

use moving::Mover;
use peer::Peer;
use session::Session;

/// What cannot be done.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The server in user space does not answer.
    #[error("memcached at {0}: {1}: is it running?")]
    Server(SocketAddr, io::Error),
    /// It is not a memcached that can be served.
    #[error("the server at {0} says {1}: memcached 1.6, or later, without authentication is needed")]
    Refuses(SocketAddr, String),
    /// The port, or the extension.
    #[error(transparent)]
    Port(#[from] xk_front::Error),
}

/// The port, and memcached behind it.
pub struct Front {
    port: Port<Self>,
    server: SocketAddr,
    /// What moves keys, one after the other.
    mover: Mutex<Option<Mover>>,
}

impl Protocol for Front {
    type Session = Session;
    type Beside = ();

    fn port(&self) -> &Port<Self> {
        &self.port
    }
}

/// How long memcached may take to say something, when it is asked whether it can be served.
const PATIENCE: Duration = Duration::from_secs(10);

/// Whether memcached can be served, after this has been asked. One that wants a password refuses the first command, and reads
/// no further ones as commands.
fn ask(server: SocketAddr, request: &[u8]) -> Result<(), Error> {
    use std::io::{Read as _, Write as _};
    let asked = || -> io::Result<Vec<u8>> {
        let mut stream = TcpStream::connect(server)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.write_all(&[request, b"mn\r\n"].concat())?;
        let (mut reply, mut more) = (Vec::new(), [0; 1024]);
        let is_whole = |reply: &[u8]| reply.ends_with(b"MN\r\n") || reply.ends_with(b"\r\n") && is_error(reply);
        while !is_whole(&reply) {
            match stream.read(&mut more)? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                length => reply.extend(&more[..length]),
            }
        }
        Ok(reply)
    };
    let reply = asked().map_err(|error| Error::Server(server, error))?;
    if !is_error(&reply) {
        return Ok(());
    }
    Err(Error::Refuses(server, format!("{:?}", String::from_utf8_lossy(&reply[..reply.len().min(200)]))))
}

fn is_error(reply: &[u8]) -> bool {
    [&b"ERROR"[..], b"CLIENT_ERROR", b"SERVER_ERROR"].iter().any(|error| reply.starts_with(error))
}

impl Front {
    /// Whether memcached can be served. Nothing is changed.
    ///
    /// # Errors
    /// It does not answer, or wants a password, which the kernel never asks for.
    pub fn check(server: SocketAddr) -> Result<(), Error> {
        ask(server, b"")
    }

    /// For an extension that is loaded, its heap, the port, and memcached, which loses what it has.
    ///
    /// # Errors
    /// memcached does not answer; it is another extension.
    pub fn new(
        object: &libbpf_rs::Object,
        heap: Heap<'static>,
        port: u16,
        server: SocketAddr,
    ) -> Result<Arc<Self>, Error> {
        Self::of(Port::of_object(object, heap, port)?, server)
    }

    /// For an extension that stays when this process ends, with its items. memcached loses what it has.
    ///
    /// # Errors
    /// memcached does not answer; it is another extension; its heap cannot be mapped.
    pub fn of_kept(kept: &Kept, port: u16, server: SocketAddr) -> Result<Arc<Self>, Error> {
        Self::of(Port::of_kept(kept, port)?, server)
    }

    fn of(port: Port<Self>, server: SocketAddr) -> Result<Arc<Self>, Error> {
        // The one before may have been killed when a key was the kernel's no more, and not yet memcached's: what that has
        // with the key would be too old.
        ask(server, b"flush_all\r\n")?;
        Ok(Arc::new(Self { port, server, mover: Mutex::default() }))
    }

    /// Serves the port until it is told to stop.
    ///
    /// # Errors
    /// The port cannot be had, or the kernel refuses.
    pub fn serve(self: &Arc<Self>, stop: &AtomicBool) -> Result<(), Error> {
        Ok(Port::serve(self, stop)?)
    }

    /// A connection of our own to the kernel. What clients send is asked on one that may not move keys: if the kernel took
    /// a part of a value for a command, it would harm nobody else.
    fn kernel(&self, asks: Asks) -> io::Result<Peer> {
        self.port.kernel(asks).and_then(Peer::new)
    }

    fn server(&self) -> io::Result<Peer> {
        TcpStream::connect(self.server).and_then(Peer::new)
    }

    /// The heap, for example to give it pages ([`Heap::serve`]).
    #[must_use]
    pub fn heap(&self) -> &Heap<'static> {
        self.port.heap()
    }
}
