//! How much code one jump can reach, and how much the kernel's own probes reach.
//!
//! In: the boot image and all modules of the lab's kernel, and the tables of the corpus. Every instruction of
//! every function counts that is there once the kernel has started, up to the function's last instruction:
//! not the room before functions, not the padding behind them.

pub(super) mod stock;

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fmt::Write;
use std::path::Path;

use anyhow::{ensure, Context, Result};
use iced_x86::{Decoder, DecoderOptions, Instruction, Mnemonic};
use serde::Serialize;
use xk_kernel::Image;
use xk_span::window::map::Part;
use xk_span::window::{fill, Index, Windows};
use xk_span::world::World;
use xk_table::Store;

use super::say;
use crate::lab;
use stock::{Probes, Reach};

/// Options of `bench coverage`.
#[derive(Debug, clap::Args)]
pub struct Options {
    /// coverage: only the first N modules, by name
    #[arg(long, value_name = "N")]
    modules: Option<usize>,
}

/// Modules that are looked at together; their needs come along.
const BATCH: usize = 200;
/// Hundredths of a percent of vmlinux, and of the corpus, that must be reached.
const WANTED: (u64, u64) = (9500, 9900);
/// Hundredths of a percent of the instructions that kprobes accept: so many must need no trap, in vmlinux and in all
/// modules.
const PROBED: u64 = 9950;

/// One kind of code.
#[derive(Debug, Default, Clone, Serialize)]
pub struct Counts {
    instructions: u64,
    /// A window holds it, or begins behind it when it does nothing.
    trapless: u64,
    /// Of these: the window begins at the instruction, before it, or behind it.
    at: u64,
    before: u64,
    behind: u64,
    /// What the kernel's own probes would be.
    kprobe_jump: u64,
    kprobe_ftrace: u64,
    kprobe_boost: u64,
    kprobe_trap: u64,
    /// They are not let in.
    none: u64,
    /// Neither a window nor a probe.
    neither: u64,
    /// No window, but a short one, which only probes use. Kprobes accept all of these.
    short: u64,
    /// Kprobes accept the rest, too: why there is no short window.
    left: BTreeMap<&'static str, u64>,
    /// Why there is no window.
    reasons: BTreeMap<&'static str, u64>,
}

/// Critical spans.
#[derive(Debug, Default, Serialize)]
pub struct Corpus {
    tables: usize,
    spans: u64,
    /// By a jump, or because their instructions hold the value.
    trapless: u64,
    /// So many of these only because their instructions hold it, which takes mode `global`.
    held: u64,
    /// Why there is no window for the others.
    reasons: BTreeMap<String, u64>,
}

/// What was counted.
#[derive(Debug, Serialize)]
pub struct Coverage {
    bench: &'static str,
    kernel: String,
    vmlinux: Counts,
    /// Of these modules.
    modules: Counts,
    module_files: usize,
    all_modules: bool,
    corpus: Corpus,
}

/// Counts everything.
///
/// # Errors
/// When the kernel, a module or a table cannot be read.
pub fn run(options: &Options) -> Result<Coverage> {
    let kernel = lab::kernel()?;
    let image = Image::from_vmlinuz(&kernel.vmlinuz, None)?.with_modules_in(&kernel.root);
    say("vmlinux");
    let world = World::new(&image, &[], HashSet::new())?;
    let index = Index::new(&world);
    let mut vmlinux = Counts::default();
    vmlinux.add(&world, &index, &|owner| owner == 0);
    let folder = kernel.root.join("lib/modules").join(&kernel.release);
    let mut names = BTreeSet::new();
    find(&folder, &mut names).with_context(|| folder.display().to_string())?;
    let names: Vec<String> = names.into_iter().take(options.modules.unwrap_or(usize::MAX)).collect();
    let mut modules = Counts::default();
    for (number, batch) in names.chunks(BATCH).enumerate() {
        say(&format!("modules: {} of {}", number * BATCH, names.len()));
        let wanted: Vec<&str> = batch.iter().map(String::as_str).collect();
        let world = World::new(&image, &wanted, HashSet::new())?;
        let of_batch = |owner: usize| {
            let name = world.owners.get(owner).cloned().flatten();
            name.is_some_and(|name| batch.iter().any(|wanted| wanted.replace('-', "_") == name))
        };
        modules.add(&world, &Index::new(&world), &of_batch);
    }
    let corpus = corpus(&image)?;
    let kernel = kernel.release;
    Ok(Coverage {
        bench: "coverage",
        kernel,
        vmlinux,
        modules,
        module_files: names.len(),
        all_modules: options.modules.is_none(),
        corpus,
    })
}

