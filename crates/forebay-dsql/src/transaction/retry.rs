//! Whether to try again, and when.

use std::sync::Arc;
use std::time::Duration;

use forebay::{Instant, Rng};

use crate::error::{Conflict, ErrorKind};

mod budget;

pub use budget::RetryBudget;

/// How often and how fast a transaction is tried again. Default: 10 retries, with pauses of up to 10 ms that double up to 5 s, each
/// drawn from zero to its full length. On a row that several clients change, this lets fewer transactions fail and nearly all end
/// sooner than [the specification's policy](Self::specified).
///
/// ```
/// use std::time::Duration;
/// use forebay_dsql::{RetryBudget, RetryPolicy};
///
/// // For a service: nothing after two seconds, and never more retries than work.
/// let policy = RetryPolicy::default()
///     .deadline(Duration::from_secs(2))
///     .budget(RetryBudget::default());
/// ```
#[derive(Clone, Debug)]
pub struct RetryPolicy {
    retries: u32,
    base: Duration,
    cap: Duration,
    jitter: Jitter,
    deadline: Option<Duration>,
    budget: Option<Arc<RetryBudget>>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Jitter {
    /// So many thousandths up or down.
    Around(u32),
    /// Anything from zero to the whole pause.
    Full,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self {
            retries: 10,
            base: Duration::from_millis(10),
            cap: Duration::from_secs(5),
            jitter: Jitter::Full,
            deadline: None,
            budget: None,
        }
    }
}

impl RetryPolicy {
    /// The policy of the specification: 5 retries, and pauses from 100 ms that double up to 5 s, each 25 % longer or shorter by
    /// chance.
    #[must_use]
    pub fn specified() -> Self {
        Self::default().retries(5).base(Duration::from_millis(100)).jitter(0.25)
    }

    /// How often to try again after the first attempt. Default 10; 0 never tries again.
    #[must_use]
    pub fn retries(mut self, retries: u32) -> Self {
        self.retries = retries;
        self
    }

    /// The first pause, which doubles with each retry. Default 10 ms.
    #[must_use]
    pub fn base(mut self, base: Duration) -> Self {
        self.base = base;
        self
    }

    /// The longest pause. Default 5 s.
    #[must_use]
    pub fn cap(mut self, cap: Duration) -> Self {
        self.cap = cap;
        self
    }

    /// By how much pauses differ, instead of [full jitter](Self::full_jitter): 0.25 draws each from three quarters to five quarters of
    /// it. Clamped to 0..=1.
    #[must_use]
    pub fn jitter(mut self, share: f64) -> Self {
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "from 0 to 1000")]
        let thousandths = (share.clamp(0.0, 1.0) * 1000.0) as u32;
        self.jitter = Jitter::Around(thousandths);
        self
    }

    /// Draws each pause from zero to its full length, which spreads many competitors best. The default.
    #[must_use]
    pub fn full_jitter(mut self) -> Self {
        self.jitter = Jitter::Full;
        self
    }

    /// How long a transaction may take as a whole: its waits for a connection, all attempts, COMMIT, and the pauses between them. Default:
    /// that of the pool ([`Options::deadline`](crate::Options::deadline)).
    ///
    /// It is fixed when `run` begins. At its end the error is [`NoConnection`](ErrorKind::NoConnection) if there was no connection,
    /// [`TimedOut`](ErrorKind::TimedOut) if an attempt was under way, and then nothing of it is committed; and
    /// [`CommitUnknown`](ErrorKind::CommitUnknown) if a COMMIT was unanswered. A retry that would begin later is not made: the error is
    /// that of the last attempt.
    #[must_use]
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = Some(deadline);
        self
    }

    /// Takes retries from a budget, which several policies may share. Default: none.
    #[must_use]
    pub fn budget(mut self, budget: impl Into<Arc<RetryBudget>>) -> Self {
        self.budget = Some(budget.into());
        self
    }

    /// Begins to count the attempts of one transaction.
    pub(crate) fn begin(&self, now: Instant) -> Attempts {
        if let Some(budget) = &self.budget {
            budget.deposit(now);
        }
        Attempts {
            policy: self.clone(),
            until: self.deadline.map(|deadline| now + deadline),
            began: now,
            retries: 0,
            patience: None,
            waited: Duration::ZERO,
            waits: 0,
        }
    }
}

