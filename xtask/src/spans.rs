//! Safe spans of every constant that has a table.
//!
//! In: the finished tables of the kernel that the lab has (`cargo xtask corpus` makes them). Out: how many
//! safe spans there are, how large they are, which transition each constant needs, and what escapes. The
//! tables themselves are left as they are.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Instant;

use anyhow::{ensure, Context, Result};
use serde::Serialize;
use xk_analysis::pipeline::noreturns;
use xk_span::callers::Callers;
use xk_span::scope::scopes;
use xk_span::text::{self, address};
use xk_span::walk::Walk;
use xk_span::world::World;
use xk_table::{Mode, ScopeTable, Store};

use crate::lab;

/// Options of `cargo xtask spans`.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// One JSON object per constant, then one for all of them
    #[arg(long)]
    json: bool,
    /// The folder of tables (default: that of `xk build`)
    #[arg(long, value_name = "DIR")]
    tables: Option<PathBuf>,
    /// Only constants whose name or ID contains this
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
    /// Print the scopes and escapes of each
    #[arg(long)]
    verbose: bool,
}

/// One constant.
#[derive(Debug, Serialize)]
struct Line {
    #[serde(rename = "const")]
    name: String,
    scopes: usize,
    instructions: u32,
    mode: Mode,
    escapes: usize,
    seconds: f64,
}

/// All of them.
#[derive(Debug, Default, Serialize)]
struct Summary {
    constants: usize,
    critical_spans: usize,
    safe_spans: usize,
    whole: usize,
    median_instructions: u32,
    p95_instructions: u32,
    max_instructions: u32,
    median_s: f64,
    p95_s: f64,
    max_s: f64,
    preparation_s: f64,
    now: usize,
    task: usize,
    global: usize,
    escaping: usize,
}

/// Computes them.
///
/// # Errors
/// When the kernel or the tables are not there, or a table is about other code.
pub fn run(arguments: &Arguments) -> Result<()> {
    let started = Instant::now();
    let (image, tree) = lab::image_and_tree()?;
    let folder = match &arguments.tables {
        Some(folder) => folder.clone(),
        None => lab::cache()?.join("tables"),
    };
    let (mut tables, broken) = Store::new(&folder).list(&image.id().build_id)?;
    ensure!(broken.is_empty(), "{} table(s) cannot be read, the first: {}", broken.len(), broken[0]);
    ensure!(!tables.is_empty(), "{} has no tables: run cargo xtask corpus first", folder.display());
    if let Some(only) = &arguments.only {
        tables.retain(|table| title(table).contains(only.as_str()) || table.constant.id.contains(only.as_str()));
    }
    let modules: BTreeSet<String> =
        tables.iter().flat_map(|table| table.functions.iter().filter_map(|f| f.module.clone())).collect();
    let modules: Vec<&str> = modules.iter().map(String::as_str).collect();
    let world = World::new(&image, &modules, noreturns(&tree)?)?;
    let callers = Callers::new(&world);
    let mut walk = Walk::new(&world, &callers);
    let preparation_s = started.elapsed().as_secs_f64();
    let mut lines = Vec::new();
    let mut sizes = Vec::new();
    let mut summary = Summary { preparation_s: rounded(preparation_s), ..Summary::default() };
    for table in &mut tables {
        masks(&world, table)?;
        let started = Instant::now();
        scopes(&mut walk, table).map_err(anyhow::Error::msg).with_context(|| table.constant.id.clone())?;
        table.check().with_context(|| table.constant.id.clone())?;
        let line = Line {
            name: title(table).to_owned(),
            scopes: table.scopes.len(),
            instructions: table.scopes.iter().map(|scope| scope.instructions).sum(),
            mode: table.mode,
            escapes: table.escapes.len(),
            seconds: rounded(started.elapsed().as_secs_f64()),
        };
        if arguments.json {
            println!("{}", serde_json::to_string(&line)?);
        } else {
            println!(
                "{:<45} {:>3} {:>6} {:<7} {:>4} {:>6.2}",
                line.name,
                line.scopes,
                line.instructions,
                line.mode.to_string(),
                line.escapes,
                line.seconds
            );
        }
        if arguments.verbose {
            show(table);
        }
        summary.add(table);
        sizes.extend(table.scopes.iter().map(|scope| scope.instructions));
        lines.push(line);
    }
    summary.rank(&lines, sizes);
    println!("{}", serde_json::to_string(&summary)?);
    Ok(())
}

