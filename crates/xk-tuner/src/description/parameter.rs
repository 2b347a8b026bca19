//! Parameters of a description. In: their tables. Out: [`Parameter`]s, or the line on which something is wrong. It
//! refuses what is wrong on every machine; `machine/find.rs` finds out whether this machine has the knobs.

use std::time::Duration;

use toml::Spanned;

use super::error::{DescriptionError, Location, ParameterProblem, Problem};
use super::schema::{DomainError, ParameterTable};
use super::source::SourceText;
use super::{module, AtEnd, Backing, Domain, Parameter, Variables};
use crate::modules::Modules;

/// The settle time of a sysctl, a file, a module parameter, a pair of commands and a perf-const, unless the description
/// gives another. Most of these knobs act on the next request, packet or fault, so what is in flight must end: this takes
/// some disk accesses or round trips. What adapts more slowly (writeback, reclaim) has its own settle time in the
/// subsystem.
pub const SETTLE: Duration = Duration::from_millis(100);

impl Parameter {
    /// An error at the line of this parameter.
    #[must_use]
    pub fn error(&self, problem: ParameterProblem) -> DescriptionError {
        self.location.error(Problem::Parameter { name: self.name.clone(), problem })
    }
}

/// The parameters of these tables.
pub(super) fn parameters(
    source: &SourceText,
    tables: &[Spanned<ParameterTable>],
    with: &Variables,
    modules: &dyn Modules,
) -> Result<Vec<Parameter>, DescriptionError> {
    tables.iter().map(|table| parameter(source, table, with, modules)).collect()
}

fn parameter(
    source: &SourceText,
    table: &Spanned<ParameterTable>,
    with: &Variables,
    modules: &dyn Modules,
) -> Result<Parameter, DescriptionError> {
    let location = source.location(table.span());
    let table = table.get_ref();
    let name = table.name.get_ref().clone();
    let settle = table.settle.as_ref().map(|settle| source.duration(settle)).transpose()?;
    understand(table, name.clone(), location.clone(), with, modules)
        .map(|parameter| Parameter { settle: settle.unwrap_or(parameter.settle), ..parameter })
        .map_err(|problem| location.error(Problem::Parameter { name, problem }))
}

/// A parameter, with the settle time that its module describes, or [`SETTLE`] if no module describes it.
fn understand(
    table: &ParameterTable,
    name: String,
    location: Location,
    with: &Variables,
    modules: &dyn Modules,
) -> Result<Parameter, ParameterProblem> {
    let backing = table.backing(with)?;
    let described = match &backing {
        Backing::Module(name) => Some(modules.look()?.parameter(name)?.clone()),
        Backing::Constant(_) | Backing::Plain(_) => None,
    };
    let described = described.as_ref();
    let domain = match described.filter(|_| !table.has_values()) {
        Some(described) => module::domain(described).map_err(DomainError::from)?,
        None => table.domain()?,
    };
    let mut guards = table.only_if.iter().flatten();
    let only_if = guards.next().map(|(other, values)| (other.clone(), values.list()));
    if guards.next().is_some() || table.only_if.as_ref().is_some_and(|guards| guards.is_empty()) {
        return Err(ParameterProblem::SeveralGuards);
    }
    Ok(Parameter {
        name,
        backing,
        domain,
        only_if,
        default: table.default.clone(),
        settle: described.map_or(SETTLE, |described| described.settle),
        at_end: table.at_end.or(described.map(module::at_end)).unwrap_or(AtEnd::Keep),
        optional: false,
        location,
    })
}

/// Leaves the parameters that the search names, in its order.
pub(super) fn select(
    source: &SourceText,
    all: Vec<Parameter>,
    names: Option<&[Spanned<String>]>,
) -> Result<Vec<Parameter>, DescriptionError> {
    let Some(names) = names else { return Ok(all) };
    let find = |name: &Spanned<String>| {
        let found = all.iter().find(|parameter| parameter.name == *name.get_ref()).cloned();
        let unknown = || Problem::UnknownParameter { name: name.get_ref().clone(), known: names_of(&all) };
        found.ok_or_else(|| source.error(name.span(), unknown()))
    };
    names.iter().map(find).collect()
}

fn names_of(parameters: &[Parameter]) -> Vec<String> {
    parameters.iter().map(|parameter| parameter.name.clone()).collect()
}

/// Checks what does not depend on the machine.
pub(super) fn check(source: &SourceText, parameters: &[Parameter]) -> Result<(), DescriptionError> {
    if parameters.is_empty() {
        return Err(source.error(0..0, Problem::NoParameter));
    }
    for (index, parameter) in parameters.iter().enumerate() {
        if parameters[..index].iter().any(|other| other.name == parameter.name) {
            return Err(parameter.error(ParameterProblem::Twice));
        }
        check_guard(parameter, parameters).map_err(|problem| parameter.error(problem))?;
    }
    Ok(())
}

fn check_guard(parameter: &Parameter, all: &[Parameter]) -> Result<(), ParameterProblem> {
    let Some((guard, values)) = &parameter.only_if else { return Ok(()) };
    let Some(other) = all.iter().find(|candidate| candidate.name == *guard) else {
        return Err(ParameterProblem::UnknownGuard { guard: guard.clone(), known: names_of(all) });
    };
    let known = match &other.domain {
        Domain::Numbers(levels) | Domain::Choices(levels) => levels,
        Domain::Offered => return Ok(()),
    };
    match values.iter().find(|value| !known.contains(value)) {
        None => Ok(()),
        Some(value) => {
            Err(ParameterProblem::GuardValue { guard: guard.clone(), value: value.clone(), known: known.clone() })
        }
    }
}
