//! What the administrator of this machine forbids: `/etc/xk/xk.toml`, or the file that
//! `$XK_CONFIG` names, in; backends that nothing is loaded by, with their lines, out. Without
//! the file nothing is forbidden. Refused is a file that cannot be read or understood: then
//! nothing is loaded, since what it forbids is not known.
//!
//! ```toml
//! [backend]
//! forbid = ["patch"]
//! ```

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use clap::ValueEnum;
use serde::Deserialize;
use toml::Spanned;
use xk_runtime::{Backend, Mode};
use xk_table::ScopeTable;

use crate::exit::{Exit, Failure, Result};
use crate::verbs::set::By;

const FILE: &str = "/etc/xk/xk.toml";
const VARIABLE: &str = "XK_CONFIG";

/// What is forbidden here.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rules {
    file: PathBuf,
    forbidden: Vec<(By, usize)>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    #[serde(default)]
    backend: Section,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Section {
    #[serde(default)]
    forbid: Vec<Spanned<String>>,
}

impl Rules {
    /// Of this machine.
    ///
    /// # Errors
    /// The file is there and cannot be read or understood.
    pub fn read() -> Result<Self> {
        let named = std::env::var_os(VARIABLE).filter(|value| !value.is_empty());
        let file = named.map_or_else(|| PathBuf::from(FILE), PathBuf::from);
        match fs::read_to_string(&file) {
            Ok(text) => Self::parse(&file, &text),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(Self { file, forbidden: Vec::new() }),
            Err(error) => Err(Failure::error(format!(
                "{}: {error}: what is forbidden on this machine is not known; mend or remove the file",
                file.display()
            ))),
        }
    }

    fn parse(file: &Path, text: &str) -> Result<Self> {
        let line = |offset: usize| 1 + text.bytes().take(offset).filter(|&byte| byte == b'\n').count();
        let wrong =
            |offset: usize, sentence: &str| Failure::error(format!("{}:{}: {sentence}", file.display(), line(offset)));
        let document: Document = toml::from_str(text).map_err(|error| {
            let sentence = error.message().trim().replace('\n', ", ");
            wrong(error.span().map_or(0, |span| span.start), &sentence)
        })?;
        let mut forbidden = Vec::new();
        for name in document.backend.forbid {
            let by = By::from_str(name.get_ref(), false).ok().filter(|&by| by != By::Auto).ok_or_else(|| {
                wrong(name.span().start, &format!("`{}` is no backend: kprobe, detour or patch", name.get_ref()))
            })?;
            forbidden.push((by, line(name.span().start)));
        }
        Ok(Self { file: file.to_owned(), forbidden })
    }

    /// Where this one is forbidden.
    fn place(&self, by: By) -> Option<String> {
        let line = self.forbidden.iter().find(|(other, _)| *other == by)?.1;
        Some(format!("{}:{line}", self.file.display()))
    }

    fn allows(&self, by: By) -> bool {
        self.place(by).is_none()
    }

