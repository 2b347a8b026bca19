//! Sites and transitions in words.

use std::time::Duration;

use xk_apply::{Done, Warning};
use xk_policy::Notice;
use xk_runtime::{Mode, Probe, SitePolicy, SiteStatus, TuneStatus};
use xk_store::Tables;

use crate::output::Paint;

/// How control reaches a site.
pub fn probe_word(probe: Probe) -> &'static str {
    match probe {
        Probe::Jump => "jump",
        Probe::Int3 => "breakpoint",
        Probe::Detour => "detour",
        Probe::Patch => "patch",
        Probe::Disarmed => "DISARMED",
        Probe::Waiting => "waiting",
        Probe::Bypassed => "BYPASSED",
        Probe::Broken => "BROKEN",
        Probe::Data => "data",
        Probe::Drifted => "DRIFTED",
        Probe::Unknown => "unknown",
    }
}

/// Why a site does not have the backend that its tune prefers.
pub fn no_backend(site: &SiteStatus) -> Option<String> {
    let wanted = if site.probe == Probe::Detour { "patch" } else { "detour" };
    site.note.as_ref().map(|reason| format!("no {wanted}: {reason}"))
}

/// `function+0x12 [module]`
pub fn place(site: &SiteStatus) -> String {
    match &site.module {
        Some(module) => format!("{}+{:#x} [{module}]", site.symbol, site.offset),
        None => format!("{}+{:#x}", site.symbol, site.offset),
    }
}

/// `4..7: 12, 64..127: 3`
pub fn histogram(site: &SitePolicy) -> String {
    let used = site.histogram.iter().enumerate().filter(|(_, &times)| times > 0);
    let bucket = |(n, times): (usize, &u64)| match n {
        0 => format!("<1: {times}"),
        1 => format!("1: {times}"),
        n => format!("{}..{}: {times}", 1u64 << (n - 1), (1u64 << (n - 1)) - 1 + (1u64 << (n - 1))),
    };
    used.map(bucket).collect::<Vec<_>>().join(", ")
}

/// `42 s`, `3 min`, `5 h`, `2 d`.
pub fn time(time: Duration) -> String {
    match time.as_secs() {
        seconds @ 0..120 => format!("{seconds} s"),
        seconds @ 120..7_200 => format!("{} min", seconds / 60),
        seconds @ 7_200..172_800 => format!("{} h", seconds / 3_600),
        seconds => format!("{} d", seconds / 86_400),
    }
}

/// `for 3 min, `; empty without a lease.
pub fn lease(lease: Option<Duration>) -> String {
    lease.map_or(String::new(), |lease| format!("for {}, ", time(lease)))
}

/// How a transition went.
pub fn describe(done: &Done) -> String {
    match done.mode {
        Mode::Now => "changed at once (mode now)".into(),
        mode => format!(
            "all threads switched in {:.1} ms (mode {mode}, {} stop{})",
            done.transition.elapsed.as_secs_f64() * 1e3,
            done.transition.stops,
            if done.transition.stops == 1 { "" } else { "s" }
        ),
    }
}

/// Shows the defaults of tunes that were ended, and how the transition went.
pub fn show_ended(ended: &[&TuneStatus], tables: &Tables, done: &Done) {
    for tune in ended {
        println!("{} = {} (its default)", tables.title_of(tune), tune.default);
    }
    println!("{}", describe(done));
}

/// Prints a warning.
pub fn warn(warning: &Warning) {
    eprintln!("warning: {warning}");
}

/// Prints a notice of the compilation of a policy.
pub fn notice(notice: &Notice<'_>) {
    match notice {
        Notice::Progress(line) => eprintln!("{}", Paint::stderr().dim(line)),
        Notice::Registers { file, line } => eprintln!(
            "warning: {}:{line}: registers do not hold the arguments of the function at a site: XK_VAR(name) reads them",
            file.display()
        ),
    }
}
