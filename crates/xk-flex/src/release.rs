//! What a run that is ended releases, and how.

use crate::calls::{self, plain, Told};
use crate::elf::{Function, Object};
use crate::track::{release, words, Held, Place};
use crate::Error;

/// What a releasing call is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Argument {
    /// A reference, or NULL, which is not released.
    Reference(Place),
    /// An address in the frame.
    Address(i64),
    /// Nothing.
    Nothing,
}

/// A call that releases something.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Release {
    /// The number of a helper, or the symbol of a function of the kernel.
    pub callee: Callee,
    /// What it is told.
    pub argument: Argument,
    /// In words, for example `bpf_sk_release() of bpf_sk_lookup_tcp() at FILE.c:LINE`.
    pub words: String,
}

/// What is called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Callee {
    /// A helper by number.
    Helper(i32),
    /// A function of the kernel by its symbol.
    Kfunc(usize),
}

/// The releases of what is held before an instruction, the last that was acquired first. `after_call`: a call comes
/// between, and overwrites registers.
///
/// # Errors
/// [`Error::Held`]: something cannot be released there.
pub fn releases(
    object: &Object,
    function: &Function,
    at: usize,
    held: &[Held],
    after_call: bool,
) -> Result<Vec<Release>, Error> {
    let plan = |held: &Held| {
        one(object, function.code, held, after_call).map_err(|reason| {
            let (what, call) = words(object, function.code, held.call, held.kind);
            Error::Held {
                function: function.name.clone(),
                place: object.place(function.code, at),
                what,
                acquired: format!("{call} at {}", object.place(function.code, held.call)),
                reason,
            }
        })
    };
    held.iter().map(plan).collect()
}

fn one(object: &Object, code: usize, held: &Held, after_call: bool) -> Result<Release, String> {
    if held.kind == Some("spin lock") {
        return Err("while a spin lock is held, no function may be called".into());
    }
    if held.several {
        return Err("several of them may be held".into());
    }
    let (found, told) = release(object, code, held.call).ok_or("what releases it is not known")?;
    let (callee, name) = match found {
        calls::Release::Helper(number) => {
            (Callee::Helper(number), calls::helper_name(number).unwrap_or("a helper").to_owned())
        }
        calls::Release::Kfunc(name) => {
            let is_it = |symbol: &crate::elf::Symbol| symbol.section == 0 && plain(&symbol.name) == name;
            let symbol = object.symbols.iter().position(is_it);
            (Callee::Kfunc(symbol.ok_or_else(|| format!("the object does not use {name}(), which releases it"))?), name)
        }
    };
    let argument = match told {
        Told::Nothing => Argument::Nothing,
        Told::Address(_) => Argument::Address(held.address.ok_or("where in the frame it is, is not evident")?),
        Told::Reference => {
            let is_kept = |place: &Place| !after_call || !matches!(place, Place::Register(0..=5));
            let place = held.place.filter(is_kept);
            Argument::Reference(place.ok_or("in which register or slot of the frame it is, is not evident")?)
        }
    };
    let (_, call) = words(object, code, held.call, held.kind);
    Ok(Release { callee, argument, words: format!("{name}() of {call} at {}", object.place(code, held.call)) })
}