/// The attempts of one transaction. It has neither a clock nor randomness of its own.
#[derive(Debug)]
pub(crate) struct Attempts {
    policy: RetryPolicy,
    began: Instant,
    /// When all of it must have ended.
    until: Option<Instant>,
    retries: u32,
    /// How long all waits for a connection may last together, if that is known.
    patience: Option<Duration>,
    /// How long they have lasted.
    waited: Duration,
    /// Waits that ended without a connection.
    waits: u32,
}

/// What comes after a failed attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Try again after a pause; `retry` counts from one.
    Again { retry: u32, pause: Duration },
    /// Go on waiting for a connection after a pause. Nothing was tried, so this is not a retry.
    Wait { pause: Duration },
    /// Another attempt might succeed, but the retries are used up.
    Exhausted,
    /// Another attempt would not help, or would do harm.
    Final,
}

impl Attempts {
    /// How often the transaction was run again.
    pub(crate) fn retries(&self) -> u32 {
        self.retries
    }

    /// The transaction may take so long as a whole, whatever the policy says.
    pub(crate) fn set_deadline(&mut self, deadline: Duration) {
        self.policy.deadline = Some(deadline);
        self.until = Some(self.began + deadline);
    }

    /// The transaction may take so long as a whole, unless the policy says something else.
    pub(crate) fn set_default_deadline(&mut self, deadline: Option<Duration>) {
        self.until = self.until.or_else(|| deadline.map(|deadline| self.began + deadline));
    }

    /// When all of it must have ended.
    pub(crate) fn until(&self) -> Option<Instant> {
        self.until
    }

    /// All waits for a connection may last this long together, unless the policy has a deadline.
    pub(crate) fn set_patience(&mut self, patience: Option<Duration>) {
        self.patience = patience;
    }

    /// A wait for a connection ended after this time.
    pub(crate) fn waited(&mut self, waited: Duration) {
        self.waited = self.waited.saturating_add(waited);
    }

    /// How long all of them have lasted.
    pub(crate) fn has_waited(&self) -> Duration {
        self.waited
    }

    /// How much longer it may wait for a connection; none if only the pool knows.
    pub(crate) fn left(&self, now: Instant) -> Option<Duration> {
        let of_all = self.until.map(|until| until.since(now));
        let of_waits = self.patience.map(|patience| patience.saturating_sub(self.waited));
        match (of_all, of_waits) {
            // Who asks for a deadline is ready to wait for as long.
            (Some(_), _) if self.policy.deadline.is_some() => of_all,
            (Some(all), Some(waits)) => Some(all.min(waits)),
            _ => of_all.or(of_waits),
        }
    }

    /// Whether no less time is left than a pool waits by itself.
    pub(crate) fn is_left_to_the_pool(&self, now: Instant) -> bool {
        self.policy.deadline.is_none() && self.waited.is_zero() && self.left(now) == self.patience
    }

    /// Decides after a wait that ended without a connection, for a reason that may pass. The transaction goes on waiting until
    /// its time is used up: the pool's own wait may be shorter.
    pub(crate) fn decide_wait(&mut self, now: Instant, rng: &mut Rng) -> Verdict {
        let Some(left) = self.left(now) else { return self.decide(ErrorKind::NoConnection, now, rng) };
        if left.is_zero() {
            return if self.retries > 0 { Verdict::Exhausted } else { Verdict::Final };
        }
        let pause = self.drawn(self.waits, rng).min(left);
        self.waits += 1;
        self.waited(pause);
        Verdict::Wait { pause }
    }

