//! The checks, inside the guest.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::fd::BorrowedFd;
use std::os::unix::fs::FileExt;
use std::process::Command;
use std::time::Duration;

use serde_json::Value;
use xk_probe::{maps, Probe, Programs};
use xk_runtime::{Device, PlaceStatus, ProbePlace, ReachedBy};
use xk_testing::guest::wait_for;

use super::*;

const PROC: &str = "/proc/xk_target";
/// The instruction of `xk_target_registers` that is probed, and its length.
const PROBED: u64 = 0xb1;
const PROBED_LEN: u8 = 10;
/// How often one look at `/proc/xk_target` calls `xk_target_value`: a handler of its own does so, too.
pub const CALLS: u64 = 2;
/// What a register holds there, by the number of the register in instructions.
const EACH: u64 = 0x0101_0101_0101_0101;

/// An address by the name of its symbol.
pub fn symbol(name: &str) -> u64 {
    let all = fs::read_to_string("/proc/kallsyms").unwrap();
    let line = all.lines().find(|line| line.split_whitespace().nth(2) == Some(name)).expect(name);
    u64::from_str_radix(line.split_whitespace().next().unwrap(), 16).unwrap()
}

/// `FUNCTION OFFSET`, in vmlinux.
pub fn named(address: u64) -> String {
    let all = fs::read_to_string("/proc/kallsyms").unwrap();
    let of_vmlinux = all.lines().filter(|line| !line.contains('['));
    let parsed = of_vmlinux.filter_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        Some((u64::from_str_radix(words[0], 16).ok()?, words[2])).filter(|_| matches!(words[1], "t" | "T"))
    });
    let (start, name) = parsed.filter(|(start, _)| *start <= address).max_by_key(|(start, _)| *start).unwrap();
    format!("{name} {}", address - start)
}

/// Calls every function of the target once; what the one whose line starts with `name` returned.
pub fn target(name: &str) -> String {
    let text = fs::read_to_string(PROC).unwrap();
    text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')).expect(name).trim().to_owned()
}

pub fn place(address: u64, window: u8) -> ProbePlace {
    ProbePlace { address, window, ..ProbePlace::default() }
}

fn registers() -> ProbePlace {
    ProbePlace { cookie: 4711, ..place(symbol("xk_target_registers") + PROBED, PROBED_LEN) }
}

/// A program in the kernel, with its object.
pub struct Loaded {
    file: Vec<u8>,
    probes: Vec<Probe>,
    programs: Programs,
}

impl Loaded {
    pub fn new(name: &str) -> Self {
        let file = object(name);
        // What its section names is no place of this kernel.
        let probes = xk_probe::probes(&file, &[], None).unwrap();
        let programs = Programs::load(&file, &probes).unwrap_or_else(|error| panic!("{name}: {error}"));
        Self { file, probes, programs }
    }

    pub fn fd(&self, program: usize) -> BorrowedFd<'_> {
        self.programs.program(&self.probes[program]).unwrap()
    }

    pub fn attach(&self, device: &Device, program: usize, places: &[ProbePlace]) -> u32 {
        device.attach_probes("test", Some(self.fd(program)), places, false).unwrap().id
    }

    /// A variable of the program.
    fn variable(&self, name: &str) -> Value {
        let all = maps::read(&self.programs, &self.file);
        ["bss", "data"].iter().find_map(|section| all[section].get(name).cloned()).expect(name)
    }

    pub fn number(&self, name: &str) -> u64 {
        self.variable(name).as_u64().expect(name)
    }

    /// An array of numbers.
    pub fn numbers(&self, name: &str) -> Vec<u64> {
        let text = self.variable(name).as_str().expect(name).to_owned();
        let bytes: Vec<u8> =
            (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap()).collect();
        bytes.chunks(8).map(|chunk| u64::from_le_bytes(chunk.try_into().unwrap())).collect()
    }
}

