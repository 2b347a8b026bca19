//! `xk set`: other values, for all constants of the command line or for none.
//!
//! Constants that are not tuned yet are loaded first, with their defaults in force;
//! then one transition changes all. A tune stays after the command has ended: until
//! `xk unset`, until its lease is over, until xk.ko is removed, until the machine is
//! booted. With `--hold` it belongs to this process and ends with it, however it ends.

use std::time::{Duration, Instant};

use clap::ValueEnum;
use xk_kernel::{hz_of, UnknownHz};
use xk_runtime::{
    Backend, BackendChoice, Destination, Device, Error as RuntimeError, Mode, Probe, Rules, SiteStatus, Tune,
    TuneStatus,
};
use xk_table::{CriticalSpan, ProbeKind, Quantity, ScopeTable};

use super::extend;
use super::load::Stay;
use super::scoped::{self, Whom};
use super::transition::{self, Options};
use crate::addresses::Addresses;
use crate::context::{running, Folders, Tables};
use crate::exit::{Exit, Failure, Result};
use crate::output::{Columns, Paint};
use crate::tunes::{is_tune_of, owner, probe_word, title};
use crate::{limits, signals};

/// The kernel turns breakpoints into jumps some time after they were placed.
const OPTIMISING: Duration = Duration::from_secs(1);

/// Arguments of `xk set`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
A VALUE is decimal or hexadecimal (0x40), may be negative, and may end in K, M or G (times 1024) or,
for a constant whose source line states its unit, in ns, us, ms or s.

The values stay until `xk unset`, until xk.ko is removed, or until the next boot; nothing brings them
back then. With --for they end by themselves, also when no process is left; setting them again renews
the time. With --hold they last as long as this process, even if it is killed. Several constants change
together: if one cannot, none does.

A value does not change under a thread that still uses the old one. `xk explain` shows which mode a
constant needs and why; a thread that stays in the way until the timeout is named, with its stack, and
nothing has changed then.")]
pub struct Args {
    /// Constants and their new values
    #[arg(required = true, value_name = "NAME=VALUE")]
    assignments: Vec<String>,
    /// Stay in the foreground; revert to the defaults on exit
    #[arg(long)]
    hold: bool,
    /// Revert to the defaults after this time, whether or not the owner still runs
    #[arg(long = "for", value_name = "TIME", value_parser = transition::parse_time, conflicts_with = "hold")]
    lease: Option<Duration>,
    /// Backend: how control reaches the updates
    #[arg(long, value_enum, default_value_t = By::Kprobe)]
    backend: By,
    /// Refuse a value that is neither proved nor compiled, instead of compiling it first
    #[arg(long)]
    no_compile: bool,
    #[command(flatten)]
    whom: Whom,
    #[command(flatten)]
    transition: Options,
}

/// A constant and the value that it shall have.
#[derive(Debug)]
pub struct Change<'a> {
    /// Its table.
    pub table: &'a ScopeTable,
    /// The value, which is proved or was compiled.
    pub value: i64,
}

impl Change<'_> {
    fn title(&self) -> &str {
        title(&self.table.constant)
    }
}

/// How control is to reach updates.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum By {
    /// A probe: exported interfaces of the kernel only; every execution is counted
    Kprobe,
    /// A jump to a stub at every site, or nothing: no trap, no execution is missed
    Detour,
    /// The instructions hold the value themselves, at every site, or nothing: they cost nothing
    Patch,
    /// The cheapest that is possible: a patch (in mode global), else a detour, else a probe
    Auto,
}

impl From<By> for BackendChoice {
    fn from(by: By) -> Self {
        match by {
            By::Kprobe => Self::Kprobe,
            By::Detour => Self::Detour,
            By::Patch => Self::Patch,
            By::Auto => Self::Auto,
        }
    }
}

