//! What static data holds for every value.
//!
//! In: the objects whose initialisers mention the constant, and the words that follow V, with their functions of it. The
//! unit is compiled once more with a function for each word of these objects: it initialises a copy of the object with
//! the opaque value, and returns the word ([`xk_const::build_words`]). Out: whether each word that follows V is what its
//! function of V says, and whether no other word depends on V.
//!
//! The values that were compiled may differ in one byte of a word of four, and an object of eight bytes may be two words. So
//! the bytes in and beside each word are asked first, whether they depend on V ([`Theorem::sized`]).

use std::collections::BTreeSet;

use xk_const::{Word, WORD};
use xk_lift::object::{DataSymbol, Object};
use xk_lift::term::{TermId, Terms};
use xk_table::{Fit, Range};

use super::{Compiled, NotShown, Theorem};
use crate::build_error::BuildError;
use crate::data::{holder, unnumbered, Words};
use crate::program::exact;
use crate::proof::Claim;
use crate::simulation::returned;

/// Words of one object: each is a function, which has the whole initialiser.
const MOST_WORDS: usize = 128;

/// A word, and the function of V that it follows.
type Followed<'a> = (Word, Option<&'a Fit>);

impl Theorem<'_> {
    /// Whether the data of a unit is what its functions of V say, for every V of `range`. `objects` are those whose
    /// initialisers mention the constant, by their names in the source.
    ///
    /// # Errors
    /// What keeps the unit from being compiled.
    pub(super) fn data_for_all(
        &self,
        at: usize,
        objects: &[(String, DataSymbol)],
        range: Range,
    ) -> Result<Result<(), NotShown>, BuildError> {
        let not_shown = |why: String| NotShown::Initialises { unit: self.studies[at].source.clone(), why };
        let words = match self.words(at, objects) {
            Ok(words) if words.is_empty() => return Ok(Ok(())),
            Ok(words) => words,
            Err(why) => return Ok(Err(not_shown(why))),
        };
        let asked: Vec<Word> = words.iter().map(|(word, _)| word.clone()).collect();
        let built = match self.compiler.words(at, &asked)? {
            Compiled::Object(object) => object,
            Compiled::Same => return Ok(Err(not_shown("the text does not mention it".into()))),
            Compiled::Rejected(message) => return Ok(Err(not_shown(message))),
        };
        for (number, (Word { object, offset, .. }, fit)) in words.iter().enumerate() {
            if !self.follows(&built, number, *fit, range) {
                return Ok(Err(not_shown(format!("{object}+{offset:#x} may hold something else"))));
            }
        }
        Ok(Ok(()))
    }

    /// The words of data of all units that follow V, as wide as what depends on V.
    ///
    /// # Errors
    /// What keeps units from being compiled.
    pub fn sized(&self) -> Result<Vec<Words>, BuildError> {
        (0..self.studies.len()).map(|at| self.sized_in(at)).collect()
    }

    fn sized_in(&self, at: usize) -> Result<Words, BuildError> {
        let (study, functions) = (&self.studies[at], self.functions[at]);
        let words: Words = functions.data.iter().map(|(place, fit)| (place.clone(), fit.width)).collect();
        let mut places = Vec::new();
        let mut asked = Vec::new();
        for (section, offset) in words.keys() {
            let Some((name, symbol)) = holder(&study.base, section, *offset) else { continue };
            let window = (offset - symbol.offset) & !7;
            for offset in window..(window + 8).min(symbol.size) {
                places.push((section.clone(), symbol.offset + offset));
                asked.push(Word { object: unnumbered(name).to_owned(), offset, width: 1 });
            }
        }
        if asked.is_empty() {
            return Ok(words);
        }
        let Compiled::Object(built) = self.compiler.words(at, &asked)? else { return Ok(words) };
        let depends = |number: usize| {
            word(&built, number).is_none_or(|(mut terms, result)| {
                let v = terms.v();
                terms.mentions(result, v)
            })
        };
        let places = places.into_iter().enumerate();
        let dependent: BTreeSet<_> = places.filter(|(at, _)| depends(*at)).map(|(_, place)| place).collect();
        let sized = words.iter().map(|((section, offset), width)| {
            let (offset, width) = extent(section, *offset, *width, &words, &dependent);
            ((section.clone(), offset), width)
        });
        Ok(sized.collect())
    }

    /// The words of `objects`; why not, if some data that follows V is in none of them.
    fn words(&self, at: usize, objects: &[(String, DataSymbol)]) -> Result<Vec<Followed<'_>>, String> {
        let (study, functions) = (&self.studies[at], self.functions[at]);
        let mut words: Vec<Followed<'_>> = Vec::new();
        for ((section, offset), fit) in functions.data {
            let place = || format!("{section}+{offset:#x}");
            let (_, symbol) =
                holder(&study.base, section, *offset).ok_or_else(|| format!("{} has no name", place()))?;
            let object = objects.iter().find(|(_, initialised)| initialised == symbol);
            let (object, _) = object.ok_or_else(|| format!("no initialiser is known of {}", place()))?;
            words.push((Word { object: object.clone(), offset: offset - symbol.offset, width: fit.width }, Some(fit)));
        }
        let followed = words.clone();
        for (object, symbol) in objects {
            let of_this = followed.iter().filter(|(word, _)| word.object == *object).map(|(word, _)| word);
            let places: Vec<(u64, u8)> = of_this.map(|word| (word.offset, word.width)).collect();
            let rest = rest(symbol.size, &places);
            if rest.len() > MOST_WORDS {
                return Err(format!("{object} has {} bytes, which are too many to look at", symbol.size));
            }
            words
                .extend(rest.into_iter().map(|(offset, width)| (Word { object: object.clone(), offset, width }, None)));
        }
        Ok(words)
    }

    /// Whether the function of a word returns what `fit` says, or the same for every V.
    fn follows(&self, built: &Object, number: usize, fit: Option<&Fit>, range: Range) -> bool {
        let Some((mut terms, result)) = word(built, number) else { return false };
        let v = terms.v();
        let Some(fit) = fit else { return !terms.mentions(result, v) };
        let (bits, said) = (u32::from(fit.width) * 8, exact(&mut terms, fit));
        let pair = [result, said].map(|term| terms.extract(term, 0, bits));
        if pair[0] == pair[1] {
            return true;
        }
        let claim = Claim { v: Some((v, range)), pairs: &[(pair[0], pair[1])], ..Claim::default() };
        self.means.solver.refute(&claim.counterexample(&terms)).is_ok()
    }
}

