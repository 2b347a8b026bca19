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

/// What breaks, which check notices, how badly, and a word of its remedy.
#[test]
fn each_condition_is_noticed_with_its_remedy() {
    type Break = fn(&mut FixtureEnv);
    type Case<'a> = (&'a str, Status, &'a str, Box<dyn Fn(&mut FixtureEnv)>);
    let without = |path: &'static str| move |env: &mut FixtureEnv| drop(env.files.remove(Path::new(path)));
    let cases: Vec<Case> = vec![
        (
            "kernel",
            Status::Fail,
            "6.12",
            Box::new((|e| e.file("/proc/sys/kernel/osrelease", "6.1.0-44-amd64")) as Break),
        ),
        ("kernel", Status::Fail, "6.12", Box::new(without("/proc/sys/kernel/osrelease"))),
        ("architecture", Status::Fail, "x86-64", Box::new((|e| e.program("uname -m", "aarch64")) as Break)),
        ("root", Status::Fail, "sudo", Box::new((|e| e.program("id -u", "1000\n")) as Break)),
        ("build-id", Status::Fail, "distribution", Box::new((|e| e.file("/sys/kernel/notes", "junk")) as Break)),
        ("btf", Status::Fail, "CONFIG_DEBUG_INFO_BTF", Box::new(without("/sys/kernel/btf/vmlinux"))),
        (
            "kallsyms",
            Status::Fail,
            "kptr_restrict",
            Box::new((|e| e.file("/proc/kallsyms", "0000000000000000 T _stext\n")) as Break),
        ),
        ("kallsyms", Status::Fail, "CONFIG_KALLSYMS", Box::new(without("/proc/kallsyms"))),
        ("kcore", Status::Fail, "root", Box::new(without("/proc/kcore"))),
        ("kcore", Status::Fail, "CONFIG_PROC_KCORE", Box::new((|e| e.file("/proc/kcore", "")) as Break)),
        (
            "lockdown",
            Status::Fail,
            "Secure Boot",
            Box::new((|e| e.file("/sys/kernel/security/lockdown", "none [integrity] confidentiality")) as Break),
        ),
        (
            "module-signatures",
            Status::Fail,
            "sign xk.ko",
            Box::new((|e| e.file("/sys/module/module/parameters/sig_enforce", "Y")) as Break),
        ),
        ("kprobes", Status::Fail, "echo 1", Box::new((|e| e.file("/sys/kernel/debug/kprobes/enabled", "0")) as Break)),
        ("kprobes", Status::Warn, "debugfs", Box::new(without("/sys/kernel/debug/kprobes/enabled"))),
        (
            "kprobes-optimization",
            Status::Warn,
            "sysctl",
            Box::new((|e| e.file("/proc/sys/debug/kprobes-optimization", "0")) as Break),
        ),
        (
            "source",
            Status::Fail,
            "apt-get install linux-source-6.12",
            Box::new(without("/usr/src/linux-source-6.12.tar.xz")),
        ),
        (
            "source",
            Status::Fail,
            "linux-source-6.12=6.12.117-1",
            Box::new((|e| e.program("dpkg-query", "6.12.90-1")) as Break),
        ),
        ("configuration", Status::Fail, "linux-image", Box::new(without("/boot/config-6.12.117+deb12-amd64"))),
        ("compiler", Status::Warn, "configuration", Box::new(without("/boot/config-6.12.117+deb12-amd64"))),
        (
            "compiler",
            Status::Fail,
            "gcc-12=12.2.0-14+deb12u1",
            Box::new(
                (|e| e.program("x86_64-linux-gnu-gcc-12", "x86_64-linux-gnu-gcc-12 (Debian 12.2.0-14) 12.2.0"))
                    as Break,
            ),
        ),
        ("pahole", Status::Fail, "dwarves", Box::new((|e| drop(e.programs.remove("pahole"))) as Break)),
        ("build-tools", Status::Fail, "flex", Box::new((|e| drop(e.programs.remove("flex"))) as Break)),
        ("build-tools", Status::Fail, "libelf-dev", Box::new(without("/usr/include/gelf.h"))),
        (
            "headers",
            Status::Fail,
            "linux-headers-6.12.117",
            Box::new(without("/lib/modules/6.12.117+deb12-amd64/build/Makefile")),
        ),
        ("solver", Status::Fail, "apt-get install z3", Box::new((|e| drop(e.programs.remove("z3"))) as Break)),
        ("xk.ko", Status::Fail, "headers", Box::new((|e| drop(e.programs.remove("modinfo -F vermagic xk"))) as Break)),
        (
            "xk.ko",
            Status::Fail,
            "running kernel",
            Box::new((|e| e.program("modinfo -F vermagic xk", "6.12.90+deb12-amd64 SMP")) as Break),
        ),
        (
            "xk_tunable.ko",
            Status::Warn,
            "kernel/tunable",
            Box::new((|e| drop(e.programs.remove("modinfo -F vermagic xk_tunable"))) as Break),
        ),
    ];
    for (name, status, remedy, break_it) in cases {
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
    assert!(locked.found.contains("values are read and put back, every change is refused"), "{locked:?}");
    assert!(locked.remedy.unwrap().contains("require_signed=1"));

    env.file("/sys/module/xk/parameters/require_signed", "N\n");
    assert_eq!(check(&env, "lockdown").status, Status::Fail);
    env.file("/sys/module/xk/parameters/require_signed", "Y\n");
    let signed = check(&env, "lockdown");
    assert_eq!(signed.status, Status::Warn);
    assert!(signed.found.contains("signed tables are loaded and changed, others refused"), "{signed:?}");
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
