//! The gateway in the foreground, until a signal ends it.

use std::future::{Future, poll_fn};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::pin::pin;
use std::process::ExitCode;
use std::sync::{Arc, OnceLock};
use std::task::Poll;
use std::time::Duration;

use anyhow::Context as _;
use forebay::rt::TokioRuntime;
use forebay_dsql::Member;
use forebay_gateway::config::GatewayConfig;
use forebay_gateway::{Gateway as Running, Readiness, WorkerThreads};
use tokio::signal::unix::{SignalKind, signal};

use super::cluster::FromVariables;
use super::local::Local;
use super::log::Log;
use super::preparation::Preparation;
use crate::signals::{Ending, Signals};
use crate::{descriptors, output};

/// Runs it.
pub(super) async fn run(command: super::Serve, preparation: Preparation) -> anyhow::Result<ExitCode> {
    let Preparation { mut config, variables, .. } = preparation;
    let mut log = Log::start()?;
    let mut signals = Signals::listen()?;
    let mut hangup = signal(SignalKind::hangup())?;
    // They would end the process. In PgBouncer they mean PAUSE and RESUME.
    let mut unused = [signal(SignalKind::user_defined1())?, signal(SignalKind::user_defined2())?];
    let runtime = Arc::new(TokioRuntime::current()?);
    raise_descriptors(&config);
    let (mut grace, metrics_listen) = (config.drain_grace, config.metrics_listen);
    let workers = WorkerThreads::start(config.worker_threads).with_context(|| {
        format!(
            "cannot start {} threads; lower worker_threads, or raise the limit of open files (ulimit -n)",
            config.worker_threads
        )
    })?;
    let readiness = Started::default();
    let start = async {
        if command.local {
            let local = Local::start(&mut config.users_file, config.metrics_listen).await?;
            let users_file = config.users_file.clone();
            readiness.decides(local.member());
            let gateway = Running::start_on(config, local, runtime, workers.runtimes()).await?;
            return anyhow::Ok((gateway, Some(users_file)));
        }
        let cluster = FromVariables::new(variables).await?;
        readiness.decides(cluster.member());
        Ok((Running::start_on(config, cluster, runtime, workers.runtimes()).await?, None))
    };
    let (gateway, users_file) = match unless_ended(start, &mut signals).await {
        Ok(started) => started?,
        Err(ending) => return Ok(ending.status()),
    };
    readiness.0.get_or_init(|| gateway.readiness());
    output::print(&greeting(&gateway, command.local))?;
    if metrics_listen.is_some() && page(&gateway).is_none() {
        output::say(
            "metrics_listen cannot be served, so this gateway is never ready for those who probe it: see the log",
        );
    }
    loop {
        let event = poll_fn(|context| {
            if hangup.poll_recv(context).is_ready() {
                return Poll::Ready(None);
            }
            for signal in &mut unused {
                while signal.poll_recv(context).is_ready() {
                    tracing::warn!("SIGUSR1 and SIGUSR2 do nothing: this gateway cannot pause");
                }
            }
            pin!(signals.recv()).poll(context).map(Some)
        });
        let event = event.await;
        log.tell_of_dropped();
        let ending = match event {
            Some(ending) => ending,
            None => match unless_ended(reload(&command, users_file.as_ref(), &gateway), &mut signals).await {
                Ok(Ok(changed)) => {
                    grace = changed;
                    tracing::info!("configuration, users and certificates were read again");
                    continue;
                }
                Ok(Err(error)) => {
                    tracing::error!("nothing was changed by the reload: {error:#}");
                    continue;
                }
                // A pool may take a while to open, and nobody needs it any more.
                Err(ending) => ending,
            },
        };
        let status = drain(&gateway, ending, grace, &mut signals).await;
        // In this order, so that nothing is left of the local cluster's files.
        drop((gateway, workers));
        return Ok(status);
    }
}

/// Without descriptors, nobody can connect, and a probe of `/healthz` is not answered either.
fn raise_descriptors(config: &GatewayConfig) {
    // Beside clients: connections to the cluster, files, and those that ask for metrics.
    let needed = config.limits.clients as u64 + config.limits.logins as u64 + 1_000;
    if let Some(maximum) = descriptors::raise(needed) {
        tracing::warn!(
            "{maximum} file descriptors are too few for max_clients and max_logins: allow {needed} (LimitNOFILE, ulimit -Hn), or set \
             lower limits"
        );
    }
}

