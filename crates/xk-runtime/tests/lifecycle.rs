//! The life of a tune on a running kernel, the same for each way in which its constant is reached. One guest boots and
//! runs every check of `inside` once per way; the tests out here report them one by one.
//!
//! Effects are what `/proc/xk_target` prints: the return values of functions that contain a constant of 32, and the
//! values of an object that the constant initialises.

#![allow(clippy::unwrap_used, clippy::expect_used)] // a test

#[allow(dead_code)] // shared with the tests of each way
mod support;

use std::process::{Child, Command, Stdio};
use std::time::Duration;

use support::target::{fresh_target, message, running, target, target_module, TARGET_KO};
use support::{held, object, set_register, table, windowed, Loaded, SiteSpec, MODULE, RAX};
use xk_harness::Atomic;
use xk_runtime::{Backend, Device, Error, Probe, Tune};
use xk_table::{Fit, Patch, ScopeTable};
use xk_testing::guest::atomic::{fresh_atomic, ATOMIC_KO};
use xk_testing::guest::{insmod, remove_xk, run, wait_for, Guest, XK_KO};

static GUEST: Guest =
    Guest::new(1200, &[(XK_KO, "kernel/xk"), (TARGET_KO, "kernel/test"), (ATOMIC_KO, "kernel/atomic")]);

/// Declares each check once per way: the test that reports it, and the one that runs in the guest.
macro_rules! lives {
    (@report $module:ident: $($name:ident)*) => {
        mod $module {
            $(#[test] fn $name() { crate::GUEST.report(concat!(stringify!($module), "::", stringify!($name))); })*
        }
    };
    (@run $module:ident $way:ident: $($name:ident)*) => {
        mod $module {
            $(#[test] #[ignore = "runs in a guest, started by the test of the same name"]
            fn $name() { crate::prepare(); crate::checks::$name(crate::Way::$way); })*
        }
    };
    ($($name:ident),* $(,)?) => {
        lives!(@report kprobe: $($name)*);
        lives!(@report detour: $($name)*);
        lives!(@report patch: $($name)*);
        lives!(@report data: $($name)*);

        mod inside {
            lives!(@run kprobe Kprobe: $($name)*);
            lives!(@run detour Detour: $($name)*);
            lives!(@run patch Patch: $($name)*);
            lives!(@run data Data: $($name)*);
        }
    };
}

lives! {
    a_value_changes_and_returns,
    the_original_bytes_come_back,
    a_module_comes_with_the_value,
    a_site_waits_for_its_module,
    threads_that_register_kprobes_prevent_nothing,
    xk_can_be_removed_while_a_site_waits,
    removing_xk_returns_the_default,
    the_death_of_the_owner_returns_the_default,
    sigkill_of_the_owner_returns_the_default,
    a_detached_tune_survives_its_owner,
    an_owned_tune_is_nobody_elses,
    the_end_of_a_lease_returns_the_default,
    the_same_constant_twice_is_busy,
    the_same_place_twice_is_busy,
    what_is_not_what_was_analysed_is_refused,
}

/// Names the way in which the process of [`hold`] reaches the constant.
const HOLD: &str = "XK_TEST_HOLD";

/// Not a test: a process that holds a tune until it is killed.
#[test]
#[ignore = "started by other tests"]
fn hold() {
    let Ok(name) = std::env::var(HOLD) else { return };
    let ways = [Way::Kprobe, Way::Detour, Way::Patch, Way::Data];
    let way = ways.into_iter().find(|way| format!("{way:?}") == name).unwrap();
    let _tune = way.value(99);
    std::thread::sleep(Duration::from_secs(600));
}

/// Fresh modules for each check, whatever the one before left behind.
fn prepare() {
    remove_xk();
    fresh_target();
    insmod(XK_KO);
}

/// How the constant is reached: by one of the backends, or as the initial value of an object.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Way {
    Kprobe,
    Detour,
    Patch,
    Data,
}

