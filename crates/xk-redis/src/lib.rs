//! User space's half of `bpf/servers/redis.bpf.c`: it owns the port at which the kernel answers, and hands what the kernel
//! does not answer to redis-server, in order.
//!
//! In: the loaded extension, and the address of redis-server. A key belongs to one of the two. The kernel hands a key to
//! redis-server when a request needs that, and it stays there.

pub mod commands;
pub mod resp;

mod moving;
mod record;
mod session;
mod tunnel;

use std::collections::HashMap;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use libbpf_rs::{MapCore, MapHandle, RingBufferBuilder};
use xk_flex::kept::Kept;
use xk_flex::Heap;

use commands::Command;
use moving::Moves;
use record::Record;
use session::{Next, Peer, Session};

/// How often it is looked whether the kernel has noted a connection: a minute, if the machine is slow.
const TURNS: u32 = 60_000;
const PAUSE: Duration = Duration::from_millis(1);
/// How long a thread waits for more of its client, and how soon it is noticed that serving is to stop.
const IDLE: Duration = Duration::from_secs(1);
const WAIT: Duration = Duration::from_millis(100);
/// A thread for a client does little.
const STACK: usize = 256 << 10;

/// What cannot be done.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The server in user space does not answer.
    #[error("redis-server at {0}: {1}: is it running?")]
    Server(SocketAddr, io::Error),
    /// It does not answer without a password, which the kernel never asks for.
    #[error("redis-server at {0} says {1}: the kernel answers everybody, so a server with a password is refused")]
    Refuses(SocketAddr, String),
    /// The port.
    #[error("port {0}: {1}")]
    Port(u16, io::Error),
    /// The extension is another one, or the kernel refuses.
    #[error("the extension: {0}")]
    Extension(String),
}

/// A client. While nothing of it is passed on, no thread waits for it: each packet would wake that.
struct Slot {
    stream: TcpStream,
    /// What is left to do, and whether a thread does it.
    state: Mutex<State>,
    more: Condvar,
}

#[derive(Default)]
struct State {
    runs: bool,
    again: bool,
    session: Option<Box<Session>>,
    /// Records that are freed when no session may write to them any more.
    closed: Vec<u64>,
}

fn held<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The port, and what serves it.
pub struct Front {
    heap: Heap<'static>,
    connections: MapHandle,
    events: MapHandle,
    port: u16,
    server: SocketAddr,
    commands: Arc<HashMap<String, Command>>,
    /// Connections of our own to the port, by their ports; and their other ends, which nobody reads.
    own: Mutex<HashMap<u16, Option<TcpStream>>>,
    clients: Mutex<HashMap<SocketAddr, Arc<Slot>>>,
    moves: Mutex<Moves>,
    /// Keys whose changes somebody waits for, by how many do: they stay redis-server's.
    awaited: Mutex<HashMap<Vec<u8>, usize>>,
}

