//! The unit of measure of a constant's value, where the constant's own source line states one.
//!
//! In: the constant as the table has it. Out: jiffies or a unit of time, with the evidence; a [`Quantity`] as a
//! number in that unit. Refuses an amount of time for a constant whose unit is not stated: the number would be a
//! guess. Reads nothing from the machine: the caller supplies `CONFIG_HZ`.

use thiserror::Error;

use crate::{ConstRef, Quantity, TimeUnit};

/// What the value of a constant counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UnitOfMeasure {
    /// Ticks of the kernel's clock.
    Jiffies,
    /// A unit of time.
    Time(TimeUnit),
}

impl UnitOfMeasure {
    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            UnitOfMeasure::Jiffies => "jiffies",
            UnitOfMeasure::Time(TimeUnit::Nanoseconds) => "nanoseconds",
            UnitOfMeasure::Time(TimeUnit::Microseconds) => "microseconds",
            UnitOfMeasure::Time(TimeUnit::Milliseconds) => "milliseconds",
            UnitOfMeasure::Time(TimeUnit::Seconds) => "seconds",
        }
    }
}

/// A unit of measure, and the evidence for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StatedUnit {
    /// The unit.
    pub unit: UnitOfMeasure,
    /// The part of the line that says so.
    pub because: String,
}

impl ConstRef {
    /// The unit of measure of the constant; `None` if its line states none, or two that differ.
    #[must_use]
    pub fn unit_of_measure(&self) -> Option<StatedUnit> {
        let mut found = Vec::new();
        found.extend(of_expression(&self.token));
        found.extend(of_call(self));
        if is_whole(self) {
            found.extend(self.name.as_deref().and_then(of_name));
            found.extend(comment(&self.text).and_then(|text| of_comment(&text, self.default)));
        }
        let first = found.first()?.clone();
        found.iter().all(|known| known.unit == first.unit).then_some(first)
    }

    /// `quantity` as a number in the unit of the constant. `hz` is called only if the constant counts jiffies.
    ///
    /// # Errors
    /// The constant states no unit, the amount of time is not a whole number of it, or `hz` fails.
    pub fn number<E: std::error::Error>(
        &self,
        quantity: Quantity,
        hz: impl Fn() -> Result<u32, E>,
    ) -> Result<i128, ConversionError<E>> {
        let (count, given) = match quantity {
            Quantity::Number(number) => return Ok(number),
            Quantity::Time(count, unit) => (count, unit),
        };
        let name = || self.name.clone().unwrap_or_else(|| self.id.clone());
        let Some(stated) = self.unit_of_measure() else {
            let text = self.text.trim().to_owned();
            return Err(ConversionError::NoUnit { name: name(), count, given, text, default: self.default });
        };
        let nanoseconds = count.saturating_mul(given.nanoseconds());
        let (numerator, denominator) = match stated.unit {
            UnitOfMeasure::Time(unit) => (nanoseconds, unit.nanoseconds()),
            UnitOfMeasure::Jiffies => {
                let hz = hz().map_err(ConversionError::Hz)?;
                (nanoseconds.saturating_mul(i128::from(hz)), TimeUnit::Seconds.nanoseconds())
            }
        };
        if numerator % denominator == 0 {
            return Ok(numerator / denominator);
        }
        let below = numerator.div_euclid(denominator);
        Err(ConversionError::NotWhole { name: name(), stated, count, given, below, above: below.saturating_add(1) })
    }
}

/// Why an amount of time is not a number of a constant's unit.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ConversionError<E: std::error::Error> {
    /// The source line states no unit.
    #[error(
        "{name}: `{count}{}` needs a constant whose line states its unit, and `{text}` does not; \
         give a plain number (the default is {default})",
        given.suffix()
    )]
    NoUnit {
        /// The constant.
        name: String,
        /// How many of `given`.
        count: i128,
        /// The unit that the user wrote.
        given: TimeUnit,
        /// The source line.
        text: String,
        /// Its value in the kernel's configuration.
        default: i64,
    },
    /// The amount lies between two numbers.
    #[error(
        "{name} counts {} ({}): {count}{} lies between {below} and {above}; give one of them as a plain number",
        stated.unit.name(),
        stated.because,
        given.suffix()
    )]
    NotWhole {
        /// The constant.
        name: String,
        /// Its unit.
        stated: StatedUnit,
        /// How many of `given`.
        count: i128,
        /// The unit that the user wrote.
        given: TimeUnit,
        /// The next smaller number.
        below: i128,
        /// The next larger number.
        above: i128,
    },
    /// The constant counts jiffies, and `CONFIG_HZ` is not known.
    #[error(transparent)]
    Hz(E),
}

