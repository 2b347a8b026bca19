//! `xk list`: lists the constants that have tables.

use serde_json::json;
use xk_runtime::{Device, TuneStatus};
use xk_store::{Folders, Tables};
use xk_table::KernelRef;

use crate::exit::Result;
use crate::options::TablesArgs;
use crate::output::{count, print_json, to_json, values, Columns, Paint};

/// Arguments of `xk list`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    tables: TablesArgs,
}

/// Lists them.
pub fn run(args: &Args) -> Result {
    let folders = Folders::from_environment();
    let (kernel, live) = args.tables.choose(&folders)?;
    let tables = Tables::read(&folders, &kernel.build_id)?;
    let tunes = if live { active() } else { Active::Unknown("this kernel does not run".into()) };
    if args.json {
        print_json(document(&kernel, &tables, &tunes));
    } else {
        print!("{}", text(&kernel, &tables, &tunes, Paint::stdout()));
    }
    Ok(())
}

/// What is in force.
enum Active {
    Known(Vec<TuneStatus>),
    /// xk.ko cannot be read, and why.
    Unknown(String),
}

/// The values in force. The list is shown without them if this process may not read them.
fn active() -> Active {
    let tunes = Device::open_to_read_if_loaded().and_then(|device| match device {
        Some(device) => device.tunes(),
        None => Ok(Vec::new()),
    });
    match tunes {
        Ok(tunes) => Active::Known(tunes),
        Err(error) => Active::Unknown(error.to_string()),
    }
}

fn document(kernel: &KernelRef, tables: &Tables, tunes: &Active) -> serde_json::Value {
    let rows: Vec<_> = tables
        .good
        .iter()
        .map(|table| {
            let constant = &table.constant;
            let tune = match tunes {
                Active::Known(tunes) => tunes.iter().find(|tune| tune.is_of(constant)),
                Active::Unknown(_) => None,
            };
            json!({
                "id": constant.id,
                "name": constant.name,
                "default": constant.default,
                "values": table.values,
                "unit": constant.unit_of_measure().map(|known| known.unit.name()),
                "spans": table.spans.len(),
                "data": table.data.len(),
                "active": tune.map(|tune| tune.value),
            })
        })
        .collect();
    let unknown = match tunes {
        Active::Known(_) => None,
        Active::Unknown(why) => Some(why),
    };
    json!({
        "kernel": to_json(kernel),
        "tables": rows,
        "active_unknown": unknown,
        "unreadable": tables.bad.iter().map(ToString::to_string).collect::<Vec<_>>(),
    })
}

fn text(kernel: &KernelRef, tables: &Tables, tunes: &Active, paint: Paint) -> String {
    let mut text = String::new();
    if tables.good.is_empty() {
        text += &format!("no scope tables for kernel {}: run `xk build NAME`\n", kernel.release);
    } else {
        let mut columns = Columns::default();
        columns.row(["NAME", "DEFAULT", "ACTIVE", "VALUES", "SPANS", "DATA", "ID"].map(String::from));
        for table in &tables.good {
            let active = match tunes {
                Active::Known(tunes) => tunes
                    .iter()
                    .find(|tune| tune.is_of(&table.constant))
                    .map_or_else(|| "-".into(), |tune| tune.value.to_string()),
                Active::Unknown(_) => "?".into(),
            };
            columns.row([
                table.constant.name.clone().unwrap_or_else(|| "-".into()),
                table.constant.default.to_string(),
                active,
                values(&table.values),
                table.spans.len().to_string(),
                table.data.len().to_string(),
                table.constant.id.clone(),
            ]);
        }
        text += &columns.lines("");
    }
    if let Active::Unknown(why) = tunes {
        text += &paint.dim(&format!("active values are not known: {why}\n"));
    }
    if !tables.bad.is_empty() {
        text += &paint.warning(&format!("{} could not be read:\n", count(tables.bad.len(), "table")));
        for error in &tables.bad {
            text += &format!("  {error}\n");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;

    #[test]
    fn golden() {
        let table = fixture::table();
        let kernel = table.kernel.clone();
        let mut tables = fixture::tables(vec![table, fixture::data_table()]);
        let tunes = Active::Known(vec![fixture::tune()]);
        fixture::golden("list.txt", &text(&kernel, &tables, &tunes, Paint::PLAIN));
        fixture::golden("list.json", &format!("{:#}\n", document(&kernel, &tables, &tunes)));
        tables.good.clear();
        let unknown = Active::Unknown("changing a kernel constant needs root".into());
        fixture::golden("list_empty.txt", &text(&kernel, &tables, &unknown, Paint::PLAIN));
    }
}