    /// Decides after an attempt that failed with an error of this kind.
    pub(crate) fn decide(&mut self, kind: ErrorKind, now: Instant, rng: &mut Rng) -> Verdict {
        // For callers that take connections themselves: a later attempt that finds no connection counts as a failed one. The
        // first does not: its caller has already waited for as long as the pool allows.
        let is_retried = is_retried(kind) || (kind == ErrorKind::NoConnection && self.retries > 0);
        if !is_retried {
            return Verdict::Final;
        }
        if self.retries >= self.policy.retries {
            return Verdict::Exhausted;
        }
        let pause = self.pause(kind, rng);
        if self.until.is_some_and(|until| now + pause > until) {
            return Verdict::Exhausted;
        }
        if self.policy.budget.as_ref().is_some_and(|budget| !budget.withdraw(now)) {
            return Verdict::Exhausted;
        }
        self.retries += 1;
        Verdict::Again { retry: self.retries, pause }
    }

    fn pause(&self, kind: ErrorKind, rng: &mut Rng) -> Duration {
        // After a change of the schema the first retry succeeds whenever it comes.
        if kind == ErrorKind::Conflict(Conflict::Schema) && self.retries == 0 {
            return Duration::ZERO;
        }
        self.drawn(self.retries, rng)
    }

    /// The pause after so many others.
    fn drawn(&self, others: u32, rng: &mut Rng) -> Duration {
        let RetryPolicy { base, cap, jitter, .. } = &self.policy;
        let full = base.saturating_mul(1 << others.min(30)).min(*cap);
        match jitter {
            Jitter::Full => rng.up_to(full),
            Jitter::Around(thousandths) => {
                let sway = full / 1000 * *thousandths;
                (full - sway).saturating_add(rng.up_to(sway.saturating_mul(2))).min(*cap)
            }
        }
    }
}

/// The kinds after which nothing was committed and another attempt may succeed.
fn is_retried(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::Conflict(_) | ErrorKind::Unavailable | ErrorKind::Disconnected)
}

#[cfg(test)]
mod tests {
    use forebay::Seed;

    use super::*;
    use crate::error::{Auth, Limit, Throttle};

    const CHANGE: ErrorKind = ErrorKind::Conflict(Conflict::Change);
    const START: Instant = Instant::from_nanos(1_000_000_000);

    fn pauses(policy: &RetryPolicy, seed: u64) -> Vec<Duration> {
        let mut rng = Seed::new(seed).rng();
        let mut attempts = policy.begin(START);
        let mut pauses = Vec::new();
        while let Verdict::Again { pause, retry } = attempts.decide(CHANGE, START, &mut rng) {
            pauses.push(pause);
            assert_eq!(retry as usize, pauses.len());
        }
        pauses
    }

    #[test]
    fn the_default_has_ten_pauses_that_begin_small() {
        for seed in 0..50 {
            let pauses = pauses(&RetryPolicy::default(), seed);
            assert_eq!(pauses.len(), 10);
            for (pause, doubled) in pauses.into_iter().zip(0..) {
                assert!(pause <= Duration::from_millis(10 << doubled).min(Duration::from_secs(5)));
            }
        }
    }

    #[test]
    fn the_specified_policy_is_the_specifications() {
        let mut seen = [(Duration::MAX, Duration::ZERO); 5];
        for seed in 0..200 {
            let pauses = pauses(&RetryPolicy::specified(), seed);
            assert_eq!(pauses.len(), 5);
            for (pause, (least, most)) in pauses.into_iter().zip(&mut seen) {
                *least = pause.min(*least);
                *most = pause.max(*most);
            }
        }
        for (retry, (least, most)) in seen.into_iter().enumerate() {
            let full = Duration::from_millis(100 << retry);
            assert!(least >= full * 3 / 4 && most <= full * 5 / 4, "retry {retry}: {least:?} to {most:?}");
            assert!(least < full * 4 / 5 && most > full * 6 / 5, "retry {retry} does not spread");
        }
    }

    #[test]
    fn pauses_end_at_the_cap_and_full_jitter_begins_at_zero() {
        let policy = RetryPolicy::default().retries(100);
        assert!(pauses(&policy, 1).iter().all(|pause| *pause <= Duration::from_secs(5)));
        let policy = policy.clone().full_jitter().cap(Duration::from_millis(10));
        let pauses = pauses(&policy, 1);
        assert!(pauses.iter().all(|pause| *pause <= Duration::from_millis(10)));
        assert!(pauses.iter().any(|pause| *pause < Duration::from_millis(1)));
        let none = RetryPolicy::default().jitter(f64::NAN).retries(1);
        assert_eq!(self::pauses(&none, 1), [Duration::from_millis(10)]);
    }

