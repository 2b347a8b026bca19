//! What the tests of several crates share: reproducible random numbers, objects made by the compiler, a
//! processor that executes them, the kernels of the lab, and tests that run in a guest.
//!
//! For tests only. Functions panic where a test cannot go on.

mod btf;
mod compile;
pub mod guest;
pub mod kernels;
mod machine;
pub mod memcached;
mod objects;
mod random;

pub use btf::btf;
pub use compile::{assemble, compile_c, noted_c, try_compile_c, Rejected};
pub use machine::{mix, mix_name, Machine};
pub use objects::{function, object};
pub use random::Random;
