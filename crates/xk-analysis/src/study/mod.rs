//! One translation unit under observation: its deployed build, builds with other values, and the functions of V that
//! predict them.
//!
//! In: the deployed build, then builds with other values, one after the other. Out: functions of V for the constants and
//! the data in which builds differ; the values that agree with these functions; and the values that do not, each with the
//! first difference. It refuses nothing itself: without functions, [`Study::refusal`] says what stands against them.
//!
//! A study has two states ([`State`]), and never goes back to the first:
//!
//! - *Searching.* There are no functions yet. A build that differs from the deployed one in constants alone is observed.
//!   The newest observation is tried with each of the older ones, until two of them lie on functions of V. Builds that
//!   do not match are kept: the comparison of whole blocks finds more if it knows what to expect.
//! - *Fitted.* Everything seen before is looked at again, then each new value agrees or is *open* with the reason. A value
//!   that disagrees may show that the functions were guessed from too few values: a quotient looks constant or linear
//!   until a value is far enough away. So the functions are fitted again with this value, and replaced if all values that
//!   agreed before still do.
//!
//! The functions are guesses, and wrong ones cannot become a wrong tune. The values of a table come from
//! [`crate::theorem`], which compares the deployed code with the functions in place with what the compiler makes of the
//! source. A wrong function is refuted there. A value for which the compiler chose another shape of code says nothing
//! against the others; it is not accepted.

mod disagreement;
mod fitting;
mod observing;

pub use disagreement::Disagreement;

use std::collections::{BTreeMap, BTreeSet, HashSet};

use xk_const::RejectedBy;
use xk_lift::flow::Flow;
use xk_lift::insn::Node;
use xk_lift::object::Object;
use xk_lift::prototypes::Prototypes;
use xk_table::{Place, Refusal};

use crate::constants::{Differences, Seeds};
use crate::data::{DataDifferences, DataSeeds};
use crate::plan::FITTED;
use crate::proof::Solver;

/// What a unit was compiled to with another value.
#[derive(Debug)]
pub enum Variant {
    /// An object.
    Built(Box<Object>),
    /// The compiler rejects the value.
    Rejected {
        /// What kind of error that is.
        by: RejectedBy,
        /// The compiler's first error.
        message: String,
    },
}

/// A translation unit and its builds.
#[derive(Debug)]
pub struct Builds {
    /// Path relative to the source tree.
    pub source: String,
    /// Module that it belongs to; `None` for vmlinux.
    pub module: Option<String>,
    /// The deployed build.
    pub base: Object,
    /// Builds with other values, in the order in which they are looked at.
    pub variants: Vec<(i64, Variant)>,
}

/// What every comparison needs.
#[derive(Clone, Copy)]
pub struct Means<'a> {
    /// The value of the deployed kernel.
    pub default: i64,
    /// Functions that do not return.
    pub noreturns: &'a HashSet<String>,
    /// How many registers a call passes.
    pub prototypes: &'a Prototypes,
    /// Decides whether pieces of code do the same.
    pub solver: &'a Solver,
}

/// A unit and what is known of it so far.
#[derive(Debug)]
pub struct Study {
    /// Path relative to the source tree.
    pub source: String,
    /// Module that it belongs to; `None` for vmlinux.
    pub module: Option<String>,
    /// The deployed build.
    pub base: Object,
    flow: Flow,
    /// Values whose builds differ from the deployed one in constants alone, in the order in which they came.
    observed: Vec<Observation>,
    /// Values that do not agree, and why.
    open: BTreeMap<i64, String>,
    /// For each value that gave no functions, what stands against it.
    refusals: BTreeMap<i64, Refusal>,
    state: State,
}

/// How far a study is.
#[derive(Debug)]
enum State {
    /// No two values lie on functions of V.
    Searching {
        /// Builds that do not match without functions of V, and may with them.
        unmatched: Vec<Unmatched>,
    },
    /// There are functions of V.
    Fitted(Fitted),
}

/// A build that differs from the deployed one in more than constants.
#[derive(Debug)]
struct Unmatched {
    value: i64,
    object: Box<Object>,
}

/// In what the build with a value differs from the deployed one.
#[derive(Debug, Clone)]
struct Observation {
    value: i64,
    code: Differences,
    data: DataDifferences,
}

