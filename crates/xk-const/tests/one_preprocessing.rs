//! Writing a value into text that was preprocessed before gives the very object that compiling the
//! edited tree gives: over units of a real kernel with WARN (line numbers in tables), BUILD_BUG_ON
//! (`__COUNTER__`) and static assertions, and over a small tree where the preprocessor looks at the
//! constant itself.
#![allow(missing_docs, clippy::expect_used, clippy::unwrap_used)]

mod common;

use common::{constant, sources, users_of};
use std::path::Path;
use xk_const::*;
use xk_kernel::Tree;
use xk_testing::kernels::tree;

/// The object of the edited tree, and the one that [`build`] makes.
fn both(tree: &Tree, constant: &Constant, unit: &str, value: i64, out: &Path) -> (Vec<u8>, Vec<u8>) {
    let plain = out.join("plain.o");
    tree.compile(&edit(tree, constant, value).unwrap(), unit, &plain, &QUICK).unwrap();
    let built = build(tree, constant, &unit_of(unit), value, out).unwrap();
    (std::fs::read(plain).unwrap(), std::fs::read(built).unwrap())
}

fn unit_of(source: &str) -> Unit {
    Unit { source: source.to_owned(), module: None, object: source.replace(".c", ".o") }
}

#[test]
fn objects_of_real_units_are_the_same() {
    let out = tempfile::tempdir().unwrap();
    for (spec, unit, values) in [
        ("BLK_MAX_REQUEST_COUNT", "block/blk-mq.c", [1, 131]),
        ("TCP_DELACK_MIN", "net/ipv4/tcp_output.c", [3, 1000]),
        ("QUEUE_THRESHOLD", "net/sched/sch_pie.c", [2, 16385]),
        ("SEND_MAX_EXTENT_REFS", "fs/btrfs/send.c", [7, 1 << 20]),
        ("p->node_stamp += 32 * diff", "kernel/sched/fair.c", [-5, 48]),
    ] {
        let constant = constant(if spec.contains('>') { "kernel/sched/fair.c:3554" } else { spec });
        assert!(sources(&users_of(&constant).units).contains(&unit), "{spec} is not used in {unit}");
        for value in values {
            let (plain, built) = both(tree(), &constant, unit, value, out.path());
            assert!(plain == built, "{spec} = {value} in {unit}");
        }
    }
}

/// A tree of one unit and one header, and the constant 32 in the header.
fn small(unit: &str) -> (tempfile::TempDir, Tree, Constant) {
    let folder = tempfile::tempdir().unwrap();
    let write = |path: &str, text: &str| {
        let path = folder.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    };
    write(".config", "CONFIG_X=y\n");
    write(".xk/tree.json", r#"{"release":"6.12.0","compiler":"gcc","compiler_version":"gcc","environment":{}}"#);
    let header = "#define V (32)\n";
    write("include/v.h", header);
    write("sub/unit.c", unit);
    write(
        ".xk/commands/sub!unit.c.json",
        r#"{"argv":["gcc","-O2","-I./include","-Wundef","-c","-o","sub/unit.o","sub/unit.c"],
            "object":"sub/unit.o","source":"sub/unit.c"}"#,
    );
    let tree = Tree::open(folder.path()).unwrap();
    let start = header.find("(32)").unwrap();
    let range = SourceRange { path: "include/v.h".into(), line: 1, start, end: start + 4, written: "(32)".into() };
    let constant = Constant {
        id: ConstId { path: "include/v.h".into(), line: 1, value: "(32)".into(), index: 0 },
        name: Some("V".into()),
        text: header.trim().into(),
        token: "(32)".into(),
        form: Form::Macro,
        default: 32,
        c_type: CType::Int,
        operator: Operator::Other,
        range,
        witness: "sub/unit.c".into(),
    };
    (folder, tree, constant)
}

