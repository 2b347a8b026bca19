//! Objects of clang before and after: both are executed by a plain interpreter, and must compute the same.

#![allow(clippy::unwrap_used, clippy::expect_used)] // a test

use xk_flex::{rewrite, Choice, Done, Error};
use xk_testing::Random;

#[path = "interpreter/mod.rs"]
mod interpreter;
#[path = "interpreter/unrolled.rs"]
mod unrolled;

use interpreter::{run, Control, End, Ran};

/// Compiles C after this prelude.
fn compile(text: &str, level: &str) -> Vec<u8> {
    let prelude = "typedef unsigned long long __u64; typedef long long __s64; typedef unsigned int __u32;\n\
        #define SEC(name) __attribute__((section(name), used))\n\
        #define NOINLINE static __attribute__((noinline))\n\
        #define OPAQUE(x) asm volatile(\"\" : \"+r\"(x))\n";
    interpreter::compile(prelude, text, level)
}

const HEADER: &str = "#include \"xk_flex.bpf.h\"\n";

fn all() -> Choice {
    Choice { all: true, ..Choice::default() }
}

/// No run is ended; each `interval`th turn looks.
fn free(interval: u64) -> Control {
    Control { interval, ..Control::default() }
}

/// How often short loops are unrolled.
const UNROLL: [usize; 5] = [1, 2, 3, 8, 32];

/// Both compute the same for some arguments, however often they look, whatever the verifier knows, and however often
/// loops are unrolled.
fn same(text: &str, level: &str) {
    let old = compile(&format!("{HEADER}{text}"), level);
    for (widen, unroll) in [false, true].into_iter().flat_map(|widen| UNROLL.map(|unroll| (widen, unroll))) {
        let choice = Choice { widen, unroll, ..all() };
        let new = rewrite(&old, &choice).unwrap_or_else(|error| panic!("{error}\n{text}"));
        assert!(new.loops.iter().any(|found| found.done == Done::Instrumented), "{text}");
        assert_ne!(new.bytes, old);
        assert!(rewrite(&new.bytes, &all()).unwrap_err().to_string().contains("rewritten before"), "{text}");
        open(&new.bytes);
        for argument in [0, 1, 5, 77, 1 << 40] {
            let expected = run(&old, argument, free(1), 100_000).end;
            for interval in [1, 7, 1 << 40] {
                let ran = run(&new.bytes, argument, free(interval), 1_000_000);
                assert_eq!((ran.end, ran.ended), (expected, None), "argument {argument}, {interval}, {unroll}\n{text}");
            }
            assert!(matches!(expected, End::Returned(_)), "the original ends: {expected:?}\n{text}");
        }
    }
}

/// libbpf reads it: its sections, symbols, relocations, types and lines fit together.
fn open(bytes: &[u8]) {
    libbpf_rs::ObjectBuilder::default().open_memory(bytes).unwrap();
}

const WHILE: &str =
    "SEC(\"xdp\") int f(__u64 n) { __u64 s = 0; n &= 63; while (n) { s += n; OPAQUE(s); n--; } return s; }";
const NESTED: &str = "SEC(\"xdp\") int f(__u64 n) { __u64 s = 0; n &= 15; for (__u64 i = 0; i < n; i++) { OPAQUE(s);\n\
    for (__u64 j = i; j < n; j++) { s += j; OPAQUE(s); if (s == 40) break; } if (s & 1) continue; s += 3; } return s; }";
const STATIC: &str =
    "NOINLINE __u64 g(__u64 n, __u64 m) { __u64 s = m; while (n) { s = s * 3 + n; OPAQUE(s); n--; } return s; }\n\
    NOINLINE __u64 h(__u64 n) { return g(n, 2) + g(n + 1, n); }\n\
    SEC(\"xdp\") int f(__u64 n) { n &= 31; __u64 a = h(n); OPAQUE(a); return a + g(n, 1); }";
const GOTO: &str = "SEC(\"xdp\") int f(__u64 n) { __u64 s = 1; n &= 31;\n\
    again: OPAQUE(s); if (n == 0) return s; n--; if (s & 1) { s += n; goto again; } s = s * 2 + 1; goto again; }";

#[test]
fn loops_compute_the_same() {
    for text in [WHILE, NESTED, STATIC, GOTO] {
        for level in ["-O2", "-O1"] {
            same(text, level);
        }
    }
    same(WHILE, "-O0");
    same(NESTED, "-O0");
    same(GOTO, "-O0");
}

