//! From what a user wrote to one constant of the deployed kernel: found in the source, active in
//! the deployed configuration, evaluated by the deployed compiler. Refuses, with the reason, what
//! is ambiguous, unknown, not an integer, or sizes a type.

use crate::conditions::Config;
use crate::constant::Constant;
use crate::edit::EditError;
use crate::find::{Candidate, Finder, Found, Unfit};
use crate::id::ConstId;
use crate::index::Index;
use crate::scan::{may_mention, Scan};
use crate::search_path::FileNo;
use crate::spec::Spec;
use crate::tree::{BuildTree, TreeError, Unit};

/// Why there is no constant to work with.
#[derive(Debug, thiserror::Error)]
pub enum ResolveError {
    /// Nothing in the deployed sources has this name.
    #[error("no constant named `{name}` in the deployed sources{}", suggest(.near))]
    Unknown {
        /// The name asked for.
        name: String,
        /// Names that look like it.
        near: Vec<String>,
    },
    /// Several constants are meant.
    #[error("`{spec}` is ambiguous; name one of:{}", list(.candidates))]
    Ambiguous {
        /// What was asked for.
        spec: String,
        /// Full IDs of what it may mean.
        candidates: Vec<ConstId>,
    },
    /// The constant is no integer.
    #[error("{at}: `{found}` is not an integer constant; only integers can be tuned")]
    NotInteger {
        /// Where.
        at: String,
        /// What stands there.
        found: String,
    },
    /// The value is not known when compiling.
    #[error("{at}: `{expression}` is not a constant when {unit} is compiled ({why}); tune the variable it depends on{}", found(.literals))]
    NotConstant {
        /// Where.
        at: String,
        /// The expression.
        expression: String,
        /// The unit in which it was evaluated.
        unit: String,
        /// The compiler's output.
        why: String,
        /// The literals in it, which are constants.
        literals: Vec<ConstId>,
    },
    /// The line has no constant at all.
    #[error("{at} holds no integer constant: `{text}`; name another line")]
    NoConstant {
        /// Where.
        at: String,
        /// The line.
        text: String,
    },
    /// The constant sizes a type or an array.
    #[error("{at}: the constant sizes {what}; memory of that layout already exists in the running kernel, so it cannot be changed")]
    Layout {
        /// Where.
        at: String,
        /// What it sizes.
        what: String,
    },
    /// The constant decides what is compiled.
    #[error("{at}: `{text}` selects what is compiled; the running kernel holds only one of the outcomes")]
    Conditional {
        /// Where.
        at: String,
        /// The directive.
        text: String,
    },
    /// An enumerator that cannot be changed by itself.
    #[error("{at}: {why}; changing it would renumber the enumeration")]
    Enumerator {
        /// Where.
        at: String,
        /// Which enumerator depends on another one.
        why: String,
    },
    /// It exists, but not in the deployed kernel.
    #[error("{at} is not part of the deployed kernel: {why}")]
    NotDeployed {
        /// Where.
        at: String,
        /// What keeps it out.
        why: String,
    },
    /// The ID names something that does not stand there.
    #[error("there is no {id} in this source{}; is it from another kernel version?", found(.candidates))]
    Stale {
        /// The ID asked for.
        id: ConstId,
        /// What stands on that line.
        candidates: Vec<ConstId>,
    },
    /// Hundreds of units depend on it.
    #[error("{0}")]
    TooWide(String),
    /// No such file in the tree.
    #[error("{path} is not among the sources of the deployed kernel; give the path from the root of the source tree")]
    NoFile {
        /// The path asked for.
        path: String,
    },
    /// The tree failed.
    #[error(transparent)]
    Tree(TreeError),
    /// The edited copy could not be made.
    #[error(transparent)]
    Edit(#[from] EditError),
}

impl From<TreeError> for ResolveError {
    fn from(error: TreeError) -> Self {
        match error {
            TreeError::TooWide { .. } => ResolveError::TooWide(error.to_string()),
            other => ResolveError::Tree(other),
        }
    }
}

fn suggest(near: &[String]) -> String {
    if near.is_empty() {
        "; give a file and line instead".to_owned()
    } else {
        format!("; did you mean {}?", near.join(", "))
    }
}

fn list(ids: &[ConstId]) -> String {
    ids.iter().map(|id| format!("\n  {id}")).collect()
}

fn found(ids: &[ConstId]) -> String {
    if ids.is_empty() {
        String::new()
    } else {
        format!("; the line holds:{}", list(ids))
    }
}

/// More definitions than this are listed without asking the compiler which of them are active.
const CHECKED_DEFINITIONS: usize = 8;

/// Finds the constant that `spec` means in the deployed kernel.
pub fn resolve(tree: &impl BuildTree, spec: &Spec) -> Result<Constant, ResolveError> {
    let index = Index::open(tree)?;
    let units = tree.units()?;
    let resolver = Resolver { tree, index: &index, units: &units, config: Config::of(tree) };
    match spec {
        Spec::Name(name) => resolver.by_name(name),
        Spec::Line { path, line } => resolver.by_line(path, *line),
        Spec::Id(id) => resolver.by_id(id),
    }
}

pub(crate) struct Resolver<'a, T> {
    pub tree: &'a T,
    pub index: &'a Index,
    pub units: &'a [Unit],
    pub config: Option<Config>,
}

