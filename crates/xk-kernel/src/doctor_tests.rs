use super::*;
use crate::env::FixtureEnv;

const RELEASE: &str = "6.12.117+deb12-amd64";
const CONFIG: &str = "CONFIG_DEBUG_INFO_BTF=y\n\
                      CONFIG_CC_VERSION_TEXT=\"x86_64-linux-gnu-gcc-12 (Debian 12.2.0-14+deb12u1) 12.2.0\"\n";

fn notes() -> Vec<u8> {
    let mut bytes = [4_u32, 4, 3].iter().flat_map(|n| n.to_le_bytes()).collect::<Vec<u8>>();
    bytes.extend(b"GNU\0\xde\xad\xbe\xef");
    bytes
}

/// A machine on which every check is fine.
fn healthy() -> FixtureEnv {
    let mut env = FixtureEnv::default();
    env.file("/proc/sys/kernel/osrelease", format!("{RELEASE}\n"));
    env.file("/proc/sys/kernel/version", "#1 SMP PREEMPT_DYNAMIC Debian 6.12.117-1~deb12u1 (2026-11-14)\n");
    env.file("/sys/kernel/notes", notes());
    env.file("/sys/kernel/btf/vmlinux", [0x9f, 0xeb, 1]);
    env.file("/proc/kallsyms", "0000000000000000 A fixed_percpu_data\nffffffff9a000000 T _stext\n");
    env.file("/proc/sys/kernel/kptr_restrict", "1\n");
    env.file("/proc/kcore", "\x7fELF\x02");
    env.file("/sys/kernel/security/lockdown", "[none] integrity confidentiality\n");
    env.file("/sys/module/module/parameters/sig_enforce", "N\n");
    env.file("/sys/kernel/debug/kprobes/enabled", "1\n");
    env.file("/proc/sys/debug/kprobes-optimization", "1\n");
    env.file("/usr/src/linux-source-6.12.tar.xz", "");
    env.file(&format!("/boot/config-{RELEASE}"), CONFIG);
    env.file(&format!("/lib/modules/{RELEASE}/build/Makefile"), "");
    env.file("/usr/include/gelf.h", "");
    env.file("/usr/include/openssl/opensslv.h", "");
    env.program("uname -m", "x86_64\n");
    env.program("id -u", "0\n");
    env.program("x86_64-linux-gnu-gcc-12", "x86_64-linux-gnu-gcc-12 (Debian 12.2.0-14+deb12u1) 12.2.0\nCopyright\n");
    env.program("dpkg-query", "6.12.117-1~deb12u1");
    for tool in ["pahole", "make", "flex", "bison", "bc"] {
        env.program(tool, "1.0\n");
    }
    env.program("z3", "Z3 version 4.8.12\n");
    for module in ["xk", "xk_tunable"] {
        env.program(
            &format!("modinfo -F vermagic {module}"),
            &format!("{RELEASE} SMP preempt mod_unload modversions\n"),
        );
    }
    env
}

fn check(env: &FixtureEnv, name: &str) -> Check {
    let all = doctor(env, &DoctorOptions::default());
    all.into_iter().find(|check| check.name == name).unwrap_or_else(|| panic!("no check '{name}'"))
}

#[test]
fn a_healthy_machine_has_nothing_to_do() {
    let checks = doctor(&healthy(), &DoctorOptions::default());
    for check in &checks {
        assert_eq!((check.status, &check.remedy), (Status::Ok, &None), "{check:?}");
    }
    assert_eq!(checks.len(), 20);
}

/// A check that must notice a broken machine: its name, its status, a word of its remedy, and what breaks the machine.
type Case = (&'static str, Status, &'static str, Box<dyn Fn(&mut FixtureEnv)>);

fn without(path: &'static str) -> Box<dyn Fn(&mut FixtureEnv)> {
    Box::new(move |env| drop(env.files.remove(Path::new(path))))
}

fn with(path: &'static str, content: &'static str) -> Box<dyn Fn(&mut FixtureEnv)> {
    Box::new(move |env| env.file(path, content))
}

fn without_program(program: &'static str) -> Box<dyn Fn(&mut FixtureEnv)> {
    Box::new(move |env| drop(env.programs.remove(program)))
}

fn with_program(program: &'static str, output: &'static str) -> Box<dyn Fn(&mut FixtureEnv)> {
    Box::new(move |env| env.program(program, output))
}

/// Machines whose kernel cannot be used.
#[rustfmt::skip]
fn broken_kernels() -> Vec<Case> {
    use Status::{Fail, Warn};
    vec![
        ("kernel", Fail, "6.12", with("/proc/sys/kernel/osrelease", "6.1.0-44-amd64")),
        ("kernel", Fail, "6.12", without("/proc/sys/kernel/osrelease")),
        ("architecture", Fail, "x86-64", with_program("uname -m", "aarch64")),
        ("root", Fail, "sudo", with_program("id -u", "1000\n")),
        ("build-id", Fail, "distribution", with("/sys/kernel/notes", "junk")),
        ("btf", Fail, "CONFIG_DEBUG_INFO_BTF", without("/sys/kernel/btf/vmlinux")),
        ("kallsyms", Fail, "kptr_restrict", with("/proc/kallsyms", "0000000000000000 T _stext\n")),
        ("kallsyms", Fail, "CONFIG_KALLSYMS", without("/proc/kallsyms")),
        ("kcore", Fail, "root", without("/proc/kcore")),
        ("kcore", Fail, "CONFIG_PROC_KCORE", with("/proc/kcore", "")),
        ("lockdown", Fail, "Secure Boot", with("/sys/kernel/security/lockdown", "none [integrity] confidentiality")),
        ("module-signatures", Fail, "sign xk.ko", with("/sys/module/module/parameters/sig_enforce", "Y")),
        ("kprobes", Fail, "echo 1", with("/sys/kernel/debug/kprobes/enabled", "0")),
        ("kprobes", Warn, "debugfs", without("/sys/kernel/debug/kprobes/enabled")),
        ("kprobes-optimization", Warn, "sysctl", with("/proc/sys/debug/kprobes-optimization", "0")),
    ]
}

