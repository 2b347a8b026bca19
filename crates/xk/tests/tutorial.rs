//! Executes docs/tutorial.md: what it says to type outside, then what it says to type in the machine. Each command must
//! succeed, and print what the page shows.

#![allow(clippy::unwrap_used, clippy::expect_used)] // a test

#[macro_use]
mod support;

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use xk_testing::guest::{info, modules, repository, XK_KO};

/// What the page uses in place of any text.
const ANYTHING: char = '…';
/// Where the page writes.
const FOLDER: &str = "target/tutorial";

/// A block of the page: its language, and its text.
type Block = (String, String);

fn blocks(page: &str) -> Vec<Block> {
    let mut blocks = Vec::new();
    let mut lines = page.lines();
    while let Some(line) = lines.next() {
        let Some(language) = line.strip_prefix("```") else { continue };
        let text: Vec<&str> = lines.by_ref().take_while(|line| *line != "```").collect();
        blocks.push((language.to_owned(), text.join("\n") + "\n"));
    }
    blocks
}

/// Whether a line contains the parts of `pattern` in order.
fn is_like(line: &str, pattern: &str) -> bool {
    let mut rest = line.trim();
    let trimmed = pattern.trim();
    for (index, part) in trimmed.split(ANYTHING).map(str::trim).enumerate() {
        let Some(at) = rest.find(part) else { return false };
        if index == 0 && at > 0 {
            return false;
        }
        rest = &rest[at + part.len()..];
    }
    rest.is_empty() || trimmed.ends_with(ANYTHING)
}

/// The first line of `shown` that is not in the output, after those before it.
fn missing<'a>(output: &str, shown: &'a str) -> Option<&'a str> {
    let mut lines = output.lines();
    shown.lines().find(|pattern| !lines.any(|line| is_like(line, pattern)))
}

/// The commands of one place with what each prints, if the page shows it.
fn steps(page: &[Block], place: &str) -> Vec<(String, Option<String>)> {
    let shown =
        |index: usize| page.get(index + 1).filter(|(language, _)| language == "text").map(|(_, text)| text.clone());
    let each = page.iter().enumerate().filter(|(_, (language, _))| language == place);
    each.map(|(index, (_, commands))| (commands.clone(), shown(index))).collect()
}

const STEP: &str = "=== step ";

/// A script that runs the steps, with a line before each.
fn script(steps: &[(String, Option<String>)], start: &str) -> String {
    let mut script = format!("set -e\n{start}\n");
    for (number, (commands, _)) in steps.iter().enumerate() {
        script += &format!("echo '{STEP}{number}'\n{commands}");
    }
    script
}

/// Every step was reached, and printed what the page shows.
#[track_caller]
fn check(output: &str, steps: &[(String, Option<String>)]) {
    let parts: Vec<&str> = output.split(STEP).skip(1).collect();
    assert_eq!(parts.len(), steps.len(), "a step failed:\n{output}");
    let shown = parts.iter().zip(steps).filter_map(|(part, (_, shown))| Some((part, shown.as_ref()?)));
    let wrong: Vec<&str> = shown.filter_map(|(part, shown)| missing(part, shown)).collect();
    assert!(wrong.is_empty(), "the page shows {wrong:#?}, which is not there, or not in this order:\n{output}");
}

#[test]
fn the_tutorial_is_true() {
    let page = blocks(&fs::read_to_string(repository().join("docs/tutorial.md")).unwrap());
    let folder = repository().join(FOLDER);
    fs::create_dir_all(&folder).unwrap();
    let source = page.iter().find(|(language, _)| language == "c").expect("a policy");
    fs::write(folder.join("nice.bpf.c"), &source.1).unwrap();
    let store = tempfile::tempdir().unwrap();
    let programs = Path::new(env!("CARGO_BIN_EXE_xk")).parent().unwrap();
    let start = format!("exec 2>&1; export XK_STORE={} PATH={}:$PATH", store.path().display(), programs.display());

    let outside = steps(&page, "sh host");
    let mut shell = Command::new("bash");
    shell.args(["-c", &script(&outside, &start)]).current_dir(repository()).stderr(Stdio::inherit());
    let output = shell.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}");
    check(&text, &outside);

    let inside = steps(&page, "sh guest");
    let module = modules(&[(XK_KO, "kernel/xk")]);
    let (_, module) = module.split_once('=').unwrap();
    let start = format!("{start}; cd {}; insmod {module}", repository().display());
    let mut lab = Command::new("lab/lab");
    lab.args(["run", "--kernel", &xk_testing::guest::kernel(), "--timeout", "900", &script(&inside, &start)]);
    let output = lab.current_dir(repository()).stderr(Stdio::inherit()).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}");
    check(&text, &inside);
    assert!(outside.len() >= 2 && inside.len() >= 6 && !info("root").is_empty());
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn what_the_page_shows_is_compared_line_by_line() {
    assert!(is_like("A = 128 (was 32)", "A = 128 (was 32)"));
    assert!(is_like("{\"value\": 32, \"more\": 1}", "{\"value\": 32…"));
    assert!(is_like("2026 root  A  set  32 -> 128", "…root…set…32 -> 128…"));
    assert!(!is_like("{\"value\": 128}", "{\"value\": 12}"));
    assert!(!is_like("A = 128 (was 32) and more", "A = 128 (was 32)"));
    assert!(!is_like("x A = 1", "A = 1"));
    assert!(!is_like("set root", "…root…set…"));
    assert_eq!(missing("a\nb\nc\n", "a\nc\n"), None);
    assert_eq!(missing("a\nb\n", "b\na\n"), Some("a"));
}
