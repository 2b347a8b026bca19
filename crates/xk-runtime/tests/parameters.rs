//! Parameters that other modules describe, on a running kernel. One guest boots and runs every check of `inside`;
//! the tests out here report them one by one.
//!
//! Effects are what `/proc/xk_tunable_test` prints: the variables of the module itself.

#![allow(clippy::unwrap_used, clippy::expect_used)] // a test

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use xk_runtime::{abi, Hold, Parameter, ParameterDevice as Device, ParameterError as Error, Role, Values};
use xk_testing::guest::{insmod, run, wait_for, Guest};

static GUEST: Guest = Guest::new(
    1200,
    &[
        (TUNABLE_KO, "kernel/tunable"),
        (TEST_KO, "kernel/tunable_test:xk_tunable_test"),
        (BAD_KO, "kernel/tunable_test:xk_tunable_bad"),
    ],
);

xk_testing::guest_tests! {
    in GUEST:
    parameters_are_listed_whichever_module_comes_first,
    a_value_is_set_for_one_descriptor,
    what_the_module_does_not_take_is_an_error,
    a_descriptor_that_closes_gives_back,
    the_death_of_the_owner_gives_back,
    what_a_setter_refuses_to_put_back_is_tried_again,
    a_lease_that_ends_gives_back,
    what_is_kept_stays,
    what_somebody_else_set_stays,
    a_module_goes_with_a_value_that_is_set,
    a_setter_may_load_modules,
    malformed_descriptions_are_refused,
    malformed_requests_are_refused,
    meters_are_read,
    what_is_not_its_own_is_no_request,
    without_the_module_it_is_said_what_to_do,
}

/// What is tested: xk_tunable.ko. xk.ko is in none of these guests.
const TUNABLE_KO: &str = "XK_TEST_MODULE";
const TEST_KO: &str = "XK_TEST_TUNABLE";
const BAD_KO: &str = "XK_TEST_BAD";
const PROC: &str = "/proc/xk_tunable_test";

fn rmmod(module: &str) {
    assert!(!Path::new(&format!("/sys/module/{module}")).exists() || run("rmmod", &[module]), "{module}");
}

/// Fresh modules for each check, whatever the one before left behind.
fn prepare() {
    for module in ["xk_tunable", "xk_tunable_test", "xk_tunable_bad"] {
        rmmod(module);
    }
    insmod(TUNABLE_KO);
    insmod(TEST_KO);
}

fn variable(name: &str) -> i64 {
    let text = fs::read_to_string(PROC).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')).expect(name);
    line.parse().unwrap()
}

/// As somebody else does.
fn set_variable(name: &str, value: i64) {
    fs::write(PROC, format!("{name} {value}")).unwrap();
}

fn find(device: &Device, name: &str) -> Parameter {
    let found = device.parameters().unwrap().into_iter().find(|parameter| parameter.name == name);
    found.unwrap_or_else(|| panic!("no parameter {name}"))
}

fn set(device: &Device, name: &str, value: i64) -> Result<(), Error> {
    device.set_parameter(find(device, name).id, value, None)
}

/// Holds depth until it is killed.
#[test]
#[ignore = "started by other tests"]
fn hold() {
    if std::env::var_os("XK_TEST_HOLD").is_some() {
        let device = Device::open().unwrap();
        set(&device, "depth", 32).unwrap();
        std::thread::sleep(Duration::from_secs(600));
    }
}

fn holder() -> Child {
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "hold", "--nocapture"])
        .env("XK_TEST_HOLD", "1")
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    wait_for("the holder's value", || variable("depth") == 32);
    child
}

fn log() -> String {
    String::from_utf8_lossy(&Command::new("dmesg").output().unwrap().stdout).into_owned()
}

#[track_caller]
fn logged(words: &[&str]) {
    let log = log();
    assert!(log.lines().any(|line| words.iter().all(|word| line.contains(word))), "{words:?}: {log}");
}

mod checks {
    use super::*;

    fn names(device: &Device) -> Vec<String> {
        device
            .parameters()
            .unwrap()
            .iter()
            .map(|one| format!("{}:{}:{}", one.module, one.subsystem, one.name))
            .collect()
    }

