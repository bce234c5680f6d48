//! A configuration with its mistakes.

use std::collections::{BTreeMap, BTreeSet};

use forebay::Problem;

use super::GatewayConfig;

/// What the sources say, and what is wrong with it: for a program that checks more, and tells everything at once.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Draft {
    /// The configuration. A setting that is wrong has its default.
    pub config: GatewayConfig,
    /// What is wrong.
    pub problems: Vec<Problem>,
    /// Whether a source could not be read at all, so that nobody knows what it says.
    pub is_partial: bool,
    pub(super) names: BTreeMap<&'static str, String>,
    pub(super) wrong: BTreeSet<&'static str>,
}

impl Draft {
    /// How its source names the setting with this key.
    #[must_use]
    pub fn name_of(&self, key: &str) -> String {
        self.names.get(key).map_or(key, String::as_str).to_owned()
    }

    /// Whether the setting with this key is as its sources say.
    #[must_use]
    pub fn is_known(&self, key: &str) -> bool {
        !self.is_partial && !self.wrong.contains(key)
    }
}
