//! User space's half of `bpf/servers/redis.bpf.c`: it owns the port at which the kernel answers, and hands what the kernel
//! does not answer to redis-server, in order.
//!
//! In: the loaded extension, and the address of redis-server. A key belongs to one of the two. The kernel hands a key to
//! redis-server when a request needs that, and it stays there.

pub mod commands;
pub mod resp;

mod glob;
mod keyspace;
mod moving;
mod peer;
mod session;
mod tunnel;
mod waiting;

use std::collections::HashMap;
use std::io;
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use xk_flex::kept::Kept;
use xk_flex::Heap;
use xk_front::record::Asks;
use xk_front::{held, Port, Protocol};

use commands::Command;
use moving::Moves;
use peer::Peer;
use session::Session;
use waiting::Waiting;

/// What cannot be done.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The server in user space does not answer.
    #[error("redis-server at {0}: {1}: is it running?")]
    Server(SocketAddr, io::Error),
    /// It does not answer without a password, which the kernel never asks for.
    #[error("redis-server at {0} says {1}: the kernel answers everybody, so a server with a password is refused")]
    Refuses(SocketAddr, String),
    /// It is to report changes of keys.
    #[error("redis-server at {0} has {events}, but keys in the kernel cause no events: set it to \"\"", events = session::EVENTS)]
    Events(SocketAddr),
    /// The port, or the extension.
    #[error(transparent)]
    Port(#[from] xk_front::Error),
}

/// The port, and redis-server behind it.
pub struct Front {
    port: Port<Self>,
    server: SocketAddr,
    commands: Arc<HashMap<String, Command>>,
    moves: Mutex<Moves>,
    /// Keys whose changes somebody waits for, by how many do: they stay redis-server's.
    awaited: Mutex<HashMap<Vec<u8>, usize>>,
}

impl Protocol for Front {
    type Session = Session;
    type Beside = Waiting;

    fn port(&self) -> &Port<Self> {
        &self.port
    }

    fn changed(&self, client: &TcpStream, waiting: &Waiting, is_over: bool) {
        waiting.look_after(client, is_over);
    }
}

/// The commands of redis-server, if it can be served.
fn commands_of(server: SocketAddr) -> Result<HashMap<String, Command>, Error> {
    let failed = |error| Error::Server(server, error);
    let mut peer = TcpStream::connect(server).and_then(Peer::new).map_err(failed)?;
    let reply = peer.ask(&resp::encode(&["COMMAND"])).map_err(failed)?;
    let commands = commands::commands(&reply)
        .ok_or_else(|| Error::Refuses(server, String::from_utf8_lossy(&reply[..reply.len().min(200)]).into()))?;
    // An array of its name and its value.
    let events = peer.ask(&resp::encode(&["CONFIG", "GET", session::EVENTS])).map_err(failed)?;
    if matches!(resp::request(&events), resp::Parsed::Whole(_, words) if words.get(1).is_some_and(|on| !on.is_empty()))
    {
        return Err(Error::Events(server));
    }
    Ok(commands)
}

impl Front {
    /// Whether redis-server can be served. Nothing is changed.
    ///
    /// # Errors
    /// It does not answer, or is set up in a way that the kernel does not follow.
    pub fn check(server: SocketAddr) -> Result<(), Error> {
        commands_of(server).map(drop)
    }

    /// For an extension that is loaded, its heap, the port, and redis-server.
    ///
    /// # Errors
    /// redis-server does not answer; it is another extension.
    pub fn new(
        object: &libbpf_rs::Object,
        heap: Heap<'static>,
        port: u16,
        server: SocketAddr,
    ) -> Result<Arc<Self>, Error> {
        Self::of(Port::of_object(object, heap, port)?, server)
    }

    /// For an extension that stays when this process ends, with its keys.
    ///
    /// # Errors
    /// redis-server does not answer; it is another extension; its heap cannot be mapped.
    pub fn of_kept(kept: &Kept, port: u16, server: SocketAddr) -> Result<Arc<Self>, Error> {
        Self::of(Port::of_kept(kept, port)?, server)
    }

    fn of(port: Port<Self>, server: SocketAddr) -> Result<Arc<Self>, Error> {
        let commands = Arc::new(commands_of(server)?);
        Ok(Arc::new(Self { port, server, commands, moves: Mutex::default(), awaited: Mutex::default() }))
    }

    /// Serves the port until it is told to stop.
    ///
    /// # Errors
    /// The port cannot be had, or the kernel refuses.
    pub fn serve(self: &Arc<Self>, stop: &AtomicBool) -> Result<(), Error> {
        // Not waited for: it may be waiting for an extension that was unloaded, for up to a minute.
        let (front, is_over) = (self.clone(), Arc::new(AtomicBool::new(false)));
        let ends = is_over.clone();
        let _expires = thread::spawn(move || front.expire(&ends));
        let served = Port::serve(self, stop);
        is_over.store(true, Ordering::Relaxed);
        Ok(served?)
    }

    /// A connection of our own to the kernel.
    fn kernel(&self, asks: Asks) -> io::Result<Peer> {
        self.port.kernel(asks).and_then(Peer::new)
    }

    /// Somebody waits for changes of a key.
    fn awaits(&self, key: &[u8]) {
        *held(&self.awaited).entry(key.to_vec()).or_insert(0) += 1;
    }

    /// And does not any longer.
    fn awaits_no_more(&self, key: &[u8]) {
        let mut awaited = held(&self.awaited);
        if let Some(number) = awaited.get_mut(key) {
            *number -= 1;
            if *number == 0 {
                awaited.remove(key);
            }
        }
    }

    /// A connection of our own ends.
    fn forget(&self, port: u16) {
        self.port.forget(port);
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
