//! The task that keeps leases: theirs is an item each, which must not vanish while its connection lives.

use std::pin::pin;
use std::sync::Arc;

use forebay::Instant;
use forebay::rt;

use super::claim::{Refusal, refusal};
use super::{CONFLICT, Count, Counter, RENEW, items, key};
use crate::item::Item;
use crate::metrics::number;
use crate::table::{Cancelled, TableError, Write};

impl Counter {
    /// Renews, counts what was taken while the table was away, gives back what nobody waited for, and looks at the count.
    pub(super) async fn keep(self: Arc<Self>) {
        let mut look_at = self.now();
        loop {
            let now = self.now();
            let (due, paused_until, done) = {
                let state = self.state.lock();
                let due = state.held.iter().min_by_key(|(_, held)| held.renew_at);
                let done = state.leaving && state.held.is_empty() && state.doubtful.is_empty();
                (due.map(|(id, held)| (id.clone(), held.renew_at)), state.paused_until, done)
            };
            if done {
                self.left.send_replace(true);
                return;
            }
            let doubtful = self.state.lock().doubtful.iter().map(|(id, at)| (*at, id.clone())).min();
            if now < paused_until {
                self.rest(paused_until).await;
            } else if let Some((id, _)) = due.clone().filter(|(_, at)| *at <= now) {
                self.renew(&id).await;
            } else if let Some((_, id)) = doubtful.clone().filter(|(at, _)| *at <= now) {
                self.settle(&id).await;
            } else if look_at <= now {
                look_at = now + self.rules.beat;
                self.look().await;
            } else {
                let due = due.map_or(Instant::NEVER, |(_, at)| at);
                let doubtful = doubtful.map_or(Instant::NEVER, |(at, _)| at);
                self.rest(due.min(doubtful).min(look_at)).await;
            }
        }
    }

    async fn rest(&self, until: Instant) {
        let nudged = pin!(self.nudged.notified());
        rt::within(&*self.store.runtime, until.since(self.now()), nudged).await;
    }

    /// Says that the holder of a lease lives, or counts it first.
    async fn renew(&self, id: &str) {
        let made = match self.begin_to_count(id) {
            Some(writes) => {
                let outcome = self.transact("acquire", &writes, &format!("l{}", &id[..30])).await;
                outcome.as_ref().is_ok()
                    || outcome.is_err_and(|error| matches!(refusal(&error), Some(Refusal::Made)))
            }
            None => self.say_it_lives(id).await,
        };
        let now = self.now();
        let mut state = self.state.lock();
        if let Some(held) = state.held.get_mut(id) {
            held.renew_at = now + if made { RENEW } else { CONFLICT.1 };
            if made && !matches!(held.count, Count::Surely) {
                // Its item shows when it was first tried, and seems to have ended if that was long ago.
                (held.count, held.renew_at) = (Count::Surely, now);
            }
        }
        self.store.telemetry.beats.increment(u64::from(made));
    }

    /// What counts a lease, if it is not surely counted: from now on it may be.
    fn begin_to_count(&self, id: &str) -> Option<Arc<[Write]>> {
        let (endpoint, service, wall) =
            (&*self.rules.endpoint, &*self.rules.service, self.store.runtime.wall());
        let mut state = self.state.lock();
        let held = state.held.get_mut(id)?;
        if matches!(held.count, Count::Not) {
            held.count = Count::Perhaps(items::acquire(endpoint, id, service, None, wall).into());
        }
        match &held.count {
            Count::Perhaps(writes) => Some(Arc::clone(writes)),
            Count::Not | Count::Surely => None,
        }
    }

    async fn say_it_lives(&self, id: &str) -> bool {
        let (endpoint, service, wall) =
            (&*self.rules.endpoint, &*self.rules.service, self.store.runtime.wall());
        let mut outcome = self.store.update("renew", &items::renew(endpoint, id, wall)).await;
        if matches!(outcome, Err(TableError::ConditionFailed(None))) && self.is_held(id) {
            outcome = self.store.update("renew", &items::restore(endpoint, id, service, wall)).await;
        }
        self.heard(&outcome);
        outcome.is_ok()
    }

    fn is_held(&self, id: &str) -> bool {
        self.state.lock().held.get(id).is_some_and(|held| held.release.is_none())
    }

    /// Gives back a lease that may never have been taken.
    async fn settle(&self, id: &str) {
        let writes = items::release(&self.rules.endpoint, id, self.store.runtime.wall());
        // A token for each try: that there is an item is what keeps this from being done twice.
        let token = format!("d{:016x}", self.state.lock().rng.bits());
        let outcome = self.transact("release", &writes, &token).await;
        let mut state = self.state.lock();
        match outcome {
            Err(TableError::Cancelled(reasons)) if !reasons.contains(&Cancelled::Conflict) => {
                state.doubtful.remove(id);
            }
            Ok(()) => {
                state.doubtful.remove(id);
            }
            Err(_) => {
                let again = self.now() + CONFLICT.1;
                state.doubtful.insert(id.to_owned(), again);
            }
        }
    }

    async fn look(&self) {
        let outcome = self.store.get("look", &key(&self.rules.endpoint)).await;
        self.heard(&outcome);
        let Ok(item) = outcome else { return };
        let active = item.as_ref().and_then(|item| item.number("active")).unwrap_or(0);
        let active = u64::try_from(active).unwrap_or(0);
        self.state.lock().active = active;
        self.store.telemetry.active.set(number(active));
        if let Some(item) = item {
            self.touch(&item).await;
        }
    }

    /// A counter of leases that are held and neither taken nor given back must not look like one that nobody uses. One of those who
    /// look says so, at least each half lease.
    async fn touch(&self, counter: &Item) {
        let wall = self.store.runtime.wall();
        let quiet = (self.rules.lease / 2).saturating_sub(self.rules.beat);
        let holds = self.state.lock().held.values().any(|held| matches!(held.count, Count::Surely));
        if holds && !items::is_in_use(counter, wall, quiet) {
            let touch = items::touch(&self.rules.endpoint, counter, wall);
            let outcome = self.store.update("touch", &touch).await;
            self.heard(&outcome);
        }
    }
}
