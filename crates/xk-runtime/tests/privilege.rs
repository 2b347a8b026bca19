//! Who may change something: descriptors that are open for reading only, callers without the
//! capability, and a kernel that is locked down. Lockdown lasts as long as the kernel runs: each check
//! of it boots a guest of its own.
//!
//! Effects are what `/proc/xk_target` prints, the return values of functions that contain a constant of 32.

#![allow(clippy::unwrap_used, clippy::expect_used)] // a test

#[allow(dead_code)] // shared with the tests of probes
mod support;

use std::fs;
use std::fs::File;
use std::path::Path;
use std::time::Duration;

use support::target::{fresh_target, target, target_module, write, TARGET_KO};
use support::{raw, set_register, table, Loaded, SiteSpec, RAX};
use xk_runtime::{abi, Device, Error, ParameterDevice, ParameterError, Tune};
use xk_table::ScopeTable;
use xk_testing::guest::{insmod, report_under_lockdown, run, wait_for, XK_KO};

xk_testing::guest_tests! {
    a_descriptor_for_reading_changes_nothing,
    a_descriptor_that_is_passed_on_changes_nothing,
    under_lockdown_values_are_read_and_put_back,
    a_parameter_is_set_by_who_may_change_something,
    under_lockdown_parameters_are_read_and_put_back,
}

/// xk_tunable.ko, and a module that describes parameters.
const TUNABLE_KO: &str = "XK_TEST_TUNABLE_MODULE";
const DESCRIBED_KO: &str = "XK_TEST_DESCRIBED";

fn report(name: &str) {
    let ours = [(XK_KO, "kernel/xk"), (TARGET_KO, "kernel/test"), (TUNABLE_KO, "kernel/tunable")];
    let described = [(DESCRIBED_KO, "kernel/tunable_test:xk_tunable_test")];
    report_under_lockdown(name, &[ours.as_slice(), &described].concat());
}

/// Fresh modules for each check, whatever the one before left behind.
fn prepare() {
    fresh_target();
    for module in ["xk", "xk_tunable", "xk_tunable_test"] {
        assert!(!Path::new(&format!("/sys/module/{module}")).exists() || run("rmmod", &[module]));
    }
    for module in [XK_KO, TUNABLE_KO, DESCRIBED_KO] {
        insmod(module);
    }
}

fn value_table() -> ScopeTable {
    table(&target_module(), "VALUE", vec![SiteSpec::new("xk_target_value", 5, 2, set_register(RAX))])
}

fn load(value: i64) -> Tune {
    let tune = Device::open().unwrap().load(&value_table(), &Loaded).unwrap();
    tune.set(value).unwrap();
    tune
}

/// What each call of /dev/xk and /dev/xk_tunable that changes something is answered: its name, the error, the reason.
fn changes([device, tunable]: [&File; 2], id: u32) -> Vec<(&'static str, Option<i32>, String)> {
    // SAFETY: integers and arrays of integers, of which zero is a value.
    let mut load: abi::Load = unsafe { std::mem::zeroed() };
    (load.size, load.abi) = (size_of::<abi::Load>() as u32, abi::ABI_VERSION);
    let change = [abi::Change { id, flags: 0, value: 99 }];
    let mut transition = raw::transition(&change);
    let mut lease = abi::Lease { id, pad: 0, ns: 1, error: [0; abi::ERROR_LEN] };
    let mut detach = abi::Detach { id, pad: 0, error: [0; abi::ERROR_LEN] };
    // SAFETY: as above.
    let mut policy: abi::Policy = unsafe { std::mem::zeroed() };
    (policy.size, policy.id, policy.program) = (size_of::<abi::Policy>() as u32, id, -1);
    // SAFETY: as above.
    let mut parameter: abi::ParameterChange = unsafe { std::mem::zeroed() };
    (parameter.size, parameter.id) = (size_of::<abi::ParameterChange>() as u32, u32::MAX);
    let errno = |result: std::io::Result<()>| result.err().and_then(|error| error.raw_os_error());
    vec![
        ("load", errno(raw::ioctl(device, abi::IOC_LOAD, &mut load)), raw::text(&load.error)),
        ("transition", errno(raw::ioctl(device, abi::IOC_TRANSITION, &mut transition)), raw::text(&transition.error)),
        ("lease", errno(raw::ioctl(device, abi::IOC_LEASE, &mut lease)), raw::text(&lease.error)),
        ("detach", errno(raw::ioctl(device, abi::IOC_DETACH, &mut detach)), raw::text(&detach.error)),
        ("policy", errno(raw::ioctl(device, abi::IOC_POLICY, &mut policy)), raw::text(&policy.error)),
        (
            "parameter",
            errno(raw::ioctl(tunable, abi::IOC_PARAMETER_CHANGE, &mut parameter)),
            raw::text(&parameter.error),
        ),
    ]
}

