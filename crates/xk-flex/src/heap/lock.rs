//! Locks of the heap (`bpf/flex/lock.h`) for threads of user space: the same words, changed in the same way.
//!
//! What a thread takes is noted in the heap before, so that locks of a thread that died are found and broken.

use std::cell::Cell;
use std::fs;
use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};

use super::layout::{self, NOTES, NOTE_BYTES, PLACES, READERS};
use super::Heap;
use crate::who::Who;
use crate::Error;

/// `XK_LOCK_WHO`
const WHO: u64 = (1 << 40) - 1;
/// `XK_LOCK_READS`, in a note.
const READS: u64 = 1;
/// So often a thread looks whether a lock is free before it takes a ticket. Programs wait for the thread whose turn it
/// is, also if no CPU executes it.
const LOOKS: u32 = 1000;

/// The place of a ticket while nobody has it.
fn free(ticket: u64) -> u64 {
    (ticket / PLACES) << 40
}

/// Whether a word is of the round of this ticket, or of a later one.
fn is_since(word: u64, ticket: u64) -> bool {
    word.wrapping_sub(free(ticket)) as i64 >= 0
}

/// A thread: its number, and when it began, so that another one with its number is told apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Thread {
    number: u32,
    began: u64,
}

impl Thread {
    /// The calling one.
    fn own() -> Result<Self, Error> {
        thread_local!(static OWN: Cell<Option<(u32, Thread)>> = const { Cell::new(None) });
        // A child that was forked is another one.
        let process = std::process::id();
        if let Some((_, own)) = OWN.get().filter(|(of, _)| *of == process) {
            return Ok(own);
        }
        let own = Self::read("/proc/thread-self/stat");
        let own = own.ok_or_else(|| Error::Heap("locks need /proc/thread-self/stat, which cannot be read".into()))?;
        OWN.set(Some((process, own)));
        Ok(own)
    }

    /// Of a file in /proc; nothing if the thread is not there, or has ended.
    fn read(path: &str) -> Option<Self> {
        let text = fs::read_to_string(path).ok()?;
        let number = text.split(' ').next()?.parse().ok()?;
        // Behind the name, which may contain anything: the state, and 18 more fields before the time.
        let mut fields = text.rsplit(')').next()?.split_whitespace();
        let state = fields.next()?;
        let began = fields.nth(18)?.parse().ok()?;
        (!matches!(state, "Z" | "X" | "x")).then_some(Self { number, began })
    }

    fn is_alive(self) -> bool {
        let there = Self::read(&format!("/proc/{}/stat", self.number));
        there.is_some_and(|there| self.began == 0 || there.began == self.began)
    }
}

/// A lock of a thread that died, which was broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Broken {
    /// The lock's address.
    pub lock: u64,
    /// The thread.
    pub thread: u32,
    /// It had the lock, or read. What the lock protects may be half changed. Else it waited.
    pub held: bool,
}

/// `struct xk_lock` in a heap.
#[derive(Debug, Clone, Copy)]
pub struct Lock<'a> {
    heap: &'a Heap<'a>,
    offset: u64,
}

/// `struct xk_rwlock` in a heap.
#[derive(Debug, Clone, Copy)]
pub struct RwLock<'a> {
    queue: Lock<'a>,
}

/// A lock that a thread has. It is given back when this is dropped.
#[derive(Debug)]
pub struct LockGuard<'a> {
    lock: Lock<'a>,
    me: u64,
    /// The ticket; of a reader, its number.
    which: u64,
    reads: bool,
    note: u64,
}

impl Drop for LockGuard<'_> {
    fn drop(&mut self) {
        let Self { lock, me, which, reads, note } = *self;
        if reads {
            lock.exchange(lock.reader(which), me, 0);
        } else {
            lock.done(which, me);
        }
        lock.heap.unnote(note);
    }
}

