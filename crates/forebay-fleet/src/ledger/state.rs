//! The ledger of one instance: what it holds, what it has lent, what it waits for.
//!
//! [`LedgerState`] is a pure state machine. [`next`](LedgerState::next) returns the next action,
//! [`answer`](LedgerState::answer) takes its result, and the other methods serve callers. It has no clock, no I/O and
//! no randomness of its own. Each part owns its fields; this file only decides which part is next.

use std::time::Duration;

use forebay::{Instant, Rng};

use super::call::{AcquireOutcome, Action, Call, Events, LedgerEvent, Request};
use super::fair_share::FairShare;
use super::membership::Membership;
use super::neighbour_watch::NeighbourWatch;
use super::outstanding::OutstandingCalls;
use super::search::SlotSearch;
use super::usage::Usage;
use crate::counter;
use crate::item::Item;
use crate::name::Name;
use crate::params::LeaseParams;
use crate::settings::StoreOutagePolicy;
use crate::table::TableError;

/// The ledger of one instance.
#[derive(Debug)]
pub(crate) struct LedgerState {
    pub(super) params: LeaseParams,
    pub(super) members: Membership,
    pub(super) usage: Usage,
    pub(super) search: SlotSearch,
    pub(super) fair: FairShare,
    pub(super) watch: NeighbourWatch,
    pub(super) calls: OutstandingCalls,
    pub(super) events: Events,
    pub(super) rng: Rng,
}

impl LedgerState {
    pub(crate) fn new(params: LeaseParams, name: Name, mut rng: Rng) -> Self {
        Self {
            members: Membership::new(name, params.max_open),
            usage: Usage::default(),
            search: SlotSearch::default(),
            fair: FairShare::default(),
            watch: NeighbourWatch::new(&mut rng),
            calls: OutstandingCalls::default(),
            events: Events::default(),
            params,
            rng,
        }
    }

    /// The action to take at `now`; `wall` is the time of day.
    pub(crate) fn next(&mut self, now: Instant, wall: Duration) -> Action {
        let action = self.next_action(now, wall);
        if let Action::Call(call) = &action {
            self.members.sends(call);
        }
        action
    }

    fn next_action(&mut self, now: Instant, wall: Duration) -> Action {
        let leaving = self.members.is_leaving();
        // Slots are given back after the last lease is returned.
        let left = leaving && self.usage.leases() == 0 && self.calls.unanswered().is_none();
        let leave = self.members.next_leave();
        if left && leave.is_none() {
            return Action::Left;
        }
        if now < self.calls.paused_until() {
            return Action::Wait(self.calls.paused_until());
        }
        if let Some(call) = leave.filter(|_| left) {
            return Action::Call(call);
        }
        let retry = self.calls.unanswered().or_else(|| self.members.unanswered());
        if let Some(call) = retry.or_else(|| self.next_heartbeat(now, wall)) {
            return Action::Call(call);
        }
        let due = self.members.next_due();
        let home = match self.members.home() {
            Some(home) => home,
            None if leaving => return Action::Wait(due),
            None => return Action::Call(self.next_home(now, wall)),
        };
        if let Some(call) = self.next_search(now, wall) {
            return Action::Call(call);
        }
        let (beat, entries, scarce) = (self.params.heartbeat, self.members.count(), self.is_scarce(now));
        let check = if leaving { Instant::NEVER } else { self.fair.next_check(beat) };
        let call = self.watch.next_write(leaving).or_else(|| self.watch.recheck(home, check <= now));
        if let Some(call) = call.or_else(|| self.watch.next_look(home, now, beat, entries, scarce)) {
            return Action::Call(call);
        }
        if self.watch.end_round() {
            self.compare(now);
            return self.next_action(now, wall);
        }
        let search = if self.searches() { self.search.next_at() } else { Instant::NEVER };
        Action::Wait(due.min(search).min(check))
    }

    /// Takes the result of `call`, which was sent at `sent` and answered at `now`.
    pub(crate) fn answer(
        &mut self,
        call: &Call,
        sent: Instant,
        now: Instant,
        wall: Duration,
        outcome: Result<Option<Item>, TableError>,
    ) {
        self.calls.set_giving(0);
        let outcome = match outcome {
            Ok(item) => Ok(item),
            Err(TableError::ConditionFailed(item)) => Err(item.map(|item| *item)),
            Err(error) => return self.unanswered(call, sent, now, &error),
        };
        self.calls.answered(now);
        match call {
            Call::Look(k) | Call::Create(k) => {
                self.saw(*k, outcome.unwrap_or_else(|found| found).as_ref(), now);
            }
            Call::LookForCounter => {
                let counter = outcome.unwrap_or(None);
                if counter.is_some_and(|item| counter::is_in_use(&item, wall, self.params.lease)) {
                    self.events.push_once(0, LedgerEvent::CounterInUse);
                }
            }
            Call::Join(k, entry) => self.joined(*k, entry, sent, now, outcome),
            Call::Renew(k, before, after) => self.renewed(*k, before, after, sent, now, outcome),
            Call::Leave(k, entry) => self.left(*k, entry, now, outcome),
            Call::Reap(k, id, entry) => match outcome {
                Ok(item) => {
                    self.events.push(LedgerEvent::Reaped { id: id.clone(), slots: entry.slots });
                    self.saw(*k, item.as_ref(), now);
                }
                Err(item) => self.lost_race(*k, item.as_ref(), now),
            },
        }
    }

