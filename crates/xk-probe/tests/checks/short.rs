//! Short jumps, inside the guest.

use std::collections::BTreeMap;

use xk_runtime::{Device, ProbePlace};
use xk_testing::guest::wait_for;
use xk_testing::Random;

use super::probes::*;
use super::run;

/// Instructions of the message queues that only a short jump reaches.
fn short_places() -> Vec<ProbePlace> {
    let places: Vec<_> = places_of("").into_iter().filter(|place| place.host_window > 0).collect();
    assert!(places.len() > 10, "{} places with short windows", places.len());
    places
}

/// Calls of the kernel that execute instructions with short windows. Nothing else in the guest does.
fn exercise() {
    exchange_messages();
    exercise_semaphores();
    exercise_memory();
    exercise_events();
}

fn exercise_semaphores() {
    let operation = |number, amount| libc::sembuf { sem_num: number, sem_op: amount, sem_flg: libc::IPC_NOWAIT as i16 };
    let mut values = [0u16; 3];
    // SAFETY: the semaphores are new; the pointers are to local variables, which have the lengths that are given.
    unsafe {
        let all = libc::semget(libc::IPC_PRIVATE, 3, 0o600);
        assert!(all >= 0);
        for round in 0..20 {
            let mut up = [operation(0, 2), operation(1, 1), operation(2, 3)];
            assert_eq!(libc::semop(all, up.as_mut_ptr(), 1 + round % 3), 0);
            let mut both = [operation(0, -1), operation(0, -1)];
            assert_eq!(libc::semop(all, both.as_mut_ptr(), 2), 0);
            // It is 0 now: one fails, one does not.
            assert_eq!(libc::semop(all, [operation(0, -1)].as_mut_ptr(), 1), -1);
            assert_eq!(libc::semop(all, [operation(0, 0)].as_mut_ptr(), 1), 0);
            assert_eq!(libc::semctl(all, 0, libc::GETVAL), 0);
            assert_eq!(libc::semctl(all, 1, libc::SETVAL, 0), 0);
            assert_eq!(libc::semctl(all, 0, libc::GETALL, values.as_mut_ptr()), 0);
            values[2] = 5;
            assert_eq!(libc::semctl(all, 0, libc::SETALL, values.as_mut_ptr()), 0);
        }
        assert_eq!(libc::semop(all, [operation(9, 1)].as_mut_ptr(), 1), -1, "no such semaphore");
        assert_eq!(libc::semctl(all, 9, libc::GETVAL), -1);
        assert_eq!(libc::semctl(all, 0, libc::IPC_RMID), 0);
        assert_eq!(libc::semctl(all, 0, libc::GETVAL), -1, "it is removed");
    }
}

fn exercise_memory() {
    // SAFETY: the memory is new, and is not used after it was detached.
    unsafe {
        let memory = libc::shmget(libc::IPC_PRIVATE, 8192, 0o600);
        assert!(memory >= 0);
        let mut status: libc::shmid_ds = std::mem::zeroed();
        for flags in [0, libc::SHM_RDONLY] {
            let at = libc::shmat(memory, std::ptr::null(), flags);
            assert_ne!(at as isize, -1);
            assert_eq!(*at.cast::<u8>(), 0);
            assert_eq!(libc::shmctl(memory, libc::IPC_STAT, &raw mut status), 0);
            assert_eq!(libc::shmdt(at), 0);
        }
        assert_eq!(libc::shmat(memory, std::ptr::without_provenance(1), 0) as isize, -1, "not aligned");
        assert_eq!(libc::shmctl(memory, libc::IPC_RMID, std::ptr::null_mut()), 0);
        assert_eq!(libc::shmget(libc::IPC_PRIVATE, 0, 0o600), -1);
    }
}

fn exercise_events() {
    let (mut number, large) = (7u64, u64::MAX);
    let at = (&raw mut number).cast();
    // SAFETY: the descriptor is new; the pointers are to variables, which have the length that is given.
    unsafe {
        for flags in [0, libc::EFD_SEMAPHORE] {
            let events = libc::eventfd(1, libc::EFD_NONBLOCK | flags);
            assert!(events >= 0);
            assert_eq!(libc::write(events, at, 8), 8);
            assert_eq!(libc::read(events, at, 8), 8);
            assert_eq!(libc::read(events, at, 4), -1, "too short");
            while libc::read(events, at, 8) == 8 {}
            assert_eq!(libc::write(events, (&raw const large).cast(), 8), -1, "too large");
            let mut poll = libc::pollfd { fd: events, events: libc::POLLIN | libc::POLLOUT, revents: 0 };
            assert_eq!(libc::poll(&raw mut poll, 1, 0), 1);
            assert_eq!(libc::close(events), 0);
        }
    }
}

