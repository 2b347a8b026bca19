//! The unit files in `packaging/`: what systemd itself says of them, and that they promise what the documents say.

#![allow(clippy::unwrap_used, clippy::expect_used)] // a test

use std::fs;
use std::path::Path;
use std::process::Command;

/// Nothing is wrong with it, but for what is not installed here; and it says these words.
#[track_caller]
fn is_understood(name: &str, words: &[&str]) {
    let unit = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging").join(name);
    let output = match Command::new("systemd-analyze").arg("verify").arg(&unit).output() {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => panic!("systemd-analyze: run `scripts/setup`"),
        other => other.unwrap(),
    };
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let wrong: Vec<&str> = said.lines().filter(|line| !line.contains("/usr/bin/xk is not executable")).collect();
    assert_eq!(wrong, [""; 0]);
    let text = fs::read_to_string(unit).unwrap();
    for word in words {
        assert!(text.contains(word), "no `{word}` in: {text}");
    }
}

/// `xk apply` when the machine starts.
#[test]
fn tunes_are_applied_behind_other_settings() {
    let order = "systemd-sysctl.service systemd-modules-load.service";
    is_understood("xk.service", &["Type=oneshot", "RemainAfterExit=yes", order]);
}

/// `xk tune --daemon`: watched, and with few rights.
#[test]
fn the_tuner_is_watched() {
    let words =
        ["Type=notify", "WatchdogSec=", "KillMode=process", "CapabilityBoundingSet=CAP_", "NoNewPrivileges=yes"];
    is_understood("xk-tune@.service", &words);
}
