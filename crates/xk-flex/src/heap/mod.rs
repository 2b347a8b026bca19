//! User space's half of a heap (`bpf/xk_heap.bpf.h`): gives it pages, allocates and frees in it, reads it.
//!
//! A program cannot wait for memory. So user space keeps some pages ready that nobody uses yet; a program that takes of
//! them wakes it. Memory is that of the map, and is charged to the control group of who loaded the object.

mod debug;
mod layout;
mod lock;
mod words;

use std::marker::PhantomData;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use libbpf_rs::{AsRawLibbpf, MapCore, MapHandle, MapType, Object as Loader, OpenObject, RingBufferBuilder};
use rustix::event::{poll, PollFd, PollFlags, Timespec};

use crate::Error;
use debug::Lines;
pub use debug::{Damage, DamageKind, Damages, DebugObject, Site};
pub use lock::{Broken, Lock, LockGuard, RwLock};
use words::{Mapping, Words};

/// How long it waits to be woken, at most: another process may have taken memory and not waken.
const WAIT: Duration = Duration::from_millis(100);
/// How many bytes become pages in one step.
const STEP: u64 = 4 << 20;
/// How often a list is tried that somebody else changes.
const TRIES: usize = 1000;

/// How large a heap may be, and what is kept ready.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Bytes that the heap has at most; no more than its map declares.
    pub most: u64,
    /// Bytes that are ready and unused.
    pub ready: u64,
}

impl Default for Limits {
    /// What the map declares, and 4 MiB.
    fn default() -> Self {
        Self { most: u64::MAX, ready: 4 << 20 }
    }
}

/// What became of a heap.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    /// Bytes that have pages.
    pub ready: u64,
    /// Bytes that were handed out as spans, and what the heap itself needs.
    pub used: u64,
    /// Bytes that it may have.
    pub most: u64,
    /// Objects that programs have allocated, and those that they have freed.
    pub allocated: u64,
    /// See there.
    pub freed: u64,
    /// Allocations for which there was no memory.
    pub refused: u64,
    /// Frees of what was not allocated.
    pub invalid: u64,
    /// Objects that no list has taken back, since others were always faster.
    pub lost: u64,
}

/// The heap of a loaded object.
#[derive(Debug)]
pub struct Heap<'a> {
    words: Words,
    wanted: MapHandle,
    /// Bytes that have pages. A program could change the heap's own word of it.
    ready: AtomicU64,
    limits: Limits,
    cpus: u64,
    /// libbpf unmaps it with the object.
    object: PhantomData<&'a Loader>,
    /// If not libbpf has mapped it.
    mapping: Option<Mapping>,
    /// In debug mode.
    lines: Option<Lines>,
}

/// The maps of a heap.
pub(crate) struct Maps {
    arena: MapHandle,
    wanted: MapHandle,
    /// In debug mode.
    lines: Option<MapHandle>,
}

/// Whether the addresses of an object's arena are free in this process: libbpf maps it over what is there.
///
/// # Errors
/// [`Error::Heap`]: they are not.
pub fn check_address(object: &OpenObject) -> Result<(), Error> {
    for map in object.maps().filter(|map| map.map_type() == MapType::Arena) {
        // SAFETY: the pointer is that of a map of an open object, which is borrowed.
        let address = unsafe { libbpf_sys::bpf_map__map_extra(map.as_libbpf_object().as_ptr()) };
        if address != 0 && !words::is_free(address, u64::from(map.max_entries()) * layout::PAGE) {
            let name = map.name().to_string_lossy();
            return Err(Error::Taken { map: name.into(), address });
        }
    }
    Ok(())
}

impl<'a> Heap<'a> {
    /// The heap of an object, with its first pages; nothing if the object has none. [`Self::serve`] gives it more.
    ///
    /// # Errors
    /// [`Error::Heap`]: it is too small, or the kernel gives it no pages.
    pub fn of(object: &'a Loader, limits: Limits) -> Result<Option<Self>, Error> {
        let named = |name: &str| object.maps().find(|map| map.name() == name);
        let handle = |map: libbpf_rs::Map<'_>| MapHandle::try_from(&map).map_err(refused);
        let Some(maps) = Self::maps(|name| named(name).map(handle).transpose())? else { return Ok(None) };
        let heap = Self::new(maps, limits)?;
        let first = layout::first_span(heap.cpus);
        heap.words.populate(layout::PAGE, first)?;
        heap.words.at(layout::LOW).store(limits.ready / 2, Ordering::Relaxed);
        heap.words.at(layout::READY).store(first, Ordering::Relaxed);
        // Programs find memory from here on.
        heap.words.at(layout::FRESH).store(first, Ordering::Release);
        heap.fill(0)?;
        Ok(Some(heap))
    }

