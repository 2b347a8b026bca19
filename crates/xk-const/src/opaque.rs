//! The opaque build: a unit compiled with a value that the compiler cannot know.
//!
//! The constant is replaced by `((T)(long)xk_opaque)`, the address of a symbol in the constant's own
//! C type. What the compiler makes of that holds for every value, because it can draw no conclusion
//! from it. The symbol is never linked: the analysis reads its relocations as V.
//!
//! It still knows that the value does not change: a loop that counts up to it may test for equality at
//! its end. [`Opaque::Changing`] forbids that, too: the constant is replaced by a volatile object, which is
//! read wherever the source mentions it. The analysis reads it as V each time.
//!
//! Where C demands a constant (array sizes, `case`), there is no opaque build. Static initialisers have the default
//! (`initialisers.rs`). An assertion about the value is different: its failing call stays in the code, and the analysis
//! finds the values for which it is not reached.

use crate::build::{digest, not_seen, rejection, stem, BuildError, RejectedBy, NOTED, QUICK};
use crate::constant::{Constant, Form};
use crate::edit::{literal, substitute};
use crate::initialisers::{functions, separate, Separated, Word, MARK};
use crate::marked::{marked, written, Marked, QUIET};
use crate::tree::{BuildTree, Unit};
use crate::value::CType;
use std::path::{Path, PathBuf};

/// The symbol whose address stands for V: the linker would decide it, so the compiler can conclude nothing from it.
pub const SYMBOL: &str = "xk_opaque";
/// The object whose contents stand for V, where the compiler may not even know that V stays the same.
pub const OBJECT: &str = "xk_opaque_object";

/// What the compiler may know of the value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Opaque {
    /// That it is the same everywhere.
    Fixed,
    /// Nothing.
    Changing,
}

impl Opaque {
    /// What stands for a value of type `c_type`, and its declaration.
    fn text(self, c_type: &str) -> (String, String) {
        match self {
            Self::Fixed => (format!("(({c_type})(long){SYMBOL})"), format!("extern char {SYMBOL}[];")),
            Self::Changing => (format!("(({c_type}){OBJECT})"), format!("extern const volatile {c_type} {OBJECT};")),
        }
    }
}

/// Raised when the text that is compiled changes: objects are kept under their recipe.
const RECIPE: &str = "3";
/// The same for an edited file of the tree.
const EDITED: &str = "edited";
/// An address is never 0, but V may be.
const ANY_ADDRESS: &str = "-fno-delete-null-pointer-checks";

/// Compiles `unit` with an opaque value in the place of `constant`. `flags` are [`QUICK`](crate::QUICK) for an
/// object and [`NOTED`] for assembly.
///
/// # Errors
/// [`BuildError::NotOpaque`] when the unit needs the value; [`BuildError::NotSeen`] when it does not use
/// the constant.
pub fn build_opaque(
    tree: &impl BuildTree,
    constant: &Constant,
    unit: &Unit,
    opaque: Opaque,
    out_dir: &Path,
    flags: &[&str],
) -> Result<PathBuf, BuildError> {
    Source { tree, constant, unit }.built(opaque, &[], out_dir, flags)
}

/// Compiles `unit` as [`build_opaque`] does with [`Opaque::Fixed`], with a function for each of `words`, which are named
/// [`WORD`](crate::WORD) and the number of the word. It returns what the word holds when the constant is the opaque value.
///
/// # Errors
/// As [`build_opaque`]; [`BuildError::NotOpaque`] also if one of `words` is in no object that mentions the constant.
pub fn build_words(
    tree: &impl BuildTree,
    constant: &Constant,
    unit: &Unit,
    words: &[Word],
    out_dir: &Path,
) -> Result<PathBuf, BuildError> {
    Source { tree, constant, unit }.built(Opaque::Fixed, words, out_dir, &QUICK)
}

/// The text that is compiled, from a preprocessed one in which [`MARK`] stands for the constant. `default` is how its default
/// is written: that is what static initialisers have. There is a function for each of `words`; nothing if one of them is in
/// no object that mentions the constant, or in one of several with its name.
#[must_use]
pub fn opaque_text(marked: &str, default: &str, c_type: CType, opaque: Opaque, words: &[Word]) -> Option<String> {
    let (value, declaration) = opaque.text(c_type.name());
    let Separated { text, objects } = separate(marked, default);
    let functions = functions(&objects, words, &value)?;
    Some(format!("{declaration}\n{}{functions}", text.replace(MARK, &value)))
}

