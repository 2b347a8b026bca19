//! Whether a machine can do everything: one check per condition, each with its remedy.
//!
//! In: a machine behind [`Env`]. Out: a list of [`Check`]s, always the same
//! ones in the same order. Nothing is changed and nothing is guessed: an unknown
//! condition is a warning.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::env::Env;
use crate::id::{build_id, release_version, KernelId};
use crate::image::lockdown_mode;
use crate::source::{check_pahole, compiler_of, find_config, find_tarball, find_tools, SourceHints};
use crate::toolchain::Toolchain;

/// The oldest kernel that is supported.
const OLDEST: (u32, u32) = (6, 12);

/// How a check came out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// As it should be.
    Ok,
    /// Something works less well, or is unknown.
    Warn,
    /// Something that is needed is missing.
    Fail,
}

/// One condition.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Check {
    /// What is checked; stable.
    pub name: String,
    /// How it came out.
    pub status: Status,
    /// What was found.
    pub found: String,
    /// What to do about it; `None` when nothing is to be done.
    pub remedy: Option<String>,
}

/// Locations that the machine itself does not tell.
#[derive(Debug, Clone, Default)]
pub struct DoctorOptions {
    /// Where source, configuration and headers are.
    pub hints: SourceHints,
    /// Where `xk.ko` may be, besides where modprobe finds it.
    pub module: Option<PathBuf>,
}

impl Check {
    fn new(name: &str, status: Status, found: impl Into<String>, remedy: impl Into<String>) -> Self {
        let remedy = Some(remedy.into()).filter(|_| status != Status::Ok);
        Self { name: name.to_owned(), status, found: found.into(), remedy }
    }

    fn ok(name: &str, found: impl Into<String>) -> Self {
        Self { name: name.to_owned(), status: Status::Ok, found: found.into(), remedy: None }
    }

    fn of_result<T, E: std::fmt::Display>(name: &str, result: Result<T, E>, found: impl Fn(&T) -> String) -> Self {
        match result {
            Ok(value) => Self::ok(name, found(&value)),
            Err(error) => {
                // The messages of errors end with what to do.
                let text = error.to_string();
                let (found, remedy) = text.rsplit_once("; ").unwrap_or((&text, ""));
                Self::new(name, Status::Fail, found, remedy)
            }
        }
    }
}

/// Checks everything that the project needs of a machine.
pub fn doctor(env: &dyn Env, options: &DoctorOptions) -> Vec<Check> {
    let id = identity(env);
    let mut checks = vec![
        kernel_version(&id),
        architecture(env),
        root(env),
        identity_check(&id),
        btf(env),
        kallsyms(env),
        kcore(env),
        lockdown(env),
        signatures(env),
        kprobes(env),
        optimisation(env),
    ];
    checks.extend(offline(env, &id, &options.hints));
    checks.push(headers(env, &id, &options.hints));
    checks.push(tool(env, "solver", "z3", "apt-get install z3"));
    checks.push(module(env, &id, &Wanted::xk(options.module.as_deref())));
    checks.push(module(env, &id, &Wanted::xk_tunable()));
    checks
}

/// The running kernel; the build-id is empty if the notes do not have one.
fn identity(env: &dyn Env) -> KernelId {
    let release = env.text("/proc/sys/kernel/osrelease").unwrap_or_default();
    let version = env.text("/proc/sys/kernel/version").unwrap_or_default();
    let notes = env.read(Path::new("/sys/kernel/notes")).unwrap_or_default();
    KernelId::new(&release, build_id(&notes).unwrap_or_default(), &version)
}

fn kernel_version(id: &KernelId) -> Check {
    let supported = release_version(&id.release).is_some_and(|(version, level, _)| (version, level) >= OLDEST);
    let status = if supported { Status::Ok } else { Status::Fail };
    let remedy = format!("boot Linux {}.{} or newer (Debian 12: linux-image-amd64 from backports)", OLDEST.0, OLDEST.1);
    Check::new("kernel", status, &id.release, remedy)
}