/// Names of the modules in a folder.
fn find(folder: &Path, names: &mut BTreeSet<String>) -> Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        let kind = entry.file_type()?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if kind.is_dir() {
            find(&entry.path(), names)?;
        } else if let Some(end) = name.find(".ko").filter(|_| kind.is_file()) {
            names.insert(name[..end].to_owned());
        }
    }
    Ok(())
}

/// The sites of all tables.
fn corpus(image: &Image) -> Result<Corpus> {
    let folder = lab::cache()?.join("tables");
    let (mut tables, broken) = Store::new(&folder).list(&image.id().build_id)?;
    ensure!(broken.is_empty(), "{} table(s) cannot be read, the first: {}", broken.len(), broken[0]);
    say(&format!("corpus: {} tables in {}", tables.len(), folder.display()));
    let modules: BTreeSet<String> =
        tables.iter().flat_map(|table| table.functions.iter().filter_map(|f| f.module.clone())).collect();
    let modules: Vec<&str> = modules.iter().map(String::as_str).collect();
    let world = World::new(image, &modules, HashSet::new())?;
    let index = Index::new(&world);
    let mut found = Corpus { tables: tables.len(), ..Corpus::default() };
    for table in &mut tables {
        fill(&world, Windows::new(&world, &index), table)
            .map_err(anyhow::Error::msg)
            .with_context(|| table.constant.id.clone())?;
        for span in &table.spans {
            found.spans += 1;
            match &span.indirection.window_reason {
                None => found.trapless += 1,
                Some(_) if span.in_place.is_some() => {
                    found.trapless += 1;
                    found.held += 1;
                }
                Some(reason) => *found.reasons.entry(reason.clone()).or_default() += 1,
            }
        }
    }
    Ok(found)
}

/// The instructions of a part, without the padding behind the last.
pub(super) fn instructions(world: &World, part: Part) -> Vec<Instruction> {
    let code = world.read(part.start, (part.end - part.start) as usize).unwrap_or_default();
    let mut all: Vec<Instruction> = Decoder::with_ip(64, code, part.start, DecoderOptions::NONE)
        .into_iter()
        .take_while(|i| !i.is_invalid())
        .collect();
    let padding = |insn: &Instruction| matches!(insn.mnemonic(), Mnemonic::Nop | Mnemonic::Int3);
    while all.last().is_some_and(padding) {
        all.pop();
    }
    all
}

impl Counts {
    /// Adds the functions of the owners that are wanted.
    fn add(&mut self, world: &World, index: &Index, wanted: &dyn Fn(usize) -> bool) {
        let windows = Windows::new(world, index);
        let probes = Probes::new(world);
        for part in index.map().parts() {
            let Some(function) = world.function_at(part.start) else { continue };
            let room = function.names.iter().any(|name| name.starts_with("__pfx_"));
            if room || !wanted(function.owner) || world.is_over(part.start) {
                continue;
            }
            let insns = instructions(world, part);
            let stock = probes.function(world, part, &insns);
            for insn in &insns {
                self.one(windows, insn.ip(), stock.at(insn));
            }
        }
    }

