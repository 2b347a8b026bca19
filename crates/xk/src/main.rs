//! The command xk.

fn main() {}
