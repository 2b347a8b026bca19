//! From the critical spans of a table to its safe spans.
//!
//! In: a finished table, the address space. Out: scopes, mode and escapes, written into
//! the table; functions that only hold safe spans are added to it.

use std::collections::{BTreeMap, BTreeSet};

use iced_x86::{Decoder, DecoderOptions};
use xk_table::{
    AsmLine, CriticalSpan, Escape, Exit, ExitKind, Function, Mode, OpCode, Place, Refusal, Scope, ScopeTable, When,
};

use crate::error::ConfineError;
use crate::frame::Act;
use crate::graph::{Callee, Node};
use crate::life::life;
use crate::location::{Locations, RegisterSet};
use crate::slice::{Sources, Use};
use crate::text::address;
use crate::walk::{Found, Reach, Walk};
use crate::world::World;

/// Frames that threads run in without an end, and outermost frames. As scopes, they would
/// hardly ever be empty.
const NEVER_LEFT: [&str; 20] = [
    "do_idle",
    "cpu_startup_entry",
    "start_secondary",
    "rest_init",
    "start_kernel",
    "schedule",
    "__schedule",
    "schedule_idle",
    "ret_from_fork",
    "ret_from_fork_asm",
    "kthread",
    "smpboot_thread_fn",
    "worker_thread",
    "kswapd",
    "kcompactd",
    "rcu_gp_kthread",
    "x64_sys_call",
    "do_syscall_64",
    "entry_SYSCALL_64",
    "asm_exc_page_fault",
];

/// The part of the code that a critical span itself is: function and offsets.
struct Own {
    start: u64,
    end: u64,
}

/// Computes the safe spans of `table`, in place of those that it has.
///
/// # Errors
/// When a function of the table is not in the address space; when a number that is tested for order comes from
/// somewhere that cannot be followed.
pub fn scopes(walk: &mut Walk<'_>, table: &mut ScopeTable) -> Result<(), ConfineError> {
    walk.forget();
    table.functions.truncate(own_functions(table));
    (table.scopes, table.escapes, table.mode) = (Vec::new(), Vec::new(), Mode::Now);
    let addresses = table.functions.iter().map(|function| address(walk.world, function)).collect::<Result<Vec<_>, _>>();
    let addresses = addresses?;
    let mut escapes: BTreeSet<Escape> = table.data.iter().map(data_escape).collect();
    let mut pieces = Pieces::default();
    for (index, span) in table.spans.iter().enumerate() {
        let base = addresses[span.function];
        let own = own(base, span);
        let (root, reach) = reach(walk, base, span, &own);
        table.mode = table.mode.max(mode(root, &own, &reach));
        pieces.add(walk, index, &own, &reach);
        escapes.extend(reach.escapes);
        for line in span.assembly.iter().filter(|line| line.order.is_some()) {
            let life = life(walk, root, base + u64::from(line.offset))
                .map_err(|why| outlives(&table.functions[span.function], line, &why.to_string()))?;
            table.mode = table.mode.max(Mode::Task);
            for (root, alive) in life {
                pieces.add_frame(walk, root, &Found { alive, ..Found::default() }, index);
            }
        }
    }
    pieces.finish(walk, table, addresses, &mut escapes);
    table.escapes = escapes.into_iter().map(|escape| with_source(escape, &table.functions)).collect();
    // What is near comes first.
    table.escapes.sort_by_key(|escape| !escape.place.ends_with(')'));
    Ok(())
}

/// A number may have passed the value when the update that tests for order is removed.
fn outlives(function: &Function, line: &AsmLine, why: &str) -> Refusal {
    let place = Place { source: function.source.clone(), function: function.symbol.clone(), offset: line.offset };
    let detail = format!("the code tests a number for equality that may have passed the value before a change: {why}");
    Refusal::EmptyRange { place, detail }
}

/// Functions that hold critical spans; those after were added for safe spans.
fn own_functions(table: &ScopeTable) -> usize {
    table.spans.iter().map(|span| span.function + 1).max().unwrap_or(0)
}

