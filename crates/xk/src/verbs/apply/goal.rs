//! What shall be in force: entries of files in, constants with their tables out.
//!
//! Refused is what cannot be so on this kernel: a constant without a table, a value
//! outside the proved range, a constant that is declared twice, a policy that does not
//! compile; always with the line of the file.

use std::path::{Path, PathBuf};
use std::time::Duration;

use sha2::{Digest, Sha256};
use xk_kernel::UnknownHz;
use xk_runtime::{Backend, BackendChoice, Mode, Rules};
use xk_table::ScopeTable;

use super::file::{Assignment, Entry, Place, What};
use crate::context::{Folders, Tables};
use crate::exit::{Failure, Result};
use crate::tunes::title;
use crate::verbs::{load, scoped, set};
use xk_policy::Group;

/// A constant as it shall be.
#[derive(Debug)]
pub struct Goal<'a> {
    /// Its table.
    pub table: &'a ScopeTable,
    /// Where it is declared.
    pub place: Place,
    /// What it shall have.
    pub to: To,
    /// How control is to reach the updates.
    pub backend: BackendChoice,
    /// It ends after so long.
    pub lease: Option<Duration>,
    /// The transition that was asked for, or that the constant needs.
    pub mode: Mode,
}

impl Goal<'_> {
    /// How a person calls the constant.
    pub fn title(&self) -> &str {
        title(&self.table.constant)
    }

    /// How control reaches the updates when it comes into force in this mode.
    ///
    /// # Errors
    /// Nothing that the administrator allows is possible.
    pub fn by(&self, mode: Mode, rules: &Rules) -> Result<Backend> {
        let backend = match self.to {
            To::Value(value) => rules.backend(self.backend, self.table, value, mode),
            To::Decided(_) => rules.deciding(self.backend),
        };
        backend.map_err(|error| Failure::from(error).about(&self.place.to_string()))
    }
}

/// What a constant shall have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum To {
    /// One value for everybody.
    Value(i64),
    /// The policies of the set with this index decide.
    Decided(usize),
}

/// Policies that are loaded and removed together.
#[derive(Debug)]
pub struct PolicySet {
    /// What they are called.
    pub name: String,
    /// Where they are declared.
    pub place: Place,
    /// What they are made of.
    pub source: Source,
    /// Of that.
    pub digest: String,
}

/// What policies are made of.
#[derive(Debug)]
pub enum Source {
    /// Values for some only: a policy in C.
    Scoped(String),
    /// A file, compiled or read.
    File(PathBuf, Vec<u8>),
}

impl PolicySet {
    /// The object, for the kernel.
    ///
    /// # Errors
    /// The compiler's.
    pub fn object(&self, folders: &Folders) -> Result<Vec<u8>> {
        match &self.source {
            Source::Scoped(text) => scoped::compiled(text, folders).map_err(|f| f.about(&self.place.to_string())),
            Source::File(_, object) => Ok(object.clone()),
        }
    }

    /// The file that `xk status` names.
    pub fn origin(&self) -> &Path {
        match &self.source {
            Source::Scoped(_) => &self.place.file,
            Source::File(path, _) => path,
        }
    }
}

/// The constants that shall not have their defaults, and the policies that decide some.
#[derive(Debug, Default)]
pub struct Goals<'a> {
    /// By constant.
    pub goals: Vec<Goal<'a>>,
    /// What [`To::Decided`] means.
    pub policy_sets: Vec<PolicySet>,
}

/// Looks everything up.
pub struct Resolver<'a> {
    /// Where things are.
    pub folders: &'a Folders,
    /// Of this kernel.
    pub tables: &'a Tables,
    /// Of this kernel.
    pub build_id: &'a str,
    /// Its `HZ`.
    pub hz: &'a dyn Fn() -> std::result::Result<u32, UnknownHz>,
    /// What is forbidden.
    pub rules: &'a Rules,
}

