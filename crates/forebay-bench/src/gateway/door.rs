//! Where clients connect, and how: an address, TLS or not, a password or none.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::ClientConfig;

use crate::cluster::Variables;
use crate::tls::tls_config;

/// The user and the database of all clients. A proxy maps this user to the role of the same name.
pub(super) const USER: &str = "admin";
pub(super) const DATABASE: &str = "postgres";

/// How clients prove who they are, and whether they encrypt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Access {
    pub(super) scram: bool,
    pub(super) tls: bool,
}

/// Where clients connect.
#[derive(Clone, Debug)]
pub(super) struct Door {
    pub(super) address: SocketAddr,
    pub(super) tls: Option<ClientTls>,
    /// The password of SCRAM, or a token.
    pub(super) password: Option<String>,
}

/// TLS for clients.
#[derive(Clone, Debug)]
pub(super) struct ClientTls {
    ca_file: PathBuf,
    pub(super) config: Arc<ClientConfig>,
}

impl ClientTls {
    pub(super) fn new(ca_file: &Path) -> anyhow::Result<Self> {
        let mut config = tls_config(ca_file)?;
        // libpq does not resume sessions, either.
        config.resumption = rustls::client::Resumption::disabled();
        Ok(Self { ca_file: ca_file.to_owned(), config: Arc::new(config) })
    }
}

impl Door {
    /// Environment variables for psql and pgbench.
    pub(super) fn variables(&self) -> Variables {
        let mut variables = vec![
            ("PGHOST", "localhost".to_owned()),
            ("PGHOSTADDR", self.address.ip().to_string()),
            ("PGPORT", self.address.port().to_string()),
            ("PGUSER", USER.to_owned()),
            ("PGDATABASE", DATABASE.to_owned()),
            ("PGGSSENCMODE", "disable".to_owned()),
            // PgBouncer does not have it. Where only one side has it, the other would do less.
            ("PGCHANNELBINDING", "disable".to_owned()),
            ("PGCONNECT_TIMEOUT", "60".to_owned()),
        ];
        match &self.tls {
            None => variables.push(("PGSSLMODE", "disable".to_owned())),
            Some(tls) => {
                variables.push(("PGSSLMODE", "verify-full".to_owned()));
                variables.push(("PGSSLROOTCERT", tls.ca_file.display().to_string()));
            }
        }
        if let Some(password) = &self.password {
            variables.push(("PGPASSWORD", password.clone()));
        }
        variables
    }
}
