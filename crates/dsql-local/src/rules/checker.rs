//! Checks statements against the rules, and remembers which passed: applications repeat their statements.

use std::collections::BTreeSet;
use std::sync::Arc;

use parking_lot::Mutex;

use super::{check, lateral};
use crate::config::Rules;
use crate::error::SqlError;
use crate::statement::Statement;

const REMEMBERED: usize = 1_024;
/// The longest statement that is remembered. Clients choose how long statements are.
const LONG: usize = 4 << 10;

/// Checks statements against the rules of a cluster.
#[derive(Debug)]
pub(crate) struct RuleChecker {
    rules: Rules,
    allow_lateral: bool,
    /// Statements that passed.
    passed: Mutex<BTreeSet<Arc<str>>>,
}

impl RuleChecker {
    pub(crate) fn new(rules: Rules, allow_lateral: bool) -> Self {
        Self { rules, allow_lateral, passed: Mutex::default() }
    }

    /// Checks a statement.
    pub(crate) fn check(&self, statement: &Statement) -> Result<(), SqlError> {
        let text = statement.text();
        if text.len() > LONG {
            return self.check_uncached(statement);
        }
        if self.passed.lock().contains(text) {
            return Ok(());
        }
        self.check_uncached(statement)?;
        let mut passed = self.passed.lock();
        if passed.len() >= REMEMBERED {
            passed.clear();
        }
        passed.insert(text.clone());
        Ok(())
    }

    fn check_uncached(&self, statement: &Statement) -> Result<(), SqlError> {
        check(statement, self.rules)?;
        if self.allow_lateral { Ok(()) } else { lateral::check(statement) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn statement(sql: &str) -> Statement {
        Statement::split(sql).remove(0)
    }

    #[test]
    fn a_cached_check_has_the_same_result() {
        let checker = RuleChecker::new(Rules::Today, false);
        for _ in 0..2 {
            checker.check(&statement("SELECT 1")).unwrap();
            let refused = checker.check(&statement("TRUNCATE t")).unwrap_err();
            assert_eq!(refused.to_string(), "0A000: unsupported statement: Truncate");
        }
        assert_eq!(checker.passed.lock().len(), 1);
    }

    #[test]
    fn the_cache_of_checks_is_bounded() {
        let checker = RuleChecker::new(Rules::Today, false);
        for number in 0..=REMEMBERED {
            checker.check(&statement(&format!("SELECT {number}"))).unwrap();
        }
        assert_eq!(checker.passed.lock().len(), 1);
        checker.check(&statement(&format!("SELECT '{}'", "x".repeat(LONG)))).unwrap();
        assert_eq!(checker.passed.lock().len(), 1);
    }
}