    #[test]
    fn the_longest_pauses_there_are_do_no_harm() {
        for (share, base) in
            [(0.25, Duration::MAX), (0.6, Duration::MAX), (1.0, Duration::MAX), (1.0, Duration::ZERO)]
        {
            let policy = RetryPolicy::default().base(base).cap(Duration::MAX).jitter(share).retries(3);
            assert_eq!(pauses(&policy, 1).len(), 3, "{share} of {base:?}");
        }
    }

    #[test]
    fn only_what_is_safe_and_may_help_is_tried_again() {
        let mut rng = Seed::new(1).rng();
        let mut decide =
            |kind| RetryPolicy::default().begin(START).decide(kind, START, &mut rng) != Verdict::Final;
        for kind in
            [CHANGE, ErrorKind::Conflict(Conflict::Other), ErrorKind::Unavailable, ErrorKind::Disconnected]
        {
            assert!(decide(kind), "{kind:?}");
        }
        for kind in [
            ErrorKind::CommitUnknown,
            ErrorKind::ConditionFailed,
            ErrorKind::Throttled(Throttle::RateExceeded),
            ErrorKind::Auth(Auth::SignatureExpired),
            ErrorKind::Unsupported,
            ErrorKind::Limit(Limit::Age),
            ErrorKind::NoConnection,
            ErrorKind::Permanent,
        ] {
            assert!(!decide(kind), "{kind:?}");
        }
    }

    #[test]
    fn a_missing_connection_ends_no_retries_that_have_begun() {
        let mut rng = Seed::new(1).rng();
        let mut attempts = RetryPolicy::default().retries(2).begin(START);
        assert_eq!(attempts.decide(ErrorKind::NoConnection, START, &mut rng), Verdict::Final);
        for (kind, again) in [
            (ErrorKind::Disconnected, true),
            (ErrorKind::NoConnection, true),
            (ErrorKind::NoConnection, false),
        ] {
            let verdict = attempts.decide(kind, START, &mut rng);
            assert_eq!(matches!(verdict, Verdict::Again { .. }), again, "{kind:?}");
            assert!(again || verdict == Verdict::Exhausted);
        }
    }

    const PATIENCE: Duration = Duration::from_secs(2);

    fn patient(policy: &RetryPolicy) -> Attempts {
        let mut attempts = policy.begin(START);
        attempts.set_patience(Some(PATIENCE));
        attempts
    }

    #[test]
    fn waits_go_on_until_their_time_is_used_up() {
        // No retry is spent on them, so there need be none.
        for (policy, last) in [
            (RetryPolicy::default().retries(0), Verdict::Final),
            (RetryPolicy::default().retries(0).deadline(PATIENCE), Verdict::Final),
            (RetryPolicy::default().budget(RetryBudget::new(0.0, 0)), Verdict::Final),
        ] {
            let mut rng = Seed::new(1).rng();
            let mut attempts = patient(&policy);
            let (mut now, mut pauses) = (START, Vec::new());
            loop {
                // Each wait fails after 100 ms, or when nothing is left.
                let wait = attempts.left(now).unwrap().min(Duration::from_millis(100));
                attempts.waited(wait);
                now = now + wait;
                match attempts.decide_wait(now, &mut rng) {
                    Verdict::Wait { pause } => {
                        now = now + pause;
                        pauses.push(pause);
                    }
                    verdict => {
                        assert_eq!(verdict, last);
                        break;
                    }
                }
            }
            assert_eq!(now.since(START), PATIENCE);
            assert!(pauses.len() >= 4 && pauses[1] > pauses[0], "they grow: {pauses:?}");
        }
    }

