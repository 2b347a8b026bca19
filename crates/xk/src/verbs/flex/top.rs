//! `xk flex top`: samples the extensions that are loaded: how many of their runs are ended, and what they allocate.

use std::time::Instant;

use xk_flex::kept::{Kept, Status};

use super::list::{heap_column, remark};
use crate::exit::Result;
use crate::output::{count, Columns};
use crate::verbs::top::{per_second, Sampling};

/// Arguments of `xk flex top`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
q quits. ENDED counts the runs that were ended since the extension was loaded, as its server has seen them. ALLOCATED
and FREED are objects of its heap. PER S is the rate since the last sample.")]
pub struct Args {
    #[command(flatten)]
    sampling: Sampling,
}

/// A sample, and its time.
struct Look {
    at: Instant,
    all: Vec<(String, Status)>,
}

/// Shows samples until the user quits.
pub fn run(args: &Args) -> Result {
    let take = || {
        let all = Kept::all().iter().map(|kept| (kept.name().to_owned(), kept.status())).collect();
        Ok(Look { at: Instant::now(), all })
    };
    args.sampling.show(take, text)
}

fn text(before: &Look, now: &Look) -> String {
    if now.all.is_empty() {
        return "no extension is loaded\n".into();
    }
    let seconds = now.at.duration_since(before.at).as_secs_f64();
    let mut columns = Columns::default();
    let titles = ["NAME", "ATTACHED", "ENDED", "PER S", "HEAP MiB", "ALLOCATED", "PER S", "FREED", "PER S", ""];
    columns.row(titles.map(String::from));
    for (name, status) in &now.all {
        let earlier = earlier(before, name, status);
        let rate = |of: fn(&Status) -> Option<u64>| {
            let (now, before) = (of(status), earlier.and_then(of));
            let rate = now.zip(before).map(|(now, before)| per_second(now, before, seconds));
            [now.map(|now| now.to_string()), rate].map(|text| text.unwrap_or_else(|| "-".into()))
        };
        let [ended, ended_rate] = rate(|status| Some(status.seen.runs()));
        let [allocated, allocated_rate] = rate(|status| status.heap.map(|heap| heap.allocated));
        let [freed, freed_rate] = rate(|status| status.heap.map(|heap| heap.freed));
        columns.row([
            name.clone(),
            status.attached.len().to_string(),
            ended,
            ended_rate,
            heap_column(status),
            allocated,
            allocated_rate,
            freed,
            freed_rate,
            remark(name, status).unwrap_or_default(),
        ]);
    }
    format!("{}, {seconds:.2} s since the last sample\n{}", count(now.all.len(), "extension"), columns.lines(""))
}

/// The same extension in the sample before: another one may have its name since.
fn earlier<'a>(before: &'a Look, name: &str, status: &Status) -> Option<&'a Status> {
    let loaded = |status: &Status| status.record.as_ref().map(|record| record.loaded);
    let known = before.all.iter().find(|(known, _)| known == name).map(|(_, status)| status);
    known.filter(|known| loaded(known) == loaded(status))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use xk_flex::Usage;

    use super::super::list::tests::status;
    use super::*;

    fn look(at: Instant, ended: u64, heap: Option<Usage>) -> Look {
        let mut status = status(true, None);
        status.seen.ended[0].runs = ended;
        Look { at, all: vec![("cache".into(), Status { heap, ..status })] }
    }

    fn words(text: &str) -> Vec<Vec<String>> {
        text.lines().map(|line| line.split_whitespace().map(str::to_owned).collect()).collect()
    }

    #[test]
    fn rates_are_those_since_the_sample_before() {
        let heap =
            |allocated, freed| Some(Usage { allocated, freed, used: 1 << 20, most: 4 << 20, ..Usage::default() });
        let start = Instant::now();
        let (before, now) = (look(start, 3, heap(100, 40)), look(start + Duration::from_secs(2), 7, heap(300, 40)));
        let found = words(&text(&before, &now));
        assert_eq!(found[0].join(" "), "1 extension, 2.00 s since the last sample");
        assert_eq!(found[2].join(" "), "cache 1 7 2 1.0 of 4.0 300 100 40 0");
        // Another extension of that name has no rate yet, and one without a heap none of objects.
        let mut other = look(start, 3, None);
        other.all[0].1.record.as_mut().unwrap().loaded += 1;
        assert_eq!(words(&text(&other, &now))[2].join(" "), "cache 1 7 - 1.0 of 4.0 300 - 40 -");
        assert_eq!(words(&text(&before, &look(start, 3, None)))[2].join(" ").matches('-').count(), 5);
        let none = Look { at: start, all: Vec::new() };
        assert_eq!(text(&now, &none), "no extension is loaded\n");
    }
}
