//! The command `xk-redis`: a server of Redis' protocol in the kernel, in front of redis-server.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use std::{fs, thread};

use clap::Parser as _;
use xk_flex::kept::{Kept, Options};
use xk_flex::{Choice, Control};
use xk_policy::{compile, Headers, RUNNING_BTF};
use xk_redis::Front;

/// Answer requests of Redis' protocol in the kernel, and hand the others to redis-server
///
/// Strings, hashes and sorted sets are in the kernel. It needs xk.ko, and a redis-server that listens at another port.
///
/// The keys in the kernel stay there when this command ends, and the next one goes on with them. `xk flex unload NAME`
/// drops them.
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
    /// What the extension is called in `xk flex list`
    #[arg(long, default_value = "redis")]
    name: String,
}

/// Where the kernel shows the module.
const MODULE: &str = "/sys/module/xk";
/// How long a packet may take. It may contain thousands of requests, and a client whose run is ended is disconnected.
const DEADLINE: Duration = Duration::from_millis(500);
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

/// The extension that is there, with its keys, or a new one.
fn extension(arguments: &Arguments) -> Fallible<Kept> {
    let name = &arguments.name;
    if let Ok(kept) = Kept::open(name) {
        let status = kept.status();
        let record = status.record.ok_or_else(|| format!("loading {name} was interrupted: xk flex unload {name}"))?;
        if status.is_served {
            return Err(format!("another process serves the extension {name}").into());
        }
        eprintln!("going on with the keys of {}; `xk flex unload {name}` drops them", record.file.display());
        return Ok(kept);
    }
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let options = Options {
        name,
        file: &std::path::absolute(&arguments.extension)?,
        now: now.try_into().unwrap_or(i64::MAX),
        choice: Choice::default(),
        control: Control { deadline: Some(DEADLINE), ..Control::default() },
        heap: Some(arguments.heap << 20),
        interface: None,
        most_ended: None,
    };
    // This process serves it from the next moment on.
    Kept::load(&object(&arguments.extension)?, &options, || Ok::<(), xk_flex::Error>(()))?;
    Ok(Kept::open(name)?)
}

fn run(arguments: &Arguments) -> Fallible<()> {
    if !Path::new(MODULE).exists() {
        return Err("xk.ko is not loaded, whose functions send replies: insmod xk.ko".into());
    }
    let kept = extension(arguments)?;
    let front = Front::of_kept(&kept, PORT, arguments.server)?;
    let stop = AtomicBool::new(false);
    thread::scope(|scope| -> Fallible<()> {
        let served = scope.spawn(|| {
            let ended = kept.serve_heap(
                Some(front.heap()),
                || {
                    eprintln!(
                        "serving port {PORT} in the kernel; redis-server at {} answers the rest",
                        arguments.server
                    )
                },
                |wait| {
                    thread::sleep(wait);
                    stop.load(Ordering::Relaxed)
                },
            );
            // It was unloaded.
            stop.store(true, Ordering::Relaxed);
            ended
        });
        let ended = front.serve(&stop);
        stop.store(true, Ordering::Relaxed);
        served.join().map_err(|_| "the thread that serves the extension panicked")??;
        Ok(ended?)
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
