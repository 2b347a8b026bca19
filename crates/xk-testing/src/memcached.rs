//! Random requests in memcached's text protocol. Some are none.

use crate::Random;

fn key(random: &mut Random) -> String {
    let number = random.below(40);
    match number {
        // The longest ones, and one that is too long.
        0..=2 => format!("{number}").repeat(250),
        3 if random.below(4) == 0 => "3".repeat(251),
        // All that may be in a key.
        4 => "k\u{1}\tey\u{7f}\u{e4}".into(),
        5..=12 => "abcdefgh".repeat(3)[..number].into(),
        _ => format!("key:{number}"),
    }
}

fn value(random: &mut Random) -> Vec<u8> {
    let numbers = [
        "0",
        "9",
        "10",
        "99",
        " 7",
        "-0",
        "-5",
        "+3",
        "7 x",
        "12x",
        "",
        "\t8\n",
        "18446744073709551616",
        "- 1",
        "0x1",
        "7\0x",
    ];
    match random.below(4) {
        0 => random.pick(&numbers).into(),
        // Above half of the largest one, memcached looks for a sign behind the value, too.
        1 | 2 => (random.next_u64() >> random.below(60).max(2)).to_string().into_bytes(),
        _ => (0..random.below(120)).map(|_| random.below(256) as u8).collect(),
    }
}

const OTHERS: [&str; 53] = [
    "get\r\n",
    "nothing\r\n",
    "get  \r\n",
    "get a",
    "\r\n",
    "\n",
    " \r\n",
    "g\r\n",
    "GET a\r\n",
    "getx a\r\n",
    "gat\r\n",
    "gat 5\r\n",
    "gat x a\r\n",
    "gats 4294967296 a\r\n",
    "get key:20\n",
    "  get   key:20   key:21  \r\n",
    "get key:20\0 key:21\r\n",
    "get key:20\r \r\n",
    "set a 0 0\r\n",
    "set a 0 0 x\r\n",
    "set a 0 0 1 b c d\r\n",
    "set a b 0 1\r\nx\r\n",
    "set key:22 -1 0 1\r\nx\r\n",
    "set key:22 0 2147483648 1\r\nx\r\n",
    "set key:22 0 0 2\r\nabcd\r\n",
    "set key:22 0 0 1 again\r\nx\r\n",
    "set key:22 4294967296 0 1\r\nx\r\n",
    "set key:22 \t+7 -0 01\r\nx\r\n",
    "add key:23 0 0 -1\r\n",
    "cas key:23 0 0 1 x\r\nx\r\n",
    "cas key:23 0 0 1\r\nx\r\n",
    "incr key:24\r\n",
    "incr key:24 x\r\n",
    "decr key:24 -1\r\n",
    "incr key:24 18446744073709551616\r\n",
    "incr key:24 1 2\r\n",
    "delete\r\n",
    "delete key:25 1\r\n",
    "delete key:25 0\r\n",
    "touch key:26\r\n",
    "touch key:26 soon\r\n",
    "flush_all soon\r\n",
    "flush_any\r\n",
    "touch key:26 1 2 3\r\n",
    "get key:27\r\nget key:28\r\n",
    "set key:27 0 0 1\r\n7\r\nincr key:27 1\r\ngets key:27 key:28\r\n",
    "delete key:29 noreply\r\nadd key:29 1 0 2 noreply\r\nok\r\nget key:29\r\nget",
    "set key:30 0 0 x noreply\r\nget key:30\r\n",
    "add key:30 0 0 -1\r\nx\r\n",
    "set key:30 0 9223372036854775808 1\r\nx\r\n",
    "set key:30 0 -9223372036854775808 4294967297\r\nx\r\n",
    "set key:30 0 0 2147483647\r\nx\r\n",
    "gat -9223372036854775809 key:30\r\n",
];

/// The first line of a command that stores, with its value.
fn store(random: &mut Random, noreply: &str, exptime: &str) -> Vec<u8> {
    let mode = random.pick(&["set", "set", "set", "add", "replace", "append", "prepend", "cas"]);
    let (key, value) = (key(random), value(random));
    let cas = if mode == "cas" { format!(" {}", 1 + random.below(400)) } else { String::new() };
    let flags = random.pick(&["0", "1", "4294967295"]);
    let head = format!("{mode} {key} {flags} {exptime} {}{cas}{noreply}\r\n", value.len());
    if key.len() > 250 {
        // It is no command, and the value would be the next one.
        return head.into_bytes();
    }
    [head.as_bytes(), &value, b"\r\n"].concat()
}

/// A request.
pub fn request(random: &mut Random) -> Vec<u8> {
    let (key, other) = (key(random), key(random));
    let noreply = if random.below(12) == 0 { " noreply" } else { "" };
    let exptime = random.pick(&["0", "0", "0", "1000", "2592001", "-1", "4000000000", "2000000000"]);
    let text = match random.below(24) {
        0..=2 => format!("get {key}\r\n"),
        3 => format!("get {key} {other} nothing {key}\r\n"),
        4..=5 => format!("gets {other} {key}\r\n"),
        6 => format!("{} {exptime} {key} {other}\r\n", random.pick(&["gat", "gats"])),
        7 => format!("delete {key}{noreply}\r\n"),
        8 => format!("touch {key} {exptime}{noreply}\r\n"),
        9..=11 => match random.below(2) {
            0 => format!("incr {key} {}{noreply}\r\n", random.pick(&["1", "7", "0", "99999999999"])),
            _ => format!("decr {key} {}{noreply}\r\n", random.pick(&["1", "7", "0", "18446744073709551615"])),
        },
        12 if random.below(20) == 0 => format!("flush_all{noreply}\r\n"),
        13 => random.pick(&OTHERS).to_owned(),
        _ => return store(random, noreply, exptime),
    };
    text.into_bytes()
}
