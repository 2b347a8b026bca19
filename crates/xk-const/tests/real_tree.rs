//! Over the source of a real kernel: the constants are found, their users are complete, and
//! variants are compiled that differ where they should and nowhere else.
#![allow(missing_docs, clippy::expect_used, clippy::unwrap_used)]

mod common;

use common::{constant, sources, users_of, NoCompiler};
use object::{Object, ObjectSection, SectionKind};
use xk_const::*;
use xk_testing::kernels::tree;

/// ID, default, type, users.
type Expected<'a> = (&'a str, &'a str, i64, CType, &'a [&'a str]);

const EIGHT: [Expected<'_>; 8] = [
    ("BLK_MAX_REQUEST_COUNT", "block/blk.h:L335:32:0", 32, CType::Int, &["block/blk-core.c", "block/blk-mq.c"]),
    ("MAX_SOFTIRQ_RESTART", "kernel/softirq.c:L501:10:0", 10, CType::Int, &["kernel/softirq.c"]),
    ("SHRINK_BATCH", "mm/shrinker.c:L378:128:0", 128, CType::Int, &["mm/shrinker.c"]),
    ("NR_MAX_BATCHED_MIGRATION", "mm/migrate.c:L1593:HPAGE_PMD_NR:0", 512, CType::Int, &["mm/migrate.c"]),
    (
        "TCP_INIT_CWND",
        "include/net/tcp.h:L253:10:0",
        10,
        CType::Int,
        &["net/ipv4/tcp.c", "net/ipv4/tcp_bbr.c", "net/ipv4/tcp_input.c", "net/mptcp/protocol.c"],
    ),
    ("ca->delay_min >> 3", "net/ipv4/tcp_cubic.c:L439:3:0", 3, CType::Int, &["net/ipv4/tcp_cubic.c"]),
    ("HYSTART_DELAY_MAX", "net/ipv4/tcp_cubic.c:L46:(16000U):0", 16000, CType::UnsignedInt, &["net/ipv4/tcp_cubic.c"]),
    ("process_backlog >= 16", "net/ipv4/tcp.c:L1162:16:0", 16, CType::Int, &["net/ipv4/tcp.c"]),
];

#[test]
fn eight_constants_resolve_with_their_users() {
    for (name, id, default, c_type, expected) in EIGHT {
        let by_id = constant(id);
        assert_eq!((by_id.id.to_string().as_str(), by_id.default, by_id.c_type), (id, default, c_type), "{name}");
        let other =
            if Spec::parse(name).is_ok() { name.to_owned() } else { format!("{}:{}", by_id.id.path, by_id.id.line) };
        assert_eq!(constant(&other), by_id);
        let users = users_of(&by_id);
        assert_eq!(sources(&users.units), expected, "{name}");
        assert!(users.conditionals.is_empty() && users.shapes.is_empty() && users.wide.is_empty(), "{name}: {users:?}");
    }
    let threshold = users_of(&constant("HYSTART_DELAY_MAX"));
    assert!(threshold.names.iter().any(|f| f.name == "HYSTART_DELAY_THRESH" && f.via == "HYSTART_DELAY_MAX"));
    assert_eq!(constant("net/ipv4/tcp_cubic.c:439").operator, Operator::ShiftCount);
    assert_eq!(
        users_of(&constant("TCP_INIT_CWND")).units.iter().filter(|u| u.module.as_deref() == Some("tcp_bbr")).count(),
        1
    );
}

/// The code sections of an object.
fn code(path: &std::path::Path) -> Vec<(String, Vec<u8>)> {
    let bytes = std::fs::read(path).unwrap();
    let file = object::File::parse(&*bytes).unwrap();
    let text = file.sections().filter(|s| s.kind() == SectionKind::Text);
    text.map(|s| (s.name().unwrap().to_owned(), s.data().unwrap().to_vec())).collect()
}

#[test]
fn variants_differ_from_the_default_and_are_cached() {
    let out = tempfile::tempdir().unwrap();
    for (name, id, default, ..) in EIGHT {
        let constant = constant(id);
        let value = choose_values(default, constant.c_type, constant.operator, Edges::Avoid).fit[0];
        let users = users_of(&constant);
        let unit = users.units.last().unwrap();
        let (same, other) = std::thread::scope(|scope| {
            let other = scope.spawn(|| build(tree(), &constant, unit, value, out.path()).unwrap());
            (build(tree(), &constant, unit, default, out.path()).unwrap(), other.join().unwrap())
        });
        assert_ne!(code(&same), code(&other), "{name} = {value} in {}", unit.source);
        assert_eq!(build(&NoCompiler, &constant, unit, value, out.path()).unwrap(), other);
    }
}

#[test]
fn the_quick_flags_leave_the_code_as_it_is() {
    let out = tempfile::tempdir().unwrap();
    for unit in ["block/blk-mq.c", "net/ipv4/tcp_cubic.c", "mm/shrinker.c"] {
        let (full, quick) = (out.path().join("full.o"), out.path().join("quick.o"));
        tree().compile(&[], unit, &full, &[]).unwrap();
        tree().compile(&[], unit, &quick, &QUICK).unwrap();
        assert!(!code(&full).is_empty());
        assert_eq!(code(&full), code(&quick), "{unit}");
    }
}

#[test]
fn forms_of_constants() {
    let of = |spec: &str| {
        let c = constant(spec);
        (c.form, c.default, c.c_type)
    };
    assert_eq!(of("TCP_DELACK_MAX"), (Form::Macro, 50, CType::UnsignedInt));
    assert_eq!(of("MAX_SOFTIRQ_TIME"), (Form::Macro, 1, CType::UnsignedLong));
    assert_eq!(of("BFQ_MIN_TT"), (Form::Macro, 2_000_000, CType::Long));
    assert_eq!(of("MAX_INOBT_WALK_PREFETCH"), (Form::Macro, 256, CType::UnsignedLong));
    assert_eq!(of("IO_TCTX_REFS_CACHE_NR"), (Form::Macro, 1024, CType::UnsignedInt));
    assert_eq!(of("bfq_back_max"), (Form::StaticConst, 16384, CType::Int));
    assert_eq!(of("max_service_from_wr"), (Form::StaticConst, 120_000, CType::UnsignedLong));
    assert_eq!(of("kernel/sched/fair.c:L102:1280:0"), (Form::Literal, 1280, CType::Int));
    assert_eq!(of("kernel/sched/fair.c:L102:1024:0"), (Form::Literal, 1024, CType::Int));
    assert_eq!(of("KYBER_ASYNC_PERCENT").0, Form::EnumValue);
    // Two definitions; this configuration takes the second.
    assert_eq!(of("SCHED_NR_MIGRATE_BREAK"), (Form::Macro, 32, CType::Int));
}

#[test]
fn a_body_with_a_variable_is_its_only_literal() {
    for spec in ["VMA_PID_RESET_PERIOD", "kernel/sched/fair.c:3304"] {
        let factor = constant(spec);
        assert_eq!(factor.id.to_string(), "kernel/sched/fair.c:L3304:4:0");
        assert_eq!(
            (factor.form, factor.default, factor.name.as_deref()),
            (Form::Literal, 4, Some("VMA_PID_RESET_PERIOD"))
        );
        assert_eq!(sources(&users_of(&factor).units), ["kernel/sched/fair.c"]);
    }
}

/// Whoever expands the macro uses the literal.
#[test]
fn a_literal_in_a_macro_of_a_header_has_the_users_of_the_macro() {
    let whole = constant("TCP_INIT_CWND");
    let literal = constant("include/net/tcp.h:L160:2:0");
    let named = constant("TCP_TIMEOUT_MIN_US");
    assert_eq!(literal.form, Form::Literal);
    assert_eq!(users_of(&literal).units, users_of(&named).units);
    assert!(users_of(&literal).units.len() > 1);
    assert_ne!(users_of(&literal).units, users_of(&whole).units);
}

/// What is evaluated here is what the compiler makes of it.
#[test]
fn the_evaluator_agrees_with_the_compiler() {
    for name in [
        "BLK_PLUG_FLUSH_SIZE",
        "IO_TCTX_REFS_CACHE_NR",
        "GSSD_MIN_TIMEOUT",
        "TCP_DELACK_MAX",
        "BFQ_MIN_TT",
        "TCP_TIMEOUT_MIN_US",
        "NFS4_POLL_RETRY_MAX",
        "bfq_back_max",
        "max_service_from_wr",
    ] {
        let constant = constant(name);
        let out = tempfile::tempdir().unwrap();
        let path = &constant.witness;
        let text = String::from_utf8(tree().read(path).unwrap()).unwrap();
        let (value, c_type) = (constant.default, constant.c_type.name());
        let typed = format!("_Static_assert(_Generic(({name}), {c_type}: 1, default: 0), \"type\");\n");
        let valued = match constant.form {
            Form::StaticConst => format!("_Static_assert(({}) == {value}, \"value\");\n", constant.token),
            _ => format!("_Static_assert(({name}) == {value}, \"value\");\n"),
        };
        let edit = FileEdit { path: path.clone(), content: format!("{text}\n{typed}{valued}") };
        tree().compile(&[edit], path, &out.path().join("x.o"), &QUICK).unwrap_or_else(|e| panic!("{name}: {e}"));
    }
}

#[test]
fn what_is_remembered_is_what_was_resolved() {
    for spec in ["MAX_SOFTIRQ_TIME", "VMA_PID_RESET_PERIOD", "net/ipv4/tcp.c:1162"] {
        let (text, parsed) = (spec, Spec::parse(spec).unwrap());
        let fresh = constant(text);
        assert_eq!(recall(tree(), &parsed).unwrap(), fresh);
        assert_eq!(recall(&NoCompiler, &parsed).unwrap(), fresh);
    }
}

fn refused(spec: &str) -> ResolveError {
    resolve(tree(), &Spec::parse(spec).unwrap()).map(|c| panic!("{spec} resolved to {}", c.id)).unwrap_err()
}

#[test]
fn bad_input_is_refused_with_the_reason() {
    let unknown = refused("BLK_MAX_REQEST_COUNT");
    assert!(
        matches!(&unknown, ResolveError::Unknown { near, .. } if near.contains(&"BLK_MAX_REQUEST_COUNT".into())),
        "{unknown}"
    );
    let two = refused("fits_capacity").to_string();
    assert!(
        two.contains("kernel/sched/fair.c:L102:1280:0") && two.contains("kernel/sched/fair.c:L102:1024:0"),
        "{two}"
    );
    let variable = refused("kernel/sched/fair.c:L3304:(4 * sysctl_numa_balancing_scan_delay):0");
    assert!(matches!(variable, ResolveError::NotConstant { .. }), "{variable}");
    assert!(variable.to_string().contains("kernel/sched/fair.c:L3304:4:0"), "{variable}");
    assert!(matches!(refused("TICK_NSEC"), ResolveError::TooWide(_)));
    assert!(matches!(refused("kernel/sched/sched.h:2838"), ResolveError::NotDeployed { .. }));
    assert!(matches!(refused("AMT_MAX_REQ_COUNT"), ResolveError::NotDeployed { .. }));
    assert!(matches!(refused("block/blk-mq.c:1"), ResolveError::NoConstant { .. }));
    assert!(matches!(refused("block/blk-mq.c:999999"), ResolveError::NoConstant { .. }));
    assert!(matches!(refused("no/such/file.c:3"), ResolveError::NoFile { .. }));
    assert!(matches!(refused("block/blk.h:L335:33:0"), ResolveError::Stale { .. }));
    assert!(matches!(refused("UTS_SYSNAME"), ResolveError::NotInteger { .. }));
    let big = edit(tree(), &constant("BLK_MAX_REQUEST_COUNT"), 1 << 31).unwrap_err();
    assert!(matches!(big, EditError::OutOfType { .. }) && big.to_string().contains("2147483647"), "{big}");
}

#[test]
fn array_sizes_are_found_by_their_layout() {
    let out = tempfile::tempdir().unwrap();
    let sized = constant("DFR_HASHSIZE");
    let users = users_of(&sized);
    assert!(users.shapes.iter().any(|m| m.what.contains("cache_defer_hash")), "{users:?}");
    let changes = layout_sensitive(tree(), &sized, &users.units[0], sized.default * 2, out.path()).unwrap();
    let shown: Vec<String> = changes.iter().map(ToString::to_string).collect();
    assert!(shown.iter().any(|c| c == "symbol cache_defer_hash: 2048 bytes -> 4096 bytes"), "{shown:?}");

    let plain = constant("SHRINK_BATCH");
    let unit = &users_of(&plain).units[0];
    assert_eq!(layout_sensitive(tree(), &plain, unit, 153, out.path()).unwrap(), []);
}

#[test]
fn members_of_structures_are_found_by_their_layout() {
    let out = tempfile::tempdir().unwrap();
    let sized = constant("IO_RINGFD_REG_MAX");
    let users = users_of(&sized);
    assert!(users.shapes.iter().any(|m| m.what.contains("struct io_uring_task")), "{users:?}");
    let unit = users.units.iter().find(|u| u.source == "io_uring/tctx.c").unwrap();
    let changes = layout_sensitive(tree(), &sized, unit, 17, out.path()).unwrap();
    assert!(changes.iter().any(|c| c.what == "struct io_uring_task"), "{changes:?}");
}

#[test]
fn a_unit_that_does_not_use_the_constant_is_told_apart() {
    let out = tempfile::tempdir().unwrap();
    let constant = constant("BLK_MAX_REQUEST_COUNT");
    let stranger = tree().units().unwrap().iter().find(|u| u.source == "block/bio.c").unwrap().clone();
    let outcome = build(tree(), &constant, &stranger, 64, out.path());
    assert!(matches!(outcome, Err(BuildError::NotSeen { .. })), "{outcome:?}");
}

#[test]
fn an_assertion_is_told_from_other_errors() {
    let out = tempfile::tempdir().unwrap();
    let constant = constant("TCP_DELACK_MAX");
    let unit = &users_of(&constant).units[0];
    let outcome = build(tree(), &constant, unit, 1_000_000, out.path());
    assert!(matches!(outcome, Err(BuildError::Rejected { by: RejectedBy::LayoutOrAssert, .. })), "{outcome:?}");
}

#[test]
fn values_are_written_with_their_type() {
    let folder = tempfile::tempdir().unwrap();
    let (source, object) = (folder.path().join("t.c"), folder.path().join("t.o"));
    let mut text = String::new();
    for (c_type, name) in CType::ALL {
        let (low, high) = c_type.range();
        let extremes = [low, low + 1, high - 1, high, 0, 1].map(|v| v.clamp(i64::MIN.into(), i64::MAX.into()) as i64);
        for value in extremes {
            let literal = c_type.literal(value).unwrap();
            text += &format!("_Static_assert(_Generic({literal}, {name}: 1, default: 0), \"{name}\");\n");
            if value != i64::MIN {
                text += &format!("_Static_assert(({literal}) == ({name})({value}), \"{name}\");\n");
            }
            text += &format!("int case_of(long long x) {{ switch (x) {{ case {literal}: return 1; }} return 0; }}\n");
            text = text.replace("case_of(", &format!("f{}(", text.len()));
            if c_type.bits() >= 32 {
                text += &format!("#if {literal} == 12345\n#endif\n");
            }
        }
    }
    std::fs::write(&source, text).unwrap();
    let mut gcc = std::process::Command::new("gcc");
    gcc.args(["-c", "-funsigned-char", "-w", "-o"]).arg(&object).arg(&source);
    let out = gcc.output().unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
}

/// A plain search over every unit and what it includes by the compiler's own account.
#[test]
fn no_user_is_missed() {
    for name in ["TCP_INIT_CWND", "BLK_MQ_MAX_DEPTH", "BUSY_POLL_BUDGET", "TCP_PLB_SCALE"] {
        let constant = constant(name);
        let users = users_of(&constant);
        let found = sources(&users.units);
        let out = std::process::Command::new("grep")
            .args(["-rlw", "--include=*.c", name, "block", "drivers", "fs", "io_uring", "kernel", "mm", "net"])
            .current_dir(tree().root())
            .output()
            .unwrap();
        let mentions = String::from_utf8(out.stdout).unwrap();
        let units = tree().units().unwrap();
        let mut checked = 0;
        for unit in mentions.lines().filter(|path| units.iter().any(|u| u.source == *path)) {
            let read = tree().overlay::<&str, &str>(&[]).unwrap().dependencies(unit).unwrap();
            if read.contains(&constant.id.path) {
                checked += 1;
                assert!(found.contains(&unit), "{name}: {unit} is missing from {found:?}");
            }
        }
        assert!(checked > 0, "{name}");
    }
}

/// A unified diff of one line of a file of the tree, with a line of context on either side.
fn patch(path: &str, line: usize, from: &str, to: &str) -> String {
    let source = String::from_utf8(tree().read(path).unwrap()).unwrap();
    let lines: Vec<&str> = source.lines().collect();
    let (before, old, after) = (lines[line - 2], lines[line - 1], lines[line]);
    assert!(old.contains(from), "{old}");
    let new = old.replacen(from, to, 1);
    // Some lines off, as in another version.
    let at = line + 7;
    format!("--- a/{path}\n+++ b/{path}\n@@ -{at},3 +{at},3 @@\n {before}\n-{old}\n+{new}\n {after}\n")
}

#[test]
fn a_patch_names_the_constant_that_it_changes() {
    let of = |path: &str, line, from: &str, to: &str| {
        let found = patched(tree(), patch(path, line, from, to).as_bytes()).unwrap();
        (resolve(tree(), &found.spec).unwrap().id.to_string(), found.suggestion)
    };
    assert_eq!(of("mm/shrinker.c", 378, "128", "512"), ("mm/shrinker.c:L378:128:0".into(), Some(512)));
    assert_eq!(of("kernel/sched/fair.c", 102, "1024", "900"), ("kernel/sched/fair.c:L102:1024:0".into(), Some(900)));
    assert_eq!(of("kernel/sched/fair.c", 3304, "4", "8"), ("kernel/sched/fair.c:L3304:4:0".into(), Some(8)));
    assert_eq!(of("net/ipv4/tcp.c", 1162, "16", "8"), ("net/ipv4/tcp.c:L1162:16:0".into(), Some(8)));
    assert_eq!(of("block/bfq-iosched.c", 168, "16 * 1024", "1 << 12").1, Some(4096));
    let refused = |text: &str| patched(tree(), text.as_bytes()).unwrap_err();
    assert!(matches!(refused(&patch("mm/shrinker.c", 378, "SHRINK_BATCH", "OTHER")), PatchError::NoConstant { .. }));
    let moved = patch("mm/shrinker.c", 378, "128", "512").replace("SHRINK_BATCH 128", "SHRINK_BATCH 127");
    assert!(matches!(refused(&moved), PatchError::DoesNotApply { hunk: 1, line: 385, .. }), "{}", refused(&moved));
    let outside = patch("mm/shrinker.c", 378, "128", "512").replace("a/mm/", "a/../");
    assert!(matches!(refused(&outside), PatchError::NoFile { .. }));
    assert!(matches!(refused(""), PatchError::Empty));
}
