//! What the kernel does not know of an extension: files in `/run/xk/flex/NAME`, which go with the next boot.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::errno::Errno;
use nix::fcntl::{fcntl, FcntlArg};
use serde::{Deserialize, Serialize};

use super::failed;
use crate::variables::Variable;
use crate::{Ended, Error, LookReport};

/// The folder of all extensions.
pub const FOLDER: &str = "/run/xk/flex";

/// What was loaded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// What a person calls it.
    pub name: String,
    /// The file.
    pub file: PathBuf,
    /// When: seconds since 1970.
    pub loaded: i64,
    /// Its programs.
    pub programs: Vec<String>,
    /// Places at which a run may be ended. There are none if the verifier accepts the object as it is.
    pub looks: Vec<Look>,
    /// How large its heap may be, in bytes, if it has one.
    pub heap: Option<u64>,
    /// Its programs are detached when so many runs were ended.
    pub most_ended: Option<u64>,
    /// Its global variables.
    #[serde(default)]
    pub variables: Vec<Variable>,
}

/// A place at which a run may be ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Look {
    /// The function.
    pub function: String,
    /// Its source line.
    pub place: String,
    /// What releases what is held there, in order.
    pub releases: Vec<String>,
    /// Its program returns there.
    #[serde(default)]
    pub returns: bool,
}

impl From<&LookReport> for Look {
    fn from(look: &LookReport) -> Self {
        let LookReport { function, place, releases, returns } = look.clone();
        Self { function, place, releases, returns }
    }
}

/// What its server has seen.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Seen {
    /// Runs that were ended, by place and reason.
    pub ended: Vec<EndedThere>,
    /// More runs were ended, of which nothing is known: the ring buffer was full.
    #[serde(default)]
    pub unreported: u64,
    /// Locks that threads held when they died.
    pub broken_locks: u64,
    /// Why the server has detached the programs, if it has.
    pub detached: Option<String>,
}

/// The runs that were ended at one place, for one reason.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndedThere {
    /// Number in [`Record::looks`].
    pub look: usize,
    /// Why.
    pub why: String,
    /// How many.
    pub runs: u64,
    /// The longest time that counted for a deadline, in nanoseconds.
    pub longest_ns: u64,
}

impl Seen {
    /// How many runs were ended.
    #[must_use]
    pub fn runs(&self) -> u64 {
        self.ended.iter().map(|there| there.runs).sum::<u64>() + self.unreported
    }

    pub(super) fn add(&mut self, ended: &Ended) {
        let why = ended.why.to_string();
        let spent = nanoseconds(ended.spent);
        match self.ended.iter_mut().find(|there| (there.look, &there.why) == (ended.look, &why)) {
            Some(there) => {
                there.runs += 1;
                there.longest_ns = there.longest_ns.max(spent);
            }
            None => self.ended.push(EndedThere { look: ended.look, why, runs: 1, longest_ns: spent }),
        }
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// The folder of one extension.
#[derive(Debug, Clone)]
pub struct Files(PathBuf);

impl Files {
    pub fn of(name: &str) -> Self {
        Self(Path::new(FOLDER).join(name))
    }

    /// False if there is one of this name.
    pub fn create(&self) -> Result<bool, Error> {
        fs::create_dir_all(FOLDER).map_err(|error| failed(Path::new(FOLDER), &error))?;
        match fs::create_dir(&self.0) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
            Err(error) => Err(failed(&self.0, &error)),
        }
    }

    pub fn exist(&self) -> bool {
        self.0.exists()
    }

    pub fn remove(&self) -> Result<(), Error> {
        match fs::remove_dir_all(&self.0) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(failed(&self.0, &error)),
            _ => Ok(()),
        }
    }

    pub fn write_record(&self, record: &Record) -> Result<(), Error> {
        self.write("record.json", record)
    }

    /// Nothing if it was not written yet, or cannot be read.
    pub fn record(&self) -> Option<Record> {
        self.read("record.json")
    }

    pub fn write_seen(&self, seen: &Seen) -> Result<(), Error> {
        self.write("seen.json", seen)
    }

    pub fn seen(&self) -> Seen {
        self.read("seen.json").unwrap_or_default()
    }

    fn read<T: for<'a> Deserialize<'a>>(&self, file: &str) -> Option<T> {
        serde_json::from_slice(&fs::read(self.0.join(file)).ok()?).ok()
    }