impl Way {
    fn backend(self) -> Backend {
        match self {
            Self::Kprobe | Self::Data => Backend::Kprobe,
            Self::Detour => Backend::Detour,
            Self::Patch => Backend::Patch,
        }
    }

    /// VALUE: `mov $32,%eax` in `xk_target_value`, or four numbers of an object.
    fn table(self) -> ScopeTable {
        let site = SiteSpec::new("xk_target_value", 5, 2, set_register(RAX));
        match self {
            Self::Kprobe => table(&target_module(), "VALUE", vec![site]),
            Self::Detour => windowed(table(&target_module(), "VALUE", vec![site]), &[5]),
            Self::Patch => {
                let number = Patch { offset: 0, insn_len: 5, field: 1, size: 4, width: 4, iv: 0 };
                held(table(&target_module(), "VALUE", vec![site]), &[&[number]])
            }
            Self::Data => {
                let fields = [(0, 8), (8, 4), (12, 2), (14, 1)];
                let data = fields.map(|(offset, width)| object("xk_target_limits", offset, width)).into();
                ScopeTable { data, ..table(&target_module(), "VALUE", Vec::new()) }
            }
        }
    }

    fn load(self, table: &ScopeTable, value: i64) -> Result<Tune, Error> {
        let tune = Device::open().unwrap().load_by(table, &Loaded, self.backend())?;
        tune.set(value)?;
        Ok(tune)
    }

    fn value(self, value: i64) -> Tune {
        self.load(&self.table(), value).unwrap()
    }

    /// What the module prints of the constant.
    fn seen(self) -> String {
        target(if self == Self::Data { "limits" } else { "value" })
    }

    /// What it prints when this value is in force.
    fn of(self, value: i64) -> String {
        let times = if self == Self::Data { 4 } else { 1 };
        vec![value.to_string(); times].join(" ")
    }

    /// What the module had when it was initialised.
    fn seen_at_init(self) -> String {
        let init = target("init");
        let (code, object) = init.split_once(' ').unwrap();
        (if self == Self::Data { object } else { code }).to_owned()
    }

    /// The code; an object is what [`Self::seen`] prints.
    fn text(self) -> Vec<u8> {
        running("text")
    }

    /// Whether a site of this way is in force.
    fn is_in_force(self, probe: Probe) -> bool {
        match self {
            Self::Kprobe => matches!(probe, Probe::Int3 | Probe::Jump),
            Self::Detour => probe == Probe::Detour,
            Self::Patch => probe == Probe::Patch,
            Self::Data => probe == Probe::Data,
        }
    }

    /// All of its sites are in force.
    #[track_caller]
    fn holds(self, tune: &Tune) {
        let status = tune.status().unwrap();
        assert!(!status.broken && status.sites.iter().all(|site| self.is_in_force(site.probe)), "{status:?}");
    }

    /// The default is back when an owner has gone: at once where nobody is waited for.
    #[track_caller]
    fn owner_has_gone(self, before: &[u8]) {
        if !matches!(self, Self::Kprobe | Self::Data) {
            wait_for("the default", || self.seen() == self.of(32));
        }
        assert_eq!(self.seen(), self.of(32));
        if self == Self::Patch {
            assert_eq!(self.text(), before);
        }
        // Probes and jumps go in the background.
        wait_for("the original bytes", || self.text() == before);
        wait_for("it is gone", || Device::open().unwrap().tunes().unwrap().is_empty());
    }

    /// The default is back, and with it the code: at once, but for probes, of which the kernel makes jumps.
    #[track_caller]
    fn is_as_before(self, before: &[u8]) {
        assert_eq!(self.seen(), self.of(32));
        if self == Self::Kprobe {
            wait_for("the original bytes", || self.text() == before);
        }
        assert_eq!(self.text(), before);
    }
}

#[path = "checks/lifecycle.rs"]
mod checks;
