//! The index of a source tree: which files mention an identifier, and which file includes which.
//!
//! Built once per tree and kept on disk. Both questions are answered with supersets: identifiers
//! are hashed, comments count as mentions, and an `#include` that the standard search path does
//! not settle leads to every file whose path ends like it. Users read the few files that remain.

use crate::facts::{bucket, facts, Facts, BUCKETS};
use crate::paste::Paste;
use crate::search_path::{ends_like, settled, tail, FileNo, SearchPath};
use crate::tree::{BuildTree, TreeError};
use sha2::{Digest, Sha256};
use std::collections::HashMap;
use std::fs::File;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

const MAGIC: &[u8; 8] = b"xkidx\x00\x03\n";
/// The folders that hold nothing of the deployed x86 kernel.
const FOREIGN: [&str; 7] = ["Documentation", "samples", "scripts", "tools", "rust", "debian", "usr"];
/// Included into every unit by the command line.
const FORCED: [&str; 3] =
    ["include/linux/compiler-version.h", "include/linux/kconfig.h", "include/linux/compiler_types.h"];

/// The index of one tree.
pub struct Index {
    paths: Vec<String>,
    numbers: HashMap<String, FileNo>,
    includes: Vec<Vec<FileNo>>,
    included_by: Vec<Vec<FileNo>>,
    pastes: Vec<Paste>,
    store: File,
    bucket_ends: u64,
    postings: u64,
    names: (u64, u64),
}

/// The index that was opened last, by its file: its name tells trees apart.
static LAST: Mutex<Option<(PathBuf, Arc<Index>)>> = Mutex::new(None);

