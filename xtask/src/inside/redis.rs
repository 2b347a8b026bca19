//! What answering requests of Redis' protocol costs the side of the server: in the kernel, and by Debian's redis-server.
//!
//! The same client sends the same requests to both over the loopback, one on each of several connections, and then receives
//! the replies. Time is instructions in a deterministic guest with one CPU. The server's side is what the kernel does with
//! packets for its port, and what its threads do; `xtask/bpf/server_side.bpf.c` counts it. Refuses to report a figure if
//! the two do not answer the same.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use anyhow::{ensure, Context, Result};
use libbpf_rs::{MapCore as _, MapFlags, Object, ObjectBuilder};
use serde::{Deserialize, Serialize};
use xk_flex::{attach, load, Choice, Heap, Limits};
use xk_redis::resp::{encode, reply_end};
use xk_redis::Front;

use crate::draw::Random;

/// Debian's redis-tools contain the server under this name.
const SERVER: &str = "/usr/bin/redis-check-rdb";
/// Of the extension, of the server behind it, and of the other server.
const PORT: u16 = 6379;
const BEHIND: u16 = 6381;
const BESIDE: u16 = 6380;
const CONNECTIONS: usize = 16;
const REQUESTS: usize = 1600;
/// The median counts.
const ROUNDS: usize = 5;
const KEYS: u64 = 1000;
const VALUE: usize = 64;
const PATIENCE: Duration = Duration::from_secs(60);

/// Arguments of `inside redis`.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// bpf/servers/redis.bpf.c, compiled
    #[arg(long)]
    extension: PathBuf,
    /// xtask/bpf/server_side.bpf.c, compiled
    #[arg(long)]
    side: PathBuf,
    /// Where its variables are: the port, the server, what was received, and beside
    #[arg(long, value_delimiter = ',')]
    places: Vec<usize>,
}

/// By one of the two.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct Cost {
    /// Instructions of a request on the server's side.
    pub side: f64,
    /// Of the whole guest, with the client.
    pub whole: f64,
    /// From a request to its reply, if it is the only one: the median, and the 99th percentile.
    pub median: u64,
    /// The latter.
    pub p99: u64,
}

/// Of one kind of requests.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Row {
    /// Which.
    pub op: String,
    /// By the extension.
    pub flex: Cost,
    /// By redis-server.
    pub user: Cost,
    /// Replies that were compared.
    pub compared: usize,
}

/// Measures.
///
/// # Errors
/// When something does not work, or replies differ.
pub fn run(arguments: &Arguments) -> Result<Vec<Row>> {
    ensure!(Command::new("ip").args(["link", "set", "lo", "up"]).status()?.success(), "ip link set lo up");
    let mut side = Side::new(arguments)?;
    server(BEHIND)?;
    let user = server(BESIDE)?;
    let front = extension(arguments)?;
    let mut rows = Vec::new();
    for op in ["get:set 90:10", "get:set 50:50", "get:set 10:90", "zadd", "zscore"] {
        let requests = requests(op);
        let (flex, said) = measure(&mut side, PORT, 0, &requests)?;
        let (user, expected) = measure(&mut side, BESIDE, user, &requests)?;
        for (at, (said, expected)) in said.iter().zip(&expected).enumerate() {
            let words = |bytes: &[u8]| bytes.escape_ascii().to_string();
            let asked = words(&requests.all[at]);
            ensure!(said == expected, "{asked} is answered by {} and {}", words(said), words(expected));
        }
        ensure!(said.len() == expected.len(), "{} and {} replies", said.len(), expected.len());
        rows.push(Row { op: op.into(), flex, user, compared: said.len() });
    }
    drop(front);
    Ok(rows)
}

/// Starts a server; the number of its process. It ends with the guest.
fn server(port: u16) -> Result<u64> {
    let mut server = Command::new(SERVER);
    server.arg0("redis-server").args(["--port", &port.to_string(), "--save", "", "--appendonly", "no"]);
    let child = server.stdout(Stdio::null()).spawn().with_context(|| SERVER)?;
    wait(port)?;
    Ok(child.id().into())
}

