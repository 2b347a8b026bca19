//! Locked instructions: what they compute is known, but no update may read or
//! write again what they accessed, and no proof may overlook the lock.

#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use xk_analysis::generate::generate;
use xk_analysis::program::{iv_term, Links};
use xk_analysis::proof::{different, Solver};
use xk_lift::flow::{Flow, Live};
use xk_lift::insn::Insn;
use xk_lift::object::Object;
use xk_lift::prototypes::Prototypes;
use xk_lift::semantics::{step, Substitution};
use xk_lift::state::State;
use xk_lift::term::{TermId, Terms};
use xk_table::Fit;

/// Behind `body` no flag is live, and every register is.
fn object(body: &str) -> Object {
    xk_testing::function(&format!("{body}; cmp %rax,%rax; jmp *%rax"))
}

/// The states after `body` as it is, and with V instead of every immediate 85;
/// and what is live then.
fn states(terms: &mut Terms, body: &str) -> (State, State, Live) {
    let fit = Fit::linear(1, 0, 8);
    let v = iv_term(terms, &fit);
    let (mut actual, mut wanted) = (State::unknown(terms), State::unknown(terms));
    let object = object(body);
    let body: Vec<&Insn> = object.insns.values().take_while(|insn| insn.text() != "cmp %rax,%rax").collect();
    for insn in &body {
        let substitution =
            Substitution { immediate: insn.text().contains("$0x55").then_some(v), displacement: None, pool: None };
        step(terms, &mut actual, insn, Substitution::default()).unwrap();
        step(terms, &mut wanted, insn, substitution).unwrap();
    }
    let live = Flow::new(&object, &Prototypes::default()).live_in(body.last().unwrap().next());
    (actual, wanted, live)
}

fn has_update(body: &str) -> bool {
    let mut terms = Terms::new();
    let (actual, wanted, live) = states(&mut terms, body);
    generate(&mut terms, &actual, &wanted, live, &[Fit::linear(1, 0, 8)], &Links::new()).is_ok()
}

#[test]
fn what_was_accessed_atomically_is_not_accessed_again() {
    let pairs = [
        ("addq $0x55,(%rdi)", "lock addq $0x55,(%rdi)"),
        ("orb $0x55,(%rdi)", "lock orb $0x55,(%rdi)"),
        ("mov $0x55,%eax; mov %rax,(%rdi)", "mov $0x55,%eax; xchg %rax,(%rdi)"),
        ("mov $0x55,%eax; xadd %rax,(%rdi)", "mov $0x55,%eax; lock xadd %rax,(%rdi)"),
        // The old value would have to be read again.
        ("mov (%rdi),%rax; and $0x55,%rax", "lock xadd %rax,(%rdi); and $0x55,%rax"),
    ];
    for (plain, atomic) in pairs {
        assert!(has_update(plain), "{plain}");
        assert!(!has_update(atomic), "{atomic}");
    }
    // What V does not reach may be atomic.
    assert!(has_update("lock incl (%rdi); movq $0x55,8(%rsi)"));
}

#[test]
fn a_proof_sees_the_lock() {
    let solver = Solver::z3(20).expect("z3 is needed: apt-get install z3");
    let memory = |terms: &mut Terms, body: &str| -> TermId { states(terms, body).0.memory };
    let equal = |a: &str, b: &str| {
        let mut terms = Terms::new();
        let pair = (memory(&mut terms, a), memory(&mut terms, b));
        solver.refute(&different(&terms, &[pair])).is_ok()
    };
    assert!(equal("lock incl (%rdi)", "lock addl $1,(%rdi)"));
    assert!(equal("mov %rdi,%rsi; lock incl 4(%rsi)", "lock incl 4(%rdi)"));
    assert!(equal("xor %ecx,%edi; xor %edi,%ecx; lock incl (%rcx)", "mov %edi,%ecx; lock incl (%rcx)"));
    assert!(!equal("lock incl (%rdi)", "incl (%rdi)"));
    assert!(!equal("lock addl $0,-4(%rsp)", "nop"));
    assert!(!equal("xchg %rax,(%rdi)", "mov %rax,(%rdi)"));
}
