//! A constant of the deployed kernel, as resolving finds it and as everything after that uses it.

use crate::id::ConstId;
use crate::value::{CType, Operator};

/// How a constant is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Form {
    /// `#define NAME body`.
    Macro,
    /// A literal in an expression or in the body of a macro with parameters.
    Literal,
    /// The initialiser of a `static const` variable.
    StaticConst,
    /// An enumerator with a value of its own.
    EnumValue,
}

/// The bytes of a source file that are the constant: an edit replaces exactly these.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceRange {
    /// File, relative to the root of the tree.
    pub path: String,
    /// Line of the first byte, counted from 1.
    pub line: u32,
    /// First byte.
    pub start: usize,
    /// One past the last byte.
    pub end: usize,
    /// The bytes themselves. An edit refuses a file that has others in this range.
    pub written: String,
}

/// A constant of the deployed kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Constant {
    /// Its unique name.
    pub id: ConstId,
    /// Macro, variable or enumerator.
    pub name: Option<String>,
    /// The source line.
    pub text: String,
    /// The value as written, on one line.
    pub token: String,
    /// How it is written.
    pub form: Form,
    /// Its value in the deployed configuration. For unsigned 64-bit types, the same bits.
    pub default: i64,
    /// The type of the expression that it is.
    pub c_type: CType,
    /// The operator applied to it; for names, the most restrictive one among its uses.
    pub operator: Operator,
    /// Where it is written.
    pub range: SourceRange,
    /// The deployed unit in which it was evaluated.
    pub witness: String,
}
