//! What the tests of the command in a guest share.

#[macro_use]
#[path = "../../../xk-runtime/tests/support/guest.rs"]
pub mod guest;

use std::process::Command;

use serde_json::Value;

pub const BLK: &str = "BLK_MAX_REQUEST_COUNT";
pub const SHRINK: &str = "SHRINK_BATCH";

/// Runs `xk`, expects a code, and returns what it printed.
#[track_caller]
pub fn xk(code: i32, arguments: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_xk")).args(arguments).output().unwrap();
    let text = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.status.code(), Some(code), "xk {arguments:?}: {text}");
    text
}

/// The object that `xk` prints with these arguments.
#[track_caller]
pub fn json(arguments: &[&str]) -> Value {
    let document: Value = serde_json::from_str(&xk(0, arguments)).unwrap();
    assert_eq!(document["schema"], 1);
    document
}

#[track_caller]
pub fn contains(text: &str, words: &[&str]) {
    for word in words {
        assert!(text.contains(word), "no `{word}` in: {text}");
    }
}
