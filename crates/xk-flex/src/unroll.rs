//! Copies of the bodies of short loops, so that one turn of several looks.
//!
//! In: an object, and how often the body of each loop is to stand in it. Out: an object that computes the same, with the
//! copies behind each function. The first body goes on with the first copy, each copy with the next one, and the last
//! with the first body, so that only the last ends turns of the loop that is there now. Each leaves the loop wherever the
//! source does. Source lines and relocations stand in the copies, too. What a look needs is found in the new object.

use std::collections::BTreeMap;

use crate::choose::Wanted;
use crate::code::{self, jump, Fix, NewCode};
use crate::elf::{Function, Object};
use crate::flow::Graph;
use crate::insn::{Flow, Insn};
use crate::write::write;
use crate::Error;

/// A block of a body.
#[derive(Debug, Clone, Copy)]
struct Piece {
    start: usize,
    /// Behind what is copied: all but a `goto` at the end.
    end: usize,
    /// Behind the block.
    behind: usize,
    /// Where it goes on, unless it jumps to somewhere else.
    next: Option<usize>,
}

/// A loop to unroll.
#[derive(Debug)]
struct Body {
    /// Its first instruction.
    header: usize,
    /// Its blocks, the first one first, and then in such an order that those in a row stay in a row.
    pieces: Vec<Piece>,
    /// How many copies are made.
    copies: usize,
    /// Where the first of them begins.
    base: usize,
}

impl Body {
    fn new(object: &Object, function: &Function, graph: &Graph, wanted: &Wanted) -> Option<Self> {
        let found = graph.loop_at(wanted.header)?;
        let insns = &object.code[function.code].insns;
        let piece = |block: &usize| {
            let block = &graph.blocks[*block];
            let (end, next) = match insns[block.last].flow() {
                Some(Flow::Goto(distance)) => (block.last, usize::try_from(block.last as i64 + 1 + distance).ok()),
                Some(Flow::Exit) => (block.end, None),
                _ => (block.end, Some(block.end)),
            };
            Piece { start: block.start, end, behind: block.end, next }
        };
        let (before, after): (Vec<usize>, Vec<usize>) = found.body.iter().partition(|block| **block < found.header);
        let pieces = after.iter().chain(&before).map(piece).collect();
        Some(Self { header: wanted.header, pieces, copies: wanted.copies - 1, base: 0 })
    }

    fn contains(&self, at: usize) -> bool {
        self.pieces.iter().any(|piece| (piece.start..piece.behind).contains(&at))
    }

    /// Whether a piece of a copy needs a jump to where it goes on.
    fn needs_jump(&self, copy: usize, piece: usize) -> bool {
        let follows = match self.pieces.get(piece + 1) {
            Some(next) => Some(next.start),
            None => (copy + 1 < self.copies).then_some(self.header),
        };
        self.pieces[piece].next.is_some_and(|next| Some(next) != follows)
    }

    fn length_of(&self, copy: usize, piece: usize) -> usize {
        let Piece { start, end, .. } = self.pieces[piece];
        end - start + usize::from(self.needs_jump(copy, piece))
    }

    fn length(&self, copy: usize) -> usize {
        (0..self.pieces.len()).map(|piece| self.length_of(copy, piece)).sum()
    }

    /// Where a copy begins.
    fn start(&self, copy: usize) -> usize {
        // All but the last are equal.
        self.base + copy * self.length(0)
    }

    /// Where a copy goes for what the source calls this instruction.
    fn target(&self, copy: usize, old: usize) -> Fix {
        if old == self.header {
            return if copy + 1 < self.copies { Fix::At(self.start(copy + 1)) } else { Fix::Jump(old) };
        }
        match self.pieces.iter().position(|piece| piece.start == old) {
            Some(found) => {
                Fix::At(self.start(copy) + (0..found).map(|piece| self.length_of(copy, piece)).sum::<usize>())
            }
            None => Fix::Jump(old),
        }
    }
}

/// Writes one function.
struct Writer<'a> {
    code: &'a mut NewCode,
    insns: &'a [Insn],
    number: usize,
    bodies: Vec<Body>,
    /// Ends of blocks that go on with the first instruction of their loop, which follows them, by their loops.
    falls: BTreeMap<usize, usize>,
}

