//! Turning a source tarball into a private, configured build tree.
//!
//! In: a checked [`Source`]. Out: a [`Tree`] under the cache folder, complete
//! or absent: the work happens in a temporary folder that is renamed at the
//! end. Refuses a configuration that the tools of this machine change.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::path::{Component, Path, PathBuf};

use liblzma::read::XzDecoder;
use liblzma::stream::MtStreamBuilder;
use sha2::{Digest, Sha256};

use crate::id::release_version;
use crate::kbuild::{lock, Kbuild};
use crate::source::{config_value, source_package, Source, SourceError};
use crate::tree::{options, Tree, TreeMeta};

/// Changes whenever a tree prepared by an earlier version of this file must not be used.
const RECIPE: &str = "2";
/// Options that say nothing about the code: salt and signing keys, which a rebuild does not have.
const IGNORED_OPTIONS: [&str; 4] = ["BUILD_SALT", "MODULE_SIG_ALL", "MODULE_SIG_KEY", "SYSTEM_TRUSTED_KEYS"];
/// The largest file of a kernel source that is read before the version is known.
const MAX_MAKEFILE: u64 = 1 << 20;

impl Source {
    /// The folder of the tree that [`Source::prepare`] makes.
    pub fn tree_path(&self, cache: &Path) -> PathBuf {
        let mut hash = Sha256::new();
        hash.update(RECIPE);
        hash.update(&self.config);
        hash.update(tarball_stamp(&self.tarball).unwrap_or_default());
        // Programs of the build are linked with the libraries of the tools.
        hash.update(self.tools.root().map(|root| root.display().to_string()).unwrap_or_default());
        if let Some(featureset) = &self.featureset {
            hash.update(tarball_stamp(&featureset.patch).unwrap_or_default());
        }
        let hash: String = hash.finalize().iter().take(6).map(|byte| format!("{byte:02x}")).collect();
        cache.join("trees").join(format!("{}-{hash}", self.release))
    }

    /// Extracts and configures the private build tree, or opens the one that is there.
    ///
    /// `progress` is told what happens, a line at a time. Takes about half a
    /// minute the first time and needs 1.4 GB. Several processes may call it
    /// at once: one works, the others wait.
    pub fn prepare(&self, cache: &Path, progress: &dyn Fn(&str)) -> Result<Tree, SourceError> {
        self.tools.check_visible(cache)?;
        self.tools.check_visible(&std::env::temp_dir())?;
        let root = self.tree_path(cache);
        let parent = cache.join("trees");
        fs::create_dir_all(&parent).map_err(SourceError::io("create", &parent))?;
        let lock_path = parent.join(format!(".{}.lock", file_name(&root)));
        let _lock = lock(&lock_path, || progress("waiting for another process that prepares the same source tree"))
            .map_err(SourceError::io("lock", &lock_path))?;
        if root.exists() {
            return Tree::open_with(&root, self.tools.clone());
        }
        let work = parent.join(format!(".{}.partial", file_name(&root)));
        remove(&work)?;
        let made = self
            .make_tree(&work, progress)
            .and_then(|()| fs::rename(&work, &root).map_err(SourceError::io("rename the finished tree to", &root)));
        if let Err(error) = made {
            // The first error is the one that matters; a leftover is removed by the next run.
            let _ = remove(&work);
            return Err(error);
        }
        Tree::open_with(&root, self.tools.clone())
    }

    fn make_tree(&self, work: &Path, progress: &dyn Fn(&str)) -> Result<(), SourceError> {
        progress(&format!("extracting {}", self.tarball.display()));
        fs::create_dir_all(work).map_err(SourceError::io("create", work))?;
        self.extract(work)?;
        if let Some(featureset) = &self.featureset {
            progress(&format!("applying {}", featureset.patch.display()));
            featureset.apply(work, is_needed)?;
        }

        progress("configuring");
        let config_path = work.join(".config");
        fs::write(&config_path, &self.config).map_err(SourceError::io("write", &config_path))?;
        let kbuild = Kbuild::new(work, &self.compiler.command, &self.tools)
            .with_rust(config_value(&self.config, "RUST").is_some());
        kbuild.top_level(&["olddefconfig"])?;
        let config = fs::read_to_string(&config_path).map_err(SourceError::io("read", &config_path))?;
        let options = drift(&self.config, &config);
        if !options.is_empty() {
            return Err(SourceError::ConfigDrift { options });
        }

        progress("generating headers");
        // A distribution adds to the version; code and data contain the whole name (UTS_RELEASE).
        kbuild.top_level(&["prepare0", &format!("KERNELRELEASE={}", self.release)])?;
        let environment = kbuild.capture_environment()?;
        let meta = TreeMeta {
            release: self.release.clone(),
            compiler: self.compiler.command.clone(),
            compiler_version: self.compiler.version_text.clone(),
            environment,
        };
        meta.write(work)
    }

