//! The distribution's images, offline: identity, symbols, text, types, modules.

#![allow(clippy::unwrap_used)]

use xk_testing::kernels;

use std::path::Path;

use xk_kernel::{Image, ImageError};

fn image(name: &str) -> (kernels::Kernel, Image) {
    let kernel = kernels::kernel(name);
    let image = Image::from_vmlinuz(&kernel.vmlinuz, None).unwrap_or_else(|error| panic!("{error}"));
    (kernel, image)
}

fn check(name: &str) {
    let (kernel, image) = image(name);
    assert_eq!(image.id().release, kernel.release);
    assert_eq!(image.id().build_id.len(), 40);
    assert!(image.id().package_version.as_deref().unwrap().starts_with("6.12."));
    assert!(!image.is_live());
    assert!(image.all_symbols().len() > 50_000);
    assert_eq!(image.text_base(), 0xffff_ffff_8100_0000);

    let plug = image.symbols("blk_mq_flush_plug_list");
    assert_eq!(plug.len(), 1);
    assert!(plug[0].is_text() && plug[0].size_hint > 64);
    // Every kernel function that can be traced begins with endbr64 and the call to __fentry__.
    let bytes = image.read(plug[0].address, 9).unwrap();
    assert_eq!(&bytes[..5], [0xf3, 0x0f, 0x1e, 0xfa, 0xe8]);
    let fentry = image.symbols("__fentry__")[0].address;
    let displacement = i32::from_le_bytes(bytes[5..9].try_into().unwrap());
    assert_eq!(plug[0].address.wrapping_add(9).wrapping_add(displacement as u64), fentry);
    assert_eq!(image.text_symbol_at(plug[0].address + 5).unwrap().address, plug[0].address);

    assert_eq!(&image.btf().unwrap()[..2], [0x9f, 0xeb]);
    assert!(image.section(".altinstructions").is_some_and(|(_, bytes)| bytes.len() > 1000));
    assert!(matches!(image.read(0xffff_ffff_7000_0000, 1), Err(ImageError::Unmapped { .. })));
    assert!(matches!(image.module_sections("loop"), Err(ImageError::NotLoaded { .. })));
}

#[test]
fn the_amd64_image() {
    check("amd64");
}

#[test]
fn the_cloud_image() {
    check("cloud");
}

/// The addresses in the image's own tables agree with what the linker wrote elsewhere: exported
/// symbols are stated again, as relative offsets, in `__ksymtab`.
#[test]
fn decoded_symbols_agree_with_the_export_table() {
    let (_, image) = image("amd64");
    let (base, table) = image.section("__ksymtab").unwrap();
    let (names_base, names) = image.section("__ksymtab_strings").unwrap();
    let mut compared = 0;
    for (at, entry) in table.chunks_exact(12).enumerate() {
        let here = base + 12 * at as u64;
        let relative = |field: usize| {
            let offset = i32::from_le_bytes(entry[field..field + 4].try_into().unwrap());
            here.wrapping_add(field as u64).wrapping_add(offset as i64 as u64)
        };
        let name = &names[(relative(4) - names_base) as usize..];
        let name = std::str::from_utf8(&name[..name.iter().position(|&byte| byte == 0).unwrap()]).unwrap();
        let found = image.symbols(name);
        assert!(found.iter().any(|symbol| symbol.address == relative(0)), "{name}");
        compared += 1;
    }
    assert!(compared > 3000, "{compared}");
}

#[test]
fn modules_are_found_plain_and_compressed() {
    let (_, image) = image("amd64");
    let module = image.module("tcp_bbr").unwrap();
    let main = module.symbols_named("bbr_main").next().unwrap();
    assert!(main.function && main.size > 100);
    let section = &module.sections[main.section.unwrap()];
    assert!(section.executable && main.offset + main.size <= section.size);
    assert!(!section.relocations.is_empty());
    assert_eq!(module.build_id().unwrap().len(), 20);
    assert_eq!(image.module("nvme_core").unwrap().name, "nvme-core");
    let error = image.module("no_such_module").unwrap_err();
    assert!(matches!(error, ImageError::ModuleMissing { .. }), "{error}");
}

#[test]
fn modules_of_another_kernel_are_refused() {
    let (kernel, image) = image("amd64");
    let folder = tempfile::tempdir().unwrap();
    let modules = folder.path().join("lib/modules").join(&kernel.release);
    std::fs::create_dir_all(&modules).unwrap();
    let other = kernels::kernel("cloud");
    let (_, cloud) = (&other, Image::from_vmlinuz(&other.vmlinuz, None).unwrap());
    let foreign = cloud.module("tcp_bbr").unwrap();
    std::fs::write(modules.join("tcp_bbr.ko"), &foreign.elf).unwrap();
    let error = image.with_modules_in(folder.path()).module("tcp_bbr").unwrap_err().to_string();
    assert!(error.contains("cloud-amd64"), "{error}");
}

#[test]
fn altered_and_cut_images_are_refused() {
    let kernel = kernels::kernel("cloud");
    let whole = std::fs::read(&kernel.vmlinuz).unwrap();
    let file = tempfile::NamedTempFile::new().unwrap();
    for end in [0, 1000, 30_000, whole.len() / 2] {
        std::fs::write(file.path(), &whole[..end]).unwrap();
        assert!(matches!(Image::from_vmlinuz(file.path(), None), Err(ImageError::NotAKernel { .. })), "cut at {end}");
    }
    assert!(matches!(Image::from_vmlinuz(Path::new("/nonexistent"), None), Err(ImageError::Read { .. })));
}
