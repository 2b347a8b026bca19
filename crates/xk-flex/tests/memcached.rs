//! The cache of `bpf/servers/memcached.bpf.c` in a guest, beside Debian's memcached: both get the same requests, and must
//! answer the same, byte for byte. Nothing is mapped: the numbers of `gets` are the same, too.

#![allow(clippy::unwrap_used, clippy::expect_used)] // a test

mod memcached_client;

use std::fs;
use std::net::UdpSocket;
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use libbpf_rs::{Link, MapCore, MapFlags};
use object::read::{File, Object as _, ObjectSymbol as _};
use xk_flex::{load, take_ended, Choice, Control, Ended, Heap, Limits, Loaded, Why};
use xk_policy::{compile, Headers};
use xk_testing::guest::{boot, file, info, output_of, passed, pin, repository, run, wait_for, PATIENCE};
use xk_testing::memcached::request;
use xk_testing::Random;

use memcached_client::{Client, MOST};

/// The compiled object, and the program of Debian's server. Set in the guest only.
const OBJECT: &str = "XK_TEST_OBJECT";
const SERVER: &str = "XK_TEST_SERVER";

xk_testing::guest_tests! {
    answers_are_those_of_memcached,
    items_go_when_their_time_is_over,
    what_cannot_be_answered_is_refused,
    clients_on_two_cpus_count_exactly,
    a_command_whose_run_is_ended_is_whole_or_not_at_all,
    without_memory_the_oldest_items_go,
}

fn guest_output() -> &'static str {
    static OUTPUT: OnceLock<String> = OnceLock::new();
    OUTPUT.get_or_init(|| {
        let folder = tempfile::tempdir().unwrap();
        let types = format!("{}/usr/src/linux-headers-{}/vmlinux", info("root"), info("release"));
        let headers = Headers::new(types.as_ref(), folder.path(), &info("release")).unwrap();
        let object = folder.path().join("memcached.bpf.o");
        let compiled = compile(&repository().join("bpf/servers/memcached.bpf.c"), &headers);
        fs::write(&object, compiled.unwrap_or_else(|error| panic!("{error}"))).unwrap();
        let server = output_of(Command::new("scripts/unpack").arg("memcached"));
        boot(1200, &format!("{OBJECT}={} {SERVER}={server}/usr/bin/memcached", object.display()))
    })
}

fn report(name: &str) {
    passed(guest_output(), name);
}

fn prepare() {}

mod checks {
    use super::*;

    /// Where requests arrive, and who sends them.
    const SERVED: &str = "10.9.0.1";
    const CLIENT: &str = "10.9.0.2";
    const PORT: u16 = 11211;
    /// Of Debian's server alone.
    const REFERENCE: u16 = 11212;
    const SPACE: &str = "client";
    const REQUESTS: u16 = 6000;
    /// From this length on, a reply may be refused: there is room for the longest numbers.
    const REFUSED_FROM: usize = MOST - 64;
    const REFUSED: &str = "SERVER_ERROR out of memory writing get response\\r\\n";

    struct Server(Child);

    impl Server {
        fn start() -> Self {
            let port = REFERENCE.to_string();
            let mut server = Command::new(file(SERVER));
            server.args(["-u", "root", "-l", "127.0.0.1", "-p", &port, "-U", &port, "-t", "1", "-m", "64"]);
            // A thread in the background refers to items now and then. A number that `decr` makes shorter then gets no
            // spaces: do_add_delta() of memcached.c.
            server.args(["-o", "no_lru_maintainer,no_lru_crawler"]);
            let child = server.stdout(Stdio::null()).spawn().unwrap();
            wait_for("memcached", || std::net::TcpStream::connect(("127.0.0.1", REFERENCE)).is_ok());
            Self(child)
        }
    }

    impl Drop for Server {
        fn drop(&mut self) {
            self.0.kill().unwrap();
            self.0.wait().unwrap();
        }
    }

    /// Does something in the network of the clients.
    fn among_clients<T: Send>(work: impl FnOnce() -> T + Send) -> T {
        let there = || {
            let space = fs::File::open(format!("/run/netns/{SPACE}")).unwrap();
            // SAFETY: it moves this thread, which does nothing else.
            assert_eq!(unsafe { libc::setns(space.as_raw_fd(), libc::CLONE_NEWNET) }, 0);
            work()
        };
        std::thread::scope(|scope| scope.spawn(there).join().unwrap())
    }

    fn index(device: &str) -> i32 {
        let name = std::ffi::CString::new(device).unwrap();
        // SAFETY: a name that ends with a zero.
        i32::try_from(unsafe { libc::if_nametoindex(name.as_ptr()) }).unwrap()
    }

