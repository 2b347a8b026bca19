//! What a file of `/etc/xk.d` declares: text in, entries with their lines out.
//!
//! This stage does not know whether a constant exists, or whether it can have the value. It refuses what makes no sense by
//! itself, and names the line: syntax, unknown keys, an entry without constants, a policy with conditions.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;
use thiserror::Error;
use toml::Spanned;
use xk_policy::Whom;
use xk_runtime::{BackendChoice, Mode};
use xk_table::{Quantity, QuantityError};

use crate::place::{At, Place};
use crate::time::{parse_time, TimeError};

/// Why a file declares nothing.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum FileError {
    /// The file or directory cannot be read.
    #[error("{}: {error}", path.display())]
    Unreadable {
        /// Its path.
        path: PathBuf,
        /// The error of the operating system.
        error: io::Error,
    },
    /// The parser names no line.
    #[error("{}: {message}", path.display())]
    Syntax {
        /// The file.
        path: PathBuf,
        /// The message of the parser.
        message: String,
    },
    /// A line is wrong.
    #[error(transparent)]
    Line(#[from] At<LineError>),
}

/// What is wrong with a line.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum LineError {
    /// It is not TOML, or has an unknown key.
    #[error("{message}")]
    Syntax {
        /// The message of the parser.
        message: String,
    },
    /// A word is not one of those that are possible.
    #[error("`{word}` is no {what}: {}", known.join(", "))]
    Word {
        /// The word.
        word: String,
        /// What it should be.
        what: &'static str,
        /// The words that are possible.
        known: Vec<String>,
    },
    /// The lease is not a time.
    #[error("lease: {0}")]
    Lease(TimeError),
    /// The text is not a value.
    #[error("{constant}: {error}")]
    Value {
        /// The constant.
        constant: String,
        /// Why.
        error: QuantityError,
    },
    /// An entry declares neither values nor a policy, or both.
    #[error("a [[tune]] has either `set = {{ NAME = VALUE }}` or `policy = \"FILE\"`")]
    ValuesOrPolicy,
    /// An entry declares no value.
    #[error("`set` names no constant")]
    NoConstant,
    /// An entry with values has a name.
    #[error("only a policy has a name")]
    NameOfValues,
    /// An entry with a policy has conditions.
    #[error("the program of a policy decides whom a value is for: remove pid, comm, …")]
    ConditionsOfPolicy,
    /// The backend is `patch`, and the value is chosen for each execution.
    #[error(
        "the values of policies, and values for some only, are chosen for each execution, and patched instructions hold \
         the same value for all: remove `backend`, or write \"auto\""
    )]
    PatchForSome,
}

/// One `[[tune]]`.
#[derive(Debug)]
pub struct Entry {
    /// Its first line.
    pub place: Place,
    /// Values, or a policy.
    pub what: What,
    /// Whom the values are for.
    pub whom: Whom,
    /// Mode of the transition; `None`: the weakest that the constants need.
    pub mode: Option<Mode>,
    /// The requested backend.
    pub backend: BackendChoice,
    /// Time after which the tunes end.
    pub lease: Option<Duration>,
}