impl<T: BuildTree> Resolver<'_, T> {
    fn by_name(&self, name: &str) -> Result<Constant, ResolveError> {
        let roots: Vec<FileNo> = self.units.iter().filter_map(|u| self.index.number(&u.source)).collect();
        let deployed = self.index.reach(&roots);
        let (here, elsewhere): (Vec<FileNo>, Vec<FileNo>) =
            self.index.mentions(name)?.into_iter().partition(|&file| deployed.get(file as usize) == Some(&true));
        let mut found = Found::default();
        let mut unfit_at = String::new();
        for file in here {
            let defined = self.definitions(name, file)?;
            found.candidates.extend(defined.candidates);
            if !defined.unfit.is_empty() {
                unfit_at = format!("{name} in {}", self.index.path(file));
            }
            found.unfit.extend(defined.unfit);
        }
        if !found.candidates.is_empty() {
            let chosen = self.choose(name, found.candidates);
            return self.or_its_literal(chosen, Some(name.to_owned()));
        }
        if let Some(unfit) = found.unfit.first() {
            return Err(refuse(unfit, unfit_at, name));
        }
        for file in elsewhere {
            let defined = self.definitions(name, file)?;
            if !defined.candidates.is_empty() || !defined.unfit.is_empty() {
                return Err(ResolveError::NotDeployed {
                    at: format!("{name} ({})", self.index.path(file)),
                    why: "no deployed translation unit is or includes that file".to_owned(),
                });
            }
        }
        Err(ResolveError::Unknown { name: name.to_owned(), near: self.near(name) })
    }

    fn definitions(&self, name: &str, file: FileNo) -> Result<Found, TreeError> {
        let path = self.index.path(file);
        let source = self.tree.read(path)?;
        if !may_mention(&source, name) {
            return Ok(Found::default());
        }
        Ok(Finder { path, scan: &Scan::new(&source) }.definitions(name))
    }

    /// `(4 * variable)` is no constant, but its 4 is the only one that can be meant.
    fn or_its_literal(
        &self,
        chosen: Result<Constant, ResolveError>,
        name: Option<String>,
    ) -> Result<Constant, ResolveError> {
        match chosen {
            Err(ResolveError::NotConstant { literals, .. }) if literals.len() == 1 => {
                Ok(Constant { name, ..self.by_id(&literals[0])? })
            }
            other => other,
        }
    }

    fn by_line(&self, path: &str, line: u32) -> Result<Constant, ResolveError> {
        let spec = format!("{path}:{line}");
        let source = self.source(path)?;
        let scan = Scan::new(&source);
        let found = Finder { path, scan: &scan }.on_line(line);
        if found.candidates.is_empty() {
            let text = line_of(&source, line);
            return Err(match found.unfit.first() {
                Some(unfit) => refuse(unfit, spec, &text),
                None => ResolveError::NoConstant { at: spec, text },
            });
        }
        if found.candidates.len() > 1 {
            let candidates = found.candidates.into_iter().map(|c| c.id).collect();
            return Err(ResolveError::Ambiguous { spec, candidates });
        }
        let name = found.candidates.first().and_then(|candidate| candidate.name.clone());
        let chosen = self.choose(&spec, found.candidates);
        self.or_its_literal(chosen, name)
    }

    fn by_id(&self, id: &ConstId) -> Result<Constant, ResolveError> {
        let source = self.source(&id.path)?;
        let scan = Scan::new(&source);
        let finder = Finder { path: &id.path, scan: &scan };
        let (whole, literals) = (finder.on_line(id.line), finder.literals_on_line(id.line));
        let mut all = whole.candidates;
        all.extend(literals.candidates.into_iter().filter(|c| !all.iter().any(|a| a.id == c.id)).collect::<Vec<_>>());
        if let Some(candidate) = all.iter().find(|c| c.id == *id) {
            return self.choose(&id.to_string(), vec![candidate.clone()]);
        }
        let unfit = whole.unfit.iter().chain(&literals.unfit).next();
        match unfit.filter(|_| all.is_empty()) {
            Some(unfit) => Err(refuse(unfit, format!("{}:{}", id.path, id.line), &line_of(&source, id.line))),
            None => Err(ResolveError::Stale { id: id.clone(), candidates: all.into_iter().map(|c| c.id).collect() }),
        }
    }

    fn source(&self, path: &str) -> Result<Vec<u8>, ResolveError> {
        if self.index.number(path).is_none() {
            return Err(ResolveError::NoFile { path: path.to_owned() });
        }
        Ok(self.tree.read(path)?)
    }

    /// The one candidate that is active, evaluated.
    fn choose(&self, spec: &str, candidates: Vec<Candidate>) -> Result<Constant, ResolveError> {
        let ambiguous = |candidates: Vec<Candidate>| ResolveError::Ambiguous {
            spec: spec.to_owned(),
            candidates: candidates.into_iter().map(|c| c.id).collect(),
        };
        if candidates.len() > CHECKED_DEFINITIONS {
            return Err(ambiguous(candidates));
        }
        let mut active = Vec::new();
        let mut inactive = None;
        for candidate in candidates {
            match self.witnesses(&candidate) {
                Ok((witnesses, operators)) => active.push((candidate, witnesses, operators)),
                Err(ResolveError::NotDeployed { at, why }) => inactive = Some(ResolveError::NotDeployed { at, why }),
                Err(other) => return Err(other),
            }
        }
        if active.len() > 1 {
            return Err(ambiguous(active.into_iter().map(|(c, ..)| c).collect()));
        }
        match (active.pop(), inactive) {
            (Some((candidate, witnesses, operator)), _) => self.evaluated(candidate, &witnesses, operator),
            (None, Some(why)) => Err(why),
            (None, None) => Err(ResolveError::Unknown { name: spec.to_owned(), near: Vec::new() }),
        }
    }

    fn near(&self, name: &str) -> Vec<String> {
        let wanted = name.to_ascii_uppercase();
        let score = |other: &str| strsim::damerau_levenshtein(&wanted, &other.to_ascii_uppercase());
        let names = self.index.names();
        let similar = names.iter().filter(|n| n.len().abs_diff(name.len()) <= 3);
        let mut scored: Vec<(usize, &String)> = similar.map(|n| (score(n), n)).collect();
        scored.retain(|(distance, _)| *distance <= 1 + name.len() / 5);
        scored.sort();
        scored.into_iter().take(5).map(|(_, n)| n.clone()).collect()
    }
}

fn refuse(unfit: &Unfit, at: String, text: &str) -> ResolveError {
    match unfit {
        Unfit::NotInteger(found) => ResolveError::NotInteger { at, found: found.clone() },
        Unfit::Layout(what) => ResolveError::Layout { at, what: what.clone() },
        Unfit::Conditional => ResolveError::Conditional { at, text: text.trim().to_owned() },
        Unfit::Enumerator(why) => ResolveError::Enumerator { at, why: why.clone() },
        Unfit::Empty(_) => ResolveError::NoConstant { at, text: text.trim().to_owned() },
    }
}

pub(crate) fn line_of(source: &[u8], line: u32) -> String {
    let text = source.split(|&b| b == b'\n').nth(line.saturating_sub(1) as usize).unwrap_or_default();
    String::from_utf8_lossy(text).into_owned()
}
