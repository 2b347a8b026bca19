//! Loading by need: loops are instrumented only if the verifier gives up at a loop.
//!
//! First the object is loaded as it is. If the verifier gives up, all loops that are not evidently counted are
//! instrumented and widened: if the verifier knows the numbers that a loop writes, it may follow every turn, which takes
//! minutes. If it refuses that for another reason, for example a bound that it no longer knows, they are instrumented
//! only. At last, counted loops are added in the same way.

use std::collections::BTreeSet;

use libbpf_rs::{Object as Loader, ObjectBuilder};
use xk_policy::{explain, listening};

use crate::heap::check_address;
use crate::plan::{Choice, Done, LoopReport};
use crate::{rewrite, Error, Rewritten};

/// What the verifier says when a loop is too much for it.
const GIVES_UP: [&str; 4] =
    ["infinite loop detected", "jumps is too complex", "program is too large", "back-edge from insn"];

/// Only statistics: the whole log of a loop that is followed to the limit is long.
const STATISTICS: u32 = 4;

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
    crate::elf::header(bytes)?;
    // What cannot be opened is explained below.
    if let Ok(open) = ObjectBuilder::default().open_memory(bytes) {
        check_address(&open)?;
    }
    let (mut attempts, mut only) = (1, BTreeSet::new());
    let mut said = match attempt(bytes, STATISTICS) {
        Ok(object) => {
            let rewritten = Rewritten { bytes: bytes.to_vec(), loops: Vec::new(), looks: Vec::new() };
            return Ok(Loaded { object, rewritten, attempts });
        }
        Err(said) => said,
    };
    let mut refused = bytes.to_vec();
    for (all, widen) in [(false, true), (false, false), (true, true), (true, false)] {
        if widen {
            if !gives_up(&said) || !add(bytes, all, leave, &mut only)? {
                continue;
            }
        } else if only.is_empty() || gives_up(&said) {
            continue;
        }
        let rewritten = rewrite(bytes, &Choice { only: Some(only.clone()), leave: leave.to_vec(), all, widen })?;
        if rewritten.bytes == refused {
            continue;
        }
        attempts += 1;
        said = match attempt(&rewritten.bytes, STATISTICS) {
            Ok(object) => return Ok(Loaded { object, rewritten, attempts }),
            Err(said) => said,
        };
        refused = rewritten.bytes;
    }
    let said = attempt(&refused, 0).err().unwrap_or(said);
    Err(explain(&said).into())
}

fn gives_up(said: &str) -> bool {
    GIVES_UP.iter().any(|words| said.contains(words))
}

/// Adds loops to those to instrument; false if there are no others.
fn add(bytes: &[u8], all: bool, leave: &[String], only: &mut BTreeSet<(String, usize)>) -> Result<bool, Error> {
    let loops = rewrite(bytes, &Choice { all, leave: leave.to_vec(), ..Choice::default() })?.loops;
    let before = only.len();
    only.extend(loops.iter().filter(|found| found.done == Done::Instrumented).map(key));
    Ok(only.len() > before)
}

fn key(found: &LoopReport) -> (String, usize) {
    (found.function.clone(), found.header)
}