/// What the function of a word returns.
fn word(built: &Object, number: usize) -> Option<(Terms, TermId)> {
    let name = format!("{WORD}{number}");
    returned(built, built.functions.values().find(|function| function.name == name)?)
}

/// The word of the one at `offset` that depends on V, as wide as the `dependent` bytes in it and around it that belong to no
/// other of `words`.
fn extent(section: &str, offset: u64, width: u8, words: &Words, dependent: &BTreeSet<(String, u64)>) -> (u64, u8) {
    let depends = |at: &u64| dependent.contains(&(section.to_owned(), *at));
    let mut inside = (offset..offset + u64::from(width)).filter(depends);
    let Some(first) = inside.next() else { return (offset, width) };
    let last = inside.next_back().unwrap_or(first);
    let covers = |size: &u64| first / size == last / size;
    let mut size = [1, 2, 4, 8].into_iter().find(covers).unwrap_or(8);
    let mut start = first / size * size;
    while size < 8 {
        let wider = start / (2 * size) * (2 * size);
        let mut beside = if wider == start { start + size..wider + 2 * size } else { wider..start };
        let of_another = words.keys().any(|(other, at)| other == section && *at != offset && beside.contains(at));
        if of_another || !beside.any(|at| depends(&at)) {
            break;
        }
        (start, size) = (wider, 2 * size);
    }
    (start, size as u8)
}

/// The words of an object of `size` bytes that are not at `places`: offsets and widths, aligned.
fn rest(size: u64, places: &[(u64, u8)]) -> Vec<(u64, u8)> {
    let end = |(offset, width): &(u64, u8)| offset + u64::from(*width);
    let mut words = Vec::new();
    let mut at = 0;
    while at < size {
        if let Some(place) = places.iter().find(|place| (place.0..end(place)).contains(&at)) {
            at = end(place);
            continue;
        }
        let is_free = |width: u8| {
            let next = at + u64::from(width);
            next <= size && !places.iter().any(|place| place.0 < next && at < end(place))
        };
        let width = [8, 4, 2].into_iter().find(|&width| at % u64::from(width) == 0 && is_free(width)).unwrap_or(1);
        words.push((at, width));
        at += u64::from(width);
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rest_is_every_byte_that_is_in_no_place() {
        assert_eq!(rest(24, &[]), [(0, 8), (8, 8), (16, 8)]);
        assert_eq!(rest(20, &[(8, 4)]), [(0, 8), (12, 4), (16, 4)]);
        assert_eq!(rest(7, &[(2, 1)]), [(0, 2), (3, 1), (4, 2), (6, 1)]);
        assert_eq!(rest(4, &[(0, 4)]), []);
    }

    #[test]
    fn a_word_is_as_wide_as_what_depends_on_the_constant() {
        let place = |at| (".data".to_owned(), at);
        let words = |at: &[u64]| at.iter().map(|&at| (place(at), 1)).collect::<Words>();
        let extent = |at: u64, width: u8, others: &[u64], bytes: std::ops::Range<u64>| {
            extent(".data", at, width, &words(others), &bytes.map(place).collect())
        };
        assert_eq!(extent(4, 1, &[4], 4..5), (4, 1));
        assert_eq!(extent(4, 1, &[4], 4..8), (4, 4));
        assert_eq!(extent(4, 1, &[4], 4..6), (4, 2));
        assert_eq!(extent(1, 1, &[1], 0..8), (0, 8));
        assert_eq!(extent(0, 1, &[0, 4], 0..8), (0, 4));
        assert_eq!(extent(4, 1, &[0, 4], 0..8), (4, 4));
        assert_eq!(extent(0, 1, &[0, 1], 0..2), (0, 1));
        // An object of eight bytes with a word of four.
        assert_eq!(extent(0, 8, &[0], 4..8), (4, 4));
        assert_eq!(extent(0, 8, &[0], 0..8), (0, 8));
        // Nothing is known.
        assert_eq!(extent(0, 8, &[0], 0..0), (0, 8));
    }
}
