//! Structures of `bpf/flex` in a heap, read word by word: whether they are what they must be, and what is in them.

use super::model::Model;

/// Fails with this text unless the condition holds.
macro_rules! must {
    ($condition:expr, $($text:tt)*) => {
        if !$condition {
            return Err(format!($($text)*));
        }
    };
}

/// Words of a heap.
pub struct Walk<'a> {
    /// The word at an address.
    pub word: &'a dyn Fn(u64) -> u64,
}

/// What a walk over a part of a structure finds, or what is wrong.
type Found<T> = Result<T, String>;

/// `struct xk_structures`: one pointer for each structure, then those of the strings.
pub const POINTERS: usize = 9 + 16;
/// More items than any structure of the tests has.
const MANY: usize = 100_000;

impl Walk<'_> {
    fn at(&self, address: u64, index: u64) -> u64 {
        (self.word)(address + 8 * index)
    }

    /// Compares all structures with a model. Returns the number of objects that they have.
    ///
    /// # Errors
    /// What is different, or broken.
    pub fn check(&self, pointers: &[u64; POINTERS], model: &Model) -> Found<u64> {
        let [list, hash, rbtree, skiplist, lru, ring, radix, ..] = *pointers;
        let is = |what: &str, same: bool| if same { Ok(()) } else { Err(format!("{what} differs from the model")) };
        let found = self.chain(self.at(list, 0))?;
        is("list", found == model.list && self.at(list, 1) == found.len() as u64)?;
        let mut found = self.table(hash)?;
        let mut expected: Vec<_> = model.hash.iter().map(|(key, value)| (*key, *value)).collect();
        found.sort_unstable();
        expected.sort_unstable();
        is("hash", found == expected && self.at(hash, 1) == found.len() as u64)?;
        let found = self.rbtree(rbtree)?;
        is("rbtree", found.iter().copied().eq(model.rbtree.iter().map(|(key, value)| (*key, *value))))?;
        let found = self.skiplist(skiplist)?;
        is("skiplist", found.iter().eq(model.skiplist.iter()))?;
        let found = self.lru(lru)?;
        is("lru", found.iter().eq(model.lru.iter()))?;
        let [mask, popped, pushed] = [0, 1, 2].map(|index| self.at(ring, index));
        let found = (popped..pushed).map(|number| self.at(ring, 3 + (number & mask)));
        is("ring", found.eq(model.ring.iter().copied()))?;
        let (found, nodes) = self.radix(radix)?;
        is("radix", found.iter().copied().eq(model.radix.iter().map(|(key, value)| (*key, *value))))?;
        for (string, expected) in pointers[9..].iter().zip(&model.strings) {
            let bytes = (*string != 0).then(|| self.string(*string));
            is("string", bytes == *expected)?;
        }
        // One for each structure, and the table of the cache.
        let items = model.holds() - model.radix.len();
        Ok(9 + 1 + items as u64 + nodes)
    }

    fn chain(&self, first: u64) -> Found<Vec<(u64, u64)>> {
        let (mut item, mut found) = (first, Vec::new());
        while item != 0 {
            must!(found.len() < MANY, "a chain has no end");
            found.push((self.at(item, 1), self.at(item, 2)));
            item = self.at(item, 0);
        }
        Ok(found)
    }

    fn table(&self, hash: u64) -> Found<Vec<(u64, u64)>> {
        let shift = self.at(hash, 0);
        let mut found = Vec::new();
        for bucket in 0..1 << (64 - shift) {
            let chain = self.chain(self.at(hash, 2 + bucket))?;
            let place = |key: u64| key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> shift;
            must!(chain.iter().all(|item| place(item.0) == bucket), "an item is in the wrong bucket");
            found.extend(chain);
        }
        Ok(found)
    }

    fn rbtree(&self, tree: u64) -> Found<Vec<(u64, u64)>> {
        let mut found = Vec::new();
        let root = self.at(tree, 1);
        let [above, larger, red] = [0, 2, 5].map(|index| self.at(tree, index));
        must!((above, larger, red) == (0, 0, 0), "rbtree: the top is {above:#x}, {larger:#x}, {red}");
        must!(root == 0 || self.at(root, 5) == 0, "rbtree: the root is red");
        self.subtree(root, tree, &mut found)?;
        must!(found.windows(2).all(|pair| pair[0].0 < pair[1].0), "rbtree: keys are not in order");
        must!(self.at(tree, 6) == found.len() as u64, "rbtree: its length is wrong");
        Ok(found)
    }

    /// Adds the nodes in their order. Returns the number of black nodes on each path.
    fn subtree(&self, node: u64, parent: u64, found: &mut Vec<(u64, u64)>) -> Found<u64> {
        if node == 0 {
            return Ok(1);
        }
        must!(found.len() < MANY, "rbtree: a path has no end");
        let [above, smaller, larger, key, value, red] = [0, 1, 2, 3, 4, 5].map(|index| self.at(node, index));
        must!(above == parent, "rbtree: the parent of {key} is wrong");
        must!(red == 0 || red == 1 && self.at(parent, 5) == 0, "rbtree: {key} and its parent are red");
        let left = self.subtree(smaller, node, found)?;
        found.push((key, value));
        let right = self.subtree(larger, node, found)?;
        must!(left == right, "rbtree: below {key} are {left} and {right} black nodes");
        Ok(left + 1 - red)
    }

    fn skiplist(&self, list: u64) -> Found<Vec<(u64, u64)>> {
        const LEVELS: u64 = 16;
        let [length, levels] = [0, 1].map(|index| self.at(list, index));
        // After three words, and two with the turns of the last search.
        let head = list + 8 * (5 + 2 * LEVELS);
        let (mut item, mut addresses) = (self.at(head, 2), vec![head]);
        while item != 0 {
            must!(addresses.len() < MANY, "skiplist: it has no end");
            addresses.push(item);
            item = self.at(item, 2);
        }
        must!(addresses.len() as u64 == length + 1, "skiplist: its length is wrong");
        must!((1..=LEVELS).contains(&levels), "skiplist: {levels} levels");
        for level in 0..levels {
            let (mut item, mut rank) = (head, 0);
            loop {
                let [next, span] = [0, 1].map(|index| self.at(item, 2 + 2 * level + index));
                rank += span;
                if next == 0 {
                    must!(rank == length, "skiplist: level {level} ends at {rank} of {length}");
                    break;
                }
                must!(span > 0 && addresses.get(rank as usize) == Some(&next), "skiplist: level {level} at {rank}");
                item = next;
            }
        }
        must!(levels == 1 || self.at(head, 2 * levels) != 0, "skiplist: its highest level is empty");
        let found: Vec<_> = addresses[1..].iter().map(|item| (self.at(*item, 0), self.at(*item, 1))).collect();
        must!(found.windows(2).all(|pair| pair[0] < pair[1]), "skiplist: items are not in order");
        Ok(found)
    }

    /// The newest first.
    fn lru(&self, lru: u64) -> Found<Vec<(u64, u64)>> {
        let [hash, most] = [0, 1].map(|index| self.at(lru, index));
        let ends = lru + 16;
        let (mut item, mut newer, mut found) = (self.at(ends, 4), ends, Vec::new());
        while item != ends {
            must!(found.len() < MANY && item != 0, "lru: the order has no end");
            must!(self.at(item, 3) == newer, "lru: the order is another one backwards");
            found.push((self.at(item, 1), self.at(item, 2)));
            newer = item;
            item = self.at(item, 4);
        }
        must!(self.at(ends, 3) == newer, "lru: the oldest is another one");
        let (mut sorted, mut table) = (found.clone(), self.table(hash)?);
        sorted.sort_unstable();
        table.sort_unstable();
        must!(sorted == table, "lru: its table has other items");
        must!(self.at(hash, 1) == found.len() as u64 && found.len() as u64 <= most, "lru: its length is wrong");
        Ok(found)
    }

    /// Keys with values in their order, and the number of nodes.
    fn radix(&self, radix: u64) -> Found<(Vec<(u64, u64)>, u64)> {
        let (mut found, mut nodes) = (Vec::new(), 0);
        let root = self.at(radix, 0);
        if root != 0 {
            self.below(root, None, &mut found, &mut nodes)?;
        }
        must!(found.len() as u64 == self.at(radix, 1), "radix: its length is wrong");
        Ok((found, nodes))
    }

    /// A node below a slot, which has this shift and these first bits.
    fn below(&self, node: u64, slot: Option<(u64, u64)>, found: &mut Vec<(u64, u64)>, nodes: &mut u64) -> Found<()> {
        let [prefix, shift, used] = [0, 1, 2].map(|index| self.at(node, index));
        *nodes += 1;
        must!(*nodes < MANY as u64, "radix: a path has no end");
        must!(shift % 4 == 0 && shift < 64 && used != 0 && used < 1 << 16, "radix: {shift}, {used:#x}");
        must!(shift == 0 || used.count_ones() > 1, "radix: a node has one child");
        if let Some((above, bits)) = slot {
            must!(above > shift && prefix << 4 << shift >> above == bits, "radix: a node is below a wrong slot");
        }
        for number in (0..16).filter(|number| used >> number & 1 == 1) {
            let (bits, content) = (prefix << 4 | number, self.at(node, 3 + number));
            if shift == 0 {
                found.push((bits, content));
            } else {
                self.below(content, Some((shift, bits)), found, nodes)?;
            }
        }
        Ok(())
    }

    fn string(&self, string: u64) -> Vec<u8> {
        let byte = |at: u64| (self.at(string, 1 + at / 8) >> (at % 8 * 8)) as u8;
        (0..self.at(string, 0)).map(byte).collect()
    }
}
