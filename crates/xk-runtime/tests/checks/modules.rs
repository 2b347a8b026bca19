//! Sites in modules that come and go.

use crate::support::{function, set_register, table, SiteSpec, MODULE, RAX, RDI};
use crate::{
    altered, compare, insmod, load, load_at, only_site, run, target, target_module, value_table, Device, Duration,
    Error, TARGET_KO,
};
use xk_runtime::{Destination, Mode, Probe};
use xk_table::{Scope, ScopeTable};

fn rmmod_target() {
    assert!(run("rmmod", &[MODULE]));
}

fn two_functions() -> ScopeTable {
    let sites = vec![
        SiteSpec::new("xk_target_value", 5, 2, set_register(RAX)),
        SiteSpec::new("xk_target_compare", 5, 3, compare(RDI, false)),
    ];
    table(&target_module(), "BOTH", sites)
}

/// It cannot be kept out, and what is not verified is not touched.
pub fn a_module_with_other_code_is_left_alone() {
    rmmod_target();
    let tune = load(&two_functions(), 50).unwrap();
    assert!(run("insmod", &[altered("xk_target_value", 1, 33).to_str().unwrap()]));
    assert_eq!((target("value").as_str(), target("compare").as_str()), ("33", "0"));
    let status = tune.status().unwrap();
    assert!(status.broken);
    assert_eq!(status.sites[0].probe, Probe::Broken);
    assert_eq!(status.sites[0].reason.as_deref(), Some("xk_target_value+0x1: expected 20, running 21"));
    assert!(matches!(status.sites[1].probe, Probe::Int3 | Probe::Jump));
    let log = std::process::Command::new("dmesg").output().unwrap();
    assert!(String::from_utf8_lossy(&log.stdout).contains("xk_target_value+0x1: expected 20, running 21"));
    // A value goes where it can.
    tune.set(39).unwrap();
    assert_eq!((target("value").as_str(), target("compare").as_str()), ("33", "1"));
    // The module that was analysed comes back.
    rmmod_target();
    let status = tune.status().unwrap();
    assert!(!status.broken && status.sites.iter().all(|site| site.probe == Probe::Waiting && site.reason.is_none()));
    insmod(TARGET_KO);
    assert_eq!((target("value").as_str(), target("compare").as_str()), ("39", "1"));
    assert!(!tune.status().unwrap().broken);
    tune.unload().unwrap();
    assert_eq!(target("value"), "32");
}

/// The second of two functions of one name, as a static function would be.
fn twin() -> ScopeTable {
    let mut table =
        table(&target_module(), "TWIN", vec![SiteSpec::new("xk_target_twin_there", 5, 2, set_register(RAX))]);
    table.functions = vec![function(&target_module(), "xk_target_twin_there")];
    table.functions[0].symbol = "xk_target_twin".into();
    table
}

pub fn a_function_is_found_by_its_bytes() {
    assert_eq!(target("twins"), "32 33");
    let tune = load(&twin(), 50).unwrap();
    assert_eq!(target("twins"), "32 50");
    rmmod_target();
    insmod(TARGET_KO);
    assert_eq!(target("twins"), "32 50");
    // The address is known when it is loaded, and looked for when it comes: the same.
    tune.unload().unwrap();
    rmmod_target();
    let tune = load(&twin(), 51).unwrap();
    insmod(TARGET_KO);
    assert_eq!(target("twins"), "32 51");
    rmmod_target();
    // Neither is the one that was analysed.
    assert!(run("insmod", &[altered("xk_target_twin_there", 1, 34).to_str().unwrap()]));
    assert_eq!(target("twins"), "32 34");
    let reason = only_site(&tune).reason.unwrap();
    assert!(reason.contains("none of the 2 functions xk_target_twin"), "{reason}");
    rmmod_target();
    // Both are.
    assert!(run("insmod", &[altered("xk_target_twin_here", 1, 33).to_str().unwrap()]));
    assert_eq!(target("twins"), "33 33");
    let reason = only_site(&tune).reason.unwrap();
    assert!(reason.contains("two functions xk_target_twin with these bytes"), "{reason}");
}

