//! Rewritten programs on a running kernel: what its verifier refuses and accepts, what they compute, and that they end.

#![allow(clippy::unwrap_used, clippy::expect_used)] // a test

mod compiled;

use std::fs;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::OnceLock;
use std::time::Duration;

use libbpf_rs::{MapCore, MapFlags, Object, ObjectBuilder, ProgramInput};
use object::read::{File, Object as _, ObjectSymbol as _};
use xk_flex::{load, rewrite, take_ended, unreported, Choice, Control, Done, Ended, LookReport, Why};
use xk_testing::guest::{boot, file, passed, pin, run, wait_for};

use compiled::compiled;

/// The compiled objects. Set in the guest only.
const OBJECT: &str = "XK_TEST_OBJECT";
const HELD: &str = "XK_TEST_HELD";
const WIDE: &str = "XK_TEST_WIDE";

xk_testing::guest_tests! {
    the_verifier_refuses_the_loops_and_accepts_them_rewritten,
    a_rewritten_program_computes_the_same,
    an_endless_run_ends_when_user_space_says_so,
    an_endless_run_ends_at_its_deadline_or_at_the_limit_of_turns,
    a_run_that_finds_no_room_for_its_report_is_counted,
    runs_on_another_cpu_are_not_touched,
    loading_by_need_instruments_what_is_refused,
    numbers_that_are_followed_too_far_become_unknown,
    what_is_held_is_released,
    programs_of_other_hooks_end,
}

fn guest_output() -> &'static str {
    static OUTPUT: OnceLock<String> = OnceLock::new();
    OUTPUT.get_or_init(|| {
        let folder = tempfile::tempdir().unwrap();
        let [loops, held, wide] = compiled(folder.path(), ["loops", "held", "wide"]);
        boot(1200, &format!("{OBJECT}={loops} {HELD}={held} {WIDE}={wide}"))
    })
}

fn report(name: &str) {
    passed(guest_output(), name);
}

fn prepare() {}

mod checks {
    use super::*;

    fn bytes(object: &str) -> Vec<u8> {
        fs::read(file(object)).unwrap()
    }

    fn try_load(bytes: &[u8]) -> libbpf_rs::Result<Object> {
        let mut open = ObjectBuilder::default().open_memory(bytes).unwrap();
        // Statistics only: the whole log of a loop that is followed to the limit is long.
        open.progs_mut().for_each(|mut program| program.set_log_level(4));
        xk_policy::listening(|| open.load()).0
    }

    fn rewritten() -> Object {
        try_load(&rewrite(&bytes(OBJECT), &Choice::default()).unwrap().bytes).unwrap()
    }

    /// Runs a program once; what it returns.
    fn execute(object: &Object, program: &str) -> u32 {
        execute_with(object, program, &[0; 64])
    }

    fn execute_with(object: &Object, program: &str, packet: &[u8]) -> u32 {
        let program = object.progs_mut().find(|other| other.name().to_str() == Some(program)).unwrap();
        program.test_run(ProgramInput { data_in: Some(packet), ..ProgramInput::default() }).unwrap().return_value
    }

    fn read(object: &Object, section: &str) -> Vec<u64> {
        let map = object.maps().find(|map| map.name().to_str().unwrap().ends_with(section)).unwrap();
        let value = map.lookup(&0_u32.to_ne_bytes(), MapFlags::ANY).unwrap().unwrap();
        value.chunks(8).map(|bytes| u64::from_ne_bytes(bytes.try_into().unwrap())).collect()
    }

    fn set_limit(object: &Object, limit: u64) {
        let map = object.maps().find(|map| map.name().to_str().unwrap().ends_with(".data")).unwrap();
        map.update(&0_u32.to_ne_bytes(), &limit.to_ne_bytes(), MapFlags::ANY).unwrap();
    }

    pub fn the_verifier_refuses_the_loops_and_accepts_them_rewritten() {
        assert!(try_load(&bytes(OBJECT)).is_err());
        rewritten();
    }

    pub fn a_rewritten_program_computes_the_same() {
        let object = rewritten();
        // Emulation may be slow.
        Control { deadline: None, ..Control::default() }.tell(&object).unwrap();
        for (round, (program, result)) in [("in_program", 8), ("in_subprogram", 7)].into_iter().enumerate() {
            assert_eq!(execute(&object, program), result);
            let mut values = read(&object, ".bss");
            values.sort_unstable();
            assert_eq!(values, [100_000, 100_000 * (round as u64 + 1)], "{program}");
        }
        assert_eq!(take_ended(&object).unwrap(), []);
    }