/// Each of the six is refused, and says why.
fn all_refused(answers: &[(&str, Option<i32>, String)], reason: &str) {
    assert_eq!(answers.len(), 6);
    for (name, errno, text) in answers {
        assert_eq!(*errno, Some(libc::EACCES), "{name}: {text}");
        assert!(text.contains(reason), "{name}: {text}");
    }
}

/// What reads is answered, through this descriptor.
fn reads(device: &File, value: i64) {
    let mut info = raw::tune_info(0);
    raw::ioctl(device, abi::IOC_TUNE_INFO, &mut info).unwrap();
    assert_eq!(info.value, value);
    // SAFETY: integers and arrays of integers, of which zero is a value.
    let mut site: abi::SiteInfo = unsafe { std::mem::zeroed() };
    site.id = info.id;
    raw::ioctl(device, abi::IOC_SITE_INFO, &mut site).unwrap();
    assert_eq!(raw::text(&site.symbol), "xk_target_value");
    // SAFETY: as above.
    let mut version: abi::Version = unsafe { std::mem::zeroed() };
    raw::ioctl(device, abi::IOC_VERSION, &mut version).unwrap();
    assert_eq!(version.abi, abi::ABI_VERSION);
    let mut room = [0u8; 64];
    let mut report = abi::Report { id: info.id, len: 64, text: room.as_mut_ptr() as u64 };
    raw::ioctl(device, abi::IOC_REPORT, &mut report).unwrap();
}

fn forbidden<T: std::fmt::Debug>(result: Result<T, Error>) -> String {
    match result {
        Err(Error::Forbidden(reason)) => reason,
        other => panic!("not forbidden: {other:?}"),
    }
}

fn described_device() -> File {
    File::options().read(true).write(true).open("/dev/xk_tunable").unwrap()
}

/// The parameter of the test module, as xk_tunable.ko knows it.
fn depth(device: &ParameterDevice) -> xk_runtime::Parameter {
    device.parameters().unwrap().into_iter().find(|one| one.name == "depth").unwrap()
}

/// The variable of the test module itself.
fn variable() -> String {
    let text = fs::read_to_string("/proc/xk_tunable_test").unwrap();
    text.lines().find_map(|line| line.strip_prefix("depth ")).unwrap().to_owned()
}

/// All that can be asked for a parameter is refused, for this reason.
fn parameter_refused(device: &ParameterDevice, reason: &str) {
    let id = depth(device).id;
    for result in [device.set_parameter(id, 8, None), device.lease_parameter(id, None), device.keep_parameter(id)] {
        assert!(matches!(&result, Err(ParameterError::Forbidden(said)) if said.contains(reason)), "{result:?}");
    }
}

mod checks {
    use super::*;

    pub fn a_descriptor_for_reading_changes_nothing() {
        let id = load(41).detach().unwrap();
        let device = File::open("/dev/xk").unwrap();
        let tunable = File::open("/dev/xk_tunable").unwrap();
        let answers = changes([&device, &tunable], id);
        all_refused(&answers, "open for reading only");
        for (name, _, text) in answers {
            let path = if name == "parameter" { "/dev/xk_tunable is" } else { "/dev/xk is" };
            assert!(text.contains(path), "{name}: {text}");
        }
        let back = [abi::Change { id, flags: abi::CHANGE_UNLOAD, value: 0 }];
        let unload = raw::ioctl(&device, abi::IOC_TRANSITION, &mut raw::transition(&back));
        assert_eq!(unload.unwrap_err().raw_os_error(), Some(libc::EACCES));
        reads(&device, 41);
        assert_eq!(target("value"), "41");

        let reader = Device::open_to_read().unwrap();
        assert_eq!(reader.tunes().unwrap()[0].value, 41);
        assert!(forbidden(reader.load(&value_table(), &Loaded)).contains("open for reading only"));
        assert!(forbidden(reader.set(id, 5)).contains("open for reading only"));
        assert!(forbidden(reader.lease(id, None)).contains("open for reading only"));
        assert!(forbidden(reader.detach(id)).contains("open for reading only"));
        assert!(forbidden(reader.take_policy(id)).contains("open it for reading and writing"));
        // One for writing only changes: it is the descriptor that decides, not what else it can do.
        let writer = File::options().write(true).open("/dev/xk").unwrap();
        raw::unload(&writer, id);
        assert_eq!(target("value"), "32");
    }

    /// Without privilege from here on; of this thread alone.
    fn give_up_root() {
        // SAFETY: the system call takes three numbers. It changes this thread, unlike the function of
        // the C library, which changes all of the process.
        assert_eq!(unsafe { libc::syscall(libc::SYS_setresuid, 65534, 65534, 65534) }, 0);
    }

