//! What packages install beside the command. The unit files in `packaging/`: what systemd itself says of them, and that they
//! promise what the documents say. Manual pages and completions: that the programs which read them find nothing wrong.

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

/// A page for each verb that `--help` lists, and for verbs of verbs.
#[test]
fn there_is_a_manual_page_for_each_verb() {
    let folder = tempfile::tempdir().unwrap();
    let xk = |arguments: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_xk")).args(arguments).output().unwrap();
        assert!(output.status.success(), "{arguments:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    xk(&["pages", folder.path().to_str().unwrap()]);
    let help = xk(&["--help"]);
    let verbs = help.split("Commands:").nth(1).unwrap().split("\n\n").next().unwrap();
    let verbs = verbs.lines().filter_map(|line| line.split_whitespace().next()).filter(|verb| *verb != "help");
    let pages: Vec<String> = verbs.map(|verb| format!("xk-{verb}.1")).chain(["xk-tune-status.1".into()]).collect();
    assert!(pages.len() > 20, "{pages:?}");
    for page in pages {
        let read = Command::new("groff").args(["-ww", "-man", "-Tutf8"]).arg(folder.path().join(&page)).output();
        let read = read.expect("groff: run `scripts/setup lint`");
        assert_eq!(String::from_utf8_lossy(&read.stderr), "", "{page}");
        assert!(read.stdout.len() > 200, "{page} says nothing");
    }
    let completions = folder.path().join("xk.bash");
    assert!(Command::new("bash").arg("-n").arg(&completions).status().unwrap().success());
    // As bash asks for what may follow `xk tune sta`.
    let asked = format!(
        ". {}; COMP_WORDS=(xk tune sta); COMP_CWORD=2; _xk xk sta tune; echo ${{COMPREPLY[@]}}",
        completions.display()
    );
    let answer = Command::new("bash").args(["-c", &asked]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&answer.stdout).trim(), "status");
}
