//! The last step of an analysis: a finished table gets its safe spans, and the windows
//! of its updates.
//!
//! In: an image, and the functions that do not return. What is read of the image
//! serves every table; modules are read when the next table needs others.

use std::collections::{BTreeSet, HashSet};
use std::time::Instant;

use xk_kernel::Image;
use xk_table::ScopeTable;

use crate::callers::Callers;
use crate::error::ConfineError;
use crate::scope::scopes;
use crate::walk::Walk;
use crate::window::{fill, Index, Windows};
use crate::world::World;

/// What the analysis is made of: see `build.rs`.
const SPANS: &str = env!("XK_SPANS");

/// Confines tables of one kernel.
#[derive(Debug)]
pub struct Confiner {
    noreturns: HashSet<String>,
    /// The kernel alone.
    kernel: Option<(World, Callers)>,
    /// With which modules, and what was read.
    known: Option<(BTreeSet<String>, World, Callers, Index)>,
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
            let index = Index::new(&world);
            self.known = Some((modules, world, callers, index));
        }
        if let Some((_, world, callers, index)) = &self.known {
            scopes(&mut Walk::new(world, callers), table)?;
            fill(world, Windows::new(world, index), table)?;
        }
        table.scoped = Some(fingerprint);
        table.stages.insert("spans".into(), started.elapsed().as_secs_f64());
        table.check()?;
        Ok(true)
    }
}

/// The windows of `table` that `image` does not have: the span, and why.
///
/// # Errors
/// [`ConfineError`] when nothing can be said about them.
pub fn wrong_windows(image: &Image, table: &ScopeTable) -> Result<Vec<(usize, String)>, ConfineError> {
    let claimed = |span: &xk_table::CriticalSpan| span.indirection.window > 0;
    if !table.spans.iter().any(claimed) {
        return Ok(Vec::new());
    }
    let modules: BTreeSet<&str> = table.functions.iter().filter_map(|function| function.module.as_deref()).collect();
    let world = World::new(image, &modules.into_iter().collect::<Vec<_>>(), HashSet::new())?;
    if world.forgotten || world.patches.incomplete {
        return Ok(Vec::new());
    }
    let mut fresh = table.clone();
    fill(&world, Windows::new(&world, &Index::new(&world)), &mut fresh)?;
    let pairs = table.spans.iter().zip(&fresh.spans).enumerate();
    let wrong = pairs.filter(|(_, (old, _))| claimed(old)).filter_map(|(index, (old, new))| {
        let (old, new) = (&old.indirection, &new.indirection);
        let same = (old.window, old.window_lead) == (new.window, new.window_lead);
        let why = || match &new.window_reason {
            Some(reason) => format!("no jump may stand at +{:#x}: {reason}", old.offset),
            None => format!("the window at +{:#x} has {} bytes, not {}", old.offset, new.window, old.window),
        };
        (!same).then(|| (index, why()))
    });
    Ok(wrong.collect())
}
