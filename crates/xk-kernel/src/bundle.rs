//! Kernel bundles: one file with everything that the analysis reads of a running kernel.
//!
//! A bundle is a gzip-compressed tar: `manifest.json` first (identity,
//! address map, sizes and checksums), then the parts. Every part is checked
//! against the manifest when the bundle is opened, so a truncated or altered
//! file is refused instead of analysed.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::path::{Path, PathBuf};

use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use flate2::Compression;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use thiserror::Error;

use crate::id::KernelId;

/// Version of the format.
const SCHEMA: u32 = 1;
const MANIFEST: &str = "manifest.json";
/// Largest part, and largest sum of all parts.
const MAX_TOTAL: u64 = 1 << 30;

/// Why a bundle cannot be read or written.
#[derive(Debug, Error)]
#[allow(missing_docs)] // the message of each variant documents its fields
pub enum BundleError {
    #[error("cannot {what} the bundle {}: {error}", path.display())]
    Io { what: &'static str, path: PathBuf, error: io::Error },
    #[error("{} is not a kernel bundle: {reason}; save one with 'xk bundle FILE' on the machine that runs the kernel", path.display())]
    NotABundle { path: PathBuf, reason: String },
    #[error("the bundle {} is damaged: {reason}; copy or save it again", path.display())]
    Damaged { path: PathBuf, reason: String },
    #[error("the bundle {} has format {found}, this program reads format {SCHEMA}; use the version of xk that saved it", path.display())]
    Schema { path: PathBuf, found: u32 },
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Manifest {
    schema: u32,
    id: KernelId,
    parts: Vec<Part>,
    /// Loaded modules by name, as the kernel spells it, with the sections whose address is known.
    modules: BTreeMap<String, Vec<LoadedSection>>,
}

/// A file in the bundle.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Part {
    name: String,
    size: u64,
    sha256: String,
    /// The kernel address of the part's first byte, if the part is memory.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    address: Option<u64>,
}

/// What to put into a bundle besides what a [`crate::Image`] knows.
#[derive(Debug, Clone, Default)]
pub struct BundleExtras {
    /// `/proc/kallsyms`.
    pub kallsyms: String,
    /// The kernel's configuration.
    pub config: Option<String>,
    /// Loaded modules.
    pub modules: Vec<LoadedModule>,
}

/// A section of a loaded module.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoadedSection {
    /// The name, for example `.text`.
    pub name: String,
    /// Where it was loaded.
    pub address: u64,
}

/// A loaded module, with its code.
#[derive(Debug, Clone)]
pub struct LoadedModule {
    /// As the kernel spells it.
    pub name: String,
    /// Where its sections are.
    pub sections: Vec<LoadedSection>,
    /// Executable sections: address and length.
    pub text: Vec<(u64, usize)>,
}

/// A kernel bundle in memory.
#[derive(Debug)]
pub struct Bundle {
    manifest: Manifest,
    contents: Vec<Vec<u8>>,
    kallsyms: String,
    config: Option<String>,
}

impl Bundle {
    /// A bundle of a kernel: its types, and the `memory` that was read from it, by name and address.
    pub(crate) fn new(
        id: KernelId,
        btf: Option<Vec<u8>>,
        memory: Vec<(String, u64, Vec<u8>)>,
        extras: &BundleExtras,
    ) -> Self {
        let mut named = vec![("kallsyms".to_owned(), None, extras.kallsyms.clone().into_bytes())];
        named.extend(extras.config.as_ref().map(|config| ("config".to_owned(), None, config.clone().into_bytes())));
        named.extend(btf.map(|btf| ("btf".to_owned(), None, btf)));
        named.extend(memory.into_iter().map(|(name, address, content)| (name, Some(address), content)));
        let part = |(name, address, content): &(String, Option<u64>, Vec<u8>)| Part {
            name: name.clone(),
            size: content.len() as u64,
            sha256: checksum(content),
            address: *address,
        };
        let parts = named.iter().map(part).collect();
        let contents = named.into_iter().map(|(.., content)| content).collect();
        let modules = extras.modules.iter().map(|module| (module.name.clone(), module.sections.clone())).collect();
        let manifest = Manifest { schema: SCHEMA, id, parts, modules };
        Self { manifest, contents, kallsyms: extras.kallsyms.clone(), config: extras.config.clone() }
    }

    /// Writes the bundle: a reader sees all of it or nothing.
    pub fn save(&self, path: &Path) -> Result<(), BundleError> {
        let failed = |what| move |error| BundleError::Io { what, path: path.to_owned(), error };
        let folder = path.parent().filter(|folder| *folder != Path::new("")).unwrap_or(Path::new("."));
        let file = tempfile::NamedTempFile::new_in(folder).map_err(failed("create"))?;
        self.write(BufWriter::new(file.as_file())).map_err(failed("write"))?;
        file.persist(path).map_err(|error| failed("write")(error.error))?;
        Ok(())
    }

