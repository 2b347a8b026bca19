//! WHERE: what a user, or the section of a program, calls the instructions that are to be probed.
//!
//! In: text. Out: one instruction, or a pattern of functions with a class of their instructions. A bare function name is
//! its first byte. Refuses a pattern without a class, and a class of one instruction.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

use crate::line::Line;

/// What patterns call all modules that are loaded.
pub const EVERY: &str = "*";

/// What kind of instructions of a function.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Class {
    /// The first byte of the function.
    Entry,
    /// The first instruction after the entry code: `endbr64`, and the bytes of the function tracer.
    Body,
    /// Returns to the caller. Calls in the last place are calls.
    Return,
    /// Direct calls, also those in the last place (tail calls).
    Call,
    /// Those of functions whose names match a pattern.
    CallOf(String),
    /// Calls through a register or through memory, also by retpolines and in the last place.
    IndirectCall,
    /// Those that access a field of a structure, as far as that is evident: `STRUCT.MEMBER`.
    Field(String),
    /// All instructions.
    Any,
}

impl Class {
    /// Those that need nothing else, in the order in which they are listed.
    pub const ALL: [Self; 6] = [Self::Entry, Self::Body, Self::Return, Self::Call, Self::IndirectCall, Self::Any];

    /// Its name.
    #[must_use]
    pub fn word(&self) -> &'static str {
        match self {
            Self::Entry => "entry",
            Self::Body => "body",
            Self::Return => "return",
            Self::Call | Self::CallOf(_) => "call",
            Self::IndirectCall => "indirect-call",
            Self::Field(_) => "field",
            Self::Any => "any",
        }
    }
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())?;
        match self {
            Self::CallOf(of) | Self::Field(of) => write!(f, ":{of}"),
            _ => Ok(()),
        }
    }
}

impl FromStr for Class {
    type Err = PlaceError;

    fn from_str(text: &str) -> Result<Self, PlaceError> {
        if let Some(callee) = text.strip_prefix("call:").filter(|callee| is_name(callee)) {
            return Ok(Self::CallOf(callee.to_owned()));
        }
        if let Some(field) = text.strip_prefix("field:").filter(|field| is_name(field) && !is_pattern(field)) {
            return Ok(Self::Field(field.to_owned()));
        }
        let named = Self::ALL.into_iter().find(|class| class.word() == text);
        named.ok_or_else(|| PlaceError::NoClass { text: text.to_owned() })
    }
}

/// Instructions of the kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// The one at an address.
    Address(u64),
    /// One of a function.
    Instruction {
        /// Module of the function, if it was named.
        module: Option<String>,
        /// The function.
        function: String,
        /// Bytes from the first byte of the function.
        offset: u64,
    },
    /// Those of a class in functions whose names match a pattern.
    Pattern {
        /// Module of the functions, [`EVERY`] for all loaded ones; without one, those of vmlinux.
        module: Option<String>,
        /// `*` matches any characters, `?` one.
        pattern: String,
        /// Which instructions.
        class: Class,
    },
    /// Those of a line of the source.
    Line {
        /// The line.
        line: Line,
        /// Which of its instructions; without one, those before which the line begins.
        class: Option<Class>,
    },
}

/// Why a text names no place.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum PlaceError {
    /// Nothing is there.
    #[error(
        "`{text}` names no function: write FUNCTION, FUNCTION+OFFSET, MODULE:FUNCTION+OFFSET, FILE.c:LINE or 0xADDRESS"
    )]
    NoFunction {
        /// The text.
        text: String,
    },
    /// After `+` there is no number.
    #[error("{text}: `{offset}` is not an offset: write a number of bytes, such as 0x5b")]
    Offset {
        /// The text.
        text: String,
        /// What stands after `+`.
        offset: String,
    },
    /// After `0x` there is no number.
    #[error("`{text}` is not an address of 64 bits")]
    Address {
        /// The text.
        text: String,
    },
    /// A source file without a line, or too many files.
    #[error(
        "`{text}` is not a line of the source: write FILE.c:LINE, or FILE.c:HEADER.h:LINE for a file that it includes"
    )]
    Line {
        /// The text.
        text: String,
    },
    /// A pattern does not say which instructions.
    #[error("{text} is a pattern: name the instructions with --class or {text}@CLASS ({})", classes())]
    ClassNeeded {
        /// The text.
        text: String,
    },
    /// One instruction has no class.
    #[error("{text} is one instruction: a class ({class}) selects instructions of whole functions")]
    ClassOfInstruction {
        /// The text.
        text: String,
        /// The class.
        class: Class,
    },
    /// A pattern with an offset.
    #[error("{text}: a pattern has no offset; name the instructions with @CLASS ({})", classes())]
    OffsetOfPattern {
        /// The text.
        text: String,
    },
    /// There is no such class.
    #[error("`{text}` is not a class of instructions: {}", classes())]
    NoClass {
        /// The text.
        text: String,
    },
}