    pub fn parameters_are_listed_whichever_module_comes_first() {
        let expected = ["cache:size", "queue:batch", "queue:depth", "queue:policy", "queue:width"];
        let expected = expected.map(|name| format!("xk_tunable_test:{name}"));
        assert_eq!(names(&Device::open().unwrap()), expected, "xk_tunable.ko was first");
        rmmod("xk_tunable");
        insmod(TUNABLE_KO);
        let device = Device::open().unwrap();
        assert_eq!(names(&device), expected, "the module was first");
        rmmod("xk_tunable_test");
        assert_eq!(names(&device), [""; 0]);

        insmod(TEST_KO);
        let depth = find(&device, "depth");
        assert_eq!(depth.values, Values::Numbers { min: 1, max: 64, step: 2, exponential: true });
        assert_eq!((depth.value, depth.default, depth.only_if, depth.hold), (Ok(4), 4, None, None));
        let words = ["fifo", "batch", "adaptive"].map(String::from).to_vec();
        assert_eq!(find(&device, "policy").values, Values::Choices(words));
        let batch = find(&device, "batch");
        assert_eq!(batch.only_if, Some(("policy".into(), 1)));
        assert_eq!((batch.settle, batch.revert), (Duration::from_millis(10), false));
        assert!(find(&device, "width").revert);
    }

    pub fn a_value_is_set_for_one_descriptor() {
        let (device, other) = (Device::open().unwrap(), Device::open().unwrap());
        let id = find(&device, "depth").id;
        device.set_parameter(id, 16, None).unwrap();
        assert_eq!(variable("depth"), 16);
        let held = |own| Some(Hold { owner: Some(std::process::id()), own, original: 4, lease: None });
        let depth = find(&device, "depth");
        assert_eq!((depth.value, depth.hold), (Ok(16), held(true)));
        assert_eq!(find(&other, "depth").hold, held(false));
        let refused = other.set_parameter(id, 8, None);
        assert!(
            matches!(&refused, Err(Error::Busy(why)) if why.contains(&std::process::id().to_string())),
            "{refused:?}"
        );
        assert!(matches!(other.keep_parameter(id), Err(Error::NotHeld(_))));
        assert_eq!((variable("depth"), variable("sets")), (16, 1));

        device.set_parameter(id, 32, None).unwrap();
        assert_eq!(find(&device, "depth").hold, held(true), "what it was before is what it was at first");
        device.set_parameter(id, 4, None).unwrap();
        assert_eq!((variable("depth"), find(&device, "depth").hold), (4, None));
        other.set_parameter(id, 8, None).unwrap();
        assert_eq!(variable("depth"), 8);
        device.set_parameter(find(&device, "policy").id, 2, None).unwrap();
        assert_eq!(variable("policy"), 2);
    }

    pub fn what_the_module_does_not_take_is_an_error() {
        let device = Device::open().unwrap();
        let refusal = |name, value| match set(&device, name, value) {
            Err(Error::Refused { reason, errno }) => (errno, reason),
            other => panic!("{name} = {value}: {other:?}"),
        };
        for (name, value) in [("depth", 0), ("depth", 65), ("policy", -1), ("policy", 3)] {
            assert_eq!(refusal(name, value).0, libc::ERANGE);
        }
        assert_eq!(variable("sets"), 0, "the setter was not asked");
        let (errno, reason) = refusal("batch", 20);
        assert!(errno == libc::EREMOTEIO && reason.contains("rejects 20 (error 22)"), "{errno}: {reason}");
        assert_eq!((variable("batch"), find(&device, "batch").hold), (8, None));

        set_variable("round", 1);
        let (errno, reason) = refusal("width", 3);
        assert!(errno == libc::EIO && reason.contains("was set to 3, but reads back differently: 2"), "{reason}");
        assert_eq!((variable("width"), find(&device, "width").hold), (2, None));
        set(&device, "width", 4).unwrap();
        refusal("width", 3);
        assert_eq!(variable("width"), 4, "it has what it had before");
        assert_eq!(find(&device, "width").hold.unwrap().original, 2);
        drop(device);
        assert_eq!(variable("width"), 2);
    }

    pub fn a_descriptor_that_closes_gives_back() {
        let device = Device::open().unwrap();
        for (name, value) in [("depth", 64), ("policy", 1), ("batch", 24)] {
            set(&device, name, value).unwrap();
            assert_eq!(variable(name), value);
        }
        drop(device);
        assert_eq!(["depth", "policy", "batch"].map(variable), [4, 0, 8]);
        assert!(Device::open().unwrap().parameters().unwrap().iter().all(|one| one.hold.is_none()));
    }

