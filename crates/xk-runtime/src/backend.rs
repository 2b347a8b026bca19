//! How control reaches an update.

use std::str::FromStr;

use thiserror::Error;
use xk_table::{Mode, ScopeTable};

use crate::abi;

/// How control is to reach the updates of a tune.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Backend {
    /// A detour where it is safe, else a kprobe.
    Auto,
    /// As [`Backend::Auto`], but a patch where it is possible: for a tune that only ever
    /// changes in mode global, or now, and between values that fit into the instructions
    /// ([`xk_table::ScopeTable::in_place_range`]).
    AutoGlobal,
    /// As [`Backend::AutoGlobal`], but never a detour.
    PatchOrKprobe,
    /// As [`Backend::AutoGlobal`], but never a kprobe: at every site, or nothing is loaded.
    PatchOrDetour,
    /// A kprobe: exported interfaces of the kernel only; counts every execution.
    #[default]
    Kprobe,
    /// A jump to a stub at every site, or nothing is loaded. It does not trap, and misses
    /// no execution.
    Detour,
    /// The instructions of every site hold the value themselves, or nothing is loaded.
    /// This has no run-time cost. Mode task is refused.
    Patch,
}

impl Backend {
    /// The cheapest backend that is possible for a constant that changes to a value in this mode.
    #[must_use]
    pub fn cheapest(table: &ScopeTable, value: i64, mode: Mode) -> Self {
        if table.only_in_place().is_some() {
            return Self::Patch;
        }
        let has_room = table.in_place_range().is_some_and(|range| range.contains(value));
        if mode == Mode::Global && has_room {
            Self::AutoGlobal
        } else {
            Self::Auto
        }
    }

    pub(crate) fn flags(self) -> u32 {
        match self {
            Self::Auto => abi::LOAD_DETOUR,
            Self::AutoGlobal => abi::LOAD_PATCH | abi::LOAD_DETOUR,
            Self::PatchOrKprobe => abi::LOAD_PATCH,
            Self::PatchOrDetour => abi::LOAD_PATCH | abi::LOAD_DETOUR | abi::LOAD_DETOUR_ONLY,
            Self::Kprobe => 0,
            Self::Patch => abi::LOAD_PATCH | abi::LOAD_PATCH_ONLY,
            Self::Detour => abi::LOAD_DETOUR | abi::LOAD_DETOUR_ONLY,
        }
    }
}

/// A text does not name a backend.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{text} is not a backend: auto, kprobe, detour or patch")]
pub struct NotBackend {
    /// The text.
    pub text: String,
}

/// The backend that a user asks for, before the mode, the value and the administrator's rules are taken into account.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BackendChoice {
    /// A kprobe at every site.
    Kprobe,
    /// A detour at every site, or nothing.
    Detour,
    /// A patch at every site, or nothing.
    Patch,
    /// The cheapest that is possible.
    Auto,
}

impl BackendChoice {
    /// Its name on the command line and in files.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Kprobe => "kprobe",
            Self::Detour => "detour",
            Self::Patch => "patch",
            Self::Auto => "auto",
        }
    }
}

impl FromStr for BackendChoice {
    type Err = NotBackend;

    fn from_str(text: &str) -> Result<Self, NotBackend> {
        [Self::Kprobe, Self::Detour, Self::Patch, Self::Auto]
            .into_iter()
            .find(|choice| choice.word() == text)
            .ok_or_else(|| NotBackend { text: text.into() })
    }
}

impl FromStr for Backend {
    type Err = NotBackend;

    fn from_str(text: &str) -> Result<Self, NotBackend> {
        Ok(match text.parse()? {
            BackendChoice::Auto => Self::Auto,
            BackendChoice::Kprobe => Self::Kprobe,
            BackendChoice::Detour => Self::Detour,
            BackendChoice::Patch => Self::Patch,
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use xk_harness::{empty_table, site};
    use xk_table::{InPlace, Range};

    use super::*;

    #[test]
    fn instructions_hold_only_what_has_room_and_changes_for_everybody() {
        let mut table = empty_table("A", 32, Mode::Global);
        table.spans = vec![site(0, 0, 5), site(0, 5, 5)];
        assert_eq!(Backend::cheapest(&table, 50, Mode::Global), Backend::Auto, "none holds it");
        let proof = table.spans[0].proof.clone();
        table.spans[1].in_place = Some(InPlace { patches: vec![], range: Range::of(1, 100), proof });
        for (value, mode, expected) in [
            (100, Mode::Global, Backend::AutoGlobal),
            (101, Mode::Global, Backend::Auto),
            (50, Mode::Task, Backend::Auto),
            (50, Mode::Now, Backend::Auto),
        ] {
            assert_eq!(Backend::cheapest(&table, value, mode), expected, "{value} {mode:?}");
        }
        table.spans[1].only_in_place = Some("other CPUs can access the memory".into());
        assert_eq!(Backend::cheapest(&table, 50, Mode::Now), Backend::Patch);
    }
}