fn data_escape(data: &xk_table::DataSite) -> Escape {
    Escape {
        place: format!("{}+{:#x} ({})", data.symbol, data.offset, data.source),
        field: data.symbol.clone(),
        reason: "the value stays in memory; code that has read it keeps what it read".into(),
    }
}

fn own(base: u64, span: &CriticalSpan) -> Own {
    let site = &span.indirection;
    let behind = site.offset + if site.when == When::Before { 0 } else { u32::from(site.insn_len) };
    Own { start: base + u64::from(span.start), end: base + u64::from(span.end.max(behind)) }
}

/// What a critical span reaches, and the function that opens its frame.
fn reach(walk: &mut Walk<'_>, base: u64, span: &CriticalSpan, own: &Own) -> (u64, Reach) {
    let root = walk.root(base);
    let at = base + u64::from(span.indirection.offset);
    let mut outputs = Locations::default();
    for op in &span.indirection.program.ops {
        match op.code {
            OpCode::SetReg => outputs.registers |= RegisterSet::of(usize::from(op.dst & 15)),
            OpCode::SetFlags => outputs.flags |= flags(op.imm as u64),
            _ => {}
        }
    }
    let mut sources = Sources::default();
    match span.indirection.when {
        When::Before => sources.before.insert(at, outputs),
        _ => sources.after.insert(at, outputs),
    };
    let mut unknown = false;
    if span.indirection.program.stores() {
        sources.stores = stores(walk, root, own);
        unknown = sources.stores.is_empty();
    }
    let mut reach = walk.follow(root, sources);
    if unknown {
        reach.memory = true;
        reach.escapes.insert(Escape {
            place: walk.world.place_name(at),
            field: "memory".into(),
            reason: "the update writes to it, and no instruction of the span gives the address".into(),
        });
    }
    (root, reach)
}

/// Flags as iced numbers them.
fn flags(rflags: u64) -> u32 {
    use iced_x86::RflagsBits as B;
    let bits = [(0, B::CF), (2, B::PF), (4, B::AF), (6, B::ZF), (7, B::SF), (11, B::OF)];
    bits.iter().filter(|(bit, _)| rflags >> bit & 1 == 1).fold(0, |flags, (_, flag)| flags | flag)
}

/// The instructions of a critical span that store.
fn stores(walk: &mut Walk<'_>, root: u64, own: &Own) -> BTreeSet<u64> {
    let Ok(frame) = walk.frame(root) else { return BTreeSet::new() };
    let nodes = frame.graph.nodes.iter().zip(&frame.acts);
    let stores = nodes.filter(|(node, act)| {
        let writes = matches!(act, Act::Plain(effect)
            if !effect.stores.is_empty() || !effect.writes.slots.is_empty() || effect.writes.slots_from.is_some());
        writes && (own.start..own.end).contains(&node.insn.ip())
    });
    stores.map(|(node, _)| node.insn.ip()).collect()
}

/// The weakest mode that keeps the promise for one critical span.
fn mode(root: u64, own: &Own, reach: &Reach) -> Mode {
    if reach.memory {
        return Mode::Global;
    }
    let Some(found) = reach.frames.get(&root).filter(|found| reach.frames.len() == 1 && found.whole.is_none()) else {
        return Mode::Task;
    };
    let outside = |at: &&u64| !(own.start..own.end).contains(*at);
    let uses: Vec<(&u64, &Use)> = found.uses.iter().filter(|(at, _)| outside(at)).collect();
    let consumed = match uses[..] {
        [] => own.end,
        [(&at, Use::Branch)] => at,
        _ => return Mode::Task,
    };
    // Nothing is alive after the branch, nor where the code goes otherwise.
    let straight = found.alive.iter().filter(outside).all(|&at| at >= own.end && at <= consumed);
    if straight && reach.escapes.is_empty() {
        Mode::Now
    } else {
        Mode::Task
    }
}

/// Byte ranges of a function by critical span.
#[derive(Default)]
struct Pieces {
    /// By the part of a function that holds them: ranges and the span.
    parts: BTreeMap<u64, Vec<(u64, u64, usize)>>,
    whole: BTreeMap<u64, String>,
    /// Functions that open the frames, by part.
    roots: BTreeMap<u64, u64>,
}

