//! The frequency of the kernel's clock tick.
//!
//! In: a kernel release. Out: `CONFIG_HZ`, from the configuration that is installed with that kernel.

use std::path::{Path, PathBuf};

use thiserror::Error;

/// `CONFIG_HZ` of a kernel is not known.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error(
    "the constant counts jiffies and CONFIG_HZ of this kernel is not known (none of {}); \
     give a plain number of jiffies",
    looked.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ")
)]
pub struct UnknownHz {
    /// Where a configuration was looked for.
    pub looked: Vec<PathBuf>,
}

/// `CONFIG_HZ` of the kernel `release` that is installed on this machine.
///
/// # Errors
/// No configuration of that kernel is installed, or none states the frequency.
pub fn hz_of(release: &str) -> Result<u32, UnknownHz> {
    hz_in(Path::new("/"), release)
}

fn hz_in(root: &Path, release: &str) -> Result<u32, UnknownHz> {
    let looked = [
        format!("boot/config-{release}"),
        format!("lib/modules/{release}/config"),
        format!("usr/src/linux-headers-{release}/.config"),
    ]
    .map(|place| root.join(place));
    let read = |place: &PathBuf| {
        let text = std::fs::read_to_string(place).ok()?;
        text.lines().find_map(|line| line.strip_prefix("CONFIG_HZ=")?.trim().parse().ok())
    };
    looked.iter().find_map(read).filter(|&hz| hz > 0).ok_or_else(|| UnknownHz { looked: looked.to_vec() })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // a test

    use super::*;

    #[test]
    fn the_first_configuration_that_states_it_counts() {
        let root = tempfile::tempdir().unwrap();
        let error = hz_in(root.path(), "6.12").unwrap_err();
        assert_eq!(error.looked.len(), 3);
        assert!(error.to_string().contains("/boot/config-6.12, "), "{error}");
        let folder = root.path().join("lib/modules/6.12");
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("config"), "CONFIG_HZ_250=y\nCONFIG_HZ=250\n").unwrap();
        assert_eq!(hz_in(root.path(), "6.12"), Ok(250));
        std::fs::write(folder.join("config"), "CONFIG_HZ=0\n").unwrap();
        assert!(hz_in(root.path(), "6.12").is_err());
    }
}
