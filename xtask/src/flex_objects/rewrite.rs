//! Rewrites a selftest in both forms. Where a function cannot be rewritten, its loops are left alone, and the reason is
//! noted, so that the others of the object are instrumented.

use std::collections::BTreeSet;
use std::panic::catch_unwind;

use anyhow::{Context, Result};
use clap::ValueEnum;
use xk_flex::{rewrite, Choice, Done, Error, LoopReport, Rewritten};

/// What is changed in rewritten objects, to see that the comparison fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Broken {
    /// Runs that end early forget to release the last thing that they hold
    Release,
    /// Runs that end early return a register that nothing has set
    Instruction,
}

/// What the rewriter made of an object.
#[derive(Debug, Default)]
pub struct Made {
    /// The object; nothing if it is refused as a whole.
    pub bytes: Option<Vec<u8>>,
    /// Loops that count their turns,
    pub instrumented: usize,
    /// and the others.
    pub left: usize,
    /// Looks in all.
    pub looks: usize,
    /// Why functions, or at last the object, are refused.
    pub refusals: Vec<Refusal>,
    /// A panic.
    pub panic: bool,
}

/// Why something is not rewritten.
#[derive(Debug, Clone)]
pub struct Refusal {
    /// In general.
    pub reason: String,
    /// In the words of the rewriter.
    pub words: String,
}

/// A rewrite, in which a panic is a fault.
fn attempt(bytes: &[u8], choice: &Choice) -> Option<Result<Rewritten, Error>> {
    catch_unwind(|| rewrite(bytes, choice)).ok()
}

/// Rewrites with the default choice.
#[must_use]
pub fn by_default(bytes: &[u8]) -> Made {
    let mut made = Made::default();
    match attempt(bytes, &Choice::default()) {
        None => made.panic = true,
        Some(Ok(rewritten)) => made.take(rewritten),
        Some(Err(error)) => made.refusals.push(refusal(&error)),
    }
    made
}

/// Instruments every loop, except in functions that are refused. Functions in `branches` also look at a branch.
#[must_use]
pub fn every_loop(bytes: &[u8], branches: BTreeSet<String>) -> Made {
    let mut made = Made::default();
    let mut choice = Choice { all: true, branches, ..Choice::default() };
    let mut given_up: BTreeSet<String> = BTreeSet::new();
    loop {
        let error = match attempt(bytes, &choice) {
            None => {
                made.panic = true;
                return made;
            }
            Some(Ok(rewritten)) => {
                made.take(rewritten);
                return made;
            }
            Some(Err(error)) => error,
        };
        made.refusals.push(refusal(&error));
        let Some(function) = function(&error) else { return made };
        if given_up.insert(function.to_owned()) {
            choice.branches.remove(function);
            choice.leave.extend(places(bytes, function));
        } else if choice.branches.is_empty() {
            return made;
        } else {
            // It calls a function that cannot be left there.
            choice.branches.clear();
        }
    }
}

impl Made {
    fn take(&mut self, rewritten: Rewritten) {
        let is_instrumented = |found: &&LoopReport| found.done == Done::Instrumented;
        self.instrumented = rewritten.loops.iter().filter(is_instrumented).count();
        self.left = rewritten.loops.len() - self.instrumented;
        self.looks = rewritten.looks.len();
        self.bytes = Some(rewritten.bytes);
    }
}

/// Where the loops of a function begin.
fn places(bytes: &[u8], function: &str) -> Vec<String> {
    let nothing = Choice { only: Some(BTreeSet::new()), ..Choice::default() };
    let loops = attempt(bytes, &nothing).and_then(Result::ok).map(|rewritten| rewritten.loops);
    let own = loops.into_iter().flatten().filter(|found| found.function == function);
    own.map(|found| found.place).collect()
}

