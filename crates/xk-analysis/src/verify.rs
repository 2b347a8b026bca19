//! Whether a scope table holds for a kernel: everything it claims is shown again.
//!
//! In: a [`ScopeTable`], the deployed code, and, unless only identity is asked for,
//! observations of the constant at the table's own values ([`observe`]). Out: a
//! [`Report`] of what does not hold, and where. What runs in the kernel is taken from
//! the table: its operations are put into the obligation as they stand, and its fits
//! say what the code of another value would hold. Only what the table is compared
//! with is made again.

mod mismatch;
mod unit;
mod unproved;

use std::collections::{BTreeMap, BTreeSet};

use xk_const::{choose_values, CType, Constant, Edges, Operator, Unit, Users};
use xk_kernel::Tree;
use xk_table::{Function as TableFunction, ScopeTable};

use self::mismatch::NotDeployed;
use crate::analyse::Input;
use crate::constants::Seeds;
use crate::data::DataSeeds;
use crate::identity::{first_difference, Deployed};
use crate::pipeline::{noreturns, refuse_elsewhere, refuse_layout, study, BuildError, Options};
use crate::proof::Solver;
use crate::study::{Means, Study};
use crate::theorem::{FromTree, Functions, Theorem};
use crate::variants::Variants;

/// So many proved values are compiled, besides the bounds.
const PROVED_SAMPLES: usize = 7;

/// What a fault is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum At {
    /// The table as a whole.
    Table,
    /// A function, by its index; all spans in it.
    Function(usize),
    /// A span, by its index.
    Span(usize),
    /// A data site, by its index.
    Data(usize),
}

/// Which claim does not hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Claim {
    /// The table makes no sense by itself.
    Coherence,
    /// The deployed code is the code that was analysed.
    Identity,
    /// Everything that depends on the constant is in the table.
    Completeness,
    /// Compiled values are what the table predicts.
    Validation,
    /// Every accepted value is good.
    Values,
    /// The update does what another value would have done.
    Proof,
    /// The probe can be placed, and is what the table expects.
    Probe,
}

impl Claim {
    /// In one word.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Coherence => "coherence",
            Self::Identity => "identity",
            Self::Completeness => "completeness",
            Self::Validation => "validation",
            Self::Values => "values",
            Self::Proof => "proof",
            Self::Probe => "probe",
        }
    }
}

/// Something that does not hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// Where.
    pub at: At,
    /// Which claim.
    pub claim: Claim,
    /// What was found, and where exactly.
    pub detail: String,
}

/// An answer of a solver.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Proved {
    /// Solver and version.
    pub solver: String,
    /// Milliseconds that it took.
    pub millis: u64,
}

/// What became of a table.
#[derive(Debug, Default)]
pub struct Report {
    /// What does not hold; empty when everything does.
    pub faults: Vec<Fault>,
    /// For each span, who proved it now; empty when nothing was proved.
    pub proofs: Vec<Vec<Proved>>,
    /// Values that were compiled and compared with the table.
    pub values: Vec<i64>,
    /// Those of them that agree.
    pub agreeing: Vec<i64>,
    /// Those that do not and that the table does not accept, with the first difference.
    pub refused: BTreeMap<i64, String>,
    /// Proved values whose compiled code is not shown to do the same, nor to hold other numbers, with the first
    /// difference. A compiler that knows the value may conclude more from it than the comparison does.
    pub inconclusive: BTreeMap<i64, String>,
}

impl Report {
    pub(crate) fn fault(&mut self, at: At, claim: Claim, detail: impl Into<String>) {
        self.faults.push(Fault { at, claim, detail: detail.into() });
    }

    /// What does not hold for a span of `table`, its function's faults included.
    pub fn of_span<'a>(&'a self, table: &'a ScopeTable, span: usize) -> impl Iterator<Item = &'a Fault> {
        let function = table.spans.get(span).map(|span| At::Function(span.function));
        self.faults.iter().filter(move |fault| fault.at == At::Span(span) || Some(fault.at) == function)
    }

    /// What does not hold for exactly this.
    pub fn at(&self, at: At) -> impl Iterator<Item = &Fault> {
        self.faults.iter().filter(move |fault| fault.at == at)
    }
}

