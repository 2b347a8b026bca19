//! Loading by need: loops are instrumented only if the verifier gives up at a loop.
//!
//! First the object is loaded as it is. If the verifier gives up, all loops that are not evidently counted are
//! instrumented, and at last these too.

use std::collections::BTreeSet;

use libbpf_rs::{Object as Loader, ObjectBuilder};
use xk_policy::{explain, listening};

use crate::plan::{Choice, Done, LoopReport};
use crate::{rewrite, Error, Rewritten};

/// What the verifier says when a loop is too much for it.
const GIVES_UP: [&str; 4] =
    ["infinite loop detected", "jumps is too complex", "program is too large", "back-edge from insn"];

/// An object in the kernel.
#[derive(Debug)]
pub struct Loaded {
    /// Its programs and maps. None is attached.
    pub object: Loader,
    /// What was loaded, with its loops.
    pub rewritten: Rewritten,
    /// How often the kernel was asked.
    pub attempts: usize,
}

fn attempt(bytes: &[u8], level: u32) -> Result<Loader, String> {
    let (loaded, said) = listening(|| {
        let mut builder = ObjectBuilder::default();
        let mut open = builder.name("xk_flex").and_then(|builder| builder.open_memory(bytes))?;
        open.progs_mut().for_each(|mut program| program.set_log_level(level));
        open.load()
    });
    loaded.map_err(|error| if said.is_empty() { error.to_string() } else { said })
}

/// Loads an object into the kernel, with as few instrumented loops as the verifier accepts.
///
/// # Errors
/// The kernel refuses it for another reason, or a loop that it refuses cannot be instrumented.
pub fn load(bytes: &[u8], leave: &[String]) -> Result<Loaded, Error> {
    const STATISTICS: u32 = 4;
    crate::elf::header(bytes)?;
    let mut only = BTreeSet::new();
    let mut attempts = 0;
    loop {
        attempts += 1;
        let choice = Choice { only: Some(only.clone()), leave: leave.to_vec(), all: false };
        let rewritten = match only.is_empty() {
            true => Rewritten { bytes: bytes.to_vec(), loops: Vec::new(), looks: Vec::new() },
            false => rewrite(bytes, &choice)?,
        };
        let said = match attempt(&rewritten.bytes, STATISTICS) {
            Ok(object) => return Ok(Loaded { object, rewritten, attempts }),
            Err(said) => said,
        };
        let more = if GIVES_UP.iter().any(|words| said.contains(words)) {
            next(bytes, &only, leave)?
        } else {
            BTreeSet::new()
        };
        if more.is_empty() {
            let said = attempt(&rewritten.bytes, 0).err().unwrap_or(said);
            return Err(explain(&said).into());
        }
        only.extend(more);
    }
}

/// The loops to instrument next.
fn next(bytes: &[u8], only: &BTreeSet<(String, usize)>, leave: &[String]) -> Result<BTreeSet<(String, usize)>, Error> {
    for all in [false, true] {
        let loops = rewrite(bytes, &Choice { all, leave: leave.to_vec(), only: None })?.loops;
        let wanted = loops.iter().filter(|found| found.done == Done::Instrumented).map(key);
        let new: BTreeSet<_> = wanted.filter(|found| !only.contains(found)).collect();
        if !new.is_empty() {
            return Ok(new);
        }
    }
    Ok(BTreeSet::new())
}

fn key(found: &LoopReport) -> (String, usize) {
    (found.function.clone(), found.header)
}
