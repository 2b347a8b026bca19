//! Includes that no directive spells out: those that a macro names, and those that a makefile
//! gives to its folder's units by `-include`.
//!
//! In: what the files of a tree contribute to the index, and its makefiles. Out: edges from
//! files to those that they may include, too many rather than too few. A macro whose value is
//! not known may stand for every header.

use crate::facts::{named_file, Facts, Include};
use crate::search_path::{normalise, FileNo, SearchPath};
use std::collections::{BTreeSet, HashMap};
use std::path::Path;

/// The headers that end with a file which includes them again, by name (samples/trace_events):
/// `TRACE_INCLUDE(TRACE_INCLUDE_FILE)` is always one of these.
const TRACE_INCLUDE: &str = "TRACE_INCLUDE";
/// The folder that it uses by default (include/trace/define_trace.h).
const TRACE_EVENTS: &str = "trace/events";

/// More includes of each file.
pub(crate) fn edges(
    root: &Path,
    paths: &[String],
    all: &[(usize, Facts)],
    search_path: &SearchPath<'_>,
) -> std::io::Result<HashMap<FileNo, BTreeSet<FileNo>>> {
    let mut found: HashMap<FileNo, BTreeSet<FileNo>> = HashMap::new();
    let makefiles = makefiles(root, paths)?;
    let mut values: HashMap<&str, Vec<(&str, &str)>> = HashMap::new();
    for (n, facts) in all {
        for (name, value) in &facts.paths {
            values.entry(name).or_default().push((&paths[*n], value));
        }
    }
    for (n, facts) in all {
        let targets = found.entry(*n as FileNo).or_default();
        for include in &facts.includes {
            match include {
                Include::Computed(name) if name == TRACE_INCLUDE => {}
                Include::Computed(name) => {
                    targets.extend(meant(name, &paths[*n], &values, &makefiles, paths, search_path));
                }
                Include::File { target, .. } if target.starts_with("trace/define_") => {
                    targets.extend(traced(&paths[*n], facts, search_path));
                }
                _ => {}
            }
        }
    }
    for makefile in &makefiles {
        for (scope, target) in forced(makefile) {
            let files = makefile.file(&target, paths, search_path);
            for (n, path) in paths.iter().enumerate().filter(|(_, path)| scope.covers(path)) {
                if path.ends_with(".c") || path.ends_with(".S") {
                    found.entry(n as FileNo).or_default().extend(&files);
                }
            }
        }
    }
    found.retain(|_, targets| !targets.is_empty());
    Ok(found)
}

/// The files that `#include name` in `from` may mean.
fn meant(
    name: &str,
    from: &str,
    values: &HashMap<&str, Vec<(&str, &str)>>,
    makefiles: &[Makefile],
    paths: &[String],
    search_path: &SearchPath<'_>,
) -> Vec<FileNo> {
    let mut found = Vec::new();
    let mut certain = true;
    for (place, value) in values.get(name).into_iter().flatten() {
        match named_file(value.as_bytes()) {
            // Where it looks is up to the file with the directive, not to that with the macro.
            Some((quoted, target)) => {
                found.extend(search_path.resolve(from, quoted, &target));
                found.extend(search_path.resolve(place, quoted, &target));
            }
            None => certain = false,
        }
    }
    // -DNAME='"file.h"', in the many ways in which a makefile quotes.
    let flag = format!("-D{name}=");
    for makefile in makefiles {
        for (at, _) in makefile.text.match_indices(&flag) {
            let value = makefile.text[at + flag.len()..].split_whitespace().next().unwrap_or_default();
            let target = value.trim_matches(|c| "\\'\"<>".contains(c));
            found.extend(makefile.file(target, paths, search_path));
        }
    }
    if certain {
        return found;
    }
    (0..paths.len() as FileNo).filter(|&n| paths[n as usize].ends_with(".h")).collect()
}

/// The header that a header of trace events includes through include/trace/define_trace.h: itself,
/// by the path and the name that it states.
fn traced(from: &str, facts: &Facts, search_path: &SearchPath<'_>) -> Vec<FileNo> {
    let stated = |name: &'static str| {
        facts.paths.iter().filter(move |(known, value)| known == name && !value.is_empty()).map(|(_, v)| v.as_str())
    };
    let mut folders: Vec<&str> = stated("TRACE_INCLUDE_PATH").collect();
    folders.push(TRACE_EVENTS);
    let names = stated("TRACE_INCLUDE_FILE").chain(stated("TRACE_SYSTEM")).filter(|name| *name != "TRACE_SYSTEM");
    let target = |name: &str, folder: &str| format!("{folder}/{name}.h");
    names
        .flat_map(|name| folders.iter().map(move |folder| target(name, folder)))
        .flat_map(|target| search_path.resolve(from, true, &target))
        .collect()
}

