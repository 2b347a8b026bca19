//! Extensions that stay loaded when the process that loaded them ends.
//!
//! The kernel keeps what has a name in the BPF file system: `/sys/fs/bpf/xk-flex/NAME` names the maps, and what attaches
//! the programs. A process serves each extension: it gives the heap pages, notes which runs were ended, breaks the locks
//! of threads that died, and detaches the programs after too many ends. If it dies, programs go on without; another one
//! takes its place at any time.

mod pins;
mod record;
mod serve;

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use libbpf_rs::{MapCore, MapFlags, MapHandle};

use crate::control::nanoseconds;
use crate::elf::CONTROL_SECTION;
use crate::variables::{variables, Variables};
use crate::{attach, is_of_heap, Choice, Control, Error, Heap, Limits, Usage};
use pins::{Pins, PINS};
use record::{Files, FOLDER};

pub use record::{EndedThere, Look, Record, Seen};

/// How an extension is loaded.
#[derive(Debug, Clone)]
pub struct Options<'a> {
    /// What a person calls it: letters, digits, `_` and `-`.
    pub name: &'a str,
    /// The file, for people.
    pub file: &'a Path,
    /// When: seconds since 1970.
    pub now: i64,
    /// Which loops are left alone, and how often they are unrolled.
    pub choice: Choice,
    /// What runs are told.
    pub control: Control,
    /// How many bytes the heap may have, if not as many as the object declares.
    pub heap: Option<u64>,
    /// The number of the interface for programs of XDP.
    pub interface: Option<i32>,
    /// The programs are detached when so many runs were ended.
    pub most_ended: Option<u64>,
}

/// An extension that is loaded.
#[derive(Debug)]
pub struct Kept {
    name: String,
    pins: Pins,
    files: Files,
}

/// What is known of one.
#[derive(Debug)]
pub struct Status {
    /// What was loaded; nothing while it is loaded, or if that was interrupted.
    pub record: Option<Record>,
    /// What its server has seen.
    pub seen: Seen,
    /// The programs that are attached.
    pub attached: Vec<String>,
    /// Whether a process serves it.
    pub is_served: bool,
    /// What the last server said when it ended, if it said something.
    pub said: Option<String>,
    /// Its heap; nothing if it has none, or if something else is mapped at its address here.
    pub heap: Option<Usage>,
}

/// Removes what was made, unless all was.
struct Undo<'a> {
    kept: &'a Kept,
    has_pins: bool,
    is_done: bool,
}

impl Drop for Undo<'_> {
    fn drop(&mut self) {
        if self.is_done {
            return;
        }
        // There is an error to report already.
        if self.has_pins {
            _ = self.kept.pins.remove();
        }
        _ = self.kept.files.remove();
    }
}

impl Kept {
    /// Loads an object and attaches its programs, so that they stay. `serve` starts a process that calls
    /// [`Self::serve`], and returns when that is ready. On an error, nothing stays.
    ///
    /// # Errors
    /// There is one of this name, the kernel refuses something, or `serve` does.
    pub fn load<E: From<Error>>(
        bytes: &[u8],
        options: &Options<'_>,
        serve: impl FnOnce() -> Result<(), E>,
    ) -> Result<Record, E> {
        let kept = Self::named(options.name);
        if kept.pins.exist() || !kept.files.create()? {
            let reason = "there is an extension of this name: unload it first, or choose another name".into();
            return Err(Error::Kept { path: options.name.into(), reason }.into());
        }
        let mut undo = Undo { kept: &kept, has_pins: false, is_done: false };
        kept.pins.create()?;
        undo.has_pins = true;
        let mut loaded = crate::load(bytes, &options.choice)?;
        let limits = Limits { most: options.heap.unwrap_or(u64::MAX), ..Limits::default() };
        let heap = Heap::of(&loaded.object, limits)?.map(|heap| heap.usage().most);
        if options.heap.is_some() && heap.is_none() {
            return Err(
                Error::Heap("the object has none that could be limited: it does not use XK_HEAP()".into()).into()
            );
        }
        if loaded.rewritten.bytes != bytes {
            options.control.tell(&loaded.object)?;
        }
        kept.pins.pin_maps(&mut loaded.object)?;
        let names = loaded.object.progs().filter(libbpf_rs::ProgramImpl::autoload);
        let record = Record {
            name: options.name.into(),
            file: options.file.into(),
            loaded: options.now,
            programs: names
                .map(|program| program.name().to_string_lossy().into_owned())
                .filter(|name| !is_of_heap(name))
                .collect(),
            looks: loaded.rewritten.looks.iter().map(Look::from).collect(),
            heap,
            most_ended: options.most_ended,
            variables: variables(&loaded.rewritten.bytes),
        };
        kept.files.write_record(&record)?;
        serve()?;
        for (program, mut link) in attach(&loaded.object, options.interface)? {
            kept.pins.pin_link(&program, &mut link)?;
        }
        undo.is_done = true;
        Ok(record)
    }

    fn named(name: &str) -> Self {
        Self { name: name.into(), pins: Pins::of(name), files: Files::of(name) }
    }

    /// The extension of a name.
    ///
    /// # Errors
    /// [`Error::Kept`]: there is none.
    pub fn open(name: &str) -> Result<Self, Error> {
        let kept = Self::named(name);
        let is_name = !name.is_empty() && !name.contains('/') && name != "." && name != "..";
        if is_name && (kept.files.exist() || kept.pins.exist()) {
            return Ok(kept);
        }
        let known = match Self::names() {
            names if names.is_empty() => "none is loaded".to_owned(),
            names => format!("loaded are {}", names.join(", ")),
        };
        Err(Error::Kept { path: name.into(), reason: format!("no extension has this name: {known}") })
    }

