//! Heartbeats: an entry is renewed, and its slots change in the same write.

use std::time::Duration;

use forebay::Instant;

use super::call::{Call, LedgerEvent};
use super::membership::{FRESH, OwnEntry, next_heartbeat};
use super::shard::{Entry, Shard};
use super::state::LedgerState;

/// How often a lost home is tried before another shard will do.
const RETURNS: u32 = 4;

impl LedgerState {
    /// The next call on the way to a home. An instance that has lost its home returns to it.
    pub(super) fn next_home(&mut self, now: Instant, wall: Duration) -> Call {
        while let Some(before) = self.members.rename_if_taken(&self.watch) {
            let name = self.members.name().to_owned();
            self.events.push(LedgerEvent::Renamed { before, name });
        }
        let missing = self.params.max_open.saturating_sub(self.slots());
        let want = self.shortfall().max(missing);
        if let Some(k) = self.members.former_home().filter(|_| self.calls.lost_joins() < RETURNS) {
            let fresh = self.watch.seen_since(k, now - FRESH);
            return if fresh { self.join(k, want, wall) } else { Call::Look(k) };
        }
        self.members.choose_home(want, (now, wall), &self.params, &self.watch, &mut self.rng)
    }

    pub(super) fn join(&mut self, k: u8, want: u64, wall: Duration) -> Call {
        self.members.join(k, want, wall, &self.params, &self.watch, &mut self.rng)
    }

    /// The heartbeat that is due. Changing slots in the same write costs nothing.
    pub(super) fn next_heartbeat(&mut self, now: Instant, wall: Duration) -> Option<Call> {
        // One or two slots can wait until the next heartbeat.
        let yields = self.excess() >= (self.params.block / 4).max(1);
        let (k, own) = self.members.due(now, yields)?;
        let is_home = self.members.home() == Some(k);
        if is_home && own.due <= now {
            self.fair.lower_cap(self.usage.leases());
        }
        let give = self.surplus(k, &own, now);
        self.usage.heartbeat(give, self.slots(), is_home);
        if is_home {
            self.watch.begin_round(true);
        }
        self.calls.set_giving(give);
        if give == own.entry.slots && self.members.count() > 1 && !is_home {
            return Some(Call::Leave(k, own.entry));
        }
        let may_grow = give == 0 && self.search.is_due(now);
        let more = if may_grow { self.portion(k, self.shortfall()) } else { 0 };
        let slots = own.entry.slots - give + more;
        Some(Call::Renew(k, own.entry, self.renewed_entry(k, &own.entry, slots, now, wall)))
    }

    /// The next state of an entry, with this many slots.
    pub(super) fn renewed_entry(
        &self,
        k: u8,
        entry: &Entry,
        slots: u64,
        now: Instant,
        wall: Duration,
    ) -> Entry {
        let more = slots.saturating_sub(entry.slots);
        let want = if self.members.home() == Some(k) { self.want(now, more) } else { 0 };
        let elsewhere = if want > 0 { self.slots().saturating_sub(entry.slots) } else { 0 };
        Entry { slots, want, elsewhere, heartbeat: next_heartbeat(entry.heartbeat, wall), ..*entry }
    }

    /// Slots to give back: what is above the fair share, or what was not needed since the last heartbeat.
    fn surplus(&self, k: u8, own: &OwnEntry, now: Instant) -> u64 {
        if self.excess() > 0 {
            return self.excess().min(own.entry.slots);
        }
        let tight = self.watch.shard(k).is_some_and(Shard::is_tight);
        let keep = match self.watch.shard(k) {
            // Other instances may wait for every slot.
            Some(shard) if shard.free == 0 || self.fair.cap().is_some() => 0,
            _ if tight => (self.usage.leases() / 20).max(1),
            _ => self.params.block,
        };
        let surplus = self.usage.steady_spare(self.slots()).saturating_sub(keep);
        // A new process is still opening its connections.
        let settled = self.members.age(now) >= self.params.lease;
        let worth_it = settled && (surplus > self.params.block || tight && surplus > 0);
        // Empty the other entries before the home entry: each costs a write per heartbeat.
        let others = self.members.home() == Some(k) && self.members.count() > 1;
        if worth_it && !others { surplus.min(own.entry.slots) } else { 0 }
    }

    /// How many slots to take from shard `k`: whole blocks, but only what is needed where slots are scarce.
    pub(super) fn portion(&self, k: u8, want: u64) -> u64 {
        let Some(shard) = self.watch.shard(k) else { return 0 };
        // An instance far below its fair share will need more soon.
        let is_near = self.fair.cap().is_some_and(|cap| self.slots() * 4 > cap * 3);
        let room = self.members.room(k, &self.watch);
        if shard.is_tight() || is_near {
            return want.min(self.needed_shortfall()).min(room);
        }
        let block = self.params.block.max(1);
        let whole = want.div_ceil(block).saturating_mul(block);
        // The rest of a block above `max_open` would be idle, and other instances may lack it: while a whole fleet joins
        // again, many free slots do not mean plenty.
        let most = self.target().saturating_sub(self.slots()).max(want);
        whole.min(most).min(room)
    }

    /// The time until the next heartbeat of an entry in a shard with `capacity` slots. A new instance that does not use
    /// many of its slots yet writes sooner, because other instances may lack them.
    pub(super) fn heartbeat_delay(&self, lease: Duration, capacity: u64, now: Instant) -> Duration {
        let heartbeat = self.params.heartbeat.min(lease / 3);
        let idle = self.slots().saturating_sub(self.usage.leases());
        let age = self.members.home().map_or(Duration::ZERO, |_| self.members.age(now));
        if idle.saturating_mul(8) > capacity { heartbeat.min(age.max(heartbeat / 6)) } else { heartbeat }
    }
}
