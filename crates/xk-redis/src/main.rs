//! The command `xk-redis`: a server of Redis' protocol in the kernel, in front of redis-server.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser as _;
use xk_front::command::{exit, Extension, Fallible};
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

/// The port that the extension serves.
const PORT: u16 = 6379;

fn run(arguments: Arguments) -> Fallible<()> {
    let Arguments { extension: file, server, heap, name } = arguments;
    Extension { file, name, heap, keeps: "keys" }.serve(
        || Ok(Front::check(server)?),
        |kept| Ok(Front::of_kept(kept, PORT, server)?),
        |front, stop| Ok(front.serve(stop)?),
        &format!("serving port {PORT} in the kernel; redis-server at {server} answers the rest"),
    )
}

fn main() -> ExitCode {
    exit("xk-redis", run(Arguments::parse()))
}
