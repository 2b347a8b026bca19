//! `xk get`: the value in force.

use serde_json::json;
use xk_const::Spec;
use xk_runtime::{Probe, TuneStatus};

use crate::context::{running, Folders};
use crate::exit::Result;
use crate::names;
use crate::output::{print_json, Paint};
use crate::tunes::{device_to_read, is_tune_of, title};

/// Arguments of `xk get`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The constant
    name: String,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Prints it: the default when the constant is not tuned.
pub fn run(args: &Args) -> Result {
    let folders = Folders::new();
    let tables = folders.tables(&running()?.build_id)?;
    let spec = Spec::parse(&args.name)?;
    let tunes = match device_to_read()? {
        Some(device) => device.tunes()?,
        None => Vec::new(),
    };
    // A tune is there to see even when its table is gone.
    let (id, name, default, values, tune) = match tables.pick(&spec, &args.name)? {
        Some(table) => {
            let tune = tunes.iter().find(|tune| is_tune_of(tune, &table.constant));
            let constant = &table.constant;
            (constant.id.clone(), title(constant).to_owned(), constant.default, &table.values, tune)
        }
        None => match names::pick(&spec, &args.name, &tunes, |tune| (&tune.name, None))? {
            Some(tune) => (tune.name.clone(), tune.name.clone(), tune.default, &tune.values, Some(tune)),
            None => return tables.find(&folders, &args.name).map(drop),
        },
    };
    let value = tune.map_or(default, |tune| tune.value);
    if args.json {
        print_json(json!({
            "id": id,
            "name": name,
            "value": value,
            "default": default,
            "values": values,
            "tuned": tune.is_some(),
            "in_force_everywhere": tune.is_none_or(in_force),
        }));
        return Ok(());
    }
    println!("{value}");
    if let Some(tune) = tune.filter(|tune| !in_force(tune)) {
        let warning = format!("{name}: {} is not in force at every site; see `xk status`", tune.value);
        eprintln!("{} {warning}", Paint::stderr().warning("warning:"));
    }
    Ok(())
}

/// Whether a value is in force wherever it could be.
pub fn in_force(tune: &TuneStatus) -> bool {
    !tune.broken
        && tune.sites.iter().all(|site| !matches!(site.probe, Probe::Disarmed | Probe::Broken | Probe::Drifted))
}
