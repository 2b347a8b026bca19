//! What holds in the guest.

use std::cell::Cell;
use std::os::fd::AsRawFd;

use libbpf_rs::{MapCore, MapFlags};
use userfault::Missing;
use xk_runtime::abi;
use xk_table::Values;

use super::*;

#[path = "beside.rs"]
mod beside;
#[path = "policies_by_detours.rs"]
mod by_detours;
#[path = "refused.rs"]
mod refused;
#[path = "userfault.rs"]
mod userfault;
pub use beside::a_decision_holds_while_another_program_is_at_work;
pub use by_detours::{
    a_detour_changes_between_value_and_policy, all_of_it_holds_by_detours,
    an_interrupt_above_a_policy_uses_the_value_beneath,
};
pub use refused::{an_outsider_cannot_set_a_value, nothing_is_written_by_any_route, what_is_no_policy_is_refused};

thread_local! {
    /// By what the checks load their tunes.
    static BACKEND: Cell<Backend> = const { Cell::new(Backend::Kprobe) };
}

/// A tune of a constant of `kernel/atomic`.
fn load(device: &Device, table: &ScopeTable) -> Tune {
    device.load_by(table, &Loaded, BACKEND.get()).unwrap()
}

fn described(constant: &str) -> ScopeTable {
    table(&file(ATOMIC_KO), &family(constant).unwrap()).unwrap()
}

/// A tune with a policy in force.
pub struct Decided {
    device: Device,
    tune: Tune,
    programs: Programs,
    _companions: Attached,
}

impl Decided {
    /// The first policy of an object, for the constant that it names.
    fn new(name: &str, base: i64, mode: Mode) -> Self {
        let decided = Self::given(name);
        decided.go(Destination::Policy(base), mode);
        decided
    }

    /// Not in force yet.
    fn given(name: &str) -> Self {
        Self::given_in(name, None)
    }

    /// The same for a constant with these values.
    fn given_in(name: &str, values: Option<Values>) -> Self {
        let device = Device::open().unwrap();
        let programs = programs(name);
        let entry = &programs.entries()[0];
        let mut table = described(&entry.constant);
        if let Some(values) = values {
            table.values = values;
            // Those are for others.
            table.spans.iter_mut().for_each(|span| span.in_place = None);
        }
        let tune = load(&device, &table);
        let companions = programs.attach().unwrap();
        let mut policy = Policy::new(programs.program(entry).unwrap(), &table);
        policy.links = companions.links().collect();
        device.give_policy(tune.id(), &policy).unwrap();
        drop(policy);
        Self { device, tune, programs, _companions: companions }
    }

    fn go(&self, to: Destination, mode: Mode) {
        self.tune.go(to, mode, LONG).unwrap();
    }

    fn sites(&self) -> Vec<SitePolicy> {
        self.device.policy_status(self.tune.id()).unwrap().unwrap().sites
    }

    fn sum(&self, of: impl Fn(&SitePolicy) -> u64) -> u64 {
        self.sites().iter().map(of).sum()
    }
}

pub fn companions() -> Decided {
    Decided::new("companions", DEFAULT, Mode::Now)
}

fn thread() -> u32 {
    // SAFETY: it has no argument and cannot fail.
    u32::try_from(unsafe { libc::gettid() }).unwrap()
}

fn want(programs: &Programs, thread: u32, value: u64) {
    programs.map("wanted").unwrap().update(&thread.to_ne_bytes(), &value.to_ne_bytes(), MapFlags::ANY).unwrap();
}

/// set, before, after, original, done
fn seen(programs: &Programs) -> [i64; 5] {
    let bytes = programs.map("seen").unwrap().lookup(&0u32.to_ne_bytes(), MapFlags::ANY).unwrap().unwrap();
    let mut words = bytes.chunks_exact(8).map(|word| i64::from_ne_bytes(word.try_into().unwrap()));
    std::array::from_fn(|_| words.next().unwrap())
}

