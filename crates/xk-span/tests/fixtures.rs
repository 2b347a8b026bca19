//! What is inside a safe span, which transition it needs and what escapes, on small
//! functions that show one way of a value each.

#![allow(clippy::unwrap_used, missing_docs)]

mod common;

use common::CompiledUnit;
use iced_x86::OpKind;
use xk_table::{ExitKind, Mode, ScopeTable};

fn fields(table: &ScopeTable) -> Vec<&str> {
    table.escapes.iter().map(|escape| escape.field.as_str()).collect()
}

fn functions(table: &ScopeTable) -> Vec<&str> {
    table.scopes.iter().map(|scope| table.functions[scope.function].symbol.as_str()).collect()
}

#[test]
fn a_comparison_that_one_branch_consumes_changes_at_once() {
    let unit = CompiledUnit::new("u64 f(u64 x) { if (x > V) return g(x); return h(x); }");
    let table = unit.confined(&["f"]);
    assert_eq!((table.mode, fields(&table)), (Mode::Now, vec![]));
    let [scope] = &table.scopes[..] else { panic!("{:?}", table.scopes) };
    let (seed, branch) = (unit.seed("f"), unit.branches("f")[0]);
    let start = unit.world.named("f").next().unwrap().start;
    let end = unit.insns("f").iter().find(|insn| insn.ip() == branch).unwrap().next_ip();
    assert_eq!(scope.ranges, [[(seed.ip() - start) as u32, (end - start) as u32]], "the comparison and the branch");
    let kinds: Vec<ExitKind> = scope.exits.iter().map(|exit| exit.kind).collect();
    assert_eq!((scope.instructions, kinds), (2, vec![ExitKind::Dead, ExitKind::Branch]));
}

#[test]
fn a_value_in_a_register_is_alive_up_to_its_last_consumer() {
    let unit = CompiledUnit::new("u64 f(u64 x, u64 *p) { u64 v = x * V; k(); if (v > 77) l(); k(); return 0; }");
    let table = unit.confined(&["f"]);
    assert_eq!((table.mode, fields(&table)), (Mode::Task, vec![]));
    let first = unit.calls("f", "k")[0];
    assert!(unit.inside(&table, first), "the value waits in a register that k preserves");
    assert!(unit.inside(&table, unit.branches("f")[0]));
    assert!(!unit.inside(&table, unit.call("f", "l")), "a decision that was taken is not a value");
    assert!(unit.returns("f").iter().all(|&at| !unit.inside(&table, at)));
}

#[test]
fn a_value_in_a_stack_slot_is_alive_until_it_is_read() {
    let unit = CompiledUnit::new(
        "u64 f(u64 x) { volatile u64 slot = x + V; k(); if (slot > 77) l(); slot = x; k(); if (slot > 5) l(); return 0; }",
    );
    let table = unit.confined(&["f"]);
    assert_eq!((table.mode, fields(&table)), (Mode::Task, vec![]));
    let calls = unit.calls("f", "k");
    assert_eq!((unit.inside(&table, calls[0]), unit.inside(&table, calls[1])), (true, false), "overwritten");
}

#[test]
fn a_loop_that_consumes_a_value_is_inside_as_a_whole() {
    let unit = CompiledUnit::new(
        "u64 f(u64 *x, u64 n) { u64 limit = n + V, i; for (i = 0; i < n; i++) { if (x[i] > limit) l(); } k(); return 0; }",
    );
    let table = unit.confined(&["f"]);
    assert_eq!(table.mode, Mode::Task, "{:?}", table.escapes);
    assert!(unit.inside(&table, unit.call("f", "l")), "the next round consumes it again");
    assert!(!unit.inside(&table, unit.call("f", "k")));
}

#[test]
fn a_condition_that_becomes_a_value_goes_on() {
    let unit = CompiledUnit::new("void f(u64 x, u32 *p) { *p = x > V; k(); }");
    let table = unit.confined(&["f"]);
    assert_eq!(table.mode, Mode::Global, "setcc, then a store");
    assert!(unit.inside(&table, unit.call("f", "k")), "whoever is called may read it");
    assert_eq!(table.escapes.len(), 1);
}

