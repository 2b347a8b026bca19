//! What a file of `/etc/xk.d` asks for: text in, entries with their lines out.
//!
//! Whether a constant exists and a value can be set is not known here. Refused is
//! what does not make sense by itself, always with the line: syntax, unknown keys,
//! an entry without constants, a scope of nobody.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::ValueEnum;
use serde::Deserialize;
use toml::Spanned;
use xk_runtime::BackendChoice;
use xk_table::Quantity;

use crate::exit::{Failure, Result};
use crate::verbs::scoped::Whom;
use crate::verbs::set::By;
use crate::verbs::transition::{parse_time, Wanted};

/// Where something is declared.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// The file.
    pub file: PathBuf,
    /// Its line, from 1.
    pub line: usize,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.file.display(), self.line)
    }
}

impl Place {
    /// A failure that says where.
    pub fn wrong(&self, sentence: impl fmt::Display) -> Failure {
        Failure::error(format!("{self}: {sentence}"))
    }
}

/// One `[[tune]]`.
#[derive(Debug)]
pub struct Entry {
    /// Its first line.
    pub place: Place,
    /// Which values.
    pub what: What,
    /// For whom.
    pub whom: Whom,
    /// How they come into force; `None`: as the constants need.
    pub mode: Option<Wanted>,
    /// How control reaches the updates.
    pub backend: BackendChoice,
    /// They end after so long.
    pub lease: Option<Duration>,
}

/// What an entry gives its constants.
#[derive(Debug)]
pub enum What {
    /// Values.
    Values(Vec<Assignment>),
    /// Policies of a file.
    Policy {
        /// The file.
        file: PathBuf,
        /// What it is called; the name of the file if not given.
        name: Option<String>,
    },
}

