//! From lines of the kernel's source to its code.
//!
//! In: lines, the image of a kernel and its source tree. Out: for each line the functions that contain it, also those that
//! inline it, where the image has them, and which of their bytes belong to the line. A translation unit is compiled with
//! debug information, and each of these functions must be in the image with the same bytes
//! ([`locate`](xk_analysis::identity::locate)). Refuses a function that is not, a line without code, and a file that is no
//! unit.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use thiserror::Error;
use xk_analysis::identity::locate;
use xk_const::{build_debug, lines, BuildError, BuildTree, Row, TreeError, Unit, Unreadable};
use xk_kernel::{Image, Tree};
use xk_lift::insn::Node;
use xk_lift::object::{Function, Object, ObjectError};
use xk_table::{Function as Deployed, Refusal};

use crate::line::Line;
use crate::place::Place;

/// Names in a message.
const MOST: usize = 3;
/// What the names of sections begin with whose code is gone after boot.
const GONE: [&str; 2] = [".init", ".meminit"];

/// Why a line of the source has no place.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum SourceError {
    /// The units of the kernel cannot be listed.
    #[error(transparent)]
    Tree(#[from] TreeError),
    /// A unit does not compile.
    #[error(transparent)]
    Build(#[from] BuildError),
    /// An object cannot be read.
    #[error("cannot read {}: {why}", path.display())]
    Object {
        /// The object.
        path: PathBuf,
        /// What is wrong.
        why: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The file is no unit.
    #[error("{place}: {unit} is no translation unit of this kernel{advice}")]
    NoUnit {
        /// The place.
        place: String,
        /// The file.
        unit: String,
        /// What to write instead, as a sentence.
        advice: String,
    },
    /// The unit is part of several modules.
    #[error("{place}: {} contain this unit: write {}:{place}", modules.join(" and "), modules.first().map_or("MODULE", |name| name))]
    SeveralModules {
        /// The place.
        place: String,
        /// The modules.
        modules: Vec<String>,
    },
    /// No code belongs to the line.
    #[error("{place}: the compiler made no code of this line; {near}")]
    NoCode {
        /// The place.
        place: String,
        /// The nearest lines that have code, as a sentence.
        near: String,
    },
    /// All of its code is gone.
    #[error("{place}: its code is gone after boot ({})", functions.join(", "))]
    Gone {
        /// The place.
        place: String,
        /// Its functions.
        functions: Vec<String>,
    },
    /// A function of the unit is not the deployed one.
    #[error("{place}: {unit}, {function}: {why}")]
    NotDeployed {
        /// The place.
        place: String,
        /// The unit.
        unit: String,
        /// The function.
        function: String,
        /// The first difference.
        why: Box<Refusal>,
    },
}

/// The bytes of a function that belong to a line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    /// The function, as the image has it.
    pub function: Deployed,
    /// Its bytes of the line.
    pub bytes: Vec<Range<u64>>,
    /// The instructions before which the line begins.
    pub statements: Vec<u64>,
}

/// The code of one line.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Spread {
    /// The functions that contain the line.
    pub parts: Vec<Part>,
    /// Beginnings of the line in code that is gone after boot.
    pub gone: usize,
}

/// The code of lines.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Lines {
    known: BTreeMap<Line, Spread>,
}

impl Lines {
    /// The code of a line.
    #[must_use]
    pub fn of(&self, line: &Line) -> Option<&Spread> {
        self.known.get(line)
    }
}

/// The source of a kernel.
pub struct Source<'a> {
    image: &'a Image,
    pub(crate) tree: &'a Tree,
    pub(crate) objects: PathBuf,
    pub(crate) units: Vec<Unit>,
    compiled: RefCell<BTreeMap<Unit, Rc<Compiled>>>,
}

/// A unit that was compiled with debug information.
pub(crate) struct Compiled {
    pub(crate) unit: Unit,
    pub(crate) object: Object,
    rows: Vec<Row>,
}

impl<'a> Source<'a> {
    /// The source of the kernel in `image`. Objects are kept in `cache`.
    ///
    /// # Errors
    /// [`SourceError::Tree`].
    pub fn new(image: &'a Image, tree: &'a Tree, cache: &Path) -> Result<Self, SourceError> {
        let (objects, units) = (cache.join("objects"), BuildTree::units(tree)?);
        Ok(Self { image, tree, objects, units, compiled: RefCell::default() })
    }

    /// The code of the lines among these places.
    ///
    /// # Errors
    /// [`SourceError`].
    pub fn lines(&self, places: &[Place]) -> Result<Lines, SourceError> {
        let mut known = BTreeMap::new();
        for place in places {
            let Place::Line { line, .. } = place else { continue };
            if known.contains_key(line) {
                continue;
            }
            let compiled = self.compiled(self.unit(line)?)?;
            known.insert(line.clone(), self.spread(line, &compiled)?);
        }
        Ok(Lines { known })
    }

    pub(crate) fn unit(&self, line: &Line) -> Result<&Unit, SourceError> {
        let own = |unit: &&Unit| line.module.is_none() || spelt(unit) == line.module;
        let all: Vec<&Unit> = self.units.iter().filter(|unit| unit.source == line.unit).filter(own).collect();
        match all[..] {
            [only] => Ok(only),
            [] => {
                let (place, unit) = (line.to_string(), line.unit.clone());
                Err(SourceError::NoUnit { place, unit, advice: self.advice(line) })
            }
            _ => {
                let modules = all.iter().map(|unit| spelt(unit).unwrap_or_else(|| "vmlinux".into())).collect();
                Err(SourceError::SeveralModules { place: line.to_string(), modules })
            }
        }
    }

