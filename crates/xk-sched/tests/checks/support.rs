//! Modules, and processes under policies.

use std::fs;
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use xk_harness::sched;
use xk_sched::{Device, Error, Policy, Who};
use xk_testing::guest::{file, wait_for};

pub const SCHED_KO: &str = "XK_TEST_MODULE";
pub const FIFO_KO: &str = "XK_TEST_FIFO";
pub const RR_KO: &str = "XK_TEST_RR";
pub const WEIGHTED_KO: &str = "XK_TEST_WEIGHTED";
pub const LATENCY_KO: &str = "XK_TEST_LATENCY";
pub const WEIGHTED2_KO: &str = "XK_TEST_WEIGHTED_2";
pub const MANY_KO: &str = "XK_TEST_MANY_POLICIES";
pub const FAULTY_KO: &str = "XK_TEST_FAULTY_POLICY";

/// The number of sched_ext's class.
pub const SCHED_EXT: u32 = 7;
pub const SCHED_NORMAL: u32 = 0;

// System calls: to start a command for each takes most of the time in an emulated guest.
pub fn rmmod(module: &str) {
    if Path::new(&format!("/sys/module/{module}")).exists() {
        sched::rmmod(module).unwrap_or_else(|error| panic!("{module}: {error}"));
    }
}

/// Removes everything, whatever the check before left behind.
pub fn unload() {
    for module in
        ["faulty", "many", "weighted", "weighted2", "latency", "fifo", "rr"].map(|name| format!("xk_sched_{name}"))
    {
        rmmod(&module);
    }
    rmmod("xk_sched");
}

/// Fresh modules.
pub fn prepare() {
    load("timeout_ms=10000");
}

pub fn load(parameter: &str) {
    unload();
    insmod_with(SCHED_KO, parameter);
    insmod_with(FIFO_KO, "");
    insmod_with(RR_KO, "");
}

pub fn insmod_with(variable: &str, parameter: &str) {
    sched::insmod(&file(variable), parameter).unwrap_or_else(|error| panic!("{variable} {parameter}: {error}"));
}

/// A shell under a policy. It is killed when this is dropped.
pub struct Process(pub Child);

impl Process {
    /// The script begins when the process is in the policy.
    pub fn under(policy: &str, script: &str) -> Self {
        let (process, given) = Self::given_to(policy, script);
        assert_eq!(given.unwrap(), 1);
        process
    }

    /// The script begins, also when the process does not get the policy.
    pub fn given_to(policy: &str, script: &str) -> (Self, Result<u32, Error>) {
        Self::start(policy, script, None)
    }

    /// One that uses as much time as it gets, on this CPU.
    pub fn spinning(policy: &str, cpu: usize) -> Self {
        let (process, given) = Self::start(policy, "while :; do :; done", Some(cpu));
        assert_eq!(given.unwrap(), 1);
        process
    }

    /// The shell joins the policy when it has started, so that it uses no time to start there.
    pub fn start(policy: &str, script: &str, cpu: Option<usize>) -> (Self, Result<u32, Error>) {
        let script = format!("echo; read go; {script}");
        let child = Command::new("sh")
            .args(["-c", &script])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn();
        let mut process = Self(child.unwrap());
        process.0.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
        if let Some(cpu) = cpu {
            sched::confine_thread(process.pid(), &[cpu]);
        }
        let device = Device::open().unwrap();
        let given = device.choose(policy, Who::Process(process.pid()));
        process.0.stdin.take().unwrap().write_all(b"\n").unwrap();
        (process, given)
    }

    pub fn pid(&self) -> i32 {
        i32::try_from(self.0.id()).unwrap()
    }

    /// The number of its class.
    pub fn class(&self) -> u32 {
        class(self.pid())
    }

    /// Ticks of the processor that it used in user space, with those of children that it has waited for.
    pub fn ticks(&self) -> u64 {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.pid())).unwrap();
        let (_, fields) = stat.rsplit_once(')').unwrap();
        let field = |nr| fields.split_whitespace().nth(nr).unwrap().parse::<u64>().unwrap();
        field(11) + field(13)
    }

    /// Nanoseconds for which it has run.
    pub fn ran(&self) -> u64 {
        let text = fs::read_to_string(format!("/proc/{}/schedstat", self.pid())).unwrap();
        text.split(' ').next().unwrap().parse().unwrap()
    }

    /// Returns when it has used this many more.
    #[track_caller]
    pub fn progresses(&self, ticks: u64) {
        all_progress([self], ticks);
    }

    pub fn ends_well(mut self) {
        assert!(self.0.wait().unwrap().success());
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Returns when each of them has used this many more ticks. They run meanwhile, whichever is waited for.
#[track_caller]
pub fn all_progress<'a>(processes: impl IntoIterator<Item = &'a Process>, ticks: u64) {
    let goals: Vec<_> = processes.into_iter().map(|process| (process, process.ticks() + ticks)).collect();
    for (process, goal) in goals {
        wait_for(&format!("process {} runs", process.pid()), || process.ticks() >= goal);
    }
}

pub fn class(pid: i32) -> u32 {
    let text = fs::read_to_string(format!("/proc/{pid}/sched")).unwrap();
    let line = text.lines().find(|line| line.starts_with("policy ")).expect("the class");
    line.rsplit(' ').next().unwrap().parse().unwrap()
}

pub fn policy(name: &str) -> Policy {
    let found = Device::open_to_read().unwrap().policies().unwrap().into_iter().find(|one| one.name == name);
    found.unwrap_or_else(|| panic!("no policy {name}"))
}

/// Threads of all processes that are in sched_ext's class, except those that have ended.
pub fn in_the_class() -> Vec<String> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").unwrap() {
        let path = entry.unwrap().path();
        for task in fs::read_dir(path.join("task")).into_iter().flatten().flatten() {
            let Ok(text) = fs::read_to_string(task.path().join("sched")) else { continue };
            if text.lines().any(|line| line.starts_with("policy ") && line.ends_with(" 7")) {
                let stat = fs::read_to_string(task.path().join("stat")).unwrap_or_default();
                if !stat.contains(") Z ") {
                    found.push(stat);
                }
            }
        }
    }
    found
}

pub fn state() -> String {
    fs::read_to_string("/sys/kernel/sched_ext/state").unwrap().trim().to_owned()
}