fn wait(port: u16) -> Result<()> {
    let start = Instant::now();
    while TcpStream::connect(("127.0.0.1", port)).is_err() {
        ensure!(start.elapsed() < PATIENCE, "nothing listens at port {port}");
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

/// What keeps the extension attached.
fn extension(arguments: &Arguments) -> Result<Vec<(String, libbpf_rs::Link)>> {
    let loaded = load(&fs::read(&arguments.extension)?, &Choice::default())?;
    let object: &'static Object = &Box::leak(Box::new(loaded)).object;
    let heap = Heap::of(object, Limits { ready: 64 << 20, ..Limits::default() })?.context("it has no heap")?;
    let front = Front::new(object, heap, PORT, ([127, 0, 0, 1], BEHIND).into())?;
    let links = attach(object, None)?;
    std::thread::spawn(move || front.serve(&AtomicBool::new(false)));
    wait(PORT)?;
    Ok(links)
}

/// Requests that are measured, and those that are sent before.
struct Requests {
    preparing: Vec<Vec<u8>>,
    all: Vec<Vec<u8>>,
}

fn requests(op: &str) -> Requests {
    let key = |number: u64| format!("key-of-the-benchmark-{number:03}");
    // Always the same of a key: the requests of a time are on several connections, and have no order.
    let set = |number: u64| encode(&["SET", &key(number), &format!("{:01$}", number, VALUE)]);
    let add = |number: u64, score: u64| encode(&["ZADD", "scores", &score.to_string(), &key(number)]);
    let preparing: Vec<Vec<u8>> = match op.strip_prefix("get:set ") {
        Some(_) => (0..KEYS).map(set).collect(),
        None => (0..KEYS).map(|number| add(number, number * 7919 % KEYS)).collect(),
    };
    let gets = op.strip_prefix("get:set ").and_then(|mix| mix.split(':').next()).and_then(|gets| gets.parse().ok());
    let mut random = Random::of(op, 1);
    let mut request = || {
        let (number, score) = (random.below(KEYS), random.below(KEYS));
        match (op, gets) {
            (_, Some(gets)) if random.below(100) < gets => encode(&["GET", &key(number)]),
            (_, Some(_)) => set(number),
            ("zadd", _) => add(number, score),
            _ => encode(&["ZSCORE", "scores", &key(number)]),
        }
    };
    let all = (0..REQUESTS).map(|_| request()).collect();
    Requests { preparing, all }
}

/// The costs, and the replies of one round.
fn measure(side: &mut Side, port: u16, server: u64, requests: &Requests) -> Result<(Cost, Vec<Vec<u8>>)> {
    let mut clients = (0..CONNECTIONS).map(|_| Client::new(port)).collect::<Result<Vec<_>>>()?;
    side.tell(port, server)?;
    round(&mut clients, &requests.preparing)?;
    let replies = round(&mut clients, &requests.all)?;
    let (mut sides, mut wholes) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let (before, start) = (side.read(server)?, Instant::now());
        round(&mut clients, &requests.all)?;
        wholes.push(start.elapsed().as_nanos());
        sides.push(side.read(server)? - before);
    }
    let mut each = Vec::new();
    for request in &requests.all {
        let start = Instant::now();
        clients[0].send(request)?;
        clients[0].reply()?;
        each.push(start.elapsed().as_nanos() as u64);
    }
    for all in [&mut sides, &mut each] {
        all.sort_unstable();
    }
    wholes.sort_unstable();
    let per_request = |all: f64| all / REQUESTS as f64;
    let cost = Cost {
        side: per_request(sides[ROUNDS / 2] as f64),
        whole: per_request(wholes[ROUNDS / 2] as f64),
        median: each[each.len() / 2],
        p99: each[each.len() * 99 / 100],
    };
    Ok((cost, replies))
}

/// One request on each connection, then their replies, until all are answered.
fn round(clients: &mut [Client], requests: &[Vec<u8>]) -> Result<Vec<Vec<u8>>> {
    let mut replies = Vec::with_capacity(requests.len());
    for some in requests.chunks(clients.len()) {
        for (client, request) in clients.iter_mut().zip(some) {
            client.send(request)?;
        }
        for (client, _) in clients.iter_mut().zip(some) {
            replies.push(client.reply()?);
        }
    }
    Ok(replies)
}

struct Client {
    stream: TcpStream,
    read: Vec<u8>,
}

impl Client {
    fn new(port: u16) -> Result<Self> {
        let stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        Ok(Self { stream, read: Vec::new() })
    }

    fn send(&mut self, request: &[u8]) -> Result<()> {
        Ok(self.stream.write_all(request)?)
    }

    fn reply(&mut self) -> Result<Vec<u8>> {
        let mut more = [0; 1024];
        loop {
            if let Some(end) = reply_end(&self.read, 0) {
                return Ok(self.read.drain(..end).collect());
            }
            let length = self.stream.read(&mut more).context("no reply")?;
            ensure!(length > 0, "the connection was closed");
            self.read.extend(&more[..length]);
        }
    }
}

/// The programs that count, and their variables.
struct Side {
    object: Object,
    _links: Vec<libbpf_rs::Link>,
    places: [usize; 4],
}

impl Side {
    fn new(arguments: &Arguments) -> Result<Self> {
        let bytes = fs::read(&arguments.side)?;
        let object = ObjectBuilder::default().open_memory(&bytes)?.load()?;
        let links = object.progs_mut().map(|program| program.attach()).collect::<Result<_, _>>()?;
        let places = arguments.places.as_slice().try_into().context("--places: four numbers")?;
        Ok(Self { object, _links: links, places })
    }

    fn variables(&self) -> Result<(libbpf_rs::Map<'_>, Vec<u8>)> {
        let found = self.object.maps().find(|map| map.name().to_string_lossy().ends_with(".bss"));
        let map = found.context("it has no variables")?;
        let value = map.lookup(&0_u32.to_ne_bytes(), MapFlags::ANY)?.context("no value")?;
        Ok((map, value))
    }

    /// Counts for a server at this port; its process, if it is one.
    fn tell(&mut self, port: u16, server: u64) -> Result<()> {
        let (map, mut value) = self.variables()?;
        for (at, number) in self.places.into_iter().zip([port.into(), server, 0, 0]) {
            value[at..at + 8].copy_from_slice(&u64::to_ne_bytes(number));
        }
        Ok(map.update(&0_u32.to_ne_bytes(), &value, MapFlags::ANY)?)
    }

    /// Instructions of the server's side until now.
    fn read(&self, server: u64) -> Result<u64> {
        let (_, value) = self.variables()?;
        let number = |which: usize| -> Result<u64> {
            let at = self.places[which];
            Ok(u64::from_ne_bytes(value[at..at + 8].try_into()?))
        };
        let mut threads = 0;
        if server > 0 {
            for task in fs::read_dir(format!("/proc/{server}/task"))? {
                let text = fs::read_to_string(task?.path().join("schedstat"))?;
                threads += text.split_whitespace().next().context("no time")?.parse::<u64>()?;
            }
        }
        Ok(number(2)? + threads - number(3)?)
    }
}
