//! The policies of an object together with the tables of their constants: found before anything is loaded, then given to
//! the tunes in one transaction.
//!
//! Refuses an object for another kernel build, a constant without a table, two policies for one constant, and a policy
//! that decides more often than its constant allows.

use std::fs;
use std::path::{Path, PathBuf};

use thiserror::Error;
use xk_runtime::{Device, Error as RuntimeError, Policy};
use xk_store::{Folders, LookupError, Tables};
use xk_table::ScopeTable;

use crate::{Entry, Error, Group, Member, Programs};

/// A policy, and the table of its constant.
#[derive(Debug)]
pub struct Part<'a> {
    /// The policy.
    pub entry: &'a Entry,
    /// The table.
    pub table: &'a ScopeTable,
}

/// Why the policies of an object cannot be loaded on this kernel.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum PartsError {
    /// A policy reads variables of another kernel build.
    #[error(
        "{place}: {program} reads variables of the kernel with build-id {wanted}, and this one has {build_id}: compile it \
         again"
    )]
    OtherBuild {
        /// `file:line` of the policy.
        place: String,
        /// Its program.
        program: String,
        /// The build-id that it is for.
        wanted: String,
        /// The build-id of this kernel.
        build_id: String,
    },
    /// The constant has no table.
    #[error("{place}: {error}")]
    Lookup {
        /// `file:line` of the policy.
        place: String,
        /// Why.
        error: LookupError,
    },
    /// Two policies decide one constant.
    #[error("{place}: {title} has a policy already, `{program}` at {other}")]
    Twice {
        /// `file:line` of the second policy.
        place: String,
        /// The constant.
        title: String,
        /// Program of the first policy.
        program: String,
        /// `file:line` of the first policy.
        other: String,
    },
    /// The policy decides at each site, and the constant allows one decision for each activation only.
    #[error(
        "{place}: {title} may not be decided at each site: a number is counted from one to the next and compared with the \
         value; write XK_TUNE in place of XK_TUNE_EACH"
    )]
    TooOften {
        /// `file:line` of the policy.
        place: String,
        /// The constant.
        title: String,
    },
}

