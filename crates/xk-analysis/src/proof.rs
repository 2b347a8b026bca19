//! The proof obligation and the solver that decides it.
//!
//! For every state and every V in the range: executing the span with the
//! deployed value and then the update gives the same live registers, flags and
//! memory as executing the span with V. The obligation is written as SMT-LIB
//! text (QF_ABV; QF_AUFBV where memory is accessed atomically) with the claim
//! negated, and a solver process must answer
//! `unsat`. Any other answer is no proof.

use std::collections::{BTreeSet, HashMap};
use std::fmt::Write as _;

use xk_lift::flow::Live;
use xk_lift::state::{Flag, State};
use xk_lift::term::{Node, TermId, Terms};
use xk_table::{Fit, Range};

use crate::program::iv_bounds;

pub use xk_lift::solver::{ProofError, Solver};

/// The negated obligation as SMT-LIB: satisfiable when some state and some V in
/// `range` tell `updated` from `wanted` in something that is `live`. `fits` are
/// the transformed values that occur.
#[must_use]
pub fn obligation(
    terms: &mut Terms,
    updated: &State,
    wanted: &State,
    live: Live,
    range: Range,
    fits: &[Fit],
) -> String {
    obligation_with(terms, updated, wanted, live, range, fits, &[])
}

/// The same, where each of `equal` must not differ, either.
pub(crate) fn obligation_with(
    terms: &mut Terms,
    updated: &State,
    wanted: &State,
    live: Live,
    range: Range,
    fits: &[Fit],
    equal: &[(TermId, TermId)],
) -> String {
    let mut printer = Printer::default();
    let mut differences = Vec::new();
    let mut pairs = equal.to_vec();
    for number in 0..16 {
        if live.register(number) {
            pairs.push((updated.regs[number], wanted.regs[number]));
        }
    }
    for flag in Flag::ALL {
        if live.flag(flag) {
            pairs.push((updated.flag(flag), wanted.flag(flag)));
        }
    }
    pairs.push((updated.memory, wanted.memory));
    for (a, b) in pairs {
        if a != b {
            let (a, b) = (printer.print(terms, a), printer.print(terms, b));
            differences.push(format!("(distinct {a} {b})"));
        }
    }
    let mut bounds = iv_bounds(terms, fits, range);
    bounds.push((terms.symbol("V", 64), range.min, range.max));
    let bounds: Vec<_> = bounds.into_iter().map(|(term, low, high)| (printer.print(terms, term), low, high)).collect();
    let mut query = printer.logic();
    query.push_str(&printer.declarations);
    query.push_str(&printer.definitions);
    for (value, low, high) in bounds {
        let _ = writeln!(query, "(assert (bvsle {} {value}))", literal(low as u64 as u128, 64));
        let _ = writeln!(query, "(assert (bvsle {value} {}))", literal(high as u64 as u128, 64));
    }
    let _ = writeln!(query, "(assert (or false {}))", differences.join(" "));
    query.push_str("(check-sat)\n");
    query
}

/// A query that is satisfiable when one of the pairs can differ.
#[must_use]
pub fn different(terms: &Terms, pairs: &[(TermId, TermId)]) -> String {
    Claim { pairs, ..Claim::default() }.counterexample(terms)
}

/// Something that a solver is to refute: that one of `pairs` differs while everything that
/// is assumed holds; without pairs, that it can hold at all.
#[derive(Debug, Clone, Copy, Default)]
pub struct Claim<'a> {
    /// Terms of one bit that are 1.
    pub assumed: &'a [TermId],
    /// V and its values.
    pub v: Option<(TermId, Range)>,
    /// What is claimed to be equal.
    pub pairs: &'a [(TermId, TermId)],
    /// What is read from memory may be anything, the same wherever the same is read. What is
    /// refuted so is refuted for every memory; and it is much easier.
    pub any_memory: bool,
}

impl Claim<'_> {
    /// The query.
    #[must_use]
    pub fn counterexample(&self, terms: &Terms) -> String {
        let mut printer = Printer { any_memory: self.any_memory, ..Printer::default() };
        let assumed: Vec<String> = self.assumed.iter().map(|&term| printer.print(terms, term)).collect();
        let differences: Vec<String> = self
            .pairs
            .iter()
            .map(|&(a, b)| format!("(distinct {} {})", printer.print(terms, a), printer.print(terms, b)))
            .collect();
        let bounds = self.v.filter(|(v, _)| printer.names.contains_key(v)).map(|(v, range)| {
            let v = printer.print(terms, v);
            let (min, max) = (literal(range.min as u64 as u128, 64), literal(range.max as u64 as u128, 64));
            format!("(assert (and (bvsle {min} {v}) (bvsle {v} {max})))\n")
        });
        let mut query = printer.logic();
        query.push_str(&printer.declarations);
        query.push_str(&printer.definitions);
        query.push_str(&bounds.unwrap_or_default());
        for term in assumed {
            let _ = writeln!(query, "(assert (= {term} #b1))");
        }
        if !differences.is_empty() {
            let _ = writeln!(query, "(assert (or false {}))", differences.join(" "));
        }
        query.push_str("(check-sat)\n");
        query
    }
}

