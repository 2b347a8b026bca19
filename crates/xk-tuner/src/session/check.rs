//! Checks the settings that searches keep, and leaves them in force meanwhile.
//!
//! In: the knobs that a search keeps. Out: whether the setting stands, or why it is over; the caller reverts it then. It
//! refuses to judge a setting by windows in which the default fails as well.
//!
//! **Watching.** A check measures the target under the kept setting. It costs the service nothing. `drift.rs` decides
//! whether the target has changed for good, the sensors whether the workload has.
//!
//! **Comparing.** The default is put in force only for a reason: the target drifts, the kept setting fails or violates a
//! constraint twice, the last comparison is too long ago, or the administrator runs the search again. The setting must
//! then win in fresh, randomly ordered pairs, as a candidate must (`engine/comparison.rs`). The default is in force during
//! one window of each pair. Before that, the kept value is recorded as the one to restore. So it is in force again whatever
//! happens to the tuner: by this code, else by the guardian, else by the next start.
//!
//! A window that fails in a comparison, or a default that violates a constraint, ends the comparison without a result: the
//! setting stays. One window of the setting that violates a constraint ends the setting.
//!
//! **How often.** Comparisons must not go on without end. So after each that did not end the setting, the next one that
//! nobody asks for waits [`REST`] times as long as that one took.

use std::time::Instant;

use serde_json::json;

use super::open::OpenSearch;
use super::search::{measure, restore};
use super::{who, Keeper, Setup, Summary};
use crate::description::Job;
use crate::drift::Drift;
use crate::engine::{Comparison, Conclusion, EngineName, Ground, Proposal, SearchSpec};
use crate::error::MachineError;
use crate::history::{percent, Outcome, Record};
use crate::machine::{KeptKnob, Machine, MoveError};
use crate::measure::{TrialError, TrialRunner};
use crate::store::{decayed, now, KeptSetting, SearchId, State};
use crate::{Error, Gauges, Signature};

/// The largest number of windows of one check.
const MOST_WINDOWS: usize = 16;

/// A comparison waits this many times as long as the last one took: they take a twentieth of the time.
const REST: f64 = 19.0;

/// A setting is compared again when its confidence has decayed to this: after about a week.
const SURE: f64 = 0.95;

/// What a check has found.
pub(super) enum Check {
    /// The setting stays in force.
    Stands(Summary),
    /// It must be reverted, for this reason.
    Over(String),
}

/// Checks what the search of one job keeps. It is in force afterwards.
pub(super) fn check(setup: &Setup<'_>, keeper: &mut Keeper<'_>, job: &Job, kept: &[KeptKnob]) -> Result<Check, Error> {
    let Some(known) = keeper.store.kept_setting(&job.name)? else {
        return Ok(Check::Over("an older version keeps it".into()));
    };
    if let Some(reason) = elsewhere(setup, job, kept, &known) {
        return Ok(Check::Over(reason));
    }
    let (mut machine, space) = match Machine::find_kept(kept, &job.parameters, setup.constants) {
        Ok(found) => found,
        Err(Error::Knob { parameter, source }) => return Ok(Check::Over(format!("{parameter}: {source}"))),
        Err(error) => return Err(error),
    };
    let runner = TrialRunner {
        settle: machine.settle().max(known.settle),
        home: Comparison::kept(&space),
        // The default is in force for no longer than it must be.
        retries: 0,
        ..TrialRunner::new(job, &mut machine, &space, keeper, setup.say)
    };
    let result = Checker { setup, job, kept, known, runner, unlike: 0 }.run();
    restore(setup, keeper, &mut machine)?;
    result
}

/// Why the setting was confirmed for something else than this search.
fn elsewhere(setup: &Setup<'_>, job: &Job, kept: &[KeptKnob], known: &KeptSetting) -> Option<String> {
    let is_parameter = |knob: &&KeptKnob| job.parameters.iter().any(|parameter| parameter.backing == knob.backing);
    if known.context.build_id != setup.build_id {
        return Some("it was confirmed on another kernel".into());
    }
    if known.target != job.target.words() {
        return Some("it was confirmed for another target".into());
    }
    let unknown = kept.iter().find(|knob| !is_parameter(knob))?;
    Some(format!("{} is not a parameter of this search any more", unknown.name))
}

/// A number with five significant digits.
fn short(number: f64) -> f64 {
    format!("{number:.4e}").parse().unwrap_or(number)
}

/// One check.
struct Checker<'c, 'k> {
    setup: &'c Setup<'c>,
    job: &'c Job,
    kept: &'c [KeptKnob],
    known: KeptSetting,
    runner: TrialRunner<'c, Keeper<'k>>,
    /// How many of the last windows were of another workload.
    unlike: usize,
}

