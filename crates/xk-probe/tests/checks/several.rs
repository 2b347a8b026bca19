//! Several programs in one attachment.

use std::fs::File;
use std::os::fd::AsFd;

use xk_runtime::{Attachment, Device, ProbePlace};

use super::probes::{by_jump, place, symbol, target, Loaded, CALLS};

/// `mov %eax,%edx` at +5 and `add $0,%edx` at +7 lie in one window.
fn places() -> [ProbePlace; 2] {
    let value = symbol("xk_target_value");
    [ProbePlace { program: 1, ..place(value + 5, 5) }, ProbePlace { program: 0, window_lead: 2, ..place(value + 7, 5) }]
}

pub fn each_place_runs_the_program_that_it_names() {
    let device = Device::open().unwrap();
    let order = Loaded::new("order");
    let programs = [order.fd(0), order.fd(1)];
    let wanted = Attachment { name: "several", programs: &programs, places: &places(), ..Attachment::default() };
    let attached = device.attach(&wanted).unwrap();
    assert_eq!((attached.jumps, target("value").as_str()), (2, "32"));
    assert!(by_jump(&device, attached.id).iter().all(|place| place.hits == CALLS));
    // The second program runs at the first place.
    let [number, first, second] = ["number", "first_at", "second_at"].map(|name| order.number(name));
    assert_eq!((number, second, first), (2 * CALLS, 2 * CALLS - 1, 2 * CALLS));
    let status = device.probes().unwrap();
    let [only] = &status[..] else { panic!("{status:?}") };
    assert_eq!((only.programs, only.places), (2, 2));
    device.detach_probes(attached.id).unwrap();
    assert_eq!((target("value").as_str(), order.number("number")), ("32", 2 * CALLS));
}

pub fn a_program_that_is_not_there_is_refused() {
    let device = Device::open().unwrap();
    let order = Loaded::new("order");
    let two = [order.fd(0), order.fd(1)];
    let refusal = |programs: &[_], places: &[ProbePlace]| {
        let wanted = Attachment { name: "refused", programs, places, ..Attachment::default() };
        device.attach(&wanted).unwrap_err().to_string()
    };
    let places = places();
    assert!(refusal(&two[..1], &places).contains("place 0: program 1 of 1"), "{}", refusal(&two[..1], &places));
    assert!(refusal(&[], &places).contains("program 1 of 0"), "{}", refusal(&[], &places));
    let many = [two[0]; 65];
    assert!(refusal(&many, &places).contains("65 programs; at most 64 are possible"), "{}", refusal(&many, &places));
    // The second is no program: the first is given back.
    let other = File::open("/dev/null").unwrap();
    assert!(refusal(&[two[0], other.as_fd()], &places).contains("program"), "no program");
    assert!(device.probes().unwrap().is_empty());
    assert_eq!(target("value"), "32");
}