pub fn by_jump(device: &Device, id: u32) -> Vec<PlaceStatus> {
    let places = device.probe_places(id).unwrap();
    places.iter().for_each(|place| assert_eq!(place.by, ReachedBy::Jump, "{place:?}"));
    places
}

/// Bytes of the running kernel's text.
pub fn text(address: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    let kcore = File::open("/proc/kcore").unwrap();
    kcore.read_exact_at(&mut bytes, offset_in_kcore(address)).unwrap();
    bytes
}

/// Where the file of the kernel's memory has an address.
fn offset_in_kcore(address: u64) -> u64 {
    let headers = Command::new("readelf").args(["-lW", "/proc/kcore"]).output().unwrap();
    let number = |word: &str| u64::from_str_radix(word.trim_start_matches("0x"), 16).unwrap();
    let text = String::from_utf8(headers.stdout).unwrap();
    let segments = text.lines().filter_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        (words.first() == Some(&"LOAD")).then(|| (number(words[1]), number(words[2]), number(words[4])))
    });
    let inside = segments.filter(|&(_, start, len)| address >= start && address - start < len);
    let (offset, start, _) =
        inside.min_by_key(|segment| segment.2).expect("the address is in no segment of /proc/kcore");
    offset.wrapping_add(address - start)
}

pub fn a_program_sees_the_registers_of_the_instruction() {
    let device = Device::open().unwrap();
    let look = Loaded::new("look");
    let place = registers();
    let id = look.attach(&device, 0, &[place]);
    assert_eq!(target("registers"), "32");
    by_jump(&device, id);
    assert_eq!(look.number("runs"), 1);
    let seen = look.numbers("seen");
    // r15 r14 r13 r12 bp bx r11 r10 r9 r8 ax cx dx si di, as struct pt_regs has them, by their numbers.
    let order = [15, 14, 13, 12, 5, 3, 11, 10, 9, 8, 0, 1, 2, 6, 7];
    let expected: Vec<u64> = order.iter().map(|number| EACH * (number + 1)).collect();
    assert_eq!(seen[..15], expected, "{seen:x?}");
    assert_eq!(seen[15], u64::MAX, "orig_ax");
    assert_eq!(seen[16], place.address, "ip");
    assert_eq!(seen[17] & 0xffff, 0x10, "cs");
    assert_eq!(seen[18] & 0xed7, 0xed7, "flags: all that the function sets, and interrupts are enabled");
    assert_eq!(seen[20] & 0xffff, 0x18, "ss");
    assert_eq!((look.number("cookie"), look.number("function")), (4711, 0));
    // Its stack begins at the instruction, and goes on in the function that called.
    let stack = look.numbers("stack");
    assert_eq!(stack[0], place.address);
    let caller = stack[1];
    let show = fs::read_to_string("/proc/kallsyms").unwrap();
    let starts = show.lines().filter(|line| line.contains("[xk_target]"));
    let addresses = starts.filter_map(|line| Some((u64::from_str_radix(line.split(' ').next()?, 16).ok()?, line)));
    let (_, name) = addresses.filter(|(start, _)| *start <= caller).max_by_key(|(start, _)| *start).unwrap();
    assert!(name.contains(" show"), "{name}: {stack:x?}");
    // The top of the function's stack is below the return address by six pushes.
    assert!(look.number("depth") >= 3 * 8, "{stack:x?}");
    // What a kprobe shows in its place is the same.
    device.detach_probes(id).unwrap();
    let id = look.attach(&device, 0, &[ProbePlace { window: 0, ..place }]);
    assert_eq!(target("registers"), "32");
    assert_eq!(device.probe_places(id).unwrap()[0].by, ReachedBy::Kprobe);
    let by_kprobe = look.numbers("seen");
    for (index, (ours, theirs)) in seen.iter().zip(&by_kprobe).enumerate().filter(|(index, _)| *index != 19) {
        assert_eq!(ours, theirs, "{index}");
    }
    assert_eq!(look.number("runs"), 2);
}