fn architecture(env: &dyn Env) -> Check {
    let found = env.run("uname", &["-m"]).map(|output| output.stdout.trim().to_owned()).unwrap_or_default();
    let status = if found == "x86_64" { Status::Ok } else { Status::Fail };
    Check::new("architecture", status, found, "only x86-64 is supported")
}

fn root(env: &dyn Env) -> Check {
    let uid = env.run("id", &["-u"]).map(|output| output.stdout.trim().to_owned()).unwrap_or_default();
    let status = if uid == "0" { Status::Ok } else { Status::Fail };
    Check::new(
        "root",
        status,
        format!("user id {uid}"),
        "run it with sudo; only the offline analysis works without root",
    )
}

fn identity_check(id: &KernelId) -> Check {
    let status = if id.build_id.is_empty() { Status::Fail } else { Status::Ok };
    let found = if id.build_id.is_empty() { "none in /sys/kernel/notes" } else { &id.build_id };
    Check::new("build-id", status, found, "use a distribution kernel; this one was linked without a build-id")
}

fn btf(env: &dyn Env) -> Check {
    let path = "/sys/kernel/btf/vmlinux";
    match env.head(Path::new(path), 2) {
        Ok(start) if start == [0x9f, 0xeb] => Check::ok("btf", path),
        _ => Check::new(
            "btf",
            Status::Fail,
            format!("no {path}"),
            "use a kernel built with CONFIG_DEBUG_INFO_BTF=y, for example Debian's",
        ),
    }
}

fn kallsyms(env: &dyn Env) -> Check {
    const NAME: &str = "kallsyms";
    let Ok(start) = env.head(Path::new("/proc/kallsyms"), 64 << 10) else {
        return Check::new(NAME, Status::Fail, "no /proc/kallsyms", "use a kernel built with CONFIG_KALLSYMS=y");
    };
    let text = String::from_utf8_lossy(&start);
    let addresses = text.lines().filter_map(|line| line.split_whitespace().next());
    if addresses.into_iter().any(|address| address.bytes().any(|digit| digit != b'0')) {
        return Check::ok(NAME, "addresses can be read");
    }
    let restrict = env.text("/proc/sys/kernel/kptr_restrict").unwrap_or_default();
    let found = format!("all addresses are zero (kernel.kptr_restrict={restrict})");
    Check::new(NAME, Status::Fail, found, "run as root, and set 'sysctl kernel.kptr_restrict=1' if it is 2")
}

fn kcore(env: &dyn Env) -> Check {
    const NAME: &str = "kcore";
    match env.head(Path::new("/proc/kcore"), 4) {
        Ok(start) if start == b"\x7fELF" => Check::ok(NAME, "/proc/kcore can be read"),
        Ok(_) => Check::new(NAME, Status::Fail, "/proc/kcore is empty", "use a kernel built with CONFIG_PROC_KCORE=y"),
        Err(error) => {
            let remedy = "run as root without lockdown=confidentiality; the analysis also works on the vmlinuz file";
            Check::new(NAME, Status::Fail, format!("/proc/kcore: {error}"), remedy)
        }
    }
}

