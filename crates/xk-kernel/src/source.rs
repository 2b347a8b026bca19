//! The source, configuration and compiler of a kernel build.
//!
//! In: the identity of a kernel and hints about where its packages are. Out:
//! a [`Source`] that [`Source::prepare`] turns into a private build tree.
//! Refuses anything that would not give the deployed code: another source
//! version, another compiler, a missing pahole (without it the configuration
//! loses its BTF options and everything that depends on them).

use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;

use crate::env::{Env, HostEnv};
use crate::featureset::{self, Featureset, FeaturesetError};
use crate::id::{release_version, KernelId};
use crate::toolchain::{how_to_make, Toolchain, ToolchainError};

/// Where the parts of a kernel build are.
#[derive(Debug, Clone)]
pub struct SourceHints {
    /// The file system that holds `boot/` and `usr/src/`; `/` on a machine that runs the kernel.
    pub root: PathBuf,
    /// The source package's tarball, instead of the one under `root`.
    pub tarball: Option<PathBuf>,
    /// The configuration, instead of the one under `root`.
    pub config: Option<PathBuf>,
    /// The configuration as text (from a bundle); goes before `config`.
    pub config_text: Option<String>,
    /// The headers package's folder, instead of the one under `root`.
    pub headers: Option<PathBuf>,
    /// A root file system with the tools, instead of this machine's own or one of `toolchains`.
    pub toolchain: Option<PathBuf>,
    /// Root file systems of which one may have the tools, if this machine does not.
    pub toolchains: Vec<PathBuf>,
}

impl Default for SourceHints {
    fn default() -> Self {
        Self::in_root("/")
    }
}

impl SourceHints {
    /// Hints for packages that are unpacked under `root`.
    pub fn in_root(root: impl Into<PathBuf>) -> Self {
        Self {
            root: root.into(),
            tarball: None,
            config: None,
            config_text: None,
            headers: None,
            toolchain: None,
            toolchains: Vec::new(),
        }
    }

    /// Also tries the tools in each folder of `toolchains/` below `cache`, and in `toolchain` beside the packages.
    #[must_use]
    pub fn with_toolchains_of(mut self, cache: &Path) -> Self {
        let entries = std::fs::read_dir(cache.join("toolchains")).into_iter().flatten();
        let mut roots: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
        // Hidden folders are not complete.
        roots.retain(|root| root.file_name().is_some_and(|name| !name.to_string_lossy().starts_with('.')));
        roots.sort();
        self.toolchains = vec![self.root.join("toolchain")];
        self.toolchains.append(&mut roots);
        self
    }
}

/// Why a kernel's source cannot be found or prepared.
#[derive(Debug, Error)]
#[allow(missing_docs)] // the message of each variant documents its fields
pub enum SourceError {
    #[error("kernel release '{release}' does not start with a version such as 6.12.117; the source package cannot be told from it")]
    Release { release: String },
    #[error("the source of kernel {release} is missing: no {}; install it (apt-get install {package}) or name the tarball", looked.display())]
    TarballMissing { release: String, looked: PathBuf, package: String },
    #[error("{} is the source of Linux {found}, but the kernel is {release}; install the source package of the same version ({package}) or boot the kernel that belongs to it", tarball.display())]
    TarballVersion { tarball: PathBuf, found: String, release: String, package: String },
    #[error("package {package} is version {found}, but the running kernel was built from {wanted}; install {package}={wanted} or boot the kernel that belongs to {found}")]
    PackageVersion { package: String, found: String, wanted: String },
    #[error("the configuration of kernel {release} is missing: none of {}; install linux-image-{release} or linux-headers-{release}", paths(looked))]
    ConfigMissing { release: String, looked: Vec<PathBuf> },
    #[error("the configuration {origin} does not name its compiler (CONFIG_CC_VERSION_TEXT); it is not a kernel's complete configuration")]
    ConfigWithoutCompiler { origin: String },
    #[error("the configuration {origin} is for '{found}', not for x86-64 Linux")]
    ConfigArchitecture { origin: String, found: String },
    #[error("the kernel was compiled with '{wanted}', but {command} is not installed; {remedy}")]
    CompilerMissing { command: String, wanted: String, remedy: String },
    #[error("the kernel was compiled with '{wanted}', but {command} is '{found}'; another compiler gives other code: {remedy}")]
    CompilerMismatch { command: String, found: String, wanted: String, remedy: String },
    #[error("pahole is not installed; without it the kernel's configuration loses CONFIG_DEBUG_INFO_BTF and every option that depends on it: apt-get install dwarves")]
    PaholeMissing,
    #[error("with the tools of this machine the kernel's configuration changes: {}; the rebuilt code would differ from the deployed code. Install the tool versions that the configuration names (binutils, gcc, dwarves)", options.join(", "))]
    ConfigDrift { options: Vec<String> },
    #[error("'{step}' failed in the private source tree: {tail}\nthe kernel's build needs make, flex, bison, bc, libelf-dev and libssl-dev")]
    Make { step: String, tail: String },
    #[error("cannot {what} {}: {error}{}", path.display(), disk_full(error))]
    Io { what: &'static str, path: PathBuf, error: io::Error },
    #[error("{} is not a kernel source tarball: {reason}", tarball.display())]
    Archive { tarball: PathBuf, reason: String },
    #[error(transparent)]
    Featureset(#[from] FeaturesetError),
    #[error(transparent)]
    Toolchain(#[from] ToolchainError),
    #[error("{} is not a prepared source tree: {reason}; remove the folder to have it prepared again", root.display())]
    Tree { root: PathBuf, reason: String },
}

fn paths(paths: &[PathBuf]) -> String {
    paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ")
}

/// `ENOSPC`.
const NO_SPACE: i32 = 28;

fn disk_full(error: &io::Error) -> &'static str {
    if error.raw_os_error() == Some(NO_SPACE) {
        "; the disk is full: free about 2 GB or choose another cache folder (XK_CACHE)"
    } else {
        ""
    }
}

impl SourceError {
    pub(crate) fn io(what: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |error| Self::Io { what, path, error }
    }
}

/// The compiler that a configuration names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Compiler {
    /// The command, for example `x86_64-linux-gnu-gcc-12`.
    pub command: String,
    /// The first line of `--version`.
    pub version_text: String,
}

impl Compiler {
    /// The compiler that a configuration's `CONFIG_CC_VERSION_TEXT` names.
    pub fn of_config(config: &str) -> Option<Self> {
        let text = config_value(config, "CC_VERSION_TEXT")?;
        let command = text.split_whitespace().next()?;
        Some(Self { command: command.to_owned(), version_text: text.to_owned() })
    }

