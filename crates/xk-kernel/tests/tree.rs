//! The private build tree of the distribution's kernel: what is deployed, and that it compiles to
//! the deployed code.

#![allow(clippy::unwrap_used)]

use xk_testing::kernels;

use std::collections::BTreeSet;
use std::fs;

use object::{Object, ObjectSection, ObjectSymbol};
use xk_kernel::{CompileError, Image};

/// The module (`None`: the image) of every unit that is compiled from `source`.
fn modules_of(source: &str) -> Vec<Option<String>> {
    let units = kernels::tree().units().unwrap();
    units.iter().filter(|unit| unit.source == source).map(|unit| unit.module.clone()).collect()
}

#[test]
fn units_are_those_that_the_configuration_builds() {
    let expected = [
        ("block/blk-mq.c", None),
        ("net/ipv4/tcp_cubic.c", None),
        ("net/mptcp/protocol.c", None),
        ("arch/x86/kernel/head_64.S", None),
        ("arch/x86/lib/memcpy_64.S", None),
        ("net/ipv4/tcp_bbr.c", Some("tcp_bbr")),
        ("block/bfq-iosched.c", Some("bfq")),
        ("drivers/nvme/host/core.c", Some("nvme-core")),
        ("fs/xfs/xfs_super.c", Some("xfs")),
        ("fs/xfs/libxfs/xfs_ag.c", Some("xfs")),
        ("fs/btrfs/extent_io.c", Some("btrfs")),
        ("virt/kvm/kvm_main.c", Some("kvm")),
    ];
    for (source, module) in expected {
        assert_eq!(modules_of(source), [module.map(str::to_owned)], "{source}");
    }
    for source in ["arch/x86/boot/main.c", "net/ipv4/tcp_nonexistent.c", "mm/kmsan/core.c", "scripts/mod/modpost.c"] {
        assert!(modules_of(source).is_empty(), "{source}");
    }
}

/// The distribution ships the list of modules that its build made.
#[test]
fn modules_are_exactly_those_that_are_shipped() {
    let kernel = kernels::kernel("amd64");
    let order = kernel.root.join("lib/modules").join(&kernel.release).join("modules.order");
    let order = fs::read_to_string(order).unwrap();
    let name = |line: &str| line.rsplit('/').next().unwrap().trim_end_matches(".ko").to_owned();
    let shipped: BTreeSet<String> = order.lines().map(name).collect();
    let units = kernels::tree().units().unwrap();
    let built: BTreeSet<String> = units.iter().filter_map(|unit| unit.module.clone()).collect();
    assert_eq!(built, shipped);
}

#[test]
fn the_configuration_is_the_distributions() {
    let tree = kernels::tree();
    assert_eq!(tree.config("CONFIG_HZ"), Some("250"));
    assert_eq!(tree.config("TCP_CONG_BBR"), Some("m"));
    assert_eq!(tree.config("CONFIG_KMSAN"), None);
    assert!(tree.config("CC_VERSION_TEXT").unwrap().starts_with(tree.compiler()));
}

/// The code with each jump label as the compiler wrote it: when the kernel is linked, the build turns
/// jumps of disabled labels into no-operations.
fn without_jump_labels(code: &[u8]) -> Vec<u8> {
    let mut code = code.to_vec();
    for at in 0..code.len() {
        match &mut code[at..] {
            [0xe9, _, _, _, _, ..] | [0x0f, 0x1f, 0x44, 0, 0, ..] => code[at..at + 5].fill(0x90),
            [0xeb, _, ..] | [0x66, 0x90, ..] => code[at..at + 2].fill(0x90),
            _ => {}
        }
    }
    code
}

