//! Attaching, waiting and reading: what `xk probe run` and `xk probe count` share.

use std::collections::BTreeMap;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use serde_json::{json, Value};
use xk_probe::{Found, Operand, Place, Programs, Resolver, Trace};
use xk_runtime::{
    Attached, Attachment, BackendChoice, Device, Error as RuntimeError, PlaceStatus, ProbeFunction, ProbePlace,
    ReachedBy, Rules,
};

use crate::exit::{Exit, Failure, Result};
use crate::output::{count, Columns};
use crate::signals;

/// How often prints of programs are read.
const READ: Duration = Duration::from_millis(100);

/// Which ways to an instruction are allowed.
#[derive(Debug, Clone, Copy)]
pub struct Ways {
    jumps: bool,
    jumps_only: bool,
}

impl Ways {
    /// What the user asks for, as far as the rules of the machine allow it.
    ///
    /// # Errors
    /// The rules forbid it, or cannot be read.
    pub fn new(jumps_only: bool) -> Result<Self> {
        Self::under(jumps_only, &Rules::read()?)
    }

    fn under(jumps_only: bool, rules: &Rules) -> Result<Self> {
        let forbidden = |by| rules.forbidden().find(|(other, _)| *other == by).map(|(_, place)| place);
        match (forbidden(BackendChoice::Detour), forbidden(BackendChoice::Kprobe)) {
            (Some(place), Some(_)) => Err(Failure::new(
                Exit::Refused,
                format!("jumps (detour) and kprobes are forbidden by {}", place.file.display()),
            )),
            (Some(place), None) if jumps_only => {
                Err(Failure::new(Exit::Refused, format!("--jumps-only: jumps (detour) are forbidden by {place}")))
            }
            (detour, kprobe) => Ok(Self { jumps: detour.is_none(), jumps_only: jumps_only || kprobe.is_some() }),
        }
    }

    fn place(self, found: &Found, number: usize) -> ProbePlace {
        let place = found.probe(cookie(found, number));
        match self.jumps {
            true => place,
            false => place.without_jump(),
        }
    }
}

/// What a program finds by `bpf_get_attach_cookie()`.
fn cookie(found: &Found, number: usize) -> u64 {
    number as u64 | found.operand.map_or(0, Operand::cookie)
}

/// The instructions of a program, and what the kernel knows about them.
pub struct Probed {
    /// By address.
    pub all: Vec<(Found, usize)>,
    /// Instructions of patterns that cannot be probed.
    pub left_out: usize,
    /// Functions of modules that contain them.
    functions: Vec<ProbeFunction>,
}

impl Probed {
    /// Finds the instructions.
    ///
    /// # Errors
    /// A place names none that can be probed.
    pub fn new(resolver: &Resolver, places: &[Place]) -> Result<Self> {
        let (all, left_out) = resolver.all(places)?;
        let functions = resolver.functions(&all);
        Ok(Self { all, left_out, functions })
    }

    /// Makes them hold their modules: the program knows addresses that would not be right any more if a module came back
    /// elsewhere.
    pub fn hold_modules(&mut self) {
        self.functions.clear();
    }

