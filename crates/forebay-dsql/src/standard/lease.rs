//! A lease on one connection of a pool in standard mode.

use std::sync::Arc;
use std::time::Duration;

use forebay::rt::{self, Runtime};
use forebay::{ConnectionMonitor, Failure, LeaseError, LeaseId, Leases, OpenError, Rng, Seed};

/// How long one call of the store may take.
const TIMEOUT: Duration = Duration::from_secs(5);
/// How long to wait after the first attempt to release; doubled with each.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// The longest such wait: a lease that is not back keeps others from connecting.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// Held until it is released, which a drop does in the background.
pub(crate) struct StandardLease {
    /// There until it is released.
    id: Option<LeaseId>,
    leases: Arc<dyn Leases>,
    runtime: Arc<dyn Runtime>,
}

impl StandardLease {
    /// For the connection at the end of `monitor`. Cancel safe if the store is.
    pub(crate) async fn take(
        leases: Arc<dyn Leases>,
        runtime: Arc<dyn Runtime>,
        monitor: &ConnectionMonitor,
    ) -> Result<Self, OpenError> {
        let id = leases.acquire().await.map_err(|error| {
            let failure = match error {
                LeaseError::Limit { .. } | LeaseError::Share { .. } => Failure::LeaseLimit,
                _ => Failure::Lease,
            };
            OpenError::new(failure, error)
        })?;
        let lease = Self { id: Some(id.clone()), leases, runtime };
        lease.leases.bind(&id, monitor.clone());
        Ok(lease)
    }

    /// Gives it back, trying until the store agrees. If the future is dropped, that goes on in the background.
    pub(crate) async fn release(mut self) {
        if let Some(id) = &self.id {
            release(&*self.leases, &*self.runtime, id).await;
            self.id = None;
        }
    }
}

impl Drop for StandardLease {
    fn drop(&mut self) {
        if let Some(id) = self.id.take() {
            let (leases, runtime) = (Arc::clone(&self.leases), Arc::clone(&self.runtime));
            self.runtime.spawn(Box::pin(async move { release(&*leases, &*runtime, &id).await }));
        }
    }
}

async fn release(leases: &dyn Leases, runtime: &dyn Runtime, id: &LeaseId) {
    let (mut pause, mut rng) = (FIRST_PAUSE, None);
    loop {
        match rt::within(runtime, TIMEOUT, leases.release(id)).await {
            Some(Ok(())) => return,
            Some(Err(error)) => tracing::warn!(%error, "DSQL pool: failed to release a connection lease"),
            None => tracing::warn!("DSQL pool: releasing a connection lease timed out"),
        }
        // Those who lost the store together must not come back together.
        let rng: &mut Rng = rng.get_or_insert_with(|| Seed::new(runtime.entropy()).rng());
        runtime.sleep_until(runtime.now() + pause / 2 + rng.up_to(pause / 2)).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay::rt::VirtualTime;
    use forebay::{BoxError, Instant, StoreFuture};
    use parking_lot::Mutex;

    /// A store that is away for so long, and when it was asked.
    struct Away {
        time: VirtualTime,
        until: Instant,
        asked: Mutex<Vec<Instant>>,
    }

    impl Leases for Away {
        fn acquire(&self) -> StoreFuture<'_, Result<LeaseId, LeaseError>> {
            Box::pin(async { Ok(LeaseId::new("lease")) })
        }

        fn release<'a>(&'a self, _: &'a LeaseId) -> StoreFuture<'a, Result<(), BoxError>> {
            self.asked.lock().push(self.time.now());
            let back = self.time.now() >= self.until;
            Box::pin(async move { if back { Ok(()) } else { Err("away".into()) } })
        }
    }

    fn asked() -> Vec<Instant> {
        let time = VirtualTime::new();
        let until = time.now() + Duration::from_secs(600);
        let leases = Arc::new(Away { time: time.clone(), until, asked: Mutex::default() });
        let runtime: Arc<dyn Runtime> = Arc::new(time.clone());
        let lease =
            StandardLease { id: Some(LeaseId::new("lease")), leases: Arc::clone(&leases) as _, runtime };
        drop(lease);
        time.advance(Duration::from_secs(640));
        let asked = leases.asked.lock().clone();
        time.shut_down();
        asked
    }

    #[test]
    fn a_store_that_is_away_is_asked_ever_less_often_and_not_by_all_at_once() {
        let asked = asked();
        let pauses: Vec<Duration> = asked.windows(2).map(|pair| pair[1].since(pair[0])).collect();
        assert!(asked.len() < 50, "{} times in ten minutes", asked.len());
        let (least, most) = (pauses.iter().min().unwrap(), pauses.iter().max().unwrap());
        assert!(*least >= FIRST_PAUSE / 2 && *most <= LONGEST_PAUSE, "{pauses:?}");
        assert!(pauses[8..].iter().any(|pause| *pause != pauses[7]), "no two alike: {pauses:?}");
        let back = asked[0] + Duration::from_secs(600);
        assert!(asked.iter().filter(|at| **at >= back).count() == 1, "and then it is back");
    }
}
