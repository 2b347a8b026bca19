//! What is inserted into each section, in instructions.

use crate::code::{self, jump, Fix, Label, NewCode};
use crate::elf::{Function, Object};
use crate::inserts::{Exit, Inserts, Look, RunCall, Scratch};
use crate::insn::{Insn, FRAME};
use crate::plan::Plan;
use crate::release::{Argument, Callee, Release};
use crate::track::Place;
use crate::Error;

const LOAD: u8 = 0x79;
const STORE: u8 = 0x7b;
const STORE_IMM: u8 = 0x7a;
const MOV_IMM: u8 = 0xb7;
const MOV: u8 = 0xbf;
const ADD_IMM: u8 = 0x07;
const OR: u8 = 0x4f;
const JUMP_ZERO: u8 = 0x15;
const JUMP_NOT_ZERO: u8 = 0x55;
const JUMP_NOT_POSITIVE: u8 = 0xd5;

/// Offsets in `struct xk_flex_run`.
const WHY: i16 = 0;
const LEFT: i16 = 8;
const LAST: i16 = 16;
const SPENT: i16 = 24;
const ZERO: i16 = 32;
/// In `struct xk_lock_run`.
const ME: i16 = 48;
const WAITS: i16 = 56;
const COUNT: i16 = 64;
/// Offsets in `struct xk_flex_control`.
const INTERVAL: i16 = 16;
const NOTHING: i16 = 24;
/// `XK_FLEX_TURNS`
const TURNS: i32 = 3;
/// `XK_FLEX_KEPT`
const KEPT: i32 = 5;

/// Adds to one function.
struct Emitter<'a> {
    code: &'a mut NewCode,
    object: &'a Object,
    number: usize,
    inserts: &'a Inserts,
    /// Some look makes numbers unknown.
    widens: bool,
}

