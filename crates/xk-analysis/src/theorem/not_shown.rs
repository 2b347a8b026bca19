//! Why values are not shown to be good.

use std::fmt;

use thiserror::Error;
use xk_table::{Place, Refusal};

use crate::data::Unpredicted;

/// Why a range, or one value, is not shown. A unit is a path relative to the source tree.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum NotShown {
    /// No range around the default can be asked for.
    #[error("{default} does not fit the address of a symbol, or C says nothing of it")]
    Undefined {
        /// The value of the deployed kernel.
        default: i64,
    },
    /// The range has no other value.
    #[error("the deployed code does the same for the default only")]
    DefaultOnly,
    /// The code has a logarithm of the constant.
    #[error("{unit}: the deployed code shifts, which divides by powers of two only")]
    Shifts {
        /// The unit.
        unit: String,
    },
    /// Data holds the constant, and it is not shown what it holds for other values.
    #[error("{unit}: the constant initialises static data: {why}")]
    Initialises {
        /// The unit.
        unit: String,
        /// Why not.
        why: String,
    },
    /// The unit does not compile with a value that the compiler cannot know.
    #[error("{unit}: the compiler needs the value: {message}")]
    NeedsValue {
        /// The unit.
        unit: String,
        /// What the compiler says.
        message: String,
    },
    /// The unit does not compile with this value.
    #[error("{unit}: the compiler rejects it: {message}")]
    Rejected {
        /// The unit.
        unit: String,
        /// What the compiler says.
        message: String,
    },
    /// The data of the opaque build differs from the deployed data.
    #[error("{unit}: static data follows the constant")]
    DataFollows {
        /// The unit.
        unit: String,
    },
    /// The data of the opaque build cannot be compared.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The data that was compiled with this value cannot be compared.
    #[error("{unit}: {refusal}")]
    Data {
        /// The unit.
        unit: String,
        /// Why not.
        refusal: Box<Refusal>,
    },
    /// The data that was compiled with this value is not what the fit predicts.
    #[error("{unit}: {place}")]
    Unpredicted {
        /// The unit.
        unit: String,
        /// Where it is not.
        place: Unpredicted,
    },
    /// Tests for equality of which it is not known that the source makes them.
    #[error(
        "{tests}: the code tests for equality what the source may test for order: a state that has passed the value \
         would not meet it"
    )]
    NotMet {
        /// The tests.
        tests: Places,
    },
    /// The update tests for order. No code that is compiled with the value does that at this place.
    #[error("{0}: the update tests for order, and the code compiled with it does not")]
    TestsForOrder(Place),
    /// The two builds do not do the same.
    #[error("{place}: {difference}")]
    Differs {
        /// Where, in the deployed build.
        place: Place,
        /// The first difference.
        difference: String,
    },
}

/// Places in the deployed code, printed with commas between them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Places(pub Vec<Place>);

impl fmt::Display for Places {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, place) in self.0.iter().enumerate() {
            let separator = if index == 0 { "" } else { ", " };
            write!(f, "{separator}{place}")?;
        }
        Ok(())
    }
}
