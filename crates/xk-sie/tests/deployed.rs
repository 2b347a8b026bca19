//! What the analysis believes of a distribution's kernel.

#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

#[path = "../../xk-kernel/tests/common/mod.rs"]
mod kernels;

use xk_kernel::Image;
use xk_sie::identity::{whole_unit, Deployed};
use xk_sie::object::Object;
use xk_sie::prototypes::Prototypes;

/// The image's BTF describes one `add_grec` (net/ipv4/igmp.c, net/ipv6/mcast.c), one `m_start`, …
#[test]
fn nothing_is_believed_of_names_that_several_functions_have() {
    let image = Image::from_vmlinuz(&kernels::kernel("amd64").vmlinuz, None).unwrap();
    let btf = Prototypes::of_btf(&image.btf().unwrap());
    let believed = image.prototypes(&[]);
    for name in ["add_grec", "m_start", "extra_show", "uuid_show"] {
        assert!(btf.is_function(name), "{name}: this test needs another name");
        assert_eq!(believed.signature(name), None, "{name}");
        assert_eq!((believed.result(name), believed.arguments(name)), (None, None), "{name}");
        assert!(!believed.is_function(name), "{name}");
    }
    // The other names stay.
    for name in ["blk_mq_flush_plug_list", "kmem_cache_alloc_noprof", "tcp_v4_rcv", "_raw_spin_lock"] {
        assert!(believed.signature(name).is_some(), "{name}");
    }
    // A module that has a function of a name that vmlinux has, too.
    let both = image.prototypes(&["nvme-core"]);
    assert!(believed.signature("uuid_show").is_none() && both.signature("uuid_show").is_none());
    assert!(both.signature("nvme_init_ctrl").is_some());
}

/// The object of a unit as the kernel's own build makes it.
fn built(unit: &str, folder: &std::path::Path) -> Object {
    let output = folder.join("unit.o");
    let none: [(&str, &str); 0] = [];
    kernels::tree().overlay(&none).unwrap().compile(unit, &output, &["-g0", "-w"]).unwrap();
    Object::parse(&std::fs::read(output).unwrap()).unwrap()
}

/// Units of the image and of modules, rebuilt: all that they have is deployed. More of them with
/// `XK_UNITS='mm/shrinker.c net/ipv4/tcp_bbr.c …'`.
#[test]
fn whole_units_are_found_with_what_they_refer_to() {
    let image = Image::from_vmlinuz(&kernels::kernel("amd64").vmlinuz, None).unwrap();
    let all = kernels::tree().units().unwrap();
    let wanted =
        std::env::var("XK_UNITS").unwrap_or_else(|_| "mm/shrinker.c net/ipv4/tcp_cubic.c net/ipv6/mcast.c".into());
    let folder = tempfile::tempdir().unwrap();
    let mut wrong = Vec::new();
    for unit in wanted.split_whitespace() {
        let known = all.iter().find(|known| known.source == unit).unwrap_or_else(|| panic!("{unit} is not deployed"));
        let object = built(unit, folder.path());
        match whole_unit(&object, unit, known.module.as_deref(), &image) {
            Ok(count) => {
                eprintln!("{unit}: {count} of {} functions", object.functions.len());
                assert!(count > 0 && count <= object.functions.len());
            }
            Err(refusal) => wrong.push(format!("{unit}: {refusal}")),
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
