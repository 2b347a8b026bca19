//! Overlays on a tree of a few files whose compile commands are already known.

use super::*;

/// A tree in which `sub/unit.c` includes by quote, by angle bracket, through another header, and
/// through `..`.
fn fixture() -> (TempDir, Tree) {
    let folder = tempfile::tempdir().unwrap();
    let write = |path: &str, text: &str| {
        let path = folder.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    write(".config", "CONFIG_X=y\n");
    write(".xk/tree.json", r#"{"release":"6.12.0","compiler":"gcc","compiler_version":"gcc","environment":{}}"#);
    write("sub/quoted.h", "#define QUOTED 1\n");
    write("include/linux/angle.h", "#include <linux/inner.h>\n#define ANGLE 2\n");
    write("include/linux/inner.h", "#define INNER 3\n");
    write("other/dotted.h", "#define DOTTED 4\n");
    write("other/deep/deep.h", "#include \"../../include/linux/detour.h\"\n");
    write("include/linux/detour.h", "#define DETOUR 5\n");
    write(
        "sub/unit.c",
        "#include \"quoted.h\"\n#include <linux/angle.h>\n#include \"../other/dotted.h\"\n#include <deep/deep.h>\n\
         int quoted = QUOTED, angle = ANGLE, inner = INNER, dotted = DOTTED, detour = DETOUR;\n\
         const char *file = __FILE__; int line = __LINE__;\n",
    );
    let argv = ["gcc", "-Wp,-MMD,sub/.unit.o.d", "-I./include", "-I./other", "-c", "-o", "sub/unit.o", "sub/unit.c"];
    let command = CompileCommand {
        argv: argv.map(str::to_owned).to_vec(),
        object: "sub/unit.o".to_owned(),
        source: "sub/unit.c".to_owned(),
    };
    write(".xk/commands/sub!unit.c.json", &serde_json::to_string(&command).unwrap());
    let tree = Tree::open(folder.path()).unwrap();
    (folder, tree)
}

fn preprocessed(tree: &Tree, edits: &[(&str, &str)]) -> String {
    let text = tree.overlay(edits).unwrap().preprocess("sub/unit.c", &["-P"]).unwrap();
    text.lines().skip_while(|line| !line.starts_with("int")).collect::<Vec<_>>().join("\n")
}

fn values(numbers: [u32; 5]) -> String {
    let [quoted, angle, inner, dotted, detour] = numbers;
    format!(
        "int quoted = {quoted}, angle = {angle}, inner = {inner}, dotted = {dotted}, detour = {detour};\n\
         const char *file = \"sub/unit.c\"; int line = 6;"
    )
}

#[test]
fn an_edit_takes_effect_however_the_header_is_included() {
    let (_folder, tree) = fixture();
    assert_eq!(preprocessed(&tree, &[]), values([1, 2, 3, 4, 5]));
    assert_eq!(preprocessed(&tree, &[("sub/quoted.h", "#define QUOTED 9\n")]), values([9, 2, 3, 4, 5]));
    let angle = "#include <linux/inner.h>\n#define ANGLE 9\n";
    assert_eq!(preprocessed(&tree, &[("include/linux/angle.h", angle)]), values([1, 9, 3, 4, 5]));
    assert_eq!(preprocessed(&tree, &[("include/linux/inner.h", "#define INNER 9\n")]), values([1, 2, 9, 4, 5]));
    assert_eq!(preprocessed(&tree, &[("other/dotted.h", "#define DOTTED 9\n")]), values([1, 2, 3, 9, 5]));
}

#[test]
fn a_header_reached_through_a_linked_folder_and_back_is_still_the_edited_one() {
    let (_folder, tree) = fixture();
    let edits = [("include/linux/detour.h", "#define DETOUR 9\n")];
    // Without the check the compiler would follow the link of other/ into the tree.
    assert!(tree.overlay(&edits).unwrap().leads_into_tree("./other/deep/../../include/linux/detour.h"));
    assert_eq!(preprocessed(&tree, &edits), values([1, 2, 3, 4, 9]));
}

#[test]
fn several_edits_and_the_unit_itself() {
    let (_folder, tree) = fixture();
    let edits = [
        ("sub/unit.c", "#include \"quoted.h\"\n#include <linux/angle.h>\nint value = QUOTED + INNER;\n"),
        ("sub/quoted.h", "#define QUOTED 7\n"),
        ("include/linux/inner.h", "#define INNER 8\n"),
    ];
    assert_eq!(preprocessed(&tree, &edits), "int value = 7 + 8;");
}

#[test]
fn the_tree_stays_as_it_is() {
    let (folder, tree) = fixture();
    let list = || {
        let mut found: Vec<_> = ["sub", "include/linux", "other/deep"]
            .iter()
            .flat_map(|sub| fs::read_dir(folder.path().join(sub)).unwrap().map(|entry| entry.unwrap().path()))
            .map(|path| (fs::read(&path).unwrap_or_default(), path))
            .collect();
        found.sort();
        found
    };
    let before = list();
    let out = tempfile::tempdir().unwrap();
    let overlay = tree
        .overlay(&[("sub/quoted.h", "#define QUOTED 9\n"), ("include/linux/inner.h", "#define INNER 9\n")])
        .unwrap();
    overlay.compile("sub/unit.c", &out.path().join("x.o"), &[]).unwrap();
    tree.overlay::<&str, &str>(&[]).unwrap().compile("sub/unit.c", &out.path().join("y.o"), &[]).unwrap();
    assert_eq!(list(), before);
    assert!(out.path().join("x.o").exists() && out.path().join("y.o").exists());
    let farm = overlay.root().to_owned();
    drop(overlay);
    assert!(!farm.exists(), "the overlay removes itself");
}

#[test]
fn dependencies_are_relative_to_the_tree() {
    let (_folder, tree) = fixture();
    let expected = [
        "include/linux/angle.h",
        "include/linux/detour.h",
        "include/linux/inner.h",
        "other/deep/deep.h",
        "other/dotted.h",
        "sub/quoted.h",
        "sub/unit.c",
    ];
    assert_eq!(tree.overlay::<&str, &str>(&[]).unwrap().dependencies("sub/unit.c").unwrap(), expected);
    let overlay = tree.overlay(&[("include/linux/detour.h", "#define DETOUR 9\n")]).unwrap();
    assert_eq!(overlay.dependencies("sub/unit.c").unwrap(), expected);
}

#[test]
fn one_overlay_serves_several_threads() {
    let (_folder, tree) = fixture();
    let overlay = tree.overlay(&[("include/linux/detour.h", "#define DETOUR 9\n")]).unwrap();
    std::thread::scope(|scope| {
        let runs: Vec<_> = (0..4).map(|_| scope.spawn(|| overlay.preprocess("sub/unit.c", &["-P"]).unwrap())).collect();
        for run in runs {
            assert!(run.join().unwrap().contains("detour = 9"));
        }
    });
}

#[test]
fn a_rejected_unit_carries_the_compilers_words() {
    let (_folder, tree) = fixture();
    let overlay = tree.overlay(&[("sub/quoted.h", "#error no value\n")]).unwrap();
    let output = tempfile::NamedTempFile::new().unwrap();
    match overlay.compile("sub/unit.c", output.path(), &[]) {
        Err(CompileError::Rejected { unit, stderr }) => {
            assert_eq!(unit, "sub/unit.c");
            assert!(stderr.contains("no value"), "{stderr}");
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn edits_outside_of_the_tree_are_refused() {
    let (_folder, tree) = fixture();
    for path in ["../x.h", "/etc/passwd", ""] {
        assert!(matches!(tree.overlay(&[(path, "")]), Err(CompileError::Path { .. })), "{path}");
    }
}

#[test]
fn dependency_files_are_read_as_gcc_writes_them() {
    let text = "/tmp/x.o: sub/unit.c \\\n ./include/a.h /tmp/a\\ b.h \\\n include/c.h\n\ninclude/a.h:\n";
    assert_eq!(dependency_paths(text), ["sub/unit.c", "./include/a.h", "/tmp/a b.h", "include/c.h"]);
    for malformed in ["", ":", "x.o:", "no rule at all", "\\\n\\\n"] {
        assert!(dependency_paths(malformed).is_empty(), "{malformed:?}");
    }
}
