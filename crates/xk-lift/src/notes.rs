//! What the compiler says of its own code: which registers a call passes, and which parts of
//! a stack frame hold nothing but values that it ran out of registers for.
//!
//! In: the assembly that GCC writes with `-S -dP`, where each instruction follows its RTL as
//! a comment, and the object that the same source gives. Out: [`Notes`]. A function whose
//! calls are not the same in both, one after the other, has none: nothing is guessed.
//!
//! Format: "RTL Representation" in the GCC Internals manual. A call's `(use (reg:SI 5 di))`
//! names a register that it passes; memory called `%sfp` is a spill slot, whose address is
//! never taken, at a distance from the top of the local variables.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use iced_x86::FlowControl;

use crate::insn::{Insn, Node, Target};
use crate::live::ARGUMENTS;
use crate::object::{Function, Object};

/// What is known of the functions of an object.
#[derive(Debug, Clone, Default)]
pub struct Notes {
    calls: HashMap<Node, Call>,
    frames: BTreeMap<String, Layout>,
}

/// What a call passes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call {
    /// Registers with the number of low bits that count.
    pub registers: Vec<(usize, u8)>,
    /// Arguments on the stack.
    pub on_stack: usize,
}

/// How a function's frame is laid out.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Layout {
    /// Registers that are pushed before the stack pointer is aligned, or at all.
    pub saved: i64,
    /// Registers that are pushed after that; `None` when it is not aligned.
    pub saved_aligned: Option<i64>,
    /// Bytes of spill slots, by their distance from the top of the local variables.
    pub spills: BTreeSet<i64>,
}

impl Notes {
    /// Reads the assembly of `object`.
    #[must_use]
    pub fn read(assembly: &str, object: &Object) -> Self {
        let mut notes = Self::default();
        let texts = functions(assembly, object);
        for function in object.functions.values() {
            let Some(text) = texts.get(function.name.as_str()) else { continue };
            let found: Vec<&Insn> = calls(object, function);
            let agree = found.len() == text.calls.len()
                && found.iter().zip(&text.calls).all(|(insn, call)| target(object, insn) == call.target);
            if !agree {
                continue;
            }
            for (insn, call) in found.into_iter().zip(&text.calls) {
                if let Some(passed) = &call.passed {
                    notes.calls.insert(insn.node, passed.clone());
                }
            }
            if !text.moved_again {
                notes.frames.insert(function.name.clone(), text.layout.clone());
            }
        }
        notes
    }

    /// What the call or tail call at `node` passes.
    #[must_use]
    pub fn call(&self, node: Node) -> Option<&Call> {
        self.calls.get(&node)
    }

    /// The frame of a function and of the part that was moved away.
    #[must_use]
    pub fn layout(&self, function: &str) -> Option<Layout> {
        let mut layout = self.frames.get(function)?.clone();
        if let Some(part) = self.frames.get(&format!("{function}.cold")) {
            layout.spills.extend(&part.spills);
        }
        Some(layout)
    }
}

/// Calls and tail calls in the order of their places.
fn calls<'a>(object: &'a Object, function: &Function) -> Vec<&'a Insn> {
    let end = Node { section: function.start.section, offset: function.start.offset + function.size };
    let leaves = |insn: &&Insn| {
        let jumps = insn.raw.flow_control() == FlowControl::UnconditionalBranch;
        let away = match &insn.target {
            Some(Target::External(symbol)) => symbol.name != "__x86_return_thunk",
            Some(Target::Local(node)) => {
                let callee = object.functions.get(node);
                callee.is_some_and(|callee| callee.whole() == callee.name && callee.name != function.whole())
            }
            None => false,
        };
        insn.is_call() || jumps && away
    };
    object.insns.range(function.start..end).map(|(_, insn)| insn).filter(leaves).collect()
}

/// What is called, as the assembly writes it.
fn target(object: &Object, insn: &Insn) -> String {
    match &insn.target {
        Some(Target::External(symbol)) => symbol.name.clone(),
        Some(Target::Local(node)) => object.function_at(*node).map_or_else(|| "?".into(), |f| f.name.clone()),
        None => "*".into(),
    }
}

/// A call in the assembly.
#[derive(Debug)]
struct Written {
    target: String,
    /// `None` in inline assembly.
    passed: Option<Call>,
}