    /// A reader sees the old content or the new one.
    fn write(&self, file: &str, value: &impl Serialize) -> Result<(), Error> {
        let (path, fresh) = (self.0.join(file), self.0.join(format!(".{file}")));
        let write = || {
            File::create(&fresh)?.write_all(&serde_json::to_vec(value)?)?;
            fs::rename(&fresh, &path)
        };
        write().map_err(|error: io::Error| failed(&path, &error))
    }

    /// What its servers have to say.
    pub fn log(&self) -> PathBuf {
        self.0.join("server.log")
    }

    /// Becomes its only server; nothing if there is one.
    pub fn lock(&self) -> Result<Option<Serving>, Error> {
        let path = self.0.join("server");
        let file = File::create(&path).map_err(|error| failed(&path, &error))?;
        match fcntl(&file, FcntlArg::F_OFD_SETLK(&whole_file(libc::F_WRLCK))) {
            Ok(_) => Ok(Some(Serving { path, file })),
            Err(Errno::EAGAIN | Errno::EACCES) => Ok(None),
            Err(error) => Err(failed(&path, &error.into())),
        }
    }

    /// Whether a process serves it.
    ///
    /// The kernel is asked and no lock is taken, not even for a moment: it would turn away a server that begins in
    /// that moment.
    pub fn is_served(&self) -> bool {
        let mut lock = whole_file(libc::F_RDLCK);
        let asked =
            File::open(self.0.join("server")).is_ok_and(|file| fcntl(&file, FcntlArg::F_OFD_GETLK(&mut lock)).is_ok());
        asked && i32::from(lock.l_type) != libc::F_UNLCK
    }
}

/// A lock of a file from its first byte to its end, whatever its length. It belongs to the open file, as one of
/// `flock()` does.
fn whole_file(kind: i32) -> libc::flock {
    // The constants fit into the fields: fcntl(2).
    let [l_type, l_whence] = [kind, libc::SEEK_SET].map(|number| number as libc::c_short);
    libc::flock { l_type, l_whence, l_start: 0, l_len: 0, l_pid: 0 }
}

/// The lock of a server.
#[derive(Debug)]
pub struct Serving {
    path: PathBuf,
    file: File,
}

impl Serving {
    /// False as soon as the extension was unloaded, even if another one has its name by now.
    pub fn goes_on(&self) -> bool {
        let number = |found: io::Result<fs::Metadata>| found.map(|found| found.ino()).ok();
        number(fs::metadata(&self.path)) == number(self.file.metadata())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread;

    use super::*;
    use crate::Why;

    #[test]
    fn one_process_serves_until_the_folder_goes() {
        let folder = tempfile::tempdir().unwrap();
        let files = Files(folder.path().join("one"));
        fs::create_dir(&files.0).unwrap();
        assert!(!files.is_served());
        let serving = files.lock().unwrap().unwrap();
        assert!(files.is_served() && serving.goes_on());
        assert!(files.lock().unwrap().is_none());
        files.remove().unwrap();
        assert!(!serving.goes_on());
        fs::create_dir(&files.0).unwrap();
        let _other = files.lock().unwrap().unwrap();
        assert!(!serving.goes_on(), "another one has its name");
    }

    #[test]
    fn who_asks_for_its_server_keeps_nobody_from_serving() {
        let folder = tempfile::tempdir().unwrap();
        let files = Files(folder.path().to_owned());
        drop(files.lock().unwrap());
        let ended = AtomicBool::new(false);
        thread::scope(|scope| {
            let asking = scope.spawn(|| {
                while !ended.load(Ordering::Relaxed) {
                    files.is_served();
                }
            });
            let refused = (0..20_000).filter(|_| files.lock().unwrap().is_none()).count();
            ended.store(true, Ordering::Relaxed);
            asking.join().unwrap();
            assert_eq!(refused, 0);
        });
    }

    #[test]
    fn runs_are_counted_by_place_and_reason() {
        let ended = |look, why, spent| Ended {
            time: Duration::ZERO,
            spent: Duration::from_nanos(spent),
            look,
            why,
            locks: None,
            fault: None,
        };
        let mut seen = Seen::default();
        for (look, why, spent) in
            [(1, Why::Deadline, 5), (1, Why::Deadline, 3), (1, Why::Turns, 4), (0, Why::Deadline, 1)]
        {
            seen.add(&ended(look, why, spent));
        }
        assert_eq!((seen.runs(), seen.ended.len()), (4, 3));
        seen.unreported = 6;
        assert_eq!(seen.runs(), 10, "those of which nothing else is known are counted");
        assert_eq!((seen.ended[0].runs, seen.ended[0].longest_ns), (2, 5));
    }
}