    /// The maps of a heap, of those that have a name; nothing if there is no heap.
    pub(crate) fn maps(named: impl Fn(&str) -> Result<Option<MapHandle>, Error>) -> Result<Option<Maps>, Error> {
        let Some(arena) = named(layout::MAP)? else { return Ok(None) };
        let wanted = named(layout::WANTED)?.ok_or_else(|| Error::Heap("the object has no xk_heap_wanted".into()))?;
        Ok(Some(Maps { arena, wanted, lines: named(debug::LINES)? }))
    }

    /// A heap that is used already, also by other processes. This one maps it.
    ///
    /// # Errors
    /// [`Error::Heap`]: something is mapped at its address here.
    pub(crate) fn again(maps: Maps, limits: Limits) -> Result<Self, Error> {
        let bytes = u64::from(maps.arena.max_entries()) * layout::PAGE;
        let arena = MapHandle::try_from(&maps.arena).map_err(refused)?;
        let mut heap = Self::new(maps, limits)?;
        heap.mapping = Some(Mapping::new(arena.as_fd(), heap.words.address(0), bytes)?);
        // What a program may have changed is at most too small, or costs pages up to the limit.
        heap.ready = AtomicU64::new(heap.given());
        Ok(heap)
    }

    /// What the heap itself says of its pages.
    fn given(&self) -> u64 {
        let ready = self.words.at(layout::READY).load(Ordering::Acquire) / layout::SPAN * layout::SPAN;
        ready.clamp(layout::first_span(self.cpus), self.limits.most)
    }

    /// Bytes that have pages. Another process may have given some to a heap that is used already.
    fn there(&self) -> u64 {
        let own = self.ready.load(Ordering::Acquire);
        self.mapping.as_ref().map_or(own, |_| own.max(self.given()))
    }

    /// Not initialised, and not mapped by this.
    fn new(Maps { arena, wanted, lines }: Maps, limits: Limits) -> Result<Self, Error> {
        let info = arena.info().map_err(refused)?.info;
        let cpus = libbpf_rs::num_possible_cpus().map_err(refused)? as u64;
        let most = limits.most.min(u64::from(info.max_entries) * layout::PAGE) / layout::SPAN * layout::SPAN;
        let first = layout::first_span(cpus);
        if arena.map_type() != MapType::Arena || most < first + layout::SPAN {
            let least = (first + layout::SPAN) / layout::PAGE;
            return Err(Error::Heap(format!("XK_HEAP(pages): with {cpus} CPUs, a heap has at least {least} pages")));
        }
        let lines = lines.as_ref().map(Lines::read).transpose()?;
        // The kernel's name for where user space maps it.
        let words = Words::new(info.map_extra, most);
        let limits = Limits { most, ready: limits.ready.max(layout::SPAN) };
        let ready = AtomicU64::new(first);
        Ok(Self { words, wanted, ready, limits, cpus, object: PhantomData, mapping: None, lines })
    }

    /// Gives it pages, so that this much and [`Limits::ready`] can be taken, as far as it may grow.
    ///
    /// # Errors
    /// [`Error::Heap`]: the kernel has no memory, or the control group has reached its limit. What there is stays.
    pub fn fill(&self, more: u64) -> Result<(), Error> {
        let goal = |fresh: u64| {
            let goal = fresh.saturating_add(more).saturating_add(self.limits.ready);
            goal.min(self.limits.most).next_multiple_of(layout::SPAN)
        };
        loop {
            let ready = self.ready.load(Ordering::Acquire);
            let goal = goal(self.words.at(layout::FRESH).load(Ordering::Acquire));
            if ready >= goal {
                return Ok(());
            }
            let next = goal.min(ready + STEP);
            self.words.populate(ready, next)?;
            // Another thread may have given more.
            let most = self.ready.fetch_max(next, Ordering::AcqRel).max(next);
            self.words.at(layout::READY).fetch_max(most, Ordering::AcqRel);
        }
    }