/// Runs this, unless a signal comes first that ends the gateway.
async fn unless_ended<T>(run: impl Future<Output = T>, signals: &mut Signals) -> Result<T, Ending> {
    let mut run = pin!(run);
    poll_fn(|context| {
        if let Poll::Ready(output) = run.as_mut().poll(context) {
            return Poll::Ready(Ok(output));
        }
        pin!(signals.recv()).poll(context).map(Err)
    })
    .await
}

/// Whether the gateway is ready, once it has started.
#[derive(Clone, Default)]
struct Started(Arc<OnceLock<Readiness>>);

impl Started {
    /// `/readyz` of this member's page answers accordingly.
    fn decides(&self, member: &Member) {
        let started = self.clone();
        member.ready_when(move || match started.0.get() {
            Some(readiness) => readiness.reasons(),
            None => vec!["the gateway is starting".to_owned()],
        });
    }
}

/// Reads everything again. The users file is `made` here if there was none. Returns the grace period.
async fn reload(
    command: &super::Serve,
    made: Option<&PathBuf>,
    gateway: &Running,
) -> anyhow::Result<Duration> {
    let mut config = command.configuration()?;
    if let Some(made) = made {
        config.users_file.clone_from(made);
    }
    let grace = config.drain_grace;
    gateway.reload(config).await?;
    Ok(grace)
}

/// Lets clients finish. A second signal ends that.
async fn drain(gateway: &Running, ending: Ending, grace: Duration, signals: &mut Signals) -> ExitCode {
    // Whoever presses Ctrl-C waits for it.
    let grace = if ending == Ending::Interrupted { Duration::ZERO } else { grace };
    tracing::info!("shutting down: {}", leaving(gateway.clients(), grace));
    match unless_ended(gateway.drain(grace), signals).await {
        Ok(0) => ExitCode::SUCCESS,
        Ok(cut) => {
            let clients = if cut == 1 { "1 client was".to_owned() } else { format!("{cut} clients were") };
            output::say(&format!("{clients} cut off in the middle of a transaction"));
            ExitCode::FAILURE
        }
        Err(_) => ending.status(),
    }
}

/// Who is still there, and for how long.
fn leaving(clients: usize, grace: Duration) -> String {
    let (who, have) = match clients {
        0 => return "no clients are connected".to_owned(),
        1 => ("1 client".to_owned(), "has"),
        _ => (format!("{clients} clients"), "have"),
    };
    if grace.is_zero() {
        return format!("{who} must leave, at the end of a transaction");
    }
    format!("{who} {have} {} to leave", forebay::duration::show(grace))
}

/// Where its metrics are.
fn page(gateway: &Running) -> Option<SocketAddr> {
    gateway.backends().first().and_then(|(_, backends)| backends.pool().status_page())
}

/// Where it is.
fn greeting(gateway: &Running, local: bool) -> String {
    let mut text = String::new();
    for address in gateway.addresses() {
        text += &format!("listening on {address}\n");
    }
    if let Some(socket) = gateway.unix_socket() {
        text += &format!("listening on {}\n", socket.display());
    }
    if let Some(address) = gateway.peer_address() {
        text += &format!("listening on {address} for peers\n");
    }
    if let Some(address) = page(gateway) {
        text += &format!("metrics and health on http://{address}/\n");
    }
    if local && let (Some(address), Some(user)) = (gateway.addresses().first(), gateway.users().first()) {
        text += &format!(
            "\nA local Aurora DSQL is behind it. Try:\n\n  psql \"host={} port={} user={user} dbname=postgres\"\n\n",
            address.ip(),
            address.port()
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_of_those_who_leave_is_a_sentence() {
        let seconds = Duration::from_secs;
        for (clients, grace, expected) in [
            (0, 30, "no clients are connected"),
            (1, 30, "1 client has 30s to leave"),
            (2, 90, "2 clients have 1m30s to leave"),
            (1, 0, "1 client must leave, at the end of a transaction"),
            (2, 0, "2 clients must leave, at the end of a transaction"),
        ] {
            assert_eq!(leaving(clients, seconds(grace)), expected);
        }
    }
}
