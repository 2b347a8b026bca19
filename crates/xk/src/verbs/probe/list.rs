//! `xk probe list`: what is probed.

use serde_json::{json, Value};
use xk_runtime::{Device, ProbeStatus};

use crate::exit::Result;
use crate::output::{print_json, Columns};
use crate::sites::time;

/// Arguments of `xk probe list`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Show every instruction, too
    #[arg(long)]
    places: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Lists.
pub fn run(args: &Args) -> Result {
    let device = Device::open_to_read_if_loaded()?;
    let probes = match &device {
        Some(device) => device.probes()?,
        None => Vec::new(),
    };
    if args.json {
        let all = probes.iter().map(|probe| document(probe, device.as_ref().filter(|_| args.places)));
        print_json(json!({ "probes": all.collect::<Result<Vec<_>>>()?, "loaded": device.is_some() }));
        return Ok(());
    }
    match &device {
        None => println!("xk.ko is not loaded: nothing is probed"),
        Some(_) if probes.is_empty() => println!("nothing is probed"),
        Some(device) => {
            print!("{}", text(&probes));
            if args.places {
                for probe in &probes {
                    print!("{}", places(probe, device)?);
                }
            }
        }
    }
    Ok(())
}

/// A table of attachments.
pub(in crate::verbs) fn text(probes: &[ProbeStatus]) -> String {
    let mut columns = Columns::default();
    let head = ["ID", "NAME", "PROGRAM", "PLACES", "JUMPS", "HITS", "SKIPPED", "AGE", "ENDS WITH"];
    columns.row(head.map(String::from));
    for probe in probes {
        columns.row([
            probe.id.to_string(),
            probe.name.clone(),
            probe.program.map_or("-".into(), |program| program.to_string()),
            probe.places.to_string(),
            probe.jumps.to_string(),
            probe.hits.to_string(),
            probe.skipped.to_string(),
            time(probe.age),
            ends_with(probe),
        ]);
    }
    columns.lines("")
}

/// `process 812`, `xk probe detach`; a lease comes first.
fn ends_with(probe: &ProbeStatus) -> String {
    let lease = probe.lease.map_or(String::new(), |left| format!("in {}, or with ", time(left)));
    match probe.kept {
        true => format!("{lease}xk probe detach"),
        false => format!("{lease}process {}", probe.owner_pid),
    }
}

fn places(probe: &ProbeStatus, device: &Device) -> Result<String> {
    let mut columns = Columns::default();
    for place in device.probe_places(probe.id)? {
        columns.row([
            place.hits.to_string(),
            place.by.word().into(),
            format!("{:#x}", place.now.unwrap_or(place.address)),
            place.note.unwrap_or_default(),
        ]);
    }
    Ok(format!("{}:\n{}", probe.name, columns.lines("  ")))
}

/// An attachment; with a device, also every instruction.
///
/// # Errors
/// What the device said.
pub(in crate::verbs) fn document(probe: &ProbeStatus, device: Option<&Device>) -> Result<Value> {
    let mut document = json!({
        "id": probe.id,
        "name": probe.name,
        "program": probe.program,
        "programs": probe.programs,
        "places": probe.places,
        "jumps": probe.jumps,
        "hits": probe.hits,
        "skipped": probe.skipped,
        "age_s": probe.age.as_secs_f64(),
        "owner_pid": probe.owner_pid,
        "memory": probe.memory,
        "kept": probe.kept,
        "lease_s": probe.lease.map(|left| left.as_secs_f64()),
    });
    if let Some(device) = device {
        let each = device.probe_places(probe.id)?.into_iter().map(|place| {
            json!({
                "address": place.now.map(|address| format!("{address:#x}")),
                "requested": format!("{:#x}", place.address),
                "hits": place.hits,
                "missed": place.missed,
                "by": place.by.word(),
                "note": place.note,
            })
        });
        document["each"] = each.collect();
    }
    Ok(document)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::time::Duration;

    use super::*;
    use crate::fixture;

    #[test]
    fn golden() {
        let counting = ProbeStatus {
            id: 3,
            name: "count vfs_write+0x5b".into(),
            program: None,
            programs: 0,
            places: 1,
            jumps: 1,
            owner_pid: 812,
            hits: 1500,
            skipped: 0,
            age: Duration::from_secs(90),
            memory: 64,
            lease: None,
            kept: false,
        };
        let program = ProbeStatus {
            id: 12,
            name: "sizes of sizes.bpf.c".into(),
            program: Some(41),
            places: 230,
            jumps: 228,
            skipped: 2,
            kept: true,
            ..counting.clone()
        };
        let leased = ProbeStatus { id: 13, lease: Some(Duration::from_secs(600)), ..program.clone() };
        fixture::golden("probe_list.txt", &text(&[counting.clone(), program, leased]));
        let document = document(&counting, None).unwrap();
        assert_eq!((&document["program"], &document["jumps"]), (&Value::Null, &json!(1)));
    }
}
