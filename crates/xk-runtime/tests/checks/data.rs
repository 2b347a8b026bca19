//! Constants that only initialise a static object.

use std::fs;

use crate::support::{listed, object, set_register, table, Loaded, SiteSpec, MODULE, RAX};
use crate::{altered, insmod, load, load_at, message, run, target, target_module, write, Error, TARGET_KO};
use xk_runtime::{AddressError, AddressOf, Probe, Tune};
use xk_table::{DataSite, Fit, Function, ScopeTable};

fn data_table(name: &str, data: Vec<DataSite>) -> ScopeTable {
    let mut table = table(&target_module(), name, Vec::new());
    table.data = data;
    table
}

pub(super) fn word() -> DataSite {
    object("xk_target_limits", 8, 4)
}

fn limits() -> ScopeTable {
    let fields = [(0, 8), (8, 4), (12, 2), (14, 1)];
    data_table("LIMITS", fields.map(|(offset, width)| object("xk_target_limits", offset, width)).into())
}

fn probes(tune: &Tune) -> Vec<Probe> {
    tune.status().unwrap().sites.iter().map(|site| site.probe).collect()
}

pub fn an_object_holds_the_transformed_value() {
    let site = DataSite { fit: Fit::linear(2, -32, 4), ..word() };
    let mut both = data_table("FITTED", vec![site]);
    both.functions =
        table(&target_module(), "", vec![SiteSpec::new("xk_target_value", 5, 2, set_register(RAX))]).functions;
    both.spans = table(&target_module(), "", vec![SiteSpec::new("xk_target_value", 5, 2, set_register(RAX))]).spans;
    let tune = load(&both, 50).unwrap();
    assert_eq!((target("limits").as_str(), target("value").as_str()), ("32 68 32 32", "50"));
    tune.unload().unwrap();
    assert_eq!((target("limits").as_str(), target("value").as_str()), ("32 32 32 32", "32"));
}

pub fn what_somebody_else_wrote_stays() {
    let tune = load(&limits(), 100).unwrap();
    write("/proc/xk_target", "limit 77");
    let status = tune.status().unwrap();
    assert!(status.broken);
    assert_eq!(probes(&tune), [Probe::Data, Probe::Drifted, Probe::Data, Probe::Data]);
    assert_eq!(status.sites[1].reason.as_deref(), Some("holds 77, xk wrote 100"));
    tune.set(101).unwrap();
    assert_eq!(target("limits"), "101 77 101 101");
    // What xk wrote last is there again, and it follows.
    write("/proc/xk_target", "limit 100");
    assert_eq!(probes(&tune), [Probe::Data; 4]);
    tune.set(102).unwrap();
    assert_eq!(target("limits"), "102 102 102 102");
    write("/proc/xk_target", "limit 77");
    tune.unload().unwrap();
    assert_eq!(target("limits"), "32 77 32 32");
    let refused = message(load(&limits(), 100));
    assert!(
        refused.contains("xk_target_limits+0x8: holds 77 instead of the default 32: something else changed it"),
        "{refused}"
    );
    assert_eq!(target("limits"), "32 77 32 32");
    write("/proc/xk_target", "limit 32");
    load(&limits(), 100).unwrap();
}

pub fn an_object_with_another_default_is_left_alone() {
    let tune = load(&limits(), 101).unwrap();
    assert!(run("rmmod", &[MODULE]));
    let word = word();
    let path = altered("xk_target_limits", word.offset.into(), 33);
    assert!(run("insmod", &[path.to_str().unwrap()]));
    assert_eq!(target("limits"), "101 33 101 101");
    let status = tune.status().unwrap();
    assert_eq!((status.broken, status.sites[1].probe), (true, Probe::Broken));
    let reason = status.sites[1].reason.as_deref().unwrap();
    assert!(reason.contains("holds 33 instead of the default 32"), "{reason}");
    tune.unload().unwrap();
    assert_eq!(target("limits"), "32 33 32 32");
}

