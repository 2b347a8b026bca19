//! What the tests of the command in a guest share: running it, what it says is in force,
//! and what the kernel itself reports.

#![allow(dead_code)] // no test needs all of it

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rustix::fs::{flock, FlockOperation};
use serde_json::Value;
use xk_testing::guest::{info, insmod, modules, output_of, repository, run, wait_for, XK_KO};

pub const BLK: &str = "BLK_MAX_REQUEST_COUNT";
pub const SHRINK: &str = "SHRINK_BATCH";

/// The folder of compiled policies. Set in the guest only.
pub const OBJECTS: &str = "XK_TEST_OBJECTS";

/// Where this machine keeps the kernel's source. Set in the guest only.
pub const CACHE: &str = "XK_TEST_CACHE";
/// A cache of the guest's own.
const IN_GUEST: &str = "/tmp/xk-test-cache";

/// The cache of this machine.
pub fn cache() -> PathBuf {
    let folder = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let given = folder("XK_CACHE").or_else(|| folder("XDG_CACHE_HOME").map(|cache| cache.join("xk")));
    given.unwrap_or_else(|| folder("HOME").unwrap().join(".cache/xk"))
}

/// What the guest would make of the source is there already.
pub fn have_source() {
    for part in ["trees", "objects"] {
        let (from, to) = (PathBuf::from(std::env::var(CACHE).unwrap()).join(part), Path::new(IN_GUEST).join(part));
        fs::create_dir_all(IN_GUEST).unwrap();
        if !to.exists() {
            std::os::unix::fs::symlink(from, to).unwrap();
        }
    }
}

/// The tables of these constants, in a store. Every test program of one `xk` wants them, and takes those that
/// another has built with it.
pub fn build(store: &Path, constants: &[&str]) {
    let program = fs::metadata(env!("CARGO_BIN_EXE_xk")).unwrap();
    fs::create_dir_all(store).unwrap();
    let built = format!("tables/{}.{:09}", program.mtime(), program.mtime_nsec());
    let all = Path::new(env!("CARGO_TARGET_TMPDIR")).join(built);
    fs::create_dir_all(&all).unwrap();
    for constant in constants {
        let name = constant.replace('/', "!");
        let lock = fs::File::create(all.join(format!("{name}.lock"))).unwrap();
        flock(&lock, FlockOperation::LockExclusive).unwrap();
        let ready = all.join(&name);
        if !ready.exists() {
            let fresh = tempfile::tempdir_in(&all).unwrap();
            let mut build = Command::new(env!("CARGO_BIN_EXE_xk"));
            build.args(["build", "--root", &info("root"), constant]).env("XK_STORE", fresh.path());
            output_of(&mut build);
            fs::rename(fresh.keep(), &ready).unwrap();
        }
        output_of(Command::new("cp").arg("-r").arg(ready.join(".")).arg(store));
    }
}

/// Has a table accept these values, too: each is compiled and compared.
pub fn accept(store: &Path, constant: &str, values: &str) {
    let mut build = Command::new(env!("CARGO_BIN_EXE_xk"));
    build.args(["build", "--root", &info("root"), constant, "--values", values]).env("XK_STORE", store);
    output_of(&mut build);
}

/// Variables of a guest with this store, and with policies in this folder.
pub fn environment(store: &Path, objects: &Path) -> String {
    format!(
        "{} {OBJECTS}={} XK_STORE={} XK_CACHE={IN_GUEST}",
        modules(&[(XK_KO, "kernel/xk")]),
        objects.display(),
        store.display()
    )
}

/// A fresh module, whatever was left behind.
pub fn fresh_xk() {
    if Path::new("/dev/xk").exists() {
        xk(0, &["unload", "--all"]);
        xk(0, &["unset", "--all"]);
        wait_for("xk.ko can be removed", || run("rmmod", &["xk"]));
    }
    insmod(XK_KO);
}

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
    assert_eq!(document["schema"], 2);
    document
}

#[track_caller]
pub fn contains(text: &str, words: &[&str]) {
    for word in words {
        assert!(text.contains(word), "no `{word}` in: {text}");
    }
}

