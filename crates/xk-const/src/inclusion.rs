//! Whether a unit certainly includes a file: along `#include`s that the configuration leaves in and
//! that the standard search path settles. Says no in every other case, which means "ask the compiler".

use crate::conditions::{Conditions, Config, Truth};
use crate::index::Index;
use crate::scan::Scan;
use crate::search_path::FileNo;
use crate::tree::{BuildTree, TreeError};
use std::collections::{HashSet, VecDeque};

/// Files that are read before giving up.
const READ_FILES: usize = 48;

/// The files that `file` certainly (`Yes`) or possibly (`Maybe`) includes, without those that the
/// configuration leaves out.
pub(crate) fn included(index: &Index, path: &str, scan: &Scan<'_>, conditions: &Conditions) -> Vec<(FileNo, Truth)> {
    let mut found = Vec::new();
    for region in scan.directives() {
        let start = region.tokens.start;
        let next = scan.text(start + 1) == "include_next";
        if !next && scan.text(start + 1) != "include" {
            continue;
        }
        let truth = conditions.at(start);
        let (Some(first), Some(last)) = (scan.tokens.get(start + 2), scan.tokens.get(region.tokens.end - 1)) else {
            continue;
        };
        let text = scan.source.get(first.start..last.end).unwrap_or_default();
        let text = String::from_utf8_lossy(text);
        let quoted = text.starts_with('"');
        let target = text.trim_matches(['"', '<', '>', ' ']);
        if truth == Truth::No || target.is_empty() {
            continue;
        }
        let targets = index.include_targets(path, quoted, target);
        let truth = if targets.len() == 1 && !next { truth } else { Truth::Maybe };
        found.extend(targets.into_iter().map(|file| (file, truth)));
    }
    found
}

/// `unit` certainly includes `file`. `reached`: the files from which `file` can be reached at all.
pub(crate) fn certain(
    tree: &impl BuildTree,
    index: &Index,
    config: &Config,
    unit: FileNo,
    file: FileNo,
    reached: &[bool],
) -> Result<bool, TreeError> {
    let (mut work, mut seen) = (VecDeque::from([unit]), HashSet::from([unit]));
    let mut read = 0;
    while let Some(at) = work.pop_front() {
        if at == file {
            return Ok(true);
        }
        read += 1;
        if read > READ_FILES {
            break;
        }
        let source = tree.read(index.path(at))?;
        let scan = Scan::new(&source);
        let conditions = Conditions::of(&scan, config);
        for (target, truth) in included(index, index.path(at), &scan, &conditions) {
            if truth == Truth::Yes && reached.get(target as usize) == Some(&true) && seen.insert(target) {
                work.push_back(target);
            }
        }
    }
    Ok(false)
}
