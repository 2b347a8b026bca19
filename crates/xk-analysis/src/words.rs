//! The symbolic state expression of a span in words, for people.

use xk_lift::flow::Live;
use xk_lift::state::{Flag, FlagsOrigin, State, REGISTERS};
use xk_lift::term::{BinOp, Node, TermId, Terms};
pub use xk_table::fit_words;
use xk_table::Fit;

use crate::program::unknown;

/// A number with its noun: `1 unit`, `2 units`.
pub(crate) fn counted(count: usize, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}

/// One line per live register, flag group or store that depends on V.
#[must_use]
pub fn describe(terms: &Terms, actual: &State, wanted: &State, live: Live, ivs: &[Fit]) -> Vec<String> {
    let printer = Words { terms, ivs };
    let mut lines = Vec::new();
    for (number, register) in REGISTERS.iter().enumerate() {
        if live.register(number) && actual.regs[number] != wanted.regs[number] {
            lines.push(format!("{register} = {}", printer.term(wanted.regs[number], 0)));
        }
    }
    if Flag::ALL.into_iter().any(|f| live.flag(f) && actual.flag(f) != wanted.flag(f)) {
        lines.push(match wanted.flags_origin {
            Some(FlagsOrigin::Sub(a, b)) => {
                format!("flags = compare {} with {}", printer.term(a, 0), printer.term(b, 0))
            }
            Some(FlagsOrigin::Add(a, b)) => format!("flags of {} + {}", printer.term(a, 0), printer.term(b, 0)),
            Some(FlagsOrigin::Logic(result)) => format!("flags of {}", printer.term(result, 0)),
            None => "flags depend on V".into(),
        });
    }
    let (mut old, mut new) = (actual.memory, wanted.memory);
    while old != new {
        let (&Node::Store(before_old, ..), &Node::Store(before_new, address, value)) =
            (terms.node(old), terms.node(new))
        else {
            break;
        };
        let bytes = terms.bits(value) / 8;
        lines.push(format!("{bytes} bytes at [{}] = {}", printer.term(address, 0), printer.term(value, 0)));
        (old, new) = (before_old, before_new);
    }
    lines
}

struct Words<'a> {
    terms: &'a Terms,
    ivs: &'a [Fit],
}

impl Words<'_> {
    fn term(&self, term: TermId, depth: u32) -> String {
        if depth > 12 {
            return "…".into();
        }
        let sub = |t: TermId| self.term(t, depth + 1);
        let bits = self.terms.bits(term);
        match *self.terms.node(term) {
            Node::Symbol(ref name) => self.fit(term).unwrap_or_else(|| name.clone()),
            Node::Const(value) => {
                let signed = if bits < 64 && bits > 1 && value >> (bits - 1) == 1 && bits >= 32 {
                    format!("-{:#x}", xk_lift::term::mask(bits) + 1 - value)
                } else {
                    format!("{value:#x}")
                };
                signed
            }
            Node::Bin(op, a, b) => {
                if let Some(fit) = self.fit(term) {
                    return fit;
                }
                let operator = match op {
                    BinOp::Add => "+",
                    BinOp::Sub => "-",
                    BinOp::Mul => "·",
                    BinOp::And => "&",
                    BinOp::Or => "|",
                    BinOp::Xor => "^",
                    BinOp::Shl => "<<",
                    BinOp::Shr => ">>",
                    BinOp::Sar => ">>s",
                    BinOp::Eq => "==",
                    BinOp::Ult => "<",
                    BinOp::Slt => "<s",
                    BinOp::UDiv => "/",
                    BinOp::URem => "%",
                    BinOp::SDiv => "/s",
                    BinOp::SRem => "%s",
                };
                if op == BinOp::Sub && self.terms.as_const(a) == Some(0) {
                    return format!("-{}", sub(b));
                }
                format!("({} {operator} {})", sub(a), sub(b))
            }
            Node::Not(a) => format!("~{}", sub(a)),
            Node::Extract(lo, a) => match (self.fit(term), self.terms.node(a)) {
                (Some(fit), _) => fit,
                (None, Node::Symbol(name)) => part_of(name, lo, bits),
                _ if lo == 0 => sub(a),
                _ => format!("{}[{lo}..{}]", sub(a), lo + bits),
            },
            Node::Concat(high, low) => format!("{}:{}", sub(high), sub(low)),
            Node::ZExt(a) | Node::Atomic(a) => sub(a),
            Node::SExt(a) => format!("signed {}", sub(a)),
            Node::Ite(c, a, b) => format!("({} ? {} : {})", sub(c), sub(a), sub(b)),
            Node::Memory | Node::Store(..) => "memory".into(),
            Node::Load(_, address) => format!("[{}]", sub(address)),
        }
    }

    /// Recognises a transformed value by its shape: a·V + b, cut to its width.
    fn fit(&self, term: TermId) -> Option<String> {
        // a and b modulo the width of the term: -1 may stand as 0xffffffff.
        let kept = xk_lift::term::mask(self.terms.bits(term)) as u64;
        let (mut at, mut a, mut b) = (term, 1u64, 0u64);
        loop {
            match *self.terms.node(at) {
                Node::Symbol(ref name) if name == "V" => break,
                Node::Symbol(ref name) if a == 1 && b == 0 => {
                    // The unknown that stands for a form that is not linear.
                    let fit = self.ivs.iter().find(|fit| *name == unknown(fit))?;
                    return Some(fit_words(fit));
                }
                Node::Extract(0, inner) if matches!(self.terms.node(inner), Node::Symbol(name) if name == "V") => break,
                Node::Extract(0, inner) => at = inner,
                Node::Bin(BinOp::Add, x, c) => {
                    b = b.wrapping_add(self.terms.as_const(c)? as u64);
                    at = x;
                }
                Node::Bin(BinOp::Mul, x, c) => {
                    a = a.wrapping_mul(self.terms.as_const(c)? as u64);
                    at = x;
                }
                _ => return None,
            }
        }
        let fit = self.ivs.iter().find(|f| (f.a as u64 ^ a) & kept == 0 && (f.b as u64 ^ b) & kept == 0)?;
        Some(fit_words(fit))
    }
}

fn part_of(register: &str, lo: u32, bits: u32) -> String {
    let known = REGISTERS.iter().position(|r| *r == register);
    let Some(number) = known.filter(|_| lo == 0) else { return format!("{register}[{lo}..{}]", lo + bits) };
    let name = &register[1..];
    match (bits, number) {
        (32, 0..=7) => format!("e{name}"),
        (16, 0..=7) => name.to_owned(),
        (8, 0..=3) => format!("{}l", &name[..1]),
        (8, 4..=7) => format!("{name}l"),
        (32, _) => format!("{register}d"),
        (16, _) => format!("{register}w"),
        (8, _) => format!("{register}b"),
        _ => register.to_owned(),
    }
}