    /// Checks that `tools` have exactly this compiler.
    pub(crate) fn check(&self, env: &dyn Env, tools: &Toolchain) -> Result<(), SourceError> {
        let (command, wanted, remedy) = (self.command.clone(), self.version_text.clone(), self.remedy());
        match tools.run(env, &self.command, &["--version"]) {
            Ok(output) if output.success => {
                let found = output.stdout.lines().next().unwrap_or_default().trim().to_owned();
                if found == wanted {
                    Ok(())
                } else {
                    Err(SourceError::CompilerMismatch { command, found, wanted, remedy })
                }
            }
            _ => Err(SourceError::CompilerMissing { command, wanted, remedy }),
        }
    }

    /// How to get it.
    fn remedy(&self) -> String {
        let package = self.package();
        let name = package.split('=').next().unwrap_or(&package);
        let release = match self.version_text.contains("+deb12") || name == "gcc-12" {
            true => "bookworm",
            false if name == "gcc-14" => "trixie",
            false => "RELEASE",
        };
        let root = how_to_make(release, name);
        format!(
            "install that version (apt-get install {package}) or, if this release of Debian does not have it, {root}"
        )
    }

    /// The Debian package that has the command, with its version if the version text states it.
    fn package(&self) -> String {
        let name = self.command.strip_prefix("x86_64-linux-gnu-").unwrap_or(&self.command);
        let version = self.version_text.split_once("(Debian ").and_then(|(_, rest)| rest.split_once(')'));
        version.map_or_else(|| name.to_owned(), |(version, _)| format!("{name}={version}"))
    }
}

/// The source, configuration and compiler of one kernel build.
#[derive(Debug, Clone)]
pub struct Source {
    /// The kernel's release.
    pub release: String,
    /// The distribution's source tarball.
    pub tarball: PathBuf,
    /// The configuration, as the distribution ships it.
    pub config: String,
    /// Where the configuration came from, for messages.
    pub config_origin: String,
    /// The compiler that the configuration names.
    pub compiler: Compiler,
    /// The headers package's folder, if there is one.
    pub headers: Option<PathBuf>,
    /// The tools that have the compiler.
    pub tools: Toolchain,
    /// What a real-time kernel has besides the tarball.
    pub featureset: Option<Featureset>,
}

impl Source {
    /// Finds and checks everything that a build tree of `id` needs.
    ///
    /// The version inside the tarball is checked when the tree is prepared,
    /// because it takes about a second to read.
    pub fn locate(id: &KernelId, hints: &SourceHints) -> Result<Self, SourceError> {
        Self::locate_in(&HostEnv, id, hints)
    }