/// A random program of loops, branches and calls, that ends.
fn generate(random: &mut Random, depth: u32, next: &mut u32) -> String {
    let mut text = String::new();
    for _ in 0..1 + random.below(3) {
        let (x, y) = (random.below(6), random.below(6));
        text += &match random.below(if depth == 0 { 3 } else { 7 }) {
            0 => format!("v{x} = v{x} * 3 + v{y};\n"),
            1 => format!("v{x} ^= v{y} >> {};\n", random.below(9)),
            2 => format!("v{x} = g(v{y}, v{x});\n"),
            3 => format!(
                "if (v{x} & {}) {{ {} }} else {{ v{y}++; }}\n",
                1 + random.below(7),
                generate(random, depth - 1, next)
            ),
            kind => {
                *next += 1;
                let (i, body) = (*next, generate(random, depth - 1, next));
                let leave = ["", "if (v1 & 64) break;", "if (v2 & 4) continue;"][random.below(3)];
                match kind {
                    4 => format!("for (__u64 i{i} = 0; i{i} < (v{x} & 7); i{i}++) {{ if (i{i} > 9) break; {leave} {body} OPAQUE(v{x}); }}\n"),
                    5 => format!("__u64 i{i} = v{x} & 7; while (i{i}) {{ i{i}--; {leave} {body} }}\n"),
                    _ => format!("{{ __u64 i{i} = 0; do {{ i{i}++; {body} }} while (i{i} < {}); }}\n", 1 + random.below(5)),
                }
            }
        };
    }
    text
}

#[test]
fn random_programs_compute_the_same() {
    let mut random = Random(7);
    for round in 0..40 {
        let body = generate(&mut random, 3, &mut 0);
        let inner = generate(&mut random, 0, &mut 0).replace("g(", "k(");
        let text = format!(
            "NOINLINE __u64 k(__u64 a, __u64 b) {{ return a * 5 + b; }}\n\
             NOINLINE __u64 g(__u64 v0, __u64 v1) {{ __u64 v2 = 1, v3 = 2, v4 = 3, v5 = v0;\n\
             __u64 n = v0 & 3; while (n) {{ n--; {inner} OPAQUE(v2); }} return v0 + v1 + v2 + v3 + v4 + v5; }}\n\
             SEC(\"xdp\") int f(__u64 n) {{ __u64 v0 = n, v1 = 1, v2 = 2, v3 = n + 3, v4 = 4, v5 = 5; __u64 m = n & 3;\n\
             do {{ {body} OPAQUE(v0); }} while (m--); return v0 ^ v1 ^ v2 ^ v3 ^ v4 ^ v5; }}"
        );
        let old = compile(&format!("{HEADER}{text}"), ["-O2", "-O1"][round % 2]);
        for unroll in UNROLL {
            let choice = Choice { widen: round % 3 > 0, unroll, ..all() };
            let new = rewrite(&old, &choice).unwrap_or_else(|error| panic!("{error}\n{text}"));
            open(&new.bytes);
            for argument in [0, 3, 0x1234_5677] {
                let expected = run(&old, argument, free(1), 3_000_000).end;
                if matches!(expected, End::Returned(_)) {
                    let ran = run(&new.bytes, argument, free(round as u64 % 5), 90_000_000);
                    assert_eq!(ran.end, expected, "{unroll}\n{text}");
                }
            }
        }
    }
}

const ENDLESS: &str = "NOINLINE __u64 g(__u64 n) { for (;;) { n++; OPAQUE(n); if (n == 0) break; } return 7; }\n\
    SEC(\"xdp\") int f(__u64 n) { __u64 a = 1; if (n == 1) a = g(n); else for (;;) { a++; OPAQUE(a); if (a == 0) break; } return a + 9; }";

#[test]
fn a_run_ends_when_user_space_says_so_or_at_its_deadline() {
    let old = compile(&format!("{HEADER}{ENDLESS}"), "-O2");
    let new = rewrite(&old, &Choice::default()).unwrap();
    for argument in [1, 2] {
        let end = |bytes, control| {
            let Ran { end, ended, .. } = run(bytes, argument, control, 100_000);
            (end, ended.map(|(look, why)| (new.looks[look as usize].function.as_str(), why)))
        };
        let function = if argument == 1 { "g" } else { "f" };
        let told = Control { terminate: 1, ..free(64) };
        let late = Control { deadline: 20_000, ..free(64) };
        assert_eq!(end(&old, told), (End::TooLong, None));
        assert_eq!(end(&new.bytes, free(64)), (End::TooLong, None));
        assert_eq!(end(&new.bytes, told), (End::Returned(0), Some((function, 2))), "argument {argument}");
        assert_eq!(end(&new.bytes, late), (End::Returned(0), Some((function, 1))), "argument {argument}");
    }
    let steps = |deadline| {
        (0..400)
            .map(|steps| steps * 500)
            .find(|&steps| run(&new.bytes, 2, Control { deadline, ..free(64) }, steps).end != End::TooLong)
    };
    let (short, long) = (steps(20_000).unwrap(), steps(60_000).unwrap());
    assert!((20_000..23_000).contains(&short) && (60_000..63_000).contains(&long), "{short}, {long}");
}

