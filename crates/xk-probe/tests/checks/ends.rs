//! How attachments end: with their descriptor, by hand, by their lease, with xk.ko.

use std::fs;
use std::time::Duration;

use xk_runtime::{Device, Error};
use xk_testing::guest::{insmod, run, wait_for, XK_KO};

use super::probes::{place, symbol, target, text, CALLS};

pub fn an_attachment_belongs_to_its_descriptor() {
    let device = Device::open().unwrap();
    let value = symbol("xk_target_value");
    // Two attachments of one place, from two descriptors: each ends with its own.
    let other = Device::open().unwrap();
    device.attach_probes("mine", None, &[place(value + 5, 5)], true).unwrap();
    let theirs = other.attach_probes("theirs", None, &[place(value + 5, 5)], true).unwrap();
    assert!(is_of_another(device.detach_probes(theirs.id).map(|_| ())));
    drop(other);
    wait_for("their attachment ends", || device.probes().unwrap().len() == 1);
    assert_eq!(target("value"), "32");
    assert_eq!(device.probes().unwrap()[0].hits, CALLS);
}

/// Bytes of the instruction that the checks probe, and of those that its jump replaces.
fn bytes() -> Vec<u8> {
    text(symbol("xk_target_value") + 5, 8)
}

/// Attaches a counter to that instruction, by a jump.
fn attach(device: &Device, name: &str) -> u32 {
    device.attach_probes(name, None, &[place(symbol("xk_target_value") + 5, 5)], true).unwrap().id
}

fn is_of_another(result: Result<(), Error>) -> bool {
    matches!(&result, Err(Error::ProbesOwned(reason)) if reason.contains("belong to process"))
}

pub fn what_is_kept_outlives_its_descriptor() {
    let original = bytes();
    let device = Device::open().unwrap();
    let kept = attach(&device, "kept");
    let other = Device::open().unwrap();
    assert!(is_of_another(other.keep_probes(kept, None)));
    device.keep_probes(kept, None).unwrap();
    drop(device);
    // The end of another attachment of the same descriptor would have come by now, too.
    attach(&other, "other");
    assert_eq!(target("value"), "32");
    let probes = other.probes().unwrap();
    assert_eq!((probes[0].id, probes[0].kept, probes[0].lease, probes[0].hits), (kept, true, None, CALLS));
    assert!(!probes[1].kept);
    other.detach_probes(kept).unwrap();
    assert_eq!(other.probes().unwrap().len(), 1);
    assert_ne!(bytes(), original, "the other one needs the jump");
    other.detach_probes(probes[1].id).unwrap();
    assert_eq!(bytes(), original);
    assert!(matches!(other.keep_probes(kept, None), Err(Error::NoSuchProbes(id)) if id == kept));
}

pub fn a_lease_ends_an_attachment() {
    let original = bytes();
    let device = Device::open().unwrap();
    let other = Device::open().unwrap();
    let (short, long) = (attach(&device, "short"), attach(&device, "long"));
    assert!(is_of_another(other.lease_probes(short, None)));
    device.lease_probes(long, Some(Duration::from_secs(3600))).unwrap();
    device.lease_probes(short, Some(Duration::from_millis(50))).unwrap();
    wait_for("the short lease ends", || device.probes().unwrap().len() == 1);
    let left = &device.probes().unwrap()[0];
    assert_eq!(left.id, long);
    assert!(left.lease.is_some_and(|lease| lease < Duration::from_secs(3600)));
    assert!(matches!(device.detach_probes(short), Err(Error::NoSuchProbes(id)) if id == short));
    // A lease can be removed, and begun again. One of what is kept needs no process.
    device.lease_probes(long, Some(Duration::from_secs(5))).unwrap();
    device.lease_probes(long, None).unwrap();
    std::thread::sleep(Duration::from_secs(6));
    assert_eq!(device.probes().unwrap()[0].lease, None);
    device.keep_probes(long, Some(Duration::from_millis(50))).unwrap();
    drop(device);
    wait_for("the long lease ends", || other.probes().unwrap().is_empty());
    wait_for("the text is restored", || bytes() == original);
    let too_long = attach(&other, "too long");
    let refused = other.lease_probes(too_long, Some(Duration::MAX));
    assert!(matches!(&refused, Err(Error::Refused { reason, .. }) if reason.contains("is too long")), "{refused:?}");
    assert_eq!(other.probes().unwrap()[0].lease, None);
}

pub fn what_is_kept_ends_with_the_module() {
    let original = bytes();
    let device = Device::open().unwrap();
    let kept = attach(&device, "kept");
    device.keep_probes(kept, Some(Duration::from_secs(3600))).unwrap();
    drop(device);
    assert_ne!(bytes(), original);
    assert!(run("rmmod", &["xk"]), "nothing but the attachment is left, and it holds no reference");
    assert_eq!(bytes(), original);
    assert_eq!(target("value"), "32");
    insmod(XK_KO);
}

pub fn tracepoints_tell_of_attachments() {
    const TRACING: &str = "/sys/kernel/tracing";
    let device = Device::open().unwrap();
    fs::write(format!("{TRACING}/trace"), "").unwrap();
    fs::write(format!("{TRACING}/events/xk/enable"), "1").unwrap();
    let value = place(symbol("xk_target_value") + 5, 5);
    let id = attach(&device, "told");
    let refused = [value, place(symbol("xk_target_forbidden") + 5, 5)];
    assert!(device.attach_probes("refused", None, &refused, false).is_err());
    device.detach_probes(id).unwrap();
    let ended = attach(&Device::open().unwrap(), "ends with its descriptor");
    wait_for("it ends", || device.probes().unwrap().is_empty());
    fs::write(format!("{TRACING}/events/xk/enable"), "0").unwrap();
    let trace = fs::read_to_string(format!("{TRACING}/trace")).unwrap();
    let events = trace.lines().filter_map(|line| line.split_once(": xk_probe_").map(|(_, event)| event));
    // How many stops were needed depends on who was in the way.
    let events: Vec<_> = events.map(|event| event.split(" stops=").next().unwrap().to_owned()).collect();
    let expected = [
        format!("attach: told probe={id} programs=0 places=1 jumps=1"),
        format!("detach: told probe={id}"),
        format!("attach: ends with its descriptor probe={ended} programs=0 places=1 jumps=1"),
        format!("detach: ends with its descriptor probe={ended}"),
    ];
    assert_eq!(events, expected);
}
