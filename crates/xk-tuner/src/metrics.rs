//! Metrics of the tuner in Prometheus' text format, which node_exporter's textfile collector reads from files.
//!
//! In: the database, and whether a tuner is running. Out: the text, or a file with it, which is replaced as a whole.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};

use crate::engine::Ground;
use crate::history::{Outcome, Record};
use crate::store::{Mark, Search, State, Store};
use crate::target::exposition::escape;
use crate::Error;

/// The events of the journal that are counted: event, metric, help.
const EVENTS: [(&str, &str, &str); 3] = [
    ("concluded", "xk_tuner_conclusions_total", "Searches that came to a conclusion."),
    ("yielded", "xk_tuner_yielded_total", "Knobs that something else changed, and that the tuner left alone."),
    ("recovered", "xk_tuner_recovered_total", "Knobs that the next start restored after a tuner was killed."),
];

/// The outcomes of trials.
const ENDS: [&str; 4] = ["measured", "failed", "aborted", "violated"];

/// A text with metrics.
#[derive(Default)]
struct Page {
    text: String,
}

impl Page {
    fn family(&mut self, name: &str, kind: &str, help: &str) {
        let _ = write!(self.text, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
    }

    fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: f64) {
        let labels: Vec<String> =
            labels.iter().map(|(label, value)| format!("{label}=\"{}\"", escape(value))).collect();
        let labels = if labels.is_empty() { String::new() } else { format!("{{{}}}", labels.join(",")) };
        let _ = writeln!(self.text, "{name}{labels} {value}");
    }

    fn gauge(&mut self, name: &str, help: &str, value: f64) {
        self.family(name, "gauge", help);
        self.sample(name, &[], value);
    }
}

/// The counts so far. A journal grows for years, so entries that were counted are not read again.
#[derive(Debug, Clone, Default)]
pub struct Counts {
    mark: Mark,
    events: [u32; EVENTS.len()],
    ends: [u32; ENDS.len()],
    last: i64,
}

impl Counts {
    fn read_on(&mut self, store: &Store) -> Result<(), Error> {
        let Self { mark, events, ends, last } = self;
        store.read_on(mark, |entry| {
            let event = &entry.what["event"];
            for (count, (name, ..)) in events.iter_mut().zip(EVENTS) {
                *count += u32::from(event == name);
            }
            for (count, end) in ends.iter_mut().zip(ENDS) {
                *count += u32::from(event == "ended" && entry.what["evidence"]["end"] == end);
            }
            *last = entry.at;
        })
    }
}

/// All metrics.
///
/// # Errors
/// [`Error::Store`].
pub fn metrics(store: &Store, counts: &mut Counts, at_work: bool, stopped: bool) -> Result<String, Error> {
    counts.read_on(store)?;
    let mut page = Page::default();
    page.gauge("xk_tuner_at_work", "Whether a tuner is running.", f64::from(u8::from(at_work)));
    page.gauge("xk_tuner_stopped", "Whether tuning is stopped by xk tune stop.", f64::from(u8::from(stopped)));
    page.gauge("xk_tuner_knobs_changed", "Knobs that are changed for a trial.", store.changed()?.len() as f64);
    page.gauge("xk_tuner_knobs_kept", "Knobs that keep a confirmed value.", store.kept()?.len() as f64);
    page.gauge("xk_tuner_memories", "Remembered settings.", store.memories()? as f64);
    events(&mut page, counts);
    searches(&mut page, store)?;
    Ok(page.text)
}

fn events(page: &mut Page, counts: &Counts) {
    for ((_, name, help), count) in EVENTS.iter().zip(counts.events) {
        page.family(name, "counter", help);
        page.sample(name, &[], f64::from(count));
    }
    page.family("xk_tuner_trials_total", "counter", "Trials, by how they ended.");
    for (end, count) in ENDS.iter().zip(counts.ends) {
        page.sample("xk_tuner_trials_total", &[("end", end)], f64::from(count));
    }
    let help = "Whether the journal's entries followed from each other when they were read.";
    page.gauge("xk_tuner_journal_intact", help, f64::from(u8::from(counts.mark.broken.is_none())));
    page.gauge("xk_tuner_last_event_timestamp_seconds", "When the journal was last added to.", counts.last as f64);
}

/// The last search of each name.
fn searches(page: &mut Page, store: &Store) -> Result<(), Error> {
    let mut last: BTreeMap<String, (Search, Vec<Record>)> = BTreeMap::new();
    for id in store.last_searches()? {
        if let Some(search) = store.search(Some(id))? {
            let history = store.history(id)?;
            last.insert(search.name.clone(), (search, history));
        }
    }
    let of_each = |page: &mut Page, name: &str, help: &str, value: &dyn Fn(&Search, &[Record]) -> Option<f64>| {
        page.family(name, "gauge", help);
        for (called, (search, history)) in &last {
            if let Some(value) = value(search, history) {
                page.sample(name, &[("search", called)], value);
            }
        }
    };
    of_each(page, "xk_tuner_search_open", "Whether the last search of this name can be resumed.", &|search, _| {
        Some(f64::from(u8::from(search.state == State::Open)))
    });
    of_each(page, "xk_tuner_search_trials", "Trials of the last search of this name.", &|_, history| {
        Some(history.len() as f64)
    });
    of_each(page, "xk_tuner_search_trials_limit", "The largest number of trials of that search.", &|search, _| {
        Some(search.spec.limit as f64)
    });
    of_each(
        page,
        "xk_tuner_search_target",
        "The last value of the target with the default in force.",
        &|_, history| {
            history.iter().rev().find_map(|record| match &record.outcome {
                Outcome::Measured(sample) => sample.default.last().copied(),
                _ => None,
            })
        },
    );
    let help = "How many times as good as the default the confirmed setting is; 1 if none is.";
    of_each(page, "xk_tuner_search_improvement_ratio", help, &|search, _| {
        Some(match &search.conclusion.as_ref()?.ground {
            Ground::Confirmed { effect, .. } => effect.middle.exp(),
            Ground::Remembered { effect, .. } => effect.exp(),
            Ground::Seen | Ground::Nothing => 1.0,
        })
    });
    Ok(())
}

