//! `xk apply`: applies declared tunes, and reverts tunes that are no longer declared.
//!
//! xk-apply does the work. Everything that can be wrong is found before the one transition that changes all. If anything
//! fails, nothing changes; applied again, nothing changes either.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{json, Value};
use xk_apply::{files, plan, read, Applied, Entry, Goals, InForce, Keeper, Resolver, Step, To, Within, Work};
use xk_kernel::{KernelChoice, KernelId};
use xk_policy::{Group, SourceCompiler};
use xk_runtime::{Device, Error as RuntimeError, Rules, TuneStatus};
use xk_store::{Folders, Tables};

use crate::exit::{Exit, Failure, Result};
use crate::options::TransitionArgs;
use crate::output::{print_json, Columns, Paint};
use crate::signals;
use crate::sites::{describe, notice, warn};

const FOLDER: &str = "/etc/xk.d";

/// Arguments of `xk apply`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
A file declares the values of constants:

    [[tune]]
    set = { BLK_MAX_REQUEST_COUNT = 128, SHRINK_BATCH = \"4K\" }

    [[tune]]                      # for some only: pid, comm, uid, cgroup, netns, dev
    set = { MAX_SOFTIRQ_RESTART = 20 }
    comm = [\"fio\", \"dd\"]
    lease = \"10m\"                 # also: mode, backend

    [[tune]]                      # policies, in C or compiled
    policy = \"hystart.bpf.o\"

Tunes that were applied from this file or folder before, and are no longer declared, revert to their
defaults. Tunes of `xk set`, `xk load` and other programs do not change. Everything changes in one
transition, or nothing does. --dry-run exits with 7 if something would change, and with 0 if not.")]
pub struct Args {
    /// A file, or a folder with *.toml (default: /etc/xk.d)
    path: Option<PathBuf>,
    /// Show what would change; change nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Revert everything that was applied from this path, or, without a path, from any
    #[arg(long)]
    remove: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    transition: TransitionArgs,
}

/// Applies them.
pub fn run(args: &Args) -> Result {
    let path = args.path.clone().unwrap_or_else(|| FOLDER.into());
    // A path that does not exist any more may still have tunes to remove.
    let path = fs::canonicalize(&path).or_else(|_| std::path::absolute(&path)).unwrap_or(path);
    let kernel = KernelId::live()?;
    let folders = Folders::from_environment();
    let tables = Tables::read(&folders, &kernel.build_id)?;
    let rules = Rules::read()?;
    let compiler = SourceCompiler { folders: &folders, kernel: &KernelChoice::default(), say: &notice };
    let hz = || xk_kernel::hz_of(&kernel.release);
    let resolver =
        Resolver { compiler: &compiler, tables: &tables, build_id: &kernel.build_id, hz: &hz, rules: &rules };
    let goals = resolver.goals(&declared(args, &path)?)?;
    let device = match Device::open_if_loaded()? {
        Some(device) => device,
        None if goals.goals.is_empty() => {
            return nothing_to_do(args, "nothing is declared, and xk.ko is not loaded");
        }
        None => return Err(RuntimeError::NotLoaded.into()),
    };
    let keeper = Keeper::new()?;
    let options = args.transition.options();
    if !args.dry_run {
        let is_declared = |tune: &TuneStatus| goals.goals.iter().any(|goal| tune.is_of(&goal.table.constant));
        options.finish(&device, &tables, is_declared)?;
    }
    let tunes = device.tunes()?;
    let record = keeper.read(&tunes)?;
    let now = InForce { tunes: &tunes, groups: &Group::all(&tunes), record: &record };
    let within = if args.remove && args.path.is_none() { Within::All } else { Within::Path(&path) };
    let steps = plan(&goals, now, within)?;
    let shown = Shown { goals: &goals, steps: &steps, tables: &tables };
    let work = Work {
        device: &device,
        keeper: &keeper,
        record: &record,
        compiler: &compiler,
        tables: &tables,
        rules: &rules,
        // From here on, only SIGKILL ends the process before the end; the kernel reverts everything then.
        hold_signals: &signals::hold_back,
        warn: &warn,
    };
    let prepared = work.prepare(&goals, &steps)?;
    let pending = steps.iter().any(Step::changes);
    if args.dry_run {
        shown.show(args, false);
        return if pending { Err(Failure::told(Exit::Changes)) } else { Ok(()) };
    }
    let done = if pending { Some(work.run(&goals, &steps, &prepared, &options)?) } else { None };
    work.renew(&steps)?;
    shown.show(args, true);
    if let (Some(done), false) = (done, args.json) {
        println!("{}", describe(&done));
    }
    Ok(())
}

fn nothing_to_do(args: &Args, sentence: &str) -> Result {
    match args.json {
        true => print_json(json!({ "changes": [], "applied": !args.dry_run })),
        false => println!("{sentence}"),
    }
    Ok(())
}

/// The entries of all files.
fn declared(args: &Args, path: &Path) -> Result<Vec<Entry>> {
    // A machine without the default directory declares nothing; a path that was given must exist.
    if args.remove || (args.path.is_none() && !path.exists()) {
        return Ok(Vec::new());
    }
    let mut entries = Vec::new();
    for file in files(path)? {
        entries.extend(read(&file)?);
    }
    Ok(entries)
}

/// A plan in words.
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

    /// The new value of a constant, or its policies.
    fn wanted(&self, to: To) -> String {
        match to {
            To::Value(value) => value.to_string(),
            To::Decided(set) => format!("decided by {}", self.goals.policy_sets[set].name),
        }
    }

    /// The value of a constant before, or its policies.
    fn had(tune: &TuneStatus, applied: &Applied) -> String {
        match (&tune.policy, &applied.set) {
            (Some(_), Some(set)) => format!("decided by {}", set.name),
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
                    row("-", self.tables.title_of(tune), becomes, format!("from {}", before.place()));
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

    /// Tunes that are as declared, and not in force at every site.
    fn warnings(&self) -> Vec<String> {
        let ill = |step: &Step<'_>| match step {
            Step::Keep(goal, tune, _) if !tune.in_force_everywhere() => {
                Some(format!("{}: {} is not in force at every site; see `xk status`", goal.place, goal.title()))
            }
            _ => None,
        };
        self.steps.iter().filter_map(ill).collect()
    }
}
