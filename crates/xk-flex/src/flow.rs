//! Control flow of a function: blocks, dominators, natural loops, live registers.

use std::collections::{BTreeMap, BTreeSet};

use crate::calls::HELPER;
use crate::elf::{Function, Object};
use crate::insn::{Flow, FRAME};
use crate::Error;

/// Instructions that are executed one after the other.
#[derive(Debug)]
pub struct Block {
    /// First instruction.
    pub start: usize,
    /// Behind the last instruction.
    pub end: usize,
    /// Last instruction; of an `ld_imm64`, its first half.
    pub last: usize,
    /// Where control goes, at a branch first to the target.
    pub successors: Vec<usize>,
    /// From where it comes.
    pub predecessors: Vec<usize>,
}

/// A natural loop.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Loop {
    /// The block by which it is entered.
    pub header: usize,
    /// The blocks that jump back to it.
    pub latches: Vec<usize>,
    /// Its blocks.
    pub body: BTreeSet<usize>,
}

/// The flow of a function.
#[derive(Debug)]
pub struct Graph {
    /// Blocks by their place. The first is the entry.
    pub blocks: Vec<Block>,
    /// Loops, inner ones before those that contain them.
    pub loops: Vec<Loop>,
    dominators: Vec<Option<usize>>,
}

/// The flow of all functions of an object.
///
/// # Errors
/// As for [`Graph::new`].
pub fn graphs(object: &Object) -> Result<Vec<Graph>, Error> {
    object.functions.iter().map(|function| Graph::new(object, function)).collect()
}

impl Graph {
    /// The flow of a function of an object.
    ///
    /// # Errors
    /// [`Error::Unknown`], [`Error::Leaves`], [`Error::Irreducible`].
    pub fn new(object: &Object, function: &Function) -> Result<Self, Error> {
        let mut graph = Self { blocks: blocks(object, function)?, loops: Vec::new(), dominators: Vec::new() };
        let order = graph.find_dominators();
        graph.find_loops(&order).map_err(|header| Error::Irreducible {
            function: function.name.clone(),
            place: object.place(function.code, graph.blocks[header].start),
        })?;
        Ok(graph)
    }

    /// The loop that begins with an instruction.
    #[must_use]
    pub fn loop_at(&self, header: usize) -> Option<&Loop> {
        self.loops.iter().find(|found| self.blocks[found.header].start == header)
    }

    /// Whether each way to `inner` leads through `outer`.
    #[must_use]
    pub fn dominates(&self, outer: usize, inner: usize) -> bool {
        let mut at = inner;
        loop {
            if at == outer {
                return true;
            }
            match self.dominators[at] {
                Some(next) if next != at => at = next,
                _ => return false,
            }
        }
    }

    /// Whether the entry reaches a block.
    #[must_use]
    pub fn is_reached(&self, block: usize) -> bool {
        self.dominators[block].is_some()
    }

    /// The first instruction found that reads r5 as an argument of the function. The compiler may pass arguments in
    /// other ways than the type of the function says. The instructions after a call do not: it destroys r5. Whether it
    /// passes r5 on is known of functions of the object; a helper with five arguments is passed one that was written.
    #[must_use]
    pub fn reads_fifth_argument(&self, object: &Object, code: usize) -> Option<usize> {
        const FIFTH: u16 = 1 << 5;
        let insns = &object.code[code].insns;
        let takes_five = |at: usize| {
            let callee = object.target(code, at).map(|callee| object.functions[callee].parameters);
            callee.is_some_and(|parameters| parameters.is_none_or(|count| count > 4))
        };
        let (mut work, mut seen) = (vec![0], BTreeSet::from([0]));
        while let Some(block) = work.pop() {
            let Block { start, end, .. } = self.blocks[block];
            let mut is_gone = false;
            for at in (start..end).filter(|at| insns[*at].code != 0) {
                let is_read =
                    if insns[at].callee().is_some() { takes_five(at) } else { insns[at].reads() & FIFTH != 0 };
                if is_read {
                    return Some(at);
                }
                is_gone = insns[at].writes() & FIFTH != 0;
                if is_gone {
                    break;
                }
            }
            if !is_gone {
                work.extend(self.blocks[block].successors.iter().filter(|next| seen.insert(**next)));
            }
        }
        None
    }

