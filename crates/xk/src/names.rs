//! Which constant a person means, among those that are known: by alias, by
//! `file:line`, or by full ID. Needs no sources.

use xk_const::{ConstId, Spec};

use crate::exit::{Failure, Result};

/// Whether `spec` means the constant with this ID and alias.
pub fn means(spec: &Spec, id: &str, alias: Option<&str>) -> bool {
    match spec {
        Spec::Name(name) => alias == Some(name),
        Spec::Line { path, line } => {
            id.parse::<ConstId>().is_ok_and(|known| known.path == *path && known.line == *line)
        }
        Spec::Id(wanted) => id == wanted.to_string(),
    }
}

/// The one of `known` (things, with ID and alias) that `spec` means; `None` if none does.
pub fn pick<'a, T>(
    spec: &Spec,
    text: &str,
    known: &'a [T],
    name: impl Fn(&'a T) -> (&'a str, Option<&'a str>),
) -> Result<Option<&'a T>> {
    let mut found: Vec<&T> = known
        .iter()
        .filter(|thing| {
            let (id, alias) = name(thing);
            means(spec, id, alias)
        })
        .collect();
    if found.len() > 1 {
        let candidates: String = found.iter().map(|thing| format!("\n  {}", name(thing).0)).collect();
        return Err(Failure::error(format!("`{text}` is ambiguous; name one of:{candidates}")));
    }
    Ok(found.pop())
}

#[cfg(test)]
mod tests {
    use super::*;

    const KNOWN: [(&str, Option<&str>); 4] = [
        ("block/blk.h:L335:32:0", Some("BLK_MAX_REQUEST_COUNT")),
        ("net/ipv4/tcp.c:L1162:16:0", None),
        ("net/ipv4/tcp.c:L1200:4:0", None),
        ("net/ipv4/tcp.c:L1200:4:1", None),
    ];

    fn find(text: &str) -> Result<Option<&'static str>> {
        let spec = Spec::parse(text)?;
        Ok(pick(&spec, text, &KNOWN, |(id, alias)| (*id, *alias))?.map(|(id, _)| *id))
    }

    #[test]
    fn by_alias_line_and_id() {
        for text in ["BLK_MAX_REQUEST_COUNT", "block/blk.h:335", "block/blk.h:L335:32:0"] {
            assert_eq!(find(text).unwrap(), Some("block/blk.h:L335:32:0"), "{text}");
        }
        assert_eq!(find("net/ipv4/tcp.c:L1200:4:1").unwrap(), Some("net/ipv4/tcp.c:L1200:4:1"));
        for text in ["BLK_MAX", "block/blk.h:336", "blk.h:335", "block/blk.h:L335:33:0"] {
            assert_eq!(find(text).unwrap(), None, "{text}");
        }
    }

    #[test]
    fn several_are_listed() {
        let message = find("net/ipv4/tcp.c:1200").unwrap_err().message;
        assert!(message.contains("ambiguous") && message.contains(":4:0") && message.contains(":4:1"), "{message}");
    }
}
