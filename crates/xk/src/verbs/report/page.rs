//! The page of `xk report`. The template escapes every text.

use askama::Template;
use xk_history::{Action, Entry};
use xk_policy::Group;
use xk_runtime::{ProbeStatus, SiteStatus, TuneStatus};
use xk_sched::Policy;
use xk_tuner::report;

use super::timeline::Timeline;
use super::Facts;
use crate::output::{moment, values};
use crate::sites::{no_backend, place, probe_word, time};
use crate::verbs::history::details;
use crate::verbs::sched::sentence;
use crate::verbs::status::{stops_sentence, transition, warnings};
use crate::verbs::top::cost;

/// More changes are in `xk history`.
const MOST: usize = 200;

#[derive(Template)]
#[template(path = "report.html")]
struct Body<'a> {
    host: &'a str,
    release: &'a str,
    build_id: &'a str,
    module: Option<&'a str>,
    made: String,
    stops: Option<String>,
    tunes: Vec<Tune<'a>>,
    cost_source: &'static str,
    probes: Vec<Probe<'a>>,
    policies: &'a [Policy],
    timeline: Option<Timeline>,
    changes: Vec<Row<'a>>,
    older: usize,
    refusals: Vec<Row<'a>>,
    searches: &'a [String],
}

struct Tune<'a> {
    title: &'a str,
    id: &'a str,
    value: i64,
    default: i64,
    values: String,
    owner: String,
    age: String,
    lease: String,
    transition: String,
    policy: Option<String>,
    warnings: Vec<String>,
    sites: Vec<Site>,
}

/// An attachment.
struct Probe<'a> {
    name: &'a str,
    places: u32,
    jumps: u32,
    hits: u64,
    skipped: u64,
    since: String,
}

impl<'a> Probe<'a> {
    fn of(probes: &'a ProbeStatus) -> Self {
        let ProbeStatus { ref name, places, jumps, hits, skipped, age, .. } = *probes;
        Self { name, places, jumps, hits, skipped, since: time(age) }
    }
}

struct Site {
    place: String,
    backend: &'static str,
    hits: String,
    applied: u64,
    faults: u64,
    missed: u64,
    cost: String,
    note: String,
}

/// An entry of the history.
struct Row<'a> {
    at: String,
    user: &'a str,
    title: &'a str,
    action: &'static str,
    details: String,
    command: &'a str,
}

/// The page.
///
/// # Errors
/// The template cannot be rendered.
pub(super) fn html(facts: &Facts) -> Result<String, askama::Error> {
    let is_refusal = |entry: &&Entry| entry.event.action == Action::Refused;
    let entries = &facts.history.entries;
    let changes: Vec<&Entry> = entries.iter().filter(|entry| !is_refusal(entry)).collect();
    let refusals = entries.iter().filter(is_refusal).rev().take(MOST).map(|entry| row(facts, entry));
    let ejected = facts.ejected.iter().map(|report| Row {
        at: String::new(),
        user: "",
        title: "",
        action: "ejected",
        details: sentence(report),
        command: &report.policy,
    });
    let body = Body {
        host: &facts.host,
        release: &facts.kernel.release,
        build_id: &facts.kernel.build_id,
        module: facts.module.as_deref(),
        made: moment(facts.now.as_second(), &facts.zone),
        stops: facts.stops.as_ref().filter(|stops| stops.number > 0).map(stops_sentence),
        tunes: facts.tunes.iter().map(|tune| tune_of(facts, tune)).collect(),
        cost_source: cost::SOURCE,
        probes: facts.probes.iter().map(Probe::of).collect(),
        policies: &facts.policies,
        timeline: Timeline::of(entries, &xk_history::boot(), &facts.names, facts.now, &facts.zone),
        older: changes.len().saturating_sub(MOST),
        changes: changes.into_iter().rev().take(MOST).map(|entry| row(facts, entry)).collect(),
        refusals: refusals.chain(ejected).collect(),
        searches: &facts.searches,
    };
    report::page(&format!("xk on {}", facts.host), &body.render()?)
}

fn row<'a>(facts: &'a Facts, entry: &'a Entry) -> Row<'a> {
    Row {
        at: moment(entry.at.as_second(), &facts.zone),
        user: &entry.who.user,
        title: facts.names.title(entry),
        action: entry.event.action.word(),
        details: details(&entry.event, &facts.zone),
        command: &entry.command,
    }
}

fn tune_of<'a>(facts: &'a Facts, tune: &'a TuneStatus) -> Tune<'a> {
    let policy = tune.policy.as_ref().map(|policy| match Group::of(&facts.groups, tune) {
        Some(group) => format!("the policy {} of {}", group.name, group.source.display()),
        None => format!("the policy of program {}", policy.program),
    });
    Tune {
        title: facts.tables.title_of(tune),
        id: &tune.name,
        value: tune.value,
        default: tune.default,
        values: values(&tune.values),
        owner: capitalised(&tune.owner()),
        age: time(tune.age),
        lease: tune.lease.map_or(String::new(), |left| format!(", ends in {}", time(left))),
        transition: capitalised(&transition(tune)),
        policy,
        warnings: warnings(tune),
        sites: tune.sites.iter().enumerate().map(|(index, site)| site_of(facts, tune, index, site)).collect(),
    }
}