    pub fn a_descriptor_that_is_passed_on_changes_nothing() {
        let tune = load(41);
        let id = tune.detach().unwrap();
        let device = raw::device();
        let tunable = described_device();
        let opened = Device::open().unwrap();
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                give_up_root();
                all_refused(&changes([&device, &tunable], id), "lacks CAP_SYS_ADMIN");
                reads(&device, 41);
                assert!(forbidden(opened.unload(id)).contains("lacks CAP_SYS_ADMIN"));
                assert!(forbidden(opened.take_policy(id)).contains("run it with sudo"));
            });
            thread.join().unwrap();
        });
        assert_eq!(target("value"), "41");
        // What has the capability goes on.
        opened.set(id, 42).unwrap();
        assert_eq!(target("value"), "42");
        opened.unload(id).unwrap();
        assert_eq!(target("value"), "32");
    }

    const LOCKDOWN: &str = "/sys/kernel/security/lockdown";

    pub(super) fn lock_down() {
        if !Path::new(LOCKDOWN).exists() {
            assert!(run("mount", &["-t", "securityfs", "securityfs", "/sys/kernel/security"]));
        }
        write(LOCKDOWN, "integrity");
        assert!(fs::read_to_string(LOCKDOWN).unwrap().contains("[integrity]"));
    }

    pub fn under_lockdown_values_are_read_and_put_back() {
        if std::env::var_os("XK_TEST_SHARED").is_some() {
            return; // Not where others run after it.
        }
        let id = load(41).detach().unwrap();
        let ends = table(&target_module(), "ENDS", vec![SiteSpec::new("xk_target_twice", 10, 2, set_register(1))]);
        let device = Device::open().unwrap();
        let ending = device.load(&ends, &Loaded).unwrap();
        ending.set(64).unwrap();
        device.lease(ending.id(), Some(Duration::from_secs(20))).unwrap();
        lock_down();

        let reason = "the kernel is locked down (/sys/kernel/security/lockdown)";
        let file = raw::device();
        all_refused(&changes([&file, &described_device()], id), reason);
        assert!(forbidden(device.set(id, 5)).contains(reason));
        assert!(forbidden(device.take_policy(id)).contains(reason));
        let refused = device.load(&value_table(), &Loaded).map(drop);
        assert!(forbidden(refused).contains(reason));
        reads(&File::open("/dev/xk").unwrap(), 41);
        assert_eq!(target("value"), "41");

        // Back, by who asks for it, and where nobody does.
        device.unload(id).unwrap();
        assert_eq!(target("value"), "32");
        wait_for("the end of the lease", || device.tunes().unwrap().is_empty());
        assert!(ending.status().is_err());
        let log = std::process::Command::new("dmesg").output().unwrap();
        assert!(String::from_utf8_lossy(&log.stdout).contains("Lockdown: "), "the kernel itself says it");
    }

    pub fn a_parameter_is_set_by_who_may_change_something() {
        let reader = ParameterDevice::open_to_read().unwrap();
        parameter_refused(&reader, "/dev/xk_tunable is open for reading only");
        assert!(!reader.meters().unwrap().is_empty());
        assert_eq!((depth(&reader).value, variable().as_str()), (Ok(4), "4"));

        let opened = ParameterDevice::open().unwrap();
        let id = depth(&opened).id;
        opened.set_parameter(id, 16, None).unwrap();
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                give_up_root();
                parameter_refused(
                    &opened,
                    "lacks CAP_SYS_ADMIN, which it needs itself to change anything through /dev/xk_tunable",
                );
                assert_eq!(depth(&opened).value, Ok(16), "it reads");
                assert!(matches!(ParameterDevice::open(), Err(ParameterError::NotRoot)));
            });
            thread.join().unwrap();
        });
        assert_eq!(variable(), "16");
        // What has the capability goes on.
        opened.set_parameter(id, 32, None).unwrap();
        assert_eq!(variable(), "32");
        drop(opened);
        assert_eq!(variable(), "4");
    }

    pub fn under_lockdown_parameters_are_read_and_put_back() {
        if std::env::var_os("XK_TEST_SHARED").is_some() {
            return; // Not where others run after it.
        }
        let (held, device) = (ParameterDevice::open().unwrap(), ParameterDevice::open().unwrap());
        held.set_parameter(depth(&held).id, 16, None).unwrap();
        lock_down();
        let reason = "the kernel is locked down (/sys/kernel/security/lockdown)";
        for one in [&held, &device] {
            parameter_refused(one, reason);
            assert_eq!(depth(one).value, Ok(16), "it reads");
        }
        assert_eq!(variable(), "16");
        drop(held);
        assert_eq!(variable(), "4", "what was set before goes back");
    }
}
