//! A hundred places of code that change and change back, again and again, while the kernel
//! is busy there and elsewhere; and whether every byte of it is then what it was.
//!
//! In: a guest with `kernel/atomic` and `kernel/test` loaded. Out: what was done, and where
//! code differs. Refuses a round in which a site is not what it was to become.

use std::fs;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::{anyhow, ensure, Context, Result};
use serde::{Deserialize, Serialize};
use xk_kernel::Image;
use xk_runtime::{AddressOf, Backend, Mode, Probe};
use xk_table::{CriticalSpan, Function, InPlace, Mode as Needed, Patch, Range, Scope, ScopeTable};

use crate::family::{empty_table, function, site, table, Loaded, FAMILIES};
use crate::load::{beside_load, Done};
use crate::{Atomic, Flipper};

/// Sites altogether.
pub const SITES: usize = 100;
/// Functions of this name, and a number behind it.
const SEVERAL: &str = "xk_target_several_";
const SOURCE: &str = "kernel/test/target_several.S";
const PROC: &str = "/proc/xk_target";
/// What their constant is, how often they have it together, and in how many bytes.
const DEFAULT: i64 = 32;
const CONSTANTS: i64 = 16 * 16;
const EACH: u32 = 12;
/// Sites in each of them.
const PER_FUNCTION: usize = 8;
/// Every other one is a site.
const STRIDE: u32 = 2 * EACH;
const MOVE_LEN: u8 = 5;
const LEA_LEN: u8 = 7;
const RDX: u8 = 2;
const TIMEOUT: Duration = Duration::from_secs(120);
/// Within which the kernel takes back what it changes when it is busy, such as jump labels.
const CALM: Duration = Duration::from_secs(60);
/// Differences that are told one by one.
const TOLD: usize = 20;

/// What came of it.
#[derive(Debug, Serialize, Deserialize)]
pub struct Outcome {
    /// In which all sites were armed, had another value, and were disarmed.
    pub rounds: u32,
    /// Armed at once.
    pub sites: usize,
    /// Bytes that were compared: all text of vmlinux, and the functions of the sites.
    pub compared: usize,
    /// Where one differs, by symbol.
    pub different: Vec<String>,
    /// Executions of spans meanwhile, by threads, softirqs, interrupts and NMIs.
    pub executions: u64,
    /// Two values met.
    pub violations: u64,
    /// What was done beside the rounds, and how often.
    #[serde(flatten)]
    pub done: Done,
    /// From the first round to the last, in the guest's time.
    pub seconds: f64,
    /// Of these: until all sites were armed, had the other value, were disarmed.
    pub stages: Stages,
}

/// Seconds of the guest's time.
#[derive(Debug, Default, Clone, Copy, Serialize, Deserialize)]
pub struct Stages {
    /// Verified and armed.
    pub arm: f64,
    /// One transition.
    pub change: f64,
    /// Another, to the default, and disarmed.
    pub disarm: f64,
}

/// What is to be done.
#[derive(Debug, Clone, Copy)]
pub struct Rounds<'a> {
    /// `xk_atomic.ko`, which is loaded.
    pub atomic: &'a Path,
    /// `xk_target.ko`, likewise.
    pub target: &'a Path,
    /// One after the other.
    pub backends: &'a [Backend],
    /// At most so many.
    pub rounds: u32,
    /// At most for so long.
    pub time: Duration,
}

/// One constant: those of `kernel/atomic`, and as many of `xk_target_several_0` and so on as make a hundred
/// sites. As one, since then a round is a few stops, and not a few for each.
fn hundred(atomic: &Path, target: &Path) -> Result<ScopeTable> {
    let mut all = empty_table("HUNDRED", DEFAULT, Needed::Global);
    for family in &FAMILIES {
        add(&mut all, table(atomic, family)?);
    }
    for number in 0.. {
        let sites = SITES.saturating_sub(all.spans.len()).min(PER_FUNCTION);
        if sites == 0 {
            break;
        }
        add_several(&mut all, function(target, &format!("{SEVERAL}{number}"), SOURCE)?, sites)?;
    }
    Ok(all)
}

/// So many sites of a function.
fn add_several(all: &mut ScopeTable, function: Function, sites: usize) -> Result<()> {
    let (index, first) = (all.functions.len(), all.spans.len());
    let whole = [0, u32::try_from(function.bytes.len() / 2)?];
    all.functions.push(function);
    for number in 0..u32::try_from(sites)? {
        // mov $32,%edx; lea 0(%rax,%rdx),%eax
        let mov = 2 + STRIDE * number;
        let mut span = site(index, mov + u32::from(MOVE_LEN), LEA_LEN);
        span.start = mov;
        span.indirection.window = LEA_LEN;
        span.indirection.program.ops[1].dst = RDX;
        let patch = Patch { offset: mov, insn_len: MOVE_LEN, field: 1, size: 4, width: 4, iv: 0 };
        let held = InPlace { patches: vec![patch], range: Range::of(0, 1_000_000), proof: span.proof.clone() };
        span.in_place = Some(held);
        all.spans.push(span);
    }
    let spans = (first..all.spans.len()).collect();
    all.scopes.push(Scope { function: index, ranges: vec![whole], spans, ..Scope::default() });
    Ok(())
}

/// What `table` has, behind what is there.
fn add(all: &mut ScopeTable, table: ScopeTable) {
    let (functions, spans) = (all.functions.len(), all.spans.len());
    all.functions.extend(table.functions);
    all.spans.extend(table.spans.into_iter().map(|span| CriticalSpan { function: functions + span.function, ..span }));
    all.scopes.extend(table.scopes.into_iter().map(|scope| Scope {
        function: functions + scope.function,
        spans: scope.spans.iter().map(|span| spans + span).collect(),
        ..scope
    }));
}

