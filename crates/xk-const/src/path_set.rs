//! Sets of paths of the source tree, by name, as `xk scan` and `xk build --all-in` take them.
//!
//! In: a file or folder, a subsystem of `data/subsystems.txt`, or the title of a section in the kernel's `MAINTAINERS`.
//! Out: the patterns of the paths that belong to it. Refuses names that are none of these, and suggests sections.

use crate::tree::{BuildTree, TreeError};

/// The subsystems: name and patterns, a line each.
const SUBSYSTEMS: &str = include_str!("../data/subsystems.txt");

/// The paths that match one of some patterns, and none of the exceptions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PathSet {
    patterns: Vec<String>,
    except: Vec<String>,
}

/// Why a name is not the name of a set of paths.
#[derive(Debug, thiserror::Error)]
pub enum PathSetError {
    /// Nothing has this name.
    #[error("`{name}` is neither a file or folder of the source, nor a subsystem ({known}), nor the title of a section in MAINTAINERS{}", alike(.near))]
    Unknown {
        /// The name asked for.
        name: String,
        /// The subsystem names.
        known: String,
        /// Titles that contain it.
        near: Vec<String>,
    },
    /// The tree failed.
    #[error(transparent)]
    Tree(#[from] TreeError),
}

fn alike(near: &[String]) -> String {
    if near.is_empty() {
        String::new()
    } else {
        format!("; similar sections: {}", near.join(", "))
    }
}

impl PathSet {
    /// Finds what `name` means in a tree.
    pub fn find(tree: &impl BuildTree, name: &str) -> Result<PathSet, PathSetError> {
        if let Some(set) = Self::subsystem(name) {
            return Ok(set);
        }
        let inside = !name.starts_with('/') && !name.is_empty() && name.split('/').all(|part| part != "..");
        let path = tree.root().join(name);
        if inside && path.exists() {
            let name = name.trim_start_matches("./").trim_end_matches('/');
            let pattern = if path.is_dir() { format!("{name}/") } else { name.to_owned() };
            // The root itself is everything.
            let pattern = if pattern == "./" { String::new() } else { pattern };
            return Ok(PathSet { patterns: vec![pattern], except: Vec::new() });
        }
        let text = tree.read("MAINTAINERS").unwrap_or_default();
        Self::section(&String::from_utf8_lossy(&text), name).map_err(|near| PathSetError::Unknown {
            name: name.to_owned(),
            known: subsystems().collect::<Vec<_>>().join(", "),
            near,
        })
    }

    fn subsystem(name: &str) -> Option<PathSet> {
        let mut lines = SUBSYSTEMS.lines().filter(|line| !line.starts_with('#')).map(str::split_whitespace);
        let mut words = lines.find(|words| words.clone().next() == Some(name))?;
        words.next();
        Some(PathSet { patterns: words.map(str::to_owned).collect(), except: Vec::new() })
    }

    /// The section with this title, or the titles that contain it.
    fn section(maintainers: &str, title: &str) -> Result<PathSet, Vec<String>> {
        let mut near = Vec::new();
        for block in maintainers.split("\n\n") {
            let mut lines = block.lines();
            let Some(own) = lines.next() else { continue };
            let field = |key: &'static str| {
                lines.clone().filter_map(move |line| Some(line.strip_prefix(key)?.trim().to_owned()))
            };
            let patterns: Vec<String> = field("F:").collect();
            if patterns.is_empty() {
                continue;
            }
            if own.eq_ignore_ascii_case(title) {
                return Ok(PathSet { patterns, except: field("X:").collect() });
            }
            if near.len() < 5 && own.to_ascii_lowercase().contains(&title.to_ascii_lowercase()) {
                near.push(own.to_owned());
            }
        }
        Err(near)
    }

    /// Whether `path` belongs to it.
    pub fn contains(&self, path: &str) -> bool {
        let any = |patterns: &[String]| patterns.iter().any(|pattern| belongs(pattern, path));
        any(&self.patterns) && !any(&self.except)
    }
}

