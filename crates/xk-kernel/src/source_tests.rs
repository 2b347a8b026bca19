use super::*;
use crate::env::FixtureEnv;

const RELEASE: &str = "6.12.117+deb12-amd64";
const CONFIG: &str = "# Linux/x86 6.12.117 Kernel Configuration\nCONFIG_DEBUG_INFO_BTF=y\n\
                      CONFIG_CC_VERSION_TEXT=\"x86_64-linux-gnu-gcc-12 (Debian 12.2.0-14+deb12u1) 12.2.0\"\n";
const GCC: &str = "x86_64-linux-gnu-gcc-12 (Debian 12.2.0-14+deb12u1) 12.2.0\nCopyright\n";

const TARBALL: &str = "/usr/src/linux-source-6.12.tar.xz";
const CONFIG_PATH: &str = "/boot/config-6.12.117+deb12-amd64";

fn complete() -> FixtureEnv {
    let mut env = FixtureEnv::default();
    env.file(TARBALL, "");
    env.file(CONFIG_PATH, CONFIG);
    env.program("x86_64-linux-gnu-gcc-12", GCC);
    env.program("pahole", "v1.24\n");
    env.program("dpkg-query", "6.12.117-1~deb12u1");
    env
}

fn locate(env: &FixtureEnv) -> Result<Source, SourceError> {
    let id = KernelId::new(RELEASE, &[1], "#1 SMP Debian 6.12.117-1~deb12u1 (2026)");
    Source::locate_in(env, &id, &SourceHints::default())
}

#[test]
fn a_complete_machine_gives_a_source() {
    let source = locate(&complete()).unwrap();
    assert_eq!(source.tarball, Path::new("/usr/src/linux-source-6.12.tar.xz"));
    assert_eq!(source.compiler.command, "x86_64-linux-gnu-gcc-12");
    assert_eq!(source.config, CONFIG);
    assert_eq!(source.headers, None);
}

#[test]
fn each_missing_part_is_named_with_its_remedy() {
    let mut fixture = complete();
    fixture.files.remove(Path::new(TARBALL));
    let message = locate(&fixture).unwrap_err().to_string();
    assert!(message.contains("apt-get install linux-source-6.12"), "{message}");

    let mut fixture = complete();
    fixture.files.remove(Path::new(CONFIG_PATH));
    let message = locate(&fixture).unwrap_err().to_string();
    assert!(message.contains("/boot/config-") && message.contains("/usr/src/linux-headers-"), "{message}");

    let mut fixture = complete();
    fixture.programs.remove("x86_64-linux-gnu-gcc-12");
    let message = locate(&fixture).unwrap_err().to_string();
    assert!(message.contains("apt-get install gcc-12=12.2.0-14+deb12u1"), "{message}");

    let mut fixture = complete();
    fixture.programs.remove("pahole");
    assert!(locate(&fixture).unwrap_err().to_string().contains("apt-get install dwarves"));
}

#[test]
fn another_compiler_is_refused() {
    let mut fixture = complete();
    fixture.program("x86_64-linux-gnu-gcc-12", "x86_64-linux-gnu-gcc-12 (Debian 12.2.0-14) 12.2.0\n");
    assert!(matches!(locate(&fixture), Err(SourceError::CompilerMismatch { .. })));
}

#[test]
fn another_source_package_is_refused_and_no_dpkg_is_not() {
    let mut fixture = complete();
    fixture.program("dpkg-query", "6.12.115-1");
    let message = locate(&fixture).unwrap_err().to_string();
    assert!(message.contains("6.12.115-1") && message.contains("6.12.117-1~deb12u1"), "{message}");
    fixture.programs.remove("dpkg-query");
    assert!(locate(&fixture).is_ok());
}

#[test]
fn a_configuration_of_another_kind_is_refused() {
    let mut fixture = complete();
    fixture.file(CONFIG_PATH, "CONFIG_64BIT=y\n");
    assert!(matches!(locate(&fixture), Err(SourceError::ConfigWithoutCompiler { .. })));
    fixture.file(CONFIG_PATH, CONFIG.replace("Linux/x86", "Linux/arm64"));
    assert!(matches!(locate(&fixture), Err(SourceError::ConfigArchitecture { .. })));
}

#[test]
fn a_release_without_a_version_is_refused() {
    let id = KernelId::new("next-20260101", &[1], "");
    let error = Source::locate_in(&complete(), &id, &SourceHints::default());
    assert!(matches!(error, Err(SourceError::Release { .. })));
}

#[test]
fn configuration_values_lose_their_quotes() {
    assert_eq!(config_value(CONFIG, "DEBUG_INFO_BTF"), Some("y"));
    assert!(config_value(CONFIG, "CC_VERSION_TEXT").unwrap().starts_with("x86_64"));
    assert_eq!(config_value(CONFIG, "DEBUG_INFO"), None);
}
