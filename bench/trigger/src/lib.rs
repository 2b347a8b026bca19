//! What the benchmarks of probes share: where a probe does no harm, how an eBPF program is
//! attached through perf, sites of xk.ko made by hand, and a counter of instructions.

pub mod found;
pub mod held;
pub mod measure;
pub mod place;
pub mod tracer;
pub mod update;
