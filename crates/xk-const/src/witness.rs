//! Where a constant is active, and what it is there: the second half of resolving. The configuration
//! and the include directives settle the common cases, and C itself what literals are worth; the
//! compiler is asked for the rest.

use crate::conditions::{Conditions, Config, Truth};
use crate::constant::{Constant, Form};
use crate::edit::EditError;
use crate::eval::{self, Names, Typed};
use crate::find::{Candidate, Finder};
use crate::id::ConstId;
use crate::inclusion;
use crate::probe::{evaluate, look, NoValue, Question};
use crate::resolve::{line_of, ResolveError, Resolver};
use crate::scan::{Directive, Place, Scan};
use crate::token::{integer_literal, Kind};
use crate::tree::{BuildTree, TreeError};
use crate::users::{users_of, Start};
use crate::value::{CType, Operator};

/// Units that are tried for a constant before giving up.
const TRIED_UNITS: usize = 4;

impl<T: BuildTree> Resolver<'_, T> {
    /// The deployed units in which the candidate is active, a few of them, and the operator applied to it.
    pub fn witnesses(&self, candidate: &Candidate) -> Result<(Vec<String>, Operator), ResolveError> {
        let not_deployed = |why: &str| ResolveError::NotDeployed { at: candidate.id.to_string(), why: why.to_owned() };
        let left_out = || not_deployed("the configuration of this kernel leaves it out");
        let condition = self.condition(candidate)?;
        if condition == Truth::No {
            return Err(left_out());
        }
        let name = candidate.name.clone().filter(|_| candidate.form != Form::Literal);
        let start = Start { path: candidate.range.path.clone(), name, at: candidate.range.start };
        let users = users_of(self.tree, self.index, self.units, &start)?;
        let mut sources: Vec<&str> = users.units.iter().map(|u| u.source.as_str()).collect();
        sources.dedup();
        // Its own file first, then those that mention it themselves: there it is most likely active.
        let mentions = match &start.name {
            Some(name) => self.index.mentions(name)?,
            None => Vec::new(),
        };
        let direct = |source: &str| self.index.number(source).is_some_and(|n| mentions.binary_search(&n).is_ok());
        sources.sort_by_key(|source| (*source != candidate.range.path, !direct(source)));
        if sources.is_empty() {
            return Err(not_deployed("no deployed translation unit uses it"));
        }
        let operator = users.operators.last().copied().unwrap_or(candidate.operator).max(candidate.operator);
        let seen = match condition {
            Truth::Yes => self.included_by(candidate, &sources)?,
            _ => None,
        };
        let first = match seen {
            Some(source) => source,
            None => self.seen_by_compiler(candidate, &sources)?.ok_or_else(left_out)?,
        };
        let more = sources.iter().map(|s| (*s).to_owned()).filter(|s| *s != first).take(TRIED_UNITS - 1);
        let more: Vec<String> = more.collect();
        Ok(([vec![first], more].concat(), operator))
    }

    /// Whether the configuration leaves the candidate in, as far as its own file tells.
    fn condition(&self, candidate: &Candidate) -> Result<Truth, ResolveError> {
        let Some(config) = &self.config else { return Ok(Truth::Maybe) };
        let source = self.tree.read(&candidate.range.path)?;
        let scan = Scan::new(&source);
        let Some(token) = token_at(&scan, candidate.range.start) else { return Ok(Truth::Maybe) };
        let conditions = Conditions::of(&scan, config);
        let here = conditions.at(token);
        // A later definition or `#undef` could replace it.
        let contested = candidate.name.as_deref().filter(|_| here == Truth::Yes).is_some_and(|name| {
            let others = scan.mentions(name).filter(|&other| {
                let hash = scan.tokens[other].directive;
                hash.is_some_and(|hash| other == hash + 2 && matches!(scan.text(hash + 1), "define" | "undef"))
                    && hash != scan.tokens[token].directive
            });
            others.into_iter().any(|other| conditions.at(other) != Truth::No)
        });
        Ok(if contested { Truth::Maybe } else { here })
    }

    /// The first of the units that certainly contains the candidate's file.
    fn included_by(&self, candidate: &Candidate, sources: &[&str]) -> Result<Option<String>, ResolveError> {
        let (Some(config), Some(file)) = (&self.config, self.index.number(&candidate.range.path)) else {
            return Ok(None);
        };
        let reached = self.index.reached_by(file);
        for source in sources.iter().take(2 * TRIED_UNITS) {
            let Some(unit) = self.index.number(source) else { continue };
            if inclusion::certain(self.tree, self.index, config, unit, file, &reached)? {
                return Ok(Some((*source).to_owned()));
            }
        }
        Ok(None)
    }

    /// The first of the units in which the preprocessor meets the candidate.
    fn seen_by_compiler(&self, candidate: &Candidate, sources: &[&str]) -> Result<Option<String>, ResolveError> {
        for source in sources.iter().take(2 * TRIED_UNITS) {
            match look(self.tree, &candidate.range, source) {
                Ok(sight) if sight.active => return Ok(Some((*source).to_owned())),
                Ok(_) => {}
                // The marker made an `#if` fail; then the definition is certainly seen.
                Err(EditError::Tree(TreeError::Rejected { .. })) => return Ok(Some((*source).to_owned())),
                Err(other) => return Err(other.into()),
            }
        }
        Ok(None)
    }

    /// The candidate as a constant, with its value and type.
    pub fn evaluated(
        &self,
        candidate: Candidate,
        witnesses: &[String],
        operator: Operator,
    ) -> Result<Constant, ResolveError> {
        let source = self.tree.read(&candidate.range.path)?;
        let scan = Scan::new(&source);
        let first = witnesses.first().cloned().unwrap_or_default();
        let units = Units { tree: self.tree, config: self.config.as_ref(), scan: &scan };
        let (default, c_type, witness) = match (candidate.form, exact(&scan, &candidate, &units)) {
            (_, Some((value, c_type))) => (value, c_type, first),
            (Form::Literal, None) => {
                let at = candidate.id.to_string();
                return Err(ResolveError::NotInteger { at, found: candidate.id.value });
            }
            (_, None) => match variable_in(&scan, &candidate) {
                Some(variable) => {
                    let why = format!("{variable} is a variable");
                    return Err(self.not_constant(&candidate, &scan, first, why));
                }
                None => self.ask(&candidate, &scan, witnesses)?,
            },
        };
        Ok(Constant {
            text: line_of(&source, candidate.id.line),
            token: candidate.id.value.clone(),
            id: candidate.id,
            name: candidate.name,
            form: candidate.form,
            default,
            c_type,
            operator,
            range: candidate.range,
            witness,
        })
    }

    /// Lets the compiler evaluate a named constant, in the first unit where that works.
    fn ask(
        &self,
        candidate: &Candidate,
        scan: &Scan<'_>,
        witnesses: &[String],
    ) -> Result<(i64, CType, String), ResolveError> {
        let name = candidate.name.as_deref().unwrap_or(&candidate.id.value);
        let value = if candidate.form == Form::StaticConst { candidate.id.value.as_str() } else { name };
        let at = candidate.id.to_string();
        let mut first = None;
        for unit in witnesses {
            let own = *unit == candidate.range.path;
            let keep = (own && candidate.form == Form::StaticConst).then_some(candidate.range.start);
            let question = Question { value, typed: name, after: own.then_some(candidate.after), keep };
            let failure = match evaluate(self.tree, unit, &question) {
                Ok((value, c_type)) => return Ok((value, c_type, unit.clone())),
                Err(NoValue::NotConstant(why)) => self.not_constant(candidate, scan, unit.clone(), why),
                Err(NoValue::NotInteger) => {
                    return Err(ResolveError::NotInteger { at, found: candidate.id.value.clone() });
                }
                Err(NoValue::Tree(error)) => error.into(),
            };
            first.get_or_insert(failure);
        }
        Err(first.unwrap_or(ResolveError::Unknown { name: at, near: Vec::new() }))
    }

    fn not_constant(&self, candidate: &Candidate, scan: &Scan<'_>, unit: String, why: String) -> ResolveError {
        ResolveError::NotConstant {
            at: candidate.id.to_string(),
            expression: candidate.id.value.clone(),
            unit,
            why,
            literals: literals(scan, candidate),
        }
    }
}

