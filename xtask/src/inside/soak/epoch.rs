//! Modules come, everything is done at once for a while, modules go, and code is compared.

use std::fs;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::{anyhow, ensure, Context, Result};
use xk_harness::text::{altered, lasting_differences, Snapshot};
use xk_harness::{beside_hotplug_for, function, table, Atomic, FAMILIES};
use xk_runtime::Device;
use xk_table::Function;

use super::pressure::CGROUP;
use super::{
    arms, bystanders, companion, faults, policies, pressure, retry, rmmod, transitions, Broken, Soak, PAUSE, STOP,
};

/// Between two times that a processor is switched off.
const ONLINE: Duration = Duration::from_secs(1);
/// There are no fewer, and no longer ones.
const EPOCHS: u64 = 2;
const LONGEST: u64 = 300;
/// Within which what owners left goes.
const END: Duration = Duration::from_secs(60);
/// Beyond the time. On a slow host, sites are armed by kprobes in a minute beside everything else.
const GRACE: Duration = Duration::from_secs(900);
/// A function that is not what its file has when `--broken byte` is given.
const POKED: &str = "xk_target_value";

type Worker = fn(&Soak<'_>) -> Result<()>;

const WORKERS: [(&str, Worker); 9] = [
    ("transitions", transitions::run),
    ("arming", arms::run),
    ("policies", policies::run),
    ("modules", bystanders::modules),
    ("function tracer", bystanders::tracer),
    ("foreign probes", bystanders::probes),
    ("forks", pressure::forks),
    ("threads", pressure::threads),
    ("memory", pressure::memory),
];

/// One epoch after the other until the time is over.
pub(super) fn all(soak: &Soak<'_>) -> Result<()> {
    let seconds = soak.arguments.seconds;
    let number = (seconds / LONGEST).max(EPOCHS);
    let functions = functions(soak)?;
    let mut before = None;
    for epoch in 0..number {
        // The first is without faults; others are, where it takes another module.
        let faulty = soak.faults.needs_module() && epoch % 2 == 1;
        eprintln!("soak: epoch {} of {number} after {:.0} s", epoch + 1, soak.started.elapsed().as_secs_f64());
        let module = if faulty { &soak.arguments.faulty } else { &soak.arguments.xk };
        soak.insmod(&soak.arguments.atomic)?;
        soak.insmod(&soak.arguments.target)?;
        soak.insmod(module)?;
        if faulty {
            soak.faults.faulty(true)?;
        }
        let last = epoch + 1 == number && soak.arguments.broken.is_none();
        work(soak, Duration::from_secs(seconds / number), last, faulty)?;
        end(soak, &functions)?;
        if faulty {
            soak.faults.faulty(false)?;
        }
        soak.forget_atomic()?;
        for module in [&soak.arguments.atomic, &soak.arguments.target, module] {
            rmmod(module)?;
        }
        compare(soak, &mut before)?;
        soak.report().epochs += 1;
    }
    Ok(())
}

/// All workers at once.
fn work(soak: &Soak<'_>, time: Duration, last: bool, faulty: bool) -> Result<()> {
    let _ = fs::remove_file(STOP);
    soak.over.store(false, Ordering::Relaxed);
    soak.start_threads()?;
    let companion = companion(soak)?;
    let grace = GRACE * soak.arguments.slowness;
    let done = std::thread::scope(|scope| {
        let starving: &[(&str, Worker)] = if faulty { &[("faults", faults::starve)] } else { &[] };
        let threads: Vec<_> = WORKERS
            .iter()
            .chain(starving)
            .map(|&(name, worker)| {
                scope.spawn(move || {
                    let done = worker(soak).with_context(|| name.to_owned());
                    // One that fails ends it for all.
                    let _ = done.as_ref().inspect_err(|error| {
                        eprintln!("soak: {error:#}");
                        finish(soak);
                    });
                    done
                })
            })
            .collect();
        let wait = || {
            let start = Instant::now();
            // On a slow host, until everything has been once.
            let unfinished = || last && start.elapsed() < time + grace && !soak.report().unfinished().is_empty();
            while !soak.over() && (start.elapsed() < time || unfinished()) {
                std::thread::sleep(PAUSE);
            }
            Ok(())
        };
        let hotplugs = beside_hotplug_for(ONLINE * soak.arguments.slowness, wait);
        finish(soak);
        let results: Vec<Result<()>> = threads
            .into_iter()
            .map(|thread| thread.join().map_err(|_| anyhow!("a worker panicked")).and_then(|done| done))
            .collect();
        soak.report().hotplugs += hotplugs?.1;
        results.into_iter().collect::<Result<()>>()
    });
    done.and(note_companion(soak, companion))
}

fn finish(soak: &Soak<'_>) {
    soak.over.store(true, Ordering::Relaxed);
    let _ = fs::write(STOP, "");
}

fn companion(soak: &Soak<'_>) -> Result<Child> {
    fs::create_dir_all(CGROUP)?;
    let mut command = Command::new("/proc/self/exe");
    command.args(["inside", "companion", "--maps", policies::MAPS, "--cgroup", CGROUP, "--stop", STOP]);
    command.args(["--slowness", &soak.arguments.slowness.to_string()]);
    Ok(command.stdout(Stdio::piped()).spawn()?)
}

fn note_companion(soak: &Soak<'_>, companion: Child) -> Result<()> {
    let output = companion.wait_with_output()?;
    ensure!(output.status.success(), "the process that changes maps failed");
    let changes: companion::Changes = serde_json::from_slice(&output.stdout)?;
    let mut report = soak.report();
    for (kind, number) in changes.done {
        *report.policies.map_types.entry(kind).or_default() += number;
    }
    report.policies.without_cx16.extend(changes.without_cx16);
    Ok(())
}

/// Functions of modules that have sites, and one that `--broken byte` changes.
fn functions(soak: &Soak<'_>) -> Result<Vec<Function>> {
    let arguments = soak.arguments;
    let mut functions = vec![function(&arguments.target, POKED, "kernel/test/target_text.S")?];
    for family in &FAMILIES {
        functions.extend(table(&arguments.atomic, family)?.functions);
    }
    functions.extend(arms::table(&arguments.target, arguments.sites)?.functions);
    Ok(functions)
}

/// Nothing is left of what was done, while the modules are still there.
fn end(soak: &Soak<'_>, functions: &[Function]) -> Result<()> {
    Atomic.stop()?;
    retry(END, || {
        let tunes = Device::open_to_read()?.tunes()?;
        ensure!(tunes.is_empty(), "tunes are left: {tunes:?}");
        Ok(())
    })?;
    let broken = soak.arguments.broken == Some(Broken::Byte);
    if broken {
        fs::write("/proc/xk_target", "poke 33")?;
    }
    // A jump that another probe has kept is removed a little later.
    let same = || {
        let different = altered(functions)?;
        ensure!(different.is_empty(), "{}", different.join("; "));
        Ok(())
    };
    if retry(if broken { PAUSE } else { END }, same).is_err() {
        soak.report().different.extend(altered(functions)?);
    }
    soak.report().compared = functions.iter().map(|function| function.bytes.len() / 2).sum();
    Ok(())
}

/// The kernel's text is what it was, without modules. What it switches for good when that is first used is switched in
/// the first epoch.
fn compare(soak: &Soak<'_>, before: &mut Option<Snapshot>) -> Result<()> {
    let Some(before) = before else {
        *before = Some(Snapshot::of(&[])?);
        return Ok(());
    };
    let different = lasting_differences(before, &[])?;
    let mut report = soak.report();
    report.compared += before.size();
    report.different.extend(different);
    Ok(())
}
