//! The checks, in the order in which they run.

use clap::ValueEnum;

use super::context::Context;
use super::finding::Finding;
use super::{clock, connect, credentials, dns, service, tables, tcp, tls, token};

/// One check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub(crate) enum Check {
    Configuration,
    Dns,
    Tcp,
    Tls,
    Credentials,
    Token,
    Connect,
    Tables,
    Clock,
    Service,
}

impl Check {
    pub(crate) const ALL: [Self; 10] = [
        Self::Configuration,
        Self::Dns,
        Self::Tcp,
        Self::Tls,
        Self::Credentials,
        Self::Token,
        Self::Connect,
        Self::Tables,
        Self::Clock,
        Self::Service,
    ];

    /// Its name, as `--only` takes it.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Configuration => "configuration",
            Self::Dns => "dns",
            Self::Tcp => "tcp",
            Self::Tls => "tls",
            Self::Credentials => "credentials",
            Self::Token => "token",
            Self::Connect => "connect",
            Self::Tables => "tables",
            Self::Clock => "clock",
            Self::Service => "service",
        }
    }

    /// What it does, in a line of the manual.
    #[cfg(test)]
    pub(crate) const fn about(self) -> &'static str {
        match self {
            Self::Configuration => {
                "reads the variables as a service does: each that is set, what was repaired or ignored, and limits above the cluster's"
            }
            Self::Dns => "looks up every address of the cluster",
            Self::Tcp => "connects to each address",
            Self::Tls => "makes a TLS handshake with each address that accepts, and reads the certificate",
            Self::Credentials => {
                "loads the credentials as a service does: provider, expiry; asks AWS (STS) whose they are"
            }
            Self::Token => "signs a token, and computes how long it is good for",
            Self::Connect => "opens one session with the token, runs `SELECT now()`, and closes it",
            Self::Tables => {
                "reads the tables of leases and rate: keys, time-to-live, permissions, latency, holders, counts"
            }
            Self::Clock => {
                "compares this machine's clock with the date in DynamoDB's answers, the cluster's `now()`, and the dates in refused signatures"
            }
            Self::Service => "reads `/status.json` of a running service (`--status URL`)",
        }
    }

    /// The checks without which this one cannot succeed.
    pub(crate) const fn needs(self) -> &'static [Self] {
        match self {
            Self::Configuration | Self::Credentials | Self::Clock | Self::Service | Self::Dns => &[],
            Self::Tcp => &[Self::Dns],
            Self::Tls => &[Self::Tcp],
            Self::Token | Self::Tables => &[Self::Credentials],
            Self::Connect => &[Self::Tls, Self::Token],
        }
    }

    /// The variables that it reads itself. If one is wrong, it cannot say anything about the service.
    const fn variables(self) -> &'static [&'static str] {
        match self {
            Self::Configuration | Self::Credentials | Self::Clock | Self::Service => &[],
            Self::Dns => &["CLUSTER_ENDPOINT", "PGHOSTADDR"],
            Self::Tcp => &["PGPORT"],
            Self::Tls => &["PGSSLROOTCERT", "PGSSLNEGOTIATION"],
            Self::Token => &["CLUSTER_ENDPOINT", "REGION", "AWS_REGION", "PGUSER"],
            Self::Connect => &["PGDATABASE", "PGAPPNAME"],
            Self::Tables => &["CLUSTER_ENDPOINT", "REGION", "AWS_REGION"],
        }
    }

    /// Whether it, or a check that it needs, reads this variable.
    pub(crate) fn reads(self, variable: &str) -> bool {
        self.variables().contains(&variable) || self.needs().iter().any(|needed| needed.reads(variable))
    }

    pub(crate) async fn run(self, context: &mut Context<'_>) -> Vec<Finding> {
        match self {
            Self::Configuration => context.configuration.findings(),
            Self::Dns => dns::run(context).await,
            Self::Tcp => tcp::run(context).await,
            Self::Tls => tls::run(context).await,
            Self::Credentials => credentials::run(context).await,
            Self::Token => token::run(context).await,
            Self::Connect => connect::run(context).await,
            Self::Tables => tables::run(context).await,
            Self::Clock => clock::run(context),
            Self::Service => service::run(context).await,
        }
    }
}
