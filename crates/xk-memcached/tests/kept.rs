//! The command `xk-memcached` in a guest: its items stay in the kernel when it is killed.

#![allow(clippy::unwrap_used, clippy::expect_used)] // a test

#[allow(dead_code)] // what serves without the command
mod served;

use std::fs;
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;

use xk_flex::kept::Kept;
use xk_policy::{compile, Headers};
use xk_testing::guest::{boot, file, info, modules, output_of, passed, repository, run, wait_for, XK_KO};

use served::{server, server_with, Client, PORT};

/// The compiled object, the program of Debian's server, and the command. Set in the guest only.
const OBJECT: &str = "XK_TEST_OBJECT";
const SERVER: &str = "XK_TEST_SERVER";
const COMMAND: &str = "XK_TEST_COMMAND";

xk_testing::guest_tests! {
    items_stay_when_the_command_is_killed,
}

fn report(name: &str) {
    static OUTPUT: OnceLock<String> = OnceLock::new();
    let output = OUTPUT.get_or_init(|| {
        let folder = tempfile::tempdir().unwrap();
        let types = format!("{}/usr/src/linux-headers-{}/vmlinux", info("root"), info("release"));
        let headers = Headers::new(types.as_ref(), folder.path(), &info("release")).unwrap();
        let object = folder.path().join("memcached_tcp.bpf.o");
        let compiled = compile(&repository().join("bpf/servers/memcached_tcp.bpf.c"), &headers);
        fs::write(&object, compiled.unwrap_or_else(|error| panic!("{error}"))).unwrap();
        let server = output_of(Command::new("scripts/unpack").arg("memcached"));
        let (modules, command) = (modules(&[(XK_KO, "kernel/xk")]), env!("CARGO_BIN_EXE_xk-memcached"));
        let object = object.display();
        boot(1200, &format!("{OBJECT}={object} {COMMAND}={command} {SERVER}={server}/usr/bin/memcached {modules}"))
    });
    passed(output, name);
}

fn prepare() {
    assert!(run("insmod", &[file(XK_KO).to_str().unwrap()]));
    assert!(run("ip", &["link", "set", "lo", "up"]));
}

mod checks {
    use super::*;

    /// Where the command expects memcached.
    const BEHIND: u16 = 11212;

    /// Starts the command, and waits until it serves.
    fn start() -> Child {
        // The harness reads the result of the test in the same line.
        let child = Command::new(file(COMMAND)).arg(file(OBJECT)).stderr(Stdio::null()).spawn().unwrap();
        wait_for("the port", || std::net::TcpStream::connect(("127.0.0.1", PORT)).is_ok());
        child
    }

    /// It ends before it loads anything, and says why.
    fn refuses(why: &str) {
        let ended = Command::new(file(COMMAND)).arg(file(OBJECT)).output().unwrap();
        let told = String::from_utf8_lossy(&ended.stderr).into_owned();
        assert!(!ended.status.success() && told.contains(why), "{told}");
        assert!(Kept::open("memcached").is_err(), "it has loaded the extension");
    }

    pub fn items_stay_when_the_command_is_killed() {
        refuses("is it running?");
        fs::write("/tmp/passwords", "user:password\n").unwrap();
        let mut locked = server_with(BEHIND, &["-Y", "/tmp/passwords"]);
        refuses("CLIENT_ERROR unauthenticated");
        locked.kill().unwrap();
        locked.wait().unwrap();
        let mut behind = server(BEHIND);
        for round in 0..3 {
            let mut command = start();
            let mut client = Client::new(PORT);
            if round > 0 {
                let text = (round - 1).to_string();
                assert_eq!(client.told("get round\r\n"), format!("VALUE round 0 1\r\n{text}\r\nEND\r\n"));
                // memcached may have something that is too old, and so has lost all.
                assert_eq!(client.told("get moved\r\n"), "END\r\n");
                assert_eq!(Client::new(BEHIND).told("get moved\r\n"), "END\r\n");
            }
            assert_eq!(client.told(&format!("set round 0 0 1\r\n{round}\r\n")), "STORED\r\n");
            assert_eq!(client.told("set moved 0 0 1\r\n1\r\nmg moved v\r\n"), "STORED\r\nVA 1\r\n1\r\n");
            command.kill().unwrap();
            command.wait().unwrap();
            wait_for("the connection ends", || client.is_closed());
        }
        // The command ends when its extension is unloaded.
        let mut command = start();
        Kept::open("memcached").unwrap().unload().unwrap();
        wait_for("the command ends", || command.try_wait().unwrap().is_some());
        behind.kill().unwrap();
        behind.wait().unwrap();
    }
}
