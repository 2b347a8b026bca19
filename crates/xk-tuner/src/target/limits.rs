//! Constraints on numbers that can be queried, during a window: a service must not suffer to the end of a long window.
//!
//! In: the constraints, and the probes of the target. Out: whether the window must end, and the violation. It refuses
//! nothing by itself: an endpoint that does not answer, or a number that it does not have yet, is judged at the end.
//!
//! Limits on latencies of kernel functions, and on what a command prints, are checked at the end of the window only.

use std::cell::{Cell, RefCell};
use std::time::{Duration, Instant};

use super::probe::{after, Before, Probe};
use super::{Constraint, Endpoint, Violation, Watch};

/// The time between two queries, and from the beginning of the window to the first.
const INTERVAL: Duration = Duration::from_secs(1);

/// How long to wait for an answer.
const PATIENCE: Duration = Duration::from_secs(2);

/// A [`Watch`] that also ends a window when a constraint is violated.
pub(super) struct Limits<'w> {
    watch: &'w mut dyn Watch,
    constraints: &'w [Constraint],
    probes: Vec<Probe>,
    before: &'w Before,
    next: Cell<Instant>,
    violation: RefCell<Option<Violation>>,
}

impl<'w> Limits<'w> {
    /// The limits of a window that begins now.
    pub fn of(probes: &[Probe], constraints: &'w [Constraint], before: &'w Before, watch: &'w mut dyn Watch) -> Self {
        let is_queried = |probe: &&Probe| !constraints.is_empty() && !matches!(probe.endpoint, Endpoint::Function(_));
        let probes = probes.iter().filter(is_queried).cloned().collect();
        let next = Cell::new(Instant::now() + INTERVAL);
        Self { watch, constraints, probes, before, next, violation: RefCell::new(None) }
    }

    /// The violation that ended the window, if any.
    pub fn violation(self) -> Option<Violation> {
        self.violation.into_inner()
    }

    fn is_violated(&self) -> bool {
        let now = Instant::now();
        if self.violation.borrow().is_none() && !self.probes.is_empty() && now >= self.next.get() {
            self.violation.replace(self.look(now + PATIENCE));
            self.next.set(Instant::now() + INTERVAL);
        }
        self.violation.borrow().is_some()
    }

    fn look(&self, deadline: Instant) -> Option<Violation> {
        let numbers = after(&self.probes, self.before, deadline, &*self.watch).ok()?;
        self.constraints.iter().find_map(|constraint| constraint.beyond(*numbers.get(&constraint.name)?))
    }
}

impl Watch for Limits<'_> {
    fn running(&mut self, group: Option<i32>) {
        self.watch.running(group);
    }

    fn interrupted(&self) -> bool {
        self.watch.interrupted() || self.is_violated()
    }
}