pub fn nothing_changes_at_the_instruction() {
    let device = Device::open().unwrap();
    let place = registers();
    let before = text(place.address, 16);
    let programs = ["look", "few", "rare", "update"].map(Loaded::new);
    for loaded in &programs {
        let id = loaded.attach(&device, 0, &[place]);
        assert_ne!(text(place.address, 16), before);
        assert_eq!(target("registers"), "32");
        assert_eq!(loaded.number("runs"), 1);
        device.detach_probes(id).unwrap();
        assert_eq!(text(place.address, 16), before);
    }
    let counted = device.attach_probes("count", None, &[place], true).unwrap();
    assert_eq!(target("registers"), "32");
    assert_eq!(device.probe_places(counted.id).unwrap()[0].hits, 1);
}

pub fn a_program_that_reads_little_sees_what_it_reads() {
    let device = Device::open().unwrap();
    let few = Loaded::new("few");
    let place = registers();
    few.attach(&device, 0, &[place]);
    assert_eq!(target("registers"), "32");
    let read = ["first", "second", "base", "place"].map(|name| few.number(name));
    assert_eq!(read, [EACH * 8, EACH * 7, EACH * 6, place.address]);
}

/// Its attachment builds the code of the jump again.
pub fn rarely_read_registers_are_stored_for_who_reads_them() {
    let device = Device::open().unwrap();
    let (few, rare) = (Loaded::new("few"), Loaded::new("rare"));
    few.attach(&device, 0, &[registers()]);
    let id = rare.attach(&device, 0, &[registers()]);
    assert_eq!((target("registers").as_str(), rare.number("rare")), ("32", 0));
    assert_eq!((target("registers").as_str(), rare.number("rare")), ("32", EACH * 14));
    device.detach_probes(id).unwrap();
    assert_eq!(target("registers"), "32");
    assert_eq!((few.number("runs"), rare.number("runs")), (3, 2));
}

pub fn programs_run_in_the_order_of_their_attachment() {
    let device = Device::open().unwrap();
    let order = Loaded::new("order");
    let second = order.attach(&device, 1, &[registers()]);
    order.attach(&device, 0, &[registers()]);
    assert_eq!(target("registers"), "32");
    assert_eq!((order.number("second_at"), order.number("first_at")), (1, 2));
    device.detach_probes(second).unwrap();
    order.attach(&device, 1, &[registers()]);
    assert_eq!(target("registers"), "32");
    assert_eq!((order.number("first_at"), order.number("second_at")), (3, 4));
}

/// `mov %eax,%edx` at +5 and `add $0,%edx` at +7 lie in one window.
pub fn instructions_side_by_side_share_a_jump() {
    let device = Device::open().unwrap();
    let value = symbol("xk_target_value");
    let places = [place(value + 5, 5), ProbePlace { window_lead: 2, ..place(value + 7, 5) }];
    let before = text(value, 16);
    let together = device.attach_probes("together", None, &places, true).unwrap();
    assert_eq!((together.jumps, target("value").as_str()), (2, "32"));
    assert!(by_jump(&device, together.id).iter().all(|place| place.hits == CALLS));
    device.detach_probes(together.id).unwrap();
    assert_eq!(text(value, 16), before);

    // One after the other: the jump is redirected to code that serves both.
    let first = device.attach_probes("first", None, &places[1..], true).unwrap();
    let second = device.attach_probes("second", None, &places[..1], true).unwrap();
    assert_eq!(target("value"), "32");
    assert_eq!(by_jump(&device, first.id)[0].hits + by_jump(&device, second.id)[0].hits, 2 * CALLS);
    device.detach_probes(first.id).unwrap();
    assert_eq!(target("value"), "32");
    assert_eq!(by_jump(&device, second.id)[0].hits, 2 * CALLS);
    device.detach_probes(second.id).unwrap();
    assert_eq!(text(value, 16), before);
}

