//! The object-like macros of the deployed sources, and the values of expressions over them.

use crate::conditions::Config;
use crate::eval::{self, Names, Typed};
use crate::search_path::FileNo;
use crate::token::{tokenize, Kind};
use crate::value::CType;
use std::collections::HashMap;

/// Macros within macros that are followed.
const DEEPEST: usize = 12;

/// What a name is defined as, per file. The configuration's losers are not in it.
#[derive(Default)]
pub(crate) struct Table {
    bodies: HashMap<String, Vec<(FileNo, String)>>,
    hz: Option<i64>,
}

impl Table {
    pub fn new(config: Option<&Config>) -> Table {
        Table { bodies: HashMap::new(), hz: config.and_then(|config| config.value("CONFIG_HZ")) }
    }

    pub fn insert(&mut self, name: String, file: FileNo, body: String) {
        self.bodies.entry(name).or_default().push((file, body));
    }

    /// Whether the name is defined.
    pub fn has(&self, name: &str) -> bool {
        self.bodies.contains_key(name) || known(name).is_some()
    }

    /// The value of an expression as `file` sees it.
    pub fn value(&self, file: FileNo, tokens: &[(Kind, &str)]) -> Option<Typed> {
        eval::evaluate(tokens, &Lookup { table: self, file, depth: 0 })
    }
}

/// Values of macros that the architecture defines by conditions and assembly.
fn known(name: &str) -> Option<Typed> {
    let long = |value| Some(Typed { value, c_type: CType::UnsignedLong });
    match name {
        "PAGE_SIZE" => long(4096),
        "PAGE_SHIFT" => Some(Typed::int(12)),
        "PMD_SHIFT" => Some(Typed::int(21)),
        "PMD_SIZE" => long(1 << 21),
        "INT_MAX" => Some(Typed::int(i64::from(i32::MAX))),
        "BITS_PER_LONG" => Some(Typed::int(64)),
        "BITS_PER_BYTE" => Some(Typed::int(8)),
        _ => None,
    }
}

struct Lookup<'a> {
    table: &'a Table,
    file: FileNo,
    depth: usize,
}

impl Names for Lookup<'_> {
    fn name(&self, name: &str) -> Option<Typed> {
        if name == "HZ" {
            return self.table.hz.map(Typed::int);
        }
        if let Some(value) = known(name) {
            return Some(value);
        }
        if self.depth == DEEPEST {
            return None;
        }
        let bodies = self.table.bodies.get(name)?;
        let own: Vec<&(FileNo, String)> = bodies.iter().filter(|(file, _)| *file == self.file).collect();
        let chosen = if own.is_empty() { bodies.iter().collect() } else { own };
        // Several definitions are as good as one when they agree.
        let (file, body) = chosen.first()?;
        if chosen.iter().any(|(_, other)| other != body) {
            return None;
        }
        let tokens = tokenize(body.as_bytes());
        let tokens: Vec<(Kind, &str)> = tokens.iter().map(|t| (t.kind, t.text(body.as_bytes()))).collect();
        eval::evaluate(&tokens, &Lookup { table: self.table, file: *file, depth: self.depth + 1 })
    }

    fn call(&self, function: &str, argument: Typed) -> Option<Typed> {
        let hz = i128::from(self.table.hz?);
        let wide = argument.wide();
        let jiffies = |per_second: i128| {
            let value = wide.checked_mul(hz)?.checked_add(per_second - 1)? / per_second;
            let value = i64::try_from(value).ok().filter(|_| wide >= 0)?;
            Some(Typed { value, c_type: CType::UnsignedLong })
        };
        match function {
            "msecs_to_jiffies" => jiffies(1000),
            "usecs_to_jiffies" => jiffies(1_000_000),
            "secs_to_jiffies" => jiffies(1),
            "BIT" | "BIT_ULL" => {
                let value = u32::try_from(wide).ok().and_then(|count| 1_u64.checked_shl(count))?;
                Some(Typed { value: value as i64, c_type: CType::UnsignedLong })
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn macros_are_followed_and_ends_are_found() {
        let mut table = Table { hz: Some(250), ..Table::default() };
        for (name, file, body) in [
            ("A", 1, "(B / 25)"),
            ("B", 1, "HZ"),
            ("B", 2, "50"),
            ("C", 2, "C + 1"),
            ("D", 2, "5"),
            ("D", 3, "(5)"),
            ("E", 2, "7"),
            ("E", 3, "7"),
        ] {
            table.insert(name.to_owned(), file, body.to_owned());
        }
        let of = |file, text: &str| {
            let tokens = tokenize(text.as_bytes());
            let tokens: Vec<_> = tokens.iter().map(|t| (t.kind, t.text(text.as_bytes()))).collect();
            table.value(file, &tokens).map(|typed| typed.value)
        };
        assert_eq!(of(1, "A"), Some(10));
        assert_eq!(of(2, "B"), Some(50));
        assert_eq!(of(9, "B"), None);
        assert_eq!(of(9, "C"), None);
        assert_eq!((of(9, "D"), of(9, "E")), (None, Some(7)));
        assert_eq!(of(1, "msecs_to_jiffies(2)"), Some(1));
        assert_eq!(of(1, "msecs_to_jiffies(-2)"), None);
        assert_eq!(of(1, "2 * PAGE_SIZE"), Some(8192));
    }
}
