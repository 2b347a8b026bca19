//! What the structures of `bpf/flex` answer (`structures.h`), by the collections of Rust. Tests of `xk-flex` and
//! `cargo xtask flex-fuzz` draw operations here, and compare answers with it.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

/// The operations, in the order of `enum xk_structures_operation`: structure, what is done, and whether it may need memory.
pub const OPERATIONS: [(&str, &str, bool); 37] = [
    ("all", "begin", true),
    ("all", "end", false),
    ("list", "push", true),
    ("list", "find", false),
    ("list", "remove", false),
    ("hash", "set", true),
    ("hash", "find", false),
    ("hash", "remove", false),
    ("rbtree", "set", true),
    ("rbtree", "find", false),
    ("rbtree", "remove", false),
    ("rbtree", "first", false),
    ("rbtree", "range", false),
    ("skiplist", "insert", true),
    ("skiplist", "remove", false),
    ("skiplist", "rank", false),
    ("skiplist", "at", false),
    ("skiplist", "first", false),
    ("lru", "set", true),
    ("lru", "get", false),
    ("lru", "peek", false),
    ("lru", "remove", false),
    ("ring", "push", false),
    ("ring", "pop", false),
    ("ring", "length", false),
    ("radix", "set", true),
    ("radix", "find", false),
    ("radix", "remove", false),
    ("countmin", "add", false),
    ("countmin", "estimate", false),
    ("hll", "add", false),
    ("hll", "estimate", false),
    ("string", "set", true),
    ("string", "read", false),
    ("string", "compare", false),
    ("string", "hash", false),
    ("string", "remove", false),
];

/// The structures that operations are drawn for.
pub const STRUCTURES: [&str; 10] =
    ["list", "hash", "rbtree", "skiplist", "lru", "ring", "radix", "countmin", "hll", "string"];

/// Sizes, as in `structures.h`.
const MOST: usize = 40;
const RING: usize = 16;
const STRINGS: usize = 16;
const TEXT: u64 = 48;

/// An operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Asked {
    /// Its number in [`OPERATIONS`].
    pub operation: usize,
    /// A key, a score, a number.
    pub key: u64,
    /// A value.
    pub value: u64,
}

impl Asked {
    /// By its name.
    pub fn new(structure: &str, what: &str, key: u64, value: u64) -> Self {
        let found = OPERATIONS.iter().position(|operation| (operation.0, operation.1) == (structure, what));
        Self { operation: found.unwrap_or_else(|| panic!("no operation {structure} {what}")), key, value }
    }

    /// As the worlds read it.
    pub fn words(&self) -> [u64; 3] {
        [self.operation as u64, self.key, self.value]
    }
}

/// Whether it succeeds, and the answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// This one.
    Exactly(bool, u64),
    /// One from here to there. All worlds have the same one.
    Between(u64, u64),
}

impl Answer {
    /// Whether this is it.
    pub fn is(&self, done: bool, answer: u64) -> bool {
        match *self {
            Self::Exactly(succeeds, expected) => (succeeds, expected) == (done, answer),
            Self::Between(least, most) => done && (least..=most).contains(&answer),
        }
    }
}

fn found(value: Option<u64>) -> Answer {
    Answer::Exactly(value.is_some(), value.unwrap_or_default())
}

fn done(succeeds: bool) -> Answer {
    Answer::Exactly(succeeds, 0)
}

/// All structures.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Model {
    /// The newest first.
    pub list: Vec<(u64, u64)>,
    pub hash: HashMap<u64, u64>,
    pub rbtree: BTreeMap<u64, u64>,
    pub skiplist: BTreeSet<(u64, u64)>,
    /// The newest first.
    pub lru: VecDeque<(u64, u64)>,
    pub ring: VecDeque<u64>,
    pub radix: BTreeMap<u64, u64>,
    pub counts: HashMap<u64, u64>,
    pub seen: BTreeSet<u64>,
    pub strings: [Option<Vec<u8>>; STRINGS],
    /// Operations that were drawn.
    drawn: u64,
}

/// The string that a value stands for.
fn text(value: u64) -> Vec<u8> {
    (0..(value >> 4) % (TEXT + 1)).map(|at| b'a' + u8::from(value >> (at & 3) & 1 == 1)).collect()
}

