//! What a check has found.

use super::check::Check;
use super::fault::{self, Fault};

/// How bad it is. Later ones are worse.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Status {
    Ok,
    /// Not checked, for a reason that is no fault.
    Skipped,
    Warning,
    Failure,
}

impl Status {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Skipped => "skipped",
            Self::Warning => "warning",
            Self::Failure => "failure",
        }
    }
}

/// One line of the report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Finding {
    pub(crate) check: Check,
    pub(crate) status: Status,
    pub(crate) what: String,
    /// The known fault that it is, with its cause and remedy.
    pub(crate) fault: Option<&'static Fault>,
    /// What to do: that of the fault, or of the fault that keeps this check from running.
    pub(crate) remedy: Option<&'static str>,
    pub(crate) details: Vec<String>,
}

impl Finding {
    fn new(check: Check, status: Status, what: impl Into<String>) -> Self {
        Self { check, status, what: what.into(), fault: None, remedy: None, details: Vec::new() }
    }

    pub(crate) fn ok(check: Check, what: impl Into<String>) -> Self {
        Self::new(check, Status::Ok, what)
    }

    pub(crate) fn skipped(check: Check, why: impl Into<String>) -> Self {
        Self::new(check, Status::Skipped, why)
    }

    /// Not checked, because of what another check has found. `is_shown`: the report has that, too.
    pub(crate) fn blocked(check: Check, by: &Self, is_shown: bool) -> Self {
        // Which of several variables is wrong is said in any case.
        let why = if is_shown && by.check != Check::Configuration {
            format!("{} failed", by.check.name())
        } else {
            format!("{} failed: {}", by.check.name(), by.what)
        };
        Self { remedy: by.remedy, ..Self::new(check, Status::Skipped, why) }
    }

    pub(crate) fn warning(fault: &'static Fault, what: impl Into<String>) -> Self {
        Self::of(fault, Status::Warning, what)
    }

    pub(crate) fn failure(fault: &'static Fault, what: impl Into<String>) -> Self {
        Self::of(fault, Status::Failure, what)
    }

    fn of(fault: &'static Fault, status: Status, what: impl Into<String>) -> Self {
        Self { fault: Some(fault), remedy: Some(fault.remedy), ..Self::new(fault.check, status, what) }
    }

    /// Found by another check than the one that the fault is listed under.
    pub(crate) fn under(self, check: Check) -> Self {
        Self { check, ..self }
    }

    /// Whether the checks that need this one cannot succeed. Credentials that AWS refuses still sign, and what the cluster
    /// says about them helps.
    pub(crate) fn is_blocking(&self) -> bool {
        let is_of_keys =
            [Some(fault::REFUSED_CREDENTIALS), Some(fault::EXPIRED_CREDENTIALS)].contains(&self.fault);
        self.status == Status::Failure && !is_of_keys
    }

    pub(crate) fn detail(mut self, detail: impl Into<String>) -> Self {
        self.details.push(detail.into());
        self
    }

    pub(crate) fn details(mut self, details: impl IntoIterator<Item = String>) -> Self {
        self.details.extend(details);
        self
    }
}
