//! A knob that is changed for a trial, and how it is restored: by the tuner itself, by the guardian after the tuner's
//! death, and by the next start after the death of both. During a check of a kept setting, the value before the change is
//! the kept one. The kernel does not restore it, so perf-consts and parameters of modules are recorded too.
//!
//! In: changed knobs. Out: what happened to each. It refuses to restore a knob that something else has changed: such a
//! knob has a value that the tuner did not write.

use serde::{Deserialize, Serialize};

use super::{set, Backing, Constants, Knob, KnobError};
use crate::Value;

/// The largest number of passes over knobs that change each other.
const ROUNDS: usize = 3;

/// Everything that is needed to restore a changed knob.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChangedKnob {
    /// The parameter.
    pub name: String,
    /// The knob.
    #[serde(flatten)]
    pub backing: Backing,
    /// The value before the change: the one before the search, or, during a check, the kept one.
    pub original: Value,
    /// The values that the tuner may have left: the previous one, and the one that it was about to write.
    pub ours: Vec<Value>,
}

/// What happened to a knob that was to be restored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Restored {
    /// It has its original value.
    Done,
    /// Something else has set it to this value, which stays.
    Yielded(Value),
    /// It does not exist any more, like its device or its scheduler.
    Gone,
}

/// A knob while it is being restored.
struct Restoring<'c> {
    changed: &'c ChangedKnob,
    /// The values that the tuner has caused: those that it wrote, and those that appeared when it wrote another knob.
    ours: Vec<Value>,
    knob: Box<dyn Knob>,
    /// Why it did not take its original value.
    refused: Option<KnobError>,
}

impl<'c> Restoring<'c> {
    fn start(changed: &'c ChangedKnob, constants: &dyn Constants) -> Result<Self, KnobError> {
        let knob = changed.backing.knob(constants)?;
        Ok(Self { changed, ours: changed.ours.clone(), knob, refused: None })
    }

    /// Sets the original value, and keeps it when this process ends.
    fn set(&mut self) {
        let done = set(&mut *self.knob, &self.changed.original).and_then(|()| self.knob.keep());
        self.refused = done.err();
    }

    fn must_be_restored(&self, now: Option<&Value>) -> bool {
        let same = |now: &Value, known: &Value| *now == self.knob.canonical(known);
        let is_ours = |now: &Value| self.ours.iter().any(|known| same(now, known));
        now.is_some_and(|now| !same(now, &self.changed.original) && is_ours(now)) && self.refused.is_none()
    }

    /// The result, after the last pass.
    fn result(mut self) -> Result<Restored, KnobError> {
        match self.knob.read() {
            Err(KnobError::Missing { .. }) => Ok(Restored::Gone),
            Ok(now) if now == self.knob.canonical(&self.changed.original) => Ok(Restored::Done),
            Ok(now) => self.refused.map_or(Ok(Restored::Yielded(now)), Err),
            Err(error) => Err(error),
        }
    }
}

/// Restores knobs, the last first, except those that something else has changed.
///
/// Restoring one knob may change another, as an I/O scheduler sets its own `nr_requests`. A value that appears in that
/// moment is therefore the tuner's doing, and the other knob is restored in the next pass.
#[must_use]
pub fn restore(changed: &[ChangedKnob], constants: &dyn Constants) -> Vec<Result<Restored, KnobError>> {
    let mut knobs: Vec<Result<Restoring<'_>, KnobError>> =
        changed.iter().map(|changed| Restoring::start(changed, constants)).collect();
    let mut found: Vec<&mut Restoring<'_>> = knobs.iter_mut().filter_map(|knob| knob.as_mut().ok()).collect();
    for _ in 0..ROUNDS {
        if !restore_once(&mut found) {
            break;
        }
    }
    knobs.into_iter().map(|knob| knob.and_then(Restoring::result)).collect()
}

