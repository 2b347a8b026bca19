//! How often a unit of a distribution's kernel is compiled until a constant has its table.

#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use std::path::Path;

use xk_analysis::pipeline::{Analyser, Options};
use xk_analysis::proof::Solver;
use xk_const::{resolve, Spec};
use xk_kernel::Image;
use xk_table::ScopeTable;
use xk_testing::kernels;

/// Seconds for each question to the solver.
const SOLVER_SECONDS: u64 = 30;

/// The table of a constant, and how many objects were compiled for it.
fn analysed(constant: &str, folder: &Path) -> (ScopeTable, usize) {
    let image = Image::from_vmlinuz(&kernels::kernel("amd64").vmlinuz, None).unwrap();
    let tree = kernels::own_tree();
    let constant = resolve(&tree, &Spec::parse(constant).unwrap()).unwrap();
    let analyser = Analyser::new(image, tree, Solver::z3(SOLVER_SECONDS).unwrap()).unwrap();
    let options = Options { cache: folder, jobs: 2, progress: &|line| eprintln!("{line}") };
    let table = analyser.analyse(&constant, &options).unwrap();
    let objects = std::fs::read_dir(folder).unwrap().filter_map(Result::ok);
    let objects = objects.filter(|entry| entry.path().extension().is_some_and(|extension| extension == "o"));
    (table, objects.count())
}

/// The deployed build, two values for the functions of V, and the build with a value that the compiler cannot know.
#[test]
fn a_unit_whose_values_are_proved_is_compiled_four_times() {
    let folder = tempfile::tempdir().unwrap();
    let (table, objects) = analysed("MAX_SOFTIRQ_RESTART", folder.path());
    assert!(table.values.proved.is_some_and(|range| range.contains(1) && range.contains(1000)), "{}", table.values);
    assert_eq!((table.units.len(), objects), (1, 4));
}

/// There is no proof for all values, so values are compiled, and each is shown by itself.
#[test]
fn values_are_compiled_where_they_are_not_proved() {
    let folder = tempfile::tempdir().unwrap();
    let (table, objects) = analysed("PIPE_MIN_DEF_BUFFERS", folder.path());
    assert_eq!(table.values.proved, None);
    assert!(table.values.compiled.len() > 7 && objects > table.units.len() * 7, "{} {objects}", table.values);
}
