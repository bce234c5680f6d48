//! What was sent to the backend and is not answered yet, in order.

use std::collections::VecDeque;
use std::sync::Arc;

use super::answer::Step;
use super::scan::Flags;
use super::statements::{Change, Statement, Statements};

/// A request, and what its answer needs to be understood. Those of the client come first, then those of the gateway, whose answers are swallowed.
#[derive(Debug)]
pub(super) enum Request {
    /// A Query that leaves nothing in the session.
    Query(Flags),
    /// A Query, statement by statement.
    Batch(Box<Batch>),
    Parse(Box<Change>),
    Bind,
    DescribeStatement(Option<Arc<Statement>>),
    DescribePortal(Option<Arc<Statement>>),
    /// The statement is there if its execution leaves something in the session.
    Execute(Flags, Option<Arc<Statement>>),
    Close(Option<Box<Change>>),
    Sync,
    FunctionCall,
    /// CopyDone or CopyFail: it has no answer of its own.
    CopyEnd,
    /// A Query behind it removes the unnamed statement, unless the server skips it. It has no answer.
    Forgets(Box<Change>),
    /// Parse of a statement that the client has and the backend lacks. If it fails, the error is the client's.
    OurParse(Box<Change>),
    /// Describe of such a statement: is it still what the client has seen?
    OurDescribe(Arc<Statement>),
    OurClose(Option<Box<Change>>),
    /// The Sync behind a statement that was prepared ahead.
    OurSync,
    /// Something that the server refuses. The client gets another error.
    OurRefusal(Box<crate::protocol::ServerError>),
    /// An extended request for a setting: it is answered by a frame of this type.
    OurSetting(u8),
    /// A Query that restores settings, and how often it was sent.
    OurRestore(u8),
    /// A Query that reads settings.
    OurReading,
    /// A Query that ends a transaction block, or begins one again.
    OurBlock,
}

/// The statements of a Query and how far the server is with them.
#[derive(Debug)]
pub(super) struct Batch {
    pub(super) steps: Vec<Step>,
    pub(super) at: usize,
    pub(super) flags: Flags,
}

impl Request {
    /// Whether its answer ends with ReadyForQuery.
    pub(super) const fn ends_with_ready(&self) -> bool {
        matches!(
            self,
            Self::Query(_)
                | Self::Batch(_)
                | Self::Sync
                | Self::FunctionCall
                | Self::OurSync
                | Self::OurRestore(_)
                | Self::OurReading
                | Self::OurBlock
        )
    }

    /// Whether it ends a segment of the client.
    pub(super) const fn ends_segment(&self) -> bool {
        matches!(self, Self::Query(_) | Self::Batch(_) | Self::Sync | Self::FunctionCall)
    }

    /// Whether the gateway sent it for itself.
    pub(super) const fn is_ours(&self) -> bool {
        matches!(
            self,
            Self::OurParse(_)
                | Self::OurDescribe(_)
                | Self::OurClose(_)
                | Self::OurSync
                | Self::OurRefusal(_)
                | Self::OurSetting(_)
                | Self::OurRestore(_)
                | Self::OurReading
                | Self::OurBlock
        )
    }

    /// How many bytes it keeps, roughly: of what it changes, in case that the server skips it, and of what its answer is understood by.
    fn kept(&self) -> usize {
        let change = match self {
            Self::Parse(change) | Self::OurParse(change) | Self::Forgets(change) => change,
            Self::Close(Some(change)) | Self::OurClose(Some(change)) => change,
            Self::Execute(_, Some(statement)) | Self::DescribePortal(Some(statement)) => {
                return statement.size_at_first();
            }
            Self::Batch(batch) => return batch.steps.capacity() * size_of::<Step>(),
            _ => return 0,
        };
        change.name.len() + change.before.statement.as_ref().map_or(0, |statement| statement.size_at_first())
    }

