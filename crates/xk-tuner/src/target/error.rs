//! Why a window gave no reading.

use std::time::Duration;

use super::endpoint::{Endpoint, EndpointError};
use super::exposition::ExpositionError;
use super::Violation;
use crate::ebpf::WatchError;

/// Why a window gave no reading.
#[derive(Debug, thiserror::Error)]
pub enum TargetError {
    /// It violated a constraint, and was ended.
    #[error(transparent)]
    Violated(#[from] Violation),
    /// It did not end in time.
    #[error("it was still running after {:.1} s, and was killed", .0.as_secs_f64())]
    Timeout(Duration),
    /// The search was asked to stop.
    #[error("it was interrupted")]
    Interrupted,
    /// The command failed.
    #[error("it failed ({how}){}", after_colon(stderr))]
    Failed {
        /// Its exit status.
        how: String,
        /// The end of its standard error.
        stderr: String,
    },
    /// A number is missing, or cannot be compared.
    #[error(transparent)]
    Number(#[from] NumberError),
    /// An endpoint gave no answer.
    #[error("{endpoint} {problem}")]
    Endpoint {
        /// The endpoint.
        endpoint: Endpoint,
        /// Why.
        #[source]
        problem: Box<EndpointError>,
    },
    /// The answer of an endpoint does not contain its number.
    #[error("{endpoint}: {problem}")]
    Answer {
        /// The endpoint.
        endpoint: Endpoint,
        /// Why.
        #[source]
        problem: Box<AnswerError>,
    },
    /// A number of which the growth is measured became smaller.
    #[error("{name} went back from {earlier} to {later}: its program was restarted, or it is not a counter")]
    Decreased {
        /// Its name.
        name: String,
        /// The number at the beginning of the window.
        earlier: f64,
        /// The number at its end.
        later: f64,
    },
    /// A kernel function could not be observed.
    #[error(transparent)]
    Observation(#[from] WatchError),
}

fn after_colon(stderr: &str) -> String {
    if stderr.is_empty() {
        String::new()
    } else {
        format!(": {stderr}")
    }
}

/// Why a number is missing, or cannot be compared.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum NumberError {
    /// There is no output.
    #[error("it printed nothing; its last line must be a number")]
    Nothing,
    /// The last line is something else.
    #[error("its last line is `{shown}`, which is not a number")]
    NotANumber {
        /// The beginning of the line.
        shown: String,
    },
    /// There is no number of this name.
    #[error("it did not print `{name} = NUMBER`")]
    Missing {
        /// The name.
        name: String,
    },
    /// It is negative, infinite, or NaN.
    #[error("it says {}{value}, but only numbers of 0 or more can be compared by their ratio", assigned(name.as_deref()))]
    NotComparable {
        /// Its name; `None`: the first target.
        name: Option<String>,
        /// The number.
        value: f64,
    },
}

fn assigned(name: Option<&str>) -> String {
    name.map_or_else(String::new, |name| format!("{name} = "))
}

/// Why the answer of an endpoint does not contain its number.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum AnswerError {
    /// The series cannot be read from the exposition.
    #[error(transparent)]
    Exposition(#[from] ExpositionError),
    /// The text does not end in a number.
    #[error(transparent)]
    Number(#[from] NumberError),
    /// The observed function was not called.
    #[error("no call of it began and ended in the window")]
    NoCall,
    /// The histogram is incomplete.
    #[error("{calls} calls could not be measured, because too many threads were inside")]
    LostCalls {
        /// The number of calls that are missing in it.
        calls: u64,
    },
}
