//! Random requests in Redis' protocol. Some are none.

pub mod client;
pub mod served;

use xk_testing::Random;

type Word = Vec<u8>;

fn key(random: &mut Random, kind: &str) -> Word {
    match random.below(40) {
        0 => kind.repeat(512)[..512].into(),
        1 if "szh".contains(kind) => Word::new(),
        2 => [kind.as_bytes(), b"\0\r\n \xff"].concat(),
        // A key of another type.
        3..=4 if "szh".contains(kind) => format!("{}{}", random.pick(&["s", "z", "h"]), random.below(8)).into(),
        _ => format!("{kind}{}", random.below(8)).into(),
    }
}

fn integer(random: &mut Random) -> Word {
    let odd = [
        "9223372036854775807",
        "-9223372036854775808",
        "9223372036854775808",
        "",
        "-",
        "+1",
        " 1",
        "1 ",
        "01",
        "-0",
        "0",
        "1.5",
        "abc",
        "99999999999999999999999",
    ];
    match random.below(6) {
        0 => random.pick(&odd).into(),
        1 => format!("-{}", random.below(100)).into(),
        _ => random.below(1000).to_string().into(),
    }
}

/// Not a time that may pass meanwhile.
fn time(random: &mut Random) -> Word {
    let odd = ["0", "-1", "-9223372036854775808", "9223372036854775807", "9223372036854775", "", "x", "1.5", "+7"];
    let usual = ["100000", "1000000", "9000000000"];
    if random.below(4) == 0 {
        random.pick(&odd).into()
    } else {
        random.pick(&usual).into()
    }
}

fn score(random: &mut Random) -> Word {
    let odd =
        ["inf", "-inf", "+inf", "Infinity", "9007199254740992", "-9007199254740992", "nan", "", "x", "-", "1 ", "+5"];
    match random.below(8) {
        0 => random.pick(&odd).into(),
        1 => format!("-{}", random.below(20)).into(),
        _ => random.below(20).to_string().into(),
    }
}

fn bound(random: &mut Random) -> Word {
    let mut bound = if random.below(3) == 0 { b"(".to_vec() } else { Word::new() };
    bound.extend(score(random));
    bound
}

fn member(random: &mut Random) -> Word {
    match random.below(20) {
        0 => b"m".repeat(1 + random.below(512)),
        1 => Word::new(),
        2 => (0..random.below(20)).map(|_| random.below(256) as u8).collect(),
        _ => format!("m{}", random.below(30)).into(),
    }
}

fn value(random: &mut Random, most: usize) -> Word {
    match random.below(4) {
        0 => integer(random),
        1 => (0..random.below(most)).map(|_| random.below(256) as u8).collect(),
        _ => "v".repeat(random.below(most.min(40))).into(),
    }
}

/// With letters of both cases, as clients may write names.
fn name(random: &mut Random, name: &str) -> Word {
    match random.below(8) {
        0 => name.to_lowercase().into(),
        1 => name.bytes().map(|byte| if random.below(2) == 0 { byte } else { byte.to_ascii_lowercase() }).collect(),
        _ => name.into(),
    }
}