    #[test]
    fn what_is_done_between_waits_does_not_count_as_waiting() {
        let mut rng = Seed::new(1).rng();
        let mut attempts = patient(&RetryPolicy::default());
        assert!(attempts.is_left_to_the_pool(START));
        attempts.waited(PATIENCE / 2);
        let later = START + Duration::from_secs(100);
        assert_eq!(attempts.left(later), Some(PATIENCE / 2));
        assert!(!attempts.is_left_to_the_pool(START));
        assert!(matches!(
            attempts.decide(ErrorKind::Disconnected, later, &mut rng),
            Verdict::Again { retry: 1, .. }
        ));
        assert_eq!(attempts.left(later), Some(PATIENCE / 2), "nor does the pause before a retry");
        attempts.waited(PATIENCE / 2);
        assert_eq!(attempts.decide_wait(later, &mut rng), Verdict::Exhausted);
    }

    #[test]
    fn a_deadline_rules_over_the_patience_of_the_pool() {
        let policy = RetryPolicy::default();
        for deadline in [PATIENCE / 2, PATIENCE * 2] {
            let mut attempts = patient(&policy.clone().deadline(deadline));
            attempts.waited(PATIENCE / 4);
            let now = START + PATIENCE / 4;
            assert_eq!(attempts.left(now), Some(deadline - PATIENCE / 4));
            assert!(!attempts.is_left_to_the_pool(START));
        }
        assert_eq!(policy.begin(START).left(START), None, "of a pool that says nothing");
    }

    #[test]
    fn the_deadline_of_the_pool_and_its_patience_both_hold() {
        let (longer, shorter) = (PATIENCE * 2, PATIENCE / 2);
        for (deadline, left) in [(longer, PATIENCE), (shorter, shorter)] {
            let mut attempts = patient(&RetryPolicy::default());
            attempts.set_default_deadline(Some(deadline));
            assert_eq!(attempts.until(), Some(START + deadline));
            assert_eq!(attempts.left(START), Some(left));
            assert_eq!(attempts.is_left_to_the_pool(START), left == PATIENCE);
            assert_eq!(attempts.left(START + deadline), Some(Duration::ZERO));
        }
        let mut attempts = patient(&RetryPolicy::default().deadline(longer));
        attempts.set_default_deadline(Some(shorter));
        assert_eq!(attempts.until(), Some(START + longer), "the policy's own rules");
    }

    #[test]
    fn a_changed_schema_is_tried_again_at_once_the_first_time() {
        let mut rng = Seed::new(1).rng();
        let mut attempts = RetryPolicy::default().begin(START);
        let schema = ErrorKind::Conflict(Conflict::Schema);
        assert_eq!(
            attempts.decide(schema, START, &mut rng),
            Verdict::Again { retry: 1, pause: Duration::ZERO }
        );
        assert!(matches!(
            attempts.decide(schema, START, &mut rng),
            Verdict::Again { retry: 2, pause } if !pause.is_zero()
        ));
    }

    #[test]
    fn no_retry_begins_after_the_deadline() {
        let mut rng = Seed::new(1).rng();
        let policy = RetryPolicy::specified().retries(u32::MAX).deadline(Duration::from_secs(1));
        let mut attempts = policy.begin(START);
        let (mut now, mut tries) = (START, 0);
        while let Verdict::Again { pause, .. } = attempts.decide(CHANGE, now, &mut rng) {
            now = now + pause;
            tries += 1;
        }
        assert!(now.since(START) <= Duration::from_secs(1));
        assert!((2..=4).contains(&tries), "{tries}");
    }

    #[test]
    fn an_empty_budget_ends_the_retries_of_all_who_share_it() {
        let mut rng = Seed::new(1).rng();
        let budget = Arc::new(RetryBudget::new(0.5, 0));
        let policy = RetryPolicy::default().budget(Arc::clone(&budget));
        let other = RetryPolicy::default().budget(budget);
        let mut retried = 0;
        for _ in 0..100 {
            for policy in [&policy, &other] {
                let mut attempts = policy.begin(START);
                while attempts.decide(CHANGE, START, &mut rng) != Verdict::Exhausted {
                    retried += 1;
                }
            }
        }
        assert_eq!(retried, 100, "half of two hundred");
    }
}
