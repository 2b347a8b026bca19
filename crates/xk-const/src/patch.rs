//! A patch as the description of a constant: the one that it changes. The new value does not matter; it
//! is handed on as a suggestion. Refuses patches that do not apply, or change anything else.

use crate::diff::{apply, parse, FileDiff};
use crate::eval::{self, Nameless};
use crate::find::{Candidate, Finder, Found};
use crate::scan::{Directive, Place, Scan};
use crate::spec::Spec;
use crate::token::Kind;
use crate::tree::{BuildTree, TreeError};
use std::ops::Range;

/// The constant that a patch changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Patched {
    /// What [`crate::resolve()`] takes.
    pub spec: Spec,
    /// `file:line`.
    pub at: String,
    /// The constant as it stands in the source, and as the patch writes it.
    pub written: (String, String),
    /// The new value, when it needs no compiler.
    pub suggestion: Option<i64>,
}

/// Why a patch describes no constant.
#[derive(Debug, thiserror::Error)]
pub enum PatchError {
    /// It is no unified diff.
    #[error("not a unified diff: {0}")]
    Malformed(String),
    /// It holds no hunks.
    #[error("the patch changes nothing: it holds no hunks; make it with `diff -u` or `git diff`")]
    Empty,
    /// A file is not part of the source.
    #[error("the patch changes {path}, which is not among the sources of this kernel; paths are read without their first folder (`a/`, `b/`)")]
    NoFile {
        /// The path.
        path: String,
    },
    /// A hunk does not fit.
    #[error("hunk {hunk} ({path}:{line}) does not apply to this kernel's source: the source has other lines there; the patch may be for another version")]
    DoesNotApply {
        /// Number of the hunk in the patch.
        hunk: usize,
        /// The file.
        path: String,
        /// The line that the hunk names.
        line: usize,
    },
    /// Lines come or go.
    #[error("hunk {hunk} ({path}:{line}) adds or removes lines; change the constant in place, on one line")]
    OtherLines {
        /// Number of the hunk in the patch.
        hunk: usize,
        /// The file.
        path: String,
        /// The line that the hunk names.
        line: usize,
    },
    /// Code changes in more than one place.
    #[error("the patch changes code on several lines ({}); it must change one constant", .lines.join(", "))]
    Several {
        /// `hunk N, file:line` of each.
        lines: Vec<String>,
    },
    /// Only comments and spaces change.
    #[error("the patch changes no code, only comments or white space")]
    NoCode,
    /// What changes is no constant.
    #[error("{at}: `{old}` becomes `{new}`, which is not a change of one integer constant; {found}")]
    NoConstant {
        /// `hunk N, file:line`.
        at: String,
        /// The tokens that change.
        old: String,
        /// What they become.
        new: String,
        /// What could be changed there.
        found: String,
    },
    /// The tree failed.
    #[error(transparent)]
    Tree(#[from] TreeError),
}

/// Finds the constant that a patch changes in the source of `tree`.
pub fn patched(tree: &impl BuildTree, patch: &[u8]) -> Result<Patched, PatchError> {
    let files = parse(patch).map_err(|error| PatchError::Malformed(error.to_string()))?;
    if files.iter().all(|file| file.hunks.is_empty()) {
        return Err(PatchError::Empty);
    }
    let mut changes = Vec::new();
    for file in &files {
        let path = located(tree, file.path)?;
        let source = tree.read(&path)?;
        changes
            .extend(changed(&path, &source, file)?.into_iter().map(|line| (path.clone(), line, source.clone(), file)));
    }
    let describe = |path: &str, line: u32, file: &FileDiff<'_>| format!("hunk {}, {path}:{line}", hunk_of(file, line));
    match &changes[..] {
        [] => Err(PatchError::NoCode),
        [(path, line, source, file)] => {
            let new = applied(path, source, file)?;
            constant(path, *line, source, &new, describe(path, *line, file))
        }
        several => Err(PatchError::Several {
            lines: several.iter().take(8).map(|(path, line, _, file)| describe(path, *line, file)).collect(),
        }),
    }
}

/// The path in the tree: without its first folder, as `patch -p1` reads it, or as it stands.
fn located(tree: &impl BuildTree, path: &str) -> Result<String, PatchError> {
    let stripped = path.split_once('/').map(|(_, rest)| rest);
    let inside = |path: &&str| {
        !path.is_empty()
            && !path.starts_with('/')
            && path.split('/').all(|part| !matches!(part, "" | "." | ".."))
            && tree.root().join(path).is_file()
    };
    let found = stripped.into_iter().chain([path]).find(inside);
    found.map(str::to_owned).ok_or_else(|| PatchError::NoFile { path: path.to_owned() })
}

fn applied(path: &str, source: &[u8], file: &FileDiff<'_>) -> Result<Vec<u8>, PatchError> {
    apply(source, &file.hunks).map_err(|hunk| PatchError::DoesNotApply {
        hunk,
        path: path.to_owned(),
        line: file.hunks.iter().find(|h| h.number == hunk).map_or(0, |h| h.at),
    })
}

/// The lines whose tokens change.
fn changed(path: &str, source: &[u8], file: &FileDiff<'_>) -> Result<Vec<u32>, PatchError> {
    let new = applied(path, source, file)?;
    if let Some(hunk) = file.hunks.iter().find(|hunk| hunk.old.len() != hunk.new.len()) {
        return Err(PatchError::OtherLines { hunk: hunk.number, path: path.to_owned(), line: hunk.at });
    }
    let (before, after) = (Scan::new(source), Scan::new(&new));
    let key = |scan: &Scan<'_>, at: usize| scan.tokens.get(at).map(|t| (t.line, scan.text(at).to_owned()));
    let (mut lines, mut a, mut b) = (Vec::new(), 0, 0);
    while a < before.tokens.len() || b < after.tokens.len() {
        let (old, new) = (key(&before, a), key(&after, b));
        if old == new {
            (a, b) = (a + 1, b + 1);
            continue;
        }
        // On to the next line in both.
        let line = old.map_or(u32::MAX, |(line, _)| line).min(new.map_or(u32::MAX, |(line, _)| line));
        lines.push(line);
        let skip = |scan: &Scan<'_>, at: usize| {
            scan.tokens.get(at..).unwrap_or_default().iter().take_while(|t| t.line <= line).count()
        };
        (a, b) = (a + skip(&before, a), b + skip(&after, b));
    }
    Ok(lines)
}

