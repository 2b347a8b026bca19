//! How messages name a constant.

use crate::types::ConstRef;

impl ConstRef {
    /// The alias of the constant; its ConstID if it has no alias.
    #[must_use]
    pub fn title(&self) -> &str {
        self.name.as_deref().unwrap_or(&self.id)
    }
}