fn token_at(scan: &Scan<'_>, byte: usize) -> Option<usize> {
    let at = scan.tokens.partition_point(|token| token.end <= byte);
    scan.tokens.get(at).filter(|token| token.start <= byte).map(|_| at)
}

/// The tokens of a candidate.
fn tokens_of(scan: &Scan<'_>, candidate: &Candidate) -> std::ops::Range<usize> {
    let at = |byte| scan.tokens.partition_point(|token| token.start < byte);
    at(candidate.range.start)..at(candidate.range.end)
}

/// The value of what consists of literals, casts and operators: C itself defines it.
fn exact(scan: &Scan<'_>, candidate: &Candidate, names: &dyn Names) -> Option<(i64, CType)> {
    let range = tokens_of(scan, candidate);
    let declared = match candidate.form {
        Form::Literal => {
            let literal = integer_literal(&candidate.id.value)?;
            return Some((literal.value as i64, CType::of_literal(literal)?));
        }
        Form::Macro => None,
        // What else is enumerated decides the type of an enumerator.
        Form::EnumValue => return None,
        Form::StaticConst => Some(declared_type(scan, range.start)?),
    };
    let tokens: Vec<(Kind, &str)> = range.map(|i| (scan.tokens[i].kind, scan.text(i))).collect();
    let value = eval::evaluate(&tokens, names)?;
    let Some(c_type) = declared else { return Some((value.value, value.c_type)) };
    let (low, high) = c_type.range();
    (low..=high).contains(&value.wide()).then_some((value.value, c_type))
}

