//! Memory as others see it: no update reads twice what is used once, and the default is
//! never where another context could find it. Each fixture was accepted, with an update
//! that is right on a machine on which nobody else accesses memory.

#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

mod common;

use common::emulator::Emulator;
use common::fixture::*;
use xk_analysis::analyse::Analysis;
use xk_table::{CriticalSpan, OpCode, Refusal, When};
use xk_testing::Random;

const DEFAULT: i64 = 32;
const FITTED: [i64; 3] = [17, 64, 100];
const UNSEEN: [i64; 4] = [5, 33, 90, 120];

fn found(code: &str) -> Result<Analysis, Refusal> {
    let text = body(code);
    let build = from_assembly(&text);
    plain(&build, DEFAULT, &FITTED, &UNSEEN)
}

/// Deployed code with updates does what the other build does.
#[track_caller]
fn runs(code: &str, analysis: &Analysis) {
    let text = body(code);
    let build = from_assembly(&text);
    let base = build(DEFAULT);
    for v in FITTED.into_iter().chain(UNSEEN) {
        let variant = build(v);
        for seed in 0..20 {
            let mut random = Random(seed ^ v as u64);
            let regs = std::array::from_fn(|_| 0x1000_0000 + 64 * random.below(1 << 16) as u64);
            let ours = Emulator::new(&base, function(&base), seed, regs).with(&analysis.spans, v).run();
            assert_eq!(ours, Emulator::new(&variant, function(&variant), seed, regs).run(), "{code}: {v}");
        }
    }
}

/// The one span of what must have an update.
#[track_caller]
fn updated(code: &str) -> CriticalSpan {
    let analysis = found(code).unwrap_or_else(|refusal| panic!("{code}: {refusal}"));
    runs(code, &analysis);
    let [span] = &analysis.spans[..] else { panic!("{code}: {:?}", analysis.spans) };
    assert_eq!(span.only_in_place, None, "{code}");
    span.clone()
}

/// The one span of what the instructions must hold themselves.
#[track_caller]
fn held(code: &str) -> String {
    let analysis = found(code).unwrap_or_else(|refusal| panic!("{code}: {refusal}"));
    let [span] = &analysis.spans[..] else { panic!("{code}: {:?}", analysis.spans) };
    assert_eq!(span.in_place.as_ref().map(|held| held.range), Some(analysis.values.hull()), "{code}");
    span.only_in_place.clone().unwrap_or_else(|| panic!("{code}: {:?}", span.indirection))
}

fn count(span: &CriticalSpan, code: OpCode) -> usize {
    span.indirection.program.ops.iter().filter(|op| op.code == code).count()
}

/// eax and ecx come from one reading; a second one could be another value.
#[test]
fn one_reading_stays_one_reading() {
    // Only memory has what the `and` destroyed, and edx is what was read first. Instead
    // of the `and`, its operand is still there.
    let span = updated("mov (%rsi),%eax; mov %eax,%edx; and ${V},%edx; mov %rdx,%rdi; mov %eax,%esi; call g; ret");
    assert_eq!(count(&span, OpCode::Load), 0);
    let span = updated("mov (%rsi),%edx; lea 1(%rdx),%r8; and ${V},%edx; xor %r9d,%r9d; mov %r8,8(%rdi); ret");
    assert_eq!(count(&span, OpCode::Load), 0, "{:?}", span.indirection);
    // The comparison's flags and eax must be of one reading.
    let span = updated("mov (%rsi),%eax; cmpl ${V},(%rsi); ja 1f; call g; ret; 1: mov %eax,(%rdi); ret");
    assert!(count(&span, OpCode::Load) <= 1);
    if count(&span, OpCode::Load) == 0 {
        panic!("flags of another reading: {:?}", span.indirection);
    }
}

/// The read lies before a store, but what was made of it can be undone: five has an
/// inverse modulo 2^32.
#[test]
fn a_multiplication_is_undone_where_nothing_may_be_read_again() {
    let text = |v: i64| match v {
        10 => "movzwl (%rsi),%eax; movl $0,(%rdi); lea (%rax,%rax,4),%eax; add %eax,%eax; mov %eax,8(%rdi); ret".into(),
        _ => format!("movzwl (%rsi),%eax; movl $0,(%rdi); imul ${v},%eax,%eax; mov %eax,8(%rdi); ret"),
    };
    let build = |v: i64| from_assembly(&body(&text(v)))(v);
    let analysis = plain(&build, 10, &[7, 11, 100], &[13, 50]).unwrap();
    let [span] = &analysis.spans[..] else { panic!("{:?}", analysis.spans) };
    assert_eq!((span.indirection.when, count(span, OpCode::Load)), (When::Instead, 0));
}

