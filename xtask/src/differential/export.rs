//! What is executed, written down for a program that shares no code with the analysis.
//!
//! In: a table and values that it accepts. Out: one JSON file: the table, the objects of each unit compiled with the
//! default and with each value, what calls pass and return, and numbers that states should be near to.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde::Serialize;
use xk_analysis::identity::Deployed as _;
use xk_const::{recall, BuildError, Constant, Opaque, Spec, Unit, QUICK};
use xk_kernel::{Image, Tree};
use xk_lift::flow::{Flow, ARGUMENTS};
use xk_lift::object::{Object, RelocTarget};
use xk_lift::prototypes::Prototypes;
use xk_table::ScopeTable;

use crate::draw::{numbers, one, Random};
use crate::lab;

/// Bytes of `pv_ops`, and more.
const PARAVIRTUAL_BYTES: u32 = 0x400;

/// One constant. Its fields are those of the file.
#[derive(Debug, Serialize)]
pub struct Exported {
    constant: String,
    name: String,
    default: i64,
    table: ScopeTable,
    values: Vec<i64>,
    units: Vec<Compiled>,
    /// By function name.
    prototypes: BTreeMap<String, Prototype>,
    /// How many arguments the entries of `pv_ops` take, by their offset.
    paravirtual: BTreeMap<u32, usize>,
    noreturns: BTreeSet<String>,
    /// Numbers in the code of the table's functions.
    numbers: BTreeSet<i64>,
}

/// One unit.
#[derive(Debug, Serialize)]
struct Compiled {
    source: String,
    default: PathBuf,
    /// The object of each value.
    variants: BTreeMap<i64, PathBuf>,
}

/// What a call passes and returns, as far as that is known; widths in bytes.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct Prototype {
    arguments: Option<Vec<u8>>,
    /// How many arguments a variadic function names.
    variadic: Option<usize>,
    /// Of a function of the unit without a prototype: registers that its code reads, by their place among those that
    /// pass arguments.
    reads: Option<Vec<usize>>,
    /// 0 when there is none.
    result: Option<u8>,
    /// Whether it is known to follow the calling convention of C.
    convention: bool,
}

/// The kernel under study.
pub struct Kernel {
    pub image: Image,
    pub tree: Tree,
    pub noreturns: BTreeSet<String>,
}

impl Kernel {
    /// With the functions that its source says do not return.
    ///
    /// # Errors
    /// When the source cannot be read.
    pub fn new(image: Image, tree: Tree) -> Result<Self> {
        let noreturns = xk_analysis::pipeline::noreturns(&tree)?.into_iter().collect();
        Ok(Self { image, tree, noreturns })
    }
}

/// Compiles what is needed for `table` and writes it into `folder`; returns the file.
///
/// # Errors
/// When the constant cannot be found again, or a unit does not compile.
pub fn write(kernel: &Kernel, table: ScopeTable, values: Vec<i64>, folder: &Path) -> Result<PathBuf> {
    let constant = recall(&kernel.tree, &Spec::parse(&table.constant.id)?)?;
    let for_order = table.spans.iter().flat_map(|span| &span.assembly).any(|line| line.order.is_some());
    let units = xk_const::users(&kernel.tree, &constant)?.units;
    let modules: BTreeSet<&str> = units.iter().filter_map(|unit| unit.module.as_deref()).collect();
    let prototypes = kernel.image.prototypes(&modules.into_iter().collect::<Vec<_>>());
    let mut compiled = Vec::new();
    let mut called = BTreeMap::new();
    for unit in &units {
        let Some(built) = compile(kernel, &constant, unit, &values, for_order)? else { continue };
        for path in std::iter::once(&built.default).chain(built.variants.values()) {
            let bytes = std::fs::read(path).with_context(|| path.display().to_string())?;
            let object = Object::parse(&bytes).with_context(|| path.display().to_string())?;
            collect(&object, &prototypes, &mut called);
        }
        compiled.push(built);
    }
    let paravirtual = |offset| prototypes.paravirtual(offset).map(|count| (offset, count));
    let exported = Exported {
        constant: table.constant.id.clone(),
        name: table.constant.name.clone().unwrap_or_else(|| table.constant.id.clone()),
        default: table.constant.default,
        values,
        units: compiled,
        prototypes: called,
        paravirtual: (0..PARAVIRTUAL_BYTES).step_by(8).filter_map(paravirtual).collect(),
        noreturns: kernel.noreturns.clone(),
        numbers: numbers(&table),
        table,
    };
    let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '_' };
    let path = folder.join(exported.constant.chars().map(plain).collect::<String>() + ".json");
    let text = serde_json::to_string(&exported)?;
    std::fs::write(&path, text).with_context(|| path.display().to_string())?;
    Ok(path)
}

