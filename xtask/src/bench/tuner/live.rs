//! A live target with nothing to find: a guest with an ordinary clock, real windows, and the noise of the host
//! (`inside/live.rs`).
//!
//! In: minutes. Out: counts, and what they say about the limit on false promotions. A count of 0 does not show a probability
//! of 0. So the largest probability is reported with which so few events are still seen in one run of 20.

use std::path::Path;

use anyhow::{ensure, Context, Result};
use serde::Serialize;
use xk_tuner::engine::Racing;
use xk_tuner::history::Goal;
use xk_tuner::random::Random;
use xk_tuner::replay::{play, Source};
use xk_tuner::simulation::minimum;
use xk_tuner::{Point, Space};

use super::{Options, MISTAKES};
use crate::bench::say;
use crate::inside::live::Report;
use crate::lab;

/// One minus the confidence of an upper limit.
const DOUBT: f64 = 0.05;
/// Searches that get recorded windows.
const REPLAYED: u64 = 1000;
/// Their trials: as many as a search makes by default.
const TRIALS: usize = 120;
/// A daemon that has found nothing searches again after a week.
const SEARCHES_PER_YEAR: f64 = 52.0;
/// A daemon checks what it keeps every 15 minutes.
const CHECKS_PER_YEAR: f64 = 365.25 * 24.0 * 4.0;

/// What was measured; its fields are fields of the JSON object.
#[derive(Debug, Serialize)]
pub struct Live {
    #[serde(flatten)]
    report: Report,
    guest_seconds: f64,
    /// The windows that were recorded without a tuner, and searches that get them one after the other, from another one on
    /// each.
    replayed_windows: usize,
    replayed_searches: u64,
    replayed_promotions: u64,
    /// All checks, as a share of those of a year.
    years_of_checks: f64,
    /// Upper limits, with a confidence of 95 %.
    promotions_per_search_at_most: f64,
    replayed_promotions_per_search_at_most: f64,
    promotions_per_year_at_most: f64,
    replayed_promotions_per_year_at_most: f64,
    given_up_per_check_at_most: f64,
    /// What is promised for a year.
    limit_per_year: f64,
}

impl Live {
    /// Measures in a guest.
    ///
    /// # Errors
    /// When the guest or a tuner fails.
    pub fn measure(options: &Options) -> Result<Self> {
        let (programs, _) = lab::prepared()?;
        Self::in_guest(&programs, options.live)
    }

    /// Measures in a guest that has `xk` in this folder.
    ///
    /// # Errors
    /// As [`Live::measure`].
    pub(super) fn in_guest(programs: &Path, minutes: u64) -> Result<Self> {
        say(&format!("searching where there is nothing to find, for {minutes} minutes"));
        // A request of the disk takes 0.2 ms.
        let disk = "modprobe null_blk nr_devices=2 gb=1 irqmode=2 completion_nsec=200000";
        let knob = "/sys/block/nullb0/queue/read_ahead_kb";
        let script = format!(
            "{disk} && exec {} inside live --xk {} --idle bench/tuner/live/idle.toml --kept bench/tuner/live/kept.toml \
             --knob {knob} --disk /dev/nullb0 --seconds {}",
            std::env::current_exe()?.display(),
            programs.join("xk").display(),
            60 * minutes
        );
        // Each part ends what it has begun.
        let timeout = (60 * minutes + 2400).to_string();
        let printed = lab::run_guest(&script, &["--timeout", &timeout])?;
        let last = printed.lines().last().unwrap_or_default();
        let report = serde_json::from_str(last).with_context(|| format!("the guest printed: {printed}"))?;
        Self::of(report)
    }

    fn of(mut report: Report) -> Result<Self> {
        let series = std::mem::take(&mut report.series);
        let replayed_promotions = replay(report.space.take().context("there is no search")?, &series)?;
        let checks = report.idle_checks + report.kept_checks;
        let per_replayed = at_most(replayed_promotions as usize, REPLAYED as usize);
        let per_search = at_most(report.promotions as usize, report.searches as usize);
        Ok(Self {
            replayed_windows: series.len(),
            replayed_searches: REPLAYED,
            replayed_promotions,
            replayed_promotions_per_search_at_most: places(per_replayed),
            replayed_promotions_per_year_at_most: places(per_replayed * SEARCHES_PER_YEAR),
            guest_seconds: report.seconds.iter().sum::<f64>().round(),
            years_of_checks: places(checks as f64 / CHECKS_PER_YEAR),
            promotions_per_search_at_most: places(per_search),
            promotions_per_year_at_most: places(per_search * SEARCHES_PER_YEAR),
            given_up_per_check_at_most: places(at_most(report.given_up, report.kept_checks)),
            limit_per_year: MISTAKES,
            report: Report { noise: places(report.noise), seconds: report.seconds.map(f64::round), ..report },
        })
    }

    /// What was promised and does not hold. The limit per year is too low for minutes to exceed it by chance.
    pub fn missed(&self) -> Vec<String> {
        let Report { searches, tests, promotions, idle_checks, idle_promotions, kept_checks, .. } = self.report;
        let promises = [
            (
                "live: candidates are tested, and settings are checked",
                searches.min(tests) > 0 && idle_checks.min(kept_checks) > 0,
            ),
            ("live: nothing is promoted where there is nothing to find", promotions == 0 && idle_promotions == 0),
            ("live: noise is promoted once in a hundred replayed searches at most", self.is_seldom_replayed()),
            ("live: a setting that is still better is not given up", self.report.given_up == 0),
            ("live: the default is in force in comparisons only", self.report.unexplained == 0),
        ];
        promises.iter().filter(|(_, holds)| !holds).map(|(promise, _)| (*promise).to_owned()).collect()
    }

