//! Helpers over the prepared tree of the lab's main kernel.
#![allow(dead_code)] // every test uses some of them

use xk_const::{resolve, users, Constant, Spec, Unit, Users};
use xk_testing::kernels::tree;

/// Resolves what must resolve.
pub fn constant(spec: &str) -> Constant {
    let spec = Spec::parse(spec).unwrap();
    resolve(tree(), &spec).unwrap_or_else(|error| panic!("{spec:?}: {error}"))
}

/// The users of a constant.
pub fn users_of(constant: &Constant) -> Users {
    users(tree(), constant).unwrap()
}

/// The files of units.
pub fn sources(units: &[Unit]) -> Vec<&str> {
    let mut sources: Vec<&str> = units.iter().map(|u| u.source.as_str()).collect();
    sources.dedup();
    sources
}
