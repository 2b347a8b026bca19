//! `xk set`: other values, for all constants of the command line or for none.
//!
//! A tune stays after the command has ended: until `xk unset`, until xk.ko is
//! removed, until the machine is booted. With `--hold` it belongs to this
//! process and ends with it, however it ends.

use std::time::{Duration, Instant};

use xk_runtime::{Device, Error as RuntimeError, Probe, SiteStatus, Tune, TuneStatus};
use xk_table::{CriticalSpan, ProbeKind, ScopeTable};

use super::{is_tune_of, owner, probe_word, title};
use crate::addresses::Addresses;
use crate::context::{running, Folders, Tables};
use crate::exit::{Exit, Failure, Result};
use crate::output::{count, range, Columns, Paint};
use crate::value::{self, Quantity};
use crate::{limits, signals, unit};

/// The kernel turns breakpoints into jumps some time after they were placed.
const OPTIMISING: Duration = Duration::from_secs(1);

/// Arguments of `xk set`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
A VALUE is decimal or hexadecimal (0x40), may be negative, and may end in K, M or G (times 1024) or,
for a constant whose source line states its unit, in ns, us, ms or s.

The values stay until `xk unset`, until xk.ko is removed, or until the next boot; nothing brings them
back then. With --hold they last as long as this process, even if it is killed. Several constants
change together: if one cannot, none does.")]
pub struct Args {
    /// Constants and their new values
    #[arg(required = true, value_name = "NAME=VALUE")]
    assignments: Vec<String>,
    /// Stay in the foreground; put the defaults back at the end
    #[arg(long)]
    hold: bool,
}

/// A constant and the value that it shall have.
struct Change<'a> {
    table: &'a ScopeTable,
    value: i64,
}

impl Change<'_> {
    fn title(&self) -> &str {
        title(&self.table.constant)
    }
}

/// Sets them.
pub fn run(args: &Args) -> Result {
    let wanted = args.assignments.iter().map(|text| assignment(text)).collect::<Result<Vec<_>>>()?;
    let kernel = running()?;
    let folders = Folders::new();
    let tables = folders.tables(&kernel.build_id)?;
    let hz = || unit::hz_of(&kernel.release);
    let changes = wanted
        .iter()
        .map(|(name, quantity)| change(&folders, &tables, name, *quantity, &hz))
        .collect::<Result<Vec<_>>>()?;
    for (index, change) in changes.iter().enumerate() {
        if changes[..index].iter().any(|other| other.table.constant.id == change.table.constant.id) {
            return Err(Failure::usage(format!("{} is given twice", change.title())));
        }
    }
    let device = Device::open()?;
    let addresses = Addresses::live(changes.iter().map(|change| change.table))?;
    // From here on nothing but SIGKILL ends the process half-way; that is the kernel's to undo.
    signals::hold_back();
    let done = all_or_nothing(&device, &addresses, &changes, args.hold)?;
    let tunes = settled(&device, &changes)?;
    report(&changes, &done, &tunes);
    if args.hold {
        return hold(&changes, done);
    }
    detach(&device, &changes, done)?;
    let titles: Vec<&str> = changes.iter().map(Change::title).collect();
    println!("in force until `xk unset {}`, until xk.ko is removed, or until the next boot", titles.join(" "));
    Ok(())
}

/// Splits `NAME=VALUE`. A full ID may contain `=`, a value does not.
fn assignment(text: &str) -> Result<(&str, Quantity)> {
    let (name, value) = text.rsplit_once('=').filter(|(name, _)| !name.trim().is_empty()).ok_or_else(|| {
        Failure::usage(format!("`{text}` is not NAME=VALUE; write for example BLK_MAX_REQUEST_COUNT=128"))
    })?;
    let quantity = value::parse(value).map_err(|sentence| Failure::usage(format!("{name}: {sentence}")))?;
    Ok((name, quantity))
}

fn change<'a>(
    folders: &Folders,
    tables: &'a Tables,
    name: &str,
    quantity: Quantity,
    hz: &dyn Fn() -> Result<u32>,
) -> Result<Change<'a>> {
    let table = tables.find(folders, name)?;
    let number = unit::convert(&table.constant, quantity, hz)?;
    let value = i64::try_from(number).ok().filter(|&value| table.range.contains(value));
    value.map(|value| Change { table, value }).ok_or_else(|| out_of_range(table, number))
}

fn out_of_range(table: &ScopeTable, number: i128) -> Failure {
    let proved = table.range;
    let title = title(&table.constant);
    let inside = i128::from(proved.min) <= number && number <= i128::from(proved.max);
    if inside && proved.powers_of_two {
        return Failure::new(
            Exit::Refused,
            format!(
                "{title}: {number} is no power of two, and only powers of two are proved, {}",
                nearest(table, number)
            ),
        );
    }
    let end = if number < i128::from(proved.min) {
        format!("from {}: {}", proved.min, limits::below(table))
    } else {
        format!("to {}: {}", proved.max, limits::above(table))
    };
    // Numbers beyond 128 bits are not kept.
    let shown = if number.unsigned_abs() < i128::MAX.unsigned_abs() { number.to_string() } else { "the value".into() };
    Failure::new(Exit::Refused, format!("{title}: {shown} is outside the proved range, {} ({end})", range(proved)))
}

