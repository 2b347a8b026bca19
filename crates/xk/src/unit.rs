//! The unit that a constant counts in, where its own line proves one.
//!
//! In: the constant as the table has it. Out: jiffies or a unit of time, with
//! the evidence. Errs on the side of not knowing: `xk set X=20ms` for a
//! constant in unknown units would be a guess, and a guess is refused.

use std::path::Path;

use xk_table::ConstRef;

use crate::exit::{Exit, Failure, Result};
use crate::value::{Quantity, TimeUnit};

/// What a constant counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// Ticks of the kernel's clock.
    Jiffies,
    /// A unit of time.
    Time(TimeUnit),
}

impl Unit {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Unit::Jiffies => "jiffies",
            Unit::Time(TimeUnit::Nanoseconds) => "nanoseconds",
            Unit::Time(TimeUnit::Microseconds) => "microseconds",
            Unit::Time(TimeUnit::Milliseconds) => "milliseconds",
            Unit::Time(TimeUnit::Seconds) => "seconds",
        }
    }
}

/// A unit and how it is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Known {
    /// The unit.
    pub unit: Unit,
    /// The part of the line that says so.
    pub because: String,
}

/// The unit of a constant; `None` when its line does not say, or says two things.
pub fn of(constant: &ConstRef) -> Option<Known> {
    let mut found = Vec::new();
    found.extend(of_expression(&constant.token));
    found.extend(of_call(constant));
    if is_whole(constant) {
        found.extend(constant.name.as_deref().and_then(of_name));
        found.extend(comment(&constant.text).and_then(|text| of_comment(&text, constant.default)));
    }
    let first = found.first()?.clone();
    found.iter().all(|known| known.unit == first.unit).then_some(first)
}

/// Factors that turn a number into one of a known unit.
const FACTORS: [(&str, Unit); 7] = [
    ("HZ", Unit::Jiffies),
    ("NSEC_PER_USEC", Unit::Time(TimeUnit::Nanoseconds)),
    ("NSEC_PER_MSEC", Unit::Time(TimeUnit::Nanoseconds)),
    ("NSEC_PER_SEC", Unit::Time(TimeUnit::Nanoseconds)),
    ("USEC_PER_MSEC", Unit::Time(TimeUnit::Microseconds)),
    ("USEC_PER_SEC", Unit::Time(TimeUnit::Microseconds)),
    ("MSEC_PER_SEC", Unit::Time(TimeUnit::Milliseconds)),
];

/// Functions whose only argument, or whose result, has a known unit.
const CALLS: [(&str, Unit); 8] = [
    ("msecs_to_jiffies", Unit::Time(TimeUnit::Milliseconds)),
    ("usecs_to_jiffies", Unit::Time(TimeUnit::Microseconds)),
    ("nsecs_to_jiffies", Unit::Time(TimeUnit::Nanoseconds)),
    ("secs_to_jiffies", Unit::Time(TimeUnit::Seconds)),
    ("msleep", Unit::Time(TimeUnit::Milliseconds)),
    ("mdelay", Unit::Time(TimeUnit::Milliseconds)),
    ("udelay", Unit::Time(TimeUnit::Microseconds)),
    ("ndelay", Unit::Time(TimeUnit::Nanoseconds)),
];

/// Identifiers that say nothing about the unit.
const TYPES: [&str; 13] =
    ["unsigned", "signed", "int", "long", "short", "u16", "u32", "u64", "s32", "s64", "size_t", "UL", "ULL"];