    fn change(&mut self) -> Option<&mut Change> {
        match self {
            Self::Parse(change)
            | Self::OurParse(change)
            | Self::Forgets(change)
            | Self::Close(Some(change))
            | Self::OurClose(Some(change)) => Some(change),
            _ => None,
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct Requests {
    queue: VecDeque<Request>,
    /// How many of the client's end a segment.
    segments: u64,
    /// How many bytes they keep, roughly. Some of it may be gone already.
    kept: usize,
}

/// What an idle session keeps.
const KEPT: usize = 8;

impl Requests {
    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.queue.len()
    }

    /// How many segments of the client are unanswered, apart from one that has no end yet.
    pub(super) const fn segments(&self) -> u64 {
        self.segments
    }

    /// Whether they are one segment of the client, with nothing behind it.
    pub(super) fn are_one_segment(&self) -> bool {
        self.segments == 1 && self.queue.back().is_some_and(Request::ends_segment)
    }

    /// Whether they prepare statements that the client has not asked for yet.
    pub(super) fn are_ahead(&self) -> bool {
        self.queue.iter().any(|request| matches!(request, Request::OurSync))
    }

    /// Whether the last one is an extended request, behind which no Sync was sent.
    pub(super) fn end_without_sync(&self) -> bool {
        let last = self
            .queue
            .iter()
            .rev()
            .find(|request| !matches!(request, Request::CopyEnd | Request::Forgets(_)));
        last.is_some_and(|request| !request.ends_with_ready())
    }

    pub(super) fn push(&mut self, request: Request) {
        self.segments += u64::from(request.ends_segment());
        self.kept += request.kept();
        self.queue.push_back(request);
    }

    /// Whether they keep more bytes than this, roughly.
    pub(super) fn keep_more_than(&mut self, limit: usize) -> bool {
        if self.kept > limit {
            self.count_kept();
        }
        self.kept > limit
    }

    /// How many bytes they keep at most, roughly.
    #[cfg(test)]
    pub(super) const fn kept(&self) -> usize {
        self.kept
    }

    /// Changes have moved, or answers have taken something.
    fn count_kept(&mut self) {
        self.kept = self.queue.iter().map(Request::kept).sum();
    }

    pub(super) fn first(&self) -> Option<&Request> {
        self.queue.front()
    }

    pub(super) fn first_mut(&mut self) -> Option<&mut Request> {
        self.queue.front_mut()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Request> {
        self.queue.iter()
    }

    /// The first one is answered.
    pub(super) fn pop(&mut self) -> Option<Request> {
        let request = self.queue.pop_front();
        self.segments -= u64::from(request.as_ref().is_some_and(Request::ends_segment));
        self.kept = self.kept.saturating_sub(request.as_ref().map_or(0, Request::kept));
        // What has no answer is over when what came before it is.
        while let Some(over) =
            self.queue.pop_front_if(|request| matches!(request, Request::CopyEnd | Request::Forgets(_)))
        {
            self.kept = self.kept.saturating_sub(over.kept());
        }
        if self.queue.is_empty() {
            self.kept = 0;
            if self.queue.capacity() > KEPT {
                self.queue = VecDeque::new();
            }
        }
        request
    }

    /// The server reports an error in an extended request: it skips everything up to the next Sync. What the skipped ones would have changed is
    /// undone. Whether the Sync is still to come.
    pub(super) fn skip_to_sync(&mut self, statements: &mut Statements) -> bool {
        let count = self.queue.iter().position(|request| matches!(request, Request::Sync | Request::OurSync));
        self.drop_first(count.unwrap_or(self.queue.len()), statements);
        count.is_none()
    }

    /// None of them will be answered.
    pub(super) fn undo_all(&mut self, statements: &mut Statements) {
        self.drop_first(self.queue.len(), statements);
        self.queue = VecDeque::new();
    }

    fn drop_first(&mut self, count: usize, statements: &mut Statements) {
        for place in (0..count).rev() {
            if let Some(change) = self.queue[place].change() {
                let change = Change {
                    name: std::mem::take(&mut change.name),
                    before: std::mem::take(&mut change.before),
                };
                self.undo(count, change, statements);
            }
        }
        let ended = self.queue.drain(..count).filter(Request::ends_segment).count();
        self.segments -= ended as u64;
        self.count_kept();
    }

    /// A later request may already have changed the same name again. Then that one's past is another.
    fn undo(&mut self, from: usize, change: Change, statements: &mut Statements) {
        let later =
            self.queue.range_mut(from..).filter_map(Request::change).find(|later| later.name == change.name);
        match later {
            Some(later) => later.before = change.before,
            None => drop(statements.put(&change.name, change.before)),
        }
    }

    /// The server begins to take copy data. Up to CopyDone or CopyFail it ignores Sync and Flush, and anything else is an error that consumes it.
    /// Whether the end of the data is still to come.
    pub(super) fn begin_copy(&mut self, statements: &mut Statements) -> bool {
        let mut ends = false;
        // A Query removes nothing if it is consumed.
        while !ends && let Some(mut next) = self.queue.remove(1) {
            ends = !matches!(next, Request::Sync | Request::Forgets(_));
            self.segments -= u64::from(next.ends_segment());
            if let Some(change) = next.change() {
                let change = Change {
                    name: std::mem::take(&mut change.name),
                    before: std::mem::take(&mut change.before),
                };
                self.undo(1, change, statements);
            }
        }
        self.count_kept();
        !ends
    }
}
