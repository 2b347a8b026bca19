//! Asking the compiler: is the constant active in a unit, how often is it expanded there, and what
//! are the value and the type of an expression? Answers come from the deployed configuration and
//! compiler, never from an evaluator in this crate.

use crate::constant::SourceRange;
use crate::edit::{substitute, EditError};
use crate::scan::{Place, Scan};
use crate::tree::{BuildTree, FileEdit, TreeError};
use crate::value::CType;
use object::{Object, ObjectSection};

/// Stands for the constant while looking for it.
const MARKER: &str = "__xk_here";

/// What a unit sees of a constant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sight {
    /// The constant's definition is active in this unit.
    pub active: bool,
    /// How often it is expanded into code, inline functions that may be unused included.
    pub uses: usize,
}

/// What `unit` sees of the constant at `range`, by preprocessing it with a marker in its place.
pub(crate) fn look(tree: &impl BuildTree, range: &SourceRange, unit: &str) -> Result<Sight, EditError> {
    let marked = substitute(tree, range, MARKER)?;
    let text = tree.preprocess(&[marked], unit, &["-dD", "-w"])?;
    let (mut active, mut uses) = (false, 0);
    for line in text.lines().filter(|line| line.contains(MARKER)) {
        active = true;
        if !line.trim_start().starts_with('#') {
            uses += line.matches(MARKER).count();
        }
    }
    Ok(Sight { active, uses })
}

fn text_of(tree: &impl BuildTree, path: &str) -> Result<String, TreeError> {
    Ok(String::from_utf8_lossy(&tree.read(path)?).into_owned())
}

/// What to evaluate.
pub(crate) struct Question<'a> {
    /// Expression with the value.
    pub value: &'a str,
    /// Expression with the type.
    pub typed: &'a str,
    /// Byte after which the expressions are valid, when the end of the unit is too late.
    pub after: Option<usize>,
    /// The declaration at this byte has to stay.
    pub keep: Option<usize>,
}

/// Why an expression has no value.
#[derive(Debug)]
pub(crate) enum NoValue {
    /// Not known when compiling.
    NotConstant(String),
    /// A pointer, a structure or the like.
    NotInteger,
    /// The tree failed.
    Tree(TreeError),
}

/// Value and type of an expression in the context of a unit.
pub(crate) fn evaluate(tree: &impl BuildTree, unit: &str, question: &Question<'_>) -> Result<(i64, CType), NoValue> {
    let source = text_of(tree, unit).map_err(NoValue::Tree)?;
    // Without function bodies the unit compiles several times faster; but what they hold may be needed.
    let skeleton = skeleton(&source, question.keep);
    let mut attempts = vec![(skeleton.clone(), skeleton.len())];
    if let Some(after) = question.after.filter(|&after| skeleton.is_char_boundary(after)) {
        attempts.push((skeleton, after));
    }
    attempts.push((source.clone(), source.len()));
    let mut last = NoValue::NotInteger;
    for (text, at) in attempts {
        match attempt(tree, unit, &text, at, question) {
            Err(NoValue::NotConstant(why)) => last = NoValue::NotConstant(why),
            outcome => return outcome,
        }
    }
    Err(last)
}