/// Factors that turn a number into one of a known unit.
const FACTORS: [(&str, UnitOfMeasure); 7] = [
    ("HZ", UnitOfMeasure::Jiffies),
    ("NSEC_PER_USEC", UnitOfMeasure::Time(TimeUnit::Nanoseconds)),
    ("NSEC_PER_MSEC", UnitOfMeasure::Time(TimeUnit::Nanoseconds)),
    ("NSEC_PER_SEC", UnitOfMeasure::Time(TimeUnit::Nanoseconds)),
    ("USEC_PER_MSEC", UnitOfMeasure::Time(TimeUnit::Microseconds)),
    ("USEC_PER_SEC", UnitOfMeasure::Time(TimeUnit::Microseconds)),
    ("MSEC_PER_SEC", UnitOfMeasure::Time(TimeUnit::Milliseconds)),
];

/// Functions whose only argument, or whose result, has a known unit.
const CALLS: [(&str, UnitOfMeasure); 8] = [
    ("msecs_to_jiffies", UnitOfMeasure::Time(TimeUnit::Milliseconds)),
    ("usecs_to_jiffies", UnitOfMeasure::Time(TimeUnit::Microseconds)),
    ("nsecs_to_jiffies", UnitOfMeasure::Time(TimeUnit::Nanoseconds)),
    ("secs_to_jiffies", UnitOfMeasure::Time(TimeUnit::Seconds)),
    ("msleep", UnitOfMeasure::Time(TimeUnit::Milliseconds)),
    ("mdelay", UnitOfMeasure::Time(TimeUnit::Milliseconds)),
    ("udelay", UnitOfMeasure::Time(TimeUnit::Microseconds)),
    ("ndelay", UnitOfMeasure::Time(TimeUnit::Nanoseconds)),
];

/// Identifiers that say nothing about the unit.
const TYPES: [&str; 13] =
    ["unsigned", "signed", "int", "long", "short", "u16", "u32", "u64", "s32", "s64", "size_t", "UL", "ULL"];

/// `2 * HZ`, `(HZ/25)`, `10 * NSEC_PER_MSEC`, `msecs_to_jiffies(2)`.
fn of_expression(token: &str) -> Option<StatedUnit> {
    // Comparisons and bit operations do not keep a unit.
    if token.contains(['=', '?', '&', '|', '^', '~', '!', '%', '<', '>', ',']) {
        return None;
    }
    let known = |unit| Some(StatedUnit { unit, because: format!("the value is written `{token}`") });
    let names: Vec<(usize, &str)> = identifiers(token).filter(|(_, word)| !TYPES.contains(word)).collect();
    let [(at, name)] = names[..] else { return None };
    if name.ends_with("secs_to_jiffies") && CALLS.iter().any(|(call, _)| *call == name) {
        let bare = token.trim().trim_matches(['(', ')', ' ']);
        return if bare.starts_with(name) { known(UnitOfMeasure::Jiffies) } else { None };
    }
    let unit = FACTORS.iter().find(|(factor, _)| *factor == name)?.1;
    let divides = token[..at].trim_end_matches([' ', '(']).ends_with('/');
    // `NSEC_PER_SEC / HZ` is excluded by having two names; `NSEC_PER_SEC / 1000` is nanoseconds still.
    if divides {
        None
    } else {
        known(unit)
    }
}

/// The constant is the only argument of a function that takes a unit.
fn of_call(constant: &ConstRef) -> Option<StatedUnit> {
    let text: String = constant.text.chars().filter(|c| !c.is_whitespace()).collect();
    let token: String = constant.token.chars().filter(|c| !c.is_whitespace()).collect();
    let occurrences = text.match_indices(&token).count();
    let (call, unit) = CALLS.into_iter().find(|(call, _)| {
        let wanted = format!("{call}({token})");
        text.match_indices(&wanted)
            .any(|(at, _)| !text[..at].ends_with(|c: char| c.is_ascii_alphanumeric() || c == '_'))
    })?;
    (occurrences == 1).then(|| StatedUnit { unit, because: format!("it is the argument of {call}()") })
}

