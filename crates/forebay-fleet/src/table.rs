//! The interface to a shared store: items by key, with conditional writes and transactions.

use std::fmt;

use forebay::{BoxError, StoreFuture};

use crate::expression::{Change, Condition};
use crate::item::Item;

/// A store with conditional writes. Each method is one DynamoDB call.
///
/// An implementation makes one attempt per call. Retries would hide whether the first attempt was applied. Timeouts are
/// up to the caller.
pub trait Table: Send + Sync + 'static {
    /// Changes one item, or creates it. Returns what [`Update::returning`] selects.
    ///
    /// # Cancel safety
    /// Not cancel safe: if the future is dropped, the change may have been applied.
    fn update<'a>(&'a self, update: &'a Update) -> StoreFuture<'a, Result<Option<Item>, TableError>>;

    /// Reads one item, including every change that was answered before.
    ///
    /// # Cancel safety
    /// Cancel safe: reading changes nothing.
    fn get<'a>(&'a self, key: &'a str) -> StoreFuture<'a, Result<Option<Item>, TableError>>;

    /// Deletes one item, and returns it if it existed.
    ///
    /// # Cancel safety
    /// As [`update`](Self::update).
    fn delete<'a>(&'a self, delete: &'a Delete) -> StoreFuture<'a, Result<Option<Item>, TableError>>;

    /// Makes all these changes, or none. Repeated calls with the same token make the changes once, for at least ten
    /// minutes. A failure is [`TableError::Cancelled`], with a reason for each change.
    ///
    /// # Cancel safety
    /// As [`update`](Self::update).
    fn transact<'a>(&'a self, writes: &'a [Write], token: &'a str)
    -> StoreFuture<'a, Result<(), TableError>>;

    /// A page of the items whose keys begin with `prefix`, after `after`. For operators: it reads the whole table.
    ///
    /// # Cancel safety
    /// Cancel safe: reading changes nothing.
    fn scan<'a>(
        &'a self,
        prefix: &'a str,
        after: Option<&'a Cursor>,
    ) -> StoreFuture<'a, Result<Page, TableError>>;
}

/// A change of one item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Update {
    /// Its key.
    pub key: String,
    /// The conditions. All must hold.
    pub when: Vec<Condition>,
    /// The changes.
    pub changes: Vec<Change>,
    /// What to return.
    pub returning: Returning,
}

impl Update {
    /// An update of the item at `key`, without changes yet, that returns the new item.
    #[must_use]
    pub fn of(key: impl Into<String>) -> Self {
        Self { key: key.into(), when: Vec::new(), changes: Vec::new(), returning: Returning::New }
    }

    /// Adds a condition.
    #[must_use]
    pub fn when(mut self, condition: Condition) -> Self {
        self.when.push(condition);
        self
    }

    /// Adds a change.
    #[must_use]
    pub fn change(mut self, change: Change) -> Self {
        self.changes.push(change);
        self
    }
}

/// What an update returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Returning {
    /// Nothing.
    Nothing,
    /// The item before the update, if there was one.
    Old,
    /// The item after the update.
    New,
}

/// The deletion of one item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delete {
    /// Its key.
    pub key: String,
    /// The conditions. All must hold.
    pub when: Vec<Condition>,
}

/// One write of a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Write {
    /// Changes an item. Its `returning` is ignored.
    Update(Update),
    /// Replaces an item.
    Put {
        /// Its key.
        key: String,
        /// The new item.
        item: Item,
        /// The conditions on the old item. All must hold.
        when: Vec<Condition>,
    },
    /// Deletes an item.
    Delete(Delete),
}

impl Write {
    /// The key of the item.
    #[must_use]
    pub fn key(&self) -> &str {
        match self {
            Self::Update(update) => &update.key,
            Self::Put { key, .. } => key,
            Self::Delete(delete) => &delete.key,
        }
    }
}

/// One page of a scan.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Page {
    /// Keys and items.
    pub items: Vec<(String, Item)>,
    /// Where the next page begins; none at the end.
    pub next: Option<Cursor>,
}

/// A position in a scan. Its content is defined by the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cursor(pub String);

/// Why a call failed, by what the caller does next.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TableError {
    /// The condition does not hold. Has the item, if there is one, for the next decision.
    #[error("the condition does not hold")]
    ConditionFailed(Option<Box<Item>>),
    /// The transaction was cancelled. Has the reason for each of its changes.
    #[error("the transaction was cancelled: {}", Reasons(.0))]
    Cancelled(Vec<Cancelled>),
    /// A transaction on this item is in progress. Nothing was changed: try again soon.
    #[error("another transaction on this item is in progress")]
    Conflict,
    /// Too many requests. Nothing was changed: try again later.
    #[error("the table is throttled")]
    Throttled,
    /// No answer, or an unclear one. The change may have been applied, or may still be.
    #[error("no answer: {0}")]
    Unknown(#[source] BoxError),
    /// The role lacks a permission: an operator must act.
    #[error("access denied: {0}")]
    Denied(String),
    /// There are no credentials, or they have expired: an operator must act.
    #[error("no valid credentials: {0}")]
    Credentials(String),
    /// There is no such table: an operator must act.
    #[error("no such table: {0}")]
    NoTable(String),
    /// The request does not match the item.
    #[error("invalid request: {0}")]
    Invalid(String),
}

impl TableError {
    /// Whether the change may have been applied, or may still be.
    #[must_use]
    pub fn may_have_been_applied(&self) -> bool {
        matches!(self, Self::Unknown(_))
    }

    /// Whether the store has answered, so that it is available.
    #[must_use]
    pub fn is_an_answer(&self) -> bool {
        match self {
            Self::ConditionFailed(_) | Self::Conflict | Self::Invalid(_) => true,
            Self::Cancelled(reasons) => !reasons.contains(&Cancelled::Throttled),
            Self::Throttled
            | Self::Unknown(_)
            | Self::Denied(_)
            | Self::Credentials(_)
            | Self::NoTable(_) => false,
        }
    }

    /// What an operator must do, if nothing else helps.
    #[must_use]
    pub fn remedy(&self) -> Option<&'static str> {
        match self {
            Self::Denied(_) => Some("grant this role the item actions on the table"),
            Self::Credentials(_) => Some(
                "give this process credentials that are valid now: a role, a profile (AWS_PROFILE), or keys",
            ),
            Self::NoTable(_) => {
                Some("create the table (`forebay lease setup`, `forebay limiter setup`), or correct its name")
            }
            _ => None,
        }
    }
}

/// The reason for one change of a cancelled transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cancelled {
    /// This change was fine.
    Fine,
    /// Its condition does not hold. Has the item, if there is one.
    ConditionFailed(Option<Box<Item>>),
    /// Another transaction on the item is in progress.
    Conflict,
    /// Too many requests.
    Throttled,
}

struct Reasons<'a>(&'a [Cancelled]);

impl fmt::Display for Reasons<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words = self.0.iter().map(|reason| match reason {
            Cancelled::Fine => "fine",
            Cancelled::ConditionFailed(_) => "condition failed",
            Cancelled::Conflict => "conflict",
            Cancelled::Throttled => "throttled",
        });
        f.write_str(&words.collect::<Vec<_>>().join(", "))
    }
}
