//! What a heap in debug mode says of its objects, for `list` and `run`.

use serde_json::{json, Value};
use xk_flex::{Damage, Damages, Heap, Site};

use crate::output::count;

/// So many lines, and so many damaged objects, are shown.
const MOST: usize = 10;

/// What is wrong with the objects of a heap, and which lines allocated those that live.
pub struct Inspected {
    /// What calls have found.
    damages: Vec<Damages>,
    /// What is wrong now.
    damaged: Vec<Damage>,
    sites: Vec<Site>,
}

impl Inspected {
    /// Nothing if the heap is not in debug mode.
    pub fn of(heap: &Heap<'_>) -> Option<Self> {
        heap.is_debug().then(|| Self { damages: heap.damages(), damaged: heap.damaged(), sites: heap.sites() })
    }

    /// In words, one line each.
    pub fn words(&self) -> String {
        let mut text = String::new();
        for Damages { kind, count: times, first } in &self.damages {
            text += &format!("{kind}: {}\n", count(*times as usize, "time"));
            text += &first.as_ref().map_or_else(String::new, |first| format!("  the first: {first}\n"));
        }
        if self.damages.is_empty() && self.damaged.is_empty() {
            text += "debug mode: no object is damaged\n";
        } else if !self.damaged.is_empty() {
            text += &format!("damaged now: {}\n", count(self.damaged.len(), "object"));
        }
        self.damaged.iter().take(MOST).for_each(|damage| text += &format!("  {damage}\n"));
        text += &rest(self.damaged.len());
        text += "live objects, by the line that allocated them:\n";
        for Site { line, objects, bytes } in self.sites.iter().take(MOST) {
            text += &format!("  {line}: {}, {}\n", count(*objects as usize, "object"), count(*bytes as usize, "byte"));
        }
        if self.sites.is_empty() {
            text += "  none\n";
        }
        text + &rest(self.sites.len())
    }

    /// As JSON.
    pub fn json(&self) -> Value {
        let damages = self.damages.iter().map(|Damages { kind, count, first }| {
            json!({ "kind": kind.to_string(), "count": count, "first": first.as_ref().map(damage_json) })
        });
        let sites = self
            .sites
            .iter()
            .map(|Site { line, objects, bytes }| json!({ "line": line, "objects": objects, "bytes": bytes }));
        json!({
            "found": damages.collect::<Vec<_>>(),
            "damaged": self.damaged.iter().map(damage_json).collect::<Vec<_>>(),
            "sites": sites.collect::<Vec<_>>(),
        })
    }
}

fn rest(all: usize) -> String {
    if all > MOST {
        format!("  and {} more\n", all - MOST)
    } else {
        String::new()
    }
}

fn damage_json(damage: &Damage) -> Value {
    let object = damage.object.as_ref().map(|object| {
        json!({
            "address": object.address,
            "size": object.size,
            "allocated": object.allocated,
            "freed": object.freed,
        })
    });
    json!({
        "kind": damage.kind.to_string(),
        "address": damage.address,
        "object": object,
        "found": damage.found,
    })
}

#[cfg(test)]
mod tests {
    use xk_flex::{DamageKind, DebugObject};

    use super::*;

    #[test]
    fn damage_and_lines_are_shown() {
        let object = DebugObject { address: 0x1000, size: 24, allocated: "chain.h:44".into(), freed: None };
        let first = Damage {
            kind: DamageKind::Behind,
            address: 0x1018,
            object: Some(object),
            found: Some("cache.bpf.c:7".into()),
        };
        let found = Damages { kind: DamageKind::Behind, count: 3, first: Some(first.clone()) };
        let site = |number: u64| Site { line: format!("cache.bpf.c:{number}"), objects: 1, bytes: 100 - number };
        let mut inspected =
            Inspected { damages: vec![found], damaged: vec![first; 2], sites: (0..12).map(site).collect() };
        let text = inspected.words();
        let words =
            "written behind an object at 0x1018: 24 bytes at 0x1000, allocated by chain.h:44; found by cache.bpf.c:7";
        assert!(text.starts_with(&format!("written behind an object: 3 times\n  the first: {words}\n")), "{text}");
        assert!(text.contains("damaged now: 2 objects\n"), "{text}");
        assert!(text.ends_with("  cache.bpf.c:9: 1 object, 91 bytes\n  and 2 more\n"), "{text}");
        (inspected.damages, inspected.damaged, inspected.sites) = Default::default();
        let text = inspected.words();
        assert_eq!(text, "debug mode: no object is damaged\nlive objects, by the line that allocated them:\n  none\n");
    }
}