    /// All of them, by name.
    #[must_use]
    pub fn all() -> Vec<Self> {
        Self::names().iter().map(|name| Self::named(name)).collect()
    }

    /// Also of those of which only a part is there.
    fn names() -> Vec<String> {
        let names: BTreeSet<String> = [FOLDER, PINS].into_iter().flat_map(|folder| names(Path::new(folder))).collect();
        names.into_iter().collect()
    }

    /// What a person calls it.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What is known of it.
    #[must_use]
    pub fn status(&self) -> Status {
        Status {
            record: self.files.record(),
            seen: self.files.seen(),
            attached: self.pins.attached().into_iter().filter(|name| !is_of_heap(name)).collect(),
            is_served: self.files.is_served(),
            said: self.said(),
            heap: self.heap().ok().flatten().map(|heap| heap.usage()),
        }
    }

    /// What its servers have seen.
    #[must_use]
    pub fn seen(&self) -> Seen {
        self.files.seen()
    }

    /// Whether a process serves it.
    #[must_use]
    pub fn is_served(&self) -> bool {
        self.files.is_served()
    }

    /// The file in which a process that serves it may write why it ends.
    #[must_use]
    pub fn log(&self) -> PathBuf {
        self.files.log()
    }

    /// What is in that file.
    #[must_use]
    pub fn said(&self) -> Option<String> {
        let said = fs::read_to_string(self.log()).ok()?;
        let said = said.trim();
        (!said.is_empty()).then(|| said.to_owned())
    }

    /// Its heap, mapped in this process.
    ///
    /// # Errors
    /// [`Error::Heap`]: something else is mapped there.
    pub fn heap(&self) -> Result<Option<Heap<'static>>, Error> {
        let most = self.files.record().and_then(|record| record.heap);
        let (Some(most), Some(maps)) = (most, Heap::maps(|name| self.pins.map(name))?) else { return Ok(None) };
        Heap::again(maps, Limits { most, ..Limits::default() }).map(Some)
    }

    /// One of its maps; nothing if it has none of this name.
    ///
    /// # Errors
    /// [`Error::Kept`]: the kernel refuses.
    pub fn map(&self, name: &str) -> Result<Option<MapHandle>, Error> {
        self.pins.map(name)
    }

    /// As long as this waits, every run ends at its next look. Then runs go on as before. If the process dies meanwhile,
    /// runs end until this is called again.
    ///
    /// # Errors
    /// [`Error::Kept`]: no loop of it looks.
    pub fn end_runs(&self, wait: impl FnOnce()) -> Result<(), Error> {
        self.terminate(true)?;
        wait();
        self.terminate(false)
    }

    /// Ends every run at its next look, also those that begin later, until it is called again and lets them go on.
    ///
    /// # Errors
    /// As [`Self::end_runs`].
    pub fn terminate(&self, is_to_end: bool) -> Result<(), Error> {
        self.tell(0, is_to_end.into())
    }

    /// How long runs may take from now on.
    ///
    /// # Errors
    /// As [`Self::end_runs`].
    pub fn set_deadline(&self, deadline: Option<Duration>) -> Result<(), Error> {
        self.tell(1, deadline.map_or(0, nanoseconds))
    }

    /// Its global variables, mapped in this process.
    ///
    /// # Errors
    /// [`Error::Control`]: one of their maps cannot be mapped.
    pub fn variables(&self) -> Result<Variables, Error> {
        let known = self.files.record().map(|record| record.variables).unwrap_or_default();
        Variables::new(known, |name| self.pins.map(name))
    }

    /// Writes a word of `struct xk_flex_control`.
    fn tell(&self, word: usize, to: u64) -> Result<(), Error> {
        let failed = |reason: String| Error::Kept { path: self.name.clone().into(), reason };
        let looks = self.files.record().is_some_and(|record| !record.looks.is_empty());
        let Some(map) = self.pins.map(CONTROL_SECTION)?.filter(|_| looks) else {
            return Err(failed("no loop of it looks whether its run is to end: its runs end by themselves".into()));
        };
        let key = 0_u32.to_ne_bytes();
        let value = map.lookup(&key, MapFlags::ANY).map_err(|error| failed(error.to_string()))?;
        let mut value = value.ok_or_else(|| failed("its control map is empty".into()))?;
        let place =
            value.get_mut(8 * word..8 * word + 8).ok_or_else(|| failed("its control map is too short".into()))?;
        place.copy_from_slice(&to.to_ne_bytes());
        map.update(&key, &value, MapFlags::ANY).map_err(|error| failed(error.to_string()))
    }

    /// Detaches its programs, ends their runs, and forgets it. Its heap goes with the last process that has mapped it.
    ///
    /// # Errors
    /// A name cannot be removed.
    pub fn unload(&self) -> Result<(), Error> {
        self.pins.detach()?;
        // Without looks, there is nothing to tell.
        _ = self.terminate(true);
        self.pins.remove()?;
        self.files.remove()
    }
}

/// What is in a folder, sorted; nothing if it cannot be read.
fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

fn failed(path: &Path, error: &io::Error) -> Error {
    Error::Kept { path: path.into(), reason: error.to_string() }
}