/// The names of all subsystems.
pub fn subsystems() -> impl Iterator<Item = &'static str> {
    SUBSYSTEMS.lines().filter(|line| !line.starts_with('#')).filter_map(|line| line.split_whitespace().next())
}

/// A folder ends with `/` and means all below it; a pattern means what it matches, and all below that.
fn belongs(pattern: &str, path: &str) -> bool {
    if pattern.is_empty() {
        return true;
    }
    if !pattern.contains(['*', '?']) {
        return path == pattern
            || path.strip_prefix(pattern).is_some_and(|rest| pattern.ends_with('/') || rest.starts_with('/'));
    }
    let depth = pattern.trim_end_matches('/').matches('/').count();
    let ends = path.match_indices('/').map(|(at, _)| at).chain([path.len()]);
    let Some(end) = ends.into_iter().nth(depth) else { return false };
    let parts = pattern.trim_end_matches('/').split('/').zip(path[..end].split('/'));
    (end == path.len() || pattern.ends_with('/')) && parts.into_iter().all(|(pattern, part)| glob(pattern, part))
}

/// `*` is any text, `?` any character.
pub fn glob(pattern: &str, text: &str) -> bool {
    let (pattern, text): (Vec<char>, Vec<char>) = (pattern.chars().collect(), text.chars().collect());
    let (mut p, mut t) = (0, 0);
    let mut star = None;
    while t < text.len() {
        match pattern.get(p) {
            Some('*') => {
                star = Some((p, t));
                p += 1;
            }
            Some(&c) if c == '?' || c == text[t] => (p, t) = (p + 1, t + 1),
            _ => {
                // The last star takes one character more.
                let Some((at, from)) = star else { return false };
                star = Some((at, from + 1));
                (p, t) = (at + 1, from + 1);
            }
        }
    }
    pattern[p..].iter().all(|c| *c == '*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match() {
        assert!(glob("*_DELAY", "OOM_REAPER_DELAY") && !glob("*_DELAY", "DELAY_MAX"));
        assert!(glob("A*B?C", "AxxBBxC") && glob("*", "") && !glob("?", ""));
        assert!(!glob(&"*a".repeat(2000), &"b".repeat(2000)));
        assert!(belongs("mm/", "mm/damon/core.c") && !belongs("mm/", "mmx/a.c"));
        assert!(belongs("net/ipv4/tcp*.c", "net/ipv4/tcp_bbr.c") && !belongs("net/ipv4/tcp*.c", "net/ipv4/x/tcp.c"));
        assert!(belongs("drivers/*/foo/", "drivers/a/foo/b/c.c"));
        assert!(belongs("lib/sbitmap.c", "lib/sbitmap.c") && !belongs("lib/sbitmap.c", "lib/sbitmap.cc"));
    }

    #[test]
    fn subsystems_are_known() {
        let tcp = PathSet::subsystem("tcp").unwrap();
        assert!(
            tcp.contains("net/ipv4/tcp_bbr.c") && tcp.contains("include/net/tcp.h") && !tcp.contains("net/ipv4/udp.c")
        );
        assert!(PathSet::subsystem("#").is_none() && subsystems().any(|name| name == "io_uring"));
    }

    #[test]
    fn sections_have_titles() {
        let text =
            "A FILE SYSTEM\nM:\tx\nF:\tfs/a/\nX:\tfs/a/test/\n\nA FILE SYSTEM TOO\nF:\tfs/b/\n\nTHE REST\nF:\t*\n";
        let set = PathSet::section(text, "a file system").unwrap();
        assert!(set.contains("fs/a/x.c") && !set.contains("fs/a/test/x.c"));
        assert_eq!(
            PathSet::section(text, "file"),
            Err(vec!["A FILE SYSTEM".to_owned(), "A FILE SYSTEM TOO".to_owned()])
        );
    }
}
