//! Benchmarks and measurements that are not for users.

fn main() {}
