//! `xk tune parameters`: shows the parameters and meters that loaded modules describe.

use serde_json::json;
use xk_runtime::{Meter, Parameter, Role, Values};
use xk_tuner::modules::{full_name, value, Kernel, Modules};

use crate::exit::{Failure, Result};
use crate::output::{print_json, Columns};

/// The parameters and meters of loaded modules.
pub fn parameters(as_json: bool) -> Result {
    let described = Kernel.look().map_err(|error| Failure::error(error.to_string()))?;
    if as_json {
        let parameters: Vec<_> = described.parameters.iter().map(parameter_json).collect();
        let meters: Vec<_> = described.meters.iter().map(meter_json).collect();
        print_json(json!({ "parameters": parameters, "meters": meters }));
        return Ok(());
    }
    if described.parameters.is_empty() {
        println!("no loaded module describes parameters; `dmesg | grep xk:` shows what was refused");
        return Ok(());
    }
    let mut columns = Columns::default();
    columns.row(["parameter", "subsystem", "now", "default", "values", ""].map(Into::into));
    for one in &described.parameters {
        columns.row([
            full_name(one),
            one.subsystem.clone(),
            now(one),
            words(one, one.default),
            values(one),
            notes(one, &described.parameters),
        ]);
    }
    print!("{}", columns.lines(""));
    if !described.meters.is_empty() {
        println!();
    }
    let mut columns = Columns::default();
    for one in &described.meters {
        columns.row([format!("{}:{}", one.module, one.name), one.subsystem.clone(), role(one), reading(one)]);
    }
    print!("{}", columns.lines(""));
    Ok(())
}

fn words(one: &Parameter, number: i64) -> String {
    value(&one.values, number).to_string()
}

fn now(one: &Parameter) -> String {
    match one.value {
        Ok(number) => words(one, number),
        Err(errno) => std::io::Error::from_raw_os_error(errno).to_string(),
    }
}

fn values(one: &Parameter) -> String {
    match &one.values {
        Values::Choices(words) => words.join(" "),
        Values::Numbers { min, max, step, exponential: true } => format!("{min}..{max}, times {step}"),
        Values::Numbers { min, max, step: 1, .. } => format!("{min}..{max}"),
        Values::Numbers { min, max, step, .. } => format!("{min}..{max}, plus {step}"),
    }
}

fn notes(one: &Parameter, all: &[Parameter]) -> String {
    let guard = one.only_if.as_ref().map(|(other, number)| {
        let guard = all.iter().find(|guard| guard.module == one.module && guard.name == *other);
        format!("only if {other} = {}", guard.map_or(number.to_string(), |guard| words(guard, *number)))
    });
    let hold = one.hold.as_ref().map(|hold| {
        let who = hold.owner.map_or("about to be".into(), |pid| format!("set by process {pid}, to be"));
        format!("{who} set back to {}", words(one, hold.original))
    });
    guard.into_iter().chain(hold).collect::<Vec<_>>().join("; ")
}

fn role(meter: &Meter) -> String {
    match meter.role {
        Role::Sensor(similar) => format!("sensor, alike within {:.0} %", similar * 100.0),
        Role::Target { rate, minimise } => {
            let goal = if minimise { "minimise" } else { "maximise" };
            format!("target, {goal}{}", if rate { " its growth per second" } else { "" })
        }
        Role::Bottleneck(limit) => format!("bottleneck from {limit}"),
    }
}

fn reading(meter: &Meter) -> String {
    match meter.reading {
        Ok((of, per)) if meter.divided => format!("{of} per {per}"),
        Ok((of, _)) => of.to_string(),
        Err(errno) => std::io::Error::from_raw_os_error(errno).to_string(),
    }
}

fn parameter_json(one: &Parameter) -> serde_json::Value {
    let values = match &one.values {
        Values::Choices(words) => json!({ "choices": words }),
        Values::Numbers { min, max, step, exponential } => {
            json!({ "min": min, "max": max, "step": step, "steps": if *exponential { "exponential" } else { "linear" } })
        }
    };
    let hold = one.hold.as_ref().map(|hold| {
        json!({ "owner": hold.owner, "original": words(one, hold.original), "lease_s": hold.lease.map(|left| left.as_secs_f64()) })
    });
    json!({
        "module": one.module, "subsystem": one.subsystem, "name": one.name, "values": values,
        "value": one.value.ok().map(|number| words(one, number)), "error": one.value.err(),
        "default": words(one, one.default), "only_if": one.only_if, "settle_s": one.settle.as_secs_f64(),
        "at_end": if one.revert { "revert" } else { "keep" }, "held": hold,
    })
}

fn meter_json(meter: &Meter) -> serde_json::Value {
    let (role, detail) = match meter.role {
        Role::Sensor(similar) => ("sensor", json!({ "similar": similar })),
        Role::Target { rate, minimise } => ("target", json!({ "rate": rate, "minimise": minimise })),
        Role::Bottleneck(limit) => ("bottleneck", json!({ "at_least": limit })),
    };
    json!({
        "module": meter.module, "subsystem": meter.subsystem, "name": meter.name, "role": role, "detail": detail,
        "of": meter.reading.ok().map(|(of, _)| of),
        "per": meter.reading.ok().filter(|_| meter.divided).map(|(_, per)| per), "error": meter.reading.err(),
    })
}