    /// Has user space end an endless run when it has made turns. Returns how many it made, and how it was ended.
    fn terminated(object: &Object, program: &str) -> (u64, Ended) {
        let turns = || read(object, ".bss").into_iter().max().unwrap();
        let before = turns();
        Control { deadline: None, ..Control::default() }.tell(object).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                pin(1);
                wait_for("the run makes turns", || turns() > before);
                Control { deadline: None, terminate: true, ..Control::default() }.tell(object).unwrap();
            });
            pin(0);
            assert_eq!(execute(object, program), 0, "the default");
        });
        let ended = take_ended(object).unwrap();
        let [ended] = ended[..] else { panic!("{program}: {ended:?}") };
        (turns() - before, ended)
    }

    pub fn an_endless_run_ends_when_user_space_says_so() {
        let object = rewritten();
        set_limit(&object, u64::MAX);
        for program in ["in_program", "in_subprogram"] {
            let mut last = terminated(&object, program);
            // Where user space gets no processor, the kernel's limit of turns is first.
            wait_for("user space is first", || {
                let is_first = last.1.why != Why::Turns;
                if !is_first {
                    last = terminated(&object, program);
                }
                is_first
            });
            let (turns, ended) = last;
            assert_eq!(ended.why, Why::Terminate, "{program}: {ended:?}");
            assert!(turns > 0, "{program}");
        }
        Control::default().tell(&object).unwrap();
        set_limit(&object, 3);
        assert_eq!(execute(&object, "in_program"), 8, "the next run is a usual one");
    }

    pub fn a_run_that_finds_no_room_for_its_report_is_counted() {
        let object = rewritten();
        set_limit(&object, u64::MAX);
        Control { terminate: true, ..Control::default() }.tell(&object).unwrap();
        // Each report takes 48 bytes of 65536.
        for (runs, known) in [(1300, 1300), (1500, 1365), (0, 0), (3, 3)] {
            let before = unreported(&object).unwrap();
            (0..runs).for_each(|_| assert_eq!(execute(&object, "in_program"), 0));
            let (reported, lost) = (take_ended(&object).unwrap().len(), unreported(&object).unwrap() - before);
            assert_eq!((reported, lost), (known, (runs - known) as u64), "{runs} runs");
        }
    }

    pub fn an_endless_run_ends_at_its_deadline_or_at_the_limit_of_turns() {
        let object = rewritten();
        set_limit(&object, u64::MAX);
        for program in ["in_program", "in_subprogram"] {
            let mut spent = Vec::new();
            for milliseconds in [2, 40] {
                let deadline = Duration::from_millis(milliseconds);
                Control { deadline: Some(deadline), ..Control::default() }.tell(&object).unwrap();
                assert_eq!(execute(&object, program), 0, "the default");
                let [Ended { why: Why::Deadline, spent: own, .. }] = take_ended(&object).unwrap()[..] else { panic!() };
                // A quarter of the deadline is the most that counts between two looks.
                assert!(own >= deadline && own <= deadline + deadline / 4, "{own:?} of {deadline:?}");
                spent.push(own);
            }
            Control { deadline: None, ..Control::default() }.tell(&object).unwrap();
            assert_eq!(execute(&object, program), 0, "the default");
            let ended = take_ended(&object).unwrap();
            assert!(matches!(ended[..], [Ended { why: Why::Turns, .. }]), "{program}: {ended:?}");
        }
    }

    /// How many runs there are on each CPU in the same time is the host's: they go on until there are enough on both.
    pub fn runs_on_another_cpu_are_not_touched() {
        const RUNS: usize = 30;
        let object = rewritten();
        set_limit(&object, 2000);
        // Time that passes while a CPU stands still counts in part.
        Control { deadline: Some(Duration::from_millis(40)), ..Control::default() }.tell(&object).unwrap();
        let [endless, finished] = [0, 0].map(AtomicUsize::new);
        let is_enough = || [&endless, &finished].iter().all(|runs| runs.load(Ordering::Relaxed) >= RUNS);
        let mut ended = Vec::new();
        std::thread::scope(|scope| {
            let other = scope.spawn(|| {
                pin(1);
                while !is_enough() {
                    assert_eq!(execute_with(&object, "by_length", &[0; 200]), 0);
                    endless.fetch_add(1, Ordering::Relaxed);
                }
            });
            pin(0);
            while !is_enough() && !other.is_finished() {
                assert_eq!(execute(&object, "by_length"), 5);
                finished.fetch_add(1, Ordering::Relaxed);
                ended.extend(take_ended(&object).unwrap());
            }
        });
        ended.extend(take_ended(&object).unwrap());
        assert_eq!(ended.len(), endless.into_inner(), "{ended:?}");
    }

    pub fn loading_by_need_instruments_what_is_refused() {
        let loaded = load(&bytes(OBJECT), &Choice::default()).unwrap();
        assert_eq!(loaded.attempts, 2);
        let done: Vec<Done> = loaded.rewritten.loops.iter().map(|found| found.done).collect();
        assert_eq!(done, [Done::Instrumented; 3]);
        Control { deadline: None, ..Control::default() }.tell(&loaded.object).unwrap();
        assert_eq!(execute(&loaded.object, "in_program"), 8);
    }

    pub fn numbers_that_are_followed_too_far_become_unknown() {
        // Not by need: the verifier first follows a million instructions, which takes minutes here.
        let done = rewrite(&bytes(WIDE), &Choice { widen: true, ..Choice::default() }).unwrap();
        let object = try_load(&done.bytes).unwrap();
        Control { deadline: None, ..Control::default() }.tell(&object).unwrap();
        assert_eq!(execute(&object, "counts_far"), 9);
        assert_eq!(read(&object, ".bss"), [700_000]);
    }

    /// How many hold the socket of a connection, as the kernel says.
    fn holders(local: SocketAddr, peer: SocketAddr) -> u32 {
        let hex = |address: SocketAddr| {
            let SocketAddr::V4(address) = address else { panic!("{address}") };
            format!("{:08X}:{:04X}", u32::from_ne_bytes(address.ip().octets()), address.port())
        };
        let (table, pair) = (fs::read_to_string("/proc/net/tcp").unwrap(), format!("{} {}", hex(local), hex(peer)));
        let line = table.lines().find(|line| line.contains(&pair)).unwrap();
        // Its number, two addresses, state, queues, timer, retransmissions, user, timeouts, inode, holders.
        line.split_whitespace().nth(10).unwrap().parse().unwrap()
    }

    fn look_of<'a>(looks: &'a [LookReport], ended: &[Ended]) -> &'a LookReport {
        let [Ended { why: Why::Deadline, look, .. }] = *ended else { panic!("{ended:?}") };
        &looks[look]
    }

    /// Writes a variable of the programs.
    fn set_variable(object: &Object, variable: &str, new: &[u8]) {
        let elf = bytes(HELD);
        let at = File::parse(&*elf).unwrap().symbol_by_name(variable).unwrap().address() as usize;
        let map = object.maps().find(|map| map.name().to_str().unwrap().ends_with(".bss")).unwrap();
        let mut value = map.lookup(&0_u32.to_ne_bytes(), MapFlags::ANY).unwrap().unwrap();
        value[at..at + new.len()].copy_from_slice(new);
        map.update(&0_u32.to_ne_bytes(), &value, MapFlags::ANY).unwrap();
    }

    pub fn what_is_held_is_released() {
        assert!(run("ip", &["link", "set", "lo", "up"]));
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (local, _client) =
            (listener.local_addr().unwrap(), TcpStream::connect(listener.local_addr().unwrap()).unwrap());
        let (_server, peer) = listener.accept().unwrap();
        let done = rewrite(&bytes(HELD), &Choice::default()).unwrap();
        let object = try_load(&done.bytes).unwrap();
        let [SocketAddr::V4(from), SocketAddr::V4(to)] = [peer, local] else { panic!("{peer}, {local}") };
        let addresses = [from.ip().octets(), to.ip().octets()].concat();
        let ports = [from.port().to_be_bytes(), to.port().to_be_bytes()].concat();
        set_variable(&object, "connection", &[addresses, ports].concat());
        Control { deadline: Some(Duration::from_millis(1)), ..Control::default() }.tell(&object).unwrap();
        let before = holders(local, peer);
        for (program, expected) in [
            ("holds_socket", "bpf_sk_release()"),
            ("holds_socket_over_call", ""),
            ("holds_two", "bpf_ringbuf_discard() bpf_sk_release()"),
            ("holds_task_in_rcu", "bpf_rcu_read_unlock() bpf_task_release()"),
            ("holds_iterator", "bpf_iter_num_destroy()"),
            ("drops_packet", ""),
        ] {
            for round in 0..20 {
                assert_eq!(execute(&object, program), 0, "{program}, round {round}");
                let look = look_of(&done.looks, &take_ended(&object).unwrap());
                let releases: Vec<_> = look.releases.iter().map(|words| words.split(' ').next().unwrap()).collect();
                assert_eq!(releases.join(" "), expected, "{program}");
            }
        }
        assert_eq!(holders(local, peer), before);
        set_variable(&object, "never", &1_u64.to_ne_bytes());
        assert_eq!(execute(&object, "holds_socket"), 2, "it finds the socket, and may end by itself");
    }

    pub fn programs_of_other_hooks_end() {
        let done = rewrite(&bytes(HELD), &Choice::default()).unwrap();
        for program in ["entry", "probe", "trace"] {
            let mut open = ObjectBuilder::default().open_memory(&done.bytes).unwrap();
            open.progs_mut().find(|other| other.name().to_str() == Some(program)).unwrap().set_autoload(true);
            let object = open.load().unwrap();
            Control { deadline: Some(Duration::from_millis(1)), ..Control::default() }.tell(&object).unwrap();
            let attached = object.progs_mut().find(|other| other.name().to_str() == Some(program)).unwrap();
            let link = attached.attach().unwrap();
            for _ in 0..20 {
                // SAFETY: it only asks for a number.
                assert!(unsafe { libc::getpgid(0) } >= 0);
            }
            drop(link);
            let ended = take_ended(&object).unwrap();
            assert_eq!(ended.len(), 20, "{program}: {ended:?}");
            let releases = done.looks[ended[0].look].releases.len();
            assert_eq!(releases, if program == "entry" { 3 } else { 0 }, "{:?}", done.looks[ended[0].look]);
            assert!(ended.iter().all(|ended| ended.why == Why::Deadline), "{program}: {ended:?}");
        }
    }
}