    /// Gives it pages as they are used up, until it is told to stop. It notices that within a tenth of a second.
    ///
    /// # Errors
    /// As [`Self::fill`], but only when it begins: later, what is refused is tried again.
    pub fn serve(&self, stop: &AtomicBool) -> Result<(), Error> {
        self.fill(0)?;
        let largest = std::cell::Cell::new(0);
        let note = |bytes: &[u8]| {
            let wanted = bytes.try_into().map_or(0, u64::from_ne_bytes);
            largest.set(wanted.max(largest.get()));
            0
        };
        let mut builder = RingBufferBuilder::new();
        builder.add(&self.wanted, note).map_err(refused)?;
        let ring = builder.build().map_err(refused)?;
        while !stop.load(Ordering::Relaxed) {
            // Interrupted by a signal, it looks again.
            let _ = ring.poll(WAIT);
            let _ = self.fill(largest.take().min(layout::LARGEST));
        }
        Ok(())
    }

    /// As [`Self::serve`], but only until a program wants pages, and no longer than this. Whether one did. For loops that
    /// also do something else: [`Self::wanted`] can be read when a program wants pages.
    ///
    /// # Errors
    /// As [`Self::fill`].
    pub fn serve_once(&self, limit: Duration) -> Result<bool, Error> {
        let end = Instant::now() + limit;
        loop {
            self.fill(0)?;
            let left = end.saturating_duration_since(Instant::now()).min(WAIT);
            let time = Timespec { tv_sec: 0, tv_nsec: left.as_nanos().try_into().unwrap_or(0) };
            let mut wanted = [PollFd::new(&self.wanted, PollFlags::IN)];
            // Interrupted by a signal, it returns: the caller may have been told to stop.
            if poll(&mut wanted, Some(&time)).is_err() {
                return Ok(false);
            }
            if !wanted[0].revents().is_empty() {
                self.fill(self.largest_wanted()?)?;
                return Ok(true);
            }
            if Instant::now() >= end {
                return Ok(false);
            }
        }
    }

    /// Takes what programs have said. The most that one wants.
    fn largest_wanted(&self) -> Result<u64, Error> {
        let largest = std::cell::Cell::new(0);
        let note = |bytes: &[u8]| {
            largest.set(bytes.try_into().map_or(0, u64::from_ne_bytes).max(largest.get()));
            0
        };
        let mut builder = RingBufferBuilder::new();
        builder.add(&self.wanted, note).map_err(refused)?;
        builder.build().and_then(|ring| ring.consume()).map_err(refused)?;
        Ok(largest.get().min(layout::LARGEST))
    }

