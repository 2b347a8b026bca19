//! `xk tables`: from one machine's store to another's, with a kernel of the lab.

#![allow(clippy::unwrap_used, clippy::expect_used)] // a test

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use tempfile::TempDir;
use xk_table::{ScopeTable, Store};
use xk_testing::guest::info;

mod support;

use support::{build, contains, BLK, SHRINK};

/// Two machines with the same kernel, and a repository that both can read. The second trusts the first.
struct Pair {
    folder: TempDir,
    root: String,
}

impl Pair {
    /// The first machine has these tables.
    fn with(names: &[&str]) -> Self {
        let pair = Self { folder: tempfile::tempdir().unwrap(), root: info("root") };
        build(&pair.path("first"), names);
        let key = String::from_utf8(pair.run("first", &["tune", "key"], 0).stdout).unwrap();
        fs::create_dir(pair.path("keys")).unwrap();
        fs::write(pair.path("keys/first.pub"), key).unwrap();
        pair
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn repository(&self) -> String {
        self.path("repository").display().to_string()
    }

    fn command(&self, machine: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_xk"));
        let config = self.path("xk.toml");
        fs::write(&config, format!("[tables]\nfrom = [\"{}\"]\n", self.repository())).unwrap();
        command.args(arguments).env("XK_STORE", self.path(machine)).env("XK_CONFIG", config);
        command.env("XK_TUNER", self.path(&format!("{machine}-state"))).env("XK_TABLE_KEYS", self.path("keys"));
        command
    }

    #[track_caller]
    fn run(&self, machine: &str, arguments: &[&str], code: i32) -> Output {
        let output = self.command(machine, arguments).output().unwrap();
        let told = [&output.stdout[..], &output.stderr].map(String::from_utf8_lossy).concat();
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {told}");
        output
    }

    fn table(&self, machine: &str, name: &str) -> ScopeTable {
        let found = tables(&self.path(machine)).into_iter().find(|table| table.constant.name.as_deref() == Some(name));
        found.unwrap_or_else(|| panic!("{machine} has no table of {name}"))
    }

    fn pack(&self, names: &[&str]) -> String {
        let (repository, build_id) = (self.repository(), tables(&self.path("first"))[0].kernel.build_id.clone());
        let arguments = [&["tables", "pack", &repository, "--kernel", &build_id], names].concat();
        String::from_utf8(self.run("first", &arguments, 0).stdout).unwrap()
    }

    fn fetch(&self, names: &[&str], code: i32) -> Output {
        self.run("second", &[&["tables", "fetch", "--root", &self.root], names].concat(), code)
    }
}

/// All that are in a store, whatever their kernel.
fn tables(store: &Path) -> Vec<ScopeTable> {
    let Ok(builds) = fs::read_dir(store) else { return Vec::new() };
    // Beside the builds, there is a file with dates of indices.
    let builds = builds.map(|build| build.unwrap().path()).filter(|path| path.is_dir());
    let files = builds.flat_map(|build| fs::read_dir(build).unwrap()).map(|file| file.unwrap().path());
    files.filter(|path| path.extension().is_some_and(|e| e == "json")).map(|path| Store::read(&path).unwrap()).collect()
}

#[test]
fn tables_come_over_and_are_those_of_the_kernel() {
    let pair = Pair::with(&[SHRINK, BLK]);
    contains(&pair.pack(&[]), &["2 tables of 6.12", "signed with"]);
    let told = String::from_utf8(pair.run("second", &["tables", "offered", "--root", &pair.root], 0).stdout).unwrap();
    contains(&told, &["2 tables of 6.12", SHRINK, BLK]);
    pair.fetch(&[SHRINK], 0);
    assert_eq!(tables(&pair.path("second")), [pair.table("first", SHRINK)]);
    pair.fetch(&[], 0);
    assert_eq!(pair.table("second", BLK), pair.table("first", BLK));
    pair.run("second", &["verify", "--quick", "--all", "--root", &pair.root], 0);
    let told = String::from_utf8(pair.fetch(&["SHRINK_BACH"], 1).stderr).unwrap();
    contains(&told, &["no table of SHRINK_BACH", "did you mean SHRINK_BATCH?"]);
    // One of the two only.
    pair.pack(&[BLK]);
    contains(&String::from_utf8(pair.fetch(&[SHRINK], 1).stderr).unwrap(), &["no table of SHRINK_BATCH", "`xk build"]);
}

/// The key is right, and so are the digests: only the running code tells.
#[test]
fn a_table_of_other_code_is_left_out() {
    let pair = Pair::with(&[SHRINK, BLK]);
    let mut table = pair.table("first", SHRINK);
    let bytes = &mut table.functions[0].bytes;
    let last = bytes.pop().unwrap();
    bytes.push(if last == '0' { '1' } else { '0' });
    Store::new(pair.path("first")).save(&table).unwrap();
    pair.pack(&[]);
    let told = String::from_utf8(pair.fetch(&[], 4).stderr).unwrap();
    contains(&told, &["1 table not of the code of this kernel", &table.constant.id, "the deployed kernel"]);
    assert_eq!(tables(&pair.path("second")), [pair.table("first", BLK)]);
}

#[test]
fn a_repository_that_cannot_be_trusted_gives_nothing() {
    let pair = Pair::with(&[SHRINK]);
    pair.pack(&[]);
    fs::remove_file(pair.path("keys/first.pub")).unwrap();
    let told = String::from_utf8(pair.fetch(&[], 3).stderr).unwrap();
    contains(&told, &["not trusted here", "xk tune key"]);
    assert_eq!(tables(&pair.path("second")), []);
    // Another repository is asked, and this one is named.
    let other = pair.path("none");
    fs::create_dir(&other).unwrap();
    let from = ["--from", other.to_str().unwrap(), "--from", &pair.repository()];
    let told = String::from_utf8(pair.fetch(&from, 1).stderr).unwrap();
    contains(&told, &["no tables of kernel build", "not trusted here"]);
}

#[test]
fn a_full_disk_leaves_nothing() {
    let pair = Pair::with(&[SHRINK]);
    pair.pack(&[]);
    fs::create_dir(pair.path("second")).unwrap();
    let script = "mount -t tmpfs -o size=8k tmpfs \"$XK_STORE\" && \"$0\" tables fetch --root \"$1\"; code=$?
        find \"$XK_STORE\" -mindepth 1; exit $code";
    let command = pair.command("second", &[]);
    let mut unshare = Command::new("unshare");
    unshare.args(["--mount", "sh", "-c", script, env!("CARGO_BIN_EXE_xk"), &pair.root]);
    unshare.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let output = unshare.output().unwrap();
    let told = String::from_utf8_lossy(&output.stderr);
    assert_eq!((output.status.code(), &*output.stdout), (Some(1), &b""[..]), "{told}");
    contains(&told, &["No space left", "the disk is full"]);
}

#[test]
fn without_a_table_the_ways_to_one_are_named() {
    let pair = Pair::with(&[SHRINK]);
    let told = String::from_utf8(pair.run("second", &["get", "NO_SUCH"], 1).stderr).unwrap();
    contains(&told, &["the quickest first", "xk tables fetch NO_SUCH: from", &pair.repository(), "xk build NO_SUCH"]);
}
