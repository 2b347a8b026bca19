//! Rules of the administrator of this machine.
//!
//! In: the administrator's file (`xk-config`). Out: the forbidden backends, with their lines, and the [`Backend`] that the
//! rules leave for a constant. Without the file nothing is forbidden. Refuses a file that cannot be read or understood; then
//! nothing is loaded, because the rules are unknown.

use std::path::PathBuf;

use thiserror::Error;
use xk_config::{Config, ConfigError, Place, Word};
use xk_table::{Mode, ScopeTable};

use crate::{Backend, BackendChoice};

/// The rules of a machine.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rules {
    file: PathBuf,
    forbidden: Vec<(BackendChoice, usize)>,
}

/// Why the rules are unknown, or what they forbid.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum RulesError {
    /// The file cannot be read or understood.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A rule names an unknown backend.
    #[error("{place}: `{name}` is not a backend: kprobe, detour or patch")]
    NoBackend {
        /// The line.
        place: Place,
        /// The word in the file.
        name: String,
    },
    /// A rule forbids the backend.
    #[error(
        "backend {}{} is forbidden by {place}: use --backend auto, which selects one of the others",
        backend.word(),
        if *backend == BackendChoice::Kprobe { ", the default," } else { "" }
    )]
    Forbidden {
        /// The backend.
        backend: BackendChoice,
        /// The rule.
        place: Place,
    },
    /// The rules forbid every backend.
    #[error("every backend is forbidden by {}: ask the administrator", file.display())]
    AllForbidden {
        /// The file.
        file: PathBuf,
    },
    /// A patch was asked for, for a constant that a policy decides.
    #[error("instructions that hold the value cannot run a policy; use backend kprobe, detour or auto")]
    PatchRunsNoPolicy,
    /// The rules leave a patch only, for a constant that a policy decides.
    #[error("only a patch is allowed, and a patch cannot run a policy; {rules}")]
    OnlyPatchForPolicy {
        /// [`Rules::sentence`].
        rules: String,
    },
    /// The table permits a patch only, which the rules forbid.
    #[error("only a patch is possible: {reason}; {rules}")]
    OnlyPatchPossible {
        /// Why the table permits no update.
        reason: String,
        /// [`Rules::sentence`].
        rules: String,
    },
    /// The rules leave a patch only, and a patch is not possible.
    #[error(
        "only a patch is allowed, and {}; {rules}",
        if *mode == Mode::Global { "its instructions have no room for this value" } else { "a patch needs mode global" }
    )]
    OnlyPatchAllowed {
        /// The mode of the transition.
        mode: Mode,
        /// [`Rules::sentence`].
        rules: String,
    },
}

impl Rules {
    /// Of this machine.
    ///
    /// # Errors
    /// The file is there and cannot be read or understood.
    pub fn read() -> Result<Self, RulesError> {
        Self::of(Config::read()?)
    }

    fn of(config: Config) -> Result<Self, RulesError> {
        let backend = |word: Word| {
            let parsed = word.text.parse().ok().filter(|&by| by != BackendChoice::Auto);
            let by = parsed.ok_or(RulesError::NoBackend { place: word.place.clone(), name: word.text })?;
            Ok((by, word.place.line))
        };
        let forbidden = config.forbid.into_iter().map(backend).collect::<Result<_, RulesError>>()?;
        Ok(Self { file: config.file, forbidden })
    }

    /// The rule that forbids a backend.
    fn place(&self, by: BackendChoice) -> Option<Place> {
        let line = self.forbidden.iter().find(|(other, _)| *other == by)?.1;
        Some(Place { file: self.file.clone(), line })
    }

    fn allows(&self, by: BackendChoice) -> bool {
        self.place(by).is_none()
    }

