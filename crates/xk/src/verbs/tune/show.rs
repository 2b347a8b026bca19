//! What `xk tune` prints.

use std::path::Path;
use std::time::Duration;

use jiff::tz::TimeZone;
use serde_json::json;
use xk_tuner::description::{AtEnd, Job};
use xk_tuner::metrics::Counts;
use xk_tuner::plan::Plan;
use xk_tuner::report::verdict;
use xk_tuner::session::{stop_file, Summary};
use xk_tuner::store::{Lock, Store};

use crate::exit::Result;
use crate::output::{moment, print_json, to_json, Columns, Paint};

/// The plan of a search.
pub fn plan(job: &Job, plan: &Plan) {
    let paint = Paint::stdout();
    println!("{} in this order; nothing has been changed:", paint.strong(&job.name));
    let mut columns = Columns::default();
    columns.row(["parameter", "now", "tried", "where", "restored by", "if confirmed"].map(Into::into));
    for step in &plan.steps {
        let values: Vec<String> = step.values.iter().map(ToString::to_string).collect();
        let only = step.only_if.as_ref().map_or(String::new(), |only| format!(" (only if {only})"));
        let stays = if step.at_end == AtEnd::Keep { "is kept" } else { "is reverted" };
        columns.row([
            step.name.clone(),
            step.now.to_string(),
            values.join(" ") + &only,
            step.place.clone(),
            step.rescue.into(),
            stays.into(),
        ]);
    }
    print!("{}", columns.lines("  "));
    for left_out in &plan.left_out {
        println!("left out: {left_out}");
    }
    let points = plan.points.map_or("more points than can be counted".into(), |points| format!("{points} points"));
    println!("{points}, at most {} trials; each runs this two or three times:", job.options.trials);
    println!("  {}", job.target.words());
    for limit in &job.constraints {
        let most = limit.at_most.map_or(String::new(), |most| format!(" at most {most}"));
        let least = limit.at_least.map_or(String::new(), |least| format!(" at least {least}"));
        println!("a setting is reverted at once, and not tried again, unless {} is{most}{least}", limit.name);
    }
}

/// Shows how a session ended.
pub fn summary(summary: &Summary) {
    let paint = Paint::stdout();
    let trials = match (&summary.conclusion, summary.trials) {
        _ if summary.is_interrupted => format!(" after {} trials", summary.trials),
        // A kept setting was watched, and not compared.
        (None, 0) => String::new(),
        (_, trials) => format!(" ({trials} trials)"),
    };
    println!("search {}: {}{trials}", summary.search, summary.sentence);
    if !summary.front.is_empty() {
        println!("the front, the best at the first target first:");
        summary.front.iter().for_each(|choice| println!("  {choice}"));
    }
    for knob in &summary.kept {
        println!("{} = {} (was {}), until `xk tune revert`", paint.strong(&knob.name), knob.value, knob.original);
    }
}

/// Whether a tuner is running. A running tuner holds the lock.
fn at_work(state: &Path) -> bool {
    Lock::take(state, Duration::ZERO).is_err()
}

/// The metrics.
pub fn metrics(state: &Path) -> Result {
    let store = Store::open(state)?;
    let counts = &mut Counts::default();
    print!("{}", xk_tuner::metrics::metrics(&store, counts, at_work(state), stop_file(state).exists())?);
    Ok(())
}

/// Shows the last search, and what is changed now.
pub fn status(state: &Path, as_json: bool) -> Result {
    let store = Store::open(state)?;
    let at_work = at_work(state);
    let stopped = std::fs::read_to_string(stop_file(state)).ok();
    let (changed, kept) = (store.changed()?, store.kept()?);
    let search = store.search(None)?;
    let trials = search.as_ref().map(|search| store.history(search.id)).transpose()?.unwrap_or_default().len();
    let next = search.as_ref().map(|search| store.unfinished(search.id)).transpose()?.flatten();
    if as_json {
        print_json(json!({
            "at_work": at_work, "stopped": stopped, "changed": to_json(&changed), "kept": to_json(&kept),
            "search": to_json(&search), "trials": trials, "unfinished": to_json(&next),
        }));
        return Ok(());
    }
    println!("{}", if at_work { "a tuner is running" } else { "no tuner is running" });
    if let Some(reason) = stopped {
        println!("tuning is stopped ({}): `xk tune resume` allows it again", reason.trim());
    }
    for knob in &changed {
        println!("{} is changed; it was {}", knob.name, knob.original);
    }
    for knob in &kept {
        let by = if knob.search.is_empty() { String::new() } else { format!(" by search {}", knob.search) };
        println!("{} = {} is kept{by}; it was {}", knob.name, knob.value, knob.original);
    }
    if let Some(search) = &search {
        println!("search {} ({}), {trials} trials: {}", search.id, search.name, verdict(search));
        if let Some(trial) = next {
            println!("trial {}, not ended: {}", trials + 1, search.spec.space.describe(&trial.point));
        }
    }
    Ok(())
}

/// Shows the journal. Times are local.
pub fn history(state: &Path, as_json: bool) -> Result {
    let (entries, broken) = Store::open(state)?.journal()?;
    if as_json {
        print_json(json!({ "entries": to_json(&entries), "broken_at": broken }));
        return Ok(());
    }
    let zone = TimeZone::system();
    for entry in &entries {
        println!("{:>5}  {}  {}  {}", entry.number, moment(entry.at, &zone), entry.who, entry.what);
        for choice in entry.what["front"].as_array().into_iter().flatten() {
            let factors = choice["factors"].as_object().into_iter().flatten();
            let factors: Vec<String> =
                factors.map(|(name, factor)| format!("{name} x {:.3}", factor.as_f64().unwrap_or(f64::NAN))).collect();
            let setting = choice["setting"].as_str().unwrap_or_default();
            println!("       on the front: {setting}: {} ({} trials)", factors.join(", "), choice["trials"]);
        }
    }
    if let Some(number) = broken {
        println!(
            "{}",
            Paint::stdout()
                .bad(&format!("entry {number} does not follow from the one before: the journal was altered"))
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_local_and_name_their_zone() {
        let zone = TimeZone::posix("CET-1CEST,M3.5.0,M10.5.0/3").unwrap();
        assert_eq!(moment(0, &zone), "1970-01-01 01:00:00 +01:00");
        assert_eq!(moment(1_751_328_000, &zone), "2025-07-01 02:00:00 +02:00");
        assert_eq!(moment(0, &TimeZone::UTC), "1970-01-01 00:00:00 +00:00");
        // No such moment can be written.
        assert_eq!(moment(i64::MAX, &TimeZone::UTC), i64::MAX.to_string());
    }
}
