//! What the tests of the analysis share: reproducible random numbers, and objects made by the compiler.
//!
//! For tests only. Functions panic where a test cannot go on.

mod btf;
mod compile;
mod objects;
mod random;

pub use btf::btf;
pub use compile::{assemble, compile_c, noted_c, try_compile_c};
pub use objects::{function, object};
pub use random::Random;