#[test]
fn a_unit_compiles_to_the_deployed_code() {
    let kernel = kernels::kernel("amd64");
    let image = Image::from_vmlinuz(&kernel.vmlinuz, None).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let output = folder.path().join("shrinker.o");
    let overlay = kernels::tree().overlay::<&str, &str>(&[]).unwrap();
    let compiled = overlay.compile("mm/shrinker.c", &output, &[]).unwrap();
    assert!(compiled.dependencies.iter().any(|path| path == "include/linux/shrinker.h"));

    let bytes = fs::read(&output).unwrap();
    let object = object::File::parse(&*bytes).unwrap();
    let mut compared = 0;
    let functions = object.symbols().filter(|symbol| symbol.kind() == object::SymbolKind::Text && symbol.size() > 0);
    for function in functions {
        let section = object.section_by_index(function.section_index().unwrap()).unwrap();
        let start = function.address();
        let mut rebuilt = section.data_range(start, function.size()).unwrap().unwrap().to_vec();
        let deployed = image.symbols(function.name().unwrap());
        // Code that runs only at boot is elsewhere, and clones may share a name.
        let [symbol] = deployed.as_slice() else { continue };
        let mut deployed = image.read(symbol.address, rebuilt.len()).unwrap();
        for (offset, _) in section.relocations() {
            let Some(at) = offset.checked_sub(start).filter(|&at| at < function.size()) else { continue };
            for masked in [&mut rebuilt, &mut deployed] {
                let end = (at as usize + 4).min(masked.len());
                masked[at as usize..end].fill(0);
            }
        }
        assert_eq!(without_jump_labels(&rebuilt), without_jump_labels(&deployed), "{}", function.name().unwrap());
        compared += 1;
    }
    assert!(compared >= 10, "only {compared} functions of mm/shrinker.c were compared");
}

#[test]
fn an_edited_header_changes_the_code_and_nothing_else_does() {
    let tree = kernels::tree();
    let folder = tempfile::tempdir().unwrap();
    let header = fs::read_to_string(tree.root().join("block/blk.h")).unwrap();
    let edited = header.replace("#define BLK_MAX_REQUEST_COUNT\t32", "#define BLK_MAX_REQUEST_COUNT\t64");
    assert_ne!(edited, header, "the header no longer defines the constant as this test expects");
    let compile = |name: &str, edits: &[(&str, &str)]| {
        let output = folder.path().join(name);
        let overlay = tree.overlay(edits).unwrap();
        let compiled = overlay.compile("block/blk-mq.c", &output, &["-g0"]).unwrap();
        assert!(compiled.dependencies.iter().any(|path| path == "block/blk.h"));
        let bytes = fs::read(output).unwrap();
        let object = object::File::parse(&*bytes).unwrap();
        let section = |name: &str| object.section_by_name(name).unwrap().data().unwrap().to_vec();
        (section(".text"), section(".rodata.str1.1"))
    };
    let plain = compile("plain.o", &[]);
    let unchanged = compile("unchanged.o", &[("block/blk.h", &header)]);
    let changed = compile("changed.o", &[("block/blk.h", &edited)]);
    assert!(plain == unchanged, "the overlay itself changes the code");
    assert_ne!(plain.0, changed.0);
    assert!(plain.1 == changed.1, "__FILE__ and other strings change");
}

#[test]
fn a_unit_that_needs_generated_files_compiles() {
    let folder = tempfile::tempdir().unwrap();
    let overlay = kernels::tree().overlay::<&str, &str>(&[]).unwrap();
    // gen_crc32table writes a header that lib/crc32.c includes.
    overlay.compile("lib/crc32.c", &folder.path().join("crc32.o"), &[]).unwrap_or_else(|error| panic!("{error}"));
    // The object is named through another folder.
    let command = kernels::tree().compile_command("virt/kvm/eventfd.c").unwrap();
    assert_eq!(command.object, "arch/x86/kvm/../../../virt/kvm/eventfd.o");
    assert!(command.argv.iter().any(|word| word == "-DMODULE"));
}

#[test]
fn what_is_not_built_is_refused() {
    let tree = kernels::tree();
    for unit in ["mm/no_such_file.c", "drivers/scsi/arm/acornscsi.c", "include/linux/mm.h"] {
        assert!(matches!(tree.compile_command(unit), Err(CompileError::NotBuilt { .. })), "{unit}");
    }
    assert!(matches!(tree.compile_command("../etc/passwd.c"), Err(CompileError::Path { .. })));
}