/// `2 * HZ`, `(HZ/25)`, `10 * NSEC_PER_MSEC`, `msecs_to_jiffies(2)`.
fn of_expression(token: &str) -> Option<Known> {
    // Comparisons and bit operations do not keep a unit.
    if token.contains(['=', '?', '&', '|', '^', '~', '!', '%', '<', '>', ',']) {
        return None;
    }
    let known = |unit| Some(Known { unit, because: format!("the value is written `{token}`") });
    let names: Vec<(usize, &str)> = identifiers(token).filter(|(_, word)| !TYPES.contains(word)).collect();
    let [(at, name)] = names[..] else { return None };
    if name.ends_with("secs_to_jiffies") && CALLS.iter().any(|(call, _)| *call == name) {
        let bare = token.trim().trim_matches(['(', ')', ' ']);
        return if bare.starts_with(name) { known(Unit::Jiffies) } else { None };
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
fn of_call(constant: &ConstRef) -> Option<Known> {
    let text: String = constant.text.chars().filter(|c| !c.is_whitespace()).collect();
    let token: String = constant.token.chars().filter(|c| !c.is_whitespace()).collect();
    let occurrences = text.match_indices(&token).count();
    let (call, unit) = CALLS.into_iter().find(|(call, _)| {
        let wanted = format!("{call}({token})");
        text.match_indices(&wanted)
            .any(|(at, _)| !text[..at].ends_with(|c: char| c.is_ascii_alphanumeric() || c == '_'))
    })?;
    (occurrences == 1).then(|| Known { unit, because: format!("it is the argument of {call}()") })
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
fn of_name(name: &str) -> Option<Known> {
    if name.split('_').any(|part| part.eq_ignore_ascii_case("per")) {
        return None;
    }
    let (_, last) = name.rsplit_once('_')?;
    let last = last.to_ascii_lowercase();
    // A single letter says too little.
    let unit = word_unit(&last).filter(|_| last.len() > 1)?;
    Some(Known { unit, because: format!("its name ends in `_{}`", last.to_ascii_uppercase()) })
}

fn word_unit(word: &str) -> Option<Unit> {
    let time = |unit| Some(Unit::Time(unit));
    match word {
        "ns" | "nsec" | "nsecs" | "nanosec" | "nanosecs" | "nanosecond" | "nanoseconds" => time(TimeUnit::Nanoseconds),
        "us" | "usec" | "usecs" | "microsec" | "microsecs" | "microsecond" | "microseconds" => {
            time(TimeUnit::Microseconds)
        }
        "ms" | "msec" | "msecs" | "millisec" | "millisecs" | "millisecond" | "milliseconds" => {
            time(TimeUnit::Milliseconds)
        }
        "sec" | "secs" | "second" | "seconds" => time(TimeUnit::Seconds),
        "jiffies" => Some(Unit::Jiffies),
        _ => None,
    }
}

/// `/* in ms */`, `/* ms units */`, `/* usec */`, `/* 16 ms */` beside 16000.
fn of_comment(comment: &str, default: i64) -> Option<Known> {
    let lower = comment.to_ascii_lowercase();
    let words: Vec<&str> =
        lower.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').filter(|word| !word.is_empty()).collect();
    let known = |unit| Some(Known { unit, because: format!("its comment says `{}`", comment.trim()) });
    let amount = match words[..] {
        [word] => match word.find(|c: char| !c.is_ascii_digit()) {
            Some(0) => return word_unit(word).and_then(known),
            Some(end) => Some(word.split_at(end)),
            None => None,
        },
        [number, unit] => Some((number, unit)),
        _ => None,
    };
    if let Some((Ok(number), Some(Unit::Time(unit)))) =
        amount.map(|(number, unit)| (number.parse::<u32>(), word_unit(unit)))
    {
        let nanoseconds = i128::from(number) * unit.nanoseconds();
        let own = [TimeUnit::Nanoseconds, TimeUnit::Microseconds, TimeUnit::Milliseconds, TimeUnit::Seconds];
        let own = own.into_iter().find(|own| own.nanoseconds() * i128::from(default) == nanoseconds && default > 0)?;
        return known(Unit::Time(own));
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

/// `quantity` as a number in the constant's unit. `hz` is asked only when ticks are counted.
pub fn convert(constant: &ConstRef, quantity: Quantity, hz: &dyn Fn() -> Result<u32>) -> Result<i128> {
    let (count, given) = match quantity {
        Quantity::Number(number) => return Ok(number),
        Quantity::Time(count, unit) => (count, unit),
    };
    let name = constant.name.as_deref().unwrap_or(&constant.id);
    let Some(known) = of(constant) else {
        return Err(Failure::new(
            Exit::Usage,
            format!(
                "{name}: `{count}{}` needs a constant whose line states its unit, and `{}` does not; \
                 give a plain number (the default is {})",
                given.suffix(),
                constant.text.trim(),
                constant.default
            ),
        ));
    };
    let nanoseconds = count.saturating_mul(given.nanoseconds());
    let (numerator, denominator) = match known.unit {
        Unit::Time(unit) => (nanoseconds, unit.nanoseconds()),
        Unit::Jiffies => (nanoseconds.saturating_mul(i128::from(hz()?)), TimeUnit::Seconds.nanoseconds()),
    };
    if numerator % denominator == 0 {
        return Ok(numerator / denominator);
    }
    let below = numerator.div_euclid(denominator);
    Err(Failure::new(
        Exit::Usage,
        format!(
            "{name} counts {} ({}): {count}{} lies between {below} and {}; give one of them as a plain number",
            known.unit.name(),
            known.because,
            given.suffix(),
            below.saturating_add(1)
        ),
    ))
}

/// `CONFIG_HZ` of a kernel, from the configuration that is installed beside it.
pub fn hz_of(release: &str) -> Result<u32> {
    let places = [
        format!("/boot/config-{release}"),
        format!("/lib/modules/{release}/config"),
        format!("/usr/src/linux-headers-{release}/.config"),
    ];
    let read = |place: &String| {
        let text = std::fs::read_to_string(Path::new(place)).ok()?;
        text.lines().find_map(|line| line.strip_prefix("CONFIG_HZ=")?.trim().parse().ok())
    };
    places.iter().find_map(read).filter(|&hz| hz > 0).ok_or_else(|| {
        Failure::error(format!(
            "the constant counts jiffies and CONFIG_HZ of this kernel is not known (none of {}); \
             give a plain number of jiffies",
            places.join(", ")
        ))
    })
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
        of(&constant(name, text, token, default)).map(|known| known.unit.name())
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
        let hz = || Ok(250);
        let jiffies = constant("A", "#define A (HZ/25)", "(HZ/25)", 10);
        let time = |count, unit| Quantity::Time(count, unit);
        assert_eq!(convert(&jiffies, time(20, TimeUnit::Milliseconds), &hz).ok(), Some(5));
        assert_eq!(convert(&jiffies, time(2, TimeUnit::Seconds), &hz).ok(), Some(500));
        let between = convert(&jiffies, time(5, TimeUnit::Milliseconds), &hz).unwrap_err();
        assert!(between.message.contains("between 1 and 2"), "{}", between.message);
        let plain = constant("A", "#define A 32", "32", 32);
        assert_eq!(convert(&plain, Quantity::Number(7), &hz).ok(), Some(7));
        assert!(convert(&plain, time(7, TimeUnit::Seconds), &hz).is_err_and(|e| e.exit == Exit::Usage));
    }
}
