//! Runs a compiled fixture concretely, instruction by instruction, with or
//! without the updates of an analysis. Instructions mean what the semantics
//! say (which `processor.rs` checks against the processor), updates what
//! `program.rs` says (which `operations.rs` checks against the module).

use std::collections::{BTreeMap, BTreeSet};

use iced_x86::{FlowControl, Mnemonic};
use xk_analysis::program::execute;
use xk_analysis::program::links;
use xk_lift::insn::{Node, Target};
use xk_lift::object::{Function, Object};
use xk_lift::state::{State, RSP};
use xk_lift::term::Terms;
use xk_table::{CriticalSpan, When};
use xk_testing::{mix, mix_name, Machine};

/// What a function did that somebody else can see.
#[derive(Debug, PartialEq, Eq)]
pub struct Trace {
    /// Result.
    pub rax: u64,
    /// Callees with their first three arguments.
    pub calls: Vec<(String, [u64; 3])>,
    /// Memory outside the stack.
    pub memory: BTreeMap<u64, u8>,
}

pub struct Emulator<'a> {
    object: &'a Object,
    function: &'a Function,
    /// Updates by offset, with V.
    updates: Vec<(&'a CriticalSpan, i64)>,
    machine: Machine,
    calls: Vec<(String, [u64; 3])>,
    /// Offsets of updates that ran.
    pub updated: BTreeSet<u32>,
}

const STACK: u64 = 0x7fff_0000_0000;

impl<'a> Emulator<'a> {
    pub fn new(object: &'a Object, function: &'a Function, seed: u64, regs: [u64; 16]) -> Self {
        let mut this = Self {
            object,
            function,
            updates: vec![],
            machine: Machine { seed, regs, flags: mix(seed, 3) & 0x8d5, memory: BTreeMap::new() },
            calls: vec![],
            updated: BTreeSet::new(),
        };
        this.machine.regs[RSP] = STACK;
        this
    }

    #[allow(dead_code)] // each test binary uses its part
    pub fn with(mut self, spans: &'a [CriticalSpan], v: i64) -> Self {
        self.updates = spans.iter().map(|span| (span, v)).collect();
        self
    }

    /// Whether an update ran.
    fn update(&mut self, node: Node, when: When) -> bool {
        let offset = (node.offset - self.function.start.offset) as u32;
        let due: Vec<_> = self
            .updates
            .iter()
            .filter(|(span, _)| span.indirection.offset == offset && span.indirection.when == when)
            .copied()
            .collect();
        let ran = !due.is_empty();
        for (span, v) in due {
            let mut terms = Terms::new();
            let mut state = State::unknown(&mut terms);
            let ivs: Vec<u64> = span.ivs.iter().map(|fit| fit.apply(v)).collect();
            let symbols: Vec<_> = (0..ivs.len()).map(|i| terms.symbol(format!("iv{i}"), 64)).collect();
            let links = links(self.function, self.object.insns.values());
            execute(&mut terms, &mut state, &span.indirection.program, &symbols, &links);
            self.machine.commit(&terms, &state, &ivs);
            self.updated.insert(offset);
        }
        ran
    }

    fn call(&mut self, name: String) {
        let arguments = [self.machine.regs[7], self.machine.regs[6], self.machine.regs[2]];
        let mut value = mix(mix_name(&name), arguments.iter().fold(self.machine.seed, |h, a| mix(h, *a)));
        self.calls.push((name, arguments));
        for register in [0, 1, 2, 6, 7, 8, 9, 10, 11] {
            self.machine.regs[register] = value;
            value = mix(value, 7);
        }
        self.machine.flags = value & 0x8d5;
    }

    fn finish(&mut self) -> Trace {
        let memory = std::mem::take(&mut self.machine.memory);
        let memory = memory.into_iter().filter(|(at, _)| !(STACK - 0x1000..STACK + 8).contains(at)).collect();
        Trace { rax: self.machine.regs[0], calls: std::mem::take(&mut self.calls), memory }
    }

    /// Runs to the return or tail call. `None` when it does not end.
    pub fn run(&mut self) -> Option<Trace> {
        let mut node = self.function.start;
        for _ in 0..4000 {
            let insn = self.object.insns.get(&node)?;
            self.update(node, When::Before);
            let name = |target: &Option<Target>| match target {
                Some(Target::External(symbol)) => Some(symbol.name.clone()),
                Some(Target::Local(to)) => self.object.functions.get(to).map(|f| f.name.clone()),
                None => None,
            };
            let callee = name(&insn.target);
            let mut next = insn.next();
            match insn.raw.flow_control() {
                FlowControl::Next if self.update(node, When::Instead) => {}
                FlowControl::Next => {
                    assert!(self.machine.step(insn), "the fixture uses `{}`", insn.text());
                }
                FlowControl::Call => self.call(callee?),
                FlowControl::Return => return Some(self.finish()),
                FlowControl::UnconditionalBranch | FlowControl::ConditionalBranch => {
                    let conditional = insn.raw.mnemonic() != Mnemonic::Jmp;
                    if !conditional || self.machine.holds(insn.raw.condition_code() as u8 - 1) {
                        match (&insn.target, callee) {
                            (Some(Target::Local(to)), None) => next = *to,
                            (_, Some(name)) => {
                                self.call(name);
                                return Some(self.finish());
                            }
                            _ => return None,
                        }
                    }
                }
                other => panic!("the fixture uses {other:?}"),
            }
            if insn.raw.flow_control() == FlowControl::Next {
                self.update(node, When::After);
            }
            node = next;
        }
        None
    }
}
