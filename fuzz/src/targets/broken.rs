//! Parsers with the bugs that the fuzzer is there to find: its own test.

use anyhow::Result;

use super::{Input, Target, SMALL};

/// Every way to fail.
pub const ALL: &[Target] = &[
    Target { name: "panics", what: "trusts a length", memory: SMALL, seeds, run: panics },
    Target { name: "overflows", what: "recurses without end", memory: SMALL, seeds, run: overflows },
    Target { name: "hangs", what: "takes steps of any size", memory: SMALL, seeds, run: hangs },
    Target { name: "swallows", what: "allocates what it is told to", memory: SMALL, seeds, run: swallows },
];

fn seeds() -> Result<Vec<Vec<u8>>> {
    Ok(vec![b"\x04\0\0\0((1))".to_vec()])
}

fn length(input: &Input<'_>) -> usize {
    input.bytes.get(..4).map_or(0, |b| u32::from_le_bytes([b[0], b[1], b[2], b[3]]) as usize)
}

fn panics(input: &Input<'_>) -> String {
    let rest = input.bytes.get(4..).unwrap_or_default();
    let sum = if length(input) > 64 { 0 } else { rest[..length(input)].iter().map(|&byte| u64::from(byte)).sum() };
    format!("sum {sum}")
}

fn overflows(input: &Input<'_>) -> String {
    fn depth(text: &[u8]) -> usize {
        let frame = std::hint::black_box([0_u8; 1 << 16]);
        match text {
            [b'(', rest @ ..] => 1 + depth(rest) + usize::from(frame[0]),
            _ => 0,
        }
    }
    let depth = depth(input.bytes.get(4..).unwrap_or_default());
    format!("depth {}", "i".repeat(depth.checked_ilog2().unwrap_or(0) as usize))
}

fn hangs(input: &Input<'_>) -> String {
    let (mut at, mut steps) = (4, 0_u64);
    while let Some(&step) = input.bytes.get(at) {
        at += usize::from(step);
        steps = std::hint::black_box(steps.wrapping_add(1));
    }
    "end".into()
}

fn swallows(input: &Input<'_>) -> String {
    let all = std::hint::black_box(vec![0_u64; length(input)]);
    format!("first {:?}", all.first())
}
