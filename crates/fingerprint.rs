//! For build scripts: a fingerprint of the sources that decide what a result is.
//! Results are reused only under the same one.

use std::fs;
use std::hash::Hasher;
use std::path::{Path, PathBuf};

/// Sets `variable` to the fingerprint of these crates, and of the versions of what they use.
pub fn set(variable: &str, crates: &[&str]) -> std::io::Result<()> {
    // As it is now, not as it was when this program was compiled: a folder of
    // build results may serve several checkouts.
    let manifest = std::env::var_os("CARGO_MANIFEST_DIR").ok_or_else(|| std::io::Error::other("run by cargo only"))?;
    let root = Path::new(&manifest).join("../..");
    let mut files = vec![root.join("Cargo.lock")];
    for name in crates {
        let folder = root.join("crates").join(name);
        files.push(folder.join("Cargo.toml"));
        collect(&folder.join("src"), &mut files)?;
    }
    files.sort();
    // FNV-1a, 128 bits: it tells versions apart, it does not guard against anybody.
    let mut hash = Fnv(0x6c62_272e_07bb_0142_62b8_2175_6295_c58d);
    for file in &files {
        println!("cargo::rerun-if-changed={}", file.display());
        let content = fs::read(file)?;
        hash.write(&(content.len() as u64).to_le_bytes());
        hash.write(&content);
    }
    println!("cargo::rustc-env={variable}={:032x}", hash.0);
    Ok(())
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) -> std::io::Result<()> {
    // A new file changes its folder.
    println!("cargo::rerun-if-changed={}", folder.display());
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            collect(&path, files)?;
        } else {
            files.push(path);
        }
    }
    Ok(())
}

struct Fnv(u128);

impl Hasher for Fnv {
    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.0 = (self.0 ^ u128::from(byte)).wrapping_mul(0x0000_0000_0100_0000_0000_0000_0000_013b);
        }
    }

    fn finish(&self) -> u64 {
        self.0 as u64
    }
}