    fn one(&mut self, windows: Windows<'_>, address: u64, probe: Reach) {
        self.instructions += 1;
        match probe {
            Reach::Jump => self.kprobe_jump += 1,
            Reach::Tracer => self.kprobe_ftrace += 1,
            Reach::Boost => self.kprobe_boost += 1,
            Reach::Trap => self.kprobe_trap += 1,
            Reach::None => self.none += 1,
        }
        match windows.at(address) {
            Ok(window) => {
                self.trapless += 1;
                match window.lead {
                    0 => self.at += 1,
                    1.. => self.before += 1,
                    _ => self.behind += 1,
                }
            }
            Err(reason) => {
                *self.reasons.entry(reason.key()).or_default() += 1;
                self.neither += u64::from(probe == Reach::None);
                if !matches!(probe, Reach::None | Reach::Tracer) {
                    self.without_window(windows, address);
                }
            }
        }
    }

    /// Kprobes accept the instruction, with a trap or by a jump of their own.
    fn without_window(&mut self, windows: Windows<'_>, address: u64) {
        match windows.short(address) {
            Ok(_) => self.short += 1,
            Err(reason) => *self.left.entry(reason.key()).or_default() += 1,
        }
    }

    fn table(&self, name: &str) -> String {
        let percent = |part: u64| 100.0 * part as f64 / self.instructions.max(1) as f64;
        let mut text = format!("{name}: {} instructions\n", self.instructions);
        let rows = [
            ("one jump", self.trapless),
            ("  from the instruction on", self.at),
            ("  from before it", self.before),
            ("  from behind it, at the entry", self.behind),
            ("kprobe: jump", self.kprobe_jump),
            ("kprobe: ftrace", self.kprobe_ftrace),
            ("kprobe: one trap (boosted)", self.kprobe_boost),
            ("kprobe: traps", self.kprobe_trap),
            ("kprobe: none", self.none),
            ("neither", self.neither),
            ("short window", self.short),
        ];
        for (what, number) in rows {
            _ = writeln!(text, "  {what:<32} {number:>9} {:>6.2} %", percent(number));
        }
        for (reason, number) in &self.reasons {
            _ = writeln!(text, "    no window: {reason:<19} {number:>9} {:>6.2} %", percent(*number));
        }
        for (reason, number) in &self.left {
            _ = writeln!(text, "    nor a short one: {reason:<13} {number:>9} {:>6.2} %", percent(*number));
        }
        text
    }
}

impl Coverage {
    /// For people.
    #[must_use]
    pub fn table(&self) -> String {
        let mut text = self.vmlinux.table(&self.kernel);
        text += &self.modules.table(&format!("{} modules", self.module_files));
        let Corpus { tables, spans, trapless, held, reasons } = &self.corpus;
        _ = writeln!(
            text,
            "corpus: {trapless} of {spans} critical spans in {tables} tables, {held} of them in mode global only"
        );
        for (reason, number) in reasons {
            _ = writeln!(text, "    {number}: {reason}");
        }
        text
    }

    /// Whether enough of it is reached.
    ///
    /// # Errors
    /// What is not.
    pub fn verdict(&self) -> Result<()> {
        let reached = |part: u64, whole: u64| part * 10_000 >= whole;
        for (name, counts) in [("vmlinux", &self.vmlinux), ("the modules", &self.modules)] {
            let (jumps, accepted) = (counts.trapless + counts.short, counts.instructions - counts.none);
            ensure!(
                reached(jumps, accepted * PROBED) || (name != "vmlinux" && !self.all_modules),
                "jumps reach {jumps} of {accepted} instructions of {name} that kprobes accept: less than 99.5 %"
            );
        }
        let (vmlinux, corpus) = (&self.vmlinux, &self.corpus);
        ensure!(corpus.spans > 0, "no tables: run cargo xtask corpus first");
        ensure!(
            reached(vmlinux.trapless, vmlinux.instructions * WANTED.0),
            "one jump reaches {} of {} instructions of vmlinux: less than 95 %",
            vmlinux.trapless,
            vmlinux.instructions
        );
        ensure!(
            reached(corpus.trapless, corpus.spans * WANTED.1),
            "{} of {} critical spans need no trap: less than 99 %",
            corpus.trapless,
            corpus.spans
        );
        Ok(())
    }
}
