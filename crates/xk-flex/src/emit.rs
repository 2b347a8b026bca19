//! The new instructions of each section, and where the old ones are now.

use std::collections::BTreeMap;

use crate::elf::{Function, Object};
use crate::insn::{Flow, Insn, FRAME};
use crate::plan::{Inserts, Plan, Scratch};
use crate::Error;

const LOAD: u8 = 0x79;
const STORE: u8 = 0x7b;
const STORE_IMM: u8 = 0x7a;
const MOV_IMM: u8 = 0xb7;
const MOV: u8 = 0xbf;
const ADD_IMM: u8 = 0x07;
const JUMP_NOT_ZERO: u8 = 0x55;

/// What is still to be filled in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fix {
    Nothing,
    /// A jump out of the function.
    Stub,
    /// A jump to an old instruction.
    Jump(usize),
}

/// The instructions of a section.
#[derive(Debug, Default)]
pub struct NewCode {
    /// All of them.
    pub insns: Vec<Insn>,
    /// For each old instruction, where a call, a symbol or a source line finds it: with what is inserted before it.
    pub entry: Vec<usize>,
    /// For each old instruction, itself.
    pub place: Vec<usize>,
    /// Instructions that refer to the terminate word.
    pub words: Vec<usize>,
    /// For each old instruction, where a jump finds it: without what only a call executes.
    start: Vec<usize>,
    fixes: Vec<(Fix, usize)>,
    stubs: BTreeMap<usize, usize>,
}

impl NewCode {
    fn push(&mut self, insn: Insn, fix: Fix, function: usize) {
        self.insns.push(insn);
        self.fixes.push((fix, function));
    }

    fn look(&mut self, inserts: &Inserts, scratch: Scratch, function: usize) {
        self.push(Insn::new(Insn::MAY_GOTO, 0, 0, 0, 0), Fix::Stub, function);
        let (Scratch::Dead(register) | Scratch::Saved(register)) = scratch;
        let is_saved = scratch == Scratch::Saved(register);
        if is_saved {
            self.push(Insn::new(STORE, FRAME, register, inserts.saved, 0), Fix::Nothing, function);
        }
        self.words.push(self.insns.len());
        self.push(Insn::new(Insn::LD_IMM64, register, 0, 0, 0), Fix::Nothing, function);
        self.push(Insn::default(), Fix::Nothing, function);
        self.push(Insn::new(LOAD, register, register, 0, 0), Fix::Nothing, function);
        self.push(Insn::new(JUMP_NOT_ZERO, register, 0, 0, 0), Fix::Stub, function);
        if is_saved {
            self.push(Insn::new(LOAD, register, FRAME, inserts.saved, 0), Fix::Nothing, function);
        }
    }

    /// The callee finds the address of the flag in r5.
    fn before_call(&mut self, flag: i16, function: usize) {
        self.push(Insn::new(STORE_IMM, FRAME, 0, flag, 0), Fix::Nothing, function);
        self.push(Insn::new(MOV, 5, FRAME, 0, 0), Fix::Nothing, function);
        self.push(Insn::new(ADD_IMM, 5, 0, 0, flag.into()), Fix::Nothing, function);
    }

    fn after_call(&mut self, flag: i16, function: usize) {
        self.push(Insn::new(LOAD, 1, FRAME, flag, 0), Fix::Nothing, function);
        self.push(Insn::new(JUMP_NOT_ZERO, 1, 0, 0, 0), Fix::Stub, function);
    }

    fn stub(&mut self, inserts: &Inserts, is_program: bool, function: usize) {
        self.stubs.insert(function, self.insns.len());
        if !is_program {
            self.push(Insn::new(LOAD, 1, FRAME, inserts.caller, 0), Fix::Nothing, function);
            self.push(Insn::new(STORE_IMM, 1, 0, 0, 1), Fix::Nothing, function);
        }
        self.push(Insn::new(MOV_IMM, 0, 0, 0, 0), Fix::Nothing, function);
        self.push(Insn::new(Insn::EXIT, 0, 0, 0, 0), Fix::Nothing, function);
    }

    fn function(&mut self, object: &Object, number: usize, inserts: &Inserts) {
        let function = &object.functions[number];
        let insns = &object.code[function.code].insns;
        let mut is_second = false;
        for (at, &insn) in insns.iter().enumerate().take(function.end).skip(function.start) {
            self.entry.push(self.insns.len());
            if at == function.start && !function.is_program && inserts.leaves() {
                self.push(Insn::new(STORE, FRAME, 5, inserts.caller, 0), Fix::Nothing, number);
            }
            self.start.push(self.insns.len());
            if let Some((_, scratch)) = inserts.looks.iter().find(|(other, _)| *other == at) {
                self.look(inserts, *scratch, number);
            }
            let is_call = inserts.calls.contains(&at);
            if is_call {
                self.before_call(inserts.flag, number);
            }
            self.place.push(self.insns.len());
            self.push(insn, if is_second { Fix::Nothing } else { jump(at, insn) }, number);
            if is_call {
                self.after_call(inserts.flag, number);
            }
            is_second = !is_second && insn.code == Insn::LD_IMM64;
        }
        if inserts.leaves() {
            self.stub(inserts, function.is_program, number);
        }
    }

    fn fix_jumps(&mut self, object: &Object, code: usize) -> Result<(), Error> {
        for at in 0..self.insns.len() {
            let (fix, function) = self.fixes[at];
            let target = match fix {
                Fix::Nothing => continue,
                Fix::Stub => self.stubs.get(&function).copied().unwrap_or(at),
                Fix::Jump(old) => self.start[old],
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

fn jump(at: usize, insn: Insn) -> Fix {
    match insn.flow() {
        Some(Flow::Goto(distance) | Flow::Branch(distance)) => {
            usize::try_from(at as i64 + 1 + distance).map_or(Fix::Nothing, Fix::Jump)
        }
        _ => Fix::Nothing,
    }
}

/// All sections with instructions, in the order of the object.
///
/// # Errors
/// [`Error::TooFar`].
pub fn emit(object: &Object, plan: &Plan) -> Result<Vec<NewCode>, Error> {
    let mut sections: Vec<NewCode> = object.code.iter().map(|_| NewCode::default()).collect();
    for (number, (Function { code, .. }, inserts)) in object.functions.iter().zip(&plan.inserts).enumerate() {
        sections[*code].function(object, number, inserts);
    }
    for (code, section) in sections.iter_mut().enumerate() {
        section.entry.push(section.insns.len());
        section.start.push(section.insns.len());
        section.place.push(section.insns.len());
        section.fix_jumps(object, code)?;
    }
    for code in 0..sections.len() {
        fix_references(object, &mut sections, code);
    }
    Ok(sections)
}

/// Calls and addresses of functions.
fn fix_references(object: &Object, sections: &mut [NewCode], code: usize) {
    let mut is_second = false;
    for (at, insn) in object.code[code].insns.iter().enumerate() {
        let is_wide = !std::mem::take(&mut is_second) && insn.code == Insn::LD_IMM64;
        is_second = is_wide;
        if insn.code != Insn::CALL && !is_wide {
            continue;
        }
        let Some((target_code, target)) = object.target_place(code, at) else { continue };
        let Some(&target) = sections[target_code].entry.get(target) else { continue };
        let place = sections[code].place[at];
        let base = object.code[code].relocs.get(&at).map(|(symbol, _)| {
            let old = object.symbols[*symbol].value as usize / 8;
            sections[target_code].entry.get(old).copied().unwrap_or(old)
        });
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