/// What needs neither source nor compiler: coherence, and the table's bytes against
/// the deployed ones.
#[must_use]
pub fn quick(table: &ScopeTable, deployed: &dyn Deployed) -> Report {
    let mut report = Report { proofs: vec![Vec::new(); table.spans.len()], ..Report::default() };
    if let Err(fault) = table.check() {
        report.fault(At::Table, Claim::Coherence, fault.to_string());
    }
    for (index, function) in table.functions.iter().enumerate() {
        if let Err(difference) = same_bytes(function, deployed) {
            report.fault(At::Function(index), Claim::Identity, difference.to_string());
        }
    }
    for (index, data) in table.data.iter().enumerate() {
        let there = match deployed.candidates(&data.symbol, data.module.as_deref()) {
            Ok(found) => found.iter().any(|candidate| candidate.text_offset == data.section_offset),
            Err(error) => {
                report.fault(At::Data(index), Claim::Identity, error.to_string());
                continue;
            }
        };
        if !there {
            let owner = data.module.as_deref().unwrap_or("vmlinux");
            let detail = format!("{owner} has no object {} at {:#x}", data.symbol, data.section_offset);
            report.fault(At::Data(index), Claim::Identity, detail);
        }
    }
    report
}

fn same_bytes(function: &TableFunction, deployed: &dyn Deployed) -> Result<(), NotDeployed> {
    let module = function.module.as_deref();
    let (text, mask) = (function.text()?, function.text_mask()?);
    let candidates = deployed.candidates(&function.symbol, module)?;
    let is_it = |candidate: &&crate::identity::Candidate| {
        candidate.text_offset == function.text_offset && candidate.section == function.section
    };
    let Some(candidate) = candidates.iter().find(is_it) else {
        return Err(NotDeployed::NotThere {
            owner: module.unwrap_or("vmlinux").to_owned(),
            symbol: function.symbol.clone(),
            section: function.section.clone(),
            offset: function.text_offset,
        });
    };
    let running = deployed.text(candidate, module, text.len())?;
    match first_difference(&text, &mask, &running) {
        None => Ok(()),
        Some(at) => Err(NotDeployed::Byte {
            symbol: function.symbol.clone(),
            at,
            table: text[at],
            deployed: running.get(at).copied(),
        }),
    }
}

/// Shows everything again, from source: `constant` is what the table's ID resolves to. The
/// values `at` are compiled and compared besides those of the table.
///
/// # Errors
/// What keeps the constant from being compiled: the environment, or a refusal.
pub fn verify(
    tree: &Tree,
    deployed: &dyn Deployed,
    constant: &Constant,
    table: &ScopeTable,
    solvers: &[Solver],
    at: &[i64],
    options: &Options<'_>,
) -> Result<Report, BuildError> {
    let mut report = quick(table, deployed);
    let Some(solver) = solvers.first() else { return Ok(report) };
    if constant.default != table.constant.default {
        let detail = format!("its default is {} in the source, {} here", constant.default, table.constant.default);
        report.fault(At::Table, Claim::Coherence, detail);
        return Ok(report);
    }
    let noreturns = noreturns(tree)?;
    let input = Input { default: constant.default, noreturns: &noreturns, deployed, solver };
    let mut values = values(table);
    values.extend(at.iter().filter(|value| !values.contains(value)).copied().collect::<Vec<_>>());
    let users = xk_const::users(tree, constant)?;
    refuse_elsewhere(&users)?;
    let modules: BTreeSet<&str> = users.units.iter().filter_map(|unit| unit.module.as_deref()).collect();
    let prototypes = deployed.prototypes(&modules.into_iter().collect::<Vec<_>>());
    let variants = Variants { tree, constant, options, prototypes: &prototypes };
    let means = Means { default: constant.default, noreturns: &noreturns, prototypes: &prototypes, solver };
    let (units, studies) = observe(&variants, &means, &users, &values)?;
    (options.progress)("proving");
    let functions = against(&input, solvers, table, &values, &studies, &mut report);
    let compiler = FromTree { tree, constant, cache: options.cache, units: &units };
    let functions = functions.iter().map(|(code, data)| Functions { code, data }).collect::<Vec<_>>();
    if functions.len() == studies.len() {
        (options.progress)("proving for all values");
        let jobs = options.jobs;
        let theorem =
            Theorem { c_type: constant.c_type, means, compiler: &compiler, studies: &studies, functions, jobs };
        shown_again(&theorem, table, &values, &mut report)?;
    }
    Ok(report)
}

