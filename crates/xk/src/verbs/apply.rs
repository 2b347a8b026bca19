//! `xk apply`: what files declare, and nothing else of it, is in force afterwards.
//!
//! Everything that can be wrong is found before the one transition that changes all:
//! files are read, policies compiled and verified, new constants loaded with their
//! defaults in force. What fails leaves everything as it was. Applied again, nothing
//! changes.

mod execute;
mod file;
mod goal;
mod plan;
mod record;

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{json, Value};
use xk_runtime::{Error as RuntimeError, Rules, TuneStatus};

use self::goal::{Goals, Resolver, To};
use self::plan::{plan, InForce, Step, Within};
use self::record::Keeper;
use super::get;
use super::transition::{self, Options};
use crate::context::{running, Folders, Tables};
use crate::exit::{Exit, Failure, Result};
use crate::output::{print_json, Columns, Paint};
use crate::tunes::{device_if_loaded, is_tune_of, title_of};
use xk_policy::Group;

const FOLDER: &str = "/etc/xk.d";

/// Arguments of `xk apply`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
A file declares what constants shall have:

    [[tune]]
    set = { BLK_MAX_REQUEST_COUNT = 128, SHRINK_BATCH = \"4K\" }

    [[tune]]                      # for some only: pid, comm, uid, cgroup, netns, dev
    set = { MAX_SOFTIRQ_RESTART = 20 }
    comm = [\"fio\", \"dd\"]
    lease = \"10m\"                 # also: mode, backend

    [[tune]]                      # policies, in C or compiled
    policy = \"hystart.bpf.o\"

What was applied from this file or folder before, and is declared no more, gets its default back. What
`xk set`, `xk load` and others have tuned is left alone. Everything changes in one transition, or nothing
does. --dry-run ends with 7 if something would change, and with 0 if not.")]
pub struct Args {
    /// A file, or a folder with *.toml (default: /etc/xk.d)
    path: Option<PathBuf>,
    /// Show what would change; change nothing
    #[arg(long)]
    dry_run: bool,
    /// Revert everything that was applied from this path, or, without a path, from any
    #[arg(long)]
    remove: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    transition: Options,
}

/// Applies them.
pub fn run(args: &Args) -> Result {
    let path = args.path.clone().unwrap_or_else(|| FOLDER.into());
    // Also of what is gone, to be removed.
    let path = fs::canonicalize(&path).or_else(|_| std::path::absolute(&path)).unwrap_or(path);
    let kernel = running()?;
    let folders = Folders::new();
    let tables = folders.tables(&kernel.build_id)?;
    let hz = || xk_kernel::hz_of(&kernel.release);
    let rules = Rules::read()?;
    let resolver = Resolver { folders: &folders, tables: &tables, build_id: &kernel.build_id, hz: &hz, rules: &rules };
    let goals = resolver.goals(&declared(args, &path)?)?;
    let device = match device_if_loaded()? {
        Some(device) => device,
        None if goals.goals.is_empty() => return said(args, "nothing is declared, and xk.ko is not loaded"),
        None => return Err(RuntimeError::NotLoaded.into()),
    };
    let keeper = Keeper::new()?;
    if !args.dry_run {
        let declared = |tune: &TuneStatus| goals.goals.iter().any(|goal| is_tune_of(tune, &goal.table.constant));
        args.transition.finish(&device, &tables, declared)?;
    }
    let tunes = device.tunes()?;
    let record = keeper.read(&tunes)?;
    let now = InForce { tunes: &tunes, groups: &Group::all(&tunes), record: &record };
    let within = if args.remove && args.path.is_none() { Within::All } else { Within::Path(&path) };
    let steps = plan(&goals, now, within)?;
    let shown = Shown { goals: &goals, steps: &steps, tables: &tables };
    let work = execute::Work {
        device: &device,
        keeper: &keeper,
        record: &record,
        folders: &folders,
        tables: &tables,
        rules: &rules,
    };
    let prepared = work.prepare(&goals, &steps)?;
    let pending = steps.iter().any(Step::changes);
    if args.dry_run {
        shown.show(args, false);
        return if pending { Err(Failure::told(Exit::Changes)) } else { Ok(()) };
    }
    let done = if pending { Some(work.run(&goals, &steps, &prepared, &args.transition)?) } else { None };
    work.renew(&steps)?;
    shown.show(args, true);
    if let (Some((done, mode)), false) = (done, args.json) {
        println!("{}", transition::describe(&done, mode));
    }
    Ok(())
}

fn said(args: &Args, sentence: &str) -> Result {
    match args.json {
        true => print_json(json!({ "changes": [], "applied": !args.dry_run })),
        false => println!("{sentence}"),
    }
    Ok(())
}

/// All entries of all files.
fn declared(args: &Args, path: &Path) -> Result<Vec<file::Entry>> {
    // A machine without a folder declares nothing; a path that was given must be there.
    if args.remove || (args.path.is_none() && !path.exists()) {
        return Ok(Vec::new());
    }
    let mut entries = Vec::new();
    for file in file::files(path)? {
        entries.extend(file::read(&file)?);
    }
    Ok(entries)
}

/// What is told of a plan.
struct Shown<'a> {
    goals: &'a Goals<'a>,
    steps: &'a [Step<'a>],
    tables: &'a Tables,
}

