//! The server of `bpf/servers/memcached_tcp.bpf.c` in a guest, in front of Debian's memcached, beside another memcached: both
//! get the same requests, and must answer the same, byte for byte.

#![allow(clippy::unwrap_used, clippy::expect_used)] // a test

mod served;

use std::fs;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::OnceLock;
use std::thread;

use xk_flex::{take_ended, Control};
use xk_policy::{compile, Headers};
use xk_testing::guest::{boot, file, info, modules, output_of, passed, repository, run, wait_for, XK_KO};
use xk_testing::memcached::request;
use xk_testing::Random;

use served::{beside, Client, BEHIND, PORT, REFERENCE};

/// The compiled object, and the program of Debian's server. Set in the guest only.
const OBJECT: &str = "XK_TEST_OBJECT";
const SERVER: &str = "XK_TEST_SERVER";

xk_testing::guest_tests! {
    answers_are_those_of_memcached,
    replies_are_in_order_however_requests_are_split,
    values_of_all_lengths_are_kept,
    a_key_is_of_one_of_the_two,
    what_memcached_had_before_is_not_seen,
    numbers_of_items_are_never_those_of_others,
    a_time_moves_with_its_item,
    nothing_is_lost_while_keys_move,
    the_binary_protocol_sees_the_same_items,
    what_both_have_counted_is_added,
    a_run_that_is_ended_breaks_its_connection,
}

