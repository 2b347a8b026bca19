//! Whether one build of a unit does what the deployed one does with its constants replaced.
//!
//! In: the deployed build, the functions of V that stand in the places of its constants, and
//! another build: one with another value, or the *opaque* one, in which the compiler could
//! not know V. Out: for which values the two behave the same, in every state; or the first
//! place at which that could not be shown.
//!
//! The argument is a simulation, function by function; docs/proofs.md states it. Where both
//! are the same byte for byte there is nothing to show.

mod bounds;
mod branches;
mod calls;
mod claims;
mod events;
mod frames;
mod opaque;
mod patched;
mod relate;
mod relation;
mod returned;
mod side;
mod stores;
mod walk;

use std::collections::{BTreeMap, HashSet};

use xk_table::Range;

use crate::diff::is_part;
use crate::diff::same::same;
use crate::proof::Solver;
use frames::Frames;
pub(crate) use returned::returned;
use side::Side;
pub use side::{Replacement, Replacements};
use walk::Walk;
use xk_lift::flow::Flow;
use xk_lift::insn::Node;
use xk_lift::notes::Notes;
use xk_lift::object::{Function, Object};
use xk_lift::prototypes::Prototypes;

/// Where and why two builds could not be shown to behave the same.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mismatch {
    /// Place in the deployed build.
    pub base: Node,
    /// What differs.
    pub detail: String,
}

/// How a walk ends early.
#[derive(Debug)]
pub(crate) enum Failure {
    Mismatch(Mismatch),
    /// It can be shown for these values, as far as it got.
    Narrower(Range),
}

/// What every comparison may use besides the two builds.
#[derive(Clone, Copy)]
pub struct Rules<'a> {
    /// The value of the deployed kernel.
    pub default: i64,
    /// Functions that do not return (`tools/objtool/noreturns.h`).
    pub noreturns: &'a HashSet<String>,
    /// What functions take and return.
    pub prototypes: &'a Prototypes,
    /// Decides what is not equal by name.
    pub solver: &'a Solver,
}

/// A build with its blocks and liveness.
#[derive(Clone, Copy)]
pub struct Build<'a> {
    /// The object.
    pub object: &'a Object,
    /// Its flow.
    pub flow: &'a Flow,
    /// What the compiler says of it, if it was asked.
    pub notes: Option<&'a Notes>,
}

/// Compares `other` with the deployed build `base`, whose constants are replaced as
/// `replacements` say. With a `range`, `other` is the opaque build and V is any value of it;
/// the values for which the claim holds are returned. Without, V is one value, whatever it is.
///
/// # Errors
/// The first [`Mismatch`].
pub fn simulate(
    base: Build<'_>,
    other: Build<'_>,
    replacements: &Replacements,
    range: Option<Range>,
    rules: Rules<'_>,
) -> Result<Option<Range>, Mismatch> {
    let (ours, theirs) = (named(base.object)?, named(other.object)?);
    if let Some(name) = theirs.keys().find(|name| !ours.contains_key(*name)) {
        return Err(Mismatch { base: NOWHERE, detail: format!("{name} exists in one build only") });
    }
    let mut range = range;
    for (name, &function) in &ours {
        let Some(&counterpart) = theirs.get(name) else {
            return Err(Mismatch { base: function.start, detail: format!("{name} exists in one build only") });
        };
        let here = |function: &Function| function.whole() == *name;
        let replaced = replacements.keys().any(|(node, _)| base.object.function_at(*node).is_some_and(here));
        if !replaced && same(base.object, other.object, function, counterpart) {
            continue;
        }
        range = one(base, other, replacements, [function, counterpart], range, rules)?;
    }
    Ok(range)
}

/// In the deployed build there is no such place.
const NOWHERE: Node = Node { section: 0, offset: 0 };

/// The functions of a build by name, without the parts that were moved away.
fn named(object: &Object) -> Result<BTreeMap<&str, &Function>, Mismatch> {
    let mut named = BTreeMap::new();
    for function in object.functions.values().filter(|f| !is_part(f) && !f.name.starts_with("__pfx_")) {
        if named.insert(function.name.as_str(), function).is_some() {
            let detail = format!("two functions of one build have the name {}", function.name);
            return Err(Mismatch { base: NOWHERE, detail });
        }
    }
    Ok(named)
}

/// One function, with one assumption after the other of its frames and of where paths are
/// brought together.
fn one(
    base: Build<'_>,
    other: Build<'_>,
    replacements: &Replacements,
    functions: [&Function; 2],
    range: Option<Range>,
    rules: Rules<'_>,
) -> Result<Option<Range>, Mismatch> {
    let name = &functions[0].name;
    let layouts = base.notes.and_then(|notes| notes.layout(name)).zip(other.notes.and_then(|notes| notes.layout(name)));
    let mixed = layouts
        .filter(|(ours, theirs)| ours.saved_aligned.is_some() == theirs.saved_aligned.is_some())
        .map(|(ours, theirs)| Frames::Mixed([ours, theirs]));
    let kinds: Vec<Frames> = mixed.into_iter().chain([Frames::Apart, Frames::Together]).collect();
    let mut first = None;
    for (frames, split) in kinds.iter().map(|kind| (kind, false)).chain(kinds.iter().map(|kind| (kind, true))) {
        let sides = [
            Side { object: base.object, flow: base.flow, notes: base.notes, replacements: Some(replacements), split },
            Side { object: other.object, flow: other.flow, notes: other.notes, replacements: None, split },
        ];
        let mut range = range;
        loop {
            let mut walk = Walk::new(sides, rules, name, range, frames);
            match walk.run(functions) {
                Ok(()) => return Ok(range),
                Err(Failure::Narrower(narrower)) => range = Some(narrower),
                Err(Failure::Mismatch(mismatch)) => {
                    first.get_or_insert(mismatch);
                    break;
                }
            }
        }
    }
    let nothing = || Mismatch { base: functions[0].start, detail: "not shown".into() };
    Err(first.unwrap_or_else(nothing))
}