impl Shown<'_> {
    fn show(&self, args: &Args, applied: bool) {
        if args.json {
            print_json(json!({ "applied": applied, "changes": self.document() }));
            return;
        }
        print!("{}", self.text(Paint::stdout(), applied));
        for warning in self.warnings() {
            eprintln!("{} {warning}", Paint::stderr().warning("warning:"));
        }
    }

    /// What a constant gets, or has: a value, or who decides.
    fn wanted(&self, to: To) -> String {
        match to {
            To::Value(value) => value.to_string(),
            To::Decided(unit) => format!("decided by {}", self.goals.policy_sets[unit].name),
        }
    }

    fn had(tune: &TuneStatus, applied: &record::Applied) -> String {
        match (&tune.policy, &applied.unit) {
            (Some(_), Some(unit)) => format!("decided by {}", unit.name),
            (Some(_), None) => "decided by a policy".into(),
            (None, _) => tune.value.to_string(),
        }
    }

    fn text(&self, paint: Paint, applied: bool) -> String {
        let mut columns = Columns::default();
        let mut row = |sign: &str, title: &str, becomes: String, place: String| {
            columns.row([sign.to_owned(), format!("{title} {becomes}"), place]);
        };
        let mut kept = 0;
        for step in self.steps {
            match step {
                Step::Add(goal) => {
                    let default = goal.table.constant.default;
                    let becomes = format!("= {} (was {default}, its default)", self.wanted(goal.to));
                    row("+", goal.title(), becomes, goal.place.to_string());
                }
                Step::Change(goal, tune, before) => {
                    let becomes = format!("= {} (was {})", self.wanted(goal.to), Self::had(tune, before));
                    row("~", goal.title(), becomes, goal.place.to_string());
                }
                Step::Keep(..) => kept += 1,
                Step::Remove(before, tune) => {
                    let becomes = format!("= {}, its default (was {})", tune.default, Self::had(tune, before));
                    row("-", title_of(tune, self.tables), becomes, format!("from {}", before.place()));
                }
            }
        }
        let changed = self.steps.len() - kept;
        let verb = match (changed, applied) {
            (0, _) => return format!("nothing to change, {kept} in force as declared\n"),
            (_, true) => "changed",
            (_, false) => "would change",
        };
        format!("{}{}\n", columns.lines(""), paint.dim(&format!("{changed} {verb}, {kept} in force as declared")))
    }

    fn document(&self) -> Vec<Value> {
        let entry = |action: &str, id: &str, from: String, to: String, place: String| {
            let name = self.tables.alias(id).unwrap_or(id);
            json!({ "action": action, "id": id, "name": name, "from": from, "to": to, "place": place })
        };
        let step = |step: &Step<'_>| match step {
            Step::Add(goal) => {
                let constant = &goal.table.constant;
                entry("add", &constant.id, constant.default.to_string(), self.wanted(goal.to), goal.place.to_string())
            }
            Step::Change(goal, tune, before) | Step::Keep(goal, tune, before) => {
                let action = if step.changes() { "change" } else { "keep" };
                let from = Self::had(tune, before);
                entry(action, &goal.table.constant.id, from, self.wanted(goal.to), goal.place.to_string())
            }
            Step::Remove(before, tune) => {
                let place = before.place().to_string();
                entry("remove", &tune.name, Self::had(tune, before), tune.default.to_string(), place)
            }
        };
        self.steps.iter().map(step).collect()
    }

    /// What is as declared, and is not everywhere in force.
    fn warnings(&self) -> Vec<String> {
        let ill = |step: &Step<'_>| match step {
            Step::Keep(goal, tune, _) if !get::in_force(tune) => {
                Some(format!("{}: {} is not in force at every site; see `xk status`", goal.place, goal.title()))
            }
            _ => None,
        };
        self.steps.iter().filter_map(ill).collect()
    }
}
