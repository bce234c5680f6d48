//! What can change between two samples of a pool, and the text for it.

use std::time::Duration;

use forebay::{CheckoutFailure, Failure};

use crate::words::{count, duration, many, size};

/// Something that happened between two samples.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// Connections died, or failed their health check.
    Died { count: u64 },
    /// Callers or the connector found connections unusable.
    Bad { count: u64 },
    /// Connections could not be reset.
    ResetFailed { count: u64 },
    /// Connections came too close to their end before they were replaced.
    Expired { count: u64 },
    /// Idle connections were closed.
    Idle { count: u64 },
    /// Connections beyond `max_open` were closed.
    Surplus { count: u64 },
    /// The lease store took leases back.
    Recalled { count: u64 },
    /// Callers took connections out for good.
    Detached { count: u64 },
    /// Missing connections were opened. Replacements of retired ones are routine, and are not told.
    Opened { count: u64 },
    /// Opens failed. `text`: what the last error said, if it is known.
    OpensFailed { count: u64, reason: Failure, text: Option<String> },
    /// Callers waited, because all connections were in use, or because connections were missing.
    Waited { count: u64, all_in_use: bool },
    /// Callers got no connection.
    GaveUp { count: u64, reason: CheckoutFailure },
    /// Fewer connections than the low watermark are usable.
    BelowWatermark { usable: usize, max_open: usize, watermark: usize },
    /// Enough connections are usable again, or for the first time.
    AboveWatermark { usable: usize, after: Duration },
    /// The first fill is done.
    Filled { usable: usize, goal: usize },
    /// All missing connections are there again.
    Refilled { after: Duration },
    /// The server asked for fewer opens.
    Slowed { percent: u8 },
    /// Opens use the whole rate again.
    FullRate,
    /// `max_open` was changed.
    Resized { from: usize, to: usize },
    /// The table of the fleet does not answer.
    StoreOutage,
    /// The table of the fleet answers again.
    StoreBack { after: Duration },
    /// The next token could not be signed.
    TokenFailed,
    /// Tokens are signed again.
    TokenBack,
    /// The pool serves no more callers.
    Draining { in_use: usize },
    /// The pool is closed.
    Closed,
    /// A line of the program's own.
    Note { text: String },
}

impl Change {
    /// Adds `other` to this change if both are of the same kind, and of one that is counted. Returns whether
    /// it did.
    pub(crate) fn absorb(&mut self, other: &Self) -> bool {
        if !self.is_alike(other) {
            return false;
        }
        let mut other = other.clone();
        let (Some(count), Some(more)) = (self.count_mut(), other.count_mut()) else { return false };
        *count += *more;
        if let (Self::OpensFailed { text, .. }, Self::OpensFailed { text: latest @ Some(_), .. }) =
            (self, other)
        {
            *text = latest;
        }
        true
    }

    /// Whether both changes differ only in their numbers.
    fn is_alike(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::OpensFailed { reason: a, .. }, Self::OpensFailed { reason: b, .. }) => a == b,
            (Self::Waited { all_in_use: a, .. }, Self::Waited { all_in_use: b, .. }) => a == b,
            (Self::GaveUp { reason: a, .. }, Self::GaveUp { reason: b, .. }) => a == b,
            _ => std::mem::discriminant(self) == std::mem::discriminant(other),
        }
    }

    fn count_mut(&mut self) -> Option<&mut u64> {
        match self {
            Self::Died { count }
            | Self::Bad { count }
            | Self::ResetFailed { count }
            | Self::Expired { count }
            | Self::Idle { count }
            | Self::Surplus { count }
            | Self::Recalled { count }
            | Self::Detached { count }
            | Self::Opened { count }
            | Self::OpensFailed { count, .. }
            | Self::Waited { count, .. }
            | Self::GaveUp { count, .. } => Some(count),
            _ => None,
        }
    }

    /// How the page marks it: `bad` for trouble, `good` for its end, otherwise empty.
    pub(crate) fn tone(&self) -> &'static str {
        match self {
            Self::Died { .. }
            | Self::Bad { .. }
            | Self::ResetFailed { .. }
            | Self::Expired { .. }
            | Self::Recalled { .. }
            | Self::OpensFailed { .. }
            | Self::GaveUp { .. }
            | Self::BelowWatermark { .. }
            | Self::Slowed { .. }
            | Self::StoreOutage
            | Self::TokenFailed => "bad",
            Self::AboveWatermark { .. }
            | Self::Filled { .. }
            | Self::Refilled { .. }
            | Self::FullRate
            | Self::StoreBack { .. }
            | Self::TokenBack => "good",
            _ => "",
        }
    }

    /// The line on the page.
    pub(crate) fn text(&self) -> String {
        let connections = |number: &u64| many(*number, "connection");
        match self {
            Self::Died { count } => format!("{} died", connections(count)),
            Self::Bad { count } => format!("{} found unusable", connections(count)),
            Self::ResetFailed { count } => format!("{} could not be reset", connections(count)),
            Self::Expired { count } => {
                format!("{} expired before a replacement was there", connections(count))
            }
            Self::Idle { count } => format!("closed {} after idle time", connections(count)),
            Self::Surplus { count } => format!("closed {} too many", connections(count)),
            Self::Recalled { count } => format!("{} closed: the lease was recalled", connections(count)),
            Self::Detached { count } => format!("{} taken out by callers", connections(count)),
            Self::Opened { count } => format!("opened {}", connections(count)),
            Self::OpensFailed { count, reason, text } => {
                let opens = many(*count, "open");
                match text {
                    Some(text) => format!("{opens} failed: {text}"),
                    None => format!("{opens} failed: {reason}"),
                }
            }
            Self::Waited { count, all_in_use: true } => {
                format!("{} waited: all connections were in use", many(*count, "caller"))
            }
            Self::Waited { count, all_in_use: false } => {
                format!("{} waited: connections were missing", many(*count, "caller"))
            }
            Self::GaveUp { count, reason } => format!("{} gave up: {reason}", many(*count, "caller")),
            Self::BelowWatermark { usable, max_open, watermark } => format!(
                "below the low watermark of {}: {} of {} usable",
                size(*watermark),
                size(*usable),
                size(*max_open)
            ),
            Self::AboveWatermark { usable, after } => {
                format!("above the low watermark after {}: {} usable", duration(*after), size(*usable))
            }
            Self::Filled { usable, goal } => format!("filled: {} of {} usable", size(*usable), size(*goal)),
            Self::Refilled { after } => format!("refilled after {}", duration(*after)),
            Self::Slowed { percent } => {
                format!("the server asked for fewer opens: {percent} % of the rate is used")
            }
            Self::FullRate => "opens use the whole rate again".into(),
            Self::Resized { from, to } => format!("max_open changed from {} to {}", size(*from), size(*to)),
            Self::StoreOutage => "the fleet's table does not answer".into(),
            Self::StoreBack { after } => {
                format!("the fleet's table answers again after {}", duration(*after))
            }
            Self::TokenFailed => "the next token could not be signed".into(),
            Self::TokenBack => "tokens are signed again".into(),
            Self::Draining { in_use: 0 } => "draining".into(),
            Self::Draining { in_use } => format!("draining: {} still in use", count(*in_use as u64)),
            Self::Closed => "closed".into(),
            Self::Note { text } => text.clone(),
        }
    }
}