/// The places of the file, at their addresses in this kernel, whose names begin with `name`.
pub fn places_of(name: &str) -> Vec<ProbePlace> {
    let anchor = symbol("_printk");
    let all = fs::read_to_string(file(PLACES)).unwrap();
    let parsed = all.lines().map(|line| line.split(' ').collect::<Vec<_>>());
    let chosen = parsed.filter(|words| words[5].starts_with(name));
    let place = |words: Vec<&str>| ProbePlace {
        address: anchor.wrapping_add(words[0].parse::<i64>().unwrap() as u64),
        window: words[1].parse().unwrap(),
        window_lead: words[2].parse().unwrap(),
        host: words[3].parse().unwrap(),
        host_window: words[4].parse().unwrap(),
        cookie: 0,
        ..ProbePlace::default()
    };
    let places: Vec<_> = chosen.map(place).collect();
    assert!(!places.is_empty(), "no place of {name}");
    places
}

pub fn what_ran_inside_of_another_program_is_counted() {
    let device = Device::open().unwrap();
    let (update, few) = (Loaded::new("update"), Loaded::new("few"));
    let inner = few.attach(&device, 0, &places_of("htab_map_update_elem"));
    update.attach(&device, 0, &[registers()]);
    for _ in 0..10 {
        assert_eq!(target("registers"), "32");
    }
    let probes = device.probes().unwrap();
    let status = probes.iter().find(|probe| probe.id == inner).unwrap();
    assert_eq!((status.hits, status.skipped, few.number("runs")), (10, 10, 0));
    assert_eq!(update.number("runs"), 10);
}

/// Sends and receives messages. Nothing else in the guest does.
pub fn exchange_messages() {
    #[repr(C)]
    struct Message {
        kind: libc::c_long,
        text: [u8; 64],
    }
    let mut message = Message { kind: 1, text: [7; 64] };
    // SAFETY: the queue is new; the pointers are to `message`, which has the length that is given.
    unsafe {
        let queue = libc::msgget(libc::IPC_PRIVATE, 0o600);
        assert!(queue >= 0);
        for round in 0..200 {
            let len = round % 64;
            assert_eq!(libc::msgsnd(queue, (&raw const message).cast(), len, libc::IPC_NOWAIT), 0);
            let got = libc::msgrcv(queue, (&raw mut message).cast(), 64, 0, libc::IPC_NOWAIT);
            assert_eq!(usize::try_from(got).unwrap(), len);
        }
        // Nothing is there: errors take other branches.
        assert_eq!(libc::msgrcv(queue, (&raw mut message).cast(), 64, 2, libc::IPC_NOWAIT), -1);
        assert_eq!(libc::msgctl(queue, libc::IPC_RMID, std::ptr::null_mut()), 0);
    }
}

/// Hits of each place in the same load, attached together.
pub fn count(device: &Device, places: &[ProbePlace], load: fn()) -> (BTreeMap<u64, u64>, usize) {
    let attached = device.attach_probes("count", None, places, false).unwrap();
    load();
    let status = device.probe_places(attached.id).unwrap();
    device.detach_probes(attached.id).unwrap();
    assert!(status.iter().all(|place| place.missed == 0));
    let jumps = status.iter().filter(|place| place.by == ReachedBy::Jump).count();
    (status.iter().map(|place| (place.address, place.hits)).collect(), jumps)
}

