//! Runs a compiled fixture concretely, instruction by instruction, with or
//! without the updates of an analysis. Instructions mean what the semantics
//! say (which `processor.rs` checks against the processor), updates what
//! `program.rs` says (which `operations.rs` checks against the module).

use std::collections::{BTreeMap, BTreeSet};

use iced_x86::{FlowControl, Mnemonic};
use xk_analysis::program::execute;
use xk_analysis::span::links;
use xk_lift::insn::{Node, Target};
use xk_lift::object::{Function, Object};
use xk_lift::semantics::{step, Substitution};
use xk_lift::state::{Flag, State, REGISTERS, RSP};
use xk_lift::term::{Node as Term, TermId, Terms};
use xk_table::{CriticalSpan, When};

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
    seed: u64,
    regs: [u64; 16],
    flags: u64,
    memory: BTreeMap<u64, u8>,
    calls: Vec<(String, [u64; 3])>,
    /// Offsets of updates that ran.
    pub updated: BTreeSet<u32>,
}

fn mix(a: u64, b: u64) -> u64 {
    xk_testing::Random(a ^ b.rotate_left(32)).next_u64()
}

fn hash(name: &str) -> u64 {
    name.bytes().fold(1469, |h, byte| mix(h, byte.into()))
}

const STACK: u64 = 0x7fff_0000_0000;

impl<'a> Emulator<'a> {
    pub fn new(object: &'a Object, function: &'a Function, seed: u64, regs: [u64; 16]) -> Self {
        let mut this = Self {
            object,
            function,
            updates: vec![],
            seed,
            regs,
            flags: mix(seed, 3) & 0x8d5,
            memory: BTreeMap::new(),
            calls: vec![],
            updated: BTreeSet::new(),
        };
        this.regs[RSP] = STACK;
        this
    }

    #[allow(dead_code)] // each test binary uses its part
    pub fn with(mut self, spans: &'a [CriticalSpan], v: i64) -> Self {
        self.updates = spans.iter().map(|span| (span, v)).collect();
        self
    }

    fn byte(&self, at: u64) -> u8 {
        // Small numbers are what comparisons decide on.
        let word = mix(self.seed, at & !7);
        let word = if word & 0x100 == 0 { word >> 56 } else { word };
        self.memory.get(&at).copied().unwrap_or((word >> (8 * (at & 7))) as u8)
    }

    fn commit(&mut self, terms: &Terms, state: &State, ivs: &[u64]) {
        let symbols = |name: &str| {
            let register = REGISTERS.iter().position(|r| *r == name).map(|n| self.regs[n]);
            let flag = Flag::ALL.into_iter().find(|f| format!("{f:?}") == name).map(|f| self.flags >> f.bit() & 1);
            let iv = name.strip_prefix("iv").and_then(|n| n.parse::<usize>().ok()).map(|n| ivs[n]);
            // The processor leaves something in undefined flags; nobody may care.
            u128::from(register.or(flag).or(iv).unwrap_or_else(|| hash(name) & !0xfff))
        };
        let memory = |at| self.byte(at);
        let value = |t: TermId| terms.evaluate(t, &symbols, &memory);
        let regs = std::array::from_fn(|i| value(state.regs[i]) as u64);
        let flags = Flag::ALL.into_iter().map(|f| (value(state.flag(f)) as u64) << f.bit()).sum();
        let mut stores = Vec::new();
        let mut at = state.memory;
        while let Term::Store(before, address, data) = *terms.node(at) {
            stores.push((value(address) as u64, value(data), terms.bits(data) / 8));
            at = before;
        }
        (self.regs, self.flags) = (regs, flags);
        for (address, data, bytes) in stores.into_iter().rev() {
            for i in 0..bytes {
                self.memory.insert(address.wrapping_add(i.into()), (data >> (8 * i)) as u8);
            }
        }
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
            self.commit(&terms, &state, &ivs);
            self.updated.insert(offset);
        }
        ran
    }

    fn condition(&self, code: u8) -> bool {
        let mut terms = Terms::new();
        let state = State::unknown(&mut terms);
        let holds = xk_lift::state::arithmetic::condition(&mut terms, &state.flags, code);
        let flag = |name: &str| {
            let flag = Flag::ALL.into_iter().find(|f| format!("{f:?}") == name);
            u128::from(flag.map_or(0, |f| self.flags >> f.bit() & 1))
        };
        terms.evaluate(holds, &flag, &|_| 0) == 1
    }

    fn call(&mut self, name: String) {
        let arguments = [self.regs[7], self.regs[6], self.regs[2]];
        let mut value = mix(hash(&name), arguments.iter().fold(self.seed, |h, a| mix(h, *a)));
        self.calls.push((name, arguments));
        for register in [0, 1, 2, 6, 7, 8, 9, 10, 11] {
            self.regs[register] = value;
            value = mix(value, 7);
        }
        self.flags = value & 0x8d5;
    }

    fn finish(&mut self) -> Trace {
        let memory = std::mem::take(&mut self.memory);
        let memory = memory.into_iter().filter(|(at, _)| !(STACK - 0x1000..STACK + 8).contains(at)).collect();
        Trace { rax: self.regs[0], calls: std::mem::take(&mut self.calls), memory }
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
                    let mut terms = Terms::new();
                    let mut state = State::unknown(&mut terms);
                    if step(&mut terms, &mut state, insn, Substitution::default()).is_err() {
                        panic!("the fixture uses `{}`", insn.text());
                    }
                    self.commit(&terms, &state, &[]);
                }
                FlowControl::Call => self.call(callee?),
                FlowControl::Return => return Some(self.finish()),
                FlowControl::UnconditionalBranch | FlowControl::ConditionalBranch => {
                    let conditional = insn.raw.mnemonic() != Mnemonic::Jmp;
                    if !conditional || self.condition(insn.raw.condition_code() as u8 - 1) {
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
