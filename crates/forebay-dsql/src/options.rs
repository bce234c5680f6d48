//! The options of a pool: which cluster, as which user, and how.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use forebay::Config;

use crate::id::Node;
use crate::settings::Settings;
use crate::token::{Action, Identity, TokenRequest};

mod build;
mod builder;
mod endpoint;
mod sources;

pub use builder::OptionsBuilder;

/// Which cluster a pool connects to, as which user, and how. Checked as a whole.
///
/// ```
/// use forebay_dsql::Options;
///
/// let options = Options::builder("abc.dsql.us-east-1.on.aws").user("app").build()?;
/// assert_eq!(options.region(), "us-east-1");
///
/// let same = Options::from_url("dsql://app@abc.dsql.us-east-1.on.aws?max_conns=50")?;
/// assert_eq!(same.region(), options.region());
/// # Ok::<(), forebay::ConfigError>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    host: String,
    port: u16,
    address: Option<String>,
    region: String,
    user: String,
    database: String,
    application_name: String,
    pool: String,
    roots: RootCertificates,
    direct_tls: bool,
    settings: Settings,
}

/// The certificates that a server must be signed by.
#[derive(Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum RootCertificates {
    /// The certificate authorities that browsers trust. Aurora DSQL's is among them.
    #[default]
    Public,
    /// Only these certificates, in PEM: a private authority, or `dsql-local`'s.
    Pem(Arc<[u8]>),
}

impl fmt::Debug for RootCertificates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Public => f.write_str("Public"),
            Self::Pem(pem) => write!(f, "Pem({} bytes)", pem.len()),
        }
    }
}

impl Options {
    /// Options for the cluster at `host`, which may carry a port; everything else has a [default](OptionsBuilder).
    pub fn builder(host: impl Into<String>) -> OptionsBuilder {
        OptionsBuilder { host: Some(builder::Given::new("host", host.into())), ..OptionsBuilder::default() }
    }

    /// The name of the cluster: what its certificate and the token are for.
    #[must_use]
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The port. Default 5432.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Where the TCP connection goes: a name or an IP address. Default: the host.
    #[must_use]
    pub fn address(&self) -> &str {
        self.address.as_deref().unwrap_or(&self.host)
    }

    /// The region, given or read from the host's name.
    #[must_use]
    pub fn region(&self) -> &str {
        &self.region
    }

    /// The database role. Default `admin`.
    #[must_use]
    pub fn user(&self) -> &str {
        &self.user
    }

    /// The database. Default `postgres`, the only one a cluster has.
    #[must_use]
    pub fn database(&self) -> &str {
        &self.database
    }

    /// The name that the server shows for its sessions. Default: the service's name.
    #[must_use]
    pub fn application_name(&self) -> &str {
        &self.application_name
    }

    /// The label `pool` of metrics. Default `default`.
    #[must_use]
    pub fn pool(&self) -> &str {
        &self.pool
    }

    /// The trusted certificates. Default: public authorities.
    #[must_use]
    pub fn roots(&self) -> &RootCertificates {
        &self.roots
    }

    /// Whether TLS begins without a request to the server first, which saves a round trip. Default: no. A client that
    /// cannot do so sends the request.
    #[must_use]
    pub fn direct_tls(&self) -> bool {
        self.direct_tls
    }

    /// How long a token is good for. Default 15 min; at most a week.
    #[must_use]
    pub fn token_life(&self) -> Duration {
        self.settings.token_duration
    }

    /// How long a transaction of [`run`](crate::DsqlPool::run) or [`begin`](crate::DsqlPool::begin) may take as a whole, and a single
    /// statement on a connection of a pool. `None` for no limit. Default 60 s.
    #[must_use]
    pub fn deadline(&self) -> Option<Duration> {
        self.settings.deadline
    }

    /// The name of this service: label `service` of metrics.
    #[must_use]
    pub fn service(&self) -> &str {
        &self.settings.service
    }

    /// Whether connections come from a reservoir, or from a plain pool (standard mode). Default: a reservoir; from an
    /// environment, a plain pool.
    #[must_use]
    pub fn reservoir_enabled(&self) -> bool {
        self.settings.reservoir_enabled
    }

    /// The settings of the reservoir; standard mode takes size, rate, stagger and timeouts from them.
    #[must_use]
    pub fn config(&self) -> &Config {
        &self.settings.config
    }

    /// Everything that the [variables](crate::variables) say: leases, shared rate, node number, standard mode, notes.
    #[must_use]
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The number of this process in its [ids](crate::Ids), if `DSQL_NODE_ID` gives it.
    #[must_use]
    pub fn node(&self) -> Option<Node> {
        self.settings.node_id.and_then(Node::new)
    }

    /// What to sign for a connection with these options.
    #[must_use]
    pub fn token_request(&self) -> TokenRequest {
        TokenRequest {
            identity: Identity {
                host: self.host.clone(),
                region: self.region.clone(),
                user: self.user.clone(),
                action: Action::of(&self.user),
            },
            life: self.token_life(),
        }
    }
}
