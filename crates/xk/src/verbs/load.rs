//! `xk load`: the policies of a file, all or none; `xk reload`: others in their place.
//!
//! Everything that can be wrong is found before the one transition that puts them
//! into force: the file is compiled, the kernel verifies its programs, every constant
//! is loaded with its default, given its policy, and the other programs of the file
//! are attached. What fails leaves nothing.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use xk_policy::{Entry, Error as PolicyError, Programs};
use xk_runtime::{Backend, BackendChoice, Change, Destination, Device, Mode, Policy, Rules, Tune, TuneStatus};
use xk_table::ScopeTable;

use super::set::By;
use super::transition::{self, Options};
use crate::addresses::Addresses;
use crate::context::{running, Folders, Tables};
use crate::exit::{Exit, Failure, Result};
use crate::output::Paint;
use crate::signals;
use crate::tunes::{is_tune_of, owner, title, title_of};
use xk_policy::{groups, Group, Member};

/// Arguments of `xk load`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
The file is C that includes xk.bpf.h (`xk gen NAME` writes one), or an object that was compiled of it
(`xk compile`). All policies of a file come into force together and go together. Programs that are no
policies are attached with them. The maps are shown in /sys/fs/bpf/xk/NAME.

The policies stay until `xk unload`, or for the time that --for says, or, with --hold, as long as this
process. See docs/policies.md.")]
pub struct Args {
    /// FILE.bpf.c or FILE.bpf.o
    file: PathBuf,
    /// Name of the set of policies, instead of the file name
    #[arg(long)]
    name: Option<String>,
    /// Stay in the foreground; unload the policies on exit
    #[arg(long)]
    hold: bool,
    /// Unload the policies after this time, whether or not their owner still runs
    #[arg(long = "for", value_name = "TIME", value_parser = transition::parse_time, conflicts_with = "hold")]
    lease: Option<Duration>,
    /// Backend that calls the policies (not patch: patched instructions call nothing)
    #[arg(long, value_enum, default_value_t = By::Kprobe)]
    backend: By,
    #[command(flatten)]
    transition: Options,
}

/// Arguments of `xk reload`.
#[derive(Debug, clap::Args)]
pub struct ReloadArgs {
    /// FILE.bpf.c or FILE.bpf.o
    file: PathBuf,
    /// Name of the set of policies, instead of the file name
    #[arg(long)]
    name: Option<String>,
    #[command(flatten)]
    transition: Options,
}

/// A policy, and the constant that it is for.
#[derive(Debug)]
pub struct Part<'a> {
    /// The policy.
    pub entry: &'a Entry,
    /// Of the constant.
    pub table: &'a ScopeTable,
}

/// How long the stages took.
#[derive(Debug)]
pub struct Clock {
    started: Instant,
    stages: Vec<String>,
}

impl Clock {
    /// Now.
    pub fn new() -> Self {
        Self { started: Instant::now(), stages: Vec::new() }
    }

    /// The end of one.
    pub fn stage(&mut self, name: &str) {
        self.stages.push(format!("{name} {:.1} ms", self.started.elapsed().as_secs_f64() * 1e3));
        self.started = Instant::now();
    }
}

/// How long policies stay, and how they come.
#[derive(Debug)]
pub struct Stay<'a> {
    /// As long as this process.
    pub hold: bool,
    /// Or so long.
    pub lease: Option<Duration>,
    /// How control reaches them.
    pub backend: BackendChoice,
    /// The transition.
    pub transition: &'a Options,
}

/// Loads them.
pub fn run(args: &Args) -> Result {
    let name = Group::name_for(&args.file, args.name.as_deref())?;
    let mut clock = Clock::new();
    let object = object(&args.file, &Folders::new())?;
    clock.stage("compile");
    let stay = Stay { hold: args.hold, lease: args.lease, backend: args.backend.into(), transition: &args.transition };
    install(&object, &name, &args.file, &stay, clock)
}