    /// What can be read when a program wants pages: for `poll()`.
    #[must_use]
    pub fn wanted(&self) -> BorrowedFd<'_> {
        self.wanted.as_fd()
    }

    /// Where it begins, in this process and for programs.
    #[must_use]
    pub fn address(&self) -> u64 {
        self.words.address(0)
    }

    /// Whether so many bytes of it are there, with pages.
    #[must_use]
    pub fn contains(&self, address: u64, bytes: u64) -> bool {
        let offset = self.words.offset(address, bytes);
        offset.is_some_and(|offset| offset + bytes <= self.there())
    }

    /// An object for user space, which programs may free; nothing without memory.
    #[must_use]
    pub fn allocate(&self, size: u64) -> Option<u64> {
        match self.is_debug() {
            true => self.allocate_debug(size),
            false => self.take(size),
        }
    }

    fn take(&self, size: u64) -> Option<u64> {
        let class = layout::class(size)?;
        let kind = u8::try_from(class + 1).ok()?;
        if let Some(offset) = self.pop(class) {
            // A span that was another class's before, if it is whole.
            if class >= layout::SMALL {
                self.words.byte(layout::KINDS + offset / layout::SPAN).store(kind, Ordering::Release);
            }
            return Some(self.words.address(offset));
        }
        let span = self.span(class.max(layout::SMALL))?;
        self.words.byte(layout::KINDS + span / layout::SPAN).store(kind, Ordering::Release);
        if class < layout::SMALL {
            let size = layout::size(class);
            let objects = (1..layout::SPAN / size).map(|number| span + number * size);
            objects.for_each(|offset| self.push(class, offset));
        }
        Some(self.words.address(span))
    }

    /// Gives back an object of a program, or of user space.
    ///
    /// # Errors
    /// [`Error::Heap`]: no object begins there. In debug mode also: it was freed before.
    pub fn free(&self, address: u64) -> Result<(), Error> {
        if self.is_debug() {
            return self.free_debug(address);
        }
        let invalid = || Error::Heap(format!("{address:#x}: no object of the heap begins there"));
        let offset = self.offset(address, 16).ok_or_else(invalid)?;
        let class = self.class_at(offset).filter(|&class| offset % layout::SPAN % layout::size(class) == 0);
        self.push(class.ok_or_else(invalid)?, offset);
        Ok(())
    }

    /// The class of the objects in the span of this offset, if it has one.
    fn class_at(&self, offset: u64) -> Option<usize> {
        let kind = self.words.byte(layout::KINDS + offset / layout::SPAN).load(Ordering::Acquire);
        usize::from(kind).checked_sub(1).filter(|&class| class < layout::CLASSES)
    }

    /// A word of an object, which programs may change at any time; nothing outside of the pages that are there, and at
    /// an address that is not aligned to 8 bytes.
    #[must_use]
    pub fn word(&self, address: u64) -> Option<&AtomicU64> {
        self.offset(address, 8).map(|offset| self.words.at(offset))
    }

    /// The offset of so many bytes that are there and aligned.
    fn offset(&self, address: u64, bytes: u64) -> Option<u64> {
        let offset = self.words.offset(address, bytes).filter(|offset| offset % bytes == 0)?;
        (offset + bytes <= self.there()).then_some(offset)
    }

    /// What became of it.
    #[must_use]
    pub fn usage(&self) -> Usage {
        let word = |offset: u64| self.words.at(offset).load(Ordering::Relaxed);
        let sum = |which: usize| (0..self.cpus).map(|cpu| word(layout::counts(cpu)[which])).sum();
        Usage {
            ready: self.there(),
            used: word(layout::FRESH),
            most: self.limits.most,
            // Frees first: an object is allocated before it is freed.
            freed: sum(1),
            allocated: sum(0),
            refused: word(layout::REFUSED),
            invalid: word(layout::INVALID),
            lost: word(layout::LOST),
        }
    }

    /// Whole spans: given back ones, or fresh ones.
    fn span(&self, class: usize) -> Option<u64> {
        if let Some(offset) = self.pop(class) {
            return Some(offset);
        }
        let bytes = layout::size(class);
        self.fill(bytes).ok()?;
        let ready = self.ready.load(Ordering::Acquire);
        let take = |fresh: u64| fresh.checked_add(bytes).filter(|&end| end <= ready);
        self.words.at(layout::FRESH).fetch_update(Ordering::AcqRel, Ordering::Acquire, take).ok()
    }

    fn pop(&self, class: usize) -> Option<u64> {
        let list = self.words.at(layout::list(class));
        for _ in 0..TRIES {
            let before = layout::List(list.load(Ordering::Acquire));
            // A program that writes where nothing is allocated may have destroyed it.
            let first = self.offset(self.words.address(before.first()?), 16)?;
            let next = self.words.half(first).load(Ordering::Relaxed);
            let after = before.popped(next);
            if list.compare_exchange(before.0, after.0, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
                return Some(first);
            }
        }
        None
    }

    fn push(&self, class: usize, offset: u64) {
        let list = self.words.at(layout::list(class));
        loop {
            let before = layout::List(list.load(Ordering::Acquire));
            self.words.half(offset).store(before.link(), Ordering::Relaxed);
            let after = before.pushed(offset);
            if list.compare_exchange(before.0, after.0, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
                return;
            }
        }
    }
}

fn refused(error: libbpf_rs::Error) -> Error {
    Error::Heap(error.to_string())
}
