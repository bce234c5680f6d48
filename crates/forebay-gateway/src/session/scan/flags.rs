//! What a statement does, apart from what it leaves in the session.

/// One or more of them; of a text, those of all its statements.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::session) struct Flags(u8);

impl Flags {
    /// It may change data, so that a lost connection leaves its outcome unknown.
    pub(in crate::session) const WRITES: Self = Self(1);
    /// It may change settings in a way that was not understood.
    pub(in crate::session) const UNSURE: Self = Self(2);
    /// It asks for the last value of a sequence.
    pub(in crate::session) const READS_SEQUENCE: Self = Self(4);
    /// It ends a transaction block with a commit, unless it fails.
    pub(in crate::session) const COMMITS: Self = Self(8);
    /// It ends a transaction block with a rollback.
    pub(in crate::session) const ROLLS_BACK: Self = Self(16);
    /// It may change the schema, of which other backends hear as a conflict.
    pub(in crate::session) const SCHEMA: Self = Self(32);
    pub(super) const CHANGES_SCHEMA: Self = Self(Self::WRITES.0 | Self::SCHEMA.0);

    pub(in crate::session) const fn has(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    pub(in crate::session) const fn add(&mut self, other: Self) {
        self.0 |= other.0;
    }
}
