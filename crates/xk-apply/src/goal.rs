//! What should be in force: entries of files in, constants with their tables out.
//!
//! Refuses what is not possible on this kernel, and names the line: a constant without a table, a value that the table
//! does not accept, a constant that is declared twice, a policy that does not compile.

use std::path::{Path, PathBuf};
use std::time::Duration;

use sha2::{Digest, Sha256};
use thiserror::Error;
use xk_kernel::UnknownHz;
use xk_policy::{
    compile_scoped, parts, refuse_other_build, scoped_name, scoped_source, Group, GroupError, PartsError, ScopedError,
    SourceCompiler, SourceError,
};
use xk_runtime::{Backend, BackendChoice, Mode, Rules, RulesError};
use xk_store::{LookupError, Tables};
use xk_table::ScopeTable;

use crate::file::{Assignment, Entry, What};
use crate::place::{At, Place};
use crate::value::{change, Change, ValueError};

/// Why an entry cannot be in force on this kernel.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum GoalError {
    /// The administrator forbids the backend.
    #[error(transparent)]
    Rules(#[from] RulesError),
    /// A constant cannot have the value.
    #[error(transparent)]
    Value(#[from] ValueError),
    /// There is no policy for the processes or devices of the entry.
    #[error(transparent)]
    Scoped(Box<ScopedError>),
    /// The name cannot be that of policies.
    #[error(transparent)]
    Group(#[from] GroupError),
    /// The policy does not compile.
    #[error(transparent)]
    Source(Box<SourceError>),
    /// The object contains no policies.
    #[error(transparent)]
    Policy(#[from] xk_policy::Error),
    /// The policies cannot be loaded on this kernel.
    #[error(transparent)]
    Parts(#[from] PartsError),
    /// The constant of a policy has no table.
    #[error(transparent)]
    Lookup(#[from] LookupError),
    /// A constant is declared twice.
    #[error("{title} is declared at {other} already")]
    Twice {
        /// The constant.
        title: String,
        /// The other line.
        other: Place,
    },
    /// Two sets of policies have one name.
    #[error("the policies of {other} are called {name}, too: `name = \"…\"` gives these another name")]
    SameName {
        /// The name.
        name: String,
        /// The line of the other set.
        other: Place,
    },
}

impl From<ScopedError> for GoalError {
    fn from(error: ScopedError) -> Self {
        Self::Scoped(Box::new(error))
    }
}

impl From<SourceError> for GoalError {
    fn from(error: SourceError) -> Self {
        Self::Source(Box::new(error))
    }
}

/// A constant as it should be.
#[derive(Debug)]
pub struct Goal<'a> {
    /// Its table.
    pub table: &'a ScopeTable,
    /// Where it is declared.
    pub place: Place,
    /// Its value, or its policies.
    pub to: To,
    /// The requested backend.
    pub backend: BackendChoice,
    /// Time after which the tune ends.
    pub lease: Option<Duration>,
    /// The declared mode, or else the weakest that the constant needs.
    pub mode: Mode,
}

impl Goal<'_> {
    /// How messages name the constant.
    #[must_use]
    pub fn title(&self) -> &str {
        self.table.constant.title()
    }

    /// The backend to load the tune with, if the transition has this mode.
    ///
    /// # Errors
    /// The administrator allows no backend that is possible.
    pub fn by(&self, mode: Mode, rules: &Rules) -> Result<Backend, At<RulesError>> {
        let backend = match self.to {
            To::Value(value) => rules.backend(self.backend, self.table, value, mode),
            To::Decided(_) => rules.deciding(self.backend),
        };
        backend.map_err(|error| self.place.at(error))
    }
}

/// The value of a constant, or its policies.
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
    /// Their name.
    pub name: String,
    /// Where they are declared.
    pub place: Place,
    /// What they are compiled from.
    pub source: Source,
    /// Digest of `source`, to detect changes.
    pub digest: String,
}

/// What policies are compiled from.
#[derive(Debug)]
pub enum Source {
    /// Values for some only: a policy in C, written from the entry.
    Scoped(String),
    /// A file, and its object.
    File(PathBuf, Vec<u8>),
}

impl PolicySet {
    /// The object, for the kernel.
    ///
    /// # Errors
    /// The policy does not compile.
    pub fn object(&self, compiler: &SourceCompiler<'_>) -> Result<Vec<u8>, SourceError> {
        match &self.source {
            Source::Scoped(text) => compile_scoped(text, compiler),
            Source::File(_, object) => Ok(object.clone()),
        }
    }

    /// The file that `xk status` names.
    #[must_use]
    pub fn origin(&self) -> &Path {
        match &self.source {
            Source::Scoped(_) => &self.place.file,
            Source::File(path, _) => path,
        }
    }
}

/// All constants that should not have their defaults, and the policies that decide some of them.
#[derive(Debug, Default)]
pub struct Goals<'a> {
    /// One for each constant.
    pub goals: Vec<Goal<'a>>,
    /// The sets that [`To::Decided`] refers to.
    pub policy_sets: Vec<PolicySet>,
}

/// Resolves entries on one kernel.
pub struct Resolver<'a> {
    /// Compiles policies.
    pub compiler: &'a SourceCompiler<'a>,
    /// The tables of the kernel.
    pub tables: &'a Tables,
    /// The build-id of the kernel.
    pub build_id: &'a str,
    /// Returns its `CONFIG_HZ`.
    pub hz: &'a dyn Fn() -> Result<u32, UnknownHz>,
    /// What the administrator forbids.
    pub rules: &'a Rules,
}

