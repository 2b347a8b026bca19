//! Constants drawn at random from what `xk scan` proposes, so that what is measured is not what was worked on.
//!
//! In: the source tree, paths, a number and a seed. Out: rows of a list. The same seed draws the same rows from the same
//! proposals, and the first rows of a larger sample are those of a smaller one.

use std::collections::BTreeMap;

use anyhow::{ensure, Result};
use sha2::{Digest, Sha256};
use xk_const::{survey, Listed, PathSet, Written};
use xk_kernel::Tree;

use crate::list::Row;

/// What is drawn.
#[derive(Debug, Clone, Copy)]
pub struct Sample<'a> {
    /// How many constants.
    pub number: usize,
    /// Which.
    pub seed: u64,
    /// Folders or subsystems; all of the kernel if empty.
    pub within: &'a [String],
}

impl Sample<'_> {
    /// Draws them from the named constants of a tree.
    ///
    /// # Errors
    /// A path is unknown, or too few constants are proposed there.
    pub fn draw(&self, tree: &Tree) -> Result<Vec<Row>> {
        let within = self.within.iter().map(|name| Ok(PathSet::find(tree, name)?)).collect::<Result<Vec<_>>>()?;
        let survey = survey(tree, false, &|line| eprintln!("scan: {line}"))?;
        let inside = |one: &&Listed| within.is_empty() || within.iter().any(|paths| paths.contains(&one.id.path));
        let proposed: BTreeMap<String, &Listed> = survey
            .named
            .iter()
            .filter(inside)
            .filter(|one| !matches!(one.written, Written::Literal | Written::FunctionMacro))
            .filter(|one| !one.is_shared_with_user_space())
            .map(|one| (one.id.to_string(), one))
            .collect();
        ensure!(self.number <= proposed.len(), "{} constants are proposed there", proposed.len());
        // By a digest, each constant has a place in line that does not depend on the others.
        let mut drawn: Vec<(String, &Listed)> =
            proposed.into_iter().map(|(id, one)| (digest(&format!("{} {id}", self.seed)), one)).collect();
        drawn.sort_by(|a, b| a.0.cmp(&b.0));
        drawn.truncate(self.number);
        Ok(drawn.into_iter().map(|(_, one)| row(one)).collect())
    }
}

/// The row of a constant. Its number is not one of the list.
fn row(one: &Listed) -> Row {
    let id = one.id.to_string();
    let number = u32::from_str_radix(&digest(&id)[..8], 16).unwrap_or(0) | 1 << 31;
    let defined_at = format!("{}:{}", one.id.path, one.id.line);
    Row { id: number, name: one.name.clone(), defined_at, text: String::new(), constant: Some(id) }
}

fn digest(text: &str) -> String {
    format!("{:x}", Sha256::digest(text.as_bytes()))
}
