//! What all pools of a process share.

use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Duration;

use forebay::rt::{self, NoRuntime, Runtime};
use forebay::{Config, ConfigError, LocalLimit, Problem, Seed};
use forebay_fleet::{Fleet, FleetSettings, FleetStatus, Tables, Wiring};

use crate::driver::Driver;
use crate::id::{Ids, Node};
use crate::options::Options;
use crate::pool::{Builder, Made};
use crate::status_page::ServedPage;
use crate::token::{Signer, TokenCache};

/// One process among those that use a cluster. All its pools to that cluster share what this holds: the cache of tokens, the
/// connect rate, and, if the options ask for them, leases and the rate of a whole fleet.
///
/// A clone is another handle to the same member. When all of them and all pools are dropped, the process leaves its fleet in the
/// background; [`leave`](Self::leave) does the same and waits for it.
///
/// ```no_run
/// # async fn start(signer: impl forebay_dsql::Signer, table: impl forebay_fleet::Table) -> Result<(), Box<dyn std::error::Error>> {
/// use forebay_dsql::{Dsql, Member, Options};
/// use forebay_fleet::Tables;
///
/// let options = Options::from_env()?;
/// let member = Member::builder(&options, signer).tables(Tables::one(table)).join().await?;
/// let dsql: Dsql = member.pool(options).connect().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Member(Arc<Shared>);

struct Shared {
    host: String,
    tokens: TokenCache,
    /// What each of its pools is built with; always with a limit.
    wiring: Wiring,
    fleet: Option<Fleet>,
    configured_node: Option<Node>,
    runtime: Arc<dyn Runtime>,
    /// Served from here on, so that its metrics include those of the fleet.
    page: Option<Arc<ServedPage>>,
}

/// A handle to a [`Member`] that does not keep it in its fleet.
#[derive(Clone)]
pub(crate) struct WeakMember(Weak<Shared>);

impl WeakMember {
    pub(crate) fn fleet_status(&self) -> Option<FleetStatus> {
        Member(self.0.upgrade()?).fleet_status()
    }
}

/// Makes the cache of tokens once it is known where tasks run, and for which service.
type MakeCache = Box<dyn FnOnce(Arc<dyn Runtime>, &str) -> TokenCache + Send>;

/// Describes a [`Member`]. [`join`](Self::join) makes it one.
#[must_use = "a builder does nothing until it joins"]
pub struct MemberBuilder {
    options: Options,
    cache: MakeCache,
    tables: Option<Tables>,
    runtime: Option<Arc<dyn Runtime>>,
    /// Those of its pools, if they were given.
    pools: Option<Vec<Config>>,
    max_open: Option<usize>,
}

