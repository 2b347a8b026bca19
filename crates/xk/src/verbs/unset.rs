//! `xk unset`: reverts constants to their defaults.

use xk_apply::{end, refuse_held};
use xk_const::Spec;
use xk_kernel::KernelId;
use xk_runtime::{Device, TuneStatus};
use xk_store::{pick, Folders, Tables};

use crate::exit::{Failure, Result};
use crate::options::TransitionArgs;
use crate::sites::{show_ended, warn};

/// Arguments of `xk unset`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The constants
    #[arg(required_unless_present = "all", conflicts_with = "all", value_name = "NAME")]
    names: Vec<String>,
    /// All tuned constants
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    transition: TransitionArgs,
}

/// Reverts all of them or none. A constant that is not tuned has its default already.
pub fn run(args: &Args) -> Result {
    let folders = Folders::from_environment();
    let tables = Tables::read(&folders, &KernelId::live()?.build_id)?;
    let device = Device::open_if_loaded()?;
    let tunes = match &device {
        Some(device) => device.tunes()?,
        None => Vec::new(),
    };
    let mut wanted: Vec<&TuneStatus> = Vec::new();
    for name in &args.names {
        match find(&folders, &tables, &tunes, name)? {
            Found::Tune(tune) if wanted.iter().any(|known| known.id == tune.id) => {}
            Found::Tune(tune) => wanted.push(tune),
            Found::Default(text) => println!("{text}"),
        }
    }
    if args.all {
        wanted.extend(&tunes);
        if tunes.is_empty() {
            println!("nothing is tuned");
        }
    }
    let Some(device) = device.filter(|_| !wanted.is_empty()) else { return Ok(()) };
    refuse_held(&wanted, &tables)?;
    refuse_decided(&wanted, &tables)?;
    let done = end(&device, &wanted, &args.transition.options(), &tables, &warn)?;
    show_ended(&wanted, &tables, &done);
    Ok(())
}

enum Found<'a> {
    Tune(&'a TuneStatus),
    /// A known constant that is not tuned; the sentence to print.
    Default(String),
}

fn find<'a>(folders: &Folders, tables: &Tables, tunes: &'a [TuneStatus], name: &str) -> Result<Found<'a>> {
    let spec = Spec::parse(name)?;
    if let Some(table) = tables.pick(&spec, name)? {
        let constant = &table.constant;
        return Ok(match tunes.iter().find(|tune| tune.is_of(constant)) {
            Some(tune) => Found::Tune(tune),
            None => Found::Default(format!("{} = {} (it was not tuned)", constant.title(), constant.default)),
        });
    }
    // A tune can be ended even if its table is gone.
    match pick(&spec, name, tunes, |tune| (&tune.name, None))? {
        Some(tune) => Ok(Found::Tune(tune)),
        None => match tables.find(folders, name) {
            Err(error) => Err(error.into()),
            Ok(_) => Err(Failure::error(format!("{name}: not found"))),
        },
    }
}

/// Refuses to end a policy alone: what was loaded together ends together.
fn refuse_decided(wanted: &[&TuneStatus], tables: &Tables) -> Result {
    match wanted.iter().find(|tune| tune.policy.is_some()) {
        None => Ok(()),
        Some(tune) => {
            let title = tables.title_of(tune);
            Err(Failure::error(format!(
                "{title} is decided by a policy: `xk unload {title}` ends it, with everything that was loaded together; \
                 nothing was changed"
            )))
        }
    }
}
