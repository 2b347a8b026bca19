//! The server of `bpf/servers/redis.bpf.c` in a guest, in front of Debian's redis-server, beside another redis-server: both
//! get the same requests, and must answer the same, byte for byte.

#![allow(clippy::unwrap_used, clippy::expect_used)] // a test

mod redis_requests;

use std::collections::HashSet;
use std::fs;
use std::sync::OnceLock;
use std::time::Duration;

use xk_flex::{take_ended, Control};
use xk_policy::{compile, Headers};
use xk_testing::guest::{boot, file, info, modules, passed, repository, run, wait_for, XK_KO};

use redis_requests::client::{request, Client};
use redis_requests::{moving, others, plain, words};

/// The compiled object. Set in the guest only.
const OBJECT: &str = "XK_TEST_OBJECT";
/// Debian's redis-tools contain the server under this name.
const SERVER: &str = "/usr/bin/redis-check-rdb";

xk_testing::guest_tests! {
    answers_are_those_of_redis,
    replies_are_in_order_however_requests_are_split,
    a_request_may_fill_the_memory,
    transactions_and_databases_are_those_of_redis,
    a_key_is_of_one_of_the_two,
    what_would_not_see_keys_in_the_kernel_is_refused,
    what_others_do_meanwhile_is_not_lost_when_a_key_moves,
    a_large_value_moves_as_a_whole,
    a_client_may_listen_and_ask,
    what_is_no_request_ends_the_connection,
    requests_about_all_keys_see_those_of_both,
    each_key_is_seen_once_while_keys_move,
    keys_go_when_their_time_is_over,
    who_goes_while_waiting_takes_nothing,
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
    use redis_requests::served::{beside, both, random, said, scanned, sorted, BEHIND, PORT, REFERENCE};

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
                    let length = 1 + random.below(if round % 3 == 0 { left.len() } else { left.len().min(200) });
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

    fn is(client: &mut Client, words: &[&str], reply: &str) {
        let words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
        assert_eq!(said(&client.ask(&words)), format!("{reply}\\r\\n"), "{words:?}");
    }

    pub fn a_key_is_of_one_of_the_two() {
        beside(|one, _, _| {
            let mut behind = Client::new(BEHIND);
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
            // What may not be done is refused, and a transaction with it.
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

    pub fn what_would_not_see_keys_in_the_kernel_is_refused() {
        beside(|one, _, _| {
            is(
                one,
                &["CONFIG", "SET", "notify-keyspace-events", "KA"],
                "-ERR xk: notify-keyspace-events is not served: keys in the kernel cause none",
            );
            let tracking = "-ERR xk: CLIENT TRACKING with BCAST is not served: it would not see the keys in the kernel";
            is(one, &["client", "tracking", "on", "bcast"], tracking);
            is(one, &["SWAPDB", "0", "1"], "-ERR xk: SWAPDB is not served: it would not see the keys in the kernel");
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
            // One reply for each channel.
            let mut other = Client::new(PORT);
            assert_eq!(other.ask(&[b"UNSUBSCRIBE", b"c", b"d"]), b"*3\r\n$11\r\nunsubscribe\r\n$1\r\nc\r\n:0\r\n");
            assert_eq!(other.reply(), b"*3\r\n$11\r\nunsubscribe\r\n$1\r\nd\r\n:0\r\n");
            assert_eq!(one.ask(&[b"SET", b"t", b"1"]), b"+OK\r\n");
            assert_eq!(client.ask(&[b"GET", b"t"]), b"$1\r\n1\r\n", "this one, too");
            assert_eq!(one.ask(&[b"INCR", b"t"]), b":2\r\n");
            assert_eq!(client.ask(&[b"QUIT"]), b"+OK\r\n");
            assert!(client.is_closed());
        });
    }

    pub fn what_is_no_request_ends_the_connection() {
        let wrong =
            ["*a\r\n", "*02\r\n", "*-0\r\n", "*2147483648\r\n", "*1\r\n$-1\r\n", "*1\r\n$01\r\nx", "*1\r\n$a\r\n"];
        let wrong = [&wrong[..], &["*1\r\n#4\r\n", "*1\r\n$9999999999\r\n", "*01\r\n$4\r\nPING\r\n"]].concat();
        beside(|_, _, _| {
            for bytes in wrong {
                let begins = request(&[b"SET", b"s", b"0123456789"]);
                let replies = [PORT, REFERENCE].map(|port| {
                    let mut client = Client::new(port);
                    client.send(&[&begins, bytes.as_bytes()].concat());
                    assert_eq!(client.reply(), b"+OK\r\n");
                    let reply = said(&client.reply());
                    assert!(client.is_closed(), "{bytes:?}");
                    reply
                });
                assert_eq!(replies[0], replies[1], "{bytes:?}");
            }
        });
    }

    /// In two packets, of which the first one has more than the kernel's program works on at once, or nearly so much.
    pub fn a_request_may_fill_the_memory() {
        beside(|one, _, _| {
            let mut random = random();
            for round in 0..60 {
                let value = vec![b'a' + (round % 26) as u8; 7400 + random.below(800)];
                let asked = request(&[b"SET", b"long", &value]);
                let first = asked.len() - 1 - random.below(300);
                one.send(&asked[..first]);
                std::thread::sleep(Duration::from_millis(2));
                one.send(&asked[first..]);
                assert_eq!(one.reply(), b"+OK\r\n", "{} bytes, {first} of them first", asked.len());
                let wanted = [format!("${}\r\n", value.len()).as_bytes(), &value, b"\r\n"].concat();
                assert!(one.ask(&[b"GET", b"long"]) == wanted, "{} bytes, {first} of them first", asked.len());
            }
        });
    }

    pub fn requests_about_all_keys_see_those_of_both() {
        const PATTERNS: [&str; 12] =
            ["*", "s*", "?1", "[sz]?", "[^s]*", "*[0-4]", "h[3-1]", "\\s*", "s1", "", "*\\", "[s-"];
        beside(|one, other, _| {
            let mut random = random();
            for number in 0..3000 {
                let words = if random.below(20) == 0 { moving(&mut random) } else { words(&mut random) };
                both(one, other, number, &words);
                if number % 10 > 0 {
                    continue;
                }
                both(one, other, number, &[b"DBSIZE".to_vec()]);
                let letters: Vec<u8> = (0..random.below(6)).map(|_| random.pick(b"sz*?[]^-\\01")).collect();
                for pattern in [random.pick(&PATTERNS).as_bytes(), &letters] {
                    let [seen, wanted] = [&mut *one, &mut *other].map(|one| sorted(&one.ask(&[b"KEYS", pattern])));
                    assert_eq!(seen, wanted, "request {number}, pattern {}", said(pattern));
                    let count = (1 + random.below(40)).to_string();
                    let kind = random.pick(&[&b"string"[..], b"zset", b"HASH", b"list", b"other"]);
                    let options = [&b"MATCH"[..], pattern, b"COUNT", count.as_bytes(), b"TYPE", kind];
                    let options = &options[..2 * random.below(4)];
                    let [seen, wanted] = [&mut *one, &mut *other].map(|client| scanned(client, options));
                    assert_eq!(seen, wanted, "request {number}, {options:?}");
                }
                let random_key = one.ask(&[b"RANDOMKEY"]);
                let end = random_key.windows(2).position(|pair| pair == b"\r\n").unwrap() + 2;
                if random_key != b"$-1\r\n" {
                    let key = &random_key[end..random_key.len() - 2];
                    assert_eq!(other.ask(&[b"EXISTS", key]), b":1\r\n", "{}", said(key));
                }
                for wrong in
                    ["KEYS", "SCAN 0 COUNT", "SCAN x", "SCAN 0 COUNT 0", "DBSIZE 1", "RANDOMKEY 1", "SCAN 0 A 1"]
                {
                    both(one, other, number, &wrong.split(' ').map(Vec::from).collect::<Vec<_>>());
                }
            }
            // Each of few can be the random one.
            one.ask(&[b"FLUSHALL"]);
            assert_eq!(one.ask(&[b"RANDOMKEY"]), b"$-1\r\n");
            one.ask(&[b"MSET", b"here", b"1"]);
            (0..6).for_each(|number| assert_eq!(one.ask(&[b"SET", format!("k{number}").as_bytes(), b"1"]), b"+OK\r\n"));
            one.ask(&[b"APPEND", b"k3", b"2"]);
            let seen: HashSet<Vec<u8>> = (0..400).map(|_| one.ask(&[b"RANDOMKEY"])).collect();
            assert_eq!(seen.len(), 7);
            // In a transaction they would be asked when redis-server does what was queued.
            one.ask(&[b"MULTI"]);
            assert_eq!(one.ask(&[b"KEYS", b"*"]), b"-ERR xk: KEYS is not served in a transaction\r\n");
            one.ask(&[b"DISCARD"]);
        });
    }

    pub fn each_key_is_seen_once_while_keys_move() {
        const KEYS: usize = 300;
        beside(|one, _, _| {
            let names: Vec<String> = (0..KEYS).map(|number| format!("k{number}")).collect();
            let mut wanted = names.clone();
            wanted.sort();
            for _ in 0..3 {
                one.ask(&[b"FLUSHALL"]);
                names.iter().for_each(|name| assert_eq!(one.ask(&[b"SET", name.as_bytes(), b"1"]), b"+OK\r\n"));
                std::thread::scope(|scope| {
                    let moved = scope.spawn(|| {
                        let mut client = Client::new(PORT);
                        names
                            .iter()
                            .for_each(|name| assert_eq!(client.ask(&[b"APPEND", name.as_bytes(), b"2"]), b":2\r\n"));
                    });
                    let mut turns = 0;
                    while !moved.is_finished() || turns < 3 {
                        assert_eq!(sorted(&one.ask(&[b"KEYS", b"*"])), wanted);
                        assert_eq!(scanned(one, &[b"COUNT", b"50"]), wanted);
                        assert_eq!(one.ask(&[b"DBSIZE"]), format!(":{KEYS}\r\n").into_bytes());
                        turns += 1;
                    }
                });
            }
        });
    }

    pub fn keys_go_when_their_time_is_over() {
        beside(|one, _, _| {
            let mut behind = Client::new(BEHIND);
            for number in 0..500 {
                let key = format!("k{number}");
                let time = if number % 5 == 0 { "9000000" } else { "300" };
                assert_eq!(one.ask(&[b"SET", key.as_bytes(), b"1", b"PX", time.as_bytes()]), b"+OK\r\n");
                assert_eq!(one.ask(&[b"HSET", b"h", key.as_bytes(), b"1"]), b":1\r\n");
            }
            assert_eq!(one.ask(&[b"PEXPIRE", b"h", b"50"]), b":1\r\n");
            assert_eq!(one.ask(&[b"SET", b"stays", b"1", b"PX", b"5"]), b"+OK\r\n");
            assert_eq!(one.ask(&[b"PERSIST", b"stays"]), b":1\r\n");
            // Nobody asks for the keys: xk-redis drops them.
            wait_for("only 101 keys", || one.ask(&[b"DBSIZE"]) == b":101\r\n");
            assert_eq!(behind.ask(&[b"DBSIZE"]), b":0\r\n");
            assert_eq!(sorted(&one.ask(&[b"KEYS", b"k?"])), ["k0", "k5"]);
        });
    }

    pub fn who_goes_while_waiting_takes_nothing() {
        beside(|one, _, _| {
            let mut behind = Client::new(BEHIND);
            let mut waiting = |number: usize| {
                let wanted = format!("\r\nblocked_clients:{number}\r\n");
                let text =
                    |client: &mut Client| String::from_utf8_lossy(&client.ask(&[b"INFO", b"clients"])).into_owned();
                wait_for("clients that wait", || text(&mut behind).contains(&wanted));
            };
            let pops = request(&[b"BLPOP", b"list", b"0"]);
            let mut clients: Vec<Client> = (0..3).map(|_| Client::new(PORT)).collect();
            // Replies to what came before are not held up, and what comes behind is not done any more.
            clients[0].send(
                &[request(&[b"SET", b"before", b"1"]), pops.clone(), request(&[b"SET", b"behind", b"1"])].concat(),
            );
            assert_eq!(clients[0].reply(), b"+OK\r\n");
            clients[1].send(&pops);
            clients[2].send(&[request(&[b"HELLO", b"3"]), pops].concat());
            waiting(3);
            drop(clients);
            waiting(0);
            assert_eq!(one.ask(&[b"LPUSH", b"list", b"element"]), b":1\r\n");
            assert_eq!(one.ask(&[b"LRANGE", b"list", b"0", b"-1"]), b"*1\r\n$7\r\nelement\r\n");
            assert_eq!(one.ask(&[b"MGET", b"before", b"behind"]), b"*2\r\n$1\r\n1\r\n$-1\r\n");
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
}
