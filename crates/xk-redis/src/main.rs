//! The command `xk-redis`: a server of Redis' protocol in the kernel, in front of redis-server.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::AtomicBool;
use std::{fs, thread};

use clap::Parser as _;
use xk_flex::{attach, load, Choice, Heap, Limits};
use xk_policy::{compile, Headers, RUNNING_BTF};
use xk_redis::Front;

/// Answer requests of Redis' protocol in the kernel, and hand the others to redis-server
///
/// Strings, hashes and sorted sets are in the kernel. It needs xk.ko, and a redis-server that listens at another port.
#[derive(Debug, clap::Parser)]
#[command(version)]
struct Arguments {
    /// bpf/servers/redis.bpf.c, or the object that clang made of it
    extension: PathBuf,
    /// Where redis-server listens
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:6380")]
    server: SocketAddr,
    /// How much memory the keys in the kernel may take
    #[arg(long, value_name = "MIB", default_value_t = 1024)]
    heap: u64,
}

/// Where the kernel shows the module.
const MODULE: &str = "/sys/module/xk";
/// The port that the extension serves.
const PORT: u16 = 6379;

type Fallible<T> = Result<T, Box<dyn std::error::Error>>;

fn object(path: &Path) -> Fallible<Vec<u8>> {
    if path.extension().is_none_or(|extension| extension != "c") {
        return fs::read(path).map_err(|error| format!("{}: {error}", path.display()).into());
    }
    let folder = tempfile::tempdir()?;
    Ok(compile(path, &Headers::new(RUNNING_BTF.as_ref(), folder.path(), "running")?)?)
}

fn run(arguments: &Arguments) -> Fallible<()> {
    if !Path::new(MODULE).exists() {
        return Err("xk.ko is not loaded, whose functions send replies: insmod xk.ko".into());
    }
    let loaded = load(&object(&arguments.extension)?, &Choice::default())?;
    // As long as this process.
    let loaded: &'static _ = Box::leak(Box::new(loaded.object));
    let limits = Limits { most: arguments.heap << 20, ready: 16 << 20 };
    let heap = Heap::of(loaded, limits)?.ok_or("the extension has no heap")?;
    let front = Front::new(loaded, heap, PORT, arguments.server)?;
    let _links = attach(loaded, None)?;
    eprintln!("serving port {PORT} in the kernel; redis-server at {} answers the rest", arguments.server);
    let never = AtomicBool::new(false);
    thread::scope(|scope| -> Fallible<()> {
        let heap = scope.spawn(|| front.heap().serve(&never));
        front.serve(&never)?;
        heap.join().map_err(|_| "the thread of the heap panicked")??;
        Ok(())
    })
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xk-redis: {error}");
            ExitCode::FAILURE
        }
    }
}