/// The hunk whose lines are nearest.
fn hunk_of(file: &FileDiff<'_>, line: u32) -> usize {
    let distance = |hunk: &&crate::diff::Hunk<'_>| {
        let (line, end) = (line as usize, hunk.at.saturating_add(hunk.old.len()));
        if line < hunk.at {
            hunk.at - line
        } else {
            line.saturating_sub(end)
        }
    };
    file.hunks.iter().min_by_key(distance).map_or(0, |hunk| hunk.number)
}

/// The constant on a line that turns the old text into the new.
fn constant(path: &str, line: u32, source: &[u8], new: &[u8], at: String) -> Result<Patched, PatchError> {
    let (before, after) = (Scan::new(source), Scan::new(new));
    let (old, new) = (line_of(&before, line), line_of(&after, line));
    let same = |from_end: bool| {
        let pairs = old.clone().zip(new.clone());
        let equal = |(a, b): &(usize, usize)| before.text(*a) == after.text(*b);
        if from_end {
            old.clone().rev().zip(new.clone().rev()).take_while(equal).count()
        } else {
            pairs.take_while(equal).count()
        }
    };
    let head = same(false);
    let tail = same(true).min(old.len() - head).min(new.len() - head);
    let gone = old.start + head..old.end - tail;
    let come = new.start + head..new.end - tail;
    let finder = Finder { path, scan: &before };
    let candidates = candidates(&finder, &before, line);
    let tokens = |candidate: &Candidate| {
        let token = |byte| before.tokens.partition_point(|t| t.start < byte);
        token(candidate.range.start)..token(candidate.range.end)
    };
    let covers = |candidate: &&Candidate| {
        let own = tokens(candidate);
        !gone.is_empty() && own.start <= gone.start && gone.end <= own.end
    };
    let no_constant = || PatchError::NoConstant {
        at,
        old: text(&before, gone.clone()),
        new: text(&after, come.clone()),
        found: held(&candidates),
    };
    // The constant with a name that holds the change, else the literal that is the change.
    let named = candidates.iter().filter(|c| c.name.is_some()).find(covers);
    let Some(chosen) = named.or_else(|| candidates.iter().find(covers)) else { return Err(no_constant()) };
    let own = tokens(chosen);
    let grown = own.start..(own.end + come.len()).saturating_sub(gone.len());
    let value: Vec<(Kind, &str)> =
        grown.clone().filter_map(|i| Some((after.tokens.get(i)?.kind, after.text(i)))).collect();
    if value.is_empty() || value.iter().any(|(kind, _)| matches!(kind, Kind::Str | Kind::Char)) {
        return Err(no_constant());
    }
    // By its line, a body with a variable means its literal.
    let alone = candidates.iter().filter(|c| c.name.is_some()).count() == 1 && chosen.id.line == line;
    let spec = if chosen.name.is_some() && alone {
        Spec::Line { path: path.to_owned(), line }
    } else {
        Spec::Id(chosen.id.clone())
    };
    let factor = if come.len() == 1 { value_of(&after, come.clone()) } else { None };
    Ok(Patched {
        spec,
        at: format!("{path}:{line}"),
        written: (chosen.id.value.clone(), text(&after, grown)),
        // Of a body with a variable, the literal that changed.
        suggestion: eval::evaluate(&value, &Nameless).map(|typed| typed.value).or(factor.filter(|_| has_names(&value))),
    })
}