fn guest_output() -> &'static str {
    static OUTPUT: OnceLock<String> = OnceLock::new();
    OUTPUT.get_or_init(|| {
        let folder = tempfile::tempdir().unwrap();
        let types = format!("{}/usr/src/linux-headers-{}/vmlinux", info("root"), info("release"));
        let headers = Headers::new(types.as_ref(), folder.path(), &info("release")).unwrap();
        let object = folder.path().join("memcached_tcp.bpf.o");
        let compiled = compile(&repository().join("bpf/servers/memcached_tcp.bpf.c"), &headers);
        fs::write(&object, compiled.unwrap_or_else(|error| panic!("{error}"))).unwrap();
        let server = output_of(Command::new("scripts/unpack").arg("memcached"));
        let modules = modules(&[(XK_KO, "kernel/xk")]);
        boot(1200, &format!("{OBJECT}={} {SERVER}={server}/usr/bin/memcached {modules}", object.display()))
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

fn random() -> Random {
    let seed = u64::from(std::process::id()) << 32 ^ u64::from(std::time::UNIX_EPOCH.elapsed().unwrap().subsec_nanos());
    println!("seed {seed}");
    Random(seed | 1)
}

/// A value that does not contain the end of a reply, nor of a line in its middle more often than others.
fn value(random: &mut Random, length: usize) -> Vec<u8> {
    (0..length).map(|_| random.below(256) as u8).collect()
}

fn store(how: &str, key: &str, value: &[u8]) -> Vec<u8> {
    [format!("{how} {key} 0 0 {}\r\n", value.len()).as_bytes(), value, b"\r\n"].concat()
}

/// A request that only memcached answers, or one with a long value.
fn foreign(random: &mut Random) -> Vec<u8> {
    let key = format!("key:{}", 13 + random.below(27));
    let length = random.below(20_000);
    let bytes = value(random, length);
    match random.below(12) {
        0 => format!("mg {key} v f s\r\n").into_bytes(),
        1 => format!("mg {key} v q\r\n").into_bytes(),
        2 => [format!("ms {key} {} T0 F7\r\n", bytes.len()).as_bytes(), &bytes, b"\r\n"].concat(),
        3 => format!("md {key} q\r\n").into_bytes(),
        4 => format!("ma {key} v\r\n").into_bytes(),
        5 => b"verbosity 1\r\n".to_vec(),
        6 => b"version\r\n".to_vec(),
        7 => store("append", &key, &bytes),
        8 => store("prepend", &key, &bytes),
        _ => store("set", &key, &bytes),
    }
}

/// The numbers of items are not the same: each server gets its own, or one that no item has.
fn with_number(client: &mut Client, asked: &[u8], right: bool) -> Vec<u8> {
    let line = asked.split(|byte| *byte == b'\n').next().unwrap();
    let words: Vec<String> = String::from_utf8_lossy(line).split(' ').map(|word| word.trim_end().to_owned()).collect();
    if words[0] != "cas" || !(6..=7).contains(&words.len()) || words[5].parse::<u64>().is_err() {
        return asked.to_vec();
    }
    let found = client.ask(format!("gets {}\r\n", words[1]).as_bytes());
    let number = String::from_utf8_lossy(&found)
        .split("\r\n")
        .next()
        .and_then(|head| head.starts_with("VALUE").then(|| head.rsplit(' ').next().unwrap().to_owned()));
    let mut words = words;
    words[5] = number.filter(|_| right).unwrap_or("7777777".into());
    [words.join(" ").as_bytes(), b"\r\n", &asked[line.len() + 1..]].concat()
}

/// A reply without the numbers of items, if there is an item.
fn without_numbers(reply: &[u8], asked: &[u8]) -> Vec<u8> {
    if !asked.windows(5).any(|some| some == b"gets " || some == b"gats ") {
        return reply.to_vec();
    }
    let (mut kept, mut at) = (Vec::new(), 0);
    while let Some(length) = reply[at..].windows(2).position(|pair| pair == b"\r\n") {
        let line = &reply[at..at + length];
        let words: Vec<&[u8]> = line.split(|byte| *byte == b' ').collect();
        let is_item = words.len() == 5 && words[0] == b"VALUE";
        let value = if is_item { String::from_utf8_lossy(words[3]).parse::<usize>().unwrap() + 2 } else { 0 };
        kept.extend(if is_item { words[..4].join(&b' ') } else { line.to_vec() });
        kept.extend(&reply[at + length..at + length + 2 + value]);
        at += length + 2 + value;
    }
    kept
}

mod checks {
    use super::*;

    pub fn answers_are_those_of_memcached() {
        beside(|one, other, _| {
            let mut random = random();
            for number in 0..8000 {
                let mut asked = if random.below(25) == 0 { foreign(&mut random) } else { request(&mut random) };
                // What has no end would wait for what follows.
                if !asked.ends_with(b"\n") {
                    asked.extend(b"\r\n");
                }
                let right = random.below(2) == 0;
                let [mine, theirs] = [&mut *one, other].map(|client| {
                    let own = with_number(client, &asked, right);
                    without_numbers(&client.ask(&own), &asked)
                });
                let texts = [&mine, &theirs].map(|reply| reply.escape_ascii().to_string());
                assert_eq!(texts[0], texts[1], "request {number}: {}", asked.escape_ascii());
            }
        });
    }

    pub fn replies_are_in_order_however_requests_are_split() {
        beside(|one, other, _| {
            let mut random = random();
            for round in 0..100 {
                let mut asked = Vec::new();
                for _ in 0..40 {
                    let some = if random.below(20) == 0 { foreign(&mut random) } else { request(&mut random) };
                    if some.ends_with(b"\n")
                        && ![&b"cas"[..], b"gets", b"gats"].iter().any(|name| some.starts_with(name))
                    {
                        asked.extend(some);
                    }
                }
                // One of several commands has numbers. And memcached forgets replies that it has not sent when a key of `get`
                // is too long.
                let is_long = asked.windows(251).any(|some| some == [b'3'; 251]);
                if is_long || asked.windows(5).any(|some| some == b"gets ") {
                    continue;
                }
                let theirs = other.ask(&asked);
                let mut rest = asked.as_slice();
                while !rest.is_empty() {
                    let length = (1 + random.below(if round % 2 == 0 { 9000 } else { 40 })).min(rest.len());
                    one.send(&rest[..length]);
                    rest = &rest[length..];
                }
                let texts = [one.ask(b""), theirs].map(|reply| reply.escape_ascii().to_string());
                assert_eq!(texts[0], texts[1], "{}", asked.escape_ascii());
            }
        });
    }

    pub fn values_of_all_lengths_are_kept() {
        beside(|one, _, _| {
            let mut random = random();
            let mut lengths =
                vec![0, 1, 7100, 7167, 7168, 7169, 7400, 7500, 7520, 7530, 7545, 7560, 8000, 8064, 8065, 100_000];
            lengths.extend((0..40).map(|_| random.below(9000)));
            for length in lengths {
                let bytes = value(&mut random, length);
                let asked = store("set", "some", &bytes);
                // In two packets, of which the first one may fill the memory of the kernel's program.
                let first =
                    [asked.len() - 1, asked.len().saturating_sub(100).max(1), 1 + random.below(asked.len() - 1)];
                let first = random.pick(&first);
                println!("{length} bytes, {first} of them first");
                one.send(&asked[..first]);
                thread::sleep(std::time::Duration::from_millis(3));
                assert_eq!(one.ask(&asked[first..]), b"STORED\r\n", "{length} bytes, {first} of them first");
                let head = format!("VALUE some 0 {length}\r\n");
                assert_eq!(one.ask(b"get some\r\n"), [head.as_bytes(), &bytes, b"\r\nEND\r\n"].concat(), "{length}");
            }
            // memcached refuses a longer one, and drops what there was.
            one.send(b"set some 0 0 9000000\r\n");
            let piece = vec![b'x'; 1 << 20];
            let mut left: usize = 9_000_002;
            while left > 0 {
                let length = left.min(piece.len());
                one.send(&piece[..length]);
                left -= length;
            }
            assert_eq!(one.told("get some\r\n"), "SERVER_ERROR object too large for cache\r\nEND\r\n");
        });
    }

    pub fn a_key_is_of_one_of_the_two() {
        beside(|one, _, _| {
            let mut behind = Client::new(BEHIND);
            one.ask(b"set a 5 0 1\r\n1\r\nset b 0 0 1\r\n2\r\nset c 0 0 1\r\n3\r\n");
            assert_eq!(behind.told("get a b c\r\n"), "END\r\n", "they are in the kernel");
            assert_eq!(one.told("mg b v\r\n"), "VA 1\r\n2\r\n");
            assert_eq!(behind.told("get a b c\r\n"), "VALUE b 0 1\r\n2\r\nEND\r\n", "one has moved");
            // Of both, in any order, in the middle of what the kernel answers.
            let all = "VALUE a 5 1\r\n1\r\nVALUE b 0 1\r\n2\r\nVALUE c 0 1\r\n3\r\nEND\r\n";
            assert_eq!(one.told("get a b c\r\n"), all);
            assert_eq!(one.told("get x b a y\r\nget a\r\n").matches("VALUE").count(), 3);
            assert_eq!(one.told("incr b 5\r\nincr a 5\r\n"), "7\r\n6\r\n");
            assert_eq!(behind.told("get a b\r\n"), "VALUE b 0 1\r\n7\r\nEND\r\n");
            // What does not look at the item makes the key the kernel's again.
            assert_eq!(one.told("set b 0 0 2\r\n10\r\n"), "STORED\r\n");
            assert_eq!(behind.told("get b\r\n"), "VALUE b 0 1\r\n7\r\nEND\r\n", "nobody sees it any more");
            assert_eq!(one.told("get b\r\nincr b 1\r\n"), "VALUE b 0 2\r\n10\r\nEND\r\n11\r\n");
            assert_eq!(one.told("delete b\r\nget b\r\n"), "DELETED\r\nEND\r\n");
            // What others have put in memcached's place is not seen either.
            assert_eq!(one.told("mg b v\r\nadd b 0 0 1\r\n9\r\n"), "EN\r\nSTORED\r\n");
        });
    }

    pub fn what_memcached_had_before_is_not_seen() {
        beside(|one, _, _| {
            let mut behind = Client::new(BEHIND);
            assert_eq!(behind.told("set old 0 0 1\r\n1\r\n"), "STORED\r\n");
            assert_eq!(one.told("get old\r\nmg old v\r\nadd old 0 0 1\r\n2\r\n"), "END\r\nEN\r\nSTORED\r\n");
            assert_eq!(one.told("flush_all\r\nget old\r\n"), "OK\r\nEND\r\n");
            assert_eq!(behind.told("get old\r\n"), "END\r\n");
            assert_eq!(one.told("set old 0 0 1\r\n3\r\nflush_all noreply\r\nget old\r\n"), "STORED\r\nEND\r\n");
        });
    }

    pub fn numbers_of_items_are_never_those_of_others() {
        beside(|one, _, _| {
            let number = |one: &mut Client, key: &str| {
                let reply = one.told(&format!("gets {key}\r\n"));
                reply.split("\r\n").next().unwrap().rsplit(' ').next().unwrap().parse::<u64>().unwrap()
            };
            for round in 0..200 {
                assert_eq!(one.told("set n 0 0 1\r\n1\r\n"), "STORED\r\n");
                let here = number(one, "n");
                one.ask(b"mg n v\r\n");
                let there = number(one, "n");
                assert!(here >> 62 == 1 && there >> 62 == 0, "round {round}: {here}, {there}");
                assert_eq!(one.told(&format!("cas n 0 0 1 {here}\r\n2\r\n")), "EXISTS\r\n");
                assert_eq!(one.told(&format!("cas n 0 0 1 {there}\r\n2\r\n")), "STORED\r\n");
            }
        });
    }

    pub fn a_time_moves_with_its_item() {
        beside(|one, _, _| {
            one.ask(
                b"set short 0 3 1\r\n1\r\nset long 0 10000 1\r\n2\r\nset never 0 0 1\r\n3\r\nset past 0 -1 1\r\n4\r\n",
            );
            let left = |one: &mut Client, key: &str| one.told(&format!("mg {key} t\r\n")).trim_end().to_owned();
            let long: i64 = left(one, "long").strip_prefix("HD t").unwrap().parse().unwrap();
            // memcached's clock is a little behind.
            assert!((9900..=10_010).contains(&long), "{long}");
            assert_eq!(left(one, "never"), "HD t-1");
            assert_eq!(left(one, "past"), "EN");
            left(one, "short");
            wait_for("its time is over", || one.told("get short\r\n") == "END\r\n");
        });
    }

    /// Three clients count, while another one makes keys memcached's, and a fifth one asks for several at once.
    pub fn nothing_is_lost_while_keys_move() {
        beside(|one, _, _| {
            for round in 0..20 {
                let key = format!("count{round}");
                assert_eq!(one.ask(&store("set", &key, b"0")), b"STORED\r\n");
                let is_over = AtomicBool::new(false);
                thread::scope(|scope| {
                    let counts: Vec<_> = (0..3)
                        .map(|_| {
                            scope.spawn(|| {
                                let mut client = Client::new(PORT);
                                (0..60).for_each(|_| {
                                    let reply = client.told(&format!("incr {key} 1\r\n"));
                                    reply.trim_end().parse::<u64>().unwrap_or_else(|_| panic!("{reply}"));
                                });
                            })
                        })
                        .collect();
                    scope.spawn(|| {
                        let mut client = Client::new(PORT);
                        while !is_over.load(Ordering::Relaxed) {
                            let reply = client.told(&format!("get other {key} none\r\n"));
                            assert_eq!(reply.matches("VALUE").count(), 1, "{reply}");
                        }
                    });
                    let reply = Client::new(PORT).told(&format!("mg {key} v\r\n"));
                    assert!(reply.starts_with("VA "), "{reply}");
                    counts.into_iter().for_each(|thread| thread.join().unwrap());
                    is_over.store(true, Ordering::Relaxed);
                });
                assert_eq!(one.told(&format!("get {key}\r\n")), format!("VALUE {key} 0 3\r\n180\r\nEND\r\n"));
            }
        });
    }

    /// A request with its extras, its key and its value.
    fn binary(operation: u8, extras: &[u8], key: &[u8], value: &[u8]) -> Vec<u8> {
        let body = (extras.len() + key.len() + value.len()) as u32;
        let mut bytes = vec![0x80, operation];
        bytes.extend((key.len() as u16).to_be_bytes());
        bytes.extend([extras.len() as u8, 0, 0, 0]);
        bytes.extend(body.to_be_bytes());
        bytes.extend([0; 12]);
        [&bytes, extras, key, value].concat()
    }

    pub fn the_binary_protocol_sees_the_same_items() {
        beside(|one, _, _| {
            one.ask(b"set a 7 0 4\r\nkept\r\nset b 0 0 1\r\nx\r\n");
            let mut other = Client::new(PORT);
            // get, split in the middle of its key; set; noop, which is answered last.
            let asked =
                [binary(0, &[], b"a", &[]), binary(1, &[0; 8], b"b", b"new"), binary(10, &[], &[], &[])].concat();
            other.send(&asked[..24]);
            thread::sleep(std::time::Duration::from_millis(3));
            other.send(&asked[24..]);
            let mut noop = vec![0x81, 10];
            noop.extend([0; 22]);
            let reply = other.until(&noop);
            assert!(reply.windows(8).any(|some| some == b"\0\0\0\x07kept"), "{}", reply.escape_ascii());
            assert_eq!(one.told("get a b\r\n"), "VALUE a 7 4\r\nkept\r\nVALUE b 0 3\r\nnew\r\nEND\r\n");
            // flush
            other.send(&[binary(8, &[], &[], &[]), binary(10, &[], &[], &[])].concat());
            other.until(&noop);
            one.ask(b"set c 0 0 1\r\nx\r\n");
            assert_eq!(one.told("get a b\r\n"), "END\r\n");
        });
    }

    pub fn what_both_have_counted_is_added() {
        beside(|one, _, _| {
            let count = |one: &mut Client, name: &str| {
                let all = one.told("stats\r\n");
                let line = all.lines().find(|line| line.starts_with(&format!("STAT {name} "))).unwrap().to_owned();
                line.rsplit(' ').next().unwrap().parse::<u64>().unwrap()
            };
            let before = ["cmd_get", "get_hits"].map(|name| count(one, name));
            one.ask(b"set a 0 0 1\r\n1\r\nset b 0 0 1\r\n2\r\nmg b v\r\nget a b c\r\n");
            let after = ["cmd_get", "get_hits"].map(|name| count(one, name));
            let more = [0, 1].map(|at| after[at] - before[at]);
            // The meta command, three keys, and one that both were asked for.
            assert!(more[0] >= 4 && more[1] == 3, "{more:?}");
            assert!(one.told("stats items\r\n").ends_with("END\r\n"));
            assert!(one.told("version\r\n").starts_with("VERSION 1."));
        });
    }

    pub fn a_run_that_is_ended_breaks_its_connection() {
        beside(|one, _, object| {
            assert_eq!(one.told("set key 0 0 1\r\n1\r\n"), "STORED\r\n");
            Control { deadline: None, terminate: true, ..Control::default() }.tell(object).unwrap();
            // A long chain of requests looks at some time.
            let mut many = Client::new(PORT);
            many.send(&b"get key\r\n".repeat(20_000));
            wait_for("it is closed", || many.is_closed());
            Control { deadline: None, ..Control::default() }.tell(object).unwrap();
            assert!(!take_ended(object).unwrap().is_empty());
            assert_eq!(Client::new(PORT).told("get key\r\n"), "VALUE key 0 1\r\n1\r\nEND\r\n", "others go on");
        });
        assert!(Client::new(REFERENCE).told("version\r\n").starts_with("VERSION"));
    }
}