/// Why a process did not become a member.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JoinError {
    /// The options make no sense. Fix them.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// No runtime to run on. Join inside one, or name it with [`MemberBuilder::runtime`].
    #[error(transparent)]
    NoRuntime(#[from] NoRuntime),
    /// The fleet cannot be joined: its error says what an operator must do.
    #[error(transparent)]
    Fleet(#[from] forebay_fleet::StartError),
}

impl Member {
    /// Starts to describe a member that uses the cluster of `options` with tokens signed by `signer`.
    pub fn builder(options: &Options, signer: impl Signer) -> MemberBuilder {
        MemberBuilder {
            options: options.clone(),
            cache: Box::new(|runtime, service| TokenCache::new(signer, runtime, service)),
            tables: None,
            runtime: None,
            pools: None,
            max_open: None,
        }
    }

    /// Starts to describe a pool of this member, in the mode that `options` ask for. They may differ from those it joined with in
    /// everything but the host; each pool needs a name of its own (`pool`) for its metrics.
    pub fn pool<C: Driver>(&self, options: Options) -> Builder<C> {
        let (host, tokens) = (self.0.host.clone(), self.0.tokens.clone());
        let weak = WeakMember(Arc::downgrade(&self.0));
        let builder = Builder::of_member(options, self.0.wiring.clone(), weak, move |options, runtime| {
            if options.host() != host {
                let allowed = format!("{host}, which this member joined for");
                return Err(problem("host", options.host(), allowed));
            }
            Made::new(options, tokens, runtime)
        });
        builder.runtime(Arc::clone(&self.0.runtime))
    }

    /// What this process knows of its fleet; none if it shares nothing with others.
    #[must_use]
    pub fn fleet_status(&self) -> Option<FleetStatus> {
        self.0.fleet.as_ref().map(Fleet::status)
    }

    /// The number of this process in its [ids](Ids): the ledger's, which is unique in the fleet, if there is one within
    /// `patience`; else that of the options; else one drawn by lot, with a warning.
    ///
    /// A process that was taken out of the ledger, by an operator or because it could not reach the table for a whole lease, joins
    /// again with the same number, unless another process has it by then: [ids](Self::ids) follow, and there are none without a lease.
    /// This number says nothing of its end: show it, and make ids with [`ids`](Self::ids).
    ///
    /// # Cancel safety
    /// Dropping the future changes nothing.
    pub async fn node(&self, patience: Duration) -> Node {
        let numbered = self.numbered(patience).await;
        Node::given_or_drawn(numbered.or(self.0.configured_node), &*self.0.runtime)
    }

    /// Ids that carry this process's [`node`](Self::node). If that is the ledger's, they follow it when it changes, and there
    /// are none between the end of its lease, by the clock of this process, and the next number.
    ///
    /// # Cancel safety
    /// Dropping the future changes nothing.
    pub async fn ids(&self, patience: Duration) -> Ids {
        let Shared { fleet, configured_node, runtime, .. } = &*self.0;
        match (self.numbered(patience).await, fleet.as_ref().and_then(Fleet::node_updates)) {
            (Some(node), Some(numbers)) => Ids::following(node, numbers, Arc::clone(runtime)),
            _ => Ids::new(Node::given_or_drawn(*configured_node, &**runtime), Arc::clone(runtime)),
        }
    }

    /// The number that the ledger has given, if it does so within `patience`.
    async fn numbered(&self, patience: Duration) -> Option<Node> {
        let Shared { fleet, configured_node, runtime, .. } = &*self.0;
        let numbered = rt::within(&**runtime, patience, fleet.as_ref()?.node()).await.flatten();
        let numbered = numbered.and_then(|number| number.at(runtime.now())).and_then(Node::new)?;
        if let Some(configured) = configured_node.filter(|configured| *configured != numbered) {
            tracing::warn!(
                node = numbered.number(),
                configured = configured.number(),
                "DSQL_NODE_ID is not used: ids carry the number that the ledger has given"
            );
        }
        Some(numbered)
    }

    /// Decides whether this process is ready, for `/readyz` of its status page, if it has one: `reasons` returns why it is not, a line each,
    /// and nothing if it is. Without it, a process is ready once every pool has reached its low watermark.
    pub fn ready_when(&self, reasons: impl Fn() -> Vec<String> + Send + Sync + 'static) {
        if let Some(page) = &self.0.page {
            page.ready_when(reasons);
        }
    }

    /// Leaves the fleet: no more leases, and every slot back once all connections are closed. Drain the pools first. Waits
    /// for at most `patience`. Returns whether it is done.
    ///
    /// # Cancel safety
    /// If the future is dropped, it goes on in the background.
    pub async fn leave(&self, patience: Duration) -> bool {
        match &self.0.fleet {
            Some(fleet) => fleet.leave(patience).await,
            None => true,
        }
    }
}

impl fmt::Debug for Member {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Member")
            .field("host", &self.0.host)
            .field("fleet", &self.0.fleet)
            .finish_non_exhaustive()
    }
}

impl MemberBuilder {
    /// The tables that the fleet shares; needed where the options ask for leases or a shared rate.
    pub fn tables(mut self, tables: Tables) -> Self {
        self.tables = Some(tables);
        self
    }

    /// Where time and tasks come from, also those of its pools. Default: the tokio runtime that [`join`](Self::join) is
    /// called in.
    pub fn runtime(mut self, runtime: impl Runtime) -> Self {
        self.runtime = Some(Arc::new(runtime));
        self
    }

