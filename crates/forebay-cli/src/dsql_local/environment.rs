//! The variables that a client needs to connect.

use std::net::SocketAddr;

use dsql_local::{Cluster, Credentials};
use forebay_sim::shell_word;

use crate::foreground::ServerInfo;

/// Names and values, the most important first.
pub(super) struct Environment {
    variables: Vec<(&'static str, String)>,
    address: SocketAddr,
}

impl Environment {
    pub(super) fn of(cluster: &Cluster, key: &Credentials) -> Self {
        let address = cluster.address();
        let mut variables = vec![
            ("CLUSTER_ENDPOINT", cluster.endpoint().to_owned()),
            ("CLUSTER_USER", "admin".to_owned()),
            ("REGION", cluster.region().to_owned()),
            ("AWS_REGION", cluster.region().to_owned()),
            // For Python's SDK.
            ("AWS_DEFAULT_REGION", cluster.region().to_owned()),
            ("AWS_ACCESS_KEY_ID", key.access_key_id.clone()),
            ("AWS_SECRET_ACCESS_KEY", key.secret_access_key.clone()),
            ("PGHOST", cluster.endpoint().to_owned()),
            ("PGPORT", address.port().to_string()),
            ("PGUSER", "admin".to_owned()),
            ("PGDATABASE", "postgres".to_owned()),
            ("PGSSLMODE", "verify-full".to_owned()),
            ("PGSSLROOTCERT", cluster.ca_file().display().to_string()),
        ];
        // Another name may not resolve. For localhost, some clients would take the address for the host.
        if cluster.endpoint() != "localhost" {
            variables.push(("PGHOSTADDR", address.ip().to_string()));
        }
        if let Some(token) = &key.session_token {
            variables.push(("AWS_SESSION_TOKEN", token.clone()));
        }
        if let Some(directory) = cluster.socket_directory() {
            variables.push(("DSQL_LOCAL_SOCKET", directory.display().to_string()));
        }
        if let Some(control) = cluster.control_address() {
            variables.push(("DSQL_LOCAL_CONTROL", format!("http://{control}")));
        }
        Self { variables, address }
    }
}

impl ServerInfo for Environment {
    const OPTIONAL: &[&str] = &["AWS_SESSION_TOKEN", "PGHOSTADDR", "DSQL_LOCAL_SOCKET", "DSQL_LOCAL_CONTROL"];

    fn variables(&self) -> Vec<(&'static str, String)> {
        self.variables.clone()
    }

    /// Without the secret.
    fn prose(&self) -> String {
        let value = |name: &str| {
            self.variables.iter().find(|(own, _)| *own == name).map_or("", |(_, value)| value.as_str())
        };
        let control = match value("DSQL_LOCAL_CONTROL") {
            "" => "none; --control-port PORT opens one",
            address => address,
        };
        let underneath = match value("DSQL_LOCAL_SOCKET") {
            "" => String::new(),
            directory => {
                format!("underneath psql -h {} -p 5432 -U dsql_local postgres\n", shell_word(directory))
            }
        };
        format!(
            "listening on {} as {}, region {}\nauthority  {}\ncontrol    {control}\n{underneath}stop it with Ctrl-C; \
             --print-env prints the variables that a client needs\n",
            self.address,
            value("CLUSTER_ENDPOINT"),
            value("REGION"),
            value("PGSSLROOTCERT"),
        )
    }
}