impl<'a> Lock<'a> {
    /// Takes it. Nothing if somebody else had it all this time.
    ///
    /// # Errors
    /// [`Error::Heap`]: no note can be made of it.
    pub fn take(&self, limit: Duration) -> Result<Option<LockGuard<'a>>, Error> {
        let end = Instant::now() + limit;
        for _ in 0..LOOKS {
            if let Some(guard) = self.try_take()? {
                return Ok(Some(guard));
            }
            if Instant::now() >= end {
                return Ok(None);
            }
            std::thread::yield_now();
        }
        let thread = Thread::own()?;
        let (me, note) = (Who::thread(thread.number), self.heap.note(self.offset, thread)?);
        let ticket = loop {
            let ticket = self.word(0);
            if self.take_ticket(ticket, me) {
                break ticket;
            }
            if Instant::now() >= end {
                self.heap.unnote(note);
                return Ok(None);
            }
            std::thread::yield_now();
        };
        // Given back if the time is over, whether it has the lock or not.
        let guard = LockGuard { lock: *self, me, which: ticket, reads: false, note };
        while self.word(1) != ticket {
            if !self.advance() {
                if Instant::now() >= end {
                    return Ok(None);
                }
                std::thread::yield_now();
            }
        }
        Ok(Some(guard))
    }

    /// Takes it if nobody has it or waits for it.
    ///
    /// # Errors
    /// As [`Self::take`].
    pub fn try_take(&self) -> Result<Option<LockGuard<'a>>, Error> {
        while self.advance() {}
        let ticket = self.word(0);
        if (self.word(1).wrapping_sub(ticket) as i64) < 0 {
            return Ok(None);
        }
        let thread = Thread::own()?;
        let (me, note) = (Who::thread(thread.number), self.heap.note(self.offset, thread)?);
        if self.take_ticket(ticket, me) {
            return Ok(Some(LockGuard { lock: *self, me, which: ticket, reads: false, note }));
        }
        self.heap.unnote(note);
        Ok(None)
    }

    /// Who has it.
    #[must_use]
    pub fn owner(&self) -> Option<Who> {
        let now = self.word(1);
        let word = self.load(self.place(now));
        Who::read(if word & !WHO == free(now) { word & WHO } else { 0 })
    }

    fn load(&self, offset: u64) -> u64 {
        self.heap.words.at(offset).load(SeqCst)
    }

    /// What was there.
    fn exchange(&self, offset: u64, old: u64, new: u64) -> u64 {
        let (Ok(was) | Err(was)) = self.heap.words.at(offset).compare_exchange(old, new, SeqCst, SeqCst);
        was
    }

    /// `next`, or `now`.
    fn word(&self, number: u64) -> u64 {
        self.load(self.offset + 8 * number)
    }

    fn place(&self, ticket: u64) -> u64 {
        self.offset + 16 + ticket % PLACES * 8
    }

    fn reader(&self, number: u64) -> u64 {
        self.offset + layout::LOCK_BYTES + number % READERS * 8
    }

    fn take_ticket(&self, ticket: u64, me: u64) -> bool {
        let free = free(ticket);
        let was = self.exchange(self.place(ticket), free, free | me);
        if is_since(was, ticket) {
            self.exchange(self.offset, ticket, ticket.wrapping_add(1));
        }
        was == free
    }

    fn advance(&self) -> bool {
        let now = self.word(1);
        let is_done = is_since(self.load(self.place(now)), now.wrapping_add(PLACES));
        if is_done {
            self.exchange(self.offset + 8, now, now.wrapping_add(1));
        }
        is_done
    }

    fn done(&self, ticket: u64, me: u64) {
        self.exchange(self.place(ticket), free(ticket) | me, free(ticket.wrapping_add(PLACES)));
        while self.advance() {}
    }

    /// All that a thread that died had here; whether it had the lock, if it had anything.
    fn broken(&self, thread: u32, reads: bool) -> Option<bool> {
        let (me, mut found) = (Who::thread(thread), None);
        for place in 0..PLACES {
            let (now, word) = (self.word(1), self.load(self.place(place)));
            if word & WHO == me {
                found = Some(found == Some(true) || now % PLACES == place);
                self.exchange(self.place(place), word, (word & !WHO).wrapping_add(1 << 40));
            }
        }
        while self.advance() {}
        for number in (0..READERS).filter(|_| reads) {
            if self.exchange(self.reader(number), me, 0) == me {
                found = Some(true);
            }
        }
        found
    }
}