/// What a window under the kept setting has shown.
enum Watched {
    /// The target, and what the sensors read.
    Window(f64, Signature),
    /// It failed twice, and so did the default.
    Unjudged(String),
    /// It failed twice, and the default did not.
    Broken(String),
}

/// What a comparison has shown.
enum Compared {
    /// A conclusion, after so many pairs.
    Concluded(Conclusion, usize),
    /// Nothing, for this reason.
    Unjudged(String),
}

impl Checker<'_, '_> {
    fn run(&mut self) -> Result<Check, Error> {
        match self.watch_and_compare() {
            Ok(check) => Ok(check),
            Err(TrialError::Interrupted | TrialError::Shifted) => Ok(Check::Stands(Summary {
                is_interrupted: true,
                ..self.summary("interrupted in a check; what it keeps stays in force".into(), 0)
            })),
            Err(TrialError::Move(MoveError::Yielded { name, expected, found })) => {
                Ok(Check::Over(format!("{name} is {found}, and not {expected} any more: something else has set it")))
            }
            Err(TrialError::Move(MoveError::Knob { name, error } | MoveError::LeaseEnded { name, error })) => {
                Ok(Check::Over(format!("{name}: {error}")))
            }
            Err(TrialError::Move(MoveError::Fatal(error))) => Err(error),
        }
    }

    fn watch_and_compare(&mut self) -> Result<Check, TrialError> {
        self.runner.machine.check()?;
        let mut last = 0.0;
        for number in 1.. {
            match self.window()? {
                Watched::Window(value, signature) => {
                    last = value;
                    self.known.drift.add(value, self.minimum());
                    self.compare_signature(signature);
                }
                Watched::Unjudged(why) => {
                    return Ok(Check::Stands(self.summary(format!("{}, and stays: {why}", self.setting()), 0)));
                }
                Watched::Broken(reason) => return Ok(Check::Over(reason)),
            }
            let drift = &self.known.drift;
            let is_open = drift.is_learning() || (drift.is_near() && !drift.is_alarm()) || self.unlike == 1;
            if number == MOST_WINDOWS || !is_open {
                break;
            }
        }
        if self.unlike > 1 {
            return Ok(Check::Over("the sensors show another workload".into()));
        }
        self.save()?;
        if let Some(reason) = self.reason_to_compare() {
            return self.compare(&reason);
        }
        let mean = self.known.drift.mean().unwrap_or(last);
        let sentence =
            format!("{}, and stays: the target is {} (on average {})", self.setting(), short(last), short(mean));
        Ok(Check::Stands(self.summary(sentence, 0)))
    }

    /// A window under the kept setting. If it fails twice, a window with the default shows what is to blame.
    fn window(&mut self) -> Result<Watched, TrialError> {
        let home = self.runner.home.clone();
        let mut gauges = Gauges::of(&self.job.sensors);
        let mut failure = None;
        for _ in 0..2 {
            let before = gauges.read();
            match self.runner.candidate(&home)? {
                Ok(reading) => {
                    let after = gauges.read();
                    return Ok(Watched::Window(reading.value, gauges.between(&before, &after)));
                }
                Err(outcome) => failure = Some(outcome),
            }
        }
        let words = failure.as_ref().map(Outcome::words).unwrap_or_default();
        let default = self.runner.default_window();
        self.runner.back()?;
        match default {
            Ok(_) => {
                self.forbid(failure.as_ref())?;
                Ok(Watched::Broken(format!("the target {words}, and does not with the default")))
            }
            Err(TrialError::Move(MoveError::Fatal(Error::Constraint(_) | Error::Target(_)))) => {
                Ok(Watched::Unjudged(format!("the target {words}, and the default is no better")))
            }
            Err(error) => Err(error),
        }
    }

    /// Records a violated constraint.
    fn forbid(&self, failure: Option<&Outcome>) -> Result<(), Error> {
        let Some(Outcome::Violated { constraint }) = failure else { return Ok(()) };
        let setting = super::identity::setting(self.runner.space, &self.runner.home);
        let KeptSetting { context, workload, .. } = &self.known;
        self.runner.keeper.store.forbid(&self.job.name, context, workload, &setting, constraint)
    }

    fn compare_signature(&mut self, signature: Signature) {
        let known = self.known.signature.get_or_insert_with(|| signature.clone());
        self.unlike = if known.is_like(&signature, &self.job.sensors) { 0 } else { self.unlike + 1 };
    }

    fn reason_to_compare(&self) -> Option<String> {
        let since = now() - self.known.compared;
        if self.setup.compare {
            return Some("the search was started again".into());
        }
        if now() < self.known.next_comparison {
            return None;
        }
        if self.known.drift.is_alarm() {
            return Some("the target has changed".into());
        }
        (decayed(1.0, since) < SURE).then(|| format!("the last comparison was {} days ago", since / 86_400))
    }

