//! The server of `bpf/servers/redis.bpf.c` in a guest, in front of Debian's redis-server, beside another redis-server: both
//! get the same requests, and must answer the same, byte for byte.

#![allow(clippy::unwrap_used, clippy::expect_used)] // a test

mod redis_requests;

use std::fs;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use libbpf_rs::{Link, Object};
use xk_flex::{attach, load, take_ended, Choice, Control, Heap, Limits};
use xk_policy::{compile, Headers};
use xk_redis::Front;
use xk_testing::guest::{boot, file, info, modules, passed, repository, run, wait_for, XK_KO};
use xk_testing::Random;

use redis_requests::client::{request, Client};
use redis_requests::{others, words};

/// The compiled object. Set in the guest only.
const OBJECT: &str = "XK_TEST_OBJECT";
/// Debian's redis-tools contain the server under this name.
const SERVER: &str = "/usr/bin/redis-check-rdb";

xk_testing::guest_tests! {
    answers_are_those_of_redis,
    replies_are_in_order_however_requests_are_split,
    a_key_is_of_one_of_the_two,
    a_run_that_is_ended_breaks_its_connection,
}

fn guest_output() -> &'static str {
    static OUTPUT: OnceLock<String> = OnceLock::new();
    OUTPUT.get_or_init(|| {
        let folder = tempfile::tempdir().unwrap();
        let types = format!("{}/usr/src/linux-headers-{}/vmlinux", info("root"), info("release"));
        let headers = Headers::new(types.as_ref(), folder.path(), &info("release")).unwrap();
        let object = folder.path().join("redis.bpf.o");
        let compiled = compile(&repository().join("bpf/servers/redis.bpf.c"), &headers);
        fs::write(&object, compiled.unwrap_or_else(|error| panic!("{error}"))).unwrap();
        boot(1200, &format!("{OBJECT}={} {}", object.display(), modules(&[(XK_KO, "kernel/xk")])))
    })
}

fn report(name: &str) {
    passed(guest_output(), name);
}

fn prepare() {
    if !std::path::Path::new("/dev/xk").exists() {
        assert!(run("insmod", &[file(XK_KO).to_str().unwrap()]));
        assert!(run("ip", &["link", "set", "lo", "up"]));
    }
}

mod checks {
    use super::*;

