//! Memory that runs out: at the first allocation of what is asked for, at the second,
//! and so on until all is done. The module is xk.ko with `kernel/faulty/fault.h` in
//! front of its files, and counts what it holds.

use xk_runtime::{Destination, Mode, Outcome};
use xk_table::Scope;

use super::data::{fixed_object, word};
use crate::support::target::running;
use crate::support::windowed;
use crate::*;
use xk_testing::guest::faulty::{feed, held, holds, insmod_faulty, starve, waited};

/// More allocations than anything here needs.
const MANY: u32 = 200;

/// One site of every kind, with scopes: whatever a load allocates.
fn everything() -> ScopeTable {
    let steps = vec![
        Op { dst: 4, a: RDI, ..op(OpCode::Reg, 8) },
        Op { dst: 5, imm: 2, ..op(OpCode::Imm, 8) },
        Op { dst: 6, a: 4, b: 5, ..op(OpCode::Shl, 8) },
        Op { dst: 7, imm: 11, ..op(OpCode::Text, 8) },
        Op { dst: 1, a: 6, b: 7, ..op(OpCode::Add, 8) },
        Op { dst: 2, a: 1, ..op(OpCode::Load, 4) },
        op(OpCode::Iv, 4),
        Op { dst: 3, a: 0, b: 2, ..op(OpCode::Add, 4) },
        Op { dst: RAX, a: 3, ..op(OpCode::SetReg, 4) },
    ];
    let sites = vec![
        SiteSpec::new("xk_target_value", 5, 2, set_register(RAX)),
        SiteSpec::new("xk_target_array", 15, 2, steps),
        SiteSpec::new("xk_target_compare", 5, 3, compare(RDI, false)),
    ];
    let mut table = table(&target_module(), "EVERYTHING", sites);
    table.scopes =
        (0..3).map(|i| Scope { function: i, ranges: vec![[0, 16]], spans: vec![i], ..Scope::default() }).collect();
    table.data = vec![word(), fixed_object()];
    table
}

/// Everything that [`everything`] changes.
fn effects() -> [String; 5] {
    ["value", "array", "compare", "limits", "fixed"].map(target)
}

fn effects_of(value: i64) -> [String; 5] {
    let array = format!("{} {}", 1000 + value, 2000 + value);
    [value.to_string(), array, u8::from(40 > value).to_string(), format!("32 {value} 32 32"), value.to_string()]
}

/// Nothing is loaded, and no probe is left in the module, by the kernel's own account.
fn nothing_is_left(pieces: i64) {
    assert!(Device::open().unwrap().tunes().unwrap().is_empty());
    let probes = fs::read_to_string("/sys/kernel/debug/kprobes/list").unwrap();
    // One is the module's own.
    assert!(!probes.lines().any(|line| line.contains("xk_target") && !line.contains("xk_target_probed")), "{probes}");
    assert_eq!(effects(), effects_of(32));
    holds(pieces);
}

/// What the user is told; the checks show that it is true.
fn ran_out<T: std::fmt::Debug>(result: &Result<T, Error>) -> bool {
    matches!(result, Err(Error::Refused { reason, errno: libc::ENOMEM })
        if reason == "no memory: nothing has changed, and nothing is left behind")
}

/// Does something with memory for no allocation, for one, for two, until it has enough;
/// how often it had not, and what came of it then.
fn starving<T>(lasting: bool, mut attempt: impl FnMut() -> T, mut check: impl FnMut(u32, T)) -> (u32, T) {
    for nth in 1..MANY {
        starve(nth, lasting);
        let result = attempt();
        if feed() == 0 {
            return (nth - 1, result);
        }
        check(nth, result);
    }
    panic!("{MANY} allocations were not enough");
}

pub fn a_load_without_memory_leaves_nothing() {
    insmod_faulty();
    let device = Device::open().unwrap();
    let before = held();
    for lasting in [false, true] {
        let attempt = || device.load(&everything(), &Loaded);
        let (times, tune) = starving(lasting, attempt, |nth, result| {
            assert!(ran_out(&result), "allocation {nth}: {result:?}");
            nothing_is_left(before);
        });
        // The tune, its scopes, and some for each of four sites and three scopes.
        assert!(times > 20, "{times}");
        let tune = tune.unwrap();
        tune.set(50).unwrap();
        assert_eq!(effects(), effects_of(50));
        tune.unload().unwrap();
        nothing_is_left(before);
    }
}

