//! Deployed code with its updates beside compiled code, executed: in short.

#![allow(clippy::unwrap_used, clippy::expect_used)] // a test

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

/// A constant with two updates: a number, and operations that the analysis made of `sbb` and `and`.
const NAME: &str = "BLK_MAX_REQUEST_COUNT";
/// Where the second of them is.
const FUNCTION: &str = "blk_add_rq_to_plug";

fn xtask(store: &Path, arguments: &[&str]) -> (bool, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_xtask"));
    let output = command.args(arguments).env("XK_STORE", store).stderr(Stdio::inherit()).output().unwrap();
    (output.status.success(), String::from_utf8(output.stdout).unwrap())
}

/// The table of the constant in a store of its own.
fn table(folder: &Path) -> PathBuf {
    let store = folder.join("tables");
    let list = folder.join("list.tsv");
    std::fs::write(&list, format!("49\t{NAME}\tblock/blk.h:335\t#define {NAME} 32\n")).unwrap();
    let (good, text) = xtask(&store, &["corpus", "--file", list.to_str().unwrap(), "--json"]);
    assert!(good, "{text}");
    store
}

/// The last line, and all of it.
fn executed(store: &Path, states: &str) -> (bool, Value, String) {
    let (good, text) = xtask(store, &["differential", NAME, "--states", states, "--values", "3", "--json"]);
    (good, serde_json::from_str(text.lines().last().unwrap()).unwrap(), text)
}

/// Changes the operations of a function in the only table of a store.
fn alter(store: &Path, change: &dyn Fn(&mut Value)) {
    let kernel = std::fs::read_dir(store).unwrap().next().unwrap().unwrap().path();
    let files = std::fs::read_dir(kernel).unwrap().map(|entry| entry.unwrap().path());
    let path = files.into_iter().find(|path| path.extension().is_some_and(|end| end == "json")).unwrap();
    let mut table: Value = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
    let place = table["functions"].as_array().unwrap().iter().position(|f| f["symbol"] == FUNCTION).unwrap();
    let spans = table["spans"].as_array_mut().unwrap();
    for span in spans.iter_mut().filter(|span| span["function"] == place) {
        change(span);
    }
    std::fs::write(&path, table.to_string()).unwrap();
}

/// The first operation with this code.
fn operation<'a>(span: &'a mut Value, code: &str) -> &'a mut Value {
    let operations = span["indirection"]["program"]["ops"].as_array_mut().unwrap();
    operations.iter_mut().find(|operation| operation["code"] == code).unwrap()
}

#[test]
fn execution_agrees_with_a_good_table_and_with_no_altered_one() {
    let folder = tempfile::tempdir().unwrap();
    let store = table(folder.path());
    let (good, sum, text) = executed(&store, "1000");
    assert!(good, "{text}");
    assert_eq!((&sum["differences"], &sum["errors"]), (&0.into(), &0.into()), "{text}");
    assert_eq!((&sum["functions"], &sum["values"]), (&2.into(), &3.into()), "{text}");
    assert_eq!(sum["updates"], sum["executed"], "{text}");
    assert!(sum["finished"].as_u64().unwrap() > 2000, "{text}");

    let plus_one = |span: &mut Value| {
        let add = operation(span, "imm");
        add["imm"] = (add["imm"].as_i64().unwrap() + 1).into();
    };
    let swapped = |span: &mut Value| operation(span, "add")["code"] = "sub".into();
    for (what, change) in [("a number plus one", &plus_one as &dyn Fn(&mut Value)), ("sub for add", &swapped)] {
        let before = std::fs::read_dir(&store).unwrap().next().unwrap().unwrap().path();
        let copy = folder.path().join(what);
        copy_folder(&before, &copy.join(before.file_name().unwrap()));
        alter(&copy, change);
        let (good, sum, text) = executed(&copy, "1000");
        assert!(!good && sum["differences"].as_u64().unwrap() > 0, "{what}: {text}");
    }
}

#[test]
fn operations_are_interpreted_as_the_processor_does() {
    let cache = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let cache = cache("XK_CACHE")
        .or_else(|| cache("XDG_CACHE_HOME").map(|folder| folder.join("xk")))
        .unwrap_or_else(|| cache("HOME").unwrap().join(".cache/xk"));
    let mut command = Command::new(cache.join("emulator/bin/python3"));
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("differential");
    let status = command.args(["-B", "test_operations.py"]).current_dir(folder).status();
    assert!(status.expect("run `scripts/setup emulator`").success());
}

/// The files of a folder, without its folders.
fn copy_folder(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap().map(Result::unwrap) {
        if entry.path().is_file() {
            std::fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
        }
    }
}
