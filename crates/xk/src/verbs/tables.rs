//! `xk tables`: repositories of scope tables.

use std::path::{Path, PathBuf};
use std::time::Duration;

use xk_analysis::verify;
use xk_apply::parse_time;
use xk_const::Spec;
use xk_kernel::{Image, KernelId};
use xk_keys::Keys;
use xk_repository::{Entry, Offer, Source, Sources, Staging};
use xk_store::{pick, similar, Folders, Tables};
use xk_table::ScopeTable;

use super::tune::state_folder;
use crate::exit::{Exit, Failure, Result};
use crate::failures::exit_of;
use crate::options::{KernelArgs, TablesArgs};
use crate::output::{count, Columns};

/// The directory of the keys whose tables are accepted, unless `XK_TABLE_KEYS` names another.
const TRUSTED: &str = "/etc/xk/table-keys";

/// Arguments of `xk tables`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
A repository is a folder of static files: tables by kernel build, and an index with their digests, sealed with the key of
the machine that packed them (`xk tune key` prints it). A machine accepts tables of keys in /etc/xk/table-keys/*.pub.
The repositories of this machine are named in /etc/xk/xk.toml:
  [tables]
  from = [\"https://example.org/tables\", \"/srv/tables\"]

Example: xk tables pack /srv/tables           on the machine that has built tables
         xk tables fetch SHRINK_BATCH         on the others, with the same kernel build")]
pub struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    /// Write tables of a kernel build, and their index, to a repository
    Pack(PackArgs),
    /// Get tables of the running kernel from a repository
    Fetch(FetchArgs),
    /// List what the repositories have for the running kernel
    Offered(OfferedArgs),
}

#[derive(Debug, clap::Args)]
struct PackArgs {
    /// The repository; created if it does not exist
    folder: PathBuf,
    /// The constants (default: all that have a table)
    #[arg(value_name = "NAME")]
    names: Vec<String>,
    #[command(flatten)]
    tables: TablesArgs,
}

/// Which repositories are asked, and for which kernel.
#[derive(Debug, clap::Args)]
struct SourceArgs {
    /// A repository: https://HOST/PATH, file:///PATH, or a folder (default: those in /etc/xk/xk.toml, one after the other)
    #[arg(long, value_name = "SOURCE")]
    from: Vec<String>,
    /// How long a server may take for each file
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = parse_time)]
    timeout: Duration,
    #[command(flatten)]
    kernel: KernelArgs,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Tables are checked before they are used: signature, kernel build, digest, and that the bytes in them are those of the
kernel. If anything else than the last fails, nothing is fetched. root's tables go to /var/lib/xk/tables, for all users.")]
struct FetchArgs {
    /// The constants (default: all that the repositories have)
    #[arg(value_name = "NAME")]
    names: Vec<String>,
    #[command(flatten)]
    source: SourceArgs,
}

#[derive(Debug, clap::Args)]
struct OfferedArgs {
    #[command(flatten)]
    source: SourceArgs,
}

/// Does it.
pub fn run(args: &Args) -> Result {
    match &args.action {
        Action::Pack(args) => pack(args),
        Action::Fetch(args) => fetch(args),
        Action::Offered(args) => offered(args),
    }
}

fn warn(what: impl std::fmt::Display) {
    eprintln!("warning: {what}");
}

fn keys() -> Keys {
    let named = std::env::var_os("XK_TABLE_KEYS").filter(|value| !value.is_empty()).map(PathBuf::from);
    Keys::new(&state_folder(), &named.unwrap_or_else(|| TRUSTED.into()))
}

fn pack(args: &PackArgs) -> Result {
    let folders = Folders::from_environment();
    let (kernel, _) = args.tables.choose(&folders)?;
    let tables = Tables::read(&folders, &kernel.build_id)?;
    let wanted: Vec<&ScopeTable> = match args.names[..] {
        [] => tables.good.iter().collect(),
        _ => args.names.iter().map(|name| Ok(tables.find(&folders, name)?)).collect::<Result<_>>()?,
    };
    for error in &tables.bad {
        warn(format_args!("left out: {error}"));
    }
    if wanted.is_empty() {
        return Err(Failure::error(format!("no scope tables for kernel {}: run `xk build NAME`", kernel.release)));
    }
    let keys = keys();
    let index = xk_repository::pack(&args.folder, &keys, &kernel, &wanted)?;
    let key = keys.public()?;
    println!(
        "{}: {} of {} (build {}), signed with {key}",
        args.folder.display(),
        count(index.tables.len(), "table"),
        kernel.release,
        kernel.build_id
    );
    Ok(())
}

impl SourceArgs {
    fn sources(&self) -> Result<Vec<Source>> {
        if !self.from.is_empty() {
            let parse = |text: &String| text.parse().map_err(|error| Failure::usage(format!("--from: {error}")));
            return self.from.iter().map(parse).collect();
        }
        let sources = Sources::read()?;
        match sources.list.is_empty() {
            true => Err(Failure::error(format!(
                "{} names no repository: add `[tables]` with `from = [\"https://…\"]`, or use --from SOURCE",
                sources.file.display()
            ))),
            false => Ok(sources.list),
        }
    }

    /// The build-id of the kernel, and its code, or why that cannot be read.
    fn kernel(&self) -> Result<(String, std::result::Result<Image, Failure>)> {
        let image = self.kernel.choice().image().map_err(Failure::from);
        match image {
            Ok(image) => Ok((image.id().build_id.clone(), Ok(image))),
            Err(failure) if self.kernel.is_given() => Err(failure),
            Err(failure) => Ok((KernelId::live()?.build_id, Err(failure))),
        }
    }

    /// What each repository has. Those that have nothing, or cannot be used, are warned of.
    fn offers(&self, build_id: &str) -> Result<Vec<(Source, Offer)>> {
        let mut offers = Vec::new();
        let mut failures = Vec::new();
        for source in self.sources()? {
            match Offer::read(&source, &keys(), build_id, self.timeout) {
                Ok(offer) => offers.push((source, offer)),
                Err(error) => failures.push(error),
            }
        }
        if offers.is_empty() {
            let exit = failures.first().map_or(Exit::Error, exit_of);
            let told: Vec<String> = failures.iter().map(ToString::to_string).collect();
            return Err(Failure::new(exit, told.join("\n")));
        }
        for error in failures {
            warn(&error);
        }
        Ok(offers)
    }
}

/// What to fetch: for each name the first repository that has it; without names, all.
fn wanted<'a>(names: &[String], offers: &'a [(Source, Offer)]) -> Result<Vec<(&'a Offer, &'a Entry)>> {
    let mut wanted: Vec<(&Offer, &Entry)> = Vec::new();
    if names.is_empty() {
        for (_, offer) in offers {
            for entry in &offer.index.tables {
                if wanted.iter().all(|(_, known)| known.id != entry.id) {
                    wanted.push((offer, entry));
                }
            }
        }
        return Ok(wanted);
    }
    for name in names {
        let spec = Spec::parse(name)?;
        let mut found = None;
        for (_, offer) in offers {
            let entry = pick(&spec, name, &offer.index.tables, |entry| (&entry.id, entry.name.as_deref()))?;
            if let Some(entry) = entry {
                found = Some((offer, entry));
                break;
            }
        }
        wanted.push(found.ok_or_else(|| not_offered(name, offers))?);
    }
    Ok(wanted)
}

fn not_offered(name: &str, offers: &[(Source, Offer)]) -> Failure {
    let sources: Vec<String> = offers.iter().map(|(source, _)| source.to_string()).collect();
    let names = offers.iter().flat_map(|(_, offer)| offer.index.tables.iter().map(Entry::title));
    let advice = match &similar(name, names)[..] {
        [] => format!("`xk build {name}` makes one, or says why not"),
        similar => format!("did you mean {}?", similar.join(" or ")),
    };
    Failure::error(format!("{} has no table of {name} for this kernel: {advice}", sources.join(", ")))
}

fn fetch(args: &FetchArgs) -> Result {
    let (build_id, image) = args.source.kernel()?;
    let offers = args.source.offers(&build_id)?;
    let folders = Folders::from_environment();
    let store = folders.destination(rustix::process::geteuid().is_root());
    let wanted = wanted(&args.names, &offers)?;
    let mut staging = Staging::new(store)?;
    for (offer, entry) in wanted {
        staging.fetch(offer, entry)?;
    }
    for (source, offer) in &offers {
        println!("{source}: signed with {}", offer.key);
    }
    let wrong = match &image {
        Ok(image) => not_running(staging.tables(), image),
        Err(failure) => {
            let why = &failure.message;
            warn(format_args!(
                "not compared with the code of the kernel ({why}); xk.ko compares it when a value is set"
            ));
            Vec::new()
        }
    };
    let installed = staging.install(|table| wrong.iter().all(|(id, _)| *id != table.constant.id))?;
    tell(&folders, store, &installed, &wrong)
}

/// The tables whose bytes are not those of the kernel, and the first difference of each.
fn not_running(tables: &[ScopeTable], image: &Image) -> Vec<(String, String)> {
    let fault = |table: &ScopeTable| {
        let report = verify::quick(table, image);
        let fault = report.faults.into_iter().next()?;
        Some((table.constant.id.clone(), fault.detail))
    };
    tables.iter().filter_map(fault).collect()
}

fn tell(folders: &Folders, store: &Path, installed: &[PathBuf], wrong: &[(String, String)]) -> Result {
    println!("{} fetched into {}", count(installed.len(), "table"), store.display());
    // Directories that are searched before this one.
    for earlier in folders.stores.iter().take_while(|&folder| folder != store) {
        let hidden = installed.iter().filter_map(|path| path.strip_prefix(store).ok().map(|file| earlier.join(file)));
        for path in hidden.filter(|path| path.exists()) {
            warn(format_args!("{} is used instead: remove it, and the fetched one is used", path.display()));
        }
    }
    let Some((first, _)) = wrong.first() else { return Ok(()) };
    let lines: String = wrong.iter().map(|(id, detail)| format!("\n  {id}: {detail}")).collect();
    Err(Failure::new(
        Exit::Drift,
        format!(
            "{} not of the code of this kernel, and left out; `xk build {first}` makes one:{lines}",
            count(wrong.len(), "table")
        ),
    ))
}

fn offered(args: &OfferedArgs) -> Result {
    let (build_id, _) = args.source.kernel()?;
    for (source, offer) in args.source.offers(&build_id)? {
        let kernel = &offer.index.kernel;
        println!(
            "{source}: {} of {}, made {}, signed with {}",
            count(offer.index.tables.len(), "table"),
            kernel.release,
            offer.made(),
            offer.key
        );
        let mut columns = Columns::default();
        for entry in &offer.index.tables {
            columns.row([entry.title().to_owned(), entry.id.clone(), format!("{} bytes", entry.size)]);
        }
        print!("{}", columns.lines("  "));
    }
    Ok(())
}
