//! Tables as `scripts/kallsyms.c` writes them, assembled by the tests.

use super::*;

/// Where the data is.
const PLACE: u64 = BASE + 0x40_0000;

fn decode(data: &[u8]) -> Result<Vec<Entry>, KallsymsError> {
    super::decode(data, PLACE)
}

fn tables(symbols: &[(&str, u64)], base: u64, per_cpu: bool) -> Vec<u8> {
    tables_as(Layout::Base, symbols, base, per_cpu)
}

/// The tables for the given (kind and name, address) pairs, between other data.
fn tables_as(layout: Layout, symbols: &[(&str, u64)], base: u64, per_cpu: bool) -> Vec<u8> {
    let align = |bytes: &mut Vec<u8>| bytes.resize(bytes.len().next_multiple_of(layout.align()), 0);
    let mut bytes = vec![0xa5; 1024];
    bytes.extend((symbols.len() as u32).to_le_bytes());
    align(&mut bytes);
    let start = bytes.len();
    let mut markers = Vec::new();
    for (at, (name, _)) in symbols.iter().enumerate() {
        if at % GROUP == 0 {
            markers.push((bytes.len() - start) as u32);
        }
        // Token 1 is "tcp_"; every graphic character is its own token.
        let compressed = name.replace("tcp_", "\u{1}").into_bytes();
        if compressed.len() > 0x7f {
            bytes.extend([(compressed.len() & 0x7f) as u8 | 0x80, (compressed.len() >> 7) as u8]);
        } else {
            bytes.push(compressed.len() as u8);
        }
        bytes.extend(compressed);
    }
    align(&mut bytes);
    bytes.extend(markers.iter().flat_map(|marker| marker.to_le_bytes()));
    align(&mut bytes);
    let table = bytes.len();
    let mut index = Vec::new();
    for code in 0..=255_u8 {
        index.push((bytes.len() - table) as u16);
        match code {
            1 => bytes.extend(b"tcp_"),
            graphic if graphic.is_ascii_graphic() => bytes.push(graphic),
            other => bytes.extend(format!("unused{other}").into_bytes()),
        }
        bytes.push(0);
    }
    align(&mut bytes);
    bytes.extend(index.iter().flat_map(|start| start.to_le_bytes()));
    align(&mut bytes);
    for (_, address) in symbols {
        if layout == Layout::Place {
            let place = PLACE + bytes.len() as u64;
            bytes.extend((address.wrapping_sub(place) as i32).to_le_bytes());
            continue;
        }
        let offset = match (per_cpu, *address < base) {
            (true, true) => *address as i32,
            (true, false) => base.wrapping_sub(*address).wrapping_sub(1) as i32,
            (false, _) => (*address - base) as i32,
        };
        bytes.extend(offset.to_le_bytes());
    }
    if layout == Layout::Base {
        align(&mut bytes);
        bytes.extend(base.to_le_bytes());
    }
    bytes.extend([0x5a; 64]);
    bytes
}

const BASE: u64 = 0xffff_ffff_8100_0000;

fn many() -> Vec<(String, u64)> {
    (0..1000).map(|n| (format!("ttcp_function_{n}"), BASE + 16 * n)).collect()
}

#[test]
fn symbols_come_back_with_kind_and_address() {
    let long = format!("T{}", "x".repeat(300));
    let symbols =
        [("Afixed_percpu_data", 0), ("Ttcp_sendmsg", BASE + 0x40), ("ttcp_push", BASE + 0x90), (&long, BASE + 0xa0)];
    let entries = decode(&tables(&symbols, BASE, true)).unwrap();
    let found: Vec<_> = entries.iter().map(|e| (format!("{}{}", e.kind, e.name), e.address)).collect();
    let expected: Vec<_> = symbols.iter().map(|(name, address)| ((*name).to_owned(), *address)).collect();
    assert_eq!(found, expected);
}

#[test]
fn several_marker_groups_and_plain_offsets() {
    let symbols = many();
    let borrowed: Vec<_> = symbols.iter().map(|(name, address)| (name.as_str(), *address)).collect();
    for per_cpu in [true, false] {
        for count in [1, 255, 256, 257, 1000] {
            let entries = decode(&tables(&borrowed[..count], BASE, per_cpu)).unwrap();
            assert_eq!(entries.len(), count);
            let last = &entries[count - 1];
            assert_eq!((last.name.as_str(), last.address), (&symbols[count - 1].0[1..], symbols[count - 1].1));
        }
    }
}

/// Every remainder of four bytes, for every table.
#[test]
fn offsets_from_their_places() {
    let symbols = many();
    let borrowed: Vec<_> = symbols.iter().map(|(name, address)| (name.as_str(), *address)).collect();
    for count in [1, 2, 255, 256, 257, 258, 259, 513, 1000] {
        let data = tables_as(Layout::Place, &borrowed[..count], BASE, false);
        let found = decode(&data).unwrap();
        let pairs: Vec<_> = found.iter().map(|e| (format!("{}{}", e.kind, e.name), e.address)).collect();
        assert_eq!(pairs, symbols[..count]);
    }
    let data = tables_as(Layout::Place, &borrowed, BASE, false);
    let moved: Vec<(&str, u64)> = borrowed.iter().rev().copied().collect();
    let unsorted = tables_as(Layout::Place, &moved, BASE, false);
    assert!(matches!(decode(&unsorted), Err(KallsymsError::Inconsistent { .. })));
    for end in (0..data.len() - 64).step_by(97) {
        assert!(decode(&data[..end]).is_err(), "cut at {end}");
    }
}

#[test]
fn other_data_has_no_symbols() {
    assert_eq!(decode(&[]), Err(KallsymsError::NoTokens));
    assert_eq!(decode(&[0; 4096]), Err(KallsymsError::NoTokens));
    assert_eq!(decode(&[0xff; 4096]), Err(KallsymsError::NoTokens));
    let counting: Vec<u8> = (0..8192_u32).flat_map(|n| (n as u16).to_le_bytes()).collect();
    assert_eq!(decode(&counting), Err(KallsymsError::NoTokens));
}

#[test]
fn truncated_tables_are_refused() {
    let symbols = many();
    let borrowed: Vec<_> = symbols.iter().map(|(name, address)| (name.as_str(), *address)).collect();
    let whole = tables(&borrowed, BASE, true);
    let end_of_tables = whole.len() - 64;
    for end in (0..end_of_tables).step_by(97) {
        assert!(decode(&whole[..end]).is_err(), "cut at {end}");
    }
}

#[test]
fn damaged_tables_never_panic() {
    let symbols = many();
    let borrowed: Vec<_> = symbols.iter().take(300).map(|(name, address)| (name.as_str(), *address)).collect();
    let whole = tables(&borrowed, BASE, true);
    for at in (1000..whole.len()).step_by(13) {
        let mut damaged = whole.clone();
        damaged[at] ^= 0xff;
        let _ = decode(&damaged);
    }
    let mut names_cut = whole;
    names_cut[1032] = 0; // the first name has no length
    assert!(matches!(decode(&names_cut), Err(KallsymsError::Inconsistent { .. })));
}