    /// The number of ways through the body of a loop, from its header back to it. It contains no other loop.
    #[must_use]
    pub fn ways(&self, found: &Loop) -> usize {
        // How many lead from the header to each block.
        let (mut ways, mut work) = (BTreeMap::from([(found.header, 1_usize)]), vec![found.header]);
        let mut missing: BTreeMap<usize, usize> = BTreeMap::new();
        let mut back = 0_usize;
        while let Some(block) = work.pop() {
            let own = ways[&block];
            for next in self.blocks[block].successors.iter().filter(|next| found.body.contains(next)) {
                if *next == found.header {
                    back = back.saturating_add(own);
                    continue;
                }
                let sum = ways.entry(*next).or_default();
                *sum = sum.saturating_add(own);
                // A block comes after all those before it.
                let inside = |other: &&usize| found.body.contains(*other);
                let left = missing
                    .entry(*next)
                    .or_insert_with(|| self.blocks[*next].predecessors.iter().filter(inside).count());
                *left = left.saturating_sub(1);
                if *left == 0 {
                    work.push(*next);
                }
            }
        }
        back
    }

    /// Registers that a loop writes, one bit each.
    #[must_use]
    pub fn written(&self, object: &Object, code: usize, found: &Loop) -> u16 {
        let blocks = found.body.iter().map(|block| &self.blocks[*block]);
        let insns = blocks.flat_map(|block| &object.code[code].insns[block.start..block.end]);
        insns.filter(|insn| insn.code != 0).fold(0, |written, insn| written | insn.writes())
    }

    /// The block that contains an instruction.
    #[must_use]
    pub fn block_at(&self, at: usize) -> Option<usize> {
        self.blocks.iter().position(|block| (block.start..block.end).contains(&at))
    }

    /// Immediate dominators by Cooper, Harvey and Kennedy. Returns the order of a depth-first search, from the entry.
    fn find_dominators(&mut self) -> Vec<usize> {
        let order = self.reverse_postorder();
        let mut number = vec![usize::MAX; self.blocks.len()];
        order.iter().enumerate().for_each(|(at, block)| number[*block] = at);
        let mut found: Vec<Option<usize>> = vec![None; self.blocks.len()];
        found[0] = Some(0);
        let meet = |found: &[Option<usize>], mut left: usize, mut right: usize| {
            while left != right {
                while number[left] > number[right] {
                    left = found[left].unwrap_or(0);
                }
                while number[right] > number[left] {
                    right = found[right].unwrap_or(0);
                }
            }
            left
        };
        let mut changed = true;
        while changed {
            changed = false;
            for &block in order.iter().skip(1) {
                let known = self.blocks[block].predecessors.iter().copied().filter(|other| found[*other].is_some());
                let new = known.reduce(|left, right| meet(&found, left, right));
                if new.is_some() && found[block] != new {
                    found[block] = new;
                    changed = true;
                }
            }
        }
        self.dominators = found;
        order
    }

    fn reverse_postorder(&self) -> Vec<usize> {
        let (mut order, mut seen) = (Vec::new(), vec![false; self.blocks.len()]);
        let mut stack = vec![(0, 0)];
        seen[0] = true;
        while let Some((block, next)) = stack.pop() {
            match self.blocks[block].successors.get(next) {
                None => order.push(block),
                Some(&successor) => {
                    stack.push((block, next + 1));
                    if !std::mem::replace(&mut seen[successor], true) {
                        stack.push((successor, 0));
                    }
                }
            }
        }
        order.reverse();
        order
    }

    /// An edge against the order leads to the head of a loop, or the loop has several entries.
    fn find_loops(&mut self, order: &[usize]) -> Result<(), usize> {
        let mut number = vec![usize::MAX; self.blocks.len()];
        order.iter().enumerate().for_each(|(at, block)| number[*block] = at);
        let mut latches: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for &block in order {
            for &header in &self.blocks[block].successors {
                if number[header] > number[block] {
                    continue;
                }
                if !self.dominates(header, block) {
                    return Err(header);
                }
                let known = latches.entry(header).or_default();
                if !known.contains(&block) {
                    known.push(block);
                }
            }
        }
        for (header, latches) in latches {
            let mut body = BTreeSet::from([header]);
            let mut work = latches.clone();
            while let Some(block) = work.pop() {
                if body.insert(block) {
                    work.extend(self.blocks[block].predecessors.iter().filter(|other| self.is_reached(**other)));
                }
            }
            self.loops.push(Loop { header, latches, body });
        }
        self.loops.sort_by_key(|found| found.body.len());
        Ok(())
    }

