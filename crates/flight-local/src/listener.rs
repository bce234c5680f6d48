//! Accepts connections, and reboots the server.

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

pub(crate) type Incoming = Sender<std::io::Result<ClientSocket>>;

/// A request to reboot.
#[derive(Debug)]
pub(crate) struct Reboot {
    /// How long no connection is accepted.
    pub(crate) down: Duration,
    /// The connection that requested the reboot. It has no session, and waits for the answer.
    pub(crate) keep_open: Option<u64>,
    /// Gets the result.
    pub(crate) done: oneshot::Sender<std::io::Result<()>>,
}

const BACKLOG: u32 = 1_024;

/// Owns the listeners and runs reboots, one after another.
pub(crate) async fn serve_reboots(
    listeners: Vec<Listener>,
    mut reboots: UnboundedReceiver<Reboot>,
    shared: Arc<Shared>,
) {
    while let Some(Reboot { down, keep_open, done }) = reboots.recv().await {
        // The caller may be gone.
        let (Ok(()) | Err(_)) = done.send(reboot(&listeners, down, keep_open, &shared).await);
    }
}

async fn reboot(
    listeners: &[Listener],
    down: Duration,
    keep_open: Option<u64>,
    shared: &Shared,
) -> std::io::Result<()> {
    let mut closed = Vec::new();
    for listener in listeners {
        closed.push(listener.close().await?);
    }
    shared.clients.reset_all_but(keep_open);
    shared.sessions.end_all();
    runtime::sleep(down).await;
    listeners.iter().zip(closed).try_for_each(|(listener, closed)| listener.open_again(closed))
}

/// A listener that can be closed and reopened at the same address.
#[derive(Debug)]
pub(crate) struct Listener {
    pub(crate) address: SocketAddr,
    incoming: Incoming,
    shared: Arc<Shared>,
    accepting: Mutex<Option<JoinHandle<()>>>,
    /// Bound to the same address, and never listening: while the listener is replaced, no other program can take the port. Not
    /// every system allows it.
    reserved: Mutex<Option<TcpSocket>>,
}

impl Listener {
    /// Must be called on the server's own runtime.
    pub(crate) fn open(
        wanted: SocketAddr,
        incoming: Incoming,
        shared: &Arc<Shared>,
    ) -> Result<Self, StartError> {
        let problem = |reason| StartError::Listen { address: wanted, reason };
        let socket = bind(wanted).map_err(problem)?;
        let address = socket.local_addr().map_err(problem)?;
        let (accepting, reserved) = (Mutex::new(None), Mutex::new(None));
        let listener = Self { address, incoming, shared: shared.clone(), accepting, reserved };
        listener.open_again(Closed(socket)).map_err(problem)?;
        Ok(listener)
    }

    fn accept(&self, listener: TcpListener) {
        let task = runtime::spawn(accept(listener, self.incoming.clone(), self.shared.clone()));
        *self.accepting.lock() = Some(task);
    }

    /// Closes the listener. The address stays bound, so that no other program can take it.
    async fn close(&self) -> std::io::Result<Closed> {
        let accepting = self.accepting.lock().take();
        if let Some(task) = accepting {
            task.abort();
            // The listener is closed when its task has ended.
            let (Ok(()) | Err(_)) = task.await;
        }
        let reserved = self.reserved.lock().take();
        reserved.map_or_else(|| bind(self.address), Ok).map(Closed)
    }

    fn open_again(&self, closed: Closed) -> std::io::Result<()> {
        // Nothing can be bound to the address of a socket that listens.
        *self.reserved.lock() = bind(self.address).ok();
        self.accept(closed.0.listen(BACKLOG)?);
        Ok(())
    }
}

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
                // The peer gets a reset, not an orderly close.
                let (Ok(()) | Err(_)) = socket.set_zero_linger();
            }
            Ok((socket, peer)) => {
                if let Ok(socket) = ClientSocket::new(socket, peer, &shared)
                    && incoming.send(Ok(socket)).await.is_err()
                {
                    return;
                }
            }
            // Usually out of file descriptors.
            Err(_) => runtime::sleep(Duration::from_millis(10)).await,
        }
    }
}
