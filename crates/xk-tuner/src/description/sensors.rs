//! Sensors and bottleneck tests of a description. In: their tables. Out: [`Sensor`]s, a [`Bottleneck`], or the line on
//! which something is wrong. It refuses texts that are not counters, and thresholds that are not numbers of their kind.

use toml::Spanned;

use super::error::{DescriptionError, Problem, SensorProblem};
use super::schema::{BottleneckTable, SensorTable};
use super::source::SourceText;
use super::variables::{substitute, VariableError, Variables};
use super::Bottleneck;
use crate::sensor::{self, CounterError, Sensor};

/// The sensors of these tables.
pub(super) fn sensors(
    source: &SourceText,
    tables: &[Spanned<SensorTable>],
    with: &Variables,
) -> Result<Vec<Sensor>, DescriptionError> {
    let one = |table: &Spanned<SensorTable>| {
        let name = || table.get_ref().name.clone();
        sensor(table.get_ref(), with)
            .map_err(|problem| source.error(table.span(), Problem::Sensor { name: name(), problem }))
    };
    tables.iter().map(one).collect()
}

fn sensor(table: &SensorTable, with: &Variables) -> Result<Sensor, SensorProblem> {
    let (of, per) = counters(&table.of, &table.per, with)?;
    if !(0.0..=1.0).contains(&table.similar) {
        return Err(SensorProblem::Similar(table.similar));
    }
    if !(table.within >= 0.0 && table.within.is_finite()) {
        return Err(SensorProblem::Within(table.within));
    }
    Ok(Sensor { name: table.name.clone(), of, per, similar: table.similar, within: table.within })
}

/// Why a table does not name counters.
#[derive(Debug, thiserror::Error)]
pub enum CountersError {
    /// There is none.
    #[error("`of` names no counter")]
    None,
    /// One of them is not a counter.
    #[error(transparent)]
    Counter(#[from] CounterError),
    /// A variable has no value.
    #[error(transparent)]
    Variable(#[from] VariableError),
}

/// The counters, and the counters by which they are divided.
fn counters(of: &[String], per: &[String], with: &Variables) -> Result<(Vec<String>, Vec<String>), CountersError> {
    let read = |list: &[String]| -> Result<Vec<String>, CountersError> {
        let one = |counter: &String| {
            sensor::check(counter)?;
            Ok(substitute(counter, with)?)
        };
        list.iter().map(one).collect()
    };
    if of.is_empty() {
        return Err(CountersError::None);
    }
    Ok((read(of)?, read(per)?))
}

/// The bottleneck test of a subsystem.
pub(super) fn bottleneck(
    source: &SourceText,
    subsystem: &str,
    table: &Spanned<BottleneckTable>,
    with: &Variables,
) -> Result<Bottleneck, DescriptionError> {
    let wrong = |problem: SensorProblem| source.error(table.span(), Problem::Bottleneck(problem));
    let test = table.get_ref();
    let (of, per) = counters(&test.of, &test.per, with).map_err(|error| wrong(error.into()))?;
    let at_least = test.at_least;
    if !(at_least > 0.0 && at_least.is_finite()) {
        return Err(wrong(SensorProblem::AtLeast(at_least)));
    }
    Ok(Bottleneck { sensor: Sensor { name: subsystem.to_owned(), of, per, similar: 0.0, within: 0.0 }, at_least })
}