impl<'a> Resolver<'a> {
    /// Resolves all entries.
    ///
    /// # Errors
    /// The first that cannot be, with its line.
    pub fn goals(&self, entries: &[Entry]) -> Result<Goals<'a>> {
        let mut goals = Goals::default();
        for entry in entries {
            let forbidden = |error| Failure::from(error).about(&entry.place.to_string());
            self.rules.check(entry.backend).map_err(forbidden)?;
            match &entry.what {
                What::Values(values) => self.values(entry, values, &mut goals)?,
                What::Policy { file, name } => self.policy(entry, file, name.as_deref(), &mut goals)?,
            }
        }
        refuse_twice(&goals)?;
        Ok(goals)
    }

    fn values(&self, entry: &Entry, values: &[Assignment], goals: &mut Goals<'a>) -> Result {
        let mut found = Vec::new();
        for Assignment { constant, quantity, place } in values {
            let change = set::change(self.folders, self.tables, constant, *quantity, self.hz);
            found.push((change.map_err(|failure| failure.about(&place.to_string()))?, place));
        }
        let unit = (!entry.whom.is_everybody()).then_some(goals.policy_sets.len());
        if unit.is_some() {
            let values: Vec<_> = found.iter().map(|(c, _)| (c.table.constant.id.clone(), c.value)).collect();
            let sites = |constant: &str| scoped::sites_of_running(self.folders, self.tables, constant);
            let text = scoped::source(&values, &entry.whom, &sites).map_err(|f| f.about(&entry.place.to_string()))?;
            let title = found.first().map_or("", |(change, _)| title(&change.table.constant));
            // What it includes changes with the command and the kernel only.
            let digest = format!("{:x}", Sha256::digest(format!("{}{text}", self.build_id)));
            let name = scoped::name_of(title);
            goals.policy_sets.push(PolicySet {
                name,
                place: entry.place.clone(),
                source: Source::Scoped(text),
                digest,
            });
        }
        for (change, place) in found {
            let to = unit.map_or(To::Value(change.value), To::Decided);
            goals.goals.push(goal(entry, change.table, place.clone(), to));
        }
        Ok(())
    }

    fn policy(&self, entry: &Entry, file: &Path, name: Option<&str>, goals: &mut Goals<'a>) -> Result {
        let place = entry.place.to_string();
        let about = |failure: Failure| failure.about(&place);
        let name = Group::name_for(file, name).map_err(|error| about(error.into()))?;
        let object = load::object(file, self.folders).map_err(about)?;
        let entries = xk_policy::entries(&object).map_err(load::policy_failure).map_err(about)?;
        load::refuse_other_build(&entries, self.build_id).map_err(about)?;
        let digest = xk_policy::digest(&object).map_err(load::policy_failure).map_err(about)?;
        let unit = goals.policy_sets.len();
        load::parts(&entries, self.folders, self.tables).map_err(about)?;
        for policy in &entries {
            let table = self.tables.find(self.folders, &policy.constant).map_err(about)?;
            goals.goals.push(goal(entry, table, entry.place.clone(), To::Decided(unit)));
        }
        let source = Source::File(file.to_owned(), object);
        goals.policy_sets.push(PolicySet { name, place: entry.place.clone(), source, digest });
        Ok(())
    }
}

fn goal<'a>(entry: &Entry, table: &'a ScopeTable, place: Place, to: To) -> Goal<'a> {
    let mode = entry.mode.map_or(table.mode, Mode::from);
    Goal { table, place, to, backend: entry.backend, lease: entry.lease, mode }
}

/// A constant belongs to one entry, and a name to one set of policies.
fn refuse_twice(goals: &Goals<'_>) -> Result {
    for (index, goal) in goals.goals.iter().enumerate() {
        let before = &goals.goals[..index];
        if let Some(other) = before.iter().find(|other| other.table.constant.id == goal.table.constant.id) {
            return Err(goal.place.wrong(format!("{} is declared at {} already", goal.title(), other.place)));
        }
    }
    for (index, unit) in goals.policy_sets.iter().enumerate() {
        if let Some(other) = goals.policy_sets[..index].iter().find(|other| other.name == unit.name) {
            return Err(unit.place.wrong(format!(
                "the policies of {} are called {}, too: `name = \"…\"` gives these another name",
                other.place, unit.name
            )));
        }
    }
    Ok(())
}
