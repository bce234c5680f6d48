//! The listeners, and what comes in by them.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::net::{TcpListener, TcpSocket};
use tokio::sync::mpsc::{Sender, UnboundedReceiver};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::client::ClientSocket;
use crate::counters::count;
use crate::error::StartError;
use crate::runtime;
use crate::shared::Shared;

/// Connections that were accepted and not served yet.
pub(crate) type Incoming = Sender<std::io::Result<ClientSocket>>;

/// A reboot for a reboot.
#[derive(Debug)]
pub(crate) struct Reboot {
    /// How long to be down.
    pub(crate) down: Duration,
    /// The connection that the reboot came by: it has no session, and waits for an answer.
    pub(crate) spare: Option<u64>,
    /// Whom to tell when it is over.
    pub(crate) done: oneshot::Sender<std::io::Result<()>>,
}

/// How many may wait to be accepted.
const BACKLOG: u32 = 1_024;

/// Keeps the listeners, and reboots when it is told to: one reboot after another.
pub(crate) async fn serve_reboots(
    listeners: Vec<Listener>,
    mut reboots: UnboundedReceiver<Reboot>,
    shared: Arc<Shared>,
) {
    while let Some(Reboot { down, spare, done }) = reboots.recv().await {
        // Whoever asked may have gone away.
        let (Ok(()) | Err(_)) = done.send(reboot(&listeners, down, spare, &shared).await);
    }
}

async fn reboot(
    listeners: &[Listener],
    down: Duration,
    spare: Option<u64>,
    shared: &Shared,
) -> std::io::Result<()> {
    let mut closed = Vec::new();
    for listener in listeners {
        closed.push(listener.close().await?);
    }
    shared.clients.cut_all_but(spare);
    shared.sessions.end_all();
    runtime::sleep(down).await;
    listeners.iter().zip(closed).try_for_each(|(listener, closed)| listener.open_again(closed))
}

/// One listener; it can be closed for a while and opened again at the same address.
#[derive(Debug)]
pub(crate) struct Listener {
    address: SocketAddr,
    incoming: Incoming,
    shared: Arc<Shared>,
    accepting: Mutex<Option<JoinHandle<()>>>,
}

impl Listener {
    /// Must be called on the server's own runtime.
    pub(crate) fn open(
        wanted: SocketAddr,
        incoming: Incoming,
        shared: &Arc<Shared>,
    ) -> Result<Self, StartError> {
        let problem = |reason| StartError::Listen { address: wanted, reason };
        let socket = bind(wanted).and_then(|socket| socket.listen(BACKLOG)).map_err(problem)?;
        let address = socket.local_addr().map_err(problem)?;
        let listener = Self { address, incoming, shared: shared.clone(), accepting: Mutex::new(None) };
        listener.accept(socket);
        Ok(listener)
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    fn accept(&self, listener: TcpListener) {
        let task = runtime::spawn(accept(listener, self.incoming.clone(), self.shared.clone()));
        *self.accepting.lock() = Some(task);
    }

    /// Connections are refused from now on. The address stays taken, or another program might get it.
    async fn close(&self) -> std::io::Result<Closed> {
        let accepting = self.accepting.lock().take();
        if let Some(task) = accepting {
            task.abort();
            // The listener is gone when its task is.
            let (Ok(()) | Err(_)) = task.await;
        }
        bind(self.address).map(Closed)
    }

    fn open_again(&self, closed: Closed) -> std::io::Result<()> {
        self.accept(closed.0.listen(BACKLOG)?);
        Ok(())
    }
}

/// The address of a closed listener.
#[derive(Debug)]
struct Closed(TcpSocket);

fn bind(address: SocketAddr) -> std::io::Result<TcpSocket> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    Ok(socket)
}

async fn accept(listener: TcpListener, incoming: Incoming, shared: Arc<Shared>) {
    loop {
        match listener.accept().await {
            Ok((socket, _)) if shared.faults.refuses_connections() => {
                count(&shared.tally.refused);
                // The peer sees a reset rather than an end it might take for an answer.
                let (Ok(()) | Err(_)) = socket.set_zero_linger();
            }
            Ok((socket, peer)) => {
                if let Ok(socket) = ClientSocket::new(socket, peer, &shared)
                    && incoming.send(Ok(socket)).await.is_err()
                {
                    return;
                }
            }
            // Out of descriptors, mostly: others have to close some first.
            Err(_) => runtime::sleep(Duration::from_millis(10)).await,
        }
    }
}