/// Second mappings that `xk.ko` has made, by who called `vmap()`.
fn windows() -> usize {
    let areas = fs::read_to_string("/proc/vmallocinfo").unwrap();
    areas.lines().filter(|line| line.contains("[xk") && line.contains(" vmap")).count()
}

/// Constant data.
pub(super) fn fixed_object() -> DataSite {
    object("xk_target_fixed", 0, 4)
}

fn fixed() -> ScopeTable {
    data_table("FIXED", vec![fixed_object()])
}

pub fn constant_data_of_a_module_are_set_and_put_back() {
    assert_eq!((target("fixed").as_str(), windows()), ("32", 0));
    let tune = load(&fixed(), 100).unwrap();
    assert_eq!((target("fixed").as_str(), windows()), ("100", 0));
    assert_eq!(probes(&tune), [Probe::Data]);
    tune.set(7).unwrap();
    // Also while it is in force, nothing is left through which it could be written.
    assert_eq!((target("fixed").as_str(), windows()), ("7", 0));
    // For everybody else it is sealed as before.
    let written = fs::write("/proc/xk_target", "fixed 77");
    assert_eq!(written.unwrap_err().raw_os_error(), Some(libc::EFAULT));
    assert_eq!(target("fixed"), "7");
    tune.unload().unwrap();
    assert_eq!((target("fixed").as_str(), windows()), ("32", 0));
    drop(load(&fixed(), 100).unwrap());
    assert_eq!((target("fixed").as_str(), windows()), ("32", 0));
    // One that is refused keeps no mapping.
    let other = DataSite { fit: Fit::linear(1, 1, 4), ..object("xk_target_fixed", 0, 4) };
    let sentence = message(load(&data_table("OTHER", vec![other]), 100));
    assert!(sentence.contains("xk_target_fixed+0x0: holds 32 instead of the default 33"), "{sentence}");
    assert_eq!((target("fixed").as_str(), windows()), ("32", 0));
}

pub fn constant_data_wait_for_their_module() {
    let tune = load(&fixed(), 100).unwrap();
    for value in ["100", "101"] {
        assert_eq!((target("fixed"), windows()), (value.to_owned(), 0));
        assert!(run("rmmod", &[MODULE]));
        assert_eq!((probes(&tune).as_slice(), windows()), ([Probe::Waiting].as_slice(), 0));
        tune.set(101).unwrap();
        insmod(TARGET_KO);
    }
    assert_eq!(target("fixed"), "101");
    tune.detach().unwrap();
    assert!(run("rmmod", &["xk"]));
    assert_eq!((target("fixed").as_str(), windows()), ("32", 0));
}

pub fn an_object_that_is_none_is_refused() {
    let refused = |data: DataSite| message(load(&data_table("WRONG", vec![data]), 100));
    let sentence = refused(object("xk_target_sealed", 0, 4));
    assert!(sentence.contains("module xk_target has no object xk_target_sealed that can be changed"), "{sentence}");
    assert_eq!(target("sealed"), "32");
    let sentence = refused(DataSite { offset: 9, ..word() });
    assert!(sentence.contains("not aligned to 4 bytes"), "{sentence}");
    let sentence = refused(DataSite { symbol: "xk_target_bias".into(), ..word() });
    assert!(sentence.contains("no such object of xk_target"), "{sentence}");
    let sentence = refused(DataSite { offset: 1 << 20, ..word() });
    assert!(sentence.contains("no such object of xk_target"), "{sentence}");
    let sentence = refused(DataSite { fit: Fit::linear(1, 1, 4), ..word() });
    assert!(sentence.contains("holds 32 instead of the default 33"), "{sentence}");
    let twice = message(load(&data_table("TWICE", vec![word(), word()]), 100));
    assert!(twice.contains("two sites at the same place"), "{twice}");
    let first = load(&data_table("FIRST", vec![word()]), 32).unwrap();
    let second = load(&data_table("SECOND", vec![DataSite { width: 2, fit: Fit::linear(1, 0, 2), ..word() }]), 100);
    assert!(
        matches!(&second, Err(Error::Busy(text)) if text.contains("held by") && text.contains("FIRST")),
        "{second:?}"
    );
    drop(first);
    assert_eq!(target("limits"), "32 32 32 32");
}