impl Index {
    /// Opens the index of a tree, building it when there is none. One process reads it once.
    pub fn open(tree: &impl BuildTree) -> Result<Arc<Index>, TreeError> {
        let magic = String::from_utf8_lossy(MAGIC);
        let key = Sha256::digest(format!("{magic}{}\n{}", tree.root().display(), tree.stamp()));
        let key: String = key.iter().take(10).map(|b| format!("{b:02x}")).collect();
        let cache = tree.cache();
        let path = cache.join(format!("identifiers-{key}"));
        let mut last = LAST.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, index)) = last.as_ref().filter(|(known, _)| *known == path) {
            return Ok(Arc::clone(index));
        }
        let index = Arc::new(Self::load_or_build(tree, &cache, &path)?);
        *last = Some((path, Arc::clone(&index)));
        Ok(index)
    }

    fn load_or_build(tree: &impl BuildTree, cache: &Path, path: &Path) -> Result<Index, TreeError> {
        if let Some(index) = Self::load(path) {
            return Ok(index);
        }
        let fail = |e: std::io::Error| {
            TreeError::Failed(format!(
                "cannot write the source index {}: {e}; free space or choose another cache folder",
                path.display()
            ))
        };
        std::fs::create_dir_all(cache).map_err(fail)?;
        let mut file = tempfile::NamedTempFile::new_in(cache).map_err(fail)?;
        write(tree.root(), &mut file).map_err(fail)?;
        file.persist(path).map_err(|e| fail(e.error))?;
        Self::load(path).ok_or_else(|| {
            TreeError::Failed(format!("the source index {} cannot be read after it was written", path.display()))
        })
    }

    fn load(path: &Path) -> Option<Index> {
        let store = File::open(path).ok()?;
        let total = store.metadata().ok()?.len();
        let mut header = [0; 32];
        store.read_exact_at(&mut header, 0).ok()?;
        let field = |at: usize| u64::from_le_bytes(header[at..at + 8].try_into().unwrap_or_default());
        let (body, postings, names) = (field(8), field(16), field(24));
        let bucket_ends = 32 + body;
        if header[..8] != *MAGIC || postings != bucket_ends + 4 * BUCKETS as u64 || names < postings || names > total {
            return None;
        }
        let mut bytes = vec![0; usize::try_from(body).ok()?];
        store.read_exact_at(&mut bytes, 32).ok()?;
        let text = String::from_utf8(bytes).ok()?;
        let (mut paths, mut includes, mut pastes) = (Vec::new(), Vec::new(), Vec::new());
        for line in text.lines() {
            let (path, rest) = line.split_once('\t')?;
            let (targets, pasted) = rest.split_once('\t')?;
            for paste in pasted.split_ascii_whitespace() {
                pastes.push(Paste::parse(paths.len() as FileNo, paste)?);
            }
            paths.push(path.to_owned());
            includes.push(targets.split_ascii_whitespace().map(str::parse).collect::<Result<Vec<FileNo>, _>>().ok()?);
        }
        let mut included_by = vec![Vec::new(); paths.len()];
        for (from, targets) in includes.iter().enumerate() {
            for &to in targets {
                included_by.get_mut(to as usize)?.push(from as FileNo);
            }
        }
        let numbers = paths.iter().enumerate().map(|(n, p)| (p.clone(), n as FileNo)).collect();
        Some(Index {
            paths,
            numbers,
            includes,
            included_by,
            pastes,
            store,
            bucket_ends,
            postings,
            names: (names, total),
        })
    }

    /// Number of files.
    pub fn len(&self) -> usize {
        self.paths.len()
    }

    /// No files at all.
    pub fn is_empty(&self) -> bool {
        self.paths.is_empty()
    }

    /// Path of a file.
    pub fn path(&self, file: FileNo) -> &str {
        self.paths.get(file as usize).map_or("", String::as_str)
    }

    /// Number of a file.
    pub fn number(&self, path: &str) -> Option<FileNo> {
        self.numbers.get(path).copied()
    }

    /// Every file that may mention an identifier (and some that do not).
    pub fn mentions(&self, identifier: &str) -> Result<Vec<FileNo>, TreeError> {
        let bucket = bucket(identifier.as_bytes());
        let fail = |e: std::io::Error| {
            TreeError::Failed(format!("cannot read the source index: {e}; remove it to rebuild it"))
        };
        let end_of = |bucket: u64| -> std::io::Result<u64> {
            let mut raw = [0; 4];
            self.store.read_exact_at(&mut raw, self.bucket_ends + 4 * bucket)?;
            Ok(u64::from(u32::from_le_bytes(raw)))
        };
        let start = if bucket == 0 { 0 } else { end_of(u64::from(bucket) - 1).map_err(fail)? };
        let length = end_of(u64::from(bucket)).map_err(fail)?.saturating_sub(start);
        let mut raw = vec![0; usize::try_from(length).unwrap_or(0)];
        self.store.read_exact_at(&mut raw, self.postings + start).map_err(fail)?;
        let (mut files, mut last, mut value, mut shift) = (Vec::new(), 0, 0_u32, 0);
        for byte in raw {
            value |= u32::from(byte & 0x7f) << shift;
            shift = (shift + 7) % 35;
            if byte & 0x80 == 0 {
                last += value;
                files.push(last);
                (value, shift) = (0, 0);
            }
        }
        Ok(files)
    }

    /// Every name part that some macro completes with `##`.
    pub(crate) fn pastes(&self) -> &[Paste] {
        &self.pastes
    }

    /// Every macro name of the tree, for suggestions. Slow compared with the rest.
    pub fn names(&self) -> Vec<String> {
        let mut raw = vec![0; usize::try_from(self.names.1 - self.names.0).unwrap_or(0)];
        match self.store.read_exact_at(&mut raw, self.names.0) {
            Ok(()) => String::from_utf8_lossy(&raw).lines().map(str::to_owned).collect(),
            Err(_) => Vec::new(),
        }
    }

    /// Every file from which `file` is reached by includes, itself included, as a set by number.
    pub fn reached_by(&self, file: FileNo) -> Vec<bool> {
        let mut seen = self.walk(&[file], &self.included_by);
        if FORCED.iter().filter_map(|path| self.number(path)).any(|n| seen.get(n as usize) == Some(&true)) {
            seen.fill(true);
        }
        seen
    }

    /// The files that every unit includes.
    pub(crate) fn forced(&self) -> impl Iterator<Item = FileNo> + '_ {
        FORCED.iter().filter_map(|path| self.number(path))
    }

    /// Every file that the given files reach by includes, themselves included.
    pub fn reach(&self, files: &[FileNo]) -> Vec<bool> {
        let forced = FORCED.iter().filter_map(|path| self.number(path));
        self.walk(&files.iter().copied().chain(forced).collect::<Vec<_>>(), &self.includes)
    }

    /// The file that an `#include` in `path` means; several when the search path does not settle it.
    pub(crate) fn include_targets(&self, path: &str, quoted: bool, target: &str) -> Vec<FileNo> {
        if let Some(file) = settled(path, quoted, target, |path| self.number(path)) {
            return vec![file];
        }
        let tail = tail(target);
        let reached = self.number(path).and_then(|n| self.includes.get(n as usize));
        reached.into_iter().flatten().copied().filter(|&n| ends_like(self.path(n), &tail)).collect()
    }

    fn walk(&self, from: &[FileNo], edges: &[Vec<FileNo>]) -> Vec<bool> {
        let mut seen = vec![false; self.paths.len()];
        let mut work = from.to_vec();
        while let Some(file) = work.pop() {
            if let Some(new @ false) = seen.get_mut(file as usize) {
                *new = true;
                work.extend_from_slice(&edges[file as usize]);
            }
        }
        seen
    }
}

