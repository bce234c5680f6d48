//! Resets dirty connections and checks idle ones in the background.

use std::sync::Arc;
use std::time::Duration;

use crate::connect::Connect;
use crate::core::{BoxedEntry, Core};
use crate::error::BoxError;
use crate::event::Event;
use crate::race::{self, First};
use crate::rt;
use crate::state::Condition;

#[derive(Clone, Copy)]
pub(crate) enum Kind {
    Reset,
    Check,
}

impl Kind {
    /// The condition of a connection for which this fails.
    fn failed(self) -> Condition {
        match self {
            Self::Reset => Condition::Broken,
            Self::Check => Condition::Dead,
        }
    }
}

pub(crate) fn start<C: Connect>(core: &Arc<Core<C>>, entry: BoxedEntry<C>, kind: Kind) {
    let (core, entry, condition) = (Arc::clone(core), Some(entry), kind.failed());
    let runtime = Arc::clone(&core.runtime);
    // A reset that panics, such as in a hook, says nothing about the connection.
    let is_death = matches!(kind, Kind::Check);
    runtime.spawn(Box::pin(InMaintenance { core, entry, condition, is_death }.maintain(kind)));
}

/// A connection in maintenance. It is always returned, even if the connector panics. Its condition is that of
/// a failure until the maintenance has succeeded.
struct InMaintenance<C: Connect> {
    core: Arc<Core<C>>,
    entry: Option<BoxedEntry<C>>,
    condition: Condition,
    /// A failure shows that the connection is dead. Others may be dead, too.
    is_death: bool,
}

impl<C: Connect> Core<C> {
    /// Completes when a reset or a check has taken too long: answers may take `unanswered` before, but not
    /// longer than until the reservoir closes. Cancel safe.
    async fn maintenance_ends(&self, unanswered: Duration, limit: Duration) {
        if !unanswered.is_zero() {
            rt::within(&*self.runtime, unanswered, self.closed()).await;
        }
        self.runtime.sleep_until(self.runtime.now() + limit).await;
    }
}

impl<C: Connect> InMaintenance<C> {
    async fn maintain(mut self, kind: Kind) {
        let core = Arc::clone(&self.core);
        let Some(entry) = &mut self.entry else { return };
        let limit = core.config.lock().maintenance_timeout;
        let connection = &mut entry.connection;
        let end = core.maintenance_ends(core.connector.unanswered_timeout(connection), limit);
        let outcome = match kind {
            Kind::Reset => race::first(core.connector.reset(connection), end).await,
            Kind::Check => race::first(core.connector.check(connection), end).await,
        };
        let error = match outcome {
            First::Left(Ok(())) => {
                self.condition = Condition::Clean;
                return;
            }
            First::Left(Err(error)) => {
                // A connection that cannot be reset may be alive.
                self.is_death = matches!(kind, Kind::Check) || !core.connector.is_usable(&entry.connection);
                error
            }
            First::Right(()) => {
                self.is_death = true;
                BoxError::from(format!("no answer within {limit:?}"))
            }
        };
        core.observe(&Event::MaintenanceFailed { error: &error });
    }
}

impl<C: Connect> Drop for InMaintenance<C> {
    fn drop(&mut self) {
        if let Some(entry) = self.entry.take() {
            let (condition, now) = (self.condition, self.core.runtime.now());
            let placed = self.core.with_state(|state| {
                if self.is_death && condition != Condition::Clean {
                    state.found_dead(entry.key, now);
                }
                state.maintained(entry, condition, now)
            });
            self.core.carry_out(placed);
        }
    }
}
