//! Modules that go while they are probed, and come back.

use xk_runtime::{Attachment, Device, PlaceStatus, ProbeFunction, ProbePlace, ReachedBy};
use xk_testing::guest::{altered, wait_for};

use super::entries::entry_of;
use super::probes::*;
use super::*;

const EVENTS: &str = "/sys/kernel/tracing/kprobe_events";
const WAITING: [ReachedBy; 4] = [ReachedBy::Waiting; 4];

/// A function of the target. The kernel must find its first `fixed` bytes again; calls and addresses follow them.
fn function(name: &str, fixed: usize) -> ProbeFunction {
    const LEN: usize = 12;
    let address = symbol(name);
    let mask = (0..LEN).map(|at| if at < fixed { 0xff } else { 0 }).collect();
    let (symbol, module) = (name.to_owned(), "xk_target".to_owned());
    ProbeFunction { address, symbol, module, text: text(address, LEN), mask }
}

/// An instruction that a jump reaches, one whose jump moves a branch, one for a kprobe, one for the function tracer.
fn places() -> [ProbePlace; 4] {
    let at = |name, offset, window| place(symbol(name) + offset, window);
    [at("xk_target_value", 5, 5), at("xk_target_roomy", 5, 7), at("xk_target_into", 0, 0), entry_of("xk_target_traced")]
}

fn functions() -> [ProbeFunction; 4] {
    [("xk_target_value", 5), ("xk_target_roomy", 5), ("xk_target_into", 5), ("xk_target_traced", 0)]
        .map(|(name, fixed)| function(name, fixed))
}

/// In the order of the places.
fn status(device: &Device, id: u32, places: &[ProbePlace]) -> Vec<PlaceStatus> {
    let all = device.probe_places(id).unwrap();
    let of = |place: &ProbePlace| all.iter().find(|status| status.address == place.address).unwrap().clone();
    places.iter().map(of).collect()
}

fn by(status: &[PlaceStatus]) -> Vec<ReachedBy> {
    status.iter().map(|place| place.by).collect()
}

/// Executions. A kprobe does not report those inside the handler of another kprobe.
fn executed(status: &[PlaceStatus]) -> Vec<u64> {
    status.iter().map(|place| place.hits + place.missed).collect()
}

fn go() {
    assert!(run("rmmod", &["xk_target"]));
}

/// The module itself calls `xk_target_value` once when it is initialised: the probe is there by then.
pub fn places_in_a_module_wait_for_it() {
    let device = Device::open().unwrap();
    let places = places();
    let original = text(places[0].address, 8);
    let wanted = Attachment { name: "waits", places: &places, functions: &functions(), ..Attachment::default() };
    let id = device.attach(&wanted).unwrap().id;
    let look = || status(&device, id, &places);
    assert_eq!(by(&look()), [ReachedBy::Jump, ReachedBy::Jump, ReachedBy::Kprobe, ReachedBy::Tracer]);
    assert_eq!(target("value"), "32");
    let each = executed(&look());
    assert!(each.iter().all(|hits| *hits > 0), "{each:?}");
    for round in 2..5 {
        go();
        let gone = look();
        assert_eq!(by(&gone), WAITING);
        assert!(gone.iter().all(|place| place.now.is_none() && place.note.is_none()), "{gone:?}");
        insmod(TARGET_KO);
        let back = look();
        assert_eq!(by(&back), [ReachedBy::Kprobe, ReachedBy::Kprobe, ReachedBy::Kprobe, ReachedBy::Tracer], "{back:?}");
        assert_eq!(back[0].now, Some(symbol("xk_target_value") + 5));
        assert!(back[0].note.as_deref().is_some_and(|note| note.contains("loaded again")), "{back:?}");
        assert_eq!((target("value").as_str(), target("roomy").as_str(), target("into").as_str()), ("32", "1 0", "32"));
        let mut expected: Vec<u64> = each.iter().map(|hits| hits * (3 * round - 2)).collect();
        expected[0] += round - 1;
        assert_eq!(executed(&look()), expected, "round {round}");
    }
    device.detach_probes(id).unwrap();
    assert_eq!(text(symbol("xk_target_value") + 5, 8), original);
    // Nothing waits any more.
    go();
    insmod(TARGET_KO);
    assert_eq!(text(symbol("xk_target_value") + 5, 8), original);
}

