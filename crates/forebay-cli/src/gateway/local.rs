//! `--local`: a local Aurora DSQL in the process of the gateway.

use std::future::Future;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::pin::Pin;

use dsql_local::{Credentials, EngineKind};
use forebay_dsql::{Error, Member, Options, OptionsBuilder, RootCertificates};
use forebay_gateway::{Cluster, RawPool};

use super::preparation::{TOKEN, with_token};
use crate::key_signer::KeySigner;

/// How many connections the gateway has to it.
const CONNECTIONS: usize = 20;

/// A local cluster, and the pools to it.
pub(super) struct Local {
    cluster: dsql_local::Cluster,
    member: Member,
    page: Option<Page>,
    /// The users file, unless there is one.
    _files: Option<tempfile::TempDir>,
}

/// Where its pools are shown.
struct Page {
    listen: SocketAddr,
    /// What its readers must present.
    token: Option<String>,
}

/// A users file that lets this machine's users in as `admin`.
const USERS: &str = "[[user]]\nname = \"admin\"\nrole = \"admin\"\n";

impl Local {
    /// Starts a cluster, whose pools are shown on `page`. If there is no `users_file`, one is made, and its path is put there.
    pub(super) async fn start(users_file: &mut PathBuf, page: Option<SocketAddr>) -> anyhow::Result<Self> {
        let token = std::env::var(TOKEN).ok().filter(|token| !token.trim().is_empty());
        let page = page.map(|listen| Page { listen, token });
        let files = if users_file.exists() {
            None
        } else {
            let directory = tempfile::tempdir()?;
            *users_file = directory.path().join("users.toml");
            std::fs::write(&users_file, USERS)?;
            Some(directory)
        };
        let key = Credentials::new("AKIDLOCAL", "local");
        let cluster = dsql_local::Cluster::start(dsql_local::Config {
            engine: EngineKind::Builtin,
            credentials: vec![key.clone()],
            ..dsql_local::Config::default()
        })?;
        let options = options(&cluster, page.as_ref()).build()?;
        let member = Member::builder(&options, KeySigner(key)).join().await?;
        Ok(Self { cluster, member, page, _files: files })
    }

    /// What its pools share.
    pub(super) fn member(&self) -> &Member {
        &self.member
    }

    async fn connect(&self, role: &str, database: &str) -> Result<RawPool, Error> {
        let options =
            options(&self.cluster, self.page.as_ref()).user(role).database(database).pool(role).build()?;
        self.member.pool(options).connect().await
    }
}

fn options(cluster: &dsql_local::Cluster, page: Option<&Page>) -> OptionsBuilder {
    let options = Options::builder(cluster.endpoint())
        .port(cluster.address().port())
        .region(cluster.region())
        .roots(RootCertificates::Pem(cluster.ca_pem().as_bytes().into()))
        .reservoir(true)
        .max_connections(CONNECTIONS)
        .application_name("")
        .startup_jitter(std::time::Duration::ZERO);
    match page {
        None => options,
        Some(page) => with_token(options.status_page(page.listen), page.token.as_deref()),
    }
}

impl Cluster for Local {
    fn open<'a>(
        &'a self,
        role: &'a str,
        database: &'a str,
    ) -> Pin<Box<dyn Future<Output = Result<RawPool, Error>> + Send + 'a>> {
        Box::pin(self.connect(role, database))
    }
}