pub fn a_transition_without_memory_changes_nothing() {
    insmod_faulty();
    let tune = Device::open().unwrap().load(&everything(), &Loaded).unwrap();
    let before = held();
    for (mode, least) in [(Mode::Now, 4), (Mode::Task, 7), (Mode::Global, 7)] {
        for lasting in [false, true] {
            let attempt = || tune.go(Destination::Value(50), mode, Duration::ZERO);
            let (times, done) = starving(lasting, attempt, |nth, result| {
                // The look before a stop only makes it shorter.
                if mode != Mode::Now && !lasting && result.is_ok() {
                    assert_eq!(effects(), effects_of(50), "{mode}, allocation {nth}");
                    tune.go(Destination::Value(32), mode, Duration::from_secs(60)).unwrap();
                    return holds(before);
                }
                let given_up = matches!(&result, Err(Error::Blocked { outcome: Outcome::Unchanged, reason, .. })
                    if reason == "given up: no memory to check the threads");
                assert!(ran_out(&result) || given_up, "{mode}, allocation {nth}: {result:?}");
                assert_eq!(effects(), effects_of(32), "{mode}, allocation {nth}");
                holds(before);
            });
            assert!(times >= least, "{mode}: {times}");
            done.unwrap();
            assert_eq!(effects(), effects_of(50));
            tune.go(Destination::Value(32), mode, Duration::from_secs(60)).unwrap();
            holds(before);
        }
    }
}

/// Without a stop, nothing else says that no handler uses a site any more when it is freed.
pub fn a_detour_that_goes_without_memory_waits_for_handlers() {
    insmod_faulty();
    let before = held();
    let sites = vec![SiteSpec::new("xk_target_value", 5, 2, set_register(RAX))];
    let table = windowed(table(&target_module(), "VALUE", sites), &[5]);
    // Of a descriptor of its own, whose end is the end of the tune.
    let load = || Device::open().unwrap().load_by(&table, &Loaded, Backend::Detour);
    let mut met = 0;
    for nth in 1..MANY {
        let tune = load().unwrap();
        tune.set(50).unwrap();
        starve(nth, false);
        // If there was no memory to begin, it goes with its owner.
        let gone = tune.unload();
        let enough = feed() == 0;
        if waited() > met {
            met += 1;
            // Who meets the jump that was left takes it away, unless the worker was faster.
            if running("text")[5] == 0xe9 {
                drop(load().unwrap());
            }
        }
        wait_for("it is gone", || Device::open().unwrap().tunes().unwrap().is_empty());
        assert_eq!(target("value"), "32", "allocation {nth}: {gone:?}");
        // Without a stop, the jump goes a little later.
        wait_for("the original bytes", || running("text")[5] != 0xe9);
        holds(before);
        if enough {
            // The worker may have waited, too.
            assert!(waited() >= 1, "{nth} allocations, one of them for the stop");
            return;
        }
    }
    panic!("{MANY} allocations were not enough");
}

/// Who dies cannot be told that it has to wait.
pub fn an_owner_that_dies_without_memory() {
    insmod_faulty();
    let before = held();
    let load = || {
        let tune = Device::open().unwrap().load(&everything(), &Loaded).unwrap();
        tune.go(Destination::Value(50), Mode::Task, Duration::from_secs(60)).unwrap();
        tune
    };
    let tunes = || Device::open().unwrap().tunes().unwrap();
    for nth in 1..=6 {
        let tune = load();
        starve(nth, true);
        drop(tune);
        // Not by the crate, which asks for a report, too.
        let mut left = raw::tune_info(0);
        raw::ioctl(&raw::device(), abi::IOC_TUNE_INFO, &mut left).unwrap();
        assert_eq!((left.state, left.value), (abi::STATE_UNLOADING, 50), "allocation {nth}");
        assert_eq!(effects(), effects_of(50), "at once everywhere, or nowhere");
        assert!(feed() > 0);
        wait_for("there is memory to go", || tunes().is_empty());
        nothing_is_left(before);
    }
    // One failure is none that lasts.
    let tune = load();
    starve(1, false);
    drop(tune);
    wait_for("it is tried again", || tunes().is_empty());
    assert_eq!(feed(), 1);
    nothing_is_left(before);
}

/// It cannot be kept from coming. What has no memory is not armed; the rest is.
pub fn a_module_that_comes_without_memory_is_left_alone() {
    insmod_faulty();
    let before = held();
    let table = everything();
    assert!(run("rmmod", &[MODULE]));
    for nth in 1..MANY {
        // Anew: what a site has once it keeps.
        let tune = load(&table, 50).unwrap();
        starve(nth, false);
        insmod(TARGET_KO);
        let failures = feed();
        let status = tune.status().unwrap();
        let is_broken = |site: &SiteStatus| site.probe == Probe::Broken;
        assert_eq!((status.broken, status.sites.iter().any(is_broken)), (failures > 0, failures > 0));
        for (i, site) in status.sites.iter().enumerate() {
            let reason = site.reason.as_deref().unwrap_or("");
            assert_eq!(reason.contains("memory") || reason.contains("error 12"), is_broken(site), "{site:?}");
            let expected = effects_of(if is_broken(site) { 32 } else { 50 });
            assert_eq!(effects()[i], expected[i], "allocation {nth}: {site:?}");
        }
        tune.unload().unwrap();
        nothing_is_left(before);
        if failures == 0 {
            assert!(nth > 10, "{nth}");
            return;
        }
        assert!(run("rmmod", &[MODULE]));
    }
    panic!("{MANY} allocations were not enough");
}