    /// Each that is forbidden, and where.
    pub fn forbidden(&self) -> impl Iterator<Item = (String, String)> + '_ {
        self.forbidden.iter().map(|(by, line)| (by.word(), format!("{}:{line}", self.file.display())))
    }

    /// One sentence about them; `None`: nothing is forbidden.
    pub fn sentence(&self) -> Option<String> {
        let each: Vec<String> = self.forbidden().map(|(by, place)| format!("{by} ({place})")).collect();
        (!each.is_empty()).then(|| format!("backends that the administrator forbids: {}", each.join(", ")))
    }

    /// Whether this may be asked for.
    ///
    /// # Errors
    /// It is forbidden, or, of `auto`, all are.
    pub fn check(&self, by: By) -> Result {
        let all = [By::Kprobe, By::Detour, By::Patch];
        let (what, instead) = match by {
            By::Auto if all.iter().any(|&by| self.allows(by)) => return Ok(()),
            By::Auto => ("every backend".to_owned(), "ask the administrator".to_owned()),
            by if self.allows(by) => return Ok(()),
            by => {
                let word = by.word();
                let default = if by == By::Kprobe { ", the default," } else { "" };
                (format!("backend {word}{default}"), "take --backend auto, which chooses among the others".to_owned())
            }
        };
        let place = match by {
            By::Auto => self.file.display().to_string(),
            by => self.place(by).unwrap_or_default(),
        };
        Err(Failure::new(Exit::Refused, format!("{what} is forbidden by {place}: {instead}")))
    }

    /// For a constant that a policy decides: instructions that hold the value ask nobody.
    ///
    /// # Errors
    /// It is forbidden, or a patch.
    pub fn deciding(&self, by: By) -> Result<Backend> {
        if by == By::Patch {
            return Err(Failure::usage(
                "instructions that hold the value ask no policy, and know nobody: backend kprobe, detour or auto",
            ));
        }
        self.check(by)?;
        Ok(match (by, self.allows(By::Detour), self.allows(By::Kprobe)) {
            (By::Auto, true, true) => Backend::Auto,
            (By::Auto, true, false) | (By::Detour, ..) => Backend::Detour,
            (By::Auto, false, true) | (By::Kprobe, ..) => Backend::Kprobe,
            _ => {
                let others = self.sentence().unwrap_or_default();
                return Err(Failure::new(
                    Exit::Refused,
                    format!("only a patch is allowed, which asks no policy; {others}"),
                ));
            }
        })
    }

    /// For a constant that goes to a value in this mode.
    ///
    /// # Errors
    /// Nothing that is allowed is possible.
    pub fn backend(&self, by: By, table: &ScopeTable, value: i64, mode: Mode) -> Result<Backend> {
        self.check(by)?;
        if let (By::Auto, Some(reason)) = (by, table.only_in_place()) {
            self.check(By::Patch).map_err(|_| {
                let others = self.sentence().unwrap_or_default();
                Failure::new(Exit::Refused, format!("only a patch is possible: {reason}; {others}"))
            })?;
            return Ok(Backend::Patch);
        }
        let patch = Backend::cheapest(table, value, mode) == Backend::AutoGlobal && self.allows(By::Patch);
        Ok(match (by, patch, self.allows(By::Detour), self.allows(By::Kprobe)) {
            (By::Kprobe, ..) => Backend::Kprobe,
            (By::Detour, ..) => Backend::Detour,
            (By::Patch, ..) => Backend::Patch,
            (By::Auto, true, true, true) => Backend::AutoGlobal,
            (By::Auto, true, true, false) => Backend::PatchOrDetour,
            (By::Auto, true, false, true) => Backend::PatchOrKprobe,
            (By::Auto, true, false, false) => Backend::Patch,
            (By::Auto, false, true, true) => Backend::Auto,
            (By::Auto, false, true, false) => Backend::Detour,
            (By::Auto, false, false, true) => Backend::Kprobe,
            (By::Auto, false, false, false) => {
                let why = if mode == Mode::Global { "it has no room for this value" } else { "that takes mode global" };
                let others = self.sentence().unwrap_or_default();
                return Err(Failure::new(Exit::Refused, format!("only a patch is allowed, and {why}; {others}")));
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;

    fn rules(text: &str) -> Result<Rules> {
        Rules::parse(Path::new("/etc/xk/xk.toml"), text)
    }

    fn forbid(names: &str) -> Rules {
        rules(&format!("[backend]\nforbid = [{names}]\n")).unwrap_or_default()
    }

    #[test]
    fn what_is_forbidden_is_refused_with_its_line() {
        let rules = forbid("\"detour\",\n  \"patch\"");
        assert_eq!(rules.check(By::Kprobe).map_err(|failure| failure.message), Ok(()));
        assert_eq!(rules.check(By::Auto).map_err(|failure| failure.message), Ok(()));
        for (by, line) in [(By::Detour, 2), (By::Patch, 3)] {
            let failure = rules.check(by).err().map(|failure| (failure.exit, failure.message));
            let sentence = format!("backend {} is forbidden by /etc/xk/xk.toml:{line}: ", by.word());
            assert!(failure.is_some_and(|(exit, why)| exit == Exit::Refused && why.starts_with(&sentence)));
        }
        let sentence = rules.sentence();
        assert!(sentence.is_some_and(|text| text.ends_with("detour (/etc/xk/xk.toml:2), patch (/etc/xk/xk.toml:3)")));
        assert_eq!(Rules::default().sentence(), None);
        let all = forbid("\"kprobe\", \"detour\", \"patch\"").check(By::Auto);
        assert!(all.is_err_and(|failure| failure.message.starts_with("every backend is forbidden by /etc/xk")));
    }

    #[test]
    fn what_it_does_not_mean_is_refused_with_its_line() {
        for (text, line, sentence) in [
            ("[backend]\nforbid = [\"ftrace\"]\n", 2, "`ftrace` is no backend: kprobe, detour or patch"),
            ("[backend]\nforbid = [\"auto\"]\n", 2, "`auto` is no backend"),
            ("[backend]\n\nforbit = []\n", 3, "unknown field `forbit`"),
            ("[backends]\n", 1, "unknown field `backends`"),
            ("[backend]\nforbid = \"patch\"\n", 2, "invalid type"),
            ("[backend\n", 1, ""),
        ] {
            let failure = rules(text).err().map(|failure| failure.message).unwrap_or_default();
            assert!(failure.starts_with(&format!("/etc/xk/xk.toml:{line}: ")), "{text}: {failure}");
            assert!(failure.contains(sentence), "{text}: {failure}");
        }
        assert_eq!(rules("").ok(), Some(Rules { file: "/etc/xk/xk.toml".into(), forbidden: vec![] }));
    }

    #[test]
    fn auto_takes_the_cheapest_of_what_is_left() {
        let mut table = fixture::table();
        for span in &mut table.spans {
            let range = table.values.hull();
            let proof = span.proof.clone();
            span.in_place = Some(xk_table::InPlace { patches: vec![], range, proof });
        }
        let value = table.constant.default;
        let of = |names: &str, mode| forbid(names).backend(By::Auto, &table, value, mode).map_err(|f| f.message);
        for (names, global, task) in [
            ("", Backend::AutoGlobal, Backend::Auto),
            ("\"patch\"", Backend::Auto, Backend::Auto),
            ("\"detour\"", Backend::PatchOrKprobe, Backend::Kprobe),
            ("\"kprobe\"", Backend::PatchOrDetour, Backend::Detour),
            ("\"kprobe\", \"patch\"", Backend::Detour, Backend::Detour),
            ("\"detour\", \"patch\"", Backend::Kprobe, Backend::Kprobe),
        ] {
            assert_eq!((of(names, Mode::Global), of(names, Mode::Task)), (Ok(global), Ok(task)), "{names}");
        }
        assert_eq!(of("\"kprobe\", \"detour\"", Mode::Global), Ok(Backend::Patch));
        let deciding = |names: &str, by| forbid(names).deciding(by).map_err(|failure| failure.message);
        for (names, auto) in [
            ("", Backend::Auto),
            ("\"patch\"", Backend::Auto),
            ("\"detour\"", Backend::Kprobe),
            ("\"kprobe\"", Backend::Detour),
        ] {
            assert_eq!(deciding(names, By::Auto), Ok(auto), "{names}");
        }
        assert_eq!(deciding("", By::Detour), Ok(Backend::Detour));
        assert!(deciding("", By::Patch).unwrap_err().contains("ask no policy"));
        assert!(deciding("\"detour\"", By::Detour).unwrap_err().contains("forbidden by"));
        assert!(deciding("\"kprobe\", \"detour\"", By::Auto).unwrap_err().contains("which asks no policy; backends"));
        let why = of("\"kprobe\", \"detour\"", Mode::Task).err().unwrap_or_default();
        assert!(why.contains("only a patch is allowed, and that takes mode global; backends that"), "{why}");
    }
}
