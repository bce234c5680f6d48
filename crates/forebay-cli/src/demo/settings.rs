//! How one side is set up, in words.

use serde_json::{Map, Value};

/// Names of settings and what each is set to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Settings(pub(super) Vec<(&'static str, String)>);

impl Settings {
    /// All on one line.
    pub(super) fn line(&self) -> String {
        self.0.iter().map(|(name, value)| format!("{name}: {value}")).collect::<Vec<_>>().join("; ")
    }

    /// As an object.
    pub(super) fn json(&self) -> Value {
        let entries =
            self.0.iter().map(|(name, value)| (name.replace(' ', "_"), Value::from(value.as_str())));
        Value::Object(entries.collect::<Map<_, _>>())
    }
}

#[cfg(test)]
mod tests {
    use crate::demo::pooled::Pooled;
    use crate::demo::reserved::Reserved;
    use crate::demo::scenario::Scenario;

    #[test]
    fn each_fits_into_half_a_usual_terminal() {
        for settings in [Pooled::settings(&Scenario::DEMO), Reserved::settings(&Scenario::DEMO)] {
            for (name, value) in &settings.0 {
                assert!(name.len() + 2 + value.len() <= 38, "{name}: {value}");
            }
        }
    }
}
