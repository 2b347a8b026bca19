//! Calls in a slice: what a call passes, and what comes back.
//!
//! In: the state before a call. Out: the state after it. A callee is followed by [`Callees::exit_taint`], once for each
//! way in which tainted data are passed to it.

use super::taint::Taint;
use super::{EntryTaint, ExitTaint, Slicer, Store, Use};
use crate::calls::{Call, Kind};
use crate::location::{Locations, Pointer, RegisterSet};
use crate::value::{Value, Values, RSP};

impl Slicer<'_> {
    /// The state after a call, or after a jump to another function.
    pub(super) fn call(&mut self, at: usize, call: &Call, values: &Values, before: &Taint) -> Taint {
        let mut after = before.clone();
        if !self.is_tail_call(at) {
            after.locations.remove(&call.kills);
        }
        let entry = self.passed(at, call, values, before);
        self.note_exposed_object(at, before);
        if self.node(at).insn.rflags_read() & before.locations.flags != 0 {
            self.note_use(at, Use::Branch);
        }
        if entry.is_empty() || self.is_loop(at, call, &entry) {
            return after;
        }
        self.note_use(at, Use::Thread);
        let exit = self.exit_of_callee(at, call, entry, &mut after);
        for store in self.come_back(at, &exit, values, &mut after) {
            self.store(at, store, &mut after);
        }
        after
    }

    /// The state after a call whose callee has been sliced before, and returned `exit`.
    ///
    /// The callee's frame is a safe span of its own, and its slice has recorded its stores to memory. This frame only
    /// passes them on to its callers, because an object that they go to may be in the frame of one. Stores into this
    /// frame are followed here.
    pub(super) fn sliced_call(
        &mut self,
        at: usize,
        call: &Call,
        exit: &ExitTaint,
        values: &Values,
        before: &Taint,
    ) -> Taint {
        let mut after = before.clone();
        after.locations.remove(&call.kills);
        let outside = self.come_back(at, exit, values, &mut after);
        self.slice.exit.stores.extend(outside);
        after
    }

    /// The tainted data that a call passes.
    fn passed(&self, at: usize, call: &Call, values: &Values, before: &Taint) -> EntryTaint {
        let arguments = call.reads.registers;
        let points_to_taint = |&number: &usize| number != RSP && self.points_to_tainted(values.reg(number), before);
        EntryTaint {
            registers: arguments & before.locations.registers,
            flags: call.reads.flags & before.locations.flags,
            pointees: arguments.numbers().filter(points_to_taint).collect(),
            stack: if self.stack_arguments(at, call, values).meets(&before.locations) { call.stack } else { 0 },
        }
    }

    /// Whether a value is the address of an object with tainted bytes, in this frame or in a caller's. The size of an
    /// object is not known, so every tainted byte from the address upwards may belong to it.
    fn points_to_tainted(&self, value: Value, before: &Taint) -> bool {
        match value {
            Value::Frame(offset) => Locations::frame_from(offset).meets(&before.locations),
            Value::SomeFrame => Locations::frame_from(i32::MIN).meets(&before.locations),
            Value::Pointer(Pointer { parameter: Some(register), .. }) => {
                self.sources.entry.pointees.contains(register.into())
            }
            _ => false,
        }
    }

    /// The bytes of the frame that a call passes as arguments on the stack.
    fn stack_arguments(&self, at: usize, call: &Call, values: &Values) -> Locations {
        let mut arguments = Locations::default();
        match values.stack() {
            // A jump passes what the frame's own caller put above the return address.
            Some(offset) if self.is_tail_call(at) => arguments.add_slots(offset + 8, call.stack),
            Some(offset) => arguments.add_slots(offset, call.stack),
            None if call.stack > 0 => arguments = Locations::frame_from(i32::MIN),
            None => {}
        }
        arguments
    }

    /// Reports a call during which a tainted object of the frame can be reached through memory, because an instruction
    /// of the frame stores its address.
    fn note_exposed_object(&mut self, at: usize, before: &Taint) {
        let exposed = self.frame.stored().map(Locations::frame_from);
        if exposed.is_some_and(|object| object.meets(&before.locations)) {
            self.callees.exposed(self.node(at).site);
        }
    }

    /// Whether a call is the jump that the compiler made of a recursion in the last place, and nothing else is tainted
    /// than at the entry. Such a jump adds nothing: the slice from the entry is this slice.
    fn is_loop(&self, at: usize, call: &Call, entry: &EntryTaint) -> bool {
        self.is_tail_call(at) && call.kind == Kind::C(self.frame.graph.entry) && *entry == self.sources.entry
    }

    /// What the callee leaves to this frame, if it is entered with `entry`.
    ///
    /// A C function keeps to the calling convention: it does not read flags, and returns only its result. Of unknown
    /// code, every result is tainted. Assembly may leave anything in any register; its own code has been followed, so
    /// what it leaves replaces what was tainted before.
    fn exit_of_callee(&mut self, at: usize, call: &Call, entry: EntryTaint, after: &mut Taint) -> ExitTaint {
        match call.kind {
            Kind::Unknown(ref what) => {
                self.callees.passed_to_unknown(self.node(at).site, what, &entry);
                ExitTaint { registers: call.results, ..ExitTaint::default() }
            }
            Kind::C(callee) => {
                let exit = self.follow(at, callee, &EntryTaint { flags: 0, ..entry });
                ExitTaint { registers: exit.registers & call.results, flags: 0, ..exit }
            }
            Kind::Assembly(callee) => {
                let exit = self.follow(at, callee, &entry);
                if !self.is_tail_call(at) {
                    (after.locations.registers, after.locations.flags) = (RegisterSet::EMPTY, 0);
                }
                exit
            }
        }
    }

    fn follow(&mut self, at: usize, callee: u64, entry: &EntryTaint) -> ExitTaint {
        if self.is_tail_call(at) {
            self.slice.tail_calls.entry(callee).or_default().join(entry);
        }
        self.callees.exit_taint(callee, entry, self.node(at).site)
    }

    /// Taints what a callee leaves to this frame: results, and bytes of the frame that it stored to. Returns its other
    /// stores, as this frame sees them.
    fn come_back(&mut self, at: usize, exit: &ExitTaint, values: &Values, after: &mut Taint) -> Vec<Store> {
        after.locations.registers |= exit.registers;
        after.locations.flags |= exit.flags;
        if self.is_tail_call(at) {
            self.leave_to_caller(exit.registers, exit.flags);
        }
        let stores = exit.stores.iter().map(|store| store.seen_by_caller(values));
        let (own, outside): (Vec<Store>, Vec<Store>) = stores.partition(|store| store.access.is_in_frame());
        for store in own {
            after.locations.add(&Locations::of_access(store.access));
        }
        outside
    }

    fn is_tail_call(&self, at: usize) -> bool {
        self.node(at).tail.is_some()
    }
}
