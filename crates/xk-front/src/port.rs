//! The port: its clients, what the kernel says of them, and connections of our own to the kernel.

use std::collections::HashMap;
use std::io::{self, Read as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use libbpf_rs::{MapCore as _, MapFlags, MapHandle, RingBufferBuilder};
use xk_flex::kept::Kept;
use xk_flex::Heap;

use crate::record::{self, Asks, Record};
use crate::{held, Flow, Protocol, Session, PAUSE};

/// How often it is looked whether the kernel has noted a connection: a minute, if the machine is slow.
const TURNS: u32 = 60_000;
/// How long a thread waits for more of its client, and how soon it is noticed that serving is to stop.
const IDLE: Duration = Duration::from_secs(1);
const WAIT: Duration = Duration::from_millis(100);
/// How soon it reads again what is on its way.
const SOON: Duration = Duration::from_micros(50);
/// A thread for a client does little.
const STACK: usize = 256 << 10;

/// Why a port is not served.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The port cannot be had.
    #[error("port {0}: {1}")]
    Taken(u16, io::Error),
    /// The extension is another one, or the kernel refuses.
    #[error("the extension: {0}")]
    Extension(String),
}

/// A client. While nothing of it is passed on, no thread waits for it: each packet would wake that.
struct Slot<P: Protocol> {
    stream: TcpStream,
    beside: Arc<P::Beside>,
    /// What is left to do, and whether a thread does it.
    state: Mutex<State<P>>,
    more: Condvar,
}

struct State<P: Protocol> {
    runs: bool,
    again: bool,
    attended: Option<Box<Attended<P>>>,
    /// Records that are freed when no session may write to them any more.
    closed: Vec<u64>,
}

/// A client of whom something was passed on.
struct Attended<P: Protocol> {
    session: P::Session,
    record: Option<Record>,
    /// Bytes that were read of what was passed on.
    read: u64,
}

/// The port, and its clients.
pub struct Port<P: Protocol> {
    heap: Heap<'static>,
    connections: MapHandle,
    events: MapHandle,
    number: u16,
    /// Connections of our own to the port, by their ports; and their other ends, which nobody reads.
    own: Mutex<HashMap<u16, Option<TcpStream>>>,
    clients: Mutex<HashMap<SocketAddr, Arc<Slot<P>>>>,
}

impl<P: Protocol> Port<P> {
    /// Of an extension that is loaded, and its heap.
    ///
    /// # Errors
    /// It is another extension.
    pub fn of_object(object: &libbpf_rs::Object, heap: Heap<'static>, number: u16) -> Result<Self, Error> {
        let map = |name: &str| {
            let found = object.maps().find(|map| map.name() == name);
            found.map(|map| MapHandle::try_from(&map)).transpose().map_err(|error| Error::Extension(error.to_string()))
        };
        Self::of(map, heap, number)
    }

    /// Of an extension that stays when this process ends.
    ///
    /// # Errors
    /// It is another extension, or its heap cannot be mapped.
    pub fn of_kept(kept: &Kept, number: u16) -> Result<Self, Error> {
        let failed = |error: xk_flex::Error| Error::Extension(error.to_string());
        let heap = kept.heap().map_err(failed)?.ok_or_else(|| Error::Extension("it has no heap".into()))?;
        Self::of(|name| kept.map(name).map_err(failed), heap, number)
    }

    fn of(
        map: impl Fn(&str) -> Result<Option<MapHandle>, Error>,
        heap: Heap<'static>,
        number: u16,
    ) -> Result<Self, Error> {
        let map = |name: &str| map(name)?.ok_or_else(|| Error::Extension(format!("it has no map {name}")));
        let (connections, events) = (map("sv_connections")?, map("sv_events")?);
        Ok(Self { heap, connections, events, number, own: Mutex::default(), clients: Mutex::default() })
    }

