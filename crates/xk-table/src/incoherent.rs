//! What can be wrong with a table.

use thiserror::Error;

use crate::fit::Form;
use crate::ops::{OpError, MAX_IVS, MAX_PATCHES};
use crate::values::{Range, Values, MAX_VALUES};

/// The first violation that [`crate::ScopeTable::check`] finds.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum Incoherent {
    /// The accepted values contradict each other.
    #[error(transparent)]
    Values(#[from] BadValues),
    /// The table changes nothing.
    #[error("no critical span, and no data")]
    Empty,
    /// An object that holds the value has no width of an integer.
    #[error("{symbol}+{offset:#x}: a value of {width} bytes")]
    DataWidth {
        /// Symbol of the object.
        symbol: String,
        /// Offset in it, in bytes.
        offset: u32,
        /// Width in bytes.
        width: u8,
    },
    /// The function of V of an object cannot be computed.
    #[error("{symbol}+{offset:#x}: the form {form:?} has no meaning")]
    DataForm {
        /// Symbol of the object.
        symbol: String,
        /// Offset in it, in bytes.
        offset: u32,
        /// The form.
        form: Form,
    },
    /// A field that holds bytes is not hexadecimal.
    #[error("{symbol}: {field} not hex")]
    NotHex {
        /// Symbol of the function.
        symbol: String,
        /// Which field, with its verb.
        field: &'static str,
    },
    /// The bytes of a function and their mask differ in length.
    #[error("{symbol}: {bytes} bytes but a mask of {mask}")]
    MaskLength {
        /// Symbol of the function.
        symbol: String,
        /// Length of the function, in bytes.
        bytes: usize,
        /// Length of the mask, in bytes.
        mask: usize,
    },
    /// One critical span.
    #[error("span {span}: {fault}")]
    Span {
        /// Its index.
        span: usize,
        /// What is wrong with it.
        fault: SpanFault,
    },
    /// One span needs an update, and another takes none.
    #[error("span {span} needs an update, and another allows none: {reason}")]
    NeedsUpdate {
        /// Index of the one that needs it.
        span: usize,
        /// Why the other takes none.
        reason: String,
    },
    /// Instructions have no room for some values, and a span takes no update.
    #[error("some of {values} need an update, and a span allows none: {reason}")]
    ValuesNeedUpdate {
        /// The accepted values.
        values: Box<Values>,
        /// Why the span takes none.
        reason: String,
    },
    /// One safe span.
    #[error("scope {scope}: {fault}")]
    Scope {
        /// Its index.
        scope: usize,
        /// What is wrong with it.
        fault: ScopeFault,
    },
}

/// Why a set of accepted values is not coherent.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum BadValues {
    /// The proved range ends before it begins.
    #[error("{0} is no range of values")]
    Range(Range),
    /// There are too many compiled values.
    #[error("{0} compiled values, at most {MAX_VALUES} are allowed")]
    TooMany(usize),
    /// The compiled values do not ascend.
    #[error("compiled values do not ascend: {0} is followed by {1}")]
    Order(i64, i64),
    /// A value is listed twice.
    #[error("{0} is both compiled and proved")]
    Twice(i64),
    /// A refused value is accepted.
    #[error("{0} is both refused and accepted")]
    RefusedAndAccepted(i64),
    /// The default is not accepted.
    #[error("default {default} is not one of {values}")]
    NoDefault {
        /// The default.
        default: i64,
        /// The accepted values.
        values: Box<Values>,
    },
    /// Nothing can be changed.
    #[error("no value but the default {0}")]
    OnlyDefault(i64),
}

/// What is wrong with a critical span. Offsets are in bytes from the start of its function.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum SpanFault {
    /// Its function is not in the table.
    #[error("no function {0}")]
    NoFunction(usize),
    /// It is not inside its function.
    #[error("lies outside {0}")]
    Outside(String),
    /// The window of its jump would begin before the function.
    #[error("a window that begins before its function")]
    WindowBefore,
    /// The window of its jump has no possible length or place.
    #[error("a window of {0} bytes that cannot be one")]
    Window(u8),
    /// A function of V cannot be computed.
    #[error("a value of the form {0:?}, which has no meaning")]
    Form(Form),
    /// Its encoded values are too many, or have no width of an integer.
    #[error("more than {MAX_IVS} values, or one that is not 1, 2, 4 or 8 bytes wide")]
    Ivs,
    /// An instruction cannot test for order.
    #[error("the instruction at {offset:#x} is to test for order, and {why}")]
    Order {
        /// The instruction.
        offset: u32,
        /// What contradicts it.
        why: &'static str,
    },
    /// No, or too many, instructions hold the value.
    #[error("{0} instructions that hold the value, 1 to {MAX_PATCHES} are possible")]
    InPlaceCount(usize),
    /// Values in its instructions are not accepted by the table.
    #[error("values {range} in its instructions are no part of {values}")]
    InPlaceRange {
        /// Values that the instructions have room for.
        range: Range,
        /// The accepted values.
        values: Box<Values>,
    },
    /// A patch names an encoded value that the span does not have.
    #[error("no value {0}")]
    NoIv(usize),
    /// An instruction has no room for the value.
    #[error("the instruction at {offset:#x} does not hold value {iv}")]
    NoRoom {
        /// The instruction.
        offset: u32,
        /// Index of the encoded value.
        iv: usize,
    },
    /// The update is malformed.
    #[error(transparent)]
    Program(#[from] OpError),
    /// The update reads text outside of the function.
    #[error("reads {symbol} at {offset:#x}, beyond its end")]
    TextBeyond {
        /// Symbol of the function.
        symbol: String,
        /// Where it reads.
        offset: i64,
    },
    /// No safe span contains it.
    #[error("in no scope")]
    InNoScope,
}

/// What is wrong with a safe span. Offsets are in bytes from the start of its function.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ScopeFault {
    /// Its function is not in the table.
    #[error("no function {0}")]
    NoFunction(usize),
    /// A range is empty, not in order, or outside of its function.
    #[error("no range {start:#x}..{end:#x} in {symbol}")]
    Range {
        /// Symbol of the function.
        symbol: String,
        /// First byte.
        start: u32,
        /// Past the last byte.
        end: u32,
    },
    /// It has no range.
    #[error("no range")]
    NoRange,
    /// It does not name the critical spans that it is for.
    #[error("confines no span, or one that does not exist")]
    NoSpan,
    /// An exit is not inside.
    #[error("an exit at {0:#x}, which is outside")]
    Exit(u32),
}