fn classes() -> String {
    let words: Vec<&str> = Class::ALL.iter().map(Class::word).collect();
    format!(
        "{}, call:FUNCTION for calls of one function, or field:STRUCT.MEMBER for accesses to a field",
        words.join(", ")
    )
}

impl Place {
    /// Reads `[MODULE:]FUNCTION[+OFFSET]`, `0xADDRESS`, `[MODULE:]FILE:LINE[@CLASS]`, or `[MODULE:]PATTERN[@CLASS]`.
    /// `class` is that of functions, lines and patterns that name none.
    ///
    /// # Errors
    /// [`PlaceError`].
    pub fn parse(text: &str, class: Option<&Class>) -> Result<Self, PlaceError> {
        let whole = || text.to_owned();
        let (place, own) = match text.rsplit_once('@') {
            Some((place, class)) => (place, Some(class.parse()?)),
            None => (text, None),
        };
        if let Some(line) = Line::parse(place) {
            let line = line.ok_or_else(|| PlaceError::Line { text: whole() })?;
            return Ok(Self::Line { line, class: own.or_else(|| class.cloned()) });
        }
        if let Some(digits) = place.strip_prefix("0x") {
            if let Some(class) = own {
                return Err(PlaceError::ClassOfInstruction { text: whole(), class });
            }
            let address = Some(digits).filter(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit()));
            let address = address.and_then(|digits| u64::from_str_radix(digits, 16).ok());
            return address.map(Self::Address).ok_or_else(|| PlaceError::Address { text: whole() });
        }
        let (module, place) = match place.split_once(':') {
            Some((module, place)) => (Some(module.replace('-', "_")), place),
            None => (None, place),
        };
        let (function, offset) = match place.split_once('+') {
            Some((function, offset)) => (function, Some(offset)),
            None => (place, None),
        };
        if !is_name(function)
            || module.as_deref().is_some_and(|module| !is_name(module) || is_pattern(module) && module != EVERY)
        {
            return Err(PlaceError::NoFunction { text: whole() });
        }
        let function = function.to_owned();
        let every = module.as_deref() == Some(EVERY);
        match (offset, own.clone().or_else(|| class.cloned())) {
            (Some(_), _) | (None, None) if every => Err(PlaceError::NoFunction { text: whole() }),
            (Some(_), _) if is_pattern(&function) => Err(PlaceError::OffsetOfPattern { text: whole() }),
            (Some(_), Some(class)) if own.is_some() => Err(PlaceError::ClassOfInstruction { text: whole(), class }),
            (Some(offset), _) => {
                let number =
                    number(offset).ok_or_else(|| PlaceError::Offset { text: whole(), offset: offset.into() })?;
                Ok(Self::Instruction { module, function, offset: number })
            }
            (None, Some(class)) => Ok(Self::Pattern { module, pattern: function, class }),
            (None, None) if is_pattern(&function) => Err(PlaceError::ClassNeeded { text: whole() }),
            (None, None) => Ok(Self::Instruction { module, function, offset: 0 }),
        }
    }

    /// The module that it names.
    #[must_use]
    pub fn module(&self) -> Option<&str> {
        match self {
            Self::Address(_) => None,
            Self::Instruction { module, .. } | Self::Pattern { module, .. } => module.as_deref(),
            Self::Line { line, .. } => line.module.as_deref(),
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self, self.module()) {
            // It writes its module itself.
            (Self::Line { .. }, _) | (_, None) => {}
            (_, Some(module)) => write!(f, "{module}:")?,
        }
        match self {
            Self::Address(address) => write!(f, "{address:#x}"),
            Self::Instruction { function, offset: 0, .. } => f.write_str(function),
            Self::Instruction { function, offset, .. } => write!(f, "{function}+{offset:#x}"),
            Self::Pattern { pattern, class, .. } => write!(f, "{pattern}@{class}"),
            Self::Line { line, class: None } => write!(f, "{line}"),
            Self::Line { line, class: Some(class) } => write!(f, "{line}@{class}"),
        }
    }
}

/// What symbols consist of, and the characters of patterns.
fn is_name(text: &str) -> bool {
    let known = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'$' | b'*' | b'?');
    !text.is_empty() && text.bytes().all(known)
}

fn is_pattern(text: &str) -> bool {
    text.contains(['*', '?'])
}

