//! Settings to be read, for a pool that is no reservoir and should keep to them all the same.

use std::time::Duration;

use super::Config;
use crate::seed::Seed;

/// The settings of a [`Config`] that mean something to any pool.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Figures {
    /// How many connections may be owned.
    pub max_open: usize,
    /// Opens a second.
    pub rate: f64,
    /// Opens at once after a quiet time.
    pub burst: u32,
    /// How long to wait at most before the first open.
    pub startup_jitter: Duration,
    /// How long one open may take.
    pub open_timeout: Duration,
    /// How long a reset or a health check may take.
    pub maintenance_timeout: Duration,
    /// How long a close may take.
    pub close_timeout: Duration,
    /// How long a caller waits for a connection, whatever the reason.
    pub acquire_timeout: Duration,
    /// How long a connection may be idle before it is checked, if it is.
    pub check_after: Option<Duration>,
    /// Where chance is drawn from, if it is set.
    pub seed: Option<Seed>,
}

impl Config {
    /// What of these settings means something to any pool.
    #[must_use]
    pub const fn figures(&self) -> Figures {
        Figures {
            max_open: self.max_open,
            rate: self.rate,
            burst: self.burst,
            startup_jitter: self.startup_jitter,
            open_timeout: self.open_timeout,
            maintenance_timeout: self.maintenance_timeout,
            close_timeout: self.close_timeout,
            acquire_timeout: self.acquire_timeout,
            check_after: self.check_after,
            seed: self.seed,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_set_can_be_read() {
        let second = Duration::from_secs(1);
        let config = Config::default().max_open(7).rate(2.5, 3).acquire_timeout(second).seed(Seed::new(4));
        let figures = config.open_timeout(2 * second).startup_jitter(3 * second).figures();
        assert_eq!((figures.max_open, figures.rate, figures.burst), (7, 2.5, 3));
        assert_eq!(figures.acquire_timeout, second);
        assert_eq!((figures.open_timeout, figures.startup_jitter), (2 * second, 3 * second));
        assert_eq!(figures.seed, Some(Seed::new(4)));
        let defaults = Config::default().figures();
        assert_eq!(defaults.check_after, None);
        assert_eq!((defaults.maintenance_timeout, defaults.close_timeout), (5 * second, 5 * second));
    }
}