impl Model {
    /// An operation on one of these structures. They grow and shrink in turns.
    pub fn draw(&mut self, structures: &[&str], mut random: impl FnMut() -> u64) -> Asked {
        let mut below = |limit: u64| random() % limit;
        self.drawn += 1;
        let structure = structures[below(structures.len() as u64) as usize];
        let of_it = |operation: &(usize, &(&str, &str, bool))| operation.1 .0 == structure;
        let operations: Vec<usize> = OPERATIONS.iter().enumerate().filter(of_it).map(|operation| operation.0).collect();
        let mut operation = operations[below(operations.len() as u64) as usize];
        // Every third one makes it larger or smaller.
        if below(3) == 0 {
            let wanted =
                if self.drawn / 3000 % 2 == 0 { ["set", "insert", "push"] } else { ["remove", "pop", "remove"] };
            let fits = |number: &&usize| wanted.contains(&OPERATIONS[**number].1);
            operation = operations.iter().find(fits).copied().unwrap_or(operation);
        }
        let (mut key, mut value) = (below(300), below(1 << 40));
        match OPERATIONS[operation] {
            // Next to each other, far apart, and at the end.
            ("radix", ..) => key = [key, key << 33 | key & 7, !(key / 8)][below(3) as usize],
            ("rbtree", "range", _) => value = below(20),
            ("skiplist", ..) => (key, value) = (key / 4, below(20)),
            ("lru", ..) => key /= 4,
            ("hll", ..) => key = below(100_000),
            ("countmin", ..) => value = below(100),
            ("string", ..) => value = below(4000),
            _ => {}
        }
        Asked { operation, key, value }
    }

    /// What it answers, when it is executed as a whole.
    pub fn apply(&mut self, asked: &Asked) -> Answer {
        let Asked { operation, key, value } = *asked;
        let (structure, what, _) = OPERATIONS[operation];
        match structure {
            "list" | "hash" => self.chains(structure, what, key, value),
            "rbtree" => self.rbtree(what, key, value),
            "skiplist" => self.skiplist(what, key, value),
            "lru" => self.lru(what, key, value),
            "ring" => self.ring(what, key),
            "radix" => match what {
                "set" => {
                    self.radix.insert(key, value);
                    done(true)
                }
                "find" => found(self.radix.get(&key).copied()),
                _ => done(self.radix.remove(&key).is_some()),
            },
            "countmin" | "hll" => self.sketch(structure, what, key, value),
            "string" => self.string(what, key, value),
            _ => {
                let empty = self.holds() == 0;
                *self = Self { drawn: self.drawn, ..Self::default() };
                done(what == "begin" || empty)
            }
        }
    }

    fn chains(&mut self, structure: &str, what: &str, key: u64, value: u64) -> Answer {
        let at = self.list.iter().position(|item| item.0 == key);
        match (structure, what) {
            ("list", "push") => {
                self.list.insert(0, (key, value));
                done(true)
            }
            ("list", "find") => found(at.map(|at| self.list[at].1)),
            ("list", _) => done(at.map(|at| self.list.remove(at)).is_some()),
            (_, "set") => {
                self.hash.insert(key, value);
                done(true)
            }
            (_, "find") => found(self.hash.get(&key).copied()),
            _ => done(self.hash.remove(&key).is_some()),
        }
    }

    fn rbtree(&mut self, what: &str, key: u64, value: u64) -> Answer {
        let combined = |(key, value): (&u64, &u64)| key ^ value;
        match what {
            "set" => {
                self.rbtree.insert(key, value);
                done(true)
            }
            "find" => found(self.rbtree.get_key_value(&key).map(combined)),
            "remove" => done(self.rbtree.remove(&key).is_some()),
            "first" => found(self.rbtree.range(key..).next().map(combined)),
            _ => {
                let nodes = self.rbtree.range(key..).take(value as usize).map(combined);
                let add = |sum: u64, node: u64| sum.wrapping_mul(31).wrapping_add(node);
                Answer::Exactly(true, nodes.fold(0, add))
            }
        }
    }

    fn skiplist(&mut self, what: &str, score: u64, key: u64) -> Answer {
        let combined = |(score, key): &(u64, u64)| score << 32 | key;
        match what {
            "insert" => {
                self.skiplist.insert((score, key));
                done(true)
            }
            "remove" => done(self.skiplist.remove(&(score, key))),
            "rank" => {
                let rank = self.skiplist.iter().position(|item| *item == (score, key));
                Answer::Exactly(true, rank.unwrap_or(self.skiplist.len()) as u64)
            }
            "at" => found(self.skiplist.iter().nth(score as usize).map(combined)),
            _ => found(self.skiplist.range((score, 0)..).next().map(combined)),
        }
    }

