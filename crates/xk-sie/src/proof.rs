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
use std::io::Write as _;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use thiserror::Error;
use xk_table::{Fit, Range};

use crate::flow::Live;
use crate::program::iv_bounds;
use crate::state::{Flag, State};
use crate::term::{Node, TermId, Terms};

/// A solver that reads SMT-LIB from its standard input.
#[derive(Debug, Clone)]
pub struct Solver {
    /// Program and arguments.
    pub command: Vec<String>,
    /// What it calls itself, for the table.
    pub name: String,
    /// Bound in seconds.
    pub timeout_s: u64,
    /// What it said before.
    pub answers: Answers,
}

/// Queries that were decided, or were not within the bound, by their text. Builds of many
/// values ask the same of one piece of code again and again.
#[derive(Debug, Clone, Default)]
pub struct Answers(Arc<Mutex<HashMap<String, bool>>>);

/// Why an obligation is not proved.
#[derive(Debug, Error)]
pub enum ProofError {
    /// The solver found a counterexample.
    #[error("the update is wrong for some state and value")]
    Refuted,
    /// No answer in time.
    #[error("no answer within {0} s")]
    Timeout(u64),
    /// The solver is missing or did not understand.
    #[error("solver {program}: {detail}: install z3 (apt-get install z3)")]
    Solver {
        /// Program.
        program: String,
        /// What it said.
        detail: String,
    },
}

impl Solver {
    /// z3 as installed by Debian.
    ///
    /// # Errors
    /// [`ProofError::Solver`] when it cannot be run.
    pub fn z3(timeout_s: u64) -> Result<Self, ProofError> {
        Self::new(&["z3", "-in", &format!("-T:{timeout_s}")], &["z3", "--version"], timeout_s)
    }

    /// cvc5, the second opinion.
    ///
    /// # Errors
    /// [`ProofError::Solver`] when it cannot be run.
    pub fn cvc5(timeout_s: u64) -> Result<Self, ProofError> {
        let limit = format!("--tlimit={}", timeout_s * 1000);
        Self::new(&["cvc5", "--lang=smt2", &limit, "-"], &["cvc5", "--version"], timeout_s)
    }

    fn new(command: &[&str], version: &[&str], timeout_s: u64) -> Result<Self, ProofError> {
        let program = command[0].to_owned();
        let output = Command::new(version[0])
            .args(&version[1..])
            .output()
            .map_err(|e| ProofError::Solver { program, detail: e.to_string() })?;
        let first = String::from_utf8_lossy(&output.stdout).lines().next().unwrap_or("").trim().to_owned();
        let name = first.trim_start_matches("This is ").split(" [").next().unwrap_or("").to_owned();
        let name = name.split(" - ").next().unwrap_or("").to_lowercase();
        Ok(Self {
            command: command.iter().map(|s| (*s).to_owned()).collect(),
            name,
            timeout_s,
            answers: Answers::default(),
        })
    }

    /// Whether `query` is unsatisfiable; the solver is asked once.
    #[must_use]
    pub fn refutes(&self, query: String) -> bool {
        let known = |answers: &Answers| answers.0.lock().unwrap_or_else(PoisonError::into_inner).get(&query).copied();
        if let Some(answer) = known(&self.answers) {
            return answer;
        }
        let answer = match self.refute(&query) {
            Ok(_) => true,
            Err(ProofError::Refuted | ProofError::Timeout(_)) => false,
            // Another time it may do better.
            Err(ProofError::Solver { .. }) => return false,
        };
        self.answers.0.lock().unwrap_or_else(PoisonError::into_inner).insert(query, answer);
        answer
    }

    /// Decides `query`: `Ok` when it is unsatisfiable.
    ///
    /// # Errors
    /// [`ProofError`] for every other answer.
    pub fn refute(&self, query: &str) -> Result<u64, ProofError> {
        let program = self.command[0].clone();
        let fail = |detail: String| ProofError::Solver { program: program.clone(), detail };
        let started = Instant::now();
        let mut child = Command::new(&self.command[0])
            .args(&self.command[1..])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|e| fail(e.to_string()))?;
        if let Some(mut input) = child.stdin.take() {
            input.write_all(query.as_bytes()).map_err(|e| fail(e.to_string()))?;
        }
        let output = child.wait_with_output().map_err(|e| fail(e.to_string()))?;
        let answer = String::from_utf8_lossy(&output.stdout);
        match answer.trim() {
            "unsat" => Ok(started.elapsed().as_millis() as u64),
            "sat" => Err(ProofError::Refuted),
            "unknown" | "timeout" => Err(ProofError::Timeout(self.timeout_s)),
            _ if output.stdout.is_empty() && started.elapsed().as_secs() >= self.timeout_s => {
                Err(ProofError::Timeout(self.timeout_s))
            }
            other => Err(fail(other.chars().take(300).collect())),
        }
    }
}

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
    let mut printer = Printer::default();
    let mut differences = Vec::new();
    let mut pairs = Vec::new();
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
    let mut printer = Printer::default();
    let differences: Vec<String> = pairs
        .iter()
        .map(|&(a, b)| format!("(distinct {} {})", printer.print(terms, a), printer.print(terms, b)))
        .collect();
    format!(
        "{}{}{}(assert (or false {}))\n(check-sat)\n",
        printer.logic(),
        printer.declarations,
        printer.definitions,
        differences.join(" ")
    )
}

