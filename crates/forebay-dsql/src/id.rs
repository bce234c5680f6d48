//! Ids that a process makes by itself: a snowflake of time, node and sequence.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use forebay::Seed;
use forebay::rt::Runtime;
use parking_lot::Mutex;

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
                let number = Seed::new(runtime.entropy()).fork("node").draws().below(Self::COUNT.into());
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
/// All generators of a process with the same node share one sequence, so that making one anew repeats nothing.
///
/// ```
/// use forebay::rt::VirtualTime;
/// use forebay_dsql::{Ids, Node};
///
/// let ids = Ids::new(Node::new(7).unwrap(), VirtualTime::new());
/// assert!(ids.next()? < ids.next()?);
/// # Ok::<(), forebay_dsql::ClockOutOfRange>(())
/// ```
#[derive(Clone)]
pub struct Ids {
    node: Node,
    runtime: Arc<dyn Runtime>,
    /// Milliseconds and sequence of the last id, as one number.
    last: Arc<AtomicU64>,
}

/// The clock shows a year that ids have no room for. Set it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no id can be made: the clock must show a time from 2024 to 2093; set it")]
pub struct ClockOutOfRange;

impl Ids {
    /// A generator for `node`, by the time of day of `runtime`.
    pub fn new(node: Node, runtime: impl Runtime) -> Self {
        static LAST: Mutex<BTreeMap<Node, Arc<AtomicU64>>> = Mutex::new(BTreeMap::new());
        let last = Arc::clone(LAST.lock().entry(node).or_default());
        Self { node, runtime: Arc::new(runtime), last }
    }

    /// Whose ids these are.
    #[must_use]
    pub fn node(&self) -> Node {
        self.node
    }

    /// The next id. More than 4096 in a millisecond, or a clock that was set back, borrow from the time to come; so a
    /// process that starts again with the same node needs a clock that is past its last id.
    ///
    /// # Errors
    /// If the clock is far off.
    pub fn next(&self) -> Result<i64, ClockOutOfRange> {
        let since = self.runtime.wall().checked_sub(EPOCH).ok_or(ClockOutOfRange)?;
        let millis = u64::try_from(since.as_millis()).map_err(|_| ClockOutOfRange)?;
        let tick = millis.checked_mul(1 << SEQUENCE_BITS).ok_or(ClockOutOfRange)?;
        let step = |last: u64| {
            let next = tick.max(last + 1);
            (next >> SEQUENCE_BITS < 1 << TIME_BITS).then_some(next)
        };
        let last = self.last.fetch_update(Ordering::Relaxed, Ordering::Relaxed, step);
        let next = last.ok().and_then(step).ok_or(ClockOutOfRange)?;
        let (millis, sequence) = (next >> SEQUENCE_BITS, next & ((1 << SEQUENCE_BITS) - 1));
        let id = millis << (NODE_BITS + SEQUENCE_BITS) | u64::from(self.node.0) << SEQUENCE_BITS | sequence;
        i64::try_from(id).map_err(|_| ClockOutOfRange)
    }
}

impl fmt::Debug for Ids {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ids").field("node", &self.node).finish_non_exhaustive()
    }
}