/// All text of vmlinux, and functions, where they are.
struct Snapshot(Vec<(u64, Vec<u8>)>);

impl Snapshot {
    fn of(functions: &[&Function]) -> Result<Self> {
        let image = Image::live()?;
        let range = image.text_range();
        let mut text = vec![(range.start, image.read(range.start, (range.end - range.start) as usize)?)];
        for function in functions {
            let address = Loaded.address(function).map_err(|e| anyhow!(e))?.context("its module is not loaded")?;
            text.push((address, image.read(address, function.bytes.len() / 2)?));
        }
        Ok(Self(text))
    }

    fn len(&self) -> usize {
        self.0.iter().map(|(_, bytes)| bytes.len()).sum()
    }

    /// Where a later one differs, by symbol.
    fn differences(&self, later: &Self) -> Result<Vec<String>> {
        let image = Image::live()?;
        let mut different = Vec::new();
        for ((start, old), (_, new)) in self.0.iter().zip(&later.0) {
            for at in (0..old.len()).filter(|&at| old.get(at) != new.get(at)).take(TOLD) {
                let address = start + at as u64;
                let place = match image.text_symbol_at(address) {
                    Some(symbol) => format!("{}+{:#x}", symbol.name, address - symbol.address),
                    None => format!("{address:#x}"),
                };
                different.push(format!("{place}: {:02x} was {:02x}", new[at], old[at]));
            }
        }
        Ok(different)
    }
}

/// What is different as long as the kernel is given time to calm down.
fn lasting_differences(before: &Snapshot, functions: &[&Function]) -> Result<Vec<String>> {
    let start = Instant::now();
    loop {
        let different = before.differences(&Snapshot::of(functions)?)?;
        if different.is_empty() || start.elapsed() > CALM {
            return Ok(different);
        }
        std::thread::sleep(Duration::from_secs(1));
    }
}

/// Does it: with the load, so many rounds by each of the backends in turn.
///
/// # Errors
/// When the kernel refuses, or a site is not what it was to become.
pub fn rounds(what: &Rounds<'_>) -> Result<Outcome> {
    let table = hundred(what.atomic, what.target)?;
    let functions: Vec<&Function> = table.functions.iter().collect();
    // What the kernel switches for good when it is first used is switched then.
    beside_load(&Done::default(), || {
        what.backends.iter().try_for_each(|&backend| round(&table, backend, 7, &mut Stages::default()))?;
        std::thread::sleep(Duration::from_secs(3));
        Ok(())
    })?;
    let before = Snapshot::of(&functions)?;
    let executed = Atomic.counts()?;
    let mut done = Done::default();
    let start = Instant::now();
    let mut made = 0;
    let mut stages = Stages::default();
    done.hotplugs = beside_load(&done, || {
        while made < what.rounds && start.elapsed() < what.time {
            let backend = what.backends[made as usize % what.backends.len()];
            round(&table, backend, 40 + i64::from(made % 50), &mut stages).with_context(|| format!("round {made}"))?;
            made += 1;
            if made % 100 == 0 {
                eprintln!("inside: {made} rounds after {:.0} s", start.elapsed().as_secs_f64());
            }
        }
        Ok(())
    })?;
    let seconds = start.elapsed().as_secs_f64();
    let seen = Atomic.counts()?.since(&executed);
    done.over.store(false, Ordering::Relaxed);
    Ok(Outcome {
        rounds: made,
        sites: table.spans.len(),
        compared: before.len(),
        different: lasting_differences(&before, &functions)?,
        executions: seen.spans.values().map(|span| span.rounds).sum(),
        violations: seen.violations(),
        done,
        seconds,
        stages,
    })
}

/// All sites armed, with another value, and disarmed.
fn round(table: &ScopeTable, backend: Backend, value: i64, stages: &mut Stages) -> Result<()> {
    let start = Instant::now();
    let flipper = Flipper::load_tables(std::slice::from_ref(table), backend)?;
    stages.arm += start.elapsed().as_secs_f64();
    let start = Instant::now();
    flipper.to(value, Mode::Global, TIMEOUT)?;
    stages.change += start.elapsed().as_secs_f64();
    let wanted = if backend == Backend::Patch { Probe::Patch } else { Probe::Detour };
    for tune in flipper.tunes() {
        let status = tune.status()?;
        let other = status.sites.iter().find(|site| site.probe != wanted);
        ensure!(other.is_none(), "{}: a site by {backend:?} is {other:?}", status.name);
    }
    let is_several = |span: &&CriticalSpan| table.functions[span.function].symbol.starts_with(SEVERAL);
    let changed = table.spans.iter().filter(is_several).count() as i64;
    check_several(CONSTANTS * DEFAULT + changed * (value - DEFAULT))?;
    let start = Instant::now();
    flipper.unload(Mode::Global, TIMEOUT)?;
    stages.disarm += start.elapsed().as_secs_f64();
    check_several(CONSTANTS * DEFAULT)
}

/// What the functions return together: the sum of their constants.
fn check_several(expected: i64) -> Result<()> {
    let text = fs::read_to_string(PROC).context(PROC)?;
    let several = text.lines().find_map(|line| line.strip_prefix("several ")).context("no line `several`")?;
    ensure!(several == expected.to_string(), "xk_target_several returned {several} instead of {expected}");
    Ok(())
}