/// A constant and its value.
#[derive(Debug, PartialEq, Eq)]
pub struct Assignment {
    /// As the author names it.
    pub constant: String,
    /// The value.
    pub quantity: Quantity,
    /// Where.
    pub place: Place,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    #[serde(default)]
    tune: Vec<Spanned<Raw>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Raw {
    set: Option<BTreeMap<Spanned<String>, Spanned<Scalar>>>,
    policy: Option<Spanned<String>>,
    name: Option<Spanned<String>>,
    #[serde(default)]
    pid: Many<u32>,
    #[serde(default)]
    comm: Many<String>,
    #[serde(default)]
    uid: Many<u32>,
    #[serde(default)]
    cgroup: Many<PathBuf>,
    #[serde(default)]
    netns: Many<PathBuf>,
    #[serde(default)]
    dev: Many<String>,
    mode: Option<Spanned<String>>,
    backend: Option<Spanned<String>>,
    lease: Option<Spanned<String>>,
}

#[derive(Deserialize)]
#[serde(untagged, expecting = "expected a whole number, or text such as \"0x40\", \"4K\" or \"20ms\"")]
enum Scalar {
    Number(i64),
    Text(String),
}

#[derive(Deserialize)]
#[serde(untagged, expecting = "expected one, or a list of them")]
enum Many<T> {
    One(T),
    All(Vec<T>),
}

impl<T> Default for Many<T> {
    fn default() -> Self {
        Self::All(Vec::new())
    }
}

impl<T> From<Many<T>> for Vec<T> {
    fn from(many: Many<T>) -> Self {
        match many {
            Many::One(one) => vec![one],
            Many::All(all) => all,
        }
    }
}

/// The files that `path` means: itself, or every `*.toml` of a folder by name.
///
/// # Errors
/// It cannot be read.
pub fn files(path: &Path) -> Result<Vec<PathBuf>> {
    let failed = |error: std::io::Error| Failure::error(format!("{}: {error}", path.display()));
    if !fs::metadata(path).map_err(failed)?.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let entries = fs::read_dir(path).map_err(failed)?;
    let mut files = entries.map(|entry| Ok(entry?.path())).collect::<std::io::Result<Vec<_>>>().map_err(failed)?;
    files.retain(|file| file.extension().is_some_and(|extension| extension == "toml") && file.is_file());
    files.sort();
    Ok(files)
}

/// Reads one.
///
/// # Errors
/// With the line.
pub fn read(file: &Path) -> Result<Vec<Entry>> {
    let text = fs::read_to_string(file).map_err(|error| Failure::error(format!("{}: {error}", file.display())))?;
    parse(file, &text)
}

fn parse(file: &Path, text: &str) -> Result<Vec<Entry>> {
    let at = |offset: usize| Place {
        file: file.to_owned(),
        line: 1 + text.bytes().take(offset).filter(|&byte| byte == b'\n').count(),
    };
    let document: Document = toml::from_str(text).map_err(|error| {
        let sentence = error.message().trim().replace('\n', ", ");
        match error.span() {
            Some(span) => at(span.start).wrong(sentence),
            None => Failure::error(format!("{}: {sentence}", file.display())),
        }
    })?;
    document.tune.into_iter().map(|raw| entry(raw, &at)).collect()
}

fn entry(raw: Spanned<Raw>, at: &dyn Fn(usize) -> Place) -> Result<Entry> {
    let place = at(raw.span().start);
    let raw = raw.into_inner();
    let (mode, backend) = (choice(raw.mode, "mode", at)?, choice::<By>(raw.backend, "backend", at)?);
    let parse_lease = |text: Spanned<String>| {
        parse_time(text.get_ref()).map_err(|error| at(text.span().start).wrong(format!("lease: {error}")))
    };
    let lease = raw.lease.map(parse_lease).transpose()?;
    let what = match (raw.set, raw.policy) {
        (Some(set), None) => What::Values(assignments(set, at)?),
        (None, Some(policy)) => {
            let folder = place.file.parent().unwrap_or(Path::new("."));
            What::Policy { file: folder.join(policy.get_ref()), name: raw.name.as_ref().map(|n| n.get_ref().clone()) }
        }
        _ => return Err(place.wrong("a [[tune]] has either `set = { NAME = VALUE }` or `policy = \"FILE\"`")),
    };
    let whom = Whom {
        pid: raw.pid.into(),
        comm: raw.comm.into(),
        uid: raw.uid.into(),
        cgroup: raw.cgroup.into(),
        netns: raw.netns.into(),
        dev: raw.dev.into(),
    };
    let entry =
        Entry { place, what, whom, mode, backend: backend.map_or(BackendChoice::Kprobe, BackendChoice::from), lease };
    refuse_senseless(&entry, raw.name.as_ref().map(|name| at(name.span().start)))?;
    Ok(entry)
}

/// One of the words that the command line has for it.
fn choice<T: ValueEnum>(given: Option<Spanned<String>>, what: &str, at: &dyn Fn(usize) -> Place) -> Result<Option<T>> {
    let Some(given) = given else { return Ok(None) };
    T::from_str(given.get_ref(), false).map(Some).map_err(|_| {
        let known = T::value_variants().iter().filter_map(ValueEnum::to_possible_value);
        let known: Vec<String> = known.map(|value| value.get_name().to_owned()).collect();
        at(given.span().start).wrong(format!("`{}` is no {what}: {}", given.get_ref(), known.join(", ")))
    })
}

fn assignments(
    set: BTreeMap<Spanned<String>, Spanned<Scalar>>,
    at: &dyn Fn(usize) -> Place,
) -> Result<Vec<Assignment>> {
    let mut all: Vec<_> = set.into_iter().collect();
    // In the order of the file.
    all.sort_by_key(|(name, _)| name.span().start);
    let assignment = |(name, value): (Spanned<String>, Spanned<Scalar>)| {
        let place = at(name.span().start);
        let constant = name.into_inner();
        let quantity = match value.into_inner() {
            Scalar::Number(number) => Quantity::Number(number.into()),
            Scalar::Text(text) => text.parse().map_err(|error| place.wrong(format!("{constant}: {error}")))?,
        };
        Ok(Assignment { constant, quantity, place })
    };
    all.into_iter().map(assignment).collect()
}

/// What could be read, and means nothing.
fn refuse_senseless(entry: &Entry, name: Option<Place>) -> Result {
    let decides = match &entry.what {
        What::Values(values) if values.is_empty() => return Err(entry.place.wrong("`set` names no constant")),
        What::Values(_) => {
            if let Some(name) = name {
                return Err(name.wrong("only a policy has a name"));
            }
            !entry.whom.is_everybody()
        }
        What::Policy { .. } if !entry.whom.is_everybody() => {
            return Err(entry.place.wrong("a policy says itself whom a value is for: take pid, comm, … out"));
        }
        What::Policy { .. } => true,
    };
    if decides && entry.backend == BackendChoice::Patch {
        return Err(entry.place.wrong(
            "the values of policies, and values for some only, are chosen for each execution, and instructions that hold \
             the value are the same for all: take `backend` out, or make it \"auto\"",
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn parsed(text: &str) -> Result<Vec<Entry>> {
        parse(Path::new("/etc/xk.d/a.toml"), text)
    }

    #[test]
    fn entries_are_read_with_their_lines() {
        let text = "# Storage.\n\n[[tune]]\nmode = \"task\"\nlease = \"10m\"\n[tune.set]\nB = 64\nA = \"4K\"\n\n\
                    [[tune]]\nset = { \"net/ipv4/tcp.c:1162\" = \"20ms\" }\ncomm = \"fio\"\nuid = [0, 1000]\n\
                    [[tune]]\npolicy = \"p.bpf.c\"\nname = \"q\"\n";
        let entries = parsed(text).unwrap();
        assert_eq!(entries.len(), 3);
        let What::Values(values) = &entries[0].what else { unreachable!() };
        let at = |line| Place { file: "/etc/xk.d/a.toml".into(), line };
        let set = |constant: &str, number, line| Assignment {
            constant: constant.into(),
            quantity: Quantity::Number(number),
            place: at(line),
        };
        assert_eq!(values[..], [set("B", 64, 7), set("A", 4096, 8)]);
        assert_eq!((entries[0].mode, entries[0].lease), (Some(Wanted::Task), Some(Duration::from_secs(600))));
        assert!(entries[0].whom.is_everybody() && entries[0].backend == BackendChoice::Kprobe);
        assert_eq!((&entries[1].whom.comm, &entries[1].whom.uid), (&vec!["fio".to_owned()], &vec![0, 1000]));
        let What::Policy { file, name } = &entries[2].what else { unreachable!() };
        assert_eq!((file.as_path(), name.as_deref()), (Path::new("/etc/xk.d/p.bpf.c"), Some("q")));
        assert_eq!(entries[2].place, at(14));
        assert!(parsed("").unwrap().is_empty());
    }

    #[test]
    fn what_makes_no_sense_is_refused_with_its_line() {
        let wrong = |text: &str, line: usize, words: &str| {
            let message = parsed(text).err().unwrap().message;
            assert!(message.starts_with(&format!("/etc/xk.d/a.toml:{line}: ")), "{text}: {message}");
            assert!(message.contains(words), "{text}: {message}");
        };
        wrong("[[tune]]\nset = { A = 1\n", 2, "");
        wrong("[[tune]]\nset = { A = 1 }\nvalue = 3\n", 3, "unknown field `value`");
        wrong("tunes = 1\n", 1, "unknown field `tunes`");
        wrong("[[tune]]\nset = { A = 1.5 }\n", 2, "a whole number");
        wrong("[[tune]]\nset = { A = 1,\n B = \"12q\" }\n", 3, "");
        wrong("[[tune]]\n[tune.set]\nA = 1\nB = \"12q\"\n", 4, "B: `12q`: unknown suffix");
        wrong("[[tune]]\n[tune.set]\nA = 1\nA = 2\n", 4, "duplicate");
        wrong("\n[[tune]]\ncomm = \"x\"\n", 2, "either `set");
        wrong("[[tune]]\nset = {}\n", 1, "no constant");
        wrong("[[tune]]\nset = { A = 1 }\nname = \"x\"\n", 3, "only a policy");
        wrong("[[tune]]\nset = { A = 1 }\nmode = \"later\"\n", 3, "`later` is no mode: now");
        wrong("[[tune]]\nset = { A = 1 }\nbackend = \"ftrace\"\n", 3, "`ftrace` is no backend: kprobe");
        wrong("[[tune]]\nset = { A = 1 }\nlease = \"soon\"\n", 3, "lease: ");
        wrong("[[tune]]\npolicy = \"p.bpf.o\"\nuid = 0\n", 1, "says itself");
        wrong("[[tune]]\nset = { A = 1 }\nuid = 0\nbackend = \"patch\"\n", 1, "for each execution");
        wrong("[[tune]]\nset = { A = 1 }\nuid = -1\n", 3, "");
    }

    #[test]
    fn a_folder_means_its_files_by_name() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["20-b.toml", "10-a.toml", "a.toml.old", "README"] {
            fs::write(folder.path().join(name), "").unwrap();
        }
        fs::create_dir(folder.path().join("d.toml")).unwrap();
        let found = files(folder.path()).unwrap();
        assert_eq!(found, ["10-a.toml", "20-b.toml"].map(|name| folder.path().join(name)));
        assert_eq!(files(&found[0]).unwrap(), found[..1]);
        assert!(files(Path::new("/no/such/folder")).is_err());
    }
}
