//! The Rust sources of `crates` and `xtask`: how long files and functions are, and which modules of a crate use each
//! other in a circle.
//!
//! Sources are parsed by `syn`. It does not look into the arguments of macros. Code under `#[cfg(test)]` may use any
//! module, so it adds no edge.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use syn::visit::{self, Visit};

use super::{largest_cycle, repository, LONGEST_FILE, LONGEST_FUNCTION};

/// A function whose body has more than [`LONGEST_FUNCTION`] lines.
#[derive(Debug, PartialEq, Eq)]
struct LongFunction {
    name: String,
    line: usize,
    length: usize,
}

#[derive(Default)]
struct Functions(Vec<LongFunction>);

impl Functions {
    fn note(&mut self, name: &syn::Ident, block: &syn::Block) {
        let brace = block.brace_token.span;
        let (line, length) = (name.span().start().line, brace.close().start().line - brace.open().start().line);
        if length > LONGEST_FUNCTION {
            self.0.push(LongFunction { name: name.to_string(), line, length });
        }
    }
}

impl<'ast> Visit<'ast> for Functions {
    fn visit_item_fn(&mut self, function: &'ast syn::ItemFn) {
        self.note(&function.sig.ident, &function.block);
        visit::visit_item_fn(self, function);
    }

    fn visit_impl_item_fn(&mut self, function: &'ast syn::ImplItemFn) {
        self.note(&function.sig.ident, &function.block);
        visit::visit_impl_item_fn(self, function);
    }

    fn visit_trait_item_fn(&mut self, function: &'ast syn::TraitItemFn) {
        if let Some(block) = &function.default {
            self.note(&function.sig.ident, block);
        }
        visit::visit_trait_item_fn(self, function);
    }
}

fn long_functions(file: &syn::File) -> Vec<LongFunction> {
    let mut functions = Functions::default();
    functions.visit_file(file);
    functions.0
}

/// Absolute paths that a file names, from the root of its crate: `["report", "Row"]` for `crate::report::Row`.
struct Uses {
    module: Vec<String>,
    found: Vec<Vec<String>>,
}

impl Uses {
    fn of(file: &syn::File, module: Vec<String>) -> Vec<Vec<String>> {
        let mut uses = Self { module, found: Vec::new() };
        uses.visit_file(file);
        uses.found
    }

    /// Adds `path` if it begins with `crate`, `self` or `super`. Others name crates, or what was imported before.
    fn note(&mut self, path: &[String]) {
        let mut absolute = match path.first().map(String::as_str) {
            Some("crate") => Vec::new(),
            Some("self" | "super") => self.module.clone(),
            // In the root, a module is named as it is.
            _ if self.module.is_empty() => return self.found.push(path.to_vec()),
            _ => return,
        };
        for segment in path {
            match segment.as_str() {
                "crate" | "self" => {}
                "super" => drop(absolute.pop()),
                other => absolute.push(other.to_owned()),
            }
        }
        self.found.push(absolute);
    }

    fn note_tree(&mut self, mut before: Vec<String>, tree: &syn::UseTree) {
        match tree {
            syn::UseTree::Path(path) => {
                before.push(path.ident.to_string());
                self.note_tree(before, &path.tree);
            }
            syn::UseTree::Name(name) => {
                before.push(name.ident.to_string());
                self.note(&before);
            }
            syn::UseTree::Rename(name) => {
                before.push(name.ident.to_string());
                self.note(&before);
            }
            syn::UseTree::Glob(_) => self.note(&before),
            syn::UseTree::Group(group) => group.items.iter().for_each(|tree| self.note_tree(before.clone(), tree)),
        }
    }
}

fn is_for_tests(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        attribute.path().is_ident("cfg") && attribute.parse_args::<syn::Path>().is_ok_and(|path| path.is_ident("test"))
    })
}