fn literal(value: u128, bits: u32) -> String {
    let value = value & crate::term::mask(bits);
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
}

impl Printer {
    fn logic(&self) -> String {
        let functions = if self.atomic.is_empty() { "" } else { "UF" };
        format!("(set-logic QF_A{functions}BV)\n")
    }

    fn print(&mut self, terms: &Terms, term: TermId) -> String {
        if let Some(name) = self.names.get(&term) {
            return name.clone();
        }
        let children: Vec<String> = terms.children(term).into_iter().map(|c| self.print(terms, c)).collect();
        let bits = terms.bits(term);
        let c = |i: usize| children[i].as_str();
        let name = format!("t{}", self.names.len());
        let body = match terms.node(term) {
            Node::Symbol(_) => {
                let _ = writeln!(self.declarations, "(declare-const {name} (_ BitVec {bits}))");
                self.names.insert(term, name.clone());
                return name;
            }
            Node::Memory => {
                let _ = writeln!(self.declarations, "(declare-const {name} (Array (_ BitVec 64) (_ BitVec 8)))");
                self.names.insert(term, name.clone());
                return name;
            }
            Node::Const(value) => literal(*value, bits),
            Node::Bin(op, ..) if op.is_comparison() => {
                format!("(ite ({} {} {}) #b1 #b0)", Terms::smt_operator(*op), c(0), c(1))
            }
            Node::Bin(op, ..) => format!("({} {} {})", Terms::smt_operator(*op), c(0), c(1)),
            Node::Not(_) => format!("(bvnot {})", c(0)),
            Node::Extract(lo, _) => format!("((_ extract {} {lo}) {})", lo + bits - 1, c(0)),
            Node::Concat(..) => format!("(concat {} {})", c(0), c(1)),
            Node::ZExt(x) => format!("((_ zero_extend {}) {})", bits - terms.bits(*x), c(0)),
            Node::SExt(x) => format!("((_ sign_extend {}) {})", bits - terms.bits(*x), c(0)),
            // Proved for every function, it holds for the identity; and an
            // atomic access never equals a plain one.
            Node::Atomic(_) => {
                if self.atomic.insert(bits) {
                    let sort = format!("(_ BitVec {bits})");
                    let _ = writeln!(self.declarations, "(declare-fun atomic{bits} ({sort}) {sort})");
                }
                format!("(atomic{bits} {})", c(0))
            }
            Node::Ite(..) => format!("(ite (= {} #b1) {} {})", c(0), c(1), c(2)),
            Node::Load(..) => {
                let bytes = (0..bits / 8).rev().map(|i| format!("(select {} {})", c(0), offset(c(1), i)));
                let bytes: Vec<String> = bytes.collect();
                if bytes.len() == 1 {
                    bytes[0].clone()
                } else {
                    format!("(concat {})", bytes.join(" "))
                }
            }
            Node::Store(_, _, value) => {
                let count = terms.bits(*value) / 8;
                (0..count).fold(c(0).to_owned(), |memory, i| {
                    format!("(store {memory} {} ((_ extract {} {}) {}))", offset(c(1), i), 8 * i + 7, 8 * i, c(2))
                })
            }
        };
        let sort = if bits == 0 { "(Array (_ BitVec 64) (_ BitVec 8))".into() } else { format!("(_ BitVec {bits})") };
        let _ = writeln!(self.definitions, "(define-fun {name} () {sort} {body})");
        self.names.insert(term, name.clone());
        name
    }
}

fn offset(address: &str, bytes: u32) -> String {
    if bytes == 0 {
        address.to_owned()
    } else {
        format!("(bvadd {address} {})", literal(u128::from(bytes), 64))
    }
}
