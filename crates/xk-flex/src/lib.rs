//! Extensions: eBPF objects with loops that the kernel's verifier refuses, rewritten so that it accepts them, and so
//! that each run can be ended.
//!
//! In: an object of clang. Out: an object that any libbpf loads. At each back edge of a chosen loop, the program counts
//! its turns, and now and then looks at the time and at a word of user space. A run that is to end releases what it
//! holds, and leaves with the default of its hook. Refused is what cannot be left soundly, with function and source line.
//! The verifier of the kernel judges what is written; a fault of this crate is an object that does not load.

mod attach;
mod calls;
mod control;
mod counted;
mod elf;
mod emit;
mod error;
mod ext;
mod flow;
mod heap;
mod inserts;
mod insn;
mod need;
mod plan;
mod release;
mod track;
mod write;

pub use attach::attach;
pub use control::{take_ended, Control, Ended, Why};
pub use error::Error;
pub use heap::{Heap, Limits, Usage};
pub use need::{load, Loaded};
pub use plan::{Choice, Done, LookReport, LoopReport};

/// An object that was rewritten.
#[derive(Debug)]
pub struct Rewritten {
    /// The object. Without a loop to instrument, it is the one that was given.
    pub bytes: Vec<u8>,
    /// All loops, by function and place.
    pub loops: Vec<LoopReport>,
    /// All looks, by the numbers with which they report that they ended a run.
    pub looks: Vec<LookReport>,
}

/// Rewrites an object.
///
/// # Errors
/// What cannot be rewritten soundly.
pub fn rewrite(bytes: &[u8], choice: &Choice) -> Result<Rewritten, Error> {
    let object = elf::Object::read(bytes)?;
    if object.is_rewritten() {
        return Err(Error::Object("it was rewritten before; rewrite the object that clang wrote".into()));
    }
    let plan = plan::Plan::new(&object, choice)?;
    let bytes = if plan.is_empty() { bytes.to_vec() } else { write::write(&object, &emit::emit(&object, &plan)?)? };
    Ok(Rewritten { bytes, loops: plan.loops, looks: plan.looks })
}