impl<'ast> Visit<'ast> for Uses {
    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        if !is_for_tests(&item.attrs) {
            self.note_tree(Vec::new(), &item.tree);
        }
    }

    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        if is_for_tests(&item.attrs) {
            return;
        }
        self.module.push(item.ident.to_string());
        visit::visit_item_mod(self, item);
        self.module.pop();
    }

    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        if !is_for_tests(&item.attrs) {
            visit::visit_item_fn(self, item);
        }
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        if path.segments.len() > 1 {
            let segments: Vec<_> = path.segments.iter().map(|segment| segment.ident.to_string()).collect();
            self.note(&segments);
        }
        visit::visit_path(self, path);
    }
}

/// The path of the module in a file, from the root of the crate.
fn module_of(path: &str) -> Vec<String> {
    let path = path.strip_suffix(".rs").unwrap_or(path);
    let mut module: Vec<_> = path.split('/').map(str::to_owned).collect();
    if module.last().is_some_and(|last| ["lib", "main", "mod"].contains(&last.as_str())) {
        module.pop();
    }
    module
}

/// Which top-level modules of a crate use which others. The keys of `files` are paths below `src`. A name that the root
/// exports from a module counts as that module.
fn edges(files: &BTreeMap<String, syn::File>) -> BTreeMap<String, BTreeSet<String>> {
    let top = |path: &str| module_of(path).first().cloned();
    let modules: BTreeSet<String> = files.keys().filter_map(|path| top(path)).collect();
    let mut exported = BTreeMap::new();
    for (path, file) in files.iter().filter(|(path, _)| top(path).is_none()) {
        for used in Uses::of(file, module_of(path)) {
            if let [first, .., last] = &used[..] {
                if modules.contains(first) {
                    exported.insert(last.clone(), first.clone());
                }
            }
        }
    }
    let mut edges: BTreeMap<String, BTreeSet<String>> = modules.iter().map(|m| (m.clone(), BTreeSet::new())).collect();
    for (path, file) in files {
        let Some(own) = top(path) else { continue };
        for used in Uses::of(file, module_of(path)) {
            let Some(first) = used.first() else { continue };
            let other = if modules.contains(first) { Some(first) } else { exported.get(first) };
            if let Some(other) = other.filter(|other| **other != own) {
                edges.get_mut(&own).unwrap().insert(other.clone());
            }
        }
    }
    edges
}

fn largest_cycle_of(files: &BTreeMap<String, syn::File>) -> Vec<String> {
    let edges = edges(files);
    let borrowed = edges.iter().map(|(from, to)| (from.as_str(), to.iter().map(String::as_str).collect())).collect();
    largest_cycle(&borrowed)
}

/// The Rust files below a folder, by their path in it.
fn rust_files(root: &Path) -> BTreeMap<String, PathBuf> {
    let mut folders = vec![root.to_path_buf()];
    let mut found = BTreeMap::new();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                if path.file_name().is_none_or(|name| name != "target") {
                    folders.push(path);
                }
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                found.insert(path.strip_prefix(root).unwrap().to_str().unwrap().to_owned(), path);
            }
        }
    }
    found
}

fn parsed(path: &Path) -> syn::File {
    let text = fs::read_to_string(path).unwrap();
    syn::parse_file(&text).unwrap_or_else(|error| panic!("{}:{:?}: {error}", path.display(), error.span().start()))
}

/// All Rust files of the repository's crates.
fn all() -> BTreeMap<String, PathBuf> {
    let mut found = BTreeMap::new();
    for folder in ["crates", "xtask"] {
        let files = rust_files(&repository().join(folder));
        found.extend(files.into_iter().map(|(name, path)| (format!("{folder}/{name}"), path)));
    }
    assert!(found.len() > 400, "{} files", found.len());
    found
}

