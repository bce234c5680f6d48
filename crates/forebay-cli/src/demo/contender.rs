//! The contenders: who plays, in the order in which everything shows them.

use super::{fleet, plain};

/// A kind of pool. Each has a side of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Contender {
    Deadpool,
    /// It is a feature of this command: with it, a first build takes longer.
    #[cfg(feature = "sqlx")]
    Sqlx,
    Reservoir,
}

impl Contender {
    #[cfg(feature = "sqlx")]
    pub(super) const ALL: [Self; 3] = [Self::Deadpool, Self::Sqlx, Self::Reservoir];
    #[cfg(not(feature = "sqlx"))]
    pub(super) const ALL: [Self; 2] = [Self::Deadpool, Self::Reservoir];

    /// What people call it, with its version.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Deadpool => "deadpool 0.13",
            #[cfg(feature = "sqlx")]
            Self::Sqlx => "sqlx 0.9",
            Self::Reservoir => "forebay",
        }
    }

    /// The same without the version, for a narrow column.
    pub(super) const fn short_name(self) -> &'static str {
        match self {
            Self::Deadpool => "deadpool",
            #[cfg(feature = "sqlx")]
            Self::Sqlx => "sqlx",
            Self::Reservoir => "forebay",
        }
    }

    /// For records.
    pub(super) const fn word(self) -> &'static str {
        match self {
            Self::Deadpool => "deadpool",
            #[cfg(feature = "sqlx")]
            Self::Sqlx => "sqlx",
            Self::Reservoir => "reservoir",
        }
    }

    /// How it is set up, in words.
    pub(super) fn settings(self) -> Vec<(&'static str, String)> {
        match self {
            Self::Deadpool => plain::settings(),
            #[cfg(feature = "sqlx")]
            Self::Sqlx => super::sqlx_pool::settings(),
            Self::Reservoir => fleet::settings(),
        }
    }
}

/// How many there are.
pub(super) const SIDES: usize = Contender::ALL.len();