    fn write(&self, out: impl Write) -> io::Result<()> {
        let mut archive = tar::Builder::new(GzEncoder::new(out, Compression::fast()));
        let mut append = |name: &str, content: &[u8]| {
            let mut header = tar::Header::new_gnu();
            header.set_size(content.len() as u64);
            header.set_mode(0o644);
            archive.append_data(&mut header, name, content)
        };
        append(MANIFEST, &serde_json::to_vec_pretty(&self.manifest)?)?;
        for (part, content) in self.manifest.parts.iter().zip(&self.contents) {
            append(&part.name, content)?;
        }
        archive.into_inner()?.finish()?.flush()
    }

    /// Opens and checks a bundle.
    pub fn open(path: &Path) -> Result<Self, BundleError> {
        let file = File::open(path).map_err(|error| BundleError::Io { what: "open", path: path.to_owned(), error })?;
        let not_bundle = |reason: &str| BundleError::NotABundle { path: path.to_owned(), reason: reason.to_owned() };
        let damaged = |reason: String| BundleError::Damaged { path: path.to_owned(), reason };
        let mut archive = tar::Archive::new(GzDecoder::new(BufReader::new(file)).take(MAX_TOTAL));
        let mut entries = archive.entries().map_err(|error| not_bundle(&error.to_string()))?;

        let first = entries.next().ok_or_else(|| not_bundle("it is empty"))?;
        let mut first = first.map_err(|error| not_bundle(&error.to_string()))?;
        if first.path().ok().as_deref() != Some(Path::new(MANIFEST)) {
            return Err(not_bundle("it does not begin with a manifest"));
        }
        let mut text = Vec::new();
        first.read_to_end(&mut text).map_err(|error| damaged(error.to_string()))?;
        #[derive(Deserialize)]
        struct Version {
            schema: u32,
        }
        let version: Version = serde_json::from_slice(&text).map_err(|error| damaged(format!("manifest: {error}")))?;
        if version.schema != SCHEMA {
            return Err(BundleError::Schema { path: path.to_owned(), found: version.schema });
        }
        let manifest: Manifest =
            serde_json::from_slice(&text).map_err(|error| damaged(format!("manifest: {error}")))?;

        let mut contents = Vec::with_capacity(manifest.parts.len());
        for part in &manifest.parts {
            let entry = entries.next().ok_or_else(|| damaged(format!("part {} is missing", part.name)))?;
            let mut entry = entry.map_err(|error| damaged(format!("part {}: {error}", part.name)))?;
            let mut content = Vec::new();
            entry.read_to_end(&mut content).map_err(|error| damaged(format!("part {}: {error}", part.name)))?;
            if entry.path().ok().as_deref() != Some(Path::new(&part.name))
                || content.len() as u64 != part.size
                || checksum(&content) != part.sha256
            {
                return Err(damaged(format!("part {} is not what the manifest says", part.name)));
            }
            contents.push(content);
        }
        // The end of the compressed stream has its own checksum.
        io::copy(&mut archive.into_inner(), &mut io::sink()).map_err(|error| damaged(error.to_string()))?;
        let text_of = |name: &str| -> Result<Option<String>, BundleError> {
            let found = manifest.parts.iter().position(|part| part.name == name).map(|at| contents[at].clone());
            found
                .map(|bytes| String::from_utf8(bytes).map_err(|_| damaged(format!("part {name} is not text"))))
                .transpose()
        };
        let kallsyms = text_of("kallsyms")?.ok_or_else(|| damaged("it has no symbols".to_owned()))?;
        let config = text_of("config")?;
        Ok(Self { manifest, contents, kallsyms, config })
    }

    /// The kernel that was saved.
    pub fn id(&self) -> &KernelId {
        &self.manifest.id
    }

    /// `/proc/kallsyms` of that kernel.
    pub fn kallsyms(&self) -> &str {
        &self.kallsyms
    }

    /// The kernel's configuration, if the machine had it.
    pub fn config(&self) -> Option<&str> {
        self.config.as_deref()
    }

    /// The kernel's type information.
    pub fn btf(&self) -> Option<&[u8]> {
        let at = self.manifest.parts.iter().position(|part| part.name == "btf")?;
        Some(&self.contents[at])
    }

    /// The names of the modules that were loaded, as the kernel spells them.
    pub fn modules(&self) -> impl Iterator<Item = &str> {
        self.manifest.modules.keys().map(String::as_str)
    }

    pub(crate) fn module_sections(&self, name: &str) -> Option<Vec<LoadedSection>> {
        self.manifest.modules.get(&name.replace('-', "_")).cloned()
    }

    pub(crate) fn bytes_at(&self, address: u64, length: usize) -> Option<&[u8]> {
        self.manifest.parts.iter().zip(&self.contents).find_map(|(part, content)| {
            let start = usize::try_from(address.checked_sub(part.address?)?).ok()?;
            content.get(start..start.checked_add(length)?)
        })
    }
}

fn checksum(content: &[u8]) -> String {
    Sha256::digest(content).iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
#[path = "bundle_tests.rs"]
mod tests;
