//! Loading by need: loops are instrumented only if the verifier gives up at a loop.
//!
//! First the object is loaded as it is. If the verifier gives up, all loops that are not evidently counted are
//! instrumented and widened: if the verifier knows the numbers that a loop writes, it may follow every turn, which takes
//! minutes. If it refuses that for another reason, for example a bound that it no longer knows, they are instrumented
//! only. At last, counted loops are added in the same way. What it refuses with unrolled loops, it is asked to accept
//! without.

use std::collections::BTreeSet;

use libbpf_rs::{Object as Loader, ObjectBuilder};
use xk_policy::{explain, listening};

use crate::choose::{Choice, Done, LoopReport};
use crate::elf::Object;
use crate::heap::check_address;
use crate::{rewrite, Error, Rewritten};

/// What the verifier says when a loop is too much for it.
const GIVES_UP: [&str; 4] =
    ["infinite loop detected", "jumps is too complex", "program is too large", "back-edge from insn"];

/// Only statistics: the whole log of a loop that is followed to the limit is long.
const STATISTICS: u32 = 4;

/// What libbpf calls the object.
pub const NAME: &str = "xk_flex";

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
        let mut open = builder.name(NAME).and_then(|builder| builder.open_memory(bytes))?;
        open.progs_mut().for_each(|mut program| program.set_log_level(level));
        open.load()
    });
    loaded.map_err(|error| if said.is_empty() { error.to_string() } else { said })
}

/// Loads an object into the kernel, with as few instrumented loops as the verifier accepts. Of the choice, the loops to
/// leave alone and the unrolling count.
///
/// # Errors
/// The kernel refuses it for another reason, or a loop that it refuses cannot be instrumented.
pub fn load(bytes: &[u8], choice: &Choice) -> Result<Loaded, Error> {
    crate::elf::header(bytes)?;
    // What cannot be opened is explained below.
    if let Ok(open) = ObjectBuilder::default().open_memory(bytes) {
        check_address(&open)?;
    }
    let (object, rewritten, attempts) = search(bytes, choice, attempt)?;
    Ok(Loaded { object, rewritten, attempts })
}

/// Asks the kernel. What it accepts, how that was rewritten, and how often it was asked.
fn search<T>(
    bytes: &[u8],
    choice: &Choice,
    mut ask: impl FnMut(&[u8], u32) -> Result<T, String>,
) -> Result<(T, Rewritten, usize), Error> {
    let (mut attempts, mut only) = (1, BTreeSet::new());
    let first = first(bytes, choice)?;
    let mut said = match ask(&first.bytes, STATISTICS) {
        Ok(object) => return Ok((object, first, attempts)),
        Err(said) => said,
    };
    let mut refused = vec![first.bytes];
    for (all, widen) in [(false, true), (false, false), (true, true), (true, false)] {
        if widen {
            if !gives_up(&said) || !add(bytes, &Choice { all, only: None, ..choice.clone() }, &mut only)? {
                continue;
            }
        } else if only.is_empty() || gives_up(&said) {
            continue;
        }
        for unroll in [choice.unroll, 1] {
            let choice = Choice { only: Some(only.clone()), all, widen, unroll, ..choice.clone() };
            let rewritten = rewrite(bytes, &choice)?;
            if refused.contains(&rewritten.bytes) {
                continue;
            }
            attempts += 1;
            said = match ask(&rewritten.bytes, STATISTICS) {
                Ok(object) => return Ok((object, rewritten, attempts)),
                Err(said) => said,
            };
            refused.push(rewritten.bytes);
        }
    }
    let said = refused.last().and_then(|last| ask(last, 0).err()).unwrap_or(said);
    Err(explain(&said).into())
}

/// What is tried first: the object as it is. One with a heap does not notice what is not there then, and one with locks does
/// not work; its loops that wait are instrumented.
fn first(bytes: &[u8], choice: &Choice) -> Result<Rewritten, Error> {
    // What cannot be read is explained later.
    if Object::read(bytes).is_ok_and(|object| object.this_run().is_some() || object.begin().is_some()) {
        return rewrite(bytes, &Choice { only: Some(BTreeSet::new()), ..choice.clone() });
    }
    Ok(Rewritten { bytes: bytes.to_vec(), loops: Vec::new(), looks: Vec::new() })
}

fn gives_up(said: &str) -> bool {
    GIVES_UP.iter().any(|words| said.contains(words))
}

/// Adds loops to those to instrument; false if there are no others.
fn add(bytes: &[u8], choice: &Choice, only: &mut BTreeSet<(String, usize)>) -> Result<bool, Error> {
    let loops = rewrite(bytes, choice)?.loops;
    let before = only.len();
    only.extend(loops.iter().filter(|found| found.done == Done::Instrumented).map(key));
    Ok(only.len() > before)
}

fn key(found: &LoopReport) -> (String, usize) {
    (found.function.clone(), found.header)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::sample::compiled;

    const SOURCE: &str = "__attribute__((section(\"xdp\"))) int f(__u64 n) { __u64 m = 0;\n\
        while (m != n) { m += 3; asm volatile(\"\" : \"+r\"(n)); }\nreturn m; }\n";

    /// The objects that the verifier is asked to accept, by their numbers, if it accepts one of them.
    fn asked(accepted: Option<usize>) -> Vec<Option<usize>> {
        let bytes = compiled(SOURCE);
        let of = |unroll, widen| rewrite(&bytes, &Choice { unroll, widen, ..Choice::default() }).unwrap().bytes;
        let many = Choice::UNROLL;
        let order = [bytes.clone(), of(many, true), of(1, true), of(many, false), of(1, false)];
        let mut asked = Vec::new();
        let ask = |object: &[u8], _| {
            let number = order.iter().position(|other| other == object);
            asked.push(number);
            let said = if number == Some(0) { GIVES_UP[0] } else { "R1 type=scalar expected=fp" };
            if number == accepted {
                Ok(number)
            } else {
                Err(said.to_owned())
            }
        };
        match search(&bytes, &Choice::default(), ask) {
            Ok((found, rewritten, attempts)) => {
                assert_eq!((found, attempts), (accepted, asked.len()));
                assert!(accepted.is_some_and(|accepted| rewritten.bytes == order[accepted]));
            }
            Err(error) => assert!(accepted.is_none(), "{error}"),
        }
        asked
    }

    #[test]
    fn what_is_refused_is_tried_without_unrolling_and_then_without_widening() {
        let all: Vec<_> = (0..5).map(Some).collect();
        for accepted in 0..5 {
            assert_eq!(asked(Some(accepted)), all[..=accepted]);
        }
        assert_eq!(asked(None), [&all[..], &all[4..]].concat(), "the last is shown");
    }
}