    /// The forbidden backends, and the rules that forbid them.
    pub fn forbidden(&self) -> impl Iterator<Item = (BackendChoice, Place)> + '_ {
        self.forbidden.iter().map(|&(by, line)| (by, Place { file: self.file.clone(), line }))
    }

    /// The forbidden backends in one sentence; `None` if nothing is forbidden.
    pub fn sentence(&self) -> Option<String> {
        let each: Vec<String> = self.forbidden().map(|(by, place)| format!("{} ({place})", by.word())).collect();
        (!each.is_empty()).then(|| format!("backends that the administrator forbids: {}", each.join(", ")))
    }

    fn others(&self) -> String {
        self.sentence().unwrap_or_default()
    }

    /// Whether a command may ask for this backend.
    ///
    /// # Errors
    /// It is forbidden, or, of `auto`, all are.
    pub fn check(&self, by: BackendChoice) -> Result<(), RulesError> {
        let all = [BackendChoice::Kprobe, BackendChoice::Detour, BackendChoice::Patch];
        match (by, self.place(by)) {
            (BackendChoice::Auto, _) if all.iter().any(|&by| self.allows(by)) => Ok(()),
            (BackendChoice::Auto, _) => Err(RulesError::AllForbidden { file: self.file.clone() }),
            (_, None) => Ok(()),
            (backend, Some(place)) => Err(RulesError::Forbidden { backend, place }),
        }
    }

    /// The backend of a constant that a policy decides: instructions that hold the value cannot run a policy.
    ///
    /// # Errors
    /// It is forbidden, or a patch.
    pub fn deciding(&self, by: BackendChoice) -> Result<Backend, RulesError> {
        if by == BackendChoice::Patch {
            return Err(RulesError::PatchRunsNoPolicy);
        }
        self.check(by)?;
        Ok(match (by, self.allows(BackendChoice::Detour), self.allows(BackendChoice::Kprobe)) {
            (BackendChoice::Auto, true, true) => Backend::Auto,
            (BackendChoice::Auto, true, false) | (BackendChoice::Detour, ..) => Backend::Detour,
            (BackendChoice::Auto, false, true) | (BackendChoice::Kprobe, ..) => Backend::Kprobe,
            _ => return Err(RulesError::OnlyPatchForPolicy { rules: self.others() }),
        })
    }

    /// The backend of a constant that changes to a value in this mode.
    ///
    /// # Errors
    /// Nothing that is allowed is possible.
    pub fn backend(
        &self,
        by: BackendChoice,
        table: &ScopeTable,
        value: i64,
        mode: Mode,
    ) -> Result<Backend, RulesError> {
        self.check(by)?;
        if let (BackendChoice::Auto, Some(reason)) = (by, table.only_in_place()) {
            if !self.allows(BackendChoice::Patch) {
                return Err(RulesError::OnlyPatchPossible { reason: reason.into(), rules: self.others() });
            }
            return Ok(Backend::Patch);
        }
        let patch = Backend::cheapest(table, value, mode) == Backend::AutoGlobal && self.allows(BackendChoice::Patch);
        Ok(match (by, patch, self.allows(BackendChoice::Detour), self.allows(BackendChoice::Kprobe)) {
            (BackendChoice::Kprobe, ..) => Backend::Kprobe,
            (BackendChoice::Detour, ..) => Backend::Detour,
            (BackendChoice::Patch, ..) => Backend::Patch,
            (BackendChoice::Auto, true, true, true) => Backend::AutoGlobal,
            (BackendChoice::Auto, true, true, false) => Backend::PatchOrDetour,
            (BackendChoice::Auto, true, false, true) => Backend::PatchOrKprobe,
            (BackendChoice::Auto, true, false, false) => Backend::Patch,
            (BackendChoice::Auto, false, true, true) => Backend::Auto,
            (BackendChoice::Auto, false, true, false) => Backend::Detour,
            (BackendChoice::Auto, false, false, true) => Backend::Kprobe,
            (BackendChoice::Auto, false, false, false) => {
                return Err(RulesError::OnlyPatchAllowed { mode, rules: self.others() });
            }
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // a test

    use std::path::Path;

    use xk_harness::{empty_table, site};

    use super::*;

    fn rules(text: &str) -> Result<Rules, RulesError> {
        Rules::of(Config::parse(Path::new("/etc/xk/xk.toml"), text)?)
    }

    fn forbid(names: &str) -> Rules {
        rules(&format!("[backend]\nforbid = [{names}]\n")).unwrap_or_default()
    }

    #[test]
    fn what_is_forbidden_is_refused_with_its_line() {
        let rules = forbid("\"detour\",\n  \"patch\"");
        assert_eq!(rules.check(BackendChoice::Kprobe).map_err(|error| error.to_string()), Ok(()));
        assert_eq!(rules.check(BackendChoice::Auto).map_err(|error| error.to_string()), Ok(()));
        for (by, line) in [(BackendChoice::Detour, 2), (BackendChoice::Patch, 3)] {
            let failure = rules.check(by).err();
            let sentence = format!("backend {} is forbidden by /etc/xk/xk.toml:{line}: ", by.word());
            assert!(matches!(failure, Some(RulesError::Forbidden { backend, .. }) if backend == by));
            assert!(failure.is_some_and(|error| error.to_string().starts_with(&sentence)));
        }
        let sentence = rules.sentence();
        assert!(sentence.is_some_and(|text| text.ends_with("detour (/etc/xk/xk.toml:2), patch (/etc/xk/xk.toml:3)")));
        assert_eq!(Rules::default().sentence(), None);
        let all = forbid("\"kprobe\", \"detour\", \"patch\"").check(BackendChoice::Auto);
        assert!(all.is_err_and(|error| error.to_string().starts_with("every backend is forbidden by /etc/xk")));
    }

    #[test]
    fn what_it_does_not_mean_is_refused_with_its_line() {
        for (text, line, sentence) in [
            ("[backend]\nforbid = [\"ftrace\"]\n", 2, "`ftrace` is not a backend: kprobe, detour or patch"),
            ("[backend]\nforbid = [\"auto\"]\n", 2, "`auto` is not a backend"),
            ("[backend]\n\nforbit = []\n", 3, "unknown field `forbit`"),
        ] {
            let failure = rules(text).err().map(|error| error.to_string()).unwrap_or_default();
            assert!(failure.starts_with(&format!("/etc/xk/xk.toml:{line}: ")), "{text}: {failure}");
            assert!(failure.contains(sentence), "{text}: {failure}");
        }
        assert_eq!(rules("").ok(), Some(Rules { file: "/etc/xk/xk.toml".into(), forbidden: vec![] }));
    }

    #[test]
    fn auto_takes_the_cheapest_of_what_is_left() {
        let mut table = empty_table("A", 32, Mode::Task);
        table.spans = vec![site(0, 0, 5), site(0, 5, 5)];
        for span in &mut table.spans {
            let range = table.values.hull();
            let proof = span.proof.clone();
            span.in_place = Some(xk_table::InPlace { patches: vec![], range, proof });
        }
        let value = table.constant.default;
        let of = |names: &str, mode| {
            forbid(names).backend(BackendChoice::Auto, &table, value, mode).map_err(|error| error.to_string())
        };
        for (names, global, task) in [
            ("", Backend::AutoGlobal, Backend::Auto),
            ("\"patch\"", Backend::Auto, Backend::Auto),
            ("\"detour\"", Backend::PatchOrKprobe, Backend::Kprobe),
            ("\"kprobe\"", Backend::PatchOrDetour, Backend::Detour),
            ("\"kprobe\", \"patch\"", Backend::Detour, Backend::Detour),
            ("\"detour\", \"patch\"", Backend::Kprobe, Backend::Kprobe),
        ] {
            assert_eq!((of(names, Mode::Global), of(names, Mode::Task)), (Ok(global), Ok(task)), "{names}");
        }
        assert_eq!(of("\"kprobe\", \"detour\"", Mode::Global), Ok(Backend::Patch));
        let deciding = |names: &str, by| forbid(names).deciding(by).map_err(|error| error.to_string());
        for (names, auto) in [
            ("", Backend::Auto),
            ("\"patch\"", Backend::Auto),
            ("\"detour\"", Backend::Kprobe),
            ("\"kprobe\"", Backend::Detour),
        ] {
            assert_eq!(deciding(names, BackendChoice::Auto), Ok(auto), "{names}");
        }
        assert_eq!(deciding("", BackendChoice::Detour), Ok(Backend::Detour));
        assert!(deciding("", BackendChoice::Patch).unwrap_err().contains("cannot run a policy"));
        assert!(deciding("\"detour\"", BackendChoice::Detour).unwrap_err().contains("forbidden by"));
        assert!(deciding("\"kprobe\", \"detour\"", BackendChoice::Auto)
            .unwrap_err()
            .contains("a patch cannot run a policy; backends"));
        let why = of("\"kprobe\", \"detour\"", Mode::Task).err().unwrap_or_default();
        assert!(why.contains("only a patch is allowed, and a patch needs mode global; backends that"), "{why}");
    }
}
