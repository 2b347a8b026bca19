use super::*;
use crate::env::FixtureEnv;

const PATCH: &str = "From: Somebody\nSubject: x\n\n---\n a/b.h | 2 +-\n\n\
    diff --git a/a/b.h b/a/b.h\nindex 1..2 100644\n\
    --- a/a/b.h\n+++ b/a/b.h\n@@ -1 +1 @@\n-#define V 1\n+#define V 2\n-- \n2.1\n\
    From: Somebody\n\ndiff --git a/arch/arm/c.h b/arch/arm/c.h\n--- a/arch/arm/c.h\n+++ b/arch/arm/c.h\n\
    @@ -1 +1 @@\n-x\n+y\n\
    From: Somebody\n\n--- a/arch/arm/d.h\n+++ b/arch/arm/d.h\n@@ -1 +1 @@\n-x\n+y\n\
    diff --git a/new b/new\nnew file mode 100644\n--- /dev/null\n+++ b/new\n@@ -0,0 +1 @@\n+-rt\n";

fn needed(path: &Path) -> bool {
    !path.starts_with("arch/arm")
}

/// A source with `a/b.h`, the patch, and the headers package with the same file.
fn fixture(source: &str, header: Option<&str>) -> (tempfile::TempDir, Featureset) {
    let folder = tempfile::tempdir().unwrap();
    let write = |path: &str, text: &str| {
        let path = folder.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    write("work/a/b.h", source);
    if let Some(header) = header {
        write("headers/a/b.h", header);
    }
    let patch = folder.path().join("rt.patch.xz");
    let mut file = liblzma::write::XzEncoder::new(File::create(&patch).unwrap(), 1);
    file.write_all(PATCH.as_bytes()).unwrap();
    file.finish().unwrap();
    let headers = Some(folder.path().join("headers"));
    (folder, Featureset { patch, headers })
}

fn apply(source: &str, header: Option<&str>) -> Result<String, String> {
    let (folder, featureset) = fixture(source, header);
    let work = folder.path().join("work");
    featureset.apply(&work, needed).map_err(|error| error.to_string())?;
    assert_eq!(fs::read_to_string(work.join("new")).unwrap(), "-rt\n");
    assert!(!work.join("arch").exists());
    Ok(fs::read_to_string(work.join("a/b.h")).unwrap())
}

#[test]
fn the_patch_is_applied_to_the_files_that_were_extracted() {
    assert_eq!(apply("#define V 1\n", None).unwrap(), "#define V 2\n");
    assert_eq!(apply("#define V 1\n", Some("#define V 2\n")).unwrap(), "#define V 2\n");
}

#[test]
fn a_patch_of_another_version_is_refused() {
    let error = apply("#define V 3\n", None).unwrap_err();
    assert!(error.contains("it does not apply"), "{error}");
    let error = apply("#define V 1\n", Some("#define V 4\n")).unwrap_err();
    assert!(error.contains("a/b.h differs from") && error.contains("another version"), "{error}");
}

#[test]
fn each_part_is_for_one_file() {
    let paths: Vec<&str> = parts(PATCH).into_iter().map(|(path, _)| path).collect();
    assert_eq!(paths, ["a/b.h", "arch/arm/c.h", "arch/arm/d.h", "new"]);
    assert!(parts(PATCH).iter().all(|(_, part)| !part.contains("diff --git") && part.contains("\n@@ ")));
    assert!(parts("--- a/x\n").is_empty() && parts("").is_empty());
}

#[test]
fn only_a_real_time_kernel_of_debian_needs_one() {
    let release = "6.12.117+deb12-rt-amd64";
    let mut env = FixtureEnv::default();
    let found = |env: &FixtureEnv, release: &str, real_time: bool| {
        find(env, Path::new("/"), release, "linux-source-6.12".to_owned(), real_time)
    };
    for (release, real_time) in [("6.12.117+deb12-amd64", true), (release, false), ("6.12.117-rt-own", true)] {
        assert_eq!(found(&env, release, real_time).unwrap(), None, "{release}");
    }
    let error = found(&env, release, true).unwrap_err().to_string();
    assert!(error.contains("/usr/src/linux-patch-6.12-rt.patch.xz") && error.contains("patches-rt"), "{error}");
    env.file("/usr/src/linux-patch-6.12-rt.patch.xz", "");
    assert_eq!(found(&env, release, true).unwrap().unwrap().headers, None);
}
