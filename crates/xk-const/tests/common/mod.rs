//! Helpers over the prepared tree of the lab's main kernel.
#![allow(dead_code)] // every test uses some of them

use std::path::{Path, PathBuf};

use xk_const::{resolve, users, BuildTree, Constant, FileEdit, Spec, TreeError, Unit, Users};
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

/// The tree without a compiler: whoever needs one fails.
pub struct NoCompiler;

impl BuildTree for NoCompiler {
    fn root(&self) -> &Path {
        tree().root()
    }
    fn cache(&self) -> PathBuf {
        tree().cache()
    }
    fn stamp(&self) -> String {
        BuildTree::stamp(tree())
    }
    fn units(&self) -> Result<Vec<Unit>, TreeError> {
        BuildTree::units(tree())
    }
    fn compile(&self, _: &[FileEdit], unit: &str, _: &Path, _: &[&str]) -> Result<(), TreeError> {
        panic!("{unit} is compiled");
    }
    fn compile_preprocessed(&self, _: &Path, unit: &str, _: &Path, _: &[&str]) -> Result<(), TreeError> {
        panic!("{unit} is compiled");
    }
    fn preprocess(&self, _: &[FileEdit], unit: &str, _: &[&str]) -> Result<String, TreeError> {
        panic!("{unit} is preprocessed");
    }
}