/// The constant is all that the line defines, not a part of an expression.
fn is_whole(constant: &ConstRef) -> bool {
    let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let line = words(&without_comment(&constant.text));
    let token = words(&constant.token);
    let Some(before) = line.trim_end_matches([';', ',', ' ']).strip_suffix(&token) else { return false };
    let name = constant.name.as_deref().unwrap_or_default();
    let before = before.trim_end();
    words(before) == words(&format!("#define {name}")) || before.ends_with('=')
}

/// `TIMEOUT_MS`, `DELAY_USEC`; not `MSEC_PER_SEC`.
fn of_name(name: &str) -> Option<StatedUnit> {
    if name.split('_').any(|part| part.eq_ignore_ascii_case("per")) {
        return None;
    }
    let (_, last) = name.rsplit_once('_')?;
    let last = last.to_ascii_lowercase();
    // A single letter says too little.
    let unit = word_unit(&last).filter(|_| last.len() > 1)?;
    Some(StatedUnit { unit, because: format!("its name ends in `_{}`", last.to_ascii_uppercase()) })
}

fn word_unit(word: &str) -> Option<UnitOfMeasure> {
    let time = |unit| Some(UnitOfMeasure::Time(unit));
    match word {
        "ns" | "nsec" | "nsecs" | "nanosec" | "nanosecs" | "nanosecond" | "nanoseconds" => time(TimeUnit::Nanoseconds),
        "us" | "usec" | "usecs" | "microsec" | "microsecs" | "microsecond" | "microseconds" => {
            time(TimeUnit::Microseconds)
        }
        "ms" | "msec" | "msecs" | "millisec" | "millisecs" | "millisecond" | "milliseconds" => {
            time(TimeUnit::Milliseconds)
        }
        "sec" | "secs" | "second" | "seconds" => time(TimeUnit::Seconds),
        "jiffies" => Some(UnitOfMeasure::Jiffies),
        _ => None,
    }
}

/// `/* in ms */`, `/* ms units */`, `/* usec */`, `/* 16 ms */` beside 16000.
fn of_comment(comment: &str, default: i64) -> Option<StatedUnit> {
    let lower = comment.to_ascii_lowercase();
    let words: Vec<&str> =
        lower.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').filter(|word| !word.is_empty()).collect();
    let known = |unit| Some(StatedUnit { unit, because: format!("its comment says `{}`", comment.trim()) });
    let amount = match words[..] {
        [word] => match word.find(|c: char| !c.is_ascii_digit()) {
            Some(0) => return word_unit(word).and_then(known),
            Some(end) => Some(word.split_at(end)),
            None => None,
        },
        [number, unit] => Some((number, unit)),
        _ => None,
    };
    if let Some((Ok(number), Some(UnitOfMeasure::Time(unit)))) =
        amount.map(|(number, unit)| (number.parse::<u32>(), word_unit(unit)))
    {
        let nanoseconds = i128::from(number) * unit.nanoseconds();
        let own = [TimeUnit::Nanoseconds, TimeUnit::Microseconds, TimeUnit::Milliseconds, TimeUnit::Seconds];
        let own = own.into_iter().find(|own| own.nanoseconds() * i128::from(default) == nanoseconds && default > 0)?;
        return known(UnitOfMeasure::Time(own));
    }
    let mut units = words.windows(2).filter_map(|pair| match pair {
        ["in", unit] => word_unit(unit),
        [unit, "unit" | "units"] => word_unit(unit),
        _ => None,
    });
    let unit = units.next()?;
    units.all(|other| other == unit).then_some(())?;
    known(unit)
}

fn identifiers(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut at = 0;
    text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').filter_map(move |word| {
        let start = at;
        at += word.len() + 1;
        word.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_').then_some((start, word))
    })
}

fn comment(text: &str) -> Option<String> {
    let rest = match (text.split_once("/*"), text.split_once("//")) {
        (Some((_, rest)), _) => rest,
        (None, Some((_, rest))) => rest,
        (None, None) => return None,
    };
    Some(rest.split("*/").next().unwrap_or_default().trim().to_owned())
}

