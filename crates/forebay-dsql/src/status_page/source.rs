//! What a status page reads of a pool.

use forebay::{Connect, ConnectionStatus, WeakReservoir};
use forebay_fleet::FleetStatus;
use forebay_status::{FleetSnapshot, PoolSnapshot, PoolSource, TokenSnapshot};

use crate::member::WeakMember;
use crate::pool::registry::Registering;
use crate::pool::{DsqlPool, PoolHandles, PoolMode, PoolTokens};

/// A pool, held weakly: a page does not keep it open.
pub(super) struct Source<C: Connect> {
    reservoir: WeakReservoir<Registering<C>>,
    mode: PoolMode,
    member: Option<WeakMember>,
    tokens: Option<PoolTokens>,
}

impl<C: Connect> DsqlPool<C> {
    /// What a [`StatusPage`](forebay_status::StatusPage) of your own shows of this pool. It does not keep the pool open.
    ///
    /// ```no_run
    /// # fn mount(dsql: &forebay_dsql::Dsql) -> axum::Router {
    /// let page = forebay_status::StatusPage::new();
    /// page.pool("orders", dsql.status_source());
    /// axum::Router::new().nest("/pools", page.router())
    /// # }
    /// ```
    #[must_use]
    pub fn status_source(&self) -> impl PoolSource + use<C> {
        Source::new(self.handles())
    }
}

impl<C: Connect> Source<C> {
    pub(super) fn new(pool: PoolHandles<'_, C>) -> Self {
        Self {
            reservoir: pool.reservoir.downgrade(),
            mode: pool.mode,
            member: pool.member.cloned(),
            tokens: pool.tokens.cloned(),
        }
    }
}

impl<C: Connect> PoolSource for Source<C> {
    fn snapshot(&self) -> Option<PoolSnapshot> {
        let mut snapshot = PoolSnapshot::of(&self.reservoir.upgrade()?);
        let mode = match self.mode {
            PoolMode::Reservoir => "reservoir",
            PoolMode::Standard => "standard",
        };
        snapshot.mode = Some(mode.to_owned());
        snapshot.fleet = self.member.as_ref().and_then(WeakMember::fleet_status).map(fleet_snapshot);
        snapshot.token = self.tokens.as_ref().and_then(PoolTokens::status).map(|token| TokenSnapshot {
            age: token.age.unwrap_or_default(),
            good_for: token.good_for,
            failures: token.failures,
        });
        Some(snapshot)
    }

    fn connections(&self) -> Vec<ConnectionStatus> {
        self.reservoir.upgrade().map(|reservoir| reservoir.connections()).unwrap_or_default()
    }
}

fn fleet_snapshot(status: FleetStatus) -> FleetSnapshot {
    FleetSnapshot {
        outage: status.lease_outage.max(status.rate_outage),
        instance: status.instance,
        slots: status.slots,
        leases: status.leases,
        active: status.active,
        limit: status.limit,
    }
}