/// Sets them.
pub fn run(args: &Args) -> Result {
    let wanted = args.assignments.iter().map(|text| assignment(text)).collect::<Result<Vec<_>>>()?;
    let rules = Rules::read()?;
    rules.check(args.backend.into())?;
    let kernel = running()?;
    let folders = Folders::new();
    let hz = || hz_of(&kernel.release);
    let mut tables = folders.tables(&kernel.build_id)?;
    if !args.no_compile && extend::compiled(&folders, &tables, &wanted, &hz)? {
        tables = folders.tables(&kernel.build_id)?;
    }
    let changes = wanted
        .iter()
        .map(|(name, quantity)| change(&folders, &tables, name, *quantity, &hz))
        .collect::<Result<Vec<_>>>()?;
    for (index, change) in changes.iter().enumerate() {
        if changes[..index].iter().any(|other| other.table.constant.id == change.table.constant.id) {
            return Err(Failure::usage(format!("{} is given twice", change.title())));
        }
    }
    if !args.whom.is_everybody() {
        return for_some(args, &changes, &tables);
    }
    let device = Device::open()?;
    let addresses = Addresses::live(changes.iter().map(|change| change.table))?;
    // From here on nothing but SIGKILL ends the process half-way; that is the kernel's to undo.
    signals::hold_back();
    let needed = changes.iter().map(|change| change.table.mode).max().unwrap_or(Mode::Now);
    let mode = args.transition.mode(needed, changes.iter().map(|change| change.table))?;
    let tunes = loaded(&device, &addresses, &changes, args.hold, &|change| {
        rules
            .backend(args.backend.into(), change.table, change.value, mode)
            .map_err(|error| Failure::from(error).about(change.title()))
    })?;
    let done = args.transition.run(&device, &wanted_of(&changes, &tunes), mode).map_err(transition::failure)?;
    report(&changes, &tunes, &settled(&device, &changes)?);
    println!("{}", transition::describe(&done, mode));
    if args.hold {
        return hold(&device, &changes, tunes, &args.transition, mode);
    }
    keep(&device, &changes, tunes, args.lease)
}

/// By a policy.
fn for_some(args: &Args, changes: &[Change<'_>], tables: &Tables) -> Result {
    let values: Vec<_> = changes.iter().map(|change| (change.table.constant.id.clone(), change.value)).collect();
    let stay = Stay { hold: args.hold, lease: args.lease, backend: args.backend.into(), transition: &args.transition };
    let title = changes.first().map_or("", Change::title);
    scoped::run(&values, title, &args.whom, tables, &stay)
}

/// What is asked of the kernel.
fn wanted_of(changes: &[Change<'_>], tunes: &[Loaded]) -> Vec<xk_runtime::Change> {
    let target = |(change, tune): (&Change<'_>, &Loaded)| xk_runtime::Change {
        id: tune.id(),
        to: Destination::Value(change.value),
    };
    changes.iter().zip(tunes).map(target).collect()
}

/// Splits `NAME=VALUE`. A full ID may contain `=`, a value does not.
fn assignment(text: &str) -> Result<(&str, Quantity)> {
    let (name, value) = text.rsplit_once('=').filter(|(name, _)| !name.trim().is_empty()).ok_or_else(|| {
        Failure::usage(format!("`{text}` is not NAME=VALUE; write for example BLK_MAX_REQUEST_COUNT=128"))
    })?;
    let quantity = value.parse().map_err(|error| Failure::usage(format!("{name}: {error}")))?;
    Ok((name, quantity))
}

/// Looks up a constant, and whether it can have a value.
pub fn change<'a>(
    folders: &Folders,
    tables: &'a Tables,
    name: &str,
    quantity: Quantity,
    hz: &dyn Fn() -> std::result::Result<u32, UnknownHz>,
) -> Result<Change<'a>> {
    let table = tables.find(folders, name)?;
    let number = table.constant.number(quantity, hz)?;
    let value = i64::try_from(number).ok().filter(|&value| table.values.contains(value));
    value.map(|value| Change { table, value }).ok_or_else(|| limits::not_accepted(table, number))
}

/// The tune of a constant, with the value that it had.
enum Loaded {
    /// Loaded by us, with the default in force: it goes when we do.
    New(Tune),
    /// One that was there: its number and its value.
    Known(u32, i64),
}

impl Loaded {
    fn id(&self) -> u32 {
        match self {
            Self::New(tune) => tune.id(),
            Self::Known(id, _) => *id,
        }
    }
}

