//! Counters, as descriptions write them (`sensor.rs` lists the forms).
//!
//! In: a text. Out: the source of the number; or the number of a field of a file. It refuses texts of other forms.

use super::perf::{Event, UnknownEvent};
use crate::modules::{self, NameError};

/// Suffix of the second number of a meter.
const PER: &str = "/per";

/// The two counters of the meter `MODULE:NAME`: its number, and its divisor.
pub(crate) fn of_module(full: &str) -> (String, String) {
    (format!("module:{full}"), format!("module:{full}{PER}"))
}

/// The source of a number.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Counter<'c> {
    /// A field of a file.
    File { path: &'c str, field: &'c str },
    /// A meter of a module, or its divisor.
    Module { meter: &'c str, per: bool },
    /// A perf event on all processors.
    Perf(Event),
    /// Calls of a function of the kernel.
    Calls(&'c str),
    /// Passes of a tracepoint.
    Tracepoint(&'c str),
}

/// Why a text is not a counter.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CounterError {
    /// It has none of the five forms.
    #[error(
        "`{0}` is not a counter: write /path/of/a/file:FIELD, module:MODULE:METER, perf:EVENT, calls:FUNCTION or \
         tracepoint:NAME"
    )]
    Form(String),
    /// The perf event is not known.
    #[error(transparent)]
    Event(#[from] UnknownEvent),
    /// The name of the meter is not `MODULE:NAME`.
    #[error(transparent)]
    Meter(#[from] NameError),
}

impl<'c> Counter<'c> {
    /// Parses the text of a description.
    ///
    /// # Errors
    /// [`CounterError`].
    pub fn parse(counter: &'c str) -> Result<Self, CounterError> {
        let (kind, rest) = counter.split_once(':').unwrap_or((counter, ""));
        let is_name = |name: &str| name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.'));
        match (kind, rest) {
            (_, "") => {}
            ("module", full) => {
                let (meter, per) = full.strip_suffix(PER).map_or((full, false), |meter| (meter, true));
                modules::split(meter)?;
                return Ok(Self::Module { meter, per });
            }
            ("perf", event) => return Ok(Self::Perf(Event::parse(event)?)),
            ("calls", name) if is_name(name) => return Ok(Self::Calls(name)),
            ("tracepoint", name) if is_name(name) => return Ok(Self::Tracepoint(name)),
            _ => {}
        }
        match counter.rsplit_once(':') {
            Some((path, field)) if path.starts_with('/') && !field.is_empty() => Ok(Self::File { path, field }),
            _ => Err(CounterError::Form(counter.to_owned())),
        }
    }
}

/// Whether the kernel maintains a counter anyway, and not on demand.
pub(super) fn is_always_counted(counter: &str) -> bool {
    matches!(Counter::parse(counter), Ok(Counter::File { .. } | Counter::Module { .. }))
}

/// Checks the form of a counter. Whether this machine has it is found out when it is read.
///
/// # Errors
/// [`CounterError`].
pub(crate) fn check(counter: &str) -> Result<(), CounterError> {
    Counter::parse(counter).map(drop)
}

/// The number in a field of a file.
pub(super) fn find(text: &str, field: &str) -> Option<f64> {
    if let Ok(position) = field.parse::<usize>() {
        return text.split_whitespace().nth(position.checked_sub(1)?)?.parse().ok();
    }
    if let Some((row, key)) = field.split_once('.') {
        let label = |line: &&str| line.split_whitespace().next().is_some_and(|word| word.trim_end_matches(':') == row);
        let lines: Vec<&str> = text.lines().filter(label).collect();
        return match lines[..] {
            [line] => line.split_whitespace().find_map(|word| word.strip_prefix(key)?.strip_prefix('=')?.parse().ok()),
            [headings, numbers, ..] => {
                let column = headings.split_whitespace().position(|word| word == key)?;
                numbers.split_whitespace().nth(column)?.parse().ok()
            }
            [] => None,
        };
    }
    let line = text.lines().find(|line| line.split_whitespace().next() == Some(field))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_found_in_the_kernels_formats() {
        assert_eq!(find("  10 20 30\n", "3"), Some(30.0));
        assert_eq!(find("nr_free 5\npgscan_direct 17\n", "pgscan_direct"), Some(17.0));
        assert_eq!(find("some avg10=0.00 total=123\nfull avg10=0.00 total=45\n", "full.total"), Some(45.0));
        assert_eq!(find("Tcp: A RetransSegs\nTcp: 1 99\nUdp: A\nUdp: 7\n", "Tcp.RetransSegs"), Some(99.0));
        for field in ["9", "0", "absent", "Tcp.Absent", "none.total"] {
            assert_eq!(find("Tcp: A\nTcp: 1\n", field), None, "{field}");
        }
    }

    #[test]
    fn a_counter_is_one_of_five() {
        let counters =
            ["/a:b:3", "module:m:x/per", "perf:instructions", "calls:schedule", "tracepoint:contention_begin"];
        let right = [
            Counter::File { path: "/a:b", field: "3" },
            Counter::Module { meter: "m:x", per: true },
            Counter::Perf(Event::parse("instructions").unwrap()),
            Counter::Calls("schedule"),
            Counter::Tracepoint("contention_begin"),
        ];
        assert_eq!(counters.map(|counter| Counter::parse(counter).unwrap()), right);
        for wrong in ["", "a:1", "/a", "/a:", "perf:", "perf:luck", "calls:", "calls:a b", "calls", "tracepoint:/x"] {
            let told = Counter::parse(wrong).unwrap_err().to_string();
            assert!(told.contains("perf"), "{wrong}: {told}");
        }
    }
}
