//! `libxk_flex`: extensions, and their heaps and locks, for programs in C.
//!
//! The header `include/xk_flex.h` is written from this source by cbindgen; a test compares them. So what is said of a
//! public item here is said to who writes C. Every function checks its pointers for NULL, and returns a code if it fails
//! or panics (`failure`).

// What a caller in C must do is in the header, for each function and at its beginning.
#![allow(clippy::missing_safety_doc)]

pub mod ended;
pub mod extension;
mod failure;
pub mod heap;
pub mod lock;
mod whole;