/// Helpers that acquire and release.
const REFERENCES: &str = "static void *(*get)(void *) = (void *)84; static long (*put)(void *) = (void *)86;\n\
    static void *(*reserve)(void *, __u64, __u64) = (void *)131; static void (*submit)(void *, __u64) = (void *)132;\n";

/// A run that is ended at its deadline has released what it acquired, each once, the last first.
fn releases(text: &str, expected: &[(i64, u64)]) {
    let old = compile(&format!("{HEADER}{REFERENCES}{text}"), "-O2");
    for (interval, unroll) in [1, 5, 64].into_iter().flat_map(|interval| UNROLL.map(|unroll| (interval, unroll))) {
        let new = rewrite(&old, &Choice { unroll, ..all() }).unwrap_or_else(|error| panic!("{error}\n{text}"));
        let ran = run(&new.bytes, 1, Control { deadline: 9_000, ..free(interval) }, 100_000);
        assert_eq!((ran.end, ran.ended.map(|(_, why)| why)), (End::Returned(0), Some(1)), "{text}");
        assert_eq!(ran.released, expected, "{text}");
    }
}

#[test]
fn what_is_held_is_released() {
    let turn = "n++; OPAQUE(n); if (n == 0) break;";
    let program = |body: &str| format!("SEC(\"tc\") int f(__u64 n) {{ {body} return n + 2; }}");
    let sock = program(&format!("void *s = get(0); if (!s) return 1; for (;;) {{ {turn} }} put(s);"));
    releases(&sock, &[(86, 1)]);
    let null = program(&format!("void *t = get(0), *s = get(0); for (;;) {{ {turn} }} if (s) put(s); if (t) put(t);"));
    releases(&null, &[(86, 1)]);
    let both = program(&format!(
        "void *s = get(0); if (!s) return 1; void *no = get(0); if (no) {{ put(no); put(s); return 1; }}\n\
         void *r = reserve(0, 8, 0); if (!r) {{ put(s); return 1; }} for (;;) {{ {turn} }} submit(r, 0); put(s);"
    ));
    releases(&both, &[(133, 3), (86, 1)]);
    // In a slot of the frame, because all registers are used.
    let slot = program(&format!(
        "void *s = get(0); if (!s) return 1; __u64 a = n + 1, b = n + 2, c = n + 3, d = n + 4, e = n + 5, g = n + 6;\n\
         for (;;) {{ a += b; b ^= c; c += d; d ^= e; e += g; g ^= a;\n\
         OPAQUE(a); OPAQUE(b); OPAQUE(c); OPAQUE(d); OPAQUE(e); OPAQUE(g); {turn} }} put(s); n = a + b + c + d + e + g;"
    ));
    releases(&slot, &[(86, 1)]);
    let callee = format!("NOINLINE __u64 g(__u64 n) {{ for (;;) {{ {turn} }} return n; }}\n");
    let called = program("void *s = get(0); if (!s) return 1; n = g(n); put(s);");
    releases(&format!("{callee}{called}"), &[(86, 1)]);
    let inner = format!(
        "NOINLINE __u64 g(__u64 n) {{ void *no = get(0), *s = get(0); if (no) put(no); if (!s) return 5;\n\
         for (;;) {{ {turn} }} put(s); return n; }}\n"
    );
    releases(&format!("{inner}{called}"), &[(86, 3), (86, 1)]);
    // Nobody reads the reference any more; it is released nevertheless.
    releases(&program("void *s = get(0); if (!s) return 1; for (;;) { n++; OPAQUE(n); }"), &[(86, 1)]);
}

