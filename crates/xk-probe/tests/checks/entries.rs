//! Entries of functions, which the function tracer serves, inside the guest.

use xk_runtime::{Device, ProbePlace, ReachedBy};

use super::probes::*;
use super::*;

const ENABLED: &str = "/sys/kernel/tracing/enabled_functions";
/// In the order of `struct pt_regs`: r8, cx, si, di and ip.
const ARGUMENTS: [usize; 4] = [14, 13, 11, 9];
const IP: usize = 16;
/// `endbr64`, and what the kernel writes over it in functions that nothing calls indirectly.
const MARKS: [[u8; 4]; 2] = [[0xf3, 0x0f, 0x1e, 0xfa], [0x66, 0x0f, 0x1f, 0x00]];

/// The bytes of the function tracer.
pub fn entry_of(function: &str) -> ProbePlace {
    let start = symbol(function);
    let marked = MARKS.iter().any(|mark| text(start, 4) == mark);
    ProbePlace { address: start + if marked { 4 } else { 0 }, cookie: 4711, ..ProbePlace::default() }
}

fn reached(device: &Device, id: u32) -> Vec<(ReachedBy, u64)> {
    device.probe_places(id).unwrap().iter().map(|place| (place.by, place.hits)).collect()
}

/// Names of functions that the tracer calls handlers from.
fn enabled() -> Vec<String> {
    let all = fs::read_to_string(ENABLED).unwrap();
    all.lines().filter_map(|line| line.split_whitespace().next()).map(str::to_owned).collect()
}

/// Nothing else in the guest calls `do_msgsnd(queue, kind, text, length, flags)`: what [`ARGUMENTS`] hold there.
fn send() -> [u64; 4] {
    const QUEUE: i32 = 0x0765_4321;
    let message: [libc::c_long; 2] = [77, 0];
    // SAFETY: the message is as long as it says.
    let sent = unsafe { libc::msgsnd(QUEUE, message.as_ptr().cast(), 5, libc::IPC_NOWAIT) };
    assert_eq!(sent, -1, "there is no such queue");
    [QUEUE as u64, 77, 5, libc::IPC_NOWAIT as u64]
}

fn arguments(seen: &[u64]) -> [u64; 4] {
    ARGUMENTS.map(|register| seen[register])
}

/// What a kprobe, which the tracer calls, too, shows in its place is the same.
pub fn entries_are_served_by_the_function_tracer() {
    let device = Device::open().unwrap();
    let (entry, look) = (Loaded::new("entry"), Loaded::new("look"));
    let place = entry_of("do_msgsnd");
    let before = text(place.address, 5);
    let others = enabled();
    let ours = entry.attach(&device, 0, &[place]);
    assert_ne!(text(place.address, 5), before);
    let sent = send();
    assert_eq!(reached(&device, ours), [(ReachedBy::Tracer, 1)]);
    assert_eq!((entry.number("runs"), entry.number("cookie")), (1, 4711));
    let seen = entry.numbers("seen");
    assert_eq!((arguments(&seen), seen[IP]), (sent, place.address));
    assert_eq!(entry.numbers("stack")[0], place.address);
    device.detach_probes(ours).unwrap();
    assert_eq!((text(place.address, 5), enabled()), (before.clone(), others.clone()));

    // It asks which function it is in, and only a kprobe tells.
    let theirs = look.attach(&device, 0, &[place]);
    send();
    assert_eq!(reached(&device, theirs), [(ReachedBy::Kprobe, 1)]);
    assert_eq!((look.number("runs"), look.number("function")), (1, symbol("do_msgsnd")));
    let by_kprobe = look.numbers("seen");
    assert_eq!((arguments(&by_kprobe), by_kprobe[IP]), (sent, place.address));
    // orig_ax, cs, flags and ss.
    for index in [15, 17, 18, 20] {
        assert_eq!(seen[index], by_kprobe[index], "{index}: {seen:x?} {by_kprobe:x?}");
    }
    // One more joins at the kprobe.
    let joined = entry.attach(&device, 0, &[place]);
    send();
    assert_eq!(reached(&device, joined), [(ReachedBy::Kprobe, 1)]);
    assert_eq!((entry.number("runs"), look.number("runs")), (2, 2));
    device.detach_probes(theirs).unwrap();
    device.detach_probes(joined).unwrap();
    assert_eq!((text(place.address, 5), enabled()), (before, others));
}