/// A file with metrics.
#[derive(Debug, Clone)]
pub struct Publisher {
    file: PathBuf,
    counts: RefCell<Counts>,
}

impl Publisher {
    /// Names the file, and writes nothing yet.
    #[must_use]
    pub fn to(file: PathBuf) -> Self {
        Self { file, counts: RefCell::default() }
    }

    /// Writes all metrics.
    ///
    /// # Errors
    /// [`Error::Store`], [`Error::Io`].
    pub fn publish(&self, store: &Store, at_work: bool, stopped: bool) -> Result<(), Error> {
        write(&self.file, &metrics(store, &mut self.counts.borrow_mut(), at_work, stopped)?)
    }
}

/// Replaces a file as a whole: a reader finds the new text, or the old one.
fn write(file: &Path, text: &str) -> Result<(), Error> {
    let mut beside = file.as_os_str().to_owned();
    // The collector reads `*.prom` only.
    beside.push(format!(".{}", std::process::id()));
    let beside = PathBuf::from(beside);
    let write = || {
        let mut new = File::create(&beside)?;
        new.write_all(text.as_bytes())?;
        fs::rename(&beside, file)
    };
    write().map_err(|source| {
        // An incomplete file is of no use.
        let _ = fs::remove_file(&beside);
        Error::Io { path: file.to_owned(), source, advice: "; --metrics names a file in a folder that exists" }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::tests::{context, signature, spec, trial};
    use crate::target::Selector;

    fn value(text: &str, series: &str) -> f64 {
        Selector::parse(series).unwrap().find(text).unwrap()
    }

    #[test]
    fn events_are_counted() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path()).unwrap();
        let mut counts = Counts::default();
        let empty = metrics(&store, &mut counts, false, true).unwrap();
        assert_eq!((value(&empty, "xk_tuner_at_work"), value(&empty, "xk_tuner_stopped")), (0.0, 1.0));
        assert_eq!(value(&empty, "xk_tuner_trials_total{end=\"failed\"}"), 0.0);
        let name = "a \"disk\"\\\n";
        let id = store.begin(name, &context(), &signature(1.0), &spec()).unwrap();
        let outcome = Outcome::failed("no");
        store.begin_trial(id, 0, &trial()).unwrap();
        store.end_trial(id, 0, &outcome).unwrap();
        store.note("x", &serde_json::json!({ "event": "ended", "evidence": outcome })).unwrap();
        store.note("x", &serde_json::json!({ "event": "yielded" })).unwrap();
        store.remember(name, &context(), &signature(1.0), &[].into(), 0.1).unwrap();
        let text = metrics(&store, &mut counts, true, false).unwrap();
        let of = "{search=\"a \\\"disk\\\"\\\\\\n\"}";
        for (series, right) in [
            ("xk_tuner_at_work", 1.0),
            ("xk_tuner_trials_total{end=\"failed\"}", 1.0),
            ("xk_tuner_trials_total{end=\"measured\"}", 0.0),
            ("xk_tuner_yielded_total", 1.0),
            ("xk_tuner_memories", 1.0),
            ("xk_tuner_journal_intact", 1.0),
            (&format!("xk_tuner_search_trials{of}"), 1.0),
            (&format!("xk_tuner_search_trials_limit{of}"), 10.0),
            (&format!("xk_tuner_search_open{of}"), 1.0),
        ] {
            assert_eq!(value(&text, series), right, "{series}");
        }
        // What was counted is not counted again, and nothing else than what a fresh count finds.
        assert_eq!(metrics(&store, &mut counts, true, false).unwrap(), text);
        assert_eq!(metrics(&store, &mut Counts::default(), true, false).unwrap(), text);
        // Every family is announced once, before its samples.
        let mut announced = std::collections::BTreeSet::new();
        for line in text.lines() {
            match line.strip_prefix("# TYPE ") {
                Some(rest) => assert!(announced.insert(rest.split(' ').next().unwrap()), "{line}"),
                None if line.starts_with('#') => {}
                None => assert!(announced.contains(line.split(['{', ' ']).next().unwrap()), "{line}"),
            }
        }
    }

    #[test]
    fn a_file_is_replaced_whole_or_not_at_all() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("xk.prom");
        write(&file, "a 1\n").unwrap();
        write(&file, "a 2\n").unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), "a 2\n");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
        let told = write(&folder.path().join("none/xk.prom"), "a 3\n").unwrap_err().to_string();
        assert!(told.contains("none/xk.prom") && told.contains("--metrics"), "{told}");
    }
}