fn files(root: &Path) -> std::io::Result<Vec<String>> {
    let mut found = Vec::new();
    let mut work = vec![PathBuf::new()];
    while let Some(dir) = work.pop() {
        for entry in std::fs::read_dir(root.join(&dir))? {
            let entry = entry?;
            let path = dir.join(entry.file_name());
            let Some(text) = path.to_str().map(str::to_owned) else { continue };
            let kind = entry.file_type()?;
            if kind.is_dir() {
                let foreign = FOREIGN.contains(&text.as_str()) && text != "tools" && text != "scripts"
                    || (text.starts_with("tools/") && !"tools/lib/bpf".starts_with(&text))
                    || text.starts_with("scripts/")
                    || (text.starts_with("arch/") && text.split('/').nth(1) != Some("x86"))
                    || text.starts_with('.');
                if !foreign {
                    work.push(path);
                }
            } else if kind.is_file() && source_name(&text) {
                found.push(text);
            }
        }
    }
    found.sort_unstable();
    Ok(found)
}

fn source_name(path: &str) -> bool {
    let extension = path.rsplit_once('.').map_or("", |(_, e)| e);
    matches!(extension, "c" | "h" | "S" | "inc" | "def" | "uc" | "lds")
}

fn write(root: &Path, out: &mut impl Write) -> std::io::Result<()> {
    let paths = files(root)?;
    let workers = std::thread::available_parallelism().map_or(1, |n| n.get().min(8));
    let next = std::sync::atomic::AtomicUsize::new(0);
    let work = || -> std::io::Result<Vec<(usize, Facts)>> {
        let mut done = Vec::new();
        loop {
            let n = next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            let Some(path) = paths.get(n) else { return Ok(done) };
            done.push((n, facts(&std::fs::read(root.join(path))?)));
        }
    };
    let parts = std::thread::scope(|scope| {
        let handles: Vec<_> = (0..workers).map(|_| scope.spawn(work)).collect();
        let joined =
            handles.into_iter().map(|h| h.join().unwrap_or_else(|_| Err(std::io::Error::other("a worker failed"))));
        joined.collect::<std::io::Result<Vec<_>>>()
    })?;
    let mut all: Vec<(usize, Facts)> = parts.into_iter().flatten().collect();
    all.sort_unstable_by_key(|(n, _)| *n);

    let search_path = SearchPath::new(&paths);
    let more = crate::computed::edges(root, &paths, &all, &search_path)?;
    let (mut body, mut names) = (String::new(), Vec::new());
    let mut pairs = Vec::with_capacity(all.iter().map(|(_, f)| f.buckets.len()).sum());
    for (n, facts) in all {
        let path = &paths[n];
        let mut targets: Vec<FileNo> =
            facts.includes.iter().flat_map(|include| include.files(path, &search_path)).collect();
        targets.extend(more.get(&(n as FileNo)).into_iter().flatten());
        targets.sort_unstable();
        targets.dedup();
        let targets: Vec<String> = targets.iter().map(u32::to_string).collect();
        body.push_str(&format!("{path}\t{}\t{}\n", targets.join(" "), facts.pastes.join(" ")));
        names.extend(facts.names);
        pairs.extend(facts.buckets.iter().map(|&b| (u64::from(b) << 32) | n as u64));
    }
    pairs.sort_unstable();
    names.sort_unstable();
    names.dedup();

    let (ends, postings) = postings(&pairs);
    let start = 32 + body.len() as u64 + 4 * BUCKETS as u64;
    out.write_all(MAGIC)?;
    for field in [body.len() as u64, start, start + postings.len() as u64] {
        out.write_all(&field.to_le_bytes())?;
    }
    out.write_all(body.as_bytes())?;
    out.write_all(&ends.iter().flat_map(|e| e.to_le_bytes()).collect::<Vec<u8>>())?;
    out.write_all(&postings)?;
    out.write_all(names.join("\n").as_bytes())
}

fn postings(pairs: &[u64]) -> (Vec<u32>, Vec<u8>) {
    let (mut ends, mut bytes) = (vec![0_u32; BUCKETS], Vec::new());
    let mut at = 0;
    for (bucket, end) in ends.iter_mut().enumerate() {
        let mut last = 0;
        while let Some(pair) = pairs.get(at).filter(|pair| (*pair >> 32) as usize == bucket) {
            let file = *pair as u32;
            let mut delta = file - last;
            last = file;
            while delta >= 0x80 {
                bytes.push((delta as u8 & 0x7f) | 0x80);
                delta >>= 7;
            }
            bytes.push(delta as u8);
            at += 1;
        }
        *end = bytes.len() as u32;
    }
    (ends, bytes)
}
