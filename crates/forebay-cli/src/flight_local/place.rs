//! Where the server is, and what a client needs to find it.

use std::path::{Path, PathBuf};

use anyhow::Context;
use flight_local::FlightLocal;
use forebay_sim::shell_word;
use serde_json::json;

/// Where the server is. The authority's file goes with this.
pub(super) struct Place {
    url: String,
    further: Vec<String>,
    authority: Option<PathBuf>,
}

impl Place {
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
                let path = file.map_or_else(own, Path::to_owned);
                std::fs::write(&path, pem).with_context(|| format!("cannot write {}", path.display()))?;
                anyhow::Ok(path)
            })
            .transpose()?;
        Ok(Self { url: server.url(), further: server.locations(), authority })
    }

    fn variables(&self) -> Vec<(&'static str, String)> {
        let authority = self.authority.iter().map(|path| ("FLIGHT_SQL_CA_FILE", path.display().to_string()));
        std::iter::once(("FLIGHT_SQL_URL", self.url.clone())).chain(authority).collect()
    }

    /// For a shell to evaluate.
    pub(super) fn shell(&self) -> String {
        let unset = match self.authority {
            // Of another server, and left over in the shell.
            None => "unset FLIGHT_SQL_CA_FILE\n",
            Some(_) => "",
        };
        let exports = self.variables().into_iter();
        let exports = exports.map(|(name, value)| format!("export {name}={}\n", shell_word(&value)));
        std::iter::once(unset.to_owned()).chain(exports).collect()
    }

    /// For programs: one line.
    pub(super) fn json(&self) -> String {
        let variables = self.variables().into_iter();
        let mut object: serde_json::Map<_, _> =
            variables.map(|(name, value)| (name.to_owned(), json!(value))).collect();
        if !self.further.is_empty() {
            object.insert("further".to_owned(), json!(self.further));
        }
        format!("{}\n", serde_json::Value::Object(object))
    }

    /// For people.
    pub(super) fn prose(&self) -> String {
        let further: String = self.further.iter().map(|url| format!("and on       {url}\n")).collect();
        let authority = match &self.authority {
            Some(path) => format!("authority    {}\n", path.display()),
            None => String::new(),
        };
        format!(
            "listening on {}\n{further}{authority}stop it with Ctrl-C; --print-env prints what a client must export\n",
            self.url
        )
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Some(path) = &self.authority {
            // It may be gone already.
            let (Ok(()) | Err(_)) = std::fs::remove_file(path);
        }
    }
}
