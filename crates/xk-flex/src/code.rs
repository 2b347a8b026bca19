//! The new instructions of a section, where the old ones are now, and where new jumps, calls and addresses lead.

use std::collections::{BTreeMap, BTreeSet};

use crate::elf::Object;
use crate::insn::{Flow, Insn};
use crate::Error;

/// A place in what is added to a function.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Label {
    /// Where it returns early.
    Out,
    /// Where a look, by its number in the function, goes when the kernel's limit is reached,
    Exhausted(usize),
    /// when it is time to look,
    Slow(usize),
    /// and from where it goes on.
    Resume(usize),
    /// What is released at a look,
    LeaveLook(usize),
    /// and after a call.
    LeaveCall(usize),
    /// Where a program returns that holds a lock.
    Kept(usize),
}

/// Where a jump goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fix {
    /// It is no jump.
    Nothing,
    /// To what is added.
    Label(Label),
    /// To an old instruction, with what is inserted before it.
    Jump(usize),
    /// To a new instruction.
    At(usize),
}

/// The instructions of a section.
#[derive(Debug, Default)]
pub struct NewCode {
    /// All of them.
    pub insns: Vec<Insn>,
    /// For each old instruction, where a call, a symbol or a source line finds it: with what is inserted before it.
    pub entry: Vec<usize>,
    /// For each old instruction, where a jump finds it: without what only a call executes.
    pub start: Vec<usize>,
    /// For each old instruction, itself.
    pub place: Vec<usize>,
    /// Copies of old instructions, in order: the new instruction, and the old one.
    pub copies: Vec<(usize, usize)>,
    /// Old instructions that others stand for.
    pub replaced: BTreeSet<usize>,
    /// Instructions that refer to what user space tells all runs.
    pub controls: Vec<usize>,
    /// Calls of functions by their symbols.
    pub calls: Vec<(usize, usize)>,
    /// Places in what is added, by the function and their names.
    pub labels: BTreeMap<(usize, Label), usize>,
    fixes: Vec<(Fix, usize)>,
}

impl NewCode {
    /// Appends an instruction of a function.
    pub fn push(&mut self, insn: Insn, fix: Fix, function: usize) {
        self.insns.push(insn);
        self.fixes.push((fix, function));
    }

    /// The section ends.
    fn finish(&mut self) {
        for places in [&mut self.entry, &mut self.start, &mut self.place] {
            places.push(self.insns.len());
        }
    }

    fn fix_jumps(&mut self, object: &Object, code: usize) -> Result<(), Error> {
        for at in 0..self.insns.len() {
            let (fix, function) = self.fixes[at];
            let target = match fix {
                Fix::Nothing => continue,
                Fix::Label(label) => self.labels.get(&(function, label)).copied().unwrap_or(at),
                Fix::Jump(old) => self.start[old],
                Fix::At(new) => new,
            };
            let distance = target as i64 - at as i64 - 1;
            let too_far = || {
                let old = self.place.partition_point(|place| *place <= at).saturating_sub(1);
                Error::TooFar { function: object.functions[function].name.clone(), place: object.place(code, old) }
            };
            let insn = &mut self.insns[at];
            match i16::try_from(distance) {
                _ if insn.code == Insn::GOTOL => insn.imm = i32::try_from(distance).map_err(|_| too_far())?,
                Ok(off) => insn.off = off,
                Err(_) if insn.code == Insn::GOTO => {
                    *insn = Insn::new(Insn::GOTOL, 0, 0, 0, i32::try_from(distance).map_err(|_| too_far())?);
                }
                Err(_) => return Err(too_far()),
            }
        }
        Ok(())
    }
}

/// Where an old instruction goes, if it jumps.
#[must_use]
pub fn jump(at: usize, insn: Insn) -> Fix {
    match insn.flow() {
        Some(Flow::Goto(distance) | Flow::Branch(distance)) => {
            usize::try_from(at as i64 + 1 + distance).map_or(Fix::Nothing, Fix::Jump)
        }
        _ => Fix::Nothing,
    }
}

/// Completes all sections of an object: jumps, calls and addresses.
///
/// # Errors
/// [`Error::TooFar`].
pub fn finish(object: &Object, sections: &mut [NewCode]) -> Result<(), Error> {
    for (code, section) in sections.iter_mut().enumerate() {
        section.finish();
        section.fix_jumps(object, code)?;
    }
    for code in 0..sections.len() {
        fix_references(object, sections, code);
        fix_looks(object, &mut sections[code], code);
    }
    Ok(())
}

/// A call in the section of its target needs no relocation, and libbpf expects none.
fn fix_looks(object: &Object, section: &mut NewCode, code: usize) {
    let Some((symbol, look)) = object.look().filter(|(_, look)| object.functions[*look].code == code) else { return };
    let target = section.entry[object.functions[look].start] as i64;
    for &(at, _) in section.calls.iter().filter(|(_, other)| *other == symbol) {
        section.insns[at].imm = (target - at as i64 - 1) as i32;
    }
    section.calls.retain(|(_, other)| *other != symbol);
}

/// Calls and addresses of functions, also in copies.
fn fix_references(object: &Object, sections: &mut [NewCode], code: usize) {
    let insns = &object.code[code].insns;
    let mut copies: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for &(new, old) in &sections[code].copies {
        copies.entry(old).or_default().push(new);
    }
    let mut is_second = false;
    for (at, insn) in insns.iter().enumerate() {
        let is_wide = !std::mem::take(&mut is_second) && insn.code == Insn::LD_IMM64;
        is_second = is_wide;
        if insn.code != Insn::CALL && !is_wide || sections[code].replaced.contains(&at) {
            continue;
        }
        let Some((target_code, target)) = object.target_place(code, at) else { continue };
        let Some(&target) = sections[target_code].entry.get(target) else { continue };
        let base = object.code[code].relocs.get(&at).map(|(symbol, _)| {
            let old = object.symbols[*symbol].value as usize / 8;
            sections[target_code].entry.get(old).copied().unwrap_or(old)
        });
        let own = sections[code].place[at];
        for &place in copies.get(&at).into_iter().flatten().chain([&own]) {
            let distance = target as i64 - base.map_or(place as i64 + 1, |base| base as i64);
            // A relocation of a call counts from the instruction after its target.
            let imm = match (is_wide, base) {
                (true, _) => distance * 8,
                (false, Some(_)) => distance - 1,
                (false, None) => distance,
            };
            sections[code].insns[place].imm = imm as i32;
        }
    }
}
