//! Tests that run in a guest. One boot runs the module `inside` of the test program; the tests outside report what it
//! printed.

#![allow(clippy::unwrap_used, clippy::expect_used)]

pub mod atomic;
pub mod faulty;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use object::{Object, ObjectSection, ObjectSymbol};
use rustix::thread::{sched_setaffinity, CpuSet};

/// Names the kernel of the lab on which they run; default `amd64`.
const KERNEL: &str = "XK_TEST_KERNEL";
/// The preemption model: `full`, `voluntary` or `none`; by default, the one that the kernel was built with.
const PREEMPT: &str = "XK_TEST_PREEMPT";
/// Where xk.ko is. Set in the guest only: nothing in `inside` may run anywhere else.
pub const XK_KO: &str = "XK_TEST_MODULE";

/// Declares tests that run in the guest; `prepare` and `checks` are the caller's. The guest is a [`Guest`] of the
/// caller (`in GUEST: a, b`); without one, the caller has a function `report`.
#[macro_export]
macro_rules! guest_tests {
    (in $guest:ident: $($name:ident),* $(,)?) => {
        fn report(name: &str) {
            $guest.report(name);
        }

        $crate::guest_tests! { $($name),* }
    };
    ($($name:ident),* $(,)?) => {
        $(#[test] fn $name() { report(stringify!($name)); })*

        mod inside {
            $(#[test] #[ignore = "runs in a guest, started by the test of the same name"]
            fn $name() {
                $crate::guest::announce(stringify!($name));
                super::prepare();
                super::checks::$name();
            })*
        }
    };
}

/// Root of the repository; every crate is two folders below.
pub fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// The kernel of the lab on which they run.
pub fn kernel() -> String {
    std::env::var(KERNEL).unwrap_or_else(|_| "amd64".into())
}

/// The output of a command, which must succeed.
pub fn output_of(command: &mut Command) -> String {
    let output = command.current_dir(repository()).stderr(Stdio::inherit()).output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", output.status);
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

/// A field of the lab's information on the kernel.
pub fn info(field: &str) -> String {
    info_on(&kernel(), field)
}

fn info_on(kernel: &str, field: &str) -> String {
    output_of(Command::new("lab/lab").args(["info", kernel, field]))
}

/// The variables that name the modules built from these folders for the kernel. Of a folder with several modules,
/// `FOLDER:MODULE` is one.
pub fn modules(folders: &[(&str, &str)]) -> String {
    modules_on(&kernel(), folders)
}

fn modules_on(kernel: &str, folders: &[(&str, &str)]) -> String {
    let release = info_on(kernel, "release");
    let build = |place: &str| {
        let (folder, name) = place.split_once(':').unwrap_or((place, ""));
        let built = output_of(Command::new("scripts/build-module").args([release.as_str(), folder]));
        built.lines().find(|path| path.ends_with(&format!("{name}.ko"))).expect(place).to_owned()
    };
    let variables: Vec<_> = folders.iter().map(|(name, folder)| format!("{name}={}", build(folder))).collect();
    variables.join(" ")
}

/// The guest of a test program. It boots once, when the first test asks for it.
pub struct Guest {
    /// Another kernel than [`kernel`], and the number of its CPUs.
    other: Option<(&'static str, u32)>,
    /// A kernel that the environment names comes before `other`.
    may_choose: bool,
    seconds: u32,
    modules: &'static [(&'static str, &'static str)],
    output: OnceLock<String>,
}

impl Guest {
    /// A guest with these [`modules`] and a timeout in seconds.
    #[must_use]
    pub const fn new(seconds: u32, modules: &'static [(&'static str, &'static str)]) -> Self {
        Self { other: None, may_choose: false, seconds, modules, output: OnceLock::new() }
    }

    /// The same on this kernel of the lab, which has what the modules need, and with so many CPUs.
    #[must_use]
    pub const fn on(mut self, kernel: &'static str, cpus: u32) -> Self {
        self.other = Some((kernel, cpus));
        self
    }

    /// The same, unless the environment names another kernel (`XK_TEST_KERNEL`).
    #[must_use]
    pub const fn on_chosen_or(self, kernel: &'static str, cpus: u32) -> Self {
        let mut guest = self.on(kernel, cpus);
        guest.may_choose = true;
        guest
    }

    /// Fails unless the test of this name passed in the guest ([`passed`]).
    pub fn report(&self, name: &str) {
        passed(self.output.get_or_init(|| self.boot()), name);
    }

    fn boot(&self) -> String {
        let Some((kernel, cpus)) = self.other else { return boot(self.seconds, &modules(self.modules)) };
        let chosen = self.may_choose.then(|| std::env::var(KERNEL).ok()).flatten();
        let kernel = chosen.as_deref().unwrap_or(kernel);
        let selection = selection(std::env::args().skip(1));
        boot_on(kernel, &["--cpus", &cpus.to_string()], self.seconds, &modules_on(kernel, self.modules), &selection)
    }
}

/// Writes the name of the check that begins to the kernel's log: it tells what was running when the kernel complained.
pub fn announce(name: &str) {
    std::fs::write("/dev/kmsg", format!("check: {name}\n")).unwrap();
}

/// Removes xk.ko, if it is loaded.
pub fn remove_xk() {
    if Path::new("/dev/xk").exists() {
        assert!(run("rmmod", &["xk"]));
    }
}

/// Boots a guest, runs the tests inside with these variables, and returns the whole output. If this test program was
/// started for some tests only (`cargo test -p xk-runtime --test detours NAME`), only these run in the guest.
pub fn boot(seconds: u32, environment: &str) -> String {
    boot_for(seconds, environment, &selection(std::env::args().skip(1)))
}

/// Which checks run in the guest, as arguments of its test harness: those that this test program was started for, or all,
/// without those that it was told to skip.
fn selection(arguments: impl Iterator<Item = String>) -> String {
    const WITH_VALUE: [&str; 6] = ["--test-threads", "--format", "--color", "--logfile", "--shuffle-seed", "-Z"];
    let (mut names, mut skips) = (Vec::new(), Vec::new());
    let mut option = String::new();
    for argument in arguments {
        let is_value = option == "--skip" || WITH_VALUE.contains(&option.as_str());
        match std::mem::take(&mut option).as_str() {
            "--skip" => skips.extend(["--skip".to_owned(), argument]),
            _ if is_value => {}
            _ if argument.starts_with('-') => option = argument,
            _ => names.push(argument),
        }
    }
    if names.is_empty() {
        names.push("inside::".into());
    }
    [names, skips].concat().join(" ")
}

/// The argument of the kernel, and a command that fails in the guest unless it took effect.
fn preemption() -> (Option<String>, String) {
    let Ok(model) = std::env::var(PREEMPT) else { return (None, String::new()) };
    let look = format!(
        "mount -t debugfs none /sys/kernel/debug 2>/dev/null; grep -q '({model})' /sys/kernel/debug/sched/preempt || \
         {{ echo 'the kernel does not preempt itself as {PREEMPT} says'; exit 3; }}; "
    );
    (Some(format!("preempt={model}")), look)
}

/// As [`boot`], for the selected checks only, for example one that leaves the kernel in a
/// state in which no other can run.
fn boot_for(seconds: u32, environment: &str, selection: &str) -> String {
    boot_on(&kernel(), &[], seconds, environment, selection)
}

/// As [`boot_for`], on this kernel, with these options of the lab.
fn boot_on(kernel: &str, options: &[&str], seconds: u32, environment: &str, selection: &str) -> String {
    let (argument, look) = preemption();
    let script = format!(
        "{look}export {environment}; exec {} --ignored --test-threads=1 {selection} 2>&1",
        std::env::current_exe().unwrap().display()
    );
    let output = Command::new("lab/lab")
        .args(["run", "--kernel", kernel, "--timeout", &seconds.to_string()])
        .args(options)
        .args(argument.iter().flat_map(|argument| ["--append", argument.as_str()]))
        .arg(&script)
        .current_dir(repository())
        .output()
        .unwrap();
    let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
    format!("{}{}lab: {}", text(&output.stdout), text(&output.stderr), output.status)
}

/// Reports a check of a guest with these modules. One whose name begins with `under_lockdown` leaves its kernel locked
/// down, and has a guest to itself.
pub fn report_under_lockdown(name: &str, folders: &[(&str, &str)]) {
    static VARIABLES: OnceLock<String> = OnceLock::new();
    static OUTPUT: OnceLock<String> = OnceLock::new();
    let variables = VARIABLES.get_or_init(|| modules(folders));
    if name.starts_with("under_lockdown") {
        passed(&boot_for(1200, variables, &format!("--exact inside::{name}")), name);
    } else {
        passed(OUTPUT.get_or_init(|| boot(1200, &format!("{variables} XK_TEST_SHARED=1"))), name);
    }
}

/// Fails unless the test of this name passed in the guest, and the guest's
/// kernel reported no problem.
pub fn passed(output: &str, name: &str) {
    let passed = output.contains(&format!("test inside::{name} ... ok"));
    // 101: a test of the guest failed; that test reports it.
    let healthy = output.ends_with("exit status: 0") || output.ends_with("exit status: 101");
    if passed && healthy {
        return;
    }
    let file = logs().join(format!("{name}.log"));
    std::fs::write(&file, output).unwrap();
    panic!("{}\nthe whole output of the guest is in {}", excerpt(output, name), file.display());
}

/// `tmp` in cargo's target folder, where the tests of a crate may write: three folders above is the target folder.
fn logs() -> PathBuf {
    let program = std::env::current_exe().unwrap();
    let folder = program.ancestors().nth(3).unwrap().join("tmp");
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

/// What the test of this name printed, and the end of the output, which says how the guest ended.
fn excerpt(output: &str, name: &str) -> String {
    const LAST: usize = 40;
    let own = output.split_once(&format!("---- inside::{name} stdout ----")).map_or("", |(_, rest)| {
        let end = rest.find("\n---- inside::").or_else(|| rest.find("\nfailures:"));
        &rest[..end.unwrap_or(rest.len())]
    });
    let lines: Vec<&str> = output.lines().collect();
    let last = lines[lines.len().saturating_sub(LAST)..].join("\n");
    format!("{own}\n...\n{last}")
}

/// Whether a program succeeds.
pub fn run(program: &str, arguments: &[&str]) -> bool {
    // Its output would be mixed with the lines of the test harness.
    Command::new(program).args(arguments).output().unwrap().status.success()
}

/// A file that a variable of the guest names.
pub fn file(variable: &str) -> PathBuf {
    std::env::var_os(variable).expect("this test runs in a guest only").into()
}

/// Loads the module that a variable of the guest names.
pub fn insmod(variable: &str) {
    assert!(run("insmod", &[file(variable).to_str().unwrap()]));
}

/// A module with one byte of a symbol changed; its path.
pub fn altered(module: &Path, symbol: &str, at: u64, byte: u8) -> PathBuf {
    let mut data = std::fs::read(module).unwrap();
    let place = {
        let file = object::File::parse(&*data).unwrap();
        let found = file.symbols().find(|s| s.name() == Ok(symbol)).unwrap();
        let section = file.section_by_index(found.section_index().unwrap()).unwrap();
        section.file_range().unwrap().0 + found.address() + at
    };
    data[place as usize] = byte;
    let path = std::env::temp_dir().join("altered.ko");
    std::fs::write(&path, data).unwrap();
    path
}

/// How long a test waits for something that must happen: longer than it takes on any host that is in use. So a wait that
/// fails has met a fault, and not a slow host.
pub const PATIENCE: Duration = Duration::from_secs(300);

/// Waits for something that the kernel does in the background.
#[track_caller]
pub fn wait_for(what: &str, mut condition: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !condition() {
        assert!(begin.elapsed() < PATIENCE, "not within {} s: {what}", PATIENCE.as_secs());
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Lets this thread run on this CPU only.
pub fn pin(cpu: usize) {
    let mut only = CpuSet::new();
    only.set(cpu);
    sched_setaffinity(None, &only).unwrap_or_else(|error| panic!("CPU {cpu}: {error}"));
}