fn number(text: &str) -> Option<u64> {
    let (digits, radix) = text.strip_prefix("0x").map_or((text, 10), |digits| (digits, 16));
    // from_str_radix accepts a sign.
    if !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    u64::from_str_radix(digits, radix).ok()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn instruction(module: Option<&str>, function: &str, offset: u64) -> Place {
        Place::Instruction { module: module.map(Into::into), function: function.into(), offset }
    }

    fn pattern(module: Option<&str>, pattern: &str, class: Class) -> Place {
        Place::Pattern { module: module.map(Into::into), pattern: pattern.into(), class }
    }

    #[test]
    fn places_are_read_and_written() {
        for (text, place) in [
            ("vfs_write", instruction(None, "vfs_write", 0)),
            ("vfs_write+0x5b", instruction(None, "vfs_write", 0x5b)),
            ("vfs_write.cold+0x3", instruction(None, "vfs_write.cold", 3)),
            ("sch_pie:pie_drop_early+0x12", instruction(Some("sch_pie"), "pie_drop_early", 0x12)),
            ("0xffffffff81234567", Place::Address(0xffff_ffff_8123_4567)),
            ("vfs_*@return", pattern(None, "vfs_*", Class::Return)),
            ("vfs_write@indirect-call", pattern(None, "vfs_write", Class::IndirectCall)),
            ("*:*@call", pattern(Some("*"), "*", Class::Call)),
            ("ext4_*@field:inode.i_size", pattern(None, "ext4_*", Class::Field("inode.i_size".into()))),
            ("ext4_*@call:kfree*", pattern(None, "ext4_*", Class::CallOf("kfree*".into()))),
            ("nvme_core:nvme_?@entry", pattern(Some("nvme_core"), "nvme_?", Class::Entry)),
        ] {
            assert_eq!(Place::parse(text, None), Ok(place.clone()), "{text}");
            assert_eq!(place.to_string(), text);
        }
        assert_eq!(Place::parse("f+18", None), Ok(instruction(None, "f", 18)));
        assert_eq!(Place::parse("nvme-core:f+0", None), Ok(instruction(Some("nvme_core"), "f", 0)));
    }

    #[test]
    fn the_class_of_the_command_line_is_for_functions_that_name_none() {
        let class = Some(&Class::Call);
        assert_eq!(Place::parse("vfs_*", class), Ok(pattern(None, "vfs_*", Class::Call)));
        assert_eq!(Place::parse("vfs_write", class), Ok(pattern(None, "vfs_write", Class::Call)));
        assert_eq!(Place::parse("vfs_write@any", class), Ok(pattern(None, "vfs_write", Class::Any)));
        assert_eq!(Place::parse("vfs_write+0x5b", class), Ok(instruction(None, "vfs_write", 0x5b)));
        assert_eq!(Place::parse("0x10", class), Ok(Place::Address(16)));
    }

    #[test]
    fn lines_of_the_source_are_read_and_written() {
        let line = |module: Option<&str>, file: Option<&str>, class| Place::Line {
            line: Line {
                module: module.map(Into::into),
                unit: "fs/a.c".into(),
                file: file.map(Into::into),
                number: 680,
            },
            class,
        };
        for (text, place) in [
            ("fs/a.c:680", line(None, None, None)),
            ("fs/a.c:680@call", line(None, None, Some(Class::Call))),
            ("nvme_core:fs/a.c:680", line(Some("nvme_core"), None, None)),
            ("fs/a.c:include/linux/fs.h:680", line(None, Some("include/linux/fs.h"), None)),
            ("m:fs/a.c:a.h:680@any", line(Some("m"), Some("a.h"), Some(Class::Any))),
        ] {
            assert_eq!(Place::parse(text, None), Ok(place.clone()), "{text}");
            assert_eq!(place.to_string(), text);
        }
        assert_eq!(Place::parse("fs/a.c:680", Some(&Class::Any)), Ok(line(None, None, Some(Class::Any))));
        for text in ["fs/a.c:", "fs/a.c:x", "fs/a.c:0", "fs/a.c:-3", "fs/a.c:b.h:c.h:3", "fs/a.c:b.h:"] {
            let message = Place::parse(text, None).unwrap_err().to_string();
            assert!(message.contains("is not a line of the source: write FILE.c:LINE"), "{text}: {message}");
        }
        assert!(Place::parse("fs/a.c:680@nothing", None).is_err());
    }

    #[test]
    fn other_texts_are_refused_with_what_is_wrong() {
        for (text, words) in [
            ("", "names no function"),
            ("+0x5", "names no function"),
            (":f", "names no function"),
            ("m*:f", "names no function"),
            ("*:f", "names no function"),
            ("*:f+3", "names no function"),
            ("a b", "names no function"),
            ("m:n:f", "names no function"),
            ("f+", "`` is not an offset"),
            ("f+zz", "`zz` is not an offset"),
            ("f+-3", "`-3` is not an offset"),
            ("f+0x+3", "`0x+3` is not an offset"),
            ("f-3", "names no function"),
            ("0xzz", "not an address"),
            ("0x", "not an address"),
            ("0x11112222333344445", "not an address"),
            ("vfs_*", "--class or vfs_*@CLASS"),
            ("vfs_*+3", "a pattern has no offset"),
            ("vfs_write+3@call", "is one instruction"),
            ("0x10@call", "is one instruction"),
            ("vfs_write@", "`` is not a class"),
            ("vfs_write@exit", "`exit` is not a class of instructions: entry, body, return"),
        ] {
            let message = Place::parse(text, None).unwrap_err().to_string();
            assert!(message.contains(words), "{text}: {message}");
        }
    }
}
