//! What `kernel/xk/text/shape.c` remembers of the decoder's answers is what the decoder answers: at every byte of the
//! code of vmlinux, and of random bytes that are mostly prefixes and opcodes (`shape.c`).

#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use std::collections::HashSet;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use xk_kernel::Image;
use xk_span::window::Index;
use xk_span::world::World;
use xk_testing::mix;

#[path = "common/decoder.rs"]
mod decoder;

/// Every function of vmlinux.
fn code() -> Vec<u8> {
    let image = Image::from_vmlinuz(&decoder::info("vmlinuz"), None).unwrap();
    let world = World::new(&image, &[], HashSet::new()).unwrap();
    let index = Index::new(&world);
    let parts = index.map().parts().into_iter();
    parts.flat_map(|part| world.read(part.start, (part.end - part.start) as usize).unwrap().to_vec()).collect()
}

/// Random bytes. Where instructions begin that hypervisors emulate, their names follow, or others.
fn random(len: usize) -> Vec<u8> {
    const PIECES: [&[u8]; 13] = [
        &[0x66],
        &[0x67],
        &[0xf2],
        &[0xf3],
        &[0x65],
        &[0x48],
        &[0x0f],
        &[0x0f, 0x38],
        &[0xc5],
        &[0xd5],
        &[0x62],
        &[0x0f, 0x0b],
        &[0x0f, 0x0b, b'x', b'e', b'n'],
    ];
    let mut bytes = Vec::new();
    let mut seed = 1;
    while bytes.len() < len {
        seed = mix(seed, 1);
        match PIECES.get(seed as usize % 24) {
            Some(piece) => bytes.extend(*piece),
            None => bytes.extend(&seed.to_be_bytes()[..4]),
        }
    }
    bytes
}

/// The numbers that the program prints: compared, different, asked.
fn run(program: &Path, bytes: Vec<u8>) -> [u64; 3] {
    let mut child = Command::new(program).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    let writer = std::thread::spawn(move || input.write_all(&bytes));
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    print!("{text}");
    assert!(output.status.success(), "{}", output.status);
    let words: Vec<&str> = text.lines().last().unwrap().split_whitespace().collect();
    [1, 3, 5].map(|word| words[word].parse().unwrap())
}

#[test]
fn what_is_remembered_is_what_the_decoder_answers() {
    let out = tempfile::tempdir().unwrap();
    let program = decoder::program(out.path(), "shape", &["text/shape.c", "text/relocate.c"]);
    let [compared, differences, asked] = run(&program, code());
    assert!(compared > 10_000_000, "all of the code: {compared}");
    assert!(asked < compared / 2, "most of it is remembered: {asked}");
    assert_eq!(differences, 0);
    let [compared, differences, asked] = run(&program, random(1 << 24));
    assert!(asked < compared, "{asked} of {compared}");
    assert_eq!(differences, 0);
}
