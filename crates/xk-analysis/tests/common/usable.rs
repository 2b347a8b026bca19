//! Constants that must be usable, as C with `V` for the constant.

#![allow(dead_code)] // each test binary uses its part

use xk_table::{Kind, When};

use super::fixture::PRELUDE;

/// A fixture that must be usable.
pub struct Usable {
    pub what: &'static str,
    pub text: &'static str,
    pub default: i64,
    pub fitted: &'static [i64],
    pub unseen: &'static [i64],
    /// How and when each span is updated.
    pub spans: &'static [(Kind, When)],
}

use Kind::{Invert, Rematerialise, Value};
use When::{Before, Instead};

pub const USABLE: &[Usable] = &[
    Usable {
        what: "compare and branch",
        text: "u64 f(u32 x) { if (x > V) return g(x); return h(x); }",
        default: 100,
        fitted: &[50, 99, 1000],
        unseen: &[3, 127, 128, 70000],
        spans: &[(Rematerialise, Before)],
    },
    Usable {
        what: "signed compare at the edge of an 8-bit immediate",
        text: "u64 f(s32 x) { if (x < V) return g(1); return h(2); }",
        default: 127,
        fitted: &[100, 128, 129],
        unseen: &[5, 126, 130, 1000, 100000],
        spans: &[(Rematerialise, Before)],
    },
    Usable {
        what: "64-bit compare at the edge of a 32-bit immediate",
        text: "u64 f(u64 x) { if (x > V##ul) return g(1); return h(2); }",
        default: 1000,
        fitted: &[900, 2000, 5000],
        unseen: &[800, 70000, 2147483646],
        spans: &[(Rematerialise, Before)],
    },
    Usable {
        what: "select",
        text: "u32 f(s32 x) { return x ? V : 2 * V; }",
        default: 32,
        fitted: &[10, 17, 100],
        unseen: &[5, 33, 1000],
        spans: &[(Rematerialise, Before)],
    },
    Usable {
        what: "shift count",
        text: "u64 f(u64 x) { return x >> V; }",
        default: 5,
        fitted: &[3, 6, 9],
        unseen: &[2, 4, 20],
        spans: &[(Rematerialise, Before)],
    },
    Usable {
        what: "multiplication",
        text: "u64 f(u64 x) { return x * V; }",
        default: 1000,
        fitted: &[1001, 999, 1234],
        unseen: &[998, 1111, 5000],
        spans: &[(Rematerialise, Before)],
    },
    Usable {
        what: "mask",
        text: "u64 f(u64 x) { return g(x & (V - 1)) + x; }",
        default: 100,
        fitted: &[99, 101, 1000],
        unseen: &[50, 77, 5000],
        spans: &[(Rematerialise, Before)],
    },
    Usable {
        what: "store of an immediate",
        text: "void f(struct s *p) { p->a = V; h(1); }",
        default: 32,
        fitted: &[10, 17, 100],
        unseen: &[5, 33, 1000000],
        spans: &[(Rematerialise, Instead)],
    },
    Usable {
        what: "narrow stores",
        text: "void f(struct s *p) { p->d = V; p->e = V - 1; h(1); }",
        default: 32,
        fitted: &[10, 17, 100],
        unseen: &[5, 33, 50],
        spans: &[(Value, Before), (Rematerialise, Before)],
    },
    Usable {
        what: "two uses in a block",
        text: "u64 f(struct s *p, u32 x) { p->a = V; p->b = x + V; return g(x * 3); }",
        default: 32,
        fitted: &[10, 17, 100],
        unseen: &[5, 33, 1000],
        spans: &[(Invert, Before), (Rematerialise, Before)],
    },
    Usable {
        what: "V in both arms",
        text: "u64 f(struct s *p, u64 x) { if (p->a) p->c = x + V; else p->c = x - V; return g(x); }",
        default: 100,
        fitted: &[90, 101, 1000],
        unseen: &[50, 99, 200, 5000],
        spans: &[(Invert, Before), (Rematerialise, Instead)],
    },
    Usable {
        what: "compare with memory",
        text: "void f(struct s *p) { if (p->a >= V) g(1); else h(2); }",
        default: 32,
        fitted: &[10, 17, 100],
        unseen: &[5, 33, 1000],
        spans: &[(Rematerialise, Before)],
    },
    Usable {
        what: "addition whose old value is lost",
        text: "u64 f(u64 x) { return g(x + V); }",
        default: 1000,
        fitted: &[999, 1001, 4000],
        unseen: &[500, 2000, 100000],
        spans: &[(Invert, Before)],
    },
    Usable {
        what: "64-bit immediate",
        text: "u64 f(u64 x) { return g(x ^ ((u64)V << 32 | 0x218)); }",
        default: 10,
        fitted: &[7, 11, 300],
        unseen: &[3, 12, 1000],
        spans: &[(Value, Before)],
    },
    Usable {
        what: "argument of a call",
        text: "u64 f(u64 x) { g(x); return h(V); }",
        default: 10,
        fitted: &[7, 11, 300],
        unseen: &[3, 12, 1000],
        spans: &[(Value, Before)],
    },
    Usable {
        what: "minimum",
        text: "u64 f(u32 x) { return g(x < V ? x : V); }",
        default: 100,
        fitted: &[90, 101, 1000],
        unseen: &[50, 99, 5000],
        spans: &[(Value, Before)],
    },
    Usable {
        what: "bound of a loop",
        text: "u64 f(struct s *p) { u64 sum = 0; for (u32 i = 0; i < V; i++) sum += g(i); return sum; }",
        default: 20,
        fitted: &[10, 21, 30],
        unseen: &[5, 19, 40],
        spans: &[(Rematerialise, Before)],
    },
    Usable {
        what: "read, modify, write",
        text: "void f(struct s *p) { p->c += V; h(1); }",
        default: 32,
        fitted: &[10, 17, 100],
        unseen: &[5, 33, 1000],
        spans: &[(Invert, Before)],
    },
];

/// Its translation unit.
pub fn c_text(usable: &Usable) -> String {
    // 64-bit literals are written V##ul in the table.
    format!(
        "#define CAT_(a,b) a##b\n#define CAT(a,b) CAT_(a,b)\n{PRELUDE}{}\n",
        usable.text.replace("V##ul", "CAT(V,ul)")
    )
}
