//! The users of a constant: every deployed translation unit whose code may depend on it.
//!
//! Starts from the constant and follows names: macros whose body mentions it, inline functions,
//! variables and enumerators in headers that use it, and so on. A unit counts when it reaches, by
//! includes, both the definition and a place that mentions one of the names in code. The answer
//! errs on the side of too many: a unit too many costs a compilation, a unit too few would leave
//! the old value in force somewhere. Uses that can change types or the shape of the code are
//! reported apart, because no variant of a single function can tell what they do.

use crate::constant::{Constant, Form};
use crate::find::Finder;
use crate::index::Index;
use crate::role::{asserts, declares, enum_around, enumerators_from, operator_at, sizes};
use crate::scan::{may_mention, Directive, Place, Scan};
use crate::search_path::FileNo;
use crate::tree::{BuildTree, TreeError, Unit};
use crate::value::Operator;
use std::collections::{BTreeSet, HashMap, HashSet};

/// A place in the source.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Mention {
    /// File, relative to the root of the tree.
    pub path: String,
    /// Line, counted from 1.
    pub line: u32,
    /// What it is, for a human: the name that is mentioned and where.
    pub what: String,
}

/// A name through which the constant reaches code.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Followed {
    /// Macro, inline function, variable or enumerator.
    pub name: String,
    /// File that defines it.
    pub path: String,
    /// The name it mentions; empty for the constant itself.
    pub via: String,
}

/// The deployed units that may depend on a constant, and the evidence.
#[derive(Debug, Clone, Default)]
pub struct Users {
    /// Every such unit, sorted.
    pub units: Vec<Unit>,
    /// The names that were followed, the constant's own first.
    pub names: Vec<Followed>,
    /// `#if` and `#elif` that mention one of the names: the shape of the code may depend on it.
    pub conditionals: Vec<Mention>,
    /// Struct, union and array declarations, local ones too, that mention one of the names.
    pub shapes: Vec<Mention>,
    /// Uses that end in generated headers, boot code or the vDSO instead of kernel text.
    pub generated: Vec<Mention>,
    /// Uses at file scope of a header, mostly macro invocations: every unit that includes it counts.
    pub wide: Vec<Mention>,
    /// Places that spell one of the names with `##`.
    pub pasted: Vec<Mention>,
    /// The operators applied directly to the constant, the most restrictive last.
    pub operators: BTreeSet<Operator>,
}

/// Code that is built with the kernel but is not kernel text, or that generates headers.
const ELSEWHERE: [&str; 8] = [
    "kernel/bounds.c",
    "arch/x86/kernel/asm-offsets",
    "arch/x86/entry/vdso/",
    "lib/vdso/",
    "arch/x86/boot/",
    "arch/x86/realmode/",
    "arch/x86/purgatory/",
    "arch/x86/tools/",
];

/// More units than this are refused: compiling their variants would take hours.
const MOST_UNITS: usize = 400;

/// The deployed units that may depend on `constant`; [`TreeError::TooWide`] when there are hundreds.
pub fn users(tree: &impl BuildTree, constant: &Constant) -> Result<Users, TreeError> {
    let index = Index::open(tree)?;
    let units = tree.units()?;
    users_of(tree, &index, &units, &Start::of(constant))
}

/// Where following starts.
pub(crate) struct Start {
    pub path: String,
    pub name: Option<String>,
    /// First byte of the constant, for one without a name.
    pub at: usize,
}

impl Start {
    pub(crate) fn of(constant: &Constant) -> Start {
        let name = constant.name.clone().filter(|_| constant.form != Form::Literal);
        Start { path: constant.range.path.clone(), name, at: constant.range.start }
    }
}

pub(crate) fn users_of(
    tree: &impl BuildTree,
    index: &Index,
    units: &[Unit],
    start: &Start,
) -> Result<Users, TreeError> {
    let file = index
        .number(&start.path)
        .ok_or_else(|| TreeError::Failed(format!("{} is not among the indexed sources", start.path)))?;
    let mut walk = Walk {
        tree,
        index,
        units: units.iter().filter_map(|u| Some((index.number(&u.source)?, u))).collect(),
        reached: HashMap::new(),
        sources: HashMap::new(),
        seen: HashSet::new(),
        work: Vec::new(),
        found: Users::default(),
        emitted: HashSet::new(),
        what: start.name.clone().unwrap_or_else(|| format!("the constant in {}", start.path)),
    };
    match &start.name {
        Some(name) => walk.follow(name, file, ""),
        None => walk.literal(file, start.at)?,
    }
    while let Some((name, file)) = walk.work.pop() {
        walk.name(&name, file)?;
    }
    walk.refuse_width()?;
    let emitted = std::mem::take(&mut walk.emitted);
    let mut chosen: Vec<Unit> =
        walk.units.iter().filter(|(n, _)| emitted.contains(n)).map(|(_, unit)| (*unit).clone()).collect();
    chosen.sort();
    chosen.dedup();
    walk.found.units = chosen;
    Ok(walk.found)
}

