//! A search over files, for tests of `xk tune` that need no kernel.

#![allow(dead_code)] // no test needs all of it

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

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

/// Like [`SCORE`], and changed by variables in a file ([`FileSearch::workload`]). Records the knobs of each window.
pub const RECORDED: &str = "a=$(cat FOLDER/ahead); m=$(cat FOLDER/mode); echo $m $a >> FOLDER/log; . FOLDER/workload; \
                            [ $m = fast ] && a=$((a * 2)); echo latency = ${latency:-1}; \
                            echo $((100 + a * ${gain:-1} + ${base:-0}))";

/// A limit of [`RECORDED`].
pub const LIMIT: &str = "[[constraint]]\nname = \"latency\"\nat_most = 5.0\n";

/// A sensor of [`COUNTED`].
pub const SENSOR: &str =
    "[[sensor]]\nname = \"size\"\nof = [\"FOLDER/counter:1\"]\nper = [\"FOLDER/counter:2\"]\nsimilar = 0.2\n";

/// Counts, before a target of [`RECORDED`], by the variable `size`.
pub const COUNTED: &str =
    ". FOLDER/workload; c=$(cat FOLDER/counter); set -- $c; echo $(($1 + ${size:-10})) $(($2 + 1)) > FOLDER/counter; ";

/// A process that does not outlive its test.
pub struct Running(pub Child);

impl std::ops::Deref for Running {
    type Target = Child;

    fn deref(&self) -> &Child {
        &self.0
    }
}

impl std::ops::DerefMut for Running {
    fn deref_mut(&mut self) -> &mut Child {
        &mut self.0
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl FileSearch {
    /// Shell variables that change a target of [`RECORDED`]: `gain` of the knobs, `base`, `latency`, `size`.
    pub fn workload(&self, variables: &str) {
        fs::write(self.path("new"), variables).unwrap();
        fs::rename(self.path("new"), self.path("workload")).unwrap();
    }

    /// The knobs during each window of [`RECORDED`].
    pub fn windows(&self) -> Vec<String> {
        fs::read_to_string(self.path("log")).unwrap_or_default().lines().map(str::to_owned).collect()
    }

    /// Starts a daemon that checks all the time.
    pub fn daemon(&self) -> Running {
        let mut command = self.tune();
        let command = command.args(["--daemon", "--every", "50ms"]);
        Running(command.stdout(fs::File::create(self.path("said")).unwrap()).stderr(Stdio::inherit()).spawn().unwrap())
    }

    /// What the daemon has printed.
    pub fn said(&self) -> String {
        fs::read_to_string(self.path("said")).unwrap_or_default()
    }

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
        command.env("XK_HISTORY", self.path("history"));
        command
    }

    /// Name, action and states of each change that `xk history` tells.
    pub fn history(&self) -> Vec<String> {
        let mut command = Command::new(env!("CARGO_BIN_EXE_xk"));
        let output = command.args(["history", "--json"]).env("XK_HISTORY", self.path("history")).output().unwrap();
        let document: Value = serde_json::from_slice(&output.stdout).unwrap();
        let words = |entry: &Value| {
            let [name, action, from, to] = ["name", "action", "from", "to"].map(|field| entry[field].to_string());
            format!("{name} {action} {from} {to}").replace('"', "")
        };
        document["entries"].as_array().unwrap().iter().map(words).collect()
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

/// Sends a signal.
#[track_caller]
pub fn signal(process: &Child, signal: &str) {
    assert!(Command::new("kill").args([signal, &process.id().to_string()]).status().unwrap().success());
}

/// Waits, for longer than a search of these tests takes on any host.
#[track_caller]
pub fn wait_until(what: &str, condition: impl Fn() -> bool) {
    const PATIENCE: Duration = Duration::from_secs(300);
    let begin = Instant::now();
    while !condition() {
        assert!(begin.elapsed() < PATIENCE, "not within {} s: {what}", PATIENCE.as_secs());
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[track_caller]
pub fn contains(text: &str, words: &[&str]) {
    for word in words {
        assert!(text.contains(word), "no `{word}` in: {text}");
    }
}
