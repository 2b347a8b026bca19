//! Structures of `bpf/flex` in a loaded extension (`crates/xk-flex/tests/bpf/structures.bpf.c`), which executes an operation
//! in each run.

use std::sync::atomic::Ordering;

use libbpf_rs::{Map, MapCore, MapFlags, Object, ProgramInput};
use xk_flex::{Heap, Limits};

use super::model::{Asked, Model};
use super::walk::{Walk, POINTERS};

/// An extension, whose heap is shared.
pub struct Extension<'a> {
    object: &'a Object,
    pub heap: Heap<'a>,
    /// Where the program reads what is asked, and writes the answer.
    exchange: u64,
    /// Where the structures are in its variables.
    structures: usize,
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

fn variables(object: &Object) -> Result<Map<'_>, String> {
    object.maps().find(|map| map.name().to_string_lossy().ends_with(".bss")).ok_or("no variables".into())
}

fn values(object: &Object) -> Result<Vec<u8>, String> {
    let found = variables(object)?.lookup(&0_u32.to_ne_bytes(), MapFlags::ANY).map_err(text)?;
    found.ok_or("the variables have no value".into())
}

impl<'a> Extension<'a> {
    /// Gives it pages. The offsets are those of `structures` and `exchange` in the variables.
    pub fn new(object: &'a Object, [structures, exchange]: [usize; 2]) -> Result<Self, String> {
        let limits = Limits { ready: 8 << 20, ..Limits::default() };
        let heap = Heap::of(object, limits).map_err(text)?.ok_or("there is no heap")?;
        let address = heap.allocate(64).ok_or("no memory")?;
        let mut value = values(object)?;
        value[exchange..exchange + 8].copy_from_slice(&address.to_ne_bytes());
        variables(object)?.update(&0_u32.to_ne_bytes(), &value, MapFlags::ANY).map_err(text)?;
        Ok(Self { object, heap, exchange: address, structures })
    }

    /// Nothing of a run that was ended.
    pub fn ask(&self, asked: &Asked) -> Result<Option<(bool, u64)>, String> {
        let word = |index: u64| self.heap.word(self.exchange + 8 * index).ok_or("outside of the heap");
        for (index, value) in asked.words().into_iter().enumerate() {
            word(index as u64)?.store(value, Ordering::Relaxed);
        }
        let program = self.object.progs_mut().find(|program| program.name() == "operate").ok_or("no program")?;
        let input = ProgramInput { data_in: Some(&[0; 64]), ..ProgramInput::default() };
        match program.test_run(input).map_err(text)?.return_value {
            0 => Ok(None),
            returned => Ok(Some((returned == 3, word(3)?.load(Ordering::Relaxed)))),
        }
    }

    /// Whether the structures are those of the model, and no object is lost.
    pub fn check(&self, model: &Model) -> Result<(), String> {
        let value = values(self.object)?;
        let word = |index: usize| {
            let bytes = &value[self.structures + 8 * index..][..8];
            bytes.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte))
        };
        // What is outside is 0, as for the program.
        let heap = |address: u64| self.heap.word(address).map_or(0, |word| word.load(Ordering::Relaxed));
        let pointers: [u64; POINTERS] = std::array::from_fn(word);
        let objects = Walk { word: &heap }.check(&pointers, model)?;
        let usage = self.heap.usage();
        if usage.allocated - usage.freed != objects || usage.refused + usage.invalid + usage.lost != 0 {
            return Err(format!("the structures have {objects} objects: {usage:?}"));
        }
        Ok(())
    }
}