    /// The pools that this process will have, by their options: it joins with slots for all their connections, replacements included.
    /// Default: one pool, with the options of the member.
    pub fn pools<'a>(mut self, pools: impl IntoIterator<Item = &'a Options>) -> Self {
        self.pools = Some(pools.into_iter().map(pool_config).collect());
        self
    }

    /// Connections that all pools of this process may hold together, replacements included: it joins with so many slots. Default: as many
    /// as its [pools](Self::pools) can have at once; a reservoir can have 5 % more than it may own while it replaces some.
    pub fn max_open(mut self, connections: usize) -> Self {
        self.max_open = Some(connections);
        self
    }

    /// Joins the fleet, if the options ask for leases (`DSQL_DISTRIBUTED_CONN_LEASE_ENABLED`) or a shared rate
    /// (`DSQL_DISTRIBUTED_RATE_LIMITER_ENABLED`); otherwise this process is on its own, and its pools share one local limit.
    ///
    /// # Errors
    /// If there is no runtime, no table where one is needed, or the fleet cannot be joined. A table that does not
    /// answer is not an error: the outage policy holds until it does.
    ///
    /// # Cancel safety
    /// Nothing is started before this returns.
    pub async fn join(self) -> Result<Member, JoinError> {
        let Self { options, cache, tables, runtime, pools, max_open } = self;
        let runtime = match runtime {
            Some(runtime) => runtime,
            None => rt::current()?,
        };
        let page = ServedPage::open(&options, &runtime).await;
        let config = options.config();
        let pools = pools.unwrap_or_else(|| vec![pool_config(&options)]);
        let fleet = match fleet_settings(&options, &pools, max_open) {
            None => None,
            Some(settings) => {
                let tables = tables.ok_or_else(|| no_table(&settings))?;
                let seed = config.seed.unwrap_or_else(|| Seed::new(runtime.entropy()));
                Some(Fleet::start(settings, tables, Arc::clone(&runtime), seed).await?)
            }
        };
        let local = || Arc::new(LocalLimit::new(config.rate, config.burst, Arc::clone(&runtime))) as _;
        let mut wiring = fleet.as_ref().map(Fleet::wiring).unwrap_or_default();
        wiring.limit.get_or_insert_with(local);
        Ok(Member(Arc::new(Shared {
            host: options.host().to_owned(),
            tokens: cache(Arc::clone(&runtime), options.service()),
            wiring,
            fleet,
            configured_node: options.node(),
            runtime,
            page,
        })))
    }
}

impl fmt::Debug for MemberBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemberBuilder").field("options", &self.options).finish_non_exhaustive()
    }
}

/// What the options say of a fleet; none if they ask for nothing that is shared.
fn fleet_settings(options: &Options, pools: &[Config], max_open: Option<usize>) -> Option<FleetSettings> {
    let mut settings = options.settings().fleet()?.for_pools(pools);
    if let Some(max_open) = max_open {
        settings.max_open = u64::try_from(max_open).unwrap_or(u64::MAX);
    }
    Some(settings)
}

/// The settings of a pool with these options, as far as a fleet goes by them: in standard mode a connection is closed before another takes its
/// place, and so there are never more than `max_open`.
fn pool_config(options: &Options) -> Config {
    let config = options.config().clone();
    if options.reservoir_enabled() { config } else { config.overlap(0) }
}

fn no_table(settings: &FleetSettings) -> ConfigError {
    let allowed = "with a table: join with forebay_aws::join, or give Member::builder(..) the tables";
    problem(switch(settings.leases.is_some()), "true", allowed.to_owned())
}

/// The problem of a pool whose options ask for a shared budget, and that does not belong to a member: it would hold more than
/// the fleet may.
pub(crate) fn shares_nothing(options: &Options, has_leases: bool, has_limit: bool) -> Option<ConfigError> {
    let settings = options.settings();
    let leases = settings.leases.is_some() && !has_leases;
    if !leases && (settings.rate.is_none() || has_limit) {
        return None;
    }
    let allowed = "false, unless the pool is a member's: forebay_aws::join(&options).await?.pool(options)";
    Some(problem(switch(leases), "true", allowed.to_owned()))
}

fn switch(leases: bool) -> &'static str {
    if leases { "DSQL_DISTRIBUTED_CONN_LEASE_ENABLED" } else { "DSQL_DISTRIBUTED_RATE_LIMITER_ENABLED" }
}

fn problem(setting: &'static str, value: &str, allowed: String) -> ConfigError {
    ConfigError { problems: vec![Problem { setting: setting.into(), value: format!("{value:?}"), allowed }] }
}
