//! Policies that are asked from stubs: all that holds with probes, and what stubs have to see to themselves.

use super::*;

/// What holds with probes holds with detours.
pub fn all_of_it_holds_by_detours() {
    let checks: [(&str, fn()); 11] = [
        ("chosen", each_execution_has_the_value_that_is_chosen_for_it),
        ("not accepted", what_is_not_accepted_is_refused_and_counted),
        ("compiled", between_two_compiled_values_nothing_is_chosen),
        ("proved and compiled", a_policy_chooses_compiled_values_beside_proved_ones),
        ("beneath", a_value_is_in_force_beneath),
        ("gone over", a_policy_knows_when_everybody_has_gone_over),
        ("inside", a_thread_that_is_inside_keeps_the_value_without_the_policy),
        ("activations", two_decisions_never_meet_in_one_activation),
        ("replaced", a_new_policy_replaces_the_old_in_one_flip),
        ("together", several_policies_change_together),
        ("reloaded", a_policy_survives_its_loader_and_a_reloaded_module),
    ];
    for (name, check) in checks {
        println!("by detours: {name}");
        prepare();
        BACKEND.set(Backend::Detour);
        // Others follow on this thread.
        let outcome = std::panic::catch_unwind(check);
        BACKEND.set(Backend::Kprobe);
        outcome.unwrap_or_else(|cause| std::panic::resume_unwind(cause));
    }
}

/// Stubs change between a value of their own and a policy, while threads run them.
pub fn a_detour_changes_between_value_and_policy() {
    BACKEND.set(Backend::Detour);
    let (device, _programs, tunes) = alternating(false);
    BACKEND.set(Backend::Kprobe);
    Atomic.start(4, Atomic::mask(&SPANS)).unwrap();
    let all = |to: Destination| {
        let changes: Vec<Change> = tunes.iter().map(|tune| Change { id: tune.id(), to }).collect();
        device.transition(&changes, Mode::Now, LONG).unwrap();
    };
    let chosen = |tune: &Tune| {
        let policy = device.policy_status(tune.id()).unwrap().unwrap();
        policy.sites.iter().map(|site| site.chosen).max().unwrap_or(0)
    };
    // A kernel that is not preemptible seldom switches to the threads.
    let deadline = Instant::now() + PATIENCE;
    for round in 0.. {
        if round >= 100 && tunes.iter().all(|tune| chosen(tune) > 10) {
            break;
        }
        assert!(Instant::now() < deadline, "the policies do not run");
        all(Destination::Value(50));
        all(Destination::Policy(60));
        // Nobody stops for this one.
        all(Destination::Policy(70));
    }
    all(Destination::Value(50));
    let before = Atomic.counts().unwrap();
    let since = || Atomic.counts().unwrap().since(&before);
    // More than the threads that may have begun before.
    wait_for("all has run with the value", || SPANS.iter().all(|span| since().span(span).rounds > 12));
    Atomic.stop().unwrap();
    let counts = since();
    for tune in &tunes {
        let status = tune.status().unwrap();
        assert!(!status.broken && status.sites.iter().all(|site| site.missed == 0), "{status:?}");
    }
    // A round that began before is judged after.
    let met: u64 = SPANS.iter().map(|span| counts.span(span).violations).sum();
    assert!(met <= 4 * SPANS.len() as u64, "the value is not in force everywhere: {counts:?}");
}

/// Who interrupts a policy at work has the value beneath, and is not missed.
pub fn an_interrupt_above_a_policy_uses_the_value_beneath() {
    let device = Device::open().unwrap();
    let programs = programs("slow");
    let table = described("ELSEWHERE");
    let tune = device.load_by(&table, &Loaded, Backend::Detour).unwrap();
    let program = programs.program(&programs.entries()[0]).unwrap();
    device.give_policy(tune.id(), &Policy::for_each_site(program)).unwrap();
    tune.go(Destination::Policy(DEFAULT), Mode::Now, LONG).unwrap();
    let site = |what: fn(&SitePolicy) -> u64| -> u64 {
        device.policy_status(tune.id()).unwrap().unwrap().sites.iter().map(what).sum()
    };
    Atomic.start(8, Atomic::mask(&["elsewhere"])).unwrap();
    wait_for("an interrupt comes above a policy", || site(|site| site.skipped) > 3);
    Atomic.stop().unwrap();
    let sites = tune.status().unwrap().sites;
    assert!(sites.iter().all(|site| (site.missed, site.faults, site.hits) == (0, 0, site.applied)), "{sites:?}");
    let hits: u64 = sites.iter().map(|site| site.hits).sum();
    assert_eq!(hits, site(|site| site.chosen) + site(|site| site.skipped), "each had one value or the other");
    let last = Atomic.counts().unwrap().span("elsewhere").last;
    assert!(last.iter().all(|value| [DEFAULT, 77].contains(value)), "{last:?}");
}
