//! Which kernel: release, build-id, flavour.
//!
//! In: `uname` and the notes of the running kernel, or the banner and notes
//! found in an image. Refuses notes without a GNU build-id, since nothing
//! else tells two builds of one release apart.

use std::fmt;

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Type of the GNU build-id note.
const NT_GNU_BUILD_ID: u32 = 3;
/// The notes of the running kernel.
const LIVE_NOTES: &str = "/sys/kernel/notes";

/// Identity of one kernel build.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct KernelId {
    /// As `uname -r` prints it, for example `6.12.117+deb12-cloud-amd64`.
    pub release: String,
    /// The GNU build-id, lower-case hexadecimal.
    pub build_id: String,
    /// The distribution's name of the configuration, for example `cloud-amd64`; empty if the release has none.
    pub flavour: String,
    /// Version of the distribution's package, for example `6.12.117-1~deb12u1`, if the kernel states it.
    #[serde(default)]
    pub package_version: Option<String>,
}

/// Why a kernel could not be identified.
#[derive(Debug, Error)]
pub enum IdError {
    /// The notes of the running kernel cannot be read.
    #[error("cannot read {LIVE_NOTES}: {0}; is sysfs mounted?")]
    Notes(std::io::Error),
    /// No build-id among the notes.
    #[error("{origin} holds no GNU build-id note: the kernel was linked without --build-id and cannot be told apart from other builds of its release; use a distribution kernel")]
    NoBuildId {
        /// Where the notes came from.
        origin: String,
    },
}

impl KernelId {
    /// An identity from its parts; the flavour is derived from the release.
    ///
    /// `banner` is any text that may state the package version (`uname -v`, `linux_banner`).
    pub fn new(release: &str, build_id: &[u8], banner: &str) -> Self {
        Self {
            release: release.to_owned(),
            build_id: build_id.iter().map(|byte| format!("{byte:02x}")).collect(),
            flavour: flavour(release).to_owned(),
            package_version: package_version(banner),
        }
    }

    /// The running kernel.
    pub fn live() -> Result<Self, IdError> {
        let uname = rustix::system::uname();
        let notes = std::fs::read(LIVE_NOTES).map_err(IdError::Notes)?;
        let build_id = build_id(&notes).ok_or_else(|| IdError::NoBuildId { origin: LIVE_NOTES.to_owned() })?;
        Ok(Self::new(&uname.release().to_string_lossy(), build_id, &uname.version().to_string_lossy()))
    }

    /// Version, patch level and sub-level, for example `(6, 12, 117)`; `None` if the release is not of that form.
    pub fn version(&self) -> Option<(u32, u32, u32)> {
        release_version(&self.release)
    }
}

impl fmt::Display for KernelId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (build-id {})", self.release, self.build_id)
    }
}

/// Version, patch level and sub-level of a release; a missing sub-level is 0.
pub(crate) fn release_version(release: &str) -> Option<(u32, u32, u32)> {
    let numeric = release.find(|c: char| !c.is_ascii_digit() && c != '.').map_or(release, |end| &release[..end]);
    let mut parts = numeric.split('.').map(str::parse::<u32>);
    let version = parts.next()?.ok()?;
    let patch_level = parts.next()?.ok()?;
    let sub_level = parts.next().and_then(Result::ok).unwrap_or(0);
    Some((version, patch_level, sub_level))
}

/// What follows the ABI name: `6.12.117+deb12-cloud-amd64` and `6.1.0-44-cloud-amd64` have `cloud-amd64`.
fn flavour(release: &str) -> &str {
    release
        .split_inclusive('-')
        .scan(0, |offset, part| {
            *offset += part.len();
            Some(*offset)
        })
        .find(|&start| release[start..].starts_with(|c: char| c.is_ascii_alphabetic()))
        .map_or("", |start| &release[start..])
}

/// The package version in a banner such as `#1 SMP PREEMPT_DYNAMIC Debian 6.12.117-1~deb12u1 (2026-01-01)`.
fn package_version(banner: &str) -> Option<String> {
    let mut words = banner.split_whitespace();
    words.find(|word| *word == "Debian")?;
    // The compiler states its own package as "(Debian 12.2.0-14)" before.
    words.next().filter(|word| word.starts_with(|c: char| c.is_ascii_digit())).map(str::to_owned)
}

/// The descriptor of the GNU build-id note in a sequence of ELF notes.
pub(crate) fn build_id(mut notes: &[u8]) -> Option<&[u8]> {
    loop {
        let (header, rest) = notes.split_at_checked(12)?;
        let field = |at: usize| u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
        let (name_size, size, kind) = (field(0) as usize, field(4) as usize, field(8));
        let (name, rest) = rest.split_at_checked(name_size.checked_next_multiple_of(4)?)?;
        let descriptor = rest.get(..size)?;
        if kind == NT_GNU_BUILD_ID && name.starts_with(b"GNU\0") && size > 0 {
            return Some(descriptor);
        }
        // The last descriptor of a section may lack its padding.
        notes = rest.get(size.checked_next_multiple_of(4)?..).unwrap_or_default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn note(name: &[u8], kind: u32, descriptor: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        bytes.extend((name.len() as u32).to_le_bytes());
        bytes.extend((descriptor.len() as u32).to_le_bytes());
        bytes.extend(kind.to_le_bytes());
        for part in [name, descriptor] {
            bytes.extend(part);
            bytes.resize(bytes.len().next_multiple_of(4), 0);
        }
        bytes
    }

    #[test]
    fn the_build_id_is_found_among_other_notes() {
        let mut notes = note(b"Xen\0", 3, b"abc");
        notes.extend(note(b"GNU\0", 3, &[0xde, 0xad, 0xbe, 0xef]));
        assert_eq!(build_id(&notes), Some(&[0xde, 0xad, 0xbe, 0xef][..]));
    }

    #[test]
    fn malformed_notes_have_no_build_id() {
        let whole = note(b"GNU\0", 3, &[1; 20]);
        for end in 0..whole.len() {
            assert_eq!(build_id(&whole[..end]), None, "{end} bytes");
        }
        assert_eq!(build_id(&[0xff; 64]), None);
    }

    #[test]
    fn flavours_and_versions_come_from_the_release() {
        let id = |release| KernelId::new(release, &[0xab, 0x01], "");
        assert_eq!(id("6.12.117+deb12-cloud-amd64").flavour, "cloud-amd64");
        assert_eq!(id("6.12.117+deb12-amd64").flavour, "amd64");
        assert_eq!(id("6.1.0-44-amd64").flavour, "amd64");
        assert_eq!(id("6.18.44").flavour, "");
        assert_eq!(id("6.12.117+deb12-amd64").version(), Some((6, 12, 117)));
        assert_eq!(id("6.13-rc1").version(), Some((6, 13, 0)));
        assert_eq!(id("next").version(), None);
        assert_eq!(id("6.18.44").build_id, "ab01");
    }

    #[test]
    fn the_package_version_comes_from_the_banner() {
        let banner = "Linux version 6.12.117+deb12-amd64 (x86_64-linux-gnu-gcc-12 (Debian 12.2.0-14+deb12u1) 12.2.0) \
                      #1 SMP PREEMPT_DYNAMIC Debian 6.12.117-1~deb12u1 (2026-01-01)";
        assert_eq!(KernelId::new("x", &[], banner).package_version.as_deref(), Some("6.12.117-1~deb12u1"));
        assert_eq!(KernelId::new("x", &[], "#1 SMP").package_version, None);
    }
}
