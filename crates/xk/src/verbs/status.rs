//! `xk status`: shows every tune in force, site by site, with warnings; and what is probed.

use std::collections::BTreeSet;

use serde_json::{json, Value};
use xk_apply::uncovered;
use xk_config::Place;
use xk_kernel::KernelId;
use xk_policy::Group;
use xk_runtime::{
    BackendChoice, Device, Error as RuntimeError, PolicyStatus, Probe, Rules, SitePolicy, SiteStatus, State, Stops,
    TuneStatus,
};
use xk_store::{Folders, Tables};

use crate::exit::Result;
use crate::output::{count, print_json, values, Columns, Paint};
use crate::sites::{histogram, place, probe_word, time};
use crate::verbs::probe;

/// Arguments of `xk status`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Shows it.
pub fn run(args: &Args) -> Result {
    let folders = Folders::from_environment();
    let tables = Tables::read(&folders, &KernelId::live()?.build_id)?;
    let (module, tunes, probes, stops) = match Device::open_to_read() {
        Ok(device) => {
            let (_, module) = device.version()?;
            (Some(module), device.tunes()?, device.probes()?, Some(device.stops()?))
        }
        Err(RuntimeError::NotLoaded) => (None, Vec::new(), Vec::new(), None),
        Err(error) => return Err(error.into()),
    };
    let shown = Shown { tunes: &tunes, groups: &Group::all(&tunes), tables: &tables };
    // What is in force is shown even if the rules cannot be read.
    let rules = Rules::read();
    if args.json {
        let mut document = document(module.as_deref(), &shown);
        document["forbidden"] = forbidden(rules.as_ref().ok());
        let each = probes.iter().map(|probe| probe::list::document(probe, None));
        document["probes"] = each.collect::<Result<_>>()?;
        document["stops"] = stops.map_or(Value::Null, |stops| stops_document(&stops));
        print_json(document);
    } else {
        print!("{}", text(module.as_deref(), &shown, Paint::stdout()));
        if !probes.is_empty() {
            print!("\nprobes:\n{}", probe::list::text(&probes));
        }
        if let Some(stops) = stops.filter(|stops| stops.number > 0) {
            println!("\n{}", stops_sentence(&stops));
        }
        if let Some(sentence) = rules.as_ref().map_or_else(|failure| Some(failure.to_string()), Rules::sentence) {
            println!("\n{sentence}");
        }
    }
    Ok(())
}

/// The forbidden backends, with the lines of the rules; null if the rules cannot be read.
fn forbidden(rules: Option<&Rules>) -> Value {
    let each = |(backend, place): (BackendChoice, Place)| json!({ "backend": backend.word(), "by": place.to_string() });
    rules.map_or(Value::Null, |rules| rules.forbidden().map(each).collect())
}

fn stops_document(stops: &Stops) -> Value {
    json!({
        "number": stops.number,
        "total_ms": stops.total.as_secs_f64() * 1e3,
        "longest_ms": stops.longest.as_secs_f64() * 1e3,
        "since_s": stops.since.as_secs_f64(),
        "share": stops.share(),
    })
}

/// The cost of changes for the whole machine.
pub(super) fn stops_sentence(stops: &Stops) -> String {
    format!(
        "all CPUs were stopped {} in {}: {:.2} ms in total ({:.4} % of the time), at most {:.2} ms at once",
        number(stops.number, "time"),
        time(stops.since),
        stops.total.as_secs_f64() * 1e3,
        stops.share() * 100.0,
        stops.longest.as_secs_f64() * 1e3
    )
}

/// The tunes to show, and what names them.
struct Shown<'a> {
    tunes: &'a [TuneStatus],
    groups: &'a [Group],
    tables: &'a Tables,
}

