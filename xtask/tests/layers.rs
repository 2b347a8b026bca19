//! The picture of the layers in `docs/architecture.md` against the code, and the lengths of files and functions.

#![allow(clippy::unwrap_used, clippy::expect_used)] // a test

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

#[path = "layers/rust.rs"]
mod rust;

/// Files that include each other, in a circle; more of them cannot be read one after the other.
const LARGEST_CYCLE: usize = 4;
/// Those of several layers.
const MODULES: [&str; 2] = ["xk", "xk_sched"];
/// What xk_sched.ko uses of xk.ko.
const SHARED: [&str; 4] = ["base/compat.h", "base/error.h", "control/privilege.h", "text/symbol.h"];
const LONGEST_FUNCTION: usize = 60;
const LONGEST_FILE: usize = 500;

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// The lines of the picture after this heading, from the top layer to the lowest: the names in each.
fn picture(heading: &str) -> Vec<Vec<String>> {
    let text = fs::read_to_string(repository().join("docs/architecture.md")).unwrap();
    let (_, rest) = text.split_once(heading).expect("the heading");
    let (_, rest) = rest.split_once("```text\n").expect("a picture");
    let (block, _) = rest.split_once("```").unwrap();
    let names =
        |line: &str| line.split("  ").next().unwrap_or_default().split_whitespace().map(str::to_owned).collect();
    block.lines().map(names).collect()
}

fn place(layers: &[Vec<String>], name: &str) -> usize {
    layers
        .iter()
        .position(|layer| layer.iter().any(|other| other == name))
        .unwrap_or_else(|| panic!("{name} is in no layer"))
}

/// Sources of a module, by their path below its folder.
fn sources(module: &str) -> BTreeMap<String, String> {
    let root = repository().join("kernel").join(module);
    let mut folders = vec![root.clone()];
    let mut found = BTreeMap::new();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.strip_prefix(&root).unwrap().to_str().unwrap().to_owned();
            if path.is_dir() {
                if !["user", "uapi", "policies"].contains(&name.as_str()) {
                    folders.push(path);
                }
            } else if [".c", ".h", ".S"].iter().any(|end| name.ends_with(end)) {
                found.insert(name, fs::read_to_string(path).unwrap());
            }
        }
    }
    assert!(found.len() > 20, "{} files", found.len());
    found
}

fn includes(text: &str) -> impl Iterator<Item = &str> {
    text.lines().filter_map(|line| line.trim_start().strip_prefix("#include \"")?.split('"').next())
}

fn folder(path: &str) -> &str {
    path.split('/').next().unwrap()
}

/// A file and its header are one.
fn unit(path: &str) -> &str {
    path.rsplit_once('.').unwrap().0
}

#[test]
fn files_of_the_module_include_nothing_above_them() {
    for module in MODULES {
        let layers = picture(&format!("### `{module}.ko`"));
        // Headers for others, which use nothing of the module; and what is shared with xk.ko.
        let others = |path: &&str| {
            ["uapi/", "user/", "xk_sched.h"].iter().any(|start| path.starts_with(start))
                || (module != "xk" && SHARED.contains(path))
        };
        for (path, text) in sources(module).into_iter().filter(|(path, _)| path != "xk_sched.h") {
            for included in includes(&text).filter(|path| !others(path)) {
                let (own, other) = (place(&layers, folder(&path)), place(&layers, folder(included)));
                assert!(other >= own, "{path} includes {included}, which is above it");
            }
        }
    }
}

#[test]
fn a_backend_is_named_by_itself_and_the_list_only() {
    let backend = |path: &str| match path.split('/').collect::<Vec<_>>()[..] {
        ["backend", name, _] => Some(name.to_owned()),
        _ => None,
    };
    for (path, text) in sources("xk").into_iter().filter(|(path, _)| path != "backend/list.c") {
        for included in includes(&text) {
            let named = backend(included);
            assert!(named.is_none() || named == backend(&path), "{path} includes {included}");
        }
    }
}

/// Units that each can be reached from the other.
fn largest_cycle(edges: &BTreeMap<&str, BTreeSet<&str>>) -> Vec<String> {
    let reach = |from: &str| {
        let mut seen = BTreeSet::new();
        let mut todo = vec![from.to_owned()];
        while let Some(unit) = todo.pop() {
            for next in edges.get(unit.as_str()).into_iter().flatten() {
                if seen.insert((*next).to_owned()) {
                    todo.push((*next).to_owned());
                }
            }
        }
        seen
    };
    let all: BTreeMap<&str, BTreeSet<String>> = edges.keys().map(|unit| (*unit, reach(unit))).collect();
    let cycle = |unit: &str| -> Vec<String> {
        all[unit]
            .iter()
            .filter(|other| all.get(other.as_str()).is_some_and(|reach| reach.contains(unit)))
            .cloned()
            .collect()
    };
    edges.keys().map(|unit| cycle(unit)).max_by_key(Vec::len).unwrap_or_default()
}

#[test]
fn circles_of_files_are_small_and_in_one_folder() {
    for module in MODULES {
        circles_are_small(&sources(module));
    }
}

fn circles_are_small(sources: &BTreeMap<String, String>) {
    let mut edges: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for (path, text) in sources {
        let to = edges.entry(unit(path)).or_default();
        to.extend(includes(text).map(unit).filter(|other| *other != unit(path)));
    }
    let cycle = largest_cycle(&edges);
    assert!(cycle.len() <= LARGEST_CYCLE, "{cycle:?}");
    assert!(cycle.iter().all(|path| folder(path) == folder(&cycle[0])), "{cycle:?}");
}

#[test]
fn files_and_functions_of_the_module_are_short() {
    for (path, text) in MODULES.iter().flat_map(|module| sources(module)) {
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines.len() <= LONGEST_FILE, "{path} has {} lines", lines.len());
        let mut start = None;
        for (number, line) in lines.iter().enumerate() {
            match *line {
                "{" => start = Some(number),
                "}" => {
                    let length = number - start.take().unwrap_or(number);
                    assert!(length <= LONGEST_FUNCTION, "{path}:{number}: a function of {length} lines");
                }
                _ => {}
            }
        }
    }
}

#[test]
fn crates_depend_on_nothing_above_them() {
    let layers = picture("### The crates");
    let mut seen = 0;
    for entry in fs::read_dir(repository().join("crates")).unwrap() {
        let path = entry.unwrap().path();
        let Ok(manifest) = fs::read_to_string(path.join("Cargo.toml")) else { continue };
        let name = path.file_name().unwrap().to_str().unwrap();
        let (_, rest) = manifest.split_once("[dependencies]").unwrap();
        let own = rest.split("\n[").next().unwrap();
        for line in own.lines() {
            let other = line.split(['.', ' ', '=']).next().unwrap();
            if other.starts_with("xk") {
                assert!(
                    place(&layers, other) > place(&layers, name),
                    "{name} depends on {other}, which is not below it"
                );
            }
        }
        seen += 1;
    }
    assert!(seen >= 10, "{seen} crates");
}
