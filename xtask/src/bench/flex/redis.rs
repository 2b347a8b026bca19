//! What a request of Redis' protocol costs the server's side, in the kernel and by Debian's redis-server.

use std::fmt::Write;
use std::fs;

use anyhow::{ensure, Context, Result as Fallible};
use serde::Serialize;
use xk_policy::{compile, Headers};

use crate::bench::{rounded, say};
use crate::inside::redis::{Cost, Row as Measured};
use crate::lab;

/// redis-server costs at least so many times what the extension does, and with `ZADD`.
const OF_FLEX: f64 = 1.6;
const OF_ZADD: f64 = 1.65;
const EXTENSION: &str = "bpf/servers/redis.bpf.c";
const SIDE: &str = "xtask/bpf/server_side.bpf.c";

/// A kind of requests, one on each of 16 connections at a time.
#[derive(Debug, Serialize)]
pub struct Row {
    op: String,
    /// Instructions of the server's side.
    flex: f64,
    user: f64,
    /// How many times the second is the first.
    times: f64,
    /// The same of the whole guest, with the client.
    whole: Whole,
    /// Instructions from a request to its reply, when the client waits for each.
    median: Two,
    p99: Two,
    /// Replies that were compared byte for byte.
    compared: usize,
}

#[derive(Debug, Serialize)]
struct Whole {
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
    let module = lab::module(&kernel.release, "kernel/xk")?;
    let folder = tempfile::tempdir()?;
    let repository = lab::repository()?;
    let mut places = Vec::new();
    let mut compiled = |source: &str, name: &str, variables: &[&str]| -> Fallible<String> {
        let (path, bytes) = (folder.path().join(name), compile(&repository.join(source), headers)?);
        for variable in variables {
            places.push(crate::flex::variable(&bytes, variable)?.to_string());
        }
        fs::write(&path, bytes)?;
        Ok(path.display().to_string())
    };
    let extension = compiled(EXTENSION, "redis.bpf.o", &[])?;
    let side = compiled(SIDE, "side.bpf.o", &["port", "server", "received", "beside"])?;
    let script = format!(
        "insmod {} && exec {} inside redis --extension {extension} --side {side} --places {}",
        module.display(),
        std::env::current_exe()?.display(),
        places.join(","),
    );
    say(&format!("requests of Redis' protocol in a deterministic guest on {}", kernel.release));
    let printed = lab::run_guest(&script, &["--icount", "--cpus", "1", "--timeout", "1800"])?;
    let last = printed.lines().last().unwrap_or_default();
    let rows: Vec<Measured> = serde_json::from_str(last).with_context(|| format!("the guest printed: {printed}"))?;
    Ok(rows.iter().map(Row::new).collect())
}

impl Row {
    fn new(row: &Measured) -> Self {
        let Measured { op, flex, user, compared } = row;
        let two = |of: fn(&Cost) -> u64| Two { flex: of(flex), user: of(user) };
        Self {
            op: op.clone(),
            flex: rounded(flex.side),
            user: rounded(user.side),
            times: rounded(user.side / flex.side),
            whole: Whole {
                flex: rounded(flex.whole),
                user: rounded(user.whole),
                times: rounded(user.whole / flex.whole),
            },
            median: two(|cost| cost.median),
            p99: two(|cost| cost.p99),
            compared: *compared,
        }
    }
}

/// An error when the extension costs more than it may.
pub fn verdict(rows: &[Row]) -> Fallible<()> {
    for Row { op, times, .. } in rows {
        let limit = if op == "zadd" { OF_ZADD } else { OF_FLEX };
        ensure!(*times >= limit, "Redis, {op}: redis-server costs {times} times the extension instead of {limit}");
    }
    Ok(())
}

/// For people.
pub fn table(rows: &[Row]) -> String {
    let mut text = format!(
        "Instructions of a request of Redis' protocol\n{:<14} {:>9} {:>9} {:>9} {:>12} {:>12}\n",
        "", "flex", "user", "times", "p99 of flex", "p99 of user"
    );
    for Row { op, flex, user, times, p99, .. } in rows {
        let _ = writeln!(text, "{op:<14} {flex:>9.0} {user:>9.0} {times:>9.2} {:>12} {:>12}", p99.flex, p99.user);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zadd_has_a_limit_of_its_own() {
        let cost = |side| Cost { side, whole: 2.0 * side, median: 5, p99: 6 };
        let row =
            |op: &str, user| Row::new(&Measured { op: op.into(), flex: cost(1000.0), user: cost(user), compared: 7 });
        assert_eq!((row("zadd", 1640.0).times, row("zadd", 1640.0).whole.times), (1.64, 1.64));
        assert!(verdict(&[row("get:set 90:10", 1620.0), row("zadd", 1650.0)]).is_ok());
        let slow = verdict(&[row("zadd", 1640.0)]).unwrap_err().to_string();
        assert_eq!(slow, "Redis, zadd: redis-server costs 1.64 times the extension instead of 1.65");
    }
}
