//! `/proc/xk_atomic`: starts its threads, and reads which values they saw.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

/// Name of the module.
pub const MODULE: &str = "xk_atomic";
/// The file that takes its commands.
pub const PROC: &str = "/proc/xk_atomic";

/// The spans in the order of `enum xk_atomic_span`; threads do not execute the last two.
const SPANS: [&str; 13] = [
    "balance",
    "agree",
    "object",
    "later",
    "recurse",
    "softirq",
    "hardirq",
    "nmi",
    "sleep",
    "elsewhere",
    "descend",
    "hold",
    "stop",
];
/// The spans that threads can execute, as a mask.
pub const ALL_SPANS: u32 = (1 << 11) - 1;
/// The spans whose values stay in the thread that read the constant.
pub const TASK_SPANS: u32 = ALL_SPANS & !(1 << 9);

/// What one span saw.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize)]
pub struct Count {
    /// Executions.
    pub rounds: u64,
    /// ... in which two values met.
    pub violations: u64,
    /// ... one of which was the default.
    pub defaults: u64,
    /// The values of the last execution.
    pub last: [i64; 2],
}

/// What the spans saw.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Counts {
    /// The spans, by name.
    pub spans: BTreeMap<String, Count>,
    /// Threads that run.
    pub threads: u32,
    /// Exiting threads that are inside.
    pub detained: u32,
    /// Threads that are held while they register a probe.
    pub stalled: u32,
    /// The value of the constant `HOLD` for the reader.
    pub value: i64,
}

impl Counts {
    fn parse(text: &str) -> Option<Self> {
        let mut counts = Self::default();
        for line in text.lines() {
            let mut words = line.split_whitespace();
            let name = words.next()?;
            let numbers: Vec<i64> = words.map(|word| word.parse().ok()).collect::<Option<_>>()?;
            match (name, numbers[..].first(), &numbers[..]) {
                ("threads", Some(&threads), _) => counts.threads = threads as u32,
                ("stalled", Some(&stalled), _) => counts.stalled = stalled as u32,
                ("detained", Some(&detained), _) => counts.detained = detained as u32,
                ("value", Some(&value), _) => counts.value = value,
                (_, _, &[rounds, violations, defaults, first, second]) => {
                    let [rounds, violations, defaults] = [rounds, violations, defaults].map(|n| n as u64);
                    let count = Count { rounds, violations, defaults, last: [first, second] };
                    counts.spans.insert(name.to_owned(), count);
                }
                _ => return None,
            }
        }
        Some(counts)
    }

    /// What the spans saw since `before`.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        let mut counts = self.clone();
        for (name, count) in &mut counts.spans {
            let before = before.spans.get(name).copied().unwrap_or_default();
            count.rounds -= before.rounds;
            count.violations -= before.violations;
            count.defaults -= before.defaults;
        }
        counts
    }

    /// Executions in which two values met, in all spans.
    #[must_use]
    pub fn violations(&self) -> u64 {
        self.spans.values().map(|count| count.violations).sum()
    }

    /// The counts of one span.
    #[must_use]
    pub fn span(&self, name: &str) -> Count {
        self.spans.get(name).copied().unwrap_or_default()
    }
}

/// The loaded module.
#[derive(Debug, Clone, Copy)]
pub struct Atomic;

impl Atomic {
    /// Executes a command of the module; "hold" returns when it was released.
    ///
    /// # Errors
    /// The error of the kernel.
    pub fn tell(self, command: &str) -> Result<()> {
        fs::write(PROC, command).with_context(|| format!("{PROC}: {command}"))
    }

    /// Starts threads that execute the spans of a mask.
    ///
    /// # Errors
    /// As [`Atomic::tell`].
    pub fn start(self, threads: u32, spans: u32) -> Result<()> {
        self.tell(&format!("spans {spans}"))?;
        self.tell(&format!("start {threads}"))
    }

    /// Ends the threads.
    ///
    /// # Errors
    /// As [`Atomic::tell`].
    pub fn stop(self) -> Result<()> {
        self.tell("stop")
    }

    /// What the spans have seen until now.
    ///
    /// # Errors
    /// When the module is not loaded, or prints something unexpected.
    pub fn counts(self) -> Result<Counts> {
        let text = fs::read_to_string(PROC).with_context(|| PROC.to_owned())?;
        Counts::parse(&text).with_context(|| format!("{PROC} says: {text}"))
    }

    /// Whether it is loaded.
    #[must_use]
    pub fn is_loaded(self) -> bool {
        Path::new(PROC).exists()
    }

    /// The mask of spans by name.
    #[must_use]
    pub fn mask(names: &[&str]) -> u32 {
        let bit = |(i, span): (usize, &&str)| if names.contains(span) { 1 << i } else { 0 };
        SPANS.iter().enumerate().map(bit).sum()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn what_the_module_says_is_understood() {
        let text = "threads 8\ndetained 1\nbalance 70 3 1 100 32\nagree 7 0 0 0 0\nvalue 33\n";
        let counts = Counts::parse(text).unwrap();
        assert_eq!((counts.threads, counts.detained, counts.value, counts.violations()), (8, 1, 33, 3));
        assert_eq!(counts.span("balance"), Count { rounds: 70, violations: 3, defaults: 1, last: [100, 32] });
        assert_eq!(Counts::parse("balance 70 3"), None);
    }

    #[test]
    fn masks_are_those_of_the_module() {
        assert_eq!(Atomic::mask(&["balance", "later"]), 0b1001);
        assert_eq!(Atomic::mask(&SPANS) & !(0b11 << 11), ALL_SPANS);
        assert_eq!(Atomic::mask(&["elsewhere"]), ALL_SPANS & !TASK_SPANS);
    }
}