impl Front {
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
        let map = |name: &str| {
            let found = object.maps().find(|map| map.name() == name);
            found.map(|map| MapHandle::try_from(&map)).transpose().map_err(|error| Error::Extension(error.to_string()))
        };
        Self::of(map, heap, port, server)
    }

    /// For an extension that stays when this process ends, with its keys.
    ///
    /// # Errors
    /// redis-server does not answer; it is another extension; its heap cannot be mapped.
    pub fn of_kept(kept: &Kept, port: u16, server: SocketAddr) -> Result<Arc<Self>, Error> {
        let failed = |error: xk_flex::Error| Error::Extension(error.to_string());
        let heap = kept.heap().map_err(failed)?.ok_or_else(|| Error::Extension("it has no heap".into()))?;
        Self::of(|name| kept.map(name).map_err(failed), heap, port, server)
    }

    fn of(
        map: impl Fn(&str) -> Result<Option<MapHandle>, Error>,
        heap: Heap<'static>,
        port: u16,
        server: SocketAddr,
    ) -> Result<Arc<Self>, Error> {
        let failed = |error| Error::Server(server, error);
        let mut peer = TcpStream::connect(server).and_then(Peer::new).map_err(failed)?;
        let reply = peer.ask(&resp::encode(&["COMMAND"])).map_err(failed)?;
        let commands = commands::commands(&reply)
            .ok_or_else(|| Error::Refuses(server, String::from_utf8_lossy(&reply[..reply.len().min(200)]).into()))?;
        let map = |name: &str| map(name)?.ok_or_else(|| Error::Extension(format!("it has no map {name}")));
        let (connections, events) = (map("rd_connections")?, map("rd_events")?);
        let (own, clients, moves, awaited) = (Mutex::default(), Mutex::default(), Mutex::default(), Mutex::default());
        let commands = Arc::new(commands);
        Ok(Arc::new(Self { heap, connections, events, port, server, commands, own, clients, moves, awaited }))
    }

    /// Serves the port until it is told to stop.
    ///
    /// # Errors
    /// The port cannot be had, or the kernel refuses.
    pub fn serve(self: &Arc<Self>, stop: &AtomicBool) -> Result<(), Error> {
        let failed = |error| Error::Port(self.port, error);
        let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, self.port)).map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        thread::scope(|scope| {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    match listener.accept() {
                        Ok((stream, peer)) => self.take(stream, peer),
                        Err(_) => thread::sleep(PAUSE),
                    }
                }
            });
            self.listen(stop)
        })
    }

    /// Looks after clients of whom the kernel says that something was passed on.
    fn listen(self: &Arc<Self>, stop: &AtomicBool) -> Result<(), Error> {
        let refused = |error: libbpf_rs::Error| Error::Extension(error.to_string());
        let mut builder = RingBufferBuilder::new();
        let event = |bytes: &[u8]| {
            let Some(peer) = record::peer(bytes) else { return 0 };
            let clients = held(&self.clients);
            let slot = clients.get(&peer).cloned();
            match (&slot, record::closed(bytes)) {
                (Some(slot), Some(record)) => held(&slot.state).closed.push(record),
                (None, Some(record)) => self.free(record),
                (_, None) => {}
            }
            drop(clients);
            if let Some(slot) = slot {
                self.wake(slot);
            }
            0
        };
        builder.add(&self.events, event).map_err(refused)?;
        let ring = builder.build().map_err(refused)?;
        while !stop.load(Ordering::Relaxed) {
            // Interrupted by a signal, it looks again.
            let _ = ring.poll(WAIT);
        }
        Ok(())
    }

    /// A connection has come.
    fn take(self: &Arc<Self>, stream: TcpStream, peer: SocketAddr) {
        if let Some(end) = held(&self.own).get_mut(&peer.port()).filter(|_| peer.ip().is_loopback()) {
            // What has come before it was accepted is answered when somebody reads.
            let _ = stream.set_nonblocking(true).and_then(|()| stream.peek(&mut [0]));
            *end = Some(stream);
            return;
        }
        if stream.set_nonblocking(true).and_then(|()| stream.set_nodelay(true)).is_err() {
            return;
        }
        let slot = Arc::new(Slot { stream, state: Mutex::default(), more: Condvar::new() });
        held(&self.clients).insert(peer, slot.clone());
        // As above.
        self.wake(slot);
    }

    /// There may be something to read of a client.
    fn wake(self: &Arc<Self>, slot: Arc<Slot>) {
        let mut state = held(&slot.state);
        state.again = true;
        if state.runs {
            slot.more.notify_one();
            return;
        }
        state.runs = true;
        drop(state);
        let front = self.clone();
        // Without a thread, the client waits for its next request.
        let _ = thread::Builder::new().stack_size(STACK).spawn(move || front.attend(&slot));
    }

    /// Answers what was passed on, until there is nothing for a while.
    fn attend(self: &Arc<Self>, slot: &Slot) {
        loop {
            let mut state = held(&slot.state);
            if !state.again {
                state = slot.more.wait_timeout(state, IDLE).unwrap_or_else(PoisonError::into_inner).0;
            }
            if !std::mem::take(&mut state.again) {
                state.runs = false;
                return;
            }
            let session = state.session.take();
            drop(state);
            match Session::attend(session, &slot.stream, self) {
                Ok(Next::Later(session)) => held(&slot.state).session = session,
                // A client that goes, or a server that does, ends this connection and nothing else.
                Ok(Next::Ended) | Err(_) => return self.forget_client(slot),
            }
        }
    }

    /// A client has gone, and its session with it.
    fn forget_client(&self, slot: &Slot) {
        held(&self.clients).retain(|_, other| !std::ptr::eq(&**other, slot));
        // From here on, nobody adds to it.
        let closed = std::mem::take(&mut held(&slot.state).closed);
        closed.into_iter().for_each(|record| self.free(record));
        let _ = slot.stream.shutdown(std::net::Shutdown::Both);
    }

    /// Frees the record of a connection that is closed.
    fn free(&self, record: u64) {
        // A program that has destroyed its heap may have told another address.
        let _ = self.heap.free(record);
    }

    /// A connection of our own to the kernel, which may move keys.
    fn kernel(&self, moves: bool) -> io::Result<Peer> {
        let stream = {
            // Not accepted before it is known as our own.
            let mut own = held(&self.own);
            let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port))?;
            own.insert(stream.local_addr()?.port(), None);
            stream
        };
        let address = stream.local_addr()?;
        for _ in 0..TURNS {
            let is_accepted = held(&self.own).get(&address.port()).is_some_and(Option::is_some);
            if let Some(record) = Record::of(self, address).filter(|_| is_accepted) {
                record.asks(self, moves);
                return Peer::new(stream);
            }
            thread::sleep(PAUSE);
        }
        Err(io::Error::other("the kernel does not know our connection: is the extension attached?"))
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
        held(&self.own).remove(&port);
    }

    fn server(&self) -> io::Result<Peer> {
        TcpStream::connect(self.server).and_then(Peer::new)
    }

    /// The heap, for example to give it pages ([`Heap::serve`]).
    #[must_use]
    pub fn heap(&self) -> &Heap<'static> {
        &self.heap
    }
}
