//! What each kernel of the lab can do: a table is built for it, its guest loads the module and reports the effect.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{ensure, Context, Result};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::lab;

/// Kernels that are supported, by their names in `lab/kernels.toml`.
const KERNELS: [&str; 5] = ["amd64", "cloud", "rt", "debian13", "debian13-backports"];
/// The constant whose effect `scripts/kernels-guest` observes, and the values that it sets.
const CONSTANT: &str = "BLK_MAX_REQUEST_COUNT";
const VALUES: &str = "48,64";
/// Time limit of a guest, in seconds.
const GUEST_SECONDS: &str = "900";
const OK: &str = "ok";

/// Options of `cargo xtask kernels`.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// One JSON object on the last line, and nothing else
    #[arg(long)]
    json: bool,
    /// Names in lab/kernels.toml; the supported kernels when none is named
    names: Vec<String>,
}

/// What one kernel can do: `ok`, or why not.
#[derive(Debug, Serialize)]
struct Kernel {
    name: String,
    release: String,
    build: String,
    #[serde(flatten)]
    inside: Inside,
}

/// What `scripts/kernels-guest` prints.
#[derive(Debug, Serialize, Deserialize)]
struct Inside {
    main_job: String,
    modes: Map<String, Value>,
    backends: Map<String, Value>,
    policies: String,
    unloaded: String,
}

impl Inside {
    /// Nothing was tried, for this reason.
    fn not_tried(reason: &str) -> Self {
        let reason = reason.to_owned();
        let none = Map::new;
        Self { main_job: reason.clone(), modes: none(), backends: none(), policies: reason.clone(), unloaded: reason }
    }
}

/// Tries each kernel.
///
/// # Errors
/// `xk` cannot be built, a kernel was not fetched, or the main job fails on one.
pub fn run(arguments: &Arguments) -> Result<()> {
    let names: Vec<String> = match &arguments.names[..] {
        [] => KERNELS.map(str::to_owned).to_vec(),
        names => names.to_vec(),
    };
    let xk = lab::xk()?;
    let mut kernels = Vec::new();
    for name in &names {
        let kernel = tried(name, &xk)?;
        if !arguments.json {
            println!("{}", serde_json::to_string_pretty(&kernel)?);
        }
        kernels.push(kernel);
    }
    let failed: Vec<&str> = kernels.iter().filter(|one| one.inside.main_job != OK).map(|one| &*one.name).collect();
    if arguments.json {
        println!("{}", serde_json::json!({ "kernels": kernels }));
    }
    ensure!(failed.is_empty(), "the main job fails on {}", failed.join(", "));
    Ok(())
}

/// Builds the table and the module for a kernel, and tries them in its guest.
fn tried(name: &str, xk: &Path) -> Result<Kernel> {
    let found = lab::kernel_named(name)?;
    let store = tempfile::tempdir()?;
    let build = built(xk, &found.root, store.path())?;
    let inside = match (build.as_str(), lab::module(&found.release, "kernel/xk")) {
        (OK, Ok(module)) => inside(name, xk, &module, store.path()).unwrap_or_else(|error| {
            let reason = format!("{error:#}");
            Inside::not_tried(&reason)
        }),
        (OK, Err(error)) => Inside::not_tried(&format!("{error:#}")),
        _ => Inside::not_tried("there is no table"),
    };
    Ok(Kernel { name: name.to_owned(), release: found.release, build, inside })
}

/// Builds the table of the constant: `ok`, or what `xk build` says.
fn built(xk: &Path, root: &Path, store: &Path) -> Result<String> {
    let mut build = Command::new(xk);
    build.args(["build", "--root"]).arg(root).args([CONSTANT, "--values", VALUES]).env("XK_STORE", store);
    let output = build.stdout(Stdio::null()).output().context("xk build")?;
    let said = String::from_utf8_lossy(&output.stderr);
    eprint!("{said}");
    let last = said.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("no message");
    Ok(if output.status.success() { OK.to_owned() } else { last.to_owned() })
}

/// What the guest of a kernel reports.
fn inside(name: &str, xk: &Path, module: &Path, store: &Path) -> Result<Inside> {
    let mut guest = lab::command("lab/lab")?;
    guest.args(["run", "--kernel", name, "--timeout", GUEST_SECONDS, "--", "scripts/kernels-guest"]);
    let path = std::env::var("PATH").unwrap_or_default();
    let programs: PathBuf = xk.parent().unwrap_or(Path::new(".")).to_owned();
    guest.env("PATH", format!("{}:{path}", programs.display())).env("XK_MODULE", module).env("XK_STORE", store);
    let printed = lab::output(&mut guest).context("its guest")?;
    let last = printed.lines().last().context("its guest printed nothing")?;
    serde_json::from_str(last).with_context(|| format!("its guest printed '{last}'"))
}
