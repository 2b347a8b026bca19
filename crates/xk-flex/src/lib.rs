//! Extensions: eBPF objects with loops that the kernel's verifier refuses, rewritten so that it accepts them, and so
//! that each run can be ended.
//!
//! In: an object of clang. Out: an object that any libbpf loads. At each back edge of a chosen loop, the program counts
//! its turns, and now and then looks at the time and at a word of user space. Short loops are unrolled first. A run that
//! is to end releases what it holds, and leaves with the default of its hook. Refused is what cannot be left soundly,
//! with function and source line. The verifier of the kernel judges what is written; a fault of this crate is an object
//! that does not load.

mod attach;
mod calls;
mod choose;
mod code;
mod control;
mod counted;
mod elf;
mod emit;
mod error;
mod ext;
mod fault;
mod flow;
mod heap;
mod inserts;
mod insn;
pub mod kept;
mod need;
mod plan;
mod release;
#[cfg(test)]
mod sample;
mod track;
mod types;
mod unroll;
mod variables;
mod who;
mod write;

pub use attach::{attach, is_of_heap};
pub use choose::{Choice, Done, LoopReport, Rolled};
pub use control::{take_ended, unreported, Control, Ended, Why};
pub use error::Error;
pub use fault::Fault;
pub use heap::{Broken, Damage, DamageKind, Damages, DebugObject, Heap, Limits, Lock, LockGuard, RwLock, Site, Usage};
pub use need::{load, Loaded};
pub use plan::LookReport;
pub use variables::{Place, Variable, Variables};
pub use who::{Locks, Released, Who};

use choose::Wanted;
use elf::Object;
use flow::Graph;
use plan::Plan;

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
    let object = Object::read(bytes)?;
    if object.is_rewritten() {
        return Err(Error::Object("it was rewritten before; rewrite the object that clang wrote".into()));
    }
    let graphs = flow::graphs(&object)?;
    let mut loops = choose::choose(&object, &graphs, choice)?;
    if loops.iter().any(|found| found.copies > 1) {
        match unrolled(&object, &graphs, &mut loops, choice) {
            Ok((bytes, looks)) => return Ok(Rewritten { bytes, loops, looks }),
            Err(error) => loops.iter_mut().for_each(|found| found.roll(&Rolled::Failed(error.to_string()))),
        }
    }
    let wanted: Vec<Wanted> = loops.iter().filter_map(LoopReport::wanted).collect();
    let (bytes, looks) = instrumented(&object, &graphs, &wanted, &mut loops, choice)?;
    Ok(Rewritten { bytes, loops, looks })
}

/// An object, and its looks.
type Written = (Vec<u8>, Vec<LookReport>);

/// First unrolls loops, then rewrites that object.
fn unrolled(object: &Object, graphs: &[Graph], loops: &mut [LoopReport], choice: &Choice) -> Result<Written, Error> {
    let wanted: Vec<Wanted> = loops.iter().filter_map(LoopReport::wanted).collect();
    let (object, wanted) = unroll::unroll(object, graphs, &wanted)?;
    instrumented(&object, &flow::graphs(&object)?, &wanted, loops, choice)
}

/// Instruments these loops. `loops` are all, in the same order; the costs are noted there.
fn instrumented(
    object: &Object,
    graphs: &[Graph],
    wanted: &[Wanted],
    loops: &mut [LoopReport],
    choice: &Choice,
) -> Result<Written, Error> {
    let plan = Plan::new(object, graphs, wanted, choice)?;
    let bytes = if plan.is_empty() { object.bytes.clone() } else { write::write(object, &emit::emit(object, &plan)?)? };
    let own = loops.iter_mut().filter(|found| found.done == Done::Instrumented);
    own.zip(wanted).for_each(|(found, own)| found.cost = plan.cost(&graphs[own.function], own));
    Ok((bytes, plan.looks))
}