/// Warnings about a tune; none if its value is in force at every site.
pub(super) fn warnings(tune: &TuneStatus) -> Vec<String> {
    let mut warnings = Vec::new();
    let default = tune.default;
    for site in &tune.sites {
        let place = place(site);
        match site.probe {
            Probe::Broken => warnings.push(format!(
                "{place}: the default {default} is in force there, as the module that was loaded is not the one \
                 that was analysed: {}; `xk unset` the constant, and `xk build` it again",
                site.reason.as_deref().unwrap_or("the kernel gave no reason")
            )),
            Probe::Disarmed => warnings.push(format!(
                "{place}: the probe is disarmed, the default {default} is in force there: \
                 `echo 1 > /sys/kernel/debug/kprobes/enabled` arms it again"
            )),
            Probe::Bypassed => warnings.push(format!(
                "{place}: {}: the replacement is not tuned; the value {} is in force again when the livepatch is removed",
                site.reason.as_deref().unwrap_or("bypassed"),
                tune.value
            )),
            Probe::Unknown => {
                warnings
                    .push(format!("{place}: the running bytes are not known: another tracer may have replaced them"));
            }
            Probe::Drifted => warnings.push(format!(
                "{place}: changed from outside xk, and left alone: {}",
                site.reason.as_deref().unwrap_or("the kernel gave no reason")
            )),
            Probe::Jump | Probe::Int3 | Probe::Detour | Probe::Patch | Probe::Data | Probe::Waiting => {}
        }
        if site.missed > 0 {
            warnings.push(format!(
                "{place}: missed {} (the default {default} was used): the site was reached inside another probe's handler",
                number(site.missed, "time")
            ));
        }
        if site.faults > 0 {
            warnings.push(format!(
                "{place}: {} (the default {default} was used): the update could not access memory",
                number(site.faults, "fault")
            ));
        }
    }
    if tune.broken && warnings.is_empty() {
        warnings.push(format!("not in force at every site; the default {default} is in force there"));
    }
    warnings
}

/// `1 fault`, `2 faults`.
fn number(number: u64, what: &str) -> String {
    count(usize::try_from(number).unwrap_or(usize::MAX), what)
}

/// `None` while the site waits for its module.
fn address(site: &SiteStatus) -> Option<String> {
    (site.address != 0).then(|| format!("{:#x}", site.address))
}

fn waiting(tune: &TuneStatus) -> impl Iterator<Item = &SiteStatus> {
    tune.sites.iter().filter(|site| site.probe == Probe::Waiting)
}

/// The modules that sites are waiting for.
fn awaited(tune: &TuneStatus) -> Option<String> {
    let modules: BTreeSet<&str> = waiting(tune).filter_map(|site| site.module.as_deref()).collect();
    let modules: Vec<&str> = modules.into_iter().collect();
    (!modules.is_empty()).then(|| {
        let sites = count(waiting(tune).count(), "site");
        format!("{sites} waiting for a module that is not loaded: {}", modules.join(", "))
    })
}

fn lease(tune: &TuneStatus) -> String {
    tune.lease.map_or(String::new(), |left| format!(", ends in {}", time(left)))
}

/// The state of a tune in words.
pub(super) fn transition(tune: &TuneStatus) -> String {
    let scopes = count(tune.scopes as usize, "safe span");
    let inside = count(tune.blocking as usize, "thread");
    let use_ = if tune.blocking == 1 { "uses" } else { "use" };
    let value = tune.value;
    match tune.state {
        State::Stable => format!("one value in force everywhere; last changed in mode {}, {scopes}", tune.mode),
        State::Changing => format!("changing to {value}: {inside} inside ({scopes})"),
        State::Reverting => format!("reverting to {value}: {inside} inside still {use_} the other value ({scopes})"),
        State::Unloading => format!("being unloaded: {inside} inside ({scopes})"),
    }
}

fn state_word(state: State) -> &'static str {
    match state {
        State::Stable => "stable",
        State::Changing => "changing",
        State::Reverting => "reverting",
        State::Unloading => "unloading",
    }
}

/// Where the policy of a tune comes from.
fn origin(tune: &TuneStatus, policy: &PolicyStatus, groups: &[Group]) -> String {
    let known = Group::of(groups, tune);
    let member = known.and_then(|group| group.members.iter().find(|member| member.tune == tune.id));
    match (known, member) {
        (Some(group), Some(member)) => format!("{} of {}, {}", member.program, group.name, group.source.display()),
        _ => format!("BPF program {}", policy.program),
    }
}

/// The policy of a tune, and its counters.
fn policy(tune: &TuneStatus, policy: &PolicyStatus, groups: &[Group]) -> String {
    let mut text = format!("  decided by {}", origin(tune, policy, groups));
    if policy.links > 0 {
        text += &format!(", with {}", count(policy.links as usize, "companion"));
    }
    text += &format!("; {} where it sets nothing\n", tune.value);
    let mut columns = Columns::default();
    columns.row(["SITE", "ASKED", "SET", "REUSED", "REFUSED", "SKIPPED", "UNSEEN", "LAST", "VALUES"].map(String::from));
    for (site, did) in tune.sites.iter().zip(&policy.sites) {
        columns.row([
            place(site),
            did.runs.to_string(),
            did.chosen.to_string(),
            did.reused.to_string(),
            did.refused.to_string(),
            did.skipped.to_string(),
            did.unseen.to_string(),
            did.last.map_or("-".into(), |value| value.to_string()),
            histogram(did),
        ]);
    }
    text + &columns.lines("  ")
}

