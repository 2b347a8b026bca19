//! Why a value does not agree with the fit.

use thiserror::Error;
use xk_table::{Place, Refusal};

use crate::data::Unpredicted;

/// In what a build with another value is not what the fit predicts.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Disagreement {
    /// Nothing is predicted yet.
    #[error("there is no fit")]
    NoFit,
    /// The data cannot be compared.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The data is other data.
    #[error(transparent)]
    Data(#[from] Unpredicted),
    /// The code differs in more than constants.
    #[error("{place}: {difference}")]
    Code {
        /// Where, in the deployed build.
        place: Place,
        /// The first difference.
        difference: String,
    },
    /// A constant differs that the fit does not know.
    #[error("{0}: another constant changes with this value only")]
    Unfitted(Place),
    /// A constant is another number.
    #[error("{place}: compiled to {compiled:#x}, the fit predicts {predicted:#x}")]
    Number {
        /// The instruction, in the deployed build.
        place: Place,
        /// What the compiler wrote.
        compiled: u64,
        /// What the fit gives.
        predicted: u64,
    },
}
