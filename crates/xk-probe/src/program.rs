//! The programs of an object: which of them are probes, where, and their way into the kernel.
//!
//! In: an object with programs in sections `xk/WHERE`. Out: programs that the kernel has verified. Refuses an object
//! without such a program, and a section that names no place.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use libbpf_rs::{Object, ObjectBuilder, OpenObject, ProgramType};
use object::{Object as _, ObjectSection, ObjectSymbol};
use thiserror::Error;
use xk_policy::{explain, listening};

use crate::copies::{self, Copy};
use crate::operand::Operand;
use crate::place::{Class, Place, PlaceError};
use crate::places::Places;
use crate::taken::Taken;

/// What the sections of probes begin with.
const SECTION: &str = "xk/";
/// Calls of `bpf_trace_printk()` and `bpf_trace_vprintk()`.
const PRINTS: [i32; 2] = [6, 177];
/// The opcode of calls.
const CALL: u8 = 0x85;

/// Why the probes of an object cannot be used.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ProgramError {
    /// Its code does not compile, or the kernel does not take it.
    #[error(transparent)]
    Policy(#[from] xk_policy::Error),
    /// It is no object.
    #[error("not an object for eBPF: {0}")]
    NoObject(String),
    /// It has no probe.
    #[error("there is no program in a section `xk/WHERE`: write SEC(\"xk/FUNCTION+OFFSET\") before the function{0}")]
    NoProgram(String),
    /// A section names no place.
    #[error("section {section} of {program}: {error}")]
    Place {
        /// The section.
        section: String,
        /// The program.
        program: String,
        /// What is wrong.
        error: PlaceError,
    },
    /// A program names no place, and none was given.
    #[error("{program}: section {section} names no place: write SEC(\"xk/WHERE\"), or give the place with --at")]
    NoPlace {
        /// The section.
        section: String,
        /// The program.
        program: String,
    },
    /// It cannot be told what it asks for: which functions' addresses are taken, or where its places are.
    #[error("what the object asks for cannot be set in it: {0}")]
    Given(String),
    /// Places were given for several programs.
    #[error("--at gives places to one program, and the file has several: {}", programs.join(", "))]
    SeveralPrograms {
        /// Their names.
        programs: Vec<String>,
    },
}

/// A program, and where it runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Probe {
    /// Its name.
    pub program: String,
    /// Where it runs.
    pub places: Vec<Place>,
}

/// The probes of an object, by the names of their sections, without the kernel.
///
/// # Errors
/// [`ProgramError`], except [`ProgramError::Policy`].
pub fn probes(object: &[u8], at: &[Place], class: Option<&Class>) -> Result<Vec<Probe>, ProgramError> {
    let broken = |error: object::Error| ProgramError::NoObject(error.to_string());
    let file = object::File::parse(object).map_err(broken)?;
    if file.architecture() != object::Architecture::Bpf {
        return Err(ProgramError::NoObject("it was not compiled for eBPF".into()));
    }
    let mut found: Vec<(String, String)> = Vec::new();
    let mut others = Vec::new();
    for section in file.sections() {
        let name = section.name().map_err(broken)?;
        let mut here: Vec<_> = file
            .symbols()
            .filter(|symbol| symbol.section_index() == Some(section.index()))
            .filter(|symbol| symbol.kind() == object::SymbolKind::Text && symbol.is_global())
            .collect();
        here.sort_by_key(|symbol| symbol.address());
        for symbol in here {
            let program = symbol.name().map_err(broken)?.to_owned();
            match name == "xk" || name.starts_with(SECTION) {
                true => found.push((program, name.to_owned())),
                false => others.push(name.to_owned()),
            }
        }
    }
    if found.is_empty() {
        let others = if others.is_empty() { String::new() } else { format!("; its sections: {}", others.join(", ")) };
        return Err(ProgramError::NoProgram(others));
    }
    if at.is_empty() {
        return found.into_iter().map(|(program, section)| probe(program, section, class)).collect();
    }
    match <[_; 1]>::try_from(found) {
        Ok([(program, _)]) => Ok(vec![Probe { program, places: at.to_vec() }]),
        Err(several) => {
            Err(ProgramError::SeveralPrograms { programs: several.into_iter().map(|(program, _)| program).collect() })
        }
    }
}