#[test]
fn an_argument_is_consumed_by_the_callee() {
    let unit = CompiledUnit::new(
        "noinline static void use(u64 a) { if (a > 3) k(); }\n\
         u64 f(u64 x) { use(x + V); l(); return 0; }",
    );
    let table = unit.confined(&["f"]);
    assert_eq!((table.mode, functions(&table), fields(&table)), (Mode::Task, vec!["f"], vec![]));
    assert!(unit.inside(&table, unit.call("f", "use")));
    assert!(!unit.inside(&table, unit.call("f", "l")));
}

#[test]
fn what_a_callee_stores_and_returns_comes_back() {
    let unit = CompiledUnit::new(
        "u64 shared; noinline static u64 keep(u64 a) { shared = a; return a + 1; }\n\
         u64 f(u64 x) { u64 r = keep(x + V); k(); if (r > 7) l(); return 0; }",
    );
    let table = unit.confined(&["f"]);
    assert_eq!((table.mode, fields(&table)), (Mode::Global, vec!["shared"]));
    assert!(table.escapes[0].place.starts_with("keep+"), "{:?}", table.escapes);
    assert!(unit.inside(&table, unit.call("f", "k")));
}

#[test]
fn a_callee_that_gives_nothing_back_ends_it() {
    let unit = CompiledUnit::new(
        "noinline static u64 other(u64 a, u64 b) { if (a > 3) k(); return b; }\n\
         u64 f(u64 x) { u64 r = other(x + V, x); k(); if (r > 7) l(); return 0; }",
    );
    let table = unit.confined(&["f"]);
    assert_eq!((table.mode, fields(&table)), (Mode::Task, vec![]));
    assert!(!unit.inside(&table, unit.call("f", "k")), "what comes back does not depend on the first argument");
}

#[test]
fn a_returned_value_goes_to_every_caller() {
    let unit = CompiledUnit::new(
        "noinline static u64 f(u64 x) { return x + V; }\n\
         noinline static u64 between(u64 x) { return f(x) * 2; }\n\
         u64 one(u64 x) { u64 r = f(x); k(); if (r > 7) l(); return 0; }\n\
         u64 two(u64 x) { u64 r = between(x); k(); if (r > 7) l(); return 0; }\n\
         u64 three(u64 x) { k(); return x; }",
    );
    let table = unit.confined(&["f"]);
    let mut found = functions(&table);
    found.sort_unstable();
    assert_eq!((found, table.mode, fields(&table)), (vec!["between", "f", "one", "two"], Mode::Task, vec![]));
    for (caller, callee) in [("one", "f"), ("two", "between")] {
        // Until it returns, the callee's own scope covers it; others may be called there, too.
        assert!(!unit.inside(&table, unit.call(caller, callee)), "{caller}");
        assert!(
            unit.inside(&table, unit.call(caller, "k")) && !unit.inside(&table, unit.call(caller, "l")),
            "{caller}"
        );
    }
}

#[test]
fn a_recursion_is_a_caller_too() {
    let unit = CompiledUnit::new(
        "noinline static u64 f(u64 x) { if (x > 5) { u64 r = f(x - 1); k(); if (r > 7) l(); }\n\
           asm volatile(\"\" : \"+r\"(x)); return x + V; }\n\
         u64 one(u64 x) { f(x); return 0; }",
    );
    let table = unit.confined(&["f"]);
    assert!(unit.inside(&table, unit.call("f", "k")), "what the inner call returned is consumed behind k");
}

#[test]
fn callers_that_are_not_known_are_an_escape() {
    let unit = CompiledUnit::new("noinline static u64 f(u64 x) { return x + V; } u64 (*table[])(u64) = { f };");
    let table = unit.confined(&["f"]);
    assert_eq!((table.mode, fields(&table)), (Mode::Task, vec!["the value that it returns"]));
}

#[test]
fn a_field_is_an_escape_and_the_frame_is_inside_to_its_end() {
    let unit = CompiledUnit::new("u64 f(struct s *p, u64 x) { p->b = V; m(p); k(); return x; }");
    let table = unit.confined(&["f"]);
    assert_eq!((table.mode, fields(&table)), (Mode::Global, vec!["struct s.b"]));
    for callee in ["m", "k"] {
        assert!(unit.inside(&table, unit.call("f", callee)), "{callee} may read it");
    }
    assert!(unit.returns("f").iter().all(|&at| unit.inside(&table, at)));
    assert!(table.scopes[0].exits.iter().all(|exit| exit.kind == ExitKind::Return));
}

