//! One preprocessing for all values. A unit is preprocessed with a marker in the constant's place;
//! every value is then written where the marker came out, and only compiled.
//!
//! This gives the text that preprocessing the edited file would give, unless the preprocessor itself
//! looked at the constant: in `#if`, by pasting it (`##`), or by turning it into a string (`#`). The
//! marker makes each of these visible. It begins and ends with `@`, which no C token contains: the
//! preprocessor rejects it in `#if` and rejects pasting it, and in a string it is found by looking.
//!
//! What is compiled so often is worth shortening first (`prune.rs`).

use crate::constant::SourceRange;
use crate::edit::{substitute, EditError};
use crate::prune::prune;
use crate::tree::{BuildTree, TreeError};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

/// Stands for the constant. `@` outside of strings does not occur in preprocessed C.
const MARKER: &str = "@__xk_here@";
/// The part of it that is an identifier: it must not come out without the rest.
const CORE: &str = "__xk_here";
/// The folder of the edited copy must not be part of the text.
pub(crate) const QUIET: [&str; 2] = ["-w", "-fno-working-directory"];
/// Units whose text is kept in memory, about 2 MB each: those that are being compiled, and the next
/// values of the same units.
const KEPT: usize = 12;

/// What the preprocessor makes of a unit in which the constant is marked.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Marked {
    /// The constant does not reach the unit's code.
    Absent,
    /// The text around each place where the constant came out.
    Pieces(Vec<String>),
    /// The preprocessor looked at the constant: every value has to be preprocessed by itself.
    Entangled,
}

impl Marked {
    fn of(text: &str) -> Marked {
        let places = text.matches(MARKER).count();
        if text.matches(CORE).count() != places {
            return Marked::Entangled;
        }
        if places == 0 {
            return Marked::Absent;
        }
        if text.lines().any(|line| line.contains(MARKER) && !apart(line)) {
            return Marked::Entangled;
        }
        Marked::Pieces(text.split(MARKER).map(str::to_owned).collect())
    }
}

/// The unit's text with `value` in the place of the constant. The blanks keep it a token of its own;
/// columns are not part of the output of a unit that is compiled so (`BuildTree::records_columns`).
pub(crate) fn written(pieces: &[String], value: &str) -> String {
    pieces.join(&format!(" {value} "))
}

/// Every marker of a line stands by itself: in no string, no character and no directive.
fn apart(line: &str) -> bool {
    if line.trim_start().starts_with('#') {
        return false;
    }
    let (mut quote, mut escaped) = (None, false);
    for (at, byte) in line.bytes().enumerate() {
        match (quote, byte) {
            _ if escaped => escaped = false,
            (Some(_), b'\\') => escaped = true,
            (Some(open), _) if open == byte => quote = None,
            (Some(_), b'@') if line[at..].starts_with(MARKER) => return false,
            (None, b'"' | b'\'') => quote = Some(byte),
            _ => {}
        }
    }
    quote.is_none()
}

type Slot = Arc<Mutex<Option<Arc<Marked>>>>;

/// The texts that were used last. They are quick to make again, so they are not written to disk.
static RECENT: Mutex<VecDeque<(String, Slot)>> = Mutex::new(VecDeque::new());

/// The marked text of `unit`; `key` tells tree, unit and constant apart. Several threads that want the
/// same text wait for the one that makes it.
pub(crate) fn marked(
    tree: &impl BuildTree,
    range: &SourceRange,
    unit: &str,
    key: &str,
) -> Result<Arc<Marked>, EditError> {
    let slot = slot(key);
    let mut kept = slot.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(marked) = &*kept {
        return Ok(Arc::clone(marked));
    }
    let edit = substitute(tree, range, MARKER)?;
    let marked = match tree.preprocess(&[edit], unit, &QUIET) {
        Ok(text) => match Marked::of(&text) {
            Marked::Pieces(_) => Marked::of(&prune(&text)),
            other => other,
        },
        // By the marker, or by something that every value will show.
        Err(TreeError::Rejected { .. }) => Marked::Entangled,
        Err(other) => return Err(other.into()),
    };
    Ok(Arc::clone(kept.insert(Arc::new(marked))))
}

fn slot(key: &str) -> Slot {
    let mut recent = RECENT.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(at) = recent.iter().position(|(other, _)| other == key) {
        // The most recently used stands last.
        let entry = recent.remove(at);
        recent.extend(entry);
    } else {
        recent.push_back((key.to_owned(), Slot::default()));
        if recent.len() > KEPT {
            recent.pop_front();
        }
    }
    recent.back().map(|(_, slot)| Arc::clone(slot)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pieces(text: &str) -> Option<Vec<String>> {
        match Marked::of(text) {
            Marked::Pieces(pieces) => Some(pieces),
            _ => None,
        }
    }

    #[test]
    fn values_are_written_as_tokens_of_their_own() {
        let pieces = pieces("# 1 \"x.c\"\nint a = -@__xk_here@;\nchar *s = \"'\"; int b = 2*@__xk_here@;\n").unwrap();
        assert_eq!(written(&pieces, "(-5)"), "# 1 \"x.c\"\nint a = - (-5) ;\nchar *s = \"'\"; int b = 2* (-5) ;\n");
    }

    #[test]
    fn a_unit_without_the_marker_does_not_use_the_constant() {
        assert_eq!(Marked::of("int a = 3;\n"), Marked::Absent);
    }

    #[test]
    fn what_the_preprocessor_looked_at_is_noticed() {
        for text in [
            "char *s = \"n is @__xk_here@\";\n",
            "char *s = \"\\\"@__xk_here@\";\n",
            "int c = '@__xk_here@';\n",
            "#pragma pack(@__xk_here@)\n",
            "int x__xk_here;\n",
            "int a = @__xk_here@; it's\n",
        ] {
            assert_eq!(Marked::of(text), Marked::Entangled, "{text}");
        }
    }
}
