//! Unified diffs: bytes in, hunks out, and applied to a file. Understands what `diff -u` and `git` write,
//! ignores everything around it, and never panics, whatever the bytes are.

use std::ops::Range;

/// The changes of one file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FileDiff<'d> {
    /// As written after `---`, without the time.
    pub path: &'d str,
    pub hunks: Vec<Hunk<'d>>,
}

/// One hunk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Hunk<'d> {
    /// Counted from 1 over the whole diff.
    pub number: usize,
    /// Where the old lines should be, counted from 1.
    pub at: usize,
    pub old: Vec<&'d [u8]>,
    pub new: Vec<&'d [u8]>,
}

/// Why bytes are no diff.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {why}")]
pub(crate) struct Malformed {
    pub line: usize,
    pub why: &'static str,
}

/// Reads a diff.
pub(crate) fn parse(bytes: &[u8]) -> Result<Vec<FileDiff<'_>>, Malformed> {
    let lines: Vec<&[u8]> = bytes.split(|&b| b == b'\n').map(|line| line.strip_suffix(b"\r").unwrap_or(line)).collect();
    let mut files: Vec<FileDiff<'_>> = Vec::new();
    let (mut at, mut number) = (0, 0);
    while let Some(line) = lines.get(at) {
        let fail = |why| Malformed { line: at + 1, why };
        if let (Some(old), Some(new)) =
            (line.strip_prefix(b"--- "), lines.get(at + 1).and_then(|l| l.strip_prefix(b"+++ ")))
        {
            let (old, new) = (path(old).ok_or_else(|| fail("the file name is not text"))?, path(new));
            if old == "/dev/null" || new == Some("/dev/null") {
                return Err(fail("a file is created or removed"));
            }
            files.push(FileDiff { path: old, hunks: Vec::new() });
            at += 2;
        } else if line.starts_with(b"@@ ") {
            let file =
                files.last_mut().ok_or_else(|| fail("a hunk before the name of its file (`--- a/…`, `+++ b/…`)"))?;
            number += 1;
            let (hunk, end) = hunk(&lines, at, number)?;
            file.hunks.push(hunk);
            at = end;
        } else if line.starts_with(b"GIT binary patch") || line.starts_with(b"Binary files ") {
            return Err(fail("a binary file is changed"));
        } else if line.starts_with(b"rename from ")
            || line.starts_with(b"deleted file ")
            || line.starts_with(b"new file ")
        {
            return Err(fail("a file is created, removed or renamed"));
        } else {
            at += 1;
        }
    }
    Ok(files)
}

fn path(text: &[u8]) -> Option<&str> {
    let text = std::str::from_utf8(text).ok()?;
    Some(text.split('\t').next().unwrap_or(text).trim())
}

fn hunk<'d>(lines: &[&'d [u8]], start: usize, number: usize) -> Result<(Hunk<'d>, usize), Malformed> {
    let fail = |line: usize, why| Malformed { line: line + 1, why };
    let header = lines.get(start).and_then(|line| std::str::from_utf8(line.get(..line.len().min(80))?).ok());
    let words: Vec<&str> = header.unwrap_or_default().split_whitespace().take(4).collect();
    let ranges = match words[..] {
        ["@@", old, new, end] if end.starts_with("@@") => range(old, '-').zip(range(new, '+')),
        _ => None,
    };
    let ((at, old_count), (_, new_count)) =
        ranges.ok_or_else(|| fail(start, "the head of a hunk reads `@@ -LINE,COUNT +LINE,COUNT @@`"))?;
    let mut hunk = Hunk { number, at, old: Vec::new(), new: Vec::new() };
    let mut next = start + 1;
    while hunk.old.len() < old_count || hunk.new.len() < new_count {
        let line = lines.get(next).ok_or_else(|| fail(next, "the hunk ends before the lines that its head counts"))?;
        match line.split_first() {
            // Mail programs drop the space of an empty line.
            None => {
                hunk.old.push(line);
                hunk.new.push(line);
            }
            Some((b' ', rest)) => {
                hunk.old.push(rest);
                hunk.new.push(rest);
            }
            Some((b'-', rest)) => hunk.old.push(rest),
            Some((b'+', rest)) => hunk.new.push(rest),
            Some((b'\\', _)) => {}
            Some(_) => return Err(fail(next, "a line of a hunk begins with a space, `-` or `+`")),
        }
        next += 1;
    }
    if hunk.old.len() != old_count || hunk.new.len() != new_count {
        return Err(fail(start, "the head of the hunk counts other lines than follow"));
    }
    Ok((hunk, next))
}

/// `-335,7`, `-335`.
fn range(text: &str, sign: char) -> Option<(usize, usize)> {
    let text = text.strip_prefix(sign)?;
    let (line, count) = text.split_once(',').unwrap_or((text, "1"));
    Some((line.parse().ok()?, count.parse().ok()?))
}