    fn lru(&mut self, what: &str, key: u64, value: u64) -> Answer {
        let at = self.lru.iter().position(|item| item.0 == key);
        match what {
            "peek" => found(at.map(|at| self.lru[at].1)),
            "set" => {
                at.map(|at| self.lru.remove(at));
                self.lru.push_front((key, value));
                self.lru.truncate(MOST);
                done(true)
            }
            _ => {
                let item = at.and_then(|at| self.lru.remove(at));
                if what == "remove" {
                    return done(item.is_some());
                }
                self.lru.extend(item);
                self.lru.rotate_right(usize::from(item.is_some()));
                found(item.map(|item| item.1))
            }
        }
    }

    fn ring(&mut self, what: &str, number: u64) -> Answer {
        match what {
            "push" => {
                let has_room = self.ring.len() < RING;
                self.ring.extend(has_room.then_some(number));
                done(has_room)
            }
            "pop" => found(self.ring.pop_front()),
            _ => Answer::Exactly(true, self.ring.len() as u64),
        }
    }

    fn sketch(&mut self, structure: &str, what: &str, key: u64, value: u64) -> Answer {
        match (structure, what) {
            ("countmin", "add") => {
                *self.counts.entry(key).or_default() += value;
                done(true)
            }
            ("countmin", _) => {
                // How close it is, it says of most keys only (`estimates_are_as_close_as_they_claim`).
                Answer::Between(self.counts.get(&key).copied().unwrap_or(0), self.counts.values().sum())
            }
            (_, "add") => {
                self.seen.insert(key);
                done(true)
            }
            // Five times the standard error of 1024 registers.
            _ => {
                let (seen, error) = (self.seen.len() as u64, self.seen.len() as u64 * 5 / 32 + 3);
                Answer::Between(seen.saturating_sub(error), seen + error)
            }
        }
    }

    fn string(&mut self, what: &str, key: u64, value: u64) -> Answer {
        let [number, other] = [key, value].map(|number| number as usize % STRINGS);
        if what == "set" {
            self.strings[number] = Some(text(value));
            return done(true);
        }
        let Some(string) = &self.strings[number] else { return done(false) };
        match what {
            "read" => {
                let half = TEXT as usize / 2;
                let bytes = string.iter().copied().chain(std::iter::repeat(0)).take(half).map(u64::from);
                let add = |sum: u64, byte: u64| sum.wrapping_mul(31).wrapping_add(byte);
                Answer::Exactly(true, bytes.fold(string.len().min(half) as u64, add))
            }
            "compare" => match &self.strings[other] {
                Some(other) => Answer::Exactly(true, (string.cmp(other) as i64 + 1) as u64),
                None => done(false),
            },
            "hash" => {
                let add = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
                Answer::Exactly(true, string.iter().fold(0xcbf2_9ce4_8422_2325, add))
            }
            _ => {
                self.strings[number] = None;
                done(true)
            }
        }
    }

    /// Items of all structures that have memory of their own, and were not counted by a walk.
    pub fn holds(&self) -> usize {
        let strings = self.strings.iter().flatten().count();
        let sizes = [self.list.len(), self.hash.len(), self.rbtree.len(), self.skiplist.len(), self.lru.len()];
        sizes.iter().sum::<usize>() + self.radix.len() + strings
    }

    /// Operations after which nothing is in them, and the last one, which frees them.
    pub fn drain(&self) -> Vec<Asked> {
        let keys = |structure, keys: Vec<u64>| keys.into_iter().map(move |key| Asked::new(structure, "remove", key, 0));
        let strings = (0..STRINGS as u64).filter(|number| self.strings[*number as usize].is_some()).collect();
        let mut all: Vec<Asked> = keys("list", self.list.iter().map(|item| item.0).collect())
            .chain(keys("hash", self.hash.keys().copied().collect()))
            .chain(keys("rbtree", self.rbtree.keys().copied().collect()))
            .chain(keys("lru", self.lru.iter().map(|item| item.0).collect()))
            .chain(keys("radix", self.radix.keys().copied().collect()))
            .chain(keys("string", strings))
            .collect();
        all.extend(self.skiplist.iter().map(|item| Asked::new("skiplist", "remove", item.0, item.1)));
        all.push(Asked::new("all", "end", 0, 0));
        all
    }
}
