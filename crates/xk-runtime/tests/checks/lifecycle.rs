//! The life of a tune, whichever way its constant is reached.

use crate::*;

pub fn a_value_changes_and_returns(way: Way) {
    assert_eq!(way.seen(), way.of(32));
    let tune = way.value(128);
    assert_eq!(way.seen(), way.of(128));
    tune.set(7).unwrap();
    assert_eq!(way.seen(), way.of(7));
    let status = tune.status().unwrap();
    assert_eq!((status.value, status.default, status.broken), (7, 32, false));
    way.holds(&tune);
    for site in &status.sites {
        match way {
            // The module was asked twice.
            Way::Kprobe => assert_eq!((site.hits, site.applied), (2, 2)),
            Way::Detour => assert_eq!((site.counted, site.missed, &site.note), (false, 0, &None)),
            Way::Patch => assert_eq!((site.counted, site.hits, site.missed, &site.note), (false, 0, 0, &None)),
            Way::Data => {}
        }
    }
    tune.unload().unwrap();
    assert_eq!(way.seen(), way.of(32));
    assert!(Device::open().unwrap().tunes().unwrap().is_empty());
    // Only possible if the original bytes are back.
    way.value(5).unload().unwrap();
}

pub fn the_original_bytes_come_back(way: Way) {
    let before = way.text();
    let tune = way.value(0x7f);
    let armed = way.text();
    match way {
        // The probe's breakpoint, or its jump.
        Way::Kprobe => assert_eq!((armed[5] != before[5], &armed[..5]), (true, &before[..5])),
        Way::Detour => assert_eq!((armed[5], &armed[..5], &armed[10..]), (0xe9, &before[..5], &before[10..])),
        // One number, and nothing else.
        Way::Patch => {
            assert_eq!((&armed[1..5], &armed[..1], &armed[5..]), (&[0x7f, 0, 0, 0][..], &before[..1], &before[5..]))
        }
        Way::Data => assert_eq!(armed, before),
    }
    tune.unload().unwrap();
    way.is_as_before(&before);
}

pub fn a_module_comes_with_the_value(way: Way) {
    let before = way.text();
    let tune = way.value(128);
    if way == Way::Kprobe {
        wait_for("optimisation", || tune.status().unwrap().sites[0].probe == Probe::Jump);
    }
    // First with the value that it had, and then with those that are set while it is away.
    for value in [128, 65, 66, 77] {
        assert!(run("rmmod", &[MODULE]));
        let status = tune.status().unwrap();
        assert!(!status.broken && status.sites.iter().all(|site| site.probe == Probe::Waiting), "{status:?}");
        if value != 128 {
            tune.set(value).unwrap();
        }
        insmod(TARGET_KO);
        way.holds(&tune);
        // It never ran with another one.
        assert_eq!((way.seen(), way.seen_at_init()), (way.of(value), value.to_string()));
    }
    tune.set(9).unwrap();
    assert_eq!(way.seen(), way.of(9));
    tune.unload().unwrap();
    way.is_as_before(&before);
    way.value(5).unload().unwrap();
}

pub fn a_site_waits_for_its_module(way: Way) {
    assert!(run("rmmod", &[MODULE]));
    let tune = way.value(64);
    let status = tune.status().unwrap();
    assert!(!status.broken);
    assert!(status.sites.iter().all(|site| (site.probe, site.address) == (Probe::Waiting, 0)), "{status:?}");
    insmod(TARGET_KO);
    assert_eq!(way.seen_at_init(), "64", "in force before the module is initialised");
    assert_eq!(way.seen(), way.of(64));
    way.holds(&tune);
    assert!(tune.status().unwrap().sites.iter().all(|site| site.address != 0));
    tune.set(65).unwrap();
    assert_eq!(way.seen(), way.of(65));
    tune.unload().unwrap();
    assert_eq!(way.seen(), way.of(32));
    // Nothing waits any longer.
    assert!(run("rmmod", &[MODULE]));
    insmod(TARGET_KO);
    assert_eq!(way.seen_at_init(), "32");
}

/// At almost any moment, one of these threads is about to copy an instruction of the kernel.
pub fn threads_that_register_kprobes_prevent_nothing(way: Way) {
    let before = way.text();
    fresh_atomic();
    Atomic.tell("register 4").unwrap();
    let tune = way.value(64);
    assert_eq!(way.seen(), way.of(64));
    for value in [65, 66] {
        assert!(run("rmmod", &[MODULE]));
        tune.set(value).unwrap();
        insmod(TARGET_KO);
        way.holds(&tune);
        assert_eq!((way.seen(), way.seen_at_init()), (way.of(value), value.to_string()));
    }
    tune.set(9).unwrap();
    assert_eq!(way.seen(), way.of(9));
    tune.unload().unwrap();
    way.is_as_before(&before);
    Atomic.tell("register 0").unwrap();
}