    /// The cookies of the instructions.
    pub fn cookies(&self) -> impl Iterator<Item = u64> + '_ {
        self.all.iter().map(|(found, number)| cookie(found, *number))
    }

    /// Attaches the programs of a probe to them, or only counts.
    ///
    /// # Errors
    /// Exit code 3 if the kernel refuses a place.
    pub fn attach(
        &self,
        device: &Device,
        name: &str,
        programs: Option<(&Programs, &[BorrowedFd<'_>])>,
        ways: Ways,
    ) -> Result<Attached> {
        let place = |(found, number): &(Found, usize)| {
            let place = ways.place(found, *number);
            let program = programs.map_or(0, |(all, _)| all.at(place.cookie));
            // There is one for each register, at most.
            ProbePlace { program: program as u8, ..place }
        };
        let places: Vec<ProbePlace> = self.all.iter().map(place).collect();
        let (programs, functions) = (programs.map_or(&[][..], |(_, programs)| programs), &self.functions);
        let wanted = Attachment { name, programs, places: &places, functions, jumps_only: ways.jumps_only };
        device.attach(&wanted).map_err(|error| match error {
            RuntimeError::Refused { reason, .. } => Failure::new(Exit::Refused, reason),
            other => other.into(),
        })
    }

    /// What the kernel counted, most hits first.
    pub fn counted<'a>(&'a self, status: &'a [PlaceStatus]) -> Vec<(&'a Found, &'a PlaceStatus)> {
        let by_address: BTreeMap<u64, &PlaceStatus> = status.iter().map(|place| (place.address, place)).collect();
        let known = self.all.iter().filter_map(|(found, _)| Some((found, *by_address.get(&found.address)?)));
        let mut all: Vec<_> = known.collect();
        all.sort_by_key(|(found, status)| (std::cmp::Reverse(status.hits), found.address));
        all
    }
}

/// `3 instructions, 1 by a jump, 2 by the function tracer or a kprobe`
pub fn reached(number: usize, jumps: usize) -> String {
    let others = number.saturating_sub(jumps);
    format!("{}, {jumps} by a jump, {others} by the function tracer or a kprobe", count(number, "instruction"))
}

/// Counts as a table for people; what was not executed is only a number.
pub fn table(counted: &[(&Found, &PlaceStatus)]) -> String {
    let executed: Vec<_> = counted.iter().filter(|(_, status)| status.hits > 0 || status.missed > 0).collect();
    let mut columns = Columns::default();
    columns.row(["HITS", "MISSED", "BY", "PLACE", "INSTRUCTION"].map(String::from));
    for (found, status) in &executed {
        let missed = if status.by == ReachedBy::Kprobe { status.missed.to_string() } else { "-".into() };
        columns.row([status.hits.to_string(), missed, status.by.word().into(), found.name(), found.text.clone()]);
    }
    let mut text = if executed.is_empty() { String::new() } else { columns.lines("") };
    if executed.len() < counted.len() {
        text += &format!("{} not executed\n", count(counted.len() - executed.len(), "instruction"));
    }
    text
}

/// Counts as JSON.
pub fn documents(counted: &[(&Found, &PlaceStatus)]) -> Value {
    let one = |(found, status): &(&Found, &PlaceStatus)| {
        let mut document = super::document(found);
        document["by"] = json!(status.by.word());
        document["hits"] = json!(status.hits);
        document["missed"] = json!(status.missed);
        document["note"] = json!(status.note);
        document
    };
    counted.iter().map(one).collect()
}

/// Waits until the time is over, or until a signal arrives, which must be blocked. Meanwhile prints what programs print.
pub fn wait(time: Option<Duration>, mut trace: Option<Trace>, print: impl Fn(&str)) -> Result {
    let end = time.map(|time| Instant::now() + time);
    loop {
        let left = end.map_or(Duration::MAX, |end| end.saturating_duration_since(Instant::now()));
        let step = if trace.is_some() { left.min(READ) } else { left };
        let ended = signals::came_within(step) || end.is_some_and(|end| Instant::now() >= end);
        if let Some(trace) = &mut trace {
            let texts = trace.texts().map_err(|error| Failure::error(format!("the kernel's trace: {error}")))?;
            texts.iter().for_each(|text| print(text));
        }
        if ended {
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn it_is_said_how_instructions_are_reached() {
        assert_eq!(reached(1, 1), "1 instruction, 1 by a jump, 0 by the function tracer or a kprobe");
        assert_eq!(reached(12, 5), "12 instructions, 5 by a jump, 7 by the function tracer or a kprobe");
    }

    #[test]
    fn waiting_ends_in_time() {
        let start = Instant::now();
        wait(Some(Duration::from_millis(30)), None, |_| ()).unwrap();
        assert!(start.elapsed() >= Duration::from_millis(30));
    }
}
