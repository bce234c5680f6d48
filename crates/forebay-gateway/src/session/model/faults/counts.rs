//! How often each thing was done, and what came of it.

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts {
    pub(super) cuts: u64,
    pub(super) fatal: u64,
    pub(super) cancels: u64,
    pub(super) half_sent: u64,
    pub(super) nothing_running: u64,
    pub(super) hang_ups: u64,
    pub(super) lingered: u64,
    pub(super) passed_on: u64,
    pub(super) refused: u64,
    pub(super) conflicts: u64,
    pub(super) own_changes: u64,
    pub(super) replaced: u64,
    pub(super) ahead: u64,
    pub(super) drains: u64,
    pub(super) dismissed: u64,
    pub(super) all_at_once: u64,
    pub(super) ended: u64,
    pub(super) values: u64,
}

impl Counts {
    pub(super) fn add(&mut self, other: &Self) {
        let pairs = [
            (&mut self.cuts, other.cuts),
            (&mut self.fatal, other.fatal),
            (&mut self.cancels, other.cancels),
            (&mut self.half_sent, other.half_sent),
            (&mut self.nothing_running, other.nothing_running),
            (&mut self.hang_ups, other.hang_ups),
            (&mut self.lingered, other.lingered),
            (&mut self.passed_on, other.passed_on),
            (&mut self.refused, other.refused),
            (&mut self.conflicts, other.conflicts),
            (&mut self.own_changes, other.own_changes),
            (&mut self.replaced, other.replaced),
            (&mut self.ahead, other.ahead),
            (&mut self.drains, other.drains),
            (&mut self.dismissed, other.dismissed),
            (&mut self.all_at_once, other.all_at_once),
            (&mut self.ended, other.ended),
            (&mut self.values, other.values),
        ];
        for (own, other) in pairs {
            *own += other;
        }
    }
}
