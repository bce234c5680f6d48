//! The outcome of the last attempts to open, and what the attempts in flight wait for. Errors of callers
//! include it.

use std::sync::Arc;

use crate::error::OpenError;
use crate::event::Failure;
use crate::limit::Pace;
use crate::time::Instant;

/// What is known about attempts to open.
#[derive(Debug, Default)]
pub(crate) struct Opens {
    failed: Option<(Instant, Arc<OpenError>)>,
    /// The last failure that waiting does not fix. It is kept when other failures follow.
    denied: Option<Arc<OpenError>>,
    succeeded_at: Option<Instant>,
    /// How many attempts wait for each step.
    waiting: [usize; 3],
}

/// What an attempt waits for before it opens.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Step {
    Prepare,
    Lease,
    Permit,
}

impl Opens {
    pub(crate) fn failed(&mut self, now: Instant, error: Arc<OpenError>) {
        if error.is_permanent() {
            self.denied = Some(Arc::clone(&error));
        }
        self.failed = Some((now, error));
    }

    pub(crate) fn last_denial(&self) -> Option<Arc<OpenError>> {
        self.denied.clone()
    }

    pub(crate) fn succeeded(&mut self, now: Instant) {
        self.succeeded_at = Some(now);
    }

    pub(crate) fn begins(&mut self, step: Step) {
        self.waiting[step as usize] += 1;
    }

    pub(crate) fn ends(&mut self, step: Step) {
        self.waiting[step as usize] -= 1;
    }

    /// The last failure, if it explains why a reservoir that has been short since `short_since` has no
    /// connection for a caller that has waited since `since`. It does if no open has succeeded since. It also
    /// does if the reservoir has been short since the failure, and the failure happened during the wait or
    /// still slows opens down (`is_slowed`).
    pub(crate) fn failure_since(
        &self,
        short_since: Instant,
        since: Instant,
        is_slowed: bool,
    ) -> Option<Arc<OpenError>> {
        let (at, error) = self.failed.as_ref()?;
        let is_last = self.succeeded_at.is_none_or(|succeeded_at| succeeded_at < *at);
        let matters_still = *at >= since || (is_slowed && error.failure().is_pushback());
        (is_last || (*at >= short_since && matters_still)).then(|| Arc::clone(error))
    }

    /// How many attempts wait for a token, a lease and a permit.
    pub(crate) fn waiting(&self) -> [usize; 3] {
        self.waiting
    }

    /// The last failure, if no open has succeeded since.
    pub(crate) fn unresolved_failure(&self) -> Option<Arc<OpenError>> {
        let (at, error) = self.failed.as_ref()?;
        self.succeeded_at.is_none_or(|succeeded_at| succeeded_at < *at).then(|| Arc::clone(error))
    }

    /// What the attempts in flight wait for. If they wait for different steps, the last step is the most
    /// likely to be slow.
    pub(crate) fn pending(&self, pace: Pace) -> Option<Arc<OpenError>> {
        let [prepare, lease, permit] = self.waiting;
        let (failure, what) = if permit > 0 {
            let rate = (pace.per_second * 1000.0).round() / 1000.0;
            (Failure::RateLimit, format!("{} for a permit: {rate} per second are allowed", waiting(permit)))
        } else if lease > 0 {
            (Failure::Lease, format!("{} for a lease", waiting(lease)))
        } else if prepare > 0 {
            (Failure::Token, format!("{} for a token", waiting(prepare)))
        } else {
            return None;
        };
        Some(Arc::new(OpenError::pending(failure, what)))
    }
}

fn waiting(opens: usize) -> String {
    if opens == 1 { "1 open waits".to_owned() } else { format!("{opens} opens wait") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Instant {
        Instant::from_nanos(seconds * 1_000_000_000)
    }

    fn failed(failure: Failure) -> Opens {
        let mut opens = Opens::default();
        opens.failed(at(10), Arc::new(OpenError::new(failure, "no")));
        opens
    }

    #[test]
    fn a_failure_explains_a_shortage_until_it_is_over() {
        let mut opens = failed(Failure::Open);
        assert!(opens.failure_since(at(9), at(20), false).is_some());
        assert!(opens.failure_since(at(11), at(20), false).is_some(), "nothing was opened since");
        opens.succeeded(at(12));
        assert!(opens.failure_since(at(13), at(5), true).is_none(), "it was full in between");
        assert!(opens.failure_since(at(9), at(20), true).is_none(), "opens succeed again");
        assert!(opens.failure_since(at(9), at(10), false).is_some(), "it fell into the wait");
        let mut opens = failed(Failure::Throttled);
        opens.succeeded(at(12));
        assert!(opens.failure_since(at(9), at(20), true).is_some(), "it still slows opens down");
    }

    #[test]
    fn attempts_under_way_say_what_they_wait_for() {
        let mut opens = Opens::default();
        let pace = Pace { per_second: 10.0, at_once: 0 };
        assert!(opens.pending(pace).is_none());
        opens.begins(Step::Prepare);
        opens.begins(Step::Permit);
        let text = |opens: &Opens| opens.pending(pace).map(|error| error.to_string());
        assert_eq!(
            text(&opens).as_deref(),
            Some("rate_limit: 1 open waits for a permit: 10 per second are allowed")
        );
        opens.ends(Step::Permit);
        assert_eq!(text(&opens).as_deref(), Some("token_provider: 1 open waits for a token"));
    }
}
