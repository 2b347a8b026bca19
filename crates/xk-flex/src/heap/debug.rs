//! The debug mode of a heap (`bpf/xk_heap_debug.bpf.h`): what is wrong with its objects, and which lines allocated them.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::Ordering::{self, SeqCst};

use libbpf_rs::{MapCore, MapFlags, MapHandle};

use super::{layout, refused, Heap};
use crate::Error;

/// The map with the lines that allocate and free. Only objects in debug mode have it.
pub const LINES: &str = ".rodata.xk_heap_lines";
/// The line with the number 0, which stands for user space.
const FIRST: &[u8] = b"xk_heap_lines\0";
/// The number of user space.
const USER: u32 = 0;

/// What lies where in a block: `struct xk_heap_debug`, and the object behind it.
const FREED_BY: u64 = 4;
const STATE: u64 = 8;
const ASKED: u64 = 16;
const BEFORE: u64 = 24;
const HEADER: u64 = 32;
const AROUND: u64 = HEADER + 16;

const LIVE: u64 = 0x6c69_7665;
const CHANGING: u64 = 0x6275_7379;
const FREED: u64 = 0x6672_6565;

const RED: u64 = 0xbbcb_dbeb_fb8b_9bab;
const POISON: u64 = 0x6b6b_6b6b_6b6b_6b6b;
/// So many bytes of an object are poisoned at most.
const POISONED: u64 = 64 * 8;

/// `struct xk_heap_damage`, one of each kind, and the block of what is no object.
const DAMAGES: u64 = 4096 + 2048;
const DAMAGE_BYTES: u64 = 48;
const NO_BLOCK: u64 = 4096 + 3072;

/// What is wrong with an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum DamageKind {
    /// Somebody wrote behind it.
    Behind,
    /// Somebody wrote before it.
    Before,
    /// Somebody wrote into it after it was freed.
    After,
    /// It was freed again.
    Twice,
    /// What was freed is no object, or its header is destroyed.
    Nothing,
}

impl DamageKind {
    /// By their numbers in the header.
    const ALL: [Self; 5] = [Self::Behind, Self::Before, Self::After, Self::Twice, Self::Nothing];

    /// The object was freed before.
    fn is_of_freed(self) -> bool {
        matches!(self, Self::After | Self::Twice)
    }
}

impl fmt::Display for DamageKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Behind => "written behind an object",
            Self::Before => "written before an object",
            Self::After => "written into an object after it was freed",
            Self::Twice => "an object freed again",
            Self::Nothing => "freed what is no object",
        })
    }
}

/// An object of a heap in debug mode.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DebugObject {
    /// Its address.
    pub address: u64,
    /// Bytes that were asked for.
    pub size: u64,
    /// The line that allocated it, as `FILE:LINE`, or `user space`.
    pub allocated: String,
    /// The line that freed it, if it was freed. Of what was freed again, the line that freed it first.
    pub freed: Option<String>,
}

/// Something that is wrong with an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Damage {
    /// What.
    pub kind: DamageKind,
    /// Where it begins, or what was freed.
    pub address: u64,
    /// The object. Of what was freed and is no object, the one in which it is; nothing if it is in none.
    pub object: Option<DebugObject>,
    /// The line whose call found it; nothing if [`Heap::damaged`] did.
    pub found: Option<String>,
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {:#x}", self.kind, self.address)?;
        if let Some(object) = &self.object {
            write!(f, ": {} bytes at {:#x}, allocated by {}", object.size, object.address, object.allocated)?;
            if let Some(freed) = &object.freed {
                write!(f, ", freed by {freed}")?;
            }
        }
        self.found.iter().try_for_each(|found| write!(f, "; found by {found}"))
    }
}

/// What programs have found of one kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Damages {
    /// What.
    pub kind: DamageKind,
    /// How often.
    pub count: u64,
    /// The first time; nothing while it is being noted.
    pub first: Option<Damage>,
}