    /// Compares the setting with the default.
    fn compare(&mut self, reason: &str) -> Result<Check, TrialError> {
        let (store, start) = (self.runner.keeper.store, Instant::now());
        (self.setup.say)(&format!("{} is compared with the default: {reason}", self.setting()));
        let open = self.begin()?;
        let event = json!({ "event": "compared", "search": open.id, "name": self.job.name, "reason": reason });
        store.note(&who(), &event)?;
        let compared = self.pairs(&open);
        self.known.next_comparison = now() + (REST * start.elapsed().as_secs_f64()) as i64;
        let (conclusion, trials) = match compared {
            Ok(Compared::Concluded(conclusion, trials)) => (conclusion, trials),
            Ok(Compared::Unjudged(why)) => {
                store.end(open.id, State::Abandoned, None)?;
                self.save()?;
                return Ok(Check::Stands(self.summary(format!("{}, and stays: {why}", self.setting()), 0)));
            }
            Err(error) => {
                store.end(open.id, State::Abandoned, None)?;
                return Err(error);
            }
        };
        store.end(open.id, State::Done, Some(&conclusion))?;
        store.note(&who(), &json!({ "event": "concluded", "search": open.id, "evidence": conclusion }))?;
        let Ground::Remembered { effect, .. } = conclusion.ground else {
            self.known.memory.iter().try_for_each(|memory| store.refute(*memory))?;
            return Ok(Check::Over(format!("it is not shown to be better any more ({trials} pairs)")));
        };
        self.known.memory.iter().try_for_each(|memory| store.confirm(*memory, effect))?;
        self.known = KeptSetting { search: open.id, drift: Drift::default(), compared: now(), ..self.known.clone() };
        self.save()?;
        let sentence = format!("{} is better than the default again, by {}", self.setting(), percent(effect));
        Ok(Check::Stands(self.summary(sentence, trials)))
    }

    /// Begins a comparison. One that was killed is not resumed: what it measured may be long ago.
    fn begin(&self) -> Result<OpenSearch, Error> {
        let (store, job, known) = (self.runner.keeper.store, self.job, &self.known);
        for left in store.open_searches(&job.name, &known.context)? {
            if left.spec.engine == EngineName::Comparison {
                store.end(left.id, State::Abandoned, None)?;
            }
        }
        let spec = SearchSpec {
            space: self.runner.space.clone(),
            goal: job.target.goal,
            engine: EngineName::Comparison,
            seed: store.draw_seed(&job.name)?,
            seed_drawn: true,
            share: store.share(&job.name)?,
            limit: Comparison::limit(),
            minimum: self.minimum(),
            warm: None,
            command: job.target.words(),
            lead: job.target.name.clone(),
            others: job.target.others.clone(),
        };
        let (context, signature) = (known.context.clone(), known.workload.clone());
        let id = store.begin(&job.name, &context, &signature, &spec)?;
        Ok(OpenSearch { id, spec, context, signature, memory: None })
    }

    /// Measures pairs until the comparison has a conclusion.
    fn pairs(&mut self, open: &OpenSearch) -> Result<Compared, TrialError> {
        let mut history: Vec<Record> = Vec::new();
        loop {
            let next = open.spec.propose(&history);
            match next.map_err(|source| Error::from(MachineError::Diverged { search: open.id, source }))? {
                Proposal::Done(conclusion) => return Ok(Compared::Concluded(conclusion, history.len())),
                Proposal::Try(trial) => {
                    let outcome = match measure(self.setup, &mut self.runner, open, history.len(), &trial) {
                        Ok(outcome @ (Outcome::Measured(_) | Outcome::Violated { .. })) => outcome,
                        Ok(failed) => return Ok(Compared::Unjudged(format!("the target {}", failed.words()))),
                        Err(TrialError::Move(MoveError::Fatal(error @ (Error::Constraint(_) | Error::Target(_))))) => {
                            return Ok(Compared::Unjudged(error.to_string()));
                        }
                        Err(error) => return Err(error),
                    };
                    history.push(Record { trial, outcome });
                }
            }
        }
    }

    fn minimum(&self) -> f64 {
        self.job.options.minimum_effect.ln_1p()
    }

    fn save(&self) -> Result<(), Error> {
        self.runner.keeper.store.keep_setting(&self.job.name, &self.known)
    }

    /// The kept setting in words.
    fn setting(&self) -> String {
        let knobs: Vec<String> = self.kept.iter().map(|knob| format!("{} = {}", knob.name, knob.value)).collect();
        knobs.join(", ")
    }

    fn summary(&self, sentence: String, trials: usize) -> Summary {
        let search: SearchId = self.known.search;
        let (kept, front) = (self.kept.to_vec(), Vec::new());
        Summary { search, conclusion: None, is_interrupted: false, trials, sentence, kept, front }
    }
}
