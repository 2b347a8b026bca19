//! The last step of an analysis: a finished table gets its safe spans.
//!
//! In: an image, and the functions that do not return. What is read of the image
//! serves every table; modules are read when the next table needs others.

use std::collections::{BTreeSet, HashSet};
use std::time::Instant;

use thiserror::Error;
use xk_kernel::{Image, ImageError};
use xk_table::ScopeTable;

use crate::callers::Callers;
use crate::scope::scopes;
use crate::walk::Walk;
use crate::world::World;

/// What the analysis is made of: see `build.rs`.
const SPANS: &str = env!("XK_SPANS");

/// Why there are no safe spans.
#[derive(Debug, Error)]
pub enum ConfineError {
    /// The code cannot be read.
    #[error(transparent)]
    Image(#[from] ImageError),
    /// The table is about other code.
    #[error("{0}: the table is not about this kernel; run `xk build` on it again")]
    OtherCode(String),
    /// The result is not coherent.
    #[error("safe spans: {0}")]
    Incoherent(String),
}

/// Confines tables of one kernel.
#[derive(Debug)]
pub struct Confiner {
    noreturns: HashSet<String>,
    /// The kernel alone.
    kernel: Option<(World, Callers)>,
    /// With which modules, and what was read.
    known: Option<(BTreeSet<String>, World, Callers)>,
}

impl Confiner {
    /// For a kernel with these functions that do not return.
    #[must_use]
    pub fn new(noreturns: HashSet<String>) -> Self {
        Self { noreturns, kernel: None, known: None }
    }

    /// Gives `table`, which is one of `image`, its safe spans; whether it had none of
    /// this analysis.
    ///
    /// # Errors
    /// [`ConfineError`]; the table is not to be used then.
    pub fn confine(&mut self, image: &Image, table: &mut ScopeTable) -> Result<bool, ConfineError> {
        let fingerprint = format!("{SPANS}-{}", image.id().build_id);
        if table.scoped.as_ref() == Some(&fingerprint) {
            return Ok(false);
        }
        let started = Instant::now();
        let modules: BTreeSet<String> = table.functions.iter().filter_map(|function| function.module.clone()).collect();
        if self.known.as_ref().is_none_or(|(with, ..)| *with != modules) {
            let names: Vec<&str> = modules.iter().map(String::as_str).collect();
            let (kernel, callers) = match self.kernel.take() {
                Some(known) => self.kernel.insert(known),
                None => {
                    let world = World::new(image, &[], self.noreturns.clone())?;
                    let callers = Callers::new(&world);
                    self.kernel.insert((world, callers))
                }
            };
            let world = kernel.clone().with(image, &names)?;
            let callers = callers.clone().with_modules(&world);
            self.known = Some((modules, world, callers));
        }
        if let Some((_, world, callers)) = &self.known {
            scopes(&mut Walk::new(world, callers), table).map_err(ConfineError::OtherCode)?;
        }
        table.scoped = Some(fingerprint);
        table.stages.insert("spans".into(), started.elapsed().as_secs_f64());
        table.check().map_err(ConfineError::Incoherent)?;
        Ok(true)
    }
}