/// A function in the assembly.
#[derive(Debug, Default)]
struct Text {
    calls: Vec<Written>,
    layout: Layout,
    /// Whether there is room below the saved registers.
    lowered: bool,
    /// Whether the stack pointer is aligned twice, or where there is room already (`alloca`).
    moved_again: bool,
}

fn functions<'a>(assembly: &'a str, object: &Object) -> HashMap<&'a str, Text> {
    let names: BTreeSet<&str> = object.functions.values().map(|f| f.name.as_str()).collect();
    let mut texts: HashMap<&str, Text> = HashMap::new();
    let mut reader = Reader::default();
    let mut current = None;
    for line in assembly.lines() {
        if let Some(label) = line.strip_suffix(':').filter(|label| names.contains(label)) {
            current = Some(label);
            reader = Reader::default();
            continue;
        }
        if let Some(text) = current.map(|name| texts.entry(name).or_default()) {
            reader.line(line, text);
        }
    }
    texts
}

/// Reads the lines of one function.
#[derive(Debug, Default)]
struct Reader {
    /// The RTL of the next instruction.
    rtl: String,
    in_assembly: bool,
    /// Sections that inline assembly has switched to.
    elsewhere: u32,
}

impl Reader {
    fn line(&mut self, line: &str, text: &mut Text) {
        match line {
            "#APP" => self.in_assembly = true,
            "#NO_APP" => (self.in_assembly, self.elsewhere) = (false, 0),
            _ if self.in_assembly => self.assembly(line, text),
            _ => match line.strip_prefix('#') {
                Some(rtl) => {
                    if rtl.starts_with('(') {
                        self.rtl.clear();
                    }
                    self.rtl.push_str(rtl);
                    self.rtl.push(' ');
                }
                None => self.instruction(line, text),
            },
        }
    }

    fn assembly(&mut self, line: &str, text: &mut Text) {
        for statement in line.split(';') {
            let statement = statement.trim();
            let statement = statement.rsplit(": ").next().unwrap_or(statement).trim();
            let word = statement.split_whitespace().next().unwrap_or("");
            match word {
                ".pushsection" | ".section" | ".subsection" => self.elsewhere += 1,
                ".popsection" | ".previous" => self.elsewhere = self.elsewhere.saturating_sub(1),
                "call" | "jmp" if self.elsewhere == 0 => {
                    if let Some(target) = called(statement).filter(|target| word == "call" || !local(target)) {
                        text.calls.push(Written { target, passed: None });
                    }
                }
                _ => {}
            }
        }
    }

    fn instruction(&mut self, line: &str, text: &mut Text) {
        let statement = line.trim();
        let word = statement.split_whitespace().next().unwrap_or("");
        if word.is_empty() || word.starts_with('.') || word.ends_with(':') {
            // A label may stand before its instruction on the same line.
            if let Some((_, rest)) = statement.split_once(":\t").filter(|(label, _)| !label.contains(' ')) {
                self.instruction(rest, text);
            }
            return;
        }
        let rtl = std::mem::take(&mut self.rtl);
        text.frame(&rtl);
        let is_call = rtl.starts_with("(call_insn");
        if word == "call" || word == "jmp" && (is_call || statement.contains("__x86_indirect_thunk")) {
            let Some(target) = called(statement) else { return };
            let passed = is_call.then(|| passed(&rtl));
            text.calls.push(Written { target, passed });
        } else if word == "cs" {
            // A prefix on a line of its own: the RTL is that of the call.
            self.rtl = rtl;
        }
    }
}

impl Text {
    /// What an instruction does to the frame. That which aligns the stack pointer is part of the prologue
    /// even where the compiler does not mark it so: with a frame pointer, no code depends on how far it moves.
    fn frame(&mut self, rtl: &str) {
        let layout = &mut self.layout;
        for (at, _) in rtl.match_indices("%sfp") {
            let rest = &rtl[at + 4..];
            let Some((offset, rest)) = rest.split_once(" S") else { continue };
            let digits = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
            let offset = offset.trim_start_matches('+');
            let offset = if offset.is_empty() { Ok(0) } else { offset.parse::<i64>() };
            if let (Ok(offset), Ok(size)) = (offset, rest[..digits].parse::<i64>()) {
                layout.spills.extend(offset..offset + size);
            }
        }
        if rtl.contains("(set (reg/f:DI 7 sp)") {
            if rtl.contains("(and:DI (reg/f:DI 7 sp)") {
                self.moved_again |= self.lowered || layout.saved_aligned.is_some();
                layout.saved_aligned.get_or_insert(0);
            }
            self.lowered |= rtl.contains("(plus:DI (reg/f:DI 7 sp)") || rtl.contains("(minus:DI (reg/f:DI 7 sp)");
        } else if rtl.starts_with("(insn/f") && rtl.contains("(pre_dec:DI (reg/f:DI 7 sp))") {
            match &mut layout.saved_aligned {
                Some(count) => *count += 1,
                None => layout.saved += 1,
            }
        }
    }
}

