//! How many retries a process may spend.

use std::time::Duration;

use forebay::Instant;
use parking_lot::Mutex;

/// A retry, in the smallest parts that are counted.
const RETRY: u64 = 1_000_000;
/// So much of the steady income can be saved up.
const SAVED: Duration = Duration::from_secs(10);

/// Retries that all policies sharing it may spend: a share of the transactions begun, and a few a second besides. When
/// everything conflicts, it keeps a process from doing nothing but try again.
#[derive(Debug)]
pub struct RetryBudget {
    share: u64,
    per_second: u64,
    most: u64,
    balance: Mutex<Balance>,
}

#[derive(Debug)]
struct Balance {
    parts: u64,
    at: Option<Instant>,
}

/// One retry for every two transactions, and ten a second.
impl Default for RetryBudget {
    fn default() -> Self {
        Self::new(0.5, 10)
    }
}

impl RetryBudget {
    /// Allows `share` of a retry for each transaction, and `per_second` besides. A share below 0 is none.
    #[must_use]
    pub fn new(share: f64, per_second: u32) -> Self {
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "from 0 to 1000 retries")]
        let share = (share.clamp(0.0, 1000.0) * 1e6) as u64;
        let per_second = u64::from(per_second) * RETRY;
        // What is saved in a quiet time, or by a hundred transactions that went well.
        let most = (per_second * SAVED.as_secs()).max(100 * share);
        let balance = Balance { parts: per_second, at: None };
        Self { share, per_second, most, balance: Mutex::new(balance) }
    }

    pub(crate) fn deposit(&self, now: Instant) {
        let mut balance = self.balance.lock();
        self.refill(&mut balance, now);
        balance.parts = (balance.parts + self.share).min(self.most);
    }

    pub(crate) fn withdraw(&self, now: Instant) -> bool {
        let mut balance = self.balance.lock();
        self.refill(&mut balance, now);
        let rest = balance.parts.checked_sub(RETRY);
        balance.parts = rest.unwrap_or(balance.parts);
        rest.is_some()
    }

    fn refill(&self, balance: &mut Balance, now: Instant) {
        let passed = now.since(balance.at.unwrap_or(now)).min(SAVED);
        let income = u128::from(self.per_second) * passed.as_nanos() / 1_000_000_000;
        balance.parts = (balance.parts + u64::try_from(income).unwrap_or(u64::MAX)).min(self.most);
        balance.at = Some(now.max(balance.at.unwrap_or(now)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_steady_income_is_saved_for_ten_seconds_at_most() {
        let budget = RetryBudget::new(0.0, 10);
        let start = Instant::from_nanos(5_000_000_000);
        let spend = |now| (0..1_000).take_while(|_| budget.withdraw(now)).count();
        assert_eq!(spend(start), 10);
        assert_eq!(spend(start + Duration::from_millis(500)), 5);
        assert_eq!(spend(start), 0, "a clock read earlier earns nothing");
        assert_eq!(spend(start + Duration::from_secs(3600)), 100);
    }

    #[test]
    fn odd_shares_are_none_and_never_a_panic() {
        for share in [f64::NAN, -1.0, f64::NEG_INFINITY] {
            let budget = RetryBudget::new(share, 0);
            budget.deposit(Instant::ZERO);
            assert!(!budget.withdraw(Instant::ZERO), "{share}");
        }
        let budget = RetryBudget::new(f64::INFINITY, u32::MAX);
        budget.deposit(Instant::NEVER);
        assert!(budget.withdraw(Instant::NEVER));
    }
}
