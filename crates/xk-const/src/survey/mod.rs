//! Which constants of the deployed kernel look like perf-consts, and why: macros, `static` variables
//! and enumerators that set an amount or a time, and, apart from them, literals in functions.
//!
//! Two passes over the files that deployed units include. The first collects definitions that may be perf-consts
//! ([`gather`]), the second their uses ([`usage`]). [`evidence`] says what each observation is worth, [`judge`] decides.
//! Text decides, not the compiler: a candidate is a proposal, and the analysis finds out whether it can be tuned. The
//! result is kept in the tree's cache.

mod evidence;
mod gather;
mod judge;
mod store;
mod table;
mod usage;

pub use evidence::Category;

use crate::conditions::{Conditions, Config, Truth};
use crate::id::ConstId;
use crate::index::Index;
use crate::scan::Scan;
use crate::search_path::FileNo;
use crate::tree::{BuildTree, TreeError};
use crate::value::CType;
use gather::{gather, Definition, Gathered};
use judge::Judge;
use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use table::Table;
use usage::{literals_in_functions, uses, FunctionLiteral, Meaning, Usage};

/// How a candidate is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Written {
    /// `#define NAME body`.
    Macro,
    /// A literal in `#define NAME(parameters) body`.
    FunctionMacro,
    /// An enumerator with a value of its own.
    Enumerator,
    /// The initialiser of a `static` variable that is only read.
    Static,
    /// A literal in a function.
    Literal,
}

impl Written {
    /// Every form, with its word.
    pub const ALL: [(Written, &'static str); 5] = [
        (Written::Macro, "macro"),
        (Written::FunctionMacro, "function-macro"),
        (Written::Enumerator, "enum"),
        (Written::Static, "static"),
        (Written::Literal, "literal"),
    ];

    /// The word for it.
    pub fn word(self) -> &'static str {
        Self::ALL.iter().find(|(written, _)| *written == self).map_or("macro", |(_, word)| word)
    }

    /// The form with this word.
    pub fn of_word(word: &str) -> Option<Written> {
        Self::ALL.iter().find(|(_, known)| *known == word).map(|(written, _)| *written)
    }
}

/// A candidate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    /// Its full ID, which [`crate::resolve()`] takes.
    pub id: ConstId,
    /// Macro, variable or enumerator; of a literal, the macro or function that it stands in.
    pub name: String,
    /// How it is written.
    pub written: Written,
    /// Its value, if it is known without the compiler.
    pub value: Option<i64>,
    /// Its type, likewise.
    pub c_type: Option<CType>,
    /// What it sets.
    pub category: Category,
    /// Why it is thought so.
    pub why: Vec<String>,
    /// Units whose code mentions it, directly or through a macro or function of a header.
    pub units: u32,
    /// Mentions in code and in other macros.
    pub mentions: u32,
    /// Where these units are linked into: `vmlinux` or modules.
    pub used_in: Vec<String>,
}

/// Everything that was found, by file and line.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Survey {
    /// Constants with names, and literals in macros.
    pub named: Vec<Listed>,
    /// Literals in functions.
    pub literals: Vec<Listed>,
}

impl Listed {
    /// Whether it is in a header that user space shares, or in a generated file. `xk scan` leaves these out.
    #[must_use]
    pub fn is_shared_with_user_space(&self) -> bool {
        let path = &self.id.path;
        let folders = ["include/uapi/", "arch/x86/include/uapi/"];
        folders.iter().any(|folder| path.starts_with(folder)) || path.contains("/generated/")
    }
}

/// The candidates of a tree. `literals`: also those in functions, which are many. `progress` is called
/// once if the sources have to be read, which takes a while; afterwards the result is in the cache.
pub fn survey(tree: &impl BuildTree, literals: bool, progress: &dyn Fn(&str)) -> Result<Survey, TreeError> {
    if let Some(known) = store::read(tree, literals) {
        return Ok(known);
    }
    let index = Index::open(tree)?;
    let mut found = Surveyor::new(tree, &index)?.run(progress)?;
    store::write(tree, &found)?;
    if !literals {
        found.literals.clear();
    }
    Ok(found)
}

struct Surveyor<'a, T> {
    tree: &'a T,
    index: &'a Index,
    config: Option<Config>,
    /// What a unit is linked into.
    modules: HashMap<FileNo, String>,
}

/// What the second pass found.
#[derive(Default)]
struct Observed {
    /// The uses of each definition, by its number.
    usage: HashMap<usize, Usage>,
    literals: Vec<(FileNo, FunctionLiteral)>,
}

