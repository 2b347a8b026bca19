//! `xk get`: the value in force.

use serde_json::json;
use xk_const::Spec;
use xk_kernel::KernelId;
use xk_runtime::Device;
use xk_store::{pick, Folders, Tables};

use crate::exit::Result;
use crate::output::{print_json, Paint};

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
    let folders = Folders::from_environment();
    let tables = Tables::read(&folders, &KernelId::live()?.build_id)?;
    let spec = Spec::parse(&args.name)?;
    let tunes = match Device::open_to_read_if_loaded()? {
        Some(device) => device.tunes()?,
        None => Vec::new(),
    };
    // A tune is shown even if its table is gone.
    let (id, name, default, values, tune) = match tables.pick(&spec, &args.name)? {
        Some(table) => {
            let tune = tunes.iter().find(|tune| tune.is_of(&table.constant));
            let constant = &table.constant;
            (constant.id.clone(), constant.title().to_owned(), constant.default, &table.values, tune)
        }
        None => match pick(&spec, &args.name, &tunes, |tune| (&tune.name, None))? {
            Some(tune) => (tune.name.clone(), tune.name.clone(), tune.default, &tune.values, Some(tune)),
            None => return Ok(tables.find(&folders, &args.name).map(drop)?),
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
            "in_force_everywhere": tune.is_none_or(|tune| tune.in_force_everywhere()),
        }));
        return Ok(());
    }
    println!("{value}");
    if let Some(tune) = tune.filter(|tune| !tune.in_force_everywhere()) {
        let warning = format!("{name}: {} is not in force at every site; see `xk status`", tune.value);
        eprintln!("{} {warning}", Paint::stderr().warning("warning:"));
    }
    Ok(())
}