/// Every instruction of the functions, all at once: by jumps as far as there are windows, then by breakpoints.
pub fn every_instruction_is_executed_as_often_as_kprobes_count() {
    let device = Device::open().unwrap();
    let places = places_of("do_msg");
    let kprobes: Vec<_> = places.iter().map(|place| place.without_jump()).collect();
    // Some instructions allow no kprobe and need a window.
    let allowed = |place: &&ProbePlace| {
        device
            .attach_probes("one", None, &[**place], false)
            .is_ok_and(|attached| device.detach_probes(attached.id).is_ok())
    };
    let kprobes: Vec<ProbePlace> = kprobes.iter().filter(allowed).copied().collect();
    assert!(kprobes.len() * 10 > places.len() * 9, "{} of {} allow a kprobe", kprobes.len(), places.len());
    let jumps: Vec<ProbePlace> =
        places.iter().filter(|place| kprobes.iter().any(|other| other.address == place.address)).copied().collect();
    let (by_jumps, jumped) = count(&device, &jumps, exchange_messages);
    let (by_kprobes, trapped) = count(&device, &kprobes, exchange_messages);
    assert_eq!(trapped, 0);
    assert!(jumped * 10 > jumps.len() * 8, "{jumped} of {} by a jump", jumps.len());
    assert!(by_jumps.values().filter(|hits| **hits > 100).count() > 50);
    let differ: Vec<_> = by_jumps.iter().filter(|(at, hits)| by_kprobes[at] != **hits).collect();
    assert!(differ.is_empty(), "{differ:x?} of {by_kprobes:x?}");
}

pub fn write(text: &str) {
    fs::write(PROC, text).unwrap_or_else(|error| panic!("{text}: {error}"));
}

fn is_optimised(place: &str) -> bool {
    let list = fs::read_to_string("/sys/kernel/debug/kprobes/list").unwrap();
    list.lines().any(|line| line.contains(place) && line.contains("[OPTIMIZED]"))
}

/// Its owner remembers our jump: it stays until the kprobe goes.
pub fn a_kprobe_on_the_jump_is_served_and_outlives_it() {
    let device = Device::open().unwrap();
    let value = symbol("xk_target_value");
    let before = text(value, 16);
    let attached = device.attach_probes("jump", None, &[place(value + 5, 5)], true).unwrap();
    write("probe xk_target_value 5 enabled");
    assert_eq!(target("value"), "32");
    assert_eq!(by_jump(&device, attached.id)[0].hits, CALLS);
    device.detach_probes(attached.id).unwrap();
    assert_eq!(target("value"), "32");
    assert_ne!(text(value, 16), before);
    write("no probe");
    assert_eq!(target("value"), "32");
    wait_for("the original bytes", || text(value, 16) == before);
}

/// Bytes up to the next symbol.
fn room_after(name: &str, next: &str) -> u64 {
    symbol(next) - symbol(name)
}

/// The five bytes of a jump at the `nop` of these functions contain `1:`. The branch to it is in a slot, where the kernel
/// does not see it: without a shield or a guard, it makes a jump of the kprobe.
pub fn a_kprobe_near_a_relocated_branch_stays_a_breakpoint() {
    const SHIELD: [u8; 3] = [0x0f, 0x38, 0xf2];
    let device = Device::open().unwrap();
    for (name, next, shield) in [
        ("roomy", "xk_target_roomy_next", Some(SHIELD.to_vec())),
        ("brief", "__pfx_xk_target_brief_next", Some(vec![0xc4])),
        ("tight", "xk_target_tight_next", None),
    ] {
        let function = format!("xk_target_{name}");
        let start = symbol(&function);
        let len = room_after(&function, next) as usize;
        let before = text(start, len + 3);
        let id = device.attach_probes(name, None, &[place(start + 5, 7)], true).unwrap().id;
        let changed = text(start, len + 3);
        match shield {
            Some(bytes) => assert_eq!(changed[len - bytes.len()..len], bytes, "{name}"),
            None => assert_eq!(changed[12..], before[12..], "{name}"),
        }
        assert_eq!(changed[len..], before[len..], "{name}: the next symbol");
        write(&format!("probe {function} 17 enabled"));
        std::thread::sleep(Duration::from_secs(2));
        assert!(!is_optimised(&format!("{function}+0x11")), "{name}");
        assert_eq!((target(name).as_str(), device.probe_places(id).unwrap()[0].hits), ("1 0", 2), "{name}");
        write("no probe");
        device.detach_probes(id).unwrap();
        assert_eq!(text(start, len + 3), before, "{name}");
    }
}

