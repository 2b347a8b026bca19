//! `xk unload`: the end of policies that were loaded together.

use xk_runtime::TuneStatus;

use super::ending;
use super::transition::Options;
use crate::context::{running, Folders};
use crate::exit::{Failure, Result};
use crate::tunes::{device_if_loaded, title_of};
use xk_policy::{groups, Group};

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
    transition: Options,
}

/// Ends them, in one transition; the defaults come back.
pub fn run(args: &Args) -> Result {
    let Some(device) = device_if_loaded()? else {
        println!("xk.ko is not loaded: no policy is");
        return Ok(());
    };
    let tables = Folders::new().tables(&running()?.build_id)?;
    let (tunes, groups) = groups(&device)?;
    let mut wanted: Vec<&Group> = Vec::new();
    for name in &args.names {
        let is_wanted = |group: &&Group| {
            group.name == *name
                || group.living(&tunes).any(|tune| tune.name == *name || title_of(tune, &tables) == name)
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
    // A policy that somebody else loaded, or whose record is lost.
    let stray = tunes.iter().filter(|tune| args.all && tune.policy.is_some() && Group::of(&groups, tune).is_none());
    let mut ending: Vec<&TuneStatus> = wanted.iter().flat_map(|group| group.living(&tunes)).collect();
    ending.extend(stray);
    if ending.is_empty() {
        println!("no policy is loaded");
        return Ok(());
    }
    ending::refuse_held(&ending, &tables)?;
    let done = ending::end(&device, &ending, &args.transition, &tables)?;
    for group in &wanted {
        Group::forget(&group.name);
    }
    ending::show(&ending, &tables, &done);
    Ok(())
}