/// A makefile, without line breaks inside of its lines.
struct Makefile {
    folder: String,
    text: String,
}

/// The units that a flag is for.
enum FlagUnits {
    Folder(String),
    /// Without its suffix.
    Unit(String),
}

impl FlagUnits {
    fn covers(&self, path: &str) -> bool {
        match self {
            Self::Folder(folder) => folder.is_empty() || path.strip_prefix(folder).is_some_and(|p| p.starts_with('/')),
            Self::Unit(stem) => path.rsplit_once('.').is_some_and(|(path, _)| path == stem),
        }
    }
}

impl Makefile {
    /// The files that a path in it means.
    fn file(&self, path: &str, paths: &[String], search_path: &SearchPath<'_>) -> Vec<FileNo> {
        let whole = ["$(srctree)/", "$(objtree)/", "$(src)/", "$(obj)/", "./"]
            .iter()
            .fold(path, |path, prefix| path.strip_prefix(prefix).unwrap_or(path));
        if whole.contains('$') {
            // Something is computed: whatever this folder has.
            let below = FlagUnits::Folder(self.folder.clone());
            return (0..paths.len() as FileNo).filter(|&n| below.covers(&paths[n as usize])).collect();
        }
        let exact = [format!("{}/{whole}", self.folder), whole.to_owned()];
        let named: Vec<FileNo> = exact
            .iter()
            .filter_map(|path| normalise(path))
            .flat_map(|path| search_path.like(&path).into_iter().filter(move |&n| paths[n as usize] == path))
            .collect();
        if named.is_empty() {
            search_path.like(whole)
        } else {
            named
        }
    }
}