    /// A pair of devices whose other end is in a network of its own.
    fn network() {
        if index("served") != 0 {
            return;
        }
        for words in [
            "netns add client",
            "link add served type veth peer name sends netns client",
            "address add 10.9.0.1/24 dev served",
            "link set served up",
            "link set lo up",
            "-n client address add 10.9.0.2/24 dev sends",
            "-n client link set sends up",
        ] {
            assert!(run("ip", &words.split(' ').collect::<Vec<_>>()), "ip {words}");
        }
    }

    /// The programs at both ends: the other one must receive what XDP sends, and answers nothing.
    fn attach(loaded: &Loaded) -> Link {
        let program = loaded.object.progs_mut().find(|program| program.name() == "memcached").unwrap();
        let link = program.attach_xdp(index("served")).unwrap();
        let descriptor = program.as_fd().as_raw_fd();
        let done = among_clients(|| {
            // SAFETY: it is told two numbers, and no options.
            unsafe { libbpf_sys::bpf_xdp_attach(index("sends"), descriptor, 0, std::ptr::null()) }
        });
        assert_eq!(done, 0);
        link
    }

    fn client() -> Client {
        Client::of(among_clients(|| UdpSocket::bind((CLIENT, 0)).unwrap()), SERVED, PORT)
    }

    fn reference() -> Client {
        Client::of(UdpSocket::bind("127.0.0.1:0").unwrap(), "127.0.0.1", REFERENCE)
    }

