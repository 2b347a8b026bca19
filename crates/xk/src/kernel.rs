//! The kernel that is analysed: the running one, or one in files.
//!
//! In: the options of `xk build`. Out: its code, and the private source tree
//! that it was compiled from. Refuses kernels below the baseline.

use std::path::{Path, PathBuf};

use xk_kernel::{BundleError, Image, ImageError, KernelId, Source, SourceHints, Tree};

use crate::context::running;
use crate::exit::{Exit, Failure, Result};

/// The oldest supported version.
const OLDEST: (u32, u32) = (6, 12);

/// Which kernel.
#[derive(Debug, Default, clap::Args)]
pub struct KernelOf {
    /// Folder with boot/, lib/modules/ and usr/src/ of a kernel that does not run
    #[arg(long, value_name = "DIR")]
    root: Option<PathBuf>,
    /// Which kernel of --root, when it holds several
    #[arg(long, requires = "root")]
    release: Option<String>,
    /// A kernel bundle, as `xk bundle` writes it
    #[arg(long, value_name = "FILE", conflicts_with_all = ["vmlinuz", "release"])]
    bundle: Option<PathBuf>,
    /// A boot image
    #[arg(long, value_name = "FILE", conflicts_with = "release")]
    vmlinuz: Option<PathBuf>,
}

impl KernelOf {
    /// Reads its code.
    pub fn image(&self) -> Result<Image> {
        let image = self.read()?;
        let id = image.id();
        if id.version().is_some_and(|(version, patch_level, _)| (version, patch_level) < OLDEST) {
            return Err(Failure::new(
                Exit::Unsupported,
                format!("kernel {} is older than {}.{}, the oldest that is supported", id.release, OLDEST.0, OLDEST.1),
            ));
        }
        if image.btf().is_none() {
            return Err(Failure::new(
                Exit::Unsupported,
                format!(
                    "kernel {} has no BTF (CONFIG_DEBUG_INFO_BTF); use a distribution kernel that has it",
                    id.release
                ),
            ));
        }
        Ok(image)
    }

    fn read(&self) -> Result<Image> {
        let image = match (&self.bundle, &self.vmlinuz, &self.root) {
            (Some(bundle), ..) => Image::from_bundle(bundle)?,
            (None, Some(vmlinuz), _) => Image::from_vmlinuz(vmlinuz, None)?,
            (None, None, Some(root)) => Image::from_vmlinuz(&self.only_image(root)?, None)?,
            (None, None, None) => return live(),
        };
        Ok(match &self.root {
            Some(root) => image.with_modules_in(root),
            None => image,
        })
    }

    /// The boot image of a folder.
    fn only_image(&self, root: &Path) -> Result<PathBuf> {
        let boot = root.join("boot");
        if let Some(release) = &self.release {
            return Ok(boot.join(format!("vmlinuz-{release}")));
        }
        let entries = std::fs::read_dir(&boot).map_err(|error| {
            Failure::error(format!("{}: {error}; --root needs a folder with boot/", boot.display()))
        })?;
        let mut images: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
        images.retain(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("vmlinuz-")));
        images.sort();
        match &images[..] {
            [only] => Ok(only.clone()),
            [] => Err(Failure::error(format!("{} holds no vmlinuz-RELEASE", boot.display()))),
            several => {
                let name = |path: &PathBuf| path.file_name().map(|name| name.to_string_lossy().replace("vmlinuz-", ""));
                let releases: Vec<String> = several.iter().filter_map(name).collect();
                Err(Failure::usage(format!(
                    "{} holds several kernels; add --release {}",
                    boot.display(),
                    releases.join("|")
                )))
            }
        }
    }

    /// Its private source tree, prepared if it is not yet.
    pub fn tree(&self, image: &Image, cache: &Path, progress: &dyn Fn(&str)) -> Result<Tree> {
        let mut hints = SourceHints::in_root(self.root.as_deref().unwrap_or(Path::new("/")));
        hints.config_text = image.config().map(str::to_owned);
        Ok(Source::locate(image.id(), &hints)?.prepare(cache, progress)?)
    }
}

/// The image that the running kernel was booted from: unlike its memory it holds no probes of ours.
///
/// # Errors
/// Those of [`KernelOf::image`], when there is no such image and memory has to do.
pub fn booted() -> Result<Image> {
    let id = running()?;
    match Image::from_vmlinuz(Path::new(&format!("/boot/vmlinuz-{}", id.release)), None) {
        Ok(image) if image.id().build_id == id.build_id => Ok(image),
        _ => KernelOf::default().image(),
    }
}

/// The running kernel: its memory, or, for somebody who may not read that, the image that it was
/// booted from.
fn live() -> Result<Image> {
    let failure = match Image::live() {
        Ok(image) => return Ok(image),
        Err(error) => Failure::from(error),
    };
    let id = running()?;
    let vmlinuz = PathBuf::from(format!("/boot/vmlinuz-{}", id.release));
    match Image::from_vmlinuz(&vmlinuz, None) {
        Ok(image) if image.id().build_id == id.build_id => Ok(image),
        Ok(image) => Err(failure.then(&other_build(&vmlinuz, image.id(), &id))),
        Err(_) => Err(failure),
    }
}

fn other_build(vmlinuz: &Path, found: &KernelId, wanted: &KernelId) -> String {
    format!("; {} cannot stand in: it is build {}, running is {}", vmlinuz.display(), found.build_id, wanted.build_id)
}

impl From<ImageError> for Failure {
    fn from(error: ImageError) -> Self {
        let exit = match &error {
            ImageError::Id(_) => Exit::Unsupported,
            ImageError::Forbidden { lockdown, .. } if !lockdown.is_empty() => Exit::Unsupported,
            _ => Exit::Error,
        };
        Failure::new(exit, error.to_string())
    }
}

impl From<BundleError> for Failure {
    fn from(error: BundleError) -> Self {
        Failure::error(error.to_string())
    }
}
