//! No instruction outside of a safe span consumes a value of the constant: shown by
//! execution (`common/execute.rs`), on fixtures, and on the code of a whole corpus.

#![allow(clippy::unwrap_used, missing_docs)]

mod common;

use std::collections::BTreeSet;
use std::path::PathBuf;

use common::execute::{run, Seen};
use common::CompiledUnit;
use xk_kernel::Image;
use xk_span::callers::Callers;
use xk_span::frame::Frame;
use xk_span::scope::scopes;
use xk_span::text::address;
use xk_span::walk::Walk;
use xk_span::world::World;
use xk_table::{ScopeTable, Store};

const FIXTURES: [&str; 8] = [
    "u64 f(u64 x) { if (x > V) return g(x); return h(x); }",
    "u64 f(u64 x, u64 *p) { u64 v = x * V; k(); if (v > 77) l(); k(); return 0; }",
    "u64 f(u64 x) { volatile u64 slot = x + V; k(); if (slot > 77) l(); slot = x; k(); if (slot > 5) l(); return 0; }",
    "u64 f(u64 *x, u64 n) { u64 limit = n + V, i; for (i = 0; i < n; i++) { if (x[i] > limit) l(); } k(); return 0; }",
    "u32 f(u32 x, u32 y) { u32 v = x == V ? y : x; v += 3; v ^= y; return v * 5; }",
    "u64 f(u64 x, u64 y) { u64 v = x & V; if (y > 9) v = y; return v << 3; }",
    "void f(struct s *p, u64 x) { p->b = x + V; p->a = p->b > 7; }",
    "u32 f(u32 x) { volatile struct s v; v.a = x + V; v.b = x; return v.a + v.b; }",
];

fn total(world: &World, frame: &Frame, table: &ScopeTable, index: usize, runs: u64) -> Seen {
    let mut all = Seen::default();
    for seed in 0..runs {
        let Some(seen) = run(world, frame, table, index, xk_testing::mix(seed, 0)) else { continue };
        all.steps += seen.steps;
        all.consumed += seen.consumed;
        all.unknown += seen.unknown;
        all.violations.extend(seen.violations);
    }
    all
}

/// The table with the last consuming instruction cut off its scopes.
fn shortened(table: &ScopeTable) -> ScopeTable {
    let mut table = table.clone();
    let end = table.spans[0].end;
    for scope in &mut table.scopes {
        for range in &mut scope.ranges {
            range[1] = if range[0] < end { end } else { range[0] + 1 };
        }
    }
    table
}

#[test]
fn fixtures_consume_nothing_outside() {
    for text in FIXTURES {
        let unit = CompiledUnit::new(text);
        let table = unit.confined(&["f"]);
        let frame = Frame::new(&unit.world, unit.world.named("f").next().unwrap().start).unwrap();
        let seen = total(&unit.world, &frame, &table, 0, 200);
        assert!(seen.violations.is_empty(), "{text}: {:?}", seen.violations);
        assert!(seen.consumed > 0 && seen.unknown == 0, "{text}: {seen:?}");
        let short = total(&unit.world, &frame, &shortened(&table), 0, 200);
        assert!(!short.violations.is_empty(), "{text}: a range that is too short is not noticed");
    }
}

/// Every critical span of every table in `XK_STORE`, on the kernel in `XK_ROOT`.
#[test]
#[ignore = "needs a kernel (XK_ROOT) and its tables (XK_STORE)"]
fn the_corpus_consumes_nothing_outside() {
    let folder = |name: &str| PathBuf::from(std::env::var_os(name).unwrap_or_else(|| panic!("{name} is not set")));
    let (root, store) = (folder("XK_ROOT"), folder("XK_STORE"));
    let boot = std::fs::read_dir(root.join("boot")).unwrap().map(|entry| entry.unwrap().path());
    let vmlinuz = boot.into_iter().find(|path| path.to_string_lossy().contains("vmlinuz-")).unwrap();
    let image = Image::from_vmlinuz(&vmlinuz, None).unwrap().with_modules_in(&root);
    let (mut tables, _) = Store::new(&store).list(&image.id().build_id).unwrap();
    let modules: BTreeSet<String> =
        tables.iter().flat_map(|t| t.functions.iter().filter_map(|f| f.module.clone())).collect();
    let modules: Vec<&str> = modules.iter().map(String::as_str).collect();
    let world = World::new(&image, &modules, Default::default()).unwrap();
    let callers = Callers::new(&world);
    let mut walk = Walk::new(&world, &callers);
    let (mut spans, mut short, mut all) = (0, 0, Seen::default());
    for table in &mut tables {
        scopes(&mut walk, table).unwrap();
        for index in 0..table.spans.len() {
            let base = address(&world, &table.functions[table.spans[index].function]).unwrap();
            let root = walk.root(base);
            let Ok(frame) = walk.frame(root) else { continue };
            let seen = total(&world, &frame, table, index, 12);
            spans += usize::from(seen.steps > 0);
            all.steps += seen.steps;
            all.consumed += seen.consumed;
            all.unknown += seen.unknown;
            all.violations.extend(seen.violations.iter().map(|v| format!("{}: {v}", table.constant.id)));
            let cut = total(&world, &frame, &shortened(table), index, 12);
            short += usize::from(!cut.violations.is_empty());
        }
    }
    println!(
        "{spans} critical spans ran, {} steps, {} consumers inside, {} runs ended at an instruction without semantics; \
         {short} spans noticed a range that was too short",
        all.steps, all.consumed, all.unknown
    );
    assert!(all.violations.is_empty(), "{} violations:\n{}", all.violations.len(), all.violations.join("\n"));
    assert!(spans > 200 && all.steps > 1000 && short > 100);
}
