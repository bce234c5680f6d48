//! sqlx's pool, set up as well as it can be.

use std::time::Duration;

use anyhow::Context;
use forebay::Seed;
use forebay::rt::{self, TokioRuntime};
use forebay_dsql::{RootCertificates, Signer as _};
use sqlx::pool::PoolConnection;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions, PgSslMode};
use sqlx::{PgPool, Postgres};

use super::backoff::{self, Backoff};
use super::database::Database;
use super::scenario::{ACQUIRE_TIMEOUT, CONNECTIONS_EACH, seconds};

/// sqlx looks at its idle connections once in this time, and opens `min_connections` again if one of them is too old.
const LIFE: Duration = Duration::from_secs(80);
/// sqlx keeps one password for all connections: it must be good for the longest run, and for the jumps of the clock.
const TOKEN_LIFE: Duration = Duration::from_secs(2 * 3600);

/// How it is set up, in words.
pub(super) fn settings() -> Vec<(&'static str, String)> {
    vec![
        ("connections", format!("{CONNECTIONS_EACH}, min_connections too")),
        ("life", seconds(LIFE)),
        ("timeout", seconds(ACQUIRE_TIMEOUT)),
        backoff::setting(),
        ("check", "a ping before each acquire".to_owned()),
    ]
}

/// The pool of one instance. It refills when a caller gives back a connection that is dead or too old, and when it closes an
/// idle one that is too old. The first refusal of the cluster ends a refill. Of idle connections that are dead, each caller finds
/// one, and opens another in its place.
#[derive(Debug)]
pub(super) struct SqlxPool {
    pool: PgPool,
    runtime: TokioRuntime,
    backoff: Backoff,
}

impl SqlxPool {
    /// Every connection is open before the first caller comes. sqlx runs its tasks where this is called.
    pub(super) async fn start(
        database: &Database,
        runtime: TokioRuntime,
        seed: Seed,
    ) -> anyhow::Result<Self> {
        let options = database.options().token_life(TOKEN_LIFE).build()?;
        let signed = database.signer().sign(&options.token_request()).await.context("cannot sign a token")?;
        let RootCertificates::Pem(authority) = options.roots() else {
            anyhow::bail!("the local cluster has no authority of its own");
        };
        let connect = PgConnectOptions::new_without_pgpass()
            .host(options.host())
            .port(options.port())
            .username(options.user())
            .database(options.database())
            .password(signed.token.expose_secret())
            .ssl_mode(PgSslMode::VerifyFull)
            .ssl_root_cert_from_pem(authority.to_vec());
        let most = u32::try_from(CONNECTIONS_EACH)?;
        let pool = PgPoolOptions::new()
            .max_connections(most)
            .min_connections(most)
            .max_lifetime(LIFE)
            .idle_timeout(None)
            .acquire_timeout(ACQUIRE_TIMEOUT)
            .connect_lazy_with(connect);
        let this = Self { pool, runtime: runtime.clone(), backoff: Backoff::new(runtime, seed) };
        let mut all = Vec::new();
        while all.len() < CONNECTIONS_EACH {
            match this.get().await {
                Ok(connection) => all.push(connection),
                // Until it has as many as it may, that is no error.
                Err(sqlx::Error::PoolTimedOut) => {}
                Err(error) => return Err(error).context("sqlx cannot connect to the local cluster"),
            }
        }
        drop(all);
        Ok(this)
    }

    /// A connection, within the acquire timeout.
    pub(super) async fn acquire(&self) -> Option<PoolConnection<Postgres>> {
        rt::within(&self.runtime, ACQUIRE_TIMEOUT, self.get()).await?.ok()
    }

    async fn get(&self) -> Result<PoolConnection<Postgres>, sqlx::Error> {
        self.backoff.get(|| self.pool.acquire(), |error| matches!(error, sqlx::Error::Database(_))).await
    }

    /// Connections that no caller has. sqlx learns that one is dead when it pings it.
    pub(super) fn idle(&self) -> usize {
        self.pool.num_idle()
    }

    /// Connections that exist or are being opened.
    pub(super) fn size(&self) -> usize {
        usize::try_from(self.pool.size()).unwrap_or(usize::MAX)
    }
}