/// The files of the deployed kernel, and what they include.
struct Deployed {
    files: Vec<FileNo>,
    includes: Vec<Vec<FileNo>>,
}

impl<'a, T: BuildTree> Surveyor<'a, T> {
    fn new(tree: &'a T, index: &'a Index) -> Result<Self, TreeError> {
        let units = tree.units()?;
        let linked = |module: Option<String>| module.unwrap_or_else(|| "vmlinux".to_owned());
        let modules = units
            .into_iter()
            .filter(|unit| unit.source.ends_with(".c"))
            .filter_map(|unit| Some((index.number(&unit.source)?, linked(unit.module))))
            .collect();
        Ok(Surveyor { tree, index, config: Config::of(tree), modules })
    }

    fn run(&self, progress: &dyn Fn(&str)) -> Result<Survey, TreeError> {
        let roots: Vec<FileNo> = self.modules.keys().copied().collect();
        let possible = self.index.reach(&roots);
        let possible: Vec<FileNo> = (0..possible.len()).filter(|&n| possible[n]).map(|n| n as FileNo).collect();
        progress(&format!("reading {} files of the deployed kernel, once", possible.len()));
        let gathered = parallel(&possible, |&file| {
            Ok(gather(self.index, file, &self.tree.read(self.index.path(file))?, self.config.as_ref()))
        })?;
        let (deployed, table, definitions) = self.deployed(&roots, &possible, gathered);
        let mut by_name: HashMap<&str, Vec<usize>> = HashMap::new();
        for (n, definition) in definitions.iter().enumerate() {
            by_name.entry(&definition.name).or_default().push(n);
        }
        let Observed { usage, literals } = self.usage(&deployed, &definitions, &by_name)?;
        let reverse = reverse(&deployed.includes);
        let mut judge = Judge::new(self.index, &self.modules, &reverse, &table);
        let mut survey = Survey::default();
        for (n, definition) in definitions.iter().enumerate() {
            if let Some(usage) = usage.get(&n) {
                survey.named.extend(judge.definition(definition, usage)?);
            }
        }
        for (file, literal) in literals {
            survey.literals.extend(judge.literal(file, literal)?);
        }
        for rows in [&mut survey.named, &mut survey.literals] {
            rows.sort_by(|a, b| (&a.id.path, a.id.line).cmp(&(&b.id.path, b.id.line)));
            rows.dedup_by(|a, b| a.id == b.id);
        }
        Ok(survey)
    }

    /// What is left when includes are followed that the configuration leaves in.
    fn deployed(
        &self,
        roots: &[FileNo],
        possible: &[FileNo],
        gathered: Vec<Gathered>,
    ) -> (Deployed, Table, Vec<Definition>) {
        let mut includes = vec![Vec::new(); self.index.len()];
        let mut parts = Vec::with_capacity(gathered.len());
        for (&file, part) in possible.iter().zip(gathered) {
            includes[file as usize] = part.includes;
            parts.push((file, part.definitions, part.macros));
        }
        let mut reach = Reach::new(&includes);
        let seen: HashSet<FileNo> =
            roots.iter().copied().chain(self.index.forced()).flat_map(|f| reach.add(f)).collect();
        let mut table = Table::new(self.config.as_ref());
        let mut definitions = Vec::new();
        for (file, own, macros) in parts {
            if seen.contains(&file) {
                definitions.extend(own);
                for (name, body) in macros {
                    table.insert(name, file, body);
                }
            }
        }
        let mut files: Vec<FileNo> = seen.into_iter().collect();
        files.sort_unstable();
        (Deployed { files, includes }, table, definitions)
    }

    /// The second pass: reads the deployed files again, for uses of the definitions and for literals.
    fn usage(
        &self,
        deployed: &Deployed,
        definitions: &[Definition],
        by_name: &HashMap<&str, Vec<usize>>,
    ) -> Result<Observed, TreeError> {
        let nothing = Config::default();
        let chunks: Vec<&[FileNo]> = deployed.files.chunks(64).collect();
        let parts = parallel(&chunks, |files| {
            let mut found = Observed::default();
            let mut reach = Reach::new(&deployed.includes);
            for &file in *files {
                let path = self.index.path(file);
                let source = self.tree.read(path)?;
                if memchr::memmem::find_iter(&source, b"#define").take(5000).count() == 5000 {
                    continue;
                }
                let scan = Scan::new(&source);
                let mut meaning =
                    Attribution { by_name, definitions, index: self.index, file, reach: &mut reach, reached: None };
                uses(&scan, path, file, &mut meaning, &mut found.usage);
                let conditions = Conditions::of(&scan, self.config.as_ref().unwrap_or(&nothing));
                let left_in = |token: usize| self.config.is_none() || conditions.at(token) != Truth::No;
                let literals = literals_in_functions(&scan, path, left_in).into_iter();
                found.literals.extend(literals.map(|literal| (file, literal)));
            }
            Ok(found)
        })?;
        let mut all = Observed::default();
        for part in parts {
            for (definition, usage) in part.usage {
                all.usage.entry(definition).or_default().merge(usage);
            }
            all.literals.extend(part.literals);
        }
        Ok(all)
    }
}

