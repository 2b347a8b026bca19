//! Inputs from inputs: what storage, networks and people do to bytes, and what
//! parsers do not expect. The same seed gives the same inputs.

use xk_testing::Random;

/// No input grows beyond this.
const LONGEST: usize = 1 << 16;

/// A number that is small most of the time.
fn length(random: &mut Random, limit: usize) -> usize {
    let bits = random.below(14);
    random.below((1 << bits) + 1).min(limit)
}

/// A range of `length`, anywhere.
fn piece(random: &mut Random, length: usize) -> std::ops::Range<usize> {
    let start = random.below(length);
    let size = self::length(random, length - start);
    start..start + size
}

/// Integers at which arithmetic goes wrong.
const EDGES: [u64; 16] = [
    0,
    1,
    2,
    0x7f,
    0x80,
    0xff,
    0x7fff,
    0x8000,
    0xffff,
    0x7fff_ffff,
    0x8000_0000,
    0xffff_ffff,
    1 << 32,
    i64::MAX as u64,
    1 << 63,
    u64::MAX,
];

/// A damaged copy of `input`; `other` is what may be spliced into it.
pub fn mutate(input: &[u8], other: &[u8], random: &mut Random) -> Vec<u8> {
    let mut bytes = input.to_vec();
    for _ in 0..1 << random.below(4) {
        once(&mut bytes, other, random);
    }
    bytes.truncate(LONGEST);
    bytes
}

fn once(bytes: &mut Vec<u8>, other: &[u8], random: &mut Random) {
    let at = random.below(bytes.len());
    match random.below(12) {
        0 => bytes.truncate(at),
        1 | 2 => integer(bytes, at, random),
        3 => digits(bytes, random),
        4 => drop(bytes.drain(piece(random, bytes.len()))),
        5 => {
            let piece = bytes[piece(random, bytes.len())].to_vec();
            bytes.splice(at..at, piece);
        }
        6 => repeat(bytes, at, random),
        7 => {
            let piece = other[piece(random, other.len())].to_vec();
            bytes.splice(at..at, piece);
        }
        8 => {
            // The head of one, the tail of the other.
            bytes.truncate(at);
            bytes.extend(&other[random.below(other.len())..]);
        }
        9 => bytes.insert(at, random.next_u64() as u8),
        _ => {
            if let Some(byte) = bytes.get_mut(at) {
                *byte ^= if random.below(2) == 0 { 1 << random.below(8) } else { random.next_u64() as u8 };
            }
        }
    }
}

/// An integer of 1, 2, 4 or 8 bytes becomes an edge, or moves a little.
fn integer(bytes: &mut [u8], at: usize, random: &mut Random) {
    let width = 1 << random.below(4);
    // Fields are aligned more often than not.
    let at = if random.below(3) > 0 { at / width * width } else { at };
    let Some(field) = bytes.get_mut(at..at + width) else { return };
    let old = field.iter().rev().fold(0, |value, &byte| value << 8 | u64::from(byte));
    let small = random.below(33) as u64;
    let new = match random.below(4) {
        0 => old.wrapping_add(small).wrapping_sub(16),
        1 => EDGES[random.below(EDGES.len())].wrapping_sub(small),
        2 => small,
        _ => EDGES[random.below(EDGES.len())],
    };
    field.copy_from_slice(&new.to_le_bytes()[..width]);
}

/// A number in text becomes another. Each is as likely as any other, however long.
fn digits(bytes: &mut Vec<u8>, random: &mut Random) {
    let begins = |at: usize| bytes[at].is_ascii_digit() && (at == 0 || !bytes[at - 1].is_ascii_digit());
    let numbers: Vec<usize> = (0..bytes.len()).filter(|&at| begins(at)).collect();
    let Some(&start) = numbers.get(random.below(numbers.len())) else { return };
    let end = bytes[start..].iter().position(|b| !b.is_ascii_digit()).map_or(bytes.len(), |length| start + length);
    let edge = EDGES[random.below(EDGES.len())].wrapping_sub(random.below(3) as u64);
    let text = if random.below(3) == 0 { (edge as i64).to_string() } else { edge.to_string() };
    bytes.splice(start..end, text.into_bytes());
}

/// A piece stands there many times.
fn repeat(bytes: &mut Vec<u8>, at: usize, random: &mut Random) {
    let size = length(random, bytes.len() - at).min(256);
    let piece = bytes[at..at + size].repeat(1 << random.below(11));
    bytes.splice(at..at, piece.into_iter().take(LONGEST));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_is_a_sequence_and_nothing_grows_without_end() {
        let run = |seed| {
            let mut random = Random(seed);
            let mut input = b"a seed of 100 bytes or so: @@ -1,2 +3,4 @@".to_vec();
            let mut all = Vec::new();
            for _ in 0..2000 {
                let next = mutate(&input, b"another", &mut random);
                assert!(next.len() <= LONGEST);
                all.push(next.clone());
                if next.len() > 10 {
                    input = next;
                }
            }
            all
        };
        assert_eq!(run(1), run(1));
        assert_ne!(run(1), run(2));
        let empty = mutate(b"", b"", &mut Random(3));
        assert!(empty.len() <= LONGEST);
    }
}
