//! The extension in front of a server, another server beside it, and their clients.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};

use libbpf_rs::{Link, Object};
use xk_flex::{attach, load, take_ended, Choice, Control, Limits};
use xk_memcached::Front;
use xk_testing::guest::{file, wait_for, PATIENCE};

use crate::{OBJECT, SERVER};

/// Where the extension serves, and of a server alone.
pub const PORT: u16 = 11211;
pub const REFERENCE: u16 = 11212;
pub const BEHIND: u16 = 11213;

/// A connection.
pub struct Client {
    stream: TcpStream,
}

impl Client {
    pub fn new(port: u16) -> Self {
        let stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_nodelay(true).unwrap();
        Self { stream }
    }

    pub fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).unwrap();
    }

    /// All that is answered until these bytes, which are its end.
    pub fn until(&mut self, end: &[u8]) -> Vec<u8> {
        let mut all = Vec::new();
        let mut more = [0; 65536];
        while !all.ends_with(end) {
            let length = self.stream.read(&mut more).unwrap();
            assert_ne!(length, 0, "closed after {}", all.escape_ascii());
            all.extend(&more[..length]);
        }
        all.truncate(all.len() - end.len());
        all
    }

    /// What is answered to commands, also if that is nothing. What follows shows where it ends: no value contains it.
    pub fn ask(&mut self, bytes: &[u8]) -> Vec<u8> {
        self.send(&[bytes, b"mn\r\ndelete the-end-of-it-all\r\n"].concat());
        self.until(b"MN\r\nNOT_FOUND\r\n")
    }

    pub fn told(&mut self, text: &str) -> String {
        String::from_utf8_lossy(&self.ask(text.as_bytes())).into_owned()
    }

    /// Whether the other end has closed it.
    pub fn is_closed(&mut self) -> bool {
        let mut some = [0; 65536];
        self.stream.set_nonblocking(true).unwrap();
        let closed = loop {
            match self.stream.read(&mut some) {
                Ok(0) => break true,
                Ok(_) => {}
                Err(error) => break error.kind() != std::io::ErrorKind::WouldBlock,
            }
        };
        self.stream.set_nonblocking(false).unwrap();
        closed
    }
}

/// Starts Debian's server.
pub fn server(port: u16) -> Child {
    server_with(port, &[])
}

/// With these options, too.
pub fn server_with(port: u16, options: &[&str]) -> Child {
    let mut server = Command::new(file(SERVER));
    server.args(["-u", "root", "-l", "127.0.0.1", "-p", &port.to_string()]).args(options);
    // A thread in the background refers to items that are read often. A number that `decr` makes shorter then gets no
    // spaces: do_add_delta() of memcached.c.
    server.args(["-o", "no_lru_maintainer,no_lru_crawler"]);
    let child = server.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    wait_for("memcached", || TcpStream::connect(("127.0.0.1", port)).is_ok());
    child
}

/// All stays until the guest ends: a process has one heap at an address.
struct Served {
    object: &'static Object,
    front: Arc<Front>,
    _links: Vec<(String, Link)>,
    _servers: [Child; 2],
}

fn served_once() -> Served {
    let servers = [BEHIND, REFERENCE].map(server);
    let loaded = load(&fs::read(file(OBJECT)).unwrap(), &Choice::default());
    let object = &Box::leak(Box::new(loaded.unwrap_or_else(|error| panic!("{error}")))).object;
    Control { deadline: None, ..Control::default() }.tell(object).unwrap();
    let limits = Limits { ready: 64 << 20, ..Limits::default() };
    let heap = xk_flex::Heap::of(object, limits).unwrap().unwrap();
    let front = Front::new(object, heap, PORT, ([127, 0, 0, 1], BEHIND).into()).unwrap();
    let links = attach(object, None).unwrap_or_else(|error| panic!("{error}"));
    let work = |work: fn(&Arc<Front>, &AtomicBool)| {
        let front = front.clone();
        std::thread::spawn(move || work(&front, &AtomicBool::new(false)));
    };
    work(|front, never| front.serve(never).unwrap());
    work(|front, never| front.heap().serve(never).unwrap());
    wait_for("the port", || TcpStream::connect(("127.0.0.1", PORT)).is_ok());
    Served { object, front, _links: links, _servers: servers }
}

struct SendServed(Served);

// SAFETY: it is in a mutex, and links are only kept.
unsafe impl Send for SendServed {}

/// Does something with a client of the extension and one of the other server. Neither has an item.
pub fn beside(work: impl FnOnce(&mut Client, &mut Client, &Object)) {
    // Links may be used by one thread only, and each test is one.
    static SERVED: Mutex<Option<SendServed>> = Mutex::new(None);
    let mut served = SERVED.lock().unwrap_or_else(PoisonError::into_inner);
    let Served { object, front, .. } = &served.get_or_insert_with(|| SendServed(served_once())).0;
    let [mut one, mut other] = [PORT, REFERENCE].map(Client::new);
    for client in [&mut one, &mut other] {
        assert_eq!(client.told("flush_all\r\n"), "OK\r\n");
    }
    work(&mut one, &mut other, object);
    assert_eq!(take_ended(object).unwrap(), []);
    let usage = front.heap().usage();
    assert_eq!((usage.invalid, usage.lost, usage.refused), (0, 0, 0), "{usage:?}");
}