/// The probe that a section describes.
fn probe(program: String, section: String, class: Option<&Class>) -> Result<Probe, ProgramError> {
    match places_of(&section, class) {
        Ok(places) if places.is_empty() => Err(ProgramError::NoPlace { section, program }),
        Ok(places) => Ok(Probe { program, places }),
        Err(error) => Err(ProgramError::Place { section, program, error }),
    }
}

/// The places in the name of a section, which commas separate.
///
/// # Errors
/// One of them is none.
pub fn places_of(section: &str, class: Option<&Class>) -> Result<Vec<Place>, PlaceError> {
    match section.strip_prefix(SECTION).unwrap_or_default() {
        "" => Ok(Vec::new()),
        text => text.split(',').map(|text| Place::parse(text.trim(), class)).collect(),
    }
}

/// What an object is told before it is loaded.
#[derive(Debug, Clone, Copy, Default)]
pub struct Given<'a> {
    /// The functions whose address is taken.
    pub taken: Option<&'a Taken>,
    /// The instructions at which it reads variables.
    pub places: Option<&'a Places>,
    /// The cookies of its calls: a program that looks up their targets is loaded once for each of their registers.
    pub calls: &'a [u64],
}

impl Given<'_> {
    fn prepare(&self, open: &mut OpenObject, object: &[u8]) -> Result<(), String> {
        self.taken.map_or(Ok(()), |taken| taken.prepare(open, object))?;
        self.places.map_or(Ok(()), |places| places.prepare(open, object))
    }
}

/// An object that the kernel has verified. Its probes run once they are attached.
#[derive(Debug)]
pub struct Programs {
    object: Object,
    copies: Vec<Copy>,
}

impl Programs {
    /// Hands the object to the kernel, its probes as programs of type kprobe.
    ///
    /// # Errors
    /// [`ProgramError::Policy`] with the reason of the verifier, or of libbpf.
    pub fn load(object: &[u8], probes: &[Probe]) -> Result<Self, ProgramError> {
        Self::load_with(object, probes, Given::default())
    }

    /// The same, and tells the programs what they ask for.
    ///
    /// # Errors
    /// As [`Programs::load`], and [`ProgramError::Given`].
    pub fn load_with(object: &[u8], probes: &[Probe], given: Given<'_>) -> Result<Self, ProgramError> {
        let mut all = Self { object: open(object, probes, given, |_| Ok(()))?, copies: Vec::new() };
        for register in copies::registers(object, given.calls) {
            let copied = open(object, probes, given, |open| copies::prepare(open, object, register, &all.object))?;
            all.copies.push(Copy { register, object: copied });
        }
        if let Some(taken) = given.taken {
            taken.fill(&all.object).map_err(|error| ProgramError::Given(error.to_string()))?;
        }
        Ok(all)
    }

    /// The program of a probe, for any place.
    #[must_use]
    pub fn program(&self, probe: &Probe) -> Option<BorrowedFd<'_>> {
        Self::of(&self.object, probe)
    }

    /// The programs of a probe, as an attachment takes them: first that for any place, then the copies for calls through
    /// one register.
    ///
    /// Nothing if the object has no such program.
    #[must_use]
    pub fn all(&self, probe: &Probe) -> Option<Vec<BorrowedFd<'_>>> {
        self.objects().map(|object| Self::of(object, probe)).collect()
    }

    /// Which of these runs at a place with this cookie.
    #[must_use]
    pub fn at(&self, cookie: u64) -> usize {
        let register = Operand::register_of(cookie);
        self.copies.iter().position(|copy| Some(copy.register) == register).map_or(0, |copy| copy + 1)
    }

    fn of<'a>(object: &'a Object, probe: &Probe) -> Option<BorrowedFd<'a>> {
        let found = object.progs().find(|program| program.name().to_str() == Some(&probe.program))?;
        // SAFETY: the descriptor belongs to the object, which is borrowed as long.
        Some(unsafe { BorrowedFd::borrow_raw(found.as_fd().as_raw_fd()) })
    }

    /// The objects of [`Programs::all`], in the same order.
    pub fn objects(&self) -> impl Iterator<Item = &Object> {
        std::iter::once(&self.object).chain(self.copies.iter().map(|copy| &copy.object))
    }

    /// The object, with all maps.
    #[must_use]
    pub fn object(&self) -> &Object {
        &self.object
    }
}