fn text(module: Option<&str>, shown: &Shown<'_>, paint: Paint) -> String {
    let Shown { tunes, groups, tables } = *shown;
    if module.is_none() {
        return "xk.ko is not loaded: every constant has its default\n".into();
    }
    if tunes.is_empty() {
        return "nothing is tuned: every constant has its default\n".into();
    }
    let mut text = String::new();
    let mut alarms = Vec::new();
    for (index, tune) in tunes.iter().enumerate() {
        let title = tables.title_of(tune);
        if index > 0 {
            text.push('\n');
        }
        text += &format!(
            "{} = {}   {}\n",
            paint.strong(title),
            paint.value(&tune.value.to_string()),
            paint.dim(&format!("default {}, values {}", tune.default, values(&tune.values))),
        );
        if title != tune.name {
            text += &paint.dim(&format!("  {}\n", tune.name));
        }
        text += &format!("  {}, {} ago{}\n", tune.owner(), time(tune.age), lease(tune));
        text += &format!("  {}\n", transition(tune));
        text.extend(tune.blockers.lines().map(|line| format!("    {line}\n")));
        text.extend(tune.ignored.iter().map(|thread| format!("  {}\n", uncovered(*thread))));
        text.push('\n');
        let mut columns = Columns::default();
        columns.row(["SITE", "ADDRESS", "PROBE", "HITS", "APPLIED", "FAULTS", "MISSED"].map(String::from));
        for site in &tune.sites {
            columns.row([
                place(site),
                address(site).unwrap_or_else(|| "-".into()),
                probe_word(site.probe).into(),
                site.hits.to_string(),
                site.applied.to_string(),
                site.faults.to_string(),
                site.missed.to_string(),
            ]);
        }
        text += &columns.lines("  ");
        if let Some(did) = &tune.policy {
            text += &format!("\n{}", policy(tune, did, groups));
        }
        if let Some(modules) = awaited(tune) {
            text += &format!("\n  {}\n", paint.dim(&modules));
        }
        alarms.extend(warnings(tune).into_iter().map(|warning| format!("{title}: {warning}")));
    }
    for alarm in alarms {
        text += &format!("\n{} {alarm}\n", paint.bad("WARNING:"));
    }
    text
}

fn policy_document(tune: &TuneStatus, groups: &[Group]) -> Value {
    let Some(policy) = &tune.policy else { return Value::Null };
    let site = |did: &SitePolicy| {
        json!({
            "asked": did.runs,
            "set": did.chosen,
            "reused": did.reused,
            "refused": did.refused,
            "skipped": did.skipped,
            "unseen": did.unseen,
            "last": did.last,
            "histogram": did.histogram,
        })
    };
    let group = Group::of(groups, tune);
    json!({
        "program": policy.program,
        "name": group.map(|group| &group.name),
        "source": group.map(|group| &group.source),
        "companions": policy.links,
        "sites": policy.sites.iter().map(site).collect::<Vec<_>>(),
    })
}

