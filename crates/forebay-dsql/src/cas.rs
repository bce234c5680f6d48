//! Updates that happen only if nothing has changed since.

/// A compare-and-swap found another value than expected, or nothing at all. Nothing was changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{entity}: expected {expected}, found {}", found.as_deref().unwrap_or("another value, or no such row"))]
pub struct ConditionFailed {
    /// What was to be updated.
    pub entity: String,
    /// The value it should have had.
    pub expected: String,
    /// The value it had, where that was cheap to learn.
    pub found: Option<String>,
}
