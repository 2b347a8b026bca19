//! `xk unset`: the default back.

use xk_const::Spec;
use xk_runtime::{Device, TuneStatus};

use super::{device_if_loaded, is_tune_of, owner, title, title_of};
use crate::context::{running, Folders, Tables};
use crate::exit::{Failure, Result};
use crate::names;

/// Arguments of `xk unset`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The constants
    #[arg(required_unless_present = "all", conflicts_with = "all", value_name = "NAME")]
    names: Vec<String>,
    /// Every constant that is tuned
    #[arg(long)]
    all: bool,
}

/// Puts the defaults back. Constants that are not tuned have theirs already.
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
    let mut failed: Option<Failure> = None;
    for tune in wanted {
        let Some(device) = &device else { continue };
        match unload(device, tune, title_of(tune, &tables)) {
            Ok(()) => println!("{} = {} (its default)", title_of(tune, &tables), tune.default),
            Err(failure) => {
                failed = Some(match failed {
                    Some(first) => first.then(&format!("\n{}", failure.message)),
                    None => failure,
                });
            }
        }
    }
    failed.map_or(Ok(()), Err)
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

fn unload(device: &Device, tune: &TuneStatus, title: &str) -> Result {
    if !tune.detached {
        return Err(Failure::error(format!(
            "{title} is {}, which puts the default back when it ends; nothing was changed",
            owner(tune)
        )));
    }
    device.unload(tune.id).map_err(|error| Failure::from(error).about(title))
}