/// A kprobe that could become a jump over the padding keeps the shield away, and so the jump that needs it.
pub fn a_shield_respects_kprobes_before_the_padding() {
    let device = Device::open().unwrap();
    let roomy = symbol("xk_target_roomy");
    let last = room_after("xk_target_roomy", "xk_target_roomy_next") - 3 - 2;
    write(&format!("probe xk_target_roomy {last} enabled"));
    let refused = device.attach_probes("shield", None, &[place(roomy + 5, 7)], true).unwrap_err().to_string();
    assert!(refused.contains("another kprobe is at the end of the function"), "{refused}");
    write("no probe");
    // Two jumps share a shield: it goes with the second one.
    let padding = || text(roomy + last + 2, 3);
    let before = padding();
    let [first, second] = [(5, 7), (0x12, 6)]
        .map(|(at, window)| device.attach_probes("shared", None, &[place(roomy + at, window)], true).unwrap().id);
    let shield = padding();
    assert_ne!(shield, before);
    device.detach_probes(first).unwrap();
    assert_eq!(padding(), shield);
    device.detach_probes(second).unwrap();
    assert_eq!(padding(), before);
}

pub fn what_cannot_be_probed_is_refused() {
    let device = Device::open().unwrap();
    let refusal = |place: ProbePlace| {
        let refused = device.attach_probes("refused", None, &[place], false);
        format!("{}", refused.expect_err("it was attached"))
    };
    let value = symbol("xk_target_value");
    assert!(refusal(place(value + 6, 5)).contains("xk_target_value+0x6/"), "its name");
    assert!(refusal(place(value + 6, 5)).contains("no instruction begins there"));
    let forbidden = refusal(place(symbol("xk_target_forbidden") + 5, 5));
    assert!(forbidden.contains("the kernel forbids probes in this function"), "{forbidden}");
    let long = refusal(place(symbol("xk_target_long_call") + 2, 0));
    assert!(long.contains("emulates a call with a prefix wrongly"), "{long}");
    // CPU hotplug would reset the machine, be it a jump or a kprobe.
    for window in [0, 7] {
        let early = refusal(place(symbol("verify_cpu"), window));
        assert!(early.contains("a CPU executes it before it is set up"), "{early}");
    }
    // A program would run in the middle of a stop.
    let changing = device.attach_probes("changing", None, &[place(symbol("do_sync_core"), 5)], true).unwrap_err();
    assert!(changing.to_string().contains("its function writes text, or CPUs wait in it meanwhile"), "{changing}");
    let own = refusal(place(symbol("xk_probe_run"), 5));
    assert!(own.contains("the code of xk.ko itself"), "{own}");
    let data = refusal(place(symbol("jiffies_64"), 5));
    assert!(data.contains("no function of the running kernel") || data.contains("not in the kernel's text"), "{data}");
    // A longer window than a jump has is no harm; one that a branch leads into is.
    let entered = device.attach_probes("entered", None, &[place(symbol("xk_target_into") + 9, 15)], true);
    let entered = entered.unwrap_err().to_string();
    assert!(entered.contains("a branch leads into these instructions"), "{entered}");
    // Most kernels do not even have this helper.
    let file = object("override");
    let probes = xk_probe::probes(&file, &[], None).unwrap();
    let refused = match Programs::load(&file, &probes) {
        Err(error) => error.to_string(),
        Ok(programs) => {
            let fd = programs.program(&probes[0]).unwrap();
            device.attach_probes("override", Some(fd), &[registers()], false).unwrap_err().to_string()
        }
    };
    assert!(refused.contains("bpf_override_return"), "{refused}");
    // All or none.
    let both = [place(value + 5, 5), place(symbol("xk_target_forbidden") + 5, 5)];
    assert!(device.attach_probes("both", None, &both, false).is_err());
    assert!(device.probes().unwrap().is_empty());
    assert_eq!(target("value"), "32");
}
