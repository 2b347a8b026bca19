//! A table that holds is shown to hold; whatever is altered in it is found, at its
//! place. Fixtures are compiled as the kernel is, and are the deployed kernel.

#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

mod fixture;

use fixture::{Fixture, DEFAULT};
use xk_analysis::verify::{values, At, Claim};
use xk_table::{Fit, Form, InPlace, Op, OpCode, ProbeKind, Range, ScopeTable, Values, When};

const TWO: &str = "typedef unsigned int u32; typedef unsigned long u64; extern u64 g(u64), h(u64);\n\
    u64 f(u32 x) { if (x > V) return g(x); return h(x); }\n\
    u64 e(u64 x, u64 y) { return g(x + y * 3 + 2 * V); }\n";
const TWO_READINGS: &str = "extern unsigned long g(unsigned long), h(unsigned long);\n\
    unsigned long f(unsigned int *p) { if (*p > V) return g(1); return h(2); }\n";
const SELECT: &str = "extern unsigned long g(unsigned long);\n\
    unsigned long f(unsigned char c, unsigned long y) { return g(y + (c ? 2 * V : V)) + y; }\n";
/// Beyond 254 there is nothing left to compare.
const BYTE: &str = "extern unsigned long g(unsigned long), h(unsigned long);\n\
    unsigned long f(unsigned char x) { if (x > V) return g(x); return h(x); }\n";
const DATA: &str = "unsigned int limit = V; unsigned int *where(void) { return &limit; }\n";

#[test]
fn what_was_built_holds() {
    for text in [TWO, SELECT, DATA] {
        let fixture = Fixture::new(text);
        let report = fixture.altered(|_| ());
        assert_eq!(report.faults, [], "{text}");
        assert!(report.proofs.iter().all(|proofs| proofs.len() == 1), "{text}");
        assert_eq!(report.proofs.len(), fixture.table.spans.len());
    }
}

/// The processor takes a count modulo the width; C says nothing of it.
#[test]
fn no_value_is_proved_for_which_a_shift_is_not_defined() {
    let fixture = Fixture::new("extern int g(unsigned long);\nint f(unsigned long x) { return g(x >> V); }\n");
    assert_eq!(fixture.table.values.proved, Some(Range::of(0, 63)));
    fixture.finds(At::Table, Claim::Values, |table| {
        table.values.refused.clear();
        table.values.proved = Some(Range::of(0, 64));
    });
}

/// A product with 0 is a constant, and code may ask whether it is one.
#[test]
fn no_value_is_proved_that_makes_a_product_a_constant() {
    let text = "extern int g(int), h(int);\n\
        int f(int x) { int y = x * V; return __builtin_constant_p(y) ? h(y) : g(y); }\n";
    assert_eq!(Fixture::new(text).table.values.proved, Some(Range::of(1, i64::from(i32::MAX))));
}

#[test]
fn an_altered_operation_is_not_proved() {
    for text in [TWO, SELECT] {
        let fixture = Fixture::new(text);
        for (index, span) in fixture.table.spans.iter().enumerate() {
            for (at, op) in span.indirection.program.ops.iter().enumerate() {
                let meaning = matches!(op.code, OpCode::Imm | OpCode::Load | OpCode::Store | OpCode::SetFlags);
                let alter = |table: &mut ScopeTable| {
                    let op = &mut table.spans[index].indirection.program.ops[at];
                    match op.code {
                        OpCode::SetReg => op.dst ^= 1,
                        OpCode::SetFlags => op.imm ^= 0x40,
                        _ => op.imm += 1,
                    }
                };
                if meaning || op.code == OpCode::SetReg {
                    fixture.finds(At::Span(index), Claim::Proof, alter);
                }
            }
        }
    }
}

#[test]
fn an_update_that_does_nothing_is_not_proved() {
    let fixture = Fixture::new(TWO);
    fixture.finds(At::Span(0), Claim::Proof, |table| {
        let deployed = table.constant.default;
        for op in &mut table.spans[0].indirection.program.ops {
            if op.code == OpCode::Iv {
                (op.code, op.imm) = (OpCode::Imm, deployed);
            }
        }
    });
}

/// `f` in assembly.
macro_rules! assembly {
    ($before:literal, $behind:literal) => {
        concat!(
            "#define S(x) #x\n#define T(x) S(x)\nasm(\".text; .globl f; .type f,@function; f: ",
            $before,
            "\" T(V) \"",
            $behind,
            "; ret; .size f,.-f\");\n"
        )
    };
}

