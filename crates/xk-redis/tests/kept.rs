//! The command `xk-redis` in a guest: its keys stay in the kernel when it is killed.

#![allow(clippy::unwrap_used, clippy::expect_used)] // a test

#[path = "redis_requests/client.rs"]
mod client;

use std::fs;
use std::io::{Read as _, Write as _};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;

use xk_flex::kept::Kept;
use xk_policy::{compile, Headers};
use xk_testing::guest::{boot, file, info, modules, passed, repository, run, wait_for, XK_KO};

use client::Client;

/// The compiled object, and the command. Set in the guest only.
const OBJECT: &str = "XK_TEST_OBJECT";
const COMMAND: &str = "XK_TEST_COMMAND";

xk_testing::guest_tests! {
    keys_stay_when_the_command_is_killed,
}

fn report(name: &str) {
    static OUTPUT: OnceLock<String> = OnceLock::new();
    let output = OUTPUT.get_or_init(|| {
        let folder = tempfile::tempdir().unwrap();
        let types = format!("{}/usr/src/linux-headers-{}/vmlinux", info("root"), info("release"));
        let headers = Headers::new(types.as_ref(), folder.path(), &info("release")).unwrap();
        let object = folder.path().join("redis.bpf.o");
        let compiled = compile(&repository().join("bpf/servers/redis.bpf.c"), &headers);
        fs::write(&object, compiled.unwrap_or_else(|error| panic!("{error}"))).unwrap();
        let modules = modules(&[(XK_KO, "kernel/xk")]);
        boot(1200, &format!("{OBJECT}={} {COMMAND}={} {modules}", object.display(), env!("CARGO_BIN_EXE_xk-redis")))
    });
    passed(output, name);
}

fn prepare() {
    assert!(run("insmod", &[file(XK_KO).to_str().unwrap()]));
    assert!(run("ip", &["link", "set", "lo", "up"]));
}

mod checks {
    use super::*;

    const PORT: u16 = 6379;
    const BEHIND: u16 = 6380;

    fn connects(port: u16) -> bool {
        std::net::TcpStream::connect(("127.0.0.1", port)).is_ok()
    }

    /// Starts the command, and waits until it serves.
    fn start() -> Child {
        // The harness reads the result of the test in the same line.
        let child = Command::new(file(COMMAND)).arg(file(OBJECT)).stderr(Stdio::null()).spawn().unwrap();
        wait_for("the port", || connects(PORT));
        child
    }

    /// It ends before it loads anything, and says why.
    fn refuses_a_server_with_events() {
        let option = b"notify-keyspace-events";
        let mut behind = Client::new(BEHIND);
        assert_eq!(behind.ask(&[b"CONFIG", b"SET", option, b"KEA"]), b"+OK\r\n");
        let ended = Command::new(file(COMMAND)).arg(file(OBJECT)).output().unwrap();
        let told = String::from_utf8_lossy(&ended.stderr).into_owned();
        assert!(!ended.status.success() && told.contains("notify-keyspace-events"), "{told}");
        assert!(Kept::open("redis").is_err(), "it has loaded the extension");
        assert_eq!(behind.ask(&[b"CONFIG", b"SET", option, b""]), b"+OK\r\n");
    }

    pub fn keys_stay_when_the_command_is_killed() {
        let mut server = Command::new("/usr/bin/redis-check-rdb");
        server.arg0("redis-server").args(["--port", &BEHIND.to_string(), "--save", "", "--appendonly", "no"]);
        let mut server = server.stdout(Stdio::null()).spawn().unwrap();
        wait_for("redis-server", || connects(BEHIND));
        refuses_a_server_with_events();
        let mut members = 0;
        for round in 0..3 {
            let mut command = start();
            let mut client = Client::new(PORT);
            // What was there before.
            if round > 0 {
                assert_eq!(client.ask(&[b"GET", b"moved"]), b"$1\r\n0\r\n", "redis-server has it");
                assert_eq!(client.ask(&[b"ZCARD", b"set"]), format!(":{members}\r\n").into_bytes());
                assert_eq!(client.ask(&[b"HGET", b"hash", b"round"]), format!("$1\r\n{}\r\n", round - 1).into_bytes());
            }
            assert_eq!(client.ask(&[b"HSET", b"hash", b"round", round.to_string().as_bytes()])[0], b':');
            for _ in 0..200 {
                members += 1;
                let text = members.to_string();
                assert_eq!(client.ask(&[b"ZADD", b"set", text.as_bytes(), text.as_bytes()]), b":1\r\n");
            }
            assert_eq!(client.ask(&[b"SETNX", b"moved", b"0"])[0], b':');
            assert_eq!(client.ask(&[b"GETRANGE", b"moved", b"0", b"-1"]), b"$1\r\n0\r\n");
            assert_eq!(Client::new(BEHIND).ask(&[b"DBSIZE"]), b":1\r\n", "the others are in the kernel");
            // In the middle of what other clients ask.
            assert_eq!(client.ask(&[b"SET", b"number", b"0"]), b"+OK\r\n");
            let mut stream = std::net::TcpStream::connect(("127.0.0.1", PORT)).unwrap();
            let busy = std::thread::spawn(move || {
                let request = client::request(&[b"INCR", b"number"]);
                while stream.write_all(&request).is_ok_and(|()| stream.read(&mut [0; 64]).is_ok_and(|read| read > 0)) {}
            });
            wait_for("requests", || client.ask(&[b"GET", b"number"]) != b"$1\r\n0\r\n");
            command.kill().unwrap();
            command.wait().unwrap();
            busy.join().unwrap();
            assert!(client.is_closed());
        }
        // The command ends when its extension is unloaded.
        let mut command = start();
        Kept::open("redis").unwrap().unload().unwrap();
        wait_for("the command ends", || command.try_wait().unwrap().is_some());
        server.kill().unwrap();
        server.wait().unwrap();
    }
}