/// Loads what is not loaded yet. Nothing has changed, whatever comes of it.
fn loaded(
    device: &Device,
    addresses: &Addresses,
    changes: &[Change<'_>],
    hold: bool,
    backend: &dyn Fn(&Change<'_>) -> Result<Backend>,
) -> Result<Vec<Loaded>> {
    let tunes = device.tunes()?;
    changes
        .iter()
        .map(|change| match tunes.iter().find(|tune| is_tune_of(tune, &change.table.constant)) {
            Some(tune) => known(change, tune, hold),
            None => device
                .load_by(change.table, addresses, backend(change)?)
                .map(Loaded::New)
                .map_err(|error| load_failure(error, change.title())),
        })
        .collect::<Result<Vec<_>>>()
        .map_err(|failure| failure.then("; nothing has changed"))
}

/// A tune that was there, if it may be changed.
fn known(change: &Change<'_>, tune: &TuneStatus, hold: bool) -> Result<Loaded> {
    let title = change.title();
    if !tune.detached {
        return Err(Failure::error(format!(
            "{title} is already tuned to {}, {}: end that process (kill {}) and repeat",
            tune.value,
            owner(tune),
            tune.owner_pid
        )));
    }
    if hold {
        return Err(Failure::error(format!(
            "{title} is already tuned to {} ({}): `xk unset {title}` first, or set it without --hold",
            tune.value,
            owner(tune)
        )));
    }
    if tune.policy.is_some() {
        return Err(Failure::error(format!(
            "{title} is decided by a policy: see `xk status`; `xk unload {title}` ends it"
        )));
    }
    refuse_ill(title, tune)?;
    if !tune.values.contains(change.value) {
        return Err(Failure::new(
            Exit::Refused,
            format!(
                "{title}: its table accepts {}, but the tune was loaded from an older table, which does not: \
                 `xk unset {title}`, then repeat",
                change.value
            ),
        ));
    }
    Ok(Loaded::Known(tune.id, tune.value))
}

pub(super) fn load_failure(error: RuntimeError, title: &str) -> Failure {
    let advice = match &error {
        RuntimeError::Drift(_) => {
            ": the running code is not the code that was analysed; if no tracer or livepatch is at work \
             in that function, run `xk build` again for this kernel"
        }
        _ => "",
    };
    Failure::from(error).about(title).then(advice)
}

/// A value that does not come into force at a site is not set.
pub(super) fn refuse_ill(title: &str, tune: &TuneStatus) -> Result {
    for site in &tune.sites {
        let place = format!("{}+{:#x}", site.symbol, site.offset);
        let reason = site.reason.as_deref().unwrap_or("the kernel gave no reason");
        match site.probe {
            Probe::Disarmed => {
                return Err(Failure::error(format!(
                    "{title}: the probe at {place} is disarmed, a value would not come into force there: \
                     `echo 1 > /sys/kernel/debug/kprobes/enabled`, then repeat"
                )));
            }
            Probe::Broken => {
                return Err(Failure::new(
                    Exit::Drift,
                    format!(
                        "{title}: module {} is not the one that was analysed, a value would not come into force \
                         at {place} ({reason}): `xk unset {title}`, and `xk build` it again",
                        site.module.as_deref().unwrap_or("?")
                    ),
                ));
            }
            Probe::Drifted => {
                return Err(Failure::error(format!(
                    "{title}: somebody else changed {place} ({reason}), which would be overwritten: \
                     `xk unset {title}` leaves it as it is"
                )));
            }
            // A livepatch is in nobody's way; that it is there is said.
            Probe::Jump
            | Probe::Int3
            | Probe::Detour
            | Probe::Patch
            | Probe::Data
            | Probe::Waiting
            | Probe::Unknown
            | Probe::Bypassed => {}
        }
    }
    Ok(())
}

/// The tunes after the kernel had time to turn breakpoints into jumps.
fn settled(device: &Device, changes: &[Change<'_>]) -> Result<Vec<TuneStatus>> {
    let deadline = Instant::now() + OPTIMISING;
    loop {
        let tunes = device.tunes()?;
        let waiting = changes.iter().any(|change| {
            let tune = tunes.iter().find(|tune| is_tune_of(tune, &change.table.constant));
            tune.is_some_and(|tune| {
                let expected = change.table.spans.iter().map(|span| span.indirection.probe);
                tune.sites.iter().zip(expected).any(|(site, e)| e == ProbeKind::Jump && site.probe == Probe::Int3)
            })
        });
        if !waiting || Instant::now() > deadline {
            return Ok(tunes);
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn report(changes: &[Change<'_>], loaded: &[Loaded], tunes: &[TuneStatus]) {
    let paint = Paint::stdout();
    for (change, loaded) in changes.iter().zip(loaded) {
        let before = match loaded {
            Loaded::New(_) => change.table.constant.default,
            Loaded::Known(_, before) => *before,
        };
        println!("{} = {} (was {before})", paint.strong(change.title()), paint.value(&change.value.to_string()));
        let Some(tune) = tunes.iter().find(|tune| is_tune_of(tune, &change.table.constant)) else { continue };
        let mut columns = Columns::default();
        for (index, site) in tune.sites.iter().enumerate() {
            let place = format!("{}+{:#x}", site.symbol, site.offset);
            columns.row([place, probe_word(site.probe).into(), note(site, change.table.spans.get(index))]);
        }
        print!("{}", columns.lines("  "));
    }
}

/// What is remarkable about how a site is reached.
fn note(site: &SiteStatus, span: Option<&CriticalSpan>) -> String {
    if let Some(note) = crate::tunes::no_backend(site) {
        return note;
    }
    let expected = span.map(|span| (span.indirection.probe, span.indirection.probe_reason.as_deref()));
    match (site.probe, expected) {
        (Probe::Int3, Some((ProbeKind::Jump, _))) => {
            "a jump was expected: the kernel has not optimised it (yet)".into()
        }
        (Probe::Int3, Some((ProbeKind::Int3, Some(reason)))) => reason.into(),
        (Probe::Waiting, _) => {
            format!("module {} is not loaded; it will have the value when it is", site.module.as_deref().unwrap_or("?"))
        }
        _ => site.reason.clone().unwrap_or_default(),
    }
}

/// Lets the tunes outlive this process, and ends them when their lease is over; an old
/// lease goes. Where that fails, ours end with this process.
fn keep(device: &Device, changes: &[Change<'_>], tunes: Vec<Loaded>, lease: Option<Duration>) -> Result {
    for (change, tune) in changes.iter().zip(&tunes) {
        device.lease(tune.id(), lease).map_err(|error| Failure::from(error).about(change.title()))?;
    }
    for (change, tune) in changes.iter().zip(tunes) {
        if let Loaded::New(tune) = tune {
            tune.detach().map_err(|error| Failure::from(error).about(change.title()))?;
        }
    }
    let titles: Vec<&str> = changes.iter().map(Change::title).collect();
    let time = lease.map_or(String::new(), |lease| format!("for {}, ", super::status::time(lease)));
    println!("in force {time}until `xk unset {}`, until xk.ko is removed, or until the next boot", titles.join(" "));
    Ok(())
}

fn hold(device: &Device, changes: &[Change<'_>], tunes: Vec<Loaded>, options: &Options, mode: Mode) -> Result {
    println!("held by process {}; its end puts the defaults back", std::process::id());
    signals::wait();
    let unload: Vec<_> =
        tunes.iter().map(|tune| xk_runtime::Change { id: tune.id(), to: Destination::Unload }).collect();
    options.run(device, &unload, mode).map_err(transition::failure)?;
    for change in changes {
        println!("{} = {} (its default)", change.title(), change.table.constant.default);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;

    #[test]
    fn assignments_split_at_the_last_equals_sign() {
        assert!(matches!(assignment("A=5"), Ok(("A", Quantity::Number(5)))));
        assert!(matches!(assignment("a.c:L1:(x == 3):0=5"), Ok(("a.c:L1:(x == 3):0", Quantity::Number(5)))));
        for text in ["A", "=5", "A=", "A=x", "A=5q"] {
            assert!(assignment(text).is_err_and(|failure| failure.exit == Exit::Usage), "{text}");
        }
    }

    #[test]
    fn values_outside_the_range_are_refused_with_the_range() {
        let tables = fixture::tables(vec![fixture::table()]);
        let set = |text: &str| {
            let (name, quantity) = assignment(text)?;
            change(&Folders { cache: "/".into(), stores: vec![] }, &tables, name, quantity, &|| Ok(250))
        };
        assert_eq!(set("BLK_MAX_REQUEST_COUNT=1K").unwrap().value, 1024);
        let message = |text: &str| {
            let failure = set(text).err().unwrap();
            assert_eq!(failure.exit, Exit::Refused, "{text}: {}", failure.message);
            failure.message
        };
        assert!(message("BLK_MAX_REQUEST_COUNT=0").contains("0 is outside the proved range, 1 to 1073741823 (from 1:"));
        assert!(message("BLK_MAX_REQUEST_COUNT=-1").contains("(from 1:"));
        assert!(message("BLK_MAX_REQUEST_COUNT=9223372036854775808").contains("(to 1073741823:"));
        assert!(message(&format!("BLK_MAX_REQUEST_COUNT={}", "9".repeat(60))).contains("the value is outside"));
        assert!(message(&format!("BLK_MAX_REQUEST_COUNT=-{}", "9".repeat(60))).contains("(from 1:"));
        assert!(set("BLK_MAX_REQUEST_COUNT=5ms").is_err_and(|failure| failure.exit == Exit::Usage));
    }
}