/// Sources of each crate, by their path below `src`.
fn crates() -> BTreeMap<String, BTreeMap<String, syn::File>> {
    let folders = fs::read_dir(repository().join("crates")).unwrap().map(|entry| entry.unwrap().path());
    let folders = folders.chain([repository().join("xtask")]).filter(|folder| folder.join("src").is_dir());
    let parse = |folder: PathBuf| {
        let files = rust_files(&folder.join("src"));
        let name = folder.file_name().unwrap().to_str().unwrap().to_owned();
        (name, files.into_iter().map(|(name, path)| (name, parsed(&path))).collect())
    };
    folders.map(parse).collect()
}

fn is_too_long(text: &str) -> bool {
    text.lines().count() > LONGEST_FILE
}

#[test]
fn files_in_rust_are_short() {
    let long = all().into_iter().filter(|(_, path)| is_too_long(&fs::read_to_string(path).unwrap()));
    let long: Vec<_> = long.map(|(name, _)| name).collect();
    assert!(long.is_empty(), "{} files: {long:#?}", long.len());
}

#[test]
fn functions_in_rust_are_short() {
    let mut long = Vec::new();
    for (name, path) in all() {
        let found = long_functions(&parsed(&path));
        long.extend(
            found.iter().map(|found| format!("{name}:{}: {} has {} lines", found.line, found.name, found.length)),
        );
    }
    assert!(long.is_empty(), "{} functions: {long:#?}", long.len());
}

#[test]
fn modules_of_a_crate_are_in_no_cycle() {
    let crates = crates();
    assert!(crates.len() > 10, "{} crates", crates.len());
    let cycles = crates.iter().map(|(name, files)| (name, largest_cycle_of(files)));
    let cycles: BTreeMap<_, _> = cycles.filter(|(_, cycle)| !cycle.is_empty()).collect();
    assert!(cycles.is_empty(), "{cycles:#?}");
}

fn example(files: &[(&str, &str)]) -> BTreeMap<String, syn::File> {
    files.iter().map(|(path, text)| ((*path).to_owned(), syn::parse_file(text).unwrap())).collect()
}

#[test]
fn a_long_file_is_noticed() {
    assert!(!is_too_long(&"\n".repeat(LONGEST_FILE)));
    assert!(is_too_long(&"\n".repeat(LONGEST_FILE + 1)));
}

#[test]
fn a_long_function_is_noticed_wherever_it_is() {
    let body = |lines: usize| "\n".repeat(lines);
    let short = format!("fn short() {{{}}}", body(LONGEST_FUNCTION));
    assert_eq!(long_functions(&syn::parse_file(&short).unwrap()), []);
    let long = body(LONGEST_FUNCTION + 1);
    let text = format!(
        "fn free() {{{long}}}\nimpl S {{ fn method() {{{long}}} }}\ntrait T {{ fn given() {{{long}}} }}\nmod m {{ fn inner() {{{long}}} }}"
    );
    let found = long_functions(&syn::parse_file(&text).unwrap());
    assert_eq!(found.iter().map(|found| found.name.as_str()).collect::<Vec<_>>(), ["free", "method", "given", "inner"]);
    assert_eq!((found[0].line, found[0].length), (1, LONGEST_FUNCTION + 1));
}

#[test]
fn a_cycle_of_modules_is_noticed() {
    let ordered = [("lib.rs", "mod a; mod b; pub use b::Item;"), ("a/mod.rs", "use crate::b::Item;"), ("b.rs", "")];
    assert!(largest_cycle_of(&example(&ordered)).is_empty());
    let root = ("lib.rs", "mod a; mod b; pub use a::Thing;");
    let used = ("a/inner.rs", "fn f() -> crate::b::Item { todo() }");
    for back in ["use crate::a::inner;", "use super::a;", "use crate::Thing;", "fn g() { crate::a::inner::f(); }"] {
        let cycle = largest_cycle_of(&example(&[root, used, ("b.rs", back)]));
        assert_eq!(cycle, ["a", "b"], "{back}");
    }
    // A test may use what it likes.
    let tests = ("b.rs", "#[cfg(test)] mod tests { use crate::a::inner; }");
    assert!(largest_cycle_of(&example(&[root, used, tests])).is_empty());
}