fn lockdown(env: &dyn Env) -> Check {
    const NAME: &str = "lockdown";
    const OFF: &str = "switch Secure Boot off in the firmware and boot without lockdown=";
    let text = env.text("/sys/kernel/security/lockdown").unwrap_or_default();
    let signed = env.text("/sys/module/xk/parameters/require_signed").as_deref() == Some("Y");
    match lockdown_mode(&text) {
        None => Check::ok(NAME, "not built in or securityfs not mounted"),
        Some("none") => Check::ok(NAME, "none"),
        Some("integrity") if signed => {
            let found = "integrity, and xk.ko has require_signed=1: only signed tables can be loaded and changed";
            let remedy = "sign tables (xk sign); policies and parameters of modules need a kernel without lockdown";
            Check::new(NAME, Status::Warn, found, remedy)
        }
        Some("integrity") => {
            let found =
                "integrity: values can be read and reverted, but not changed; only signed modules can be loaded";
            let remedy = format!("load xk.ko with require_signed=1 and sign tables (docs/signing.md), or {OFF}");
            Check::new(NAME, Status::Fail, found, remedy)
        }
        Some(mode) => {
            let found = format!("{mode}: the kernel can be neither read nor changed");
            Check::new(NAME, Status::Fail, found, format!("boot with lockdown=integrity, or {OFF}"))
        }
    }
}

fn signatures(env: &dyn Env) -> Check {
    let enforced = env.text("/sys/module/module/parameters/sig_enforce");
    let status = if enforced.as_deref() == Some("Y") { Status::Fail } else { Status::Ok };
    let found = if status == Status::Ok { "not enforced" } else { "only signed modules can be loaded" };
    let remedy = "sign xk.ko with a key that the machine trusts (mokutil --import), or boot without module.sig_enforce";
    Check::new("module-signatures", status, found, remedy)
}

fn kprobes(env: &dyn Env) -> Check {
    const NAME: &str = "kprobes";
    match env.text("/sys/kernel/debug/kprobes/enabled").as_deref() {
        Some("1") => Check::ok(NAME, "enabled"),
        Some(other) => {
            let remedy = "echo 1 > /sys/kernel/debug/kprobes/enabled";
            Check::new(NAME, Status::Fail, format!("disabled ({other}): probes have no effect"), remedy)
        }
        None => {
            let remedy = "mount -t debugfs none /sys/kernel/debug, or use a kernel built with CONFIG_KPROBES=y";
            Check::new(NAME, Status::Warn, "no /sys/kernel/debug/kprobes/enabled", remedy)
        }
    }
}

fn optimisation(env: &dyn Env) -> Check {
    let value = env.text("/proc/sys/debug/kprobes-optimization").unwrap_or_else(|| "absent".to_owned());
    let status = if value == "1" { Status::Ok } else { Status::Warn };
    let remedy = "sysctl debug.kprobes-optimization=1; without it every probe traps, which is about five times slower";
    Check::new("kprobes-optimization", status, value, remedy)
}

/// Source, configuration, compiler and tools of the rebuild.
fn offline(env: &dyn Env, id: &KernelId, hints: &SourceHints) -> Vec<Check> {
    let tarball = find_tarball(env, id, hints);
    let mut checks = vec![Check::of_result("source", tarball, |path| path.display().to_string())];
    let config = find_config(env, &id.release, hints);
    let found = config.as_ref().ok().cloned();
    let mut tools = Toolchain::host();
    checks.push(Check::of_result("configuration", config, |(_, origin)| origin.clone()));
    match found {
        Some((config, origin)) => {
            let compiler = compiler_of(&config, &origin)
                .and_then(|compiler| find_tools(env, &compiler, hints).map(|tools| (compiler, tools)));
            tools = compiler.as_ref().map_or_else(|_| Toolchain::host(), |(_, tools)| tools.clone());
            checks.push(Check::of_result("compiler", compiler, |(compiler, tools)| match tools.root() {
                Some(root) => format!("{} in {}", compiler.version_text, root.display()),
                None => compiler.version_text.clone(),
            }));
            let pahole = check_pahole(env, &config, &tools);
            checks.push(Check::of_result("pahole", pahole, |()| "installed".to_owned()));
        }
        None => {
            let unknown = |name| {
                Check::new(name, Status::Warn, "unknown without the kernel's configuration", "see 'configuration'")
            };
            checks.extend(["compiler", "pahole"].map(unknown));
        }
    }
    let missing: Vec<&str> =
        ["make", "flex", "bison", "bc"].into_iter().filter(|tool| !runs(env, &tools, tool)).collect();
    let headers = ["/usr/include/gelf.h", "/usr/include/openssl/opensslv.h"];
    let absent: Vec<&str> = headers.into_iter().filter(|path| !env.exists(&tools.path(path))).collect();
    let all: Vec<&str> = missing.into_iter().chain(absent).collect();
    checks.push(if all.is_empty() {
        Check::ok("build-tools", "make, flex, bison, bc, libelf, openssl")
    } else {
        let remedy = "apt-get install make flex bison bc libelf-dev libssl-dev";
        Check::new("build-tools", Status::Fail, format!("missing: {}", all.join(", ")), remedy)
    });
    checks
}

