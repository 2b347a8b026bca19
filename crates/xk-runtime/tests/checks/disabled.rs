//! kprobes that the administrator disables, and a device that is not opened.

use crate::*;

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

pub fn opening_the_device_explains_itself() {
    // By its link: nobody may not search the folders that lead to it.
    let status = Command::new("/proc/self/exe")
        .args(["--ignored", "--exact", "open"])
        .env("XK_TEST_OPEN", "1")
        .uid(65534)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&status.stdout).into_owned() + &String::from_utf8_lossy(&status.stderr);
    assert!(text.contains("NotRoot"), "{text}");
    let (version, module) = Device::open().unwrap().version().unwrap();
    assert_eq!((version, module.as_str()), (abi::ABI_VERSION, "0.1.0"));
}