/// A label of the compiler's own.
fn local(target: &str) -> bool {
    target.starts_with(".L") || target.starts_with(|c: char| c.is_ascii_digit())
}

/// What a statement calls; `*` if that is computed.
fn called(statement: &str) -> Option<String> {
    let operand = statement.split_whitespace().nth(1)?;
    Some(if operand.starts_with('*') { "*".into() } else { operand.to_owned() })
}

/// What the RTL of a call says that it passes.
fn passed(rtl: &str) -> Call {
    const NAMES: [(&str, usize); 9] =
        [("di", 7), ("si", 6), ("dx", 2), ("cx", 1), ("r8", 8), ("r9", 9), ("ax", 0), ("r10", 10), ("r11", 11)];
    let mut call = Call { registers: Vec::new(), on_stack: 0 };
    for (at, _) in rtl.match_indices("(use (") {
        let used = &rtl[at + 6..];
        if used.starts_with("mem") {
            call.on_stack += 1;
            continue;
        }
        let Some((mode, rest)) = used.strip_prefix("reg").and_then(|rest| rest.split_once(' ')) else { continue };
        let bits = match mode.rsplit(':').next() {
            Some("QI" | "HI" | "SI") => 32,
            _ => 64,
        };
        let name = rest.split_whitespace().nth(1).unwrap_or("").trim_end_matches(')');
        if let Some((_, register)) = NAMES.iter().find(|(known, _)| *known == name) {
            let variadic = *register == 0;
            call.registers.push((*register, if variadic { 8 } else { bits }));
        }
    }
    call.registers.sort_by_key(|(register, _)| ARGUMENTS.iter().position(|argument| argument == register));
    call
}

#[cfg(test)]
mod tests {
    use super::*;

    const PUSH: &str = "(insn/f 1 2 3 2 (set (mem:DI (pre_dec:DI (reg/f:DI 7 sp)) [0  S8 A8]) (reg:DI 3 bx)) 5";
    const MARKED: &str = "(insn/f 4 5 6 2 (parallel [ (set (reg/f:DI 7 sp) (and:DI (reg/f:DI 7 sp) (const_int -16";
    const BARE: &str = "(insn:TI 4 5 6 2 (parallel [ (set (reg/f:DI 7 sp) (and:DI (reg/f:DI 7 sp) (const_int -16";
    const LOWER: &str = "(insn/f 7 8 9 2 (parallel [ (set (reg/f:DI 7 sp) (plus:DI (reg/f:DI 7 sp) (const_int -80";
    const SPILL: &str = "(insn 1 2 3 4 (set (mem/c:SI (reg/f:DI 7 sp) [399 %sfp+-80 S4 A64]) (reg:SI 0 ax)) 81";

    fn read(rtl: &[&str]) -> Text {
        let mut text = Text::default();
        rtl.iter().for_each(|rtl| text.frame(rtl));
        text
    }

    #[test]
    fn a_frame_may_be_aligned_without_a_mark() {
        for and in [MARKED, BARE] {
            let text = read(&[PUSH, PUSH, and, PUSH, LOWER, SPILL]);
            let spills = (-80..-76).collect();
            assert_eq!(text.layout, Layout { saved: 2, saved_aligned: Some(1), spills });
            assert!(!text.moved_again);
        }
    }

    #[test]
    fn a_frame_that_is_aligned_again_is_not_known() {
        assert!(read(&[PUSH, LOWER, SPILL, BARE]).moved_again);
        assert!(read(&[PUSH, MARKED, LOWER, BARE]).moved_again);
        assert!(read(&[PUSH, MARKED, BARE]).moved_again);
        assert!(!read(&[PUSH, LOWER, SPILL]).moved_again);
    }
}
