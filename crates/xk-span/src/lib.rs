//! Safe spans: where a thread is still under the influence of a constant, decided on
//! the deployed machine code. See `docs/spans.md`.
//!
//! The stages, one module each, in the order in which data flows: [`world`] →
//! [`graph`] → [`value`] → [`effect`] → [`frame`] → [`mod@slice`] → [`walk`] → [`scope`] →
//! [`confine`]. Beside them, from the same address space: [`window`], where one jump may
//! stand in place of a probe (`docs/windows.md`).

pub mod btf;
pub mod callers;
pub mod calls;
pub mod confine;
pub mod effect;
pub mod error;
pub mod frame;
pub mod graph;
pub mod life;
pub mod location;
pub mod patches;
pub mod scope;
pub mod slice;
pub mod taken;
pub mod text;
pub mod unwind;
pub mod value;
pub mod walk;
pub mod window;
pub mod world;
