//! `xk unload`: ends policies that were loaded together.

use xk_apply::{end, refuse_held};
use xk_kernel::KernelId;
use xk_policy::{groups, Group};
use xk_runtime::{Device, TuneStatus};
use xk_store::{Folders, Tables};

use crate::exit::{Failure, Result};
use crate::options::TransitionArgs;
use crate::sites::{show_ended, warn};

/// Arguments of `xk unload`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Sets of policies, by name or by one of their constants
    #[arg(required_unless_present = "all", conflicts_with = "all", value_name = "NAME")]
    names: Vec<String>,
    /// All policies
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    transition: TransitionArgs,
}

/// Ends them in one transition, and reverts their constants to the defaults.
pub fn run(args: &Args) -> Result {
    let Some(device) = Device::open_if_loaded()? else {
        println!("xk.ko is not loaded, and no policy is loaded");
        return Ok(());
    };
    let tables = Tables::read(&Folders::from_environment(), &KernelId::live()?.build_id)?;
    let (tunes, groups) = groups(&device)?;
    let mut wanted: Vec<&Group> = Vec::new();
    for name in &args.names {
        let is_wanted = |group: &&Group| {
            group.name == *name || group.living(&tunes).any(|tune| tune.name == *name || tables.title_of(tune) == name)
        };
        match groups.iter().find(is_wanted) {
            Some(group) if wanted.contains(&group) => {}
            Some(group) => wanted.push(group),
            None => return Err(Failure::error(format!("no policy called {name} is loaded: see `xk status`"))),
        }
    }
    if args.all {
        wanted.extend(&groups);
    }
    // Policies that another program loaded, or whose record is lost.
    let stray = tunes.iter().filter(|tune| args.all && tune.policy.is_some() && Group::of(&groups, tune).is_none());
    let mut ending: Vec<&TuneStatus> = wanted.iter().flat_map(|group| group.living(&tunes)).collect();
    ending.extend(stray);
    if ending.is_empty() {
        println!("no policy is loaded");
        return Ok(());
    }
    refuse_held(&ending, &tables)?;
    let done = end(&device, &ending, &args.transition.options(), &tables, &warn)?;
    for group in &wanted {
        Group::forget(&group.name);
    }
    show_ended(&ending, &tables, &done);
    Ok(())
}
