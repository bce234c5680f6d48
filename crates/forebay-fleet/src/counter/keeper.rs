//! The task that renews leases: their items must exist while their connections live.

use std::sync::Arc;

use forebay::Instant;
use forebay::rt;

use super::claim::{Refusal, refusal};
use super::{CONFLICT, Counted, Counter, RENEW, items, key};
use crate::item::Item;
use crate::metrics::number;
use crate::params::LeaseParams;
use crate::table::{Cancelled, TableError, Write};

impl Counter {
    /// Renews leases, counts those granted during an outage, releases doubtful ones, and reads the counter.
    pub(super) async fn keep(self: Arc<Self>) {
        let mut look_at = self.now();
        loop {
            let now = self.now();
            let (due, doubtful, paused_until, done) = {
                let state = self.state.lock();
                let due = state.leases.iter().min_by_key(|(_, lease)| lease.renew_at);
                let due = due.map(|(id, lease)| (lease.renew_at, id.clone()));
                let doubtful = state.doubtful.iter().map(|(id, at)| (*at, id.clone())).min();
                let done = state.leaving && due.is_none() && doubtful.is_none();
                (due, doubtful, state.paused_until, done)
            };
            if done {
                self.left.send_replace(true);
                return;
            }
            if now < paused_until {
                self.rest(paused_until).await;
            } else if let Some((_, id)) = due.as_ref().filter(|(at, _)| *at <= now) {
                self.renew(id).await;
            } else if let Some((_, id)) = doubtful.as_ref().filter(|(at, _)| *at <= now) {
                self.release_doubtful(id).await;
            } else if look_at <= now {
                look_at = now + self.params.heartbeat;
                self.look().await;
            } else {
                let at = |next: Option<(Instant, String)>| next.map_or(Instant::NEVER, |(at, _)| at);
                self.rest(at(due).min(at(doubtful)).min(look_at)).await;
            }
        }
    }

    async fn rest(&self, until: Instant) {
        rt::within(&*self.store.runtime, until.since(self.now()), self.wake.notified()).await;
    }

    /// Renews a lease, or counts it first.
    async fn renew(&self, id: &str) {
        let made = match self.begin_to_count(id) {
            Some(writes) => {
                let outcome = self.transact("acquire", &writes, &format!("l{}", &id[..30])).await;
                match outcome {
                    Ok(()) => true,
                    Err(error) => matches!(refusal(&error), Some(Refusal::AlreadyMade)),
                }
            }
            None => self.renew_item(id).await,
        };
        let now = self.now();
        let mut state = self.state.lock();
        if let Some(lease) = state.leases.get_mut(id) {
            lease.renew_at = now + if made { RENEW } else { CONFLICT.1 };
            if made && !matches!(lease.counted, Counted::Yes) {
                // The item has the time of the first attempt. If that was long ago, it looks expired.
                (lease.counted, lease.renew_at) = (Counted::Yes, now);
            }
        }
        self.store.telemetry.heartbeats.increment(u64::from(made));
    }

    /// The writes that count a lease, if it may not be counted.
    fn begin_to_count(&self, id: &str) -> Option<Arc<[Write]>> {
        let LeaseParams { endpoint, service, .. } = &self.params;
        let wall = self.store.runtime.wall();
        let mut state = self.state.lock();
        let lease = state.leases.get_mut(id)?;
        if matches!(lease.counted, Counted::No) {
            lease.counted = Counted::Unknown(items::acquire(endpoint, id, service, None, wall).into());
        }
        match &lease.counted {
            Counted::Unknown(writes) => Some(Arc::clone(writes)),
            Counted::No | Counted::Yes => None,
        }
    }

    async fn renew_item(&self, id: &str) -> bool {
        let LeaseParams { endpoint, service, .. } = &self.params;
        let wall = self.store.runtime.wall();
        let mut outcome = self.store.update("renew", &items::renew(endpoint, id, wall)).await;
        let is_held = || self.state.lock().leases.get(id).is_some_and(|lease| lease.release.is_none());
        if matches!(outcome, Err(TableError::ConditionFailed(None))) && is_held() {
            outcome = self.store.update("renew", &items::restore(endpoint, id, service, wall)).await;
        }
        self.note(&outcome);
        outcome.is_ok()
    }

    /// Releases a lease that may never have been granted.
    async fn release_doubtful(&self, id: &str) {
        let writes = items::release(&self.params.endpoint, id, self.store.runtime.wall());
        // A new token for each attempt. The condition on the item keeps it from being released twice.
        let token = format!("d{:016x}", self.state.lock().rng.bits());
        let outcome = self.transact("release", &writes, &token).await;
        let settled = match &outcome {
            Ok(()) => true,
            Err(TableError::Cancelled(reasons)) => !reasons.contains(&Cancelled::Conflict),
            Err(_) => false,
        };
        let mut state = self.state.lock();
        if settled {
            state.doubtful.remove(id);
        } else {
            state.doubtful.insert(id.to_owned(), self.now() + CONFLICT.1);
        }
    }

    async fn look(&self) {
        let outcome = self.store.get("look", &key(&self.params.endpoint)).await;
        self.note(&outcome);
        let Ok(item) = outcome else { return };
        let active = item.as_ref().and_then(|item| item.number("active")).unwrap_or(0);
        let active = u64::try_from(active).unwrap_or(0);
        self.state.lock().active = active;
        self.store.telemetry.active.set(number(active));
        if let Some(item) = item {
            self.touch(&item).await;
        }
    }

    /// Writes the counter's time at least every half lease while leases are held, so that the counter does not look
    /// unused when no lease is taken or released.
    async fn touch(&self, counter: &Item) {
        let wall = self.store.runtime.wall();
        let quiet = (self.params.lease / 2).saturating_sub(self.params.heartbeat);
        let is_counted = self.state.lock().leases.values().any(|lease| matches!(lease.counted, Counted::Yes));
        if is_counted && !items::is_in_use(counter, wall, quiet) {
            let touch = items::touch(&self.params.endpoint, counter, wall);
            let outcome = self.store.update("touch", &touch).await;
            self.note(&outcome);
        }
    }
}