fn without_comment(text: &str) -> String {
    text.split("/*").next().unwrap_or_default().split("//").next().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn constant(name: &str, text: &str, token: &str, default: i64) -> ConstRef {
        ConstRef {
            id: format!("a/b.h:L1:{token}:0"),
            name: (!name.is_empty()).then(|| name.to_owned()),
            text: text.to_owned(),
            token: token.to_owned(),
            default,
        }
    }

    fn unit(name: &str, text: &str, token: &str, default: i64) -> Option<&'static str> {
        constant(name, text, token, default).unit_of_measure().map(|known| known.unit.name())
    }

    #[test]
    fn a_line_states_its_unit() {
        let jiffies = Some("jiffies");
        assert_eq!(unit("A", "#define A ((unsigned)(HZ/25))", "((unsigned)(HZ/25))", 10), jiffies);
        assert_eq!(unit("A", "#define A (5 * HZ)", "(5 * HZ)", 1250), jiffies);
        assert_eq!(unit("A", "#define A msecs_to_jiffies(2)", "msecs_to_jiffies(2)", 1), jiffies);
        assert_eq!(unit("", "\tend = jiffies + msecs_to_jiffies(2);", "2", 2), Some("milliseconds"));
        assert_eq!(
            unit("A", "#define A (10 * NSEC_PER_MSEC)", "(10 * NSEC_PER_MSEC)", 10_000_000),
            Some("nanoseconds")
        );
        assert_eq!(unit("A_MS", "#define A_MS 20", "20", 20), Some("milliseconds"));
        assert_eq!(unit("A_USEC", "#define A_USEC\t(7U) /* x */", "(7U)", 7), Some("microseconds"));
        assert_eq!(unit("A", "#define A\t(16000U)\t/* 16 ms */", "(16000U)", 16000), Some("microseconds"));
        assert_eq!(unit("A", "static const int a = 5; /* in seconds */", "5", 5), Some("seconds"));
        assert_eq!(unit("A", "#define A 5 /* 10 ms units */", "5", 5), Some("milliseconds"));
    }

    #[test]
    fn anything_less_is_unknown() {
        for (name, text, token, default) in [
            ("A", "#define A 32", "32", 32),
            ("A", "#define A (1000 / HZ)", "(1000 / HZ)", 4),
            ("A", "#define A (NSEC_PER_SEC / HZ)", "(NSEC_PER_SEC / HZ)", 4_000_000),
            ("A_PER_SEC", "#define A_PER_SEC 100", "100", 100),
            ("A", "#define A 100 /* 16 ms */", "100", 100),
            ("A_MS", "#define A_MS 20 /* in seconds */", "20", 20),
            // The token is a part of the expression: its unit is another.
            ("", "#define A_MS (2 * 1000)", "2", 2),
            ("", "\tx = y * 10; /* in ms */", "10", 10),
            ("", "\tmsleep(2 * 2);", "2", 2),
            ("", "\tmy_msleep(20);", "20", 20),
            ("A", "#define A (HZ > 100)", "(HZ > 100)", 1),
        ] {
            assert_eq!(unit(name, text, token, default), None, "{text}");
        }
    }

    #[test]
    fn times_become_numbers_or_are_refused() {
        let hz = || Ok::<_, std::fmt::Error>(250);
        let jiffies = constant("A", "#define A (HZ/25)", "(HZ/25)", 10);
        let time = |count, unit| Quantity::Time(count, unit);
        assert_eq!(jiffies.number(time(20, TimeUnit::Milliseconds), hz), Ok(5));
        assert_eq!(jiffies.number(time(2, TimeUnit::Seconds), hz), Ok(500));
        let between = jiffies.number(time(5, TimeUnit::Milliseconds), hz).map_err(|error| error.to_string());
        assert!(between.as_ref().is_err_and(|text| text.contains("between 1 and 2")), "{between:?}");
        let unknown = jiffies.number(time(5, TimeUnit::Milliseconds), || Err(std::fmt::Error));
        assert_eq!(unknown, Err(ConversionError::Hz(std::fmt::Error)));
        let plain = constant("A", "#define A 32", "32", 32);
        assert_eq!(plain.number(Quantity::Number(7), hz), Ok(7));
        let refused = plain.number(time(7, TimeUnit::Seconds), hz);
        assert!(matches!(refused, Err(ConversionError::NoUnit { .. })), "{refused:?}");
    }
}