/// A module without the function, under the same name.
pub fn a_module_without_the_function_is_left_alone() {
    rmmod_target();
    let mut table = value_table();
    table.functions[0].symbol = "xk_target_none".into();
    let tune = load(&table, 64).unwrap();
    insmod(TARGET_KO);
    assert_eq!(only_site(&tune).reason.as_deref(), Some("module xk_target has no function xk_target_none"));
    tune.unload().unwrap();
    // Loaded, it is refused at once.
    struct Nowhere;
    impl xk_runtime::AddressOf for Nowhere {
        fn address(&self, _: &xk_table::Function) -> Result<Option<u64>, xk_runtime::AddressError> {
            Ok(None)
        }

        fn data_address(&self, _: &xk_table::DataSite) -> Result<Option<u64>, xk_runtime::AddressError> {
            Ok(None)
        }
    }
    assert!(matches!(load_at(&table, 64, &Nowhere), Err(Error::Drift(text)) if text.contains("has no function")));
    // An address is not needed if the module is there.
    let tune = load_at(&value_table(), 64, &Nowhere).unwrap();
    assert_eq!(target("value"), "64");
    tune.unload().unwrap();
}

pub fn the_same_instruction_twice_is_left_alone() {
    rmmod_target();
    let first = load(&value_table(), 41).unwrap();
    let mut thief = value_table();
    thief.constant.id = "elsewhere.c:L1:32:0".into();
    let second = load(&thief, 42).unwrap();
    insmod(TARGET_KO);
    assert_eq!(target("value"), "41");
    let reason = only_site(&second).reason.unwrap();
    assert!(reason.contains("held by") && reason.contains("VALUE"), "{reason}");
    assert!(matches!(only_site(&first).probe, Probe::Int3 | Probe::Jump));
}

/// Who is inside a function that is not the one that was analysed is not known.
pub fn a_module_with_other_code_in_a_scope_is_left_alone() {
    rmmod_target();
    let mut table = value_table();
    table.functions.push(function(&target_module(), "xk_target_compare"));
    table.scopes =
        [0, 1].map(|function| Scope { function, ranges: vec![[0, 8]], spans: vec![0], ..Scope::default() }).into();
    let tune = load(&table, 50).unwrap();
    assert!(run("insmod", &[altered("xk_target_compare", 4, 39).to_str().unwrap()]));
    assert_eq!((target("value").as_str(), target("compare").as_str()), ("32", "1"));
    let why = "xk_target_compare+0x4: expected 20, running 27";
    let status = tune.status().unwrap();
    assert_eq!((status.broken, status.sites[0].probe), (true, Probe::Broken));
    assert_eq!(status.sites[0].reason.as_deref(), Some(why));
    for mode in [Mode::Task, Mode::Global] {
        for to in [Destination::Value(51), Destination::Unload] {
            let refused = tune.go(to, mode, Duration::ZERO);
            assert!(
                matches!(&refused, Err(Error::Drift(text))
                    if text.contains("xk_target_compare of module xk_target") && text.contains("only mode now")),
                "{refused:?}"
            );
            assert_eq!(tune.status().unwrap().value, 50);
        }
    }
    tune.go(Destination::Value(52), Mode::Now, Duration::ZERO).unwrap();
    assert_eq!((tune.status().unwrap().value, target("value").as_str()), (52, "32"));
    // The module that was analysed comes back.
    rmmod_target();
    insmod(TARGET_KO);
    assert_eq!((target("value").as_str(), target("compare").as_str()), ("52", "1"));
    tune.go(Destination::Value(53), Mode::Global, Duration::from_secs(60)).unwrap();
    assert_eq!(target("value"), "53");
    // It ends, also where nobody could be asked for another mode.
    rmmod_target();
    assert!(run("insmod", &[altered("xk_target_compare", 4, 39).to_str().unwrap()]));
    drop(tune);
    assert!(Device::open().unwrap().tunes().unwrap().is_empty());
    assert_eq!(target("value"), "32");
}