fn strings(random: &mut Random) -> Vec<Word> {
    let key = key(random, "s");
    let one = |random: &mut Random, names: &[&'static str]| random.pick(names);
    match random.below(12) {
        0..=1 => vec![name(random, "GET"), key],
        2..=3 => {
            let mut words = vec![name(random, "SET"), key, value(random, 4000)];
            for _ in 0..random.below(6).saturating_sub(2) {
                let option = one(random, &["NX", "XX", "GET", "KEEPTTL", "EX", "PX", "bad"]);
                words.push(name(random, option));
                if ["EX", "PX"].contains(&option) && random.below(8) > 0 {
                    words.push(time(random));
                }
            }
            words
        }
        4 => vec![name(random, "SETNX"), key, value(random, 100)],
        5 => {
            let command = one(random, &["STRLEN", "TYPE", "TTL", "PERSIST", "EXISTS"]);
            vec![name(random, command), key]
        }
        6..=7 => {
            let command = one(random, &["INCR", "DECR"]);
            vec![name(random, command), key]
        }
        8 => {
            let command = one(random, &["INCRBY", "DECRBY"]);
            vec![name(random, command), key, integer(random)]
        }
        9 => {
            let command = one(random, &["DEL", "UNLINK", "EXISTS", "MGET"]);
            let mut words = vec![name(random, command), key];
            let kinds: Vec<&str> = (0..random.below(4)).map(|_| random.pick(&["s", "z", "h"])).collect();
            words.extend(kinds.into_iter().map(|kind| self::key(random, kind)));
            words
        }
        _ => {
            let command = one(random, &["EXPIRE", "PEXPIRE"]);
            vec![name(random, command), key, time(random)]
        }
    }
}

fn sets(random: &mut Random) -> Vec<Word> {
    let key = key(random, "z");
    match random.below(13) {
        0..=3 => {
            let mut words = vec![name(random, "ZADD"), key];
            for _ in 0..random.below(5).saturating_sub(2) {
                let option = random.pick(&["NX", "XX", "GT", "LT", "CH", "INCR"]);
                words.push(name(random, option));
            }
            for _ in 0..1 + random.below(3) {
                words.extend([score(random), member(random)]);
            }
            if random.below(20) == 0 {
                words.pop();
            }
            words
        }
        4 => vec![name(random, "ZINCRBY"), key, score(random), member(random)],
        5 => {
            let mut words = vec![name(random, "ZREM"), key, member(random)];
            words.extend((0..random.below(3)).map(|_| member(random)));
            words
        }
        6 => vec![name(random, "ZCARD"), key],
        7 => {
            let command = random.pick(&["ZSCORE", "ZRANK", "ZREVRANK"]);
            vec![name(random, command), key, member(random)]
        }
        8..=9 => {
            let command = random.pick(&["ZRANGE", "ZREVRANGE"]);
            let mut words = vec![name(random, command), key, integer(random), integer(random)];
            if random.below(2) == 0 {
                words.push(name(random, "WITHSCORES"));
            }
            if command == "ZRANGE" && random.below(3) == 0 {
                words.push(name(random, "REV"));
            }
            words
        }
        10 => vec![name(random, "ZCOUNT"), key, bound(random), bound(random)],
        _ => {
            let mut words = vec![name(random, "ZRANGEBYSCORE"), key, bound(random), bound(random)];
            if random.below(2) == 0 {
                words.push(name(random, "WITHSCORES"));
            }
            if random.below(3) == 0 {
                words.extend([name(random, "LIMIT"), integer(random), integer(random)]);
            }
            words
        }
    }
}

/// Hashes stay small: Redis changes the order of large ones.
fn hashes(random: &mut Random) -> Vec<Word> {
    let key = key(random, "h");
    let field = |random: &mut Random| -> Word { format!("f{}", random.below(20)).into() };
    match random.below(9) {
        0..=2 => {
            let mut words = vec![name(random, "HSET"), key];
            for _ in 0..1 + random.below(3) {
                words.extend([field(random), value(random, 60)]);
            }
            if random.below(20) == 0 {
                words.pop();
            }
            words
        }
        3 => vec![name(random, "HSETNX"), key, field(random), value(random, 60)],
        4 => {
            let command = random.pick(&["HGET", "HEXISTS", "HSTRLEN"]);
            vec![name(random, command), key, field(random)]
        }
        5 => {
            let command = random.pick(&["HDEL", "HMGET"]);
            let mut words = vec![name(random, command), key, field(random)];
            words.extend((0..random.below(3)).map(|_| field(random)));
            words
        }
        6 => vec![name(random, "HINCRBY"), key, field(random), integer(random)],
        _ => {
            let command = random.pick(&["HLEN", "HGETALL", "HKEYS", "HVALS"]);
            vec![name(random, command), key]
        }
    }
}

/// What the kernel does not do with keys that it may hold: it hands them to redis-server.
pub fn moving(random: &mut Random) -> Vec<Word> {
    let [string, set, hash] = ["s", "z", "h"].map(|kind| key(random, kind));
    match random.below(22) {
        0 => vec![name(random, "APPEND"), string, value(random, 100)],
        1 => vec![name(random, "GETRANGE"), string, integer(random), integer(random)],
        2 => vec![name(random, "GETSET"), string, value(random, 100)],
        3 => vec![name(random, "INCRBYFLOAT"), string, b"0.5".into()],
        4 => vec![name(random, "MSET"), string, value(random, 10), set, value(random, 10)],
        5 => vec![name(random, "ZADD"), set, b"1.5".into(), member(random)],
        6 => vec![name(random, "ZINCRBY"), set, b"0.25".into(), member(random)],
        7 => vec![name(random, "ZPOPMIN"), set],
        8 => vec![name(random, "ZREVRANGEBYSCORE"), set, bound(random), bound(random)],
        9 => vec![name(random, "ZUNIONSTORE"), key(random, "z"), b"2".into(), set, key(random, "z")],
        10 => vec![name(random, "ZMSCORE"), set, member(random), member(random)],
        11 => vec![name(random, "HINCRBYFLOAT"), hash, b"f1".into(), b"1.5".into()],
        12 => vec![name(random, "RENAME"), key(random, "z"), set],
        13 => vec![name(random, "COPY"), hash, key(random, "h"), b"REPLACE".into()],
        14 => vec![name(random, "LPUSH"), key(random, "h"), value(random, 10)],
        15 => vec![name(random, "SORT"), set, b"ALPHA".into()],
        16 => vec![name(random, "EVAL"), b"return redis.call('type', KEYS[1])".into(), b"1".into(), hash],
        17 => vec![name(random, "PEXPIREAT"), string, b"9000000000000".into()],
        18 => vec![name(random, "ZRANGEBYLEX"), set, b"-".into(), b"+".into()],
        19 => vec![name(random, "SINTERSTORE"), set, hash],
        20 => vec![name(random, "EXPIRETIME"), set],
        _ => vec![name(random, "FLUSHALL")],
    }
}

/// The words of a request.
pub fn words(random: &mut Random) -> Vec<Word> {
    match random.below(20) {
        0 => vec![name(random, "PING")],
        1 => vec![name(random, "PING"), value(random, 100)],
        // Too few words, or too many.
        2 => {
            let command = random.pick(&["GET", "SET", "ZADD", "HGET", "PING", "DEL", "INCRBY"]);
            let mut words = vec![name(random, command)];
            words.extend((0..random.pick(&[0, 0, 1, 3])).map(|_| value(random, 10)));
            words
        }
        3..=8 => strings(random),
        9..=15 => sets(random),
        _ => hashes(random),
    }
}

/// Of keys that the kernel never holds, and of none: redis-server answers.
pub fn others(random: &mut Random) -> Vec<Word> {
    let [list, set, text, fraction] = ["l", "S", "a", "f"].map(|kind| key(random, kind));
    let short = |random: &mut Random| value(random, 100);
    match random.below(16) {
        0..=1 => vec![name(random, "LPUSH"), list, short(random), short(random)],
        2 => vec![name(random, "LRANGE"), list, b"0".into(), b"-1".into()],
        3 => vec![name(random, "RPOP"), list],
        4 => vec![name(random, "SADD"), set, short(random)],
        5 => vec![name(random, "SCARD"), set],
        6 => vec![name(random, "SUNIONSTORE"), key(random, "S"), set, key(random, "S")],
        7 => vec![name(random, "ECHO"), short(random)],
        8 => vec![name(random, "APPEND"), text, short(random)],
        9 => vec![name(random, "GETRANGE"), text, b"1".into(), b"5".into()],
        10 => vec![name(random, "GET"), text],
        11 => vec![name(random, "ZADD"), fraction, b"1.5".into(), member(random)],
        12 => vec![name(random, "ZRANGE"), fraction, b"0".into(), b"-1".into(), b"WITHSCORES".into()],
        13 => vec![b"NoSuchCommand".into(), short(random)],
        14 => vec![name(random, "DEL"), list, key(random, "s"), set],
        _ => vec![name(random, "EVAL"), b"return redis.call('append', KEYS[1], 'x')".into(), b"1".into(), text],
    }
}

/// A request that the kernel or the server may answer, and that is never refused.
pub fn plain(random: &mut Random) -> Vec<Vec<u8>> {
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