fn literal(value: u128, bits: u32) -> String {
    let value = value & xk_lift::term::mask(bits);
    if bits % 4 == 0 {
        format!("#x{value:0width$x}", width = bits as usize / 4)
    } else {
        format!("#b{value:0width$b}", width = bits as usize)
    }
}

#[derive(Default)]
struct Printer {
    names: HashMap<TermId, String>,
    declarations: String,
    definitions: String,
    /// Widths of atomic accesses: one unknown function each.
    atomic: BTreeSet<u32>,
    /// What is read from memory is an unknown.
    any_memory: bool,
}

impl Printer {
    fn logic(&self) -> String {
        let functions = if self.atomic.is_empty() { "" } else { "UF" };
        format!("(set-logic QF_A{functions}BV)\n")
    }

    /// Defines `term`, unless it is defined already, and returns its name.
    fn print(&mut self, terms: &Terms, term: TermId) -> String {
        if let Some(name) = self.names.get(&term) {
            return name.clone();
        }
        let is_unknown = match terms.node(term) {
            Node::Symbol(_) | Node::Memory => true,
            Node::Load(..) => self.any_memory,
            _ => false,
        };
        if is_unknown {
            let name = self.name(term);
            let _ = writeln!(self.declarations, "(declare-const {name} {})", sort(terms.bits(term)));
            return name;
        }
        let children: Vec<String> = terms.children(term).into_iter().map(|c| self.print(terms, c)).collect();
        let name = self.name(term);
        let body = self.body(terms, term, &children);
        let _ = writeln!(self.definitions, "(define-fun {name} () {} {body})", sort(terms.bits(term)));
        name
    }

    fn name(&mut self, term: TermId) -> String {
        let name = format!("t{}", self.names.len());
        self.names.insert(term, name.clone());
        name
    }

    /// A term that is no unknown, from the names of its children.
    fn body(&mut self, terms: &Terms, term: TermId, children: &[String]) -> String {
        let bits = terms.bits(term);
        let c = |i: usize| children[i].as_str();
        match terms.node(term) {
            Node::Symbol(_) | Node::Memory => String::new(),
            Node::Const(value) => literal(*value, bits),
            Node::Bin(op, ..) if op.is_comparison() => {
                format!("(ite ({} {} {}) #b1 #b0)", op.smt(), c(0), c(1))
            }
            Node::Bin(op, ..) => format!("({} {} {})", op.smt(), c(0), c(1)),
            Node::Not(_) => format!("(bvnot {})", c(0)),
            Node::Extract(lo, _) => format!("((_ extract {} {lo}) {})", lo + bits - 1, c(0)),
            Node::Concat(..) => format!("(concat {} {})", c(0), c(1)),
            Node::ZExt(x) => format!("((_ zero_extend {}) {})", bits - terms.bits(*x), c(0)),
            Node::SExt(x) => format!("((_ sign_extend {}) {})", bits - terms.bits(*x), c(0)),
            Node::Atomic(_) => self.atomic(bits, c(0)),
            Node::Ite(..) => format!("(ite (= {} #b1) {} {})", c(0), c(1), c(2)),
            Node::Load(..) => load(c(0), c(1), bits / 8),
            Node::Store(_, _, value) => {
                let count = terms.bits(*value) / 8;
                (0..count).fold(c(0).to_owned(), |memory, i| {
                    format!("(store {memory} {} ((_ extract {} {}) {}))", offset(c(1), i), 8 * i + 7, 8 * i, c(2))
                })
            }
        }
    }

    /// An atomic access is an unknown function of the value: what is proved for every function holds for the identity,
    /// and an atomic access never equals a plain one.
    fn atomic(&mut self, bits: u32, value: &str) -> String {
        if self.atomic.insert(bits) {
            let sort = sort(bits);
            let _ = writeln!(self.declarations, "(declare-fun atomic{bits} ({sort}) {sort})");
        }
        format!("(atomic{bits} {value})")
    }
}

/// The SMT-LIB sort of a term of this width. Memory has width 0.
fn sort(bits: u32) -> String {
    if bits == 0 {
        "(Array (_ BitVec 64) (_ BitVec 8))".into()
    } else {
        format!("(_ BitVec {bits})")
    }
}

/// The `count` bytes of `memory` at `address`, the first as the lowest.
fn load(memory: &str, address: &str, count: u32) -> String {
    let bytes: Vec<String> = (0..count).rev().map(|i| format!("(select {memory} {})", offset(address, i))).collect();
    match &bytes[..] {
        [byte] => byte.clone(),
        _ => format!("(concat {})", bytes.join(" ")),
    }
}

fn offset(address: &str, bytes: u32) -> String {
    if bytes == 0 {
        address.to_owned()
    } else {
        format!("(bvadd {address} {})", literal(u128::from(bytes), 64))
    }
}
