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

/// A folder that may be a root with tools.
fn root() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(folder.path().join("usr/bin")).unwrap();
    std::fs::create_dir_all(folder.path().join("etc")).unwrap();
    std::fs::write(folder.path().join("usr/bin/env"), "").unwrap();
    folder
}

const WANTED: &str = "gcc-14 (Debian 14.2.0-19) 14.2.0";

/// The first root that has exactly the compiler is used, if this machine does not have it.
#[test]
fn the_tools_are_found_that_have_the_compiler() {
    let compiler = Compiler { command: "gcc-14".to_owned(), version_text: WANTED.to_owned() };
    let (other, right) = (root(), root());
    let mut env = FixtureEnv::default();
    let mut hints = SourceHints::default();
    for (folder, version) in [(&other, "gcc-14 (Debian 14.2.0-18) 14.2.0"), (&right, WANTED)] {
        let tools = Toolchain::in_root(folder.path()).unwrap();
        env.program(&tools.line("gcc-14", &["--version"]).join(" "), version);
        env.file(folder.path().to_str().unwrap(), "");
        hints.toolchains.push(folder.path().to_owned());
    }
    let found = find_tools(&env, &compiler, &hints).unwrap();
    assert_eq!(found.root(), Some(&*right.path().canonicalize().unwrap()));

    hints.toolchain = Some(other.path().to_owned());
    let error = find_tools(&env, &compiler, &hints).unwrap_err().to_string();
    assert!(error.contains("14.2.0-18") && error.contains("another compiler gives other code"), "{error}");

    hints = SourceHints::default();
    let error = find_tools(&env, &compiler, &hints).unwrap_err().to_string();
    let remedy =
        "apt-get install gcc-14=14.2.0-19) or, if this release of Debian does not have it, make a root with it \
                  for --toolchain (mmdebstrap --variant=apt --include=gcc-14,";
    assert!(error.contains(remedy) && error.contains(" trixie DIR)"), "{error}");

    env.program("gcc-14", WANTED);
    assert_eq!(find_tools(&env, &compiler, &hints).unwrap(), Toolchain::host());
}