fn has_names(value: &[(Kind, &str)]) -> bool {
    value.iter().any(|(kind, text)| *kind == Kind::Ident && text.chars().any(|c| c.is_ascii_lowercase()))
}

fn value_of(scan: &Scan<'_>, tokens: Range<usize>) -> Option<i64> {
    let tokens: Vec<(Kind, &str)> = tokens.filter_map(|i| Some((scan.tokens.get(i)?.kind, scan.text(i)))).collect();
    eval::evaluate(&tokens, &Nameless).map(|typed| typed.value)
}

fn line_of(scan: &Scan<'_>, line: u32) -> Range<usize> {
    scan.tokens.partition_point(|t| t.line < line)..scan.tokens.partition_point(|t| t.line <= line)
}

/// Everything on a line that could be meant, also when its macro begins on another.
fn candidates(finder: &Finder<'_>, scan: &Scan<'_>, line: u32) -> Vec<Candidate> {
    let mut found = finder.on_line(line).candidates;
    let hash = line_of(scan, line).find_map(|i| scan.tokens.get(i)?.directive);
    if let Some(hash) = hash {
        if matches!(scan.place(hash), Place::Directive(Directive::Define { function: false, .. })) {
            let mut whole = Found::default();
            finder.define(hash, &mut whole);
            found.extend(whole.candidates.into_iter().filter(|c| c.id.line != line).collect::<Vec<_>>());
        }
    }
    let literals = finder.literals_on_line(line).candidates;
    found.extend(literals.into_iter().filter(|c| !found.iter().any(|f| f.id == c.id)).collect::<Vec<_>>());
    found
}

fn held(candidates: &[Candidate]) -> String {
    if candidates.is_empty() {
        return "the line holds none".to_owned();
    }
    let ids: Vec<String> = candidates.iter().map(|c| format!("\n  {}", c.id)).collect();
    format!("the line holds:{}", ids.concat())
}