impl Pieces {
    fn add(&mut self, walk: &mut Walk<'_>, index: usize, own: &Own, reach: &Reach) {
        let world = walk.world;
        self.range(world, own.start, own.end, index);
        for (&root, found) in &reach.frames {
            if let Some(why) = &found.whole {
                self.add_whole(walk, root, own, index, why);
            } else {
                self.add_frame(walk, root, found, index);
            }
        }
    }

    fn range(&mut self, world: &World, start: u64, end: u64, index: usize) -> Option<u64> {
        let part = world.function_of(start)?.start;
        self.parts.entry(part).or_default().push((start, end, index));
        Some(part)
    }

    fn add_frame(&mut self, walk: &mut Walk<'_>, root: u64, found: &Found, index: usize) {
        let Ok(frame) = walk.frame(root) else { return };
        for &at in found.alive.iter().filter(|at| !walk.world.is_over(**at)) {
            let Some(node) = frame.graph.at(at).map(|at| &frame.graph.nodes[at]) else { continue };
            let (start, end) = match walk.world.patches.replaced(at) {
                Some(site) => site,
                None => (at, node.insn.next_ip()),
            };
            if let Some(part) = self.range(walk.world, start, end, index) {
                self.roots.insert(part, root);
            }
        }
    }

    /// A function that could not be followed, with the part that holds the span.
    fn add_whole(&mut self, walk: &Walk<'_>, root: u64, own: &Own, index: usize, why: &str) {
        let home = walk.world.function_of(own.start).map(|function| function.start);
        let parts = [Some(root), home.filter(|&home| walk.root(home) == root)];
        for part in parts.into_iter().flatten().collect::<BTreeSet<u64>>() {
            let Some(function) = walk.world.function_at(part) else { continue };
            self.parts.entry(part).or_default().push((function.start, function.end, index));
            self.whole.insert(part, why.to_owned());
        }
    }

    fn finish(
        self,
        walk: &mut Walk<'_>,
        table: &mut ScopeTable,
        mut addresses: Vec<u64>,
        escapes: &mut BTreeSet<Escape>,
    ) {
        for (part, pieces) in self.parts {
            let index = addresses.iter().position(|&known| known == part).unwrap_or_else(|| {
                addresses.push(part);
                table.functions.push(crate::text::function(walk.world, part));
                table.functions.len() - 1
            });
            let length = (table.functions[index].bytes.len() / 2) as u64;
            if let Some(function) = walk.world.function_at(part) {
                escapes.extend(
                    function
                        .names
                        .iter()
                        .filter(|name| NEVER_LEFT.contains(&name.as_str()))
                        .map(|name| never_left(name)),
                );
            }
            let whole = self.whole.get(&part);
            let root = self.roots.get(&part).copied().unwrap_or(part);
            for (ranges, spans) in merged(pieces) {
                let ranges = ranges.into_iter().map(|(start, end)| (start, end.min(part + length)));
                let ranges: Ranges = ranges.filter(|(start, end)| start < end).collect();
                let exits = if whole.is_some() { Vec::new() } else { exits(walk, root, part, &ranges) };
                table.scopes.push(Scope {
                    function: index,
                    instructions: instructions(walk.world, &ranges),
                    ranges: ranges.iter().map(|&(start, end)| [(start - part) as u32, (end - part) as u32]).collect(),
                    spans,
                    exits,
                    whole: whole.cloned(),
                });
            }
        }
        table.scopes.sort_by(|a, b| (&a.spans, a.function, &a.ranges).cmp(&(&b.spans, b.function, &b.ranges)));
    }
}

fn never_left(name: &str) -> Escape {
    Escape {
        place: name.to_owned(),
        field: "its frame".into(),
        reason:
            "never left: threads run in it without an end, or it is the outermost frame; a transition may not complete"
                .into(),
    }
}

/// Addresses, the start included and the end not.
type Ranges = Vec<(u64, u64)>;

