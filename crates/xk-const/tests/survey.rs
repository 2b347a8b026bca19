//! Over the source of a real kernel: the constants that people are known to tune are listed, with
//! values and IDs that resolving agrees with.
#![allow(missing_docs, clippy::expect_used, clippy::unwrap_used)]

mod common;

use common::NoCompiler;
use std::sync::OnceLock;
use xk_const::*;
use xk_testing::kernels::tree;

fn all() -> &'static Survey {
    static SURVEY: OnceLock<Survey> = OnceLock::new();
    SURVEY.get_or_init(|| survey(tree(), true, &|line| eprintln!("{line}")).unwrap())
}

fn row(name: &str) -> &'static Listed {
    all().named.iter().find(|listed| listed.name == name).unwrap_or_else(|| panic!("{name} is not listed"))
}

#[test]
fn what_is_known_to_matter_is_listed() {
    let known = include_str!("data/known.txt").lines().filter(|line| !line.starts_with('#'));
    let (mut listed, mut missing) = (0, Vec::new());
    for line in known {
        let (place, name) = line.split_once(' ').unwrap();
        let (path, number) = place.split_once(':').unwrap();
        let found = if name == "-" {
            all().literals.iter().any(|l| l.id.path == path && l.id.line.to_string() == number)
        } else {
            all().named.iter().any(|l| l.id.path == path && l.name == name)
        };
        if found {
            listed += 1;
        } else {
            missing.push(if name == "-" { place } else { name });
        }
    }
    eprintln!("{listed} known constants are listed, these are not: {missing:?}");
    for name in missing {
        let why = resolve(tree(), &Spec::parse(name).unwrap()).map(|c| panic!("{} is deployed", c.id)).unwrap_err();
        assert!(matches!(why, ResolveError::NotDeployed { .. }), "{why}");
    }
    assert!(listed > 90);
}

#[test]
fn rows_say_what_resolving_says() {
    let mut differ = Vec::new();
    // A few from all over the tree, as they come.
    for listed in all().named.iter().step_by(all().named.len() / 24) {
        match resolve(tree(), &Spec::Id(listed.id.clone())) {
            Ok(constant) => {
                assert!(listed.value.is_none_or(|value| value == constant.default), "{listed:?}: {}", constant.default);
                assert!(
                    listed.c_type.is_none_or(|c_type| c_type == constant.c_type),
                    "{listed:?}: {:?}",
                    constant.c_type
                );
            }
            Err(error) => differ.push(format!("{}: {error}", listed.id)),
        }
    }
    assert!(differ.len() <= 3, "{differ:#?}");
}

#[test]
fn categories_and_reasons() {
    let of = |name: &str| {
        let listed = row(name);
        (listed.category.word(), listed.value, listed.used_in.join(" "))
    };
    assert_eq!(of("SHRINK_BATCH"), ("batch", Some(128), "vmlinux".into()));
    assert_eq!(of("OOM_REAPER_DELAY"), ("interval", Some(500), "vmlinux".into()));
    assert_eq!(of("MAX_SOFTIRQ_TIME"), ("interval", Some(1), "vmlinux".into()));
    assert_eq!(of("KYBER_ASYNC_PERCENT"), ("scaling", Some(75), "kyber-iosched".into()));
    assert_eq!(of("GET_PAGE_MAX_RETRY_NUM").0, "retries");
    assert_eq!(row("bfq_back_max").written, Written::Static);
    assert_eq!(row("max_service_from_wr").c_type, Some(CType::UnsignedLong));
    assert_eq!(row("KYBER_ASYNC_PERCENT").c_type, None);
    assert!(
        row("BLK_PLUG_FLUSH_SIZE").why.contains(&"compared with `>=`".to_owned()),
        "{:?}",
        row("BLK_PLUG_FLUSH_SIZE")
    );
    let literals: Vec<String> =
        all().named.iter().filter(|l| l.name == "fits_capacity").map(|l| l.id.to_string()).collect();
    assert_eq!(literals, ["kernel/sched/fair.c:L102:1280:0", "kernel/sched/fair.c:L102:1024:0"]);
    // Through `HYSTART_DELAY_THRESH`, which is another macro.
    assert_eq!(row("HYSTART_DELAY_MAX").units, 1);
}

#[test]
fn what_is_no_perf_const_is_not_listed() {
    let flags = [
        "REQ_FSYNC",
        "FMODE_CAN_READ",
        "GFP_KERNEL",
        "NSEC_PER_MSEC",
        "EINVAL",
        "PAGE_SIZE",
        "DFR_HASHSIZE",
        "SOCK_STREAM",
        "HASH_FLAG",
        "BINDER_DEBUG_READ_WRITE",
    ];
    for name in flags {
        assert!(all().named.iter().all(|listed| listed.name != name), "{name}");
    }
}

#[test]
fn the_second_time_it_comes_from_the_cache() {
    let first = all();
    assert_eq!(survey(&NoCompiler, true, &|line| panic!("{line}")).unwrap(), *first);
}
