//! Concrete states, which tell terms that are not equal apart and so spare the solver hopeless questions.
//!
//! In: a number, from which the values of all unknowns follow, and V. A state proves nothing.

use std::cell::{RefCell, RefMut};
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use crate::term::{TermId, Terms};

/// Values of terms that one state keeps.
const MOST_VALUES: usize = 100_000;

/// A concrete state, made from the names of the unknowns. It belongs to one arena of terms.
pub struct Sample {
    number: u64,
    /// V, if the terms have one.
    v: Option<i64>,
    /// Values of terms. What is assumed on a path is asked for at every step.
    values: RefCell<HashMap<TermId, u128>>,
}

impl Sample {
    /// The state of this number. V is an unknown like others if it is not given.
    #[must_use]
    pub fn new(number: u64, v: Option<i64>) -> Self {
        Self { number, v, values: RefCell::default() }
    }

    /// The value of a term that is no memory.
    pub fn evaluate(&self, terms: &Terms, term: TermId) -> u128 {
        terms.eval(term, &|name| self.value(name), &|at| self.byte(at), &mut self.values())
    }

    /// Whether each of `assumed`, of one bit, is 1.
    pub fn satisfies(&self, terms: &Terms, assumed: &[TermId]) -> bool {
        assumed.iter().all(|&term| self.evaluate(terms, term) == 1)
    }

    /// Whether two values, or two memories, are the same.
    pub fn same(&self, terms: &Terms, a: TermId, b: TermId) -> bool {
        if terms.bits(a) == 0 {
            let symbols = |name: &str| self.value(name);
            return terms.same_memory(a, b, &symbols, &|at| self.byte(at), &mut self.values());
        }
        a == b || self.evaluate(terms, a) == self.evaluate(terms, b)
    }

    fn values(&self) -> RefMut<'_, HashMap<TermId, u128>> {
        let mut values = self.values.borrow_mut();
        if values.len() > MOST_VALUES {
            values.clear();
        }
        values
    }

    fn value(&self, name: &str) -> u128 {
        if let Some(v) = self.v.filter(|_| name == "V") {
            return v as u64 as u128;
        }
        let mut hasher = DefaultHasher::new();
        (self.number, name).hash(&mut hasher);
        let value = hasher.finish();
        // Small values reach comparisons that large random ones never do.
        let narrow = [64, 4, 8, 16, 32, 12][self.number as usize % 6];
        u128::from(value >> (64 - narrow))
    }

    fn byte(&self, address: u64) -> u8 {
        match self.number % 8 {
            0 => 0,
            1 => (address % 3) as u8,
            _ => self.value(&address.to_string()) as u8,
        }
    }
}
