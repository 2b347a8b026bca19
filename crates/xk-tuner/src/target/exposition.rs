//! Prometheus' text format: one number of the text that an endpoint exposes.
//!
//! In: the text, and a selector. Out: the value of the one series that matches. It refuses lines that are neither comments
//! nor samples, and selectors that match no series, or several.

use std::collections::BTreeMap;
use std::fmt;

use winnow::ascii::{dec_int, space0, space1};
use winnow::combinator::{alt, delimited, opt, preceded, repeat, separated, separated_pair, terminated};
use winnow::prelude::*;
use winnow::token::{none_of, one_of, take_while};
use winnow::Result;

/// A series: a name, and labels.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Series {
    name: String,
    labels: BTreeMap<String, String>,
}

/// A selector: it matches series with this name and these labels, and perhaps further labels.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Selector(Series);

/// The largest number of series that a message lists.
const SHOWN: usize = 3;

/// A text that is not a selector.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a metric: write NAME, or NAME{{LABEL=\"VALUE\",…}}")]
pub struct SelectorError(
    /// The text.
    pub String,
);

/// Why an exposition has no value for a selector.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ExpositionError {
    /// A line is neither a comment nor a sample.
    #[error("line {line} is not a sample of Prometheus' text format: `{shown}`")]
    Line {
        /// The line, from 1.
        line: usize,
        /// Its beginning.
        shown: String,
    },
    /// No series matches.
    #[error("there is no series {0}")]
    None(Selector),
    /// Several series match.
    #[error("{number} series match {selector}, but one is needed; add labels: {}", listed(shown, *number))]
    Several {
        /// The selector.
        selector: Selector,
        /// How many match.
        number: usize,
        /// The first of them.
        shown: Vec<String>,
    },
}

fn listed(shown: &[String], number: usize) -> String {
    let more = if number > shown.len() { ", …" } else { "" };
    shown.join(", ") + more
}

impl Selector {
    /// `name`, or `name{label="value",…}`.
    ///
    /// # Errors
    /// [`SelectorError`].
    pub fn parse(text: &str) -> std::result::Result<Self, SelectorError> {
        series.parse(text.trim()).map(Self).map_err(|_| SelectorError(text.to_owned()))
    }

    fn matches(&self, series: &Series) -> bool {
        self.0.name == series.name && self.0.labels.iter().all(|(label, value)| series.labels.get(label) == Some(value))
    }

    /// The value of the one series in `text` that matches.
    ///
    /// # Errors
    /// [`ExpositionError`].
    pub fn find(&self, text: &str) -> std::result::Result<f64, ExpositionError> {
        let mut found = Vec::new();
        for (index, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let (series, value) = sample
                .parse(line)
                .map_err(|_| ExpositionError::Line { line: index + 1, shown: line.chars().take(60).collect() })?;
            if self.matches(&series) {
                found.push((series, value));
            }
        }
        match &found[..] {
            [(_, value)] => Ok(*value),
            [] => Err(ExpositionError::None(self.clone())),
            several => Err(ExpositionError::Several {
                selector: self.clone(),
                number: several.len(),
                shown: several.iter().take(SHOWN).map(|(series, _)| series.to_string()).collect(),
            }),
        }
    }
}

impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for Series {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let labels: Vec<String> =
            self.labels.iter().map(|(label, value)| format!("{label}=\"{}\"", escape(value))).collect();
        match labels.is_empty() {
            true => f.write_str(&self.name),
            false => write!(f, "{}{{{}}}", self.name, labels.join(",")),
        }
    }
}

/// The value of a label, escaped for quotes.
pub(crate) fn escape(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

/// `series value [timestamp]`.
fn sample(input: &mut &str) -> Result<(Series, f64)> {
    // Rust also accepts `infinity`, which does no harm.
    let value = take_while(1.., |c: char| !c.is_ascii_whitespace()).parse_to();
    let timestamp = opt((space1, dec_int::<_, i64, _>));
    (series, preceded(space0, value), timestamp).map(|(series, value, _)| (series, value)).parse_next(input)
}

/// `name`, or `name{label="value",…}`. A comma may follow the last label.
fn series(input: &mut &str) -> Result<Series> {
    let comma = (space0, ',', space0);
    let list = opt(terminated(separated(1.., label, (space0, ',', space0)), opt(comma)));
    let labels = opt(delimited((space0, '{', space0), list.map(Option::unwrap_or_default), (space0, '}')));
    (word, labels.map(Option::unwrap_or_default))
        .verify_map(|(name, labels): (&str, Vec<(&str, String)>)| {
            let number = labels.len();
            let labels: BTreeMap<_, _> = labels.into_iter().map(|(label, value)| (label.to_owned(), value)).collect();
            // No label occurs twice.
            (labels.len() == number).then(|| Series { name: name.to_owned(), labels })
        })
        .parse_next(input)
}

/// `label="value"`.
fn label<'i>(input: &mut &'i str) -> Result<(&'i str, String)> {
    let name = word.verify(|name: &str| !name.contains(':'));
    separated_pair(name, (space0, '=', space0), quoted).parse_next(input)
}

