//! `xk load`: puts the policies of a file into force, all or none; `xk reload`: replaces them.

use std::path::{Path, PathBuf};
use std::time::Duration;

use xk_apply::{parse_time, Done};
use xk_kernel::{KernelChoice, KernelId};
use xk_policy::{give, groups, parts, refuse_other_build, Group, Part, Programs, SourceCompiler};
use xk_runtime::{Change, Destination, Device, TuneStatus};
use xk_store::{Folders, Tables};

use crate::exit::{Failure, Result};
use crate::install::{install, mode_of, pin_maps, report, Clock, Stay};
use crate::options::{BackendArg, TransitionArgs};
use crate::signals;
use crate::sites::{describe, notice, warn};

/// Arguments of `xk load`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
The file is a C source that includes xk.bpf.h (`xk gen NAME` writes one), or an object compiled from it
(`xk compile`). All policies of a file come into force together and end together. Its other programs
are attached with them. The maps are pinned in /sys/fs/bpf/xk/NAME.

The policies stay until `xk unload`, for the time given by --for, or, with --hold, until this process
ends. See docs/policies.md.")]
pub struct Args {
    /// FILE.bpf.c or FILE.bpf.o
    file: PathBuf,
    /// Name of the set of policies, instead of the file name
    #[arg(long)]
    name: Option<String>,
    /// Stay in the foreground; unload the policies on exit
    #[arg(long)]
    hold: bool,
    /// Unload the policies after this time, whether or not their owner still runs
    #[arg(long = "for", value_name = "TIME", value_parser = parse_time, conflicts_with = "hold")]
    lease: Option<Duration>,
    /// Backend that calls the policies (not patch: patched instructions call nothing)
    #[arg(long, value_enum, default_value_t = BackendArg::Kprobe)]
    backend: BackendArg,
    #[command(flatten)]
    transition: TransitionArgs,
}

/// Arguments of `xk reload`.
#[derive(Debug, clap::Args)]
pub struct ReloadArgs {
    /// FILE.bpf.c or FILE.bpf.o
    file: PathBuf,
    /// Name of the set of policies, instead of the file name
    #[arg(long)]
    name: Option<String>,
    #[command(flatten)]
    transition: TransitionArgs,
}

/// Loads them.
pub fn run(args: &Args) -> Result {
    let name = Group::name_for(&args.file, args.name.as_deref())?;
    let mut clock = Clock::new();
    let object = object(&args.file, &Folders::from_environment())?;
    clock.stage("compile");
    let stay = Stay {
        hold: args.hold,
        lease: args.lease,
        backend: args.backend.into(),
        transition: args.transition.options(),
    };
    install(&object, &name, &args.file, &stay, clock)
}

fn object(file: &Path, folders: &Folders) -> Result<Vec<u8>> {
    Ok(SourceCompiler { folders, kernel: &KernelChoice::default(), say: &notice }.object(file)?)
}

/// Replaces loaded policies.
pub fn reload(args: &ReloadArgs) -> Result {
    let name = Group::name_for(&args.file, args.name.as_deref())?;
    let kernel = KernelId::live()?;
    let folders = Folders::from_environment();
    let tables = Tables::read(&folders, &kernel.build_id)?;
    let object = object(&args.file, &folders)?;
    let entries = xk_policy::entries(&object)?;
    refuse_other_build(&entries, &kernel.build_id)?;
    let parts = parts(&entries, &folders, &tables)?;
    let device = Device::open()?;
    let (tunes, groups) = groups(&device)?;
    let group = groups.iter().find(|group| group.name == name).ok_or_else(|| {
        Failure::error(format!("no policy called {name} is loaded: `xk load {}`", args.file.display()))
    })?;
    let living = replaced(group, &parts, &tunes, &tables)?;
    let mut programs = Programs::load(&object)?;
    signals::hold_back();
    let ids: Vec<u32> = living.iter().map(|tune| tune.id).collect();
    let new = give(&device, &programs, &parts, &ids, &name, &args.file)
        .map_err(|error| Failure::from(error).then("; the old policies are still in force"))?;
    let changes: Vec<Change> =
        living.iter().map(|tune| Change { id: tune.id, to: Destination::Policy(tune.value) }).collect();
    let options = args.transition.options();
    let mode = options.mode(mode_of(&parts), parts.iter().map(|part| part.table), &warn)?;
    let transition = options.run(&device, &changes, mode, &warn)?;
    Group::forget(&name);
    pin_maps(&mut programs, &name);
    new.record()?;
    report(&parts, &new);
    println!("{}", describe(&Done { transition, mode }));
    Ok(())
}

/// The tunes of a group, in the order of the new file's policies.
fn replaced<'a>(
    group: &'a Group,
    parts: &[Part<'_>],
    tunes: &'a [TuneStatus],
    tables: &Tables,
) -> Result<Vec<&'a TuneStatus>> {
    let living: Vec<&TuneStatus> = group.living(tunes).collect();
    let of = |part: &Part<'_>| living.iter().copied().find(|tune| tune.is_of(&part.table.constant));
    let found = parts
        .iter()
        .map(|part| {
            of(part).ok_or_else(|| {
                Failure::error(format!(
                    "{}: {} is not decided by the loaded policies {}: `xk unload {}`, then `xk load`",
                    part.entry.place(),
                    part.table.constant.title(),
                    group.name,
                    group.name
                ))
            })
        })
        .collect::<Result<Vec<_>>>()?;
    if let Some(left) = living.iter().find(|tune| !found.iter().any(|known| known.id == tune.id)) {
        return Err(Failure::error(format!(
            "the new file has no policy for {}, which is loaded: `xk unload {}`, then `xk load`",
            tables.title_of(left),
            group.name
        )));
    }
    if let Some(held) = living.iter().find(|tune| !tune.detached) {
        return Err(Failure::error(format!("{} is {}: it cannot be changed", tables.title_of(held), held.owner())));
    }
    Ok(found)
}