fn attempt(
    tree: &impl BuildTree,
    unit: &str,
    text: &str,
    at: usize,
    question: &Question<'_>,
) -> Result<(i64, CType), NoValue> {
    let cases: Vec<String> = CType::ALL.iter().enumerate().map(|(n, (_, name))| format!("{name}: {}", n + 1)).collect();
    let probe = format!(
        "\nstatic __attribute__((__used__, __noinline__)) void __xk_probe(void)\n{{\n\
         \t__asm__ volatile(\".pushsection .xk.value,\\\"a\\\"; .quad %c0, %c1; .popsection\"\n\
         \t\t: : \"i\"((long long)({})), \"i\"(_Generic(({}), {}, default: 0)));\n}}\n",
        question.value,
        question.typed,
        cases.join(", ")
    );
    let content = format!("{}{probe}{}", &text[..at], &text[at..]);
    let failed = |what: String| NoValue::Tree(TreeError::Failed(what));
    let folder = tempfile::tempdir().map_err(|e| failed(format!("cannot create a temporary folder: {e}")))?;
    let output = folder.path().join("probe.o");
    let edits = [FileEdit { path: unit.to_owned(), content }];
    tree.compile(&edits, unit, &output, &["-g0", "-w"]).map_err(|e| match e {
        TreeError::Rejected { messages, .. } => NoValue::NotConstant(crate::tree::first_error(&messages).to_owned()),
        other => NoValue::Tree(other),
    })?;
    let bytes = std::fs::read(&output).map_err(|e| failed(format!("cannot read the probe's object: {e}")))?;
    let file = object::File::parse(&*bytes).map_err(|e| failed(format!("the probe's object is malformed: {e}")))?;
    let section = file.section_by_name(".xk.value").and_then(|s| s.data().ok()).unwrap_or_default();
    let quad = |at: usize| section.get(at..at + 8).and_then(|b| b.try_into().ok()).map(i64::from_le_bytes);
    match (quad(0), quad(8)) {
        (Some(value), Some(code)) => {
            let c_type = usize::try_from(code - 1).ok().and_then(|n| CType::ALL.get(n));
            c_type.map(|(c_type, _)| (value, *c_type)).ok_or(NoValue::NotInteger)
        }
        _ => Err(failed(format!("the object of the probe of {unit} has no value"))),
    }
}

/// The unit with its directives and types, and nothing else but the declaration around `keep`.
fn skeleton(source: &str, keep: Option<usize>) -> String {
    let scan = Scan::new(source.as_bytes());
    let mut kept: Vec<u8> = source.bytes().map(|b| if b == b'\n' { b } else { b' ' }).collect();
    for (index, token) in scan.tokens.iter().enumerate() {
        let wanted = token.directive.is_some()
            || matches!(scan.place(index), Place::Enum)
            || matches!(scan.place(index), Place::Shape(what) if !what.starts_with("array"))
            || keep.is_some_and(|at| {
                scan.region(index).is_some_and(|r| {
                    let from = scan.tokens.get(r.tokens.start).map_or(0, |t| t.start);
                    let to = scan.tokens.get(r.tokens.end - 1).map_or(0, |t| t.end);
                    from <= at && at < to
                })
            });
        if wanted {
            kept[token.start..token.end].copy_from_slice(&source.as_bytes()[token.start..token.end]);
        }
    }
    // Continuations are not tokens; directives need theirs.
    let directive_lines = scan.directives().iter().map(|d| d.tokens.clone());
    for range in directive_lines {
        let (Some(first), Some(last)) = (scan.tokens.get(range.start), scan.tokens.get(range.end - 1)) else {
            continue;
        };
        let (old, new) = (&source.as_bytes()[first.start..last.start], &mut kept[first.start..last.start]);
        for (new, _) in new.iter_mut().zip(old).filter(|(_, old)| **old == b'\\') {
            *new = b'\\';
        }
    }
    String::from_utf8(kept).unwrap_or_else(|_| source.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn skeleton_drops_code_and_keeps_lines() {
        let source = "#include <a.h>\n#define X \\\n\t(A + \\\n\t B)\nenum { A = 1 };\nint f(void)\n{\n\treturn X;\n}\nstatic const int v = 3;\n";
        let text = skeleton(source, None);
        assert_eq!(text.lines().count(), source.lines().count());
        assert!(text.contains("#include <a.h>") && text.contains("enum { A = 1 };"), "{text}");
        assert!(
            text.contains("#define X \\\n\t(A + \\\n\t B)") || text.contains("#define X \\\n (A + \\\n  B)"),
            "{text}"
        );
        assert!(!text.contains("return") && !text.contains("int v"), "{text}");
        assert!(skeleton(source, source.find("3;")).contains("static const int v = 3;"));
    }
}
