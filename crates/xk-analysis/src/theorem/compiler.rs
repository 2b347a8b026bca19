//! Compiling the units of a constant with one value, or with one that the compiler cannot know.

use std::path::{Path, PathBuf};

use xk_const::Opaque::{Changing, Fixed};
use xk_const::{Constant, Unit, Word};
use xk_kernel::Tree;
use xk_lift::notes::Notes;
use xk_lift::object::Object;

use crate::build_error::BuildError;

/// What became of a unit that is compiled in another way.
#[derive(Debug)]
pub enum Compiled {
    /// An object.
    Object(Box<Object>),
    /// The unit's text does not change.
    Same,
    /// The compiler does not accept it, in its words.
    Rejected(String),
}

/// With what a unit is compiled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum With {
    /// One value.
    Value(i64),
    /// A value that the compiler cannot know.
    Opaque,
    /// One of which it does not know either that it stays the same.
    Changing,
}

/// Compiles the units of a constant; `unit` counts them.
pub trait Compiler: Sync {
    /// The object.
    ///
    /// # Errors
    /// What keeps the unit from being compiled and is not the value's fault.
    fn compile(&self, unit: usize, with: With) -> Result<Compiled, BuildError>;

    /// The object with a function for each of `words`, as [`xk_const::build_words`] makes it.
    ///
    /// # Errors
    /// As [`Compiler::compile`].
    fn words(&self, unit: usize, words: &[Word]) -> Result<Compiled, BuildError>;

    /// What the compiler says of `object`, which it made in this way.
    ///
    /// # Errors
    /// As [`Compiler::compile`].
    fn notes(&self, unit: usize, with: With, object: &Object) -> Result<Notes, BuildError>;
}

/// The object of a unit, from the cache if it is there.
pub(crate) fn built(
    tree: &Tree,
    constant: &Constant,
    unit: &Unit,
    with: With,
    cache: &Path,
) -> Result<PathBuf, xk_const::BuildError> {
    match with {
        With::Value(value) => xk_const::build(tree, constant, unit, value, cache),
        With::Opaque => xk_const::build_opaque(tree, constant, unit, Fixed, cache, &xk_const::QUICK),
        With::Changing => xk_const::build_opaque(tree, constant, unit, Changing, cache, &xk_const::QUICK),
    }
}

/// Compiles units of a source tree.
pub(crate) struct FromTree<'a> {
    pub tree: &'a Tree,
    pub constant: &'a Constant,
    /// Where objects are kept.
    pub cache: &'a Path,
    pub units: &'a [Unit],
}

impl Compiler for FromTree<'_> {
    fn compile(&self, unit: usize, with: With) -> Result<Compiled, BuildError> {
        let Self { tree, constant, cache, units } = *self;
        compiled(built(tree, constant, &units[unit], with, cache))
    }

    fn words(&self, unit: usize, words: &[Word]) -> Result<Compiled, BuildError> {
        let Self { tree, constant, cache, units } = *self;
        compiled(xk_const::build_words(tree, constant, &units[unit], words, cache))
    }

    fn notes(&self, unit: usize, with: With, object: &Object) -> Result<Notes, BuildError> {
        let Self { tree, constant, cache, units } = *self;
        let path = match with {
            With::Value(value) => xk_const::build_noted(tree, constant, &units[unit], value, cache)?,
            With::Opaque => xk_const::build_opaque(tree, constant, &units[unit], Fixed, cache, &xk_const::NOTED)?,
            With::Changing => xk_const::build_opaque(tree, constant, &units[unit], Changing, cache, &xk_const::NOTED)?,
        };
        let text = std::fs::read_to_string(&path).map_err(|source| BuildError::Io { path, source })?;
        Ok(Notes::read(&text, object))
    }
}

/// What became of a unit, from what became of its file.
fn compiled(built: Result<PathBuf, xk_const::BuildError>) -> Result<Compiled, BuildError> {
    use xk_const::BuildError as E;
    match built {
        Ok(path) => Ok(Compiled::Object(Box::new(object(&path)?))),
        Err(E::NotSeen { .. }) => Ok(Compiled::Same),
        Err(E::NotOpaque { why, .. }) => Ok(Compiled::Rejected(why)),
        Err(E::Rejected { message, .. }) => Ok(Compiled::Rejected(message)),
        Err(E::Edit(error)) => Ok(Compiled::Rejected(error.to_string())),
        Err(error) => Err(error.into()),
    }
}

fn object(path: &std::path::Path) -> Result<Object, BuildError> {
    let data = std::fs::read(path).map_err(|source| BuildError::Io { path: path.into(), source })?;
    Object::parse(&data).map_err(|source| BuildError::Object { path: path.into(), source })
}
