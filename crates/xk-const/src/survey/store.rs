//! The survey on disk: a line per candidate, keyed by the tree's stamp. What does not read back whole
//! is surveyed again.

use super::{Category, Listed, Survey, Written};
use crate::tree::{BuildTree, TreeError};
use crate::value::CType;
use sha2::{Digest, Sha256};
use std::io::Write;
use std::path::PathBuf;

/// Raised when a survey finds other things than before.
const FORMAT: &str = "6";
const END: &str = "end";

fn path(tree: &impl BuildTree, kind: &str) -> PathBuf {
    let key = Sha256::digest(format!("{FORMAT}\n{}", tree.stamp()));
    let key: String = key.iter().take(10).map(|b| format!("{b:02x}")).collect();
    tree.cache().join(format!("survey-{kind}-{key}"))
}

/// What was found the last time.
pub(super) fn read(tree: &impl BuildTree, literals: bool) -> Option<Survey> {
    let rows = |kind: &str| -> Option<Vec<Listed>> {
        let text = std::fs::read_to_string(path(tree, kind)).ok()?;
        let body = text.strip_suffix(END)?;
        body.lines().map(parse).collect()
    };
    Some(Survey { named: rows("named")?, literals: if literals { rows("literals")? } else { Vec::new() } })
}

/// Keeps it.
pub(super) fn write(tree: &impl BuildTree, survey: &Survey) -> Result<(), TreeError> {
    for (kind, rows) in [("named", &survey.named), ("literals", &survey.literals)] {
        let path = path(tree, kind);
        let fail = |error: std::io::Error| {
            TreeError::Failed(format!("cannot write {}: {error}; free space or choose another folder", path.display()))
        };
        let folder = tree.cache();
        std::fs::create_dir_all(&folder).map_err(fail)?;
        let mut file = tempfile::NamedTempFile::new_in(&folder).map_err(fail)?;
        let text: String = rows.iter().map(line).collect();
        file.write_all(text.as_bytes()).and_then(|()| file.write_all(END.as_bytes())).map_err(fail)?;
        file.persist(&path).map_err(|e| fail(e.error))?;
    }
    Ok(())
}

fn line(listed: &Listed) -> String {
    let value = listed.value.map_or_else(String::new, |value| value.to_string());
    let fields = [
        listed.id.to_string(),
        listed.name.clone(),
        listed.written.word().to_owned(),
        value,
        listed.c_type.map_or("", CType::name).to_owned(),
        listed.category.word().to_owned(),
        listed.why.join("\u{1f}"),
        listed.units.to_string(),
        listed.mentions.to_string(),
        listed.used_in.join(" "),
    ];
    format!("{}\n", fields.join("\t"))
}

fn parse(line: &str) -> Option<Listed> {
    let fields: Vec<&str> = line.split('\t').collect();
    let [id, name, written, value, c_type, category, why, units, mentions, used_in] = fields[..] else { return None };
    let list = |text: &str, separator: char| -> Vec<String> {
        text.split(separator).filter(|part| !part.is_empty()).map(str::to_owned).collect()
    };
    Some(Listed {
        id: id.parse().ok()?,
        name: name.to_owned(),
        written: Written::of_word(written)?,
        value: if value.is_empty() { None } else { Some(value.parse().ok()?) },
        c_type: CType::ALL.iter().find(|(_, word)| *word == c_type).map(|(c_type, _)| *c_type),
        category: Category::of_word(category)?,
        why: list(why, '\u{1f}'),
        units: units.parse().ok()?,
        mentions: mentions.parse().ok()?,
        used_in: list(used_in, ' '),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_read_back() {
        let listed = Listed {
            id: "mm/shrinker.c:L378:(1U << 7):0".parse().unwrap(),
            name: "SHRINK_BATCH".into(),
            written: Written::Macro,
            value: Some(-128),
            c_type: Some(CType::UnsignedLong),
            category: Category::Batch,
            why: vec!["compared with `>=`".into(), "BATCH in its name".into()],
            units: 3,
            mentions: 7,
            used_in: vec!["vmlinux".into(), "xfs".into()],
        };
        assert_eq!(parse(line(&listed).trim_end_matches('\n')), Some(listed.clone()));
        let bare = Listed { value: None, c_type: None, why: Vec::new(), used_in: Vec::new(), ..listed };
        assert_eq!(parse(line(&bare).trim_end_matches('\n')), Some(bare));
        assert_eq!(parse("a\tb"), None);
    }
}