fn headers(env: &dyn Env, id: &KernelId, hints: &SourceHints) -> Check {
    let release = &id.release;
    let named = hints.headers.clone().unwrap_or_else(|| hints.root.join(format!("usr/src/linux-headers-{release}")));
    let build = hints.root.join("lib/modules").join(release).join("build");
    match [named, build].into_iter().find(|folder| env.exists(&folder.join("Makefile"))) {
        Some(folder) => Check::ok("headers", folder.display().to_string()),
        None => {
            let remedy = format!("apt-get install linux-headers-{release}");
            Check::new("headers", Status::Fail, format!("none for {release}; xk.ko cannot be built"), remedy)
        }
    }
}

fn runs(env: &dyn Env, tools: &Toolchain, program: &str) -> bool {
    tools.run(env, program, &["--version"]).is_ok_and(|output| output.success)
}

fn tool(env: &dyn Env, name: &str, program: &str, remedy: &str) -> Check {
    match env.run(program, &["--version"]) {
        Ok(output) if output.success => Check::ok(name, output.stdout.lines().next().unwrap_or(program)),
        _ => Check::new(name, Status::Fail, format!("{program} does not run"), remedy),
    }
}

/// A module of this project, and how to get it.
struct Wanted<'a> {
    module: &'static str,
    /// A file, if modprobe does not find it.
    named: Option<&'a Path>,
    /// The status if it is missing.
    absent: Status,
    remedy: &'static str,
}

impl<'a> Wanted<'a> {
    fn xk(named: Option<&'a Path>) -> Self {
        let remedy = "build xk.ko for the running kernel: make -C kernel/xk (needs the headers package)";
        Self { module: "xk", named, absent: Status::Fail, remedy }
    }

    /// Only parameters that modules describe need it.
    fn xk_tunable() -> Self {
        let remedy = "build xk_tunable.ko for the running kernel: make -C kernel/tunable (needs the headers package); \
                      only parameters that modules describe (xk tune parameters) need it";
        Self { module: "xk_tunable", named: None, absent: Status::Warn, remedy }
    }
}

fn module(env: &dyn Env, id: &KernelId, wanted: &Wanted) -> Check {
    let name = format!("{}.ko", wanted.module);
    if env.exists(&Path::new("/sys/module").join(wanted.module)) {
        return Check::ok(&name, "loaded");
    }
    let named = wanted.named.filter(|path| env.exists(path)).map(|path| path.display().to_string());
    let place = named.unwrap_or_else(|| wanted.module.to_owned());
    let found = env.run("modinfo", &["-F", "vermagic", &place]).ok().filter(|output| output.success);
    match found.as_ref().and_then(|output| output.stdout.split_whitespace().next()) {
        Some(release) if release == id.release => Check::ok(&name, format!("{place}, not loaded yet")),
        Some(release) => {
            let found = format!("{place} was built for {release}, not for {}", id.release);
            Check::new(&name, wanted.absent, found, wanted.remedy)
        }
        None => Check::new(&name, wanted.absent, "neither loaded nor installed", wanted.remedy),
    }
}

#[cfg(test)]
#[path = "doctor_tests.rs"]
mod tests;
