//! Short windows and their relays: small functions that show one rule each, assembled and linked as a
//! module, with the tables of the unwinder.

#![allow(clippy::unwrap_used, missing_docs)]

mod common;

use common::CompiledUnit;
use xk_span::window::{Index, Reason, Short, Window, Windows};

/// A part of a compiled function, by its name.
const F: &str = "f.part.0";
/// A host: two instructions of fourteen bytes. Its relay begins nine bytes after it.
const HOST: &str = "mov 8(%rdi),%rax\nmovl $7,0x100(%rdi)";
const HOST_LEN: u8 = 14;
/// Entries of the unwinder: two distances from rsp to the return address, and nothing known.
const STACK: &str = "8,0,0xf8,0xff,5,2";
const DEEPER: &str = "16,0,0xf8,0xff,5,2";
const UNKNOWN: &str = "0,0,0,0,0,0";

/// A function with this body, and what the unwinder knows from labels on.
fn unit_with(body: &str, tables: &str, unwind: &[(&str, &str)]) -> CompiledUnit {
    let mut text = format!(".text\n.p2align 4\n.type {F},@function\n{F}:\n{body}\n.size {F}, . - {F}\n{tables}\n");
    text += ".pushsection .orc_unwind_ip,\"a\"\n";
    unwind.iter().for_each(|(label, _)| text += &format!(".long {label} - .\n"));
    text += ".popsection\n.pushsection .orc_unwind,\"a\"\n";
    unwind.iter().for_each(|(_, entry)| text += &format!(".byte {entry}\n"));
    CompiledUnit::new(&format!("asm(R\"(\n{text}.popsection\n)\");"))
}

fn unit(body: &str) -> CompiledUnit {
    unit_with(body, "", &[(F, STACK)])
}

/// The short window at a label.
fn at(unit: &CompiledUnit, index: usize) -> Result<Short, Reason> {
    let map = Index::new(&unit.world);
    let windows = Windows::new(&unit.world, &map);
    let address = unit.insns(F)[index].ip();
    assert!(windows.at(address).is_err(), "it has a window of five bytes: {:?}", windows.at(address));
    windows.short(address)
}

/// The window, and where the nearest relay is from the start of the function.
fn near(unit: &CompiledUnit, index: usize) -> Result<(Window, u64), Reason> {
    let start = unit.insns(F)[0].ip();
    at(unit, index).map(|short| (short.window, short.relays[0].address() - start))
}

fn window(lead: i8, len: u8, insns: u8) -> Window {
    Window { lead, len, insns, padding: 0 }
}

/// Two bytes that are entered at both ends, and a host before them.
fn body(short: &str, between: &str) -> String {
    format!("{HOST}\n{between}\n1: {short}\n2: mov $1,%eax\nret\njmp 1b\njmp 2b")
}

#[test]
fn two_bytes_are_enough_for_a_jump_to_a_relay() {
    assert_eq!(near(&unit(&body("xor %ecx,%ecx", "")), 2), Ok((window(0, 2, 1), 9)));
    assert_eq!(near(&unit(&body("mov (%rsi),%rcx", "")), 2), Ok((window(0, 3, 1), 9)));
    assert_eq!(near(&unit(&body("mov 8(%rsi),%rcx", "")), 2), Ok((window(0, 4, 1), 9)));
    assert_eq!(near(&unit(&body("pop %rbx\npop %rbp", "")), 2), Ok((window(0, 2, 2), 9)), "two of one byte");
    assert_eq!(near(&unit(&body("pop %rbx\npop %rbp", "")), 3), Ok((window(1, 2, 2), 9)), "from the one before");
    assert_eq!(near(&unit(&body("jmp 2f", "")), 2), Ok((window(0, 2, 1), 9)), "a jump in a cold part");
    let after = format!("ret\n1: xor %ecx,%ecx\n2: {HOST}\nret\njmp 1b\njmp 2b");
    assert_eq!(near(&unit(&after), 1), Ok((window(0, 2, 1), 3 + 9)), "a relay after it");
}

#[test]
fn one_byte_is_too_short() {
    assert_eq!(at(&unit(&body("pop %rbx", "")), 2), Err(Reason::Entered(1)));
    let last = unit(&format!("{HOST}\n1: xor %ecx,%ecx\n2: leave\n3: ret\njmp 1b\njmp 2b\njmp 3b"));
    assert_eq!(at(&last, 3), Err(Reason::Entered(1)));
}