fn site_of(facts: &Facts, tune: &TuneStatus, index: usize, site: &SiteStatus) -> Site {
    let cost = cost::estimate(tune, site, facts.tables.span(&tune.name, index));
    Site {
        place: place(site),
        backend: probe_word(site.probe),
        hits: if site.counted { site.hits.to_string() } else { "-".into() },
        applied: site.applied,
        faults: site.faults,
        missed: site.missed,
        cost: cost.map_or("-".into(), |instructions| instructions.to_string()),
        note: site.reason.clone().or_else(|| no_backend(site)).unwrap_or_default(),
    }
}

fn capitalised(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use jiff::tz::TimeZone;
    use jiff::Timestamp;
    use scraper::{Html, Selector};
    use xk_history::{Event, History, Kind, Who};
    use xk_kernel::KernelId;

    use super::*;
    use crate::fixture;
    use crate::verbs::history::Names;

    const MARKUP: &str = "</td><script src='http://x/'>\"&";

    fn entry(name: &str, action: Action, note: &str) -> Entry {
        Entry {
            at: Timestamp::from_second(1_000).unwrap(),
            boot: xk_history::boot(),
            who: Who { user: MARKUP.into(), uid: 1000, pid: 42 },
            command: format!("xk set {MARKUP}"),
            event: Event::new(Kind::Constant, name, action).from(32).to(MARKUP).note(note),
        }
    }

    /// A machine of which every text that somebody else decides has markup.
    fn facts() -> Facts {
        let mut other = fixture::tune();
        (other.id, other.name) = (2, MARKUP.into());
        other.sites[0].reason = Some(MARKUP.into());
        other.sites[0].symbol = MARKUP.into();
        Facts {
            host: MARKUP.into(),
            kernel: KernelId { release: "6.12".into(), build_id: "0123".into(), ..KernelId::live().unwrap() },
            zone: TimeZone::UTC,
            now: Timestamp::from_second(2_000).unwrap(),
            module: Some("0.1.0".into()),
            stops: None,
            tunes: vec![fixture::tune(), other],
            groups: vec![],
            probes: vec![],
            tables: fixture::tables(vec![fixture::table()]),
            policies: vec![],
            ejected: vec![],
            history: History {
                entries: vec![entry("A", Action::Set, ""), entry("", Action::Refused, MARKUP)],
                damaged: 0,
            },
            names: Names::none(),
            searches: vec!["<h3>xk tune: one</h3>\n".into()],
        }
    }

    fn texts(page: &Html, selector: &str) -> Vec<String> {
        let selector = Selector::parse(selector).unwrap();
        page.select(&selector).map(|element| element.text().collect::<String>().trim().to_owned()).collect()
    }

    /// Everything that can name something outside of the page.
    fn references(page: &Html) -> Vec<String> {
        let all = Selector::parse("*").unwrap();
        let names = ["src", "href", "srcset", "action", "data", "poster", "xlink:href", "background"];
        let outside = page.select(&all).flat_map(|element| {
            let attributes = names.into_iter().filter_map(move |name| element.value().attr(name));
            let loads = ["script", "link", "iframe", "img", "object", "embed"].contains(&element.value().name());
            attributes.map(str::to_owned).chain(loads.then(|| element.value().name().to_owned()))
        });
        outside.collect()
    }

    #[test]
    fn the_page_is_whole_and_refers_to_nothing() {
        let text = html(&facts()).unwrap();
        let page = Html::parse_document(&text);
        assert!(page.errors.is_empty(), "{:?}\n{text}", page.errors);
        assert_eq!(references(&page), Vec::<String>::new());
        let style = texts(&page, "style").concat();
        assert!(style.contains("@media print") && !style.contains("url(") && !style.contains("@import"), "{style}");
        assert_eq!(texts(&page, "h1"), [format!("xk on {MARKUP}")], "what has markup is a text");
    }

    #[test]
    fn each_tune_in_force_is_there_with_its_sites() {
        let facts = facts();
        let page = Html::parse_document(&html(&facts).unwrap());
        let titles: Vec<String> =
            facts.tunes.iter().map(|tune| format!("{} = {}", facts.tables.title_of(tune), tune.value)).collect();
        assert_eq!(texts(&page, "section.tune h3"), titles);
        let sites: Vec<String> = facts.tunes.iter().flat_map(|tune| &tune.sites).map(place).collect();
        assert_eq!(texts(&page, "section.tune tr td:first-child"), sites);
        assert!(texts(&page, "section.tune tr").iter().any(|row| row.contains("jump")), "the backend");
        let address = format!("{:x}", facts.tunes[0].sites[0].address);
        assert!(address.len() > 8 && !html(&facts).unwrap().contains(&address), "addresses are secret");
    }

    #[test]
    fn changes_refusals_and_searches_are_there() {
        let page = Html::parse_document(&html(&facts()).unwrap());
        assert_eq!(texts(&page, "svg circle").len(), 2);
        assert_eq!(texts(&page, "section.search h3"), ["xk tune: one"]);
        let rows = texts(&page, "table tr");
        assert!(rows.iter().any(|row| row.contains("A") && row.contains(&format!("32 -> {MARKUP}"))), "{rows:?}");
        assert!(rows.iter().any(|row| row.contains("xk set") && row.ends_with(MARKUP)), "{rows:?}");
    }

    #[test]
    fn an_untouched_machine_has_a_page() {
        let history = History::default();
        let facts = Facts { tunes: vec![], history, searches: vec![], module: None, ..facts() };
        let text = html(&facts).unwrap();
        for words in
            ["is not loaded", "Nothing is tuned", "Nothing was recorded", "No command was refused", "No search"]
        {
            assert!(text.contains(words), "{words}: {text}");
        }
        assert!(Html::parse_document(&text).errors.is_empty());
    }
}