/// Loads the policies of an object as one transaction.
pub fn install(object: &[u8], name: &str, source: &Path, stay: &Stay<'_>, mut clock: Clock) -> Result {
    let backend = Rules::read()?.deciding(stay.backend)?;
    let folders = Folders::new();
    let kernel = running()?;
    let tables = folders.tables(&kernel.build_id)?;
    let entries = xk_policy::entries(object).map_err(policy_failure)?;
    refuse_other_build(&entries, &kernel.build_id)?;
    let parts = parts(&entries, &folders, &tables)?;
    let device = Device::open()?;
    let (tunes, groups) = groups(&device)?;
    refuse_conflicts(name, &parts, &tunes, &groups)?;
    let addresses = Addresses::live(parts.iter().map(|part| part.table))?;
    let mut programs = Programs::load(object).map_err(policy_failure)?;
    clock.stage("verify");
    // From here on nothing but SIGKILL ends the process half-way; that is the kernel's to undo.
    signals::hold_back();
    let mine = load_all(&device, &parts, &addresses, backend)?;
    let ids: Vec<u32> = mine.iter().map(Tune::id).collect();
    let group = give(&device, &programs, &parts, &ids, name, source)?;
    clock.stage("register");
    Group::forget(name);
    show_maps(&mut programs, name);
    let decided = |(part, tune): (&Part<'_>, &Tune)| Change {
        id: tune.id(),
        to: Destination::Policy(part.table.constant.default),
    };
    let changes: Vec<Change> = parts.iter().zip(&mine).map(decided).collect();
    let mode = stay.transition.mode(mode_of(&parts), parts.iter().map(|part| part.table))?;
    let settled = stay.transition.run(&device, &changes, mode).map_err(transition::failure);
    let done = settled
        .and_then(|done| group.record().map(|()| done).map_err(Failure::from))
        .inspect_err(|_| Group::forget(name))?;
    clock.stage("transition");
    report(&parts, &group);
    println!("{}", transition::describe(&done, mode));
    println!("{}", Paint::stdout().dim(&clock.stages.join(", ")));
    if stay.hold {
        return hold(&device, &mine, stay.transition, mode, &group);
    }
    keep(&device, mine, stay.lease, &group)
}

/// The mode that their constants need together.
fn mode_of(parts: &[Part<'_>]) -> Mode {
    parts.iter().map(|part| part.table.mode).max().unwrap_or(Mode::Now)
}

/// Puts others in their place.
pub fn reload(args: &ReloadArgs) -> Result {
    let name = Group::name_for(&args.file, args.name.as_deref())?;
    let kernel = running()?;
    let folders = Folders::new();
    let tables = folders.tables(&kernel.build_id)?;
    let object = object(&args.file, &folders)?;
    let entries = xk_policy::entries(&object).map_err(policy_failure)?;
    refuse_other_build(&entries, &kernel.build_id)?;
    let parts = parts(&entries, &folders, &tables)?;
    let device = Device::open()?;
    let (tunes, groups) = groups(&device)?;
    let group = groups.iter().find(|group| group.name == name).ok_or_else(|| {
        Failure::error(format!("no policy called {name} is loaded: `xk load {}`", args.file.display()))
    })?;
    let living = replaced(group, &parts, &tunes, &tables)?;
    let mut programs = Programs::load(&object).map_err(policy_failure)?;
    signals::hold_back();
    let ids: Vec<u32> = living.iter().map(|tune| tune.id).collect();
    let new = give(&device, &programs, &parts, &ids, &name, &args.file)
        .map_err(|failure| failure.then("; the policies from before are in force"))?;
    let changes: Vec<Change> =
        living.iter().map(|tune| Change { id: tune.id, to: Destination::Policy(tune.value) }).collect();
    let mode = args.transition.mode(mode_of(&parts), parts.iter().map(|part| part.table))?;
    let done = args.transition.run(&device, &changes, mode).map_err(transition::failure)?;
    Group::forget(&name);
    show_maps(&mut programs, &name);
    new.record()?;
    report(&parts, &new);
    println!("{}", transition::describe(&done, mode));
    Ok(())
}

/// The tunes of a group, in the order of the new file's policies.
fn replaced<'a>(
    group: &'a Group,
    parts: &[Part<'_>],
    tunes: &'a [TuneStatus],
    tables: &Tables,
) -> Result<Vec<&'a TuneStatus>> {
    let living: Vec<&TuneStatus> = group.living(tunes).collect();
    let of = |part: &Part<'_>| living.iter().copied().find(|tune| is_tune_of(tune, &part.table.constant));
    let found = parts
        .iter()
        .map(|part| {
            of(part).ok_or_else(|| {
                Failure::error(format!(
                    "{}: {} is not in the policies called {} that are loaded: `xk unload {}`, then `xk load`",
                    part.entry.place(),
                    title(&part.table.constant),
                    group.name,
                    group.name
                ))
            })
        })
        .collect::<Result<Vec<_>>>()?;
    if let Some(left) = living.iter().find(|tune| !found.iter().any(|known| known.id == tune.id)) {
        return Err(Failure::error(format!(
            "the new file has no policy for {}, which the one that is loaded has: `xk unload {}`, then `xk load`",
            title_of(left, tables),
            group.name
        )));
    }
    if let Some(held) = living.iter().find(|tune| !tune.detached) {
        return Err(Failure::error(format!("{} is {}: it cannot be changed", title_of(held, tables), owner(held))));
    }
    Ok(found)
}