struct Walk<'a, T> {
    tree: &'a T,
    index: &'a Index,
    units: Vec<(FileNo, &'a Unit)>,
    reached: HashMap<FileNo, Vec<bool>>,
    sources: HashMap<FileNo, Vec<u8>>,
    seen: HashSet<(String, FileNo)>,
    work: Vec<(String, FileNo)>,
    found: Users,
    emitted: HashSet<FileNo>,
    /// The constant, for a human.
    what: String,
}

impl<T: BuildTree> Walk<'_, T> {
    fn reached_by(&mut self, file: FileNo) -> &Vec<bool> {
        self.reached.entry(file).or_insert_with(|| self.index.reached_by(file))
    }

    fn source(&mut self, file: FileNo) -> Result<Vec<u8>, TreeError> {
        // The caller takes it out and returns it, so that a scan can borrow it.
        match self.sources.remove(&file) {
            Some(source) => Ok(source),
            None => self.tree.read(self.index.path(file)),
        }
    }

    fn follow(&mut self, name: &str, file: FileNo, via: &str) {
        if self.seen.insert((name.to_owned(), file)) {
            self.work.push((name.to_owned(), file));
            let path = self.index.path(file).to_owned();
            self.found.names.push(Followed { name: name.to_owned(), path, via: via.to_owned() });
        }
    }

    /// Every unit that reaches both files.
    fn emit(&mut self, definition: FileNo, mention: FileNo) {
        self.reached_by(definition);
        self.reached_by(mention);
        let (from, to) = (&self.reached[&definition], &self.reached[&mention]);
        let both = |n: &FileNo| from[*n as usize] && to[*n as usize];
        self.emitted.extend(self.units.iter().map(|(n, _)| *n).filter(both));
    }

    /// Stops as soon as it is known that there are too many.
    fn refuse_width(&self) -> Result<(), TreeError> {
        let found = self.emitted.len();
        if found <= MOST_UNITS {
            return Ok(());
        }
        Err(TreeError::TooWide { what: self.what.clone(), found, limit: MOST_UNITS })
    }

    fn literal(&mut self, file: FileNo, at: usize) -> Result<(), TreeError> {
        let source = self.source(file)?;
        let scan = Scan::new(&source);
        if let Some(token) = scan.tokens.iter().position(|t| t.start <= at && at < t.end) {
            self.found.operators.insert(operator_at(&scan, token..token + 1));
            self.mention(&scan, token, file, file, scan.text(token));
        }
        drop(scan);
        self.sources.insert(file, source);
        Ok(())
    }

    fn name(&mut self, name: &str, definition: FileNo) -> Result<(), TreeError> {
        let first = self.found.names.first().is_some_and(|f| f.name == name && self.index.path(definition) == f.path);
        for file in self.index.mentions(name)? {
            if !self.shares_unit(definition, file) {
                continue;
            }
            let source = self.source(file)?;
            if may_mention(&source, name) {
                let scan = Scan::new(&source);
                for token in scan.mentions(name) {
                    if declares(&scan, token) {
                        continue;
                    }
                    if first && !matches!(scan.place(token), Place::Directive(Directive::Conditional)) {
                        self.found.operators.insert(operator_at(&scan, token..token + 1));
                    }
                    self.mention(&scan, token, definition, file, name);
                }
            }
            self.sources.insert(file, source);
            self.refuse_width()?;
        }
        self.pasted(name, definition)
    }

    /// Follows macros that put `name` together from parts.
    fn pasted(&mut self, name: &str, definition: FileNo) -> Result<(), TreeError> {
        let index = self.index;
        for paste in index.pastes() {
            let Some(argument) = paste.argument(name) else { continue };
            if !self.shares_unit(definition, paste.file) {
                continue;
            }
            // Costly, and seldom needed: few of the parts that fit are ever completed to this name.
            let mut callers = None;
            for file in index.mentions(argument)? {
                if !self.shares_unit(definition, file) || !self.shares_unit(paste.file, file) {
                    continue;
                }
                let source = self.source(file)?;
                let spelled = may_mention(&source, argument);
                self.sources.insert(file, source);
                if !spelled {
                    continue;
                }
                let callers = match &mut callers {
                    Some(callers) => callers,
                    none => none.insert(self.wrappers(&paste.name, paste.file)?),
                };
                let source = self.source(file)?;
                let scan = Scan::new(&source);
                if callers.iter().any(|caller| scan.mentions(caller).next().is_some()) {
                    for token in scan.mentions(argument).collect::<Vec<_>>() {
                        let path = index.path(file).to_owned();
                        let what = format!("{name} may be spelled by {}({argument})", paste.name);
                        self.found.pasted.push(Mention { path, line: scan.tokens[token].line, what });
                        self.mention(&scan, token, definition, file, name);
                    }
                }
                self.sources.insert(file, source);
            }
        }
        Ok(())
    }

    /// A macro and those that call it, directly or not.
    fn wrappers(&mut self, name: &str, file: FileNo) -> Result<Vec<String>, TreeError> {
        let mut found = vec![name.to_owned()];
        let mut at = 0;
        while let Some(name) = found.get(at).cloned() {
            at += 1;
            for other in self.index.mentions(&name)? {
                if !self.shares_unit(file, other) {
                    continue;
                }
                let source = self.source(other)?;
                let scan = Scan::new(&source);
                for token in scan.mentions(&name) {
                    if let Place::Directive(Directive::Define { name: outer, .. }) = scan.place(token) {
                        if !found.contains(outer) {
                            found.push(outer.clone());
                        }
                    }
                }
                self.sources.insert(other, source);
            }
        }
        Ok(found)
    }

    /// Some unit reaches both files: a header may use a name that its includer provides.
    fn shares_unit(&mut self, a: FileNo, b: FileNo) -> bool {
        self.reached_by(a);
        self.reached_by(b);
        let (a, b) = (&self.reached[&a], &self.reached[&b]);
        self.units.iter().any(|(n, _)| a[*n as usize] && b[*n as usize])
    }

    fn mention(&mut self, scan: &Scan<'_>, token: usize, definition: FileNo, file: FileNo, name: &str) {
        let path = self.index.path(file).to_owned();
        let line = scan.tokens.get(token).map_or(0, |t| t.line);
        let note = |what: String| Mention { path: path.clone(), line, what };
        let header = path.ends_with(".h");
        if ELSEWHERE.iter().any(|prefix| path.starts_with(prefix)) {
            self.found.generated.push(note(format!("{name} outside kernel text")));
        }
        if matches!(scan.place(token), Place::Function { .. }) {
            if let Some(what) = (Finder { path: &path, scan }).layout(token) {
                self.found.shapes.push(note(format!("{what} uses {name}")));
            }
        }
        match scan.place(token) {
            Place::Directive(Directive::Define { name: outer, .. }) => {
                let outer = outer.clone();
                self.follow(&outer, file, name);
            }
            Place::Directive(Directive::Conditional) => {
                let text = scan.tokens.get(token).map_or_else(String::new, |t| line_text(scan.source, t.start));
                self.found.conditionals.push(note(text));
            }
            Place::Directive(Directive::Other) => {}
            // An assertion emits nothing; a value that violates it does not compile.
            Place::FileScope if asserts(scan, token) => {}
            Place::Shape(_) if enum_around(scan, token).is_some() && header => {
                self.enumerators(scan, token, definition, file, name);
            }
            Place::Shape(_) if !sizes(scan, token) && enum_around(scan, token).is_none() => {}
            Place::Shape(what) => {
                self.found.shapes.push(note(format!("{what} uses {name}")));
                if !header {
                    self.emit(definition, file);
                }
            }
            _ if !header => self.emit(definition, file),
            Place::Function { name: outer, inline: true } => self.follow(outer, file, name),
            Place::Function { inline: false, .. } => self.emit(definition, file),
            Place::Variable(outer) => {
                let region = scan.region(token);
                let local = region.is_some_and(|r| r.tokens.clone().take(8).any(|i| scan.text(i) == "static"));
                if local && !outer.is_empty() {
                    self.follow(outer, file, name);
                } else {
                    self.emit(definition, file);
                }
            }
            Place::Enum => self.enumerators(scan, token, definition, file, name),
            Place::FileScope => {
                self.found.wide.push(note(format!("{name} at file scope")));
                self.emit(definition, file);
            }
        }
    }
}

impl<T: BuildTree> Walk<'_, T> {
    /// Follows the enumerators of a header whose value `token` decides.
    fn enumerators(&mut self, scan: &Scan<'_>, token: usize, definition: FileNo, file: FileNo, name: &str) {
        let found = enumerators_from(scan, token);
        for enumerator in &found.names {
            self.follow(enumerator, file, name);
        }
        if found.hidden {
            let line = scan.tokens.get(token).map_or(0, |t| t.line);
            let what = format!("{name} in an enumerator that a macro names");
            self.found.wide.push(Mention { path: self.index.path(file).to_owned(), line, what });
            self.emit(definition, file);
        }
    }
}

fn line_text(source: &[u8], at: usize) -> String {
    let start = source[..at].iter().rposition(|&b| b == b'\n').map_or(0, |n| n + 1);
    let end = source[at..].iter().position(|&b| b == b'\n').map_or(source.len(), |n| at + n);
    String::from_utf8_lossy(&source[start..end]).trim().to_owned()
}
