//! A second of fuzzing for each target, always the same; and the fuzzer finds
//! what it is there to find.

#![allow(clippy::unwrap_used, missing_docs)]

use std::path::Path;
use std::process::{Command, Output};

fn fuzz(folder: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_xk-fuzz"));
    command.args(["run", "--seed", "1", "--folder"]).arg(folder).args(arguments).output().unwrap()
}

#[test]
fn every_parser_survives_a_second() {
    let folder = tempfile::tempdir().unwrap();
    let output = fuzz(folder.path(), &["--seconds", "1"]);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(text.lines().count(), 20, "{text}");
    for line in text.lines() {
        let runs: u64 = line.split_whitespace().nth(1).unwrap().parse().unwrap();
        let outcomes: u64 = line.split_whitespace().rev().nth(1).unwrap().parse().unwrap();
        assert!(runs > 100 && outcomes > 1, "{line}");
    }
}

/// Parsers that panic, overflow the stack, never end, or allocate what they are told to.
#[test]
fn broken_parsers_are_found() {
    let folder = tempfile::tempdir().unwrap();
    for (target, words) in [
        ("panics", "out of range for slice"),
        ("overflows", "overflowed its stack"),
        ("hangs", "ran for more than 1s"),
        ("swallows", "memory allocation of"),
    ] {
        let output = fuzz(folder.path(), &[target, "--seconds", "60", "--patience", "1"]);
        let text = String::from_utf8_lossy(&output.stdout);
        assert_eq!(output.status.code(), Some(1), "{target}: {text}");
        assert!(text.contains("FAILED") && text.contains(words), "{target}: {text}");
        let failures = std::fs::read_dir(folder.path().join("failures")).unwrap();
        let mut kept = failures.map(|entry| entry.unwrap().path());
        let kept = kept.find(|path| path.file_name().unwrap().to_string_lossy().starts_with(target)).unwrap();
        assert!(text.contains(&kept.display().to_string()), "{text}");
        if target != "hangs" {
            let again = Command::new(env!("CARGO_BIN_EXE_xk-fuzz")).args(["once", target]).arg(&kept).output().unwrap();
            assert!(!again.status.success() && String::from_utf8_lossy(&again.stderr).contains(words), "{target}");
        }
    }
}

#[test]
fn an_unknown_target_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let output = fuzz(folder.path(), &["nothing"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("no target is called 'nothing'"));
}