impl<'a> Resolver<'a> {
    /// Resolves all entries.
    ///
    /// # Errors
    /// The first entry that cannot be in force, with its line.
    pub fn goals(&self, entries: &[Entry]) -> Result<Goals<'a>, At<GoalError>> {
        let mut goals = Goals::default();
        for entry in entries {
            self.rules.check(entry.backend).map_err(|error| entry.place.at(error.into()))?;
            match &entry.what {
                What::Values(values) => self.values(entry, values, &mut goals)?,
                What::Policy { file, name } => {
                    self.policy(entry, file, name.as_deref(), &mut goals).map_err(|error| entry.place.at(error))?
                }
            }
        }
        refuse_twice(&goals)?;
        Ok(goals)
    }

    fn values(&self, entry: &Entry, values: &[Assignment], goals: &mut Goals<'a>) -> Result<(), At<GoalError>> {
        let mut found = Vec::new();
        for Assignment { constant, quantity, place } in values {
            let change = change(self.compiler.folders, self.tables, constant, *quantity, self.hz);
            found.push((change.map_err(|error| place.at(error.into()))?, place));
        }
        let unit = if entry.whom.is_everybody() {
            None
        } else {
            let changes = found.iter().map(|(change, _)| *change).collect::<Vec<_>>();
            goals.policy_sets.push(self.scoped(entry, &changes).map_err(|error| entry.place.at(error.into()))?);
            Some(goals.policy_sets.len() - 1)
        };
        for (change, place) in found {
            let to = unit.map_or(To::Value(change.value), To::Decided);
            goals.goals.push(goal(entry, change.table, place.clone(), to));
        }
        Ok(())
    }

    /// The policy of an entry with values for some only.
    fn scoped(&self, entry: &Entry, changes: &[Change<'_>]) -> Result<PolicySet, ScopedError> {
        let values: Vec<_> = changes.iter().map(|change| (change.table.constant.id.clone(), change.value)).collect();
        let sites = |constant: &str| self.compiler.sites(self.tables, constant);
        let text = scoped_source(&values, &entry.whom, &sites)?;
        let title = changes.first().map_or("", Change::title);
        // The headers that it includes change only with this program and the kernel.
        let digest = format!("{:x}", Sha256::digest(format!("{}{text}", self.build_id)));
        Ok(PolicySet { name: scoped_name(title), place: entry.place.clone(), source: Source::Scoped(text), digest })
    }

    fn policy(&self, entry: &Entry, file: &Path, name: Option<&str>, goals: &mut Goals<'a>) -> Result<(), GoalError> {
        let folders = self.compiler.folders;
        let name = Group::name_for(file, name)?;
        let object = self.compiler.object(file)?;
        let entries = xk_policy::entries(&object)?;
        refuse_other_build(&entries, self.build_id)?;
        let digest = xk_policy::digest(&object)?;
        let unit = goals.policy_sets.len();
        parts(&entries, folders, self.tables)?;
        for policy in &entries {
            let table = self.tables.find(folders, &policy.constant)?;
            goals.goals.push(goal(entry, table, entry.place.clone(), To::Decided(unit)));
        }
        let source = Source::File(file.to_owned(), object);
        goals.policy_sets.push(PolicySet { name, place: entry.place.clone(), source, digest });
        Ok(())
    }
}

