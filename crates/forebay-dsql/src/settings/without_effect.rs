//! Warnings about variables that are set and have no effect.

use super::{Note, Settings, reading::Reading};
use crate::variables::{NEEDS, Variable};

impl Reading<'_> {
    /// Notes variables that have no effect with these settings.
    pub(super) fn note_without_effect(&mut self, settings: &Settings) {
        let prefix = self.prefix;
        let is_set = |variable: &Variable| {
            self.variables.get(&variable.full_name(prefix)).is_some_and(|value| !value.trim().is_empty())
        };
        let unmet = NEEDS
            .iter()
            .filter(|need| need.warns && !(need.holds)(settings) && !need.switches.iter().any(is_set));
        let notes: Vec<Note> = unmet
            .flat_map(|need| {
                let set = need.variables.iter().filter(|variable| is_set(variable));
                set.map(|variable| Note {
                    variable: variable.full_name(prefix),
                    value: None,
                    remark: need.remark(prefix),
                })
            })
            .collect();
        self.notes.extend(notes);
    }
}
