//! The tuner as `packaging/xk-tune@.service` runs it, under a systemd of its own: that it is ready, has no more rights
//! than the unit gives it, is killed and started again when it hangs, and ends when it is told to.

use super::*;

/// What this systemd has instead of the machine's units.
const UNITS: &str = "/run/units";
const UNIT: &str = "xk-tune@search.service";
/// The unit's own times are of machines that are not emulated; the target is in the repository, which may be in `/tmp`.
const SHORTER: &str = "[Service]\nWatchdogSec=60s\nRestartSec=1s\nEnvironment=XK_STORE=/var/lib/tables\n\
                       StandardOutput=append:/run/units/said\nStandardError=append:/run/units/said\n";

/// As process 1 of a namespace: it takes nothing of the guest but what its units ask for.
struct Systemd(Child);

impl Systemd {
    fn start() -> Self {
        let units = Path::new(UNITS);
        let file = |name: &str, text: &str| fs::write(units.join(name), text).unwrap();
        fs::create_dir_all(units.join("xk-tune@.service.d")).unwrap();
        fs::copy(repository().join("packaging/xk-tune@.service"), units.join("xk-tune@.service")).unwrap();
        let target = format!("BindReadOnlyPaths={}\n", repository().display());
        file("xk-tune@.service.d/shorter.conf", &[SHORTER, &target].concat());
        for target in ["default", "sysinit", "basic", "shutdown", "umount", "final"] {
            file(&format!("{target}.target"), "[Unit]\nDefaultDependencies=no\n");
        }
        let systemd = ["/usr/lib/systemd/systemd", "--system", "--log-target=null", "--show-status=no"];
        let child = Command::new("unshare")
            .args(["--pid", "--fork", "--kill-child", "--mount", "--mount-proc"])
            .args(systemd)
            .envs([("SYSTEMD_UNIT_PATH", UNITS), ("container", "xk-lab")])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let systemd = Self(child);
        wait_until("systemd answers", || systemd.control(&["is-system-running"]).trim() == "running");
        systemd
    }

    /// What `systemctl` says; nothing, before there is anybody to ask. It answers in its own namespaces only.
    fn control(&self, arguments: &[&str]) -> String {
        let unshare = self.0.id();
        let child = fs::read_to_string(format!("/proc/{unshare}/task/{unshare}/children")).unwrap();
        let inside = ["--target", child.trim(), "--pid", "--mount", "systemctl"];
        let output = Command::new("nsenter").args(inside).args(arguments).output().unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    fn property(&self, name: &str) -> String {
        self.control(&["show", UNIT, "--value", "--property", name]).trim().to_owned()
    }

    /// A property that is a number; 0, while it is none.
    fn number(&self, name: &str) -> u64 {
        self.property(name).parse().unwrap_or(0)
    }

    /// Waits; what systemd and the tuner know is told when it does not happen.
    #[track_caller]
    fn until(&self, what: &str, condition: impl Fn() -> bool) {
        let deadline = Instant::now() + Duration::from_secs(600);
        while !condition() {
            if Instant::now() > deadline {
                let said = fs::read_to_string(Path::new(UNITS).join("said")).unwrap_or_default();
                panic!("it never happened that {what}:\n{}\n{said}", self.control(&["show", UNIT]));
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}

impl Drop for Systemd {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The tuner, as this namespace numbers it.
fn tuner() -> Option<String> {
    let list = fs::read_dir("/proc").unwrap().flatten();
    let is_tuner = |pid: &String| {
        let words = fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        words.starts_with("/usr/bin/xk\0tune\0--daemon")
    };
    list.filter_map(|entry| entry.file_name().into_string().ok()).find(is_tuner)
}

/// The capabilities that a process may ever have, as the kernel says.
fn bounding_set(pid: &str) -> u64 {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let set = text.lines().find_map(|line| line.strip_prefix("CapBnd:")).unwrap();
    u64::from_str_radix(set.trim(), 16).unwrap()
}

/// CAP_KILL, NET_ADMIN, SYS_ADMIN, SYS_NICE, SYSLOG, DAC_READ_SEARCH (linux/capability.h).
const GIVEN: u64 = 1 << 5 | 1 << 12 | 1 << 21 | 1 << 23 | 1 << 34 | 1 << 2;

pub fn systemd_starts_it_again_when_it_hangs() {
    fs::copy(env!("CARGO_BIN_EXE_xk"), "/usr/bin/xk").unwrap();
    let store = std::env::var("XK_STORE").unwrap();
    assert!(run("cp", &["-r", &store, "/var/lib/tables"]));
    fs::create_dir_all("/etc/xk/tune").unwrap();
    fs::copy(describe("128, 1024", ""), "/etc/xk/tune/search.toml").unwrap();
    let systemd = Systemd::start();
    // Type=notify: that it has started means that the tuner has said so.
    systemd.control(&["start", UNIT]);
    systemd.until("it is ready", || systemd.property("ActiveState") == "active");
    systemd.until("the tuner is at work", || tuner().is_some());
    assert_eq!(bounding_set(&tuner().unwrap()), GIVEN);
    systemd.until("it says what it does", || systemd.property("StatusText").starts_with("trial "));
    systemd.until("a knob is changed", || knobs() != untouched());

    // The watchdog may bite a tuner that a busy host keeps waiting, too: what counts are the restarts from here on.
    let restarts = systemd.number("NRestarts");
    systemd.until("it hangs", || tuner().is_some_and(|pid| run("kill", &["-STOP", &pid])));
    systemd.until("the watchdog bites", || systemd.number("NRestarts") > restarts);
    systemd.until("it is ready again", || systemd.property("ActiveState") == "active");
    systemd.until("it runs", || systemd.property("SubState") == "running");
    contains(&systemd.control(&["show", UNIT]), &["KillMode=process"]);
    systemd.until("it has found what is better, and keeps it", || {
        systemd.property("StatusText").contains("better than the default") && knobs() == ("1024".into(), vec![128])
    });
    assert_eq!(reported("plug"), 128);
    // One process says for longer than the watchdog's time that it is alive.
    systemd.until("the watchdog hears of it", || {
        let started = systemd.number("ExecMainStartTimestampMonotonic");
        systemd.number("WatchdogTimestampMonotonic").saturating_sub(started) > 75_000_000
    });

    said(0, Command::new("/usr/bin/xk").args(["tune", "stop"]));
    systemd.until("it has ended", || systemd.property("ActiveState") == "inactive");
    assert_eq!(systemd.property("Result"), "success");
    said(0, Command::new("/usr/bin/xk").args(["tune", "revert"]));
    assert_eq!(knobs(), untouched());
    said(0, Command::new("/usr/bin/xk").args(["tune", "resume"]));
}