/// Functions that only hold safe spans have no rebuilt object that says which bytes the kernel changes by
/// itself. Of those that have one, at least the same bytes must be open.
fn masks(world: &World, table: &ScopeTable) -> Result<()> {
    for function in table.functions.iter().filter(|function| !function.source.is_empty()) {
        let start = address(world, function).map_err(anyhow::Error::msg)?;
        let own = text::function(world, start);
        let (theirs, ours) = (function.text_mask(), own.text_mask());
        let (theirs, ours) = theirs.and_then(|t| Ok((t, ours?))).map_err(anyhow::Error::msg)?;
        let bytes = function.text().map_err(anyhow::Error::msg)?;
        // A per-CPU variable's offset is linked, and stays: the rebuilt object does not have it yet.
        let linked = |at: usize| {
            (at.saturating_sub(3)..=at).any(|at| {
                let field = bytes.get(at..at + 4).and_then(|field| field.try_into().ok());
                field.is_some_and(|field| u32::from_le_bytes(field) < 1 << 24)
            })
        };
        let open = theirs.iter().zip(&ours).enumerate().filter(|(_, (theirs, _))| **theirs == 0);
        let closed = open.into_iter().find(|(at, (_, ours))| **ours != 0 && !linked(*at)).map(|(at, _)| at);
        ensure!(
            closed.is_none(),
            "{}+{:#x}: the kernel may change it, and the mask does not say so",
            function.symbol,
            closed.unwrap_or(0)
        );
        ensure!(ours.len() >= theirs.len() - 16, "{}: {} bytes of {}", function.symbol, ours.len(), theirs.len());
    }
    Ok(())
}

fn show(table: &ScopeTable) {
    for scope in &table.scopes {
        let function = &table.functions[scope.function].symbol;
        let whole = scope.whole.as_deref().unwrap_or_default();
        println!(
            "    {function} spans {:?} {} instructions {:x?} {whole}",
            scope.spans, scope.instructions, scope.ranges
        );
        for exit in &scope.exits {
            println!("        {exit:?}");
        }
    }
    for escape in &table.escapes {
        println!("    ! {}: {} ({})", escape.place, escape.field, escape.reason);
    }
}

fn title(table: &ScopeTable) -> &str {
    table.constant.name.as_deref().unwrap_or(&table.constant.id)
}

fn rounded(seconds: f64) -> f64 {
    (seconds * 100.0).round() / 100.0
}

impl Summary {
    fn add(&mut self, table: &ScopeTable) {
        self.constants += 1;
        self.critical_spans += table.spans.len();
        self.safe_spans += table.scopes.len();
        self.whole += table.scopes.iter().filter(|scope| scope.whole.is_some()).count();
        self.escaping += usize::from(!table.escapes.is_empty());
        match table.mode {
            Mode::Now => self.now += 1,
            Mode::Task => self.task += 1,
            Mode::Global => self.global += 1,
        }
    }

    fn rank(&mut self, lines: &[Line], mut sizes: Vec<u32>) {
        sizes.sort_unstable();
        let mut seconds: Vec<f64> = lines.iter().map(|line| line.seconds).collect();
        seconds.sort_by(f64::total_cmp);
        (self.median_instructions, self.p95_instructions) = (rank(&sizes, 50), rank(&sizes, 95));
        self.max_instructions = rank(&sizes, 100);
        (self.median_s, self.p95_s, self.max_s) = (rank(&seconds, 50), rank(&seconds, 95), rank(&seconds, 100));
    }
}

/// The smallest of the sorted values that `percent` of them do not exceed.
fn rank<T: Copy + Default>(sorted: &[T], percent: usize) -> T {
    let at = (sorted.len() * percent).div_ceil(100).saturating_sub(1);
    sorted.get(at).copied().unwrap_or_default()
}