pub fn each_execution_has_the_value_that_is_chosen_for_it() {
    let decided = Decided::new("by_thread", DEFAULT, Mode::Global);
    assert_eq!(outside(), DEFAULT, "the map is empty");
    want(&decided.programs, thread(), 77);
    assert_eq!(outside(), 77);
    assert_eq!(seen(&decided.programs), [0, DEFAULT, 77, DEFAULT, 1]);
    let other = std::thread::spawn(outside).join().unwrap();
    assert_eq!(other, DEFAULT, "another thread has no business with it");
    for (n, wanted) in [500i64, 7, 7, 7, 999_999].into_iter().enumerate() {
        want(&decided.programs, thread(), wanted as u64);
        assert_eq!(outside(), wanted, "change {n}");
    }
    assert_eq!(decided.sum(|site| site.chosen), 6);
    let site = decided.sites().into_iter().find(|site| site.chosen == 6).unwrap();
    assert_eq!((site.last, site.histogram[3], site.histogram[7], site.histogram[9]), (Some(999_999), 3, 1, 1));
    decided.go(Destination::Value(DEFAULT), Mode::Global);
    assert_eq!(outside(), DEFAULT, "nobody decides any longer");
    decided.go(Destination::Policy(DEFAULT), Mode::Global);
    assert_eq!(outside(), 999_999, "it can come back");
    decided.go(Destination::Unload, Mode::Global);
    assert_eq!(outside(), DEFAULT);
}

pub fn what_is_not_accepted_is_refused_and_counted() {
    let decided = Decided::new("by_thread", DEFAULT, Mode::Now);
    for (n, wrong) in [1_000_001u64, u64::MAX, 1 << 63].into_iter().enumerate() {
        want(&decided.programs, thread(), wrong);
        assert_eq!(outside(), DEFAULT, "{wrong}");
        assert_eq!(seen(&decided.programs)[0], -i64::from(libc::ERANGE));
        assert_eq!(decided.sum(|site| site.refused), n as u64 + 1);
    }
    assert_eq!(decided.sum(|site| site.chosen), 0);
    want(&decided.programs, thread(), 1_000_000);
    assert_eq!(outside(), 1_000_000, "the end of the range belongs to it");
}

pub fn between_two_compiled_values_nothing_is_chosen() {
    let values = Values::compiled([1, DEFAULT, 64, 1 << 20]);
    let decided = Decided::given_in("by_thread", Some(values));
    decided.go(Destination::Policy(DEFAULT), Mode::Now);
    for (n, wrong) in [48u64, 0, 33, (1 << 20) - 1, 1 << 21].into_iter().enumerate() {
        want(&decided.programs, thread(), wrong);
        assert_eq!(outside(), DEFAULT, "{wrong}");
        assert_eq!(seen(&decided.programs)[0], -i64::from(libc::ERANGE), "{wrong}");
        assert_eq!((decided.sum(|site| site.refused), decided.sum(|site| site.chosen)), (n as u64 + 1, 0));
    }
    for right in [64, 1, 1 << 20] {
        want(&decided.programs, thread(), right as u64);
        assert_eq!(outside(), right);
    }
}

pub fn a_policy_chooses_compiled_values_beside_proved_ones() {
    let values = Values { compiled: vec![-2, 500], ..Values::proved(1, 100) };
    let decided = Decided::given_in("by_thread", Some(values));
    decided.go(Destination::Policy(DEFAULT), Mode::Now);
    for (n, wrong) in [101i64, 0, -1, 499, 501].into_iter().enumerate() {
        want(&decided.programs, thread(), wrong as u64);
        assert_eq!(outside(), DEFAULT, "{wrong}");
        assert_eq!((decided.sum(|site| site.refused), decided.sum(|site| site.chosen)), (n as u64 + 1, 0));
    }
    for right in [500, 1, 100, 50] {
        want(&decided.programs, thread(), right as u64);
        assert_eq!(outside(), right);
    }
}

pub fn a_value_is_in_force_beneath() {
    let decided = Decided::new("by_thread", 55, Mode::Now);
    assert_eq!(outside(), 55);
    want(&decided.programs, thread(), 77);
    assert_eq!(outside(), 77);
    assert_eq!(seen(&decided.programs), [0, 55, 77, DEFAULT, 1]);
    decided.go(Destination::Policy(66), Mode::Global);
    assert_eq!((outside(), seen(&decided.programs)[1]), (77, 66));
    want(&decided.programs, thread(), u64::MAX);
    assert_eq!(outside(), 66, "what was in force stays");
    let status = decided.tune.status().unwrap();
    assert_eq!((status.value, status.policy.is_some()), (66, true));
    decided.go(Destination::Value(44), Mode::Global);
    assert!(decided.tune.status().unwrap().policy.is_none());
    assert_eq!(outside(), 44);
}