#[test]
fn a_short_window_obeys_the_rules_of_windows() {
    assert_eq!(at(&unit(&body("xor %ecx,%ecx\nud2", "")), 3), Err(Reason::Trap("ud2".into())));
    assert_eq!(at(&unit(&body("int $0x80", "")), 2), Err(Reason::Trap("int 80h".into())));
    assert_eq!(at(&unit(&body("out %al,$3", "")), 2).unwrap_err().key(), "position");
    assert_eq!(at(&unit(&body("call *%rax", "")), 2).unwrap_err().key(), "indirect");
    let table = "\n.pushsection __jump_table,\"aw\"\n.long 1b - ., 2b - .\n.quad 0\n.popsection";
    let text = format!("{}{table}", body("xchg %ax,%ax", ""));
    assert_eq!(at(&unit(&text), 2), Err(Reason::JumpLabel));
    let fault = "\n.pushsection __ex_table,\"a\"\n.long 1b - ., 2b - ., 1\n.popsection";
    let text = format!("{}{fault}", body("mov (%rsi),%cl", ""));
    assert_eq!(at(&unit(&text), 2).unwrap_err().key(), "faults");
}

#[test]
fn a_short_jump_reaches_127_bytes() {
    // The relay begins nine bytes after the start of the function, and ends where the filling begins.
    let filled = |bytes: usize| unit(&body("xor %ecx,%ecx", &format!("jmp 1f\n3: .fill {},1,0xcc\njmp 3b", bytes - 4)));
    let index = |unit: &CompiledUnit| unit.insns(F).iter().position(|insn| insn.to_string() == "xor ecx,ecx").unwrap();
    let found = |bytes: usize| {
        let unit = filled(bytes);
        near(&unit, index(&unit)).map(|(_, relay)| relay)
    };
    // Distance from the end of the window to the relay: 5 + bytes + 2.
    assert_eq!(found(121), Ok(9));
    assert_eq!(found(122), Err(Reason::NoRelay));
}

#[test]
fn a_host_has_ten_bytes_that_nobody_enters() {
    let text = |host: &str| format!("{host}\njmp 3f\n1: xor %ecx,%ecx\n2: ret\n3: jmp 1b\njmp 2b");
    let found = |host: &str| {
        let unit = unit(&text(host));
        let index = unit.insns(F).iter().position(|insn| insn.to_string() == "xor ecx,ecx").unwrap();
        at(&unit, index).map(|short| short.relays.iter().map(|relay| relay.window.len).collect::<Vec<_>>())
    };
    assert_eq!(found("movl $7,0x100(%rdi)"), Ok(vec![10]), "one instruction");
    assert_eq!(found("movl $7,(%rdi)"), Err(Reason::NoRelay), "six bytes, and the jump of two");
    assert_eq!(found("movl $7,8(%rdi)\nmov $1,%eax"), Ok(vec![12]), "two");
    assert_eq!(found("4: mov $1,%eax\n5: mov $2,%edx\n6: jmp 4b\njmp 5b\njmp 6b"), Err(Reason::NoRelay), "entered");
    assert_eq!(found("ud2\nud2\nud2\nud2\nud2\nud2"), Err(Reason::NoRelay), "code that cannot move");
}

#[test]
fn a_thread_at_the_relay_has_the_same_stack() {
    let with = |unwind: &[(&str, &str)]| at(&unit_with(&body("xor %ecx,%ecx", "3:"), "", unwind), 2);
    assert_eq!(with(&[(F, STACK)]).unwrap().relays[0].window.len, HOST_LEN);
    assert!(with(&[(F, DEEPER)]).is_ok());
    let from = format!("{F} + 14");
    assert_eq!(with(&[(F, STACK), (&from, DEEPER)]), Err(Reason::NoRelay), "another stack");
    assert_eq!(with(&[(F, UNKNOWN)]), Err(Reason::NoRelay), "nothing is known");
    assert_eq!(with(&[]), Err(Reason::NoRelay), "no tables");
}

#[test]
fn functions_without_windows_have_no_short_ones() {
    let text = format!("{}\n.byte 0x06", body("xor %ecx,%ecx", ""));
    assert_eq!(at(&unit(&text), 2), Err(Reason::Undecodable));
    let unit = unit(&body("xor %ecx,%ecx", ""));
    let map = Index::new(&unit.world);
    let windows = Windows::new(&unit.world, &map);
    assert_eq!(windows.short(unit.insns(F)[2].ip() + 1), Err(Reason::NoInstruction));
    assert_eq!(windows.short(0x1000), Err(Reason::NoCode));
}
