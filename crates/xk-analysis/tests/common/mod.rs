//! What the tests of spans and updates share.

#![allow(dead_code)] // each test binary uses its part

pub mod emulator;
pub mod fixture;
pub mod usable;