impl<'a> RwLock<'a> {
    /// Begins to read, after those who came before. Nothing if somebody wrote all this time.
    ///
    /// # Errors
    /// As [`Lock::take`].
    pub fn read(&self, limit: Duration) -> Result<Option<LockGuard<'a>>, Error> {
        let end = Instant::now() + limit;
        let Some(queue) = self.queue.take(limit)? else { return Ok(None) };
        let thread = Thread::own()?;
        let (me, note) = (Who::thread(thread.number), self.queue.heap.note(self.queue.offset | READS, thread)?);
        loop {
            // Only who has the queue begins to read.
            if let Some(which) = (0..READERS).find(|number| self.queue.load(self.queue.reader(*number)) == 0) {
                self.queue.exchange(self.queue.reader(which), 0, me);
                drop(queue);
                return Ok(Some(LockGuard { lock: self.queue, me, which, reads: true, note }));
            }
            if Instant::now() >= end {
                self.queue.heap.unnote(note);
                return Ok(None);
            }
            std::thread::yield_now();
        }
    }

    /// Begins to write, after those who came before, and alone. Nothing if others read or wrote all this time.
    ///
    /// # Errors
    /// As [`Lock::take`].
    pub fn write(&self, limit: Duration) -> Result<Option<LockGuard<'a>>, Error> {
        let end = Instant::now() + limit;
        let Some(queue) = self.queue.take(limit)? else { return Ok(None) };
        // Nobody begins to read meanwhile.
        for number in 0..READERS {
            while self.queue.load(self.queue.reader(number)) != 0 {
                if Instant::now() >= end {
                    return Ok(None);
                }
                std::thread::yield_now();
            }
        }
        Ok(Some(queue))
    }
}

impl Heap<'_> {
    /// The `struct xk_lock` at an address; nothing if it is not within the pages that are there, or not aligned.
    #[must_use]
    pub fn lock(&self, address: u64) -> Option<Lock<'_>> {
        Some(Lock { heap: self, offset: self.lock_offset(address, layout::LOCK_BYTES)? })
    }

    /// The `struct xk_rwlock` at an address; nothing as above.
    #[must_use]
    pub fn rw_lock(&self, address: u64) -> Option<RwLock<'_>> {
        let offset = self.lock_offset(address, layout::LOCK_BYTES + 8 * READERS)?;
        Some(RwLock { queue: Lock { heap: self, offset } })
    }

    fn lock_offset(&self, address: u64, bytes: u64) -> Option<u64> {
        let offset = self.words.offset(address, bytes).filter(|offset| offset % 8 == 0)?;
        (offset + bytes <= self.there()).then_some(offset)
    }

    /// Breaks all locks of threads that have died: what they held is free, and nobody waits for their tickets. Threads of
    /// another PID namespace count as dead.
    pub fn break_locks_of_dead(&self) -> Vec<Broken> {
        let notes: Vec<(u64, u64, Thread)> = (0..NOTES).filter_map(|number| self.note_at(number)).collect();
        let mut found = Vec::new();
        for &(at, what, thread) in notes.iter().filter(|(.., thread)| !thread.is_alive()) {
            let is_same = |&(_, other, living): &(u64, u64, Thread)| {
                other & !READS == what & !READS && living.number == thread.number && living.is_alive()
            };
            // Another thread has its number now, and the same lock: which tickets are whose is not known.
            if notes.iter().any(is_same) {
                continue;
            }
            let lock = Lock { heap: self, offset: what & !READS };
            let bytes = layout::LOCK_BYTES + if what & READS != 0 { 8 * READERS } else { 0 };
            // A program may have changed the note.
            let is_there = self.lock_offset(self.words.address(lock.offset), bytes).is_some();
            if let Some(held) = is_there.then(|| lock.broken(thread.number, what & READS != 0)).flatten() {
                found.push(Broken { lock: self.words.address(lock.offset), thread: thread.number, held });
            }
            self.unnote(at);
        }
        found
    }

    /// Notes that a thread may have a lock from now on.
    fn note(&self, what: u64, thread: Thread) -> Result<u64, Error> {
        let word = what << 32 | u64::from(thread.number);
        for at in (0..NOTES).map(|number| layout::note((number + u64::from(thread.number)) % NOTES)) {
            if self.words.at(at).compare_exchange(0, word, SeqCst, SeqCst).is_ok() {
                self.words.at(at + 8).store(thread.began, SeqCst);
                return Ok(at);
            }
        }
        Err(Error::Heap(format!("threads of user space have {NOTES} locks already, which is the most")))
    }

    fn unnote(&self, at: u64) {
        self.words.at(at + NOTE_BYTES / 2).store(0, SeqCst);
        self.words.at(at).store(0, SeqCst);
    }

    /// A note: where it is, what it says, and whose it is.
    fn note_at(&self, number: u64) -> Option<(u64, u64, Thread)> {
        let at = layout::note(number);
        let word = self.words.at(at).load(SeqCst);
        let thread = Thread { number: word as u32, began: self.words.at(at + 8).load(SeqCst) };
        (word != 0).then_some((at, word >> 32, thread))
    }
}
