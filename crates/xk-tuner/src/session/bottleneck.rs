//! Several subsystems: finds the one that limits the target most, tunes it, and begins again.
//!
//! In: jobs with bottleneck tests. Out: a summary for each search. One window of the target, with everything as it is, gives
//! a reading of each bottleneck test. The subsystem that exceeds its limit most is tuned, and confirmed values are kept.
//! The next window shows the subsystem that limits the target then. A subsystem whose counters cannot be read does not
//! limit the target.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::json;

use super::{searched, who, Keeper, Setup, Summary};
use crate::description::Job;
use crate::target::{TargetError, Watch};
use crate::Gauges;
use crate::{Error, Sensor};

/// Tunes one subsystem after the other, as long as one limits the target.
pub(super) fn tune(setup: &mut Setup<'_>, jobs: &[Job], keeper: &mut Keeper<'_>) -> Result<Vec<Summary>, Error> {
    let mut summaries = Vec::new();
    let mut done = BTreeSet::new();
    while done.len() < jobs.len() {
        let Some(pressures) = pressures(jobs, keeper)? else { break };
        let next = worst(&pressures, &done);
        let chosen = next.map(|index| jobs[index].name.as_str());
        let named: BTreeMap<&str, f64> = jobs.iter().map(|job| job.name.as_str()).zip(pressures.clone()).collect();
        keeper.store.note(&who(), &json!({ "event": "bottleneck", "pressures": named, "chosen": chosen }))?;
        (setup.say)(&sentence(jobs, &pressures, &done, next));
        let Some(index) = next else { break };
        setup.job = jobs[index].clone();
        summaries.push(searched(setup, keeper)?);
        if summaries.last().is_some_and(|summary| summary.is_interrupted) {
            break;
        }
        done.insert(index);
    }
    Ok(summaries)
}

/// The reading of each bottleneck test in one window, divided by its limit; `None` if the search was asked to stop.
fn pressures(jobs: &[Job], watch: &mut dyn Watch) -> Result<Option<Vec<f64>>, Error> {
    let sensors: Vec<Sensor> = jobs.iter().filter_map(|job| Some(job.bottleneck.as_ref()?.sensor.clone())).collect();
    let Some(target) = jobs.first().map(|job| &job.target) else { return Ok(None) };
    let mut gauges = Gauges::of(&sensors);
    let before = gauges.read();
    match target.run(target.timeout, &[], watch) {
        Ok(_) => {}
        Err(TargetError::Interrupted) => return Ok(None),
        Err(error) => return Err(Error::Target(error)),
    }
    let after = gauges.read();
    let readings = gauges.between(&before, &after).0;
    let pressure = |job: &Job| {
        let test = job.bottleneck.as_ref()?;
        Some(readings.get(&test.sensor.name)? / test.at_least)
    };
    Ok(Some(jobs.iter().map(|job| pressure(job).unwrap_or(0.0)).collect()))
}

/// The subsystem that exceeds its limit most, of those that were not tuned yet.
fn worst(pressures: &[f64], done: &BTreeSet<usize>) -> Option<usize> {
    let limiting = (0..pressures.len()).filter(|index| pressures[*index] >= 1.0 && !done.contains(index));
    limiting.max_by(|a, b| pressures[*a].total_cmp(&pressures[*b]))
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
        || "no subsystem that can be tuned limits the target any more".to_owned(),
        |index| format!("{} limits the target", jobs[index].name),
    );
    format!("{verdict} ({}; the limit is 1.00)", words.join("; "))
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
