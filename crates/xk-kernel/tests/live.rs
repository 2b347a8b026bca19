//! A running kernel, from inside: the tests whose name begins with `inside` run in a guest, where
//! this test binary is started again by the one that does not.

#![allow(clippy::unwrap_used)]

use xk_testing::kernels;

use std::process::Command;

use xk_kernel::{doctor, Bundle, DoctorOptions, HostEnv, Image, ImageError, Status};

/// Runs this binary's ignored tests in a guest and gives what it printed.
#[test]
fn a_running_kernel_can_be_read_and_saved() {
    let kernel = kernels::kernel("amd64");
    let lab = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../lab/lab");
    let binary = std::env::current_exe().unwrap();
    let bundle = tempfile::tempdir().unwrap();
    let mut run = Command::new(lab);
    run.args(["run", "--kernel", "amd64", "--out"]).arg(bundle.path()).arg("--").arg(binary);
    run.args(["--ignored", "--nocapture", "--test-threads=1", "inside"]);
    let output = run.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    println!("{text}");
    assert!(output.status.success(), "the guest failed");
    assert!(text.contains("2 passed"), "the tests in the guest did not run:\n{text}");
    let image = Image::from_vmlinuz(&kernel.vmlinuz, None).unwrap();
    assert!(text.contains(&format!("live build-id {}", image.id().build_id)), "{text}");
}

#[test]
#[ignore = "runs in a guest"]
fn inside_the_live_kernel_is_the_image_but_for_its_own_patches() {
    let live = Image::live().unwrap_or_else(|error| panic!("{error}"));
    println!("live build-id {}", live.id().build_id);
    let kernel = kernels::kernel("amd64");
    let image = Image::from_vmlinuz(&kernel.vmlinuz, None).unwrap();
    assert_eq!(live.id(), image.id());
    assert!(live.is_live());
    assert_eq!(live.btf(), image.btf());
    // strlen-like leaf without alternatives, jump labels or calls: the same bytes wherever it is loaded.
    let name = "int_sqrt";
    let [there, here] = [&image, &live].map(|kernel| kernel.symbols(name).remove(0));
    let length = there.size_hint as usize;
    let tail = |kernel: &Image, address: u64| kernel.read(address, length).unwrap()[9..48].to_vec();
    assert_eq!(tail(&image, there.address), tail(&live, here.address));
    assert_eq!(here.address - live.text_base(), there.address - image.text_base());
    assert!(matches!(live.read(0x1000, 8), Err(ImageError::Unmapped { .. })));
    assert!(matches!(live.module_sections("no_such_module"), Err(ImageError::NotLoaded { .. })));
}

#[test]
#[ignore = "runs in a guest"]
fn inside_a_bundle_reads_as_the_kernel_it_was_saved_from() {
    assert!(Command::new("modprobe").arg("tcp_bbr").status().unwrap().success());
    let live = Image::live().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("kernel.xkb");
    let start = std::time::Instant::now();
    Bundle::save_live(&path).unwrap_or_else(|error| panic!("{error}"));
    println!("bundle: {} bytes in {:?}", std::fs::metadata(&path).unwrap().len(), start.elapsed());
    let saved = Image::from_bundle(&path).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(saved.id(), live.id());
    assert_eq!(saved.all_symbols().len(), live.all_symbols().len());
    assert_eq!(saved.text_range(), live.text_range());
    let function = &live.symbols("int_sqrt")[0];
    assert_eq!(saved.read(function.address, 64).unwrap(), live.read(function.address, 64).unwrap());
    assert_eq!(saved.btf(), live.btf());

    let main = &live.symbols("bbr_main")[0];
    assert_eq!(main.module.as_deref(), Some("tcp_bbr"));
    assert_eq!(saved.read(main.address, 64).unwrap(), live.read(main.address, 64).unwrap());
    let text = live.module_sections("tcp_bbr").unwrap().into_iter().find(|section| section.name == ".text").unwrap();
    let file = live.module("tcp_bbr").unwrap();
    let offset = file.symbols_named("bbr_main").next().unwrap().offset;
    assert_eq!(text.address + offset, main.address);
    assert_eq!(saved.module_sections("tcp_bbr").unwrap(), live.module_sections("tcp_bbr").unwrap());
    let checks = doctor(&HostEnv, &DoctorOptions::default());
    for name in ["kernel", "root", "build-id", "btf", "kallsyms", "kcore"] {
        let check = checks.iter().find(|check| check.name == name).unwrap();
        assert_eq!(check.status, Status::Ok, "{check:?}");
    }
    for check in checks {
        println!("{:?} {}: {}", check.status, check.name, check.found);
    }
}
