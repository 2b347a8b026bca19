//! What answering requests of memcached's protocol costs: by the extension where packets arrive, and by Debian's server.
//!
//! A client in a network of its own sends the same requests over a veth to a program that turns each datagram around, to
//! the extension, and to the server. Time is instructions in a deterministic guest. Refuses to report a figure if the
//! extension and the server do not answer the same.

mod client;

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{ensure, Context, Result};
use rustix::process::{kill_process, Pid, Signal};
use serde::{Deserialize, Serialize};

use client::{Client, Requests};

/// The network of the client.
const SPACE: &str = "client";
const SERVED: &str = "10.9.0.1";
const CLIENT: &str = "10.9.0.2";
/// The port of the extension, and of the server.
const PORT: &str = "11211";
/// Of a hundred requests, how many are gets; the others are sets.
const MIXES: [u64; 3] = [90, 50, 10];
/// Requests of a round, and how many of them the client sends before it receives.
const REQUESTS: usize = 1600;
const BURST: usize = 16;
/// The median counts.
const ROUNDS: usize = 5;
/// How long a server may take to begin.
const PATIENCE: Duration = Duration::from_secs(60);

/// Arguments of `inside memcached`.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// The command that runs extensions
    #[arg(long)]
    xk: PathBuf,
    /// bpf/servers/memcached.bpf.c, compiled
    #[arg(long)]
    extension: PathBuf,
    /// xtask/bpf/turn_around.bpf.c, compiled
    #[arg(long)]
    turn_around: PathBuf,
    /// Debian's memcached
    #[arg(long)]
    server: PathBuf,
}

/// Of one mix, by one server.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct Cost {
    /// Instructions per request, of the whole guest, when the client sends several at a time.
    pub request: f64,
    /// From sending a request to its reply, when it is the only one: the median, and the 99th percentile.
    pub median: u64,
    /// The latter.
    pub p99: u64,
}

/// Of one mix.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Mix {
    /// Gets of a hundred requests.
    pub gets: u64,
    /// By a program that sends each request back.
    pub client: Cost,
    /// By the extension.
    pub flex: Cost,
    /// By Debian's server.
    pub user: Cost,
    /// Requests whose replies were compared.
    pub compared: usize,
    /// Of these, gets that found something.
    pub found: usize,
}

/// Measures.
///
/// # Errors
/// When something does not work, or replies differ.
pub fn run(arguments: &Arguments) -> Result<Vec<Mix>> {
    network()?;
    let client = Client::new(SPACE, CLIENT, &format!("{SERVED}:{PORT}"))?;
    let mixes: Vec<Requests> = MIXES.iter().map(|gets| Requests::new(*gets, REQUESTS)).collect();
    let measured = |what: &str, server: Vec<Stops>| -> Result<Vec<(Cost, Vec<Vec<u8>>)>> {
        // Attaching a program takes a device down for a moment.
        client.wait(PATIENCE).context(what.to_owned())?;
        let costs = mixes.iter().map(|requests| measure(&client, requests).context(what.to_owned())).collect();
        drop(server);
        costs
    };
    let attach = |object: &Path, peer: &Path| -> Result<Vec<Stops>> {
        // The other end must have a program, too, to receive what XDP sends. No request arrives there.
        let other = ["ip", "netns", "exec", SPACE];
        Ok(vec![extension(&arguments.xk, object, "served", &[])?, extension(&arguments.xk, peer, "sends", &other)?])
    };
    let alone = measured("turned around", attach(&arguments.turn_around, &arguments.extension)?)?;
    let flex = measured("the extension", attach(&arguments.extension, &arguments.extension)?)?;
    let user = measured("the server", vec![server(&arguments.server)?])?;
    let mut all = Vec::new();
    for (number, requests) in mixes.iter().enumerate() {
        let ((flex, said), (user, expected)) = (&flex[number], &user[number]);
        for (at, (said, expected)) in said.iter().zip(expected).enumerate() {
            let words = |bytes: &[u8]| bytes.escape_ascii().to_string();
            let request = words(requests.text(at));
            ensure!(said == expected, "{request} is answered by {} and {}", words(said), words(expected));
        }
        ensure!(said.len() == expected.len(), "{} and {} replies", said.len(), expected.len());
        let found = said.iter().filter(|reply| reply.starts_with(b"VALUE")).count();
        ensure!(found > 0 && found < said.len(), "{found} of {} replies are values", said.len());
        let client = alone[number].0;
        all.push(Mix { gets: MIXES[number], client, flex: *flex, user: *user, compared: said.len(), found });
    }
    Ok(all)
}

/// The costs of a mix, and the texts of all replies of one round.
fn measure(client: &Client, requests: &Requests) -> Result<(Cost, Vec<Vec<u8>>)> {
    // Every key is there.
    client.round(requests.preparing(), BURST)?;
    let (_, replies) = client.round(requests.all(), BURST)?;
    let mut rounds = Vec::new();
    for _ in 0..ROUNDS {
        let (time, again) = client.round(requests.all(), BURST)?;
        ensure!(again.len() == replies.len(), "replies are missing");
        rounds.push(time.as_nanos());
    }
    rounds.sort_unstable();
    let mut each = Vec::new();
    for request in requests.all() {
        each.push(client.round(std::slice::from_ref(request), 1)?.0.as_nanos() as u64);
    }
    each.sort_unstable();
    let request = rounds[ROUNDS / 2] as f64 / requests.all().len() as f64;
    Ok((Cost { request, median: each[each.len() / 2], p99: each[each.len() * 99 / 100] }, replies))
}

/// A pair of devices, one of them in a network of its own.
fn network() -> Result<()> {
    for words in [
        "netns add client",
        "link add served type veth peer name sends netns client",
        "address add 10.9.0.1/24 dev served",
        "link set served up",
        "link set lo up",
        "-n client address add 10.9.0.2/24 dev sends",
        "-n client link set sends up",
    ] {
        ensure!(Command::new("ip").args(words.split(' ')).status()?.success(), "ip {words}");
    }
    Ok(())
}

/// A process that ends with this.
struct Stops(Child);

impl Drop for Stops {
    fn drop(&mut self) {
        // It may have ended already.
        _ = i32::try_from(self.0.id()).ok().and_then(Pid::from_raw).map(|pid| kill_process(pid, Signal::INT));
        _ = self.0.wait();
    }
}

/// `xk flex run` of an object at a device, once its programs run.
fn extension(xk: &Path, object: &Path, device: &str, before: &[&str]) -> Result<Stops> {
    let mut words: Vec<_> = before.iter().map(std::ffi::OsStr::new).collect();
    words.extend([xk.as_os_str(), "flex".as_ref(), "run".as_ref(), object.as_os_str()]);
    words.extend(["--dev", device].map(std::ffi::OsStr::new));
    let mut command = Command::new(words[0]);
    let mut child = command.args(&words[1..]).stdout(Stdio::null()).stderr(Stdio::piped()).spawn()?;
    let said = BufReader::new(child.stderr.take().context("it says nothing")?);
    let started = Stops(child);
    let mut all = String::new();
    for line in said.lines() {
        let line = line?;
        if line.starts_with("running ") {
            return Ok(started);
        }
        all += &line;
    }
    anyhow::bail!("{}: {all}", object.display())
}

fn server(program: &Path) -> Result<Stops> {
    let mut command = Command::new(program);
    command.args(["-u", "root", "-l", SERVED, "-p", PORT, "-U", PORT, "-t", "1", "-m", "64"]);
    Ok(Stops(command.stdout(Stdio::null()).spawn()?))
}
