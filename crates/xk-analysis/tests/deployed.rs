//! What the analysis believes of a distribution's kernel.

#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use xk_analysis::identity::{whole_unit, Deployed};
use xk_kernel::Image;
use xk_lift::object::{Object, RelocTarget};
use xk_lift::prototypes::Prototypes;
use xk_testing::kernels;

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
    // The last one has the name of the release.
    let usual = "mm/shrinker.c net/ipv4/tcp_bbr.c net/ipv6/mcast.c drivers/nvme/target/core.c";
    let wanted = std::env::var("XK_UNITS").unwrap_or_else(|_| usual.into());
    let folder = tempfile::tempdir().unwrap();
    let mut wrong = Vec::new();
    for unit in wanted.split_whitespace() {
        let known = all.iter().find(|known| known.source == unit).unwrap_or_else(|| panic!("{unit} is not deployed"));
        let object = built(unit, folder.path());
        match whole_unit(&object, unit, known.module.as_deref(), &image) {
            Ok(count) => {
                eprintln!("{unit}: {count} of {} functions", object.functions.len());
                assert!(count <= object.functions.len(), "{unit}: {count}");
                // A unit may have code for the boot alone; those of the list have more.
                assert!(count > 0 || std::env::var("XK_UNITS").is_ok(), "{unit}: nothing is compared");
            }
            Err(refusal) => wrong.push(format!("{unit}: {refusal}")),
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Any reference of a real unit that goes elsewhere is noticed, but for those at sites that the kernel patches.
#[test]
fn every_reference_of_a_unit_counts() {
    let image = Image::from_vmlinuz(&kernels::kernel("amd64").vmlinuz, None).unwrap();
    let folder = tempfile::tempdir().unwrap();
    for (unit, module) in [("mm/shrinker.c", None), ("net/ipv4/tcp_bbr.c", Some("tcp_bbr"))] {
        let mut object = built(unit, folder.path());
        let functions: Vec<_> = object.functions.values().cloned().collect();
        whole_unit(&object, unit, module, &image).unwrap_or_else(|refusal| panic!("{unit}: {refusal}"));
        let mut changed = 0;
        for function in functions {
            let section = function.start.section;
            if !object.sections[section].name.starts_with(".text") {
                continue;
            }
            let patched = object.kernel_patched(&function);
            let end = function.start.offset + function.size;
            let fields: Vec<u64> =
                object.sections[section].relocations.range(function.start.offset..end).map(|(&at, _)| at).collect();
            for at in fields {
                if patched.iter().any(|site| (site.at.offset..site.at.offset + site.len).contains(&at)) {
                    continue;
                }
                let right = object.sections[section].relocations[&at].clone();
                let mut wrong = right.clone();
                match &mut wrong.target {
                    RelocTarget::Symbol(symbol) => symbol.offset += 8,
                    RelocTarget::Section { offset, .. } => *offset += 1,
                }
                object.sections[section].relocations.insert(at, wrong);
                let found = whole_unit(&object, unit, module, &image);
                assert!(found.is_err(), "{unit}: {}+{:#x}", function.name, at - function.start.offset);
                object.sections[section].relocations.insert(at, right);
                changed += 1;
            }
        }
        assert!(changed > 10, "{unit}: {changed}");
    }
}
