//! Debian's real-time kernels: the source package plus a patch that it does not contain.
//!
//! In: the patch, as one xz-compressed file, and the extracted source. Out: the patched source. Refuses a patch that
//! does not apply exactly, and one after which a header is not that of the headers package.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use liblzma::read::XzDecoder;
use thiserror::Error;

use crate::env::Env;
use crate::toolchain::Toolchain;

/// The part of a release between the build and the flavour: 6.12.117+deb12-rt-amd64.
const FEATURESET: &str = "-rt-";
/// Larger than any patch of a featureset.
const MAX_PATCH: u64 = 64 << 20;

/// What `git` writes of changes that are not text.
const UNKNOWN: [&str; 3] = ["\nrename from ", "\ncopy from ", "\nGIT binary patch"];

/// Why the source of a featureset cannot be made.
#[derive(Debug, Error)]
#[allow(missing_docs)] // the message of each variant documents its fields
pub enum FeaturesetError {
    #[error("kernel {release} is built from {package} with Debian's patches for real time, which that package does not contain; save them as {}: debian/patches-rt of the kernel's source package, in the order of its file series, in one xz file", looked.display())]
    Missing { release: String, looked: PathBuf, package: String },
    #[error("cannot use the patch {}: {reason}", patch.display())]
    Patch { patch: PathBuf, reason: String },
    #[error("cannot read {}: {error}", path.display())]
    Io { path: PathBuf, error: io::Error },
}

impl FeaturesetError {
    fn reading(path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |error| Self::Io { path, error }
    }
}

/// What a real-time kernel has besides the source package.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Featureset {
    /// The patch.
    pub patch: PathBuf,
    /// The common folder of the headers package, if it is installed.
    pub headers: Option<PathBuf>,
}

/// What the kernel `release` needs besides the source `package`; nothing, if it is not a real-time kernel of Debian.
pub(crate) fn find(
    env: &dyn Env,
    root: &Path,
    release: &str,
    package: String,
    real_time: bool,
) -> Result<Option<Featureset>, FeaturesetError> {
    let build = release.split_once(FEATURESET).map(|(build, _)| build).filter(|build| build.contains("+deb"));
    let Some(build) = build.filter(|_| real_time) else { return Ok(None) };
    let name = package.replace("linux-source-", "linux-patch-");
    let patch = root.join(format!("usr/src/{name}-rt.patch.xz"));
    if !env.exists(&patch) {
        return Err(FeaturesetError::Missing { release: release.to_owned(), looked: patch, package });
    }
    let headers = root.join(format!("usr/src/linux-headers-{build}-common-rt"));
    Ok(Some(Featureset { patch, headers: Some(headers).filter(|path| env.exists(path)) }))
}

impl Featureset {
    /// Patches the source in `work`, of which only the files that `is_needed` names were extracted.
    pub(crate) fn apply(&self, work: &Path, is_needed: impl Fn(&Path) -> bool) -> Result<(), FeaturesetError> {
        let failed = |reason: String| FeaturesetError::Patch { patch: self.patch.clone(), reason };
        let file = File::open(&self.patch).map_err(FeaturesetError::reading(&self.patch))?;
        let mut text = Vec::new();
        let read = XzDecoder::new(file).take(MAX_PATCH).read_to_end(&mut text);
        read.map_err(|error| failed(error.to_string()))?;
        let text = String::from_utf8_lossy(&text);
        if let Some(kind) = UNKNOWN.iter().find(|kind| text.contains(*kind)) {
            return Err(failed(format!("it has parts that are not understood ('{}')", kind.trim())));
        }
        let mut parts = parts(&text);
        parts.retain(|(path, _)| is_needed(Path::new(path)));
        if parts.is_empty() {
            return Err(failed("it changes no file of this source".to_owned()));
        }
        patch(work, parts.iter().map(|(_, part)| *part)).map_err(failed)?;
        for (path, _) in &parts {
            self.compare(work, path)?;
        }
        Ok(())
    }

    /// Compares a patched file with that of the headers package, if it has the file.
    fn compare(&self, work: &Path, path: &str) -> Result<(), FeaturesetError> {
        let Some(shipped) = self.headers.as_ref().map(|headers| headers.join(path)) else { return Ok(()) };
        let Ok(wanted) = fs::read(&shipped) else { return Ok(()) };
        let patched = work.join(path);
        if fs::read(&patched).map_err(FeaturesetError::reading(&patched))? == wanted {
            return Ok(());
        }
        let reason = format!("{path} differs from {} after it: it is of another version", shipped.display());
        Err(FeaturesetError::Patch { patch: self.patch.clone(), reason })
    }
}

/// The parts of a patch for one file each, with the path of the file. They begin with the old and the new path; what
/// `git` writes before them is left out.
fn parts(text: &str) -> Vec<(&str, &str)> {
    let lines: Vec<(usize, &str)> = text
        .split_inclusive('\n')
        .scan(0, |at, line| {
            let start = *at;
            *at += line.len();
            Some((start, line.trim_end()))
        })
        .collect();
    let begins = |at: &usize| match (lines[*at].1, lines.get(at + 1).map_or("", |line| line.1)) {
        (old, "+++ /dev/null") => old.starts_with("--- a/"),
        ("--- /dev/null", new) => new.starts_with("+++ b/"),
        (old, new) => old.starts_with("--- a/") && new.starts_with("+++ b/"),
    };
    let starts: Vec<usize> = (0..lines.len()).filter(begins).collect();
    let part = |(index, &start): (usize, &usize)| {
        let next = starts.get(index + 1).copied().unwrap_or(lines.len());
        let end = (start..next).find(|&at| lines[at].1.starts_with("diff --git ")).unwrap_or(next);
        let end = lines.get(end).map_or(text.len(), |line| line.0);
        let named = if lines[start + 1].1.ends_with("/dev/null") { lines[start].1 } else { lines[start + 1].1 };
        (&named["+++ b/".len()..], &text[lines[start].0..end])
    };
    starts.iter().enumerate().map(part).collect()
}

/// Runs `patch`; says why it failed.
fn patch<'a>(work: &Path, parts: impl Iterator<Item = &'a str>) -> Result<(), String> {
    let mut command = Toolchain::host().command("patch", work);
    command.args(["--strip=1", "--fuzz=0", "--batch", "--forward", "--silent", "--no-backup-if-mismatch"]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let start = |error: io::Error| format!("cannot run patch: {error} (apt-get install patch)");
    let mut child = command.spawn().map_err(start)?;
    // Its few lines of output fit into the pipe.
    let written = child
        .stdin
        .take()
        .map_or(Ok(()), |mut stdin| parts.into_iter().try_for_each(|part| stdin.write_all(part.as_bytes())));
    let output = child.wait_with_output().map_err(start)?;
    if output.status.success() {
        return written.map_err(start);
    }
    let said = String::from_utf8_lossy(&output.stdout);
    Err(format!("it does not apply: {}", said.lines().next().unwrap_or("no message")))
}

#[cfg(test)]
#[path = "featureset_tests.rs"]
mod tests;