fn place_in(function: &str, offset: u64, window: u8) -> ProbePlace {
    ProbePlace { address: symbol(function) + offset, window, ..ProbePlace::default() }
}

fn start_of(place: &ProbePlace) -> u64 {
    place.address - u64::from(place.window_lead)
}

fn host_of(place: &ProbePlace) -> u64 {
    start_of(place).wrapping_add_signed(place.host.into())
}

/// Where its short jump leads.
fn relay_of(place: &ProbePlace) -> u64 {
    host_of(place) + u64::from(place.host_window) - 5
}

/// The bytes of a short window and of its host.
fn bytes_of(place: &ProbePlace) -> [Vec<u8>; 2] {
    [text(start_of(place), place.window.into()), text(host_of(place), place.host_window.into())]
}

fn all_bytes(places: &[ProbePlace]) -> Vec<[Vec<u8>; 2]> {
    places.iter().map(bytes_of).collect()
}

/// What the kernel's own kprobes count in the load.
fn by_kprobes(device: &Device, places: &[ProbePlace]) -> BTreeMap<u64, u64> {
    let kprobes: Vec<_> = places.iter().map(|place| place.without_jump()).collect();
    let (hits, jumps) = count(device, &kprobes, exercise);
    assert_eq!(jumps, 0);
    hits
}

/// One that the load executes, with another place at the start of its host.
fn executed(device: &Device) -> (ProbePlace, ProbePlace, BTreeMap<u64, u64>) {
    let all = places_of("");
    let pair = |place: &ProbePlace| {
        let host = all.iter().find(|other| other.address == host_of(place) && other.window_lead == 0)?;
        (host.window > 0 && host.host_window == 0).then_some((*place, *host))
    };
    let pairs: Vec<_> = short_places().iter().filter_map(pair).collect();
    let both: BTreeMap<u64, ProbePlace> = pairs.iter().flat_map(|(a, b)| [(a.address, *a), (b.address, *b)]).collect();
    let hits = by_kprobes(device, &both.into_values().collect::<Vec<_>>());
    let found = pairs.into_iter().find(|(place, host)| hits[&place.address] > 0 && hits[&host.address] > 0);
    let (place, host) = found.expect("a short window and its host that are executed");
    (place, host, hits)
}

pub fn short_jumps_count_what_kprobes_count() {
    let device = Device::open().unwrap();
    let places = short_places();
    let before = all_bytes(&places);
    let expected = by_kprobes(&device, &places);
    assert!(expected.values().filter(|hits| **hits > 0).count() > 5, "{expected:x?}");
    // All at once, and each by itself in random order.
    let (hits, jumps) = count(&device, &places, exercise);
    assert!(jumps * 10 > places.len() * 8, "{jumps} of {} by a jump", places.len());
    let differ: Vec<_> = hits.iter().filter(|(at, hits)| expected[at] != **hits).collect();
    assert!(differ.is_empty(), "{differ:x?} of {expected:x?}");
    assert_eq!(all_bytes(&places), before);
    let mut random = Random(1);
    let mut left = places.clone();
    let mut refused = Vec::new();
    while !left.is_empty() {
        let place = left.swap_remove(random.below(left.len()));
        let attached = match device.attach_probes("one", None, &[place], true) {
            Ok(attached) => attached,
            Err(error) => {
                refused.push(error.to_string());
                continue;
            }
        };
        let jump = text(start_of(&place), place.window.into());
        assert_eq!(jump[jump.len() - 2], 0xeb, "{jump:x?}");
        assert_eq!(text(relay_of(&place), 1), [0xe9]);
        exercise();
        assert_eq!(device.probe_places(attached.id).unwrap()[0].hits, expected[&place.address], "{place:x?}");
        device.detach_probes(attached.id).unwrap();
        assert_eq!(bytes_of(&place), before[places.iter().position(|other| *other == place).unwrap()], "{place:x?}");
    }
    // Their hosts hold guard probes for their own branches, or a jump label of two bytes is taken for five.
    assert!(refused.len() * 10 < places.len(), "{refused:#?}");
}

