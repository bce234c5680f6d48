//! One client, from its first byte to its last.

use std::io;
use std::sync::Arc;

use forebay::rt;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};

use super::shared::{CLOSE_TIME, Shared};
use crate::login::{self, ClientStream, LoggedIn, Peer};
use crate::metrics;
use crate::protocol::{ServerError, Severity, write};
use crate::refusal;
use crate::relay::{End, Policy, Relay};
use crate::seat::Ask;
use crate::session::{SessionLimits, StartSettings, VirtualSession};

impl Shared {
    /// One connection, from its first byte to its last.
    pub(super) async fn serve<S>(self: &Arc<Self>, socket: S, peer: Peer, worker: usize)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send,
    {
        // Boxed: what a login needs is freed when it ends, and sessions last.
        match Box::pin(login::login(socket, peer, &self.login)).await {
            Ok(login::Accepted::Client(client)) => {
                metrics::login("accepted");
                self.relay(*client, worker).await;
            }
            Ok(login::Accepted::Cancel(request)) => self.cancel(request).await,
            Ok(login::Accepted::Gone) => {}
            Err(error) => {
                metrics::login(error.label());
                tracing::info!(%peer, %error, "a client was not let in");
            }
        }
    }

    /// A client that is logged in, until it leaves.
    async fn relay<S>(&self, client: LoggedIn<S>, worker: usize)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send,
    {
        let LoggedIn { mut stream, user, start, unread, mut unsent, slot } = client;
        let key = (user.role.clone(), user.database.clone());
        let found = self.pools.lock().find(&key);
        let ready = match found {
            Some(backends) => {
                let reported = Box::pin(backends.reported()).await;
                reported
                    .map(|reported| (backends, reported))
                    .map_err(|error| refusal::no_backend(&error, user.mode))
            }
            None => Err(refusal::no_role()),
        };
        let (backends, reported) = match ready {
            Ok(ready) => ready,
            Err(error) => {
                write::error(&mut unsent, &ServerError { severity: Severity::Fatal, ..error });
                let _ =
                    rt::within(&*self.runtime, CLOSE_TIME, Box::pin(last_words(&mut stream, &unsent))).await;
                return;
            }
        };
        let mut relay = {
            let config = Arc::clone(&self.config.read());
            let limits = SessionLimits {
                max_message: config.limits.message_size,
                max_statements: config.limits.statements,
                max_statement_bytes: config.limits.statements_size,
                ..SessionLimits::default()
            };
            let session = VirtualSession::new(StartSettings::new(start.iter()), limits);
            let policy = Arc::new(Policy::new(&user, &config.timeouts));
            let client = self.clients.enter(&*self.runtime);
            // A drain that began meanwhile has asked everybody else.
            if self.login.is_draining() {
                client.seat.ask(Ask::End);
            }
            let runtime = Arc::clone(self.workers.runtime(worker));
            let mut relay = Relay::new(stream, session, backends, client, policy, runtime);
            relay.greet(&reported, &unsent, &unread);
            relay
        };
        drop((reported, unsent, unread, start, user));
        let end = (&mut relay).await;
        metrics::ended(match end {
            End::Left => "left",
            End::Broken => "broken",
            End::Dismissed => "dismissed",
        });
        // A client that said good-bye reads nothing any more.
        if end == End::Dismissed {
            // An error means that it is closed already.
            let _ = rt::within(&*self.runtime, CLOSE_TIME, relay.client().shutdown()).await;
        }
        drop(slot);
    }
}

/// Says why the client cannot stay.
async fn last_words<S>(stream: &mut ClientStream<S>, words: &[u8]) -> io::Result<()>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    stream.write_all(words).await?;
    stream.shutdown().await
}
