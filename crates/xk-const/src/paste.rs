//! Names that a macro completes with `##`: with `#define STATE(x) TCP_##x`, the text `STATE(OPEN)`
//! uses `TCP_OPEN` without spelling it. Collected once for the index; asked when following a name.

use crate::scan::{Directive, Place, Scan};
use crate::search_path::FileNo;
use crate::token::Kind;

/// A macro that completes a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Paste {
    /// File of the macro.
    pub file: FileNo,
    /// The macro.
    pub name: String,
    part: String,
    first: bool,
}

impl Paste {
    pub fn parse(file: FileNo, text: &str) -> Option<Paste> {
        let mut fields = text.split(':');
        let (side, part, name) = (fields.next()?, fields.next()?, fields.next()?);
        Some(Paste { file, name: name.to_owned(), part: part.to_owned(), first: side == "<" })
    }

    /// What the macro's argument must be to give `name`.
    pub fn argument<'n>(&self, name: &'n str) -> Option<&'n str> {
        let rest = if self.first { name.strip_prefix(&self.part) } else { name.strip_suffix(&self.part) };
        rest.filter(|rest| !rest.is_empty() && self.name != name)
    }
}

/// The pastes of a file, as [`Paste::parse`] reads them.
pub(crate) fn pastes(source: &[u8]) -> Vec<String> {
    let mut found = Vec::new();
    if !source.windows(2).any(|pair| pair == b"##") {
        return found;
    }
    let scan = Scan::new(source);
    for region in scan.directives() {
        let Place::Directive(Directive::Define { name, function: true, body }) = &region.place else { continue };
        let parameters: Vec<&str> = (region.tokens.start + 3..body.start).map(|i| scan.text(i)).collect();
        let fixed = |at: usize| {
            let token = scan.tokens.get(at).filter(|t| body.contains(&at) && t.kind == Kind::Ident)?;
            Some(token.text(source)).filter(|text| !parameters.contains(text) && *text != "__VA_ARGS__")
        };
        for at in body.clone().filter(|&at| scan.text(at) == "##") {
            if let Some(part) = at.checked_sub(1).and_then(fixed) {
                found.push(format!("<:{part}:{name}"));
            }
            if let Some(part) = fixed(at + 1) {
                found.push(format!(">:{part}:{name}"));
            }
        }
    }
    found.sort_unstable();
    found.dedup();
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_completed() {
        let source = b"#define STATE(x) f(TCP_##x)\n#define BOTH(a, b) a##b\n#define MAX(x) x ## _MAX\n#define P 3\n";
        let texts = pastes(source);
        assert_eq!(texts, ["<:TCP_:STATE", ">:_MAX:MAX"]);
        let parsed: Vec<Paste> = texts.iter().map(|t| Paste::parse(0, t).unwrap()).collect();
        assert_eq!(parsed[0].argument("TCP_OPEN"), Some("OPEN"));
        assert_eq!(parsed[0].argument("TCP_"), None);
        assert_eq!(parsed[1].argument("QUEUE_MAX"), Some("QUEUE"));
        assert_eq!(parsed[1].argument("QUEUE_MIN"), None);
    }
}