#[test]
fn a_structure_on_the_stack_is_followed_into_the_callee() {
    let unit = CompiledUnit::new(
        "noinline static u32 get(struct s *p) { return p->a + 1; }\n\
         u64 f(u32 x) { struct s v; v.a = x + V; v.b = 1; u32 r = get(&v); k(); if (r > 7) l(); return 0; }",
    );
    let table = unit.confined(&["f"]);
    assert_eq!((table.mode, fields(&table)), (Mode::Task, vec![]));
    assert!(unit.inside(&table, unit.call("f", "get")) && unit.inside(&table, unit.call("f", "k")));
    assert!(unit.inside(&table, unit.call("f", "l")), "a callee may have kept the address of the structure");
    assert!(unit.returns("f").iter().all(|&at| !unit.inside(&table, at)));
}

#[test]
fn a_structure_on_a_callers_stack_is_followed_out() {
    let unit = CompiledUnit::new(
        "noinline static void f(struct s *p, u32 x) { p->b = x + V; k(); }\n\
         u64 caller(u32 x) { struct s v; f(&v, x); l(); if (v.b > 7) g(1); return h(2); }",
    );
    let table = unit.confined(&["f"]);
    assert_eq!((functions(&table), fields(&table), table.mode), (vec!["f", "caller"], vec![], Mode::Task));
    assert!(unit.inside(&table, unit.call("f", "k")) && unit.inside(&table, unit.call("caller", "l")));
    assert!(unit.returns("caller").iter().all(|&at| !unit.inside(&table, at)));
}

/// Two objects of the frame hold tainted bytes at offsets that are not known. The second store, whichever object is
/// lower, does not end the taint of the first.
#[test]
fn stores_at_computed_offsets_of_two_objects_both_taint() {
    let unit = CompiledUnit::new(
        "noinline static void put(u32 *to, u64 i, u32 x) { to[i] = x; }\n\
         u64 f(u32 x, u64 i) { u32 a[8], b[8]; u32 v = x + V; put(a, i, v); put(b, i, v); g(a[2]); return h(b[2]); }",
    );
    let table = unit.confined(&["f"]);
    let escapes = fields(&table);
    for callee in ["g", "h"] {
        let escape = format!("argument 1 of {callee}, whose code is not here");
        assert!(escapes.contains(&escape.as_str()), "{escape}: {escapes:?}");
    }
}

#[test]
fn an_early_return_is_an_exit() {
    let unit = CompiledUnit::new(
        "u64 f(u64 x) { u64 v = x * V; asm volatile(\"\" : \"+r\"(v)); k(); if (x == 5) return 1; l(); return g(v); }",
    );
    let table = unit.confined(&["f"]);
    assert!(unit.inside(&table, unit.call("f", "l")) && unit.inside(&table, unit.call("f", "g")));
    let outside = unit.insns("f").into_iter().filter(|insn| !unit.inside(&table, insn.ip()));
    let one = |insn: &iced_x86::Instruction| insn.op1_kind() == OpKind::Immediate32 && insn.immediate32() == 1;
    let sets: Vec<_> = outside.filter(one).collect();
    assert_eq!(sets.len(), 1, "the path of the early return is outside");
    assert!(table.scopes[0].exits.iter().any(|exit| exit.kind == ExitKind::Branch || exit.kind == ExitKind::Dead));
}

#[test]
fn a_tail_call_hands_the_frame_over() {
    let unit = CompiledUnit::new(
        "noinline static u64 last(u64 a) { k(); if (a > 3) l(); return 0; }\n\
         u64 f(u64 x) { return last(x + V); }",
    );
    let table = unit.confined(&["f"]);
    assert_eq!((functions(&table), table.mode, fields(&table)), (vec!["f", "last"], Mode::Task, vec![]));
    assert!(unit.inside(&table, unit.call("last", "k")) && !unit.inside(&table, unit.call("last", "l")));
    assert_eq!(table.scopes[0].exits[0].kind, ExitKind::Tail);
    assert_eq!(table.scopes[0].exits[0].to.as_deref(), Some("last"));
}