/// One pass over all knobs. Returns whether it wrote any.
fn restore_once(knobs: &mut [&mut Restoring<'_>]) -> bool {
    let mut wrote = false;
    for index in (0..knobs.len()).rev() {
        let before: Vec<Option<Value>> = knobs.iter_mut().map(|one| one.knob.read().ok()).collect();
        let one = &mut knobs[index];
        if !one.must_be_restored(before[index].as_ref()) {
            continue;
        }
        one.set();
        wrote = true;
        for (other, one) in knobs.iter_mut().enumerate().filter(|(other, _)| *other != index) {
            let now = one.knob.read().ok();
            if now != before[other] {
                one.ours.extend(now);
            }
        }
    }
    wrote
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::knob::{Constant, NoConstant, Plain};

    /// A machine without perf-consts.
    struct NoConstants;

    impl Constants for NoConstants {
        fn find(&self, name: &str) -> Result<Constant, NoConstant> {
            Err(NoConstant::Table { name: name.to_owned(), message: "there is none".into() })
        }
    }

    #[test]
    fn a_value_of_something_else_stays() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("knob");
        let changed = ChangedKnob {
            name: "knob".into(),
            backing: Backing::Plain(Plain::File(path.clone())),
            original: Value::Number(128),
            ours: vec![Value::Number(64), Value::Number(256)],
        };
        let restore =
            |changed: &ChangedKnob| super::restore(std::slice::from_ref(changed), &NoConstants).remove(0).unwrap();
        assert_eq!(restore(&changed), Restored::Gone);
        for (now, outcome, after) in [
            ("64\n", Restored::Done, "128\n"),
            ("256\n", Restored::Done, "128\n"),
            ("128\n", Restored::Done, "128\n"),
            ("77\n", Restored::Yielded(Value::Number(77)), "77\n"),
        ] {
            std::fs::write(&path, now).unwrap();
            assert_eq!(restore(&changed), outcome);
            assert_eq!(std::fs::read_to_string(&path).unwrap(), after);
        }
    }

    #[test]
    fn a_command_pair_is_restored_too() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("qdisc");
        std::fs::write(&path, "fq").unwrap();
        let plain = Plain::Command {
            get: format!("cat {}", path.display()),
            set: format!("printf %s \"$VALUE\" > {}", path.display()),
        };
        let (backing, original) = (Backing::Plain(plain), Value::parse("a; b"));
        let changed = ChangedKnob { name: "qdisc".into(), backing, original, ours: vec![Value::parse("fq")] };
        assert!(matches!(restore(&[changed], &NoConstants)[..], [Ok(Restored::Done)]));
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "a; b");
    }

    #[test]
    fn a_knob_that_changes_with_another_is_restored_too() {
        let folder = tempfile::tempdir().unwrap();
        let [scheduler, requests] = ["scheduler", "requests"].map(|name| folder.path().join(name));
        let file = |name: &str, original: &str, ours: &str| ChangedKnob {
            name: name.into(),
            backing: Backing::Plain(Plain::File(folder.path().join(name))),
            original: Value::parse(original),
            ours: vec![Value::parse(ours)],
        };
        // Choosing a scheduler sets the requests to 77, as the kernel does with a number of its own.
        let choose = format!("echo $VALUE > {}; echo 77 > {}", scheduler.display(), requests.display());
        let plain = Plain::Command { get: format!("cat {}", scheduler.display()), set: choose };
        let changed = [
            ChangedKnob { backing: Backing::Plain(plain), ..file("scheduler", "none", "bfq") },
            file("requests", "64", "128"),
        ];
        std::fs::write(&scheduler, "bfq").unwrap();
        std::fs::write(&requests, "128").unwrap();
        assert!(matches!(restore(&changed, &NoConstants)[..], [Ok(Restored::Done), Ok(Restored::Done)]));
        assert_eq!(std::fs::read_to_string(&requests).unwrap(), "64\n");
    }

    /// Accepts every value, and keeps its own.
    struct Liar;

    impl Knob for Liar {
        fn read(&mut self) -> Result<Value, KnobError> {
            Ok(Value::Number(7))
        }

        fn write(&mut self, _: &Value) -> Result<(), KnobError> {
            Ok(())
        }
    }

    #[test]
    fn what_reads_back_differently_is_an_error_of_its_own() {
        let error = set(&mut Liar, &Value::Number(8)).unwrap_err();
        assert!(
            matches!(error, KnobError::ReadsBack { wrote: Value::Number(8), found: Value::Number(7) }),
            "{error:?}"
        );
        assert_eq!(error.to_string(), "was set to 8, but reads back differently: 7");
    }
}
