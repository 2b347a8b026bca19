//! The numbers of `kernel/xk/uapi/xk.h` are the numbers here.

#![allow(clippy::unwrap_used, missing_docs)]

use std::collections::BTreeMap;

use xk_table::{OpCode, MAX_IVS, MAX_OPS, MAX_PATCHES, MAX_TEMPS, STATUS_FLAGS};

fn header() -> String {
    std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../kernel/xk/uapi/xk.h")).unwrap()
}

/// `FlagsSub` is `XK_OP_FLAGS_SUB`.
fn constant_name(code: OpCode) -> String {
    let mut name = String::from("XK_OP");
    for letter in format!("{code:?}").chars() {
        if letter.is_ascii_uppercase() {
            name.push('_');
        }
        name.push(letter.to_ascii_uppercase());
    }
    name
}

#[test]
fn operation_codes_agree() {
    let header = header();
    let body = header.split("enum xk_op_code {").nth(1).unwrap().split("};").next().unwrap();
    let mut numbers = BTreeMap::new();
    let mut next = 0u8;
    for line in body.lines().map(str::trim).filter(|line| line.starts_with("XK_OP_")) {
        let declaration = line.split(',').next().unwrap();
        let (name, value) = declaration.split_once('=').map_or((declaration, None), |(n, v)| (n, Some(v)));
        if let Some(value) = value {
            next = value.trim().parse().unwrap();
        }
        numbers.insert(name.trim().to_owned(), next);
        next += 1;
    }
    let ours: BTreeMap<String, u8> = OpCode::ALL.iter().map(|&code| (constant_name(code), code as u8)).collect();
    assert_eq!(ours, numbers);
    for number in 0..=u8::MAX {
        assert_eq!(OpCode::of_number(number).map(|code| code as u8), numbers.values().find(|n| **n == number).copied());
    }
}

#[test]
fn limits_agree() {
    let header = header();
    let define = |name: &str| {
        let prefix = format!("#define {name} ");
        let line = header.lines().find_map(|line| line.strip_prefix(prefix.as_str())).unwrap();
        let number = line.split_whitespace().next().unwrap().trim_end_matches("ULL");
        number.strip_prefix("0x").map_or_else(|| number.parse().unwrap(), |hex| u64::from_str_radix(hex, 16).unwrap())
    };
    assert_eq!(define("XK_MAX_TEMPS"), u64::from(MAX_TEMPS));
    assert_eq!(define("XK_MAX_OPS"), MAX_OPS as u64);
    assert_eq!(define("XK_MAX_IVS"), MAX_IVS as u64);
    assert_eq!(define("XK_MAX_PATCHES"), MAX_PATCHES as u64);
    assert_eq!(define("XK_STATUS_FLAGS"), STATUS_FLAGS);
}