/// Where the kernel defines factors between units of time.
const TIME_UNITS: &str = "include/vdso/time64.h";

/// The names in which times are written: `HZ`, as configured, and `NSEC_PER_MSEC` and its like, as the
/// tree defines them. They mean the same in every unit, unless the constant's own file redefines them.
struct Units<'a, T> {
    tree: &'a T,
    config: Option<&'a Config>,
    scan: &'a Scan<'a>,
}

impl<T: BuildTree> Names for Units<'_, T> {
    fn name(&self, name: &str) -> Option<Typed> {
        let defines = |scan: &Scan<'_>| {
            scan.directives().iter().any(
                |region| matches!(&region.place, Place::Directive(Directive::Define { name: own, .. }) if own == name),
            )
        };
        if (name != "HZ" && !name.contains("SEC_PER_")) || defines(self.scan) {
            return None;
        }
        if name == "HZ" {
            return self.config?.value("HZ").map(Typed::int);
        }
        let source = self.tree.read(TIME_UNITS).ok()?;
        let units = Scan::new(&source);
        let found = Finder { path: TIME_UNITS, scan: &units }.definitions(name);
        let [only] = &found.candidates[..] else { return None };
        let (value, c_type) = exact(&units, only, &eval::Nameless)?;
        Some(Typed { value, c_type })
    }

    fn call(&self, _: &str, _: Typed) -> Option<Typed> {
        None
    }
}

/// The type with which the variable that is initialised at `token` is declared.
pub(crate) fn declared_type(scan: &Scan<'_>, token: usize) -> Option<CType> {
    let region = scan.region(token)?;
    let head = (region.tokens.start..token).filter(|&i| scan.tokens[i].directive.is_none());
    let words: Vec<&str> = head.map(|i| scan.text(i)).take_while(|&word| word != "=").collect();
    let (_, words) = words.split_last()?;
    let words: Vec<&str> =
        words.iter().copied().filter(|word| !matches!(*word, "static" | "const" | "__maybe_unused")).collect();
    eval::type_of_words(&words)
}

/// A variable of the candidate's own file that it mentions: then it is no constant.
fn variable_in<'s>(scan: &Scan<'s>, candidate: &Candidate) -> Option<&'s str> {
    let names = tokens_of(scan, candidate).filter(|&i| scan.tokens[i].kind == Kind::Ident).map(|i| scan.text(i));
    let variable = |name: &str| {
        scan.mentions(name).any(|token| {
            matches!(scan.place(token), Place::Variable(defined) if defined == name)
                && scan.region(token).is_some_and(|region| {
                    let head = region.tokens.clone().take_while(|&i| i <= token);
                    !head.into_iter().any(|i| scan.text(i) == "const")
                })
        })
    };
    let macro_too = |name: &str| {
        scan.mentions(name).any(
            |token| matches!(scan.place(token), Place::Directive(Directive::Define { name: defined, .. }) if defined == name),
        )
    };
    names.into_iter().find(|name| variable(name) && !macro_too(name))
}

/// The literals that the candidate is made of, by their own IDs.
fn literals(scan: &Scan<'_>, candidate: &Candidate) -> Vec<ConstId> {
    let finder = Finder { path: &candidate.range.path, scan };
    let mut lines: Vec<u32> = tokens_of(scan, candidate).map(|i| scan.tokens[i].line).collect();
    lines.dedup();
    let found = lines.into_iter().flat_map(|line| finder.literals_on_line(line).candidates);
    let inside = |c: &Candidate| candidate.range.start <= c.range.start && c.range.end <= candidate.range.end;
    found.filter(inside).map(|c| c.id).collect()
}
