//! How control reaches an update.

use std::str::FromStr;

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
    /// A kprobe: exported interfaces of the kernel only; counts every execution.
    #[default]
    Kprobe,
    /// A jump to a stub at every site, or nothing is loaded: no trap, no execution
    /// is missed.
    Detour,
    /// The instructions of every site hold the value themselves, or nothing is loaded:
    /// they cost nothing. Mode task is refused.
    Patch,
}

impl Backend {
    pub(crate) fn flags(self) -> u32 {
        match self {
            Self::Auto => abi::LOAD_DETOUR,
            Self::AutoGlobal => abi::LOAD_PATCH | abi::LOAD_DETOUR,
            Self::Kprobe => 0,
            Self::Patch => abi::LOAD_PATCH | abi::LOAD_PATCH_ONLY,
            Self::Detour => abi::LOAD_DETOUR | abi::LOAD_DETOUR_ONLY,
        }
    }
}

impl FromStr for Backend {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "auto" => Ok(Self::Auto),
            "kprobe" => Ok(Self::Kprobe),
            "detour" => Ok(Self::Detour),
            "patch" => Ok(Self::Patch),
            _ => Err(format!("{text} is no backend: auto, kprobe, detour or patch")),
        }
    }
}