/// The tracer's filter contains the probed entries, whatever comes and goes; an empty one would be all functions.
pub fn the_function_tracer_serves_probed_entries_only() {
    let device = Device::open().unwrap();
    let others = enabled();
    let names = ["do_msgsnd", "do_msgrcv.constprop.0", "do_msgrcv", "ksys_msgget", "ksys_msgctl", "newque", "freeque"];
    let all = fs::read_to_string("/proc/kallsyms").unwrap();
    let exists = |name: &&str| all.lines().any(|line| line.split_whitespace().nth(2) == Some(name));
    let mut places: Vec<ProbePlace> = names.into_iter().filter(exists).map(entry_of).collect();
    places.sort_by_key(|place| place.address);
    assert!(places.len() > 3, "{places:x?}");
    let attach = |places: &[ProbePlace]| device.attach_probes("entries", None, places, false).unwrap().id;
    let (first, rest) = places.split_first().unwrap();
    for _ in 0..3 {
        let (one, many) = (attach(&[*first]), attach(rest));
        assert_eq!(enabled().len(), others.len() + places.len());
        let again = attach(&places);
        exchange_messages();
        let hits = reached(&device, again);
        assert!(hits.iter().all(|(by, _)| *by == ReachedBy::Tracer), "{hits:?}");
        assert!(hits.iter().any(|(_, hits)| *hits >= 200), "{hits:?}");
        assert_eq!([reached(&device, one), reached(&device, many)].concat(), hits);
        device.detach_probes(many).unwrap();
        device.detach_probes(again).unwrap();
        assert_eq!(enabled().len(), others.len() + 1);
        device.detach_probes(one).unwrap();
        assert_eq!(enabled(), others);
    }
    // Kprobes count as many.
    let (traced, _) = count(&device, &places, exchange_messages);
    let by_kprobes = Loaded::new("look").attach(&device, 0, &places);
    exchange_messages();
    let expected = reached(&device, by_kprobes);
    assert!(expected.iter().all(|(by, _)| *by == ReachedBy::Kprobe), "{expected:?}");
    assert_eq!(traced.into_values().collect::<Vec<_>>(), expected.iter().map(|(_, hits)| *hits).collect::<Vec<_>>());
}

/// The handler neither drops what runs inside of a program, nor runs another one there.
pub fn an_entry_inside_of_a_program_is_counted() {
    let device = Device::open().unwrap();
    let (update, few) = (Loaded::new("update"), Loaded::new("few"));
    let inner = few.attach(&device, 0, &[entry_of("htab_map_update_elem")]);
    let outer = entry_of("do_msgsnd");
    update.attach(&device, 0, &[outer]);
    for _ in 0..10 {
        send();
    }
    let probes = device.probes().unwrap();
    let status = probes.iter().find(|probe| probe.id == inner).unwrap();
    assert_eq!((status.hits, status.skipped, few.number("runs")), (10, 10, 0));
    assert_eq!(update.number("runs"), 10);
}

pub fn what_the_function_tracer_cannot_serve_is_refused() {
    let device = Device::open().unwrap();
    let look = Loaded::new("look");
    let place = entry_of("do_msgsnd");
    device.attach_probes("entry", None, &[place], false).unwrap();
    let refused = device.attach_probes("look", Some(look.fd(0)), &[place], false).unwrap_err().to_string();
    assert!(refused.contains("bpf_get_func_ip() needs a kprobe"), "{refused}");
    let refused = device.attach_probes("jumps", None, &[place], true).unwrap_err().to_string();
    assert!(refused.contains("do_msgsnd+0x"), "{refused}");
    // As long as it is needed, it cannot be switched off.
    assert!(fs::write("/proc/sys/kernel/ftrace_enabled", "0").is_err());
    assert_eq!(device.probes().unwrap().len(), 1);
}
