//! What DKMS builds of the package `xk-dkms`: `packaging/dkms/dkms.conf`, as DKMS reads it, and the `Makefile`, on the headers
//! of kernels of the lab. `xk_sched.ko` is built for kernels with sched_ext only; others are told why not.

#![allow(clippy::unwrap_used, clippy::expect_used)] // a test

use std::path::{Path, PathBuf};
use std::process::Command;

use xk_testing::guest::{output_of, repository};

const SCHEDULERS: [&str; 5] = ["xk_sched", "xk_sched_fifo", "xk_sched_rr", "xk_sched_weighted", "xk_sched_latency"];

/// A kernel of the lab.
struct Kernel {
    root: PathBuf,
    release: String,
}

impl Kernel {
    fn of(name: &str) -> Self {
        let info = |field: &str| output_of(Command::new("lab/lab").args(["info", name, field]));
        Self { root: info("root").into(), release: info("release") }
    }

    fn headers(&self) -> PathBuf {
        self.root.join("usr/src").join(format!("linux-headers-{}", self.release))
    }

    /// The modules that DKMS looks for after a build, and where: `dkms.conf` is a script of bash.
    fn modules(&self) -> Vec<(String, String)> {
        let script = format!(
            "kernelver={} kernel_source_dir={}; . packaging/dkms/dkms.conf\n\
             for i in ${{!BUILT_MODULE_NAME[@]}}; do\n\
             echo ${{BUILT_MODULE_NAME[i]}} ${{BUILT_MODULE_LOCATION[i]}} ${{DEST_MODULE_LOCATION[i]}}; done",
            self.release,
            self.headers().display()
        );
        let output = output_of(Command::new("bash").args(["-c", &script]));
        let each = output.lines().map(|line| {
            let [name, folder, to] = line.split(' ').collect::<Vec<_>>()[..] else { panic!("{line}") };
            assert_eq!(to, "/updates/dkms");
            (name.to_owned(), folder.to_owned())
        });
        each.collect()
    }

    /// Builds the schedulers as DKMS does, in a copy of what the package installs. Returns what make said.
    fn build(&self, stage: &Path) -> String {
        for folder in ["kernel/xk", "kernel/xk_sched"] {
            let to = stage.join("kernel");
            std::fs::create_dir_all(&to).unwrap();
            assert!(Command::new("cp").arg("-r").arg(repository().join(folder)).arg(to).status().unwrap().success());
        }
        std::fs::copy(repository().join("packaging/dkms/Makefile"), stage.join("Makefile")).unwrap();
        let mut make = Command::new("make");
        let toolchain = self.root.join("toolchain");
        if toolchain.exists() {
            // Of another release of Debian, in a root of its own, which sees the cache.
            make = Command::new("lab/in-toolchain");
            make.arg(toolchain.canonicalize().unwrap())
                .arg(self.root.join("../..").canonicalize().unwrap())
                .arg("make");
        }
        make.args(["-s", "-j2", "-C"]).arg(stage).arg(format!("HEADERS={}", self.headers().display())).arg("sched");
        output_of(&mut make)
    }
}

/// A folder that the tools of another release of Debian see.
fn stage(kernel: &Kernel) -> tempfile::TempDir {
    let folder = kernel.root.join("../../build");
    std::fs::create_dir_all(&folder).unwrap();
    tempfile::Builder::new().prefix("dkms-").tempdir_in(folder.canonicalize().unwrap()).unwrap()
}

#[test]
fn schedulers_are_built_where_the_kernel_has_sched_ext() {
    let kernel = Kernel::of("debian13-backports");
    let modules = kernel.modules();
    let names: Vec<&str> = modules.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, [&["xk", "xk_tunable"][..], &SCHEDULERS[..]].concat());
    let stage = stage(&kernel);
    kernel.build(stage.path());
    for (name, folder) in modules.iter().filter(|(name, _)| SCHEDULERS.contains(&name.as_str())) {
        let file = stage.path().join(folder).join(format!("{name}.ko"));
        let version = output_of(Command::new("modinfo").args(["-F", "vermagic"]).arg(&file));
        assert!(version.starts_with(&kernel.release), "{version}");
    }
}

#[test]
fn other_kernels_get_the_reason() {
    let kernel = Kernel::of("amd64");
    let names: Vec<String> = kernel.modules().into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["xk", "xk_tunable"]);
    let stage = stage(&kernel);
    let told = kernel.build(stage.path());
    assert!(told.contains("xk_sched.ko is left out") && told.contains("CONFIG_SCHED_CLASS_EXT"), "{told}");
    assert!(told.contains(&kernel.release), "{told}");
}