/// The live objects that one line has allocated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Site {
    /// `FILE:LINE`, or `user space`.
    pub line: String,
    /// How many.
    pub objects: u64,
    /// Bytes that were asked for.
    pub bytes: u64,
}

/// The lines of an object that allocate and free.
#[derive(Debug)]
pub struct Lines {
    texts: Vec<u8>,
    /// Where the one with the number 0 is.
    first: usize,
}

impl Lines {
    /// What is in the map.
    pub fn read(map: &MapHandle) -> Result<Self, Error> {
        let texts = map.lookup(&0_u32.to_ne_bytes(), MapFlags::ANY).map_err(refused)?.unwrap_or_default();
        let first = texts.windows(FIRST.len()).position(|text| text == FIRST);
        let first = first.ok_or_else(|| Error::Heap(format!("{LINES} has no xk_heap_lines")))?;
        Ok(Self { texts, first })
    }

    /// A line, as `FILE:LINE`. A program may have destroyed the number.
    fn name(&self, number: u32) -> String {
        if number == USER {
            return "user space".into();
        }
        // It may be in front of the first one.
        let at = (self.first as u64).wrapping_add_signed(i64::from(number as i32));
        let text = usize::try_from(at).ok().and_then(|at| self.texts.get(at..));
        let text = text.and_then(|text| text.split(|byte| *byte == 0).next()).filter(|text| text.contains(&b':'));
        text.map_or_else(|| format!("an unknown line ({number:#x})"), |text| String::from_utf8_lossy(text).into_owned())
    }
}

/// An object or a freed one, with what surrounds it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Block {
    offset: u64,
    bytes: u64,
    state: u64,
    asked: u64,
}

impl Block {
    fn size(self) -> u64 {
        self.asked & 0xffff_ffff
    }

    fn is(self, state: u64) -> bool {
        self.state >> 32 == state
    }

    /// How many of its bytes are poisoned when it is freed: a word at least.
    fn poisoned(self) -> u64 {
        self.size().next_multiple_of(8).min(self.bytes - AROUND + 8).clamp(8, POISONED)
    }

    /// Where the red zone behind it begins: its first word, and the bytes of this word that are not in the zone.
    fn end(self) -> (u64, u64) {
        (self.offset + HEADER + self.size() / 8 * 8, self.size() % 8)
    }
}

/// The number of a line, in the lower half of a state.
fn line(state: u64) -> u32 {
    (state & 0xffff_ffff) as u32
}

/// The first byte in which words differ.
fn byte(difference: u64) -> u64 {
    u64::from(difference.trailing_zeros() / 8)
}

