//! Spaces for tests of engines.

#![allow(dead_code, clippy::unwrap_used)] // a test, and no test needs all of it

use xk_tuner::{Dimension, Guard, Space, Value};

pub fn dimension(name: &str, levels: usize, ordered: bool, default: usize) -> Dimension {
    let levels = (0..levels).map(|level| Value::Number(level as i64)).collect();
    Dimension { name: name.into(), levels, ordered, default, guard: None }
}

/// A choice, a number that matters with one choice only, and two numbers: 4 + … points.
pub fn disk() -> Space {
    let mut guarded = dimension("expire", 5, true, 2);
    guarded.guard = Some(Guard { dimension: 0, levels: vec![1] });
    Space::new(vec![
        dimension("scheduler", 3, false, 0),
        guarded,
        dimension("read ahead", 8, true, 3),
        dimension("requests", 6, true, 2),
    ])
    .unwrap()
}