    /// How the unit may be named.
    fn advice(&self, line: &Line) -> String {
        let (file, number) = (line.file(), line.number);
        if self.tree.root().join(&line.unit).is_file() {
            return format!(": name a unit that includes it: UNIT.c:{file}:{number}");
        }
        let name = |path: &str| path.rsplit('/').next().map(str::to_owned);
        let alike = self.units.iter().filter(|unit| name(&unit.source) == name(&line.unit));
        let mut alike: Vec<&str> = alike.map(|unit| unit.source.as_str()).take(MOST).collect();
        alike.dedup();
        match alike[..] {
            [] => ", and its source has no such file; paths begin at the top of the source".into(),
            _ => format!("; similar: {}", alike.join(", ")),
        }
    }

    /// A unit, which is compiled unless it was before.
    pub(crate) fn compiled(&self, unit: &Unit) -> Result<Rc<Compiled>, SourceError> {
        if let Some(known) = self.compiled.borrow().get(unit) {
            return Ok(Rc::clone(known));
        }
        let fresh = Rc::new(self.compile(unit)?);
        self.compiled.borrow_mut().insert(unit.clone(), Rc::clone(&fresh));
        Ok(fresh)
    }

    fn compile(&self, unit: &Unit) -> Result<Compiled, SourceError> {
        let path = build_debug(self.tree, unit, &self.objects)?;
        let wrong = |why: Box<dyn std::error::Error + Send + Sync>| SourceError::Object { path: path.clone(), why };
        let bytes = std::fs::read(&path).map_err(|error| wrong(error.into()))?;
        let object = Object::parse(&bytes).map_err(|error: ObjectError| wrong(error.into()))?;
        let rows = lines(&bytes).map_err(|error: Unreadable| wrong(error.into()))?;
        Ok(Compiled { unit: unit.clone(), object, rows })
    }

    /// A function of a unit, where the image has it.
    pub(crate) fn deployed(&self, compiled: &Compiled, function: &Function) -> Result<Deployed, Refusal> {
        let unit = &compiled.unit;
        locate(&compiled.object, function, &unit.source, unit.module.as_deref(), self.image)
    }

    fn spread(&self, line: &Line, compiled: &Compiled) -> Result<Spread, SourceError> {
        let mut spread = Spread::default();
        let mut gone = Vec::new();
        for (function, rows) in compiled.functions_with(line) {
            let begins = |row: &&&Row| row.is_statement;
            let mut statements: Vec<u64> = rows.iter().filter(begins).map(|row| offset(function, row)).collect();
            statements.sort_unstable();
            statements.dedup();
            let section = compiled.object.sections.get(function.start.section).map_or("", |section| &section.name);
            if GONE.iter().any(|prefix| section.starts_with(prefix)) {
                spread.gone += statements.len();
                gone.push(function.name.clone());
                continue;
            }
            let deployed = self.deployed(compiled, function).map_err(|why| SourceError::NotDeployed {
                place: line.to_string(),
                unit: line.unit.clone(),
                function: function.name.clone(),
                why: Box::new(why),
            })?;
            let len = |row: &Row| row.bytes.end.saturating_sub(row.bytes.start);
            let bytes = rows.iter().map(|row| offset(function, row)..offset(function, row) + len(row)).collect();
            spread.parts.push(Part { function: deployed, bytes, statements });
        }
        match (spread.parts.is_empty(), gone.is_empty()) {
            (false, _) => Ok(spread),
            (true, false) => Err(SourceError::Gone { place: line.to_string(), functions: gone }),
            (true, true) => Err(SourceError::NoCode { place: line.to_string(), near: compiled.near(line) }),
        }
    }
}

impl Compiled {
    /// The functions that contain a line, with its rows.
    fn functions_with(&self, line: &Line) -> Vec<(&Function, Vec<&Row>)> {
        let mut all: BTreeMap<Node, (&Function, Vec<&Row>)> = BTreeMap::new();
        for row in self.rows.iter().filter(|row| row.line == line.number && row.file == line.file()) {
            let Some(function) = self.function_of(row) else { continue };
            all.entry(function.start).or_insert_with(|| (function, Vec::new())).1.push(row);
        }
        // Without a beginning, the line has nothing but remains in code of other lines.
        all.into_values().filter(|(_, rows)| rows.iter().any(|row| row.is_statement)).collect()
    }

    fn function_of(&self, row: &Row) -> Option<&Function> {
        let function = self.object.function_at(Node { section: row.section, offset: row.bytes.start })?;
        (row.bytes.start < function.start.offset + function.size).then_some(function)
    }

    /// The nearest lines of the file that have code.
    fn near(&self, line: &Line) -> String {
        let here = self.rows.iter().filter(|row| row.file == line.file() && row.is_statement);
        let here: Vec<(u64, &str)> =
            here.filter_map(|row| Some((row.line, self.function_of(row)?.name.as_str()))).collect();
        let before = here.iter().filter(|(number, _)| *number < line.number).max();
        let after = here.iter().filter(|(number, _)| *number > line.number).min();
        let near: Vec<String> =
            before.into_iter().chain(after).map(|(number, function)| format!("{number} ({function})")).collect();
        match near.is_empty() {
            true => format!("{} has no code of {}", self.unit.source, line.file()),
            false => format!("the nearest lines that have code: {}", near.join(", ")),
        }
    }
}

fn offset(function: &Function, row: &Row) -> u64 {
    row.bytes.start - function.start.offset
}

/// A module as the kernel spells it.
pub(crate) fn spelt(unit: &Unit) -> Option<String> {
    unit.module.as_deref().map(|module| module.replace('-', "_"))
}
