//! The list of constants: one line each, columns separated by tabs.
//!
//! In: `id`, `name`, `defined_at` (`file:line`), `text`, `used_in`, and the number of spans that was
//! reported for another kernel. Out: rows, and the constant that each of them means. Refuses lines
//! that are not of this form, with their number.

use std::path::Path;
use std::str::FromStr;

use anyhow::{bail, ensure, Context, Result};
use serde::{Deserialize, Serialize};

/// One line of the list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Row {
    /// Its number; numbers need not be consecutive.
    pub id: u32,
    /// A name, or an expression that stands for the literal in it.
    pub name: String,
    /// `file:line`.
    pub defined_at: String,
    /// What stands there.
    pub text: String,
    /// The full ID of the constant, if it is known. The list does not have it.
    #[serde(default)]
    pub constant: Option<String>,
}

impl Row {
    /// What `xk build` would be asked for.
    ///
    /// # Errors
    /// When the row is an expression without exactly one integer literal.
    pub fn spec(&self) -> Result<String> {
        if let Some(id) = &self.constant {
            return Ok(id.clone());
        }
        let mut letters = self.name.chars();
        let identifier = letters.next().is_some_and(|c| c.is_ascii_alphabetic() || c == '_')
            && letters.all(|c| c.is_ascii_alphanumeric() || c == '_');
        if identifier {
            return Ok(self.name.clone());
        }
        let literals = literals(&self.text);
        let [literal] = literals[..] else {
            anyhow::bail!("`{}` holds {} integer literals; one is needed to mean it", self.text, literals.len());
        };
        let (file, line) = self.defined_at.rsplit_once(':').context("defined_at is not file:line")?;
        Ok(format!("{file}:L{line}:{literal}:0"))
    }
}

/// The integer literals of a line of C.
fn literals(text: &str) -> Vec<&str> {
    let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    text.split(|c| !word(c)).filter(|token| token.starts_with(|c: char| c.is_ascii_digit())).collect()
}

/// Reads a list.
///
/// # Errors
/// When it cannot be read, or a line is malformed.
pub fn read(path: &Path) -> Result<Vec<Row>> {
    let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
    parse(&text).with_context(|| path.display().to_string())
}

fn parse(text: &str) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for (number, line) in text.lines().enumerate().filter(|(_, line)| !line.is_empty() && !line.starts_with("id\t")) {
        let row = row(line).with_context(|| format!("line {}", number + 1))?;
        rows.push(row);
    }
    ensure!(!rows.is_empty(), "no constant is listed");
    Ok(rows)
}

fn row(line: &str) -> Result<Row> {
    let columns: Vec<&str> = line.split('\t').collect();
    let [id, name, defined_at, text, ..] = columns[..] else {
        anyhow::bail!("{} columns, at least 4 are needed: id, name, defined_at, text", columns.len());
    };
    let id = id.parse().with_context(|| format!("`{id}` is no number"))?;
    ensure!(!name.is_empty(), "the name is empty");
    Ok(Row { id, name: name.to_owned(), defined_at: defined_at.to_owned(), text: text.to_owned(), constant: None })
}

/// Part `index` of `of` parts, counted from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shard {
    index: usize,
    of: usize,
}

impl Shard {
    /// The rows of this part. Neighbours in the list often share a file and take about equally long, so
    /// they are dealt like cards.
    pub fn rows(self, rows: &[Row]) -> Vec<Row> {
        rows.iter().skip(self.index - 1).step_by(self.of).cloned().collect()
    }
}

impl FromStr for Shard {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        let parts = text.split_once('/').and_then(|(index, of)| Some((index.parse().ok()?, of.parse().ok()?)));
        match parts {
            Some((index, of)) if (1..=of).contains(&index) => Ok(Self { index, of }),
            _ => bail!("`{text}` is no part: write I/N with I from 1 to N"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(name: &str, text: &str) -> Result<String> {
        Row { id: 1, name: name.into(), defined_at: "a/b.c:7".into(), text: text.into(), constant: None }.spec()
    }

    #[test]
    fn names_and_literals_are_told_apart() {
        assert_eq!(spec("SHRINK_BATCH", "#define SHRINK_BATCH 128").unwrap(), "SHRINK_BATCH");
        assert_eq!(spec("p->node_stamp += 2 * TICK_NSEC", "p->x2 += 2 * T").unwrap(), "a/b.c:L7:2:0");
        assert_eq!(spec("delta = x / 0x10UL", "delta = x / 0x10UL;").unwrap(), "a/b.c:L7:0x10UL:0");
        assert!(spec("a * b", "a * b").is_err());
        assert!(spec("2 * 3", "2 * 3").is_err());
    }

    #[test]
    fn the_list_in_the_repository_is_whole() {
        let rows = read(&Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus.tsv")).unwrap();
        assert_eq!(rows.len(), 108);
        let mut ids: Vec<u32> = rows.iter().map(|row| row.id).collect();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), rows.len(), "a number occurs twice");
        for row in &rows {
            row.spec().unwrap_or_else(|error| panic!("{}: {error}", row.name));
        }
    }

    #[test]
    fn shards_are_a_partition() {
        let rows: Vec<Row> = (0..108)
            .map(|id| Row { id, name: "A".into(), defined_at: "a.c:1".into(), text: String::new(), constant: None })
            .collect();
        for of in [1, 2, 7, 108, 200] {
            let mut seen = Vec::new();
            let mut sizes = Vec::new();
            for index in 1..=of {
                let part = format!("{index}/{of}").parse::<Shard>().unwrap().rows(&rows);
                sizes.push(part.len());
                seen.extend(part.into_iter().map(|row| row.id));
            }
            assert_eq!(seen.len(), rows.len(), "{of} shards overlap or miss something");
            seen.sort_unstable();
            assert!(seen.into_iter().eq(0..108), "{of} shards are not the whole");
            assert!(sizes.iter().max().unwrap() - sizes.iter().min().unwrap() <= 1, "{of} shards are uneven");
        }
    }

    #[test]
    fn malformed_input_is_refused() {
        for text in ["0/3", "4/3", "1", "a/b", "1/0", "-1/2"] {
            assert!(text.parse::<Shard>().is_err(), "{text}");
        }
        for text in ["", "id\tname\n", "1\tA\n", "x\tA\ta.c:1\tt\n", "1\t\ta.c:1\tt\n"] {
            assert!(parse(text).is_err(), "{text:?}");
        }
    }
}
