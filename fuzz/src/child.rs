//! The process that runs a target: mutates, runs, and keeps the inputs of which
//! the target said something new.
//!
//! Each input is in the file `current` before it is run, so that whoever
//! watches has it when this process is gone.

use std::collections::HashSet;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::Args;
use rustix::process::{setrlimit, Resource, Rlimit};
use sha2::{Digest, Sha256};

use crate::mutate::mutate;
use crate::targets::{find, Input, Target};
use xk_testing::Random;

/// Inputs that are chosen more often: the seeds.
const EARLY: usize = 8;
/// Inputs that are kept at most.
const KEPT: usize = 4000;

/// What a child is told.
#[derive(Debug, Clone, Args)]
pub struct Options {
    /// Name of the target.
    pub target: String,
    /// How long.
    #[arg(long)]
    pub seconds: f64,
    /// Of the random numbers.
    #[arg(long)]
    pub seed: u64,
    /// Folder of the inputs that earlier runs kept.
    #[arg(long)]
    pub corpus: PathBuf,
    /// File of the input that is being run.
    #[arg(long)]
    pub current: PathBuf,
}

/// Fuzzes; the last line of the output says how much.
pub fn main(options: &Options) -> Result<()> {
    let target = find(&options.target)?;
    fs::create_dir_all(&options.corpus).with_context(|| options.corpus.display().to_string())?;
    let first: Vec<Vec<u8>> = (target.seeds)()?.into_iter().chain(stored(&options.corpus)?).collect();
    limit(target)?;
    let mut fuzzer = Fuzzer {
        target,
        options,
        file: File::create(&options.current)?,
        corpus: Vec::new(),
        outcomes: HashSet::new(),
        runs: 0,
    };
    let mut random = Random(options.seed);
    let start = Instant::now();
    for input in first {
        fuzzer.run(input)?;
    }
    // Much of what is kept is hardly different; what was there first is not forgotten.
    let early = fuzzer.corpus.len().min(EARLY);
    let budget = Duration::try_from_secs_f64(options.seconds).context("--seconds")?;
    while start.elapsed() < budget {
        let corpus = &fuzzer.corpus;
        let any = if random.below(4) == 0 { early } else { corpus.len() };
        let (input, other) = (random.below(any), random.below(corpus.len()));
        let mutated = mutate(&corpus[input], &corpus[other], &mut random);
        fuzzer.run(mutated)?;
    }
    let rate = fuzzer.runs as f64 / start.elapsed().as_secs_f64();
    println!("{} runs, {rate:.0} per second, {} outcomes", fuzzer.runs, fuzzer.outcomes.len());
    Ok(())
}

/// Runs one file, as [`main`] would.
pub fn once(target: &Target, file: &Path) -> Result<String> {
    let bytes = fs::read(file).with_context(|| file.display().to_string())?;
    limit(target)?;
    Ok((target.run)(&Input { bytes: &bytes, path: file }))
}

struct Fuzzer<'a> {
    target: &'a Target,
    options: &'a Options,
    file: File,
    corpus: Vec<Vec<u8>>,
    outcomes: HashSet<String>,
    runs: u64,
}

impl Fuzzer<'_> {
    fn run(&mut self, bytes: Vec<u8>) -> Result<()> {
        self.file.set_len(0)?;
        self.file.write_all_at(&bytes, 0)?;
        let outcome = (self.target.run)(&Input { bytes: &bytes, path: &self.options.current });
        self.runs += 1;
        if self.outcomes.len() < KEPT && self.outcomes.insert(shape(&outcome)) {
            fs::write(self.options.corpus.join(name_of(&bytes)), &bytes)?;
            self.corpus.push(bytes);
        }
        Ok(())
    }
}

/// The outcome without what varies from input to input: what is quoted, numbers,
/// strange letters.
fn shape(outcome: &str) -> String {
    let quote = |c: char| matches!(c, '\'' | '`' | '"');
    let ends = outcome.find(quote).zip(outcome.rfind(quote));
    let (head, tail) = ends.map_or((outcome, ""), |(first, last)| (&outcome[..first], &outcome[last..]));
    let mut shape = String::new();
    for letter in head.chars().chain(tail.chars()).filter(char::is_ascii).take(200) {
        match letter {
            '0'..='9' if shape.ends_with('0') => {}
            '0'..='9' => shape.push('0'),
            other => shape.push(other),
        }
    }
    shape
}

/// A file name for an input.
pub fn name_of(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().take(8).map(|byte| format!("{byte:02x}")).collect()
}

fn stored(folder: &Path) -> Result<Vec<Vec<u8>>> {
    let mut paths = fs::read_dir(folder)?.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
    paths.sort();
    paths.iter().map(|path| Ok(fs::read(path)?)).collect()
}

/// Makes an allocation beyond the target's limit fail, and leaves no core files.
fn limit(target: &Target) -> Result<()> {
    let at_most = |bytes| Rlimit { current: Some(bytes), maximum: Some(bytes) };
    setrlimit(Resource::Core, at_most(0))?;
    if let Some(mebibytes) = target.memory {
        setrlimit(Resource::As, at_most(mebibytes << 20))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::shape;

    #[test]
    fn numbers_and_names_are_no_news() {
        assert_eq!(shape("span 12 at 0xff: `abc` is 5"), shape("span 3 at 0xff: `de` is 99"));
        assert_ne!(shape("3 spans"), shape("3 functions"));
    }
}