/// A unit that uses a constant.
struct Source<'a, T> {
    tree: &'a T,
    constant: &'a Constant,
    unit: &'a Unit,
}

impl<T: BuildTree> Source<'_, T> {
    /// The object, from `out_dir` if it is there.
    fn built(&self, opaque: Opaque, words: &[Word], out_dir: &Path, flags: &[&str]) -> Result<PathBuf, BuildError> {
        let Self { tree, constant, unit } = *self;
        let place = format!("{}:{}..{}", constant.range.path, constant.range.start, constant.range.end);
        let key = digest(&[&tree.stamp(), &unit.source, &place, &constant.range.written]);
        let extension = if flags == NOTED { "s" } else { "o" };
        let kind = match opaque {
            Opaque::Fixed if words.is_empty() => "opaque",
            Opaque::Fixed => "words",
            Opaque::Changing => "changing",
        };
        let named = matches!(constant.form, Form::StaticConst | Form::EnumValue);
        let is_edited = !named && words.is_empty() && tree.records_columns(&unit.source)?;
        let way = if is_edited { EDITED } else { RECIPE };
        let recipe = digest(&[way, &key, &flags.join(" "), constant.c_type.name(), &format!("{words:?}")]);
        let object = out_dir.join(format!("{}-{recipe}.{kind}.{extension}", stem(&unit.source)));
        if object.is_file() {
            return Ok(object);
        }
        let (value, _) = opaque.text(constant.c_type.name());
        let (marked, default) = self.marked(&value, &key)?;
        let no_object = || refused(constant, unit, "it initialises data in a way that is not understood");
        let text = opaque_text(&marked, &default, constant.c_type, opaque, words).ok_or_else(no_object)?;
        let store = |error| BuildError::Store { path: out_dir.to_owned(), error };
        std::fs::create_dir_all(out_dir).map_err(store)?;
        let folder = tempfile::Builder::new().prefix(".building").tempdir_in(out_dir).map_err(store)?;
        let (fresh, path) = (folder.path().join("unit.out"), folder.path().join("unit.i"));
        let flags: Vec<&str> = flags.iter().copied().chain([ANY_ADDRESS]).collect();
        let compile = |text: &str| {
            std::fs::write(&path, text).map_err(store)?;
            tree.compile_preprocessed(&path, &unit.source, &fresh, &flags)
                .map_err(|error| rejection(error, constant, unit, constant.default))
        };
        let first = if is_edited { self.edited(opaque, &fresh, &flags) } else { compile(&text) };
        let done = match first {
            // The call of a failed assertion stays in the code.
            Err(BuildError::Rejected { by: RejectedBy::LayoutOrAssert, .. }) => {
                compile(&without_error_attributes(&text))
            }
            done => done,
        };
        done.map_err(|error| match error {
            BuildError::Rejected { message, .. } => refused(constant, unit, message),
            other => other,
        })?;
        std::fs::rename(&fresh, &object).map_err(store)?;
        Ok(object)
    }

    /// Compiles a unit whose checks state columns, which a text would change: from the tree, and the declaration from a
    /// file. `out` is the object, in a folder of its own.
    fn edited(&self, opaque: Opaque, out: &Path, flags: &[&str]) -> Result<(), BuildError> {
        let Self { tree, constant, unit } = *self;
        let (value, declaration) = opaque.text(constant.c_type.name());
        let header = out.with_extension("h");
        std::fs::write(&header, declaration).map_err(|error| BuildError::Store { path: header.clone(), error })?;
        let header = header.display().to_string();
        let flags: Vec<&str> = flags.iter().copied().chain(["-include", &header]).collect();
        let edit = substitute(tree, &constant.range, &value)?;
        tree.compile(&[edit], &unit.source, out, &flags)
            .map_err(|error| rejection(error, constant, unit, constant.default))
    }

    /// The preprocessed unit with marks in the place of the constant, and how its default is written; with `value` instead
    /// of marks where the preprocessor looks at the constant.
    fn marked(&self, value: &str, key: &str) -> Result<(String, String), BuildError> {
        let Self { tree, constant, unit } = *self;
        let named = matches!(constant.form, Form::StaticConst | Form::EnumValue);
        let marked = marked(tree, &constant.range, &unit.source, key)?;
        match (&*marked, &constant.name) {
            (Marked::Absent, _) => Err(not_seen(constant, unit)),
            // The initialiser has to be a constant; what follows need not name the variable.
            (Marked::Pieces(pieces), Some(name)) if named => {
                let token = format!(" {} ", constant.token);
                let (first, rest) = pieces.split_first().map_or(("", &[][..]), |(first, rest)| (first.as_str(), rest));
                Ok((format!("{first}{token}{}", replaced(&rest.join(&token), name, MARK)), name.clone()))
            }
            (Marked::Pieces(pieces), _) if !named => Ok((written(pieces, MARK), literal(constant, constant.default)?)),
            (Marked::Entangled, _) if !named => {
                // In `#if` this is a syntax error, and so it is where it is pasted.
                let edit = substitute(tree, &constant.range, value)?;
                let text = tree
                    .preprocess(&[edit], &unit.source, &QUIET)
                    .map_err(|error| refused(constant, unit, format!("the preprocessor uses the value: {error}")))?;
                Ok((text, literal(constant, constant.default)?))
            }
            _ => Err(refused(constant, unit, "the preprocessor uses its name")),
        }
    }
}

