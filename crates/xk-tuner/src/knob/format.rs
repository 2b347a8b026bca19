//! Files of control groups that read back differently from what was written (`Documentation/admin-guide/cgroup-v2.rst`).
//!
//! In: the name of a file, and values. Out: the form in which values are compared, and the lines to write. Two values are
//! the same if their canonical forms are equal. A value of a description may leave out what the kernel then leaves as it
//! is; [`Format::complete`] adds it from the current value, so that later comparisons need no context.
//!
//! | file | written | read |
//! |---|---|---|
//! | `io.weight`, `io.bfq.weight` | `200` | `default 200`, and lines of devices, which the tuner leaves alone |
//! | `cpu.max` | `50000` | `50000 100000`: the quota and the period |
//! | `io.max` | `8:16 rbps=1048576` | `8:16 rbps=1048576 wbps=max riops=max wiops=max`; nothing without limits |

use std::collections::BTreeMap;
use std::path::Path;

use crate::Value;

/// The limits of a device in `io.max`, in the order of the kernel.
const LIMITS: [&str; 4] = ["rbps", "wbps", "riops", "wiops"];

/// No limit.
const MAX: &str = "max";

/// How a file represents a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Format {
    /// The file reads back what was written.
    Plain,
    /// A default weight, and weights of devices.
    Weight,
    /// A quota and a period.
    Bandwidth,
    /// Limits of devices.
    DeviceLimits,
}

/// The limits of each device. `max` is not stored.
type Limits = BTreeMap<String, BTreeMap<String, String>>;

impl Format {
    pub fn of(path: &Path) -> Self {
        match path.file_name().and_then(|name| name.to_str()) {
            Some("io.weight" | "io.bfq.weight") => Self::Weight,
            Some("cpu.max") => Self::Bandwidth,
            Some("io.max") => Self::DeviceLimits,
            _ => Self::Plain,
        }
    }

    /// The value in the text of the file, in canonical form.
    pub fn read(self, text: &str) -> Value {
        self.canonical(&Value::read(text))
    }

    /// The form in which values are compared.
    pub fn canonical(self, value: &Value) -> Value {
        let text = value.to_string();
        match self {
            Self::Plain | Self::Bandwidth => value.clone(),
            Self::Weight => {
                let mut words = text.split_whitespace();
                match words.next() {
                    Some("default") => Value::parse(words.next().unwrap_or_default()),
                    _ => value.clone(),
                }
            }
            Self::DeviceLimits => join(&limits(&text)),
        }
    }

    /// A value of a description, with what it leaves out taken from the current text.
    pub fn complete(self, value: &Value, current: &str) -> Value {
        let text = value.to_string();
        match self {
            Self::Plain | Self::Weight => self.canonical(value),
            Self::Bandwidth => match (text.split_whitespace().count(), current.split_whitespace().nth(1)) {
                (1, Some(period)) => Value::parse(&format!("{text} {period}")),
                _ => value.clone(),
            },
            Self::DeviceLimits => {
                let mut all = assignments(current);
                for (device, limits) in assignments(&text) {
                    all.entry(device).or_default().extend(limits);
                }
                join(&without_max(all))
            }
        }
    }

    /// The lines that set a complete value. The kernel takes each as a value of its own.
    pub fn lines(self, value: &Value, current: &str) -> Vec<String> {
        let text = value.to_string();
        match self {
            Self::Plain | Self::Weight | Self::Bandwidth => vec![text],
            Self::DeviceLimits => {
                let wanted = limits(&text);
                let devices: BTreeMap<String, ()> =
                    wanted.keys().chain(limits(current).keys()).map(|device| (device.clone(), ())).collect();
                let none = BTreeMap::new();
                let line = |device: &String| line(device, wanted.get(device).unwrap_or(&none));
                devices.keys().map(line).collect()
            }
        }
    }
}

