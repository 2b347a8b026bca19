//! A CPU that hits a breakpoint of a change executes no window before it has found the breakpoint in the kernel's table
//! (`kernel/xk/text/int3.c`). If it did, that window could be one that is being changed, and it would hit its breakpoint.

#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use std::collections::{BTreeSet, HashSet};

use iced_x86::{Decoder, DecoderOptions, Instruction, OpKind};
use xk_kernel::Image;
use xk_span::window::{Index, Windows};
use xk_span::world::{Function, World};
use xk_testing::kernels::kernel;

/// From the interrupt gate to the handler, and back. What an interrupted process would execute is not among them: the
/// breakpoints exist while every CPU is in the kernel.
const ENTRY: [&str; 3] = ["asm_exc_int3", "error_entry", "exc_int3"];
/// The handler, which calls nothing: of Linux 6.12, and of 7.3.
const HANDLERS: [&str; 2] = ["poke_int3_handler", "smp_text_poke_int3_handler"];

fn instructions(world: &World, index: &Index, function: &Function) -> Vec<Instruction> {
    let end = index.map().part_of(function.start).unwrap().end.min(function.end);
    let code = world.read(function.start, (end - function.start) as usize).unwrap();
    Decoder::with_ip(64, code, function.start, DecoderOptions::NONE).into_iter().collect()
}

/// The functions that are called from here, and what they call.
fn reached<'a>(world: &'a World, index: &Index, from: &'a Function) -> Vec<&'a Function> {
    let mut seen = BTreeSet::new();
    let (mut left, mut all) = (vec![from], Vec::new());
    while let Some(function) = left.pop() {
        if !seen.insert(function.start) {
            continue;
        }
        for insn in instructions(world, index, function) {
            let near = insn.op_count() > 0 && insn.op0_kind() == OpKind::NearBranch64;
            left.extend(near.then(|| world.function_of(insn.near_branch_target()).unwrap()));
        }
        all.push(function);
    }
    all
}

#[test]
fn nothing_on_the_way_of_a_breakpoint_can_be_a_window() {
    let image = Image::from_vmlinuz(&kernel("amd64").vmlinuz, None).unwrap();
    let world = World::new(&image, &[], HashSet::new()).unwrap();
    let index = Index::new(&world);
    let windows = Windows::new(&world, &index);
    let named = |names: &'static [&str]| names.iter().flat_map(|name| world.named(name)).collect::<Vec<_>>();
    let handlers = named(&HANDLERS);
    assert_eq!(handlers.len(), 1, "{handlers:?}");
    let mut way = named(&ENTRY);
    assert_eq!(way.len(), ENTRY.len(), "{way:?}");
    way.extend(reached(&world, &index, handlers[0]));
    for function in way {
        for insn in instructions(&world, &index, function) {
            assert!(windows.at(insn.ip()).is_err(), "{}: {insn}", function.name());
        }
    }
    // A breakpoint that is handled later comes by functions that may have windows.
    let later = world.named("notify_die").next().unwrap();
    let free = reached(&world, &index, later)
        .into_iter()
        .filter(|function| instructions(&world, &index, function).iter().any(|insn| windows.at(insn.ip()).is_ok()));
    assert!(free.count() > 0);
}