fn goal<'a>(entry: &Entry, table: &'a ScopeTable, place: Place, to: To) -> Goal<'a> {
    let mode = entry.mode.unwrap_or(table.mode);
    Goal { table, place, to, backend: entry.backend, lease: entry.lease, mode }
}

/// A constant belongs to one entry, and a name to one set of policies.
fn refuse_twice(goals: &Goals<'_>) -> Result<(), At<GoalError>> {
    for (index, goal) in goals.goals.iter().enumerate() {
        let before = &goals.goals[..index];
        if let Some(other) = before.iter().find(|other| other.table.constant.id == goal.table.constant.id) {
            let (title, other) = (goal.title().to_owned(), other.place.clone());
            return Err(goal.place.at(GoalError::Twice { title, other }));
        }
    }
    for (index, unit) in goals.policy_sets.iter().enumerate() {
        if let Some(other) = goals.policy_sets[..index].iter().find(|other| other.name == unit.name) {
            let (name, other) = (unit.name.clone(), other.place.clone());
            return Err(unit.place.at(GoalError::SameName { name, other }));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use xk_harness::example;
    use xk_kernel::KernelChoice;
    use xk_store::Folders;

    use super::*;
    use crate::file;

    /// The goals of a file with this text, or the refusal.
    fn resolved(text: &str) -> Result<Vec<(usize, To, Mode)>, String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.toml");
        std::fs::write(&path, text).unwrap();
        let entries = file::read(&path).unwrap();
        let folders = Folders { cache: folder.path().into(), stores: vec![] };
        let compiler = SourceCompiler { folders: &folders, kernel: &KernelChoice::default(), say: &|_| {} };
        let tables = Tables::of("01", vec![example::table(), example::data_table()]);
        let rules = Rules::default();
        let resolver =
            Resolver { compiler: &compiler, tables: &tables, build_id: "01", hz: &|| Ok(250), rules: &rules };
        let goals = resolver.goals(&entries).map_err(|error| error.to_string().replace(path.to_str().unwrap(), "a"))?;
        Ok(goals.goals.iter().map(|goal| (goal.place.line, goal.to, goal.mode)).collect())
    }

    #[test]
    fn entries_become_goals_with_the_mode_that_is_declared_or_needed() {
        let text = "[[tune]]\n[tune.set]\nBLK_MAX_REQUEST_COUNT = \"1K\"\n\
                    [[tune]]\nmode = \"global\"\nset = { \"net/core/hotdata.c:17\" = 500 }\n";
        let goals = resolved(text).unwrap();
        assert_eq!(goals, [(3, To::Value(1024), Mode::Task), (6, To::Value(500), Mode::Global)]);
    }

    #[test]
    fn values_for_some_are_decided_by_one_set_of_policies() {
        let text = "[[tune]]\nuid = 0\n[tune.set]\nBLK_MAX_REQUEST_COUNT = 64\n\"net/core/hotdata.c:17\" = 500\n";
        let goals = resolved(text).unwrap();
        assert_eq!(goals.iter().map(|(_, to, _)| *to).collect::<Vec<_>>(), [To::Decided(0), To::Decided(0)]);
    }

    #[test]
    fn what_cannot_be_is_refused_with_its_line() {
        let wrong = |text: &str, words: &str| {
            let message = resolved(text).unwrap_err();
            assert!(message.starts_with(words), "{message}");
        };
        let blk = "[[tune]]\nset = { BLK_MAX_REQUEST_COUNT = 64 }\n";
        wrong(&format!("{blk}{blk}"), "a:4: BLK_MAX_REQUEST_COUNT is declared at a:2 already");
        wrong("[[tune]]\nset = { NO_SUCH = 1 }\n", "a:2: no scope table for NO_SUCH");
        wrong("[[tune]]\nset = { BLK_MAX_REQUEST_COUNT = 0 }\n", "a:2: BLK_MAX_REQUEST_COUNT: 0 is outside the proved");
        wrong("[[tune]]\nset = { BLK_MAX_REQUEST_COUNT = 64 }\ncomm = \"\"\n", "a:1: ``: the kernel keeps 1 to 15");
        wrong("[[tune]]\npolicy = \"/no/such.bpf.o\"\n", "a:1: /no/such.bpf.o: No such file");
        wrong("[[tune]]\npolicy = \"a b.bpf.o\"\n", "a:1: `a b` cannot be a name");
    }
}
