//! Original and relocated instructions do the same: windows of a real image, executed
//! natively from random states (`relocation.c`, with `kernel/xk/text/relocate.c` in it).
//!
//! The kernel is the lab's; the program uses the decoder of its source. All windows, not
//! every twentieth: `cargo test -p xk-span --test relocation -- --ignored`.

#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use std::collections::HashSet;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use iced_x86::{Decoder, DecoderOptions, Mnemonic, OpKind, Register};
use xk_kernel::Image;
use xk_span::window::{Index, Windows};
use xk_span::world::World;

#[path = "common/decoder.rs"]
mod decoder;

/// What reads the clock, chance, or the machine, or changes what the harness needs.
fn is_left_out(mnemonic: Mnemonic) -> bool {
    use Mnemonic as M;
    matches!(
        mnemonic,
        M::Rdtsc
            | M::Rdrand
            | M::Rdseed
            | M::Rdpmc
            | M::Cpuid
            | M::Rdpid
            | M::Ldmxcsr
            | M::Rdgsbase
            | M::Wrgsbase
            | M::Rdfsbase
            | M::Wrfsbase
            | M::Xrstor
            | M::Xrstor64
            | M::Xrstors
            | M::Xrstors64
            | M::Fxrstor
            | M::Fxrstor64
    )
}

/// One window for `relocation.c`; none if it cannot be executed there.
fn entry(bytes: &[u8], start: u64, lead: u8) -> Option<[u8; 18]> {
    let mut field = u8::MAX;
    let mut decoder = Decoder::with_ip(64, bytes, start, DecoderOptions::NONE);
    while decoder.can_decode() {
        let insn = decoder.decode();
        // It would go round for ever.
        let loops =
            insn.op_count() > 0 && insn.op0_kind() == OpKind::NearBranch64 && insn.near_branch_target() == start;
        if loops || is_left_out(insn.mnemonic()) {
            return None;
        }
        if field == u8::MAX && insn.is_ip_rel_memory_operand() && insn.segment_prefix() != Register::GS {
            let offsets = decoder.get_constant_offsets(&insn);
            field = (insn.ip() - start) as u8 + offsets.displacement_offset() as u8;
        }
    }
    let mut entry = [0; 18];
    entry[..3].copy_from_slice(&[bytes.len() as u8, lead, field]);
    entry[3..3 + bytes.len()].copy_from_slice(bytes);
    Some(entry)
}

/// The windows around every `step`th instruction of vmlinux.
fn windows(step: usize) -> Vec<[u8; 18]> {
    let image = Image::from_vmlinuz(&decoder::info("vmlinuz"), None).unwrap();
    let world = World::new(&image, &[], HashSet::new()).unwrap();
    let index = Index::new(&world);
    let windows = Windows::new(&world, &index);
    let (mut found, mut seen, mut number) = (Vec::new(), HashSet::new(), 0usize);
    for part in index.map().parts() {
        for address in (part.start..part.end).filter(|at| index.map().begins(*at)) {
            number += 1;
            let short = || windows.short(address).ok().map(|short| short.window);
            let window = if number % step == 0 { windows.at(address).ok().or_else(short) } else { None };
            let Some((window, lead)) = window.and_then(|w| Some((w, u8::try_from(w.lead).ok()?))) else { continue };
            let start = address - u64::from(lead);
            if seen.insert(start) {
                found.extend(entry(world.read(start, window.len.into()).unwrap(), start, lead));
            }
        }
    }
    found
}

/// The last line of the program: numbers by name.
fn run(program: &Path, windows: &[[u8; 18]], spoil: &str) -> Vec<(String, u64)> {
    let mut child =
        Command::new(program).args(["1", spoil]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    let all = windows.concat();
    let writer = std::thread::spawn(move || input.write_all(&all));
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    print!("{text}");
    assert!(output.status.success(), "{}", output.status);
    let words: Vec<&str> = text.lines().last().unwrap().split_whitespace().collect();
    words.chunks_exact(2).map(|pair| (pair[0].to_owned(), pair[1].parse().unwrap())).collect()
}

/// Windows around every `step`th instruction, of which there are at least so many.
fn compare(step: usize, least: u64) {
    let out = tempfile::tempdir().unwrap();
    let program = decoder::program(out.path(), "relocation", &["text/relocate.c"]);
    let windows = windows(step);
    let of = |found: &[(String, u64)], name: &str| found.iter().find(|(of, _)| of == name).unwrap().1;
    let found = run(&program, &windows, "0");
    assert_eq!(of(&found, "differences"), 0);
    assert_eq!(of(&found, "refused"), 0, "xk.ko takes what the analysis offers");
    assert!(of(&found, "windows") >= least, "{found:?}");
    assert!(of(&found, "relays") * 200 >= least, "short windows are among them: {found:?}");
    assert!(of(&found, "to_the_end") * 10 >= of(&found, "runs") * 8, "most of them run to the end: {found:?}");
    // One bit of the first opcode is another instruction.
    let spoilt = run(&program, &windows[..2000], "4");
    assert!(of(&spoilt, "differences") > 500, "{spoilt:?}");
}

#[test]
fn relocated_instructions_do_what_the_originals_do() {
    compare(500, 5_000);
}

#[test]
#[ignore = "takes some minutes"]
fn a_hundred_thousand_relocated_windows_do_what_the_originals_do() {
    compare(25, 100_000);
}
