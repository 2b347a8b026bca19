use std::fs;
use std::os::unix::fs::symlink;
use std::process::Command;

use super::*;
use crate::env::HostEnv;

/// A root whose only program prints `/etc/name` and where it runs.
fn root() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let bin = folder.path().join("usr/bin");
    fs::create_dir_all(&bin).unwrap();
    fs::create_dir_all(folder.path().join("etc")).unwrap();
    for name in MERGED {
        symlink(format!("usr/{name}"), folder.path().join(name)).unwrap();
    }
    fs::write(folder.path().join("etc/name"), "another root\n").unwrap();
    let source = folder.path().join("env.c");
    let text = "#include <stdio.h>\n#include <unistd.h>\nint main(void) { char b[256] = \"\"; FILE *f = \
                fopen(\"/etc/name\", \"r\"); fgets(b, 64, f); fputs(b, stdout); puts(getcwd(b, 256)); return 0; }\n";
    fs::write(&source, text).unwrap();
    let built = Command::new("gcc").args(["-static", "-o"]).arg(bin.join("env")).arg(&source).status().unwrap();
    assert!(built.success());
    folder
}

/// Without root, this needs a kernel that lets users create namespaces.
#[test]
fn a_command_sees_the_roots_programs_and_this_machines_other_files() {
    let folder = root();
    let tools = Toolchain::in_root(folder.path()).unwrap();
    let place = tempfile::tempdir().unwrap();
    let output = tools.command("env", place.path()).output().unwrap();
    let expected = format!("another root\n{}\n", place.path().display());
    assert_eq!(String::from_utf8_lossy(&output.stdout), expected, "{}", String::from_utf8_lossy(&output.stderr));
    let run = tools.run(&HostEnv, "env", &[]).unwrap();
    assert!(run.success && run.stdout.starts_with("another root\n"), "{run:?}");
    // Only in that command.
    assert!(!Path::new("/etc/name").exists() && Path::new("/usr/bin/gcc").exists());
    assert!(!tools.run(&HostEnv, "gcc", &["--version"]).unwrap().success, "the root has no gcc");
}

#[test]
fn a_folder_that_cannot_stand_in_is_refused() {
    let empty = tempfile::tempdir().unwrap();
    let error = Toolchain::in_root(empty.path()).unwrap_err().to_string();
    assert!(error.contains("usr/bin/env is missing; make a root") && error.contains("mmdebstrap"), "{error}");
    let error = Toolchain::in_root(Path::new("/nonexistent")).unwrap_err().to_string();
    assert!(error.contains("cannot find /nonexistent"), "{error}");
    let folder = root();
    fs::remove_file(folder.path().join("lib")).unwrap();
    fs::create_dir(folder.path().join("lib")).unwrap();
    let error = Toolchain::in_root(folder.path()).unwrap_err().to_string();
    assert!(error.contains("lib is a folder and not a link into /usr"), "{error}");
}

#[test]
fn what_the_tools_would_not_see_is_refused() {
    let folder = root();
    let tools = Toolchain::in_root(folder.path()).unwrap();
    tools.check_visible(folder.path()).unwrap();
    tools.check_visible(&folder.path().join("not/yet")).unwrap();
    for path in ["/usr/lib/xk", "/etc/xk/cache", "/lib/xk"] {
        let error = tools.check_visible(Path::new(path)).unwrap_err().to_string();
        assert!(error.contains("choose another folder (XK_CACHE, TMPDIR)"), "{error}");
        Toolchain::host().check_visible(Path::new(path)).unwrap();
    }
}