/// Machines that lack something that a rebuild or the modules need.
#[rustfmt::skip]
fn broken_tools() -> Vec<Case> {
    use Status::{Fail, Warn};
    const GCC: &str = "x86_64-linux-gnu-gcc-12";
    const OTHER_GCC: &str = "x86_64-linux-gnu-gcc-12 (Debian 12.2.0-14) 12.2.0";
    const CONFIG: &str = "/boot/config-6.12.117+deb12-amd64";
    const BUILD: &str = "/lib/modules/6.12.117+deb12-amd64/build/Makefile";
    vec![
        ("source", Fail, "apt-get install linux-source-6.12", without("/usr/src/linux-source-6.12.tar.xz")),
        ("source", Fail, "linux-source-6.12=6.12.117-1", with_program("dpkg-query", "6.12.90-1")),
        ("configuration", Fail, "linux-image", without(CONFIG)),
        ("compiler", Warn, "configuration", without(CONFIG)),
        ("compiler", Fail, "gcc-12=12.2.0-14+deb12u1", with_program(GCC, OTHER_GCC)),
        ("pahole", Fail, "dwarves", without_program("pahole")),
        ("build-tools", Fail, "flex", without_program("flex")),
        ("build-tools", Fail, "libelf-dev", without("/usr/include/gelf.h")),
        ("headers", Fail, "linux-headers-6.12.117", without(BUILD)),
        ("solver", Fail, "apt-get install z3", without_program("z3")),
        ("xk.ko", Fail, "headers", without_program("modinfo -F vermagic xk")),
        ("xk.ko", Fail, "running kernel", with_program("modinfo -F vermagic xk", "6.12.90+deb12-amd64 SMP")),
        ("xk_tunable.ko", Warn, "kernel/tunable", without_program("modinfo -F vermagic xk_tunable")),
    ]
}

#[test]
fn each_condition_is_noticed_with_its_remedy() {
    for (name, status, remedy, break_it) in broken_kernels().into_iter().chain(broken_tools()) {
        let mut env = healthy();
        break_it(&mut env);
        let check = check(&env, name);
        assert_eq!(check.status, status, "{check:?}");
        assert!(check.remedy.as_deref().is_some_and(|text| text.contains(remedy)), "{check:?}");
    }
}

#[test]
fn lockdown_says_what_still_works() {
    let mut env = healthy();
    env.file("/sys/kernel/security/lockdown", "none [integrity] confidentiality\n");
    let locked = check(&env, "lockdown");
    assert_eq!(locked.status, Status::Fail);
    assert!(locked.found.contains("values can be read and reverted, but not changed"), "{locked:?}");
    assert!(locked.remedy.unwrap().contains("require_signed=1"));

    env.file("/sys/module/xk/parameters/require_signed", "N\n");
    assert_eq!(check(&env, "lockdown").status, Status::Fail);
    env.file("/sys/module/xk/parameters/require_signed", "Y\n");
    let signed = check(&env, "lockdown");
    assert_eq!(signed.status, Status::Warn);
    assert!(signed.found.contains("only signed tables can be loaded and changed"), "{signed:?}");
    assert!(signed.remedy.unwrap().contains("xk sign"));

    env.file("/sys/kernel/security/lockdown", "none integrity [confidentiality]\n");
    let closed = check(&env, "lockdown");
    assert_eq!(closed.status, Status::Fail);
    assert!(closed.found.contains("neither read"), "{closed:?}");
}

#[test]
fn a_loaded_or_named_module_is_enough() {
    let mut env = healthy();
    env.programs.remove("modinfo -F vermagic xk");
    env.file("/sys/module/xk", "");
    assert_eq!(check(&env, "xk.ko").found, "loaded");

    let mut env = healthy();
    env.programs.remove("modinfo -F vermagic xk");
    env.file("/opt/xk.ko", "");
    env.program("modinfo -F vermagic /opt/xk.ko", RELEASE);
    let options = DoctorOptions { module: Some("/opt/xk.ko".into()), ..DoctorOptions::default() };
    let checks = doctor(&env, &options);
    assert_eq!(checks.iter().find(|check| check.name == "xk.ko").unwrap().status, Status::Ok);
}

#[test]
fn an_empty_machine_fails_without_panicking() {
    let checks = doctor(&FixtureEnv::default(), &DoctorOptions::default());
    assert!(checks.iter().filter(|check| check.status == Status::Fail).count() >= 12);
    assert!(checks.iter().all(|check| check.status == Status::Ok || check.remedy.is_some()));
}