fn reverse(includes: &[Vec<FileNo>]) -> Vec<Vec<FileNo>> {
    let mut found = vec![Vec::new(); includes.len()];
    for (from, targets) in includes.iter().enumerate() {
        for &to in targets {
            if let Some(list) = found.get_mut(to as usize) {
                list.push(from as FileNo);
            }
        }
    }
    found
}

/// Walks over the include graph that reuse their memory.
pub(crate) struct Reach<'g> {
    edges: &'g [Vec<FileNo>],
    seen: Vec<u32>,
    round: u32,
}

impl<'g> Reach<'g> {
    pub fn new(edges: &'g [Vec<FileNo>]) -> Self {
        Reach { edges, seen: vec![0; edges.len()], round: 1 }
    }

    /// The files that are reached from `file` and were not yet in this round.
    pub fn add(&mut self, file: FileNo) -> Vec<FileNo> {
        let (mut found, mut work) = (Vec::new(), vec![file]);
        while let Some(at) = work.pop() {
            if let Some(mark) = self.seen.get_mut(at as usize).filter(|mark| **mark != self.round) {
                *mark = self.round;
                found.push(at);
                work.extend_from_slice(&self.edges[at as usize]);
            }
        }
        found
    }

    /// Everything that is reached from `file`.
    pub fn from(&mut self, file: FileNo) -> HashSet<FileNo> {
        self.round += 1;
        self.add(file).into_iter().collect()
    }
}

/// What a name means in one file.
struct Attribution<'a, 'r> {
    by_name: &'a HashMap<&'a str, Vec<usize>>,
    definitions: &'a [Definition],
    index: &'a Index,
    file: FileNo,
    reach: &'r mut Reach<'a>,
    reached: Option<HashSet<FileNo>>,
}

impl Meaning for Attribution<'_, '_> {
    fn of(&mut self, name: &str) -> Vec<usize> {
        let Some(all) = self.by_name.get(name) else { return Vec::new() };
        let at = |n: &usize| self.definitions[*n].file;
        let own: Vec<usize> = all.iter().copied().filter(|n| at(n) == self.file).collect();
        if !own.is_empty() {
            return own;
        }
        let shared: Vec<usize> = all.iter().copied().filter(|n| !self.index.path(at(n)).ends_with(".c")).collect();
        if shared.is_empty() {
            return shared;
        }
        let (reach, file) = (&mut *self.reach, self.file);
        let reached = self.reached.get_or_insert_with(|| reach.from(file));
        let seen: Vec<usize> = shared.iter().copied().filter(|n| reached.contains(&at(n))).collect();
        // A header may use what its includer provides.
        if seen.is_empty() && shared.len() == 1 && !self.index.path(self.file).ends_with(".c") {
            return shared;
        }
        seen
    }
}

/// Maps in several threads, in order.
fn parallel<I: Sync, O: Send>(
    items: &[I],
    act: impl Fn(&I) -> Result<O, TreeError> + Sync,
) -> Result<Vec<O>, TreeError> {
    let workers = std::thread::available_parallelism().map_or(1, |n| n.get().min(8));
    let next = AtomicUsize::new(0);
    let work = || {
        let mut done = Vec::new();
        loop {
            let n = next.fetch_add(1, Ordering::Relaxed);
            let Some(item) = items.get(n) else { return Ok(done) };
            done.push((n, act(item)?));
        }
    };
    let mut all = std::thread::scope(|scope| {
        let handles: Vec<_> = (0..workers).map(|_| scope.spawn(work)).collect();
        let failed = |_| Err(TreeError::Failed("a thread that reads the sources failed".to_owned()));
        // All of them are joined, also when one failed.
        let joined: Vec<_> = handles.into_iter().map(|handle| handle.join().unwrap_or_else(failed)).collect();
        let parts: Result<Vec<Vec<(usize, O)>>, TreeError> = joined.into_iter().collect();
        parts.map(|parts| parts.into_iter().flatten().collect::<Vec<_>>())
    })?;
    all.sort_by_key(|(n, _)| *n);
    Ok(all.into_iter().map(|(_, done)| done).collect())
}