    /// [`Source::locate`] on a given machine.
    pub fn locate_in(env: &dyn Env, id: &KernelId, hints: &SourceHints) -> Result<Self, SourceError> {
        let release = id.release.clone();
        let tarball = find_tarball(env, id, hints)?;
        let (config, config_origin) = find_config(env, &release, hints)?;
        let compiler = compiler_of(&config, &config_origin)?;
        let real_time = config_value(&config, "PREEMPT_RT").is_some();
        let featureset = featureset::find(env, &hints.root, &release, source_package(&release)?, real_time)?;
        let tools = find_tools(env, &compiler, hints)?;
        check_pahole(env, &config, &tools)?;
        let headers =
            hints.headers.clone().unwrap_or_else(|| hints.root.join(format!("usr/src/linux-headers-{release}")));
        let headers = Some(headers).filter(|path| env.exists(path));
        Ok(Self { release, tarball, config, config_origin, compiler, headers, tools, featureset })
    }
}

/// The source tarball, if dpkg does not object.
pub(crate) fn find_tarball(env: &dyn Env, id: &KernelId, hints: &SourceHints) -> Result<PathBuf, SourceError> {
    let package = source_package(&id.release)?;
    let tarball = hints.tarball.clone().unwrap_or_else(|| hints.root.join(format!("usr/src/{package}.tar.xz")));
    if !env.exists(&tarball) {
        return Err(SourceError::TarballMissing { release: id.release.clone(), looked: tarball, package });
    }
    if hints.tarball.is_none() && hints.root == Path::new("/") {
        check_package_version(env, id, &package)?;
    }
    Ok(tarball)
}

/// The compiler of a complete x86-64 configuration.
pub(crate) fn compiler_of(config: &str, origin: &str) -> Result<Compiler, SourceError> {
    let origin = origin.to_owned();
    let architecture = config.lines().find_map(|line| line.strip_prefix("# Linux/"));
    if let Some(found) = architecture.filter(|text| !text.starts_with("x86")) {
        return Err(SourceError::ConfigArchitecture { origin, found: found.to_owned() });
    }
    Compiler::of_config(config).ok_or(SourceError::ConfigWithoutCompiler { origin })
}

/// The tools that have the compiler: those that were named, else this machine's, else the first others that do.
pub(crate) fn find_tools(env: &dyn Env, compiler: &Compiler, hints: &SourceHints) -> Result<Toolchain, SourceError> {
    if let Some(root) = &hints.toolchain {
        let tools = Toolchain::in_root(root)?;
        compiler.check(env, &tools)?;
        return Ok(tools);
    }
    let host = Toolchain::host();
    let Err(error) = compiler.check(env, &host) else { return Ok(host) };
    let present = hints.toolchains.iter().filter(|root| env.exists(root));
    let mut others = present.filter_map(|root| Toolchain::in_root(root).ok());
    others.find(|tools| compiler.check(env, tools).is_ok()).ok_or(error)
}

/// The tool without which the configuration loses its BTF options.
pub(crate) fn check_pahole(env: &dyn Env, config: &str, tools: &Toolchain) -> Result<(), SourceError> {
    let needed = config_value(config, "DEBUG_INFO_BTF").is_some();
    if needed && !tools.run(env, "pahole", &["--version"]).is_ok_and(|output| output.success) {
        return Err(SourceError::PaholeMissing);
    }
    Ok(())
}

/// The source package of a release: `linux-source-6.12` for 6.12.117+deb12-amd64.
pub(crate) fn source_package(release: &str) -> Result<String, SourceError> {
    let (version, patch_level, _) =
        release_version(release).ok_or_else(|| SourceError::Release { release: release.to_owned() })?;
    Ok(format!("linux-source-{version}.{patch_level}"))
}

/// What dpkg knows about the installed source package; no dpkg or no such package is no objection.
fn check_package_version(env: &dyn Env, id: &KernelId, package: &str) -> Result<(), SourceError> {
    let Some(wanted) = id.package_version.clone() else { return Ok(()) };
    match env.run("dpkg-query", &["-W", "-f=${Version}", package]) {
        Ok(output) if output.success && output.stdout.trim() != wanted => Err(SourceError::PackageVersion {
            package: package.to_owned(),
            found: output.stdout.trim().to_owned(),
            wanted,
        }),
        _ => Ok(()),
    }
}

/// The configuration's text and where it is from.
pub(crate) fn find_config(env: &dyn Env, release: &str, hints: &SourceHints) -> Result<(String, String), SourceError> {
    if let Some(text) = &hints.config_text {
        return Ok((text.clone(), "of the bundle".to_owned()));
    }
    let candidates = match &hints.config {
        Some(path) => vec![path.clone()],
        None => {
            let headers = hints.headers.clone();
            let headers = headers.unwrap_or_else(|| hints.root.join(format!("usr/src/linux-headers-{release}")));
            vec![hints.root.join(format!("boot/config-{release}")), headers.join(".config")]
        }
    };
    let Some(path) = candidates.iter().find(|path| env.exists(path)) else {
        return Err(SourceError::ConfigMissing { release: release.to_owned(), looked: candidates });
    };
    let bytes = env.read(path).map_err(SourceError::io("read", path))?;
    Ok((String::from_utf8_lossy(&bytes).into_owned(), path.display().to_string()))
}

/// The value of an option in a configuration's text, without quotes; `None` when it is not set.
pub(crate) fn config_value<'a>(config: &'a str, option: &str) -> Option<&'a str> {
    config.lines().find_map(|line| {
        let value = line.strip_prefix("CONFIG_")?.strip_prefix(option)?.strip_prefix('=')?;
        Some(value.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).unwrap_or(value))
    })
}

#[cfg(test)]
#[path = "source_tests.rs"]
mod tests;