impl Writer<'_> {
    fn goto(&mut self, to: Fix) {
        self.code.push(Insn::new(Insn::GOTO, 0, 0, 0, 0), to, self.number);
    }

    /// The function, in which turns of the loops go on with their first copies.
    fn function(&mut self, start: usize, end: usize) {
        let mut is_second = false;
        for at in start..end {
            for places in [&mut self.code.entry, &mut self.code.start, &mut self.code.place] {
                places.push(self.code.insns.len());
            }
            let insn = self.insns[at];
            let fix = match jump(at, insn) {
                _ if is_second => Fix::Nothing,
                Fix::Jump(old) => {
                    let body = self.bodies.iter().find(|body| body.header == old && body.contains(at));
                    body.map_or(Fix::Jump(old), |body| Fix::At(body.base))
                }
                fix => fix,
            };
            self.code.push(insn, fix, self.number);
            if let Some(&body) = self.falls.get(&(at + 1)) {
                self.goto(Fix::At(self.bodies[body].base));
            }
            is_second = !is_second && insn.code == Insn::LD_IMM64;
        }
    }

    fn copy(&mut self, body: &Body, copy: usize) {
        for (number, piece) in body.pieces.iter().enumerate() {
            let mut is_second = false;
            for at in piece.start..piece.end {
                let insn = self.insns[at];
                let fix = match jump(at, insn) {
                    Fix::Jump(old) if !is_second => body.target(copy, old),
                    _ => Fix::Nothing,
                };
                self.code.copies.push((self.code.insns.len(), at));
                self.code.push(insn, fix, self.number);
                is_second = !is_second && insn.code == Insn::LD_IMM64;
            }
            if let Some(next) = piece.next.filter(|_| body.needs_jump(copy, number)) {
                self.goto(body.target(copy, next));
            }
        }
    }

    fn run(mut self, start: usize, end: usize) {
        for (number, body) in self.bodies.iter().enumerate() {
            // A piece that ends with a `goto` ends before it.
            let falls = |piece: &Piece| piece.end == piece.behind && piece.next == Some(body.header);
            if body.pieces.iter().any(|piece| piece.behind == body.header && falls(piece)) {
                self.falls.insert(body.header, number);
            }
        }
        let mut base = self.code.insns.len() + end - start + self.falls.len();
        for body in &mut self.bodies {
            body.base = base;
            base += (0..body.copies).map(|copy| body.length(copy)).sum::<usize>();
        }
        self.function(start, end);
        for body in std::mem::take(&mut self.bodies) {
            (0..body.copies).for_each(|copy| self.copy(&body, copy));
        }
    }
}

/// Unrolls loops. Returns the new object, and the same loops in it.
///
/// # Errors
/// [`Error::TooFar`]; [`Error::Object`]: it is damaged.
pub fn unroll(object: &Object, graphs: &[Graph], wanted: &[Wanted]) -> Result<(Object, Vec<Wanted>), Error> {
    let mut sections: Vec<NewCode> = object.code.iter().map(|_| NewCode::default()).collect();
    for (number, (function, graph)) in object.functions.iter().zip(graphs).enumerate() {
        let own = wanted.iter().filter(|own| own.function == number && own.copies > 1);
        let bodies = own.filter_map(|own| Body::new(object, function, graph, own)).collect();
        let (code, insns) = (&mut sections[function.code], &object.code[function.code].insns[..]);
        Writer { code, insns, number, bodies, falls: BTreeMap::new() }.run(function.start, function.end);
    }
    code::finish(object, &mut sections)?;
    let mut unrolled = Object::read(&write(object, &sections)?)?;
    for (code, section) in unrolled.code.iter_mut().zip(&sections) {
        code.twins = section.copies.iter().map(|(new, old)| (*new, section.place[*old])).collect();
    }
    let moved = |own: &Wanted| {
        let code = object.functions[own.function].code;
        Wanted { header: sections[code].place[own.header], ..*own }
    };
    Ok((unrolled, wanted.iter().map(moved).collect()))
}
