//! Who a tune belongs to, and what ends it.

use crate::*;

pub fn sigkill_of_the_owner_returns_the_default() {
    let mut owner = holder();
    owner.kill().unwrap();
    owner.wait().unwrap();
    assert_eq!(target("value"), "32");
    assert!(Device::open().unwrap().tunes().unwrap().is_empty());
}

pub fn a_detached_tune_survives_its_owner() {
    let id = load(&value_table(), 41).unwrap().detach().unwrap();
    assert_eq!(target("value"), "41");
    let device = Device::open().unwrap();
    assert!(device.tunes().unwrap()[0].detached);
    device.set(id, 42).unwrap();
    assert_eq!(target("value"), "42");
    device.unload(id).unwrap();
    assert_eq!(target("value"), "32");
    assert!(matches!(device.unload(id), Err(Error::NoSuchTune(gone)) if gone == id));
}

pub fn an_owned_tune_is_nobody_elses() {
    let tune = load(&value_table(), 41).unwrap();
    let other = Device::open().unwrap();
    assert!(matches!(other.unload(tune.id()), Err(Error::Owned(_))));
    assert!(matches!(other.set(tune.id(), 1), Err(Error::Owned(_))));
    assert!(matches!(other.detach(tune.id()), Err(Error::Owned(_))));
    assert_eq!(other.tunes().unwrap()[0].owner_pid, std::process::id() as i32);
    assert_eq!(target("value"), "41");
}

const ENABLED: &str = "/sys/kernel/debug/kprobes/enabled";

pub fn kprobes_disabled_arms_nothing() {
    write(ENABLED, "0");
    let refused = load(&value_table(), 5);
    write(ENABLED, "1");
    assert!(message(refused).contains("kprobes/enabled"));
    assert_eq!(target("value"), "32");
    load(&value_table(), 5).unwrap();
}

pub fn kprobes_disabled_later_is_visible() {
    let tune = load(&value_table(), 64).unwrap();
    write(ENABLED, "0");
    assert_eq!(target("value"), "32");
    let status = tune.status().unwrap();
    assert!(status.broken);
    assert_eq!(status.sites[0].probe, Probe::Disarmed);
    write(ENABLED, "1");
    assert_eq!(target("value"), "64");
    assert!(!tune.status().unwrap().broken);
    write(ENABLED, "0");
    tune.unload().unwrap();
    write(ENABLED, "1");
    assert_eq!(target("value"), "32");
}

pub fn removing_the_module_returns_defaults() {
    let tune = load(&value_table(), 64).unwrap();
    assert!(!run("rmmod", &["xk"]), "an open descriptor holds the module");
    tune.detach().unwrap();
    assert_eq!(target("value"), "64");
    assert!(run("rmmod", &["xk"]));
    assert_eq!(target("value"), "32");
    assert!(matches!(Device::open(), Err(Error::NotLoaded)));
}

pub fn opening_the_device_explains_itself() {
    // By its link: nobody may not search the folders that lead to it.
    let status = Command::new("/proc/self/exe")
        .args(["--ignored", "--exact", "hold"])
        .env("XK_TEST_HOLD", "1")
        .uid(65534)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&status.stdout).into_owned() + &String::from_utf8_lossy(&status.stderr);
    assert!(text.contains("NotRoot"), "{text}");
    let (version, module) = Device::open().unwrap().version().unwrap();
    assert_eq!((version, module.as_str()), (abi::ABI_VERSION, "0.1.0"));
}
