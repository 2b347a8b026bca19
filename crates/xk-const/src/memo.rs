//! Resolved constants on disk: what a name meant the last time, with the file as it was then. Only
//! results that took the compiler are worth keeping; anything that does not read back is resolved again.

use crate::constant::{Constant, Form, SourceRange};
use crate::id::ConstId;
use crate::resolve::{line_of, resolve, ResolveError};
use crate::spec::Spec;
use crate::tree::BuildTree;
use crate::value::{CType, Operator};
use sha2::{Digest, Sha256};
use std::io::Write;
use std::path::{Path, PathBuf};

/// Raised when resolving gives other results than before.
const FORMAT: &str = "2";

const FORMS: [(Form, &str); 4] =
    [(Form::Macro, "macro"), (Form::Literal, "literal"), (Form::StaticConst, "const"), (Form::EnumValue, "enumerator")];
const OPERATORS: [(Operator, &str); 5] = [
    (Operator::Other, "other"),
    (Operator::Compare, "compare"),
    (Operator::Multiplier, "multiplier"),
    (Operator::Divisor, "divisor"),
    (Operator::ShiftCount, "shift"),
];

/// Like [`resolve()`], and remembers the result in the tree's cache.
pub fn recall(tree: &impl BuildTree, spec: &Spec) -> Result<Constant, ResolveError> {
    let path = note(tree, spec);
    if let Some(constant) = read(tree, &path) {
        return Ok(constant);
    }
    let constant = resolve(tree, spec)?;
    // Without a note the next call takes longer, nothing else.
    let _ = write(tree, &path, &constant);
    Ok(constant)
}

fn note(tree: &impl BuildTree, spec: &Spec) -> PathBuf {
    let spec = match spec {
        Spec::Name(name) => format!("name {name}"),
        Spec::Line { path, line } => format!("line {path}:{line}"),
        Spec::Id(id) => format!("id {id}"),
    };
    let key = hex(format!("{FORMAT}\n{}\n{spec}", tree.stamp()).as_bytes());
    tree.cache().join(format!("resolved-{key}"))
}

fn hex(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().take(12).map(|b| format!("{b:02x}")).collect()
}

fn write(tree: &impl BuildTree, path: &Path, constant: &Constant) -> Option<()> {
    let word = |table: &[(Form, &'static str)]| table.iter().find(|(form, _)| *form == constant.form).map(|(_, w)| *w);
    let operator = OPERATORS.iter().find(|(operator, _)| *operator == constant.operator)?.1;
    let source = tree.read(&constant.range.path).ok()?;
    let lines = [
        hex(&source),
        constant.id.to_string(),
        constant.name.clone().unwrap_or_default(),
        word(&FORMS)?.to_owned(),
        constant.default.to_string(),
        constant.c_type.name().to_owned(),
        operator.to_owned(),
        constant.range.line.to_string(),
        constant.range.start.to_string(),
        constant.range.end.to_string(),
        constant.witness.clone(),
        "end".to_owned(),
    ];
    let mut file = tempfile::NamedTempFile::new_in(path.parent()?).ok()?;
    file.write_all(lines.join("\n").as_bytes()).ok()?;
    file.persist(path).ok().map(drop)
}

fn read(tree: &impl BuildTree, path: &Path) -> Option<Constant> {
    let text = std::fs::read_to_string(path).ok()?;
    let lines: Vec<&str> = text.split('\n').collect();
    let [digest, id, name, form, default, c_type, operator, line, start, end, witness, "end"] = lines[..] else {
        return None;
    };
    let id: ConstId = id.parse().ok()?;
    let source = tree.read(&id.path).ok().filter(|source| hex(source) == digest)?;
    let (start, end) = (start.parse().ok()?, end.parse().ok()?);
    let written = String::from_utf8_lossy(source.get(start..end)?).into_owned();
    Some(Constant {
        name: Some(name.to_owned()).filter(|name| !name.is_empty()),
        text: line_of(&source, id.line),
        token: id.value.clone(),
        form: FORMS.iter().find(|(_, word)| *word == form)?.0,
        default: default.parse().ok()?,
        c_type: CType::ALL.iter().find(|(_, word)| *word == c_type)?.0,
        operator: OPERATORS.iter().find(|(_, word)| *word == operator)?.0,
        range: SourceRange { path: id.path.clone(), line: line.parse().ok()?, start, end, written },
        witness: witness.to_owned(),
        id,
    })
}
