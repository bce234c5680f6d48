//! The service that the runbooks are about: a process that gets everything from its environment, with callers.

use std::io::Read;
use std::process::{Command, Stdio};
use std::time::Duration;

use forebay_dsql::{DsqlPool, Error, Options, Postgres};
use tokio::runtime::Builder;
use tokio::time::sleep;

use crate::process::Process;

/// Callers of the service, beside the variables of a service.
pub(crate) const CALLERS: &str = "OPS_CALLERS";
/// How long a caller keeps its connection, in milliseconds.
pub(crate) const HOLD: &str = "OPS_HOLD_MS";

/// Starts the service. `variables` is all of its environment.
pub(crate) fn start<'a>(variables: impl IntoIterator<Item = (&'a String, &'a String)>) -> Process {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["service::service", "--exact", "--ignored", "--nocapture"]);
    command.env_clear().envs(variables).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    Process::start(&mut command)
}

#[test]
#[ignore = "it runs until its standard input ends; the other tests start it as a process of its own"]
fn service() {
    Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap().block_on(async {
        let number = |name: &str| std::env::var(name).ok().and_then(|value| value.parse::<u64>().ok());
        let options = Options::from_env().unwrap();
        let member = forebay_aws::join(&options).await.unwrap();
        let dsql: DsqlPool<Postgres> = member.pool(options).connect().await.unwrap();
        let hold = Duration::from_millis(number(HOLD).unwrap_or(20));
        let callers = number(CALLERS).unwrap_or(2);
        tokio::spawn(serve(dsql.clone(), callers, hold));
        let ended = tokio::task::spawn_blocking(|| std::io::stdin().read_to_end(&mut Vec::new()));
        ended.await.unwrap().unwrap();
        let patience = Duration::from_secs(10);
        dsql.drain(patience).await;
        member.leave(patience).await;
    });
}

/// Creates its table, as a migration does, and then has callers.
async fn serve(dsql: DsqlPool<Postgres>, callers: u64, hold: Duration) {
    let create =
        "CREATE TABLE IF NOT EXISTS payment (id UUID PRIMARY KEY DEFAULT gen_random_uuid(), amount INT)";
    while dsql.run("create", async |tx| Ok::<_, Error>(tx.batch_execute(create).await?)).await.is_err() {
        sleep(Duration::from_millis(200)).await;
    }
    for _ in 0..callers {
        tokio::spawn(call(dsql.clone(), hold));
    }
}

/// A caller: one transaction after the other. What fails is tried again, as a request that users repeat.
async fn call(dsql: DsqlPool<Postgres>, hold: Duration) {
    loop {
        let done = dsql.run("pay", async |tx| {
            tx.batch_execute("INSERT INTO payment (amount) VALUES (1)").await?;
            sleep(hold).await;
            Ok::<_, Error>(())
        });
        drop(done.await);
        sleep(Duration::from_millis(20)).await;
    }
}
