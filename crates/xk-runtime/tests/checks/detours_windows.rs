//! Windows: where a detour has room for its jump, and where it is refused.

use super::*;

/// A window may begin before the site, and end in the padding behind the function.
pub fn windows_lie_where_there_is_room() {
    for when in [When::Before, When::After] {
        let mut site = value_site();
        site.when = when;
        // After `mov %eax,%edx`, it is edx that counts.
        site.ops = set_register(if when == When::Before { RAX } else { RDX });
        let mut table = windowed(table(&target_module(), "LEAD", vec![site]), &[7]);
        table.spans[0].indirection.window_lead = 5;
        let before = running("text");
        let tune = load_by(Backend::Detour, &table, 128).unwrap();
        assert_eq!(target("value"), "128");
        assert_eq!((&running("text")[..3], &running("text")[7..]), (&[0x2e, 0x2e, 0xe9][..], &before[7..]));
        tune.unload().unwrap();
        assert_eq!((target("value"), running("text")), ("32".into(), before));
    }
    let function = support::function(&target_module(), "xk_target_padded").text().unwrap();
    let at = function.len() as u32 - 4;
    changes("padded", SiteSpec::new("xk_target_padded", at, 2, set_register(RAX)), 5, 44, "32", "44");
}

/// Whoever comes with a probe finds no instruction in the window, so that none becomes a
/// jump over the place that the branch leads to.
pub fn a_branch_may_lead_to_just_behind_its_window() {
    changes("skip", SiteSpec::new("xk_target_skip", 5, 2, compare(RDI, false)), 5, 50, "0", "40");
}

/// Two comparisons with their branches. The first branch leads to behind the second window.
fn pair() -> ScopeTable {
    let site = |offset, register| SiteSpec::new("xk_target_pair", offset, 2, compare_flags(register, false, 0x8d5));
    let mut table = windowed(table(&target_module(), "PAIR", vec![site(5, RDI), site(10, RSI)]), &[5, 5]);
    for span in &mut table.spans {
        span.indirection.window_lead = 3;
    }
    table
}

/// Two windows without a gap, and without a branch: before the addition of the first constant, behind the second one.
fn adjacent() -> ScopeTable {
    let first = SiteSpec::new("xk_target_several_0", 7, 7, set_register(RDX));
    let mut second = SiteSpec::new("xk_target_several_0", 14, 5, set_register(RDX));
    second.when = When::After;
    windowed(table(&target_module(), "ADJACENT", vec![first, second]), &[7, 5])
}

pub fn windows_may_lie_side_by_side() {
    assert_eq!(target("several"), "8192");
    let tune = load_by(Backend::Detour, &adjacent(), 50).unwrap();
    assert_eq!(target("several"), "8228");
    tune.set(30).unwrap();
    assert_eq!(target("several"), "8188");
    tune.unload().unwrap();
    assert_eq!(target("several"), "8192");
    // They do not need each other.
    probe("xk_target_several_0", 7, "disabled");
    let tune = load_by(Backend::Auto, &adjacent(), 50).unwrap();
    let sites = tune.status().unwrap().sites;
    assert!(matches!(sites[0].probe, Probe::Int3 | Probe::Jump), "{sites:?}");
    assert_eq!(sites[0].note.as_deref(), Some("another kprobe was registered here"));
    assert_eq!((sites[1].probe, &sites[1].note), (Probe::Detour, &None));
    assert_eq!(target("several"), "8228");
    tune.unload().unwrap();
    no_probe();
    // A module that comes has its windows one after the other.
    let tune = load_by(Backend::Detour, &adjacent(), 50).unwrap();
    assert!(run("rmmod", &[MODULE]));
    insmod(TARGET_KO);
    let sites = tune.status().unwrap().sites;
    assert_eq!([sites[0].probe, sites[1].probe], [Probe::Detour; 2], "{sites:?}");
    assert_eq!(target("several"), "8228");
    tune.unload().unwrap();
    assert_eq!(target("several"), "8192");
}

const NEEDS_A_GUARD: &str = "a guard probe for another site lies in these instructions";

/// The first branch leads to behind the second window: what guards that place stands in it.
pub fn a_window_in_which_another_needs_a_guard_is_a_probe() {
    let before = running("pairtext");
    let refused = message(load_by(Backend::Detour, &pair(), 50));
    assert!(refused.contains(&format!("xk_target_pair+0xa: {NEEDS_A_GUARD}")), "{refused}");
    assert_eq!((target("pair"), running("pairtext")), ("1 1".into(), before.clone()));

    let tune = load_by(Backend::Auto, &pair(), 50).unwrap();
    assert_eq!(target("pair"), "0 0");
    let sites = tune.status().unwrap().sites;
    assert_eq!((sites[0].probe, &sites[0].note), (Probe::Detour, &None));
    assert_eq!((sites[1].probe, sites[1].note.as_deref()), (Probe::Int3, Some(NEEDS_A_GUARD)));
    tune.set(30).unwrap();
    assert_eq!(target("pair"), "1 1");
    tune.unload().unwrap();
    assert_eq!((target("pair"), running("pairtext")), ("1 1".into(), before.clone()));

    // Somebody's probe keeps the jump of the one, and nothing else.
    let tune = load_by(Backend::Auto, &pair(), 50).unwrap();
    let armed = running("pairtext");
    probe("xk_target_pair", 2, "enabled");
    tune.unload().unwrap();
    let left = running("pairtext");
    assert_eq!((target("pair"), &left[3..7], &left[7..]), ("1 1".into(), &armed[3..7], &before[7..]));
    no_probe();
    wait_for("the original bytes", || running("pairtext") == before);
    assert_eq!(target("pair"), "1 1");
}