impl Heap<'_> {
    /// The macro with which an object has a heap in debug mode.
    pub const DEBUG: &'static str = "XK_HEAP_DEBUG";

    /// Whether it is in debug mode. Else [`Self::damages`], [`Self::damaged`] and [`Self::sites`] find nothing.
    #[must_use]
    pub fn is_debug(&self) -> bool {
        self.lines.is_some()
    }

    /// What programs and user space found when they allocated and freed: how often, and the first one of each kind.
    #[must_use]
    pub fn damages(&self) -> Vec<Damages> {
        let Some(lines) = &self.lines else { return Vec::new() };
        let all = DamageKind::ALL.into_iter().zip(0..).map(|(kind, number)| (kind, DAMAGES + number * DAMAGE_BYTES));
        let noted = all.map(|(kind, at)| Damages { kind, count: self.load(at), first: self.noted(kind, at, lines) });
        noted.filter(|damages| damages.count > 0).collect()
    }

    /// A `struct xk_heap_damage`.
    fn noted(&self, kind: DamageKind, at: u64, lines: &Lines) -> Option<Damage> {
        let [object, address, size, by, found] = [8, 16, 24, 32, 40].map(|word| self.load(at + word));
        if object == 0 {
            return None;
        }
        let is_known = object != self.words.address(NO_BLOCK + HEADER);
        let object = is_known.then(|| DebugObject {
            address: object,
            size,
            allocated: lines.name(line(by)),
            freed: kind.is_of_freed().then(|| lines.name(line(by >> 32))),
        });
        Some(Damage { kind, address, object, found: Some(lines.name(line(found))) })
    }

    /// What is wrong with the objects of the heap now: all of them are compared with what they must be. What programs
    /// change meanwhile is left out.
    #[must_use]
    pub fn damaged(&self) -> Vec<Damage> {
        let Some(lines) = &self.lines else { return Vec::new() };
        let mut all = Vec::new();
        self.each_block(|block| {
            let found = self.compare(block);
            if !found.is_empty() && self.block(block.offset, block.bytes) == Some(block) {
                let object = DebugObject {
                    address: self.words.address(block.offset + HEADER),
                    size: block.size(),
                    allocated: lines.name(line(block.state)),
                    freed: block.is(FREED).then(|| lines.name(self.freed_by(block.offset))),
                };
                all.extend(found.into_iter().map(|(kind, at)| {
                    let address = self.words.address(at);
                    Damage { kind, address, object: Some(object.clone()), found: None }
                }));
            }
        });
        all
    }

    /// The live objects by the line that allocated them, the line with most bytes first. While programs run, it is what
    /// was there when each object was looked at.
    #[must_use]
    pub fn sites(&self) -> Vec<Site> {
        let Some(lines) = &self.lines else { return Vec::new() };
        let mut by_line: BTreeMap<String, (u64, u64)> = BTreeMap::new();
        self.each_block(|block| {
            if block.is(LIVE) {
                let (objects, bytes) = by_line.entry(lines.name(line(block.state))).or_default();
                (*objects, *bytes) = (*objects + 1, *bytes + block.size());
            }
        });
        let sites = by_line.into_iter().map(|(line, (objects, bytes))| Site { line, objects, bytes });
        let mut sites: Vec<Site> = sites.collect();
        sites.sort_by_key(|site| std::cmp::Reverse((site.bytes, site.objects)));
        sites
    }

    fn load(&self, offset: u64) -> u64 {
        self.words.at(offset).load(SeqCst)
    }

    fn store(&self, offset: u64, word: u64) {
        self.words.at(offset).store(word, SeqCst);
    }

    fn freed_by(&self, block: u64) -> u32 {
        self.words.half(block + FREED_BY).load(Ordering::Relaxed)
    }

    /// Calls this with each object and each freed one.
    fn each_block(&self, mut see: impl FnMut(Block)) {
        let end = self.load(layout::FRESH).min(self.ready.load(Ordering::Acquire));
        let mut span = layout::first_span(self.cpus);
        while span + layout::SPAN <= end {
            let bytes = self.class_at(span).map_or(layout::SPAN, layout::size);
            let all = bytes.next_multiple_of(layout::SPAN);
            if span + all <= end {
                (0..all / bytes).filter_map(|number| self.block(span + number * bytes, bytes)).for_each(&mut see);
            }
            span += all;
        }
    }

    /// An object or a freed one; nothing if this never was one, or changes just now.
    fn block(&self, offset: u64, bytes: u64) -> Option<Block> {
        let [state, asked] = [STATE, ASKED].map(|word| self.load(offset + word));
        let block = Block { offset, bytes, state, asked };
        // Of another class, a freed one may be larger.
        let is_block = block.is(FREED) || block.is(LIVE) && block.size() / 8 * 8 + AROUND <= bytes;
        (is_block && bytes >= AROUND).then_some(block)
    }

    /// What is wrong with it, and where.
    fn compare(&self, block: Block) -> Vec<(DamageKind, u64)> {
        if block.is(FREED) {
            let start = block.offset + HEADER;
            let words = (start..start + block.poisoned()).step_by(8);
            let written = words.map(|at| (at, self.load(at) ^ POISON)).find(|(_, difference)| *difference != 0);
            return written.map(|(at, difference)| (DamageKind::After, at + byte(difference))).into_iter().collect();
        }
        let (end, own) = block.end();
        let [before, first, second] = [block.offset + BEFORE, end, end + 8].map(|at| self.load(at) ^ RED);
        let first = first >> (8 * own);
        let behind = match (first, second) {
            (0, 0) => None,
            (0, _) => Some(end + 8 + byte(second)),
            _ => Some(end + own + byte(first)),
        };
        let before = (before != 0).then(|| (DamageKind::Before, block.offset + BEFORE + byte(before)));
        before.into_iter().chain(behind.map(|at| (DamageKind::Behind, at))).collect()
    }

    /// Counts damage, and notes the first one of a kind, as programs do.
    fn report(&self, kind: DamageKind, block: u64, at: u64) {
        let damage = DAMAGES + kind as u64 * DAMAGE_BYTES;
        if self.words.at(damage).fetch_add(1, SeqCst) == 0 {
            let [state, asked] = [STATE, ASKED].map(|word| self.load(block + word));
            self.store(damage + 16, self.words.address(at));
            self.store(damage + 24, asked & 0xffff_ffff);
            self.store(damage + 32, u64::from(self.freed_by(block)) << 32 | u64::from(line(state)));
            self.store(damage + 40, USER.into());
            self.store(damage + 8, self.words.address(block + HEADER));
        }
    }

    /// [`Self::allocate`] in debug mode.
    pub(super) fn allocate_debug(&self, size: u64) -> Option<u64> {
        let address = self.take((size / 8 * 8).checked_add(AROUND)?)?;
        let offset = self.offset(address, 16)?;
        let bytes = layout::size(self.class_at(offset)?);
        if let Some(block) = self.block(offset, bytes).filter(|block| block.is(FREED)) {
            self.compare(block).into_iter().for_each(|(kind, at)| self.report(kind, offset, at));
        }
        self.store(offset + STATE, CHANGING << 32);
        let asked = ((self.load(offset + ASKED) >> 32) + 1) << 32 | size;
        let block = Block { offset, bytes, state: LIVE << 32 | u64::from(USER), asked };
        let (end, _) = block.end();
        self.store(offset + ASKED, asked);
        [offset + BEFORE, end, end + 8].into_iter().for_each(|at| self.store(at, RED));
        self.store(offset + STATE, block.state);
        Some(address + HEADER)
    }

    /// [`Self::free`] in debug mode.
    pub(super) fn free_debug(&self, address: u64) -> Result<(), Error> {
        let wrong = |kind: DamageKind, block: u64, offset: u64| {
            self.report(kind, block, offset);
            Error::Heap(format!("{kind} at {address:#x}"))
        };
        let outside = || Error::Heap(format!("{address:#x}: no object of the heap begins there"));
        let offset = self.offset(address, 16).ok_or_else(outside)?;
        let start = offset.checked_sub(HEADER).ok_or_else(outside)?;
        let Some(class) = self.class_at(start) else { return Err(wrong(DamageKind::Nothing, NO_BLOCK, offset)) };
        let bytes = layout::size(class);
        let inside = start % layout::SPAN % bytes;
        let Some(block) = self.block(start, bytes).filter(|_| inside == 0) else {
            return Err(wrong(DamageKind::Nothing, start - inside, offset));
        };
        let changing = CHANGING << 32 | u64::from(line(block.state));
        let state = self.words.at(start + STATE);
        if !block.is(LIVE) || state.compare_exchange(block.state, changing, SeqCst, SeqCst).is_err() {
            return Err(wrong(DamageKind::Twice, start, offset));
        }
        self.compare(block).into_iter().for_each(|(kind, at)| self.report(kind, start, at));
        (start + HEADER..start + HEADER + block.poisoned()).step_by(8).for_each(|at| self.store(at, POISON));
        self.words.half(start + FREED_BY).store(USER, Ordering::Relaxed);
        self.store(start + STATE, FREED << 32 | u64::from(line(block.state)));
        self.push(class, start);
        Ok(())
    }
}