/// Whether the values that the table accepts are shown with the table's own functions of V.
/// `values` are compiled and compared one by one besides.
///
/// # Errors
/// What keeps the units from being compiled.
pub fn shown_again(
    theorem: &Theorem<'_>,
    table: &ScopeTable,
    values: &[i64],
    report: &mut Report,
) -> Result<(), BuildError> {
    if let Some(range) = table.values.proved {
        match theorem.for_all()? {
            Ok(found) if found.min <= range.min && range.max <= found.max => {}
            Ok(found) => {
                let detail = format!("{range} is claimed, {found} is proved");
                report.fault(At::Table, Claim::Values, detail);
            }
            Err(why) => report.fault(At::Table, Claim::Values, format!("{range} is claimed and not proved: {why}")),
        }
    }
    for (value, verdict) in theorem.compiled(values, table.values.proved)? {
        report.values.push(value);
        match verdict {
            Ok(()) => report.agreeing.push(value),
            Err(why) if table.values.is_proved(value) => match theorem.contradicted(value)? {
                Some(why) => report.fault(At::Table, Claim::Validation, format!("value {value}: {why}")),
                None => _ = report.inconclusive.insert(value, why.to_string()),
            },
            Err(why) if table.values.contains(value) => {
                report.fault(At::Table, Claim::Validation, format!("value {value}: {why}"));
            }
            Err(why) => _ = report.refused.insert(value, why.to_string()),
        }
    }
    Ok(())
}

/// The values with which a table is tested: some of those that are proved, its bounds and
/// one that is no power of two among them, those from which to fit first; and all that
/// were compiled.
#[must_use]
pub fn values(table: &ScopeTable) -> Vec<i64> {
    let default = table.constant.default;
    let mut values: Vec<i64> = Vec::new();
    if let Some(range) = table.values.proved {
        let chosen = choose_values(default, CType::LongLong, Operator::Other, Edges::Avoid);
        let near = (1..=4).flat_map(|step| [default.saturating_add(step), default.saturating_sub(step)]);
        let inside = chosen.fit.into_iter().chain(chosen.unseen).chain(near).filter(|&value| range.contains(value));
        let some = inside.take(PROVED_SAMPLES);
        values.extend(some.chain([range.min, range.max]));
    }
    values.extend(&table.values.compiled);
    let mut met = BTreeSet::from([default]);
    values.retain(|&value| met.insert(value));
    values
}

/// Compiles `values` in every unit that can see the constant, from the cache if they
/// are there, and compares them with the deployed build.
fn observe(
    variants: &Variants<'_>,
    means: &Means<'_>,
    users: &Users,
    values: &[i64],
) -> Result<(Vec<Unit>, Vec<Study>), BuildError> {
    let (units, mut studies) = variants.deployed(&users.units, values)?;
    refuse_layout(variants, users, &units, values)?;
    // A few at a time: objects of many units are large.
    for wave in values.chunks(3) {
        let built = variants.compile(&units, wave, &[])?;
        study(means, &mut studies, built, variants.options.jobs);
    }
    Ok((units, studies))
}

/// Compares a table with observations of its constant at `values`, and proves its
/// updates. The first of `solvers` is `input`'s; each must agree. Returns the table's
/// functions of V for each study.
pub fn against(
    input: &Input<'_>,
    solvers: &[Solver],
    table: &ScopeTable,
    values: &[i64],
    studies: &[Study],
    report: &mut Report,
) -> Vec<(Seeds, DataSeeds)> {
    // Indices of a table that makes no sense lead nowhere.
    if report.faults.iter().any(|fault| fault.claim == Claim::Coherence) {
        return Vec::new();
    }
    let mut functions = Vec::new();
    let mut units = BTreeSet::new();
    for study in studies {
        units.insert((study.source.clone(), unit::spelled(study.module.as_deref())));
        functions.push(unit::Check { input, solvers, table, values, study }.run(report));
    }
    for (index, function) in table.functions.iter().enumerate() {
        // The others only hold safe spans.
        let spans = table.spans.iter().any(|span| span.function == index);
        if spans && !units.contains(&(function.source.clone(), function.module.clone())) {
            let detail = format!("{} no longer sees the constant", function.source);
            report.fault(At::Function(index), Claim::Completeness, detail);
        }
    }
    for index in 0..table.spans.len() {
        if report.proofs[index].is_empty() && report.of_span(table, index).next().is_none() {
            report.fault(At::Span(index), Claim::Proof, "it was not proved");
        }
    }
    functions
}