/// The file with all hunks applied, or the number of the hunk that does not fit.
pub(crate) fn apply(source: &[u8], hunks: &[Hunk<'_>]) -> Result<Vec<u8>, usize> {
    let lines: Vec<&[u8]> = source.split(|&b| b == b'\n').collect();
    let mut result: Vec<&[u8]> = Vec::with_capacity(lines.len());
    let mut done = 0;
    for hunk in hunks {
        let place = place(&lines, hunk, done).ok_or(hunk.number)?;
        result.extend(lines.get(done..place.start).unwrap_or_default());
        result.extend(&hunk.new);
        done = place.end;
    }
    result.extend(lines.get(done..).unwrap_or_default());
    Ok(result.join(&b'\n'))
}

/// The lines that a hunk replaces: where it says, or the nearest place after `from` with the same lines.
fn place(lines: &[&[u8]], hunk: &Hunk<'_>, from: usize) -> Option<Range<usize>> {
    let wanted = hunk.at.saturating_sub(1);
    let last = lines.len().checked_sub(hunk.old.len())?;
    let reads = |at: usize| lines.get(at..at + hunk.old.len()).is_some_and(|lines| lines == hunk.old);
    if hunk.old.is_empty() {
        return None;
    }
    let best = (from..=last).filter(|&at| reads(at)).min_by_key(|&at| at.abs_diff(wanted))?;
    Some(best..best + hunk.old.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIFF: &str = "\
From: somebody
Subject: more

---
 x.h | 2 +-

diff --git a/x.h b/x.h
index 1..2 100644
--- a/x.h\t2024-01-01
+++ b/x.h
@@ -2,3 +2,3 @@ void f(void)
 b
-#define X 32
+#define X 64
 c
-- 
2.39
";

    #[test]
    fn hunks_are_read_and_applied() {
        let files = parse(DIFF.as_bytes()).unwrap();
        assert_eq!((files.len(), files[0].path, files[0].hunks.len()), (1, "a/x.h", 1));
        let apply = |source: &str| apply(source.as_bytes(), &files[0].hunks).map(|b| String::from_utf8(b).unwrap());
        assert_eq!(apply("a\nb\n#define X 32\nc\n"), Ok("a\nb\n#define X 64\nc\n".into()));
        assert_eq!(apply("a\na\na\na\nb\n#define X 32\nc\n"), Ok("a\na\na\na\nb\n#define X 64\nc\n".into()));
        assert_eq!(apply("a\nb\n#define X 33\nc\n"), Err(1));
        assert_eq!(apply(""), Err(1));
    }

    #[test]
    fn what_is_no_diff_is_named_by_line() {
        let line = |text: &str| parse(text.as_bytes()).map(|files| files.len()).map_err(|e| e.line);
        assert_eq!(line("@@ -1 +1 @@\n"), Err(1));
        assert_eq!(line("--- a/x\n+++ b/x\n@@ nonsense @@\n"), Err(3));
        assert_eq!(line("--- a/x\n+++ b/x\n@@ -1,9 +1,9 @@\n a\n"), Err(6));
        assert_eq!(line("--- a/x\n+++ b/x\n@@ -1,2 +1,2 @@\n a\n?b\n"), Err(5));
        assert_eq!(line("--- a/x\n+++ b/x\n@@ -1,1 +1,2 @@\n-a\n-b\n+c\n+d\n"), Err(3));
        assert_eq!(line("--- a/x\n+++ /dev/null\n"), Err(1));
        assert_eq!(line("hello\n"), Ok(0));
    }

    /// Every prefix and every damaged byte of a diff ends, and so do numbers beyond all bounds.
    #[test]
    fn any_bytes_end() {
        let source = b"a\nb\n#define X 32\nc\n";
        let try_all = |bytes: &[u8]| {
            for file in parse(bytes).unwrap_or_default() {
                let _ = apply(source, &file.hunks);
            }
        };
        for end in 0..DIFF.len() {
            try_all(&DIFF.as_bytes()[..end]);
            for byte in [0, b'\n', b'-', b'@', 0xff, b'9'] {
                let mut damaged = DIFF.as_bytes().to_vec();
                damaged[end] = byte;
                try_all(&damaged);
            }
        }
        let huge = "--- a/x\n+++ b/x\n@@ -18446744073709551615,18446744073709551615 +1,0 @@\n";
        try_all(huge.as_bytes());
        try_all(b"--- a/x\n+++ b/x\n@@ -18446744073709551615,1 +0,1 @@\n-a\n+b\n");
        try_all(b"--- a/x\n+++ b/x\n@@ -0,0 +0,0 @@\n");
    }
}