/// The update is right where nobody else accesses memory, and others would see it.
#[test]
fn an_update_that_others_see_at_work_is_not_proved() {
    let op = |code, width, dst, a, b| Op { code, width, dst, a, b, c: 0, imm: 0 };
    // rax is of one reading, and rdx of another.
    let fixture = Fixture::new(assembly!("mov (%rdi),%eax; mov %eax,%edx; and $", ",%edx"));
    assert_eq!(fixture.altered(|_| ()).faults, []);
    assert!(fixture.table.spans[0].indirection.program.ops.iter().all(|op| op.code != OpCode::Load));
    fixture.finds(At::Span(0), Claim::Proof, |table| {
        let span = &mut table.spans[0];
        let end = table.functions[span.function].bytes.len() as u32 / 2;
        span.start = 0;
        (span.indirection.offset, span.indirection.insn_len) = (end - 1, 1);
        span.indirection.when = When::Before;
        span.indirection.program.ops = vec![
            op(OpCode::Reg, 8, 0, 7, 0),
            op(OpCode::Load, 4, 1, 0, 0),
            op(OpCode::Iv, 4, 2, 0, 0),
            op(OpCode::And, 4, 3, 1, 2),
            op(OpCode::SetReg, 4, 2, 3, 0),
        ];
    });
    // The default is in memory until the update runs.
    let fixture = Fixture::new(assembly!("movl $", ",(%rdi); xor %eax,%eax; xor %edx,%edx"));
    assert_eq!(fixture.altered(|_| ()).faults, []);
    assert_eq!(fixture.table.spans[0].indirection.when, When::Instead);
    fixture.finds(At::Span(0), Claim::Proof, |table| table.spans[0].indirection.when = When::After);
    // One access becomes two, whoever comes between.
    let fixture = Fixture::new(assembly!("addl $", ",%gs:(%rdi); xor %eax,%eax; xor %edx,%edx"));
    assert_eq!(fixture.altered(|_| ()).faults, []);
    assert!(fixture.table.spans[0].only_in_place.is_some());
    fixture.finds(At::Span(0), Claim::Proof, |table| table.spans[0].only_in_place = None);
    let report = fixture.altered(|table| table.spans[0].in_place = None);
    assert!(report.at(At::Table).any(|fault| fault.claim == Claim::Coherence), "{:?}", report.faults);
}

#[test]
fn what_is_read_again_is_said() {
    let fixture = Fixture::new(TWO_READINGS);
    assert_eq!(fixture.altered(|_| ()).faults, []);
    assert!(!fixture.table.spans[0].visible.is_empty(), "{:?}", fixture.table.spans);
    fixture.finds(At::Span(0), Claim::Proof, |table| table.spans[0].visible.clear());
}

#[test]
fn altered_numbers_in_instructions_are_found() {
    for text in [TWO, SELECT] {
        let fixture = Fixture::new(text);
        let held: Vec<usize> =
            (0..fixture.table.spans.len()).filter(|&i| fixture.table.spans[i].in_place.is_some()).collect();
        assert!(!held.is_empty(), "{:?}", fixture.table.spans);
        for index in held {
            let alter = |change: &dyn Fn(&mut InPlace)| {
                let change = |table: &mut ScopeTable| change(table.spans[index].in_place.as_mut().unwrap());
                fixture.altered(change).of_span(&fixture.table, index).cloned().collect::<Vec<_>>()
            };
            assert_eq!(alter(&|_| ()), []);
            // Coherent by themselves, and not what is there.
            for change in [
                &(|held: &mut InPlace| held.patches[0].width = if held.patches[0].width == 4 { 8 } else { 4 })
                    as &dyn Fn(&mut InPlace),
                &|held: &mut InPlace| held.patches.truncate(held.patches.len() - 1),
                &|held: &mut InPlace| held.patches[0].field -= 1,
            ] {
                let mut table = fixture.table.clone();
                change(table.spans[index].in_place.as_mut().unwrap());
                let faults = fixture.altered(|altered| *altered = table.clone()).faults;
                let about = |fault: &xk_analysis::verify::Fault| {
                    fault.detail.contains("in place") || fault.claim == Claim::Coherence
                };
                assert!(faults.iter().any(about), "{faults:?}");
            }
            // More room than there is.
            let wider = |held: &mut InPlace| held.range.max = fixture.table.values.hull().max.max(held.range.max + 1);
            let mut table = fixture.table.clone();
            wider(table.spans[index].in_place.as_mut().unwrap());
            if table.spans[index].in_place != fixture.table.spans[index].in_place {
                assert!(!fixture.altered(|altered| *altered = table.clone()).faults.is_empty());
            }
        }
    }
}

#[test]
fn another_byte_is_another_function() {
    let fixture = Fixture::new(TWO);
    let function = fixture.table.spans[0].function;
    let at = fixture.table.functions[function].mask.find("ff").unwrap();
    fixture.finds(At::Function(function), Claim::Identity, |table| {
        let bytes = &mut table.functions[function].bytes;
        let other = if bytes[at..].starts_with('0') { "1" } else { "0" };
        bytes.replace_range(at..=at, other);
    });
    fixture.finds(At::Function(function), Claim::Identity, |table| {
        table.functions[function].mask.replace_range(at..at + 2, "00");
    });
    fixture.finds(At::Function(function), Claim::Identity, |table| table.functions[function].text_offset += 1);
}