    /// The heap, for example to give it pages ([`Heap::serve`]).
    #[must_use]
    pub fn heap(&self) -> &Heap<'static> {
        &self.heap
    }

    /// What the kernel notes of the connection of a peer; nothing if it does not have it.
    #[must_use]
    pub fn record(&self, peer: SocketAddr) -> Option<Record> {
        let value = self.connections.lookup(&record::bytes(peer), MapFlags::ANY).ok()??;
        Some(Record::at(u64::from_ne_bytes(value.try_into().ok()?)))
    }

    /// Serves the port until it is told to stop.
    ///
    /// # Errors
    /// The port cannot be had, or the kernel refuses.
    pub fn serve(front: &Arc<P>, stop: &AtomicBool) -> Result<(), Error> {
        let port = front.port();
        let failed = |error| Error::Taken(port.number, error);
        let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, port.number)).map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        thread::scope(|scope| {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    match listener.accept() {
                        Ok((stream, peer)) => port.take(front, stream, peer),
                        Err(_) => thread::sleep(PAUSE),
                    }
                }
            });
            port.listen(front, stop)
        })
    }

    /// Looks after clients of whom the kernel says that something was passed on.
    fn listen(&self, front: &Arc<P>, stop: &AtomicBool) -> Result<(), Error> {
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
                front.changed(&slot.stream, &slot.beside, record::closed(bytes).is_some());
                self.wake(front, slot);
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
    fn take(&self, front: &Arc<P>, stream: TcpStream, peer: SocketAddr) {
        if let Some(end) = held(&self.own).get_mut(&peer.port()).filter(|_| peer.ip().is_loopback()) {
            // What has come before it was accepted is answered when somebody reads.
            let _ = stream.set_nonblocking(true).and_then(|()| stream.peek(&mut [0]));
            *end = Some(stream);
            return;
        }
        if stream.set_nonblocking(true).and_then(|()| stream.set_nodelay(true)).is_err() {
            return;
        }
        let state = State { runs: false, again: false, attended: None, closed: Vec::new() };
        let slot = Arc::new(Slot { stream, beside: Arc::default(), state: Mutex::new(state), more: Condvar::new() });
        held(&self.clients).insert(peer, slot.clone());
        // As above.
        self.wake(front, slot);
    }

    /// There may be something to read of a client.
    fn wake(&self, front: &Arc<P>, slot: Arc<Slot<P>>) {
        let mut state = held(&slot.state);
        state.again = true;
        if state.runs {
            slot.more.notify_one();
            return;
        }
        state.runs = true;
        drop(state);
        let front = front.clone();
        // Without a thread, the client waits for its next request.
        let _ = thread::Builder::new().stack_size(STACK).spawn(move || front.port().attend(&front, &slot));
    }

    /// Answers what was passed on, until there is nothing for a while.
    fn attend(&self, front: &Arc<P>, slot: &Slot<P>) {
        loop {
            let mut state = held(&slot.state);
            if !state.again {
                state = slot.more.wait_timeout(state, IDLE).unwrap_or_else(PoisonError::into_inner).0;
            }
            if !std::mem::take(&mut state.again) {
                state.runs = false;
                return;
            }
            let mut attended = state.attended.take();
            drop(state);
            match self.read(front, slot, &mut attended) {
                Ok(Flow::On) => held(&slot.state).attended = attended,
                // A client that goes, or a server that does, ends this connection and nothing else.
                Ok(Flow::Ended) | Err(_) => {
                    drop(attended);
                    return self.forget_client(slot);
                }
            }
        }
    }

    /// Reads what was passed on of a client, and lets its session answer.
    fn read(&self, front: &Arc<P>, slot: &Slot<P>, attended: &mut Option<Box<Attended<P>>>) -> io::Result<Flow> {
        let mut client = &slot.stream;
        let mut more = [0; 16384];
        loop {
            let length = match client.read(&mut more) {
                Ok(0) => return Ok(Flow::Ended),
                Ok(length) => length,
                // What was passed on comes a little later than the word of it.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    let passed = |record: &Record| record.passed(&self.heap);
                    let is_on_its_way = match attended {
                        None => self.record(client.peer_addr()?).is_some_and(|record| passed(&record) > 0),
                        Some(own) => own.record.as_ref().is_some_and(|record| passed(record) > own.read),
                    };
                    if !is_on_its_way {
                        return Ok(Flow::On);
                    }
                    thread::sleep(SOON);
                    continue;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            let own = match attended {
                Some(own) => own,
                None => {
                    let record = self.record(client.peer_addr()?);
                    let session = P::Session::new(client, &slot.beside, front)?;
                    attended.insert(Box::new(Attended { session, record, read: 0 }))
                }
            };
            own.read += length as u64;
            if own.session.arrives(client, &more[..length])? == Flow::Ended {
                return Ok(Flow::Ended);
            }
        }
    }

    /// A client has gone, and its session with it.
    fn forget_client(&self, slot: &Slot<P>) {
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

    /// A connection of our own to the kernel. On it, the kernel passes nothing on, and says what it does not answer.
    ///
    /// # Errors
    /// It cannot be made, or the kernel does not know it.
    pub fn kernel(&self, asks: Asks) -> io::Result<TcpStream> {
        let stream = {
            // Not accepted before it is known as our own.
            let mut own = held(&self.own);
            let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, self.number))?;
            own.insert(stream.local_addr()?.port(), None);
            stream
        };
        let address = stream.local_addr()?;
        for _ in 0..TURNS {
            let is_accepted = held(&self.own).get(&address.port()).is_some_and(Option::is_some);
            if let Some(record) = self.record(address).filter(|_| is_accepted) {
                record.asks(&self.heap, asks);
                return Ok(stream);
            }
            thread::sleep(PAUSE);
        }
        Err(io::Error::other("the kernel does not know our connection: is the extension attached?"))
    }

    /// A connection of our own ends, which has this port.
    pub fn forget(&self, port: u16) {
        held(&self.own).remove(&port);
    }
}
