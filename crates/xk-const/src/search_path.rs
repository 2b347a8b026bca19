//! The files that an `#include` may mean.
//!
//! In: a directive, the file that holds it, and the paths of a tree. Out: one file if its own folder
//! or the standard search path has it, else every file whose path ends like the target. The answer
//! may hold too many files, never too few: makefiles add search paths that are not read here.

use std::collections::HashMap;

/// Number of a file in the index.
pub type FileNo = u32;

/// Where `#include <…>` looks, in this order.
const SYSTEM: [&str; 6] = [
    "arch/x86/include/",
    "arch/x86/include/generated/",
    "include/",
    "arch/x86/include/uapi/",
    "arch/x86/include/generated/uapi/",
    "include/uapi/",
];

/// Turns include directives into files of a tree.
pub(crate) struct SearchPath<'a> {
    numbers: HashMap<&'a str, FileNo>,
    by_name: HashMap<&'a str, Vec<FileNo>>,
    paths: &'a [String],
}

impl<'a> SearchPath<'a> {
    pub fn new(paths: &'a [String]) -> Self {
        let numbers = paths.iter().enumerate().map(|(n, p)| (p.as_str(), n as FileNo)).collect();
        let mut by_name: HashMap<&str, Vec<FileNo>> = HashMap::new();
        for (n, path) in paths.iter().enumerate() {
            by_name.entry(path.rsplit('/').next().unwrap_or(path)).or_default().push(n as FileNo);
        }
        SearchPath { numbers, by_name, paths }
    }

    pub fn resolve(&self, from: &str, quoted: bool, target: &str) -> Vec<FileNo> {
        if let Some(file) = settled(from, quoted, target, |path| self.numbers.get(path).copied()) {
            return vec![file];
        }
        self.like(target)
    }

    /// Every file whose path ends like `target`.
    pub fn like(&self, target: &str) -> Vec<FileNo> {
        let tail = tail(target);
        let named = self.by_name.get(tail.rsplit('/').next().unwrap_or(&tail));
        named.into_iter().flatten().copied().filter(|&n| ends_like(&self.paths[n as usize], &tail)).collect()
    }
}

/// The file that an include directive means, when its own folder or the standard search path has it.
pub(crate) fn settled(
    from: &str,
    quoted: bool,
    target: &str,
    number: impl Fn(&str) -> Option<FileNo>,
) -> Option<FileNo> {
    let dir = from.rsplit_once('/').map_or("", |(dir, _)| dir);
    let own = || normalise(&format!("{dir}/{target}")).and_then(|path| number(&path));
    let beside = if quoted { own() } else { None };
    beside.or_else(|| SYSTEM.iter().find_map(|dir| number(&format!("{dir}{target}"))))
}

/// A target without what only the including folder could make sense of.
pub(crate) fn tail(target: &str) -> String {
    target.split('/').filter(|p| !matches!(*p, "." | "..")).collect::<Vec<_>>().join("/")
}

pub(crate) fn ends_like(path: &str, tail: &str) -> bool {
    path.strip_suffix(tail).is_some_and(|dir| dir.is_empty() || dir.ends_with('/'))
}

/// Resolves `.` and `..` in a path as text; `None` when it leaves the tree.
pub(crate) fn normalise(path: &str) -> Option<String> {
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()?),
            part => parts.push(part),
        }
    }
    Some(parts.join("/"))
}
