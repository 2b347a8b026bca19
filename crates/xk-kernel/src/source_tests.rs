use std::cell::RefCell;
use std::collections::HashMap;

use super::*;
use crate::env::RunOutput;

const RELEASE: &str = "6.12.117+deb12-amd64";
const CONFIG: &str = "# Linux/x86 6.12.117 Kernel Configuration\nCONFIG_DEBUG_INFO_BTF=y\n\
                      CONFIG_CC_VERSION_TEXT=\"x86_64-linux-gnu-gcc-12 (Debian 12.2.0-14+deb12u1) 12.2.0\"\n";
const GCC: &str = "x86_64-linux-gnu-gcc-12 (Debian 12.2.0-14+deb12u1) 12.2.0\nCopyright\n";

/// A machine made of a few files and programs.
#[derive(Default)]
struct Fixture {
    files: HashMap<PathBuf, String>,
    programs: HashMap<&'static str, &'static str>,
    ran: RefCell<Vec<String>>,
}

impl Fixture {
    fn complete() -> Self {
        let mut fixture = Self::default();
        fixture.files.insert("/usr/src/linux-source-6.12.tar.xz".into(), String::new());
        fixture.files.insert(format!("/boot/config-{RELEASE}").into(), CONFIG.to_owned());
        fixture.programs.insert("x86_64-linux-gnu-gcc-12", GCC);
        fixture.programs.insert("pahole", "v1.24\n");
        fixture.programs.insert("dpkg-query", "6.12.117-1~deb12u1");
        fixture
    }

    fn locate(&self) -> Result<Source, SourceError> {
        let id = KernelId::new(RELEASE, &[1], "#1 SMP Debian 6.12.117-1~deb12u1 (2026)");
        Source::locate_in(self, &id, &SourceHints::default())
    }
}

impl Env for Fixture {
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        self.files.get(path).map(|text| text.clone().into_bytes()).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn exists(&self, path: &Path) -> bool {
        self.files.contains_key(path)
    }

    fn run(&self, program: &str, _args: &[&str]) -> io::Result<RunOutput> {
        self.ran.borrow_mut().push(program.to_owned());
        let stdout = self.programs.get(program).ok_or(io::ErrorKind::NotFound)?;
        Ok(RunOutput { success: true, stdout: (*stdout).to_owned(), stderr: String::new() })
    }
}

#[test]
fn a_complete_machine_gives_a_source() {
    let source = Fixture::complete().locate().unwrap();
    assert_eq!(source.tarball, Path::new("/usr/src/linux-source-6.12.tar.xz"));
    assert_eq!(source.compiler.command, "x86_64-linux-gnu-gcc-12");
    assert_eq!(source.config, CONFIG);
    assert_eq!(source.headers, None);
}

#[test]
fn each_missing_part_is_named_with_its_remedy() {
    let mut fixture = Fixture::complete();
    fixture.files.remove(Path::new("/usr/src/linux-source-6.12.tar.xz"));
    let message = fixture.locate().unwrap_err().to_string();
    assert!(message.contains("apt-get install linux-source-6.12"), "{message}");

    let mut fixture = Fixture::complete();
    fixture.files.remove(Path::new(&format!("/boot/config-{RELEASE}")));
    let message = fixture.locate().unwrap_err().to_string();
    assert!(message.contains("/boot/config-") && message.contains("/usr/src/linux-headers-"), "{message}");

    let mut fixture = Fixture::complete();
    fixture.programs.remove("x86_64-linux-gnu-gcc-12");
    let message = fixture.locate().unwrap_err().to_string();
    assert!(message.contains("apt-get install gcc-12=12.2.0-14+deb12u1"), "{message}");

    let mut fixture = Fixture::complete();
    fixture.programs.remove("pahole");
    assert!(fixture.locate().unwrap_err().to_string().contains("apt-get install dwarves"));
}

#[test]
fn another_compiler_is_refused() {
    let mut fixture = Fixture::complete();
    fixture.programs.insert("x86_64-linux-gnu-gcc-12", "x86_64-linux-gnu-gcc-12 (Debian 12.2.0-14) 12.2.0\n");
    assert!(matches!(fixture.locate(), Err(SourceError::CompilerMismatch { .. })));
}

#[test]
fn another_source_package_is_refused_and_no_dpkg_is_not() {
    let mut fixture = Fixture::complete();
    fixture.programs.insert("dpkg-query", "6.12.115-1");
    let message = fixture.locate().unwrap_err().to_string();
    assert!(message.contains("6.12.115-1") && message.contains("6.12.117-1~deb12u1"), "{message}");
    fixture.programs.remove("dpkg-query");
    assert!(fixture.locate().is_ok());
}

#[test]
fn a_configuration_of_another_kind_is_refused() {
    let mut fixture = Fixture::complete();
    let path = PathBuf::from(format!("/boot/config-{RELEASE}"));
    fixture.files.insert(path.clone(), "CONFIG_64BIT=y\n".to_owned());
    assert!(matches!(fixture.locate(), Err(SourceError::ConfigWithoutCompiler { .. })));
    fixture.files.insert(path, CONFIG.replace("Linux/x86", "Linux/arm64"));
    assert!(matches!(fixture.locate(), Err(SourceError::ConfigArchitecture { .. })));
}

#[test]
fn a_release_without_a_version_is_refused() {
    let id = KernelId::new("next-20260101", &[1], "");
    let error = Source::locate_in(&Fixture::complete(), &id, &SourceHints::default());
    assert!(matches!(error, Err(SourceError::Release { .. })));
}

#[test]
fn configuration_values_lose_their_quotes() {
    assert_eq!(config_value(CONFIG, "DEBUG_INFO_BTF"), Some("y"));
    assert!(config_value(CONFIG, "CC_VERSION_TEXT").unwrap().starts_with("x86_64"));
    assert_eq!(config_value(CONFIG, "DEBUG_INFO"), None);
}
