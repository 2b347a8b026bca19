//! Loads the constants of policies for `xk load`. Refuses what other policies or tunes hold.

use std::path::PathBuf;

use thiserror::Error;
use xk_policy::{Group, Part};
use xk_runtime::{AddressOf, Backend, Device, Tune, TuneStatus};

use crate::load::LoadError;

/// Why policies cannot be loaded beside what is in force.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Conflict {
    /// Other policies have the name.
    #[error(
        "policies called {name} are loaded, from {}: `xk reload` replaces them, `xk unload {name}` ends them, --name gives \
         these another name",
        source_file.display()
    )]
    Name {
        /// The name.
        name: String,
        /// The source of these policies.
        source_file: PathBuf,
    },
    /// Other policies decide the constant.
    #[error(
        "{place}: {title} belongs to the policies {name} ({}): `xk unload {name}` first; nothing was loaded",
        source_file.display()
    )]
    Decided {
        /// `file:line` of the policy.
        place: String,
        /// The constant.
        title: String,
        /// The name of the other policies.
        name: String,
        /// Their source.
        source_file: PathBuf,
    },
    /// The constant is tuned.
    #[error("{place}: {title} is tuned to {value}, {owner}: `xk unset {title}` first; nothing was loaded")]
    Tuned {
        /// `file:line` of the policy.
        place: String,
        /// The constant.
        title: String,
        /// The value in force.
        value: i64,
        /// The owner, in words.
        owner: String,
    },
}

/// Refuses a name that other policies have, and a constant that is tuned.
///
/// # Errors
/// The first conflict.
pub fn refuse_conflicts(
    name: &str,
    parts: &[Part<'_>],
    tunes: &[TuneStatus],
    groups: &[Group],
) -> Result<(), Conflict> {
    if let Some(group) = groups.iter().find(|group| group.name == name) {
        return Err(Conflict::Name { name: name.to_owned(), source_file: group.source.clone() });
    }
    for part in parts {
        let Some(tune) = tunes.iter().find(|tune| tune.is_of(&part.table.constant)) else { continue };
        let (place, title) = (part.entry.place(), part.table.constant.title().to_owned());
        return Err(match Group::of(groups, tune) {
            Some(group) => {
                let (name, source_file) = (group.name.clone(), group.source.clone());
                Conflict::Decided { place, title, name, source_file }
            }
            None => Conflict::Tuned { place, title, value: tune.value, owner: tune.owner() },
        });
    }
    Ok(())
}

/// A constant of a policy was not loaded.
#[derive(Debug, Error)]
#[error("{place}: {error}; nothing was loaded")]
pub struct PartNotLoaded {
    /// `file:line` of the policy.
    pub place: String,
    /// Why.
    pub error: Box<LoadError>,
}

/// Loads every constant, with its default in force.
///
/// # Errors
/// The first that `xk.ko` does not load. The others end when this returns.
pub fn load_parts(
    device: &Device,
    parts: &[Part<'_>],
    addresses: &dyn AddressOf,
    backend: Backend,
) -> Result<Vec<Tune>, PartNotLoaded> {
    let load = |part: &Part<'_>| {
        device.load_by(part.table, addresses, backend).map_err(|error| {
            let title = part.table.constant.title().to_owned();
            PartNotLoaded { place: part.entry.place(), error: Box::new(LoadError { title, error }) }
        })
    };
    parts.iter().map(load).collect()
}

#[cfg(test)]
mod tests {
    use xk_harness::example;
    use xk_policy::{Entry, Member};
    use xk_runtime::PolicyStatus;

    use super::*;

    #[test]
    fn what_is_in_force_is_not_replaced() {
        let table = example::table();
        let entry = Entry {
            program: "p".into(),
            constant: "BLK_MAX_REQUEST_COUNT".into(),
            file: "a.bpf.c".into(),
            line: 7,
            build_id: String::new(),
            each: false,
        };
        let parts = [Part { entry: &entry, table: &table }];
        let mut tune = example::tune();
        let member = Member { tune: tune.id, constant: tune.name.clone(), program: "p".into(), program_id: 42 };
        let group = Group { name: "g".into(), source: "g.bpf.c".into(), members: vec![member], companions: vec![] };
        let refused = |name: &str, tunes: &[TuneStatus], groups: &[Group]| {
            refuse_conflicts(name, &parts, tunes, groups).map_err(|conflict| conflict.to_string())
        };
        assert_eq!(refused("a", &[], &[]), Ok(()));
        let starts = |refused: Result<(), String>, words: &str| {
            assert!(refused.as_ref().is_err_and(|message| message.starts_with(words)), "{refused:?}");
        };
        starts(refused("g", &[], std::slice::from_ref(&group)), "policies called g are loaded, from g.bpf.c");
        let words = "a.bpf.c:7: BLK_MAX_REQUEST_COUNT is tuned to 128, detached";
        starts(refused("a", std::slice::from_ref(&tune), std::slice::from_ref(&group)), words);
        tune.policy = Some(PolicyStatus { program: 42, links: 0, sites: vec![] });
        let words = "a.bpf.c:7: BLK_MAX_REQUEST_COUNT belongs to the policies g (g.bpf.c)";
        starts(refused("a", &[tune], &[group]), words);
    }
}
