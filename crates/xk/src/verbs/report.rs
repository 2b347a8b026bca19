//! `xk report`: one HTML file about this machine: what is in force, the history, refusals, and what searches found.
//!
//! In: the kernel, the history, the database of the tuner. Out: a file that needs no other file and no network. It has no
//! addresses of the kernel, which are secret, so that it can be shown to others. What cannot be read is left out, with a
//! warning; it changes nothing.

mod page;
mod timeline;

use std::fs::Permissions;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use jiff::tz::TimeZone;
use jiff::Timestamp;
use xk_history::History;
use xk_kernel::KernelId;
use xk_policy::Group;
use xk_runtime::{Device, Error as RuntimeError, ProbeStatus, Stops, TuneStatus};
use xk_store::{Folders, Tables};
use xk_tuner::report;
use xk_tuner::store::Store;

use crate::exit::{Failure, Result};
use crate::output::Paint;
use crate::verbs::history::{current, Names};
use crate::verbs::tune::state_folder;

/// Level of the heading of a search, below that of all searches.
const SEARCH: u8 = 3;

/// Arguments of `xk report`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example: xk report && xdg-open xk-report.html

The page shows the tunes in force with their sites, backends, hits and costs, the history as a time line, what was
refused, and the last search of each name with its plots. It needs no network, and can be printed. It has the
command lines of the history, and no addresses of the kernel.")]
pub struct Args {
    /// The file to write
    #[arg(value_name = "FILE", default_value = "xk-report.html")]
    file: PathBuf,
    /// Directory for the history of searches (default: $XK_TUNER, or /var/lib/xk/tuner)
    #[arg(long, value_name = "FOLDER")]
    state: Option<PathBuf>,
}

/// What a page shows.
struct Facts {
    host: String,
    kernel: KernelId,
    zone: TimeZone,
    now: Timestamp,
    module: Option<String>,
    stops: Option<Stops>,
    tunes: Vec<TuneStatus>,
    groups: Vec<Group>,
    probes: Vec<ProbeStatus>,
    tables: Tables,
    policies: Vec<xk_sched::Policy>,
    ejected: Vec<xk_sched::Report>,
    history: History,
    names: Names,
    /// Each as a section of the page.
    searches: Vec<String>,
}

/// Writes it.
pub fn run(args: &Args) -> Result {
    let facts = Facts::look(&args.state.clone().unwrap_or_else(state_folder))?;
    let text = page::html(&facts).map_err(|error| Failure::error(format!("the report: {error}")))?;
    write(&args.file, &text).map_err(|error| Failure::error(format!("{}: {error}", args.file.display())))?;
    println!("report: {}", args.file.display());
    Ok(())
}

/// Writes a whole file, or none.
fn write(file: &Path, text: &str) -> std::io::Result<()> {
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    // As any file that a command writes: the umask decides who may read it.
    let permissions = Permissions::from_mode(0o666);
    let mut draft = tempfile::Builder::new().permissions(permissions).tempfile_in(folder)?;
    draft.write_all(text.as_bytes())?;
    draft.persist(file)?;
    Ok(())
}

impl Facts {
    fn look(searches: &Path) -> Result<Self> {
        let kernel = KernelId::live()?;
        let tables = Tables::read(&Folders::from_environment(), &kernel.build_id)?;
        let history = or_warn("the history", current());
        let (module, tunes, probes, stops) = match Device::open_to_read() {
            Ok(device) => (Some(device.version()?.1), device.tunes()?, device.probes()?, Some(device.stops()?)),
            Err(RuntimeError::NotLoaded) => (None, Vec::new(), Vec::new(), None),
            Err(error) => return Err(error.into()),
        };
        let (policies, ejected) = match xk_sched::Device::open_to_read() {
            Ok(device) => (device.policies()?, device.reports()?),
            Err(xk_sched::Error::NotLoaded) => (Vec::new(), Vec::new()),
            Err(error) => return Err(error.into()),
        };
        Ok(Self {
            host: std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default().trim().to_owned(),
            kernel,
            zone: TimeZone::system(),
            now: Timestamp::now(),
            module,
            stops,
            groups: Group::all(&tunes),
            tunes,
            probes,
            tables,
            policies,
            ejected,
            history,
            names: Names::read(),
            searches: or_warn("searches", sections(searches)),
        })
    }
}

/// What was read, or nothing and a warning: the rest of the page is of use without it.
fn or_warn<T: Default>(what: &str, read: Result<T>) -> T {
    read.unwrap_or_else(|failure| {
        eprintln!("{} {what} cannot be shown: {}", Paint::stderr().warning("warning:"), failure.message);
        T::default()
    })
}

/// The last search of each name.
fn sections(folder: &Path) -> Result<Vec<String>> {
    let Some(store) = Store::open_existing(folder)? else { return Ok(Vec::new()) };
    let mut sections = Vec::new();
    for id in store.last_searches()? {
        let Some(search) = store.search(Some(id))? else { continue };
        let section = report::section(&search, &store.history(id)?, SEARCH);
        sections.push(section.map_err(|error| Failure::error(format!("search {id}: {error}")))?);
    }
    Ok(sections)
}
