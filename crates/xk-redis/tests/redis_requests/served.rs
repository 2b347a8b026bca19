//! The extension in front of a server, and another server beside it.

use std::fs;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};

use libbpf_rs::{Link, Object};
use xk_flex::{attach, load, take_ended, Choice, Control, Heap, Limits};
use xk_redis::resp::{self, Parsed};
use xk_redis::Front;
use xk_testing::guest::{file, wait_for};
use xk_testing::Random;

use super::client::{request, Client};
use crate::{OBJECT, SERVER};

/// Where the extension serves, and of a server alone.
pub const PORT: u16 = 6379;
pub const REFERENCE: u16 = 6380;
pub const BEHIND: u16 = 6381;

fn server(port: u16) -> Child {
    let mut server = Command::new(SERVER);
    server.arg0("redis-server").args(["--port", &port.to_string(), "--save", "", "--appendonly", "no"]);
    let child = server.stdout(Stdio::null()).spawn().unwrap();
    wait_for("redis-server", || std::net::TcpStream::connect(("127.0.0.1", port)).is_ok());
    child
}

/// The extension in front of a server. All stays until the guest ends: a process has one heap at an address.
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
    let heap = Heap::of(object, Limits { ready: 64 << 20, ..Limits::default() }).unwrap().unwrap();
    let front = Front::new(object, heap, PORT, ([127, 0, 0, 1], BEHIND).into()).unwrap();
    let links = attach(object, None).unwrap_or_else(|error| panic!("{error}"));
    let work = |work: fn(&Arc<Front>, &AtomicBool)| {
        let front = front.clone();
        std::thread::spawn(move || work(&front, &AtomicBool::new(false)));
    };
    work(|front, never| front.serve(never).unwrap());
    work(|front, never| front.heap().serve(never).unwrap());
    wait_for("the port", || std::net::TcpStream::connect(("127.0.0.1", PORT)).is_ok());
    Served { object, front, _links: links, _servers: servers }
}

struct SendServed(Served);

// SAFETY: it is in a mutex, and links are only kept.
unsafe impl Send for SendServed {}

/// Does something with a client of the extension and one of the other server. Neither has a key.
pub fn beside(work: impl FnOnce(&mut Client, &mut Client, &Object)) {
    // Links may be used by one thread only, and each test is one.
    static SERVED: Mutex<Option<SendServed>> = Mutex::new(None);
    let mut served = SERVED.lock().unwrap_or_else(PoisonError::into_inner);
    let Served { object, front, .. } = &served.get_or_insert_with(|| SendServed(served_once())).0;
    let [mut one, mut other] = [PORT, REFERENCE].map(Client::new);
    for client in [&mut one, &mut other] {
        assert_eq!(client.ask(&[b"FLUSHALL"]), b"+OK\r\n");
    }
    work(&mut one, &mut other, object);
    assert_eq!(take_ended(object).unwrap(), []);
    let usage = front.heap().usage();
    assert_eq!((usage.invalid, usage.lost, usage.refused), (0, 0, 0), "{usage:?}");
}

pub fn random() -> Random {
    let seed = u64::from(std::process::id()) << 32 ^ u64::from(std::time::UNIX_EPOCH.elapsed().unwrap().subsec_nanos());
    println!("seed {seed}");
    Random(seed)
}

pub fn said(bytes: &[u8]) -> String {
    bytes.escape_ascii().to_string()
}

/// Asks both for the same, who must answer the same.
pub fn both(one: &mut Client, other: &mut Client, number: usize, words: &[Vec<u8>]) {
    let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
    let replies = [one, other].map(|client| said(&client.ask(&words)));
    assert_eq!(replies[0], replies[1], "request {number}: {}", said(&request(&words)));
}

/// The words of a reply that is an array of texts, sorted.
pub fn sorted(reply: &[u8]) -> Vec<String> {
    let Parsed::Whole(_, mut words) = resp::request(reply) else { panic!("{}", said(reply)) };
    words.sort();
    words.iter().map(|word| said(word)).collect()
}

/// All keys, by `SCAN` with these options; some may come twice.
pub fn scanned(client: &mut Client, options: &[&[u8]]) -> Vec<String> {
    let (mut cursor, mut keys) = (b"0".to_vec(), Vec::new());
    loop {
        let reply = client.ask(&[&[b"SCAN", cursor.as_slice()], options].concat());
        let rest = reply.strip_prefix(b"*2\r\n").unwrap_or_else(|| panic!("{}", said(&reply)));
        let end = resp::reply_end(rest, 0).unwrap();
        keys.extend(sorted(&rest[end..]));
        cursor = rest[..end - 2].rsplit(|byte| *byte == b'\n').next().unwrap().to_vec();
        if cursor == b"0" {
            keys.sort();
            keys.dedup();
            return keys;
        }
    }
}
