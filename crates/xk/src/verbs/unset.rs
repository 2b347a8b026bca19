//! `xk unset`: the default back.

use xk_const::Spec;
use xk_runtime::TuneStatus;

use super::ending;
use super::transition::Options;
use crate::context::{running, Folders, Tables};
use crate::exit::{Failure, Result};
use crate::names;
use crate::tunes::{device_if_loaded, is_tune_of, title, title_of};

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
    transition: Options,
}

/// Puts the defaults back, all or none. Constants that are not tuned have theirs already.
pub fn run(args: &Args) -> Result {
    let folders = Folders::new();
    let tables = folders.tables(&running()?.build_id)?;
    let device = device_if_loaded()?;
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
    ending::refuse_held(&wanted, &tables)?;
    refuse_decided(&wanted, &tables)?;
    let done = ending::end(&device, &wanted, &args.transition, &tables)?;
    ending::show(&wanted, &tables, &done);
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
        return Ok(match tunes.iter().find(|tune| is_tune_of(tune, constant)) {
            Some(tune) => Found::Tune(tune),
            None => Found::Default(format!("{} = {} (it was not tuned)", title(constant), constant.default)),
        });
    }
    // A tune can be taken back even when its table is gone.
    match names::pick(&spec, name, tunes, |tune| (&tune.name, None))? {
        Some(tune) => Ok(Found::Tune(tune)),
        None => Err(tables.find(folders, name).err().unwrap_or_else(|| Failure::error(format!("{name}: not found")))),
    }
}

/// What was loaded together goes together.
fn refuse_decided(wanted: &[&TuneStatus], tables: &Tables) -> Result {
    match wanted.iter().find(|tune| tune.policy.is_some()) {
        None => Ok(()),
        Some(tune) => {
            let title = title_of(tune, tables);
            Err(Failure::error(format!(
                "{title} is decided by a policy: `xk unload {title}` ends it, with all that was loaded together; \
                 nothing was changed"
            )))
        }
    }
}