/// What was read first is used nowhere, and nothing lies between.
#[test]
fn what_is_used_nowhere_may_be_read_again() {
    let span = updated("cmpl ${V},(%rsi); ja 1f; call g; ret; 1: call h; ret");
    assert_eq!((count(&span, OpCode::Load), span.indirection.when), (1, When::Before));
    assert_eq!(span.visible.len(), 1, "{:?}", span.visible);
}

/// An earlier access must not come after a later one.
#[test]
fn nothing_is_read_again_over_another_access() {
    for between in ["mov 8(%rdi),%r8", "movl $0,8(%rdi)", "lock orl $0,-4(%rsp)", "incl %gs:counter"] {
        let code = format!("cmpl ${{V}},(%rsi); {} mov %r9,%r10; ja 1f; call g; ret; 1: call h; ret", keep(between));
        let span = updated(&code);
        let compare = span.assembly.iter().find(|line| line.iv.is_some()).unwrap();
        let end = span.indirection.offset + u32::from(span.indirection.insn_len);
        assert!(
            count(&span, OpCode::Load) == 0
                || span.indirection.when == When::Instead && span.indirection.offset == compare.offset
                || span.indirection.when == When::Before && span.indirection.offset == span.end && end > span.end,
            "{between}: {:?}",
            span.indirection
        );
    }
}

/// The flags of the comparison outlive the instruction.
fn keep(between: &str) -> String {
    match between {
        "lock orl $0,-4(%rsp)" | "incl %gs:counter" => format!("seta %cl; {between}; test %cl,%cl;"),
        other => format!("{other};"),
    }
}

#[test]
fn the_default_is_never_stored() {
    for store in ["movl ${V},(%rdi)", "movb ${V},(%rdi)", "movl ${V},%gs:counter", "mov %esi,8*{V}(%rdi)"] {
        let span = updated(&format!("{store}; mov $1,%eax; ret"));
        assert_eq!((span.indirection.when, count(&span, OpCode::Store)), (When::Instead, 1), "{store}");
        assert_eq!(count(&span, OpCode::Load), 0, "{store}");
    }
    // A register that is stored is changed before.
    let span = updated("mov ${V},%eax; mov %eax,(%rdi); mov %eax,8(%rdi); ret");
    assert_eq!((span.indirection.when, count(&span, OpCode::Store)), (When::Before, 0));
    let span = updated("mov (%rsi),%rax; add ${V},%rax; mov %rax,(%rdi); ret");
    assert_eq!((count(&span, OpCode::Load), count(&span, OpCode::Store)), (0, 0));
}

#[test]
fn two_stores_in_a_row_have_an_update_each() {
    let code = "movl ${V},(%rdi); movl ${V},8(%rdi); mov $1,%eax; ret";
    let analysis = found(code).unwrap();
    runs(code, &analysis);
    let whens: Vec<_> = analysis.spans.iter().map(|span| span.indirection.when).collect();
    assert_eq!(whens, [When::Instead, When::Instead]);
}

/// Between a load and a store of ours somebody else's store would be lost.
#[test]
fn one_instruction_is_not_two() {
    for whole in ["addl ${V},(%rdi)", "addq ${V},%gs:counter", "orl ${V},8(%rdi,%rsi,4)", "subl ${V},counter(%rip)"] {
        let reason = held(&format!("{whole}; mov $1,%eax; ret"));
        assert!(reason.contains("two steps") || reason.contains("depends on the constant"), "{whole}: {reason}");
    }
}

/// Without a number in it there is no way at all.
#[test]
fn what_cannot_be_held_is_refused() {
    let code = "lock addl ${V},(%rdi); mov $1,%eax; ret";
    assert_eq!(reason(&found(code).unwrap_err()), "no_indirection");
    // One span needs an update, and the other allows none.
    let code = "addl ${V},(%rdi); imul $8,%rsi,%rax; lea shared+{V}(%rax),%rax; ret";
    let refusal = found(code).unwrap_err();
    assert!(refusal.to_string().contains("only in place"), "{refusal}");
}

/// Nobody else sees the function's own frame, unless an address in it gets out.
#[test]
fn the_own_frame_is_nobody_elses() {
    let span = updated("sub $16,%rsp; mov %rdi,8(%rsp); addq ${V},8(%rsp); mov 8(%rsp),%rax; add $16,%rsp; ret");
    assert_eq!(span.only_in_place, None);
    let out = "sub $16,%rsp; mov %rsi,8(%rsp); lea 8(%rsp),%rdi; call g; addq ${V},8(%rsp); \
               mov 8(%rsp),%rax; add $16,%rsp; ret";
    assert!(!held(out).is_empty());
}
