//! The source of a scenario: a shipped one, or a file.

use std::path::Path;

use anyhow::{Context, bail};
use forebay_sim::scenario::nearest;
use forebay_sim::{Scenario, shipped};

/// A scenario's text and name.
pub(super) struct Source {
    name: String,
    text: String,
}

impl Source {
    /// Finds a shipped scenario by its name, or else reads a file.
    pub(super) fn find(name: &str) -> anyhow::Result<Self> {
        if let Some(found) = shipped().iter().find(|shipped| shipped.name == name) {
            return Ok(Self { name: name.to_owned(), text: found.text.to_owned() });
        }
        if !Path::new(name).exists() && !name.contains(['/', '.']) {
            let hint = nearest(name).map_or_else(String::new, |nearest| format!(" did you mean {nearest}?"));
            bail!(
                "there is no scenario '{name}';{hint} forebay sim --list lists the shipped ones, or give a YAML file"
            );
        }
        let text = std::fs::read_to_string(name).with_context(|| format!("cannot read {name}"))?;
        Ok(Self { name: name.to_owned(), text })
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn scenario(&self, settings: &[String]) -> anyhow::Result<Scenario> {
        Ok(Scenario::parse(&self.name, &self.text, settings)?)
    }
}