fn document(module: Option<&str>, shown: &Shown<'_>) -> Value {
    let Shown { tunes, groups, tables } = *shown;
    let site = |site: &SiteStatus| {
        json!({
            "address": address(site),
            "symbol": site.symbol,
            "module": site.module,
            "offset": site.offset,
            "probe": match site.probe {
                Probe::Jump => "jump",
                Probe::Int3 => "int3",
                Probe::Detour => "detour",
                Probe::Patch => "patch",
                Probe::Disarmed => "disarmed",
                Probe::Waiting => "waiting",
                Probe::Bypassed => "bypassed",
                Probe::Broken => "broken",
                Probe::Data => "data",
                Probe::Drifted => "drifted",
                Probe::Unknown => "unknown",
            },
            "reason": site.reason,
            "note": site.note,
            "counted": site.counted,
            "hits": site.hits,
            "applied": site.applied,
            "faults": site.faults,
            "missed": site.missed,
        })
    };
    let tunes: Vec<Value> = tunes
        .iter()
        .map(|tune| {
            json!({
                "tune": tune.id,
                "id": tune.name,
                "name": tables.title_of(tune),
                "value": tune.value,
                "default": tune.default,
                "values": tune.values,
                "detached": tune.detached,
                "broken": tune.broken,
                "waiting": waiting(tune).count(),
                "owner_pid": tune.owner_pid,
                "age_s": tune.age.as_secs_f64(),
                "lease_s": tune.lease.map(|left| left.as_secs_f64()),
                "mode": tune.mode,
                "state": state_word(tune.state),
                "blocking": tune.blocking,
                "blockers": tune.blockers,
                "safe_spans": tune.scopes,
                "ignored": tune.ignored,
                "policy": policy_document(tune, groups),
                "sites": tune.sites.iter().map(site).collect::<Vec<_>>(),
                "warnings": warnings(tune),
            })
        })
        .collect();
    json!({ "module": module, "tunes": tunes })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::fixture;

    #[test]
    fn golden() {
        let tables = fixture::tables(vec![fixture::table()]);
        let mut tunes = vec![fixture::tune()];
        let shown =
            |tunes: &[TuneStatus]| text(Some("0.1.0"), &Shown { tunes, groups: &[], tables: &tables }, Paint::PLAIN);
        fixture::golden("status.txt", &shown(&tunes));
        let all = Shown { tunes: &tunes, groups: &[], tables: &tables };
        fixture::golden("status.json", &format!("{:#}\n", document(Some("0.1.0"), &all)));

        let mut ill = fixture::tune();
        (ill.id, ill.name, ill.detached, ill.broken) = (2, "net/ipv4/tcp_cubic.c:L96:16000:0".into(), false, true);
        ill.age = Duration::from_secs(90_000);
        ill.sites[0].missed = 3;
        ill.sites[0].faults = 1;
        ill.sites.push(SiteStatus { probe: Probe::Disarmed, offset: 0x99, ..ill.sites[0].clone() });
        ill.sites[1].module = Some("tcp_cubic".into());
        let mut other = SiteStatus { probe: Probe::Waiting, address: 0, ..ill.sites[1].clone() };
        (other.missed, other.faults) = (0, 0);
        let reason = "tcp_reno_cong_avoid+0x3: expected 41, running 42";
        ill.sites.push(other.clone());
        ill.sites.push(SiteStatus { probe: Probe::Broken, reason: Some(reason.into()), ..other });
        let object = SiteStatus {
            symbol: "tcp_limits".into(),
            offset: 8,
            module: None,
            hits: 0,
            applied: 0,
            ..ill.sites[2].clone()
        };
        let object = SiteStatus { address: 0xffff_ffff_82c0_1008, probe: Probe::Data, ..object };
        ill.sites.push(object.clone());
        let patched = SiteStatus { probe: Probe::Bypassed, ..ill.sites[0].clone() };
        let reason = Some("bypassed by livepatch kpatch_7".into());
        ill.sites.push(SiteStatus { missed: 0, faults: 0, reason, ..patched });
        ill.sites.push(SiteStatus { probe: Probe::Drifted, reason: Some("holds 77, xk wrote 64".into()), ..object });
        tunes.push(ill);
        fixture::golden("status_ill.txt", &shown(&tunes));
    }

    #[test]
    fn nothing_to_show_is_said() {
        let tables = fixture::tables(vec![]);
        let none = Shown { tunes: &[], groups: &[], tables: &tables };
        assert!(text(None, &none, Paint::PLAIN).contains("not loaded"));
        assert!(text(Some("1"), &none, Paint::PLAIN).contains("nothing is tuned"));
        assert_eq!(document(None, &none)["module"], Value::Null);
    }

    #[test]
    fn a_policy_is_shown_with_what_it_did() {
        let tables = fixture::tables(vec![fixture::table()]);
        let mut tune = fixture::tune();
        let mut histogram = vec![0; 64];
        (histogram[0], histogram[1], histogram[3]) = (1, 2, 5);
        let site =
            SitePolicy { runs: 9, chosen: 8, refused: 1, skipped: 0, reused: 0, unseen: 0, last: Some(6), histogram };
        tune.policy = Some(PolicyStatus { program: 42, links: 1, sites: vec![site] });
        let member =
            xk_policy::Member { tune: tune.id, constant: tune.name.clone(), program: "small".into(), program_id: 42 };
        let group = Group { name: "g".into(), source: "/p/g.bpf.c".into(), members: vec![member], companions: vec![] };
        let tunes = [tune];
        let shown = Shown { tunes: &tunes, groups: &[group], tables: &tables };
        fixture::golden("status_policy.txt", &text(Some("0.1.0"), &shown, Paint::PLAIN));
        fixture::golden("status_policy.json", &format!("{:#}\n", document(Some("0.1.0"), &shown)));
    }
}
