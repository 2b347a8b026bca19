//! The kernel to analyse: the running one, or one in files.
//!
//! In: what the user chose. Out: its code, and the private source tree that it was compiled from. Refuses kernels below
//! the baseline: an old version, or no BTF.

use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;

use crate::id::{IdError, KernelId};
use crate::image::{Image, ImageError};
use crate::source::{Source, SourceError, SourceHints};
use crate::tree::Tree;

/// The oldest supported version.
const OLDEST: (u32, u32) = (6, 12);

/// Which kernel. By default, the running one.
#[derive(Debug, Clone, Default)]
pub struct KernelChoice {
    /// Directory with `boot/`, `lib/modules/` and `usr/src/` of a kernel that does not run.
    pub root: Option<PathBuf>,
    /// The release, if `root` holds several kernels.
    pub release: Option<String>,
    /// A kernel bundle.
    pub bundle: Option<PathBuf>,
    /// A boot image.
    pub vmlinuz: Option<PathBuf>,
    /// A root file system with the tools that it was built with, if this machine does not have them.
    pub toolchain: Option<PathBuf>,
}

/// Why the chosen kernel cannot be analysed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ChoiceError {
    /// Its code cannot be read.
    #[error(transparent)]
    Image(#[from] ImageError),
    /// The running kernel cannot be identified.
    #[error(transparent)]
    Id(#[from] IdError),
    /// Its memory cannot be read, and its boot image is of another build.
    #[error("{error}; {} cannot stand in: it is build {found}, running is {wanted}", vmlinuz.display())]
    OtherBuild {
        /// Why its memory cannot be read.
        error: ImageError,
        /// The boot image.
        vmlinuz: PathBuf,
        /// Kernel of the boot image.
        found: Box<KernelId>,
        /// The running kernel.
        wanted: Box<KernelId>,
    },
    /// It is older than the baseline.
    #[error("kernel {release} is older than {}.{}, the oldest that is supported", OLDEST.0, OLDEST.1)]
    Old {
        /// Its release.
        release: String,
    },
    /// It has no type information.
    #[error("kernel {release} has no BTF (CONFIG_DEBUG_INFO_BTF); use a distribution kernel that has it")]
    NoBtf {
        /// Its release.
        release: String,
    },
    /// The directory has no `boot/`.
    #[error("{}: {error}; --root needs a folder with boot/", boot.display())]
    NoBoot {
        /// `boot/` of the directory.
        boot: PathBuf,
        /// The error of the operating system.
        error: io::Error,
    },
    /// The directory has no boot image.
    #[error("{} holds no vmlinuz-RELEASE", boot.display())]
    NoVmlinuz {
        /// `boot/` of the directory.
        boot: PathBuf,
    },
    /// The directory has several boot images.
    #[error("{} holds several kernels; add --release {}", boot.display(), releases.join("|"))]
    Several {
        /// `boot/` of the directory.
        boot: PathBuf,
        /// Their releases.
        releases: Vec<String>,
    },
}

impl KernelChoice {
    /// Reads its code.
    ///
    /// # Errors
    /// It cannot be read, or is below the baseline.
    pub fn image(&self) -> Result<Image, ChoiceError> {
        let image = self.read()?;
        let id = image.id();
        let release = || id.release.clone();
        if id.version().is_some_and(|(version, patch_level, _)| (version, patch_level) < OLDEST) {
            return Err(ChoiceError::Old { release: release() });
        }
        if image.btf().is_none() {
            return Err(ChoiceError::NoBtf { release: release() });
        }
        Ok(image)
    }

    fn read(&self) -> Result<Image, ChoiceError> {
        let image = match (&self.bundle, &self.vmlinuz, &self.root) {
            (Some(bundle), ..) => Image::from_bundle(bundle)?,
            (None, Some(vmlinuz), _) => Image::from_vmlinuz(vmlinuz, None)?,
            (None, None, Some(root)) => Image::from_vmlinuz(&self.boot_image(root)?, None)?,
            (None, None, None) => return live(),
        };
        Ok(match &self.root {
            Some(root) => image.with_modules_in(root),
            None => image,
        })
    }

    /// The boot image in a directory.
    fn boot_image(&self, root: &Path) -> Result<PathBuf, ChoiceError> {
        let boot = root.join("boot");
        if let Some(release) = &self.release {
            return Ok(boot.join(format!("vmlinuz-{release}")));
        }
        let entries = match std::fs::read_dir(&boot) {
            Ok(entries) => entries,
            Err(error) => return Err(ChoiceError::NoBoot { boot, error }),
        };
        let mut images: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
        images.retain(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("vmlinuz-")));
        images.sort();
        match &images[..] {
            [only] => Ok(only.clone()),
            [] => Err(ChoiceError::NoVmlinuz { boot }),
            several => {
                let name = |path: &PathBuf| path.file_name().map(|name| name.to_string_lossy().replace("vmlinuz-", ""));
                Err(ChoiceError::Several { boot, releases: several.iter().filter_map(name).collect() })
            }
        }
    }

    /// Its private source tree below `cache`, which is prepared if it does not exist.
    ///
    /// # Errors
    /// The source is missing or does not belong to the kernel.
    pub fn tree(&self, image: &Image, cache: &Path, progress: &dyn Fn(&str)) -> Result<Tree, SourceError> {
        let root = self.root.as_deref().unwrap_or(Path::new("/"));
        let mut hints = SourceHints::in_root(root).with_toolchains_of(cache);
        hints.toolchain.clone_from(&self.toolchain);
        hints.config_text = image.config().map(str::to_owned);
        Source::locate(image.id(), &hints)?.prepare(cache, progress)
    }

    /// The image that the running kernel was booted from. Unlike the memory of the kernel, it contains no probes. If there
    /// is no such image, the memory.
    ///
    /// # Errors
    /// Those of [`KernelChoice::image`].
    pub fn booted() -> Result<Image, ChoiceError> {
        let id = KernelId::live()?;
        match Image::from_vmlinuz(&vmlinuz_of(&id), None) {
            Ok(image) if image.id().build_id == id.build_id => Ok(image),
            _ => Self::default().image(),
        }
    }
}

