//! Which of several known constants a name means: by alias, by `file:line`, or by full ID. Needs no source.

use xk_const::{ConstId, Spec};

use crate::error::Ambiguous;

/// Whether `spec` means the constant with this ID and alias.
fn means(spec: &Spec, id: &str, alias: Option<&str>) -> bool {
    match spec {
        Spec::Name(name) => alias == Some(name),
        Spec::Line { path, line } => {
            id.parse::<ConstId>().is_ok_and(|known| known.path == *path && known.line == *line)
        }
        Spec::Id(wanted) => id == wanted.to_string(),
    }
}

/// The item of `known` that `spec` means; `None` if it means none. `name` returns the ID and the alias of an item,
/// `text` is `spec` as the user wrote it.
///
/// # Errors
/// It means several.
pub fn pick<'a, T>(
    spec: &Spec,
    text: &str,
    known: &'a [T],
    name: impl Fn(&'a T) -> (&'a str, Option<&'a str>),
) -> Result<Option<&'a T>, Ambiguous> {
    let mut found: Vec<&T> = known
        .iter()
        .filter(|item| {
            let (id, alias) = name(item);
            means(spec, id, alias)
        })
        .collect();
    if found.len() > 1 {
        let candidates = found.iter().map(|item| name(item).0.to_owned()).collect();
        return Err(Ambiguous { text: text.to_owned(), candidates });
    }
    Ok(found.pop())
}

/// A name is similar if so large a part of it is the same, by its edits (Damerau-Levenshtein). Two words of ten letters with
/// three differing ones are not.
const SIMILAR: f64 = 0.75;
/// More names are no help.
const MOST: usize = 3;

/// The names that look much like what the user wrote, the most similar one first. Case does not count.
#[must_use]
pub fn similar<'a>(text: &str, names: impl Iterator<Item = &'a str>) -> Vec<String> {
    let text = text.to_uppercase();
    let score = |name: &str| strsim::normalized_damerau_levenshtein(&text, &name.to_uppercase());
    let mut found: Vec<(f64, &str)> =
        names.map(|name| (score(name), name)).filter(|(score, _)| *score >= SIMILAR).collect();
    found.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(b.1)));
    found.truncate(MOST);
    found.into_iter().map(|(_, name)| name.to_owned()).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    const KNOWN: [(&str, Option<&str>); 4] = [
        ("block/blk.h:L335:32:0", Some("BLK_MAX_REQUEST_COUNT")),
        ("net/ipv4/tcp.c:L1162:16:0", None),
        ("net/ipv4/tcp.c:L1200:4:0", None),
        ("net/ipv4/tcp.c:L1200:4:1", None),
    ];

    fn find(text: &str) -> Result<Option<&'static str>, Ambiguous> {
        let spec = Spec::parse(text).unwrap();
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
        let message = find("net/ipv4/tcp.c:1200").unwrap_err().to_string();
        assert!(message.contains("ambiguous") && message.contains(":4:0") && message.contains(":4:1"), "{message}");
    }

    #[test]
    fn a_mistyped_name_has_similar_ones() {
        let names = ["BLK_MAX_REQUEST_COUNT", "SHRINK_BATCH", "TCP_INIT_CWND", "TCP_INIT_CWIN", "SWAP_BATCH"];
        let similar = |text: &str| similar(text, names.into_iter());
        assert_eq!(similar("SHRINK_BACTH"), ["SHRINK_BATCH"]);
        assert_eq!(similar("shrink_batch"), ["SHRINK_BATCH"]);
        assert_eq!(similar("TCP_INIT_CWND2"), ["TCP_INIT_CWND", "TCP_INIT_CWIN"]);
        assert!(similar("NR_SWAP_PAGES").is_empty());
    }
}