    /// Registers that have a value before an instruction whichever way control came, one bit each. `entry`: those that
    /// have one at the entry. A call, and a load from a packet by `skb[]`, leave none in r1 to r5.
    #[must_use]
    pub fn set_before(&self, object: &Object, code: usize, entry: u16) -> BTreeMap<usize, u16> {
        let insns = &object.code[code].insns;
        let mut at_start = vec![u16::MAX; self.blocks.len()];
        at_start[0] = entry | 1 << FRAME;
        let mut set = BTreeMap::new();
        let mut work: BTreeSet<usize> = (0..self.blocks.len()).collect();
        while let Some(number) = work.pop_first() {
            let Block { start, end, successors, .. } = &self.blocks[number];
            let mut now = at_start[number];
            for (at, insn) in insns.iter().enumerate().take(*end).skip(*start) {
                set.insert(at, now);
                // The second half of an `ld_imm64` is no instruction; its code is 0.
                now = match insn.writes() {
                    _ if insn.code == 0 => now,
                    HELPER => now & !HELPER | 1,
                    written => now | written,
                };
            }
            for &next in successors {
                let joined = at_start[next] & now;
                if std::mem::replace(&mut at_start[next], joined) != joined {
                    work.insert(next);
                }
            }
        }
        set
    }

    /// Registers that are live before an instruction, one bit each.
    #[must_use]
    pub fn live_before(&self, object: &Object, code: usize) -> BTreeMap<usize, u16> {
        let insns = &object.code[code].insns;
        let mut at_start = vec![0_u16; self.blocks.len()];
        let mut live = BTreeMap::new();
        let mut changed = true;
        while changed {
            changed = false;
            for (number, block) in self.blocks.iter().enumerate().rev() {
                let mut now = block.successors.iter().fold(0, |live, next| live | at_start[*next]);
                for at in (block.start..block.end).rev() {
                    // The second half of an `ld_imm64` is no instruction; its code is 0.
                    if insns[at].code != 0 {
                        now = now & !insns[at].writes() | insns[at].reads();
                    }
                    live.insert(at, now | 1 << FRAME);
                }
                changed |= std::mem::replace(&mut at_start[number], now) != now;
            }
        }
        live
    }
}

/// Each instruction of the function with its flow, without second halves.
fn flows(object: &Object, function: &Function) -> Result<BTreeMap<usize, Flow>, Error> {
    let insns = &object.code[function.code].insns;
    let (mut found, mut at) = (BTreeMap::new(), function.start);
    while at < function.end {
        let flow = insns[at].flow().ok_or_else(|| Error::Unknown {
            function: function.name.clone(),
            place: object.place(function.code, at),
            code: insns[at].code,
        })?;
        found.insert(at, flow);
        at += if flow == Flow::Wide { 2 } else { 1 };
    }
    Ok(found)
}

/// Where control goes after an instruction.
fn targets(at: usize, flow: Flow) -> Vec<i64> {
    let next = at as i64 + 1;
    match flow {
        Flow::Next => vec![next],
        Flow::Wide => vec![next + 1],
        Flow::Goto(distance) => vec![next + distance],
        Flow::Branch(distance) => vec![next + distance, next],
        Flow::Exit => vec![],
    }
}

fn blocks(object: &Object, function: &Function) -> Result<Vec<Block>, Error> {
    let flows = flows(object, function)?;
    let mut starts = BTreeSet::from([function.start]);
    for (&at, &flow) in &flows {
        let is_jump = !matches!(flow, Flow::Next | Flow::Wide);
        for target in targets(at, flow) {
            let target = usize::try_from(target).ok().filter(|target| flows.contains_key(target));
            let target = target.ok_or_else(|| Error::Leaves {
                function: function.name.clone(),
                place: object.place(function.code, at),
            })?;
            if is_jump {
                starts.insert(target);
            }
        }
        if is_jump && at + 1 < function.end {
            starts.insert(at + 1);
        }
    }
    let starts: Vec<usize> = starts.into_iter().collect();
    let number = |at: i64| starts.binary_search(&(at as usize)).ok();
    let mut blocks = Vec::new();
    for (index, &start) in starts.iter().enumerate() {
        let end = starts.get(index + 1).copied().unwrap_or(function.end);
        let Some((&last, &flow)) = flows.range(start..end).next_back() else { continue };
        let successors = targets(last, flow).into_iter().filter_map(number).collect();
        blocks.push(Block { start, end, last, successors, predecessors: Vec::new() });
    }
    for block in 0..blocks.len() {
        for next in blocks[block].successors.clone() {
            if !blocks[next].predecessors.contains(&block) {
                blocks[next].predecessors.push(block);
            }
        }
    }
    Ok(blocks)
}