/// A name, which does not begin with a digit.
fn word<'i>(input: &mut &'i str) -> Result<&'i str> {
    let rest = take_while(0.., ('a'..='z', 'A'..='Z', '0'..='9', '_', ':'));
    (one_of(('a'..='z', 'A'..='Z', '_', ':')), rest).take().parse_next(input)
}

/// A text in quotes.
fn quoted(input: &mut &str) -> Result<String> {
    let escaped = preceded('\\', alt(('n'.value('\n'), one_of(['\\', '"']))));
    let characters = repeat(0.., alt((none_of(['"', '\\']), escaped)));
    delimited('"', characters, '"').parse_next(input)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of the format's own documentation, in part.
    const TEXT: &str = r#"
# HELP http_requests_total The total number of HTTP requests.
# TYPE http_requests_total counter
http_requests_total{method="post",code="200"} 1027 1395066363000
http_requests_total{method="post",code="400"}    3 1395066363000
# Escaping in label values:
msdos_file_access_time_seconds{path="C:\\DIR\\FILE.TXT",error="Cannot find file:\n\"FILE.TXT\""} 1.458255915e9
# Minimalistic line:
metric_without_timestamp_and_labels 12.47
# A weird metric from before the epoch:
something_weird{problem="division by zero"} +Inf -3982045
rpc_duration_seconds{quantile="0.5",} 4773
rpc_duration_seconds { quantile = "0.9" , } NaN
"#;

    fn find(selector: &str) -> std::result::Result<f64, ExpositionError> {
        Selector::parse(selector).unwrap().find(TEXT)
    }

    #[test]
    fn a_series_is_found_by_name_and_labels() {
        assert_eq!(find("metric_without_timestamp_and_labels"), Ok(12.47));
        assert_eq!(find("http_requests_total{code=\"400\"}"), Ok(3.0));
        assert_eq!(find("http_requests_total{code=\"200\", method=\"post\"}"), Ok(1027.0));
        assert_eq!(find("rpc_duration_seconds{quantile=\"0.5\"}"), Ok(4773.0));
        assert!(find("rpc_duration_seconds{quantile=\"0.9\"}").is_ok_and(f64::is_nan));
        assert_eq!(find("something_weird"), Ok(f64::INFINITY));
        assert_eq!(find(r#"msdos_file_access_time_seconds{path="C:\\DIR\\FILE.TXT"}"#), Ok(1.458255915e9));
    }

    #[test]
    fn one_series_must_match() {
        let told = find("http_requests_total").unwrap_err().to_string();
        assert!(told.contains("2 series match") && told.contains("{code=\"400\",method=\"post\"}"), "{told}");
        assert_eq!(find("http_requests_total{code=\"500\"}").unwrap_err().to_string(), {
            "there is no series http_requests_total{code=\"500\"}"
        });
        // A part of a name does not match.
        assert!(find("http_requests").is_err());
    }

    #[test]
    fn other_texts_are_refused() {
        for text in [
            "<html>",
            "a",
            "a b",
            "a 1 2 3",
            "a 1 1.5",
            "a{ 1",
            "a{b} 1",
            "a{b=c} 1",
            "a{b=\"c} 1",
            "a{b=\"\\x\"} 1",
            "a{b=\"c\" d=\"e\"} 1",
            "a{b=\"1\",b=\"2\"} 1",
            "a{b:c=\"1\"} 1",
            "a{,} 1",
            "1a 1",
            "a{b=\"\\",
        ] {
            let told = Selector::parse("a").unwrap().find(&format!("# fine\n{text}\n")).unwrap_err().to_string();
            assert!(told.starts_with("line 2 is not a sample"), "{text}: {told}");
        }
        for selector in ["", "a b", "a{", "{a=\"b\"}", "a{b=\"c\"}d", "a 5"] {
            assert!(Selector::parse(selector).unwrap_err().to_string().contains("is not a metric"), "{selector}");
        }
        for end in 0..TEXT.len() {
            let _ = Selector::parse("a").unwrap().find(TEXT.get(..end).unwrap_or(""));
        }
    }

    #[test]
    fn a_selector_is_written_as_it_was_read() {
        let text = r#"a:b{c="\\d\"\n",e=""}"#;
        assert_eq!(Selector::parse(text).unwrap().to_string(), text);
    }
}
