//! `xk flex list`: the extensions that are loaded.

use jiff::tz::TimeZone;
use serde_json::{json, Value};
use xk_flex::kept::{Kept, Status};

use super::damage::Inspected;
use super::run::{heap_json, heap_words, unreported_words};
use crate::exit::Result;
use crate::output::{count, moment, print_json, to_json, Columns};

/// Arguments of `xk flex list`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Only this one, with the places at which runs were ended
    name: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Prints the list, or one extension in detail.
pub fn run(args: &Args) -> Result {
    let kept = match &args.name {
        Some(name) => vec![Kept::open(name)?],
        None => Kept::all(),
    };
    let is_named = args.name.is_some();
    let all: Vec<(String, Status)> = kept.iter().map(|kept| (kept.name().to_owned(), kept.status())).collect();
    // Of one extension only, since this reads the whole heap; and now, since a process maps a heap once at a time.
    let heap = kept.first().filter(|_| is_named).and_then(|kept| kept.heap().ok().flatten());
    let inspected = heap.as_ref().and_then(Inspected::of);
    if args.json {
        let mut extensions: Vec<_> = all.iter().map(document).collect();
        if let (Some(inspected), Some(first)) = (&inspected, extensions.first_mut()) {
            first["objects"] = inspected.json();
        }
        print_json(json!({ "extensions": extensions }));
    } else if all.is_empty() {
        println!("no extension is loaded");
    } else if is_named {
        all.iter().for_each(|(name, status)| print!("{}", details(name, status)));
        let text = inspected.map_or_else(String::new, |inspected| inspected.words());
        text.lines().for_each(|line| println!("  {line}"));
    } else {
        print!("{}", table(&all));
    }
    Ok(())
}

fn document((name, status): &(String, Status)) -> Value {
    json!({
        "name": name,
        "loaded": to_json(&status.record),
        "attached": status.attached,
        "served": status.is_served,
        "said": status.said,
        "seen": to_json(&status.seen),
        "heap": status.heap.as_ref().map(heap_json),
    })
}

fn table(all: &[(String, Status)]) -> String {
    let mut columns = Columns::default();
    columns.row(["NAME", "ATTACHED", "ENDED", "HEAP MiB", "SINCE", ""].map(String::from));
    for (name, status) in all {
        columns.row([
            name.clone(),
            status.attached.len().to_string(),
            status.seen.runs().to_string(),
            heap_column(status),
            since(status),
            remark(name, status).unwrap_or_default(),
        ]);
    }
    columns.lines("")
}

/// What is used of its heap.
pub(super) fn heap_column(status: &Status) -> String {
    let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    let heap = status.heap.as_ref();
    heap.map_or("-".into(), |heap| format!("{:.1} of {:.1}", mib(heap.used), mib(heap.most)))
}

fn since(status: &Status) -> String {
    status.record.as_ref().map_or("-".into(), |record| moment(record.loaded, &TimeZone::system()))
}

/// What is not as it should be, and what to do.
pub(super) fn remark(name: &str, status: &Status) -> Option<String> {
    if status.record.is_none() {
        return Some(format!("it is being loaded, or loading it was interrupted: xk flex unload {name}"));
    }
    if let Some(why) = &status.seen.detached {
        return Some(format!("detached: {why}"));
    }
    let said = status.said.as_ref().map_or_else(String::new, |said| format!(" ({said})"));
    (!status.is_served).then(|| format!("its server has ended{said}, and its heap does not grow: xk flex serve {name}"))
}

fn details(name: &str, status: &Status) -> String {
    let mut text = format!("{name}, loaded {}\n", since(status));
    if let Some(record) = &status.record {
        text += &format!("  file: {}\n", record.file.display());
    }
    let attached = if status.attached.is_empty() { "nothing".into() } else { status.attached.join(", ") };
    text += &format!("  attached: {attached}\n");
    if let Some(heap) = &status.heap {
        text += &format!("  {}\n", heap_words(heap));
    }
    if status.seen.broken_locks > 0 {
        text += &format!("  {} of threads that died were broken\n", count(status.seen.broken_locks as usize, "lock"));
    }
    for there in &status.seen.ended {
        let look = status.record.as_ref().and_then(|record| record.looks.get(there.look));
        let place =
            look.map_or_else(|| format!("look {}", there.look), |look| format!("{} {}", look.function, look.place));
        let longest = std::time::Duration::from_nanos(there.longest_ns);
        text += &format!(
            "  {place}: {} ended by {}, after at most {longest:.1?}\n",
            count(there.runs as usize, "run"),
            there.why
        );
    }
    if status.seen.unreported > 0 {
        text += &format!("  {}\n", unreported_words(status.seen.unreported));
    }
    if let Some(remark) = remark(name, status) {
        text += &format!("  {remark}\n");
    }
    text
}

#[cfg(test)]
pub(super) mod tests {
    use xk_flex::kept::{EndedThere, Look, Record, Seen};

    use super::*;

    pub fn status(is_served: bool, detached: Option<&str>) -> Status {
        let look =
            Look { function: "walk".into(), place: "cache.bpf.c:31".into(), releases: Vec::new(), returns: false };
        let ended = EndedThere { look: 0, why: "its deadline".into(), runs: 3, longest_ns: 10_400_000 };
        Status {
            record: Some(Record {
                name: "cache".into(),
                file: "/srv/cache.bpf.c".into(),
                loaded: 1_700_000_000,
                programs: vec!["on_read".into()],
                looks: vec![look],
                heap: None,
                most_ended: None,
                variables: Vec::new(),
            }),
            seen: Seen { ended: vec![ended], unreported: 0, broken_locks: 0, detached: detached.map(Into::into) },
            attached: vec!["on_read".into()],
            is_served,
            said: (!is_served).then(|| "out of memory".into()),
            heap: None,
        }
    }

    #[test]
    fn places_and_reasons_are_shown() {
        let text = details("cache", &status(true, None));
        assert!(text.contains("  walk cache.bpf.c:31: 3 runs ended by its deadline, after at most 10.4ms\n"), "{text}");
        assert!(!text.contains("server"), "{text}");
    }

    #[test]
    fn what_is_not_as_it_should_be_is_said() {
        let of = |status: Status| table(&[("cache".into(), status)]);
        assert!(of(status(false, None))
            .contains("its server has ended (out of memory), and its heap does not grow: xk flex serve cache"));
        assert!(of(status(false, Some("9 runs were ended"))).contains("detached: 9 runs were ended"));
        let interrupted = Status { record: None, ..status(false, None) };
        assert!(of(interrupted).contains("xk flex unload cache"));
    }
}
