//! `xk set`: sets constants to new values, all of the command line or none.
//!
//! Constants that are not tuned yet are loaded first, with their defaults in force; then one transition changes all. A tune
//! outlives the command: until `xk unset`, until its lease expires, until xk.ko is removed, or until the next boot. With
//! `--hold` it belongs to this process and ends with it, however the process ends.

use std::path::Path;
use std::time::{Duration, Instant};

use xk_apply::{change, parse_time, refuse_ill, Change, Done, LoadError, TransitionOptions};
use xk_kernel::{hz_of, KernelChoice, KernelId};
use xk_policy::{compile_scoped, scoped_name, scoped_source, SourceCompiler};
use xk_runtime::{Backend, Destination, Device, Mode, Probe, Rules, SiteStatus, Tune, TuneStatus};
use xk_store::{Addresses, Folders, Tables};
use xk_table::{CriticalSpan, ProbeKind, Quantity};

use crate::exit::{Exit, Failure, Result};
use crate::extend;
use crate::install::{install, Clock, Stay};
use crate::options::{BackendArg, TransitionArgs, WhomArgs};
use crate::output::{Columns, Paint};
use crate::signals;
use crate::sites::{self, describe, notice, probe_word, warn};

/// The kernel turns breakpoints into jumps some time after they were placed.
const OPTIMISING: Duration = Duration::from_secs(1);

/// Arguments of `xk set`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
A VALUE is decimal or hexadecimal (0x40), may be negative, and may end in K, M or G (times 1024) or,
for a constant whose source line states its unit, in ns, us, ms or s.

The values stay until `xk unset`, until xk.ko is removed, or until the next boot; nothing restores them
after a boot. With --for they expire by themselves, even if xk has exited; setting them again renews the
time. With --hold they end with this process, even if it is killed. Several constants change together:
if one cannot, none does.

A value does not change under a thread that still uses the old one. `xk explain` shows which mode a
constant needs and why. If a thread blocks the change until the timeout, nothing is changed, and the
thread is named with its stack.")]
pub struct Args {
    /// Constants and their new values
    #[arg(required = true, value_name = "NAME=VALUE")]
    assignments: Vec<String>,
    /// Stay in the foreground; revert to the defaults on exit
    #[arg(long)]
    hold: bool,
    /// Revert to the defaults after this time, even if xk has exited
    #[arg(long = "for", value_name = "TIME", value_parser = parse_time, conflicts_with = "hold")]
    lease: Option<Duration>,
    /// Backend: how control reaches the updates
    #[arg(long, value_enum, default_value_t = BackendArg::Kprobe)]
    backend: BackendArg,
    /// Refuse a value that is neither proved nor compiled, instead of compiling it first
    #[arg(long)]
    no_compile: bool,
    #[command(flatten)]
    whom: WhomArgs,
    #[command(flatten)]
    transition: TransitionArgs,
}

/// Sets them.
pub fn run(args: &Args) -> Result {
    let wanted = args.assignments.iter().map(|text| assignment(text)).collect::<Result<Vec<_>>>()?;
    let rules = Rules::read()?;
    rules.check(args.backend.into())?;
    let kernel = KernelId::live()?;
    let folders = Folders::from_environment();
    let hz = || hz_of(&kernel.release);
    let mut tables = Tables::read(&folders, &kernel.build_id)?;
    if !args.no_compile && extend::compiled(&folders, &tables, &wanted, &hz)? {
        tables = Tables::read(&folders, &kernel.build_id)?;
    }
    let changes = wanted
        .iter()
        .map(|(name, quantity)| change(&folders, &tables, name, *quantity, &hz))
        .collect::<std::result::Result<Vec<_>, _>>()?;
    for (index, change) in changes.iter().enumerate() {
        if changes[..index].iter().any(|other| other.table.constant.id == change.table.constant.id) {
            return Err(Failure::usage(format!("{} is given twice", change.title())));
        }
    }
    let options = args.transition.options();
    if !args.whom.whom().is_everybody() {
        return for_some(args, &changes, &folders, &tables);
    }
    let device = Device::open()?;
    let addresses = Addresses::live(changes.iter().map(|change| change.table))?;
    // From here on, only SIGKILL ends the process before the end; the kernel reverts everything then.
    signals::hold_back();
    let needed = changes.iter().map(|change| change.table.mode).max().unwrap_or(Mode::Now);
    let mode = options.mode(needed, changes.iter().map(|change| change.table), &warn)?;
    let tunes = loaded(&device, &addresses, &changes, args.hold, &|change| {
        rules
            .backend(args.backend.into(), change.table, change.value, mode)
            .map_err(|error| Failure::from(error).about(change.title()))
    })?;
    let transition = options.run(&device, &wanted_of(&changes, &tunes), mode, &warn)?;
    report(&changes, &tunes, &settled(&device, &changes)?);
    println!("{}", describe(&Done { transition, mode }));
    if args.hold {
        return hold(&device, &changes, tunes, &options, mode);
    }
    keep(&device, &changes, tunes, args.lease)
}