    fn extract(&self, work: &Path) -> Result<(), SourceError> {
        let file = File::open(&self.tarball).map_err(SourceError::io("open", &self.tarball))?;
        let not_archive =
            |error: io::Error| SourceError::Archive { tarball: self.tarball.clone(), reason: error.to_string() };
        let threads = std::thread::available_parallelism().map_or(1, |n| n.get().min(8) as u32);
        let stream = MtStreamBuilder::new()
            .threads(threads)
            .memlimit_threading(1 << 30)
            .memlimit_stop(u64::MAX)
            .decoder()
            .map_err(|error| not_archive(error.into()))?;
        let reader = XzDecoder::new_stream(BufReader::with_capacity(1 << 20, file), stream);
        let mut archive = tar::Archive::new(BufReader::with_capacity(1 << 20, reader));
        let mut version_seen = false;
        for entry in archive.entries().map_err(not_archive)? {
            let mut entry = entry.map_err(not_archive)?;
            let path = entry.path().map_err(not_archive)?.into_owned();
            let Some(path) = inner_path(&path) else { continue };
            if !is_needed(path) {
                continue;
            }
            let target = work.join(path);
            if path == Path::new("Makefile") {
                let mut text = String::new();
                entry.by_ref().take(MAX_MAKEFILE).read_to_string(&mut text).map_err(not_archive)?;
                self.check_version(&text)?;
                version_seen = true;
                fs::write(&target, text).map_err(SourceError::io("write", &target))?;
                continue;
            }
            if let Some(folder) = target.parent() {
                fs::create_dir_all(folder).map_err(SourceError::io("create", folder))?;
            }
            entry.unpack(&target).map_err(|error| match cause(&error) {
                Some(code) => SourceError::io("write", &target)(io::Error::from_raw_os_error(code)),
                None => not_archive(error),
            })?;
        }
        if version_seen {
            Ok(())
        } else {
            Err(SourceError::Archive {
                tarball: self.tarball.clone(),
                reason: "it has no top-level Makefile".to_owned(),
            })
        }
    }

    fn check_version(&self, makefile: &str) -> Result<(), SourceError> {
        let number = |name: &str| -> Option<u32> {
            makefile
                .lines()
                .find_map(|line| line.strip_prefix(name)?.trim_start().strip_prefix('=')?.trim().parse().ok())
        };
        let found = match (number("VERSION"), number("PATCHLEVEL"), number("SUBLEVEL")) {
            (Some(version), Some(patch_level), Some(sub_level)) => (version, patch_level, sub_level),
            _ => {
                let reason = "its Makefile states no VERSION, PATCHLEVEL and SUBLEVEL".to_owned();
                return Err(SourceError::Archive { tarball: self.tarball.clone(), reason });
            }
        };
        if release_version(&self.release) == Some(found) {
            return Ok(());
        }
        Err(SourceError::TarballVersion {
            tarball: self.tarball.clone(),
            found: format!("{}.{}.{}", found.0, found.1, found.2),
            release: self.release.clone(),
            package: source_package(&self.release)?,
        })
    }
}

/// Tells tarballs apart without reading them: the size, and the end, where xz keeps the sizes of
/// all its blocks.
fn tarball_stamp(path: &Path) -> io::Result<Vec<u8>> {
    const END: u64 = 64 << 10;
    let mut file = File::open(path)?;
    let size = file.metadata()?.len();
    let mut stamp = size.to_le_bytes().to_vec();
    file.seek(SeekFrom::Start(size.saturating_sub(END)))?;
    file.take(END).read_to_end(&mut stamp)?;
    Ok(stamp)
}

fn file_name(path: &Path) -> String {
    path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}

fn remove(path: &Path) -> Result<(), SourceError> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(SourceError::io("remove", path)(error)),
        _ => Ok(()),
    }
}

/// The operating system's error inside the archive library's own error.
fn cause(error: &io::Error) -> Option<i32> {
    let mut source: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(error) = source {
        if let Some(code) = error.downcast_ref::<io::Error>().and_then(io::Error::raw_os_error) {
            return Some(code);
        }
        source = match error.downcast_ref::<io::Error>().and_then(io::Error::get_ref) {
            Some(inner) => Some(inner),
            None => error.source(),
        };
    }
    None
}

/// The path below the archive's only top-level folder; `None` for the folder itself and for
/// paths that would leave it.
fn inner_path(path: &Path) -> Option<&Path> {
    let mut components = path.components();
    components.next().filter(|first| matches!(first, Component::Normal(_)))?;
    let rest = components.as_path();
    let inside = rest.components().all(|part| matches!(part, Component::Normal(_)));
    (inside && rest != Path::new("")).then_some(rest)
}

/// Whether compiling an x86 unit can need a file of the source. Half of the tarball it cannot.
fn is_needed(path: &Path) -> bool {
    let mut parts = path.iter().map(|part| part.to_string_lossy());
    let (first, second) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    // Kconfig files of every architecture are sourced by common ones.
    let is_kconfig = path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("Kconfig"));
    is_kconfig
        || match first.as_ref() {
            "Documentation" => false,
            // fs/hostfs/Makefile includes a file of arch/um.
            "arch" => second == "x86" || second == "um",
            "tools" => !["testing", "perf", "memory-model", "power"].contains(&second.as_ref()),
            _ => true,
        }
}

/// The options whose value differs, as `CONFIG_X=before → after`.
fn drift(shipped: &str, derived: &str) -> Vec<String> {
    let (before, after) = (options(shipped), options(derived));
    let mut names: Vec<&str> = before.keys().chain(after.keys()).copied().collect();
    names.sort_unstable();
    names.dedup();
    names.retain(|name| before.get(name) != after.get(name) && !IGNORED_OPTIONS.contains(name));
    let value = |of: &BTreeMap<&str, &str>, name| of.get(name).map_or("not set".to_owned(), |v| (*v).to_owned());
    names.iter().map(|name| format!("CONFIG_{name}={} → {}", value(&before, *name), value(&after, *name))).collect()
}

#[cfg(test)]
#[path = "prepare_tests.rs"]
mod tests;