fn text(scan: &Scan<'_>, tokens: Range<usize>) -> String {
    let mut text = String::new();
    let mut end = None;
    for token in scan.tokens.get(tokens).unwrap_or_default() {
        if end.is_some_and(|end| end < token.start) {
            text.push(' ');
        }
        text.push_str(token.text(scan.source));
        end = Some(token.end);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: &str = "\
#define BATCH 32 /* how many */
#define DELAY (HZ / 25)
#define FACTOR (4 * variable)
#define fits(a, b) ((a) * 1280 < (b) * 1024)
static const int limit = 16 * 1024;
int f(int x)
{
	x += 2 * x + 2;
	return x >> 3;
}
#define LONG \\
	(A / 2)
";

    fn changed_to(from: &str, to: &str) -> Result<Patched, String> {
        let new = SOURCE.replacen(from, to, 1);
        assert_ne!(new, SOURCE);
        let old: Vec<&[u8]> = SOURCE.as_bytes().split(|&b| b == b'\n').collect();
        let hunk = crate::diff::Hunk { number: 1, at: 1, old, new: new.as_bytes().split(|&b| b == b'\n').collect() };
        let file = FileDiff { path: "a/x.c", hunks: vec![hunk] };
        let lines = changed("x.c", SOURCE.as_bytes(), &file).map_err(|e| e.to_string())?;
        let [line] = lines[..] else { return Err(format!("{lines:?}")) };
        constant("x.c", line, SOURCE.as_bytes(), new.as_bytes(), format!("hunk 1, x.c:{line}"))
            .map_err(|e| e.to_string())
    }

    fn meant(from: &str, to: &str) -> (String, Option<i64>) {
        let patched = changed_to(from, to).unwrap();
        let spec = match patched.spec {
            Spec::Id(id) => id.to_string(),
            Spec::Line { path, line } => format!("{path}:{line}"),
            Spec::Name(name) => name,
        };
        (spec, patched.suggestion)
    }

    #[test]
    fn the_changed_constant_is_meant() {
        assert_eq!(meant("BATCH 32", "BATCH 64"), ("x.c:1".into(), Some(64)));
        assert_eq!(meant("32 /* how many */", "(4 * 8) /* other words */"), ("x.c:1".into(), Some(32)));
        assert_eq!(meant("HZ / 25", "HZ / 50"), ("x.c:2".into(), None));
        assert_eq!(meant("4 * variable", "8 * variable"), ("x.c:3".into(), Some(8)));
        assert_eq!(meant("1280", "1300"), ("x.c:L4:1280:0".into(), Some(1300)));
        assert_eq!(meant("16 * 1024", "32 * 1024"), ("x.c:5".into(), Some(32768)));
        assert_eq!(meant("x + 2;", "x + 5;"), ("x.c:L8:2:1".into(), Some(5)));
        assert_eq!(meant(">> 3", ">> 4"), ("x.c:L9:3:0".into(), Some(4)));
        assert_eq!(meant("A / 2", "A / 4"), ("x.c:L11:(A / 2):0".into(), None));
    }

    #[test]
    fn other_changes_are_refused() {
        for (from, to, words) in [
            ("x >> 3", "x << 3", "x.c:9"),
            ("int x)", "long x)", "holds none"),
            ("2 * x + 2", "3 * x + 3", "`2 * x + 2`"),
            ("return x >> 3;", "return x >> 3 + y;", "x.c:9"),
            ("BATCH 32", "CHUNK 32", "x.c:L1:32:0"),
            ("BATCH 32", "BATCH", "``"),
            ("BATCH 32", "BATCH \"a\"", "`\"a\"`"),
            ("how many", "how much", "[]"),
            ("32 /* how many */\n#define DELAY (HZ / 25)", "33 /* x */\n#define DELAY (HZ / 26)", "[1, 2]"),
            ("BATCH 32 /* how many */", "BATCH 32 /* how many */\n", "adds or removes lines"),
        ] {
            let error = changed_to(from, to).unwrap_err();
            assert!(error.contains(words), "{from} -> {to}: {error}");
        }
    }
}
