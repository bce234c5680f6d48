//! The address of the server, and the variables that a client needs.

use std::path::{Path, PathBuf};

use anyhow::Context;
use flight_local::FlightLocal;
use forebay_sim::shell_word;
use serde_json::{Value, json};

use crate::foreground::ServerInfo;

/// The address of the server. Dropping it removes the authority's file.
pub(super) struct Address {
    url: String,
    further: Vec<String>,
    authority: Option<PathBuf>,
}

impl Address {
    pub(super) fn new(
        server: &FlightLocal,
        authority: Option<String>,
        file: Option<&Path>,
    ) -> anyhow::Result<Self> {
        let port = server.address().port();
        let authority = authority
            .map(|pem| {
                let own =
                    || std::env::temp_dir().join(format!("flight-local-{port}-{}.pem", std::process::id()));
                // Clients may run in another directory.
                let path = std::path::absolute(file.map_or_else(own, Path::to_owned))?;
                std::fs::write(&path, pem).with_context(|| format!("cannot write {}", path.display()))?;
                anyhow::Ok(path)
            })
            .transpose()?;
        Ok(Self { url: server.url(), further: server.locations(), authority })
    }
}

impl ServerInfo for Address {
    const OPTIONAL: &[&str] = &["FLIGHT_SQL_CA_FILE"];

    fn variables(&self) -> Vec<(&'static str, String)> {
        let authority = self.authority.iter().map(|path| ("FLIGHT_SQL_CA_FILE", path.display().to_string()));
        std::iter::once(("FLIGHT_SQL_URL", self.url.clone())).chain(authority).collect()
    }

    fn further(&self) -> Vec<(&'static str, Value)> {
        if self.further.is_empty() { Vec::new() } else { vec![("further", json!(self.further))] }
    }

    fn prose(&self) -> String {
        let further: String = self.further.iter().map(|url| format!("and on       {url}\n")).collect();
        let (authority, trust) = match &self.authority {
            Some(path) => {
                let path = path.display().to_string();
                (format!("authority    {path}\n"), format!(" --tls-roots {}", shell_word(&path)))
            }
            None => (String::new(), String::new()),
        };
        let url = &self.url;
        let shell = match cfg!(feature = "flight") {
            true => format!("try it with  forebay flight sql {url}{trust}\n"),
            false => String::new(),
        };
        format!(
            "listening on {url}\n{further}{authority}{shell}stop it with Ctrl-C; --print-env prints the variables that a client needs\n"
        )
    }
}

impl Drop for Address {
    fn drop(&mut self) {
        if let Some(path) = &self.authority {
            // The user may have removed it.
            let (Ok(()) | Err(_)) = std::fs::remove_file(path);
        }
    }
}