/// What `xk status --json` says about the tunes.
pub fn tunes() -> Vec<Value> {
    json(&["status", "--json"])["tunes"].as_array().unwrap().clone()
}

/// A store with the tables of this guest's, each as `change` leaves it.
pub fn altered_tables(change: impl Fn(&mut Value)) -> tempfile::TempDir {
    let from = PathBuf::from(std::env::var("XK_STORE").unwrap());
    let store = tempfile::tempdir().unwrap();
    for kernel in fs::read_dir(&from).unwrap().map(|entry| entry.unwrap().path()) {
        let to = store.path().join(kernel.file_name().unwrap());
        fs::create_dir(&to).unwrap();
        // Beside the tables, there is a folder of how each build ended.
        let paths = fs::read_dir(kernel).unwrap().map(|entry| entry.unwrap().path());
        for path in paths.filter(|path| path.is_file()) {
            let mut table: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
            change(&mut table);
            fs::write(to.join(path.file_name().unwrap()), table.to_string()).unwrap();
        }
    }
    store
}

/// Another byte in the code of a table's first function: the last that is compared.
pub fn alter_a_byte(table: &mut Value) {
    let function = &mut table["functions"][0];
    let at = function["mask"].as_str().unwrap().rfind("ff").unwrap() & !1;
    let mut bytes = function["bytes"].as_str().unwrap().to_owned();
    let other = if &bytes[at..at + 2] == "90" { "91" } else { "90" };
    bytes.replace_range(at..at + 2, other);
    function["bytes"] = bytes.into();
}

/// A policy that sets a value, as C.
pub fn setting(name: &str, constant: &str, value: &str) -> String {
    format!("XK_TUNE({name}, \"{constant}\")\n{{\n\txk_set(xk_ctx, {value});\n\treturn 0;\n}}\n")
}

/// With what every policy includes, unless it is there.
pub fn with_header(text: &str) -> String {
    if text.contains("#include") {
        return text.to_owned();
    }
    format!("#include \"xk.bpf.h\"\n{text}")
}

/// A process that submits `reads` random reads at once when it is told to.
pub struct Reader {
    child: Child,
}

impl Reader {
    pub fn new(reads: u32) -> Self {
        Self::of(|script| script.replace("READS = 512", &format!("READS = {reads}")))
    }

    /// From a disk that is there already.
    pub fn from_disk(name: &str) -> Self {
        let made_here = "xkcase.module(\"null_blk\", *parameters.split()), ";
        Self::of(|script| {
            assert!(script.contains(made_here));
            script.replace(made_here, "").replace("/dev/nullb0", &format!("/dev/{name}"))
        })
    }

    /// The case's observation, with a change.
    fn of(change: impl Fn(String) -> String) -> Self {
        let case = repository().join("cases");
        let script = fs::read_to_string(case.join("blk_max_request_count/observe")).unwrap();
        let script = change(script).replace(
            "str(Path(__file__).resolve().parent.parent / \"lib\")",
            &format!("\"{}\"", case.join("lib").display()),
        );
        fs::write("/tmp/reader", script).unwrap();
        let child = Command::new("sh")
            .args(["-c", "read go; exec python3 /tmp/reader"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        Self { child }
    }

    pub fn thread(&self) -> u32 {
        self.child.id()
    }

    /// The deepest plug that it had, and what was said about all of them.
    pub fn read(self) -> (i64, String) {
        let mut child = self.child;
        std::io::Write::write_all(child.stdin.as_mut().unwrap(), b"\n").unwrap();
        let output = child.wait_with_output().unwrap();
        let [text, notes] = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        assert!(output.status.success(), "{text}{notes}");
        let last: Value = serde_json::from_str(text.lines().last().unwrap()).unwrap();
        (last["value"].as_i64().unwrap(), notes)
    }
}

/// The largest number of requests in a plug, as `block:block_unplug` reports them.
pub fn depth() -> i64 {
    Reader::new(512).read().0
}
