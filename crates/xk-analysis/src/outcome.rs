//! What becomes of a constant, in a word: the statuses and reasons of long runs.

use serde::{Deserialize, Serialize};
use xk_const::{ResolveError, TreeError};
use xk_table::Refusal;

use crate::pipeline::BuildError;

/// In one word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// There is a scope table.
    Usable,
    /// It cannot be done soundly; the reason is a result.
    Refused,
    /// This kernel does not contain it; the reason is the evidence.
    NotDeployed,
    /// It is not known: the analysis failed, or took too long.
    Error,
}

/// Why there is no table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reason {
    /// The kind, as the closed list of refusals names it.
    pub code: String,
    /// In words, with the place.
    pub text: String,
}

/// What it means that a name does not resolve.
#[must_use]
pub fn unresolved(error: &ResolveError) -> (Status, Reason) {
    let (status, code) = match error {
        ResolveError::NotDeployed { .. } | ResolveError::NoFile { .. } => (Status::NotDeployed, "not_deployed"),
        // The deployed sources are searched, and nothing else.
        ResolveError::Unknown { .. } => (Status::NotDeployed, "unknown_name"),
        ResolveError::Ambiguous { .. } => (Status::Error, "ambiguous"),
        ResolveError::NotInteger { .. } => (Status::Refused, "not_integer"),
        ResolveError::NotConstant { .. } => (Status::Refused, "not_constant"),
        ResolveError::NoConstant { .. } => (Status::Error, "no_constant"),
        ResolveError::Layout { .. } => (Status::Refused, "layout_change"),
        ResolveError::Conditional { .. } => (Status::Refused, "conditional"),
        ResolveError::Enumerator { .. } => (Status::Refused, "enumerator"),
        ResolveError::Stale { .. } => (Status::Error, "stale"),
        ResolveError::TooWide(_) => (Status::Refused, "too_wide"),
        ResolveError::Tree(_) | ResolveError::Edit(_) => (Status::Error, "tree"),
    };
    (status, Reason { code: code.into(), text: error.to_string() })
}

/// What it means that there is no table.
#[must_use]
pub fn unbuilt(error: &BuildError) -> (Status, Reason) {
    let (status, code) = match error {
        BuildError::Refused(Refusal::NotDeployed { .. }) => (Status::NotDeployed, "not_deployed".to_owned()),
        BuildError::Refused(refusal) => (Status::Refused, refusal.code()),
        BuildError::Spans(_) => (Status::Error, "spans".into()),
        BuildError::Tree(TreeError::TooWide { .. }) => (Status::Refused, "too_wide".into()),
        _ => (Status::Error, "analysis".into()),
    };
    let text = match error {
        BuildError::Refused(refusal) => refusal.to_string(),
        other => other.to_string(),
    };
    (status, Reason { code, text })
}
