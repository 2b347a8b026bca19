//! What operations on the data structures of `bpf/flex` cost as an extension, beside the same source in a module and in a
//! process: instructions of a deterministic guest, without the loop around them, medians of several rounds. And what requests
//! cost an extension and a server.

mod memcached;
mod redis;

use std::fmt::Write;
use std::fs;

use anyhow::{ensure, Context, Result as Fallible};
use serde::Serialize;
use xk_flex::{rewrite, Choice};
use xk_policy::{compile, Headers};

use super::{rounded, say};
use crate::flex::variable;
use crate::inside::structures::{Operation, Report};
use crate::lab;

/// An extension may cost so many times what a module does, on average over all operations but the heap's own,
const OF_MODULE: f64 = 1.25;
/// and walking over a list.
const LIST_WALK: f64 = 1.9;
/// Items of the list that is walked.
const ITEMS: f64 = 512.0;
const ROUNDS: usize = 5;

/// The result; its fields are the fields of the JSON object.
#[derive(Debug, Serialize)]
pub struct Result {
    bench: &'static str,
    kernel: String,
    structures: Vec<Row>,
    /// Ratio to the module, on average.
    of_module: f64,
    of_module_limit: f64,
    loop_check: LoopCheck,
    /// By the heap; in a module by kmalloc(), in a process by malloc().
    malloc: Row,
    free: Row,
    memcached: Vec<memcached::Row>,
    redis: Vec<redis::Row>,
}

/// Of one item of a list.
#[derive(Debug, Serialize)]
struct LoopCheck {
    flex: f64,
    /// Without unrolling.
    rolled: f64,
    module: f64,
    user: f64,
    of_module: f64,
    limit: f64,
}

/// Instructions of one operation.
#[derive(Debug, Clone, Serialize)]
struct Row {
    name: String,
    op: String,
    flex: f64,
    rolled: f64,
    module: f64,
    user: f64,
}

/// Builds what is needed, boots one guest and measures in it.
pub fn run() -> Fallible<Result> {
    let kernel = lab::kernel()?;
    let module = lab::module(&kernel.release, "kernel/flexbench")?;
    let types = kernel.root.join(format!("usr/src/linux-headers-{}/vmlinux", kernel.release));
    let headers = Headers::new(&types, &lab::cache()?, &kernel.release)?;
    let repository = lab::repository()?;
    let compiled = compile(&repository.join("xtask/bpf/flex_bench.bpf.c"), &headers)?;
    let folder = tempfile::tempdir()?;
    let write = |name: &str, unroll: usize| -> Fallible<String> {
        let path = folder.path().join(name);
        fs::write(&path, rewrite(&compiled, &Choice { unroll, ..Choice::default() })?.bytes)?;
        Ok(path.display().to_string())
    };
    let (object, rolled) = (write("flex.bpf.o", Choice::UNROLL)?, write("rolled.bpf.o", 1)?);
    let user = folder.path().join("user");
    let mut build = lab::command("gcc-12")?;
    build.args(["-O2", "-Wall", "-Werror", "-Ibpf", "bench/flex/user.c", "-o"]).arg(&user).current_dir(repository);
    lab::output(&mut build)?;
    let script = format!(
        "insmod {} && exec {} inside structures --object {object} --rolled {rolled} --asked {} --user {} --rounds {ROUNDS}",
        module.display(),
        std::env::current_exe()?.display(),
        variable(&compiled, "asked")?,
        user.display(),
    );
    say(&format!("data structures in a deterministic guest on {}", kernel.release));
    let printed = lab::run_guest(&script, &["--icount", "--cpus", "1", "--timeout", "1200"])?;
    let last = printed.lines().last().unwrap_or_default();
    let report = serde_json::from_str(last).with_context(|| format!("the guest printed: {printed}"))?;
    let memcached = memcached::run(&kernel, &headers)?;
    let redis = redis::run(&kernel, &headers)?;
    Ok(Result { memcached, redis, ..result(kernel.release, &report)? })
}

/// Without the servers.
fn result(kernel: String, report: &Report) -> Fallible<Result> {
    let each = |of: &[Operation]| -> Vec<f64> {
        let turn = |operation: &Operation| operation.time as f64 / operation.turns as f64;
        let beside = of.first().map_or(0.0, turn);
        of.iter().map(|operation| turn(operation) - beside).collect()
    };
    let [flex, rolled, module, user] = [&report.flex, &report.rolled, &report.module, &report.user].map(|of| each(of));
    let row = |(number, operation): (usize, &Operation)| Row {
        name: operation.structure.clone(),
        op: operation.operation.clone(),
        flex: rounded(flex[number]),
        rolled: rounded(rolled[number]),
        module: rounded(module[number]),
        user: rounded(user[number]),
    };
    let rows: Vec<Row> = report.module.iter().enumerate().skip(1).map(row).collect();
    let named = |name: &str, op: &str| -> Fallible<Row> {
        rows.iter().find(|row| row.name == name && row.op == op).cloned().with_context(|| format!("no {name} {op}"))
    };
    let (walk, malloc, free) = (named("list", "walk")?, named("heap", "malloc")?, named("heap", "free")?);
    let structures: Vec<Row> = rows.into_iter().filter(|row| row.name != "heap").collect();
    let of_module = structures.iter().map(|row| row.flex / row.module).sum::<f64>() / structures.len() as f64;
    let item = |walk: f64| rounded(walk / ITEMS);
    Ok(Result {
        bench: "flex",
        kernel,
        structures,
        of_module: rounded(of_module),
        of_module_limit: OF_MODULE,
        loop_check: LoopCheck {
            flex: item(walk.flex),
            rolled: item(walk.rolled),
            module: item(walk.module),
            user: item(walk.user),
            of_module: rounded(walk.flex / walk.module),
            limit: LIST_WALK,
        },
        malloc,
        free,
        memcached: Vec::new(),
        redis: Vec::new(),
    })
}

impl Result {
    /// An error when it costs more than it may.
    pub fn verdict(&self) -> Fallible<()> {
        let (average, walk) = (self.of_module, self.loop_check.of_module);
        memcached::verdict(&self.memcached)?;
        redis::verdict(&self.redis)?;
        ensure!(average <= OF_MODULE, "an extension costs {average} times a module, and may cost {OF_MODULE} times");
        ensure!(walk <= LIST_WALK, "a walk over a list costs {walk} times a module, and may cost {LIST_WALK} times");
        Ok(())
    }

    /// For people.
    pub fn table(&self) -> String {
        let mut text = format!(
            "Instructions of an operation on {}\n{:<14} {:>9} {:>9} {:>9} {:>9} {:>10}\n",
            self.kernel, "", "flex", "rolled", "module", "user", "of module"
        );
        for row in self.structures.iter().chain([&self.malloc, &self.free]) {
            let name = format!("{} {}", row.name, row.op);
            let Row { flex, rolled, module, user, .. } = row;
            let _ = writeln!(
                text,
                "{name:<14} {flex:>9.1} {rolled:>9.1} {module:>9.1} {user:>9.1} {:>10.2}",
                flex / module
            );
        }
        let _ = writeln!(
            text,
            "on average of structures {:.2} (limit {}), walk over a list {:.2} (limit {})",
            self.of_module, self.of_module_limit, self.loop_check.of_module, self.loop_check.limit
        );
        text + &memcached::table(&self.memcached) + &redis::table(&self.redis)
    }
}