/// The verifier counts what a lookup in such a map returns. Whether one has a socket, it sees in the type of the map.
#[test]
fn a_socket_that_is_found_in_a_map_is_released() {
    let map = |number: u32, name: &str| {
        format!(
            "struct {{ int (*type)[{number}]; int (*max_entries)[2]; __u32 *key; __u64 *value; }} {name} SEC(\".maps\");\n"
        )
    };
    let (turn, put) = ("n++; OPAQUE(n); if (n == 0) break;", "static long (*put)(void *) = (void *)86;");
    for (number, is_held) in [(15, true), (18, true), (1, false), (2, false)] {
        let text = format!(
            "{HEADER}{}{}static void *(*look)(void *, void *) = (void *)1; {put}\n\
             SEC(\"tc\") int f(__u64 n) {{ __u32 key = n; void *from = &map; if (n & 1) from = &other; OPAQUE(key);\n\
             void *s = look(from, &key); if (!s) return 1; for (;;) {{ {turn} }} {} return n; }}",
            map(number, "map"),
            map(number, "other"),
            if is_held { "put(s);" } else { "" },
        );
        let new = rewrite(&compile(&text, "-O2"), &all()).unwrap_or_else(|error| panic!("{error}\n{text}"));
        let said = new.looks.iter().flat_map(|look| look.releases.clone()).collect::<Vec<_>>().join(", ");
        assert_eq!(said.contains("bpf_sk_release() of bpf_map_lookup_elem()"), is_held, "{number}: {said}");
    }
}

#[test]
fn what_needs_nothing_is_unchanged() {
    let none = compile("SEC(\"xdp\") int f(__u64 n) { return n > 3; }", "-O2");
    assert_eq!(rewrite(&none, &all()).unwrap().bytes, none);
    let counted = compile("SEC(\"xdp\") int f(__u64 n) { _Pragma(\"clang loop unroll(disable)\") for (__u32 i = 0; i < 500; i++) OPAQUE(n); return n; }", "-O2");
    let left = rewrite(&counted, &Choice::default()).unwrap();
    assert!(matches!(left.loops[..], [ref one] if matches!(one.done, Done::Counted(_))), "{:?}", left.loops);
    assert_eq!(left.bytes, counted);
}

fn refused(text: &str) -> Error {
    rewrite(&compile(text, "-O2"), &all()).map(|_| ()).unwrap_err()
}

#[test]
fn what_cannot_be_left_soundly_is_refused() {
    let error = refused(WHILE).to_string();
    assert!(error.contains("f, test.bpf.c:1") && error.contains("add #include \"xk_flex.bpf.h\""), "{error}");
    let held = "static long (*lock)(void *) = (void *)93; static long (*unlock)(void *) = (void *)94;\n\
        SEC(\"tc\") int f(__u64 *p) { __u64 n = *p;\nlock(p);\nwhile (n) { n -= 3; OPAQUE(n); }\nunlock(p);\nreturn 0; }";
    let error = refused(&format!("{HEADER}{held}")).to_string();
    assert!(error.contains("a spin lock may be held") && error.contains("bpf_spin_lock() at test.bpf.c:4"), "{error}");
    let apart = held
        .replace("while", "unlock(p); while")
        .replace("OPAQUE(n)", "lock(p); unlock(p)")
        .replace("}\nunlock", "}\nlock(p); unlock");
    assert!(rewrite(&compile(&format!("{HEADER}{apart}"), "-O2"), &all()).is_ok(), "it is released before");
    let reference = "static void *(*get)(void *) = (void *)84; static long (*put)(void *) = (void *)86;\n\
        SEC(\"tc\") int f(__u64 *p) { __u64 n = *p; while (n) { void *s = get(p); OPAQUE(n); if (s) { n -= 3; put(s); } } return 0; }";
    assert!(rewrite(&compile(&format!("{HEADER}{reference}"), "-O2"), &all()).is_ok(), "each turn releases it");
    let error = refused(&format!("{HEADER}{}", reference.replace("put(s);", "if (n & 1) put(s);"))).to_string();
    assert!(error.contains("a reference may be held") && error.contains("bpf_sk_lookup_tcp()"), "{error}");
    assert!(error.contains("several of them may be held"), "{error}");
    let irreducible = "SEC(\"xdp\") int f(__u64 n) { if (n & 1) goto b; a: n += 3; OPAQUE(n); b: n *= 5; OPAQUE(n); if (n != 9) goto a; return 0; }";
    let twice = irreducible.replace("b: n", "if (n == 4) return 1; b: n");
    let error = rewrite(&compile(&format!("{HEADER}{twice}"), "-O1"), &all());
    assert!(matches!(error, Err(Error::Irreducible { .. })), "{:?}", error.map(|done| done.loops));
    let global = "__attribute__((noinline)) __u64 g(__u64 n) { while (n) { n--; OPAQUE(n); } return n; }\n\
        SEC(\"xdp\") int f(__u64 n) { return g(n); }";
    assert!(refused(&format!("{HEADER}{global}")).to_string().contains("make it static"));
    let list = "struct node { struct node *next; __u64 value; };\n\
        SEC(\"xdp\") int f(__u64 n) { struct node a, b, *p = &b; __u64 s = 0; a.next = 0; a.value = 3; b.next = &a;\n\
        b.value = n; OPAQUE(p); while (p) { s += p->value; p = p->next; } return s; }";
    assert!(refused(&format!("{HEADER}{list}"))
        .to_string()
        .contains("which part of it the function uses is not evident"));
    let choice = Choice { leave: vec!["test.bpf.c:99".into()], ..Choice::default() };
    let error = rewrite(&compile(&format!("{HEADER}{WHILE}"), "-O2"), &choice).unwrap_err().to_string();
    assert!(error.contains("no loop begins at test.bpf.c:99: loops begin at test.bpf.c:"), "{error}");
}

