//! The servers behind the proxies: a PostgreSQL with TLS, and a local Aurora DSQL.

use std::net::SocketAddr;
use std::path::PathBuf;

use anyhow::Context;
use dsql_local::EngineKind;

use super::client::Connection;
use super::door::{ClientTls, Door, USER};
use super::wire;
use crate::cluster::Cluster;
use crate::postgres::Postgres;

/// Enough connections for all proxies at once. Nothing runs by itself while others are measured.
const SETTINGS: &[&str] = &[
    "max_connections=1500",
    "autovacuum=off",
    "jit=off",
    "checkpoint_timeout=1h",
    "wal_level=minimal",
    "max_wal_senders=0",
];
/// The password of clients that use SCRAM.
pub(super) const PASSWORD: &str = "correct horse";

/// A server that proxies connect to.
#[derive(Debug)]
pub(super) struct Behind {
    /// How tables call it.
    pub(super) label: &'static str,
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    Postgres(Postgres),
    Dsql(Cluster),
}

impl Behind {
    pub(super) fn postgres() -> anyhow::Result<Self> {
        let postgres = Postgres::start(SETTINGS).context("there is no PostgreSQL to connect to")?;
        Ok(Self { label: "PostgreSQL", kind: Kind::Postgres(postgres) })
    }

    pub(super) fn dsql(engine: EngineKind) -> anyhow::Result<Self> {
        Ok(Self { label: "dsql-local", kind: Kind::Dsql(Cluster::start(engine)?) })
    }

    pub(super) fn is_dsql(&self) -> bool {
        matches!(self.kind, Kind::Dsql(_))
    }

    /// The local Aurora DSQL, for its control port.
    pub(super) fn cluster(&self) -> anyhow::Result<&Cluster> {
        match &self.kind {
            Kind::Dsql(cluster) => Ok(cluster),
            Kind::Postgres(_) => anyhow::bail!("a PostgreSQL has no control port"),
        }
    }

    /// What it is, for a note.
    pub(super) fn version(&self) -> &str {
        match &self.kind {
            Kind::Postgres(postgres) => &postgres.version,
            Kind::Dsql(_) => "dsql-local",
        }
    }

    pub(super) fn address(&self) -> SocketAddr {
        match &self.kind {
            Kind::Postgres(postgres) => postgres.address(),
            Kind::Dsql(cluster) => cluster.server.address,
        }
    }

    pub(super) fn ca_file(&self) -> PathBuf {
        match &self.kind {
            Kind::Postgres(postgres) => postgres.ca_file(),
            Kind::Dsql(cluster) => cluster.server.ca_file.clone(),
        }
    }

    /// A token. PostgreSQL trusts every client.
    pub(super) fn password(&self) -> Option<&str> {
        match &self.kind {
            Kind::Postgres(_) => None,
            Kind::Dsql(cluster) => Some(&cluster.server.token),
        }
    }

    /// For clients that connect to it directly.
    pub(super) fn door(&self) -> anyhow::Result<Door> {
        Ok(Door {
            address: self.address(),
            tls: Some(ClientTls::new(&self.ca_file())?),
            password: self.password().map(str::to_owned),
        })
    }

    /// What a server keeps of the password, as PostgreSQL makes it. Proxies have the same one.
    pub(super) fn verifier(&self) -> anyhow::Result<String> {
        let mut connection = Connection::open(&self.door()?)?;
        connection.ask(&wire::query(&format!("ALTER ROLE {USER} PASSWORD '{PASSWORD}'")))?;
        let sql = format!("SELECT rolpassword FROM pg_authid WHERE rolname = '{USER}'");
        connection.ask(&wire::query(&sql))?;
        let verifier = connection.rows().pop().and_then(|mut row| row.pop()?);
        verifier.context("the server keeps no verifier")
    }
}
