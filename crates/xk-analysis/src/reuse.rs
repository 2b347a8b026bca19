//! When the result of an earlier analysis is the result of one now.
//!
//! In: everything that a result depends on. Out: a key, the same only if all of it is
//! the same.

use std::io;

use sha2::{Digest, Sha256};
use xk_const::BuildTree;
use xk_kernel::{Image, Tree};

use crate::proof::Solver;

/// What the analysis is made of: see `build.rs`. A hash of the sources, because a number
/// that is raised by hand is forgotten once and then lies, and because the executable's
/// own hash would differ between machines and after every change of a text that has
/// nothing to do with it.
const ANALYSIS: &str = env!("XK_ANALYSIS");

/// Keys of results for one kernel, one source tree and one solver.
#[derive(Debug, Clone)]
pub struct Keys(Sha256);

impl Keys {
    /// For `image`, analysed with `tree` and `solver`.
    ///
    /// # Errors
    /// When the configuration of the tree cannot be read.
    pub fn new(image: &Image, tree: &Tree, solver: &Solver) -> io::Result<Self> {
        // Not where the tree is: results come from several machines.
        let stamp = tree.stamp().replace(&tree.root().display().to_string(), "");
        let config = std::fs::read(tree.root().join(".config"))?;
        let mut base = Sha256::new();
        for part in [ANALYSIS, &image.id().build_id, &stamp, &solver.name, &solver.timeout_s.to_string()] {
            feed(&mut base, part.as_bytes());
        }
        feed(&mut base, &config);
        Ok(Self(base))
    }

    /// The key of what `parts` name.
    #[must_use]
    pub fn of(&self, parts: &[&str]) -> String {
        let mut hash = self.0.clone();
        parts.iter().for_each(|part| feed(&mut hash, part.as_bytes()));
        hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

fn feed(hash: &mut Sha256, part: &[u8]) {
    hash.update((part.len() as u64).to_le_bytes());
    hash.update(part);
}
