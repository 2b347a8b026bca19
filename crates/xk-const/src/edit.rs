//! Writing another value into a file. The edit replaces exactly the constant's bytes and keeps the
//! number of lines, so that `__LINE__` and everything derived from it stays the same.

use crate::constant::{Constant, Form, SourceRange};
use crate::tree::{BuildTree, FileEdit, TreeError};
use crate::value::CType;

/// Why a value cannot be written.
#[derive(Debug, thiserror::Error)]
pub enum EditError {
    /// The type of the constant cannot hold the value.
    #[error("{value} does not fit {id}, which has type `{}`: choose a value from {} to {}", .c_type.name(), .c_type.range().0, .c_type.range().1)]
    OutOfType {
        /// The constant.
        id: String,
        /// The value asked for.
        value: i64,
        /// Its type.
        c_type: CType,
    },
    /// The file changed since the constant was resolved.
    #[error("{path}:{line} no longer reads `{expected}`; resolve the constant again")]
    Moved {
        /// File of the constant.
        path: String,
        /// Line of the constant.
        line: u32,
        /// What stood there.
        expected: String,
    },
    /// The file cannot be read, or is not text.
    #[error(transparent)]
    Tree(#[from] TreeError),
}

/// The edits that give `constant` another value of the same C type.
pub fn edit(tree: &impl BuildTree, constant: &Constant, value: i64) -> Result<Vec<FileEdit>, EditError> {
    Ok(vec![substitute(tree, &constant.range, &literal(constant, value)?)?])
}

/// What stands in the constant's place when it is `value`.
pub(crate) fn literal(constant: &Constant, value: i64) -> Result<String, EditError> {
    let out_of_type = || EditError::OutOfType { id: constant.id.to_string(), value, c_type: constant.c_type };
    let literal = constant.c_type.literal(value).ok_or_else(out_of_type)?;
    let bare = constant.form == Form::Literal || !constant.token.starts_with('(');
    Ok(if bare || literal.starts_with('(') { literal } else { format!("({literal})") })
}

/// The file of `range` with `text` in the place of the constant.
pub(crate) fn substitute(tree: &impl BuildTree, range: &SourceRange, text: &str) -> Result<FileEdit, EditError> {
    let source = tree.read(&range.path)?;
    let source = String::from_utf8(source)
        .map_err(|_| TreeError::Failed(format!("{} is not UTF-8 text and cannot be edited", range.path)))?;
    let content = replace(&source, range, text).ok_or_else(|| EditError::Moved {
        path: range.path.clone(),
        line: range.line,
        expected: range.written.clone(),
    })?;
    Ok(FileEdit { path: range.path.clone(), content })
}

fn replace(source: &str, range: &SourceRange, text: &str) -> Option<String> {
    let old = source.get(range.start..range.end).filter(|old| *old == range.written)?;
    // A body that spans lines shrinks to one; the lines it gives up stay as empty continuations.
    let lines = old.matches('\n').count();
    let filler = "\\\n".repeat(lines);
    Some(format!("{}{filler}{text}{}", &source[..range.start], &source[range.end..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(source: &str, written: &str) -> SourceRange {
        let start = source.find(written).unwrap();
        SourceRange { path: "x.h".into(), line: 1, start, end: start + written.len(), written: written.into() }
    }

    #[test]
    fn replaces_only_the_constant() {
        let source = "a\n#define X\t(HZ / 50) /* (HZ / 50) */\nb\n";
        assert_eq!(
            replace(source, &range(source, "(HZ / 50)"), "(7L)").unwrap(),
            "a\n#define X\t(7L) /* (HZ / 50) */\nb\n"
        );
    }

    #[test]
    fn keeps_the_number_of_lines() {
        let source = "#define X \\\n\t(A + \\\n\t B)\nint y;\n";
        let edited = replace(source, &range(source, "(A + \\\n\t B)"), "(9)").unwrap();
        assert_eq!(edited, "#define X \\\n\t\\\n(9)\nint y;\n");
        assert_eq!(edited.lines().count(), source.lines().count());
    }

    #[test]
    fn notices_a_changed_file() {
        let source = "#define X 32\n";
        let mut range = range(source, "32");
        range.written = "33".into();
        assert_eq!(replace(source, &range, "1"), None);
        range.end = 1000;
        assert_eq!(replace(source, &range, "1"), None);
    }
}