/// Sets values for some processes or devices only, by a policy.
fn for_some(args: &Args, changes: &[Change<'_>], folders: &Folders, tables: &Tables) -> Result {
    let compiler = SourceCompiler { folders, kernel: &KernelChoice::default(), say: &notice };
    let values: Vec<_> = changes.iter().map(|change| (change.table.constant.id.clone(), change.value)).collect();
    let text = scoped_source(&values, &args.whom.whom(), &|constant| compiler.sites(tables, constant))?;
    let mut clock = Clock::new();
    let object = compile_scoped(&text, &compiler)?;
    clock.stage("compile");
    let stay = Stay {
        hold: args.hold,
        lease: args.lease,
        backend: args.backend.into(),
        transition: args.transition.options(),
    };
    let title = changes.first().map_or("", Change::title);
    install(&object, &scoped_name(title), Path::new("xk set"), &stay, clock)
}

/// The changes that the transition makes.
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

/// The tune of a constant, with the value that it had.
enum Loaded {
    /// Loaded by this process, with the default in force: it ends with this process.
    New(Tune),
    /// Loaded before: its number and its value.
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

/// Loads what is not loaded yet. Changes no value.
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
        .map(|change| match tunes.iter().find(|tune| tune.is_of(&change.table.constant)) {
            Some(tune) => known(change, tune, hold),
            None => device
                .load_by(change.table, addresses, backend(change)?)
                .map(Loaded::New)
                .map_err(|error| LoadError { title: change.title().to_owned(), error }.into()),
        })
        .collect::<Result<Vec<_>>>()
        .map_err(|failure| failure.then("; nothing was changed"))
}

/// A tune that was loaded before, if this command may change it.
fn known(change: &Change<'_>, tune: &TuneStatus, hold: bool) -> Result<Loaded> {
    let title = change.title();
    if !tune.detached {
        return Err(Failure::error(format!(
            "{title} is already tuned to {}, {}: end that process (kill {}) and repeat",
            tune.value,
            tune.owner(),
            tune.owner_pid
        )));
    }
    if hold {
        return Err(Failure::error(format!(
            "{title} is already tuned to {} ({}): `xk unset {title}` first, or set it without --hold",
            tune.value,
            tune.owner()
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

/// The tunes after the kernel had time to turn breakpoints into jumps.
fn settled(device: &Device, changes: &[Change<'_>]) -> Result<Vec<TuneStatus>> {
    let deadline = Instant::now() + OPTIMISING;
    loop {
        let tunes = device.tunes()?;
        let waiting = changes.iter().any(|change| {
            let tune = tunes.iter().find(|tune| tune.is_of(&change.table.constant));
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
        let Some(tune) = tunes.iter().find(|tune| tune.is_of(&change.table.constant)) else { continue };
        let mut columns = Columns::default();
        for (index, site) in tune.sites.iter().enumerate() {
            let place = format!("{}+{:#x}", site.symbol, site.offset);
            columns.row([place, probe_word(site.probe).into(), note(site, change.table.spans.get(index))]);
        }
        print!("{}", columns.lines("  "));
    }
}

/// Why a site is not reached as expected, if it is not.
fn note(site: &SiteStatus, span: Option<&CriticalSpan>) -> String {
    if let Some(note) = sites::no_backend(site) {
        return note;
    }
    let expected = span.map(|span| (span.indirection.probe, span.indirection.probe_reason.as_deref()));
    match (site.probe, expected) {
        (Probe::Int3, Some((ProbeKind::Jump, _))) => {
            "a jump was expected: the kernel has not optimised it (yet)".into()
        }
        (Probe::Int3, Some((ProbeKind::Int3, Some(reason)))) => reason.into(),
        (Probe::Waiting, _) => {
            format!(
                "module {} is not loaded; the value takes effect when it is loaded",
                site.module.as_deref().unwrap_or("?")
            )
        }
        _ => site.reason.clone().unwrap_or_default(),
    }
}

/// Lets the tunes outlive this process, until their lease expires; an old lease is removed. If that fails, the tunes that
/// this process has loaded end with it.
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
    let (lease, titles) = (sites::lease(lease), titles.join(" "));
    println!("in force {lease}until `xk unset {titles}`, until xk.ko is removed, or until the next boot");
    Ok(())
}

fn hold(
    device: &Device,
    changes: &[Change<'_>],
    tunes: Vec<Loaded>,
    options: &TransitionOptions,
    mode: Mode,
) -> Result {
    println!("held by process {}; when it ends, the defaults are in force again", std::process::id());
    signals::wait();
    let unload: Vec<_> =
        tunes.iter().map(|tune| xk_runtime::Change { id: tune.id(), to: Destination::Unload }).collect();
    options.run(device, &unload, mode, &warn)?;
    for change in changes {
        println!("{} = {} (its default)", change.title(), change.table.constant.default);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn assignments_split_at_the_last_equals_sign() {
        assert!(matches!(assignment("A=5"), Ok(("A", Quantity::Number(5)))));
        assert!(matches!(assignment("a.c:L1:(x == 3):0=5"), Ok(("a.c:L1:(x == 3):0", Quantity::Number(5)))));
        for text in ["A", "=5", "A=", "A=x", "A=5q"] {
            assert!(assignment(text).is_err_and(|failure| failure.exit == Exit::Usage), "{text}");
        }
    }
}