    // For callers.

    /// Takes a lease. `round` is what [`wait`](Self::wait) returned, if the caller has waited; with a lease, it no
    /// longer counts as waiting.
    pub(crate) fn acquire(&mut self, now: Instant, round: Option<u64>) -> AcquireOutcome {
        if self.members.is_leaving() {
            return AcquireOutcome::Unavailable("this process is leaving the fleet");
        }
        let outage = self.calls.outage().is_active();
        if outage && self.params.policy != StoreOutagePolicy::Local {
            return AcquireOutcome::Unavailable(
                "the table is unavailable, and the policy is to open nothing until it is back",
            );
        }
        let leases = self.usage.leases();
        if leases < self.max_leases(now) {
            return AcquireOutcome::Lease(self.usage.lend(round.is_some(), self.slots()));
        }
        if outage {
            return AcquireOutcome::Unavailable("the table is unavailable, and every slot is in use");
        }
        let refused = match self.fair.cap() {
            Some(cap) if leases >= cap => AcquireOutcome::ShareReached(cap),
            _ if self.search.is_over(round, now) => AcquireOutcome::LimitReached,
            _ => return AcquireOutcome::Wait,
        };
        self.fair.starved(now);
        refused
    }

    /// One caller more waits, or one less. Returns the number of searches that have ended.
    pub(crate) fn wait(&mut self, one_more: bool) -> u64 {
        self.usage.wait(one_more, self.slots());
        self.search.rounds()
    }

    /// Starts to give every entry back.
    pub(crate) fn leave(&mut self) {
        self.members.leave();
        self.calls.resume();
    }

    /// Slots that no pending write may have given back.
    pub(crate) fn slots(&self) -> u64 {
        self.members.slots().saturating_sub(self.calls.giving())
    }

    /// The most leases at once.
    pub(crate) fn max_leases(&self, now: Instant) -> u64 {
        match self.params.policy {
            StoreOutagePolicy::Strict => self.ceiling(now),
            // Without an entry and without the table, this instance can only count for itself.
            StoreOutagePolicy::Local if self.members.home().is_none() && self.calls.outage().is_active() => {
                self.members.offline_slots()
            }
            _ => self.slots(),
        }
        .min(self.cap())
    }

    /// The most connections that may stay open: with `strict`, those whose slots cannot be taken away yet.
    pub(crate) fn ceiling(&self, now: Instant) -> u64 {
        if self.params.policy != StoreOutagePolicy::Strict {
            return u64::MAX;
        }
        self.members.safe_slots(now).saturating_sub(self.calls.giving())
    }

    /// When the ceiling falls next, unless an entry is renewed first.
    pub(crate) fn next_fall(&self, now: Instant) -> Instant {
        if self.params.policy == StoreOutagePolicy::Strict {
            self.members.next_end(now)
        } else {
            Instant::NEVER
        }
    }

    /// The request that makes `call`.
    pub(crate) fn request(&self, call: &Call) -> Request {
        call.request(&self.params, self.members.name())
    }

    /// Slots in use in the whole fleet, and all slots, as last seen.
    pub(crate) fn totals(&self) -> (u64, u64) {
        self.watch.totals(self.params.limit)
    }

    // For the parts, where a value needs more than one of them.

    /// The fair share that limits this instance, or no limit.
    pub(super) fn cap(&self) -> u64 {
        self.fair.cap().unwrap_or(u64::MAX)
    }

    /// The most slots this instance should hold.
    pub(super) fn target(&self) -> u64 {
        self.params.max_open.min(self.cap())
    }

    /// Slots that are missing for leases and waiting callers.
    pub(super) fn shortfall(&self) -> u64 {
        self.usage.shortfall(self.slots(), self.cap())
    }

    /// The part of the shortfall below `max_open`. Only this part is worth a search or slots of others.
    pub(super) fn needed_shortfall(&self) -> u64 {
        self.usage.shortfall(self.slots(), self.target())
    }

    /// Slots above the fair share that no lease uses.
    pub(super) fn excess(&self) -> u64 {
        self.slots().saturating_sub(self.cap().max(self.usage.leases()))
    }

    /// How many more slots to ask for in the entry, once `more` are added.
    pub(super) fn want(&self, now: Instant, more: u64) -> u64 {
        self.fair.want(now, self.slots() + more, self.params.max_open)
    }

    /// Whether an instance lacks slots. Then every instance reads all shards at each heartbeat, so that all compute the
    /// same fair share.
    fn is_scarce(&self, now: Instant) -> bool {
        self.fair.cap().is_some() || self.watch.has_want_since(now - self.params.heartbeat * 2)
    }

    /// Computes the fair share from the shards of this round.
    fn compare(&mut self, now: Instant) {
        let beat = self.params.heartbeat;
        let seen = self.watch.demands(now - (beat / 6).max(Duration::from_secs(1)), beat);
        let is_new = self.members.age(now) < self.params.lease;
        self.fair.compare(now, seen, is_new, self.usage.leases());
    }
}