    pub fn the_death_of_the_owner_gives_back() {
        let mut owner = holder();
        owner.kill().unwrap();
        owner.wait().unwrap();
        wait_for("the value from before", || variable("depth") == 4);
        assert_eq!(find(&Device::open().unwrap(), "depth").hold, None);
    }

    pub fn what_a_setter_refuses_to_put_back_is_tried_again() {
        let mut owner = holder();
        set_variable("stubborn", 2);
        owner.kill().unwrap();
        owner.wait().unwrap();
        wait_for("the first time", || variable("sets") >= 2);
        let device = Device::open().unwrap();
        // Somebody who comes meanwhile gets no value that is about to change; who comes later gets it.
        match set(&device, "depth", 8) {
            Err(Error::Busy(_)) => {
                wait_for("the value from before", || variable("depth") == 4);
                assert_eq!(variable("sets"), 4, "set, twice refused, and put back");
            }
            early => {
                early.unwrap();
                assert_eq!((variable("depth"), variable("sets")), (8, 5), "it was put back before");
                set(&device, "depth", 4).unwrap();
            }
        }
        logged(&["depth: cannot be restored to 4 (error 16)", "tried again"]);
        assert_eq!(find(&device, "depth").hold, None);
        drop(device);

        // Removing xk_tunable.ko tries once more, and does not wait for what may never come.
        for (refusals, left) in [(1, 4), (1000, 8)] {
            let device = Device::open().unwrap();
            set(&device, "depth", 8).unwrap();
            set_variable("stubborn", refusals);
            drop(device);
            rmmod("xk_tunable");
            assert_eq!(variable("depth"), left);
            set_variable("depth", 4);
            set_variable("stubborn", 0);
            insmod(TUNABLE_KO);
        }
    }

    pub fn a_lease_that_ends_gives_back() {
        let device = Device::open().unwrap();
        let id = find(&device, "depth").id;
        let minute = Duration::from_secs(60);
        device.set_parameter(id, 16, Some(minute)).unwrap();
        let left = || find(&device, "depth").hold.unwrap().lease;
        assert!(left().is_some_and(|left| left <= minute && !left.is_zero()));
        device.lease_parameter(id, None).unwrap();
        assert_eq!(left(), None);
        device.lease_parameter(id, Some(Duration::from_millis(200))).unwrap();
        wait_for("the value from before", || variable("depth") == 4);
        assert!(matches!(device.lease_parameter(id, Some(minute)), Err(Error::NotHeld(_))));
        logged(&["xk_tunable_test: depth: its lease has expired"]);
        // Of two, the one that ends first.
        device.set_parameter(id, 16, Some(minute)).unwrap();
        device.set_parameter(find(&device, "size").id, 3, Some(Duration::from_millis(200))).unwrap();
        wait_for("the one that ends first", || variable("size") == 1);
        assert_eq!(variable("depth"), 16);
    }

    pub fn what_is_kept_stays() {
        let device = Device::open().unwrap();
        let id = find(&device, "depth").id;
        device.set_parameter(id, 16, Some(Duration::from_secs(60))).unwrap();
        device.keep_parameter(id).unwrap();
        assert_eq!(find(&device, "depth").hold, None);
        drop(device);
        rmmod("xk_tunable");
        assert_eq!(variable("depth"), 16);
    }

    pub fn what_somebody_else_set_stays() {
        let device = Device::open().unwrap();
        set(&device, "depth", 16).unwrap();
        set_variable("depth", 9);
        drop(device);
        assert_eq!(variable("depth"), 9);
        logged(&["depth: something else has set it to 9, which is kept"]);

        let device = Device::open().unwrap();
        set(&device, "depth", 16).unwrap();
        set_variable("depth", 7);
        assert!(matches!(set(&device, "depth", 32), Err(Error::NotHeld(why)) if why.contains("set it to 7")));
        assert_eq!((variable("depth"), find(&device, "depth").hold), (7, None));
        set(&device, "depth", 32).unwrap();
        drop(device);
        assert_eq!(variable("depth"), 7, "what it was before is theirs now");
    }