/// Its host serves other probes, before and after it.
pub fn short_jumps_come_and_go_around_their_host() {
    let device = Device::open().unwrap();
    let (place, host, expected) = executed(&device);
    let before = bytes_of(&place);
    let attach = |place: ProbePlace| device.attach_probes("part", None, &[place], true).unwrap().id;
    let hits = |id: u32| device.probe_places(id).unwrap()[0].hits;
    let short = attach(place);
    let beside = attach(host);
    exercise();
    assert_eq!((hits(short), hits(beside)), (expected[&place.address], expected[&host.address]));
    // The short jump goes first: the host stays, and takes no other relay.
    device.detach_probes(short).unwrap();
    let [window, bytes] = bytes_of(&place);
    assert!(window == before[0] && bytes != before[1]);
    exercise();
    assert_eq!(hits(beside), 2 * expected[&host.address]);
    let refused = device.attach_probes("again", None, &[place], true).unwrap_err().to_string();
    assert!(refused.contains("room for its relay"), "{refused}");
    device.detach_probes(beside).unwrap();
    assert_eq!(bytes_of(&place), before);
    // The other one goes first: the host stays for the relay. A second attachment uses the same jump.
    let short = attach(place);
    let beside = attach(host);
    device.detach_probes(beside).unwrap();
    let second = attach(place);
    exercise();
    assert_eq!((hits(short), hits(second)), (expected[&place.address], expected[&place.address]));
    device.detach_probes(short).unwrap();
    exercise();
    assert_eq!(hits(second), 2 * expected[&place.address]);
    device.detach_probes(second).unwrap();
    assert_eq!(bytes_of(&place), before);
    // A window that another probe holds is no host.
    let beside = attach(host);
    let refused = device.attach_probes("late", None, &[place], true).unwrap_err().to_string();
    assert!(refused.contains("room for its relay"), "{refused}");
    device.detach_probes(beside).unwrap();
    assert_eq!(bytes_of(&place), before);
}

/// Programs that read all registers need other slots: the relay is redirected.
pub fn a_relay_is_redirected_to_other_slots() {
    let device = Device::open().unwrap();
    let (place, _, expected) = executed(&device);
    let before = bytes_of(&place);
    let (few, rare) = (Loaded::new("few"), Loaded::new("rare"));
    let first = few.attach(&device, 0, &[place]);
    let relay = text(relay_of(&place), 5);
    let second = rare.attach(&device, 0, &[place]);
    assert_ne!(text(relay_of(&place), 5), relay);
    exercise();
    let hits = |id: u32| by_jump(&device, id)[0].hits;
    assert_eq!((hits(first), hits(second)), (expected[&place.address], expected[&place.address]));
    device.detach_probes(first).unwrap();
    device.detach_probes(second).unwrap();
    assert_eq!(bytes_of(&place), before);
}

/// Its owner remembers the relay: both jumps stay until the kprobe goes.
pub fn a_kprobe_on_a_relay_is_served_and_outlives_it() {
    let device = Device::open().unwrap();
    let (place, _, expected) = executed(&device);
    let before = bytes_of(&place);
    let attached = device.attach_probes("short", None, &[place], true).unwrap();
    write(&format!("probe {} enabled", named(relay_of(&place))));
    exercise();
    assert_eq!(by_jump(&device, attached.id)[0].hits, expected[&place.address]);
    device.detach_probes(attached.id).unwrap();
    exercise();
    assert_ne!(bytes_of(&place), before);
    write("no probe");
    wait_for("the original bytes", || bytes_of(&place) == before);
}

/// What is not as the analysis says is refused.
pub fn hosts_are_checked() {
    let device = Device::open().unwrap();
    let place = short_places()[0];
    let refusal = |place: ProbePlace| {
        let refused = device.attach_probes("refused", None, &[place], true);
        refused.expect_err("it was attached").to_string()
    };
    let said = |place: ProbePlace, words: &str| {
        let text = refusal(place);
        assert!(text.contains(words), "no `{words}` in: {text}");
    };
    said(ProbePlace { host: place.host + 1, ..place }, "does not begin at an instruction");
    refusal(ProbePlace { host: 0, ..place });
    // Two windows of ten bytes beside it: before the push, and after it.
    let target_place = ProbePlace { host_window: 10, ..place_in("xk_target_short", 0xb, 2) };
    said(ProbePlace { host: -0xb, ..target_place }, "the unwinder would not find the stack");
    let attached = device.attach_probes("module", None, &[ProbePlace { host: 2, ..target_place }], true).unwrap();
    assert_eq!((target("short").as_str(), by_jump(&device, attached.id)[0].hits), ("32", 1));
    device.detach_probes(attached.id).unwrap();
    assert_eq!(target("short"), "32");
    assert!(run("rmmod", &["xk_target"]), "neither jump holds the module any more");
    said(ProbePlace { host_window: 9, ..place }, "longer than the analysed window");
    said(ProbePlace { host: 0x7000, ..place }, "does not begin at an instruction");
    said(ProbePlace { host_window: 0, ..place }, "only a window of fewer than");
    said(ProbePlace { window: 5, ..place }, "only a window of fewer than");
    assert!(device.probes().unwrap().is_empty());
}
