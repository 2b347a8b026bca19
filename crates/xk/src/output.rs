//! Output: JSON for programs, aligned text for people; colour only on a terminal.

use std::io::IsTerminal;

use jiff::tz::TimeZone;
use jiff::Timestamp;
use serde::Serialize;
use serde_json::{json, Value};
use xk_table::{listed, range_words, Values};

/// Version of every JSON document that this command prints. It is raised when a field changes its meaning or is removed;
/// fields may be added at any time.
pub const SCHEMA: u32 = 2;

/// Prints a JSON document: `fields` and the schema.
pub fn print_json(mut fields: Value) {
    fields["schema"] = json!(SCHEMA);
    println!("{fields:#}");
}

/// `value` as JSON. The types of this project can always be serialised.
pub fn to_json(value: &impl Serialize) -> Value {
    serde_json::to_value(value).unwrap_or(Value::Null)
}

/// Colours, or none.
#[derive(Debug, Clone, Copy)]
pub struct Paint {
    colour: bool,
}

impl Paint {
    /// No colours.
    #[cfg(test)]
    pub const PLAIN: Paint = Paint { colour: false };

    /// For standard output.
    pub fn stdout() -> Self {
        Self::on(std::io::stdout().is_terminal())
    }

    /// For standard error.
    pub fn stderr() -> Self {
        Self::on(std::io::stderr().is_terminal())
    }

    fn on(terminal: bool) -> Self {
        let unwanted = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        let dumb = std::env::var_os("TERM").is_some_and(|value| value == "dumb");
        Self { colour: terminal && !unwanted && !dumb }
    }

    fn code(self, code: &str, text: &str) -> String {
        if self.colour {
            format!("\x1b[{code}m{text}\x1b[0m")
        } else {
            text.to_owned()
        }
    }

    /// Names and values.
    pub fn strong(self, text: &str) -> String {
        self.code("1", text)
    }

    /// Details.
    pub fn dim(self, text: &str) -> String {
        self.code("2", text)
    }

    /// What depends on V.
    pub fn value(self, text: &str) -> String {
        self.code("36", text)
    }

    /// Success.
    pub fn good(self, text: &str) -> String {
        self.code("32", text)
    }

    /// A warning.
    pub fn warning(self, text: &str) -> String {
        self.code("1;33", text)
    }

    /// An error.
    pub fn bad(self, text: &str) -> String {
        self.code("1;31", text)
    }
}

/// Text in columns, two spaces apart. A column is as wide as its widest cell.
#[derive(Debug, Default)]
pub struct Columns {
    rows: Vec<Vec<String>>,
}

impl Columns {
    /// Adds a row.
    pub fn row<const N: usize>(&mut self, cells: [String; N]) {
        self.rows.push(cells.into());
    }

    /// The lines, each after `indent`. Numbers are right-aligned.
    pub fn lines(&self, indent: &str) -> String {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let width = |column: usize| self.rows.iter().filter_map(|row| row.get(column)).map(|c| c.chars().count()).max();
        let widths: Vec<usize> = (0..columns).map(|column| width(column).unwrap_or(0)).collect();
        let mut text = String::new();
        for row in &self.rows {
            let mut line = indent.to_owned();
            for (cell, width) in row.iter().zip(&widths) {
                let digits = cell.strip_prefix('-').unwrap_or(cell);
                let number = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
                let padding = " ".repeat(width - cell.chars().count());
                if number {
                    line += &format!("{padding}{cell}  ");
                } else {
                    line += &format!("{cell}{padding}  ");
                }
            }
            text += line.trim_end();
            text.push('\n');
        }
        text
    }
}

/// Maximum number of compiled values in a line about something else.
const SHOWN: usize = 6;

/// The values that may be set, with their proof status.
pub fn values(values: &Values) -> String {
    let proved = values.proved.map(|proved| format!("{} (proved)", range_words(proved)));
    let compiled = match values.compiled.len() {
        0 => None,
        some if some <= SHOWN => Some(format!("{} (compiled)", listed(&values.compiled, SHOWN))),
        many => Some(format!("{} ({many} compiled)", listed(&values.compiled, SHOWN))),
    };
    proved.into_iter().chain(compiled).collect::<Vec<_>>().join(", ")
}

/// Seconds since 1970, as a date and a time of this zone, which is shown as its difference from UTC.
pub fn moment(seconds: i64, zone: &TimeZone) -> String {
    let moment = Timestamp::from_second(seconds).map(|moment| moment.to_zoned_datetime(zone.clone()));
    moment.map_or_else(|_| seconds.to_string(), |moment| moment.strftime("%Y-%m-%d %H:%M:%S %:z").to_string())
}

/// `1 span`, `2 spans`.
pub fn count(number: usize, what: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{number} {what}{plural}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_align_text_left_and_numbers_right() {
        let mut columns = Columns::default();
        columns.row(["name".into(), "5".into(), "x".into()]);
        columns.row(["n".into(), "-17".into(), String::new()]);
        assert_eq!(columns.lines("  "), "  name    5  x\n  n     -17\n");
    }

    #[test]
    fn values_are_named_with_what_shows_them() {
        assert_eq!(values(&Values::proved(1, i64::MAX)), "1 to 2^63-1 (proved)");
        assert_eq!(values(&Values::compiled([4, 8, 128])), "4, 8, 128 (compiled)");
        let both = Values { compiled: vec![128, 256], ..Values::proved(1, 100) };
        assert_eq!(values(&both), "1 to 100 (proved), 128, 256 (compiled)");
        let many: Vec<i64> = (1..=20).collect();
        assert_eq!(values(&Values::compiled(many)), "1, 2, 3, 4, 5, … 20 (20 compiled)");
    }
}
