//! Scoped indirect execution.