/// A process that is inside `HOLD` until it is released.
fn inside() -> Child {
    let child =
        Command::new("sh").args(["-c", "echo hold 60000 >/proc/xk_atomic"]).stdout(Stdio::null()).spawn().unwrap();
    let state = format!("/proc/{}/stack", child.id());
    wait_for("it holds", || fs::read_to_string(&state).is_ok_and(|stack| stack.contains("xk_atomic_hold")));
    child
}

fn held() -> [i64; 2] {
    let hold = Atomic.counts().unwrap().span("hold");
    assert_eq!(hold.violations, 0, "two values met: {hold:?}");
    hold.last
}

fn release(mut child: Child) {
    Atomic.tell("release").unwrap();
    assert!(child.wait().unwrap().success());
}

/// As a program of perf would be: others, and changes of maps, and this one keep out of each other's way.
pub fn the_kernel_knows_that_a_policy_is_at_work() {
    let decided = Decided::given("active");
    decided.go(Destination::Policy(DEFAULT), Mode::Global);
    assert_eq!(outside(), 101);
    decided.go(Destination::Value(7), Mode::Global);
    assert_eq!(outside(), 7);
}

pub fn a_policy_knows_when_everybody_has_gone_over() {
    let decided = Decided::given("done");
    let child = inside();
    let transition = std::thread::scope(|scope| {
        let waiting = scope.spawn(|| decided.tune.go(Destination::Policy(40), Mode::Task, LONG));
        wait_for("it has begun", || decided.tune.status().unwrap().state == State::Changing && outside() == 40);
        assert!(decided.sum(|site| site.runs) > 0, "it was asked, and did not set a value");
        release(child);
        waiting.join().unwrap()
    });
    transition.unwrap();
    assert_eq!(outside(), 77);
    assert_eq!(held(), [DEFAULT; 2]);
}

pub fn a_thread_that_is_inside_keeps_the_value_without_the_policy() {
    let decided = Decided::given("done");
    let child = inside();
    let blocked = decided.tune.go(Destination::Policy(DEFAULT), Mode::Global, Duration::from_millis(300));
    assert!(matches!(blocked, Err(xk_runtime::Error::Blocked { .. })), "{blocked:?}");
    assert_eq!((outside(), decided.sum(|site| site.runs)), (DEFAULT, 0));
    release(child);
    decided.go(Destination::Policy(DEFAULT), Mode::Global);
    assert_eq!(outside(), 77);
    // The other way: who is inside with the policy keeps its decision.
    let child = inside();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| decided.tune.go(Destination::Unload, Mode::Task, LONG));
        wait_for("the default is back", || outside() == DEFAULT);
        release(child);
        waiting.join().unwrap().unwrap();
    });
    assert_eq!(held(), [77; 2]);
}

/// All policies of `alternate`, in force; `agree` says whether values must.
fn alternating(agree: bool) -> (Device, Programs, Vec<Tune>) {
    let device = Device::open().unwrap();
    let programs = programs("alternate");
    let mut tunes = Vec::new();
    for entry in programs.entries() {
        let table = described(&entry.constant);
        let tune = load(&device, &table);
        let program = programs.program(entry).unwrap();
        let policy = if agree { Policy::new(program, &table) } else { Policy::for_each_site(program) };
        device.give_policy(tune.id(), &policy).unwrap();
        tunes.push(tune);
    }
    let changes: Vec<Change> =
        tunes.iter().map(|tune| Change { id: tune.id(), to: Destination::Policy(DEFAULT) }).collect();
    device.transition(&changes, Mode::Task, LONG).unwrap();
    (device, programs, tunes)
}

const SPANS: [&str; 5] = ["balance", "agree", "recurse", "sleep", "object"];