/// What an entry declares.
#[derive(Debug)]
pub enum What {
    /// Values.
    Values(Vec<Assignment>),
    /// Policies of a file.
    Policy {
        /// The file.
        file: PathBuf,
        /// Its name; `None`: the name of the file.
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
    /// Its line.
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

/// The files that `path` means: itself, or every `*.toml` of a directory by name.
///
/// # Errors
/// It cannot be read.
pub fn files(path: &Path) -> Result<Vec<PathBuf>, FileError> {
    let failed = |error| FileError::Unreadable { path: path.to_owned(), error };
    if !fs::metadata(path).map_err(failed)?.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let entries = fs::read_dir(path).map_err(failed)?;
    let mut files = entries.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<_>>>().map_err(failed)?;
    files.retain(|file| file.extension().is_some_and(|extension| extension == "toml") && file.is_file());
    files.sort();
    Ok(files)
}

/// Reads the entries of a file.
///
/// # Errors
/// [`FileError`], with the line.
pub fn read(file: &Path) -> Result<Vec<Entry>, FileError> {
    let text = fs::read_to_string(file).map_err(|error| FileError::Unreadable { path: file.to_owned(), error })?;
    parse(file, &text)
}

fn parse(file: &Path, text: &str) -> Result<Vec<Entry>, FileError> {
    let at = |offset: usize| Place {
        file: file.to_owned(),
        line: 1 + text.bytes().take(offset).filter(|&byte| byte == b'\n').count(),
    };
    let document: Document = toml::from_str(text).map_err(|error| {
        let message = error.message().trim().replace('\n', ", ");
        match error.span() {
            Some(span) => FileError::Line(at(span.start).at(LineError::Syntax { message })),
            None => FileError::Syntax { path: file.to_owned(), message },
        }
    })?;
    let entries = document.tune.into_iter().map(|raw| entry(raw, &at));
    Ok(entries.collect::<Result<_, _>>()?)
}

type LineResult<T> = Result<T, At<LineError>>;

fn entry(raw: Spanned<Raw>, at: &dyn Fn(usize) -> Place) -> LineResult<Entry> {
    const MODES: [Mode; 3] = [Mode::Now, Mode::Task, Mode::Global];
    const BACKENDS: [BackendChoice; 4] =
        [BackendChoice::Kprobe, BackendChoice::Detour, BackendChoice::Patch, BackendChoice::Auto];
    let place = at(raw.span().start);
    let raw = raw.into_inner();
    let mode = choice(raw.mode, "mode", &MODES, at)?;
    let backend = choice(raw.backend, "backend", &BACKENDS.map(Word), at)?;
    let parse_lease = |text: Spanned<String>| {
        parse_time(text.get_ref()).map_err(|error| at(text.span().start).at(LineError::Lease(error)))
    };
    let lease = raw.lease.map(parse_lease).transpose()?;
    let what = match (raw.set, raw.policy) {
        (Some(set), None) => What::Values(assignments(set, at)?),
        (None, Some(policy)) => {
            let folder = place.file.parent().unwrap_or(Path::new("."));
            What::Policy { file: folder.join(policy.get_ref()), name: raw.name.as_ref().map(|n| n.get_ref().clone()) }
        }
        _ => return Err(place.at(LineError::ValuesOrPolicy)),
    };
    let whom = Whom {
        pid: raw.pid.into(),
        comm: raw.comm.into(),
        uid: raw.uid.into(),
        cgroup: raw.cgroup.into(),
        netns: raw.netns.into(),
        dev: raw.dev.into(),
    };
    let backend = backend.map_or(BackendChoice::Kprobe, |Word(backend)| backend);
    let entry = Entry { place, what, whom, mode, backend, lease };
    refuse_senseless(&entry, raw.name.as_ref().map(|name| at(name.span().start)))?;
    Ok(entry)
}

/// A backend, displayed by its word.
#[derive(Clone, Copy)]
struct Word(BackendChoice);

impl fmt::Display for Word {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.word())
    }
}

/// The one of `known` that is displayed as the given word.
fn choice<T: fmt::Display + Copy>(
    given: Option<Spanned<String>>,
    what: &'static str,
    known: &[T],
    at: &dyn Fn(usize) -> Place,
) -> LineResult<Option<T>> {
    let Some(given) = given else { return Ok(None) };
    let place = at(given.span().start);
    let word = given.into_inner();
    match known.iter().find(|item| item.to_string() == word) {
        Some(item) => Ok(Some(*item)),
        None => {
            let known = known.iter().map(ToString::to_string).collect();
            Err(place.at(LineError::Word { word, what, known }))
        }
    }
}

fn assignments(
    set: BTreeMap<Spanned<String>, Spanned<Scalar>>,
    at: &dyn Fn(usize) -> Place,
) -> LineResult<Vec<Assignment>> {
    let mut all: Vec<_> = set.into_iter().collect();
    // In the order of the file.
    all.sort_by_key(|(name, _)| name.span().start);
    let assignment = |(name, value): (Spanned<String>, Spanned<Scalar>)| {
        let place = at(name.span().start);
        let constant = name.into_inner();
        let quantity = match value.into_inner() {
            Scalar::Number(number) => Quantity::Number(number.into()),
            Scalar::Text(text) => match text.parse() {
                Ok(quantity) => quantity,
                Err(error) => return Err(place.at(LineError::Value { constant, error })),
            },
        };
        Ok(Assignment { constant, quantity, place })
    };
    all.into_iter().map(assignment).collect()
}

/// Refuses an entry that is valid TOML and has no meaning. `name` is the line of its name, if it has one.
fn refuse_senseless(entry: &Entry, name: Option<Place>) -> LineResult<()> {
    let decides = match &entry.what {
        What::Values(values) if values.is_empty() => return Err(entry.place.at(LineError::NoConstant)),
        What::Values(_) => {
            if let Some(name) = name {
                return Err(name.at(LineError::NameOfValues));
            }
            !entry.whom.is_everybody()
        }
        What::Policy { .. } if !entry.whom.is_everybody() => {
            return Err(entry.place.at(LineError::ConditionsOfPolicy));
        }
        What::Policy { .. } => true,
    };
    if decides && entry.backend == BackendChoice::Patch {
        return Err(entry.place.at(LineError::PatchForSome));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn parsed(text: &str) -> Result<Vec<Entry>, FileError> {
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
        assert_eq!((entries[0].mode, entries[0].lease), (Some(Mode::Task), Some(Duration::from_secs(600))));
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
            let message = parsed(text).err().unwrap().to_string();
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
        wrong("[[tune]]\npolicy = \"p.bpf.o\"\nuid = 0\n", 1, "decides whom");
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
