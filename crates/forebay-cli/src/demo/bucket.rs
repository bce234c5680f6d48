//! A token bucket, as a server keeps one to ration opens.

use forebay::Instant;

/// So many tokens a second, and no more than `burst` of them saved up.
#[derive(Debug)]
pub(super) struct Bucket {
    per_second: f64,
    burst: f64,
    tokens: f64,
    filled_at: Instant,
}

impl Bucket {
    /// A full bucket.
    pub(super) fn full(per_second: u32, burst: u32, now: Instant) -> Self {
        let (per_second, burst) = (f64::from(per_second), f64::from(burst));
        Self { per_second, burst, tokens: burst, filled_at: now }
    }

    /// Takes a token, if there is one. A caller who gets none has cost nothing.
    pub(super) fn take(&mut self, now: Instant) -> bool {
        let gained = now.since(self.filled_at).as_secs_f64() * self.per_second;
        self.tokens = (self.tokens + gained).min(self.burst);
        self.filled_at = self.filled_at.max(now);
        let enough = self.tokens >= 1.0;
        if enough {
            self.tokens -= 1.0;
        }
        enough
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const START: Instant = Instant::from_nanos(1_000_000_000_000);

    fn taken(bucket: &mut Bucket, asked: usize, now: Instant) -> usize {
        (0..asked).filter(|_| bucket.take(now)).count()
    }

    #[test]
    fn a_full_bucket_gives_its_burst_and_then_its_rate() {
        let mut bucket = Bucket::full(20, 5, START);
        assert_eq!(taken(&mut bucket, 100, START), 5);
        assert_eq!(taken(&mut bucket, 100, START + Duration::from_millis(49)), 0);
        assert_eq!(taken(&mut bucket, 100, START + Duration::from_millis(50)), 1);
        assert_eq!(taken(&mut bucket, 100, START + Duration::from_millis(200)), 3);
    }

    #[test]
    fn no_more_than_the_burst_is_saved_up() {
        let mut bucket = Bucket::full(20, 5, START);
        assert_eq!(taken(&mut bucket, 100, START), 5);
        assert_eq!(taken(&mut bucket, 100, START + Duration::from_secs(3600)), 5);
    }

    #[test]
    fn a_refusal_costs_nothing() {
        let mut bucket = Bucket::full(1, 1, START);
        assert_eq!(taken(&mut bucket, 1000, START), 1);
        assert_eq!(taken(&mut bucket, 1000, START + Duration::from_secs(1)), 1);
    }
}
