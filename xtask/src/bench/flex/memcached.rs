//! What a request of memcached's protocol costs the server's side, by the extension and by Debian's server.

use std::fmt::Write;
use std::fs;

use anyhow::{ensure, Context, Result as Fallible};
use serde::Serialize;
use xk_policy::{compile, Headers};

use crate::bench::{rounded, say};
use crate::inside::memcached::{Cost, Mix};
use crate::lab;

/// A server in user space costs at least so many times what the extension does.
const OF_FLEX: f64 = 2.3;
const EXTENSION: &str = "bpf/servers/memcached.bpf.c";
const TURN_AROUND: &str = "xtask/bpf/turn_around.bpf.c";

/// A mix of requests.
#[derive(Debug, Serialize)]
pub struct Row {
    /// Gets and sets of a hundred requests.
    mix: String,
    /// Instructions of the server's side: of the guest, less those with a program that turns each request around.
    flex: f64,
    user: f64,
    /// How many times the second is the first.
    times: f64,
    /// The same with the client's side, and by the program that turns requests around.
    whole: Whole,
    /// Instructions from a request to its reply, when the client waits for each.
    median: Two,
    p99: Two,
    /// Requests whose replies were compared byte for byte. Gets of these that found something.
    compared: usize,
    found: usize,
}

#[derive(Debug, Serialize)]
struct Whole {
    client: f64,
    flex: f64,
    user: f64,
    times: f64,
}

#[derive(Debug, Serialize)]
struct Two {
    flex: u64,
    user: u64,
}

/// Builds what is needed, boots one guest and measures in it.
///
/// # Errors
/// When something does not work, or replies differ.
pub fn run(kernel: &lab::Kernel, headers: &Headers) -> Fallible<Vec<Row>> {
    let this = std::env::current_exe()?;
    let xk = lab::xk()?;
    let folder = tempfile::tempdir()?;
    let repository = lab::repository()?;
    let compiled = |source: &str, name: &str| -> Fallible<String> {
        let path = folder.path().join(name);
        fs::write(&path, compile(&repository.join(source), headers)?)?;
        Ok(path.display().to_string())
    };
    let (extension, turn_around) = (compiled(EXTENSION, "cache.bpf.o")?, compiled(TURN_AROUND, "around.bpf.o")?);
    let server = lab::output(lab::command("scripts/unpack")?.arg("memcached"))?;
    let script = format!(
        "mount -t bpf bpf /sys/fs/bpf; exec {} inside memcached --xk {} --extension {extension} --turn-around {turn_around} \
         --server {}/usr/bin/memcached",
        this.display(),
        xk.display(),
        server.trim(),
    );
    say(&format!("requests of memcached's protocol in a deterministic guest on {}", kernel.release));
    let printed = lab::run_guest(&script, &["--icount", "--cpus", "1", "--timeout", "1800"])?;
    let last = printed.lines().last().unwrap_or_default();
    let mixes: Vec<Mix> = serde_json::from_str(last).with_context(|| format!("the guest printed: {printed}"))?;
    Ok(mixes.iter().map(Row::new).collect())
}

impl Row {
    fn new(mix: &Mix) -> Self {
        let Mix { client, flex, user, .. } = mix;
        let two = |of: fn(&Cost) -> u64| Two { flex: of(flex), user: of(user) };
        let [own_flex, own_user] = [flex, user].map(|all| all.request - client.request);
        Self {
            mix: format!("{}:{}", mix.gets, 100 - mix.gets),
            flex: rounded(own_flex),
            user: rounded(own_user),
            times: rounded(own_user / own_flex),
            whole: Whole {
                client: rounded(client.request),
                flex: rounded(flex.request),
                user: rounded(user.request),
                times: rounded(user.request / flex.request),
            },
            median: two(|cost| cost.median),
            p99: two(|cost| cost.p99),
            compared: mix.compared,
            found: mix.found,
        }
    }
}

/// An error when the extension costs more than it may.
pub fn verdict(rows: &[Row]) -> Fallible<()> {
    for row in rows {
        let Row { mix, times, .. } = row;
        ensure!(
            *times >= OF_FLEX,
            "memcached, {mix}: user space costs {times} times the extension instead of {OF_FLEX}"
        );
    }
    Ok(())
}

/// For people.
pub fn table(rows: &[Row]) -> String {
    let mut text = format!(
        "Instructions of a request of memcached's protocol\n{:<14} {:>9} {:>9} {:>9} {:>12} {:>12}\n",
        "gets:sets", "flex", "user", "times", "p99 of flex", "p99 of user"
    );
    for row in rows {
        let Row { mix, flex, user, times, p99, .. } = row;
        let _ = writeln!(text, "{mix:<14} {flex:>9.0} {user:>9.0} {times:>9.2} {:>12} {:>12}", p99.flex, p99.user);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_client_costs_does_not_count() {
        let cost = |request, p99| Cost { request, median: 5, p99 };
        let mix = |flex| Mix {
            gets: 90,
            client: cost(1000.0, 1),
            flex: cost(flex, 2),
            user: cost(11_000.0, 3),
            compared: 9,
            found: 8,
        };
        let row = Row::new(&mix(3000.0));
        assert_eq!((row.mix.as_str(), row.flex, row.user, row.times), ("90:10", 2000.0, 10_000.0, 5.0));
        assert_eq!((row.whole.times, row.p99.flex, row.p99.user), (3.667, 2, 3));
        assert!(verdict(&[row]).is_ok());
        let slow = verdict(&[Row::new(&mix(6000.0))]).unwrap_err().to_string();
        assert_eq!(slow, "memcached, 90:10: user space costs 2 times the extension instead of 2.3");
    }
}