/// Hands an object to the kernel. `change` is called before.
fn open(
    object: &[u8],
    probes: &[Probe],
    given: Given<'_>,
    change: impl FnOnce(&mut OpenObject) -> Result<(), String>,
) -> Result<Object, ProgramError> {
    let mut refused = None;
    let (loaded, said) = listening(|| {
        let mut open = ObjectBuilder::default().name("xk_probe").and_then(|builder| builder.open_memory(object))?;
        prepare(&mut open, probes);
        refused = given.prepare(&mut open, object).and_then(|()| change(&mut open)).err();
        open.load()
    });
    match (refused, loaded) {
        (Some(reason), _) => Err(ProgramError::Given(reason)),
        (None, Ok(object)) => Ok(object),
        (None, Err(_)) => Err(explain(&said).into()),
    }
}

/// Makes the probes programs of type kprobe, and leaves everything else out: nothing would attach it.
fn prepare(open: &mut OpenObject, probes: &[Probe]) {
    for mut program in open.progs_mut() {
        let name = program.name().to_string_lossy().into_owned();
        if probes.iter().any(|probe| probe.program == name) {
            program.set_prog_type(ProgramType::Kprobe);
        } else {
            program.set_autoload(false);
        }
    }
}

/// Whether the code of an object prints to the kernel's trace.
#[must_use]
pub fn prints(object: &[u8]) -> bool {
    let Ok(file) = object::File::parse(object) else { return false };
    let code = file.sections().filter(|section| section.kind() == object::SectionKind::Text);
    code.filter_map(|section| section.data().ok()).any(|data| data.chunks_exact(8).any(is_print))
}

/// Opcode, registers, offset, number of the helper; helpers are register 0.
fn is_print(insn: &[u8]) -> bool {
    let number = i32::from_le_bytes([insn[4], insn[5], insn[6], insn[7]]);
    insn[0] == CALL && insn[1] >> 4 == 0 && PRINTS.contains(&number)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn sections_name_places() {
        let probe = |section: &str, class| probe("p".into(), section.into(), class).map(|probe| probe.places);
        let place = |text| Place::parse(text, None).unwrap();
        assert_eq!(probe("xk/vfs_write+0x5b", None).unwrap(), [place("vfs_write+0x5b")]);
        assert_eq!(probe("xk/vfs_*@return, ksys_read", None).unwrap(), [place("vfs_*@return"), place("ksys_read")]);
        assert_eq!(probe("xk/vfs_*", Some(&Class::Call)).unwrap(), [place("vfs_*@call")]);
        for (section, words) in [
            ("xk/", "names no place"),
            ("xk", "names no place"),
            ("xk/vfs_*", "section xk/vfs_* of p: vfs_* is a pattern"),
            ("xk/a,", "names no function"),
        ] {
            let message = probe(section, None).unwrap_err().to_string();
            assert!(message.contains(words), "{section}: {message}");
        }
    }

    #[test]
    fn calls_that_print_are_known() {
        assert!(is_print(&[CALL, 0, 0, 0, 6, 0, 0, 0]), "bpf_trace_printk");
        assert!(is_print(&[CALL, 0, 0, 0, 177, 0, 0, 0]), "bpf_trace_vprintk");
        assert!(!is_print(&[CALL, 0x10, 0, 0, 6, 0, 0, 0]), "a call within the program");
        assert!(!is_print(&[CALL, 0, 0, 0, 1, 0, 0, 0]));
    }

    #[test]
    fn what_is_no_object_is_refused() {
        for bytes in [&b""[..], b"\x7fELF", &[0; 4096]] {
            let message = probes(bytes, &[], None).unwrap_err().to_string();
            assert!(message.starts_with("not an object for eBPF: "), "{message}");
        }
    }
}