/// The bounds of what the table accepts, and others at random; not the default.
pub fn drawn(table: &ScopeTable, number: usize, seed: u64) -> Vec<i64> {
    let default = table.constant.default;
    let hull = table.values.hull();
    let bounds = [hull.min, hull.max].into_iter().take(number);
    let mut drawn: BTreeSet<i64> = bounds.filter(|value| *value != default).collect();
    let mut random = Random::of(&table.constant.id, seed);
    for _ in 0..number * 50 {
        if drawn.len() >= number {
            break;
        }
        drawn.extend(one(&table.values, default, &mut random).filter(|value| *value != default));
    }
    drawn.into_iter().collect()
}

/// The objects of a unit; `None` when it does not see the constant. With updates that test for order, the
/// compiled code must not know the value: it is an object that holds the value.
fn compile(
    kernel: &Kernel,
    constant: &Constant,
    unit: &Unit,
    values: &[i64],
    for_order: bool,
) -> Result<Option<Compiled>> {
    let cache = lab::cache()?.join("objects");
    let mut variants = BTreeMap::new();
    for &value in values {
        let built = if for_order {
            xk_const::build_opaque(&kernel.tree, constant, unit, Opaque::Changing, &cache, &QUICK)
        } else {
            xk_const::build(&kernel.tree, constant, unit, value, &cache)
        };
        match built {
            Ok(path) => _ = variants.insert(value, path),
            Err(BuildError::NotSeen { .. }) => return Ok(None),
            Err(error) => return Err(error.into()),
        }
    }
    let default = xk_const::build(&kernel.tree, constant, unit, constant.default, &cache)?;
    Ok(Some(Compiled { source: unit.source.clone(), default, variants }))
}

/// What is known of each function that `object` defines or refers to.
fn collect(object: &Object, prototypes: &Prototypes, called: &mut BTreeMap<String, Prototype>) {
    let mut names: BTreeSet<&str> = object.functions.values().map(|function| function.name.as_str()).collect();
    for section in object.sections.iter().filter(|section| section.allocated) {
        names.extend(section.relocations.values().filter_map(|relocation| match &relocation.target {
            RelocTarget::Symbol(symbol) => Some(symbol.name.as_str()),
            RelocTarget::Section { .. } => None,
        }));
    }
    let mut flow = None;
    for name in names {
        if called.contains_key(name) {
            continue;
        }
        let arguments = prototypes.signature(name).map(|known| known.arguments.iter().map(|bits| bits / 8).collect());
        let own = object.functions.values().find(|function| function.name == name);
        let reads = own.filter(|_| arguments.is_none()).map(|function| {
            let live = flow.get_or_insert_with(|| Flow::new(object, prototypes)).callee_reads(function.start);
            (0..ARGUMENTS.len()).filter(|&place| live.register(ARGUMENTS[place])).collect()
        });
        let base = if own.is_some() { name.split('.').next().unwrap_or(name) } else { name };
        let prototype = Prototype {
            arguments,
            variadic: prototypes.variadic(name),
            reads,
            result: prototypes.result(base).map(|bits| bits / 8),
            convention: own.is_some() || prototypes.is_function(name) || name.starts_with("__SCT__"),
        };
        called.insert(name.to_owned(), prototype);
    }
}