fn refused(constant: &Constant, unit: &Unit, why: impl Into<String>) -> BuildError {
    BuildError::NotOpaque { unit: unit.source.clone(), id: constant.id.to_string(), why: why.into() }
}

/// `text` with every mention of `name` replaced, outside of literals and directives, that is no
/// member of a structure. One that cannot be replaced (a declaration, an address) does not compile.
fn replaced(text: &str, name: &str, value: &str) -> String {
    let mut out = String::with_capacity(text.len());
    // The last characters of code before an identifier, without blanks.
    let mut before = String::new();
    let mut rest = text;
    let mut fresh_line = true;
    while let Some(c) = rest.chars().next() {
        let length = if fresh_line && rest.trim_start_matches([' ', '\t']).starts_with('#') {
            rest.find('\n').unwrap_or(rest.len())
        } else if c == '"' || c == '\'' {
            literal_length(rest, c)
        } else if c.is_ascii_alphanumeric() || c == '_' {
            rest.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).unwrap_or(rest.len())
        } else {
            c.len_utf8()
        };
        let (token, after) = rest.split_at(length);
        let member = before.ends_with("->") || before.ends_with('.') && !before.ends_with("...");
        out.push_str(if token == name && !member { value } else { token });
        if !token.trim().is_empty() {
            before.push_str(token.trim());
            let keep = before.char_indices().rev().nth(2).map_or(0, |(at, _)| at);
            before.drain(..keep);
        }
        fresh_line = token.ends_with('\n') || fresh_line && token.trim().is_empty();
        rest = after;
    }
    out
}

/// Length of the literal that `text` begins with.
fn literal_length(text: &str, quote: char) -> usize {
    let mut escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            _ if c == quote => return at + 1,
            _ => {}
        }
    }
    text.len()
}

/// Calls of functions that must not be reached (`BUILD_BUG_ON`) are left in the code: whether they are
/// depends on the value.
fn without_error_attributes(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    const BEFORE: &str = "__attribute__((__error__(";
    while let Some(at) = rest.find(BEFORE) {
        out.push_str(&rest[..at]);
        let literal = &rest[at + BEFORE.len()..];
        // Neighbouring literals are one.
        let mut end = 0;
        while literal[end..].trim_start().starts_with('"') {
            end += literal[end..].len() - literal[end..].trim_start().len();
            end += literal_length(&literal[end..], '"');
        }
        match literal[end..].strip_prefix(")))") {
            Some(after) => rest = after,
            None => {
                out.push_str(BEFORE);
                rest = literal;
            }
        }
    }
    out.push_str(rest);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_replaced_wherever_it_means_the_constant() {
        let of = |text: &str| replaced(text, "N", "V");
        assert_eq!(of("f(N, \"N\", 'N', x.N, y->N, NN, N_, N);"), "f(V, \"N\", 'N', x.N, y->N, NN, N_, V);");
        assert_eq!(of("case 1 ... N: g(\"\\\"N\", N); x . N"), "case 1 ... V: g(\"\\\"N\", V); x . N");
        assert_eq!(of("# 1 \"N\" N\n  # pragma N\nN\n"), "# 1 \"N\" N\n  # pragma N\nV\n");
        assert_eq!(of("a ? N : N;1.N"), "a ? V : V;1.N");
    }

    #[test]
    fn assertions_keep_their_calls() {
        let text = "extern void __compiletime_assert_1(void) __attribute__((__error__(\"a \\\"b\" \"c\")));f();";
        assert_eq!(without_error_attributes(text), "extern void __compiletime_assert_1(void) ;f();");
        let other = "__attribute__((__error__(X)))";
        assert_eq!(without_error_attributes(other), other);
    }
}