/// Has threads work until what the spans have seen since is enough. How long that takes is the host's.
fn rounds_until(threads: u32, what: &str, enough: impl Fn(&xk_harness::Count) -> bool) -> xk_harness::Counts {
    let before = Atomic.counts().unwrap();
    let since = || Atomic.counts().unwrap().since(&before);
    Atomic.start(threads, Atomic::mask(&SPANS)).unwrap();
    wait_for(what, || SPANS.iter().all(|span| enough(&since().span(span))));
    Atomic.stop().unwrap();
    since()
}

pub fn two_decisions_never_meet_in_one_activation() {
    let all = alternating(false);
    rounds_until(4, "a policy that changes its mind is noticed in every span", |count| count.violations > 0);
    drop(all);

    let (device, _programs, tunes) = alternating(true);
    let begin = Instant::now();
    // For two seconds at least: what must not happen has many chances.
    let enough = |count: &xk_harness::Count| count.rounds > 10 && begin.elapsed() > Duration::from_secs(2);
    let counts = rounds_until(4, "every span is executed", enough);
    let mut reused = 0;
    for tune in &tunes {
        let policy = device.policy_status(tune.id()).unwrap().unwrap();
        reused += policy.sites.iter().map(|site| site.reused).sum::<u64>();
    }
    assert!(reused > 0);
    for span in SPANS {
        let count = counts.span(span);
        // An execution that kprobes did not show to xk.ko has the default.
        assert!(count.violations <= count.defaults, "{span}: {count:?}");
    }
    let missed: u64 = tunes.iter().flat_map(|tune| tune.status().unwrap().sites).map(|site| site.missed).sum();
    let defaults: u64 = SPANS.iter().map(|span| counts.span(span).defaults).sum();
    assert!(defaults <= missed, "{defaults} defaults, {missed} missed");
}

pub fn a_new_policy_replaces_the_old_in_one_flip() {
    let decided = Decided::new("done", DEFAULT, Mode::Global);
    assert_eq!(outside(), 77);
    let other = programs("by_thread");
    want(&other, thread(), 88);
    let table = described("HOLD");
    let program = other.program(&other.entries()[0]).unwrap();
    let before = decided.device.policy_status(decided.tune.id()).unwrap().unwrap().program;
    decided.device.give_policy(decided.tune.id(), &Policy::new(program, &table)).unwrap();
    assert_eq!(outside(), 77, "not before the transition");
    decided.go(Destination::Policy(DEFAULT), Mode::Global);
    assert_eq!(outside(), 88);
    assert_ne!(decided.device.policy_status(decided.tune.id()).unwrap().unwrap().program, before);
    decided.device.take_policy(decided.tune.id()).unwrap();
    assert_eq!(outside(), 88, "not before the transition");
    let refused = decided.tune.go(Destination::Policy(DEFAULT), Mode::Now, LONG);
    assert!(refused.is_err(), "there is none to go to");
    decided.go(Destination::Value(DEFAULT), Mode::Global);
    assert_eq!(outside(), DEFAULT);
}

fn ask_for_time(times: u32) {
    for _ in 0..times {
        fs::read_to_string("/proc/uptime").unwrap();
    }
}

fn attached_probes() -> usize {
    let probes = fs::read_to_string("/sys/kernel/debug/kprobes/list").unwrap();
    probes.lines().filter(|line| line.contains("uptime_proc_show")).count()
}

pub fn companions_run_as_long_as_the_policy() {
    let decided = companions();
    assert_eq!(outside(), DEFAULT);
    ask_for_time(3);
    assert_eq!(outside(), 500, "what the kretprobe noted decides");
    assert_eq!(std::thread::spawn(outside).join().unwrap(), DEFAULT, "it noted it for one thread");
    assert_eq!(attached_probes(), 1);
    let Decided { device, tune, programs, _companions } = decided;
    drop((programs, _companions));
    assert_eq!((outside(), attached_probes()), (500, 1), "they belong to the tune, not to who loaded them");
    device.transition(&[Change { id: tune.id(), to: Destination::Unload }], Mode::Global, LONG).unwrap();
    assert_eq!(outside(), DEFAULT);
    wait_for("the kretprobe is gone", || attached_probes() == 0);
}

