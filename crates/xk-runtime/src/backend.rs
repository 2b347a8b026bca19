//! How control reaches an update.

use std::str::FromStr;

use crate::abi;

/// How control is to reach the updates of a tune.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Backend {
    /// A detour where it is safe, else a kprobe.
    Auto,
    /// A kprobe: exported interfaces of the kernel only; counts every execution.
    #[default]
    Kprobe,
    /// A jump to a stub at every site, or nothing is loaded: no trap, no execution
    /// is missed.
    Detour,
}

impl Backend {
    pub(crate) fn flags(self) -> u32 {
        match self {
            Self::Auto => abi::LOAD_DETOUR,
            Self::Kprobe => 0,
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
            _ => Err(format!("{text} is no backend: auto, kprobe or detour")),
        }
    }
}
