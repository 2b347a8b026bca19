//! A search over files, for tests of `xk tune` that need no kernel.

#![allow(dead_code)] // no test needs all of it

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use serde_json::Value;

/// A folder with knobs, a description, and a memory.
pub struct FileSearch {
    pub folder: tempfile::TempDir,
}

pub const KNOBS: &str = r#"
[[parameter]]
name = "ahead"
file = "FOLDER/ahead"
min = 16
max = 1024
steps = "exponential"
settle = "0s"

[[parameter]]
name = "mode"
file = "FOLDER/mode"
choices = ["slow", "fast"]
settle = "0s"
"#;

/// Better with more read ahead, and with mode fast; slower than any test needs to find out.
pub const SCORE: &str =
    "sleep 0.01; a=$(cat FOLDER/ahead); [ $(cat FOLDER/mode) = fast ] && a=$((a * 2)); echo $((100 + a))";

impl FileSearch {
    pub fn new(target: &str, more: &str) -> Self {
        let bench = Self { folder: tempfile::tempdir().unwrap() };
        fs::write(bench.path("ahead"), "128\n").unwrap();
        fs::write(bench.path("mode"), "slow\n").unwrap();
        bench.describe(target, more);
        bench
    }

    pub fn describe(&self, target: &str, more: &str) {
        // On a busy machine, a window of milliseconds may take a second.
        let patient = if more.contains("[search]") { "" } else { "[search]\nabort_after = 1000.0\n" };
        let text = format!(
            "schema = 1\n{KNOBS}\n[target]\ncommand = '''{target}'''\nmeasure = \"number\"\ngoal = \"maximise\"\n\
             timeout = \"20s\"\n{more}{patient}"
        );
        fs::write(self.path("search.toml"), text.replace("FOLDER", &self.folder.path().display().to_string())).unwrap();
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn knobs(&self) -> [String; 2] {
        ["ahead", "mode"].map(|name| fs::read_to_string(self.path(name)).unwrap().trim().to_owned())
    }

    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_xk"));
        command.arg("tune").args(arguments).env("XK_TUNER", self.path("state"));
        command
    }

    pub fn tune(&self) -> Command {
        self.command(&[self.path("search.toml").to_str().unwrap()])
    }

    #[track_caller]
    pub fn run(&self, code: i32, command: &mut Command) -> String {
        let Output { status, stdout, stderr } = command.output().unwrap();
        let text = format!("{}{}", String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
        assert_eq!(status.code(), Some(code), "{text}");
        text
    }

    pub fn status(&self) -> Value {
        serde_json::from_str(&self.run(0, &mut self.command(&["status", "--json"]))).unwrap()
    }

    pub fn entries(&self) -> Vec<Value> {
        let document: Value = serde_json::from_str(&self.run(0, &mut self.command(&["history", "--json"]))).unwrap();
        assert_eq!(document["broken_at"], Value::Null);
        document["entries"].as_array().unwrap().clone()
    }

    /// Starts a search, and returns when so many trials have begun since.
    pub fn start(&self, trials: usize) -> Child {
        let begun = |bench: &Self| {
            let store = xk_tuner::store::Store::open(&bench.path("state")).unwrap();
            store.journal().unwrap().0.iter().filter(|entry| entry.what["event"] == "trial").count()
        };
        let before = if self.path("state").exists() { begun(self) } else { 0 };
        let child = self.tune().stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        wait_until("trials begin", || self.path("state/tuner.sqlite").exists() && begun(self) >= before + trials);
        child
    }
}

#[track_caller]
pub fn wait_until(what: &str, condition: impl Fn() -> bool) {
    for _ in 0..2000 {
        if condition() {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("it never happened that {what}");
}

#[track_caller]
pub fn contains(text: &str, words: &[&str]) {
    for word in words {
        assert!(text.contains(word), "no `{word}` in: {text}");
    }
}