/// An object of vmlinux by its name.
struct Vmlinux(&'static str);

impl AddressOf for Vmlinux {
    fn address(&self, function: &Function) -> Result<Option<u64>, AddressError> {
        Loaded.address(function)
    }

    fn data_address(&self, _: &DataSite) -> Result<Option<u64>, AddressError> {
        listed(self.0).map(Some)
    }
}

fn in_vmlinux(symbol: &'static str, offset: u32, width: u8) -> Result<Tune, Error> {
    // The default is 32, the object's is 60.
    let fit = Fit::linear(1, 28, width);
    let site = DataSite { symbol: symbol.into(), module: None, offset, width, fit, ..word() };
    load_at(&data_table("VMLINUX", vec![site]), 42, &Vmlinux(symbol))
}

/// A constant of the kernel and of a module that is not loaded.
pub fn the_rest_is_in_force_while_a_site_waits() {
    let swappiness = || fs::read_to_string("/proc/sys/vm/swappiness").unwrap().trim().to_owned();
    let mut both = table(&target_module(), "BOTH", vec![SiteSpec::new("xk_target_value", 5, 2, set_register(RAX))]);
    both.data = vec![DataSite {
        symbol: "vm_swappiness".into(),
        module: None,
        offset: 0,
        fit: Fit::linear(1, 28, 4),
        ..word()
    }];
    assert!(run("rmmod", &[MODULE]));
    let tune = load_at(&both, 42, &Vmlinux("vm_swappiness")).unwrap();
    assert_eq!((swappiness().as_str(), probes(&tune).as_slice()), ("70", [Probe::Waiting, Probe::Data].as_slice()));
    insmod(TARGET_KO);
    assert_eq!((swappiness().as_str(), target("value").as_str()), ("70", "42"));
    assert!(run("rmmod", &[MODULE]));
    assert_eq!((swappiness().as_str(), probes(&tune).as_slice()), ("70", [Probe::Waiting, Probe::Data].as_slice()));
    tune.set(43).unwrap();
    assert_eq!(swappiness(), "71");
    insmod(TARGET_KO);
    assert_eq!(target("value"), "43");
    tune.unload().unwrap();
    assert_eq!((swappiness().as_str(), target("value").as_str()), ("60", "32"));
}

pub fn an_object_of_the_kernel_is_set_and_put_back() {
    const SWAPPINESS: &str = "/proc/sys/vm/swappiness";
    let swappiness = || fs::read_to_string(SWAPPINESS).unwrap().trim().to_owned();
    assert_eq!(swappiness(), "60");
    let tune = in_vmlinux("vm_swappiness", 0, 4).unwrap();
    assert_eq!(swappiness(), "70");
    // The administrator has the last word.
    write(SWAPPINESS, "10");
    assert_eq!(probes(&tune), [Probe::Drifted]);
    tune.unload().unwrap();
    assert_eq!(swappiness(), "10");
    assert!(message(in_vmlinux("vm_swappiness", 0, 4)).contains("holds 10 instead of the default 60"));
    write(SWAPPINESS, "60");
    in_vmlinux("vm_swappiness", 0, 4).unwrap().unload().unwrap();
    assert_eq!(swappiness(), "60");
    assert!(message(in_vmlinux("vm_swappiness", 4096, 4)).contains("beyond the object"));
    // Constant; sealed after initialisation; code.
    for symbol in ["linux_banner", "rodata_enabled", "schedule"] {
        let sentence = message(in_vmlinux(symbol, 0, 1));
        assert!(sentence.contains(&format!("{symbol}+0x0: this memory is read-only")), "{sentence}");
    }
}
