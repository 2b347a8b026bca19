//! Compares the verdicts on objects before and after they were rewritten.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::inside::objects::{Judged, Verdict, Verdicts};

/// What the verifier says when a loop is too much for it.
const GIVES_UP: [&str; 4] =
    ["infinite loop detected", "jumps is too complex", "program is too large", "back-edge from insn"];

/// Programs, by the beginnings of their names, whose verdict changes for a reason that is known. None of them passes unnoticed: it is listed.
const KNOWN: [(&str, &str, &str); 9] = [
    ("arena_htab", "arena_htab_llvm", FORGETS),
    ("strobemeta_bpf_loop", "on_event", STACK),
    ("test_module_attach", "handle_raw_tp_writable_bare", BUFFER),
    ("verifier_direct_packet_access", "reg_pkt_end_in_subprog", UNTYPED),
    ("verifier_iterating_callbacks", "check_add_const", FORGETS),
    ("verifier_precision", "bpf_cond_op_r10", UNTYPED),
    ("verifier_regalloc", "regalloc_in_callee", UNTYPED),
    ("verifier_scalar_ids", "precision_", UNTYPED),
    ("verifier_search_pruning", "liveness_pruning_and_write_screening", ENTRY),
];
const STACK: &str = "the frames of two functions are too large together";
const UNTYPED: &str = "a function reads an argument that its type does not name, and the look does not keep it";
const ENTRY: &str = "it returns r0, which nothing has set, and the entry of a run sets r0";
const FORGETS: &str = "the verifier forgets numbers at may_goto, and with them the bound of an access";
const BUFFER: &str = "the verifier forgets a pointer to the buffer of a writable tracepoint that is saved in the frame";

/// A program with two verdicts.
#[derive(Debug, Serialize)]
pub struct Pair {
    /// Its selftest.
    pub object: String,
    /// The program.
    pub program: String,
    /// Before,
    pub before: Verdict,
    /// and after.
    pub after: Verdict,
}

/// All programs of objects that were changed.
#[derive(Debug, Default, Serialize)]
pub struct Comparison {
    /// Objects that libbpf opens.
    pub objects: usize,
    /// Objects that it does not open, by its reason.
    pub unopened: BTreeMap<String, usize>,
    /// Programs.
    pub programs: usize,
    /// Accepted both times,
    pub accepted: usize,
    /// and how many instructions the verifier followed before,
    pub insns_before: u64,
    /// and after.
    pub insns_after: u64,
    /// Refused both times.
    pub refused: usize,
    /// Refused both times, with other words.
    pub other_words: Vec<Pair>,
    /// Never seen by the verifier, by the reason.
    pub untried: BTreeMap<String, usize>,
    /// Verdicts that take too long, before or after.
    pub slow: Vec<Pair>,
    /// The verifier gave up at a loop, and accepts it now.
    pub gained: Vec<Pair>,
    /// It was accepted, and the verifier gives up at a loop now. It knows each number of a loop that is not widened, and
    /// follows it turn by turn to the end; `may_goto` and the call of a look add states to each turn.
    pub exhausted: Vec<Pair>,
    /// Another verdict, for a known reason.
    pub known: Vec<Pair>,
    /// Another verdict.
    pub changed: Vec<Pair>,
}

impl Comparison {
    /// Adds an object.
    pub fn add(&mut self, name: &str, before: &Verdicts, after: &Verdicts) {
        match (&before.unopened, &after.unopened) {
            (None, None) => self.objects += 1,
            (Some(reason), Some(_)) => {
                *self.unopened.entry(general(reason)).or_default() += 1;
                return;
            }
            (before, after) => {
                let untried = |reason: &Option<String>| Verdict::Untried(reason.clone().unwrap_or_default());
                let (object, program) = (name.to_owned(), String::new());
                self.changed.push(Pair { object, program, before: untried(before), after: untried(after) });
                return;
            }
        }
        let mut others = after.programs.iter();
        for Judged { program, verdict: before } in &before.programs {
            let gone = || Verdict::Untried("it is gone".into());
            let after = others.next().map_or_else(gone, |other| other.verdict.clone());
            self.program(Pair { object: name.to_owned(), program: program.clone(), before: before.clone(), after });
        }
    }