/// The functions of an object, without what the header defines.
///
/// # Errors
/// When the bytes are no object.
pub fn functions(bytes: &[u8]) -> Result<BTreeSet<String>> {
    use object::{Object, ObjectSymbol, SymbolKind};

    let file = object::File::parse(bytes)?;
    let functions = file.symbols().filter(|symbol| symbol.kind() == SymbolKind::Text && symbol.is_definition());
    let names = functions.filter_map(|symbol| symbol.name().ok().map(str::to_owned));
    Ok(names.filter(|name| name != "xk_flex_look").collect())
}

/// The function that is refused.
fn function(error: &Error) -> Option<&str> {
    match error {
        Error::Held { function, .. }
        | Error::Function { function, .. }
        | Error::Stack { function, .. }
        | Error::TooFar { function, .. } => Some(function),
        _ => None,
    }
}

fn refusal(error: &Error) -> Refusal {
    let reason = match error {
        Error::Object(reason) if reason.contains("compile it with -g") => "no source lines".into(),
        Error::Object(reason) if reason.contains("belongs to no function") => "code that belongs to no function".into(),
        Error::Object(_) => "the object".into(),
        Error::Unknown { code, .. } => format!("unknown instruction {code:#04x}"),
        Error::Leaves { .. } => "control leaves a function".into(),
        Error::Irreducible { .. } => "irreducible flow".into(),
        Error::Held { what, reason, .. } => format!("{what} is held: {reason}"),
        Error::NoHeader { .. } => "a loop, and no header".into(),
        Error::Function { reason, .. } => reason.split(':').next().unwrap_or(reason).to_owned(),
        Error::Stack { reason, .. } if reason.starts_with("it would") => "the frame is too large".into(),
        Error::Stack { reason, .. } => reason.clone(),
        Error::TooFar { .. } => "a jump does not reach".into(),
        other => other.to_string(),
    };
    Refusal { reason, words: error.to_string() }
}

const SIZE: usize = 8;

/// An instruction without its number, as the rewriter writes it.
fn is(insn: &[u8], code: u8, registers: u8) -> bool {
    insn.starts_with(&[code, registers])
}

/// Damages what the rewriter wrote; false if there is nothing to damage.
///
/// # Errors
/// When the bytes are no object.
pub fn damage(bytes: &mut [u8], how: Broken) -> Result<bool> {
    let mut damaged = false;
    for (start, end) in code(bytes)? {
        let Some(code) = bytes.get_mut(start..end) else { continue };
        let insns = code.len() / SIZE;
        for at in 0..insns.saturating_sub(2) {
            let [first, second, third] = [0, 1, 2].map(|next| &code[(at + next) * SIZE..(at + next + 1) * SIZE]);
            let nothing = third[4..] == [0; 4];
            match how {
                // r2 = 0; call; goto out. What replaces the first jumps over the call if the look said that the run ends.
                Broken::Release if is(first, 0xb7, 2) && second[0] == 0x85 && is(third, 0x05, 0) && nothing => {
                    code[at * SIZE..(at + 1) * SIZE].copy_from_slice(&[0x55, 0, 1, 0, 0, 0, 0, 0]);
                }
                // goto out; out: r0 = 0; exit
                Broken::Instruction
                    if *first == [5, 0, 0, 0, 0, 0, 0, 0] && is(second, 0xb7, 0) && is(third, 0x95, 0) =>
                {
                    code[(at + 1) * SIZE..(at + 2) * SIZE].copy_from_slice(&[0xbf, 0x10, 0, 0, 0, 0, 0, 0]);
                }
                _ => continue,
            }
            damaged = true;
        }
    }
    Ok(damaged)
}

/// Where the instructions of an object are.
fn code(bytes: &[u8]) -> Result<Vec<(usize, usize)>> {
    use object::{Object, ObjectSection, SectionKind};

    let file = object::File::parse(bytes).context("a rewritten object")?;
    let code = file.sections().filter(|section| section.kind() == SectionKind::Text);
    let ranges = code.filter_map(|section| section.file_range());
    let ranges =
        ranges.filter_map(|(start, len)| Some((usize::try_from(start).ok()?, usize::try_from(start + len).ok()?)));
    Ok(ranges.collect())
}