/// The proved powers of two on both sides of a number between them.
fn nearest(table: &ScopeTable, number: i128) -> String {
    let range = table.range;
    let below = i64::try_from(number).ok().filter(|&value| value > 0).map(|value| 1i64 << value.ilog2());
    let above = below.and_then(|value| value.checked_mul(2)).filter(|&value| range.contains(value));
    let known = [below.filter(|&value| range.contains(value)), above];
    let known: Vec<String> = known.into_iter().flatten().map(|value| value.to_string()).collect();
    let ends = format!("from {} to {}: the deployed code divides or masks by shifting", range.min, range.max);
    match known.is_empty() {
        true => ends,
        false => format!("{ends}; {} can be set", known.join(" or ")),
    }
}

/// What was done for a constant, and so what would undo it.
enum Done {
    /// A tune of ours: dropping it takes it back.
    Loaded(Tune),
    /// A tune that was there: its number and the value that it had.
    Changed(u32, i64),
}

/// Makes every change, or takes back those that were made.
fn all_or_nothing(device: &Device, addresses: &Addresses, changes: &[Change<'_>], hold: bool) -> Result<Vec<Done>> {
    let mut done: Vec<Done> = Vec::new();
    for change in changes {
        match make(device, addresses, change, hold) {
            Ok(made) => done.push(made),
            Err(failure) => {
                let others = count(done.len(), "constant");
                let had = !done.is_empty();
                let failure = match undo(device, done) {
                    Ok(()) if had => failure.then(&format!("; {others} taken back, nothing has changed")),
                    Ok(()) => failure.then("; nothing has changed"),
                    Err(error) => failure.then(&format!("; taking back {others} failed too: {error}; see `xk status`")),
                };
                return Err(failure);
            }
        }
    }
    Ok(done)
}

fn undo(device: &Device, done: Vec<Done>) -> std::result::Result<(), RuntimeError> {
    let mut first = Ok(());
    for made in done.into_iter().rev() {
        let result = match made {
            Done::Loaded(tune) => tune.unload(),
            Done::Changed(id, before) => device.set(id, before),
        };
        first = first.and(result);
    }
    first
}

fn make(device: &Device, addresses: &Addresses, change: &Change<'_>, hold: bool) -> Result<Done> {
    let title = change.title();
    let tunes = device.tunes()?;
    let existing = tunes.iter().find(|tune| is_tune_of(tune, &change.table.constant));
    if let Some(tune) = existing {
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
        refuse_ill(title, tune)?;
        device.set(tune.id, change.value).map_err(|error| Failure::from(error).about(title))?;
        return Ok(Done::Changed(tune.id, tune.value));
    }
    let tune = device.load(change.table, change.value, addresses).map_err(|error| load_failure(error, title))?;
    Ok(Done::Loaded(tune))
}

fn load_failure(error: RuntimeError, title: &str) -> Failure {
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
fn refuse_ill(title: &str, tune: &TuneStatus) -> Result {
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
            Probe::Jump | Probe::Int3 | Probe::Data | Probe::Waiting | Probe::Unknown => {}
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

fn report(changes: &[Change<'_>], done: &[Done], tunes: &[TuneStatus]) {
    let paint = Paint::stdout();
    for (change, done) in changes.iter().zip(done) {
        let before = match done {
            Done::Loaded(_) => change.table.constant.default,
            Done::Changed(_, before) => *before,
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

/// Lets the tunes outlive this process; all of them, or the command has failed and none does.
fn detach(device: &Device, changes: &[Change<'_>], done: Vec<Done>) -> Result {
    let mut detached = Vec::new();
    for (change, made) in changes.iter().zip(done) {
        let Done::Loaded(tune) = made else { continue };
        match tune.detach() {
            Ok(id) => detached.push(id),
            Err(error) => {
                let mut failure = Failure::from(error).about(change.title());
                for id in detached {
                    if let Err(error) = device.unload(id) {
                        failure = failure.then(&format!("; taking back tune {id} failed too: {error}"));
                    }
                }
                return Err(failure);
            }
        }
    }
    Ok(())
}

fn hold(changes: &[Change<'_>], done: Vec<Done>) -> Result {
    println!("held by process {}; its end puts the defaults back", std::process::id());
    signals::wait();
    let mut failed = Ok(());
    for (change, made) in changes.iter().zip(done) {
        let Done::Loaded(tune) = made else { continue };
        match tune.unload() {
            Ok(()) => println!("{} = {} (its default)", change.title(), change.table.constant.default),
            Err(error) => failed = Err(Failure::from(error).about(change.title())),
        }
    }
    failed
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
    fn what_is_no_power_of_two_is_refused_as_such() {
        let mut table = fixture::table();
        table.range = xk_table::Range { powers_of_two: true, ..xk_table::Range::of(4, 128) };
        let message = |number: i128| out_of_range(&table, number).message;
        assert_eq!(
            message(48),
            "BLK_MAX_REQUEST_COUNT: 48 is no power of two, and only powers of two are proved, from 4 to 128: \
             the deployed code divides or masks by shifting; 32 or 64 can be set"
        );
        assert!(message(256).contains("256 is outside the proved range, 4 to 128, powers of two (to 128:"));
        assert!(message(3).contains("3 is outside the proved range"));
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
