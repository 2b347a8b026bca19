//! From what a user wrote to one constant of the deployed kernel: found in the source, active in
//! the deployed configuration, evaluated by the deployed compiler. Refuses, with the reason, what
//! is ambiguous, unknown, not an integer, or sizes a type.

use crate::edit::EditError;
use crate::find::{Candidate, Finder, Found, Unfit};
use crate::id::ConstId;
use crate::index::{FileNo, Index};
use crate::probe::{evaluate, look, NoValue, Question};
use crate::scan::Scan;
use crate::spec::Spec;
use crate::token::integer_literal;
use crate::tree::{BuildTree, TreeError, Unit};
use crate::users::{users_of, Start};
use crate::value::{CType, Operator};

/// How a constant is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Form {
    /// `#define NAME body`.
    Macro,
    /// A literal in an expression or in the body of a macro with parameters.
    Literal,
    /// The initialiser of a `static const` variable.
    StaticConst,
    /// An enumerator with a value of its own.
    EnumValue,
}

/// The bytes to replace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Site {
    /// File, relative to the root of the tree.
    pub path: String,
    /// Line of the first byte, counted from 1.
    pub line: u32,
    /// First byte.
    pub start: usize,
    /// One past the last byte.
    pub end: usize,
    /// The bytes as they stand there.
    pub written: String,
}

