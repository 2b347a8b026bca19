use std::io::Write;

use super::*;
use crate::source::Compiler;
use crate::toolchain::Toolchain;

fn source(tarball: PathBuf) -> Source {
    Source {
        release: "6.12.117+deb12-amd64".to_owned(),
        tarball,
        config: "CONFIG_A=y\n".to_owned(),
        config_origin: "test".to_owned(),
        compiler: Compiler { command: "gcc".to_owned(), version_text: "gcc".to_owned() },
        headers: None,
        tools: Toolchain::host(),
        featureset: None,
    }
}

/// A tarball with the given files below one folder.
fn tarball(folder: &Path, files: &[(&str, &str)]) -> PathBuf {
    let path = folder.join("source.tar.xz");
    let mut archive = tar::Builder::new(liblzma::write::XzEncoder::new(File::create(&path).unwrap(), 1));
    for (name, text) in files {
        let mut header = tar::Header::new_gnu();
        header.set_size(text.len() as u64);
        header.set_mode(0o644);
        archive.append_data(&mut header, format!("linux-source-6.12/{name}"), text.as_bytes()).unwrap();
    }
    archive.into_inner().unwrap().finish().unwrap().flush().unwrap();
    path
}

/// Everything that `prepare` leaves under the cache folder, lock files aside.
fn left(cache: &Path) -> Vec<String> {
    let entries = fs::read_dir(cache.join("trees")).unwrap().map(|entry| entry.unwrap().file_name());
    let names = entries.map(|name| name.to_string_lossy().into_owned());
    names.filter(|name| !name.ends_with(".lock")).collect()
}

fn refused(files: &[(&str, &str)]) -> SourceError {
    let folder = tempfile::tempdir().unwrap();
    let error = source(tarball(folder.path(), files)).prepare(folder.path(), &|_| ()).unwrap_err();
    assert!(left(folder.path()).is_empty(), "a failed preparation leaves {:?}", left(folder.path()));
    error
}

#[test]
fn the_source_of_another_version_is_refused() {
    let error = refused(&[("Makefile", "VERSION = 6\nPATCHLEVEL = 12\nSUBLEVEL = 115\nEXTRAVERSION =\n")]);
    let message = error.to_string();
    assert!(matches!(error, SourceError::TarballVersion { .. }), "{message}");
    assert!(message.contains("6.12.115") && message.contains("6.12.117"), "{message}");
}

#[test]
fn an_archive_that_is_no_kernel_is_refused() {
    assert!(matches!(refused(&[("README", "x")]), SourceError::Archive { .. }));
    assert!(matches!(refused(&[("Makefile", "all:\n")]), SourceError::Archive { .. }));
}

#[test]
fn a_build_that_fails_leaves_nothing() {
    let makefile = "VERSION = 6\nPATCHLEVEL = 12\nSUBLEVEL = 117\nolddefconfig:\n\t@echo no flex >&2; exit 1\n";
    let error = refused(&[("Makefile", makefile)]);
    assert!(error.to_string().contains("no flex"), "{error}");
}

#[test]
fn a_configuration_that_the_tools_change_is_refused() {
    let makefile = "VERSION = 6\nPATCHLEVEL = 12\nSUBLEVEL = 117\nolddefconfig:\n\techo CONFIG_B=y > .config\n";
    let error = refused(&[("Makefile", makefile)]);
    assert!(error.to_string().contains("CONFIG_A=y → not set, CONFIG_B=not set → y"), "{error}");
}

#[test]
fn truncated_and_foreign_files_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let noise: String =
        (0..60_000_u32).map(|n| char::from(b'a' + (n.wrapping_mul(2_654_435_761) >> 27) as u8 % 26)).collect();
    let path = tarball(folder.path(), &[("a", &noise), ("Makefile", &noise)]);
    let whole = fs::read(&path).unwrap();
    for content in [&whole[..whole.len() / 2], b"not an archive", b""] {
        fs::write(&path, content).unwrap();
        let error = source(path.clone()).prepare(folder.path(), &|_| ()).unwrap_err();
        assert!(matches!(error, SourceError::Archive { .. }), "{error}");
        assert!(left(folder.path()).is_empty());
    }
}

#[test]
fn a_prepared_tree_is_opened_again_and_an_abandoned_one_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let makefile =
        "VERSION = 6\nPATCHLEVEL = 12\nSUBLEVEL = 117\nexport XK_PROBE := seen\nolddefconfig prepare0:\n\t@:\n";
    let source = source(tarball(folder.path(), &[("Makefile", makefile), ("drivers/x.c", "int x;\n")]));
    let partial = folder.path().join("trees").join(format!(".{}.partial", file_name(&source.tree_path(folder.path()))));
    fs::create_dir_all(partial.join("drivers/abandoned")).unwrap();

    let tree = source.prepare(folder.path(), &|_| ()).unwrap();
    assert_eq!(tree.config("CONFIG_A"), Some("y"));
    assert_eq!(tree.environment().get("XK_PROBE").map(String::as_str), Some("seen"));
    assert!(tree.root().join("drivers/x.c").exists() && !tree.root().join("drivers/abandoned").exists());

    let steps = std::cell::Cell::new(0);
    source.prepare(folder.path(), &|_| steps.set(steps.get() + 1)).unwrap();
    assert_eq!(steps.get(), 0, "the second preparation has nothing to do");
}

#[test]
fn signing_keys_and_salt_are_not_drift() {
    let shipped = "CONFIG_A=y\n# CONFIG_N is not set\n";
    let derived = "CONFIG_A=y\nCONFIG_N=n\nCONFIG_BUILD_SALT=\"\"\nCONFIG_MODULE_SIG_KEY=\"certs/signing_key.pem\"\n";
    assert!(drift(shipped, derived).is_empty());
    assert_eq!(drift("CONFIG_A=y\n", "CONFIG_A=m\n"), ["CONFIG_A=y → m"]);
}

#[test]
fn paths_outside_of_the_archive_are_skipped() {
    assert_eq!(inner_path(Path::new("linux/mm/x.c")), Some(Path::new("mm/x.c")));
    for path in ["linux", "linux/", "linux/../x", "/linux/x", "../linux/x"] {
        assert_eq!(inner_path(Path::new(path)), None, "{path}");
    }
}

#[test]
fn what_an_x86_unit_cannot_need_is_skipped() {
    for path in
        ["mm/x.c", "arch/x86/lib/x.S", "arch/arm/crypto/Kconfig", "Documentation/Kconfig", "tools/lib/bpf/relo_core.c"]
    {
        assert!(is_needed(Path::new(path)), "{path}");
    }
    for path in ["arch/arm64/kernel/x.c", "Documentation/index.rst", "tools/testing/x.c"] {
        assert!(!is_needed(Path::new(path)), "{path}");
    }
}
