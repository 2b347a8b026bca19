//! An extension with all that belongs to it, which lives as long as somebody uses a part.

use std::collections::VecDeque;
use std::path::Path;
use std::ptr::from_ref;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use libbpf_rs::Link;
use xk_flex::kept::Kept;
use xk_flex::{Choice, Control, Ended, Heap, Limits, Loaded, Variables};

use crate::failure::Failure;

/// Where it comes from.
#[derive(Debug)]
pub enum Source {
    /// `xk flex load` keeps it.
    Kept(Kept),
    /// This process has loaded it.
    Loaded(Box<Own>),
}

/// One that this process has loaded.
#[derive(Debug)]
pub struct Own {
    pub loaded: Loaded,
    /// Whether its runs look.
    pub is_controlled: bool,
    pub control: Mutex<Control>,
    pub links: Mutex<Vec<(String, Link)>>,
    pub ended: Mutex<Taken>,
}

/// Runs that were ended, as far as they were taken out of the ring buffer.
#[derive(Debug, Default)]
pub struct Taken {
    pub waiting: VecDeque<Ended>,
    pub returned: u64,
}

/// An extension.
#[derive(Debug)]
pub struct Whole {
    /// Before `source`, which has its memory.
    heap: OnceLock<Heap<'static>>,
    variables: OnceLock<Variables>,
    /// Who maps something.
    turn: Mutex<()>,
    pub source: Source,
}

/// A thread that panicked has left it as it was: it is replaced as a whole, or not at all.
pub fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Whole {
    pub fn kept(kept: Kept) -> Self {
        Self { heap: OnceLock::new(), variables: OnceLock::new(), turn: Mutex::new(()), source: Source::Kept(kept) }
    }

    /// Loads a file.
    pub fn load(path: &Path, control: Control, limits: Limits) -> Result<Self, Failure> {
        let bytes = std::fs::read(path).map_err(|source| xk_flex::Error::Io { path: path.into(), source })?;
        let loaded = xk_flex::load(&bytes, &Choice::default())?;
        let is_controlled = loaded.rewritten.bytes != bytes;
        let own = Box::new(Own {
            loaded,
            is_controlled,
            control: Mutex::new(control),
            links: Mutex::default(),
            ended: Mutex::default(),
        });
        if is_controlled {
            control.tell(&own.loaded.object)?;
        }
        // SAFETY: the heap keeps nothing of the reference, and is dropped before the object, which has its mapping.
        let object = unsafe { &*from_ref(&own.loaded.object) };
        let heap = Heap::of(object, limits)?;
        if heap.is_none() && limits.most != u64::MAX {
            return Err(Failure::new(libc::EOPNOTSUPP, "the object has no heap that could be limited"));
        }
        Ok(Self {
            heap: heap.map(OnceLock::from).unwrap_or_default(),
            variables: OnceLock::new(),
            turn: Mutex::new(()),
            source: Source::Loaded(own),
        })
    }

    /// Its heap, which is mapped when it is first used.
    pub fn heap(&self) -> Result<&Heap<'static>, Failure> {
        let _turn = locked(&self.turn);
        let none = || Failure::new(libc::EOPNOTSUPP, "the extension has no heap: its object does not use XK_HEAP()");
        match (self.heap.get(), &self.source) {
            (Some(heap), _) => Ok(heap),
            (None, Source::Loaded(_)) => Err(none()),
            (None, Source::Kept(kept)) => {
                let heap = kept.heap()?.ok_or_else(none)?;
                Ok(self.heap.get_or_init(|| heap))
            }
        }
    }

    /// Its variables, which are mapped when one is first used.
    pub fn variables(&self) -> Result<&Variables, Failure> {
        let _turn = locked(&self.turn);
        if let Some(variables) = self.variables.get() {
            return Ok(variables);
        }
        let variables = match &self.source {
            Source::Kept(kept) => kept.variables()?,
            Source::Loaded(own) => Variables::of(&own.loaded)?,
        };
        Ok(self.variables.get_or_init(|| variables))
    }

    /// What this process has loaded, for a function that serves nothing else.
    pub fn own(&self, instead: &str) -> Result<&Own, Failure> {
        match &self.source {
            Source::Loaded(own) => Ok(own),
            Source::Kept(kept) => Err(Failure::new(libc::EOPNOTSUPP, format!("{}: {instead}", kept.name()))),
        }
    }
}

impl Own {
    /// Tells its runs something else.
    pub fn tell(&self, change: impl FnOnce(&mut Control)) -> Result<(), Failure> {
        if !self.is_controlled {
            return Err(Failure::new(libc::EOPNOTSUPP, "no loop of it looks: its runs end by themselves"));
        }
        let mut control = locked(&self.control);
        let mut changed = *control;
        change(&mut changed);
        changed.tell(&self.loaded.object)?;
        *control = changed;
        Ok(())
    }

    /// Detaches its programs, and ends the runs that are under way.
    pub fn detach(&self) {
        locked(&self.links).clear();
        // Without looks, there is nothing to tell.
        _ = self.tell(|control| control.terminate = true);
    }
}