impl Emitter<'_> {
    fn push(&mut self, code: u8, dst: u8, src: u8, off: i16, imm: i32) {
        self.code.push(Insn::new(code, dst, src, off, imm), Fix::Nothing, self.number);
    }

    fn jump(&mut self, code: u8, register: u8, to: Fix) {
        self.code.push(Insn::new(code, register, 0, 0, 0), to, self.number);
    }

    fn label(&mut self, label: Label) {
        self.code.labels.insert((self.number, label), self.code.insns.len());
    }

    fn is_program(&self) -> bool {
        self.object.functions[self.number].is_program
    }

    /// `register = value of the slot`
    fn load(&mut self, register: u8, slot: i16) {
        self.push(LOAD, register, FRAME, slot, 0);
    }

    /// `register = address of the run`
    fn run_address(&mut self, register: u8) {
        match self.is_program() {
            true => {
                self.push(MOV, register, FRAME, 0, 0);
                self.push(ADD_IMM, register, 0, 0, self.inserts.run.into());
            }
            false => self.load(register, self.inserts.run),
        }
    }

    /// At the entry, before anything: a program begins a run, a subprogram is told one.
    fn enter(&mut self) {
        let run = self.inserts.run;
        if !self.is_program() {
            return self.push(STORE, FRAME, 5, run, 0);
        }
        // From memory, so that the verifier does not know them.
        self.control(INTERVAL, run + LEFT);
        let has_locks = self.object.this_run().is_some();
        if self.widens || has_locks {
            self.control(NOTHING, run + ZERO);
        }
        for field in [ME, WAITS, COUNT].into_iter().filter(|_| has_locks) {
            self.push(STORE, FRAME, 0, run + field, 0);
        }
        for field in [WHY, LAST, SPENT] {
            self.push(STORE_IMM, FRAME, 0, run + field, 0);
        }
        if let Some((begin, _)) = self.object.begin().filter(|_| self.inserts.notes_faults) {
            // Nothing else is in r6 yet.
            self.push(MOV, 6, 1, 0, 0);
            self.run_address(1);
            self.call(begin);
            self.push(MOV, 1, 6, 0, 0);
        }
    }

    /// Copies a field of what user space tells all runs. Nothing is in r0 yet.
    fn control(&mut self, field: i16, slot: i16) {
        self.code.controls.push(self.code.insns.len());
        self.push(Insn::LD_IMM64, 0, 0, 0, 0);
        self.push(0, 0, 0, 0, 0);
        self.push(LOAD, 0, 0, field, 0);
        self.push(STORE, FRAME, 0, slot, 0);
    }

    /// Counts turns.
    fn look(&mut self, index: usize, look: &Look) {
        self.jump(Insn::MAY_GOTO, 0, Fix::Label(Label::Exhausted(index)));
        self.saved(look, STORE);
        let count = look.scratch.first().map_or(0, |scratch| scratch.register());
        let (run, offset) = match look.scratch.get(1) {
            None => (FRAME, self.inserts.run),
            Some(scratch) => {
                self.load(scratch.register(), self.inserts.run);
                (scratch.register(), 0)
            }
        };
        self.push(LOAD, count, run, offset + LEFT, 0);
        self.push(ADD_IMM, count, 0, 0, -look.turns());
        self.push(STORE, run, count, offset + LEFT, 0);
        self.jump(JUMP_NOT_POSITIVE, count, Fix::Label(Label::Slow(index)));
        self.label(Label::Resume(index));
        self.widen(look, count);
        self.saved(look, LOAD);
    }

    /// Widens numbers: the verifier does not know that the other operand is 0.
    fn widen(&mut self, look: &Look, scratch: u8) {
        if look.widened.is_empty() {
            return;
        }
        match self.is_program() {
            true => self.load(scratch, self.inserts.run + ZERO),
            false => {
                self.load(scratch, self.inserts.run);
                self.push(LOAD, scratch, scratch, ZERO, 0);
            }
        }
        for &register in &look.widened {
            self.push(OR, register, scratch, 0, 0);
        }
    }

    /// Saves scratch registers, or restores them.
    fn saved(&mut self, look: &Look, code: u8) {
        for (scratch, slot) in look.scratch.iter().zip(self.inserts.saved) {
            if let Scratch::Saved(register) = *scratch {
                self.slot(code, register, slot);
            }
        }
    }

    fn spilled(&mut self, look: &Look, code: u8) {
        for &register in &look.spilled {
            self.slot(code, register, self.inserts.spills[usize::from(register)]);
        }
    }

    fn slot(&mut self, code: u8, register: u8, slot: i16) {
        let (dst, src) = if code == STORE { (FRAME, register) } else { (register, FRAME) };
        self.push(code, dst, src, slot, 0);
    }

    /// Looks, behind the function.
    fn slow(&mut self, index: usize, look: &Look) {
        // It always leaves. The verifier does not know that if the look is a global function.
        self.label(Label::Exhausted(index));
        self.spilled(look, STORE);
        self.call_look(look.site, TURNS);
        self.jump(Insn::GOTO, 0, Fix::Label(Label::LeaveLook(index)));
        self.label(Label::Slow(index));
        self.saved(look, LOAD);
        self.spilled(look, STORE);
        self.call_look(look.site, 0);
        self.jump(JUMP_NOT_ZERO, 0, Fix::Label(Label::LeaveLook(index)));
        self.spilled(look, LOAD);
        self.jump(Insn::GOTO, 0, Fix::Label(Label::Resume(index)));
        self.label(Label::LeaveLook(index));
        self.leave(&look.releases);
    }

    fn call_look(&mut self, site: usize, why: i32) {
        self.run_address(1);
        self.push(MOV_IMM, 2, 0, 0, i32::try_from(site).unwrap_or(-1));
        self.push(MOV_IMM, 3, 0, 0, why);
        if let Some((symbol, _)) = self.object.look() {
            self.call(symbol);
        }
    }

    fn call(&mut self, symbol: usize) {
        self.code.calls.push((self.code.insns.len(), symbol));
        self.push(Insn::CALL, 0, 1, 0, -1);
    }

    fn leave(&mut self, releases: &[Release]) {
        for release in releases {
            match release.argument {
                Argument::Nothing => {}
                Argument::Address(offset) => {
                    self.push(MOV, 1, FRAME, 0, 0);
                    self.push(ADD_IMM, 1, 0, 0, offset as i32);
                }
                Argument::Reference(place) => {
                    match place {
                        Place::Register(register @ 0..=5) => self.load(1, self.inserts.spills[usize::from(register)]),
                        Place::Register(register) => self.push(MOV, 1, register, 0, 0),
                        Place::Slot(offset) => self.push(LOAD, 1, FRAME, offset as i16, 0),
                    }
                    // Over the next two instructions.
                    self.push(JUMP_ZERO, 1, 0, 2, 0);
                }
            }
            self.push(MOV_IMM, 2, 0, 0, 0);
            match release.callee {
                Callee::Helper(number) => self.push(Insn::CALL, 0, 0, 0, number),
                Callee::Kfunc(symbol) => self.call(symbol),
            }
        }
        self.jump(Insn::GOTO, 0, Fix::Label(Label::Out));
    }

    /// Whether the run ended in the function that was called.
    fn after_call(&mut self, index: usize) {
        match self.is_program() {
            true => self.load(1, self.inserts.run + WHY),
            false => {
                self.load(1, self.inserts.run);
                self.push(LOAD, 1, 1, WHY, 0);
            }
        }
        self.jump(JUMP_NOT_ZERO, 1, Fix::Label(Label::LeaveCall(index)));
    }

    /// Whether the program has accessed what is not there, or holds a lock, when it returns. Nobody reads any register but
    /// r0 any more.
    fn exit(&mut self, index: usize, exit: &Exit) {
        if let Some((left, _)) = self.object.left().filter(|_| self.inserts.notes_faults) {
            self.push(MOV, 6, 0, 0, 0);
            self.run_address(1);
            self.site(exit.site);
            self.call(left);
            self.jump(JUMP_NOT_ZERO, 0, Fix::Label(Label::Out));
            self.push(MOV, 0, 6, 0, 0);
        }
        if self.object.this_run().is_some() {
            self.load(1, self.inserts.run + COUNT);
            self.jump(JUMP_NOT_ZERO, 1, Fix::Label(Label::Kept(index)));
        }
    }

    /// The second argument of a look.
    fn site(&mut self, number: usize) {
        self.push(MOV_IMM, 2, 0, 0, i32::try_from(number).unwrap_or(-1));
    }

    /// Releases what it holds; it returns what it returns.
    fn kept(&mut self, index: usize, exit: &Exit) {
        self.label(Label::Kept(index));
        self.push(MOV, 6, 0, 0, 0);
        self.call_look(exit.site, KEPT);
        self.push(MOV, 0, 6, 0, 0);
        self.push(Insn::EXIT, 0, 0, 0, 0);
    }

    /// What is behind the function.
    fn end(&mut self) {
        for (index, look) in self.inserts.looks.iter().enumerate() {
            self.slow(index, look);
        }
        for (index, RunCall { releases, .. }) in self.inserts.calls.iter().enumerate().filter(|(_, call)| call.ends) {
            self.label(Label::LeaveCall(index));
            self.leave(releases);
        }
        let exits = self.inserts.exits.iter().enumerate();
        for (index, exit) in exits.filter(|_| self.object.this_run().is_some()) {
            self.kept(index, exit);
        }
        // The verifier refuses what is never reached.
        if self.inserts.leaves() {
            self.label(Label::Out);
            self.push(MOV_IMM, 0, 0, 0, 0);
            self.push(Insn::EXIT, 0, 0, 0, 0);
        }
    }

    fn function(&mut self) {
        let Function { code, start, end, .. } = self.object.functions[self.number];
        let insns = &self.object.code[code].insns;
        let inserts = self.inserts;
        let mut is_second = false;
        for (at, &insn) in insns.iter().enumerate().take(end).skip(start) {
            self.code.entry.push(self.code.insns.len());
            if at == start && inserts.takes_run() {
                self.enter();
            }
            self.code.start.push(self.code.insns.len());
            if let Some((index, look)) = inserts.looks.iter().enumerate().find(|(_, look)| look.at == at) {
                self.look(index, look);
            }
            if let Some((index, exit)) = inserts.exits.iter().enumerate().find(|(_, exit)| exit.at == at && !is_second)
            {
                self.exit(index, exit);
            }
            let call = inserts.calls.iter().position(|call| call.at == at);
            if call.is_some() {
                self.run_address(5);
            }
            self.code.place.push(self.code.insns.len());
            if inserts.runs.contains(&at) {
                self.code.replaced.insert(at);
                self.run_address(0);
                continue;
            }
            self.code.push(insn, if is_second { Fix::Nothing } else { jump(at, insn) }, self.number);
            if let Some(index) = call.filter(|index| inserts.calls[*index].ends) {
                self.after_call(index);
            }
            is_second = !is_second && insn.code == Insn::LD_IMM64;
        }
        if inserts.takes_run() {
            self.end();
        }
    }
}

/// All sections with instructions, in the order of the object.
///
/// # Errors
/// [`Error::TooFar`].
pub fn emit(object: &Object, plan: &Plan) -> Result<Vec<NewCode>, Error> {
    let mut sections: Vec<NewCode> = object.code.iter().map(|_| NewCode::default()).collect();
    let widens = plan.inserts.iter().flat_map(|inserts| &inserts.looks).any(|look| !look.widened.is_empty());
    for (number, (Function { code, .. }, inserts)) in object.functions.iter().zip(&plan.inserts).enumerate() {
        Emitter { code: &mut sections[*code], object, number, inserts, widens }.function();
    }
    code::finish(object, &mut sections)?;
    Ok(sections)
}