pub fn xk_can_be_removed_while_a_site_waits(way: Way) {
    assert!(run("rmmod", &[MODULE]));
    way.value(64).detach().unwrap();
    assert!(run("rmmod", &["xk"]));
    insmod(TARGET_KO);
    assert_eq!(way.seen(), way.of(32));
    insmod(XK_KO);
}

pub fn removing_xk_returns_the_default(way: Way) {
    let before = way.text();
    let tune = way.value(64);
    assert!(!run("rmmod", &["xk"]), "an open descriptor holds the module");
    tune.detach().unwrap();
    assert_eq!(way.seen(), way.of(64));
    assert!(run("rmmod", &["xk"]));
    way.is_as_before(&before);
    assert!(matches!(Device::open(), Err(Error::NotLoaded)));
    insmod(XK_KO);
    // And whatever a site needs, as a stub, is there again.
    for _ in 0..3 {
        way.holds(&way.value(5));
    }
}

pub fn the_death_of_the_owner_returns_the_default(way: Way) {
    let before = way.text();
    let tune = way.value(128);
    assert_eq!(way.seen(), way.of(128));
    drop(tune);
    way.owner_has_gone(&before);
}

/// The process of [`hold`], when its value is in force.
fn holder(way: Way) -> Child {
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "hold", "--nocapture"])
        .env(HOLD, format!("{way:?}"))
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    wait_for("the holder's value", || way.seen() == way.of(99));
    child
}

pub fn sigkill_of_the_owner_returns_the_default(way: Way) {
    let before = way.text();
    let mut owner = holder(way);
    owner.kill().unwrap();
    owner.wait().unwrap();
    way.owner_has_gone(&before);
}

pub fn a_detached_tune_survives_its_owner(way: Way) {
    let id = way.value(41).detach().unwrap();
    assert_eq!(way.seen(), way.of(41));
    let device = Device::open().unwrap();
    assert!(device.tunes().unwrap()[0].detached);
    device.set(id, 42).unwrap();
    assert_eq!(way.seen(), way.of(42));
    device.unload(id).unwrap();
    assert_eq!(way.seen(), way.of(32));
    assert!(matches!(device.unload(id), Err(Error::NoSuchTune(gone)) if gone == id));
}

pub fn an_owned_tune_is_nobody_elses(way: Way) {
    let tune = way.value(41);
    let other = Device::open().unwrap();
    assert!(matches!(other.unload(tune.id()), Err(Error::Owned(_))));
    assert!(matches!(other.set(tune.id(), 1), Err(Error::Owned(_))));
    assert!(matches!(other.detach(tune.id()), Err(Error::Owned(_))));
    assert_eq!(other.tunes().unwrap()[0].owner_pid, std::process::id() as i32);
    assert_eq!(way.seen(), way.of(41));
}

pub fn the_end_of_a_lease_returns_the_default(way: Way) {
    let before = way.text();
    let id = way.value(100).detach().unwrap();
    Device::open().unwrap().lease(id, Some(Duration::from_millis(300))).unwrap();
    wait_for("the lease is over", || Device::open().unwrap().tunes().unwrap().is_empty());
    way.is_as_before(&before);
}

pub fn the_same_constant_twice_is_busy(way: Way) {
    let _tune = way.value(41);
    let again = way.load(&way.table(), 42);
    assert!(matches!(&again, Err(Error::Busy(text)) if text.contains("VALUE") && text.contains("41")), "{again:?}");
    assert_eq!(way.seen(), way.of(41));
}

pub fn the_same_place_twice_is_busy(way: Way) {
    let _tune = way.value(41);
    let mut thief = way.table();
    thief.constant.id = "elsewhere.c:L1:32:0".into();
    let refused = way.load(&thief, 42);
    let place = if way == Way::Data { "xk_target_limits+0x0" } else { "xk_target_value+0x5" };
    assert!(
        matches!(&refused, Err(Error::Busy(text)) if text.contains(place) && text.contains("VALUE")),
        "{refused:?}"
    );
    assert_eq!(way.seen(), way.of(41));
}

pub fn what_is_not_what_was_analysed_is_refused(way: Way) {
    let before = way.text();
    let mut table = way.table();
    let why = if way == Way::Data {
        table.data[0].fit = Fit::linear(1, 1, 8);
        "xk_target_limits+0x0: holds 32 instead of the default 33"
    } else {
        table.functions[0].bytes.replace_range(2..4, "21");
        "xk_target_value+0x1: expected 21, running 20"
    };
    let refused = way.load(&table, 5);
    let expected = match &refused {
        Err(Error::Refused { errno, .. }) => way == Way::Data && *errno == libc::ESTALE,
        Err(Error::Drift(text)) => way != Way::Data && text == why,
        _ => false,
    };
    assert!(expected, "{refused:?}");
    let refused = message(refused);
    assert!(refused.contains(why), "{refused}");
    assert!(Device::open().unwrap().tunes().unwrap().is_empty());
    way.is_as_before(&before);
}