/// Functions of V, and the values on which they rest.
#[derive(Debug)]
struct Fitted {
    fits: Fits,
    /// The values from which the functions were made.
    made_from: BTreeSet<i64>,
    /// The values that agree with them, those that made them included.
    agreeing: BTreeSet<i64>,
}

/// Functions of V for everything that differs.
#[derive(Debug)]
struct Fits {
    code: Seeds,
    data: DataSeeds,
}

/// What a study that is still searching has of each.
static NO_DATA: DataSeeds = DataSeeds::new();
static NO_VALUES: BTreeSet<i64> = BTreeSet::new();

impl Study {
    /// Begins with the deployed build alone.
    #[must_use]
    pub fn new(source: String, module: Option<String>, base: Object, prototypes: &Prototypes) -> Self {
        let flow = Flow::new(&base, prototypes);
        Self {
            source,
            module,
            base,
            flow,
            observed: Vec::new(),
            open: BTreeMap::new(),
            refusals: BTreeMap::new(),
            state: State::Searching { unmatched: Vec::new() },
        }
    }

    /// Looks at one more value.
    pub fn add(&mut self, means: &Means<'_>, value: i64, variant: Variant) {
        match (variant, &self.state) {
            (Variant::Rejected { by, message }, _) => self.reject(value, by, &message),
            (Variant::Built(object), State::Searching { .. }) => self.search(means, value, object),
            (Variant::Built(object), State::Fitted(_)) => self.confirm(means, value, &object),
        }
    }

    fn reject(&mut self, value: i64, by: RejectedBy, message: &str) {
        self.open.insert(value, format!("the compiler rejects it: {message}"));
        let what = match by {
            RejectedBy::LayoutOrAssert => format!("an assertion about the value {value} ({message})"),
            RejectedBy::Other => format!("the unit, which does not compile with {value} ({message}),"),
        };
        self.refusals.insert(value, Refusal::LayoutChange { unit: self.source.clone(), what });
    }

    /// While searching: observes a build, and tries to find functions of V if it matches.
    fn search(&mut self, means: &Means<'_>, value: i64, object: Box<Object>) {
        match self.observe(means, value, &object) {
            Ok(observation) => {
                self.observed.push(observation);
                self.try_newest(means);
            }
            Err(refusal) => {
                self.refusals.insert(value, refusal);
                if let State::Searching { unmatched } = &mut self.state {
                    unmatched.push(Unmatched { value, object });
                }
            }
        }
    }

    /// While searching: tries the newest observation with each of the older ones.
    fn try_newest(&mut self, means: &Means<'_>) {
        let Some((newest, older)) = self.observed.split_last() else { return };
        let (value, mut refused) = (newest.value, None);
        for other in older {
            match self.fit(means, vec![other.clone(), newest.clone()]) {
                Ok(fits) => {
                    let values = BTreeSet::from([other.value, value]);
                    return self.begin_confirming(means, Fitted { fits, made_from: values.clone(), agreeing: values });
                }
                Err(refusal) => refused = Some(refusal),
            }
        }
        if let Some(refusal) = refused {
            self.refusals.insert(value, refusal);
        }
    }

    /// From *searching* to *fitted*: everything seen before is looked at again.
    fn begin_confirming(&mut self, means: &Means<'_>, fitted: Fitted) {
        let unmatched = match std::mem::replace(&mut self.state, State::Fitted(fitted)) {
            State::Searching { unmatched } => unmatched,
            State::Fitted(_) => Vec::new(),
        };
        for observation in self.observed.clone() {
            if !self.fitted().contains(&observation.value) {
                self.judge(means, &observation);
            }
        }
        for Unmatched { value, object } in unmatched {
            self.confirm(means, value, &object);
        }
    }

    /// Once fitted: whether the build with a value agrees.
    fn confirm(&mut self, means: &Means<'_>, value: i64, variant: &Object) {
        match self.observe_expecting(means, value, variant) {
            Ok(observation) => {
                self.observed.push(observation.clone());
                self.judge(means, &observation);
            }
            Err(reason) => _ = self.open.insert(value, reason.to_string()),
        }
    }

