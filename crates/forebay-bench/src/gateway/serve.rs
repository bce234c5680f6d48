//! The gateway in this program, for measurements without the command `forebay`.

use std::env;
use std::future::Future;
use std::io::{self, Read};
use std::pin::Pin;
use std::sync::Arc;

use anyhow::Context;
use dsql_local::{Action, Credentials, sign_now};
use forebay::rt::TokioRuntime;
use forebay_dsql::{DsqlPool, Error, OptionsBuilder, SignFuture, Signed, Signer, Token, TokenRequest};
use forebay_gateway::config::ConfigBuilder;
use forebay_gateway::{Cluster, Gateway, RawPool, WorkerThreads};

use crate::cluster::{KEY, SECRET};

/// Serves until its input ends, so that it never outlives the process that started it. All settings are in the environment, as for
/// `forebay gateway`.
pub(crate) fn serve() -> anyhow::Result<()> {
    let config = ConfigBuilder::default().environment(env::vars()).build()?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .context("starting the tokio runtime")?;
    let workers = WorkerThreads::start(config.worker_threads).context("starting threads")?;
    let gateway = runtime.block_on(async {
        let runtime = TokioRuntime::current().context("there is a runtime")?;
        anyhow::Ok(Gateway::start_on(config, FromEnvironment, Arc::new(runtime), workers.runtimes()).await?)
    })?;
    io::stdin().read_to_end(&mut Vec::new())?;
    drop(gateway);
    runtime.shutdown_background();
    Ok(())
}

/// The cluster that the variables name.
struct FromEnvironment;

impl Cluster for FromEnvironment {
    fn open<'a>(
        &'a self,
        role: &'a str,
        database: &'a str,
    ) -> Pin<Box<dyn Future<Output = Result<RawPool, Error>> + Send + 'a>> {
        Box::pin(async move {
            let options = OptionsBuilder::from_env().user(role).database(database).build()?;
            DsqlPool::connect(options, Key(Credentials::new(KEY, SECRET))).await
        })
    }
}

/// Signs with the key of the local Aurora DSQL.
struct Key(Credentials);

impl Signer for Key {
    fn sign<'a>(&'a self, request: &'a TokenRequest) -> SignFuture<'a> {
        let identity = &request.identity;
        let action = Action::for_role(&identity.user);
        let token = sign_now(&self.0, &identity.host, &identity.region, action, request.life);
        Box::pin(std::future::ready(Ok(Signed { token: Token::new(token), credentials_expire: None })))
    }
}
