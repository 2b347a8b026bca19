//! Which subsystem holds the target up: one window with everything as it is, seen by the test of each.
//!
//! The one that is furthest beyond its limit is tuned, what is proved better stays, and the next window shows who
//! holds it up now. A subsystem whose counters are not there holds nothing up.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::json;

use super::{searched, who, Keeper, Setup, Summary};
use crate::description::Job;
use crate::target::{TargetError, Watch};
use crate::Gauges;
use crate::{Error, Sensor};

/// Tunes one subsystem after the other, as long as one holds the target up.
pub(super) fn tune(setup: &mut Setup<'_>, jobs: &[Job], keeper: &mut Keeper<'_>) -> Result<Vec<Summary>, Error> {
    let mut summaries = Vec::new();
    let mut done = BTreeSet::new();
    while done.len() < jobs.len() {
        let Some(pressures) = look(jobs, keeper)? else { break };
        let next = worst(&pressures, &done);
        let chosen = next.map(|index| jobs[index].name.as_str());
        let named: BTreeMap<&str, f64> = jobs.iter().map(|job| job.name.as_str()).zip(pressures.clone()).collect();
        keeper.store.note(&who(), &json!({ "event": "bottleneck", "pressures": named, "chosen": chosen }))?;
        (setup.say)(&sentence(jobs, &pressures, &done, next));
        let Some(index) = next else { break };
        setup.job = jobs[index].clone();
        summaries.push(searched(setup, keeper)?);
        if summaries.last().is_some_and(|summary| summary.conclusion.is_none()) {
            break;
        }
        done.insert(index);
    }
    Ok(summaries)
}

/// How far each subsystem is beyond its limit in one window, 1 being at it; `None` if somebody asked to stop.
fn look(jobs: &[Job], watch: &mut dyn Watch) -> Result<Option<Vec<f64>>, Error> {
    let sensors: Vec<Sensor> = jobs.iter().filter_map(|job| Some(job.bottleneck.as_ref()?.sensor.clone())).collect();
    let Some(target) = jobs.first().map(|job| &job.target) else { return Ok(None) };
    let mut gauges = Gauges::of(&sensors);
    let before = gauges.read();
    match target.run(target.timeout, watch) {
        Ok(_) => {}
        Err(TargetError::Interrupted) => return Ok(None),
        Err(error) => return Err(Error::Target(error.to_string())),
    }
    let after = gauges.read();
    let readings = gauges.between(&before, &after).0;
    let pressure = |job: &Job| {
        let test = job.bottleneck.as_ref()?;
        Some(readings.get(&test.sensor.name)? / test.at_least)
    };
    Ok(Some(jobs.iter().map(|job| pressure(job).unwrap_or(0.0)).collect()))
}

/// The one that is furthest beyond its limit, of those that were not tuned yet.
fn worst(pressures: &[f64], done: &BTreeSet<usize>) -> Option<usize> {
    let beyond = (0..pressures.len()).filter(|index| pressures[*index] >= 1.0 && !done.contains(index));
    beyond.max_by(|a, b| pressures[*a].total_cmp(&pressures[*b]))
}

fn sentence(jobs: &[Job], pressures: &[f64], done: &BTreeSet<usize>, next: Option<usize>) -> String {
    let words: Vec<String> = jobs
        .iter()
        .zip(pressures)
        .enumerate()
        .map(|(index, (job, pressure))| {
            let tuned = if done.contains(&index) { ", tuned" } else { "" };
            format!("{} {pressure:.2}{tuned}", job.name)
        })
        .collect();
    let verdict = next.map_or_else(
        || "nothing that can be tuned holds the target up any more".to_owned(),
        |index| format!("{} holds the target up", jobs[index].name),
    );
    format!("{verdict} ({}; from 1.00 on it does)", words.join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_that_was_not_tuned_is_next() {
        let none = BTreeSet::new();
        assert_eq!(worst(&[0.9, 3.0, 1.5], &none), Some(1));
        assert_eq!(worst(&[0.9, 3.0, 1.5], &[1].into()), Some(2));
        assert_eq!(worst(&[0.9, 3.0, 1.5], &[1, 2].into()), None);
        assert_eq!(worst(&[0.99, 0.0], &none), None);
        assert_eq!(worst(&[], &none), None);
    }
}