    struct Stops<'a>(&'a AtomicBool);

    impl Drop for Stops<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }

    /// Runs with the cache at work.
    fn with_cache(most: u64, work: impl FnOnce(&Loaded, &Heap<'_>)) {
        network();
        let bytes = fs::read(file(OBJECT)).unwrap();
        let loaded = load(&bytes, &Choice::default()).unwrap_or_else(|error| panic!("{error}"));
        Control { deadline: Some(Duration::from_secs(5)), ..Control::default() }.tell(&loaded.object).unwrap();
        let heap = Heap::of(&loaded.object, Limits { most, ready: 4 << 20 }).unwrap().unwrap();
        heap.fill(4 << 20).unwrap();
        let link = attach(&loaded);
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let server = scope.spawn(|| heap.serve(&stop));
            // Also if it fails.
            let stops = Stops(&stop);
            work(&loaded, &heap);
            drop(stops);
            server.join().unwrap().unwrap();
        });
        drop(link);
    }

    /// What user space sees of the store.
    struct Store {
        items: u64,
    }

    /// Walks the store, while no request comes: no lock is held or waited for, and each item is once in the list of its
    /// shard, and once in its bucket.
    fn store(loaded: &Loaded, heap: &Heap<'_>) -> Store {
        let word = |address: u64| heap.word(address).unwrap().load(Ordering::Relaxed);
        let (shards, buckets, newest, older) = (32, 144, 80, 24);
        let mut items = 0;
        let address = variable(loaded, "mc_store");
        for number in 0..64 {
            let shard = word(address + shards + 8 * number);
            if shard == 0 {
                continue;
            }
            assert_eq!(heap.lock(shard).unwrap().owner(), None, "shard {number}");
            assert_eq!(word(shard), word(shard + 8), "shard {number}: nobody waits");
            let mut listed = std::collections::BTreeSet::new();
            let (mut item, mut before) = (word(shard + newest), 0);
            while item != 0 {
                assert_eq!(word(item + 16), before, "the newer one");
                assert_eq!(word(item + 32) >> 58, number, "its shard");
                assert!(listed.insert(item), "the list is a circle");
                (before, item) = (item, word(item + older));
            }
            assert_eq!(word(shard + newest + 8), before, "the oldest one");
            let mut found = 0;
            for bucket in 0..1024 {
                let mut place = shard + buckets + 8 * bucket;
                while word(place) != 0 {
                    let item = word(place);
                    assert!(listed.contains(&item), "an item that is in no list");
                    assert_eq!([word(item + 8), word(item + 32) & 1023], [place, bucket]);
                    (place, found) = (item, found + 1);
                }
            }
            assert_eq!([found, word(shard + newest + 16)], [listed.len() as u64; 2], "shard {number}");
            items += found;
        }
        Store { items }
    }

    fn variable(loaded: &Loaded, name: &str) -> u64 {
        let elf = fs::read(file(OBJECT)).unwrap();
        let at = File::parse(&*elf).unwrap().symbol_by_name(name).unwrap().address() as usize;
        let map = loaded.object.maps().find(|map| map.name().to_str().unwrap().ends_with(".bss")).unwrap();
        let value = map.lookup(&0_u32.to_ne_bytes(), MapFlags::ANY).unwrap().unwrap();
        u64::from_ne_bytes(value[at..at + 8].try_into().unwrap())
    }

    pub fn answers_are_those_of_memcached() {
        let _reference = Server::start();
        with_cache(u64::MAX, |loaded, heap| {
            let (cache, reference) = (client(), reference());
            let mut random = Random(7);
            let (mut seen, mut refused) = (std::collections::BTreeMap::new(), 0);
            for number in 0..REQUESTS {
                let text = request(&mut random);
                let replies = [&cache, &reference].map(|client| client.all(number, &text));
                let is_long = replies[1].len() > REFUSED_FROM;
                let [found, expected] = replies.map(|reply| reply.escape_ascii().to_string());
                if is_long && found == REFUSED {
                    refused += 1;
                    continue;
                }
                assert_eq!(found, expected, "request {number}: {}", text.escape_ascii());
                let kind = found.split([' ', '\\']).next().unwrap().to_owned();
                *seen.entry(if kind.parse::<u64>().is_ok() { "number".to_owned() } else { kind }).or_insert(0) += 1;
            }
            println!("answers: {seen:?}, {refused} too long");
            assert!(refused < 100, "{refused}");
            for kind in [
                "VALUE",
                "END",
                "STORED",
                "NOT_STORED",
                "EXISTS",
                "NOT_FOUND",
                "DELETED",
                "TOUCHED",
                "number",
                "OK",
                "ERROR",
                "CLIENT_ERROR",
            ] {
                assert!(seen.get(kind).is_some_and(|times| *times > 3), "{kind}: {seen:?}");
            }
            assert!(store(loaded, heap).items > 10);
            assert_eq!(take_ended(&loaded.object).unwrap(), []);
        });
    }

    /// The clocks of a guest go on while it stands still. What took longer than this is done again: time may be over.
    const SOON: Duration = Duration::from_millis(900);

    pub fn items_go_when_their_time_is_over() {
        let _reference = Server::start();
        with_cache(u64::MAX, |_, _| {
            let clients = [client(), reference()];
            let answers = |text: &str| [0, 1].map(|at| clients[at].all(0, text.as_bytes()).escape_ascii().to_string());
            let both = |text: &str| [text, text].map(str::to_owned);
            let ask = |text: &str, expected: &str| assert_eq!(answers(text), both(expected), "{text:?}");
            let later = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap().as_secs() + 3;
            ask("set short 1 2 1\r\na\r\n", "STORED\\r\\n");
            ask(&format!("set until 2 {later} 1\r\nb\r\n"), "STORED\\r\\n");
            let store_long = || ask("set long 3 86400 1\r\nc\r\n", "STORED\\r\\n");
            store_long();
            let mut keys = (0..).map(|number| format!("touched{number}"));
            let touched = keys.find(|key| {
                let begin = Instant::now();
                ask(&format!("set {key} 4 3 1\r\nd\r\n"), "STORED\\r\\n");
                let answers = answers(&format!("gat 1000 {key}\r\n"));
                let is_soon = begin.elapsed() < SOON;
                assert!(!is_soon || answers == both(&format!("VALUE {key} 4 1\\r\\nd\\r\\nEND\\r\\n")), "{answers:?}");
                is_soon
            });
            let touched = touched.unwrap();
            ask("set past 5 -1 1\r\ne\r\n", "STORED\\r\\n");
            ask("get past\r\n", "END\\r\\n");
            std::thread::sleep(Duration::from_secs(5));
            let there = format!("VALUE long 3 1\\r\\nc\\r\\nVALUE {touched} 4 1\\r\\nd\\r\\nEND\\r\\n");
            ask(&format!("get short until long {touched} past\r\n"), &there);
            ask("append short 0 0 1\r\nx\r\n", "NOT_STORED\\r\\n");
            ask("incr until 1\r\n", "NOT_FOUND\\r\\n");
            loop {
                let begin = Instant::now();
                ask("flush_all 3\r\n", "OK\\r\\n");
                let answers = answers("get long\r\n");
                if begin.elapsed() < SOON {
                    assert_eq!(answers, both("VALUE long 3 1\\r\\nc\\r\\nEND\\r\\n"));
                    break;
                }
                std::thread::sleep(Duration::from_secs(5));
                store_long();
            }
            std::thread::sleep(Duration::from_secs(5));
            ask(&format!("get long {touched}\r\n"), "END\\r\\n");
            ask("set wraps 0 0 20\r\n18446744073709551610\r\n", "STORED\\r\\n");
            ask("incr wraps 16\r\n", "10\\r\\n");
        });
    }

    pub fn what_cannot_be_answered_is_refused() {
        with_cache(u64::MAX, |loaded, heap| {
            let client = client();
            let long = "x".repeat(600);
            for key in ["a", "b", "c"] {
                assert_eq!(client.ask(0, format!("set {key} 0 0 600\r\n{long}\r\n").as_bytes()), "STORED\\r\\n");
            }
            assert!(client.ask(1, b"get a b\r\n").ends_with("END\\r\\n"));
            assert_eq!(client.ask(2, b"get a b c\r\n"), REFUSED);
            let more = format!("append a 0 0 600\r\n{long}\r\n");
            assert_eq!(client.ask(3, more.as_bytes()), "STORED\\r\\n");
            assert_eq!(client.ask(4, more.as_bytes()), "SERVER_ERROR object too large for cache\\r\\n");
            client.send_part(5, 2, b"set d 0 0 1\r\n");
            let several = "SERVER_ERROR multi-packet request not supported\r\n";
            assert_eq!(client.receive(5).unwrap(), several.as_bytes());
            assert_eq!(client.ask(6, b"set d 0 0 5\r\nabc\r\n"), "CLIENT_ERROR bad data chunk\\r\\n");
            assert_eq!(client.ask(7, b"mg a v\r\n"), "ERROR\\r\\n");
            assert_eq!(client.ask(8, b"get d\r\n"), "END\\r\\n");
            let said = client.ask(9, b"stats\r\n");
            assert!(said.contains("STAT curr_items 3\\r\\n") && said.contains("STAT cmd_set 5\\r\\n"), "{said}");
            assert_eq!(store(loaded, heap).items, 3);
        });
    }

    pub fn clients_on_two_cpus_count_exactly() {
        const TURNS: u64 = 2000;
        with_cache(u64::MAX, |loaded, _| {
            assert_eq!(client().ask(0, b"set n 0 0 1\r\n0\r\n"), "STORED\\r\\n");
            let count = |cpu: usize| {
                pin(cpu);
                let client = client();
                for turn in 0..TURNS {
                    let reply = client.ask(turn as u16, b"incr n 1\r\n");
                    assert!(reply.trim_end_matches("\\r\\n").parse::<u64>().is_ok(), "{reply}");
                }
            };
            std::thread::scope(|scope| (0..2).for_each(|cpu| drop(scope.spawn(move || count(cpu)))));
            assert_eq!(client().ask(0, b"incr n 0\r\n"), format!("{}\\r\\n", 2 * TURNS));
            assert_eq!(take_ended(&loaded.object).unwrap(), []);
        });
    }

    /// Where a key of up to eight letters is: its shard and its bucket, which it shares with others.
    fn chain(key: &str) -> (u64, u64) {
        let word = key.bytes().rev().fold(0, |word, byte| word << 8 | u64::from(byte));
        let mut hash = word ^ key.len() as u64;
        hash = (hash ^ hash >> 33).wrapping_mul(0xff51_afd7_ed55_8ccd);
        hash = (hash ^ hash >> 33).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
        hash ^= hash >> 33;
        (hash >> 58, hash & 1023)
    }

    /// The reply to a request, or how its run was ended. Without one or the other, it is under way.
    fn answer(loaded: &Loaded, client: &Client, number: u16) -> Result<Vec<u8>, Box<Ended>> {
        let mut answer = None;
        wait_for("the request is answered, or its run is ended", || {
            answer = client.receive(number).map(Ok);
            if answer.is_none() {
                let ended = take_ended(&loaded.object).unwrap();
                assert!(ended.len() < 2, "one request, more than one run: {ended:?}");
                answer = ended.into_iter().next().map(|ended| Err(Box::new(ended)));
            }
            answer.is_some()
        });
        answer.unwrap()
    }

    pub fn a_command_whose_run_is_ended_is_whole_or_not_at_all() {
        let long = Control { deadline: Some(Duration::from_secs(5)), ..Control::default() };
        // In a long chain, a run may be ended while it has the lock.
        let keys = (0..).map(|number| format!("k{number}")).filter(|key| chain(key) == chain("k0"));
        let keys: Vec<String> = keys.take(12).collect();
        with_cache(u64::MAX, |loaded, heap| {
            let client = client();
            for key in &keys {
                assert_eq!(client.ask(0, format!("set {key} 3 0 2\r\n10\r\n").as_bytes()), "STORED\\r\\n");
            }
            client.0.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
            let mut between = vec![(10, 10); keys.len()];
            let (mut random, mut lost, mut with_lock) = (Random(3), 0, 0);
            for turn in 1..400 {
                let is_ended = random.below(3) == 0;
                Control { terminate: is_ended, interval: 1, ..long }.tell(&loaded.object).unwrap();
                let which = random.below(keys.len());
                let (least, most) = &mut between[which];
                client.send(turn, format!("incr {} 1\r\n", keys[which]).as_bytes());
                match answer(loaded, &client, turn) {
                    Ok(reply) => {
                        let now: u64 = String::from_utf8(reply).unwrap().trim().parse().unwrap();
                        assert!((*least + 1..=*most + 1).contains(&now), "{now} is not between {least} and {most}");
                        (*least, *most) = (now, now);
                    }
                    Err(run) => {
                        assert!(is_ended, "nobody has ended it: {run:?}");
                        (*most, lost) = (*most + 1, lost + 1);
                        with_lock += u64::from(run.locks.is_some_and(|locks| !locks.released().is_empty()));
                    }
                }
            }
            assert_eq!(take_ended(&loaded.object).unwrap(), [], "a run that was ended has answered");
            assert!(lost > 50, "{lost} runs were ended");
            assert!(with_lock > 10 && with_lock < lost, "{with_lock} of {lost} had a lock");
            long.tell(&loaded.object).unwrap();
            for key in &keys {
                let reply = client.ask(0, format!("get {key}\r\n").as_bytes());
                assert!(reply.starts_with(&format!("VALUE {key} 3 ")) && reply.ends_with("\\r\\nEND\\r\\n"), "{reply}");
            }
            assert_eq!(store(loaded, heap).items, 12);
            for key in [5, 0, 11, 7].map(|which: usize| &keys[which]) {
                assert_eq!(client.ask(0, format!("append {key} 0 0 1\r\n0\r\n").as_bytes()), "STORED\\r\\n");
                assert_eq!(store(loaded, heap).items, 12);
            }
            waits_for_a_thread(loaded, heap, &client, &keys[3]);
        });
    }

    /// A run that waits for the lock of a thread is ended at its deadline, and leaves nothing behind.
    fn waits_for_a_thread(loaded: &Loaded, heap: &Heap<'_>, client: &Client, key: &str) {
        Control { deadline: Some(Duration::from_millis(20)), ..Control::default() }.tell(&loaded.object).unwrap();
        let shard = variable(loaded, "mc_store") + 32 + 8 * chain(key).0;
        let lock = heap.lock(heap.word(shard).unwrap().load(Ordering::Relaxed)).unwrap();
        let held = lock.take(Duration::from_secs(5)).unwrap().unwrap();
        let text = format!("delete {key}\r\n");
        client.send(1, text.as_bytes());
        let ended = answer(loaded, client, 1).expect_err("the lock is held");
        assert_eq!(ended.why, Why::Deadline, "{ended:?}");
        drop(held);
        assert_eq!(store(loaded, heap).items, 12);
        // This one waits for nobody. Emulation may be slow.
        Control { deadline: Some(Duration::from_secs(5)), ..Control::default() }.tell(&loaded.object).unwrap();
        client.0.set_read_timeout(Some(PATIENCE)).unwrap();
        assert_eq!(client.ask(2, text.as_bytes()), "DELETED\\r\\n");
        assert_eq!(store(loaded, heap).items, 11);
    }

    pub fn without_memory_the_oldest_items_go() {
        with_cache(8 << 20, |loaded, heap| {
            let client = client();
            let text = "x".repeat(1000);
            const ITEMS: u16 = 9000;
            for number in 0..ITEMS {
                let reply = client.ask(number, format!("set k{number} 0 0 1000\r\n{text}\r\n").as_bytes());
                assert!(
                    ["STORED\\r\\n", "SERVER_ERROR out of memory storing object\\r\\n"].contains(&&*reply),
                    "{reply}"
                );
            }
            let there = |number: u16| client.ask(number, format!("get k{number}\r\n").as_bytes()).starts_with("VALUE");
            let old = (0..500).filter(|number| there(*number)).count();
            let new = (ITEMS - 500..ITEMS).filter(|number| there(*number)).count();
            assert!(old < 50 && new > 450, "{old} old ones, {new} new ones");
            assert!(heap.usage().ready <= 8 << 20);
            assert!(store(loaded, heap).items > 450);
        });
    }
}