/// Safe spans of one function: those of several critical spans that overlap are one.
fn merged(pieces: Vec<(u64, u64, usize)>) -> Vec<(Ranges, Vec<usize>)> {
    let mut groups: Vec<(BTreeSet<usize>, Ranges)> = Vec::new();
    let mut by_span: BTreeMap<usize, Ranges> = BTreeMap::new();
    for (start, end, span) in pieces {
        by_span.entry(span).or_default().push((start, end));
    }
    for (span, ranges) in by_span {
        let meets = |others: &[(u64, u64)]| {
            others.iter().any(|&(s, e)| ranges.iter().any(|&(start, end)| start < e && s < end))
        };
        let (same, others): (Vec<_>, Vec<_>) = groups.into_iter().partition(|(_, known)| meets(known));
        let mut group = (BTreeSet::from([span]), ranges);
        for (spans, ranges) in same {
            group.0.extend(spans);
            group.1.extend(ranges);
        }
        groups = others;
        groups.push(group);
    }
    groups.into_iter().map(|(spans, ranges)| (joined(ranges), spans.into_iter().collect())).collect()
}

/// Sorted, with those that touch made one.
fn joined(mut ranges: Ranges) -> Ranges {
    ranges.sort_unstable();
    let mut result = Ranges::new();
    for (start, end) in ranges {
        match result.last_mut() {
            Some((_, last)) if start <= *last => *last = end.max(*last),
            _ => result.push((start, end)),
        }
    }
    result
}

fn instructions(world: &World, ranges: &[(u64, u64)]) -> u32 {
    let count = |&(start, end): &(u64, u64)| {
        let Some(bytes) = world.read(start, (end - start) as usize) else { return 0 };
        Decoder::with_ip(64, bytes, start, DecoderOptions::NONE).into_iter().count()
    };
    ranges.iter().map(count).sum::<usize>() as u32
}

/// How control leaves `ranges`, which lie in the function at `part`.
fn exits(walk: &mut Walk<'_>, root: u64, part: u64, ranges: &[(u64, u64)]) -> Vec<Exit> {
    let Ok(frame) = walk.frame(root) else { return Vec::new() };
    let world = walk.world;
    let inside = |at: u64| ranges.iter().any(|&(start, end)| (start..end).contains(&at));
    let mut exits = BTreeSet::new();
    for node in frame.graph.nodes.iter().filter(|node| inside(node.site)) {
        let mut leave = |kind, to| exits.insert(Exit { offset: (node.site - part) as u32, kind, to });
        if node.returns {
            leave(ExitKind::Return, None);
        }
        if let Some(callee) = node.tail {
            leave(ExitKind::Tail, called(world, callee));
        }
        if let (true, Some(callee)) = (node.stops, node.call) {
            leave(ExitKind::Noreturn, called(world, callee));
        }
        for &next in &node.next {
            let to = &frame.graph.nodes[next];
            if !inside(to.site) {
                leave(
                    if falls(node, to) { ExitKind::Dead } else { ExitKind::Branch },
                    Some(target(world, part, to.site)),
                );
            }
        }
    }
    exits.into_iter().collect()
}

fn falls(node: &Node, to: &Node) -> bool {
    node.insn.next_ip() == to.insn.ip() || node.site != node.insn.ip()
}

fn target(world: &World, part: u64, at: u64) -> String {
    match world.function_of(at) {
        Some(function) if function.start != part => format!("{}{:+#x}", function.name(), at - function.start),
        _ => format!("{:+#x}", at.wrapping_sub(part)),
    }
}

fn called(world: &World, callee: Callee) -> Option<String> {
    match callee {
        Callee::Direct(address) => world.function_at(address).map(|function| function.name().to_owned()),
        Callee::Indirect => None,
    }
}

/// Names the source file of a place, where it is known.
fn with_source(mut escape: Escape, functions: &[Function]) -> Escape {
    let symbol = escape.place.split(['+', ' ']).next().unwrap_or_default();
    let known = functions.iter().find(|function| function.symbol == symbol && !function.source.is_empty());
    if let Some(function) = known.filter(|_| !escape.place.contains('(')) {
        escape.place = format!("{} ({})", escape.place, function.source);
    }
    escape
}
