//! The server of `bpf/servers/redis.bpf.c` in a guest, in front of Debian's redis-server, beside another redis-server: both
//! get the same requests, and must answer the same, byte for byte.

#![allow(clippy::unwrap_used, clippy::expect_used)] // a test

mod redis_requests;

use std::fs;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use libbpf_rs::{Link, Object};
use xk_flex::{attach, load, take_ended, Choice, Control, Heap, Limits};
use xk_policy::{compile, Headers};
use xk_redis::Front;
use xk_testing::guest::{boot, file, info, modules, passed, repository, run, wait_for, XK_KO};
use xk_testing::Random;

use redis_requests::client::{request, Client};
use redis_requests::{moving, others, words};

/// The compiled object. Set in the guest only.
const OBJECT: &str = "XK_TEST_OBJECT";
/// Debian's redis-tools contain the server under this name.
const SERVER: &str = "/usr/bin/redis-check-rdb";

xk_testing::guest_tests! {
    answers_are_those_of_redis,
    replies_are_in_order_however_requests_are_split,
    transactions_and_databases_are_those_of_redis,
    a_key_is_of_one_of_the_two,
    what_others_do_meanwhile_is_not_lost_when_a_key_moves,
    a_large_value_moves_as_a_whole,
    a_client_may_listen_and_ask,
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

    /// Asks both for the same, who must answer the same.
    fn both(one: &mut Client, other: &mut Client, number: usize, words: &[Vec<u8>]) {
        let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
        let replies = [one, other].map(|client| said(&client.ask(&words)));
        assert_eq!(replies[0], replies[1], "request {number}: {}", said(&request(&words)));
    }

    pub fn answers_are_those_of_redis() {
        beside(|one, other, _| {
            let mut random = random();
            for number in 0..8000 {
                // Keys that have moved stay with redis-server until all are dropped.
                let words = match random.below(60) {
                    0 => moving(&mut random),
                    1 if random.below(5) == 0 => vec![b"FLUSHALL".to_vec()],
                    _ => words(&mut random),
                };
                both(one, other, number, &words);
            }
            // Also where members are in the same chains.
            assert_eq!(one.ask(&[b"FLUSHALL"]), b"+OK\r\n");
            for key in ["s", "z", "h"].iter().flat_map(|kind| (0..8).map(move |number| format!("{kind}{number}"))) {
                assert_eq!(one.ask(&[b"EXISTS", key.as_bytes()]), b":0\r\n", "{key}");
            }
        });
    }

    pub fn transactions_and_databases_are_those_of_redis() {
        beside(|one, other, _| {
            let mut random = random();
            let mut queued = false;
            for number in 0..4000 {
                let words: Vec<Vec<u8>> = match random.below(30) {
                    0..=1 => vec![b"MULTI".to_vec()],
                    2..=4 => vec![random.pick(&["EXEC", "EXEC", "DISCARD"]).into()],
                    5 => vec![b"WATCH".to_vec(), format!("s{}", random.below(8)).into()],
                    6 if !queued => vec![b"SELECT".to_vec(), random.pick(&["0", "0", "1", "99"]).into()],
                    7 if !queued => vec![b"MOVE".to_vec(), format!("s{}", random.below(8)).into(), b"0".to_vec()],
                    8 => vec![random.pick(&["RESET", "FLUSHDB", "FLUSHALL", "UNWATCH"]).into()],
                    9..=12 => moving(&mut random),
                    _ => words(&mut random),
                };
                match words[0].to_ascii_uppercase().as_slice() {
                    // They are refused.
                    b"FLUSHALL" | b"FLUSHDB" if queued => continue,
                    b"MULTI" => queued = true,
                    b"EXEC" | b"DISCARD" | b"RESET" => queued = false,
                    _ => {}
                }
                both(one, other, number, &words);
            }
        });
    }

    pub fn what_others_do_meanwhile_is_not_lost_when_a_key_moves() {
        /// Clients, and how often each changes a key.
        const MANY: usize = 3;
        const TURNS: usize = 60;
        beside(|one, _, _| {
            for round in 0..40 {
                let text =
                    |words: &[&str]| -> Vec<Vec<u8>> { words.iter().map(|word| word.as_bytes().into()).collect() };
                let key = format!("k{round}");
                let (change, read, moves) = match round % 3 {
                    0 => (text(&["INCR", &key]), text(&["GET", &key]), text(&["GETRANGE", &key, "0", "-1"])),
                    1 => (
                        text(&["ZINCRBY", &key, "1", "m"]),
                        text(&["ZSCORE", &key, "m"]),
                        text(&["ZMSCORE", &key, "m"]),
                    ),
                    _ => (text(&["HINCRBY", &key, "f", "1"]), text(&["HGET", &key, "f"]), text(&["HSCAN", &key, "0"])),
                };
                let ask = |client: &mut Client, words: &[Vec<u8>]| {
                    client.ask(&words.iter().map(Vec::as_slice).collect::<Vec<_>>())
                };
                // Another key, which was there before, is seen by requests of several.
                one.ask(&[b"SET", b"there", b"1"]);
                ask(one, &change);
                std::thread::scope(|scope| {
                    for _ in 0..MANY {
                        scope.spawn(|| {
                            let mut client = Client::new(PORT);
                            (0..TURNS).for_each(|_| assert_ne!(ask(&mut client, &change)[0], b'-'));
                        });
                    }
                    scope.spawn(|| {
                        let mut client = Client::new(PORT);
                        let seen = b"*2\r\n$1\r\n1\r\n$1\r\n1\r\n";
                        (0..TURNS).for_each(|_| assert_eq!(client.ask(&[b"MGET", b"there", b"there"]), seen));
                    });
                    let mut client = Client::new(PORT);
                    std::thread::sleep(Duration::from_micros(500 * round));
                    ask(&mut client, &moves);
                    client.ask(&[b"GETRANGE", b"there", b"0", b"-1"]);
                });
                let sum = (MANY * TURNS + 1).to_string();
                assert_eq!(ask(one, &read), format!("${}\r\n{sum}\r\n", sum.len()).into_bytes(), "{key}");
                if round % 10 == 9 {
                    one.ask(&[b"FLUSHALL"]);
                }
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
            // Commands for another type, and for keys of both.
            is(one, &["GET", "there"], "-WRONGTYPE Operation against a key holding the wrong kind of value");
            is(one, &["EXISTS", "here", "there", "nowhere"], ":2");
            is(&mut behind, &["EXISTS", "here"], ":0");
            // What the kernel does not do moves a key, with its time.
            is(one, &["PEXPIRE", "here", "9000000"], ":1");
            is(one, &["APPEND", "here", "2"], ":2");
            is(&mut behind, &["GET", "here"], "$2\\r\\n12");
            is(one, &["PERSIST", "here"], ":1");
            is(&mut behind, &["PTTL", "here"], ":-1");
            // What redis-server does not take stays, and the client is told.
            is(one, &["SET", "stays", "1"], "+OK");
            is(&mut behind, &["CONFIG", "SET", "maxmemory", "1"], "+OK");
            let refusal = said(&one.ask(&[b"APPEND", b"stays", b"2"]));
            is(&mut behind, &["CONFIG", "SET", "maxmemory", "0"], "+OK");
            assert!(refusal.starts_with("-ERR xk: stays cannot be handed to redis-server: OOM "), "{refusal}");
            is(one, &["GETSET", "nothing", "1"], "$-1");
            is(&mut behind, &["EXISTS", "stays"], ":0");
            is(one, &["INCR", "stays"], ":2");
            is(one, &["DEL", "stays", "nothing"], ":2");
            // So do commands of two words.
            is(one, &["SET", "number", "7"], "+OK");
            is(one, &["OBJECT", "encoding", "number"], "$3\\r\\nint");
            is(&mut behind, &["DEL", "number"], ":1");
            // One whose time is over does not.
            is(one, &["SET", "gone", "1", "PX", "1"], "+OK");
            std::thread::sleep(Duration::from_millis(5));
            is(one, &["APPEND", "gone", "2"], ":1");
            // What would not see the kernel's keys is refused.
            is(one, &["KEYS", "*"], "-ERR xk: KEYS is not served: it would not see the keys in the kernel");
            // So is what may not be done, and a transaction with it.
            is(one, &["MULTI"], "+OK");
            is(one, &["SET", "here", "3"], "+QUEUED");
            is(one, &["FLUSHALL"], "-ERR xk: FLUSHALL is not served in a transaction");
            is(one, &["EXEC"], "-EXECABORT Transaction discarded because of previous errors.");
            is(one, &["GET", "here"], "$2\\r\\n12");
            is(one, &["DEL", "here", "there", "gone"], ":3");
            is(&mut behind, &["DBSIZE"], ":0");
            // A key that went is redis-server's still.
            is(one, &["SET", "there", "2"], "+OK");
            is(&mut behind, &["GET", "there"], "$1\\r\\n2");
            is(one, &["FLUSHALL"], "+OK");
            is(one, &["SET", "there", "3"], "+OK");
            is(&mut behind, &["EXISTS", "there"], ":0");
        });
    }

    pub fn a_large_value_moves_as_a_whole() {
        beside(|one, _, _| {
            let mut behind = Client::new(BEHIND);
            for number in 0..5000_u32 {
                let [member, score] = [format!("m{number}"), (number % 77).to_string()];
                one.send(&request(&[b"ZADD", b"z", score.as_bytes(), member.as_bytes()]));
                one.send(&request(&[b"HSET", b"h", member.as_bytes(), score.as_bytes()]));
            }
            (0..10_000).for_each(|_| assert_eq!(one.reply(), b":1\r\n"));
            let all = one.ask(&[b"ZRANGE", b"z", b"0", b"-1", b"WITHSCORES"]);
            assert_eq!(one.ask(&[b"ZMSCORE", b"z", b"m1"]), b"*1\r\n$1\r\n1\r\n");
            assert!(behind.ask(&[b"ZRANGE", b"z", b"0", b"-1", b"WITHSCORES"]) == all, "the sets differ");
            assert_eq!(one.ask(&[b"HRANDFIELD", b"h", b"0"]), b"*0\r\n");
            assert_eq!(behind.ask(&[b"HLEN", b"h"]), b":5000\r\n");
            assert_eq!(behind.ask(&[b"HGET", b"h", b"m4999"]), b"$2\r\n71\r\n");
            // A request that is longer than what the kernel works on, in many packets.
            let value = b"0123456789abcdef".repeat(4 << 16);
            for piece in request(&[b"SET", b"s", &value]).chunks(4096) {
                one.send(piece);
            }
            assert_eq!(one.reply(), b"+OK\r\n");
            assert!(one.ask(&[b"GET", b"s"]).len() > value.len());
        });
    }

    pub fn a_client_may_listen_and_ask() {
        beside(|one, _, _| {
            assert_eq!(one.ask(&[b"SET", b"s", b"abc"]), b"+OK\r\n");
            let mut listens = Client::new(PORT);
            assert_eq!(listens.ask(&[b"HELLO", b"3"])[0], b'%');
            assert_eq!(listens.ask(&[b"GET", b"s"]), b"$3\r\nabc\r\n", "the key has moved");
            assert_eq!(listens.ask(&[b"HSET", b"h", b"f", b"1"]), b":1\r\n");
            assert_eq!(listens.ask(&[b"HGETALL", b"h"]), b"%1\r\n$1\r\nf\r\n$1\r\n1\r\n");
            assert_eq!(one.ask(&[b"SET", b"u", b"5"]), b"+OK\r\n");
            assert_eq!(listens.ask(&[b"MULTI"]), b"+OK\r\n");
            assert_eq!(listens.ask(&[b"INCR", b"u"]), b"+QUEUED\r\n");
            assert_eq!(listens.ask(&[b"EXEC"]), b"*1\r\n:6\r\n");
            assert!(listens.ask(&[b"DBSIZE"]).starts_with(b"-ERR unknown command 'xk: DBSIZE is not served"));
            let mut client = Client::new(PORT);
            assert_eq!(client.ask(&[b"SUBSCRIBE", b"c"]), b"*3\r\n$9\r\nsubscribe\r\n$1\r\nc\r\n:1\r\n");
            assert_eq!(one.ask(&[b"PUBLISH", b"c", b"x"]), b":1\r\n");
            assert_eq!(client.reply(), b"*3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$1\r\nx\r\n");
            assert_eq!(client.ask(&[b"UNSUBSCRIBE"]), b"*3\r\n$11\r\nunsubscribe\r\n$1\r\nc\r\n:0\r\n");
            assert_eq!(one.ask(&[b"SET", b"t", b"1"]), b"+OK\r\n");
            assert_eq!(client.ask(&[b"GET", b"t"]), b"$1\r\n1\r\n", "this one, too");
            assert_eq!(one.ask(&[b"INCR", b"t"]), b":2\r\n");
            assert_eq!(client.ask(&[b"QUIT"]), b"+OK\r\n");
            assert!(client.is_closed());
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