/// `DEVICE KEY=VALUE … DEVICE …`, as assignments.
fn assignments(text: &str) -> Limits {
    let mut all = Limits::new();
    let mut device = None;
    for word in text.split_whitespace() {
        match (word.split_once('='), &device) {
            (None, _) => device = word.contains(':').then(|| word.to_owned()),
            (Some((key, value)), Some(device)) => {
                all.entry(device.clone()).or_default().insert(key.to_owned(), value.to_owned());
            }
            (Some(_), None) => {}
        }
    }
    all
}

fn without_max(mut all: Limits) -> Limits {
    all.values_mut().for_each(|limits| limits.retain(|_, value| value != MAX));
    all.retain(|_, limits| !limits.is_empty());
    all
}

fn limits(text: &str) -> Limits {
    without_max(assignments(text))
}

/// The limits of one device, as the kernel prints them.
fn line(device: &str, limits: &BTreeMap<String, String>) -> String {
    let limit = |key: &&str| format!("{key}={}", limits.get(*key).map_or(MAX, String::as_str));
    let known: Vec<String> = LIMITS.iter().map(limit).collect();
    format!("{device} {}", known.join(" "))
}

/// All limits as a value; `max` without any.
fn join(limits: &Limits) -> Value {
    let lines: Vec<String> = limits.iter().map(|(device, limits)| line(device, limits)).collect();
    match lines.is_empty() {
        true => Value::Words(MAX.into()),
        false => Value::Words(lines.join(" ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_weight_is_that_of_all_devices_without_their_own() {
        let format = Format::of(Path::new("/sys/fs/cgroup/a/io.weight"));
        assert_eq!(format.read("default 200\n8:16 50\n"), Value::Number(200));
        assert_eq!(format.complete(&Value::parse("default 300"), "default 200\n"), Value::Number(300));
        assert_eq!(format.lines(&Value::Number(300), "default 200\n"), ["300"]);
    }

    #[test]
    fn a_quota_without_a_period_keeps_the_period() {
        let format = Format::of(Path::new("/sys/fs/cgroup/a/cpu.max"));
        assert_eq!(format.complete(&Value::Number(50_000), "max 20000\n"), format.read("50000 20000\n"));
        assert_eq!(format.complete(&Value::parse("max"), "max 20000\n"), format.read("max 20000\n"));
        assert_eq!(format.complete(&Value::parse("1000 5000"), "max 20000\n"), format.read("1000 5000\n"));
    }

    #[test]
    fn limits_of_devices_are_compared_and_written_one_by_one() {
        let format = Format::of(Path::new("/sys/fs/cgroup/a/io.max"));
        let original = "8:0 rbps=max wbps=9 riops=max wiops=max\n";
        let wanted = format.complete(&Value::parse("8:16 rbps=5"), original);
        let now = "8:16 rbps=5 wbps=max riops=max wiops=max\n8:0 rbps=max wbps=9 riops=max wiops=max\n";
        assert_eq!(format.read(now), wanted);
        // The original has no entry for 8:16, so its limits are removed one by one.
        let lines =
            ["8:0 rbps=max wbps=9 riops=max wiops=max", "8:16 rbps=max wbps=max riops=max wiops=max"].map(String::from);
        assert_eq!(format.lines(&format.read(original), now), lines);
        assert_eq!(format.read(&lines.join("\n")), format.read(original));
        assert_eq!(
            (format.read(""), format.canonical(&Value::parse("8:16 rbps=max"))),
            (format.read("\n"), format.read(""))
        );
        assert_eq!(format.read("").to_string(), "max");
    }

    #[test]
    fn other_files_are_left_as_they_are() {
        let format = Format::of(Path::new("/proc/sys/net/ipv4/tcp_rmem"));
        let value = Value::parse("4096 131072 6291456");
        assert_eq!((format.read("4096\t131072\t6291456\n"), format.complete(&value, "1 2 3")), (value.clone(), value));
        assert_eq!(format.lines(&Value::Number(5), "7\n"), ["5"]);
    }
}
