//! The programs of an object in the kernel.

use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use libbpf_rs::{ErrorKind, Link, MapCore, Object, ObjectBuilder, PrintLevel};

use crate::{entries, verifier, Entry, Error};

/// What libbpf said; it has one voice for a process.
static SAID: Mutex<String> = Mutex::new(String::new());
/// One object at a time, so that what was said is of that object.
static TURN: Mutex<()> = Mutex::new(());

fn listen(_: PrintLevel, text: String) {
    SAID.lock().unwrap_or_else(PoisonError::into_inner).push_str(&text);
}

/// Does something with libbpf and returns what it said meanwhile.
pub fn listening<T>(work: impl FnOnce() -> T) -> (T, String) {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let before = libbpf_rs::set_print(Some((PrintLevel::Warn, listen)));
    let result = work();
    libbpf_rs::set_print(before);
    (result, std::mem::take(&mut *SAID.lock().unwrap_or_else(PoisonError::into_inner)))
}

/// An object that the kernel has verified. Nothing of it runs yet.
#[derive(Debug)]
pub struct Programs {
    object: Object,
    entries: Vec<Entry>,
}

/// Programs that run beside the policies, until this is dropped.
#[derive(Debug)]
pub struct Attached {
    links: Vec<(String, Link)>,
}

impl Attached {
    /// Their links.
    pub fn links(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.links.iter().map(|(_, link)| link.as_fd())
    }

    /// Their names.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.links.iter().map(|(name, _)| name.as_str())
    }
}

impl Programs {
    /// Hands the object to the kernel.
    ///
    /// # Errors
    /// [`Error::Object`]; [`Error::NoFunctions`], [`Error::Verifier`], [`Error::Forbidden`], [`Error::Load`].
    pub fn load(object: &[u8]) -> Result<Self, Error> {
        let entries = entries(object)?;
        let (loaded, said) = listening(|| {
            let mut builder = ObjectBuilder::default();
            builder
                .name("xk_policy")
                .and_then(|builder| builder.open_memory(object))
                .and_then(libbpf_rs::OpenObject::load)
        });
        match loaded {
            Ok(object) => Self { object, entries }.complete(),
            Err(_) => Err(verifier::explain(&said)),
        }
    }

    /// Every policy must be a program.
    fn complete(self) -> Result<Self, Error> {
        for entry in &self.entries {
            if self.program(entry).is_none() {
                let Entry { program, .. } = entry;
                return Err(Error::Object(format!("{}: there is no program {program}", entry.place())));
            }
        }
        Ok(self)
    }

    /// The policies, in the order of the file.
    #[must_use]
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// The program of a policy.
    #[must_use]
    pub fn program(&self, entry: &Entry) -> Option<BorrowedFd<'_>> {
        let mut programs = self.object.progs();
        let found = programs.find(|program| program.name().to_str() == Some(&entry.program))?;
        // SAFETY: the descriptor belongs to the object, which `self` holds.
        Some(unsafe { BorrowedFd::borrow_raw(std::os::fd::AsRawFd::as_raw_fd(&found.as_fd())) })
    }

    /// The number by which the kernel knows the program of a policy.
    ///
    /// # Errors
    /// [`Error::Load`]: there is no such program, or the kernel does not say.
    pub fn program_id(&self, entry: &Entry) -> Result<u32, Error> {
        let failed = |reason: String| Error::Load { what: entry.program.clone(), reason };
        let program = self.program(entry).ok_or_else(|| failed("there is no such program".into()))?;
        libbpf_rs::Program::id_from_fd(program).map_err(|error| failed(error.to_string()))
    }

    /// Lets every other program of the object run, where its section says.
    ///
    /// # Errors
    /// [`Error::Load`], [`Error::Forbidden`]: it cannot be attached there. None is then.
    pub fn attach(&self) -> Result<Attached, Error> {
        let mut links = Vec::new();
        for program in self.object.progs_mut() {
            let name = program.name().to_string_lossy().into_owned();
            if self.entries.iter().any(|entry| entry.program == name) {
                continue;
            }
            let section = program.section().to_string_lossy().into_owned();
            let (link, said) = listening(|| program.attach());
            let link = link.map_err(|error| {
                let what = format!("{name} cannot be attached (section {section})");
                let last = said.lines().last().map(|line| line.trim_start_matches("libbpf: ").to_owned());
                let reason = last.unwrap_or_else(|| error.to_string());
                match error.kind() {
                    ErrorKind::PermissionDenied => Error::Forbidden { what, reason },
                    _ => Error::Load { what, reason },
                }
            })?;
            links.push((name, link));
        }
        Ok(Attached { links })
    }

    /// A map by its name.
    #[must_use]
    pub fn map(&self, name: &str) -> Option<libbpf_rs::Map<'_>> {
        self.object.maps().find(|map| map.name().to_str() == Some(name))
    }

    /// Shows the maps as files of `folder`, in a BPF file system.
    ///
    /// # Errors
    /// [`Error::Load`].
    pub fn pin(&mut self, folder: &Path) -> Result<(), Error> {
        for mut map in self.object.maps_mut() {
            let name = map.name().to_string_lossy().into_owned();
            // What the compiler made of constants and variables.
            if name.contains('.') {
                continue;
            }
            let path = folder.join(&name);
            let (pinned, said) = listening(|| map.pin(&path));
            pinned
                .map_err(|error| Error::Load { what: path.display().to_string(), reason: format!("{error} {said}") })?;
        }
        Ok(())
    }
}
