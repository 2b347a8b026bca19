//! Compiles the kernel's eBPF selftests as their Makefile does, each in two forms: as it is, and with the header of
//! looks behind it, so that its loops may be instrumented. Objects stay in the cache.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::SystemTime;

use anyhow::{ensure, Context, Result};
use xk_policy::Headers;

use crate::lab;
use crate::side_by_side::side_by_side;

const COMPILER: &str = "clang-19";

/// How a selftest is compiled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Form {
    /// As it is.
    Plain,
    /// With `xk_flex.bpf.h`.
    Header,
}

/// Where sources, headers and objects are.
#[derive(Debug)]
pub struct Place {
    tools: PathBuf,
    headers: Headers,
    objects: PathBuf,
    /// Folders of the host's compiler that clang searches, too.
    system: Vec<String>,
}

/// What came of a selftest.
#[derive(Debug)]
pub struct Compiled {
    /// Of its file.
    pub name: String,
    /// The object, or the first error of the compiler.
    pub plain: Result<PathBuf, String>,
    /// The same with the header.
    pub header: Result<PathBuf, String>,
}

impl Place {
    /// Unpacks the sources for a kernel of the lab, and writes the headers.
    ///
    /// # Errors
    /// When the source package or the compiler is missing.
    pub fn new(kernel: &str) -> Result<Self> {
        let folder = lab::output(lab::command("scripts/bpf-sources")?.arg(kernel))?;
        let folder = PathBuf::from(folder.trim());
        let lab::Kernel { root, release, .. } = lab::kernel_named(kernel)?;
        let types = root.join("usr/src").join(format!("linux-headers-{release}")).join("vmlinux");
        let place = Self {
            headers: Headers::new(&types, &folder, "headers")?,
            tools: folder.join("tools"),
            objects: folder.join("objects"),
            system: system_folders()?,
        };
        fs::create_dir_all(&place.objects)?;
        Ok(place)
    }

    fn progs(&self) -> PathBuf {
        self.tools.join("testing/selftests/bpf/progs")
    }

    /// Names of all selftests, sorted.
    ///
    /// # Errors
    /// When there is none.
    pub fn names(&self) -> Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(self.progs())? {
            let path = entry?.path();
            if path.extension().is_some_and(|extension| extension == "c") {
                names.extend(path.file_stem().map(|name| name.to_string_lossy().into_owned()));
            }
        }
        names.sort();
        ensure!(!names.is_empty(), "{}: no sources", self.progs().display());
        Ok(names)
    }

    /// Compiles these.
    ///
    /// # Errors
    /// When the compiler cannot be executed.
    pub fn compile(&self, names: &[String]) -> Result<Vec<Compiled>> {
        side_by_side(names, |name| {
            let (plain, header) = (self.object(name, Form::Plain)?, self.object(name, Form::Header)?);
            Ok(Compiled { name: name.clone(), plain, header })
        })
    }

    fn object(&self, name: &str, form: Form) -> Result<Result<PathBuf, String>> {
        let own = self.progs().join(format!("{name}.c"));
        let mut newest = modified(&self.headers.folder().join("vmlinux.h"))?.max(modified(&own)?);
        let (object, source) = match form {
            Form::Plain => (self.objects.join(format!("{name}.bpf.o")), own),
            Form::Header => (self.objects.join(format!("{name}.flex.bpf.o")), self.with_header(name, &own)?),
        };
        if form == Form::Header {
            newest = newest.max(modified(&self.headers.folder().join("xk_flex.bpf.h"))?);
        }
        if modified(&object).is_ok_and(|made| made > newest) {
            return Ok(Ok(object));
        }
        let made = object.with_extension("new");
        let done = self.compiler(name).arg(source).arg("-o").arg(&made).output().context(COMPILER)?;
        if done.status.success() {
            fs::rename(&made, &object)?;
            return Ok(Ok(object));
        }
        let text = String::from_utf8_lossy(&done.stderr);
        let error = text.lines().find(|line| line.contains("error:")).unwrap_or_default();
        Ok(Err(error.split_once("error:").map_or(error, |(_, reason)| reason).trim().to_owned()))
    }

    /// The header needs the types of the kernel, which a selftest has from `vmlinux.h` or from the headers for user
    /// space. These exclude each other, so it comes last.
    fn with_header(&self, name: &str, source: &Path) -> Result<PathBuf> {
        let path = self.objects.join(format!("{name}.flex.c"));
        let text = format!(
            "#include \"{}\"\n#ifndef __VMLINUX_H__\n#include <linux/types.h>\n#endif\n#include \"xk_flex.bpf.h\"\n",
            source.display()
        );
        if fs::read_to_string(&path).is_ok_and(|there| there == text) {
            return Ok(path);
        }
        fs::write(&path, text)?;
        Ok(path)
    }

    /// `CLANG_BPF_BUILD_RULE` of `tools/testing/selftests/bpf/Makefile`.
    fn compiler(&self, name: &str) -> Command {
        let tests = self.tools.join("testing/selftests/bpf");
        let mut command = Command::new(COMPILER);
        command.args(["-g", "-Wall", "-Werror", "-D__TARGET_ARCH_x86", "-mlittle-endian"]);
        for folder in [self.headers.folder(), &tests, &self.tools.join("include/uapi")] {
            command.arg("-I").arg(folder);
        }
        command.arg("-Wno-compare-distinct-pointer-types").args(&self.system).arg("-DENABLE_ATOMICS_TESTS");
        if ["test_l4lb_noinline", "test_xdp_noinline"].contains(&name) {
            command.arg("-fno-inline");
        }
        command.args(["-O2", "--target=bpf", "-mcpu=v3", "-c"]);
        command
    }
}

fn modified(path: &Path) -> Result<SystemTime> {
    fs::metadata(path).and_then(|data| data.modified()).with_context(|| path.display().to_string())
}

/// `get_sys_includes` of the Makefile.
fn system_folders() -> Result<Vec<String>> {
    let done = Command::new(COMPILER).args(["-v", "-E", "-", "-o", "/dev/null"]).output();
    let done = done.with_context(|| format!("{COMPILER}: scripts/setup bench installs it"))?;
    let text = String::from_utf8_lossy(&done.stderr);
    let lines = text.lines().skip_while(|line| !line.contains("search starts here:"));
    let folders: Vec<String> = lines
        .take_while(|line| !line.starts_with("End of search list"))
        .filter_map(|line| line.strip_prefix(" /"))
        .flat_map(|folder| ["-idirafter".to_owned(), format!("/{folder}")])
        .collect();
    ensure!(!folders.is_empty(), "{COMPILER} -v did not say which folders it searches");
    Ok(folders)
}
