//! The seam to a shared store: items by key, changed under conditions, one at a time or a few together.

use std::fmt;

use forebay::{BoxError, StoreFuture};

use crate::expression::{Change, Condition};
use crate::item::Item;

/// A store with conditional writes, shaped like DynamoDB's so that it is one call there.
///
/// An implementation makes one attempt for each call: a client that tries again by itself hides whether the first
/// attempt was applied. How long an answer may take is the caller's to decide.
pub trait Table: Send + Sync + 'static {
    /// Changes one item, and makes it if it is not there; returns what [`Update::returning`] asks for.
    ///
    /// # Cancel safety
    /// A change whose future is dropped may have been applied.
    fn update<'a>(&'a self, update: &'a Update) -> StoreFuture<'a, Result<Option<Item>, TableError>>;

    /// Reads one item, with every change that was answered before.
    ///
    /// # Cancel safety
    /// Reading changes nothing.
    fn get<'a>(&'a self, key: &'a str) -> StoreFuture<'a, Result<Option<Item>, TableError>>;

    /// Deletes one item, if there is one; returns what it was.
    ///
    /// # Cancel safety
    /// As [`update`](Self::update).
    fn delete<'a>(&'a self, delete: &'a Delete) -> StoreFuture<'a, Result<Option<Item>, TableError>>;

    /// Makes all these changes, or none. Changes under the same token are made once, for ten minutes at least, however
    /// often they are asked for. A failure is [`TableError::Cancelled`], with a reason for each change.
    ///
    /// # Cancel safety
    /// As [`update`](Self::update).
    fn transact<'a>(&'a self, writes: &'a [Write], token: &'a str)
    -> StoreFuture<'a, Result<(), TableError>>;

    /// A page of the items whose keys begin with `prefix`, after `after`. For operators: it reads the whole table.
    ///
    /// # Cancel safety
    /// Reading changes nothing.
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
    /// What must hold; all of it.
    pub when: Vec<Condition>,
    /// What to change, all at once.
    pub changes: Vec<Change>,
    /// What to return.
    pub returning: Returning,
}

impl Update {
    /// An update of the item at `key` that changes nothing yet and returns the new item.
    #[must_use]
    pub fn of(key: impl Into<String>) -> Self {
        Self { key: key.into(), when: Vec::new(), changes: Vec::new(), returning: Returning::New }
    }

    /// Only when this holds, too.
    #[must_use]
    pub fn when(mut self, condition: Condition) -> Self {
        self.when.push(condition);
        self
    }

    /// Changes this, too.
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
    /// The item as it was: none, if there was none.
    Old,
    /// The item as it is now.
    New,
}

/// The end of one item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delete {
    /// Its key.
    pub key: String,
    /// What must hold; all of it.
    pub when: Vec<Condition>,
}

/// One change of several that are made together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Write {
    /// Changes an item. Nothing is returned, whatever it asks for.
    Update(Update),
    /// Replaces an item as a whole.
    Put {
        /// Its key.
        key: String,
        /// What it becomes.
        item: Item,
        /// What must hold of what is there; all of it.
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

/// Some items, and where to go on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Page {
    /// Keys and items.
    pub items: Vec<(String, Item)>,
    /// After which key the next page begins; none at the end.
    pub next: Option<Cursor>,
}

/// A place in a scan. What it holds is the table's own affair.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cursor(pub String);

/// Why a call failed, by what the caller does next.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TableError {
    /// The condition does not hold. Here is the item, if there is one: look at it and decide anew.
    #[error("the condition does not hold")]
    ConditionFailed(Option<Box<Item>>),
    /// A transaction was cancelled: why, for each of its changes.
    #[error("the transaction was cancelled: {}", Reasons(.0))]
    Cancelled(Vec<Cancelled>),
    /// A transaction is under way on this item. Nothing was changed: try again soon.
    #[error("another transaction is under way on this item")]
    Conflict,
    /// Too many requests. Nothing was changed: try again later.
    #[error("the table is throttled")]
    Throttled,
    /// No answer, or none that says what happened. It may have been applied, or may yet be.
    #[error("no answer: {0}")]
    Unknown(#[source] BoxError),
    /// The role may not do it: an operator must act.
    #[error("access denied: {0}")]
    Denied(String),
    /// There are no credentials, or they have ended: an operator must act.
    #[error("no valid credentials: {0}")]
    Credentials(String),
    /// There is no such table: an operator must act.
    #[error("no such table: {0}")]
    NoTable(String),
    /// The request makes no sense for this item: it is not what we think it is.
    #[error("invalid request: {0}")]
    Invalid(String),
}

impl TableError {
    /// Whether the change may have been made, now or later.
    #[must_use]
    pub fn may_have_been_applied(&self) -> bool {
        matches!(self, Self::Unknown(_))
    }

    /// Whether this says how things are, rather than that the store could not tell.
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

    /// What an operator must do, if only an operator can help.
    #[must_use]
    pub fn remedy(&self) -> Option<&'static str> {
        match self {
            Self::Denied(_) => Some("grant this role the item actions on the table"),
            Self::Credentials(_) => Some(
                "give this process credentials that are valid now: a role, a profile (AWS_PROFILE), or keys",
            ),
            Self::NoTable(_) => {
                Some("create the table (`forebay lease setup`, `forebay limiter setup`), or mend its name")
            }
            _ => None,
        }
    }
}

/// What became of one change of a transaction that was cancelled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cancelled {
    /// Nothing was wrong with this one.
    Fine,
    /// Its condition does not hold; here is the item, if there is one.
    ConditionFailed(Option<Box<Item>>),
    /// Another transaction is under way on the item.
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
