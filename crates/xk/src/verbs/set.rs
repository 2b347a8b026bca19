//! `xk set`: sets constants to new values, all of the command line or none.
//!
//! Constants that are not tuned yet are loaded first, with their defaults in force; then one transition changes all. A tune
//! outlives the command: until `xk unset`, until its lease expires, until xk.ko is removed, or until the next boot. With
//! `--hold` it belongs to this process and ends with it, however the process ends.

use std::path::Path;
use std::time::Duration;

use xk_apply::set::{keep, load, refuse_twice, settled, to_values, Loaded};
use xk_apply::{change, parse_time, Change, Done, TransitionOptions};
use xk_kernel::{hz_of, KernelChoice, KernelId};
use xk_policy::{compile_scoped, scoped_name, scoped_source, SourceCompiler};
use xk_runtime::{Destination, Device, Mode, Probe, Rules, SiteStatus, TuneStatus};
use xk_store::{Addresses, Folders, Tables};
use xk_table::{CriticalSpan, ProbeKind, Quantity};

use crate::exit::{Failure, Result};
use crate::extend;
use crate::install::{install, Clock, Stay};
use crate::options::{BackendArg, TransitionArgs, WhomArgs};
use crate::output::{Columns, Paint};
use crate::signals;
use crate::sites::{self, describe, notice, probe_word, warn};

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
    transition: TransitionArgs,
    #[command(flatten)]
    whom: WhomArgs,
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
    refuse_twice(&changes)?;
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
    let backend = |change: &Change<'_>| rules.backend(args.backend.into(), change.table, change.value, mode);
    let tunes = load(&device, &addresses, &changes, args.hold, &backend)?;
    let transition = options.run(&device, &to_values(&changes, &tunes), mode, &warn)?;
    report(&changes, &tunes, &settled(&device, &changes)?);
    println!("{}", describe(&Done { transition, mode }));
    if args.hold {
        return hold(&device, &changes, tunes, &options, mode);
    }
    keep(&device, &changes, tunes, args.lease)?;
    let (lease, titles) = (sites::lease(args.lease), changes.iter().map(Change::title).collect::<Vec<_>>().join(" "));
    println!("in force {lease}until `xk unset {titles}`, until xk.ko is removed, or until the next boot");
    Ok(())
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

/// Splits `NAME=VALUE`. A full ID may contain `=`, a value does not.
fn assignment(text: &str) -> Result<(&str, Quantity)> {
    let (name, value) = text.rsplit_once('=').filter(|(name, _)| !name.trim().is_empty()).ok_or_else(|| {
        Failure::usage(format!("`{text}` is not NAME=VALUE; write for example BLK_MAX_REQUEST_COUNT=128"))
    })?;
    let quantity = value.parse().map_err(|error| Failure::usage(format!("{name}: {error}")))?;
    Ok((name, quantity))
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
    use crate::exit::Exit;

    #[test]
    fn assignments_split_at_the_last_equals_sign() {
        assert!(matches!(assignment("A=5"), Ok(("A", Quantity::Number(5)))));
        assert!(matches!(assignment("a.c:L1:(x == 3):0=5"), Ok(("a.c:L1:(x == 3):0", Quantity::Number(5)))));
        for text in ["A", "=5", "A=", "A=x", "A=5q"] {
            assert!(assignment(text).is_err_and(|failure| failure.exit == Exit::Usage), "{text}");
        }
    }
}