pub fn sigkill_of_the_owner_ends_policy_and_companions() {
    let mut owner = Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "own", "--nocapture"])
        .env("XK_TEST_OWN", "1")
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    wait_for("the owner's policy", || {
        ask_for_time(3);
        outside() == 500
    });
    owner.kill().unwrap();
    owner.wait().unwrap();
    wait_for("the default", || outside() == DEFAULT);
    wait_for("the kretprobe is gone", || attached_probes() == 0);
    assert!(Device::open().unwrap().tunes().unwrap().is_empty());
}

fn contains(text: &str, words: &[&str]) {
    for word in words {
        assert!(text.contains(word), "`{word}` is not in: {text}");
    }
}

/// What a request refers to is read before anything is locked.
pub fn user_memory_that_does_not_come_holds_nobody_up() {
    let device = Device::open().unwrap();
    let tune = load(&device, &described("HOLD"));
    let id = tune.id();
    tune.detach().unwrap();
    let programs = programs("done");
    let program = programs.program(&programs.entries()[0]).unwrap().as_raw_fd();
    let missing = Missing::new();
    let links = missing.address();
    let request = std::thread::spawn(move || {
        let file = fs::OpenOptions::new().read(true).write(true).open("/dev/xk").unwrap();
        let mut request = abi::Policy {
            size: size_of::<abi::Policy>() as u32,
            id,
            program,
            nr_scopes: 0,
            scopes: 0,
            sites: 0,
            links,
            nr_sites: 0,
            nr_links: 1,
            error: [0; abi::ERROR_LEN],
        };
        // SAFETY: the structure is the one of the command.
        let result = unsafe { libc::ioctl(file.as_raw_fd(), abi::IOC_POLICY.into(), &raw mut request) };
        (result, String::from_utf8_lossy(&request.error).into_owned())
    });
    missing.wait();
    let (send, receive) = std::sync::mpsc::channel();
    std::thread::spawn(move || send.send(device.tunes().map(|tunes| tunes.len())));
    let told = receive.recv_timeout(Duration::from_secs(20));
    assert!(matches!(told, Ok(Ok(1))), "{told:?}");
    missing.provide();
    let (result, error) = request.join().unwrap();
    contains(&error, &["is no BPF link"]);
    assert_eq!(result, -1);
    Device::open().unwrap().unload(id).unwrap();
}

/// An instruction that holds the value has no room for a decision.
pub fn an_instruction_asks_no_policy() {
    let device = Device::open().unwrap();
    let table = described("HOLD");
    let programs = programs("done");
    let program = programs.program(&programs.entries()[0]).unwrap();
    for backend in [Backend::Patch, Backend::AutoGlobal] {
        let tune = device.load_by(&table, &Loaded, backend).unwrap();
        let refused = device.give_policy(tune.id(), &Policy::for_each_site(program)).unwrap_err().to_string();
        contains(&refused, &["uses the patch backend"]);
        tune.go(Destination::Value(77), Mode::Global, LONG).unwrap();
        assert_eq!(outside(), 77, "it is a tune like any other");
        tune.go(Destination::Unload, Mode::Global, LONG).unwrap();
        assert_eq!(outside(), DEFAULT);
    }
}

pub fn several_policies_change_together() {
    let (device, _programs, tunes) = alternating(true);
    let policies = device.tunes().unwrap().iter().filter(|tune| tune.policy.is_some()).count();
    assert_eq!((policies, tunes.len()), (5, 5));
    let changes: Vec<Change> = tunes.iter().map(|tune| Change { id: tune.id(), to: Destination::Unload }).collect();
    device.transition(&changes, Mode::Task, LONG).unwrap();
    assert!(device.tunes().unwrap().is_empty());
}

pub fn a_policy_survives_its_loader_and_a_reloaded_module() {
    let Decided { device, tune, programs, .. } = Decided::new("done", DEFAULT, Mode::Now);
    let id = tune.detach().unwrap();
    drop((device, programs));
    assert_eq!(outside(), 77);
    assert!(run("rmmod", &["xk_atomic"]));
    insmod(ATOMIC_KO);
    assert_eq!(outside(), 77, "also in the module that came again");
    let device = Device::open().unwrap();
    device.unload(id).unwrap();
    assert_eq!(outside(), DEFAULT);
}
