//! `XK_VAR(name)` in probes: where the variables of the source are at each instruction.
//!
//! In: the text of a source, and the places of its probes. Out: C that reads the variables, for the compiler. The
//! instructions are named in it (`vfs_write+0xe7`), not addressed, so that the object outlives a boot; [`Places`] gives
//! them their addresses. Refuses an instruction whose function is in no unit with the same bytes, and what
//! [`probe_header`] refuses.

use std::collections::BTreeMap;
use std::path::Path;

use thiserror::Error;
use xk_const::{variables, Index, Point, Unit, Variable, VariablesError};
use xk_policy::variables::{probe_header, AtSite, HeaderError, Use};
use xk_table::{Incoherent, Refusal};

use crate::error::Error;
use crate::found::Found;
use crate::place::Place;
use crate::resolve::Resolver;
use crate::source::{spelt, Source, SourceError};

/// Instructions that one file may read variables at: a program compares its address with each.
const MOST: usize = 256;
/// Units that are compiled in search of a function.
const TRIED: usize = 8;
/// What the compiler appends to the names of functions that it splits or copies.
const PARTS: [&str; 5] = [".cold", ".part.", ".isra.", ".constprop.", ".llvm."];

/// Why variables cannot be read at the places of a probe.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum VariableError {
    /// A place is not found.
    #[error(transparent)]
    Place(#[from] Error),
    /// The source of a place is not known.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// An object has no variables that can be read.
    #[error(transparent)]
    Variables(#[from] VariablesError),
    /// The bytes of a function do not read back.
    #[error(transparent)]
    Bytes(#[from] Incoherent),
    /// No unit has the function.
    #[error(
        "{place}: no translation unit was found that has this code of {function}{why}; name the place as FILE.c:LINE"
    )]
    NoUnit {
        /// The instruction.
        place: String,
        /// Its function.
        function: String,
        /// Why one that has the function was not taken, as a sentence.
        why: String,
    },
    /// The file reads variables at too many instructions.
    #[error("variables are read at {number} instructions; at most {MOST} are possible in one file")]
    TooMany {
        /// How many.
        number: usize,
    },
    /// A variable cannot be read at one of the instructions.
    #[error(transparent)]
    Header(#[from] HeaderError),
}

/// C that reads the variables of a file's probes; `uses` are those that read some, each with its places.
///
/// # Errors
/// [`VariableError`].
pub fn reading(
    file: &Path,
    uses: &[(&Use, Vec<Place>)],
    source: &Source<'_>,
    resolver: &Resolver,
) -> Result<String, VariableError> {
    let mut sites: Vec<AtSite> = Vec::new();
    let mut numbers: BTreeMap<String, usize> = BTreeMap::new();
    let mut readers = Vec::new();
    for (probe, places) in uses {
        let mut own = Vec::new();
        for (found, of) in resolver.all(places)?.0 {
            let name = found.name();
            let number = match numbers.get(&name) {
                Some(known) => *known,
                None => {
                    if sites.len() == MOST {
                        return Err(VariableError::TooMany { number: MOST + 1 });
                    }
                    sites.push(AtSite { variables: at(&found, &places[of], source, resolver)?, place: name.clone() });
                    numbers.insert(name, sites.len() - 1);
                    sites.len() - 1
                }
            };
            own.push(number);
        }
        readers.push((*probe, own));
    }
    Ok(probe_header(file, &sites, &readers)?)
}

/// The variables at an instruction.
fn at(found: &Found, place: &Place, source: &Source<'_>, resolver: &Resolver) -> Result<Vec<Variable>, VariableError> {
    let units = match place {
        Place::Line { line, .. } => vec![source.unit(line)?.clone()],
        _ => defining(found, source)?,
    };
    let mut why = String::new();
    for unit in &units {
        let compiled = source.compiled(unit)?;
        for function in compiled.object.functions.values().filter(|function| resolver.is_called(found, &function.name))
        {
            let deployed = match source.deployed(&compiled, function) {
                Ok(deployed) => deployed,
                Err(refusal) => {
                    why = reason(unit, &refusal);
                    continue;
                }
            };
            if !resolver.is_in(found, &deployed) {
                continue;
            }
            let offset = u32::try_from(found.offset).unwrap_or(u32::MAX);
            let (bytes, mask) = (deployed.text()?, deployed.text_mask()?);
            let point = Point { symbol: function.name.clone(), offset, bytes, mask };
            let all = variables(source.tree, unit, &source.objects, &[point])?;
            return Ok(all.into_iter().next().unwrap_or_default());
        }
    }
    Err(VariableError::NoUnit { place: found.name(), function: found.function.clone(), why })
}

fn reason(unit: &Unit, refusal: &Refusal) -> String {
    format!(" ({}: {refusal})", unit.source)
}

/// The units that may define the function of an instruction, by the text of the source.
fn defining(found: &Found, source: &Source<'_>) -> Result<Vec<Unit>, VariableError> {
    let name = PARTS.iter().filter_map(|part| found.function.find(part)).min();
    let name = &found.function[..name.unwrap_or(found.function.len())];
    let index = Index::open(source.tree).map_err(SourceError::Tree)?;
    let mut units = Vec::new();
    for file in index.mentions(name).map_err(SourceError::Tree)? {
        let path = index.path(file);
        // Assembly has no variables.
        let own = |unit: &&Unit| unit.source == path && path.ends_with(".c") && spelt(unit) == found.module;
        let Some(unit) = source.units.iter().find(own) else { continue };
        let Ok(text) = std::fs::read(source.tree.root().join(path)) else { continue };
        if defines(&String::from_utf8_lossy(&text), name) {
            units.push(unit.clone());
        }
    }
    units.truncate(TRIED);
    Ok(units)
}

/// Whether a text seems to define a function: its name begins its arguments in a line that is not indented, and a body
/// follows them.
fn defines(text: &str, name: &str) -> bool {
    let is_word = |byte: Option<u8>| byte.is_some_and(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    text.match_indices(name).any(|(at, _)| {
        let line = text[..at].rfind('\n').map_or(0, |end| end + 1);
        let rest = &text[at + name.len()..];
        let outside = text[line..].starts_with(|first: char| first.is_ascii_alphabetic() || first == '_');
        let whole = !is_word(text[..at].bytes().last()) && rest.trim_start().starts_with('(');
        outside && whole && rest.find(['{', ';']).is_some_and(|end| rest[end..].starts_with('{'))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_definition_is_told_from_a_call_and_a_declaration() {
        assert!(defines("int a;\nssize_t f(int a,\n\t  int b)\n{\n", "f"));
        assert!(defines("int\nf(void) {", "f"));
        for text in
            ["int f(int a);\nint g() {", "\tf(1);\n}\nint g() {", "int ff(void) {", "int f2(void) {", " * f() {"]
        {
            assert!(!defines(text, "f"), "{text}");
        }
    }
}