    pub fn a_module_goes_with_a_value_that_is_set() {
        let device = Device::open().unwrap();
        let id = find(&device, "depth").id;
        device.set_parameter(id, 16, Some(Duration::from_millis(500))).unwrap();
        rmmod("xk_tunable_test");
        assert_eq!(device.parameters().unwrap(), []);
        assert_eq!(device.meters().unwrap(), []);
        assert!(matches!(device.set_parameter(id, 8, None), Err(Error::Gone(_))));
        insmod(TEST_KO);
        assert_ne!(find(&device, "depth").id, id, "it is another one");
        assert!(matches!(device.set_parameter(id, 8, None), Err(Error::Gone(_))));
        std::thread::sleep(Duration::from_secs(1));
        drop(device);
        assert_eq!((variable("depth"), variable("sets")), (4, 0));
        assert!(run("rmmod", &["xk_tunable"]));
        assert!(run("rmmod", &["xk_tunable_test"]), "nothing is left that pins it");
    }

    pub fn a_setter_may_load_modules() {
        let loaded = || Path::new("/sys/module/dummy").exists();
        assert!(!loaded());
        set_variable("load", 1);
        let device = Device::open().unwrap();
        set(&device, "depth", 8).unwrap();
        assert!(loaded() && variable("depth") == 8);
        rmmod("dummy");
        drop(device);
        assert!(loaded() && variable("depth") == 4);
        rmmod("dummy");
    }

    /// What is wrong with each, as the kernel's log says.
    const WRONG: [(&str, &str); 35] = [
        ("magic", "no description"),
        ("api", "another version"),
        ("record", "neither a parameter nor a meter"),
        ("bytes", "another size"),
        ("spaced", "its name is no name"),
        ("unnamed", "its name is no name"),
        ("endless", "its name is no name"),
        ("homeless", "the name of its subsystem"),
        ("flags", "unknown flags"),
        ("getless", "no function of the module"),
        ("foreign", "no function of the module"),
        ("inverted", "its min is greater than its max"),
        ("outside", "its default is not among its values"),
        ("stepless", "linear steps add 1 or more"),
        ("doubling", "exponential steps multiply by 2"),
        ("negative", "do not start below 0"),
        ("steps", "it is unknown how to step"),
        ("dependent", "no other parameter of its subsystem"),
        ("selfish", "no other parameter of its subsystem"),
        ("unreachable", "its only_if_value is none"),
        ("second", "no other parameter of its subsystem"),
        ("third", "no other parameter of its subsystem"),
        ("choiceless", "its choices do not lie"),
        ("only", "less than 2 choices"),
        ("alike", "two of its choices are the same"),
        ("numeric", "begins with a letter"),
        ("writable", "does not lie in the module's read-only data"),
        ("named_in_data", "its name is no name"),
        ("role", "neither sensor nor target nor bottleneck"),
        ("share", "no share"),
        ("limitless", "beyond its limit of 0"),
        ("rated", "not for its role"),
        ("limited", "a target has no limit"),
        ("foreign_meter", "no function of the module"),
        ("nowhere", "does not lie in the module's read-only data"),
    ];

    pub fn malformed_descriptions_are_refused() {
        let before = log().lines().count();
        insmod(BAD_KO);
        let log = log();
        let said: BTreeMap<&str, &str> = log
            .lines()
            .skip(before)
            .filter_map(|line| line.split_once("xk: xk_tunable_bad: ")?.1.split_once(" is refused: "))
            .collect();
        for (name, why) in WRONG {
            assert!(said.get(name).is_some_and(|said| said.contains(why)), "{name}: {said:?}");
        }
        // Of two, one is left.
        for (one, other, why) in [
            ("once", "twice", "has its name"),
            ("first_sensor", "second_sensor", "has its name"),
            ("first_target", "second_target", "another one in this role"),
        ] {
            let said = [said.get(one), said.get(other)];
            assert!(said.iter().flatten().count() == 1 && said.iter().flatten().all(|it| it.contains(why)), "{said:?}");
        }
        assert_eq!(said.len(), WRONG.len() + 3, "{said:?}");
        let device = Device::open().unwrap();
        let ours = |module: &str| module == "xk_tunable_bad";
        let parameters = device.parameters().unwrap();
        let left: Vec<&str> = parameters.iter().filter(|one| ours(&one.module)).map(|one| &*one.name).collect();
        assert_eq!(left, ["good", "one_of_two"], "what is sound is not refused with the rest");
        let meters = device.meters().unwrap();
        let left: Vec<&str> = meters.iter().filter(|one| ours(&one.module)).map(|one| &*one.name).collect();
        let target = if said.contains_key("first_target") { "second_target" } else { "first_target" };
        assert_eq!(
            left,
            [target, "good_sensor", "one_of_two"].into_iter().collect::<BTreeSet<_>>().into_iter().collect::<Vec<_>>()
        );
        assert_eq!(find(&device, "good").value, Ok(1));
    }