    /// Once fitted: whether an observation agrees with the functions of V, or with better ones.
    fn judge(&mut self, means: &Means<'_>, observation: &Observation) {
        let State::Fitted(fitted) = &self.state else { return };
        let value = observation.value;
        let Err(reason) = self.predicted(&fitted.fits, observation) else {
            return self.note_agreeing(value);
        };
        match self.refined(means, fitted, value) {
            Some(better) => self.state = State::Fitted(better),
            None => _ = self.open.insert(value, reason.to_string()),
        }
    }

    fn note_agreeing(&mut self, value: i64) {
        if let State::Fitted(fitted) = &mut self.state {
            fitted.agreeing.insert(value);
        }
    }

    /// Functions of V that are made from one value more, if all values that agreed still do.
    fn refined(&self, means: &Means<'_>, fitted: &Fitted, value: i64) -> Option<Fitted> {
        let among = |seen: &&Observation| fitted.made_from.contains(&seen.value) || seen.value == value;
        let fits = self.fit(means, self.observed.iter().filter(among).cloned().collect()).ok()?;
        let agreed = |seen: &&Observation| fitted.agreeing.contains(&seen.value);
        if self.observed.iter().filter(agreed).any(|seen| self.predicted(&fits, seen).is_err()) {
            return None;
        }
        let with_value = |values: &BTreeSet<i64>| values.iter().copied().chain([value]).collect();
        Some(Fitted { fits, made_from: with_value(&fitted.made_from), agreeing: with_value(&fitted.agreeing) })
    }

    /// Takes functions of V with tests for order in the places of some for equality.
    pub fn test_for_order(&mut self, seeds: Seeds) {
        if let State::Fitted(fitted) = &mut self.state {
            fitted.fits.code = seeds;
        }
    }

    /// The functions of V, once there are some.
    fn as_fitted(&self) -> Option<&Fitted> {
        match &self.state {
            State::Searching { .. } => None,
            State::Fitted(fitted) => Some(fitted),
        }
    }

    /// The constants that follow V, once two values agree on them.
    #[must_use]
    pub fn seeds(&self) -> Option<&Seeds> {
        self.as_fitted().map(|fitted| &fitted.fits.code)
    }

    /// The data that follows V.
    #[must_use]
    pub fn data(&self) -> &DataSeeds {
        self.as_fitted().map_or(&NO_DATA, |fitted| &fitted.fits.data)
    }

    /// Blocks and liveness of the deployed build.
    #[must_use]
    pub fn flow(&self) -> &Flow {
        &self.flow
    }

    /// Values from which the functions of V were made.
    #[must_use]
    pub fn fitted(&self) -> &BTreeSet<i64> {
        self.as_fitted().map_or(&NO_VALUES, |fitted| &fitted.made_from)
    }

    /// Values that agree with the functions of V, those that made them included.
    #[must_use]
    pub fn agreeing(&self) -> &BTreeSet<i64> {
        self.as_fitted().map_or(&NO_VALUES, |fitted| &fitted.agreeing)
    }

    /// Values that could not be shown to agree, and why.
    #[must_use]
    pub fn open(&self) -> &BTreeMap<i64, String> {
        &self.open
    }

    /// Why there are no functions of V: what stands against the value nearest to the default.
    #[must_use]
    pub fn refusal(&self, default: i64) -> Option<Refusal> {
        let nearest = self.refusals.iter().min_by_key(|(value, _)| value.abs_diff(default));
        nearest.map(|(_, refusal)| refusal.clone())
    }

    /// Whether no value can ever agree: data that cannot be changed holds something else with each of several values.
    #[must_use]
    pub fn is_hopeless(&self) -> bool {
        let fixed = |refusal: &&Refusal| matches!(refusal, Refusal::ReadOnlyData { .. } | Refusal::BootOnly { .. });
        self.observed.is_empty() && self.refusals.values().filter(fixed).count() >= FITTED
    }

    /// Where an instruction is, for messages.
    #[must_use]
    pub fn place(&self, node: Node) -> Place {
        let function = self.base.function_at(node);
        Place {
            source: self.source.clone(),
            function: function.map_or_else(|| "?".into(), |f| f.name.clone()),
            offset: function.map_or(0, |f| (node.offset - f.start.offset) as u32),
        }
    }
}
