//! Sensors and bottleneck tests of a description. In: their tables. Out: [`Sensor`], [`Bottleneck`], or the
//! line on which something is wrong.

use toml::Spanned;

use super::{substitute, text, Bottleneck, Source, VariableError, Variables};
use crate::sensor::{self, CounterError, Sensor};
use crate::Error;

/// What tells workloads apart.
pub(super) fn sensors(
    source: &Source,
    texts: &[Spanned<text::Sensor>],
    with: &Variables,
) -> Result<Vec<Sensor>, Error> {
    let one = |spanned: &Spanned<text::Sensor>| {
        let text = spanned.get_ref();
        let wrong = |message: String| source.error(spanned.span(), format!("sensor `{}`: {message}", text.name));
        let (of, per) = counters(&text.of, &text.per, with).map_err(|error| wrong(error.to_string()))?;
        if !(0.0..=1.0).contains(&text.similar) {
            return Err(wrong(format!("similar = {} is no share, from 0 to 1", text.similar)));
        }
        if !(text.within >= 0.0 && text.within.is_finite()) {
            return Err(wrong(format!("within = {} is no difference: it must be 0 or more", text.within)));
        }
        Ok(Sensor { name: text.name.clone(), of, per, similar: text.similar, within: text.within })
    };
    texts.iter().map(one).collect()
}

/// Why a table does not name counters.
#[derive(Debug, thiserror::Error)]
enum CountersError {
    #[error("`of` names no counter")]
    None,
    #[error(transparent)]
    Counter(#[from] CounterError),
    #[error(transparent)]
    Variable(#[from] VariableError),
}

/// What is counted, and what it is divided by.
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

/// What shows that the subsystem of this name holds the target up.
pub(super) fn bottleneck(
    source: &Source,
    name: &str,
    text: &Spanned<text::Bottleneck>,
    with: &Variables,
) -> Result<Bottleneck, Error> {
    let wrong = |message: String| source.error(text.span(), format!("[bottleneck]: {message}"));
    let test = text.get_ref();
    let (of, per) = counters(&test.of, &test.per, with).map_err(|error| wrong(error.to_string()))?;
    let at_least = test.at_least;
    if !(at_least > 0.0 && at_least.is_finite()) {
        return Err(wrong(format!("at_least = {at_least} is no limit: it must be above 0")));
    }
    Ok(Bottleneck { sensor: Sensor { name: name.to_owned(), of, per, similar: 0.0, within: 0.0 }, at_least })
}
