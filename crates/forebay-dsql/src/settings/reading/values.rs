//! Parses the values of variables, each kind in one place.

use std::time::Duration;

use forebay::duration::{self, show};
use forebay::{Config, Problem};

use super::{Note, Origin, Reading};
use crate::variables::Variable;

impl Reading<'_> {
    pub(super) fn raw(&self, variable: Variable) -> Option<&str> {
        let value = self.variables.get(&variable.full_name(self.prefix))?;
        // Set to nothing is not set: that is how an unset variable arrives through most deployment tools.
        Some(value.trim()).filter(|value| !value.is_empty())
    }

    pub(super) fn text(&self, variable: Variable) -> Option<String> {
        self.raw(variable).map(str::to_owned)
    }

    pub(super) fn boolean(&mut self, variable: Variable, default: bool) -> bool {
        match self.raw(variable) {
            None => default,
            Some("1" | "t" | "T" | "true" | "TRUE" | "True") => true,
            Some("0" | "f" | "F" | "false" | "FALSE" | "False") => false,
            // Operators write environments: a wrong boolean there is false, with a warning. In code or in a URL it is a mistake
            // of the caller.
            Some(_) if self.origin == Origin::Environment => {
                self.note(variable, "not a boolean, and so false; use true or false".to_owned());
                false
            }
            Some(_) => {
                self.problem(variable, "true or false");
                default
            }
        }
    }

    pub(super) fn integer(&mut self, variable: Variable) -> Option<i64> {
        let parsed = self.raw(variable)?.parse();
        if parsed.is_err() {
            self.problem(variable, "a whole number");
        }
        parsed.ok()
    }

    pub(super) fn number(&mut self, variable: Variable, least: u64, most: u64) -> Option<u64> {
        let parsed = self.raw(variable)?.parse().ok().filter(|number| (least..=most).contains(number));
        if parsed.is_none() {
            let most = if most > 1 << 53 { String::new() } else { format!(" and at most {most}") };
            self.problem(variable, &format!("a whole number of at least {least}{most}"));
        }
        parsed
    }

    pub(super) fn count(&mut self, variable: Variable, least: u64) -> Option<usize> {
        self.number(variable, least, Config::MAX_OPEN_LIMIT as u64)
            .and_then(|number| usize::try_from(number).ok())
    }

    pub(super) fn decimal(&mut self, variable: Variable) -> Option<f64> {
        let parsed =
            self.raw(variable)?.parse().ok().filter(|number: &f64| number.is_finite() && *number > 0.0);
        if parsed.is_none() {
            self.problem(variable, "a number above zero");
        }
        parsed
    }

    pub(super) fn signed(&mut self, variable: Variable) -> Option<duration::Signed> {
        let parsed = duration::parse_signed(self.raw(variable)?);
        if parsed.is_none() {
            self.problem(variable, "a duration such as 45s, 11m or 1h30m");
        }
        parsed
    }

    pub(super) fn duration(&mut self, variable: Variable) -> Option<Duration> {
        let signed = self.signed(variable)?;
        if signed.negative {
            self.problem(variable, "a duration that is not negative");
            return None;
        }
        Some(signed.magnitude)
    }

    pub(super) fn positive(&mut self, variable: Variable, default: Duration) -> Duration {
        match self.signed(variable) {
            None => default,
            Some(signed) if signed.is_positive() => signed.magnitude,
            Some(_) => {
                self.problem(variable, "a duration above zero");
                default
            }
        }
    }

    /// A duration with a repair: negative, or zero too if it must be `positive`, becomes `repair`.
    pub(super) fn repaired(
        &mut self,
        variable: Variable,
        default: Duration,
        repair: Duration,
        positive: bool,
    ) -> Duration {
        match self.signed(variable) {
            None => default,
            Some(signed) if signed.is_positive() || !(signed.negative || positive) => signed.magnitude,
            Some(_) => {
                self.note(variable, format!("{} is used instead", show(repair)));
                repair
            }
        }
    }

    pub(super) fn choice<T: Copy>(&mut self, variable: Variable, choices: &[(&str, T)]) -> Option<T> {
        let value = self.raw(variable)?.to_ascii_lowercase();
        let chosen = choices.iter().find(|(name, _)| *name == value).map(|(_, choice)| *choice);
        if chosen.is_none() {
            let names: Vec<&str> = choices.iter().map(|(name, _)| *name).collect();
            self.problem(variable, &format!("one of {}", names.join(", ")));
        }
        chosen
    }

    pub(super) fn problem(&mut self, variable: Variable, allowed: &str) {
        let value = format!("{:?}", self.raw(variable).unwrap_or_default());
        let setting = self.called(variable).into();
        self.problems.push(Problem { setting, value, allowed: allowed.to_owned() });
    }

    /// The same of a duration that may have been given in code.
    pub(super) fn problem_of(&mut self, setting: &str, variable: Variable, value: Duration, allowed: &str) {
        match self.typed.method(setting) {
            None => self.problem(variable, allowed),
            Some(method) => {
                let (value, allowed) = (show(value), allowed.to_owned());
                self.problems.push(Problem { setting: method.into(), value, allowed });
            }
        }
    }

    pub(super) fn missing(&mut self, variable: Variable, because: Variable) {
        let allowed = format!("the name of a table, since {} is set", self.called(because));
        let setting = self.called(variable).into();
        self.problems.push(Problem { setting, value: "not set".to_owned(), allowed });
    }

    pub(super) fn note(&mut self, variable: Variable, remark: String) {
        let value = self.text(variable);
        self.notes.push(Note { variable: self.called(variable), value, remark });
    }
}
