//! Values in the instructions themselves. The bytes that an analysis names are changed in
//! the deployed object, as xk.ko changes them in the kernel, and what comes out is run
//! beside what the compiler makes for the other value.

#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

mod common;

use std::collections::BTreeMap;

use common::emulator::Emulator;
use common::fixture::*;
use common::usable::{c_text, USABLE};
use xk_lift::object::Object;
use xk_table::{CriticalSpan, Fit};
use xk_testing::{compile_c, Random};

/// `file` with the values for `v` in the instructions of `spans`.
fn patched(file: &[u8], spans: &[CriticalSpan], v: i64) -> Object {
    let object = Object::parse(file).unwrap();
    let text = object.text_and_mask(function(&object)).0;
    let places: Vec<usize> = (0..file.len()).filter(|&at| file[at..].starts_with(&text)).collect();
    let [place] = places[..] else { panic!("the function is there {} times", places.len()) };
    let mut file = file.to_vec();
    for span in spans {
        for patch in &span.in_place.as_ref().unwrap().patches {
            let at = place + patch.offset as usize + usize::from(patch.field);
            let number = Fit { width: 8, ..span.ivs[patch.iv] }.apply(v).to_le_bytes();
            file[at..at + usize::from(patch.size)].copy_from_slice(&number[..usize::from(patch.size)]);
        }
    }
    Object::parse(&file).unwrap()
}

/// Whether two builds of a function do anything differently, near `v` and elsewhere.
fn differ(one: &Object, other: &Object, v: i64) -> bool {
    let mut random = Random(v as u64 ^ 0x51);
    (0..100).any(|seed| {
        let regs: [u64; 16] = std::array::from_fn(|_| match random.below(3) {
            0 => (v as u64).wrapping_add(random.below(5) as u64).wrapping_sub(2),
            1 => random.value(),
            _ => 0x1000_0000 + 64 * random.below(1 << 16) as u64,
        });
        let run = |object| Emulator::new(object, function(object), seed, regs).run();
        run(one) != run(other)
    })
}

#[test]
fn other_numbers_are_other_values() {
    let (mut held, mut reasons) = (Vec::new(), BTreeMap::new());
    for usable in USABLE {
        let text = c_text(usable);
        let build = from_c(&text);
        let analysis = plain(&build, usable.default, usable.fitted, usable.unseen).unwrap();
        let spans = &analysis.spans;
        for span in spans {
            // One of the two, never neither.
            assert_eq!(span.in_place.is_some(), span.in_place_reason.is_none(), "{}", usable.what);
        }
        if let Some(span) = spans.iter().find(|span| span.in_place.is_none()) {
            reasons.insert(usable.what, span.in_place_reason.clone().unwrap());
            continue;
        }
        let file = compile_c(&text, &usable.default.to_string());
        let fits = |v: &&i64| spans.iter().all(|span| span.in_place.as_ref().unwrap().range.contains(**v));
        let values: Vec<i64> = usable.fitted.iter().chain(usable.unseen).filter(fits).copied().collect();
        assert!(!values.is_empty(), "{}", usable.what);
        for &v in &values {
            let variant = build(v);
            assert!(!differ(&patched(&file, spans, v), &variant, v), "{}: V = {v}", usable.what);
        }
        // Where one span keeps the old value, somebody notices.
        for missing in 0..spans.len() {
            let rest: Vec<_> =
                spans.iter().enumerate().filter(|(i, _)| *i != missing).map(|(_, s)| s.clone()).collect();
            let noticed = values.iter().any(|&v| differ(&patched(&file, &rest, v), &build(v), v));
            assert!(noticed, "{}: without span {missing}", usable.what);
        }
        held.push(usable.what);
    }
    assert_eq!((held.len(), reasons), (USABLE.len(), BTreeMap::new()));
}

#[test]
fn a_number_has_the_room_that_it_has() {
    // Eight bits, sign-extended to 32 and to 64: -128 to 127.
    let range = |text: &str, default: i64, fitted: &[i64], unseen: &[i64]| {
        let text = body(text);
        let analysis = plain(&from_assembly(&text), default, fitted, unseen).unwrap();
        let [span] = &analysis.spans[..] else { panic!("{:?}", analysis.spans) };
        let found = span.in_place.clone().unwrap_or_else(|| panic!("{:?}", span.in_place_reason));
        ((found.range.min, found.range.max), (analysis.values.hull().min, analysis.values.hull().max), found.patches)
    };
    let compare = "cmp ${V},%edi\n ja 1f\n call g\n ret\n1: call h\n ret";
    let (room, whole, patches) = range(compare, 100, &[50, 99, 1000], &[3, 127, 128, 70000]);
    assert_eq!((room, whole), ((3, 127), (3, 70000)));
    assert_eq!((patches[0].insn_len, patches[0].field, patches[0].size, patches[0].width), (3, 2, 1, 4));
    let (room, whole, patches) = range(compare, 1000, &[500, 990, 2000], &[300, 7000, 70000]);
    assert_eq!((room, whole), ((300, 70000), (300, 70000)));
    assert_eq!((patches[0].insn_len, patches[0].field, patches[0].size), (6, 2, 4));
    let displaced = "lea {V}(%rdi),%rax\n ret";
    let (room, _, patches) = range(displaced, 100, &[50, 99, 1000], &[3, 127, 128, 70000]);
    assert_eq!((room, patches[0].size, patches[0].width), ((3, 127), 1, 8));
}

#[test]
fn what_is_no_number_is_said() {
    let reason = |text: &str| {
        let text = body(text);
        let analysis = plain(&from_assembly(&text), 32, &[17, 64, 100], &[33, 90, 200]).unwrap();
        assert!(analysis.spans.iter().all(|span| span.in_place.is_none()), "{:?}", analysis.spans);
        analysis.spans[0].in_place_reason.clone().unwrap()
    };
    let relocated = reason("lea shared+{V}(%rdi),%rax\n ret");
    assert!(relocated.contains("the linker writes the number"), "{relocated}");
    let five = reason(&format!("{}ret", "add ${V},%rax\n".repeat(5)));
    assert!(five.contains("5 instructions hold it"), "{five}");
}