    /// Where the extension serves, and of a server alone.
    const PORT: u16 = 6379;
    const REFERENCE: u16 = 6380;
    const BEHIND: u16 = 6381;

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
    fn beside(work: impl FnOnce(&mut Client, &mut Client, &Object)) {
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

    fn random() -> Random {
        let seed =
            u64::from(std::process::id()) << 32 ^ u64::from(std::time::UNIX_EPOCH.elapsed().unwrap().subsec_nanos());
        println!("seed {seed}");
        Random(seed)
    }

    fn said(bytes: &[u8]) -> String {
        bytes.escape_ascii().to_string()
    }

    pub fn answers_are_those_of_redis() {
        beside(|one, other, _| {
            let mut random = random();
            let (mut refused, requests) = (0, 8000);
            for number in 0..requests {
                let words = words(&mut random);
                let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
                let replies = [&mut *one, &mut *other].map(|client| said(&client.ask(&words)));
                if replies[0].starts_with("-ERR xk: ") {
                    // It says so, and has changed nothing.
                    refused += 1;
                    one.ask(&[b"DEL", words[1]]);
                    other.ask(&[b"DEL", words[1]]);
                    continue;
                }
                assert_eq!(replies[0], replies[1], "request {number}: {}", said(&request(&words)));
            }
            println!("{refused} requests were refused");
            assert!(refused < requests / 20, "{refused}");
            // Also where members are in the same chains.
            assert_eq!(one.ask(&[b"FLUSHALL"]), b"+OK\r\n");
            for key in ["s", "z", "h"].iter().flat_map(|kind| (0..8).map(move |number| format!("{kind}{number}"))) {
                assert_eq!(one.ask(&[b"EXISTS", key.as_bytes()]), b":0\r\n", "{key}");
            }
        });
    }

    pub fn replies_are_in_order_however_requests_are_split() {
        beside(|one, other, _| {
            let mut random = random();
            for round in 0..400 {
                // Now and then only what the kernel answers, so that it answers again.
                let share = random.pick(&[0, 0, 1, 3, 10]);
                let requests: Vec<Vec<u8>> = (0..1 + random.below(30))
                    .map(|_| {
                        let is_other = random.below(10) < share;
                        let words = if is_other { others(&mut random) } else { plain(&mut random) };
                        request(&words.iter().map(Vec::as_slice).collect::<Vec<_>>())
                    })
                    .collect();
                let all = requests.concat();
                other.send(&all);
                let mut left = all.as_slice();
                while !left.is_empty() {
                    let length = 1 + random.below(random_length(left.len(), round));
                    one.send(&left[..length]);
                    left = &left[length..];
                }
                for (number, asked) in requests.iter().enumerate() {
                    let replies = [&mut *one, &mut *other].map(|client| said(&client.reply()));
                    assert_eq!(replies[0], replies[1], "round {round}, request {number}: {}", said(asked));
                }
            }
        });
    }

    pub fn a_key_is_of_one_of_the_two() {
        beside(|one, _, _| {
            let mut behind = Client::new(BEHIND);
            let is = |client: &mut Client, words: &[&str], reply: &str| {
                let words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
                assert_eq!(said(&client.ask(&words)), format!("{reply}\\r\\n"), "{words:?}");
            };
            is(one, &["SET", "here", "1"], "+OK");
            is(&mut behind, &["EXISTS", "here"], ":0");
            is(one, &["LPUSH", "there", "1"], ":1");
            is(&mut behind, &["TYPE", "there"], "+list");
            // Commands for other types, for keys of both, and of what the kernel does not do with its keys.
            is(one, &["GET", "there"], "-WRONGTYPE Operation against a key holding the wrong kind of value");
            is(one, &["LPUSH", "here", "1"], "-WRONGTYPE Operation against a key holding the wrong kind of value");
            is(
                one,
                &["APPEND", "here", "2"],
                "-ERR xk: APPEND with these words is not served for here, which the kernel holds",
            );
            is(one, &["EXISTS", "here", "there", "nowhere"], ":2");
            is(one, &["KEYS", "*"], "-ERR xk: KEYS is not served: it would not see the keys in the kernel");
            is(one, &["DEL", "here", "there"], ":2");
            is(&mut behind, &["DBSIZE"], ":0");
            // A key that went is redis-server's still.
            is(one, &["SET", "there", "2"], "+OK");
            is(&mut behind, &["GET", "there"], "$1\\r\\n2");
            is(one, &["SELECT", "1"], "-ERR xk: only database 0 is served");
            is(one, &["HELLO", "3"], "-NOPROTO unsupported protocol version");
            is(one, &["FLUSHALL"], "+OK");
            is(one, &["SET", "there", "3"], "+OK");
            is(&mut behind, &["EXISTS", "there"], ":0");
        });
    }

    pub fn a_run_that_is_ended_breaks_its_connection() {
        beside(|one, _, object| {
            assert_eq!(one.ask(&[b"SET", b"key", b"1"]), b"+OK\r\n");
            Control { deadline: None, terminate: true, ..Control::default() }.tell(object).unwrap();
            // A long chain of requests looks at some time.
            let mut many = Client::new(PORT);
            many.send(&request(&[b"GET", b"key"]).repeat(20_000));
            wait_for("it is closed", || many.is_closed());
            Control { deadline: None, ..Control::default() }.tell(object).unwrap();
            assert!(!take_ended(object).unwrap().is_empty());
            assert_eq!(Client::new(PORT).ask(&[b"GET", b"key"]), b"$1\r\n1\r\n", "other connections go on");
        });
    }

    fn random_length(most: usize, round: usize) -> usize {
        if round % 3 == 0 {
            most
        } else {
            most.min(200)
        }
    }

    /// A request that the kernel or the server may answer, and that is never refused.
    fn plain(random: &mut Random) -> Vec<Vec<u8>> {
        loop {
            let words = words(random);
            let odd = |word: &Vec<u8>| [&b"-0"[..], b"9223372036854775807", b""].contains(&word.as_slice());
            // Sums of such scores are refused.
            let is_large = |word: &Vec<u8>| word.windows(4).any(|some| some == b"9007");
            if !words.iter().any(|word| odd(word) || is_large(word)) {
                return words;
            }
        }
    }
}