/// The makefiles of the folders that hold sources. Those of the whole kernel are known
/// ([`crate::index`], `FORCED`).
fn makefiles(root: &Path, paths: &[String]) -> std::io::Result<Vec<Makefile>> {
    let folders: BTreeSet<&str> = paths.iter().filter_map(|path| path.rsplit_once('/')).map(|(f, _)| f).collect();
    let above = |folder: &&str| folder.match_indices('/').map(|(at, _)| folder[..at].to_owned()).collect::<Vec<_>>();
    let all: BTreeSet<String> = folders.iter().flat_map(above).chain(folders.iter().map(|&f| f.to_owned())).collect();
    let mut found = Vec::new();
    for folder in all {
        for name in ["Makefile", "Kbuild"] {
            match std::fs::read(root.join(&folder).join(name)) {
                Ok(text) => {
                    let text = String::from_utf8_lossy(&text).replace("\\\n", " ");
                    found.push(Makefile { folder: folder.clone(), text });
                }
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
    }
    Ok(found)
}

/// What the units of a makefile's folder, or one of them, include by their flags.
fn forced(makefile: &Makefile) -> Vec<(FlagUnits, String)> {
    let mut found = Vec::new();
    for line in makefile.text.lines() {
        // `-include FILE` at the start of a line is make's own; recipes and their commands make no units.
        if line.starts_with('\t') || line.starts_with('-') {
            continue;
        }
        let Some((variable, flags)) = line.split_once('=') else { continue };
        let variable = variable.trim().trim_end_matches([':', '+', '?']).trim();
        if variable.starts_with("cmd_") || variable.starts_with("quiet_cmd_") {
            continue;
        }
        let scope = || {
            let unit = variable.strip_suffix(".o").and_then(|v| v.split_once("FLAGS_")).map(|(_, unit)| unit);
            match unit.filter(|unit| !unit.contains('$')) {
                Some(unit) => FlagUnits::Unit(format!("{}/{unit}", makefile.folder)),
                None => FlagUnits::Folder(makefile.folder.clone()),
            }
        };
        let mut words = flags.split_whitespace();
        while let Some(word) = words.next() {
            if matches!(word, "-include" | "-imacros") {
                found.extend(words.next().map(|target| (scope(), target.to_owned())));
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::index::Index;
    use crate::tree::{BuildTree, FileEdit, TreeError, Unit};
    use std::collections::BTreeMap;
    use std::path::PathBuf;

    /// A tree of these files; nothing of it is compiled.
    struct Files(tempfile::TempDir);

    impl Files {
        fn of(files: &BTreeMap<&str, &str>) -> Self {
            let folder = tempfile::tempdir().unwrap();
            for (path, text) in files {
                let path = folder.path().join(path);
                std::fs::create_dir_all(path.parent().unwrap()).unwrap();
                std::fs::write(path, text).unwrap();
            }
            Self(folder)
        }
    }

    impl BuildTree for Files {
        fn root(&self) -> &Path {
            self.0.path()
        }
        fn cache(&self) -> PathBuf {
            self.0.path().join(".cache")
        }
        fn stamp(&self) -> String {
            self.0.path().display().to_string()
        }
        fn units(&self) -> Result<Vec<Unit>, TreeError> {
            Ok(Vec::new())
        }
        fn compile(&self, _: &[FileEdit], _: &str, _: &Path, _: &[&str]) -> Result<(), TreeError> {
            Err(TreeError::Failed("not a real tree".into()))
        }
        fn compile_preprocessed(&self, _: &Path, _: &str, _: &Path, _: &[&str]) -> Result<(), TreeError> {
            Err(TreeError::Failed("not a real tree".into()))
        }
        fn preprocess(&self, _: &[FileEdit], _: &str, _: &[&str]) -> Result<String, TreeError> {
            Err(TreeError::Failed("not a real tree".into()))
        }
    }

    /// The files that include `header`, itself included.
    fn includers(files: &[(&str, &str)], header: &str) -> Vec<String> {
        let tree = Files::of(&files.iter().copied().collect());
        let index = Index::open(&tree).unwrap();
        let reached = index.reached_by(index.number(header).unwrap());
        (0..index.len()).filter(|&n| reached[n]).map(|n| index.path(n as FileNo).to_owned()).collect()
    }

    #[test]
    fn a_macro_names_a_file() {
        let files = [
            ("include/linux/magic.h", "#include MAGIC_FILE\n"),
            ("include/linux/real.h", "#define X 1\n"),
            ("include/linux/api.h", "#define MAGIC_FILE <linux/real.h>\n#include <linux/magic.h>\n"),
            ("a/a.c", "#include <linux/api.h>\n"),
            ("a/b.c", ""),
        ];
        let found = includers(&files, "include/linux/real.h");
        assert_eq!(found, ["a/a.c", "include/linux/api.h", "include/linux/magic.h", "include/linux/real.h"]);
    }

    #[test]
    fn a_macro_that_is_not_known_may_name_every_header() {
        let files = [
            ("a/a.c", "#define SOME_FILE STRING(x.h)\n#include SOME_FILE\n"),
            ("a/b.c", ""),
            ("include/linux/real.h", "#define X 1\n"),
        ];
        assert_eq!(includers(&files, "include/linux/real.h"), ["a/a.c", "include/linux/real.h"]);
    }

    #[test]
    fn a_flag_names_a_file() {
        let files = [
            ("a/Makefile", "CFLAGS_a.o := -DWHAT_H='\"what.h\"'\n"),
            ("a/a.c", "#include WHAT_H\n"),
            ("a/what.h", "#define X 1\n"),
        ];
        assert_eq!(includers(&files, "a/what.h"), ["a/a.c", "a/what.h"]);
    }

    #[test]
    fn trace_events_include_what_they_state() {
        let files = [
            ("d/x.c", "#include \"x_trace.h\"\n"),
            (
                "d/x_trace.h",
                "#define TRACE_SYSTEM x\n#define TRACE_INCLUDE_PATH ../../d\n#define TRACE_INCLUDE_FILE other\n\
                 #include <trace/define_trace.h>\n",
            ),
            ("d/other.h", "#define X 1\n"),
            ("include/trace/define_trace.h", "#include TRACE_INCLUDE(TRACE_INCLUDE_FILE)\n"),
        ];
        assert_eq!(includers(&files, "d/other.h"), ["d/other.h", "d/x.c", "d/x_trace.h"]);
    }

    #[test]
    fn makefiles_include_by_flags() {
        let files = [
            (
                "a/Makefile",
                "obj-y := a.o\nsubdir-ccflags-y += -DA \\\n\t-include $(src)/all.h\nCFLAGS_b.o := -imacros one.h\n",
            ),
            ("a/a.c", ""),
            ("a/b.c", ""),
            ("a/sub/c.c", ""),
            ("a/all.h", "#define X 1\n"),
            ("a/one.h", "#define Y 1\n"),
            ("b/Makefile", "cmd_test = $(CC) -include $<\n-include ../a/all.h\nall:\n\t$(CC) -include x.h\n"),
            ("b/d.c", ""),
        ];
        assert_eq!(includers(&files, "a/all.h"), ["a/a.c", "a/all.h", "a/b.c", "a/sub/c.c"]);
        assert_eq!(includers(&files, "a/one.h"), ["a/b.c", "a/one.h"]);
    }

    #[test]
    fn the_next_file_is_another_one() {
        let files = [
            ("a/a.c", "#include <linux/n.h>\n"),
            ("include/linux/n.h", "#include_next <linux/n.h>\n"),
            ("include/uapi/linux/n.h", "#define X 1\n"),
        ];
        assert_eq!(
            includers(&files, "include/uapi/linux/n.h"),
            ["a/a.c", "include/linux/n.h", "include/uapi/linux/n.h"]
        );
    }
}
