//! `study.toml`: what a study needs, what it expects, what its plot shows.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde::Deserialize;

use super::expect::Expect;

/// One folder of `cases/studies`; the format is described in `cases/README.md`.
#[derive(Debug, Deserialize)]
pub struct Study {
    /// Its number.
    pub case: u32,
    /// What its plot is called.
    pub title: String,
    /// What `xk build` is asked for.
    pub constants: Vec<String>,
    /// Values that are compiled besides those that it compiles unasked.
    #[serde(default)]
    pub values: Vec<i64>,
    /// A file of the folder.
    pub policy: String,
    /// The guest that it needs.
    pub guest: Guest,
    /// What must come of it.
    pub expect: Expect,
    /// What its plot shows.
    pub plot: Plot,
    /// Where it is.
    #[serde(skip)]
    pub folder: PathBuf,
    /// What its folder is called.
    #[serde(skip)]
    pub name: String,
}

/// A guest of the lab.
#[derive(Debug, Deserialize)]
pub struct Guest {
    cpus: u32,
    memory: String,
    #[serde(default = "one")]
    numa: u32,
    #[serde(default)]
    icount: bool,
    timeout: u32,
    #[serde(default)]
    disks: Vec<String>,
    #[serde(default)]
    qemu: Vec<String>,
    /// Modules that must be loaded before the constants can be tuned.
    #[serde(default)]
    pub modules: Vec<String>,
}

fn one() -> u32 {
    1
}

impl Guest {
    /// As options of `lab/lab run`.
    pub fn options(&self) -> Vec<String> {
        let mut options = vec![
            format!("--timeout={}", self.timeout),
            format!("--cpus={}", self.cpus),
            format!("--memory={}", self.memory),
        ];
        if self.numa > 1 {
            options.push(format!("--numa={}", self.numa));
        }
        if self.icount {
            options.push("--icount".to_owned());
        }
        options.extend(self.disks.iter().map(|size| format!("--disk={size}")));
        options.extend(self.qemu.iter().map(|words| format!("--qemu-opt={words}")));
        options
    }
}

/// Points of the result as lines.
#[derive(Debug, Deserialize)]
pub struct Plot {
    /// The field of a point that runs along the bottom.
    pub x: String,
    /// What it is.
    pub x_label: String,
    /// What the lines are.
    pub y_label: String,
    /// Whether both axes are logarithmic.
    #[serde(default)]
    pub logarithmic: bool,
    /// The lines.
    pub series: Vec<Series>,
}

/// A line of a plot.
#[derive(Debug, Deserialize)]
pub struct Series {
    /// The field of a point.
    pub of: String,
    /// What it is.
    pub label: String,
}

impl Study {
    /// All studies, by number.
    ///
    /// # Errors
    /// When a `study.toml` cannot be read.
    pub fn all(folder: &Path) -> Result<Vec<Self>> {
        let mut studies = Vec::new();
        for entry in fs::read_dir(folder).with_context(|| format!("{}", folder.display()))? {
            let entry = entry?;
            let file = entry.path().join("study.toml");
            if !file.is_file() {
                continue;
            }
            let text = fs::read_to_string(&file).with_context(|| format!("{}", file.display()))?;
            let mut study: Self = toml::from_str(&text).with_context(|| format!("{}", file.display()))?;
            study.folder = entry.path();
            study.name = entry.file_name().to_string_lossy().into_owned();
            studies.push(study);
        }
        studies.sort_by_key(|study| study.case);
        Ok(studies)
    }
}