/// What is in place is wrong, too, and is found first.
fn forget_numbers(table: &mut ScopeTable) {
    for span in &mut table.spans {
        span.in_place = None;
    }
}

#[test]
fn a_fit_that_predicts_something_else_is_named() {
    for text in [TWO, SELECT] {
        let fixture = Fixture::new(text);
        for index in 0..fixture.table.spans.len() {
            let predict = |change: fn(&mut Fit)| {
                fixture.finds(At::Span(index), Claim::Validation, |table| {
                    forget_numbers(table);
                    change(&mut table.spans[index].ivs[0]);
                });
            };
            predict(|fit| fit.b += 1);
            predict(|fit| fit.a += 1);
            predict(|fit| fit.form = Form::Quotient(2));
        }
    }
}

#[test]
fn a_probe_elsewhere_is_not_proved() {
    let fixture = Fixture::new(TWO);
    for delta in [-1i64, 1, 3] {
        fixture.finds(At::Span(0), Claim::Proof, |table| {
            let indirection = &mut table.spans[0].indirection;
            indirection.offset = (i64::from(indirection.offset) + delta).max(0) as u32;
        });
    }
    fixture.finds(At::Span(0), Claim::Proof, |table| table.spans[0].indirection.when = When::Instead);
    let jumps = fixture.table.spans.iter().any(|span| span.indirection.probe == ProbeKind::Jump);
    let breaks = fixture.table.spans.iter().position(|span| span.indirection.probe == ProbeKind::Int3);
    assert!(jumps || breaks.is_some());
    if let Some(index) = breaks {
        fixture.finds(At::Span(index), Claim::Probe, |table| table.spans[index].indirection.probe = ProbeKind::Jump);
    }
}

#[test]
fn values_that_cannot_agree_are_refused() {
    let fixture = Fixture::new(BYTE);
    let Range { min, max } = fixture.table.values.proved.unwrap();
    assert_eq!((min, max), (0, 255));
    let claim = |values: Values| {
        fixture.finds(At::Table, Claim::Values, |table| {
            forget_numbers(table);
            table.values = values.clone();
        });
    };
    claim(Values::proved(min, 300));
    claim(Values::proved(-1, max));
    let compiled = |table: &mut ScopeTable| {
        forget_numbers(table);
        table.values = Values { compiled: vec![300], ..Values::proved(min, max) };
    };
    fixture.finds(At::Table, Claim::Validation, compiled);
    // Less than what was shown is not wrong.
    let less = |table: &mut ScopeTable| {
        forget_numbers(table);
        table.values = Values::proved(min + 1, max - 1);
    };
    assert_eq!(fixture.altered(less).faults, []);
}

#[test]
fn compiled_values_do_not_stand_for_others() {
    let fixture = Fixture::new(TWO);
    let Range { min, max } = fixture.table.values.proved.unwrap();
    let tested = values(&fixture.table);
    assert!(tested.iter().any(|value| value.count_ones() != 1), "{tested:?}");
    assert!(tested.contains(&min) && tested.contains(&max) && !tested.contains(&DEFAULT), "{tested:?}");
    let mut table = fixture.table.clone();
    table.values = Values::compiled([8, 16, DEFAULT, 64, 128]);
    assert_eq!(values(&table), [8, 16, 64, 128]);
    table.values = Values { compiled: vec![512], ..Values::proved(32, 33) };
    assert_eq!(values(&table), [33, 512]);
}

#[test]
fn a_missing_span_or_site_is_incomplete() {
    let fixture = Fixture::new(TWO);
    fixture.finds(At::Table, Claim::Completeness, |table| _ = table.spans.pop());
    fixture.finds(At::Span(0), Claim::Validation, |table| {
        table.spans[0].ivs[0] = Fit { width: 2, ..table.spans[0].ivs[0] };
    });
    let fixture = Fixture::new(DATA);
    fixture.finds(At::Data(0), Claim::Validation, |table| table.data[0].fit.b += 1);
    fixture.finds(At::Data(0), Claim::Validation, |table| table.data[0].offset += 4);
    fixture.finds(At::Data(0), Claim::Identity, |table| table.data[0].section_offset += 8);
}

#[test]
fn a_table_that_makes_no_sense_is_not_followed() {
    let fixture = Fixture::new(TWO);
    fixture.finds(At::Table, Claim::Coherence, |table| table.spans[0].function = 7);
    let report = fixture.altered(|table| table.spans[0].indirection.program.ops.clear());
    assert!(report.at(At::Table).any(|fault| fault.claim == Claim::Coherence), "{:?}", report.faults);
    assert!(report.proofs.iter().all(Vec::is_empty));
}
