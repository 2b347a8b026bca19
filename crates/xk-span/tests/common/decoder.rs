//! Programs in C with sources of `xk.ko` in them, and with the instruction decoder of the lab's kernel.

use std::path::{Path, PathBuf};
use std::process::Command;

/// What the lab says about its kernel.
pub fn info(field: &str) -> PathBuf {
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let output = Command::new("lab/lab").args(["info", "amd64", field]).current_dir(repository).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    PathBuf::from(String::from_utf8(output.stdout).unwrap().trim())
}

/// The part of the kernel's source that user space uses, too; its folder `tools`.
fn tools_of_kernel(out: &Path) -> PathBuf {
    let parts = ["*/tools/arch/x86/*", "*/tools/include/*"];
    let tar = Command::new("tar")
        .args(["--strip-components=1", "--wildcards", "-C"])
        .arg(out)
        .arg("-xf")
        .arg(info("source_tarball"))
        .args(parts)
        .status()
        .unwrap();
    assert!(tar.success(), "the source cannot be unpacked");
    out.join("tools")
}

/// The program `tests/NAME.c`, built in `out` with these files of `kernel/xk`.
pub fn program(out: &Path, name: &str, files: &[&str]) -> PathBuf {
    let common = tools_of_kernel(out);
    let tools = common.join("arch/x86");
    let awk = Command::new("awk")
        .arg("-f")
        .args([tools.join("tools/gen-insn-attr-x86.awk"), tools.join("lib/x86-opcode-map.txt")])
        .output()
        .unwrap();
    assert!(awk.status.success() && !awk.stdout.is_empty());
    std::fs::write(out.join("inat-tables.c"), awk.stdout).unwrap();
    let own = Path::new(env!("CARGO_MANIFEST_DIR"));
    let kernel = own.join("../../kernel/xk");
    let built = Command::new("gcc")
        .args(["-O1", "-std=gnu11", "-Wall", "-o"])
        .arg(out.join(name))
        .arg("-I")
        .arg(out)
        .arg("-I")
        .arg(&kernel)
        .arg("-I")
        .arg(tools.join("include"))
        .arg("-I")
        .arg(common.join("include"))
        .arg(own.join(format!("tests/{name}.c")))
        .args(files.iter().map(|file| kernel.join(file)))
        .args([tools.join("lib/insn.c"), tools.join("lib/inat.c")])
        .status()
        .unwrap();
    assert!(built.success(), "it does not compile");
    out.join(name)
}