    fn is_seldom_replayed(&self) -> bool {
        self.replayed_promotions as f64 <= MISTAKES * self.replayed_searches as f64
    }

    /// Whether every promise holds.
    ///
    /// # Errors
    /// Those that do not.
    pub fn verdict(&self) -> Result<()> {
        let missed = self.missed();
        ensure!(missed.is_empty(), "tuner: not so: {}", missed.join("; "));
        Ok(())
    }

    /// For people.
    pub fn table(&self) -> String {
        let Report { searches, tests, trials, windows, promotions, noise, .. } = &self.report;
        let Report { idle_checks, idle_promotions, kept_checks, comparisons, given_up, unexplained, .. } = &self.report;
        let Self { replayed_searches, replayed_windows, replayed_promotions, .. } = self;
        let [per_search, per_check] = [self.promotions_per_search_at_most, self.given_up_per_check_at_most];
        let lines = [
            format!("live, in {:.0} s, with noise of {:.1} % per window:", self.guest_seconds, 100.0 * noise),
            format!("{searches} searches with nothing to find, {tests} of them with a candidate, {trials} trials:"),
            format!("  {windows} windows, {promotions} promotions, so at most {per_search} per search"),
            format!("{replayed_searches} searches of {replayed_windows} recorded windows: {replayed_promotions} promotions"),
            format!("{idle_checks} checks of a daemon that has found nothing: {idle_promotions} promotions"),
            format!("{kept_checks} checks of a kept setting: {comparisons} comparisons with the default,"),
            format!("  {given_up} times given up (at most {per_check} per check), {unexplained} times reverted without a reason"),
        ];
        lines.join("\n  ") + "\n"
    }
}

/// How many searches promote something if their windows are these, whatever the setting.
fn replay(space: Space, series: &[f64]) -> Result<u64> {
    ensure!(!series.is_empty(), "no window was recorded");
    let mut promoted = 0;
    for seed in 0..REPLAYED {
        let mut windows = Series { windows: series, at: Random::new(seed).next_u64() as usize % series.len() };
        let (_, end) = play(&Racing::new(seed, minimum()), &space, Goal::Maximise, TRIALS, &mut windows)?;
        promoted += u64::from(end.best != space.default_point());
    }
    Ok(promoted)
}

/// Recorded windows, in their order, so that their noise is as it was, with its drifts and its bursts.
struct Series<'s> {
    windows: &'s [f64],
    at: usize,
}

impl Source for Series<'_> {
    fn window(&mut self, _: &Point) -> Option<f64> {
        self.at = (self.at + 1) % self.windows.len();
        self.windows.get(self.at).copied()
    }
}

/// Five places behind the point.
fn places(value: f64) -> f64 {
    (value * 1e5).round() / 1e5
}

/// The largest probability of an event with which at most so many events are still seen in one of 20 runs of so many tries
/// (C. J. Clopper and E. S. Pearson, "The use of confidence or fiducial limits illustrated in the case of the binomial",
/// Biometrika 26, 1934).
fn at_most(events: usize, tries: usize) -> f64 {
    if events >= tries {
        return 1.0;
    }
    let (mut low, mut high) = (0.0, 1.0);
    for _ in 0..60 {
        let middle = (low + high) / 2.0;
        if few(events, tries, middle) > DOUBT {
            low = middle;
        } else {
            high = middle;
        }
    }
    high
}

/// The probability of at most so many events in so many tries.
fn few(events: usize, tries: usize, probability: f64) -> f64 {
    let (tries, odds) = (tries as f64, probability / (1.0 - probability));
    let mut term = (1.0 - probability).powf(tries);
    let mut sum = term;
    for event in 0..events {
        term *= (tries - event as f64) / (event as f64 + 1.0) * odds;
        sum += term;
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn upper_limits_are_those_of_the_textbook() {
        let close = |found: f64, known: f64| assert!((found - known).abs() < 1e-4, "{found} {known}");
        // Without an event: 1 - 0.05^(1/n).
        close(at_most(0, 100), 0.0295);
        close(at_most(0, 1), 0.95);
        close(at_most(1, 10), 0.3942);
        close(at_most(3, 100), 0.0757);
        assert!((at_most(0, 0) - 1.0).abs() < 1e-9 && (at_most(5, 5) - 1.0).abs() < 1e-9);
    }

    #[test]
    fn what_happens_without_a_reason_is_missed() {
        let report = || Report { series: vec![1.0; 10], space: Space::new(Vec::new()).ok(), ..Report::default() };
        let fine = Report { searches: 10, tests: 5, idle_checks: 20, kept_checks: 20, comparisons: 1, ..report() };
        assert_eq!(Live::of(fine).unwrap().missed(), [""; 0]);
        for (broken, words) in [
            (Report { promotions: 1, ..report() }, "nothing is promoted"),
            (Report { idle_promotions: 1, ..report() }, "nothing is promoted"),
            (Report { given_up: 1, ..report() }, "given up"),
            (Report { unexplained: 1, ..report() }, "comparisons only"),
            (report(), "are tested"),
        ] {
            let missed = Live::of(broken).unwrap().missed();
            assert!(missed.iter().any(|promise| promise.contains(words)), "{words}: {missed:?}");
        }
    }
}