    fn ioctl(device: &fs::File, change: &mut abi::ParameterChange) -> i32 {
        // SAFETY: the command's size is that of the structure.
        let result = unsafe {
            libc::ioctl(device.as_raw_fd(), libc::c_ulong::from(abi::IOC_PARAMETER_CHANGE), std::ptr::from_mut(change))
        };
        if result == 0 {
            0
        } else {
            std::io::Error::last_os_error().raw_os_error().unwrap()
        }
    }

    pub fn malformed_requests_are_refused() {
        let id = find(&Device::open().unwrap(), "depth").id;
        let device = fs::File::options().read(true).write(true).open("/dev/xk_tunable").unwrap();
        let right = abi::ParameterChange {
            size: size_of::<abi::ParameterChange>() as u32,
            id,
            op: abi::PARAMETER_SET,
            pad: 0,
            value: 8,
            lease_ns: 0,
            error: [0; abi::PARAMETER_ERROR_LEN],
        };
        for (errno, mut wrong) in [
            (libc::EINVAL, abi::ParameterChange { size: right.size - 1, ..right.clone() }),
            (libc::EINVAL, abi::ParameterChange { op: 3, ..right.clone() }),
            (libc::EINVAL, abi::ParameterChange { pad: 1, ..right.clone() }),
            (libc::EINVAL, abi::ParameterChange { op: abi::PARAMETER_LEASE, ..right.clone() }),
            (libc::EINVAL, abi::ParameterChange { lease_ns: u64::MAX, ..right.clone() }),
            (libc::ENOENT, abi::ParameterChange { id: id + 1000, ..right.clone() }),
            (libc::ESTALE, abi::ParameterChange { op: abi::PARAMETER_KEEP, value: 0, ..right.clone() }),
        ] {
            assert_eq!(ioctl(&device, &mut wrong), errno, "{wrong:?}");
        }
        assert_eq!((variable("depth"), variable("sets")), (4, 0));
        assert_eq!(ioctl(&device, &mut right.clone()), 0);
        assert_eq!(variable("depth"), 8);
    }

    pub fn meters_are_read() {
        let device = Device::open().unwrap();
        let read = |name: &str| device.meters().unwrap().into_iter().find(|meter| meter.name == name).unwrap();
        let score = read("score");
        assert_eq!((&*score.module, &*score.subsystem), ("xk_tunable_test", "queue"));
        assert_eq!(score.role, Role::Target { rate: false, minimise: false });
        assert_eq!(score.reading, Ok((variable("score") as u64, 0)));
        set(&device, "depth", 16).unwrap();
        assert_eq!(read("score").reading, Ok((variable("score") as u64, 0)));
        assert_ne!(read("score").reading, score.reading);
        assert_eq!(read("missed").role, Role::Target { rate: true, minimise: true });
        assert_eq!(read("waits").role, Role::Sensor(0.2));
        assert_eq!(read("thrashing").role, Role::Bottleneck(0.5));
        let (misses, lookups) = read("thrashing").reading.unwrap();
        wait_for("it goes on", || read("thrashing").reading.is_ok_and(|(more, _)| more > misses));
        assert!(read("thrashing").reading.unwrap().1 > lookups);
        assert!(read("thrashing").divided && !read("missed").divided);
        assert!(device.meters().unwrap().iter().all(|meter| meter.module == "xk_tunable_test"));
    }

    pub fn what_is_not_its_own_is_no_request() {
        let device = fs::File::open("/dev/xk_tunable").unwrap();
        for number in 0..64 {
            let command = abi::IOC_PARAMETER_VERSION & !0xff | number;
            let mut room = [0u8; 4096];
            // SAFETY: more than the structure of any request.
            let result = unsafe { libc::ioctl(device.as_raw_fd(), libc::c_ulong::from(command), room.as_mut_ptr()) };
            let errno = std::io::Error::last_os_error().raw_os_error();
            assert_eq!((result, errno), (-1, Some(libc::ENOTTY)), "{number}");
        }
    }

    pub fn without_the_module_it_is_said_what_to_do() {
        rmmod("xk_tunable");
        let refused = Device::open().unwrap_err();
        let said = refused.to_string();
        assert!(matches!(refused, Error::NotLoaded) && said.contains("modprobe xk_tunable"), "{said}");
        assert!(!Path::new("/sys/module/xk").exists(), "nor is xk.ko, which nothing here needs");
    }
}
