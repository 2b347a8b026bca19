//! Finding, naming and varying performance constants.
