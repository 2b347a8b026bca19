//! The command `xk-memcached`: a cache that speaks memcached's protocol in the kernel, in front of memcached.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser as _;
use xk_front::command::{exit, Extension, Fallible};
use xk_memcached::Front;

/// Answer requests of memcached's protocol over TCP in the kernel, and hand the others to memcached
///
/// Items with values of up to 7168 bytes are in the kernel. It needs xk.ko, and a memcached that listens at another port,
/// which loses what it has.
///
/// The items in the kernel stay there when this command ends, and the next one goes on with them. `xk flex unload NAME`
/// drops them.
#[derive(Debug, clap::Parser)]
#[command(version)]
struct Arguments {
    /// bpf/servers/memcached_tcp.bpf.c, or the object that clang made of it
    extension: PathBuf,
    /// Where memcached listens
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:11212")]
    server: SocketAddr,
    /// How much memory the items in the kernel may take
    #[arg(long, value_name = "MIB", default_value_t = 1024)]
    heap: u64,
    /// What the extension is called in `xk flex list`
    #[arg(long, default_value = "memcached")]
    name: String,
}

/// The port that the extension serves.
const PORT: u16 = 11211;

fn run(arguments: Arguments) -> Fallible<()> {
    let Arguments { extension: file, server, heap, name } = arguments;
    Extension { file, name, heap, keeps: "items" }.serve(
        || Ok(Front::check(server)?),
        |kept| Ok(Front::of_kept(kept, PORT, server)?),
        |front, stop| Ok(front.serve(stop)?),
        &format!("serving port {PORT} in the kernel; memcached at {server} answers the rest"),
    )
}

fn main() -> ExitCode {
    exit("xk-memcached", run(Arguments::parse()))
}