/// A constant of the deployed kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Constant {
    /// Its unique name.
    pub id: ConstId,
    /// Macro, variable or enumerator.
    pub name: Option<String>,
    /// The source line.
    pub text: String,
    /// The value as written, on one line.
    pub token: String,
    /// How it is written.
    pub form: Form,
    /// Its value in the deployed configuration. For unsigned 64-bit types, the same bits.
    pub default: i64,
    /// The type of the expression that it is.
    pub c_type: CType,
    /// The operator applied to it; for names, the most restrictive one among its uses.
    pub operator: Operator,
    /// What an edit replaces.
    pub site: Site,
    /// The deployed unit in which it was evaluated.
    pub witness: String,
}

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
        /// The compiler's words.
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
        /// Which one counts on.
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
    /// No such file in the tree.
    #[error("{path} is not among the sources of the deployed kernel; give the path from the root of the source tree")]
    NoFile {
        /// The path asked for.
        path: String,
    },
    /// The tree failed.
    #[error(transparent)]
    Tree(#[from] TreeError),
    /// The edited copy could not be made.
    #[error(transparent)]
    Edit(#[from] EditError),
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
/// Units that are tried for a constant before giving up.
const TRIED_UNITS: usize = 4;

/// Finds the constant that `spec` means in the deployed kernel.
pub fn resolve(tree: &impl BuildTree, spec: &Spec) -> Result<Constant, ResolveError> {
    let index = Index::open(tree)?;
    let units = tree.units()?;
    let resolver = Resolver { tree, index: &index, units: &units };
    match spec {
        Spec::Name(name) => resolver.by_name(name),
        Spec::Line { path, line } => resolver.by_line(path, *line),
        Spec::Id(id) => resolver.by_id(id),
    }
}

struct Resolver<'a, T> {
    tree: &'a T,
    index: &'a Index,
    units: &'a [Unit],
}

impl<T: BuildTree> Resolver<'_, T> {
    fn by_name(&self, name: &str) -> Result<Constant, ResolveError> {
        let roots: Vec<FileNo> = self.units.iter().filter_map(|u| self.index.number(&u.source)).collect();
        let deployed = self.index.reach(&roots);
        let (mut found, mut elsewhere) = (Found::default(), None);
        let mut unfit_at = String::new();
        for file in self.index.mentions(name)? {
            let path = self.index.path(file);
            let source = self.tree.read(path)?;
            let scan = Scan::new(&source);
            let here = Finder { path, scan: &scan }.definitions(name);
            if here.candidates.is_empty() && here.unfit.is_empty() {
                continue;
            }
            if deployed.get(file as usize) != Some(&true) {
                elsewhere = Some(path.to_owned());
                continue;
            }
            found.candidates.extend(here.candidates);
            if !here.unfit.is_empty() {
                unfit_at = format!("{name} in {path}");
            }
            found.unfit.extend(here.unfit);
        }
        if found.candidates.is_empty() {
            if let Some(unfit) = found.unfit.first() {
                return Err(refuse(unfit, unfit_at, name));
            }
            return Err(match elsewhere {
                Some(path) => ResolveError::NotDeployed {
                    at: format!("{name} ({path})"),
                    why: "no deployed translation unit is or includes that file".to_owned(),
                },
                None => ResolveError::Unknown { name: name.to_owned(), near: self.near(name) },
            });
        }
        self.choose(name, found.candidates)
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
        self.choose(&spec, found.candidates)
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

    /// The deployed units in which the candidate is active, a few of them, and the operator applied to it.
    fn witnesses(&self, candidate: &Candidate) -> Result<(Vec<String>, Operator), ResolveError> {
        let name = candidate.name.clone().filter(|_| candidate.form != Form::Literal);
        let start = Start { path: candidate.site.path.clone(), name, at: candidate.site.start };
        let users = users_of(self.tree, self.index, self.units, &start)?;
        let not_deployed = |why: &str| ResolveError::NotDeployed { at: candidate.id.to_string(), why: why.to_owned() };
        let mut sources: Vec<&str> = users.units.iter().map(|u| u.source.as_str()).collect();
        sources.dedup();
        // Its own file first, then those that mention it themselves: there it is most likely active.
        let mentions = match &start.name {
            Some(name) => self.index.mentions(name)?,
            None => Vec::new(),
        };
        let direct = |source: &str| self.index.number(source).is_some_and(|n| mentions.binary_search(&n).is_ok());
        sources.sort_by_key(|source| (*source != candidate.site.path, !direct(source)));
        if sources.is_empty() {
            return Err(not_deployed("no deployed translation unit uses it"));
        }
        let operator = users.operators.last().copied().unwrap_or(candidate.operator).max(candidate.operator);
        let mut active = Vec::new();
        for source in sources.iter().take(2 * TRIED_UNITS) {
            match look(self.tree, &candidate.site, source) {
                Ok(sight) if sight.active => active.push((*source).to_owned()),
                Ok(_) => {}
                // The marker made an `#if` fail; then the definition is certainly seen.
                Err(EditError::Tree(TreeError::Rejected { .. })) => active.push((*source).to_owned()),
                Err(other) => return Err(other.into()),
            }
            if !active.is_empty() {
                break;
            }
        }
        if active.is_empty() {
            return Err(not_deployed("the configuration of this kernel leaves it out"));
        }
        let more = sources.iter().map(|s| (*s).to_owned()).filter(|s| *s != active[0]).take(TRIED_UNITS - 1);
        let more: Vec<String> = more.collect();
        active.extend(more);
        Ok((active, operator))
    }

    fn evaluated(
        &self,
        candidate: Candidate,
        witnesses: &[String],
        operator: Operator,
    ) -> Result<Constant, ResolveError> {
        let (default, c_type, witness) = match candidate.form {
            Form::Literal => {
                let literal = integer_literal(&candidate.id.value);
                let c_type = literal.and_then(CType::of_literal);
                match (literal, c_type) {
                    (Some(literal), Some(c_type)) => (literal.value as i64, c_type, witnesses.first().cloned()),
                    _ => {
                        return Err(ResolveError::NotInteger {
                            at: candidate.id.to_string(),
                            found: candidate.id.value,
                        })
                    }
                }
            }
            _ => {
                let (default, c_type, witness) = self.ask(&candidate, witnesses)?;
                (default, c_type, Some(witness))
            }
        };
        let source = self.tree.read(&candidate.site.path)?;
        Ok(Constant {
            text: line_of(&source, candidate.id.line),
            token: candidate.id.value.clone(),
            id: candidate.id,
            name: candidate.name,
            form: candidate.form,
            default,
            c_type,
            operator,
            site: candidate.site,
            witness: witness.unwrap_or_default(),
        })
    }

    /// Lets the compiler evaluate a named constant, in the first unit where that works.
    fn ask(&self, candidate: &Candidate, witnesses: &[String]) -> Result<(i64, CType, String), ResolveError> {
        let name = candidate.name.as_deref().unwrap_or(&candidate.id.value);
        let value = if candidate.form == Form::StaticConst { candidate.id.value.as_str() } else { name };
        let at = candidate.id.to_string();
        let mut first = None;
        for unit in witnesses {
            let own = *unit == candidate.site.path;
            let keep = (own && candidate.form == Form::StaticConst).then_some(candidate.site.start);
            let question = Question { value, typed: name, after: own.then_some(candidate.after), keep };
            let failure = match evaluate(self.tree, unit, &question) {
                Ok((value, c_type)) => return Ok((value, c_type, unit.clone())),
                Err(NoValue::NotConstant(why)) => {
                    let expression = candidate.id.value.clone();
                    let literals = self.literals(&candidate.id)?;
                    ResolveError::NotConstant { at: at.clone(), expression, unit: unit.clone(), why, literals }
                }
                Err(NoValue::NotInteger) => {
                    return Err(ResolveError::NotInteger { at, found: candidate.id.value.clone() });
                }
                Err(NoValue::Tree(error)) => error.into(),
            };
            first.get_or_insert(failure);
        }
        Err(first.unwrap_or(ResolveError::Unknown { name: at, near: Vec::new() }))
    }

    fn literals(&self, id: &ConstId) -> Result<Vec<ConstId>, ResolveError> {
        let source = self.tree.read(&id.path)?;
        let scan = Scan::new(&source);
        let found = Finder { path: &id.path, scan: &scan }.literals_on_line(id.line);
        Ok(found.candidates.into_iter().map(|c| c.id).collect())
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

fn line_of(source: &[u8], line: u32) -> String {
    let text = source.split(|&b| b == b'\n').nth(line.saturating_sub(1) as usize).unwrap_or_default();
    String::from_utf8_lossy(text).into_owned()
}
