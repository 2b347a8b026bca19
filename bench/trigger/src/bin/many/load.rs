//! Requests that are sent to Redis, the same ones in every round: like YCSB's workload A, and like the `ETC` pool
//! of Facebook's Memcached (Atikoglu and others, SIGMETRICS 2012).

use anyhow::{ensure, Context, Result};

/// Keys that exist.
const KEYS: usize = 1000;
/// How popular they are: YCSB's own.
const ZIPF: f64 = 0.99;

/// Keys with their values, and requests.
pub struct Load {
    /// Its name in the result.
    pub name: &'static str,
    keys: Vec<Vec<u8>>,
    values: Vec<Vec<u8>>,
    /// A key, and whether it is written.
    requests: Vec<(usize, bool)>,
}

/// A request and its answer, as they are sent.
pub struct Exchange {
    /// To the server.
    pub request: Vec<u8>,
    /// From the server.
    pub answer: Vec<u8>,
}

impl Load {
    /// Reads and writes by halves, popularity by Zipf, values of 1 KB.
    pub fn ycsb(requests: usize) -> Self {
        let mut random = Random(0x59c5b);
        let keys = (0..KEYS).map(|key| format!("user{key:019}").into_bytes()).collect();
        let values = vec![vec![b'v'; 1000]; KEYS];
        Self { name: "ycsb", keys, values, requests: drawn(&mut random, requests, 0.5) }
    }

    /// Thirty reads to a write; sizes of keys by a generalised extreme value, of values by a generalised Pareto
    /// distribution with the parameters of the paper.
    pub fn etc(requests: usize) -> Self {
        let mut random = Random(0xe7c);
        let size = |of: f64, least: usize| (of.max(0.0) as usize).max(least);
        let keys = (0..KEYS).map(|key| {
            let length = size(extreme(random.unit()), 8).min(250);
            format!("{key:0length$}").into_bytes()
        });
        let keys = keys.collect();
        let values = (0..KEYS).map(|_| vec![b'v'; size(pareto(random.unit()), 1)]).collect();
        Self { name: "etc", keys, values, requests: drawn(&mut random, requests, 1.0 / 31.0) }
    }

    /// What puts all keys there.
    pub fn fill(&self) -> Vec<Exchange> {
        (0..self.keys.len()).map(|key| self.exchange(key, true)).collect()
    }

    /// One round.
    pub fn round(&self) -> Vec<Exchange> {
        self.requests.iter().map(|&(key, write)| self.exchange(key, write)).collect()
    }

    fn exchange(&self, key: usize, write: bool) -> Exchange {
        let (name, value) = (&self.keys[key], &self.values[key]);
        if write {
            Exchange { request: array(&[b"SET", name, value]), answer: b"+OK\r\n".to_vec() }
        } else {
            Exchange { request: array(&[b"GET", name]), answer: bulk(value) }
        }
    }

    /// Of its requests, for people and for checks.
    ///
    /// # Errors
    /// When it asks for nothing.
    pub fn describe(&self) -> Result<String> {
        ensure!(!self.requests.is_empty(), "{} makes no requests", self.name);
        let writes = self.requests.iter().filter(|&&(_, write)| write).count();
        let mut sizes: Vec<usize> = self.requests.iter().map(|&(key, _)| self.values[key].len()).collect();
        sizes.sort_unstable();
        let largest = sizes.last().context("no request")?;
        Ok(format!(
            "{} requests, {writes} of them writes, values of {} bytes in the median, {largest} at most",
            self.requests.len(),
            sizes[sizes.len() / 2],
        ))
    }
}

fn drawn(random: &mut Random, requests: usize, writes: f64) -> Vec<(usize, bool)> {
    let weights: Vec<f64> = (1..=KEYS).map(|rank| (rank as f64).powf(-ZIPF)).collect();
    let total: f64 = weights.iter().sum();
    let mut draw = || {
        let mut left = random.unit() * total;
        let rank = weights.iter().position(|weight| {
            left -= weight;
            left < 0.0
        });
        (rank.unwrap_or(KEYS - 1), random.unit() < writes)
    };
    (0..requests).map(|_| draw()).collect()
}

/// Sizes of keys.
fn extreme(unit: f64) -> f64 {
    let (location, scale, shape) = (30.7984, 8.20449, 0.078_688);
    location + scale * ((-unit.ln()).powf(-shape) - 1.0) / shape
}

/// Sizes of values.
fn pareto(unit: f64) -> f64 {
    let (scale, shape) = (214.476, 0.348_238);
    scale * ((1.0 - unit).powf(-shape) - 1.0) / shape
}

fn bulk(bytes: &[u8]) -> Vec<u8> {
    [format!("${}\r\n", bytes.len()).as_bytes(), bytes, b"\r\n"].concat()
}

fn array(words: &[&[u8]]) -> Vec<u8> {
    let mut all = format!("*{}\r\n", words.len()).into_bytes();
    words.iter().for_each(|word| all.extend(bulk(word)));
    all
}

/// SplitMix64: the same numbers in every run.
struct Random(u64);

impl Random {
    /// Between 0 and 1, neither of them.
    fn unit(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^= word >> 31;
        ((word >> 11) as f64 + 0.5) / (1u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_those_of_the_paper() {
        // Medians: 30.8 + 8.2 · ((ln 2)^-0.0787 - 1) / 0.0787, and 214.5 · (2^0.348 - 1) / 0.348.
        assert!((extreme(0.5) - 33.85).abs() < 0.05, "{}", extreme(0.5));
        assert!((pareto(0.5) - 168.2).abs() < 0.5, "{}", pareto(0.5));
    }

    #[test]
    fn a_round_is_always_the_same_and_has_its_share_of_writes() {
        for (load, least, most) in [(Load::ycsb(1000), 440, 560), (Load::etc(1000), 15, 55)] {
            let writes = load.requests.iter().filter(|&&(_, write)| write).count();
            assert!((least..=most).contains(&writes), "{}: {writes} writes", load.name);
            let same = if load.name == "ycsb" { Load::ycsb(1000) } else { Load::etc(1000) };
            assert_eq!(load.requests, same.requests);
            let popular = load.requests.iter().filter(|&&(key, _)| key < 10).count();
            assert!((300..=500).contains(&popular), "{}: {popular} for ten of {KEYS} keys", load.name);
        }
    }

    #[test]
    fn words_are_as_redis_reads_them() {
        assert_eq!(array(&[b"GET", b"a"]), b"*2\r\n$3\r\nGET\r\n$1\r\na\r\n");
    }
}