/// The object: compiled, or read.
pub fn object(file: &Path, folders: &Folders) -> Result<Vec<u8>> {
    if file.extension().is_some_and(|extension| extension == "c") {
        return super::compile::for_running(file, folders);
    }
    fs::read(file).map_err(|error| Failure::error(format!("{}: {error}", file.display())))
}

/// What was compiled with the variables of one kernel is for no other.
pub fn refuse_other_build(entries: &[Entry], build_id: &str) -> Result {
    match entries.iter().find(|entry| !entry.build_id.is_empty() && entry.build_id != build_id) {
        None => Ok(()),
        Some(entry) => Err(Failure::new(
            Exit::Drift,
            format!(
                "{}: {} reads variables of the kernel with build-id {}, and this one has {build_id}: compile it again",
                entry.place(),
                entry.program,
                entry.build_id
            ),
        )),
    }
}

/// A failure of a policy, in the command's words.
pub fn policy_failure(error: PolicyError) -> Failure {
    let exit = match &error {
        PolicyError::Verifier { .. } | PolicyError::Forbidden { .. } => Exit::Refused,
        PolicyError::NoCompiler | PolicyError::NoFunctions | PolicyError::Types { .. } => Exit::Unsupported,
        _ => Exit::Error,
    };
    Failure::new(exit, error.to_string())
}

/// The table of each policy's constant.
pub fn parts<'a>(entries: &'a [Entry], folders: &Folders, tables: &'a Tables) -> Result<Vec<Part<'a>>> {
    let mut parts: Vec<Part<'a>> = Vec::new();
    for entry in entries {
        let table = tables.find(folders, &entry.constant).map_err(|failure| failure.about(&entry.place()))?;
        if let Some(other) = parts.iter().find(|part| part.table.constant.id == table.constant.id) {
            return Err(Failure::error(format!(
                "{}: {} has a policy already, `{}` at {}",
                entry.place(),
                title(&table.constant),
                other.entry.program,
                other.entry.place()
            )));
        }
        if entry.each && table.tests_for_order() {
            return Err(decides_too_often(entry, table));
        }
        parts.push(Part { entry, table });
    }
    Ok(parts)
}