#[test]
fn a_hook_that_does_not_permit_0_is_refused() {
    for (hook, is_refused) in [("cgroup/getpeername4", true), ("?cgroup/recvmsg6", true), ("cgroup/connect4", false)] {
        let text = format!("{HEADER}{}", WHILE.replace("SEC(\"xdp\")", &format!("SEC(\"{hook}\")")));
        let done = rewrite(&compile(&text, "-O2"), &all());
        assert_eq!(done.is_err_and(|error| error.to_string().contains("nothing but 1")), is_refused, "{hook}");
    }
}

#[test]
fn a_function_looks_at_its_first_branch_if_it_is_told() {
    let text = format!("{HEADER}SEC(\"xdp\") int f(__u64 n) {{ if (n == 7) {{ OPAQUE(n); n *= 3; }} return n + 1; }}");
    let old = compile(&text, "-O2");
    let new = rewrite(&old, &Choice { branches: ["f".to_owned()].into(), ..Choice::default() }).unwrap();
    assert_eq!((new.loops.len(), new.looks.len()), (0, 1));
    for argument in [0, 7, 9] {
        let end = run(&old, argument, free(1), 1000).end;
        assert!(matches!(end, End::Returned(_)), "{end:?}");
        assert_eq!(run(&new.bytes, argument, free(1), 1000).end, end, "argument {argument}");
    }
}

/// After such a load, the verifier lets nobody read r1 to r5, and a look must not save them.
#[test]
fn a_load_by_skb_leaves_no_register_to_save() {
    let load = "asm volatile(\"r6 = %1; r0 = *(u8 *)skb[0]; %0 = r0\" : \"=r\"(n) : \"r\"(c) :\n\
        \"r0\", \"r1\", \"r2\", \"r3\", \"r4\", \"r5\", \"r6\")";
    let set = "asm volatile(\"%0 = *(u32 *)(%1 + 0); r4 = 9\" : \"=r\"(n) : \"r\"(c) : \"r4\")";
    for (first, is_saved) in [(load, false), (set, true)] {
        let text = format!(
            "{HEADER}SEC(\"tc\") int f(void *c) {{ __u64 n; {first}; while (n) {{ n -= 3; OPAQUE(n); }}\n\
            asm volatile(\"call 12\" ::: \"r0\", \"r1\", \"r2\", \"r3\", \"r4\", \"r5\"); return 0; }}"
        );
        let new = rewrite(&compile(&text, "-O2"), &all()).unwrap().bytes;
        // *(u64 *)(r10 - x) = r4
        let saves = new.chunks_exact(8).any(|insn| insn.starts_with(&[0x7b, 0x4a]));
        assert_eq!(saves, is_saved, "{first}");
    }
}

/// The type says four arguments, the code reads a fifth, as a compiler may make it that promotes parts of a struct.
#[test]
fn an_argument_that_no_type_names_is_not_overwritten() {
    let reads = "asm volatile(\"%0 ^= r5\" : \"+r\"(n))";
    for (between, is_refused) in [("", true), ("asm volatile(\"r5 = 7\" ::: \"r5\");", false)] {
        let text = format!(
            "NOINLINE __u64 g(__u64 n) {{ {between} {reads}; while (n) {{ n--; OPAQUE(n); }} return n; }}\n\
             SEC(\"xdp\") int f(__u64 n) {{ return g(n); }}"
        );
        let done = rewrite(&compile(&format!("{HEADER}{text}"), "-O2"), &all());
        let said = done.err().map(|error| error.to_string());
        assert_eq!(said.as_deref().is_some_and(|said| said.contains("at most 4 arguments")), is_refused, "{said:?}");
    }
}