    fn program(&mut self, pair: Pair) {
        self.programs += 1;
        match (&pair.before, &pair.after) {
            (Verdict::Accepted { insns: before }, Verdict::Accepted { insns: after }) => {
                self.accepted += 1;
                self.insns_before += u64::from(*before);
                self.insns_after += u64::from(*after);
            }
            (Verdict::Refused { errno, words, .. }, Verdict::Refused { errno: other, words: others, .. }) => {
                // A loop that is too much may be too much in another way.
                if errno != other && !(gives_up(words) && gives_up(others)) {
                    return self.changed.push(pair);
                }
                self.refused += 1;
                if words.last().map(|line| general(line)) != others.last().map(|line| general(line)) {
                    self.other_words.push(pair);
                }
            }
            (Verdict::Untried(reason), Verdict::Untried(_)) => {
                *self.untried.entry(general(reason)).or_default() += 1;
            }
            (Verdict::Slow, _) | (_, Verdict::Slow) => self.slow.push(pair),
            (Verdict::Refused { words, .. }, Verdict::Accepted { .. }) if gives_up(words) => self.gained.push(pair),
            (Verdict::Accepted { .. }, Verdict::Refused { words, .. }) if gives_up(words) => self.exhausted.push(pair),
            _ if known_reason(&pair).is_some() => self.known.push(pair),
            _ => self.changed.push(pair),
        }
    }
}

/// Why the verdict on a program changes, if that is known.
#[must_use]
pub fn known_reason(pair: &Pair) -> Option<&'static str> {
    KNOWN
        .iter()
        .find(|(object, program, _)| *object == pair.object && pair.program.starts_with(program))
        .map(|known| known.2)
}

fn gives_up(words: &[String]) -> bool {
    words.iter().any(|line| GIVES_UP.iter().any(|reason| line.contains(reason)))
}

/// A message without names, numbers and registers.
fn general(words: &str) -> String {
    let mut quoted = words.split('\'');
    let mut text = quoted.next().unwrap_or_default().to_owned();
    while let (Some(_), rest) = (quoted.next(), quoted.next()) {
        text += "X";
        text += rest.unwrap_or_default();
    }
    let mut short = String::new();
    for letter in text.chars() {
        match letter {
            '0'..='9' if short.ends_with('N') => {}
            '0'..='9' => short.push('N'),
            _ => short.push(letter),
        }
    }
    short
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(errno: &str, words: &str) -> Verdict {
        Verdict::Refused { errno: errno.into(), words: vec![words.into()], insns: 7 }
    }

    fn compared(before: Verdict, after: Verdict) -> Comparison {
        let mut comparison = Comparison::default();
        let verdicts = |verdict| Verdicts {
            object: "x.o".into(),
            programs: vec![Judged { program: "f".into(), verdict }],
            unopened: None,
        };
        comparison.add("x", &verdicts(before), &verdicts(after));
        comparison
    }

    #[test]
    fn a_verdict_that_changed_is_told_from_one_that_is_gained() {
        let accepted = || Verdict::Accepted { insns: 3 };
        let gained = compared(refused("-EINVAL", "infinite loop detected at insn 3"), accepted());
        assert_eq!((gained.gained.len(), gained.changed.len()), (1, 0));
        let exhausted = compared(accepted(), refused("-E2BIG", "BPF program is too large. Processed 1000001 insn"));
        assert_eq!((exhausted.exhausted.len(), exhausted.changed.len()), (1, 0));
        let pairs = [
            (refused("-EACCES", "R1 !read_ok"), accepted()),
            (accepted(), refused("-EACCES", "R1 !read_ok")),
            (refused("-EACCES", "R1 !read_ok"), refused("-EINVAL", "infinite loop detected at insn 3")),
            (Verdict::Untried("no type".into()), accepted()),
        ];
        for (before, after) in pairs {
            assert_eq!(compared(before, after).changed.len(), 1);
        }
        let same = compared(refused("-EACCES", "R1 !read_ok"), refused("-EACCES", "R2 !read_ok"));
        assert_eq!((same.refused, same.other_words.len(), same.changed.len()), (1, 0, 0));
        let other = compared(refused("-EACCES", "R1 !read_ok"), refused("-EACCES", "invalid stack"));
        assert_eq!((other.refused, other.other_words.len()), (1, 1));
    }

    #[test]
    fn names_and_numbers_are_left_out_of_reasons() {
        assert_eq!(general("prog 'f': 12 maps in 'g' of 7"), "prog X: N maps in X of N");
    }
}
