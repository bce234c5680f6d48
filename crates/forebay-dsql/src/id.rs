//! Ids that a process makes by itself: a snowflake of time, node and sequence.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use forebay::Seed;
use forebay::rt::Runtime;
use forebay_fleet::NodeNumber;
use parking_lot::Mutex;
use tokio::sync::watch;

/// 2024-01-01 00:00 UTC: 41 bits of milliseconds from here end in 2093.
const EPOCH: Duration = Duration::from_secs(1_704_067_200);
const TIME_BITS: u32 = 41;
const NODE_BITS: u32 = 10;
const SEQUENCE_BITS: u32 = 12;

/// Number of a process in the ids it makes: 0 to 1023, and no two processes of a fleet may share one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Node(u16);

impl Node {
    /// How many there are.
    pub const COUNT: u16 = 1 << NODE_BITS;

    /// The node with this number, if it is below [`COUNT`](Self::COUNT).
    #[must_use]
    pub const fn new(number: u16) -> Option<Self> {
        if number < Self::COUNT { Some(Self(number)) } else { None }
    }

    /// Its number.
    #[must_use]
    pub const fn number(self) -> u16 {
        self.0
    }

    /// The one that is `given`, by configuration or by a fleet's ledger; else one drawn by lot, once for each process and
    /// with a warning: of 40 processes, two draw the same more often than not.
    #[must_use]
    pub fn given_or_drawn(given: Option<Self>, runtime: &dyn Runtime) -> Self {
        static DRAWN: OnceLock<Node> = OnceLock::new();
        given.unwrap_or_else(|| {
            *DRAWN.get_or_init(|| {
                let number = Seed::new(runtime.entropy()).fork("node").rng().below(Self::COUNT.into());
                let node = Self(u16::try_from(number).unwrap_or(0));
                tracing::warn!(
                    node = node.0,
                    "ids carry a node number drawn by lot, which another process may have drawn too; set DSQL_NODE_ID"
                );
                node
            })
        })
    }
}

/// Makes ids: 41 bits of milliseconds since 2024, 10 of [`Node`], 12 of sequence. They fit a `bigint`, and each is
/// greater than the one before, also when the clock is set back.
///
/// All generators of a process with the same node share one sequence, so that a new generator repeats nothing. Those of a
/// [member](crate::Member) whose number is the ledger's follow it: where the ledger gives this process another one, they carry that.
///
/// ```
/// use forebay::rt::VirtualTime;
/// use forebay_dsql::{IdError, Ids, Node};
///
/// let ids = Ids::new(Node::new(7).unwrap(), VirtualTime::new());
/// assert!(ids.next()? < ids.next()?);
/// # Ok::<(), IdError>(())
/// ```
#[derive(Clone)]
pub struct Ids {
    sequence: Arc<Mutex<Sequence>>,
    /// The number as the ledger has it, which ends with its lease; without, it is always the same.
    number: Option<watch::Receiver<Option<NodeNumber>>>,
    runtime: Arc<dyn Runtime>,
}

/// Whose ids these are, and milliseconds and sequence of the last one, as one number.
#[derive(Clone)]
struct Sequence {
    node: Node,
    last: Arc<AtomicU64>,
}

/// Why there is no id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum IdError {
    /// The clock shows a year that ids have no room for. Set it.
    #[error("no id can be made: the clock must show a time from 2024 to 2093; set it")]
    ClockOutOfRange,
    /// This process was taken out of the fleet's ledger while it lives, or it could not renew its lease there. Another process may have
    /// its number by now. Try again: it gets a number as soon as the table answers.
    #[error(
        "no id can be made: this process has lost its number in the fleet, and gets one when the table answers; try again later"
    )]
    NoNumber,
}

impl Ids {
    /// A generator for `node`, by the time of day of `runtime`.
    pub fn new(node: Node, runtime: impl Runtime) -> Self {
        let sequence = Arc::new(Mutex::new(Sequence::of(node)));
        Self { sequence, number: None, runtime: Arc::new(runtime) }
    }

    /// A generator for `node`, as long as the ledger says so.
    pub(crate) fn following(
        node: Node,
        number: watch::Receiver<Option<NodeNumber>>,
        runtime: impl Runtime,
    ) -> Self {
        Self { number: Some(number), ..Self::new(node, runtime) }
    }

    /// Whose ids these are: that of the last one, if there is none at present.
    #[must_use]
    pub fn node(&self) -> Node {
        self.numbered().unwrap_or(self.sequence.lock().node)
    }

    /// The number as the ledger has it, if its lease has not ended.
    fn numbered(&self) -> Option<Node> {
        let number = (*self.number.as_ref()?.borrow())?;
        number.at(self.runtime.now()).and_then(Node::new)
    }

    /// The next id. More than 4096 in a millisecond, or a clock that was set back, borrow from the time to come; so a
    /// process that starts again with the same node needs a clock that is past its last id.
    ///
    /// # Errors
    /// If the clock is far off, or this process has lost its number in the fleet.
    pub fn next(&self) -> Result<i64, IdError> {
        let since = self.runtime.wall().checked_sub(EPOCH).ok_or(IdError::ClockOutOfRange)?;
        let millis = u64::try_from(since.as_millis()).map_err(|_| IdError::ClockOutOfRange)?;
        let tick = millis.checked_mul(1 << SEQUENCE_BITS).ok_or(IdError::ClockOutOfRange)?;
        let mut sequence = self.sequence.lock();
        // After the time of day was read: if the process is stopped in between, the id is of a time when the number was its own,
        // or there is none.
        if self.number.is_some() {
            sequence.turn_to(self.numbered().ok_or(IdError::NoNumber)?);
        }
        sequence.next(tick).ok_or(IdError::ClockOutOfRange)
    }
}

impl Sequence {
    fn of(node: Node) -> Self {
        static LAST: Mutex<BTreeMap<Node, Arc<AtomicU64>>> = Mutex::new(BTreeMap::new());
        Self { node, last: Arc::clone(LAST.lock().entry(node).or_default()) }
    }

    /// Goes on with another node, a millisecond later: the node counts more than the sequence, and ids are to grow.
    fn turn_to(&mut self, node: Node) {
        if node != self.node {
            let before = self.last.load(Ordering::Relaxed);
            *self = Self::of(node);
            self.last.fetch_max(before | ((1 << SEQUENCE_BITS) - 1), Ordering::Relaxed);
        }
    }

    /// The next id at this time, or later; none if that is out of range.
    fn next(&self, tick: u64) -> Option<i64> {
        let step = |last: u64| {
            let next = tick.max(last + 1);
            (next >> SEQUENCE_BITS < 1 << TIME_BITS).then_some(next)
        };
        let last = self.last.fetch_update(Ordering::Relaxed, Ordering::Relaxed, step);
        let next = last.ok().and_then(step)?;
        let (millis, sequence) = (next >> SEQUENCE_BITS, next & ((1 << SEQUENCE_BITS) - 1));
        let id = millis << (NODE_BITS + SEQUENCE_BITS) | u64::from(self.node.0) << SEQUENCE_BITS | sequence;
        i64::try_from(id).ok()
    }
}

impl fmt::Debug for Ids {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ids").field("node", &self.node()).finish_non_exhaustive()
    }
}
