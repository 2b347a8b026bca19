//! Everything that parses bytes. A target returns what its parser said; it
//! panics when an answer contradicts another.

mod broken;
mod code;
mod kernel;
mod ops;
mod text;
mod tuner;

use std::path::Path;

use anyhow::{Context, Result};

/// One input.
#[derive(Debug, Clone, Copy)]
pub struct Input<'a> {
    /// The bytes.
    pub bytes: &'a [u8],
    /// A file that holds them, in a folder where the target may write.
    pub path: &'a Path,
}

/// Something that parses bytes.
#[derive(Debug)]
pub struct Target {
    /// For the command line.
    pub name: &'static str,
    /// For people.
    pub what: &'static str,
    /// MiB of address space; `None` for as much as there is.
    pub memory: Option<u64>,
    /// Inputs to begin with.
    pub seeds: fn() -> Result<Vec<Vec<u8>>>,
    /// Parses, and says what came out.
    pub run: fn(&Input<'_>) -> String,
}

/// What parsers of small files may take; they need a few MiB.
const SMALL: Option<u64> = Some(512);
/// Unpacked kernels have up to 512 MiB, and vectors double.
const UNPACKED: Option<u64> = Some(3072);

/// Every target.
pub const ALL: &[Target] = &[
    Target { name: "object", what: "ELF objects", memory: SMALL, seeds: code::objects, run: code::object },
    Target { name: "btf", what: "BTF, also of modules", memory: SMALL, seeds: code::types, run: code::btf },
    Target { name: "format", what: "format strings", memory: SMALL, seeds: code::formats, run: code::format },
    Target { name: "vmlinuz", what: "boot images", memory: UNPACKED, seeds: kernel::boot_images, run: kernel::vmlinuz },
    Target { name: "kernel", what: "linked kernels", memory: SMALL, seeds: kernel::images, run: kernel::image },
    Target { name: "kallsyms", what: "symbol tables", memory: SMALL, seeds: kernel::tables, run: kernel::kallsyms },
    Target { name: "symbols", what: "/proc/kallsyms", memory: SMALL, seeds: kernel::lists, run: kernel::symbols },
    Target { name: "kcore", what: "/proc/kcore", memory: SMALL, seeds: kernel::cores, run: kernel::kcore },
    Target { name: "module", what: "module files", memory: UNPACKED, seeds: kernel::modules, run: kernel::module },
    Target { name: "bundle", what: "kernel bundles", memory: UNPACKED, seeds: kernel::bundles, run: kernel::bundle },
    Target {
        name: "archive",
        what: "unpacked bundles",
        memory: UNPACKED,
        seeds: kernel::archives,
        run: kernel::archive,
    },
    Target { name: "table", what: "scope tables", memory: SMALL, seeds: text::tables, run: text::table },
    Target { name: "patch", what: "patches and sources", memory: SMALL, seeds: text::patches, run: text::patch },
    Target { name: "name", what: "names of constants", memory: SMALL, seeds: text::names, run: text::name },
    Target { name: "place", what: "places of probes", memory: SMALL, seeds: text::places, run: text::place },
    Target { name: "value", what: "values with units", memory: SMALL, seeds: text::values, run: text::value },
    Target {
        name: "search",
        what: "descriptions of searches",
        memory: SMALL,
        seeds: tuner::searches,
        run: tuner::search,
    },
    Target {
        name: "exposition",
        what: "Prometheus' text format",
        memory: SMALL,
        seeds: tuner::expositions,
        run: tuner::exposition,
    },
    Target {
        name: "memories",
        what: "signed memories of other machines",
        memory: SMALL,
        seeds: tuner::memories,
        run: tuner::memory,
    },
    // The address sanitizer reserves terabytes.
    Target { name: "ops", what: "operations of xk.ko", memory: None, seeds: ops::seeds, run: ops::run },
];

/// The target of this name, also one that is there to fail.
pub fn find(name: &str) -> Result<&'static Target> {
    let found = ALL.iter().chain(broken::ALL).find(|target| target.name == name);
    found.with_context(|| format!("no target is called '{name}': see `xk-fuzz list`"))
}

/// `Ok` or the words of the error.
fn said<T>(result: Result<T, impl std::fmt::Display>, accepted: impl FnOnce(T) -> String) -> String {
    match result {
        Ok(value) => accepted(value),
        Err(error) => error.to_string(),
    }
}
