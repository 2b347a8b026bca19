//! Loops that are unrolled: which are, what a turn of them costs, and that runs are ended in them as in others.

use xk_flex::{rewrite, Choice, LoopReport, Rewritten, Rolled};
use xk_testing::Random;

use crate::interpreter::{run, run_in, Control, End};
use crate::{all, compile, free, open, HEADER, REFERENCES, UNROLL};

fn unrolled(text: &str, unroll: usize) -> Rewritten {
    let old = compile(&format!("{HEADER}{text}"), "-O2");
    rewrite(&old, &Choice { unroll, ..all() }).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

const LIST: &str = "struct node { struct node *next; __u64 value; };\n\
    SEC(\"xdp\") int f(__u64 n) { struct node *p = (void *)n; __u64 s = 0;\n\
    while (p) { s += p->value; p = p->next; } return s; }";
/// Where the list is, and how many bytes an element has.
const NODES: u64 = 0x4000_0000;
const NODE: u64 = 16;

fn list(length: u64) -> Vec<(u64, u64)> {
    let node = |number: u64| {
        let (own, next) = (NODES + number * NODE, NODES + (number + 1) * NODE);
        [(own, if number + 1 < length { next } else { 0 }), (own + 8, number)]
    };
    (0..length).flat_map(node).collect()
}

/// Instructions for each element of a list, over the many that look at nothing.
fn per_element(bytes: &[u8]) -> f64 {
    let executed = |length: u64| {
        let ran = run_in(bytes, NODES, free(1 << 40), 1_000_000, &list(length));
        assert_eq!(ran.end, End::Returned((length * (length - 1) / 2) as u32));
        ran.executed as f64
    };
    (executed(4801) - executed(1)) / 4800.0
}

#[test]
fn a_look_costs_an_element_of_a_list_a_quarter_of_an_instruction() {
    assert_eq!(per_element(&compile(&format!("{HEADER}{LIST}"), "-O2")), 5.0);
    for (unroll, expected) in [(1, 13.0), (2, 9.0), (8, 6.0), (32, 5.25)] {
        let done = unrolled(LIST, unroll);
        assert_eq!(per_element(&done.bytes), expected, "{unroll}");
        let [LoopReport { copies, cost: 8, .. }] = done.loops[..] else { panic!("{:?}", done.loops) };
        assert_eq!(copies, unroll);
    }
}

#[test]
fn looks_come_after_as_many_turns() {
    for (unroll, interval, expected) in
        [(1, 64, 10), (2, 64, 10), (8, 64, 10), (32, 64, 10), (3, 64, 9), (8, 1, 80), (1, 1, 641), (3, 7, 71)]
    {
        let done = unrolled(LIST, unroll);
        let ran = run_in(&done.bytes, NODES, slow(interval), 1_000_000, &list(641));
        assert_eq!(ran.looks, expected, "{unroll}, {interval}");
    }
}

/// Looks are further apart than a short time.
fn slow(interval: u64) -> Control {
    Control { more: 20_000, ..free(interval) }
}

#[test]
fn looks_that_follow_each_other_soon_become_rarer() {
    // After 64 turns, 64 more, and then 256 each time.
    for (length, looks) in [(63, 0), (65, 1), (127, 1), (129, 2), (383, 2), (385, 3), (639, 3), (641, 4)] {
        let ran = run_in(&unrolled(LIST, 1).bytes, NODES, free(64), 1_000_000, &list(length));
        assert_eq!(ran.looks, looks, "{length}");
    }
    // A turn has ten instructions, a look a few more: the time between two is a little longer than a short one, or shorter.
    for (more, looks) in [(20_000 / 640, 10), (20_000 / 640 - 7, 4)] {
        let control = Control { more, ..free(64) };
        let ran = run_in(&unrolled(LIST, 1).bytes, NODES, control, 1_000_000, &list(641));
        assert_eq!(ran.looks, looks, "{more}");
    }
}

/// The last block of the body stands before the first and falls into it.
#[test]
fn a_head_at_the_end_is_unrolled() {
    let text = "SEC(\"xdp\") int f(__u64 n) {\n\
        asm volatile(\"goto +1; %0 += 3; %0 += -4; if %0 s> 0 goto -3\" : \"+r\"(n)); return n + 7; }";
    for (unroll, looks) in [(1, 9), (8, 9), (3, 9)] {
        let done = unrolled(text, unroll);
        assert!(matches!(done.loops[..], [LoopReport { copies, .. }] if copies == unroll), "{:?}", done.loops);
        let ran = run(&done.bytes, 641, slow(64), 100_000);
        assert_eq!((ran.end, ran.looks), (End::Returned(7), looks), "{unroll}");
    }
}

#[test]
fn short_loops_without_others_inside_are_unrolled() {
    let turn = |body: &str| {
        format!("SEC(\"xdp\") int f(__u64 n) {{ __u64 s = 1; while (n) {{ {body} n--; OPAQUE(n); }} return s; }}")
    };
    let of = |text: &str, unroll| {
        let done = unrolled(text, unroll);
        done.loops.iter().map(|found| (found.copies, found.rolled.clone())).collect::<Vec<_>>()
    };
    assert_eq!(of(&turn(""), 1), [(1, Some(Rolled::Told))]);
    assert_eq!(of(&turn(""), 5), [(5, None)]);
    assert_eq!(of(&turn(""), 32), [(32, None)]);
    let several = "if (n & 4) { n -= 3; s ^= n; OPAQUE(s); OPAQUE(n); continue; }";
    assert_eq!(of(&turn(several), 8), [(6, None)], "two ways in each of six copies are 64");
    let ways = [1, 2, 4, 8].map(|bit| format!("if (n & {bit}) {{ s += {bit}; OPAQUE(s); }}")).concat();
    let ways = of(&turn(&ways), 8);
    assert!(matches!(ways[..], [(1, Some(Rolled::Ways(16)))]), "{ways:?}");
    assert_eq!(of(&turn(&"s = s * 3 + n; OPAQUE(s);".repeat(25)), 8), [(4, None)]);
    let long = of(&turn(&"s = s * 3 + n; OPAQUE(s);".repeat(70)), 8);
    assert!(matches!(long[..], [(1, Some(Rolled::Long(140..160)))]), "{long:?}");
    // Copies are behind the function, and conditional jumps reach 32767 instructions.
    let far = |padding: usize| {
        let leaves = turn(&format!("{} if (s == n) break;", "s = s * 3 + n; OPAQUE(s);".repeat(6)));
        of(&leaves.replace("return s;", &format!("asm volatile(\".rept {padding}; r0 = r0; .endr\"); return s;")), 8)
    };
    assert_eq!(far(32_000), [(8, None)]);
    let failed = far(32_670);
    let [(1, Some(Rolled::Failed(error)))] = &failed[..] else { panic!("{failed:?}") };
    assert!(error.contains("more than 32767 instructions away"), "{error}");
    let inner = turn("for (__u64 m = n; m; m--) { s += m; OPAQUE(s); }");
    assert_eq!(of(&inner, 8), [(8, None), (1, Some(Rolled::Inner))]);
    let callee = "NOINLINE __u64 g(__u64 n) { __u64 s = 1; while (n) { s += n; OPAQUE(s); n--; } return s; }\n";
    let calls = of(&format!("{callee}{}", turn("s += g(n);")), 8);
    assert_eq!(calls, [(8, None), (1, Some(Rolled::Calls("g".into())))]);
    let plain = callee.replace("while", "if");
    for (unroll, copies) in [(3, 3), (8, 8), (32, 8)] {
        assert_eq!(of(&format!("{plain}{}", turn("s += g(n);")), unroll), [(copies, None)]);
    }
}

/// The calls in the copies acquire what the one call in the source does.
#[test]
fn what_one_of_the_copies_found_is_released() {
    let text = "SEC(\"tc\") int f(__u64 n) { void *s = 0; __u64 m = 9;\n\
        while (m) { m--; OPAQUE(m); s = get(0); if (s) { if (m == n) break; put(s); s = 0; } }\n\
        if (!s) return 1; for (;;) { n++; OPAQUE(n); if (n == 0) break; } put(s); return 2; }";
    let done = unrolled(&format!("{REFERENCES}{text}"), 8);
    assert!(done.loops.iter().all(|found| found.copies >= 6), "{:?}", done.loops);
    for (argument, number) in [(8, 1), (6, 3), (2, 7), (0, 9)] {
        let ran = run(&done.bytes, argument, Control { deadline: 9_000, ..free(64) }, 100_000);
        assert_eq!((ran.end, ran.held.len()), (End::Returned(0), 0));
        assert_eq!(ran.released.last(), Some(&(86, number)), "{argument}: {:?}", ran.released);
    }
}

/// A random program that acquires and releases in loops, and ends.
fn generate(random: &mut Random, depth: u32, next: &mut u32) -> String {
    let mut text = String::new();
    for _ in 0..1 + random.below(2) {
        let (x, y) = (random.below(4), random.below(4));
        *next += 1;
        let number = *next;
        text += &match random.below(if depth == 0 { 3 } else { 6 }) {
            0 => format!("v{x} = v{x} * 3 + v{y};\n"),
            1 => format!("v{x} = g(v{y}, v{x});\n"),
            2 => {
                format!("{{ void *r{number} = get(0); OPAQUE(v{x}); if (r{number}) {{ v{y}++; put(r{number}); }} }}\n")
            }
            3 => {
                let body = generate(random, depth - 1, next);
                format!("{{ void *r{number} = get(0); if (r{number}) {{ {body} put(r{number}); }} else v{x} += 5; }}\n")
            }
            kind => {
                let body = generate(random, depth - 1, next);
                let leave = ["", "if (v1 & 64) break;", "if (v2 & 4) continue;"][random.below(3)];
                match kind {
                    4 => format!("__u64 i{number} = v{x} & 15; while (i{number}) {{ i{number}--; {leave} {body} OPAQUE(v{y}); }}\n"),
                    _ => format!("for (__u64 i{number} = 0; i{number} < (v{x} & 31); i{number}++) {{ {leave} {body} OPAQUE(v{y}); }}\n"),
                }
            }
        };
    }
    text
}

#[test]
fn runs_that_end_at_random_looks_hold_nothing() {
    let mut random = Random(11);
    let (mut ended, mut released, mut many) = (0, 0, 0);
    for round in 0..30 {
        let (body, inner) = (generate(&mut random, 3, &mut 0), generate(&mut random, 1, &mut 100).replace("g(", "k("));
        let text = format!(
            "{REFERENCES} NOINLINE __u64 k(__u64 a, __u64 b) {{ return a * 5 + b; }}\n\
             NOINLINE __u64 g(__u64 v0, __u64 v1) {{ __u64 v2 = 1, v3 = 2; __u64 n = v0 & 3;\n\
             while (n) {{ n--; {inner} OPAQUE(v2); }} return v0 + v1 + v2 + v3; }}\n\
             SEC(\"tc\") int f(__u64 n) {{ __u64 v0 = n, v1 = 1, v2 = 2, v3 = n + 3; __u64 m = (n & 3) + 9;\n\
             do {{ {body} OPAQUE(v0); }} while (m--); return (v0 ^ v1 ^ v2 ^ v3) | 1; }}"
        );
        let old = compile(&format!("{HEADER}{text}"), ["-O2", "-O1"][round % 2]);
        let expected = run(&old, 5, free(1), 3_000_000);
        if !matches!(expected.end, End::Returned(_)) {
            continue;
        }
        assert_eq!(expected.held.len(), 0, "{text}");
        for unroll in UNROLL {
            let choice = Choice { unroll, widen: round % 3 > 0, ..all() };
            let new = rewrite(&old, &choice).unwrap_or_else(|error| panic!("{error}\n{text}"));
            open(&new.bytes);
            many += usize::from(new.loops.iter().any(|found| found.copies == 8));
            for _ in 0..10 {
                let (deadline, interval) = (1 + random.below(2 * expected.executed) as u64, random.below(9) as u64);
                let ran = run(&new.bytes, 5, Control { deadline, ..free(interval) }, 90_000_000);
                assert_eq!(ran.held.len(), 0, "{unroll}\n{text}");
                match ran.ended {
                    Some((look, 1)) => {
                        assert!((look as usize) < new.looks.len() && ran.end == End::Returned(0), "{unroll}\n{text}");
                        ended += 1;
                        released += new.looks[look as usize].releases.len();
                    }
                    other => assert_eq!((ran.end, other), (expected.end, None), "{unroll}\n{text}"),
                }
            }
        }
    }
    assert!(ended > 200 && released > 50 && many > 10, "{ended}, {released}, {many}");
}