fn vmlinuz_of(id: &KernelId) -> PathBuf {
    PathBuf::from(format!("/boot/vmlinuz-{}", id.release))
}

/// The running kernel: its memory, or, if this process may not read it, the image that it was booted from.
fn live() -> Result<Image, ChoiceError> {
    let error = match Image::live() {
        Ok(image) => return Ok(image),
        Err(error) => error,
    };
    let id = KernelId::live()?;
    let vmlinuz = vmlinuz_of(&id);
    match Image::from_vmlinuz(&vmlinuz, None) {
        Ok(image) if image.id().build_id == id.build_id => Ok(image),
        Ok(image) => {
            let found = Box::new(image.id().clone());
            Err(ChoiceError::OtherBuild { error, vmlinuz, found, wanted: Box::new(id) })
        }
        Err(_) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn a_directory_has_one_boot_image_or_the_release_is_needed() {
        let root = tempfile::tempdir().unwrap();
        let boot = root.path().join("boot");
        let mut choice = KernelChoice { root: Some(root.path().into()), ..KernelChoice::default() };
        let found = |choice: &KernelChoice| choice.boot_image(root.path()).map_err(|error| error.to_string());
        assert!(found(&choice).unwrap_err().contains("--root needs a folder with boot/"));
        std::fs::create_dir(&boot).unwrap();
        assert!(found(&choice).unwrap_err().contains("holds no vmlinuz-RELEASE"));
        std::fs::write(boot.join("vmlinuz-6.12.1"), "").unwrap();
        assert_eq!(found(&choice), Ok(boot.join("vmlinuz-6.12.1")));
        std::fs::write(boot.join("vmlinuz-6.12.2"), "").unwrap();
        assert!(found(&choice).unwrap_err().ends_with("add --release 6.12.1|6.12.2"));
        choice.release = Some("6.12.2".into());
        assert_eq!(found(&choice), Ok(boot.join("vmlinuz-6.12.2")));
    }
}
