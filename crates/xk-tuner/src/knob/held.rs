//! A knob that is away from its value, and how it comes back: used by the tuner itself, by the guardian after
//! the tuner's death, and by the next start after both.

use serde::{Deserialize, Serialize};

use super::{set, Knob, KnobError, Plain};
use crate::Value;

/// How often knobs that change each other are looked at again.
const ROUNDS: usize = 3;

/// What has to be known to put a knob back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Held {
    /// The parameter.
    pub name: String,
    /// Where it is.
    pub plain: Plain,
    /// The value that it had.
    pub original: Value,
    /// The values that the tuner may have left there: the one before, and the one that it was about to write.
    pub ours: Vec<Value>,
}

/// What came of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PutBack {
    /// The value from before is in force again, or still.
    Done,
    /// Somebody else has set this value meanwhile: it stays.
    Yielded(Value),
    /// The knob is gone, with its device or its scheduler.
    Gone,
}

/// Puts knobs back, the last first, unless somebody else has changed them. Putting one back may change another (an
/// I/O scheduler brings its own `nr_requests`): what changes in that moment is not somebody else's doing.
#[must_use]
pub fn put_back(held: &[Held]) -> Vec<Result<PutBack, KnobError>> {
    let mut knobs: Vec<_> = held.iter().map(|one| (one, one.ours.clone(), one.plain.knob())).collect();
    let mut refused: Vec<Option<KnobError>> = vec![None; held.len()];
    for _ in 0..ROUNDS {
        let mut changed = false;
        for index in (0..knobs.len()).rev() {
            let before: Vec<_> = knobs.iter_mut().map(|(.., knob)| knob.read().ok()).collect();
            let (one, ours, knob) = &mut knobs[index];
            let is_ours = before[index].as_ref().is_some_and(|now| *now != one.original && ours.contains(now));
            if !is_ours || refused[index].is_some() {
                continue;
            }
            refused[index] = set(&mut **knob, &one.original).err();
            changed = true;
            for (other, (_, ours, knob)) in knobs.iter_mut().enumerate() {
                let now = knob.read().ok();
                if other != index && now != before[other] {
                    ours.extend(now);
                }
            }
        }
        if !changed {
            break;
        }
    }
    let ends = knobs.iter_mut().zip(refused);
    ends.map(|((one, _, knob), refused)| end(one, &mut **knob, refused)).collect()
}

/// What became of a knob.
fn end(held: &Held, knob: &mut dyn Knob, refused: Option<KnobError>) -> Result<PutBack, KnobError> {
    match knob.read() {
        Err(KnobError::Missing { .. }) => Ok(PutBack::Gone),
        Ok(now) if now == held.original => Ok(PutBack::Done),
        Ok(now) => refused.map_or(Ok(PutBack::Yielded(now)), Err),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_somebody_else_set_stays() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("knob");
        let held = Held {
            name: "knob".into(),
            plain: Plain::File(path.clone()),
            original: Value::Number(128),
            ours: vec![Value::Number(64), Value::Number(256)],
        };
        let put_back = |held: &Held| super::put_back(std::slice::from_ref(held)).remove(0);
        assert_eq!(put_back(&held), Ok(PutBack::Gone));
        for (now, outcome, after) in [
            ("64\n", PutBack::Done, "128\n"),
            ("256\n", PutBack::Done, "128\n"),
            ("128\n", PutBack::Done, "128\n"),
            ("77\n", PutBack::Yielded(Value::Number(77)), "77\n"),
        ] {
            std::fs::write(&path, now).unwrap();
            assert_eq!(put_back(&held), Ok(outcome));
            assert_eq!(std::fs::read_to_string(&path).unwrap(), after);
        }
    }

    #[test]
    fn a_command_pair_is_put_back_too() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("qdisc");
        std::fs::write(&path, "fq").unwrap();
        let plain = Plain::Command {
            get: format!("cat {}", path.display()),
            set: format!("printf %s \"$VALUE\" > {}", path.display()),
        };
        let held = Held { name: "qdisc".into(), plain, original: Value::parse("a; b"), ours: vec![Value::parse("fq")] };
        assert_eq!(put_back(&[held]), [Ok(PutBack::Done)]);
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "a; b");
    }

    #[test]
    fn what_changes_with_another_knob_comes_back_too() {
        let folder = tempfile::tempdir().unwrap();
        let [scheduler, requests] = ["scheduler", "requests"].map(|name| folder.path().join(name));
        let file = |name: &str, original: &str, ours: &str| Held {
            name: name.into(),
            plain: Plain::File(folder.path().join(name)),
            original: Value::parse(original),
            ours: vec![Value::parse(ours)],
        };
        // Choosing a scheduler sets the requests to 77, as the kernel does with a number of its own.
        let choose = format!("echo $VALUE > {}; echo 77 > {}", scheduler.display(), requests.display());
        let plain = Plain::Command { get: format!("cat {}", scheduler.display()), set: choose };
        let held = [Held { plain, ..file("scheduler", "none", "bfq") }, file("requests", "64", "128")];
        std::fs::write(&scheduler, "bfq").unwrap();
        std::fs::write(&requests, "128").unwrap();
        assert_eq!(put_back(&held), [Ok(PutBack::Done), Ok(PutBack::Done)]);
        assert_eq!(std::fs::read_to_string(&requests).unwrap(), "64\n");
    }

    /// Takes everything and has nothing.
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
        assert_eq!(error, KnobError::ReadsBack { wrote: Value::Number(8), found: Value::Number(7) });
        assert_eq!(error.to_string(), "was set to 8, but reads back differently: 7");
    }
}