/// A constant belongs to one transaction.
fn refuse_conflicts(name: &str, parts: &[Part<'_>], tunes: &[TuneStatus], groups: &[Group]) -> Result {
    if let Some(group) = groups.iter().find(|group| group.name == name) {
        return Err(Failure::error(format!(
            "policies called {name} are loaded, from {}: `xk reload` puts others in their place, `xk unload {name}` ends \
             them, --name gives these another name",
            group.source.display()
        )));
    }
    for part in parts {
        let title = title(&part.table.constant);
        let Some(tune) = tunes.iter().find(|tune| is_tune_of(tune, &part.table.constant)) else { continue };
        let holder = match Group::of(groups, tune) {
            Some(group) => {
                format!("belongs to the policies {} ({}): `xk unload {0}`", group.name, group.source.display())
            }
            None => format!("is tuned to {}, {}: `xk unset {title}`", tune.value, owner(tune)),
        };
        return Err(Failure::error(format!("{}: {title} {holder} first; nothing was loaded", part.entry.place())));
    }
    Ok(())
}

/// Every constant, with its default in force.
fn load_all(device: &Device, parts: &[Part<'_>], addresses: &Addresses, backend: Backend) -> Result<Vec<Tune>> {
    let load = |part: &Part<'_>| {
        device.load_by(part.table, addresses, backend).map_err(|error| {
            let failure = super::set::load_failure(error, title(&part.table.constant));
            failure.about(&part.entry.place()).then("; nothing was loaded")
        })
    };
    parts.iter().map(load).collect()
}

fn decides_too_often(entry: &Entry, table: &ScopeTable) -> Failure {
    Failure::new(
        Exit::Refused,
        format!(
            "{}: {} may not be decided at each site: a number is counted from one to the next and compared with the \
             value; write XK_TUNE in place of XK_TUNE_EACH",
            entry.place(),
            title(&table.constant)
        ),
    )
}

/// Gives each tune its policy, and all of them the programs that run beside.
pub fn give(
    device: &Device,
    programs: &Programs,
    parts: &[Part<'_>],
    ids: &[u32],
    name: &str,
    source: &Path,
) -> Result<Group> {
    let companions = programs.attach().map_err(policy_failure)?;
    let mut members = Vec::new();
    for (part, &tune) in parts.iter().zip(ids) {
        let Entry { program, .. } = part.entry;
        let missing = || Failure::error(format!("{}: there is no program {program}", part.entry.place()));
        let mut policy = match part.entry.each {
            true => Policy::for_each_site(programs.program(part.entry).ok_or_else(missing)?),
            false => Policy::new(programs.program(part.entry).ok_or_else(missing)?, part.table),
        };
        policy.links = companions.links().collect();
        device
            .give_policy(tune, &policy)
            .map_err(|error| Failure::new(Exit::Refused, format!("{}: {program}: {error}", part.entry.place())))?;
        let constant = part.table.constant.id.clone();
        let program_id = programs.program_id(part.entry).map_err(policy_failure)?;
        members.push(Member { tune, constant, program: program.clone(), program_id });
    }
    // A long ID is known to the kernel by its alias.
    let known = device.tunes()?;
    for member in &mut members {
        if let Some(tune) = known.iter().find(|tune| tune.id == member.tune) {
            member.constant.clone_from(&tune.name);
        }
    }
    let source = fs::canonicalize(source).unwrap_or_else(|_| source.to_owned());
    let companions = companions.names().map(str::to_owned).collect();
    Ok(Group { name: name.to_owned(), source, members, companions })
}

/// Maps are for others to read and write; without a BPF file system they still work.
pub fn show_maps(programs: &mut Programs, name: &str) {
    let folder = Group::pins(name);
    let shown = fs::create_dir_all(&folder).map_err(|error| error.to_string());
    if let Err(reason) = shown.and_then(|()| programs.pin(&folder).map_err(|error| error.to_string())) {
        eprintln!("warning: the maps are not shown in {}: {reason}", folder.display());
    }
}

fn report(parts: &[Part<'_>], group: &Group) {
    let paint = Paint::stdout();
    for part in parts {
        println!(
            "{} decided by {} ({})",
            paint.strong(title(&part.table.constant)),
            part.entry.program,
            part.entry.place()
        );
    }
    if !group.companions.is_empty() {
        println!("  beside: {}", group.companions.join(", "));
    }
}

/// Lets the policies outlive this process.
fn keep(device: &Device, tunes: Vec<Tune>, lease: Option<Duration>, group: &Group) -> Result {
    for tune in &tunes {
        device.lease(tune.id(), lease)?;
    }
    for tune in tunes {
        tune.detach()?;
    }
    let time = lease.map_or(String::new(), |lease| format!("for {}, ", super::status::time(lease)));
    println!("in force {time}until `xk unload {}`, or until the next boot", group.name);
    Ok(())
}

fn hold(device: &Device, tunes: &[Tune], options: &Options, mode: Mode, group: &Group) -> Result {
    println!("held by process {}; its end ends the policies", std::process::id());
    signals::wait();
    let changes: Vec<Change> = tunes.iter().map(|tune| Change { id: tune.id(), to: Destination::Unload }).collect();
    options.run(device, &changes, mode).map_err(transition::failure)?;
    Group::forget(&group.name);
    println!("{} unloaded: the defaults are back", group.name);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;

    #[test]
    fn who_may_not_load_is_refused() {
        let (what, reason) = (String::from("choose"), String::from("Operation not permitted"));
        let exit = |error| policy_failure(error).exit;
        assert_eq!(exit(PolicyError::Forbidden { what: what.clone(), reason: reason.clone() }), Exit::Refused);
        assert_eq!(exit(PolicyError::Load { what, reason }), Exit::Error);
        assert_eq!(Failure::from(xk_runtime::Error::Forbidden("the kernel is locked down".into())).exit, Exit::Refused);
    }

    #[test]
    fn what_tests_for_order_is_not_decided_at_each_site() {
        let entry = |each| Entry {
            program: "choose".into(),
            constant: "BLK_MAX_REQUEST_COUNT".into(),
            file: "a.bpf.c".into(),
            build_id: String::new(),
            line: 7,
            each,
        };
        let mut table = fixture::table();
        let found = |table: &ScopeTable, each| {
            let tables = fixture::tables(vec![table.clone()]);
            let entries = [entry(each)];
            parts(&entries, &Folders::new(), &tables).map(|parts| parts.len()).map_err(|failure| failure.message)
        };
        assert_eq!(found(&table, true), Ok(1));
        table.spans[0].assembly[0].order = Some(xk_table::Order::AtLeast);
        assert_eq!(found(&table, false), Ok(1));
        let refused = found(&table, true);
        assert!(
            refused.as_ref().is_err_and(|why| why.contains("a.bpf.c:7") && why.contains("XK_TUNE_EACH")),
            "{refused:?}"
        );
    }
}
