//! The instructions at which an object reads variables of the kernel's source.
//!
//! In: an object that was compiled with [`reading`](crate::reading()), and where its instructions are in the running kernel.
//! Out: its constants. Refuses an object for another build, and a probe that reads variables elsewhere.

use libbpf_rs::OpenObject;
use object::{Object as _, ObjectSection, ObjectSymbol, RelocationTarget};
use thiserror::Error;

use crate::constants::{set, CONSTANTS};
use crate::error::Error;
use crate::found::Found;
use crate::place::{Place, PlaceError};
use crate::resolve::Resolver;

/// The section with the names, and the array of addresses.
const NAMES: &str = ".xk.places";
const ADDRESSES: &str = "xk_at";
/// Bytes of `struct xk_place`, and of its name.
const ENTRY: usize = 256;
const NAME: usize = 192;

/// Why the variables of an object cannot be read.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum PlacesError {
    /// It is damaged.
    #[error("the section {NAMES} of the object is damaged; compile it again")]
    Damaged,
    /// It was compiled for another kernel.
    #[error("its variables are those of kernel build {compiled}, but {running} runs: compile it again")]
    OtherBuild {
        /// Of the object.
        compiled: String,
        /// Of the kernel.
        running: String,
    },
    /// A name in it is none.
    #[error(transparent)]
    Name(#[from] PlaceError),
    /// One of its instructions is not found.
    #[error(transparent)]
    Place(#[from] Error),
    /// A probe is elsewhere.
    #[error("{program} reads variables, and was not compiled for {place}: give the place when it is compiled")]
    Elsewhere {
        /// The program.
        program: String,
        /// The instruction.
        place: String,
    },
}

/// Instructions at which variables are read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Places {
    names: Vec<Place>,
    build_id: String,
    /// In the running kernel, once they are known.
    addresses: Vec<u64>,
}

impl Places {
    /// Those of an object, if it reads variables.
    ///
    /// # Errors
    /// [`PlacesError::Damaged`], [`PlacesError::Name`].
    pub fn of(object: &[u8]) -> Result<Option<Self>, PlacesError> {
        let Ok(file) = object::File::parse(object) else { return Ok(None) };
        let Some(section) = file.section_by_name(NAMES) else { return Ok(None) };
        let bytes = section.data().map_err(|_| PlacesError::Damaged)?;
        if bytes.is_empty() || bytes.len() % ENTRY != 0 {
            return Err(PlacesError::Damaged);
        }
        let text = |bytes: &[u8]| {
            let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
            String::from_utf8(bytes[..end].to_vec()).map_err(|_| PlacesError::Damaged)
        };
        let mut names = Vec::new();
        for entry in bytes.chunks_exact(ENTRY) {
            names.push(Place::parse(&text(&entry[..NAME])?, None)?);
        }
        Ok(Some(Self { names, build_id: text(&bytes[NAME..ENTRY])?, addresses: Vec::new() }))
    }

    /// The instructions.
    #[must_use]
    pub fn names(&self) -> &[Place] {
        &self.names
    }

    /// Finds them in the running kernel of this build.
    ///
    /// # Errors
    /// [`PlacesError::OtherBuild`], [`PlacesError::Place`].
    pub fn find(&mut self, resolver: &Resolver, build_id: &str) -> Result<(), PlacesError> {
        if self.build_id != build_id {
            let (compiled, running) = (self.build_id.clone(), build_id.to_owned());
            return Err(PlacesError::OtherBuild { compiled, running });
        }
        self.addresses.clear();
        for place in &self.names {
            let found = resolver.resolve(place)?.found;
            self.addresses.extend(found.first().map(|found| found.address));
        }
        Ok(())
    }

    /// Checks that a program reads variables at these instructions only.
    ///
    /// # Errors
    /// [`PlacesError::Elsewhere`].
    pub fn check<'a>(
        &self,
        object: &[u8],
        program: &str,
        found: impl IntoIterator<Item = &'a Found>,
    ) -> Result<(), PlacesError> {
        if !reads(object, program) {
            return Ok(());
        }
        match found.into_iter().find(|found| !self.addresses.contains(&found.address)) {
            Some(found) => Err(PlacesError::Elsewhere { program: program.to_owned(), place: found.name() }),
            None => Ok(()),
        }
    }

    /// Sets the addresses in an object that is to be loaded.
    pub(crate) fn prepare(&self, open: &mut OpenObject, object: &[u8]) -> Result<(), String> {
        let mut maps = open.maps_mut();
        let map = maps.find(|map| map.name().to_string_lossy().ends_with(CONSTANTS));
        let mut map = map.ok_or("it has no constants")?;
        let bytes = map.initial_value_mut().ok_or("its constants cannot be set")?;
        for (index, address) in self.addresses.iter().enumerate() {
            set(object, bytes, ADDRESSES, index, *address)?;
        }
        Ok(())
    }
}

/// Whether a program compares its address with the array: it reads variables. So may all if a function that is not inlined
/// does.
fn reads(object: &[u8], program: &str) -> bool {
    let Ok(file) = object::File::parse(object) else { return true };
    let Some(code) = file.symbols().find(|symbol| symbol.name() == Ok(program)) else { return true };
    let range = code.address()..code.address() + code.size();
    let is_array = |target: RelocationTarget| match target {
        RelocationTarget::Symbol(index) => {
            file.symbol_by_index(index).is_ok_and(|symbol| symbol.name() == Ok(ADDRESSES))
        }
        _ => false,
    };
    file.sections().any(|section| {
        let own = code.section_index() == Some(section.index());
        let shared = section.name() == Ok(".text");
        (own || shared)
            && section.relocations().any(|(at, to)| (shared || range.contains(&at)) && is_array(to.target()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_object_reads_nothing() {
        assert!(matches!(Places::of(b"no object"), Ok(None)));
    }
}
