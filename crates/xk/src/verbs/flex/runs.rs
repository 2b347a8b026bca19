//! How long runs may take, and what they may use: options that `run` and `load` share.

use std::time::Duration;

use xk_apply::parse_time;
use xk_flex::Control;

use crate::exit::{Failure, Result};

/// Limits of runs and of the heap, and the interface.
#[derive(Debug, clap::Args)]
pub struct RunOptions {
    /// How long a run may take [default: 10ms]
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    deadline: Option<Duration>,
    /// Runs have no deadline
    #[arg(long, conflicts_with = "deadline")]
    no_deadline: bool,
    /// Turns of loops between two looks at the clock; a loop that is unrolled N times looks at most once in N turns
    #[arg(long, value_name = "TURNS", default_value_t = Control::default().interval, value_parser = clap::value_parser!(u32).range(1..))]
    interval: u32,
    /// The network interface for programs of XDP
    #[arg(long, value_name = "NAME")]
    pub dev: Option<String>,
    /// What the heap may have at most, in MiB [default: what the object declares]
    #[arg(long, value_name = "MIB", value_parser = clap::value_parser!(u32).range(1..))]
    pub heap: Option<u32>,
}

impl RunOptions {
    /// What runs are told.
    pub fn control(&self) -> Result<Control> {
        if self.deadline == Some(Duration::ZERO) {
            return Err(Failure::usage(
                "--deadline 0: no run could end in time; --no-deadline gives runs all the time they take",
            ));
        }
        let deadline = if self.no_deadline { None } else { self.deadline.or(Control::default().deadline) };
        Ok(Control { terminate: false, deadline, interval: self.interval })
    }

    /// Bytes that the heap may have.
    pub fn most(&self) -> u64 {
        self.heap.map_or(u64::MAX, |size| u64::from(size) << 20)
    }
}