/// Why the tunes did not get their policies.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum GiveError {
    /// Another program of the object cannot be attached.
    #[error(transparent)]
    Policy(#[from] Error),
    /// The object has no such program.
    #[error("{place}: there is no program {program}")]
    NoProgram {
        /// `file:line` of the policy.
        place: String,
        /// Its program.
        program: String,
    },
    /// The kernel does not accept the policy.
    #[error("{place}: {program}: {error}")]
    Refused {
        /// `file:line` of the policy.
        place: String,
        /// Its program.
        program: String,
        /// Why.
        error: Box<RuntimeError>,
    },
    /// The kernel does not list its tunes.
    #[error(transparent)]
    Runtime(#[from] RuntimeError),
}

/// The maps of an object cannot be pinned, because there is no BPF file system, for example. The policies work without.
#[derive(Debug, Error)]
#[error("the maps are not shown in {}: {reason}", folder.display())]
pub struct MapsHidden {
    /// The directory.
    pub folder: PathBuf,
    /// Why.
    pub reason: String,
}

/// Refuses policies that were compiled with the variables of another kernel build.
///
/// # Errors
/// [`PartsError::OtherBuild`].
pub fn refuse_other_build(entries: &[Entry], build_id: &str) -> Result<(), PartsError> {
    match entries.iter().find(|entry| !entry.build_id.is_empty() && entry.build_id != build_id) {
        None => Ok(()),
        Some(entry) => Err(PartsError::OtherBuild {
            place: entry.place(),
            program: entry.program.clone(),
            wanted: entry.build_id.clone(),
            build_id: build_id.to_owned(),
        }),
    }
}

/// The table of each policy's constant.
///
/// # Errors
/// [`PartsError`].
pub fn parts<'a>(entries: &'a [Entry], folders: &Folders, tables: &'a Tables) -> Result<Vec<Part<'a>>, PartsError> {
    let mut parts: Vec<Part<'a>> = Vec::new();
    for entry in entries {
        let table = tables
            .find(folders, &entry.constant)
            .map_err(|error| PartsError::Lookup { place: entry.place(), error })?;
        let title = || table.constant.title().to_owned();
        if let Some(other) = parts.iter().find(|part| part.table.constant.id == table.constant.id) {
            return Err(PartsError::Twice {
                place: entry.place(),
                title: title(),
                program: other.entry.program.clone(),
                other: other.entry.place(),
            });
        }
        if entry.each && table.tests_for_order() {
            return Err(PartsError::TooOften { place: entry.place(), title: title() });
        }
        parts.push(Part { entry, table });
    }
    Ok(parts)
}

/// Gives each tune its policy, and attaches the companions. The policies come into force with the next transition. `ids`
/// are the numbers of the tunes, in the order of `parts`.
///
/// # Errors
/// [`GiveError`].
pub fn give(
    device: &Device,
    programs: &Programs,
    parts: &[Part<'_>],
    ids: &[u32],
    name: &str,
    source: &Path,
) -> Result<Group, GiveError> {
    let companions = programs.attach()?;
    let mut members = Vec::new();
    for (part, &tune) in parts.iter().zip(ids) {
        let Entry { program, .. } = part.entry;
        let place = || part.entry.place();
        let missing = || GiveError::NoProgram { place: place(), program: program.clone() };
        let mut policy = match part.entry.each {
            true => Policy::for_each_site(programs.program(part.entry).ok_or_else(missing)?),
            false => Policy::new(programs.program(part.entry).ok_or_else(missing)?, part.table),
        };
        policy.links = companions.links().collect();
        device.give_policy(tune, &policy).map_err(|error| GiveError::Refused {
            place: place(),
            program: program.clone(),
            error: Box::new(error),
        })?;
        let constant = part.table.constant.id.clone();
        let program_id = programs.program_id(part.entry)?;
        members.push(Member { tune, constant, program: program.clone(), program_id });
    }
    // The kernel knows a long ConstID by its alias.
    let known = device.tunes()?;
    for member in &mut members {
        if let Some(tune) = known.iter().find(|tune| tune.id == member.tune) {
            member.constant.clone_from(&tune.name);
        }
    }
    let source = fs::canonicalize(source).unwrap_or_else(|_| source.to_owned());
    let companions = companions.names().map(str::to_owned).collect();
    Ok(Group { name: name.to_owned(), source, members, companions })
}

/// Pins the maps of an object, for other programs to read and write.
///
/// # Errors
/// [`MapsHidden`]; the policies work without it.
pub fn show_maps(programs: &mut Programs, name: &str) -> Result<(), MapsHidden> {
    let folder = Group::pins(name);
    let shown = fs::create_dir_all(&folder).map_err(|error| error.to_string());
    shown
        .and_then(|()| programs.pin(&folder).map_err(|error| error.to_string()))
        .map_err(|reason| MapsHidden { folder, reason })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use xk_harness::example;

    use super::*;

    fn entry(each: bool) -> Entry {
        Entry {
            program: "choose".into(),
            constant: "BLK_MAX_REQUEST_COUNT".into(),
            file: "a.bpf.c".into(),
            build_id: String::new(),
            line: 7,
            each,
        }
    }

    fn found(table: &ScopeTable, entries: &[Entry]) -> Result<usize, String> {
        let tables = Tables::of(&table.kernel.build_id, vec![table.clone()]);
        let folders = Folders { cache: "/".into(), stores: vec![] };
        parts(entries, &folders, &tables).map(|parts| parts.len()).map_err(|error| error.to_string())
    }

    #[test]
    fn what_tests_for_order_is_not_decided_at_each_site() {
        let mut table = example::table();
        assert_eq!(found(&table, &[entry(true)]), Ok(1));
        table.spans[0].assembly[0].order = Some(xk_table::Order::AtLeast);
        assert_eq!(found(&table, &[entry(false)]), Ok(1));
        let refused = found(&table, &[entry(true)]);
        assert!(
            refused.as_ref().is_err_and(|why| why.contains("a.bpf.c:7") && why.contains("XK_TUNE_EACH")),
            "{refused:?}"
        );
    }

    #[test]
    fn a_constant_has_one_policy() {
        let mut second = entry(false);
        (second.line, second.constant) = (9, "block/blk.h:335".into());
        let refused = found(&example::table(), &[entry(false), second.clone()]);
        assert_eq!(refused, Err("a.bpf.c:9: BLK_MAX_REQUEST_COUNT has a policy already, `choose` at a.bpf.c:7".into()));
        second.constant = "SHRINK_BATCH".into();
        assert!(found(&example::table(), &[second]).unwrap_err().starts_with("a.bpf.c:9: no scope table for SHRINK"));
    }

    #[test]
    fn an_object_for_another_kernel_is_refused() {
        let mut other = entry(false);
        assert!(refuse_other_build(std::slice::from_ref(&other), "01").is_ok());
        other.build_id = "02".into();
        assert!(refuse_other_build(std::slice::from_ref(&other), "02").is_ok());
        let refused = refuse_other_build(&[other], "01").unwrap_err();
        assert!(matches!(refused, PartsError::OtherBuild { wanted, .. } if wanted == "02"));
    }
}
