//! The exact command that the kernel's build uses for one translation unit.
//!
//! In: a unit's source path. Out: the compiler's argument vector, as the
//! kernel's own makefiles compute it. Refuses units that this configuration
//! does not build.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::kbuild::{lock, tail, write_atomic, Kbuild, Makefile, PRIVATE_FOLDER};
use crate::source::SourceError;
use crate::tree::Tree;

/// How one translation unit is compiled. Paths are relative to the tree's root, which is also the
/// folder that the compiler runs in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CompileCommand {
    /// The compiler and its arguments, with `-c`, `-o object` and the source.
    pub argv: Vec<String>,
    /// The object file, as the kernel's build names it.
    pub object: String,
    /// The source file.
    pub source: String,
}

/// Why a unit cannot be compiled.
#[derive(Debug, Error)]
#[allow(missing_docs)] // the message of each variant documents its fields
pub enum CompileError {
    #[error("the compiler rejected {unit}:\n{stderr}")]
    Rejected { unit: String, stderr: String },
    #[error("this kernel's configuration does not build {unit}: {reason}")]
    NotBuilt { unit: String, reason: String },
    #[error("cannot understand the build command of {unit}: {error}")]
    Command { unit: String, error: CommandError },
    #[error("compiling {unit} read {} from the unedited tree although it was edited; the result would be a mixture", path.display())]
    Bypassed { unit: String, path: PathBuf },
    #[error("'{path}' is not a path below the kernel's source")]
    Path { path: String },
    #[error("cannot {what} {}: {error}", path.display())]
    Io { what: &'static str, path: PathBuf, error: io::Error },
    #[error(transparent)]
    Tree(#[from] SourceError),
}

/// Why the line that the kernel's build prints is not understood.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[allow(missing_docs)] // the message of each variant documents its fields
pub enum CommandError {
    #[error("unbalanced '")]
    SingleQuote,
    #[error("unbalanced or substituting \"")]
    DoubleQuote,
    #[error("unexpected '{character}'")]
    Unexpected { character: char },
    #[error("no compiler call with -c, -o, the object and the source")]
    NoCompiler,
}

impl CompileError {
    pub(crate) fn io(what: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |error| Self::Io { what, path, error }
    }
}

impl CompileCommand {
    /// The arguments for another output and, if wanted, without `-c` (to preprocess instead).
    ///
    /// `-o`, and the dependency file that the kernel's build asks for, are replaced.
    pub(crate) fn arguments(&self, output: &Path, dependencies: &Path, compile: bool) -> Vec<String> {
        let mut arguments = self.common(compile);
        arguments.push(format!("-Wp,-MMD,{}", dependencies.display()));
        arguments.extend(["-o".to_owned(), output.display().to_string(), self.source.clone()]);
        arguments
    }

    /// The arguments that compile `text`, which was preprocessed before.
    pub(crate) fn preprocessed(&self, output: &Path, text: &Path) -> Vec<String> {
        let mut arguments = self.common(true);
        arguments.extend(["-o".to_owned(), output.display().to_string()]);
        arguments.extend(["-x".to_owned(), "cpp-output".to_owned(), text.display().to_string()]);
        arguments
    }

    /// The kernel's own arguments without source, output and dependency file.
    fn common(&self, compile: bool) -> Vec<String> {
        let mut arguments = Vec::with_capacity(self.argv.len() + 1);
        let mut words = self.argv.iter().skip(1);
        while let Some(word) = words.next() {
            match word.as_str() {
                "-c" if !compile => {}
                "-o" => {
                    words.next();
                }
                _ if word.starts_with("-Wp,-MMD,") || word.starts_with("-Wp,-MD,") => {}
                _ if *word == self.source => {}
                _ => arguments.push(word.clone()),
            }
        }
        if compile {
            // The assembler reads along instead of starting afterwards, and no file lies between.
            arguments.push("-pipe".to_owned());
        }
        arguments
    }

    fn parse(unit: &str, object: &str, source: &str, line: &str) -> Result<Self, CompileError> {
        let command_error = |error| CompileError::Command { unit: unit.to_owned(), error };
        let argv = shell_words(line).map_err(command_error)?;
        let has = |word: &str| argv.iter().any(|other| other == word);
        if argv.len() < 4 || !has("-c") || !has("-o") || !has(object) || !has(source) {
            return Err(command_error(CommandError::NoCompiler));
        }
        Ok(Self { argv, object: object.to_owned(), source: source.to_owned() })
    }
}

impl Tree {
    /// How `unit` (for example `mm/shrinker.c`) is compiled. Takes about 0.1 s the first time.
    pub fn compile_command(&self, unit: &str) -> Result<CompileCommand, CompileError> {
        check_relative(unit)?;
        let cached = self.command_file(unit);
        if let Some(command) = fs::read(&cached).ok().and_then(|bytes| serde_json::from_slice(&bytes).ok()) {
            return Ok(command);
        }
        let command = self.ask_for_command(unit)?;
        let folder = cached.parent().unwrap_or(self.root());
        fs::create_dir_all(folder).map_err(CompileError::io("create", folder))?;
        let bytes = serde_json::to_vec(&command).map_err(|error| CompileError::io("encode", &cached)(error.into()))?;
        write_atomic(&cached, &bytes).map_err(CompileError::io("write", &cached))?;
        Ok(command)
    }

    fn command_file(&self, unit: &str) -> PathBuf {
        self.root().join(PRIVATE_FOLDER).join("commands").join(format!("{}.json", unit.replace('/', "!")))
    }

    fn ask_for_command(&self, unit: &str) -> Result<CompileCommand, CompileError> {
        let not_built = |reason: String| CompileError::NotBuilt { unit: unit.to_owned(), reason };
        if !unit.ends_with(".c") && !unit.ends_with(".S") {
            return Err(not_built("only .c and .S files are compiled".to_owned()));
        }
        let object = format!("{}.o", &unit[..unit.len() - 2]);
        match self.command_of_object(unit, &object) {
            Err(CompileError::NotBuilt { reason, .. }) => {
                // Objects of composites may be named through another folder: a/../b/unit.o.
                let units = self.units()?;
                let other = units.iter().find(|known| known.source == unit && known.object != object);
                let Some(other) = other else { return Err(not_built(reason)) };
                self.command_of_object(unit, &other.object)
            }
            result => result,
        }
    }

    fn command_of_object(&self, unit: &str, object: &str) -> Result<CompileCommand, CompileError> {
        // Making the unit's prerequisites writes into the tree.
        let lock_path = self.root().join(PRIVATE_FOLDER).join("lock");
        let _lock = lock(&lock_path, || ()).map_err(CompileError::io("lock", &lock_path))?;
        if let Some((source, line)) = self.saved_command(object) {
            return CompileCommand::parse(unit, object, &source, &line);
        }
        let kbuild = Kbuild::new(self.root(), self.compiler(), self.tools());
        let goals = [format!("./{object}")];
        let output = kbuild.descend(self.environment(), Makefile::Command, None, &goals)?;
        let stdout = String::from_utf8_lossy(&output.stdout);
        let prefix = format!("xk-command {object} ");
        if let Some((source, line)) =
            stdout.lines().find_map(|line| line.strip_prefix(&prefix)).and_then(|rest| rest.split_once(' '))
        {
            return CompileCommand::parse(unit, object, source, line);
        }
        let mut reason = tail(&output);
        if stdout.lines().any(|line| line.strip_prefix("xk-not-deployed ") == Some(object)) {
            reason = "the makefile of its folder does not list it".to_owned();
            return Err(CompileError::NotBuilt { unit: unit.to_owned(), reason });
        }
        if reason.contains("No rule to make target") {
            return Err(CompileError::NotBuilt { unit: unit.to_owned(), reason });
        }
        // A prerequisite is itself compiled from C: build everything for real.
        kbuild.build(self.environment(), &goals)?;
        let (source, line) =
            self.saved_command(object).ok_or(CompileError::NotBuilt { unit: unit.to_owned(), reason })?;
        CompileCommand::parse(unit, object, &source, &line)
    }

    /// The command that the kernel's build left beside an object, and the source it compiles.
    fn saved_command(&self, object: &str) -> Option<(String, String)> {
        let (folder, name) = object.rsplit_once('/').unwrap_or((".", object));
        let text = fs::read_to_string(self.root().join(folder).join(format!(".{name}.cmd"))).ok()?;
        let line = text.lines().find_map(|line| line.strip_prefix(&format!("savedcmd_{object} := ")))?;
        let line = line.replace("$(pound)", "#").replace("$$", "$");
        let stem = object.strip_suffix(".o")?;
        let words = shell_words(&line).ok()?;
        let source = words.iter().find(|word| **word == format!("{stem}.c") || **word == format!("{stem}.S"))?;
        Some((source.clone(), line))
    }
}

/// Refuses absolute paths and paths that leave the tree.
pub(crate) fn check_relative(path: &str) -> Result<(), CompileError> {
    let normal = Path::new(path).components().all(|part| matches!(part, std::path::Component::Normal(_)));
    if normal && !path.is_empty() {
        Ok(())
    } else {
        Err(CompileError::Path { path: path.to_owned() })
    }
}

/// The words of the first command of a shell line.
fn shell_words(line: &str) -> Result<Vec<String>, CommandError> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut characters = line.chars();
    while let Some(character) = characters.next() {
        match character {
            ' ' | '\t' | '\n' => words.extend(word.take()),
            ';' => break,
            '\'' => loop {
                match characters.next() {
                    Some('\'') => break,
                    Some(other) => word.get_or_insert_with(String::new).push(other),
                    None => return Err(CommandError::SingleQuote),
                }
            },
            '"' => loop {
                match characters.next() {
                    Some('"') => break,
                    Some('\\') => word.get_or_insert_with(String::new).extend(characters.next()),
                    Some('$' | '`') | None => return Err(CommandError::DoubleQuote),
                    Some(other) => word.get_or_insert_with(String::new).push(other),
                }
            },
            '\\' => word.get_or_insert_with(String::new).extend(characters.next()),
            '$' | '`' | '|' | '&' | '<' | '>' | '(' | ')' => return Err(CommandError::Unexpected { character }),
            other => word.get_or_insert_with(String::new).push(other),
        }
    }
    words.extend(word);
    Ok(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_split_as_a_shell_does() {
        let line = r#"gcc  -DNAME='"block/blk-mq"' -DX=\"y\" "-Da b" -c -o a.o a.c ; objtool a.o"#;
        let words = shell_words(line).unwrap();
        assert_eq!(words, ["gcc", r#"-DNAME="block/blk-mq""#, r#"-DX="y""#, "-Da b", "-c", "-o", "a.o", "a.c"]);
    }

    #[test]
    fn what_needs_a_shell_is_refused() {
        for line in ["gcc 'a", "gcc \"a", "gcc $(x)", "gcc a | b", "gcc a && b", "gcc > a", "gcc `x`"] {
            assert!(shell_words(line).is_err(), "{line}");
        }
    }

    #[test]
    fn output_and_dependency_file_are_replaced() {
        let line = "gcc -Wp,-MMD,a/.b.o.d -O2 -c -o a/b.o a/b.c";
        let command = CompileCommand::parse("a/b.c", "a/b.o", "a/b.c", line).unwrap();
        let arguments = command.arguments(Path::new("/t/x.o"), Path::new("/t/x.d"), true);
        assert_eq!(arguments, ["-O2", "-c", "-pipe", "-Wp,-MMD,/t/x.d", "-o", "/t/x.o", "a/b.c"]);
        let preprocessed = command.preprocessed(Path::new("/t/x.o"), Path::new("/t/x.i"));
        assert_eq!(preprocessed, ["-O2", "-c", "-pipe", "-o", "/t/x.o", "-x", "cpp-output", "/t/x.i"]);
        assert!(!command.arguments(Path::new("/t/x.i"), Path::new("/t/x.d"), false).contains(&"-c".to_owned()));
    }

    #[test]
    fn a_line_without_a_compiler_call_is_refused() {
        assert!(CompileCommand::parse("a.c", "a.o", "a.c", "ld -r -o a.o b.o").is_err());
        assert!(CompileCommand::parse("a.c", "a.o", "a.c", "").is_err());
    }

    #[test]
    fn paths_stay_in_the_tree() {
        assert!(check_relative("mm/shrinker.c").is_ok());
        for path in ["", "/etc/passwd", "../x.c", "mm/../../x.c"] {
            assert!(matches!(check_relative(path), Err(CompileError::Path { .. })), "{path}");
        }
    }
}