/// As long as the jump of another tune is there, no guard can be placed in it: were it gone, a
/// probe there could become a jump over what our branch leads to.
pub fn a_branch_leads_not_to_just_behind_another_tunes_window() {
    let before = running("pairtext");
    let [mut first, mut second] = [pair(), pair()];
    first.spans.remove(1);
    second.spans.remove(0);
    second.constant.id = "by hand:L1:SECOND:0".into();
    let beside = load_by(Backend::Detour, &second, 10).unwrap();
    assert_eq!(target("pair"), "1 1");
    let armed = running("pairtext");
    let refused = message(load_by(Backend::Detour, &first, 50));
    assert!(refused.contains("xk_target_pair+0x5"), "{refused}");
    assert!(refused.contains("a branch target lies just after another detour"), "{refused}");
    assert_eq!(running("pairtext"), armed);
    beside.unload().unwrap();
    let tune = load_by(Backend::Detour, &first, 50).unwrap();
    assert_eq!((target("pair").as_str(), running("pairtext")[2]), ("0 1", 0xe9));
    // Nor is there a jump where its guard stands by then.
    let refused = message(load_by(Backend::Detour, &second, 10));
    assert!(refused.contains(&format!("xk_target_pair+0xa: {NEEDS_A_GUARD}")), "{refused}");
    tune.unload().unwrap();
    assert_eq!((target("pair"), running("pairtext")), ("1 1".into(), before));
}

pub fn what_is_not_safe_is_refused() {
    let at = |symbol, offset, len| SiteSpec::new(symbol, offset, len, set_register(RAX));
    for (site, window, reason) in [
        (value_site(), 0, "the table has no window for this site"),
        (value_site(), 8, "the window differs from the analysed one"),
        (at("xk_target_into", 9, 2), 5, "a branch leads into these instructions"),
        (at("xk_target_careful", 5, 2), 5, "an access to memory that may fault"),
        (at("xk_target_forbidden", 5, 2), 5, "the kernel forbids probes here"),
    ] {
        let symbol = site.symbol;
        let refused = message(detour(symbol, vec![site], &[window], 100));
        assert!(refused.contains(symbol) && refused.contains(reason), "{refused}");
        assert!(Device::open().unwrap().tunes().unwrap().is_empty());
    }
    // A window of another length than instructions have, of more than a jump has, of too few bytes.
    for window in [4, 16] {
        let refused = message(detour("VALUE", vec![value_site()], &[window], 100));
        assert!(refused.contains(&format!("a window of {window} bytes")), "{refused}");
    }
    assert_eq!(target("value"), "32");
}

pub fn what_is_not_safe_may_be_a_probe() {
    let sites = vec![value_site(), SiteSpec::new("xk_target_into", 9, 2, set_register(RAX))];
    let table = windowed(table(&target_module(), "AUTO", sites), &[5, 5]);
    let tune = load_by(Backend::Auto, &table, 100).unwrap();
    let sites = tune.status().unwrap().sites;
    assert_eq!((sites[0].probe, sites[0].note.as_deref()), (Probe::Detour, None));
    assert!(matches!(sites[1].probe, Probe::Int3 | Probe::Jump), "{sites:?}");
    assert_eq!(sites[1].note.as_deref(), Some("a branch leads into these instructions"));
    assert_eq!(target("value"), "100");
}

pub fn windows_do_not_overlap() {
    let twice = |offset| SiteSpec::new("xk_target_twice", offset, if offset == 5 { 5 } else { 2 }, set_register(RAX));
    // One tune.
    let refused = message(detour("TWICE", vec![twice(10), twice(12)], &[7, 5], 100));
    assert!(refused.contains("another site of this tune is in the window"), "{refused}");
    // Two tunes: what the first one's jump covers is nobody else's.
    let first = detour("FIRST", vec![twice(10)], &[7], 100).unwrap();
    for backend in [Backend::Detour, Backend::Kprobe, Backend::Auto] {
        let second = windowed(table(&target_module(), "SECOND", vec![twice(12)]), &[5]);
        let refused = message(load_by(backend, &second, 100));
        assert!(refused.contains("these instructions are held by") && refused.contains("FIRST"), "{refused}");
    }
    first.unload().unwrap();
}