#[test]
fn callees_that_are_not_known_are_an_escape() {
    let unit = CompiledUnit::new("u64 f(u64 x, u64 (*c)(u64, u64)) { c(1, x + V); k(); return 0; }");
    let table = unit.confined(&["f"]);
    assert_eq!((table.mode, fields(&table)), (Mode::Global, vec!["argument 2 of an indirect call"]));
    let unit = CompiledUnit::new("u64 f(u64 x) { g(x + V); k(); return 0; }");
    let table = unit.confined(&["f"]);
    assert_eq!((table.mode, fields(&table)), (Mode::Global, vec!["argument 1 of g, whose code is not here"]));
}

#[test]
fn the_prototype_of_a_typed_pointer_says_what_is_passed() {
    let unit = CompiledUnit::new(
        "struct ops { void (*none)(void); u64 (*one)(u64); };\n\
         u64 f(struct ops *o, u64 x) { o->one(x + V); o->none(); return 0; }",
    );
    let table = unit.confined(&["f"]);
    assert_eq!(fields(&table), ["argument 1 of an indirect call"], "and none of the second one");
}

#[test]
fn spans_whose_values_meet_are_one_safe_span() {
    let unit = CompiledUnit::new(
        "noinline static u64 one(u64 x) { return x + V; }\n\
         noinline static u64 two(u64 x) { return x * V; }\n\
         u64 both(u64 x) { u64 a = one(x), b = two(x); k(); if (a > b) l(); return 0; }",
    );
    let table = unit.confined(&["one", "two"]);
    let [both] = &table.scopes.iter().filter(|s| table.functions[s.function].symbol == "both").collect::<Vec<_>>()[..]
    else {
        panic!("{:?}", table.scopes)
    };
    assert_eq!((both.spans.as_slice(), table.scopes.len(), table.mode), ([0, 1].as_slice(), 3, Mode::Task));
}

#[test]
fn code_that_cannot_be_followed_is_inside_as_a_whole() {
    let unit = CompiledUnit::new(
        "u64 f(u64 x, u64 i) { static void *const to[] = { &&a, &&b, &&c }; u64 v = x + V; k(); goto *to[i];\n\
         a: k(); b: if (v > 7) l(); c: k(); return 0; }",
    );
    let table = unit.confined(&["f"]);
    let [scope] = &table.scopes[..] else { panic!("{:?}", table.scopes) };
    assert!(scope.whole.as_ref().unwrap().contains("a jump through a table"), "{:?}", scope.whole);
    assert_eq!(scope.ranges, [[0, table.functions[0].bytes.len() as u32 / 2]]);
    assert_eq!(fields(&table), ["everything that it stores, returns and passes on", "the value that it returns"]);
    assert_eq!(table.mode, Mode::Global);
}

#[test]
fn a_value_in_data_is_an_escape() {
    let unit = CompiledUnit::new("u64 f(u64 x) { if (x > V) return g(x); return h(x); }");
    let mut table = unit.table(&["f"]);
    table.data.push(xk_table::DataSite {
        symbol: "limits".into(),
        module: None,
        section: ".data".into(),
        section_offset: 0,
        offset: 8,
        width: 4,
        fit: xk_table::Fit::linear(1, 0, 4),
        source: "unit.c".into(),
    });
    xk_span::scope::scopes(&mut xk_span::walk::Walk::new(&unit.world, &unit.callers), &mut table).unwrap();
    assert_eq!((table.mode, fields(&table)), (Mode::Now, vec!["limits"]));
}

#[test]
fn frames_that_are_never_left_are_named() {
    let unit = CompiledUnit::new(
        "noinline static u64 f(u64 x) { return x + V; }\n\
         void do_idle(u64 x) { for (;;) { if (f(x) > 7) l(); k(); } }",
    );
    let table = unit.confined(&["f"]);
    assert!(functions(&table).contains(&"do_idle"));
    assert!(table.escapes.iter().any(|escape| escape.place == "do_idle" && escape.reason.starts_with("never left")));
}

/// What is confined twice is the same, and added functions are not added again.
#[test]
fn confining_again_changes_nothing() {
    let unit = CompiledUnit::new(
        "noinline static u64 f(u64 x) { return x + V; }\n\
         u64 one(u64 x) { u64 r = f(x); k(); if (r > 7) l(); return 0; }",
    );
    let first = unit.confined(&["f"]);
    let mut second = first.clone();
    xk_span::scope::scopes(&mut xk_span::walk::Walk::new(&unit.world, &unit.callers), &mut second).unwrap();
    assert_eq!(first, second);
    assert_eq!(first.functions.len(), 2);
}