pub fn places_wait_while_a_module_has_other_code() {
    let device = Device::open().unwrap();
    let (places, functions) = (&places()[..1], &functions()[..1]);
    let wanted = Attachment { name: "other", places, functions, ..Attachment::default() };
    let id = device.attach(&wanted).unwrap().id;
    let only = Attachment { name: "jumps only", jumps_only: true, ..wanted };
    let jumps = device.attach(&only).unwrap().id;
    go();
    assert!(run("insmod", &[altered(&file(TARGET_KO), "xk_target_value", 1, 33).to_str().unwrap()]));
    assert_eq!(target("value"), "33");
    let seen = status(&device, id, places);
    assert_eq!((seen[0].by, seen[0].hits), (ReachedBy::Waiting, 0));
    assert_eq!(seen[0].note.as_deref(), Some("xk_target_value+0x1: expected 20, running 21"));
    go();
    insmod(TARGET_KO);
    assert_eq!(target("value"), "32");
    let seen = status(&device, id, places);
    assert_eq!((by(&seen), executed(&seen)), (vec![ReachedBy::Kprobe], vec![CALLS + 1]));
    let seen = status(&device, jumps, places);
    assert_eq!((seen[0].by, seen[0].hits), (ReachedBy::Waiting, 0));
    assert!(seen[0].note.as_deref().is_some_and(|note| note.contains("loaded again")), "{seen:?}");
}

/// A function whose running bytes are not the given ones could not be found again.
pub fn a_module_stays_while_it_is_probed() {
    let device = Device::open().unwrap();
    let places = &places()[..1];
    let mut unlike = function("xk_target_value", 5);
    unlike.text[2] ^= 1;
    for functions in [&[][..], &[unlike]] {
        let wanted = Attachment { name: "module", places, functions, ..Attachment::default() };
        let attached = device.attach(&wanted).unwrap();
        // Another one that would wait does not change that.
        let other = Attachment { functions: &self::functions(), ..wanted };
        let other = device.attach(&other).unwrap();
        assert!(!run("rmmod", &["xk_target"]));
        assert_eq!(target("value"), "32");
        device.detach_probes(attached.id).unwrap();
        go();
        assert_eq!(status(&device, other.id, places)[0].by, ReachedBy::Waiting);
        device.detach_probes(other.id).unwrap();
        insmod(TARGET_KO);
    }
}

/// The jump cannot be removed as long as the kprobe is on it. The module can.
pub fn a_module_goes_with_a_jump_that_someone_else_probes() {
    let device = Device::open().unwrap();
    let places = [place(symbol("xk_target_traced") + 5, 5)];
    let bytes = || text(symbol("xk_target_traced") + 5, 5);
    let (original, result) = (bytes(), target("traced"));
    let wanted = Attachment { name: "stuck", places: &places, functions: &functions()[3..], ..Attachment::default() };
    let id = device.attach(&wanted).unwrap().id;
    assert_eq!(by(&status(&device, id, &places)), [ReachedBy::Jump]);
    fs::write(EVENTS, "p:on_jump xk_target:xk_target_traced+5\n").unwrap();
    let enable = |on: &str| fs::write("/sys/kernel/tracing/events/kprobes/on_jump/enable", on).unwrap();
    enable("1");
    device.detach_probes(id).unwrap();
    assert_ne!(bytes(), original, "the jump stays under the kprobe");
    go();
    insmod(TARGET_KO);
    assert_eq!(target("traced"), result);
    enable("0");
    fs::write(EVENTS, "").unwrap();
    wait_for("the original bytes", || bytes() == original);
    drop(device);
    assert!(run("rmmod", &["xk"]), "nothing is left to wait for");
    insmod(XK_KO);
}
