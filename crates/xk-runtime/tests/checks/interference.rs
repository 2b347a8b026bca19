//! Others who patch the same functions: the value in force stays what xk says, or
//! xk says that it is not.

use xk_harness::Flipper;

use super::blocking::beside;
use crate::*;

const TRACING: &str = "/sys/kernel/tracing";
const ENABLED: &str = "/sys/kernel/debug/kprobes/enabled";
const OPTIMIZATION: &str = "/proc/sys/debug/kprobes-optimization";

fn write(path: &str, text: &str) {
    fs::write(path, text).unwrap_or_else(|error| panic!("{path}: {text}: {error}"));
}

fn trace(file: &str, text: &str) {
    write(&format!("{TRACING}/{file}"), text);
}

/// Transitions under threads, in both modes: nothing meets, and the value arrives.
fn transitions_work() {
    for mode in [Mode::Task, Mode::Global] {
        let mut flipper = Flipper::load(&file(ATOMIC_KO), &[family("RECURSE").unwrap()]).unwrap();
        Atomic.tell("inside 16").unwrap();
        Atomic.tell("pause 1000").unwrap();
        Atomic.start(8, Atomic::mask(&["recurse"])).unwrap();
        assert_eq!(flipper.flip(100, mode, LONG).unwrap().blocked, 0);
        Atomic.stop().unwrap();
        let seen = Atomic.counts().unwrap().span("recurse");
        assert!(seen.rounds > 0 && seen.violations == 0, "{seen:?}");
    }
}

pub fn the_function_tracer_is_a_bystander() {
    let traced = || {
        let text = fs::read_to_string(format!("{TRACING}/trace")).unwrap();
        text.lines().filter(|line| line.contains(" xk_atomic_value ")).count()
    };
    // Before the tune and after it.
    for before in [true, false] {
        let tune = if before { None } else { Some(tuned("HOLD")) };
        trace("set_ftrace_filter", "xk_atomic_value\nxk_atomic_recurse\n");
        trace("current_tracer", "function");
        let tune = tune.unwrap_or_else(|| tuned("HOLD"));
        trace("trace", "");
        assert_eq!((outside(), traced()), (TUNED, 1));
        tune.go(Destination::Value(5), Mode::Global, LONG).unwrap();
        assert_eq!((outside(), traced()), (5, 2));
        transitions_work();
        tune.go(Destination::Unload, Mode::Task, LONG).unwrap();
        assert_eq!(outside(), DEFAULT);
        trace("current_tracer", "nop");
        trace("set_ftrace_filter", "");
        assert_eq!(outside(), DEFAULT);
    }
}

pub fn another_kprobe_is_a_bystander() {
    let hits = || {
        let text = fs::read_to_string(format!("{TRACING}/kprobe_profile")).unwrap();
        text.split_whitespace().nth(1).map(|word| word.parse::<u64>().unwrap()).unwrap()
    };
    for before in [true, false] {
        let tune = if before { None } else { Some(tuned("HOLD")) };
        trace("kprobe_events", "p:xk_test xk_atomic:xk_atomic_value");
        trace("events/kprobes/xk_test/enable", "1");
        let tune = tune.unwrap_or_else(|| tuned("HOLD"));
        let start = hits();
        assert_eq!((outside(), hits() - start), (TUNED, 1));
        tune.go(Destination::Value(5), Mode::Global, LONG).unwrap();
        assert_eq!((outside(), hits() - start), (5, 2));
        tune.go(Destination::Unload, Mode::Task, LONG).unwrap();
        assert_eq!((outside(), hits() - start), (DEFAULT, 3));
        trace("events/kprobes/xk_test/enable", "0");
        trace("kprobe_events", "");
    }
}

pub fn probes_that_are_not_optimised_change_as_well() {
    write(OPTIMIZATION, "0");
    transitions_work();
    write(OPTIMIZATION, "1");
    transitions_work();
}

pub fn kprobes_disabled_during_a_transition() {
    let holder = Holder::new();
    let transition = beside(load("HOLD"), Mode::Task, LONG);
    wait_for("everybody else goes over", || outside() == TUNED);
    write(ENABLED, "0");
    // Visible, and what the kernel was asked for.
    assert_eq!(outside(), DEFAULT);
    assert!(only_tune().unwrap().broken);
    assert_eq!(holder.release(), [DEFAULT; 2]);
    let (tune, done) = transition.join().unwrap();
    done.unwrap();
    write(ENABLED, "1");
    assert_eq!((outside(), tune.status().unwrap().broken), (TUNED, false));
}

const LIVEPATCH: &str = "/sys/kernel/livepatch/xk_redirect";

fn livepatch() {
    insmod(crate::REDIRECT_KO);
    let transition = format!("{LIVEPATCH}/transition");
    wait_for("every thread is patched", || fs::read_to_string(&transition).unwrap().trim() == "0");
}

fn livepatch_away() {
    write(&format!("{LIVEPATCH}/enabled"), "0");
    wait_for("no thread is patched", || !Path::new(LIVEPATCH).exists());
    wait_for("the livepatch can be removed", || run("rmmod", &["xk_redirect"]));
}

/// What is not executed cannot be tuned: the site stays, and is reached again when
/// the livepatch goes. A livepatch is refused nothing.
pub fn a_livepatch_takes_the_function_away() {
    let site = |tune: &Tune| {
        let sites = tune.status().unwrap().sites;
        sites.into_iter().find(|site| site.symbol == "xk_atomic_value").unwrap()
    };
    let hits = |tune: &Tune| site(tune).hits;
    let bypassed = |tune: &Tune| {
        let status = tune.status().unwrap();
        let bypassed: Vec<_> = status.sites.iter().filter(|site| site.probe == Probe::Bypassed).collect();
        assert_eq!(status.broken, !bypassed.is_empty());
        bypassed.iter().map(|site| (site.symbol.clone(), site.reason.clone().unwrap())).collect::<Vec<_>>()
    };
    let by_it = vec![("xk_atomic_value".to_owned(), "bypassed by livepatch xk_redirect".to_owned())];
    for before in [true, false] {
        let tune = if before { None } else { Some(tuned("HOLD")) };
        assert!(tune.as_ref().is_none_or(|tune| bypassed(tune).is_empty()));
        livepatch();
        let tune = tune.unwrap_or_else(|| tuned("HOLD"));
        let start = hits(&tune);
        assert_eq!((outside(), hits(&tune) - start), (-1, 0));
        assert_eq!(bypassed(&tune), by_it);
        tune.go(Destination::Value(5), Mode::Task, LONG).unwrap();
        assert_eq!((outside(), hits(&tune) - start), (-1, 0));
        livepatch_away();
        assert_eq!((outside(), hits(&tune) - start), (5, 1));
        assert!(bypassed(&tune).is_empty());
        tune.go(Destination::Unload, Mode::Global, LONG).unwrap();
        assert_eq!(outside(), DEFAULT);
    }
}