#[test]
fn objects_are_the_same_where_the_preprocessor_looks() {
    const LINES: &str = "#include <v.h>\nint counter = __COUNTER__ + V;\nint line = V\n + __LINE__;\n\
        const char *file = __FILE__; int other = __COUNTER__;\n_Static_assert(V != 99, \"no\");\n";
    const MACROS: &str = "#define STRING_(x) #x\n#define STRING(x) STRING_(x)\n#define GLUE_(a, b) a##b\n\
        #define GLUE(a, b) GLUE_(a, b)\n#define NAME_V 1\n";
    for code in [
        "int f(int x) { return x - V; }\n",
        "const char *text = STRING(V);\n",
        "#if V > 40\nint big;\n#endif\n",
        "#if 0\n#elif V > 40\nint big = V;\n#endif\n",
        "int GLUE(NAME_, V_) = V;\n",
        "#pragma pack(8)\nint g(void) { asm volatile(\"# \" STRING(V)); return V; }\n",
    ] {
        let unit = format!("{LINES}{MACROS}{code}");
        let (_folder, tree, constant) = small(&unit);
        let out = tempfile::tempdir().unwrap();
        for value in [-1, 41] {
            let (plain, built) = both(&tree, &constant, "sub/unit.c", value, out.path());
            assert!(plain == built, "{code} with {value}");
        }
        let error = build(&tree, &constant, &unit_of("sub/unit.c"), 99, out.path()).unwrap_err();
        assert!(matches!(error, BuildError::Rejected { by: RejectedBy::LayoutOrAssert, .. }), "{code}: {error}");
    }
}

/// The checks of a sanitizer state the column of their source, which preprocessed text changes.
#[test]
fn objects_are_the_same_with_a_sanitizer() {
    let unit =
        "#include <v.h>\n#define SHIFTED(x) ((x) << V % 8)\nint f(int x) { return SHIFTED(x) + SHIFTED(x + 1); }\n";
    let (folder, _, constant) = small(unit);
    let command = folder.path().join(".xk/commands/sub!unit.c.json");
    let text = std::fs::read_to_string(&command).unwrap();
    std::fs::write(&command, text.replace("\"-O2\",", "\"-O2\",\"-fsanitize=shift\",")).unwrap();
    let tree = Tree::open(folder.path()).unwrap();
    let out = tempfile::tempdir().unwrap();
    for value in [1, 41] {
        let (plain, built) = both(&tree, &constant, "sub/unit.c", value, out.path());
        assert!(plain == built, "{value}");
    }
}

#[test]
fn a_pasted_literal_is_noticed() {
    // The value becomes part of a name: only preprocessing it again tells which.
    let unit = "#include <v.h>\n#define GLUE_(a, b) a##b\n#define GLUE(a, b) GLUE_(a, b)\n\
        enum { is_32 = 1, is_41 = 2 };\nint x = GLUE(is_, V);\n";
    let (folder, _, mut constant) = small(unit);
    std::fs::write(folder.path().join("include/v.h"), "#define V 32\n").unwrap();
    constant.range.end = constant.range.start + 2;
    constant.range.written = "32".into();
    constant.token = "32".into();
    let tree = Tree::open(folder.path()).unwrap();
    let out = tempfile::tempdir().unwrap();
    let (plain, built) = both(&tree, &constant, "sub/unit.c", 41, out.path());
    assert!(plain == built);
}

#[test]
fn a_constant_in_an_unused_inline_function_is_not_seen() {
    let unit = "#include <v.h>\nstatic inline int f(void) { return V; }\nint x = 32;\n";
    let (_folder, tree, constant) = small(unit);
    let out = tempfile::tempdir().unwrap();
    let error = build(&tree, &constant, &unit_of("sub/unit.c"), 41, out.path()).unwrap_err();
    assert!(matches!(error, BuildError::NotSeen { .. }), "{error}");
    let plain = out.path().join("plain.o");
    let compiled = |edits: &[FileEdit]| {
        tree.compile(edits, "sub/unit.c", &plain, &QUICK).unwrap();
        std::fs::read(&plain).unwrap()
    };
    assert!(compiled(&[]) == compiled(&edit(&tree, &constant, 41).unwrap()));
}

#[test]
fn a_unit_without_the_constant_does_not_see_it() {
    let (_folder, tree, constant) = small("#include <v.h>\nint x = 32;\n");
    let out = tempfile::tempdir().unwrap();
    for value in [41, 32, 7] {
        let error = build(&tree, &constant, &unit_of("sub/unit.c"), value, out.path()).unwrap_err();
        assert!(matches!(error, BuildError::NotSeen { .. }), "{error}");
    }
}
